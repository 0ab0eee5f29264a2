//! Consultations: calling extenders, which are servers with a say in where a pod goes, about one pod.
//!
//! A consultation has stages. In each stage one or more questions are open: the extenders' filters are called one after
//! the other with the nodes that are left; their scores are called all at once; if no node is left, preemption is
//! called one after the other. After each stage a plan is made that takes the answers into account. A nominated node is
//! asked about alone first; if it is refused, the filters are called again with all nodes. Only one pod is consulted
//! about at a time. Other pods that extenders are interested in wait in line; all other pods go on, so a slow extender
//! delays only pods that it is called for.

use super::order::{Answer, Ask, Purpose};
use super::{InLine, Scheduler, Trying};
use crate::configuration::extender::Extender;
use crate::object::pod::Pod;
use crate::object::{Key, Kind, Text};
use crate::plan::{Nomination, Outcome, Outside, Plan, SCHEDULER_ERROR, Unschedulable, plan_with};
use crate::plugins::default_preemption::Candidate;
use crate::queue::Time;
use crate::snapshot::Snapshot;
use crate::status::{Code, EXTENDER, Refusal};
use holdfast_value::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Extenders score nodes from 0 to 10, plug-ins from 0 to 100.
const SCALE: i64 = 10;
const SCORE_MAX: i64 = 10;

pub(super) struct Consultation {
    trying: Trying,
    outside: Outside,
    /// Extenders that are still to be called in this stage.
    next: VecDeque<usize>,
    /// The numbers of open questions, and the extender that each went to.
    open: BTreeMap<u64, usize>,
    stage: Stage,
    /// The refusals of the nominated node from when it was asked about alone.
    said_alone: BTreeMap<Text, Refusal>,
}

enum Stage {
    /// The nodes that are left, and whether these are the nominated node alone.
    Filter {
        nodes: Vec<Text>,
        alone: bool,
    },
    Score,
    Preempt {
        candidates: Vec<Candidate>,
        plan: Box<Plan>,
    },
}

impl Scheduler {
    fn extenders_for(&self, pod: &Pod, verb: fn(&Extender) -> &str) -> Vec<usize> {
        let all = self.configuration.extenders.iter().enumerate();
        all.filter(|(_, one)| !verb(one).is_empty() && one.is_interested_in(pod)).map(|(number, _)| number).collect()
    }

    /// Whether any extender must be called for the pod before a node is chosen.
    pub(super) fn wants_consultation(&self, pod: &Pod) -> bool {
        let mut all = self.configuration.extenders.iter();
        let asks = |one: &Extender| {
            !(one.filter_verb.is_empty() && one.prioritize_verb.is_empty() && one.preempt_verb.is_empty())
        };
        all.any(|one| asks(one) && one.is_interested_in(pod))
    }

    /// The first extender that binds the pod; `after`: only extenders behind one that failed to.
    pub(super) fn binder(&self, pod: &Pod, after: Option<usize>) -> Option<usize> {
        self.extenders_for(pod, |one| &one.bind_verb).into_iter().find(|number| Some(*number) > after)
    }

    /// Keeps whole objects, where extenders are sent whole pods or nodes.
    pub(super) fn keep_document(&mut self, kind: Kind, key: &Key, object: Option<&Value>) {
        let extenders = &self.configuration.extenders;
        if extenders.is_empty() || !matches!(kind, Kind::Pod | Kind::Node) {
            return;
        }
        let whole_nodes = extenders.iter().any(|one| !one.node_cache_capable);
        if kind == Kind::Node && !whole_nodes {
            return;
        }
        match object {
            Some(object) => self.documents.insert((kind, key.clone()), Arc::new(object.clone())),
            None => self.documents.remove(&(kind, key.clone())),
        };
    }

    fn document(&self, kind: Kind, key: &Key) -> Value {
        self.documents.get(&(kind, key.clone())).map_or(Value::Null, |object| Value::clone(object))
    }

    pub(super) fn consult(&mut self, trying: Trying, now: Time) {
        self.ask_filters(trying, Outside::default(), BTreeMap::new(), now);
    }

    /// Begins the filter stage with the nodes that pass the plug-ins.
    fn ask_filters(&mut self, trying: Trying, outside: Outside, said_alone: BTreeMap<Text, Refusal>, now: Time) {
        let nodes = self.plan_with(&trying, &outside).explanation.feasible;
        let is_nominated = |node: &Text| nodes == std::slice::from_ref(node);
        let alone = !outside.nomination_failed && trying.pod.nominated.as_ref().is_some_and(is_nominated);
        let next = self.extenders_for(&trying.pod, |one| &one.filter_verb).into();
        let (open, stage) = (BTreeMap::new(), Stage::Filter { nodes, alone });
        self.consultation = Some(Consultation { trying, outside, next, open, stage, said_alone });
        self.consult_on(now);
    }

    /// The nominated node is refused: asks about all nodes.
    fn ask_about_all(&mut self, consultation: Consultation, now: Time) {
        let outside = Outside { nomination_failed: true, ..Outside::default() };
        self.ask_filters(consultation.trying, outside, consultation.outside.refused, now);
    }

    /// Makes a pod wait until the consultation before it is over.
    pub(super) fn stand_in_line(&mut self, trying: Trying) {
        self.next_order += 1;
        let rank = (Reverse(trying.pod.priority), self.next_order);
        // Events are not kept for the pod meanwhile: it is tried on the state at that time.
        self.queue.takes_long(&trying.pod.key);
        let Trying { pod, attempt, .. } = trying;
        self.line.insert(rank, InLine { key: pod.key.clone(), uid: pod.uid.clone(), attempt });
    }

    fn plan_with(&self, trying: &Trying, outside: &Outside) -> Plan {
        plan_with(&self.snapshot, self.profile(trying.profile), &trying.pod, outside)
    }

    /// Asks the next question, or goes to the next stage.
    fn consult_on(&mut self, now: Time) {
        let Some(mut consultation) = self.consultation.take() else { return };
        if !consultation.open.is_empty() {
            self.consultation = Some(consultation);
            return;
        }
        match &consultation.stage {
            Stage::Filter { nodes, .. } => {
                let next = if nodes.is_empty() { None } else { consultation.next.pop_front() };
                match next {
                    Some(extender) => {
                        let body = self.arguments(extender, &consultation.trying.pod, nodes);
                        let verb = self.configuration.extenders[extender].filter_verb.clone();
                        self.question(&mut consultation, extender, verb, body);
                    }
                    None => return self.filtered(consultation, now),
                }
            }
            Stage::Score => {
                let plan = self.plan_with(&consultation.trying, &consultation.outside);
                return self.carry_out(consultation.trying, plan, now);
            }
            Stage::Preempt { candidates, .. } => {
                let next = if candidates.is_empty() { None } else { consultation.next.pop_front() };
                match next {
                    Some(extender) => {
                        let body = self.preemption_arguments(extender, &consultation.trying.pod, candidates);
                        let verb = self.configuration.extenders[extender].preempt_verb.clone();
                        self.question(&mut consultation, extender, verb, body);
                    }
                    None => return self.trimmed(consultation, now),
                }
            }
        }
        self.consultation = Some(consultation);
    }

    fn question(&mut self, consultation: &mut Consultation, extender: usize, verb: String, body: Value) {
        let number = self.ask(Ask::Extender { extender, verb, body }, Purpose::Consultation);
        consultation.open.insert(number, extender);
    }

    /// The filter stage is over: asks for scores, or for preemption if no node is left.
    fn filtered(&mut self, mut consultation: Consultation, now: Time) {
        let Stage::Filter { nodes, alone } = &consultation.stage else { return };
        let left = nodes.clone();
        if left.is_empty() && *alone {
            return self.ask_about_all(consultation, now);
        }
        for (node, refusal) in std::mem::take(&mut consultation.said_alone) {
            if !left.contains(&node) {
                consultation.outside.refused.entry(node).or_insert(refusal);
            }
        }
        consultation.outside.left = Some(left.iter().cloned().collect());
        let pod = consultation.trying.pod.clone();
        if left.len() > 1 {
            for extender in self.extenders_for(&pod, |one| &one.prioritize_verb) {
                let body = self.arguments(extender, &pod, &left);
                let verb = self.configuration.extenders[extender].prioritize_verb.clone();
                self.question(&mut consultation, extender, verb, body);
            }
        }
        consultation.stage = Stage::Score;
        if !consultation.open.is_empty() {
            self.consultation = Some(consultation);
            return;
        }
        let plan = self.plan_with(&consultation.trying, &consultation.outside);
        let candidates = plan.explanation.preemption.as_ref().map(|preemption| preemption.candidates.clone());
        let next: VecDeque<usize> = self.extenders_for(&pod, |one| &one.preempt_verb).into();
        match candidates.filter(|candidates| !candidates.is_empty() && !next.is_empty()) {
            Some(candidates) if matches!(plan.outcome, Outcome::Unschedulable(_)) => {
                consultation.next = next;
                consultation.stage = Stage::Preempt { candidates, plan: plan.into() };
                self.consultation = Some(consultation);
                self.consult_on(now);
            }
            _ => self.carry_out(consultation.trying, plan, now),
        }
    }

    /// The preemption stage is over.
    fn trimmed(&mut self, mut consultation: Consultation, now: Time) {
        let Stage::Preempt { candidates, .. } = consultation.stage else { return };
        consultation.outside.candidates = Some(candidates);
        let plan = self.plan_with(&consultation.trying, &consultation.outside);
        self.carry_out(consultation.trying, plan, now);
    }

    pub(super) fn consulted(&mut self, number: u64, answer: Answer, now: Time) {
        let Some(mut consultation) = self.consultation.take() else { return };
        let Some(number) = consultation.open.remove(&number) else {
            self.consultation = Some(consultation);
            return;
        };
        let configuration = self.configuration.clone();
        let extender = &configuration.extenders[number];
        let told = match answer {
            Answer::Done(body) => self.take_in(&mut consultation, extender, &body),
            Answer::Failed(why) => Err(why),
            Answer::Refused(refusal) => Err(refusal.message),
        };
        match told {
            // A failure of an extender that only scores, or is ignorable, is ignored.
            Err(why) if !extender.ignorable && !matches!(consultation.stage, Stage::Score) => {
                self.consultation_failed(consultation, why, now);
            }
            _ => {
                self.consultation = Some(consultation);
                self.consult_on(now);
            }
        }
    }

    fn consultation_failed(&mut self, consultation: Consultation, why: String, now: Time) {
        if matches!(consultation.stage, Stage::Filter { alone: true, .. }) {
            return self.ask_about_all(consultation, now);
        }
        let refused = Unschedulable {
            reason: SCHEDULER_ERROR,
            message: why,
            rejectors: Vec::new(),
            nomination: Nomination::Clear,
            preemption_tried: false,
            victims: None,
            deallocate: None,
        };
        match consultation.stage {
            // The pod is refused with the plan's reason, but no pod is evicted for it.
            Stage::Preempt { plan, .. } => match plan.outcome {
                Outcome::Unschedulable(own) => {
                    let own = Unschedulable { victims: None, nomination: Nomination::Keep, ..own };
                    let message = format!("{} preemption: {}", own.message.trim_end(), refused.message);
                    self.refuse(consultation.trying, Unschedulable { message, ..own }, now);
                }
                Outcome::Bind { .. } => self.carry_out(consultation.trying, *plan, now),
            },
            _ => self.refuse(consultation.trying, refused, now),
        }
    }

    fn take_in(&self, consultation: &mut Consultation, extender: &Extender, body: &Value) -> Result<(), String> {
        match &mut consultation.stage {
            Stage::Filter { nodes, .. } => *nodes = filter_result(extender, nodes, body, &mut consultation.outside)?,
            Stage::Score => score_result(extender, body, &mut consultation.outside),
            Stage::Preempt { candidates, .. } => *candidates = preempt_result(extender, &self.snapshot, body)?,
        }
        Ok(())
    }

    fn arguments(&self, extender: usize, pod: &Pod, nodes: &[Text]) -> Value {
        let pod = self.document(Kind::Pod, &pod.key);
        if self.configuration.extenders[extender].node_cache_capable {
            let names: Vec<&str> = nodes.iter().map(|name| &**name).collect();
            return json!({"Pod": pod, "Nodes": null, "NodeNames": names});
        }
        let items: Vec<Value> = nodes.iter().map(|name| self.document(Kind::Node, &Key::cluster(name))).collect();
        json!({"Pod": pod, "Nodes": {"metadata": {}, "items": items}, "NodeNames": null})
    }

    fn preemption_arguments(&self, extender: usize, pod: &Pod, candidates: &[Candidate]) -> Value {
        let by_uid = self.configuration.extenders[extender].node_cache_capable;
        let victims = candidates.iter().map(|one| {
            let pods: Vec<Value> = match by_uid {
                true => one.victims.iter().map(|pod| json!({"UID": &*pod.uid})).collect(),
                false => one.victims.iter().map(|pod| self.document(Kind::Pod, &pod.key)).collect(),
            };
            (one.node.to_string(), json!({"Pods": pods, "NumPDBViolations": one.violations}))
        });
        let victims = Value::Object(victims.collect());
        let pod = self.document(Kind::Pod, &pod.key);
        match by_uid {
            true => json!({"Pod": pod, "NodeNameToVictims": null, "NodeNameToMetaVictims": victims}),
            false => json!({"Pod": pod, "NodeNameToVictims": victims, "NodeNameToMetaVictims": null}),
        }
    }
}

/// A field by its name in any case, as Go's decoder finds it.
fn field<'a>(object: &'a Value, name: &str) -> &'a Value {
    let found = object.as_object().and_then(|fields| fields.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)));
    found.map_or(&Value::Null, |(_, value)| value)
}

/// The error that an extender reports.
pub(super) fn error(body: &Value) -> Option<&str> {
    field(body, "error").as_str().filter(|error| !error.is_empty())
}

/// The fields of an answer; `null` counts as an empty object.
fn fields<'a>(body: &'a Value, what: &str) -> Result<&'a Value, String> {
    let kind = match body {
        Value::Null | Value::Object(_) => return Ok(body),
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
    };
    Err(format!("json: cannot unmarshal {kind} into Go value of type v1.{what}"))
}

/// The nodes that the extender left, in their order.
fn filter_result(
    extender: &Extender,
    nodes: &[Text],
    body: &Value,
    outside: &mut Outside,
) -> Result<Vec<Text>, String> {
    let body = fields(body, "ExtenderFilterResult")?;
    if let Some(error) = error(body) {
        return Err(error.to_owned());
    }
    let mut refuse = |list: &str, code: Code| {
        for (name, reason) in field(body, list).as_object().into_iter().flatten() {
            let reason = reason.as_str().unwrap_or_default().to_owned();
            outside.refused.insert(name.as_str().into(), Refusal::new(code, EXTENDER, reason));
        }
    };
    refuse("failedNodes", Code::Unschedulable);
    refuse("failedAndUnresolvableNodes", Code::UnschedulableAndUnresolvable);
    // Only an extender that caches nodes (`nodeCacheCapable`) may answer with names alone.
    let names = match field(body, "nodeNames") {
        Value::Array(names) if extender.node_cache_capable => names.iter().collect::<Vec<_>>(),
        _ => {
            let items = field(field(body, "nodes"), "items").as_array().into_iter().flatten();
            items.map(|one| &one["metadata"]["name"]).collect()
        }
    };
    let names: BTreeSet<&str> = names.into_iter().map(|name| name.as_str().unwrap_or_default()).collect();
    let left: Vec<Text> = nodes.iter().filter(|name| names.contains(&***name)).cloned().collect();
    match names.into_iter().find(|name| !left.iter().any(|own| **own == **name)) {
        Some(unknown) => {
            let url = &extender.url_prefix;
            let why = "which is not found in the input node list";
            Err(format!("extender \"{url}\" claims a filtered node \"{unknown}\" {why}"))
        }
        None => Ok(left),
    }
}

fn score_result(extender: &Extender, body: &Value, outside: &mut Outside) {
    for one in body.as_array().into_iter().flatten() {
        let (Some(node), Some(score)) = (field(one, "host").as_str(), field(one, "score").as_i64()) else { continue };
        let score = score.clamp(0, SCORE_MAX).saturating_mul(SCALE).saturating_mul(extender.weight);
        let sum = outside.scores.entry(node.into()).or_default();
        *sum = sum.saturating_add(score);
    }
}

/// The candidates that an extender left or found itself, each with the victims that it named: any pods on the node.
fn preempt_result(extender: &Extender, snapshot: &Snapshot, body: &Value) -> Result<Vec<Candidate>, String> {
    let body = fields(body, "ExtenderPreemptionResult")?;
    let mut result = Vec::new();
    for (node, victims) in field(body, "nodeNameToMetaVictims").as_object().into_iter().flatten() {
        let Some(found) = snapshot.node_named(node) else {
            return Err(format!("nodeinfo not found for node name \"{node}\""));
        };
        let mut pods = Vec::new();
        for uid in field(victims, "pods").as_array().into_iter().flatten().filter_map(|one| field(one, "uid").as_str())
        {
            let victim = found.pods.iter().find(|pod| *pod.uid == *uid).ok_or_else(|| {
                let claims = format!("extender: {} claims to preempt pod (UID: {uid})", extender.url_prefix);
                format!("{claims} on node: {node}, but the pod is not found on that node")
            })?;
            pods.push(victim.clone());
        }
        match pods.is_empty() {
            true if extender.ignorable => continue,
            true => return Err(format!("expected at least one victim pod on node \"{node}\"")),
            false => {}
        }
        let violations = field(victims, "numPDBViolations").as_u64().and_then(|count| usize::try_from(count).ok());
        let violations = violations.unwrap_or(0);
        result.push(Candidate { node: found.node.name.clone(), victims: pods, violations });
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_extenders_say_is_read_whatever_its_case() {
        let nodes: Vec<Text> = ["a", "b", "c"].map(Text::from).into();
        let mut outside = Outside::default();
        let extender = Extender { weight: 2, node_cache_capable: true, ..Extender::default() };
        let body = json!({"nodenames": ["c", "a"], "FailedNodes": {"b": "no"}});
        assert_eq!(filter_result(&extender, &nodes, &body, &mut outside).unwrap(), ["a".into(), "c".into()]);
        assert_eq!(outside.refused["b"].reasons, ["no"]);
        score_result(&extender, &json!([{"Host": "a", "Score": 3}, {"host": "a", "score": 99}]), &mut outside);
        assert_eq!(outside.scores["a"], 60 + 200);
        assert_eq!(filter_result(&extender, &nodes, &json!({"Error": "down"}), &mut outside), Err("down".into()));
    }

    #[test]
    fn what_makes_no_sense_is_no_answer() {
        let nodes: Vec<Text> = ["a", "b"].map(Text::from).into();
        let by_name = Extender { url_prefix: "http://e".into(), node_cache_capable: true, ..Extender::default() };
        let whole = Extender { url_prefix: "http://e".into(), ..Extender::default() };
        let filtered = |extender: &Extender, body: Value| {
            filter_result(extender, &nodes, &body, &mut Outside::default()).map(|left| left.join(" "))
        };
        let unknown = "extender \"http://e\" claims a filtered node \"x\" which is not found in the input node list";
        assert_eq!(filtered(&by_name, json!({"nodeNames": ["a", "x"]})), Err(unknown.into()));
        assert_eq!(filtered(&whole, json!({"nodes": {"items": [{"metadata": {"name": "x"}}]}})), Err(unknown.into()));
        assert_eq!(filtered(&whole, json!({"nodes": {"items": [{"metadata": {"name": "b"}}]}})), Ok("b".into()));
        // An extender that is sent whole nodes must answer with whole nodes.
        assert_eq!(filtered(&whole, json!({"nodeNames": ["a"]})), Ok(String::new()));
        let array = "json: cannot unmarshal array into Go value of type v1.ExtenderFilterResult";
        assert_eq!(filtered(&by_name, json!([1])), Err(array.into()));
        let mut snapshot = Snapshot::new();
        snapshot.apply(Kind::Node, &Key::cluster("a"), Some(&json!({"metadata": {"name": "a"}})));
        let trimmed =
            |extender: &Extender, body: Value| preempt_result(extender, &snapshot, &body).map(|left| left.len());
        let victims = |node: &str, pods: Value| json!({"nodeNameToMetaVictims": {node: {"pods": pods}}});
        let nobody = "expected at least one victim pod on node \"a\"";
        assert_eq!(trimmed(&whole, victims("a", json!([]))), Err(nobody.into()));
        assert_eq!(trimmed(&Extender { ignorable: true, ..whole.clone() }, victims("a", json!([]))), Ok(0));
        assert_eq!(trimmed(&whole, victims("x", json!([]))), Err("nodeinfo not found for node name \"x\"".into()));
        let told = trimmed(&whole, victims("a", json!([{"uid": "u"}]))).unwrap_err();
        assert!(told.ends_with("(UID: u) on node: a, but the pod is not found on that node"), "{told}");
    }
}
