//! Calls extenders for one pod. Extenders are servers that filter and score nodes and change the victims of preemption.
//!
//! The calls have stages. In the filter stage the extenders are called one after the other, each with the nodes that
//! the extenders before it left feasible. Then scores are requested from all extenders at the same time; or, if no node
//! is feasible, preemption is requested from one extender after the other. After each stage the pod is planned again
//! with the answers.
//!
//! If the pod is nominated to a node, the filter stage begins with that node alone; if the node is rejected, the filter
//! stage is repeated with all nodes.
//!
//! Extenders are called for one pod at a time. Other pods that need extenders wait in a queue. All other pods are
//! scheduled meanwhile, so a slow extender delays only pods for which extenders are called.

use super::extender_answers::{filter_result, preempt_result, score_result};
use super::requests::{Purpose, RequestContent, RequestOutcome};
use super::{Attempt, Scheduler};
use crate::configuration::extender::Extender;
use crate::object::pod::Pod;
use crate::object::{Key, Kind, Text};
use crate::plan::{ExtenderResults, Plan, PlanOutcome, SCHEDULER_ERROR, Unschedulable, plan_with_extenders};
use crate::plugins::default_preemption::Candidate;
use crate::queue::{AttemptInfo, Time};
use crate::status::{Nomination, Rejection};
use holdfast_value::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

struct ExtenderCalls {
    attempt: Attempt,
    results: ExtenderResults,
    /// The indexes of the extenders that still must be called in this stage.
    next: VecDeque<usize>,
    /// The numbers of the pending requests, each with the index of its extender.
    open: BTreeMap<u64, usize>,
    stage: ExtenderStage,
    /// The nominated node and its rejection, from the filter stage with the nominated node alone.
    nominated_rejections: BTreeMap<Text, Rejection>,
}

/// The pod for which extenders are being called, and the pods that wait for their extender calls.
#[derive(Default)]
pub(super) struct ExtenderState {
    calls: Option<ExtenderCalls>,
    /// Waiting pods by their rank. Extenders are called for one pod after the other, because the node of one pod
    /// decides how much room is left for the next pod.
    queue: BTreeMap<(Reverse<i64>, u64), ExtenderQueueEntry>,
    /// The pods and nodes as whole documents, if requests to extenders contain whole pods and nodes.
    documents: HashMap<(Kind, Key), Arc<Value>>,
}

/// A pod that waits until extenders are called for it.
pub(super) struct ExtenderQueueEntry {
    pub key: Key,
    pub uid: Text,
    pub info: AttemptInfo,
}

impl ExtenderState {
    /// Whether extenders are being called for a pod.
    pub fn is_busy(&self) -> bool {
        self.calls.is_some()
    }

    pub fn is_queue_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Removes and returns the first waiting pod, unless extenders are being called.
    pub fn pop_waiting(&mut self) -> Option<ExtenderQueueEntry> {
        if self.is_busy() { None } else { self.queue.pop_first().map(|(_, entry)| entry) }
    }

    fn document(&self, kind: Kind, key: &Key) -> Value {
        self.documents.get(&(kind, key.clone())).map_or(Value::Null, |object| Value::clone(object))
    }
}

enum ExtenderStage {
    /// The nodes that are still feasible; `nominated_only` is whether this stage filters only the nominated node.
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

    /// Whether an extender must be called for the pod before a node can be chosen for it.
    pub(super) fn needs_extenders(&self, pod: &Pod) -> bool {
        let mut all = self.configuration.extenders.iter();
        let is_called = |one: &Extender| {
            !(one.filter_verb.is_empty() && one.prioritize_verb.is_empty() && one.preempt_verb.is_empty())
        };
        all.any(|one| is_called(one) && one.is_interested_in(pod))
    }

    /// The index of the first extender that binds the pod. If an extender has failed to bind the pod, its index is
    /// passed as `after`, and only extenders after it count.
    pub(super) fn binding_extender(&self, pod: &Pod, after: Option<usize>) -> Option<usize> {
        self.extenders_for(pod, |one| &one.bind_verb).into_iter().find(|number| Some(*number) > after)
    }

    /// Stores a whole object, if requests to extenders contain whole pods or nodes.
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
            Some(object) => self.extenders.documents.insert((kind, key.clone()), Arc::new(object.clone())),
            None => self.extenders.documents.remove(&(kind, key.clone())),
        };
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
        self.extenders.calls =
            Some(ExtenderCalls { attempt, results: extender_results, next, open, stage, nominated_rejections });
        self.continue_extender_calls(now);
    }

    /// Repeats the filter stage with all nodes, after the nominated node was rejected.
    fn filter_all_nodes(&mut self, calls: ExtenderCalls, now: Time) {
        let extender_results = ExtenderResults { nomination_failed: true, ..ExtenderResults::default() };
        self.start_filter_stage(calls.attempt, extender_results, calls.results.rejected, now);
    }

    /// Makes a pod wait until the extender calls for the pods before it have ended.
    pub(super) fn queue_for_extenders(&mut self, attempt: Attempt) {
        let rank = (Reverse(attempt.pod.priority), self.requests.next_number());
        // No events are kept for the waiting pod: when its calls begin, it is planned on the state of that time.
        self.queue.stop_keeping_events(&attempt.pod.key);
        let Attempt { pod, info, .. } = attempt;
        self.extenders.queue.insert(rank, ExtenderQueueEntry { key: pod.key.clone(), uid: pod.uid.clone(), info });
    }

    fn plan_with_extenders(&self, attempt: &Attempt, extender_results: &ExtenderResults) -> Plan {
        plan_with_extenders(&self.snapshot, self.profile(attempt.profile), &attempt.pod, extender_results)
    }

    /// Calls the next extender of this stage; if there is none, begins the next stage.
    fn continue_extender_calls(&mut self, now: Time) {
        let Some(mut calls) = self.extenders.calls.take() else { return };
        if !calls.open.is_empty() {
            self.extenders.calls = Some(calls);
            return;
        }
        match &calls.stage {
            ExtenderStage::Filter { nodes, .. } => {
                let next = if nodes.is_empty() { None } else { calls.next.pop_front() };
                match next {
                    Some(extender) => {
                        let body = self.extender_arguments(extender, &calls.attempt.pod, nodes);
                        let verb = self.configuration.extenders[extender].filter_verb.clone();
                        self.call_extender(&mut calls, extender, verb, body);
                    }
                    None => return self.finish_filter_stage(calls, now),
                }
            }
            ExtenderStage::Score => {
                let plan = self.plan_with_extenders(&calls.attempt, &calls.results);
                return self.apply_plan(calls.attempt, plan, now);
            }
            ExtenderStage::Preempt { candidates, .. } => {
                let next = if candidates.is_empty() { None } else { calls.next.pop_front() };
                match next {
                    Some(extender) => {
                        let body = self.preemption_arguments(extender, &calls.attempt.pod, candidates);
                        let verb = self.configuration.extenders[extender].preempt_verb.clone();
                        self.call_extender(&mut calls, extender, verb, body);
                    }
                    None => return self.finish_preemption_stage(calls, now),
                }
            }
        }
        self.extenders.calls = Some(calls);
    }

    fn call_extender(&mut self, calls: &mut ExtenderCalls, extender: usize, verb: String, body: Value) {
        let number = self.requests.send(RequestContent::Extender { extender, verb, body }, Purpose::ExtenderCalls);
        calls.open.insert(number, extender);
    }

    /// Ends the filter stage. Requests scores if nodes are left, and otherwise preemption.
    fn finish_filter_stage(&mut self, mut calls: ExtenderCalls, now: Time) {
        let ExtenderStage::Filter { nodes, nominated_only } = &calls.stage else { return };
        let left = nodes.clone();
        if left.is_empty() && *nominated_only {
            return self.filter_all_nodes(calls, now);
        }
        for (node, rejection) in std::mem::take(&mut calls.nominated_rejections) {
            if !left.contains(&node) {
                calls.results.rejected.entry(node).or_insert(rejection);
            }
        }
        calls.results.remaining = Some(left.iter().cloned().collect());
        let pod = calls.attempt.pod.clone();
        if left.len() > 1 {
            for extender in self.extenders_for(&pod, |one| &one.prioritize_verb) {
                let body = self.extender_arguments(extender, &pod, &left);
                let verb = self.configuration.extenders[extender].prioritize_verb.clone();
                self.call_extender(&mut calls, extender, verb, body);
            }
        }
        calls.stage = ExtenderStage::Score;
        if !calls.open.is_empty() {
            self.extenders.calls = Some(calls);
            return;
        }
        let plan = self.plan_with_extenders(&calls.attempt, &calls.results);
        let candidates = plan.explanation.preemption.as_ref().map(|preemption| preemption.candidates.clone());
        let next: VecDeque<usize> = self.extenders_for(&pod, |one| &one.preempt_verb).into();
        match candidates.filter(|candidates| !candidates.is_empty() && !next.is_empty()) {
            Some(candidates) if matches!(plan.outcome, PlanOutcome::Unschedulable(_)) => {
                calls.next = next;
                calls.stage = ExtenderStage::Preempt { candidates, plan: plan.into() };
                self.extenders.calls = Some(calls);
                self.continue_extender_calls(now);
            }
            _ => self.apply_plan(calls.attempt, plan, now),
        }
    }

    /// Ends the preemption stage: plans the pod again with the candidates that are left.
    fn finish_preemption_stage(&mut self, mut calls: ExtenderCalls, now: Time) {
        let ExtenderStage::Preempt { candidates, .. } = calls.stage else { return };
        calls.results.candidates = Some(candidates);
        let plan = self.plan_with_extenders(&calls.attempt, &calls.results);
        self.apply_plan(calls.attempt, plan, now);
    }

    pub(super) fn handle_extender_outcome(&mut self, number: u64, answer: RequestOutcome, now: Time) {
        let Some(mut calls) = self.extenders.calls.take() else { return };
        let Some(number) = calls.open.remove(&number) else {
            self.extenders.calls = Some(calls);
            return;
        };
        let configuration = self.configuration.clone();
        let extender = &configuration.extenders[number];
        let result = match answer {
            RequestOutcome::Succeeded(body) => self.read_answer(&mut calls, extender, &body),
            RequestOutcome::Failed(why) => Err(why),
            RequestOutcome::Refused(rejection) => Err(rejection.message),
        };
        match result {
            // The failure is ignored if the extender is `ignorable`, or if it was asked for scores.
            Err(why) if !extender.ignorable && !matches!(calls.stage, ExtenderStage::Score) => {
                self.extender_calls_failed(calls, why, now);
            }
            _ => {
                self.extenders.calls = Some(calls);
                self.continue_extender_calls(now);
            }
        }
    }

    fn extender_calls_failed(&mut self, calls: ExtenderCalls, why: String, now: Time) {
        if matches!(calls.stage, ExtenderStage::Filter { nominated_only: true, .. }) {
            return self.filter_all_nodes(calls, now);
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
        match calls.stage {
            // The pod is rejected with the plan's reason, but no pod is evicted for it.
            ExtenderStage::Preempt { plan, .. } => match plan.outcome {
                PlanOutcome::Unschedulable(own) => {
                    let own = Unschedulable { victims: None, nomination: Nomination::Keep, ..own };
                    let message = format!("{} preemption: {}", own.message.trim_end(), rejected.message);
                    self.fail_attempt(calls.attempt, Unschedulable { message, ..own }, now);
                }
                PlanOutcome::Bind { .. } => self.apply_plan(calls.attempt, *plan, now),
            },
            _ => self.fail_attempt(calls.attempt, rejected, now),
        }
    }

    fn read_answer(&self, calls: &mut ExtenderCalls, extender: &Extender, body: &Value) -> Result<(), String> {
        match &mut calls.stage {
            ExtenderStage::Filter { nodes, .. } => *nodes = filter_result(extender, nodes, body, &mut calls.results)?,
            ExtenderStage::Score => score_result(extender, body, &mut calls.results),
            ExtenderStage::Preempt { candidates, .. } => *candidates = preempt_result(extender, &self.snapshot, body)?,
        }
        Ok(())
    }

    fn extender_arguments(&self, extender: usize, pod: &Pod, nodes: &[Text]) -> Value {
        let pod = self.extenders.document(Kind::Pod, &pod.key);
        if self.configuration.extenders[extender].node_cache_capable {
            let names: Vec<&str> = nodes.iter().map(|name| &**name).collect();
            return json!({"Pod": pod, "Nodes": null, "NodeNames": names});
        }
        let items: Vec<Value> =
            nodes.iter().map(|name| self.extenders.document(Kind::Node, &Key::cluster(name))).collect();
        json!({"Pod": pod, "Nodes": {"metadata": {}, "items": items}, "NodeNames": null})
    }

    fn preemption_arguments(&self, extender: usize, pod: &Pod, candidates: &[Candidate]) -> Value {
        let by_uid = self.configuration.extenders[extender].node_cache_capable;
        let victims = candidates.iter().map(|one| {
            let pods: Vec<Value> = match by_uid {
                true => one.victims.iter().map(|pod| json!({"UID": &*pod.uid})).collect(),
                false => one.victims.iter().map(|pod| self.extenders.document(Kind::Pod, &pod.key)).collect(),
            };
            (one.node.to_string(), json!({"Pods": pods, "NumPDBViolations": one.violations}))
        });
        let victims = Value::Object(victims.collect());
        let pod = self.extenders.document(Kind::Pod, &pod.key);
        match by_uid {
            true => json!({"Pod": pod, "NodeNameToVictims": null, "NodeNameToMetaVictims": victims}),
            false => json!({"Pod": pod, "NodeNameToVictims": victims, "NodeNameToMetaVictims": null}),
        }
    }
}
