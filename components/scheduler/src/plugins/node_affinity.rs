//! NodeAffinity: labels and names that a node must have or should have, by the pod's spec and by the configuration.

use crate::object::Text;
use crate::object::node::Node;
use crate::object::pod::Template;
use crate::object::selector::Operator;
use crate::object::terms::{NodeSelector, NodeTerm, PreferredNodeTerm};
use crate::plugin::{Filter, Normalization, Plugin, PreFilterResult, QueueingHint, SchedulingCycle, Score};
use crate::snapshot::node_info::NodeInfo;
use crate::snapshot::{ClusterEvent, ObjectChange};
use crate::status::Rejection;
use std::collections::BTreeSet;
use std::sync::Arc;

pub const NAME: &str = "NodeAffinity";

/// The plug-in, with the affinity that the configuration adds to every pod.
#[derive(Debug, Default)]
pub struct NodeAffinity {
    pub required: Option<Arc<NodeSelector>>,
    pub preferred: Vec<PreferredNodeTerm>,
}

impl Plugin for NodeAffinity {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pre_filter(&self, cycle: SchedulingCycle<'_>) -> PreFilterResult {
        let template = &cycle.pod.template;
        if template.node_selector.is_empty() && template.node_affinity.is_none() && self.required.is_none() {
            return PreFilterResult::Skip;
        }
        let only = template.node_affinity.as_ref().and_then(named_nodes);
        if only.as_ref().is_some_and(BTreeSet::is_empty) {
            return PreFilterResult::Reject(Rejection::unresolvable(NAME, "pod affinity terms conflict"));
        }
        PreFilterResult::Filter(Box::new(RequiredAffinity(self.required.clone())), only)
    }

    fn pre_score(&self, cycle: SchedulingCycle<'_>) -> Option<Rejection> {
        match &cycle.pod.template.preference_errors[..] {
            [] => None,
            [one] => Some(Rejection::error(NAME, one.clone())),
            more => Some(Rejection::error(NAME, format!("[{}]", more.join(", ")))),
        }
    }

    fn score(&self, cycle: SchedulingCycle<'_>) -> Option<Box<dyn Score>> {
        let template = &cycle.pod.template;
        let terms = template.preferred_nodes.iter().chain(&self.preferred);
        let counting: Vec<_> = terms.filter(|one| one.affects_score()).cloned().collect();
        let none = template.preferred_nodes.is_empty() && self.preferred.is_empty();
        (!none).then(|| Box::new(PreferredAffinity(counting)) as Box<dyn Score>)
    }

    fn queueing_hint(&self, cycle: SchedulingCycle<'_>, event: &ClusterEvent) -> QueueingHint {
        let fits = |node: &Arc<Node>| self.fits(&cycle.pod.template, node);
        QueueingHint::queue_if(match &event.change {
            ObjectChange::Node(before, Some(after)) => fits(after) && !before.as_ref().is_some_and(fits),
            _ => false,
        })
    }
}

impl NodeAffinity {
    fn fits(&self, template: &Template, node: &Node) -> bool {
        self.required.as_ref().is_none_or(|own| own.matches(&node.name, &node.labels))
            && template.allows(&node.name, &node.labels)
    }
}

/// The names of the nodes to which the terms restrict the pod; `None` if a term does not restrict the names of nodes.
pub fn named_nodes(selector: &NodeSelector) -> Option<BTreeSet<Text>> {
    fn named(term: &NodeTerm) -> Option<BTreeSet<Text>> {
        let about_the_name =
            term.fields.iter().filter(|one| &*one.key == "metadata.name" && one.operator == Operator::In);
        let sets = about_the_name.map(|one| one.values.iter().cloned().collect::<BTreeSet<_>>());
        sets.reduce(|one, other| &one & &other)
    }
    if selector.0.is_empty() {
        return None;
    }
    let sets: Option<Vec<_>> = selector.0.iter().map(named).collect();
    Some(sets?.into_iter().flatten().collect())
}

struct RequiredAffinity(Option<Arc<NodeSelector>>);

impl Filter for RequiredAffinity {
    fn check(&self, cycle: SchedulingCycle<'_>, node: &NodeInfo) -> Result<(), Rejection> {
        let (name, labels) = (&node.node.name, &node.node.labels);
        if self.0.as_ref().is_some_and(|added| !added.matches(name, labels)) {
            return Err(Rejection::unresolvable(NAME, "node(s) didn't match scheduler-enforced node affinity"));
        }
        if !cycle.pod.template.allows(name, labels) {
            return Err(Rejection::unresolvable(NAME, "node(s) didn't match Pod's node affinity/selector"));
        }
        Ok(())
    }

    fn clone_box(&self) -> Box<dyn Filter> {
        Box::new(RequiredAffinity(self.0.clone()))
    }
}

/// Scores a node by the sum of the weights of the preferred terms that match it.
struct PreferredAffinity(Vec<PreferredNodeTerm>);

impl Score for PreferredAffinity {
    fn score(&self, _: SchedulingCycle<'_>, node: &NodeInfo) -> i64 {
        let matching = |one: &&PreferredNodeTerm| one.term.matches(&node.node.name, &node.node.labels);
        self.0.iter().filter(matching).fold(0, |sum, one| sum.saturating_add(one.weight))
    }

    fn normalization(&self) -> Normalization {
        Normalization::ByHighest
    }
}
