//! An engine whose writer runs only when the test calls it, and helpers that make requests in one line.

use holdfast_core::Refusal;
use holdfast_core::authz::User;
use holdfast_core::kinds::registry;
use holdfast_core::list::Selection;
use holdfast_core::pipeline::{self, Basis, Settings};
use holdfast_core::request::{Body, Format, Options as RequestOptions, Request, Target, Verb};
use holdfast_core::stamp::Stamp;
use holdfast_core::state::State;
use holdfast_engine::commit::{Command, Outcome};
use holdfast_engine::memory::MemoryLog;
use holdfast_engine::writer::{Input, Writer};
use holdfast_engine::{Clock, Delivery, Engine, Hub, Log, Options, Reply, Watch};
use holdfast_value::{Value, json};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::oneshot;

/// A clock that advances only when the test advances it.
#[derive(Default)]
pub struct TestClock {
    pub now_ms: AtomicI64,
    stamps: AtomicU64,
}

impl Clock for TestClock {
    fn stamp(&self) -> Stamp {
        let seed = self.stamps.fetch_add(1, Ordering::Relaxed);
        let now = 1_795_255_200_000 + self.now_ms.load(Ordering::Relaxed);
        Stamp { time: jiff::Timestamp::from_millisecond(now).unwrap(), seed }
    }

    fn sleep(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(std::future::pending())
    }
}

pub struct Stage {
    pub engine: Arc<Engine>,
    pub writer: Writer,
    pub clock: Arc<TestClock>,
    queue: crossbeam::channel::Receiver<Input>,
}

pub fn options(clock: &Arc<TestClock>) -> Options {
    let settings = Settings { service_ranges: "10.0.0.0/29".parse().unwrap(), ..Settings::default() };
    Options::new(settings, clock.clone())
}

impl Stage {
    /// A stage on an empty log. Event 1 creates the namespace `default`.
    pub fn new(log: Arc<dyn Log>) -> Stage {
        let mut stage = Stage::on(log, Hub::default());
        stage.must(&create("namespaces", "", json!({"metadata": {"name": "default"}})));
        stage
    }

    pub fn on(log: Arc<dyn Log>, hub: Hub) -> Stage {
        let clock = Arc::new(TestClock::default());
        let registry = Arc::new(registry().clone());
        let (engine, writer, queue) = Engine::assemble(log, registry, options(&clock), hub, 64).unwrap();
        Stage { engine, writer, clock, queue }
    }

    /// Carries out one mutation from its judgement to its reply, including the commit.
    pub fn mutate(&mut self, request: &Request) -> Result<Reply, Refusal> {
        let engine = self.engine.clone();
        let mut future = Box::pin(async { engine.mutate(request).await });
        for _ in 0..100 {
            if let Poll::Ready(outcome) = poll(&mut future) {
                return outcome;
            }
            self.commit();
        }
        panic!("the mutation never ends");
    }

    pub fn must(&mut self, request: &Request) -> Reply {
        self.mutate(request).unwrap_or_else(|refusal| panic!("{}: {refusal:?}", request.id))
    }

    /// Hands all waiting commands to the writer as one batch.
    pub fn commit(&mut self) {
        let mut batch: Vec<Command> = std::iter::from_fn(|| self.queue.try_recv().ok())
            .filter_map(|input| match input {
                Input::Commit(command) => Some(*command),
                _ => None,
            })
            .collect();
        self.writer.commit(&mut batch);
    }

    /// Judges the request on a snapshot; the caller commits the decision.
    pub fn decide(&self, state: &State, request: &Request) -> (Command, oneshot::Receiver<Outcome>) {
        let stamp = self.clock.stamp();
        let basis = Basis { state, settings: self.engine.settings(), chain: &self.engine.authorizers() };
        let decision = pipeline::decide(basis, request, stamp).unwrap();
        let (answer, receiver) = oneshot::channel();
        let command = Command {
            writes: decision.writes,
            expects: decision.expects,
            actor: pipeline::actor(request),
            time_ms: stamp.time.as_millisecond(),
            answer,
        };
        (command, receiver)
    }

    /// The stage as it is after a crash and a restart: an engine over the durable records of `log`.
    pub fn restart(&self, log: &MemoryLog) -> Stage {
        let stage = Stage::on(Arc::new(log.survivor()), Hub::default());
        stage.clock.now_ms.store(self.clock.now_ms.load(Ordering::Relaxed), Ordering::Relaxed);
        stage
    }
}

/// Polls a future once.
pub fn poll<T>(future: &mut Pin<Box<impl Future<Output = T> + ?Sized>>) -> Poll<T> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Returns the result of a future that must be ready when it is first polled.
pub fn at_once<T>(future: impl Future<Output = T>) -> T {
    match poll(&mut Box::pin(future)) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => panic!("it waits"),
    }
}

fn request(verb: Verb, resource: &str, namespace: &str, name: &str, body: Value, format: Format) -> Request {
    let (kind, _) = registry().iter().find(|(_, kind)| kind.resource == resource).unwrap();
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Request {
        user: Arc::new(User::new("jane", &[])),
        verb,
        target: Target { kind, version: 0, namespace: text(namespace), name: text(name), subresource: None },
        options: RequestOptions::default(),
        body: Body { content: body.to_string().into_bytes().into(), format },
        id: format!("{} {resource} {namespace} {name} {body}", verb.as_str()),
    }
}

pub fn create(resource: &str, namespace: &str, body: Value) -> Request {
    request(Verb::Create, resource, namespace, "", body, Format::Json)
}

pub fn patch(resource: &str, namespace: &str, name: &str, body: Value) -> Request {
    request(Verb::Patch, resource, namespace, name, body, Format::MergePatch)
}

pub fn delete(resource: &str, namespace: &str, name: &str) -> Request {
    request(Verb::Delete, resource, namespace, name, Value::Null, Format::Json)
}

/// A request that makes a ConfigMap in the namespace `default`.
pub fn config_map(name: &str) -> Request {
    create("configmaps", "default", json!({"metadata": {"name": name, "labels": {"app": "x"}}, "data": {"k": "v"}}))
}

/// A request that changes the value in a ConfigMap's data.
pub fn set(name: &str, value: &str) -> Request {
    patch("configmaps", "default", name, json!({"data": {"k": value}}))
}

pub fn selection(state: &State, resource: &str, namespace: &str, labels: &str, fields: &str) -> Selection {
    let mut request = request(Verb::Watch, resource, namespace, "", Value::Null, Format::Json);
    request.options.label_selector = Some(labels.to_owned());
    request.options.field_selector = Some(fields.to_owned());
    Selection::new(state, &request).unwrap()
}

/// All objects of a state by kind and key, each with its version and its bytes.
pub fn everything(state: &State) -> BTreeMap<String, (u64, String)> {
    let mut all = BTreeMap::new();
    for (id, kind) in state.registry.iter() {
        for (key, entry) in state.scan(id, "", None) {
            let text = String::from_utf8(entry.json().to_vec()).unwrap();
            all.insert(format!("{} {key}", kind.storage.path), (entry.offset.0, text));
        }
    }
    all
}

/// An event in the form in which tests write it: `ADDED default/a@2`.
pub fn told(delivery: &Delivery) -> String {
    let change = &delivery.event.change;
    format!("{} {}@{}", delivery.change_type.as_str(), change.key, change.offset)
}

/// All events of the watch that are ready without waiting.
pub fn drain(watch: &mut Watch) -> Vec<String> {
    std::iter::from_fn(|| watch.next_ready().unwrap()).map(|delivery| told(&delivery)).collect()
}
