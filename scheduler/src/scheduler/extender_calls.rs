//! Consultations: calling extenders, which are servers with a say in where a pod goes, about one pod.
//!
//! A consultation has stages. In each stage one or more questions are open: the extenders' filters are called one after
//! the other with the nodes that are left; their scores are called all at once; if no node is left, preemption is
//! called one after the other. After each stage a plan is made that takes the answers into account. A nominated node is
//! asked about alone first; if it is refused, the filters are called again with all nodes. Only one pod is consulted
//! about at a time. Other pods that extenders are interested in wait in line; all other pods go on, so a slow extender
//! delays only pods that it is called for.

use super::requests::{Purpose, RequestContent, RequestOutcome};
use super::{Attempt, ExtenderQueueEntry, Scheduler};
use crate::configuration::extender::Extender;
use crate::object::pod::Pod;
use crate::object::{Key, Kind, Text};
use crate::plan::{
    ExtenderResults, Nomination, Plan, PlanOutcome, SCHEDULER_ERROR, Unschedulable, plan_with_extenders,
};
use crate::plugins::default_preemption::Candidate;
use crate::queue::Time;
use crate::snapshot::Snapshot;
use crate::status::{Code, EXTENDER, Rejection};
use holdfast_value::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Extenders score nodes from 0 to 10, plug-ins from 0 to 100.
const SCALE: i64 = 10;
const SCORE_MAX: i64 = 10;

pub(super) struct ExtenderCalls {
    attempt: Attempt,
    extender_results: ExtenderResults,
    /// Extenders that are still to be called in this stage.
    next: VecDeque<usize>,
    /// The numbers of open questions, and the extender that each went to.
    open: BTreeMap<u64, usize>,
    stage: ExtenderStage,
    /// The refusals of the nominated node from when it was asked about alone.
    nominated_rejections: BTreeMap<Text, Rejection>,
}

enum ExtenderStage {
    /// The nodes that are left, and whether these are the nominated node alone.
    Filter {
        nodes: Vec<Text>,
        nominated_only: bool,
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
    pub(super) fn needs_extenders(&self, pod: &Pod) -> bool {
        let mut all = self.configuration.extenders.iter();
        let is_called = |one: &Extender| {
            !(one.filter_verb.is_empty() && one.prioritize_verb.is_empty() && one.preempt_verb.is_empty())
        };
        all.any(|one| is_called(one) && one.is_interested_in(pod))
    }

    /// The first extender that binds the pod; `after`: only extenders behind one that failed to.
    pub(super) fn binding_extender(&self, pod: &Pod, after: Option<usize>) -> Option<usize> {
        self.extenders_for(pod, |one| &one.bind_verb).into_iter().find(|number| Some(*number) > after)
    }

    /// Keeps whole objects, where extenders are sent whole pods or nodes.
    pub(super) fn store_document(&mut self, kind: Kind, key: &Key, object: Option<&Value>) {
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

    pub(super) fn call_extenders(&mut self, attempt: Attempt, now: Time) {
        self.start_filter_stage(attempt, ExtenderResults::default(), BTreeMap::new(), now);
    }

    /// Begins the filter stage with the nodes that pass the plug-ins.
    fn start_filter_stage(
        &mut self,
        attempt: Attempt,
        extender_results: ExtenderResults,
        nominated_rejections: BTreeMap<Text, Rejection>,
        now: Time,
    ) {
        let nodes = self.plan_with_extenders(&attempt, &extender_results).explanation.feasible;
        let is_nominated = |node: &Text| nodes == std::slice::from_ref(node);
        let nominated_only =
            !extender_results.nomination_failed && attempt.pod.nominated.as_ref().is_some_and(is_nominated);
        let next = self.extenders_for(&attempt.pod, |one| &one.filter_verb).into();
        let (open, stage) = (BTreeMap::new(), ExtenderStage::Filter { nodes, nominated_only });
        self.extender_calls =
            Some(ExtenderCalls { attempt, extender_results, next, open, stage, nominated_rejections });
        self.continue_extender_calls(now);
    }

    /// The nominated node is refused: asks about all nodes.
    fn filter_all_nodes(&mut self, extender_calls: ExtenderCalls, now: Time) {
        let extender_results = ExtenderResults { nomination_failed: true, ..ExtenderResults::default() };
        self.start_filter_stage(
            extender_calls.attempt,
            extender_results,
            extender_calls.extender_results.rejected,
            now,
        );
    }

    /// Makes a pod wait until the consultation before it is over.
    pub(super) fn queue_for_extenders(&mut self, attempt: Attempt) {
        self.next_request += 1;
        let rank = (Reverse(attempt.pod.priority), self.next_request);
        // Events are not kept for the pod meanwhile: it is tried on the state at that time.
        self.queue.stop_keeping_events(&attempt.pod.key);
        let Attempt { pod, info, .. } = attempt;
        self.extender_queue.insert(rank, ExtenderQueueEntry { key: pod.key.clone(), uid: pod.uid.clone(), info });
    }

    fn plan_with_extenders(&self, attempt: &Attempt, extender_results: &ExtenderResults) -> Plan {
        plan_with_extenders(&self.snapshot, self.profile(attempt.profile), &attempt.pod, extender_results)
    }

    /// Asks the next question, or goes to the next stage.
    fn continue_extender_calls(&mut self, now: Time) {
        let Some(mut extender_calls) = self.extender_calls.take() else { return };
        if !extender_calls.open.is_empty() {
            self.extender_calls = Some(extender_calls);
            return;
        }
        match &extender_calls.stage {
            ExtenderStage::Filter { nodes, .. } => {
                let next = if nodes.is_empty() { None } else { extender_calls.next.pop_front() };
                match next {
                    Some(extender) => {
                        let body = self.extender_arguments(extender, &extender_calls.attempt.pod, nodes);
                        let verb = self.configuration.extenders[extender].filter_verb.clone();
                        self.call_extender(&mut extender_calls, extender, verb, body);
                    }
                    None => return self.finish_filter_stage(extender_calls, now),
                }
            }
            ExtenderStage::Score => {
                let plan = self.plan_with_extenders(&extender_calls.attempt, &extender_calls.extender_results);
                return self.apply_plan(extender_calls.attempt, plan, now);
            }
            ExtenderStage::Preempt { candidates, .. } => {
                let next = if candidates.is_empty() { None } else { extender_calls.next.pop_front() };
                match next {
                    Some(extender) => {
                        let body = self.preemption_arguments(extender, &extender_calls.attempt.pod, candidates);
                        let verb = self.configuration.extenders[extender].preempt_verb.clone();
                        self.call_extender(&mut extender_calls, extender, verb, body);
                    }
                    None => return self.finish_preemption_stage(extender_calls, now),
                }
            }
        }
        self.extender_calls = Some(extender_calls);
    }

    fn call_extender(&mut self, extender_calls: &mut ExtenderCalls, extender: usize, verb: String, body: Value) {
        let number = self.send_request(RequestContent::Extender { extender, verb, body }, Purpose::ExtenderCalls);
        extender_calls.open.insert(number, extender);
    }

    /// The filter stage is over: asks for scores, or for preemption if no node is left.
    fn finish_filter_stage(&mut self, mut extender_calls: ExtenderCalls, now: Time) {
        let ExtenderStage::Filter { nodes, nominated_only } = &extender_calls.stage else { return };
        let left = nodes.clone();
        if left.is_empty() && *nominated_only {
            return self.filter_all_nodes(extender_calls, now);
        }
        for (node, rejection) in std::mem::take(&mut extender_calls.nominated_rejections) {
            if !left.contains(&node) {
                extender_calls.extender_results.rejected.entry(node).or_insert(rejection);
            }
        }
        extender_calls.extender_results.remaining = Some(left.iter().cloned().collect());
        let pod = extender_calls.attempt.pod.clone();
        if left.len() > 1 {
            for extender in self.extenders_for(&pod, |one| &one.prioritize_verb) {
                let body = self.extender_arguments(extender, &pod, &left);
                let verb = self.configuration.extenders[extender].prioritize_verb.clone();
                self.call_extender(&mut extender_calls, extender, verb, body);
            }
        }
        extender_calls.stage = ExtenderStage::Score;
        if !extender_calls.open.is_empty() {
            self.extender_calls = Some(extender_calls);
            return;
        }
        let plan = self.plan_with_extenders(&extender_calls.attempt, &extender_calls.extender_results);
        let candidates = plan.explanation.preemption.as_ref().map(|preemption| preemption.candidates.clone());
        let next: VecDeque<usize> = self.extenders_for(&pod, |one| &one.preempt_verb).into();
        match candidates.filter(|candidates| !candidates.is_empty() && !next.is_empty()) {
            Some(candidates) if matches!(plan.outcome, PlanOutcome::Unschedulable(_)) => {
                extender_calls.next = next;
                extender_calls.stage = ExtenderStage::Preempt { candidates, plan: plan.into() };
                self.extender_calls = Some(extender_calls);
                self.continue_extender_calls(now);
            }
            _ => self.apply_plan(extender_calls.attempt, plan, now),
        }
    }

    /// The preemption stage is over.
    fn finish_preemption_stage(&mut self, mut extender_calls: ExtenderCalls, now: Time) {
        let ExtenderStage::Preempt { candidates, .. } = extender_calls.stage else { return };
        extender_calls.extender_results.candidates = Some(candidates);
        let plan = self.plan_with_extenders(&extender_calls.attempt, &extender_calls.extender_results);
        self.apply_plan(extender_calls.attempt, plan, now);
    }

    pub(super) fn handle_extender_outcome(&mut self, number: u64, answer: RequestOutcome, now: Time) {
        let Some(mut extender_calls) = self.extender_calls.take() else { return };
        let Some(number) = extender_calls.open.remove(&number) else {
            self.extender_calls = Some(extender_calls);
            return;
        };
        let configuration = self.configuration.clone();
        let extender = &configuration.extenders[number];
        let result = match answer {
            RequestOutcome::Succeeded(body) => self.read_answer(&mut extender_calls, extender, &body),
            RequestOutcome::Failed(why) => Err(why),
            RequestOutcome::Refused(rejection) => Err(rejection.message),
        };
        match result {
            // A failure of an extender that only scores, or is ignorable, is ignored.
            Err(why) if !extender.ignorable && !matches!(extender_calls.stage, ExtenderStage::Score) => {
                self.extender_calls_failed(extender_calls, why, now);
            }
            _ => {
                self.extender_calls = Some(extender_calls);
                self.continue_extender_calls(now);
            }
        }
    }

    fn extender_calls_failed(&mut self, extender_calls: ExtenderCalls, why: String, now: Time) {
        if matches!(extender_calls.stage, ExtenderStage::Filter { nominated_only: true, .. }) {
            return self.filter_all_nodes(extender_calls, now);
        }
        let rejected = Unschedulable {
            reason: SCHEDULER_ERROR,
            message: why,
            rejectors: Vec::new(),
            nomination: Nomination::Clear,
            preemption_tried: false,
            victims: None,
            deallocate: None,
        };
        match extender_calls.stage {
            // The pod is refused with the plan's reason, but no pod is evicted for it.
            ExtenderStage::Preempt { plan, .. } => match plan.outcome {
                PlanOutcome::Unschedulable(own) => {
                    let own = Unschedulable { victims: None, nomination: Nomination::Keep, ..own };
                    let message = format!("{} preemption: {}", own.message.trim_end(), rejected.message);
                    self.fail_attempt(extender_calls.attempt, Unschedulable { message, ..own }, now);
                }
                PlanOutcome::Bind { .. } => self.apply_plan(extender_calls.attempt, *plan, now),
            },
            _ => self.fail_attempt(extender_calls.attempt, rejected, now),
        }
    }

    fn read_answer(&self, extender_calls: &mut ExtenderCalls, extender: &Extender, body: &Value) -> Result<(), String> {
        match &mut extender_calls.stage {
            ExtenderStage::Filter { nodes, .. } => {
                *nodes = filter_result(extender, nodes, body, &mut extender_calls.extender_results)?
            }
            ExtenderStage::Score => score_result(extender, body, &mut extender_calls.extender_results),
            ExtenderStage::Preempt { candidates, .. } => *candidates = preempt_result(extender, &self.snapshot, body)?,
        }
        Ok(())
    }

    fn extender_arguments(&self, extender: usize, pod: &Pod, nodes: &[Text]) -> Value {
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
    extender_results: &mut ExtenderResults,
) -> Result<Vec<Text>, String> {
    let body = fields(body, "ExtenderFilterResult")?;
    if let Some(error) = error(body) {
        return Err(error.to_owned());
    }
    let mut reject = |list: &str, code: Code| {
        for (name, reason) in field(body, list).as_object().into_iter().flatten() {
            let reason = reason.as_str().unwrap_or_default().to_owned();
            extender_results.rejected.insert(name.as_str().into(), Rejection::new(code, EXTENDER, reason));
        }
    };
    reject("failedNodes", Code::Unschedulable);
    reject("failedAndUnresolvableNodes", Code::UnschedulableAndUnresolvable);
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

fn score_result(extender: &Extender, body: &Value, extender_results: &mut ExtenderResults) {
    for one in body.as_array().into_iter().flatten() {
        let (Some(node), Some(score)) = (field(one, "host").as_str(), field(one, "score").as_i64()) else { continue };
        let score = score.clamp(0, SCORE_MAX).saturating_mul(SCALE).saturating_mul(extender.weight);
        let sum = extender_results.scores.entry(node.into()).or_default();
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
        let mut extender_results = ExtenderResults::default();
        let extender = Extender { weight: 2, node_cache_capable: true, ..Extender::default() };
        let body = json!({"nodenames": ["c", "a"], "FailedNodes": {"b": "no"}});
        assert_eq!(filter_result(&extender, &nodes, &body, &mut extender_results).unwrap(), ["a".into(), "c".into()]);
        assert_eq!(extender_results.rejected["b"].reasons, ["no"]);
        score_result(&extender, &json!([{"Host": "a", "Score": 3}, {"host": "a", "score": 99}]), &mut extender_results);
        assert_eq!(extender_results.scores["a"], 60 + 200);
        assert_eq!(
            filter_result(&extender, &nodes, &json!({"Error": "down"}), &mut extender_results),
            Err("down".into())
        );
    }

    #[test]
    fn what_makes_no_sense_is_no_answer() {
        let nodes: Vec<Text> = ["a", "b"].map(Text::from).into();
        let by_name = Extender { url_prefix: "http://e".into(), node_cache_capable: true, ..Extender::default() };
        let whole = Extender { url_prefix: "http://e".into(), ..Extender::default() };
        let filtered = |extender: &Extender, body: Value| {
            filter_result(extender, &nodes, &body, &mut ExtenderResults::default()).map(|left| left.join(" "))
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
        let result = trimmed(&whole, victims("a", json!([{"uid": "u"}]))).unwrap_err();
        assert!(result.ends_with("(UID: u) on node: a, but the pod is not found on that node"), "{result}");
    }
}
