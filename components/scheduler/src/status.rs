//! Rejections of nodes and pods by plug-ins, and the message about an unschedulable pod.

use crate::object::Text;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The name that stands for extenders among the plug-ins that reject nodes. Every event may help pods that extenders
/// rejected.
pub const EXTENDER: &str = "Extender";

/// What kind of rejection it is, which tells whether evicting pods may help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// The node or pod is rejected in the present state; evicting pods may help.
    Unschedulable,
    /// The node or pod is rejected, and evicting pods does not help.
    UnschedulableAndUnresolvable,
    /// An object that the pod needs does not exist yet and is about to be created. Once it exists, the pod is tried
    /// again without a back-off.
    Pending,
    /// The check failed with an error.
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

/// A plug-in's rejection of a pod, or of one node for a pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Rejection {
    pub code: Code,
    /// The name of the plug-in that rejects; empty if several plug-ins reject.
    pub plugin: &'static str,
    pub reasons: Vec<Reason>,
}

impl Rejection {
    pub fn new(code: Code, plugin: &'static str, reason: impl Into<Reason>) -> Self {
        Rejection { code, plugin, reasons: vec![reason.into()] }
    }

    /// A rejection that evicting pods may resolve.
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

/// All rejections of one search for a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diagnosis {
    /// How many nodes the cluster has.
    pub nodes: usize,
    /// The rejected nodes with their rejections, in the order of the nodes.
    pub rejected: Vec<(Text, Rejection)>,
    /// The rejection that stands for all nodes that were not checked.
    pub absent: Option<Rejection>,
    /// The plug-ins that named the only nodes that may be feasible, so that other nodes were not checked.
    pub narrowed_by: Vec<&'static str>,
    /// Whether extenders left nodes out of their answers without a reason.
    pub extender_excluded: bool,
    /// The message of a plug-in that rejected the pod before any node was checked.
    pub pre_filter_message: Option<String>,
}

impl Diagnosis {
    /// The names of the plug-ins that rejected a node, or all nodes.
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

    /// The code of a node's rejection. For a node that was not checked it says that evicting pods does not help.
    pub fn code(&self, node: &str) -> Code {
        let rejected = self.rejected.iter().find(|(name, _)| **name == *node).map(|(_, rejection)| rejection.code);
        let absent = self.absent.as_ref().map(|rejection| rejection.code);
        rejected.or(absent).unwrap_or(Code::UnschedulableAndUnresolvable)
    }

    /// The message for the pod's condition and Event. `after` contains what the plug-ins of the point `postFilter`
    /// report.
    pub fn message(&self, after: &str) -> String {
        if let Some(before) = &self.pre_filter_message {
            return text(self.nodes, &format!(" {before}."), after);
        }
        let others = self.nodes.saturating_sub(self.rejected.len());
        let rejected = self.rejected.iter().map(|(_, rejection)| (rejection, 1));
        message(self.nodes, rejected.chain(self.absent.iter().map(|rejection| (rejection, others))), after)
    }
}

/// The message for a cluster with `nodes` nodes, from each rejection and its number of nodes. Otherwise like
/// [`Diagnosis::message`].
pub fn message<'a>(nodes: usize, rejected: impl Iterator<Item = (&'a Rejection, usize)>, after: &str) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (rejection, nodes) in rejected {
        for reason in &rejection.reasons {
            *counts.entry(reason).or_default() += nodes;
        }
    }
    // The lines are sorted as texts and not by number, as in Kubernetes: `10 …` comes before `2 …`.
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

/// How a pod's `status.nominatedNodeName` changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Nomination {
    #[default]
    Keep,
    Clear,
    Set(Text),
}
