//! Simulates admission: clients compete for the room in quotas, while webhooks and policies are created and deleted.
//!
//! A webhook allows a request and sets a mark, denies the request, fails, or sends an invalid answer or the answer to
//! another request. Some webhooks answer late: after other writes, or after changes of the registered webhooks. Some
//! never answer, because the server crashes or the client disconnects first. One namespace has no webhooks, and
//! requests in this namespace never wait for a webhook.

mod hooks;
mod oracle;

use crate::clock::SimulatedClock;
use crate::oracle::{CheckResult, ensure};
use crate::random::{Dice, step_seed};
use crate::run::{Report, RunPlan, SimulationFailure};
use crossbeam::channel::Receiver;
use holdfast_core::Refusal;
use holdfast_core::admission::Admission;
use holdfast_core::authz::User;
use holdfast_core::digest::Digest;
use holdfast_core::event::Offset;
use holdfast_core::kinds::registry;
use holdfast_core::pipeline::Settings;
use holdfast_core::request::{Body, Format, Options as Parameters, Request, Target, Verb};
use holdfast_core::state::{Entry, State};
use holdfast_engine::memory::MemoryLog;
use holdfast_engine::writer::{Input, Writer};
use holdfast_engine::{Engine, Hub, Options, Reply};
use holdfast_value::{Value, json};
use hooks::{Hooks, Temper};
use oracle::Past;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// The webhooks select objects in the namespace `WATCHED`, and no objects in the namespace `CALM`.
const WATCHED: &str = "watched";
const CALM: &str = "calm";
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// How many objects a quota allows in a namespace. The number is smaller than the number of names that clients use.
const ROOM: u64 = 4;
const WEBHOOKS: [&str; 4] = ["m0.example.com", "m1.example.com", "v0.example.com", "v1.example.com"];
const REGISTRATION: &str = "admissionregistration.k8s.io";
/// The prefix of those values that the policy denies.
const BAD: &str = "bad";
const QUEUE: usize = 64;
/// The maximum number of rounds until one request is answered, or at the end all requests. In each round, some requests
/// may be overtaken by another write and need another round.
const ROUNDS_MAX: usize = 200;

#[derive(Debug, Clone, Copy)]
enum AdmissionStep {
    Ask,
    AskCalm,
    Poll,
    Commit,
    Answer,
    Register,
    Policy,
    Recount,
    GoAway,
    Restart,
}

const STEPS: [(usize, AdmissionStep); 10] = [
    (300, AdmissionStep::Ask),
    (80, AdmissionStep::AskCalm),
    (250, AdmissionStep::Poll),
    (200, AdmissionStep::Commit),
    (300, AdmissionStep::Answer),
    (50, AdmissionStep::Register),
    (25, AdmissionStep::Policy),
    (60, AdmissionStep::Recount),
    (15, AdmissionStep::GoAway),
    (4, AdmissionStep::Restart),
];

const TEMPERS: [(usize, Temper); 5] =
    [(60, Temper::Agrees), (12, Temper::Refuses), (12, Temper::Fails), (8, Temper::Rubbish), (8, Temper::AnotherUid)];

/// Runs one simulation to its end, or to the first violation.
pub fn simulate(plan: &RunPlan) -> Report {
    let mut site = Site::new(plan);
    let outcome = catch_unwind(AssertUnwindSafe(|| site.live(plan))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Err(format!("panic: {}", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("without words")))
    });
    let failure = outcome.err().map(|why| SimulationFailure { step: site.step, why });
    let events = site.server.engine.snapshot().offset.0;
    let Site { trace, commands, restarts, .. } = site;
    Report { trace: trace.unwrap_or_default(), commands, events, crashes: restarts, failure, ..Report::default() }
}

/// What a request is meant to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Want {
    Create,
    Replace,
    Delete,
    /// The quota controller writes the usage of a quota, with the version of the quota that it has read.
    Count,
    /// An administrator creates or deletes a webhook, a policy or a binding.
    Configure,
}

/// A request, with everything that the oracles need to check its answer.
struct Order {
    id: String,
    want: Want,
    namespace: &'static str,
    name: String,
    /// The value that the request writes to the object.
    value: String,
    /// The newest version of the log when the request was made.
    from: Offset,
}

type PendingReply = Pin<Box<dyn Future<Output = Result<Reply, Refusal>>>>;

struct Pending {
    order: Order,
    asked: PendingReply,
}

struct AdmissionServer {
    engine: Arc<Engine>,
    writer: Writer,
    queue: Receiver<Input>,
}

impl AdmissionServer {
    fn start(log: &Arc<MemoryLog>, clock: &Arc<SimulatedClock>, hooks: &Arc<Hooks>) -> Result<AdmissionServer, String> {
        let settings = Settings { admission: Admission::standard(), ..Settings::default() };
        let options = Options::new(settings, clock.clone());
        let built_in = Arc::new(registry().clone());
        let (engine, writer, queue) = Engine::assemble(log.clone(), built_in, options, Hub::default(), QUEUE)
            .map_err(|fault| format!("the server does not start: {fault}"))?;
        engine.set_outside(hooks.clone());
        Ok(AdmissionServer { engine, writer, queue })
    }
}

struct Site {
    seed: u64,
    dice: Dice,
    clock: Arc<SimulatedClock>,
    log: Arc<MemoryLog>,
    hooks: Arc<Hooks>,
    server: AdmissionServer,
    pending: Vec<Pending>,
    past: Past,
    clients: usize,
    step: usize,
    named: usize,
    commands: u64,
    restarts: u64,
    trace: Option<Vec<String>>,
}

impl Site {
    fn new(plan: &RunPlan) -> Site {
        let (clock, log) = (Arc::new(SimulatedClock::new(plan.seed)), Arc::new(MemoryLog::default()));
        let hooks: Arc<Hooks> = Arc::default();
        let server =
            AdmissionServer::start(&log, &clock, &hooks).unwrap_or_else(|why| panic!("an empty log opens: {why}"));
        Site {
            seed: plan.seed,
            dice: Dice::new(plan.seed),
            clock,
            log,
            hooks,
            server,
            pending: Vec::new(),
            past: Past::default(),
            clients: plan.clients,
            step: 0,
            named: 0,
            commands: 0,
            restarts: 0,
            trace: plan.trace.then(Vec::new),
        }
    }

    fn live(&mut self, plan: &RunPlan) -> CheckResult {
        self.enter(0);
        for namespace in [WATCHED, CALM] {
            let labels = json!({"webhooks": namespace});
            self.settle("", "Namespace", "", namespace, Verb::Create, json!({"metadata": {"labels": labels}}))?;
            let hard = json!({"count/configmaps": ROOM.to_string()});
            self.settle("", "ResourceQuota", namespace, "q", Verb::Create, json!({"spec": {"hard": hard}}))?;
            let quota = self.quota(namespace).ok_or("there is no quota")?.document();
            self.settle("", "ResourceQuota", namespace, "q/status", Verb::Update, counted(quota, 0))?;
        }
        let only = plan.only.as_deref();
        for step in 1..=plan.steps {
            if only.is_some_and(|only| !only.contains(&(step as u32))) {
                continue;
            }
            self.enter(step);
            let step = self.dice.weighted(&STEPS);
            self.run_step(step)?;
        }
        self.enter(plan.steps + 1);
        self.rest()
    }

    fn enter(&mut self, step: usize) {
        let seed = step_seed(self.seed, step as u64);
        self.dice = Dice::new(seed);
        self.clock.enter(seed);
        (self.step, self.named) = (step, 0);
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:5} {}", self.step, line()));
        }
    }

    fn run_step(&mut self, step: AdmissionStep) -> CheckResult {
        match step {
            AdmissionStep::Ask if self.pending.len() < self.clients => {
                let order = self.order(WATCHED);
                self.ask(order);
                self.poll(self.pending.len() - 1)
            }
            AdmissionStep::AskCalm => self.ask_in_calm(),
            AdmissionStep::Ask | AdmissionStep::Poll => match self.pending.len() {
                0 => Ok(()),
                count => {
                    let at = self.dice.below(count);
                    self.poll(at)
                }
            },
            AdmissionStep::Commit => {
                let count = 1 + self.dice.below(4);
                self.commit(count)
            }
            AdmissionStep::Answer => {
                self.answer(false);
                Ok(())
            }
            AdmissionStep::Register => self.register(),
            AdmissionStep::Policy => self.change_policy(),
            AdmissionStep::Recount => {
                let namespace = self.dice.pick(&[WATCHED, CALM]);
                self.recount(namespace)
            }
            AdmissionStep::GoAway if !self.pending.is_empty() => {
                let at = self.dice.below(self.pending.len());
                let gone = self.pending.swap_remove(at);
                self.note(|| format!("{} goes away", gone.order.id));
                Ok(())
            }
            AdmissionStep::GoAway => Ok(()),
            AdmissionStep::Restart => self.restart(),
        }
    }

    /// Draws a request of a client that creates, replaces or deletes an object.
    fn order(&mut self, namespace: &'static str) -> Order {
        let want = self.dice.weighted(&[(50, Want::Create), (30, Want::Replace), (20, Want::Delete)]);
        let name = self.dice.pick(&NAMES).to_owned();
        let is_bad = self.dice.chance(20);
        let id = self.id();
        let value = if is_bad { format!("{BAD} {id}") } else { id.clone() };
        let from = self.server.engine.snapshot().offset;
        Order { id, want, namespace, name, value, from }
    }

    fn id(&mut self) -> String {
        self.named += 1;
        format!("r{}-{}", self.step, self.named)
    }

    fn ask(&mut self, order: Order) {
        let verb = match order.want {
            Want::Create => Verb::Create,
            Want::Delete => Verb::Delete,
            _ => Verb::Update,
        };
        let body = json!({"metadata": {"annotations": {"request": order.id}}, "data": {"v": order.value}});
        let body = if verb == Verb::Delete { Value::Null } else { body };
        let request = self.request("", "ConfigMap", order.namespace, &order.name, verb, body, &order.id);
        self.note(|| {
            format!("{} wants to {:?} {}/{}: {}", order.id, order.want, order.namespace, order.name, order.value)
        });
        self.enlist(order, request);
    }

    fn enlist(&mut self, order: Order, request: Request) {
        self.commands += 1;
        let engine = self.server.engine.clone();
        let asked = Box::pin(async move { engine.mutate(&request).await });
        self.pending.push(Pending { order, asked });
    }

    /// Builds a request. `name` may have a subresource after the object's name.
    #[expect(clippy::too_many_arguments, reason = "what a path and a body say")]
    fn request(
        &self,
        group: &str,
        kind: &str,
        namespace: &str,
        name: &str,
        verb: Verb,
        body: Value,
        id: &str,
    ) -> Request {
        let state = self.server.engine.snapshot();
        let found = state.registry.find_kind(group, "v1", kind);
        let (found, version) = found.unwrap_or_else(|| panic!("no kind {kind}"));
        let (name, subresource) = name.split_once('/').map_or((name, None), |(name, sub)| (name, Some(sub.to_owned())));
        let mut body = body;
        if body.is_object() {
            body["apiVersion"] = if group.is_empty() { "v1".into() } else { format!("{group}/v1").into() };
            body["kind"] = kind.into();
            body["metadata"]["name"] = name.into();
        }
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        Request {
            user: Arc::new(User::new("client", &[])),
            verb,
            target: Target {
                kind: found,
                version,
                namespace: Some(namespace.to_owned()).filter(|namespace| !namespace.is_empty()),
                name: (verb != Verb::Create).then(|| name.to_owned()),
                subresource,
            },
            options: Parameters::default(),
            body: Body { content: bytes.into(), format: Format::Json },
            id: id.to_owned(),
        }
    }

    /// Carries out a request at once, which is possible because no webhook selects its object and no quota counts it.
    fn settle(&mut self, group: &str, kind: &str, namespace: &str, name: &str, verb: Verb, body: Value) -> CheckResult {
        let id = self.id();
        let request = self.request(group, kind, namespace, name, verb, body, &id);
        self.note(|| format!("{} {kind} {name}", verb.as_str()));
        let from = self.server.engine.snapshot().offset;
        let order =
            Order { id, want: Want::Configure, namespace: WATCHED, name: name.to_owned(), value: String::new(), from };
        self.enlist(order, request);
        self.finish(self.pending.len() - 1)
    }

    /// Polls one request until it is answered, and commits its decisions. Meanwhile no other request is polled.
    fn finish(&mut self, at: usize) -> CheckResult {
        let id = self.pending[at].order.id.clone();
        for _ in 0..ROUNDS_MAX {
            self.poll(at)?;
            if self.pending.get(at).is_none_or(|pending| pending.order.id != id) {
                return Ok(());
            }
            self.commit(QUEUE)?;
        }
        Err(format!("{id} never ends, though it waits for nobody"))
    }

    /// Makes a request in the namespace without webhooks. The request must be answered at once, whatever the webhooks
    /// do.
    fn ask_in_calm(&mut self) -> CheckResult {
        let order = self.order(CALM);
        self.ask(order);
        self.finish(self.pending.len() - 1)
    }

    fn poll(&mut self, at: usize) -> CheckResult {
        let Poll::Ready(outcome) = self.pending[at].asked.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
            return Ok(());
        };
        let Pending { order, .. } = self.pending.swap_remove(at);
        let told = match &outcome {
            Ok(_) => "it is done".to_owned(),
            Err(refusal) => refusal.message(),
        };
        self.note(|| format!("{} is told: {told}", order.id));
        let to = self.server.engine.snapshot().offset;
        let verdict = match outcome {
            Ok(reply) => oracle::check_reply(&self.past, &self.hooks, &*self.log, &order, &reply),
            Err(refusal) => oracle::check_refusal(&self.past, &self.hooks, &order, to, &refusal),
        };
        verdict.map_err(|why| format!("{why}\n  asked by {} to {:?} {}", order.id, order.want, order.name))
    }

    fn commit(&mut self, count: usize) -> CheckResult {
        let mut batch = Vec::new();
        while batch.len() < count
            && let Ok(input) = self.server.queue.try_recv()
        {
            if let Input::Commit(command) = input {
                batch.push(*command);
            }
        }
        if batch.is_empty() {
            return Ok(());
        }
        self.server.writer.commit(&mut batch);
        self.look()
    }

    /// Passes the new events to the oracle, and checks that no quota is exceeded.
    fn look(&mut self) -> CheckResult {
        let state = self.server.engine.snapshot();
        self.past.learn(&*self.log, &state)?;
        for namespace in [WATCHED, CALM] {
            let (there, used) = (count(&state, namespace), self.used(namespace));
            ensure(there <= ROOM, || format!("{namespace} has {there} objects, and its quota is {ROOM}"))?;
            // When an object is deleted, only a recount reduces the usage in the quota. So a quota may count more
            // objects than there are, but never fewer.
            ensure(used.is_none_or(|used| there <= used), || {
                format!("{namespace} has {there} objects, and its quota counts {used:?}")
            })?;
        }
        Ok(())
    }

    fn quota(&self, namespace: &str) -> Option<Arc<Entry>> {
        let state = self.server.engine.snapshot();
        let (kind, _) = state.registry.find_kind("", "v1", "ResourceQuota")?;
        state.get(kind, &format!("{namespace}/q")).cloned()
    }

    fn used(&self, namespace: &str) -> Option<u64> {
        let quota = self.quota(namespace)?.document();
        quota["status"]["used"]["count/configmaps"].as_str()?.parse().ok()
    }

    /// Answers one of the webhook calls that wait. Returns false if no call waits.
    fn answer(&mut self, agrees: bool) -> bool {
        let waiting = self.hooks.waiting();
        if waiting == 0 {
            return false;
        }
        let at = self.dice.below(waiting);
        let temper = if agrees { Temper::Agrees } else { self.dice.weighted(&TEMPERS) };
        let told = self.hooks.answer(at, temper);
        self.note(|| told);
        true
    }

    /// Creates or deletes a webhook.
    fn register(&mut self) -> CheckResult {
        let name = self.dice.pick(&WEBHOOKS);
        let kind = match name.starts_with('m') {
            true => "MutatingWebhookConfiguration",
            false => "ValidatingWebhookConfiguration",
        };
        if self.past.is_registered(name) {
            return self.settle(REGISTRATION, kind, "", name, Verb::Delete, Value::Null);
        }
        let rules = json!([{"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["configmaps"]}]);
        let failure_policy = self.dice.pick(&["Fail", "Ignore"]);
        let webhook = json!({"name": name, "clientConfig": {"url": "https://hooks.example.com/"}, "rules": rules,
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": failure_policy,
            "namespaceSelector": {"matchLabels": {"webhooks": WATCHED}}});
        self.settle(REGISTRATION, kind, "", name, Verb::Create, json!({"webhooks": [webhook]}))
    }

    /// Creates or deletes the policy, or the binding of the policy.
    fn change_policy(&mut self) -> CheckResult {
        let kind = self.dice.pick(&["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]);
        if self.past.is_registered(kind) {
            return self.settle(REGISTRATION, kind, "", "p", Verb::Delete, Value::Null);
        }
        let rules = json!([{"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["configmaps"]}]);
        let expression = format!("!object.data.v.startsWith('{BAD}')");
        let spec = match kind {
            "ValidatingAdmissionPolicy" => {
                json!({"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": expression}]})
            }
            _ => json!({"policyName": "p", "validationActions": ["Deny"]}),
        };
        self.settle(REGISTRATION, kind, "", "p", Verb::Create, json!({"spec": spec}))
    }

    /// Counts the objects of a quota in the current state, and writes the usage some time later.
    fn recount(&mut self, namespace: &'static str) -> CheckResult {
        let Some(quota) = self.quota(namespace) else { return Err("the quota is gone".into()) };
        let state = self.server.engine.snapshot();
        let (id, there) = (self.id(), count(&state, namespace));
        let body = counted(quota.document(), there);
        let request = self.request("", "ResourceQuota", namespace, "q/status", Verb::Update, body, &id);
        self.note(|| format!("{id} counts {there} objects in {namespace}"));
        let (name, value) = ("q".to_owned(), String::new());
        self.enlist(Order { id, want: Want::Count, namespace, name, value, from: state.offset }, request);
        self.poll(self.pending.len() - 1)
    }

    /// The server crashes and loses all requests. After the restart it reads its objects again, and makes no calls to
    /// webhooks for this.
    fn restart(&mut self) -> CheckResult {
        self.note(|| "the server starts again".into());
        let before = self.server.engine.snapshot();
        self.pending.clear();
        let waiting = self.hooks.waiting();
        ensure(waiting == 0, || format!("{waiting} calls wait for nobody"))?;
        self.log = Arc::new(self.log.survivor());
        self.server = AdmissionServer::start(&self.log, &self.clock, &self.hooks)?;
        self.restarts += 1;
        let after = self.server.engine.snapshot();
        ensure(Digest::of(&before) == Digest::of(&after), || "the restart changed the state".into())?;
        ensure(self.hooks.waiting() == 0, || "a webhook is asked for what happened long ago".into())
    }

    /// From now on, all webhooks allow every request. In the end, every request must have an answer, and the quotas
    /// must count exactly the objects that exist.
    fn rest(&mut self) -> CheckResult {
        for _ in 0..ROUNDS_MAX {
            for at in (0..self.pending.len()).rev() {
                self.poll(at)?;
            }
            while self.answer(true) {}
            self.commit(QUEUE)?;
            if self.pending.is_empty() {
                break;
            }
        }
        ensure(self.pending.is_empty(), || format!("{} never ends", self.pending[0].order.id))?;
        for namespace in [WATCHED, CALM] {
            self.recount(namespace)?;
            if let Some(last) = self.pending.len().checked_sub(1) {
                self.finish(last)?;
            }
            let (there, used) = (count(&self.server.engine.snapshot(), namespace), self.used(namespace));
            ensure(used == Some(there), || format!("{namespace} has {there} objects at rest, and {used:?} count"))?;
        }
        self.restart()
    }
}

/// The number of objects in a namespace that its quota counts.
fn count(state: &State, namespace: &str) -> u64 {
    let Some((kind, _)) = state.registry.find_kind("", "v1", "ConfigMap") else { return 0 };
    state.scan(kind, &format!("{namespace}/"), None).count() as u64
}

/// The document of a quota with this usage in its status.
fn counted(quota: Value, used: u64) -> Value {
    let mut quota = quota;
    quota["status"] = json!({"hard": quota["spec"]["hard"], "used": {"count/configmaps": used.to_string()}});
    quota
}
