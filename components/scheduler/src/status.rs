//! Rejections of nodes and pods by plug-ins, and the message of an unschedulable pod.

use crate::object::Text;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The name under which extenders reject nodes. Every event may help pods that extenders rejected.
pub const EXTENDER: &str = "Extender";

/// How final a rejection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// Rejected in the present state; evicting pods may help.
    Unschedulable,
    /// Rejected even if pods are evicted.
    UnschedulableAndUnresolvable,
    /// A missing object is about to appear. Once the object appears, the pod is tried again without a back-off.
    Pending,
    /// The check failed.
    Error,
}

impl Code {
    pub fn name(self) -> &'static str {
        match self {
            Code::Unschedulable => "Unschedulable",
            Code::UnschedulableAndUnresolvable => "UnschedulableAndUnresolvable",
            Code::Pending => "Pending",
            Code::Error => "Error",
        }
    }
}

pub type Reason = Cow<'static, str>;

/// A plug-in's rejection of a pod, or of a pod on a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Rejection {
    pub code: Code,
    /// The plug-in that rejects; empty if several reject.
    pub plugin: &'static str,
    pub reasons: Vec<Reason>,
}

impl Rejection {
    pub fn new(code: Code, plugin: &'static str, reason: impl Into<Reason>) -> Self {
        Rejection { code, plugin, reasons: vec![reason.into()] }
    }

    /// A rejection that may be resolved by evicting pods.
    pub fn unschedulable(plugin: &'static str, reason: impl Into<Reason>) -> Self {
        Rejection::new(Code::Unschedulable, plugin, reason)
    }

    /// A rejection that evicting pods cannot resolve.
    pub fn unresolvable(plugin: &'static str, reason: impl Into<Reason>) -> Self {
        Rejection::new(Code::UnschedulableAndUnresolvable, plugin, reason)
    }

    pub fn error(plugin: &'static str, reason: impl Into<Reason>) -> Self {
        Rejection::new(Code::Error, plugin, reason)
    }

    pub fn message(&self) -> String {
        self.reasons.join(", ")
    }
}

/// The rejections of one search: by node, and for all nodes that were not checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diagnosis {
    /// The number of nodes in the cluster.
    pub nodes: usize,
    /// Rejected nodes, in their order.
    pub rejected: Vec<(Text, Rejection)>,
    /// Why the remaining nodes were not checked.
    pub absent: Option<Rejection>,
    /// Plug-ins that named the only nodes that may be feasible.
    pub narrowed_by: Vec<&'static str>,
    /// Whether extenders left nodes out without a reason.
    pub extender_excluded: bool,
    /// A rejection of the pod before any node was checked.
    pub pre_filter_message: Option<String>,
}

impl Diagnosis {
    /// The plug-ins that rejected the pod on some node or on all nodes.
    pub fn rejectors(&self) -> Vec<&'static str> {
        let absent = self.absent.iter().map(|rejection| rejection.plugin);
        let mut names: Vec<_> = self.rejected.iter().map(|(_, rejection)| rejection.plugin).chain(absent).collect();
        names.extend(&self.narrowed_by);
        names.extend(self.extender_excluded.then_some(EXTENDER));
        names.sort_unstable();
        names.dedup();
        names.retain(|name| !name.is_empty());
        names
    }

    /// How final the rejection of a node is: a node that was not checked stays rejected even if pods are evicted.
    pub fn code(&self, node: &str) -> Code {
        let rejected = self.rejected.iter().find(|(name, _)| **name == *node).map(|(_, rejection)| rejection.code);
        let absent = self.absent.as_ref().map(|rejection| rejection.code);
        rejected.or(absent).unwrap_or(Code::UnschedulableAndUnresolvable)
    }

    /// The message of the pod's condition and Event. `after` contains the reasons of the plug-ins of the point
    /// `postFilter`.
    pub fn message(&self, after: &str) -> String {
        if let Some(before) = &self.pre_filter_message {
            return text(self.nodes, &format!(" {before}."), after);
        }
        let others = self.nodes.saturating_sub(self.rejected.len());
        let rejected = self.rejected.iter().map(|(_, rejection)| (rejection, 1));
        message(self.nodes, rejected.chain(self.absent.iter().map(|rejection| (rejection, others))), after)
    }
}

/// Like [`Diagnosis::message`], from the number of nodes for each rejection.
pub fn message<'a>(nodes: usize, rejected: impl Iterator<Item = (&'a Rejection, usize)>, after: &str) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (rejection, nodes) in rejected {
        for reason in &rejection.reasons {
            *counts.entry(reason).or_default() += nodes;
        }
    }
    // The lines are sorted as text, as in Kubernetes: `10 …` comes before `2 …`.
    let mut lines: Vec<String> =
        counts.iter().filter(|(_, nodes)| **nodes > 0).map(|(reason, nodes)| format!("{nodes} {reason}")).collect();
    lines.sort();
    let histogram = if lines.is_empty() { String::new() } else { format!(" {}.", lines.join(", ")) };
    text(nodes, &histogram, after)
}

fn text(nodes: usize, why: &str, after: &str) -> String {
    let space = if after.is_empty() { "" } else { " " };
    format!("0/{nodes} nodes are available:{why}{space}{after}")
}

/// The change of a pod's `status.nominatedNodeName`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Nomination {
    #[default]
    Keep,
    Clear,
    Set(Text),
}
