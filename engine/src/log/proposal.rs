//! What the writer proposes to a log, and what the log answers.

use super::Fault;
use holdfast_core::event::{Offset, Record};
use std::ops::Range;
use std::sync::Arc;

/// Decisions on their way into the log, as they would follow what the writer knows of it.
pub struct Proposal<'a> {
    /// The events of all decisions, in order, numbered without a gap behind the last one that the writer knows. A log
    /// that numbers its events itself gives each another offset.
    pub records: &'a [Record],
    /// What stands and falls together; made only for a log that asks.
    decisions: &'a dyn Fn() -> Vec<Decision>,
}

/// Events that stand or fall together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Which of the proposal's. Each counts on it that what it [replaces](Record::replaces) is the newest event of its
    /// object, or that there is no such object.
    pub records: Range<usize>,
    /// What it counts on besides.
    pub expects: Vec<Expected>,
    /// What no other object may hold: the claim, and which record's object is to hold it.
    pub claims: Vec<(usize, Arc<str>)>,
    /// What its objects held before, in the same form.
    pub had: Vec<(usize, Arc<str>)>,
}

/// The newest event of an object that a decision has seen; nothing where there was no such object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    pub resource: String,
    pub key: Arc<str>,
    pub version: Option<Offset>,
}

/// What came of a proposal.
#[derive(Debug)]
pub enum Append {
    /// All of it is durable, under its numbers.
    Appended,
    /// Somebody else was first, and nothing of it is in the log. Their events come by [`Log::tail`](super::Log::tail).
    Behind,
    /// The log numbers events itself: what became of each decision, in their order. The tail has all events up to the
    /// last of theirs, and what others were faster with.
    Numbered(Vec<Receipt>),
}

/// What became of one decision.
#[derive(Debug)]
pub enum Receipt {
    /// It is durable. Its events have these offsets, in the order of its records; the log may have them in another.
    At(Vec<Offset>),
    /// Something that it counted on is no longer so. Nothing of it is in the log, or, where the log takes one object
    /// after the other, not the last of it.
    Overtaken,
    /// Nothing of it is in the log, because somebody else has what it claims: this claim. The request is judged again.
    Taken(Arc<str>),
    /// Nothing of it is in the log, for another reason.
    Refused(Fault),
    /// It was sent, and nobody said what came of it.
    Unknown,
}

impl<'a> Proposal<'a> {
    pub fn new(records: &'a [Record], decisions: &'a dyn Fn() -> Vec<Decision>) -> Proposal<'a> {
        Proposal { records, decisions }
    }

    /// Of records each of which is decided by itself. Only a log that takes their numbers is given such.
    pub fn of(records: &'a [Record]) -> Proposal<'a> {
        Proposal { records, decisions: &Vec::new }
    }

    /// The same decisions with other values.
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
