//! Runs a [`Scheduler`]. It passes changes, outcomes of requests and the time to the scheduler, and sends the
//! scheduler's requests, many at a time.
//!
//! The scheduler uses the same two traits as controllers: a [`Feed`] and [`Act`], in the API server's own process, or
//! over HTTPS in another process.

mod answer;
pub mod extend;
pub mod metrics;
pub mod pod_resources;

use crate::{Act, Feed, News, heavy};
use extend::Extenders;
use futures_util::FutureExt;
use holdfast_core::authz::User;
use holdfast_core::object::Body;
use holdfast_scheduler::object::{KINDS, Kind};
use holdfast_scheduler::queue::Time;
use holdfast_scheduler::scheduler::{OutgoingRequest, RequestContent, RequestOutcome};
use holdfast_scheduler::{Clock, Configuration, Scheduler};
use holdfast_value::Value;
use holdfast_world::{Actor, Key, Resource};
use jiff::Timestamp;
use metrics::Metrics;
use pod_resources::PodResources;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, watch};

/// The scheduler's user name at the API server.
const USER: &str = "system:kube-scheduler";
const FIELD_MANAGER: &str = "kube-scheduler";

/// If this many requests are pending, no more pods are tried. The number is enough for two full batches of the API
/// server's log.
const PENDING_REQUESTS_MAX: usize = 1024;
/// How many changes are applied to the scheduler's snapshot before other work is done.
const CHANGES_AT_ONCE: usize = 256;
/// The feed is not read while this many changes wait to be applied.
const WAITING_CHANGES_MAX: usize = 4096;
/// How long pods are tried before other tasks on this thread run.
const SCHEDULING_TIME: Duration = Duration::from_millis(1);

/// The resources that a scheduler watches.
pub fn resources() -> Vec<Resource> {
    KINDS.iter().map(|kind| kind.resource()).collect()
}

/// Everything that a scheduler needs in order to run.
pub struct SchedulerSetup {
    pub configuration: Arc<Configuration>,
    pub act: Arc<dyn Act>,
    pub metrics: Arc<Metrics>,
    /// Whether this process leads. While it does not lead, the scheduler only keeps its snapshot up to date.
    pub leads: watch::Receiver<bool>,
    /// Whether all objects that existed at the start were applied.
    pub synced: Arc<AtomicBool>,
    /// The name of the machine, which Events contain.
    pub host: String,
    /// Each notification makes the scheduler log its nodes and its queue.
    pub dump: Arc<Notify>,
    /// The async runtime that sends the scheduler's requests.
    pub request_runtime: Handle,
    /// Receives all pods, if a page of metrics reports the resources of each pod; otherwise `None`.
    pub pod_resources: Option<Arc<PodResources>>,
}

/// Schedules pods until the future is dropped.
pub async fn run(work: SchedulerSetup, feed: impl Feed) {
    let (outcomes, received_outcomes) = unbounded_channel();
    let user = Arc::new(User::new(USER, &["system:authenticated"]));
    let mut scheduler = Scheduler::with_clock(work.configuration.clone(), Clock::new(elapsed));
    scheduler.set_host(&work.host);
    if work.pod_resources.is_some() {
        scheduler.read_limits();
    }
    let mut runner = Runner {
        scheduler,
        kinds: KINDS
            .iter()
            .map(|kind| (kind.resource(), KnownObjects { kind: kind.kind, keys: HashSet::new() }))
            .collect(),
        changes: VecDeque::new(),
        feed,
        outcomes: received_outcomes,
        sender: RequestSender {
            act: work.act,
            actor: Actor { user, field_manager: FIELD_MANAGER },
            extenders: Extenders::default(),
            configuration: work.configuration,
            handle: work.request_runtime,
            outcomes,
        }
        .into(),
        metrics: work.metrics,
        leads: work.leads,
        synced: work.synced,
        dump: work.dump,
        pod_resources: work.pod_resources,
    };
    loop {
        runner.run_step().await;
    }
}

struct Runner<F> {
    scheduler: Scheduler,
    feed: F,
    kinds: HashMap<Resource, KnownObjects>,
    /// The changes that are not applied to the scheduler's snapshot yet.
    changes: VecDeque<ObjectChange>,
    outcomes: UnboundedReceiver<(u64, RequestOutcome)>,
    sender: Arc<RequestSender>,
    metrics: Arc<Metrics>,
    leads: watch::Receiver<bool>,
    /// Whether all objects that existed at the start are known. Until they are known, nodes seem to have more free
    /// resources than they have, so no pod is tried.
    synced: Arc<AtomicBool>,
    dump: Arc<Notify>,
    pod_resources: Option<Arc<PodResources>>,
}

/// The keys of the objects of one kind. With them, a new list shows which objects were deleted.
struct KnownObjects {
    kind: Kind,
    keys: HashSet<Key>,
}

/// An object that has changed; `body` is `None` if the object was deleted.
struct ObjectChange {
    kind: Kind,
    key: Key,
    body: Option<Body>,
}

impl<F: Feed> Runner<F> {
    /// Applies changes, tries pods for a while, and waits if there is nothing else to do.
    async fn run_step(&mut self) {
        let applied = self.apply_changes();
        let more = self.schedule_pods();
        self.send_requests();
        if applied || more {
            // The feed is read without waiting, so that pods are tried on the newest state. While many changes wait to
            // be applied, news stays in the feed, whose size is limited.
            if self.changes.len() < WAITING_CHANGES_MAX
                && let Some(news) = self.feed.next().now_or_never()
            {
                self.receive(news);
            }
            return tokio::task::yield_now().await;
        }
        self.metrics.observe_queue(&mut self.scheduler);
        let sleep = self.sleep_until_due();
        tokio::select! {
            news = self.feed.next() => self.receive(news),
            Some((number, outcome)) = self.outcomes.recv() => self.scheduler.handle_outcome(number, outcome, now()),
            Ok(()) = self.leads.changed() => {}
            () = self.dump.notified() => self.write_dump(),
            () = sleep => {}
        }
    }

    fn receive(&mut self, news: Vec<News>) {
        match news.iter().any(News::is_heavy) {
            true => heavy(|| self.queue_changes(news)),
            false => self.queue_changes(news),
        }
    }

    /// Puts those changes of the news that concern the scheduler into `changes`.
    fn queue_changes(&mut self, news: Vec<News>) {
        for news in news {
            match news {
                News::Changed { resource, key, body, .. } => {
                    let Some(KnownObjects { kind, keys }) = self.kinds.get_mut(&resource) else { continue };
                    match body {
                        Some(_) => _ = keys.replace(key.clone()),
                        None => _ = keys.remove(&key),
                    }
                    self.changes.push_back(ObjectChange { kind: *kind, key, body });
                }
                News::Replaced { resource, objects, .. } => {
                    let Some(known) = self.kinds.get_mut(&resource) else { continue };
                    self.changes.extend(known.replace(objects));
                }
                News::Dropped(resource) => {
                    let Some(known) = self.kinds.get_mut(&resource) else { continue };
                    self.changes.extend(known.replace(Vec::new()));
                }
                News::Complete => {
                    // The changes of all objects that existed at the start come before `Complete`, so they are all in
                    // `changes` by now.
                    while self.apply_changes() {}
                    self.synced.store(true, Ordering::Relaxed);
                }
                News::Served(_) | News::Reached(..) | News::ReachedAll(_) => {}
            }
        }
    }

    fn apply_changes(&mut self) -> bool {
        let mut any = false;
        for _ in 0..CHANGES_AT_ONCE {
            let Some(change) = self.changes.pop_front() else { break };
            self.apply_change(change);
            any = true;
        }
        while let Ok((number, outcome)) = self.outcomes.try_recv() {
            self.scheduler.handle_outcome(number, outcome, now());
            any = true;
        }
        any
    }

    fn apply_change(&mut self, ObjectChange { kind, key, body }: ObjectChange) {
        let start = Instant::now();
        let json = body.map(|body| body.bytes());
        if let Some(event) = self.scheduler.apply_stored_object(kind, &key, json.as_deref(), now()) {
            self.metrics.observe_event(event, start.elapsed());
        }
        if let Some(resources) = self.pod_resources.as_ref().filter(|_| kind == Kind::Pod) {
            resources.apply_pod(&key, self.scheduler.snapshot().pod(&key));
        }
    }

    fn write_dump(&self) {
        for line in self.scheduler.dump_nodes().chain(self.scheduler.dump_queue()) {
            tracing::info!("{line}");
        }
    }

    fn may_schedule(&self) -> bool {
        self.synced.load(Ordering::Relaxed) && *self.leads.borrow()
    }

    /// Tries pods for a while. Returns whether more pods can be tried.
    fn schedule_pods(&mut self) -> bool {
        if !self.may_schedule() {
            return false;
        }
        let began = Instant::now();
        while began.elapsed() < SCHEDULING_TIME {
            if self.scheduler.pending_requests() >= PENDING_REQUESTS_MAX {
                return false;
            }
            let start = Instant::now();
            if !self.scheduler.schedule_one(now()) {
                return false;
            }
            self.metrics.observe_planning(start.elapsed());
        }
        true
    }

    fn send_requests(&mut self) {
        for sample in self.scheduler.take_samples() {
            self.metrics.observe(&sample);
        }
        for OutgoingRequest { number, content } in self.scheduler.take_requests(now()) {
            let sender = self.sender.clone();
            self.sender.handle.spawn(async move {
                let outcome = sender.send(content).await;
                // If the scheduler has ended, the receiver is gone, and the outcome is dropped.
                let _ = sender.outcomes.send((number, outcome));
            });
        }
    }

    fn sleep_until_due(&self) -> impl Future<Output = ()> + use<F> {
        let due = self.scheduler.next_wakeup().filter(|_| self.may_schedule());
        async move {
            match due {
                Some(at) => tokio::time::sleep(until(at)).await,
                None => std::future::pending().await,
            }
        }
    }
}

impl KnownObjects {
    /// Replaces the known objects of the kind by a list, and returns the changes.
    fn replace(&mut self, objects: Vec<(Key, Body, u64)>) -> Vec<ObjectChange> {
        let kind = self.kind;
        let keys = objects.iter().map(|(key, ..)| key.clone()).collect();
        let before = std::mem::replace(&mut self.keys, keys);
        let gone = before.into_iter().filter(|key| !self.keys.contains(key));
        let mut changes: Vec<ObjectChange> = gone.map(|key| ObjectChange { kind, key, body: None }).collect();
        changes.extend(objects.into_iter().map(|(key, body, _)| ObjectChange { kind, key, body: Some(body) }));
        changes
    }
}

/// Sends the scheduler's requests.
struct RequestSender {
    act: Arc<dyn Act>,
    actor: Actor,
    extenders: Extenders,
    configuration: Arc<Configuration>,
    handle: Handle,
    outcomes: UnboundedSender<(u64, RequestOutcome)>,
}

impl RequestSender {
    async fn send(&self, content: RequestContent) -> RequestOutcome {
        match content {
            RequestContent::Api(action) => match self.act.act(&self.actor, &action).await {
                Ok(_) => RequestOutcome::Succeeded(Value::Null),
                Err(refusal) => RequestOutcome::Refused(refusal),
            },
            RequestContent::Extender { extender, verb, body } => {
                match self.extenders.call(&self.configuration.extenders[extender], &verb, &body).await {
                    Ok(body) => RequestOutcome::Succeeded(body),
                    Err(why) => RequestOutcome::Failed(why),
                }
            }
        }
    }
}

/// The time since the first call, from a clock that never goes back.
fn elapsed() -> Duration {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    BEGAN.elapsed()
}

fn now() -> Time {
    Timestamp::now().as_nanosecond()
}

/// How long it is until `at`; 0 if `at` has passed.
fn until(at: Time) -> Duration {
    Duration::from_nanos(u64::try_from(at.saturating_sub(now())).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_list_shows_deleted_objects() {
        let mut known = KnownObjects { kind: Kind::Node, keys: HashSet::new() };
        let list = |names: &[&str]| names.iter().map(|name| (Key::cluster(name), Body::from(&b"{}"[..]), 1)).collect();
        let shown = |changes: Vec<ObjectChange>| {
            let one =
                |change: &ObjectChange| format!("{}{}", if change.body.is_some() { '+' } else { '-' }, change.key.name);
            changes.iter().map(one).collect::<Vec<String>>()
        };
        assert_eq!(shown(known.replace(list(&["a", "b"]))), ["+a", "+b"]);
        assert_eq!(shown(known.replace(list(&["b", "c"]))), ["-a", "+b", "+c"]);
        assert_eq!(shown(known.replace(Vec::new())).len(), 2);
    }
}
