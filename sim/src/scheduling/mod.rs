//! Simulates the scheduler: a trial cluster, pods and nodes that are created and deleted, and one scheduler, which may
//! crash between any two steps, or two schedulers at the same time.
//!
//! News of changes reaches a scheduler late. The requests of a scheduler are carried out in any order, and some are
//! refused. The requests of a crashed scheduler may still be carried out before the next scheduler reads the cluster.
//! At rest, every pod for which there is room must be bound to a node.

mod oracle;

use crate::oracle::CheckResult;
use crate::random::{Dice, step_seed};
use crate::run::{Report, RunPlan, SimulationFailure};
use holdfast_scheduler::object::Kind;
use holdfast_scheduler::scheduler::{OutgoingRequest, RequestContent, RequestOutcome};
use holdfast_scheduler::{Configuration, Key, Scheduler};
use holdfast_value::{Value, json};
use holdfast_world::trial::Trial;
use holdfast_world::{Refusal, Verb};
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

const NODES: usize = 5;
const PODS: usize = 24;
/// The pauses between the attempts at rest, in milliseconds. After each pause all back-offs have ended, but no pod has
/// waited so long that the scheduler tries it again without an event.
const PAUSES_MILLIS: [i64; 16] =
    [1500, 1500, 1500, 2500, 2500, 4500, 4500, 8500, 8500, 10_500, 10_500, 10_500, 10_500, 10_500, 10_500, 10_500];

/// The kinds whose objects change in this simulation, with the names of their resources.
const KINDS: [(Kind, &str); 2] = [(Kind::Node, "nodes"), (Kind::Pod, "pods")];

#[derive(Debug, Clone, Copy)]
enum SchedulingStep {
    Hear,
    Turn,
    CarryOut,
    NewPod,
    PodGoes,
    PodStops,
    NewNode,
    NodeGoes,
    NodeChanges,
    Wait,
    Die,
}

const STEPS: [(usize, SchedulingStep); 11] = [
    (400, SchedulingStep::Hear),
    (300, SchedulingStep::Turn),
    (300, SchedulingStep::CarryOut),
    (70, SchedulingStep::NewPod),
    (15, SchedulingStep::PodGoes),
    (40, SchedulingStep::PodStops),
    (25, SchedulingStep::NewNode),
    (8, SchedulingStep::NodeGoes),
    (15, SchedulingStep::NodeChanges),
    (40, SchedulingStep::Wait),
    (8, SchedulingStep::Die),
];

/// Runs one simulation to its end, or to the first violation.
pub fn simulate(plan: &RunPlan) -> Report {
    let mut site = Site::new(plan.seed, plan.trace);
    let only = plan.only.as_deref();
    let outcome = catch_unwind(AssertUnwindSafe(|| site.live(plan.steps, only))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Err(format!("panic: {}", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("without words")))
    });
    let failure = outcome.err().map(|why| SimulationFailure { step: site.step, why });
    let Site { trace, commands, deaths, trial, .. } = site;
    let events = trial.state.offset.0;
    Report { trace: trace.unwrap_or_default(), commands, events, crashes: deaths, failure, ..Report::default() }
}

/// A scheduler, the news that it has not received yet, and its requests.
struct SchedulerInstance {
    scheduler: Scheduler,
    hears: VecDeque<(Kind, Key, Option<Value>)>,
    requests: Vec<OutgoingRequest>,
}

struct Site {
    seed: u64,
    dice: Dice,
    trial: Trial,
    hands: Vec<SchedulerInstance>,
    /// Whether two schedulers handle the same pods. If so, they may use the same room on a node twice, but must never
    /// bind a pod twice.
    rivals: bool,
    /// The version of each object whose change was last queued for the schedulers.
    told: BTreeMap<(usize, Key), String>,
    /// The node to which each pod was bound, by the pod's UID.
    bound: BTreeMap<String, String>,
    pods: usize,
    step: usize,
    commands: u64,
    deaths: u64,
    trace: Option<Vec<String>>,
}

impl Site {
    fn new(seed: u64, trace: bool) -> Site {
        let rivals = seed.is_multiple_of(4);
        let mut site = Site {
            seed,
            dice: Dice::new(seed),
            trial: Trial::new(),
            hands: Vec::new(),
            rivals,
            told: BTreeMap::new(),
            bound: BTreeMap::new(),
            pods: 0,
            step: 0,
            commands: 0,
            deaths: 0,
            trace: trace.then(Vec::new),
        };
        for _ in 0..if rivals { 2 } else { 1 } {
            let hand = site.new_hand();
            site.hands.push(hand);
        }
        site
    }

    /// A scheduler that has just started. It knows all objects before it acts.
    fn new_hand(&self) -> SchedulerInstance {
        let mut scheduler = Scheduler::new(Arc::new(Configuration::default()));
        for (kind, plural) in KINDS {
            for object in self.trial.list(plural) {
                scheduler.apply_object(kind, &key(&object), Some(&object), self.now());
            }
        }
        SchedulerInstance { scheduler, hears: VecDeque::new(), requests: Vec::new() }
    }

    fn live(&mut self, steps: usize, only: Option<&[u32]>) -> CheckResult {
        for step in 1..=steps {
            if only.is_some_and(|only| !only.contains(&(step as u32))) {
                continue;
            }
            self.step = step;
            self.dice = Dice::new(step_seed(self.seed, step as u64));
            let step = self.dice.weighted(&STEPS);
            self.run_step(step)?;
        }
        self.step = steps + 1;
        self.rest()
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:5} {}", self.step, line()));
        }
    }

    fn now(&self) -> i128 {
        self.trial.now().0.as_nanosecond()
    }

    fn run_step(&mut self, step: SchedulingStep) -> CheckResult {
        let hand = self.dice.below(self.hands.len());
        match step {
            SchedulingStep::Hear => _ = self.hear(hand),
            SchedulingStep::Turn => _ = self.turn(hand),
            SchedulingStep::CarryOut => return self.carry_out(hand, true).map(|_| ()),
            SchedulingStep::NewPod => self.new_pod(),
            SchedulingStep::PodGoes => self.pod_goes(),
            SchedulingStep::PodStops => self.pods_stop(false),
            SchedulingStep::NewNode => self.new_node(),
            SchedulingStep::NodeGoes => self.node_goes(),
            SchedulingStep::NodeChanges => self.node_changes(),
            SchedulingStep::Wait => {
                let millis = self.dice.below(4000) as i64;
                self.trial.pass_millis(millis);
            }
            SchedulingStep::Die => return self.die(hand),
        }
        self.publish()
    }

    fn hear(&mut self, hand: usize) -> bool {
        let now = self.now();
        let Some((kind, key, object)) = self.hands[hand].hears.pop_front() else { return false };
        self.note(|| format!("scheduler {hand} hears of {kind:?} {key}"));
        self.hands[hand].scheduler.apply_object(kind, &key, object.as_ref(), now);
        self.collect(hand);
        true
    }

    fn turn(&mut self, hand: usize) -> bool {
        let now = self.now();
        let more = self.hands[hand].scheduler.schedule_one(now);
        self.collect(hand);
        more
    }

    fn collect(&mut self, hand: usize) {
        let now = self.now();
        let hand = &mut self.hands[hand];
        let requests = hand.scheduler.take_requests(now);
        hand.requests.extend(requests);
        hand.scheduler.take_samples();
    }

    /// Carries out a random request of the scheduler. If `may_fail` is true, some requests fail.
    fn carry_out(&mut self, hand: usize, may_fail: bool) -> Result<bool, String> {
        if self.hands[hand].requests.is_empty() {
            return Ok(false);
        }
        let at = self.dice.below(self.hands[hand].requests.len());
        let request = self.hands[hand].requests.swap_remove(at);
        let fails = may_fail && self.dice.chance(6);
        // If there are two schedulers, the answer to a request may be a failure although the request was carried out.
        let happens = !fails || (self.rivals && self.dice.chance(50));
        let outcome = match happens {
            true => self.act(&request),
            false => RequestOutcome::Refused(broken()),
        };
        let outcome = if fails { RequestOutcome::Refused(broken()) } else { outcome };
        self.note(|| format!("scheduler {hand} {}: {}", shown(&request), told(&outcome)));
        self.publish()?;
        let now = self.now();
        self.hands[hand].scheduler.handle_outcome(request.number, outcome, now);
        self.collect(hand);
        Ok(true)
    }

    fn act(&mut self, request: &OutgoingRequest) -> RequestOutcome {
        self.commands += 1;
        let RequestContent::Api(action) = &request.content else {
            return RequestOutcome::Failed("there are no extenders".into());
        };
        match self.trial.user_acts(action.clone()) {
            Ok(_) => RequestOutcome::Succeeded(Value::Null),
            Err(refusal) => RequestOutcome::Refused(refusal),
        }
    }

    /// Queues the news of all changes for every scheduler, and checks the invariants of the cluster.
    fn publish(&mut self) -> CheckResult {
        let mut now = BTreeMap::new();
        for (number, (kind, plural)) in KINDS.iter().enumerate() {
            for object in self.trial.list(plural) {
                let place = (number, key(&object));
                let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
                if self.told.get(&place) != Some(&version) {
                    self.tell(*kind, &place.1, Some(&object));
                }
                now.insert(place, version);
            }
        }
        let gone: Vec<_> = self.told.keys().filter(|place| !now.contains_key(*place)).cloned().collect();
        for (number, key) in gone {
            self.tell(KINDS[number].0, &key, None);
        }
        self.told = now;
        oracle::check(&self.trial, &mut self.bound, self.rivals)
    }

    fn tell(&mut self, kind: Kind, key: &Key, object: Option<&Value>) {
        for hand in &mut self.hands {
            hand.hears.push_back((kind, key.clone(), object.cloned()));
        }
    }

    fn new_pod(&mut self) {
        if self.trial.list("pods").len() >= PODS {
            return;
        }
        self.pods += 1;
        let name = format!("p{}", self.pods);
        let pod = draw_pod(&mut self.dice, &name);
        self.note(|| format!("{name} comes: {}", pod["spec"]));
        self.commands += 1;
        self.trial.create(pod);
    }

    fn pod_goes(&mut self) {
        let pods = self.trial.list("pods");
        if pods.is_empty() {
            return;
        }
        let pod = &pods[self.dice.below(pods.len())];
        let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        self.note(|| format!("{name} is deleted"));
        if pod["metadata"]["deletionTimestamp"].is_null() {
            self.trial.delete("pods", &name);
        }
    }

    /// Stops pods that are being deleted: all of them, or random ones.
    fn pods_stop(&mut self, all: bool) {
        for pod in self.trial.list("pods") {
            let goes = !pod["metadata"]["deletionTimestamp"].is_null();
            if goes && (all || self.dice.chance(50)) {
                let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                self.note(|| format!("{name} has stopped"));
                let resource = holdfast_world::Resource::new("", "v1", "pods", "Pod", true);
                let verb = Verb::Delete { uid: None, version: None, propagation: None, grace_seconds: Some(0) };
                let action = holdfast_world::Action::new(&resource, Key::new("default", &name), verb);
                // The action is refused if the pod is already gone, which is no error.
                let _ = self.trial.user_acts(action);
            }
        }
    }

    fn new_node(&mut self) {
        let number = self.dice.below(NODES);
        let name = format!("n{number}");
        if !self.trial.get("nodes", &name).is_null() {
            return;
        }
        // A node that is created again gets the size that it had before, because pods may still be bound to it.
        let cpu = ["1", "2", "4"][number % 3];
        let taints = if self.dice.chance(15) { json!([{"key": "t", "effect": "NoSchedule"}]) } else { json!([]) };
        self.note(|| format!("{name} comes with {cpu} processors"));
        let there = json!({"cpu": cpu, "memory": "8Gi", "pods": "6"});
        let labels = json!({"kubernetes.io/hostname": name, "zone": format!("z{}", self.dice.below(2))});
        self.trial.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "spec": {"taints": taints}, "status": {"capacity": there, "allocatable": there}}));
    }

    fn node_goes(&mut self) {
        let nodes = self.trial.names("nodes");
        if !nodes.is_empty() {
            let name = nodes[self.dice.below(nodes.len())].clone();
            self.note(|| format!("{name} goes"));
            self.trial.delete("nodes", &name);
        }
    }

    fn node_changes(&mut self) {
        let nodes = self.trial.names("nodes");
        if nodes.is_empty() {
            return;
        }
        let name = nodes[self.dice.below(nodes.len())].clone();
        let closed = self.dice.chance(50);
        self.note(|| format!("{name} is closed: {closed}"));
        self.trial.patch("nodes", &name, json!({"spec": {"unschedulable": closed, "taints": null}}));
    }

    /// A scheduler crashes. Each of its pending requests is carried out before the next scheduler reads the cluster, or
    /// never.
    fn die(&mut self, hand: usize) -> CheckResult {
        self.note(|| format!("scheduler {hand} dies"));
        self.deaths += 1;
        for request in std::mem::take(&mut self.hands[hand].requests) {
            if self.dice.chance(50) {
                let outcome = self.act(&request);
                self.note(|| format!("it had ordered to {}: {}", shown(&request), told(&outcome)));
            }
        }
        self.publish()?;
        self.hands[hand] = self.new_hand();
        Ok(())
    }

    /// Brings the cluster to rest: no new changes are made, and everything in progress ends.
    fn rest(&mut self) -> CheckResult {
        for pause in PAUSES_MILLIS {
            let mut busy = true;
            while busy {
                busy = false;
                for hand in 0..self.hands.len() {
                    while self.hear(hand) {
                        busy = true;
                    }
                    while self.turn(hand) {
                        busy = true;
                    }
                    while self.carry_out(hand, false)? {
                        busy = true;
                    }
                }
                self.pods_stop(true);
                self.publish()?;
            }
            self.trial.pass_millis(pause);
        }
        for hand in &self.hands {
            oracle::at_rest(&self.trial, &hand.scheduler, self.rivals)?;
        }
        Ok(())
    }
}

fn draw_pod(dice: &mut Dice, name: &str) -> Value {
    let cpu = dice.pick(&["250m", "500m", "1", "2"]);
    let mut container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
    if dice.chance(20) {
        container["ports"] = json!([{"containerPort": 80, "hostPort": 80 + dice.below(2)}]);
    }
    let app = dice.pick(&["a", "b"]);
    let mut spec = json!({"containers": [container], "terminationGracePeriodSeconds": 5});
    let term = json!({"topologyKey": dice.pick(&["kubernetes.io/hostname", "zone"]),
        "labelSelector": {"matchLabels": {"app": dice.pick(&["a", "b"])}}});
    match dice.below(8) {
        0 | 1 => spec["affinity"] = json!({"podAntiAffinity": {(oracle::REQUIRED): [term]}}),
        2 => spec["affinity"] = json!({"podAffinity": {(oracle::REQUIRED): [term]}}),
        3 => spec["tolerations"] = json!([{"operator": "Exists"}]),
        4 => {
            spec["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": "zone",
                "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": app}}}]);
        }
        _ => {}
    }
    if dice.chance(25) {
        spec["priority"] = (10 * dice.below(3)).into();
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": app}}, "spec": spec})
}

fn key(object: &Value) -> Key {
    let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
    Key::new(text("namespace"), text("name"))
}

fn broken() -> Refusal {
    Refusal { reason: "InternalError".into(), message: "it broke".into(), causes: Vec::new() }
}

fn shown(request: &OutgoingRequest) -> String {
    match &request.content {
        RequestContent::Extender { verb, .. } => format!("asks an extender to {verb}"),
        RequestContent::Api(action) => {
            let (verb, body) = match &action.verb {
                Verb::Create(body) => ("create", body),
                Verb::MergePatch(body) | Verb::StrategicPatch(body) => ("patch", body),
                _ => ("delete", &Value::Null),
            };
            let node = body["target"]["name"].as_str().map(|node| format!(" to {node}")).unwrap_or_default();
            format!("{verb} {} {} {}{node}", action.resource, action.key, action.subresource)
        }
    }
}

fn told(outcome: &RequestOutcome) -> &str {
    match outcome {
        RequestOutcome::Succeeded(_) => "done",
        RequestOutcome::Refused(refusal) => &refusal.message,
        RequestOutcome::Failed(why) => why,
    }
}
