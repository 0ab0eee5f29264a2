//! Explains a decision to people: why each rejected node is rejected, how well each feasible node scores, and how each
//! plug-in scores it.

use crate::object::Text;
use crate::object::pod::Pod;
use crate::plan::{Plan, PlanOutcome, Scores, plan};
use crate::plugin::{ExtensionPoint, SchedulingCycle};
use crate::profile::Profile;
use crate::snapshot::Snapshot;

/// Where a pod would be scheduled in one state of the cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Explained {
    /// The nodes in order: feasible nodes come before rejected nodes, and nodes with higher scores come first.
    pub nodes: Vec<Node>,
    /// The message of the condition `PodScheduled` if no node is feasible.
    pub message: Option<String>,
    /// If evicting pods would help: the node that the pod would get, and the names of the victims.
    pub preemption: Option<(Text, Vec<String>)>,
    /// The plug-in that keeps the pod out of the active queue, and its reason.
    pub gate: Option<(&'static str, String)>,
    /// The node to which the pod is nominated while its victims are being deleted.
    pub nominated: Option<Text>,
    /// For each node with nominated pods of at least this pod's priority, the names of these pods: the node is checked
    /// as if they were on it already.
    pub promised: Vec<(Text, Vec<String>)>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub name: Text,
    pub verdict: Verdict,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The node is feasible. `total` is the weighted sum of its scores. `scores` has each plug-in, its score from 0 to
    /// 100, and the score's weight.
    Fits { total: i64, scores: Vec<(&'static str, i64, i64)> },
    /// This plug-in rejected the node. `preemption_may_help` is whether evicting pods might help.
    Rejected { plugin: &'static str, reasons: Vec<String>, preemption_may_help: bool },
}

/// Explains where a waiting pod would be scheduled now.
pub fn explain(snapshot: &Snapshot, profile: &Profile, pod: &Pod) -> Explained {
    let Plan { outcome, explanation } = plan(snapshot, profile, pod);
    let mut fits: Vec<Node> = Vec::new();
    for (at, name) in explanation.feasible.iter().enumerate() {
        let total = explanation.totals.get(at).copied().unwrap_or(0);
        let share = |scores: &Scores| Some((scores.plugin, *scores.normalized.get(at)?, scores.weight));
        let scores = explanation.scores.iter().filter_map(share).collect();
        fits.push(Node { name: name.clone(), verdict: Verdict::Fits { total, scores } });
    }
    fits.sort_by_key(|node| match &node.verdict {
        Verdict::Fits { total, .. } => (-total, node.name.clone()),
        Verdict::Rejected { .. } => (0, node.name.clone()),
    });
    let rejected = explanation.diagnosis.rejected.iter().map(|(name, rejection)| Node {
        name: name.clone(),
        verdict: Verdict::Rejected {
            plugin: rejection.plugin,
            reasons: rejection.reasons.iter().map(ToString::to_string).collect(),
            preemption_may_help: rejection.code == crate::status::Code::Unschedulable,
        },
    });
    let mut rejected: Vec<Node> = rejected.collect();
    rejected.sort_by(|one, other| one.name.cmp(&other.name));
    let (message, victims) = match outcome {
        PlanOutcome::Bind { .. } => (None, None),
        PlanOutcome::Unschedulable(why) => (Some(why.message), why.victims),
    };
    let preemption = victims.map(|victims| {
        let names = victims.pods.iter().map(|pod| pod.key.to_string()).collect();
        (victims.node, names)
    });
    let before = |node: &Text| {
        let pods = snapshot.nominations().to(node, pod.priority).filter(|one| one.uid != pod.uid);
        let names: Vec<String> = pods.map(|one| one.key.to_string()).collect();
        (!names.is_empty()).then(|| (node.clone(), names))
    };
    Explained {
        nodes: fits.into_iter().chain(rejected).collect(),
        message,
        preemption,
        gate: gate(snapshot, profile, pod),
        nominated: pod.nominated.clone(),
        promised: snapshot.nominations().nodes().filter_map(before).collect(),
    }
}

fn gate(snapshot: &Snapshot, profile: &Profile, pod: &Pod) -> Option<(&'static str, String)> {
    let mut plugins = profile.at(ExtensionPoint::PreEnqueue).iter();
    let rejection = plugins.find_map(|enabled| enabled.plugin.pre_enqueue(SchedulingCycle { snapshot, pod }))?;
    Some((rejection.plugin, rejection.message()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Configuration, Key, Kind};
    use holdfast_value::json;

    #[test]
    fn every_node_has_a_verdict() {
        let mut snapshot = Snapshot::new();
        for (name, cpu) in [("small", "1"), ("large", "8"), ("larger", "16")] {
            let node = json!({"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "pods": "10"}}});
            snapshot.apply(Kind::Node, &Key::cluster(name), Some(&node));
        }
        let pod = json!({"spec": {"containers": [{"resources": {"requests": {"cpu": "4"}}}]}});
        snapshot.apply(Kind::Pod, &Key::new("default", "p"), Some(&pod));
        let pod = snapshot.pod(&Key::new("default", "p")).unwrap().clone();
        let explained = explain(&snapshot, &Configuration::default().profiles[0], &pod);
        let names: Vec<_> = explained.nodes.iter().map(|node| &*node.name).collect();
        assert_eq!(names, ["larger", "large", "small"]);
        let Verdict::Fits { total, scores } = &explained.nodes[0].verdict else { panic!("it fits") };
        assert_eq!(*total, scores.iter().map(|(_, score, weight)| score * weight).sum::<i64>());
        let Verdict::Rejected { plugin, reasons, preemption_may_help } = &explained.nodes[2].verdict else { panic!() };
        assert_eq!(
            (*plugin, &reasons[..], *preemption_may_help),
            ("NodeResourcesFit", &["Insufficient cpu".into()][..], false)
        );
        assert_eq!(explained.message, None);
    }
}
