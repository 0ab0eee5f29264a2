//! The writer's proposals to a log, and the log's answers.

use super::Fault;
use holdfast_core::event::{Offset, Record};
use std::ops::Range;
use std::sync::Arc;

/// Decisions for the log, numbered as if they followed the last event that the writer has read.
pub struct Proposal<'a> {
    /// The events of all decisions, in order, numbered without gaps after the last event that the writer has read. A
    /// log that numbers its events itself gives each of them another offset.
    pub records: &'a [Record],
    /// Builds the decisions. Only a log that compares versions calls this function.
    decisions: &'a dyn Fn() -> Vec<Decision>,
}

/// A set of events of which the log stores either all or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The indexes of the decision's records in the proposal. Each record requires that the event it
    /// [replaces](Record::replaces) is the newest event of its object, or that no such object exists.
    pub records: Range<usize>,
    /// The versions that the decision requires in addition to the versions that its records replace.
    pub expects: Vec<Expected>,
    /// Claims that no other object may hold, each with the index of the record whose object claims it.
    pub claims: Vec<(usize, Arc<str>)>,
    /// The claims that the decision's objects had before the decision, each with the index of the record of its object.
    pub had: Vec<(usize, Arc<str>)>,
}

/// An object, and the newest event that it had when the decision was judged; the event is `None` if there was no such
/// object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    pub resource: String,
    pub key: Arc<str>,
    pub version: Option<Offset>,
}

/// The outcome of a proposal, which contains all decisions of one batch.
#[derive(Debug)]
pub enum Append {
    /// The whole proposal is durable, under its numbers.
    Appended,
    /// Another server appended first, and nothing of the proposal is in the log. [`Log::tail`](super::Log::tail)
    /// returns the other server's events.
    Behind,
    /// The log numbers events itself. The receipts are the outcomes of the decisions, in order. The tail has all events
    /// up to the last event of these decisions, including events that other servers appended before it.
    Numbered(Vec<Receipt>),
}

/// The outcome of one decision.
#[derive(Debug)]
pub enum Receipt {
    /// The decision is durable. Its events have these offsets, in the order of its records; the log may have them in
    /// another order.
    At(Vec<Offset>),
    /// A version that the decision required has changed. None of the decision's events is in the log. (A log that
    /// writes the objects one after another may already have stored all of the decision's events except the last.)
    Overtaken,
    /// Another object holds this claim, so none of the decision's events is in the log. The request is judged again.
    Taken(Arc<str>),
    /// The log refused the decision for a reason other than a changed version or a taken claim. None of the decision's
    /// events is in the log.
    Refused(Fault),
    /// The decision was sent, but the log did not answer, so it is unknown whether the decision is stored.
    Unknown,
}

impl<'a> Proposal<'a> {
    pub fn new(records: &'a [Record], decisions: &'a dyn Fn() -> Vec<Decision>) -> Proposal<'a> {
        Proposal { records, decisions }
    }

    /// A proposal in which each record is a decision by itself. The log must use the records' numbers.
    pub fn of(records: &'a [Record]) -> Proposal<'a> {
        Proposal { records, decisions: &Vec::new }
    }

    /// A proposal of these decisions, with `records` in place of their records. Only the values of the objects may
    /// differ.
    pub fn with(&self, records: &'a [Record]) -> Proposal<'a> {
        Proposal { records, decisions: self.decisions }
    }

    pub fn decisions(&self) -> Vec<Decision> {
        (self.decisions)()
    }
}

impl Append {
    pub fn is_appended(&self) -> bool {
        matches!(self, Append::Appended)
    }

    pub fn is_behind(&self) -> bool {
        matches!(self, Append::Behind)
    }
}
