//! `holdfast explain-scheduling`: explains why a pod is on its node or on no node, with the reason for each node.

use super::{Common, LogView, ObjectArgs, Report, shown_time, table};
use anyhow::{Context, Result, anyhow, bail};
use holdfast_component::gates::GateArgs;
use holdfast_core::event::Offset;
use holdfast_core::history::render::{Colour, Paint};
use holdfast_core::visible;
use holdfast_engine::AsOf;
use holdfast_scheduler::explain::{Explained, Node, Verdict, explain};
use holdfast_scheduler::object::{KINDS, Text};
use holdfast_scheduler::{Configuration, Key, Kind, Snapshot};
use holdfast_value::{Value, json};
use std::ops::ControlFlow;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Args {
    /// Name of the pod.
    pod: String,
    /// Namespace of the object [default: the namespace of the kubeconfig's context, or default].
    #[arg(short, long)]
    namespace: Option<String>,
    /// A version (42), a time (2026-11-21T10:00:00Z) or how long ago (-15m, -2h, -3d) [default: now].
    #[arg(long, allow_hyphen_values = true, value_name = "VERSION|TIME")]
    at: Option<String>,
    /// The scheduler's configuration file [default: the default configuration].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    gates: GateArgs,
    #[command(flatten)]
    common: Common,
}

pub fn run(args: &Args) -> Result<()> {
    let gates = args.gates.gates().map_err(anyhow::Error::msg)?;
    let mut configuration = match &args.config {
        None => Configuration::default(),
        Some(file) => {
            let text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
            Configuration::read(&text).map_err(|faults| {
                let told: Vec<String> = faults.iter().map(ToString::to_string).collect();
                anyhow!("{}: {}", file.display(), told.join("; "))
            })?
        }
    };
    configuration.apply_feature_gates(|name| gates.enabled(name));
    args.common.run(&[], |view| look(view, args, &configuration))
}

struct ExplainedDecision {
    pod: String,
    /// The version of the state on which the decision was based.
    at: Offset,
    /// The node that the pod was bound to, with the version and the time of the binding.
    bound: Option<(String, Offset, i64)>,
    explained: Explained,
}

fn look(view: &LogView, args: &Args, configuration: &Configuration) -> Result<ExplainedDecision> {
    let named = ObjectArgs { object: vec!["pods".into(), args.pod.clone()], namespace: args.namespace.clone() };
    let place = view.place(&named)?;
    let title = view.title(&place.storage, &place.key);
    let until = match &args.at {
        Some(at) => view.version(at)?,
        None => view.last,
    };
    let (at, bound) =
        decided(view, &view.versions(&place)?, until).with_context(|| format!("{title} at version {until}"))?;
    let snapshot = state(view, at, configuration)?;
    let (namespace, name) = holdfast_core::object::meta::split_key(&place.key);
    let key = Key::new(namespace.unwrap_or_default(), name);
    let pod = snapshot.pod(&key).ok_or_else(|| anyhow!("{title} has finished, so it is not scheduled"))?;
    let scheduler = &pod.template.scheduler_name;
    let profile = configuration.profile(scheduler).ok_or_else(|| {
        anyhow!("{title} names the scheduler {scheduler}, whose configuration is unknown: give it with --config")
    })?;
    Ok(ExplainedDecision { pod: title, at, bound, explained: explain(&snapshot, profile, pod) })
}

/// The node that a pod was bound to, with the version and the time of the binding.
type Bound = (String, Offset, i64);

/// The version of the state on which the decision about the pod was based, and the pod's binding. For an unbound pod,
/// the version is `until`. For a bound pod, it is the version before the binding, or, if the scheduler first reserved
/// volumes or devices for the pod, the version before the nomination in the pod's status.
fn decided(view: &LogView, versions: &[Offset], until: Offset) -> Result<(Offset, Option<Bound>)> {
    let mut before: Option<Status> = None;
    let mut decision = None;
    let mut way: Option<BindingCycle> = None;
    for offset in versions.iter().filter(|offset| **offset <= until) {
        let record = view.record(*offset)?;
        if record.is_delete() {
            (before, decision, way) = (None, None, None);
            continue;
        }
        let pod = view.document(&record)?;
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
        let told = Status::of(&pod);
        match &before {
            None if !node.is_empty() => {
                bail!("the pod was created with spec.nodeName {node}: no scheduler chose the node");
            }
            Some(_) if decision.is_none() && !node.is_empty() => {
                let set_out = way.take().filter(|way| way.node == node && way.by == record.actor.user);
                let at = set_out.map_or(*offset, |way| way.began);
                decision = Some((Offset(at.0 - 1), (node, *offset, record.time_ms)));
            }
            Some(before) if before.nominated != told.nominated => {
                // A pod that preempts others is nominated together with a new condition, and the scheduler decides
                // about it again later. A nomination without a new condition begins the binding.
                let sets_out = before.scheduled == told.scheduled;
                let node = told.nominated.clone().filter(|_| sets_out);
                way = node.map(|node| BindingCycle { node, by: record.actor.user.clone(), began: *offset });
            }
            _ => {}
        }
        before = Some(told);
    }
    match (before, decision) {
        (None, _) => bail!("the pod is not there"),
        (Some(_), Some((at, bound))) => Ok((at, Some(bound))),
        (Some(_), None) => Ok((until, None)),
    }
}

/// A binding cycle that first writes reservations: the node, the user who nominated the pod to this node, and the first
/// version of the cycle.
struct BindingCycle {
    node: String,
    by: String,
    began: Offset,
}

/// The scheduler's part of a pod's status.
struct Status {
    nominated: Option<String>,
    scheduled: Value,
}

impl Status {
    fn of(pod: &Value) -> Status {
        let status = &pod["status"];
        let conditions = status["conditions"].as_array().into_iter().flatten();
        Status {
            nominated: status["nominatedNodeName"].as_str().filter(|node| !node.is_empty()).map(str::to_owned),
            scheduled: conditions.filter(|one| one["type"] == "PodScheduled").cloned().collect(),
        }
    }
}

/// The scheduler's view of the cluster at a version.
fn state(view: &LogView, at: Offset, configuration: &Configuration) -> Result<Snapshot> {
    let mut snapshot = configuration.new_snapshot();
    for wanted in KINDS {
        let is_it = |one: &holdfast_core::kinds::Kind| {
            (&*one.resource, &*one.versions[0].group) == (wanted.plural, wanted.group)
        };
        let Some((_, served)) = view.registry.iter().find(|(_, one)| is_it(one)) else { continue };
        let mut found: Vec<Offset> = Vec::new();
        view.log.as_of(&AsOf::all(&served.storage.path, at), &mut |_, offset| {
            found.push(offset);
            ControlFlow::Continue(())
        })?;
        found.sort_unstable();
        for offset in found {
            let record = view.record(offset)?;
            apply(&mut snapshot, wanted.kind, &record.key, &view.document(&record)?);
        }
    }
    Ok(snapshot)
}

fn apply(snapshot: &mut Snapshot, kind: Kind, key: &str, object: &Value) {
    let (namespace, name) = holdfast_core::object::meta::split_key(key);
    snapshot.apply(kind, &Key::new(namespace.unwrap_or_default(), name), Some(object));
}

impl ExplainedDecision {
    fn head(&self) -> String {
        let pod = &self.pod;
        match &self.bound {
            Some((node, offset, time_ms)) => format!(
                "{pod} was bound to {node} by version {offset}, {}. Decided on version {}:",
                shown_time(*time_ms),
                self.at
            ),
            None => match (&self.explained.gate, &self.explained.nominated) {
                (Some((plugin, why)), _) => {
                    format!("{pod} is not tried: {why} ({plugin}). Without that, on version {}:", self.at)
                }
                (None, Some(node)) => {
                    format!("{pod} waits, and is nominated to {node}. On version {}:", self.at)
                }
                (None, None) => format!("{pod} waits. On version {}:", self.at),
            },
        }
    }
}

impl Report for ExplainedDecision {
    fn text(&self, paint: Paint) -> String {
        let mut text = paint.paint(Colour::Bold, &self.head()) + "\n";
        let mut rows = vec![["NODE", "TOTAL", "WHY"].map(String::from).to_vec()];
        rows.extend(self.explained.nodes.iter().map(row));
        let mut lines = if self.explained.nodes.is_empty() { Vec::new() } else { table(&rows) };
        let promised = self.explained.promised.iter();
        lines.extend(promised.map(|(node, pods)| {
            format!("{node} is judged with the pods on it that are nominated to it: {}", pods.join(", "))
        }));
        for line in lines {
            text.push_str(&visible::line(&line));
            text.push('\n');
        }
        if let Some(message) = &self.explained.message {
            text.push_str(&visible::line(message));
            text.push('\n');
        }
        if let Some((node, victims)) = &self.explained.preemption {
            let told = format!("It can have {node} when these have gone: {}", victims.join(", "));
            text.push_str(&visible::line(&told));
            text.push('\n');
        }
        text
    }

    fn value(&self) -> Value {
        let node = |node: &Node| match &node.verdict {
            Verdict::Fits { total, scores } => {
                let scores: Vec<Value> = scores
                    .iter()
                    .map(|(plugin, score, weight)| json!({"plugin": plugin, "score": score, "weight": weight}))
                    .collect();
                json!({"node": &*node.name, "fits": true, "total": total, "scores": scores})
            }
            Verdict::Rejected { plugin, reasons, preemption_may_help } => json!({
                "node": &*node.name, "fits": false, "plugin": plugin, "reasons": reasons, "preemptionMayHelp": preemption_may_help,
            }),
        };
        let nodes: Vec<Value> = self.explained.nodes.iter().map(node).collect();
        let promise = |(node, pods): &(Text, Vec<String>)| json!({"node": &**node, "pods": pods});
        let bound = self.bound.as_ref();
        let preemption = self.explained.preemption.as_ref();
        json!({
            "pod": self.pod,
            "version": self.at.0,
            "boundTo": bound.map(|(node, ..)| node),
            "boundBy": bound.map(|(_, offset, _)| offset.0),
            "nodes": nodes,
            "message": self.explained.message,
            "preemption": preemption.map(|(node, victims)| json!({"node": &**node, "victims": victims})),
            "gate": self.explained.gate.as_ref().map(|(plugin, why)| json!({"plugin": plugin, "reason": why})),
            "nominatedTo": self.explained.nominated.as_deref(),
            "nominated": self.explained.promised.iter().map(promise).collect::<Vec<_>>(),
        })
    }
}

fn row(node: &Node) -> Vec<String> {
    let (total, why) = match &node.verdict {
        Verdict::Fits { scores, .. } if scores.is_empty() => ("-".into(), "the only one that will do".into()),
        Verdict::Fits { total, scores } => {
            let shares = scores.iter().filter(|(_, score, _)| *score != 0);
            let shares: Vec<String> =
                shares.map(|(plugin, score, weight)| format!("{plugin} {score}×{weight}")).collect();
            (total.to_string(), shares.join(", "))
        }
        Verdict::Rejected { plugin, reasons, .. } => ("-".into(), format!("{} ({plugin})", reasons.join(", "))),
    };
    vec![node.name.to_string(), total, why]
}

#[cfg(test)]
mod tests {
    use super::super::tests::view;
    use super::*;
    use holdfast_core::event::{Actor, Operation, Record};
    use holdfast_engine::Log;
    use holdfast_engine::memory::MemoryLog;

    fn put(offset: u64, resource: &str, key: &str, replaces: u64, object: Value) -> Record {
        Record {
            offset,
            time_ms: 1_794_990_000_000 + offset as i64,
            resource: resource.into(),
            key: key.into(),
            replaces,
            operation: Operation::Put as i32,
            actor: Actor::default(),
            object: object.to_string().into(),
        }
    }

    fn node(offset: u64, name: &str, replaces: u64, cpu: &str) -> Record {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "status": {"allocatable": {"cpu": cpu, "pods": "10"}}});
        put(offset, "minions", name, replaces, node)
    }

    fn pod(offset: u64, replaces: u64, node: Option<&str>) -> Record {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
            "spec": {"nodeName": node, "containers": [{"resources": {"requests": {"cpu": "2"}}}]}});
        put(offset, "pods", "default/p", replaces, pod)
    }

    fn told(records: &[Record], at: Option<&str>) -> Result<ExplainedDecision> {
        let log = MemoryLog::default();
        log.append(records).expect("a log in memory takes records");
        let source = <Args as clap::Args>::augment_args(clap::Command::new("x"));
        let mut words = vec!["x", "p"];
        words.extend(at.iter().flat_map(|at| ["--at", at]));
        let args = <Args as clap::FromArgMatches>::from_arg_matches(&source.get_matches_from(words)).unwrap();
        look(&view(&log), &args, &Configuration::default())
    }

    #[test]
    fn a_bound_pod_is_explained_by_the_state_before_its_binding() {
        let records = [
            node(1, "a", 0, "4"),
            node(2, "b", 0, "1"),
            pod(3, 0, None),
            pod(4, 3, Some("a")),
            // The event after the binding does not change the explanation.
            node(5, "b", 2, "64"),
        ];
        let text = told(&records, None).unwrap().text(Paint(false));
        let expected = "pods/default/p was bound to a by version 4, 2026-11-18T08:20:00.004Z. Decided on version 3:\n\
            NODE   TOTAL   WHY\n\
            a      -       the only one that will do\n\
            b      -       Insufficient cpu (NodeResourcesFit)\n";
        assert_eq!(text, expected);
        let before = told(&records, Some("3")).unwrap();
        assert_eq!((before.bound.is_some(), before.at), (false, Offset(3)));
    }

    /// A pod with a nominated node in its status, and a reason why it is pending.
    fn nominated(offset: u64, node: Option<&str>, why: &str) -> Record {
        let mut record = pod(offset, offset - 1, None);
        let mut object: Value = serde_json::from_slice(&record.object).unwrap();
        let condition = json!({"type": "PodScheduled", "status": "False", "reason": why});
        object["status"] = json!({"nominatedNodeName": node, "conditions": [condition]});
        record.object = object.to_string().into();
        record
    }

    #[test]
    fn a_pod_for_which_something_was_written_first_was_decided_about_before() {
        let begin = [node(1, "a", 0, "4"), pod(2, 0, None), nominated(3, None, "Unschedulable")];
        let decided = |rest: &[Record]| told(&[&begin[..], rest].concat(), None).unwrap().at;
        let (way, other) = (nominated(4, Some("a"), "Unschedulable"), nominated(4, Some("b"), "Unschedulable"));
        let told_why = nominated(4, Some("a"), "Preempting");
        assert_eq!(decided(&[way.clone(), pod(5, 4, Some("a"))]), Offset(3), "it went its way from there");
        assert_eq!(decided(&[other, pod(5, 4, Some("a"))]), Offset(4), "it was another way");
        assert_eq!(decided(&[told_why, pod(5, 4, Some("a"))]), Offset(4), "others had to go for it first");
        let back = nominated(5, None, "SchedulerError");
        assert_eq!(decided(&[way.clone(), back, pod(6, 5, Some("a"))]), Offset(5), "it came back");
        let mut hint = way;
        hint.actor.user = "somebody".into();
        assert_eq!(decided(&[hint, pod(5, 4, Some("a"))]), Offset(4), "somebody else only gave a hint");
    }

    #[test]
    fn a_pod_that_waits_is_explained_by_what_is_there_now() {
        let told = told(&[node(1, "a", 0, "1"), pod(2, 0, None)], None).unwrap();
        let text = told.text(Paint(false));
        assert!(text.contains("0/1 nodes are available: 1 Insufficient cpu."), "{text}");
        assert_eq!(told.value()["nodes"][0]["plugin"], "NodeResourcesFit");
    }

    #[test]
    fn gates_and_places_that_others_are_to_have_are_told() {
        let mut gated = pod(2, 0, None);
        let object = json!({"metadata": {"name": "p", "namespace": "default", "uid": "p"},
            "spec": {"schedulingGates": [{"name": "g.io/a"}], "containers": [{"resources": {"requests": {"cpu": "2"}}}]}});
        gated.object = object.to_string().into();
        let urgent = json!({"metadata": {"name": "u", "namespace": "default", "uid": "u"}, "status": {"nominatedNodeName": "a"},
            "spec": {"priority": 9, "containers": [{"resources": {"requests": {"cpu": "3"}}}]}});
        let records = [node(1, "a", 0, "4"), gated, put(3, "pods", "default/u", 0, urgent)];
        let told = told(&records, None).unwrap();
        let text = told.text(Paint(false));
        let first = "pods/default/p is not tried: waiting for scheduling gates: [g.io/a] (SchedulingGates). Without that, on version 3:\n\
            NODE   TOTAL   WHY\n\
            a      -       Insufficient cpu (NodeResourcesFit)\n\
            a is judged with the pods on it that are nominated to it: default/u\n";
        assert!(text.starts_with(first), "{text}");
        assert_eq!(told.value()["gate"]["plugin"], "SchedulingGates");
    }

    #[test]
    fn nobody_decided_about_a_pod_that_came_with_its_node() {
        let error = told(&[node(1, "a", 0, "1"), pod(2, 0, Some("a"))], None).map(|_| ()).unwrap_err();
        assert!(format!("{error:#}").contains("no scheduler chose the node"), "{error:#}");
    }
}
