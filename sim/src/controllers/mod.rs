//! Simulates the controllers: a trial cluster, users who change its objects, pods that run and end at random, and one
//! manager with all controllers, which may crash between any two steps.
//!
//! News of changes reaches the manager late, and in any order between kinds. The manager's actions are carried out one
//! at a time, with other changes in between, and some are refused. Actions that a crashed manager had in progress may
//! still be carried out before the next manager reads the cluster. In some seeds a manager that has lost its lease does
//! not know it, and continues beside the next manager for a while. Half of the seeds are calm: only controllers and
//! evictions remove pods there, so a rollout must keep its bounds at every version. In some seeds nodes are silent for
//! a while. Other seeds have claims and volumes, a load that an autoscaler follows, or a namespace that is created and
//! deleted. When everything is at rest, the cluster must match what its users have requested.

mod cluster;
mod deed;
mod kubelets;
mod load;
mod machine;
mod manager;
mod namespaces;
mod oracle;
mod people;
mod rest;
mod volumes;

use crate::oracle::{CheckResult, ensure};
use crate::random::{Dice, step_seed};
use crate::run::{Report, RunPlan, SimulationFailure};
use cluster::Cluster;
use deed::UserRequest;
use holdfast_value::{Value, json};
use holdfast_world::{Action, Actor, Refusal, Stamp, Verb};
use kubelets::Kubelets;
use machine::Mood;
use manager::{Due, Manager};
use namespaces::Sweeper;
use oracle::Observations;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How long the cluster may take to come to rest, in seconds. It is longer than any back-off.
const REST_SECONDS: i64 = 3600;
/// The maximum number of rounds until the cluster is at rest. Each round advances the clock to the time at which
/// something is due.
const ROUNDS_MAX: usize = 400;
/// How long the controllers may take to replace the pods of silent nodes, in seconds. No pod tolerates the taints for
/// so long, and the time includes some time for the replacement.
const REPLACED_SECONDS: i64 = 1200;
/// The maximum number of steps without a change of time. If more steps are possible, the cluster counts as never quiet.
const BUSY_MAX: usize = 20_000;

#[derive(Debug, Clone, Copy)]
enum ControllersStep {
    Hear,
    Turn,
    CarryOut,
    Run,
    People,
    Wait,
    Die,
}

const STEPS: [(usize, ControllersStep); 7] = [
    (300, ControllersStep::Hear),
    (300, ControllersStep::Turn),
    (350, ControllersStep::CarryOut),
    (300, ControllersStep::Run),
    (50, ControllersStep::People),
    (40, ControllersStep::Wait),
    (4, ControllersStep::Die),
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
    let Site { trace, cluster, deaths, .. } = site;
    let (commands, events) = (cluster.commands, cluster.trial.state.offset.0);
    Report { trace: trace.unwrap_or_default(), commands, events, crashes: deaths, failure, ..Report::default() }
}

struct Site {
    seed: u64,
    dice: Dice,
    cluster: Cluster,
    manager: Manager,
    /// A manager that has lost its lease and still acts; `None` if there is no such manager.
    rival: Option<Manager>,
    watch: Observations,
    sweeper: Sweeper,
    kubelets: Kubelets,
    /// Whether users create claims and pods that use them.
    claims: bool,
    /// Whether users create and delete a namespace.
    spaces: bool,
    /// Whether the cluster has a Deployment with a load that an autoscaler follows.
    loaded: bool,
    calm: bool,
    /// Whether the answer to an action may be a failure although the action was carried out.
    lossy: bool,
    step: usize,
    deaths: u64,
    trace: Option<Vec<String>>,
}

impl Site {
    fn new(seed: u64, trace: bool) -> Site {
        let (calm, lossy) = (!seed.is_multiple_of(2), seed.is_multiple_of(4));
        let (kubelets, claims, loaded) = (Kubelets::new(seed % 10 == 6), seed % 5 == 3, seed % 7 == 5);
        let (spaces, sweeper) = (seed % 3 == 1, Sweeper::default());
        let cluster = Cluster::new();
        let manager = Manager::new(&cluster.trial.state, cluster.trial.now(), kubelets.speak());
        let watch = Observations::new(calm, !lossy);
        let (dice, trace) = (Dice::new(seed), trace.then(Vec::new));
        let (rival, step, deaths) = (None, 0, 0);
        Site {
            seed,
            dice,
            cluster,
            manager,
            rival,
            watch,
            sweeper,
            kubelets,
            claims,
            spaces,
            loaded,
            calm,
            lossy,
            step,
            deaths,
            trace,
        }
    }

    fn live(&mut self, steps: usize, only: Option<&[u32]>) -> CheckResult {
        for object in people::founded(&mut self.dice) {
            self.cluster.trial.create(object);
        }
        if self.claims {
            self.cluster.trial.create(volumes::founded());
        }
        if self.loaded {
            self.cluster.trial.create(deed::workload("Deployment", load::SCALED, json!({"replicas": 2}), 0));
            self.cluster.trial.create(load::autoscaler());
        }
        if self.kubelets.speak() {
            let metadata = json!({"name": "kube-node-lease"});
            self.cluster.trial.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}));
        }
        self.publish()?;
        self.kubelets_speak()?;
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

    fn stamp(&self) -> Stamp {
        Stamp { time: self.cluster.trial.now(), seed: self.cluster.commands }
    }

    fn run_step(&mut self, step: ControllersStep) -> CheckResult {
        if matches!(step, ControllersStep::Hear | ControllersStep::Turn | ControllersStep::CarryOut)
            && self.rival.is_some()
            && self.dice.chance(40)
        {
            self.change_places();
            let taken = self.take_alone(step);
            self.change_places();
            return taken;
        }
        self.take_alone(step)
    }

    /// Exchanges the current manager and the manager that has lost its lease, so that the manager without the lease
    /// acts next.
    fn change_places(&mut self) {
        if let Some(rival) = &mut self.rival {
            std::mem::swap(rival, &mut self.manager);
        }
    }

    fn take_alone(&mut self, step: ControllersStep) -> CheckResult {
        match step {
            ControllersStep::Hear => {
                for _ in 0..1 + self.dice.below(8) {
                    self.hear();
                }
            }
            ControllersStep::Turn => {
                for _ in 0..1 + self.dice.below(8) {
                    self.turn()?;
                }
            }
            ControllersStep::CarryOut if self.spaces && self.dice.chance(20) => return self.sweep().map(drop),
            ControllersStep::CarryOut => {
                for _ in 0..1 + self.dice.below(3) {
                    self.carry_out(true)?;
                }
            }
            ControllersStep::Run => return self.run_one(),
            ControllersStep::People => return self.people(),
            ControllersStep::Wait => {
                let longest = if self.kubelets.speak() { 60_000 } else { 20_000 };
                let millis = self.dice.pick(&[100, 1000, longest]);
                let millis = self.dice.below(millis) as i64;
                self.cluster.trial.pass_millis(millis);
                return self.kubelets_speak();
            }
            // Two managers that act at the same time may create too many pods, so a calm run never has two managers.
            ControllersStep::Die if !self.calm && self.rival.is_none() && self.dice.chance(60) => self.depose(),
            ControllersStep::Die => return self.die(),
        }
        Ok(())
    }

    fn hear(&mut self) -> bool {
        let now = self.cluster.trial.now();
        let Some(told) = self.manager.receive_news(&mut self.dice, now) else { return false };
        self.note(|| format!("the manager hears of {told}"));
        true
    }

    fn turn(&mut self) -> Result<bool, String> {
        let Some(told) = self.manager.turn(&self.cluster)? else { return Ok(false) };
        self.note(|| told);
        Ok(true)
    }

    fn carry_out(&mut self, may_fail: bool) -> Result<bool, String> {
        let Some(due) = self.manager.due(&mut self.dice) else { return Ok(false) };
        let fails = may_fail && self.dice.chance(5);
        let happens = !fails || (self.lossy && self.dice.chance(50));
        let actor = self.manager.actor(&due).clone();
        let answer = match happens {
            true => self.act(due.controller, &due.action, Some(&actor))?,
            false => Err(broken()),
        };
        let answer = if fails { Err(broken()) } else { answer };
        let Due { controller, action, .. } = &due;
        self.note(|| format!("{controller} {}: {}", shown(action), told(&answer)));
        let stamp = self.stamp();
        self.manager.answer(due, answer, stamp);
        Ok(true)
    }

    /// Carries out a request, and passes the changes that it makes to the oracles and to the managers.
    fn act(&mut self, who: &str, action: &Action, actor: Option<&Actor>) -> Result<Result<Value, Refusal>, String> {
        let judged = self.watch.may_delete(&self.cluster, who, action, self.cluster.trial.now());
        let answer = self.cluster.act(action, actor);
        if answer.is_ok() {
            judged.map_err(|why| format!("{why} by the {who}"))?;
        }
        self.publish()?;
        Ok(answer)
    }

    fn publish(&mut self) -> CheckResult {
        while let Some(event) = self.cluster.next_event() {
            self.manager.queue_news(&self.cluster.trial.state, &event);
            if let Some(rival) = &mut self.rival {
                rival.queue_news(&self.cluster.trial.state, &event);
            }
            self.watch.observe(&self.cluster, &self.manager, &event)?;
        }
        Ok(())
    }

    fn mood(&self) -> Mood {
        if self.calm { Mood::Calm } else { Mood::Wild }
    }

    fn run_one(&mut self) -> CheckResult {
        let mood = self.mood();
        let pods: Vec<&Value> = self.cluster.all("pods").collect();
        if pods.is_empty() {
            return Ok(());
        }
        let pod = pods[self.dice.below(pods.len())];
        if self.kubelets.is_silent(cluster::text(&pod["spec"]["nodeName"])) {
            return Ok(());
        }
        match machine::next(&self.cluster, &mut self.dice, pod, mood) {
            Some(action) => self.somebody(&action),
            None => Ok(()),
        }
    }

    /// Carries out a request of a user, which the server may refuse.
    fn somebody(&mut self, action: &Action) -> CheckResult {
        let answer = self.act("", action, None)?;
        self.note(|| format!("somebody {}: {}", shown(action), told(&answer)));
        Ok(())
    }

    fn people(&mut self) -> CheckResult {
        if self.kubelets.speak() && self.dice.chance(25) {
            let told = self.kubelets.turn(&mut self.dice);
            self.note(|| told);
            return Ok(());
        }
        if self.loaded && self.dice.chance(25) {
            self.cluster.load = load::draw(&mut self.dice);
            let load = self.cluster.load;
            self.note(|| format!("the load is {load:?}"));
            return Ok(());
        }
        if self.spaces && self.dice.chance(30) {
            let deed = namespaces::draw(&self.cluster, &mut self.dice, self.step, self.claims);
            return deed.map_or(Ok(()), |deed| self.done(deed));
        }
        let deed = match self.claims && self.dice.chance(50) {
            true => volumes::draw(&self.cluster, &mut self.dice, self.step),
            false => people::draw(&self.cluster, &mut self.dice, self.seed, self.step, self.calm),
        };
        deed.map_or(Ok(()), |deed| self.done(deed))
    }

    /// The server deletes the next object of a namespace that is being deleted.
    fn sweep(&mut self) -> Result<bool, String> {
        let (now, seed) = (self.cluster.trial.now(), self.cluster.commands);
        let Some(request) = self.sweeper.next(&self.cluster.trial.state, now, seed) else { return Ok(false) };
        self.cluster.commands += 1;
        let answer = self.cluster.trial.request(&request);
        self.note(|| format!("the server {:?} {:?}: {}", request.verb, request.target, told(&answer)));
        self.publish()?;
        Ok(true)
    }

    fn done(&mut self, deed: UserRequest) -> CheckResult {
        match deed {
            UserRequest::Create(object) => self.create(object),
            UserRequest::Act(action) if action.subresource == "eviction" => self.evict(&action),
            UserRequest::Act(action) => self.somebody(&action),
        }
    }

    fn kubelets_speak(&mut self) -> CheckResult {
        self.kubelets.due(&self.cluster).into_iter().try_for_each(|deed| self.done(deed))
    }

    fn create(&mut self, object: Value) -> CheckResult {
        self.cluster.commands += 1;
        let answer = self.cluster.trial.try_create(object.clone());
        self.note(|| format!("somebody creates {object}: {}", told(&answer)));
        self.publish()
    }

    /// Evicts a pod. If the pod is available, its PodDisruptionBudget must allow the eviction.
    fn evict(&mut self, action: &Action) -> CheckResult {
        let pod = self.cluster.get("pods", &action.key);
        let counts = self.calm && pod.is_some_and(cluster::is_available);
        let answer = self.act("", action, None)?;
        self.note(|| format!("somebody {}: {}", shown(action), told(&answer)));
        let is_kept = |pod: &&Value| pod["metadata"]["labels"]["app"] == people::KEPT && cluster::is_available(pod);
        let left = self.cluster.all("pods").filter(is_kept).count() as i64;
        let is_broken = counts && answer.is_ok() && left < people::KEPT_REPLICAS - 1;
        ensure(!is_broken, || format!("a pod over budget is evicted: {left} are left"))
    }

    /// The manager loses its lease and does not know it yet.
    fn depose(&mut self) {
        self.note(|| "the manager loses its lead and goes on".to_owned());
        self.deaths += 1;
        let next = Manager::new(&self.cluster.trial.state, self.cluster.trial.now(), self.kubelets.speak());
        self.rival = Some(std::mem::replace(&mut self.manager, next));
        self.watch.doubt();
    }

    /// The manager that has lost its lease learns of this, and ends.
    fn end_of_rival(&mut self) -> CheckResult {
        let Some(mut rival) = self.rival.take() else { return Ok(()) };
        self.note(|| "the one that had lost its lead ends".to_owned());
        self.last_acts(rival.under_way())
    }

    /// The manager crashes. Each of its actions in progress is carried out before the next manager reads the cluster,
    /// or never.
    fn die(&mut self) -> CheckResult {
        self.note(|| "the manager dies".to_owned());
        self.deaths += 1;
        self.end_of_rival()?;
        let under_way = self.manager.under_way();
        self.last_acts(under_way)?;
        self.manager = Manager::new(&self.cluster.trial.state, self.cluster.trial.now(), self.kubelets.speak());
        Ok(())
    }

    fn last_acts(&mut self, under_way: Vec<(Actor, Action)>) -> CheckResult {
        for (actor, action) in under_way {
            if self.dice.chance(50) {
                let answer = self.act("", &action, Some(&actor))?;
                self.note(|| format!("it had begun to {}: {}", shown(&action), told(&answer)));
            }
        }
        Ok(())
    }

    /// Brings the cluster to rest: users make no new requests, and everything in progress ends.
    fn rest(&mut self) -> CheckResult {
        self.end_of_rival()?;
        for deed in people::settle(&self.cluster) {
            self.done(deed)?;
        }
        if let Some(deed) = namespaces::settle(&self.cluster) {
            self.done(deed)?;
        }
        if self.loaded {
            self.cluster.load = self.cluster.load.or(Some(0));
        }
        let mut safe = Vec::new();
        if self.kubelets.speak() {
            self.come_to_rest(REPLACED_SECONDS)?;
            self.kubelets.check_replaced(&self.cluster)?;
            safe = self.kubelets.safe(&self.cluster);
            self.kubelets.all_speak();
        }
        self.come_to_rest(REST_SECONDS)?;
        kubelets::check_kept(&self.cluster, &safe)?;
        rest::check(&self.cluster, &mut self.manager)
    }

    fn come_to_rest(&mut self, seconds: i64) -> CheckResult {
        let end = self.cluster.trial.now().plus_seconds(seconds);
        for _ in 0..ROUNDS_MAX {
            self.kubelets_speak()?;
            self.finish()?;
            let now = self.cluster.trial.now();
            let swept = self.sweeper.next_time(&self.cluster.trial.state, now);
            let next = self.manager.driver.next_time().into_iter().chain(swept).min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.cluster.trial.pass_millis(next.millis_since(now).max(1));
        }
        Ok(())
    }

    /// Takes all steps that are possible at the present time.
    fn finish(&mut self) -> CheckResult {
        for _ in 0..BUSY_MAX {
            let busy = self.hear() || self.turn()? || self.carry_out(false)? || self.sweep()? || self.run_all()?;
            if !busy {
                return Ok(());
            }
        }
        Err("controllers are never quiet".to_owned())
    }

    fn run_all(&mut self) -> Result<bool, String> {
        let pods: Vec<Value> = self.cluster.all("pods").cloned().collect();
        let mut busy = false;
        for pod in pods {
            let pod = self.cluster.get("pods", &cluster::key(&pod)).cloned();
            let pod = pod.filter(|pod| !self.kubelets.is_silent(cluster::text(&pod["spec"]["nodeName"])));
            let next = pod.and_then(|pod| machine::next(&self.cluster, &mut self.dice, &pod, Mood::Kind));
            if let Some(action) = next {
                self.somebody(&action)?;
                busy = true;
            }
        }
        Ok(busy)
    }
}

fn broken() -> Refusal {
    Refusal { reason: "InternalError".into(), message: "it broke".into(), causes: Vec::new() }
}

fn shown(action: &Action) -> String {
    let (verb, body) = match &action.verb {
        Verb::Create(body) => ("creates", body.to_string()),
        Verb::Update(body) => ("updates", body.to_string()),
        Verb::UpdateStatus(restated) => ("updates", restated.document().to_string()),
        Verb::MergePatch(body) | Verb::StrategicPatch(body) | Verb::JsonPatch(body) | Verb::Apply(body) => {
            ("patches", body.to_string())
        }
        Verb::Delete { propagation, .. } => ("deletes", format!("{propagation:?}")),
    };
    format!("{verb} {} {} {} {body}", action.resource, action.key, action.subresource)
}

fn told(answer: &Result<Value, Refusal>) -> &str {
    match answer {
        Ok(_) => "done",
        Err(refusal) => &refusal.message,
    }
}
