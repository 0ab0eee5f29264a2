//! How a plug-in refuses, and the text that tells people why a pod is not scheduled.

use crate::object::Text;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The name under which extenders refuse nodes. Every event may help pods that they refused.
pub const EXTENDER: &str = "Extender";

/// How final a refusal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// Refused as things are; evicting pods may help.
    Unschedulable,
    /// Refused whichever pods are evicted.
    UnschedulableAndUnresolvable,
    /// Something missing is on its way; once it arrives, the pod is tried again without a back-off.
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

/// A plug-in's refusal of a pod, or of a pod on a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Refusal {
    pub code: Code,
    /// The plug-in that refuses; empty if several do.
    pub plugin: &'static str,
    pub reasons: Vec<Reason>,
}

impl Refusal {
    pub fn new(code: Code, plugin: &'static str, reason: impl Into<Reason>) -> Self {
        Refusal { code, plugin, reasons: vec![reason.into()] }
    }

    /// A refusal that may be resolved by evicting pods.
    pub fn soft(plugin: &'static str, reason: impl Into<Reason>) -> Self {
        Refusal::new(Code::Unschedulable, plugin, reason)
    }

    /// A refusal that evicting pods cannot resolve.
    pub fn hard(plugin: &'static str, reason: impl Into<Reason>) -> Self {
        Refusal::new(Code::UnschedulableAndUnresolvable, plugin, reason)
    }

    pub fn error(plugin: &'static str, reason: impl Into<Reason>) -> Self {
        Refusal::new(Code::Error, plugin, reason)
    }

    pub fn message(&self) -> String {
        self.reasons.join(", ")
    }
}

/// The refusals of one search: by node, and for all nodes that were not looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diagnosis {
    /// The number of nodes in the cluster.
    pub nodes: usize,
    /// Refused nodes, in their order.
    pub refused: Vec<(Text, Refusal)>,
    /// Why the remaining nodes were not looked at.
    pub absent: Option<Refusal>,
    /// Plug-ins that named the only nodes that may be feasible.
    pub narrowed_by: Vec<&'static str>,
    /// Whether extenders left nodes out without a reason.
    pub left_out: bool,
    /// A refusal of the pod before any node was looked at.
    pub before: Option<String>,
}

impl Diagnosis {
    /// The plug-ins that refused.
    pub fn rejectors(&self) -> Vec<&'static str> {
        let absent = self.absent.iter().map(|refusal| refusal.plugin);
        let mut names: Vec<_> = self.refused.iter().map(|(_, refusal)| refusal.plugin).chain(absent).collect();
        names.extend(&self.narrowed_by);
        names.extend(self.left_out.then_some(EXTENDER));
        names.sort_unstable();
        names.dedup();
        names.retain(|name| !name.is_empty());
        names
    }

    /// How final the refusal of a node is: a node that was not looked at stays refused whichever pods are evicted.
    pub fn code(&self, node: &str) -> Code {
        let refused = self.refused.iter().find(|(name, _)| **name == *node).map(|(_, refusal)| refusal.code);
        let absent = self.absent.as_ref().map(|refusal| refusal.code);
        refused.or(absent).unwrap_or(Code::UnschedulableAndUnresolvable)
    }

    /// The message of the pod's condition and Event. `after`: what the plug-ins of the point `postFilter` said.
    pub fn message(&self, after: &str) -> String {
        if let Some(before) = &self.before {
            return text(self.nodes, &format!(" {before}."), after);
        }
        let others = self.nodes.saturating_sub(self.refused.len());
        let refused = self.refused.iter().map(|(_, refusal)| (refusal, 1));
        message(self.nodes, refused.chain(self.absent.iter().map(|refusal| (refusal, others))), after)
    }
}

/// As [`Diagnosis::message`], from the number of nodes for each refusal.
pub fn message<'a>(nodes: usize, refused: impl Iterator<Item = (&'a Refusal, usize)>, after: &str) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (refusal, nodes) in refused {
        for reason in &refusal.reasons {
            *counts.entry(reason).or_default() += nodes;
        }
    }
    // Sorted as text, as in Kubernetes: `10 …` comes before `2 …`.
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
