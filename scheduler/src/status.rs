//! How a plug-in says no, and the one text in which people read why a pod lies nowhere.

use crate::object::Text;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The name under which extenders refuse nodes. Every event gives hope to pods that they refused.
pub const EXTENDER: &str = "Extender";

/// How final a no is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// Not as things are; if other pods went, it might be yes.
    Unschedulable,
    /// Whoever else went, it would stay no.
    UnschedulableAndUnresolvable,
    /// What is missing is under way, and its arrival is worth no back-off.
    Pending,
    /// It could not be told.
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

/// What a plug-in says about a pod, or about a pod on a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Refusal {
    pub code: Code,
    /// Which plug-in says it; empty where several do.
    pub plugin: &'static str,
    pub reasons: Vec<Reason>,
}

impl Refusal {
    pub fn new(code: Code, plugin: &'static str, reason: impl Into<Reason>) -> Self {
        Refusal { code, plugin, reasons: vec![reason.into()] }
    }

    /// A no that may become a yes when other pods go.
    pub fn soft(plugin: &'static str, reason: impl Into<Reason>) -> Self {
        Refusal::new(Code::Unschedulable, plugin, reason)
    }

    /// A no that stays one whichever pods go.
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

/// The refusals of one search: by node, and of all nodes that were not looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diagnosis {
    /// How many nodes there are.
    pub nodes: usize,
    /// In the nodes' order.
    pub refused: Vec<(Text, Refusal)>,
    /// Why the nodes that were not looked at were not.
    pub absent: Option<Refusal>,
    /// Plug-ins that knew which nodes alone may do.
    pub narrowed_by: Vec<&'static str>,
    /// Whether extenders left nodes out without a word.
    pub left_out: bool,
    /// What a plug-in said about the pod before any node was looked at.
    pub before: Option<String>,
}

impl Diagnosis {
    /// Which plug-ins said no.
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

    /// How final the no for a node is that will not do: one that was not looked at will not do whoever else went.
    pub fn code(&self, node: &str) -> Code {
        let refused = self.refused.iter().find(|(name, _)| **name == *node).map(|(_, refusal)| refusal.code);
        let absent = self.absent.as_ref().map(|refusal| refusal.code);
        refused.or(absent).unwrap_or(Code::UnschedulableAndUnresolvable)
    }

    /// The text that a pod's condition and event show. `after` is what was said when no node was found.
    pub fn message(&self, after: &str) -> String {
        if let Some(before) = &self.before {
            return text(self.nodes, &format!(" {before}."), after);
        }
        let others = self.nodes.saturating_sub(self.refused.len());
        let refused = self.refused.iter().map(|(_, refusal)| (refusal, 1));
        message(self.nodes, refused.chain(self.absent.iter().map(|refusal| (refusal, others))), after)
    }
}

/// The same text, from how many nodes are refused for which reasons.
pub fn message<'a>(nodes: usize, refused: impl Iterator<Item = (&'a Refusal, usize)>, after: &str) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (refusal, nodes) in refused {
        for reason in &refusal.reasons {
            *counts.entry(reason).or_default() += nodes;
        }
    }
    // Sorted as text: ten of something come before two.
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
