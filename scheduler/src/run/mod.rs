//! Runs a [`Scheduler`]: brings it changes, answers and the time, and carries its orders out, many at a time.
//!
//! Where changes come from and how orders are carried out is the [`Cluster`]'s business: in the API server's own process,
//! or over HTTPS anywhere else.

pub mod extend;
pub mod metrics;

use crate::configuration::Configuration;
use crate::configuration::extender::Extender;
use crate::object::{Key, Kind};
use crate::queue::Time;
use crate::scheduler::{Answer, Ask, Order, Scheduler};
use async_trait::async_trait;
use bytes::Bytes;
use holdfast_world::{Action, Refusal};
use jiff::Timestamp;
use metrics::Metrics;
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{Receiver, UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

/// Where a scheduler acts.
#[async_trait]
pub trait Cluster: Send + Sync + 'static {
    /// Has the API server do something, as `system:kube-scheduler`.
    async fn act(&self, action: &Action) -> Result<(), Refusal>;

    /// Posts a question to an extender, and reads its answer.
    async fn extend(&self, extender: &Extender, verb: &str, body: &Value) -> Result<Value, String>;
}

/// What a scheduler is fed with.
#[derive(Debug, Clone)]
pub enum Fed {
    /// What an object is now, as JSON; `None`: it is gone.
    Change(Kind, Key, Option<Bytes>),
    /// Everything that there was at the beginning has been told.
    Complete,
}

/// How many orders may be without an answer before no more pods are tried: enough for a full batch of the API server's
/// log and the next one behind it.
const UNANSWERED_MAX: usize = 1024;
/// How many changes are taken in at a time.
const CHANGES_MAX: usize = 256;
/// How long pods are tried before others get their turn on this thread.
const TURN: Duration = Duration::from_millis(1);

/// Schedules pods until the feed ends. While `leads` is false it only keeps its picture of the cluster up to date.
pub async fn run(
    configuration: Arc<Configuration>,
    feed: Receiver<Fed>,
    cluster: Arc<dyn Cluster>,
    metrics: Arc<Metrics>,
    leads: watch::Receiver<bool>,
) {
    let (answer, answers) = unbounded_channel();
    let scheduler = Scheduler::new(configuration);
    let mut runner = Runner { scheduler, feed, answers, answer, cluster, metrics, leads, complete: false };
    while runner.step().await {}
}

struct Runner {
    scheduler: Scheduler,
    feed: Receiver<Fed>,
    answers: UnboundedReceiver<(u64, Answer)>,
    answer: UnboundedSender<(u64, Answer)>,
    cluster: Arc<dyn Cluster>,
    metrics: Arc<Metrics>,
    leads: watch::Receiver<bool>,
    /// Whether all that there was at the beginning is known: before, every place looks free.
    complete: bool,
}

impl Runner {
    /// Takes in what has come, tries pods for a while, and waits where there is nothing to do. `false`: the feed ended.
    async fn step(&mut self) -> bool {
        let taken = self.take_in();
        let more = self.try_pods();
        self.send_out();
        if taken || more {
            tokio::task::yield_now().await;
            return true;
        }
        self.metrics.lengths(&self.scheduler);
        let sleep = self.until_due();
        tokio::select! {
            fed = self.feed.recv() => match fed {
                Some(fed) => self.see(fed),
                None => return false,
            },
            Some((number, answer)) = self.answers.recv() => self.scheduler.answer(number, answer, now()),
            Ok(()) = self.leads.changed() => {}
            () = sleep => {}
        }
        true
    }

    fn take_in(&mut self) -> bool {
        let mut any = false;
        for _ in 0..CHANGES_MAX {
            let Ok(fed) = self.feed.try_recv() else { break };
            self.see(fed);
            any = true;
        }
        while let Ok((number, answer)) = self.answers.try_recv() {
            self.scheduler.answer(number, answer, now());
            any = true;
        }
        any
    }

    fn see(&mut self, fed: Fed) {
        let (kind, key, bytes) = match fed {
            Fed::Change(kind, key, bytes) => (kind, key, bytes),
            Fed::Complete => return self.complete = true,
        };
        let began = Instant::now();
        let object = bytes.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
        self.scheduler.see(kind, &key, object.as_ref(), now());
        self.metrics.handled(kind, began.elapsed());
    }

    /// Whether there are more pods to be tried.
    fn try_pods(&mut self) -> bool {
        if !self.complete || !*self.leads.borrow() {
            return false;
        }
        let began = Instant::now();
        while began.elapsed() < TURN {
            if self.scheduler.unanswered() >= UNANSWERED_MAX {
                return false;
            }
            let start = Instant::now();
            if !self.scheduler.turn(now()) {
                return false;
            }
            self.metrics.planned(start.elapsed());
        }
        true
    }

    fn send_out(&mut self) {
        for observed in self.scheduler.observed() {
            self.metrics.observe(&observed);
        }
        for Order { number, ask } in self.scheduler.orders() {
            let (cluster, answer) = (self.cluster.clone(), self.answer.clone());
            let configuration = self.scheduler.configuration().clone();
            tokio::spawn(async move {
                let told = carry_out(&*cluster, &configuration, ask).await;
                // Nobody waits for it any more when the scheduler has ended.
                let _ = answer.send((number, told));
            });
        }
    }

    fn until_due(&self) -> impl Future<Output = ()> + use<> {
        let due = self.scheduler.wakes_at().filter(|_| self.complete && *self.leads.borrow());
        async move {
            match due {
                Some(at) => tokio::time::sleep(until(at)).await,
                None => std::future::pending().await,
            }
        }
    }
}

async fn carry_out(cluster: &dyn Cluster, configuration: &Configuration, ask: Ask) -> Answer {
    match ask {
        Ask::Api(action) => match cluster.act(&action).await {
            Ok(()) => Answer::Done(Value::Null),
            Err(refusal) => Answer::Refused(refusal),
        },
        Ask::Extender { extender, verb, body } => {
            match cluster.extend(&configuration.extenders[extender], &verb, &body).await {
                Ok(said) => Answer::Done(said),
                Err(why) => Answer::Failed(why),
            }
        }
    }
}

fn now() -> Time {
    Timestamp::now().as_nanosecond()
}

/// How long it is until then; a moment that has passed is due at once.
fn until(at: Time) -> Duration {
    Duration::from_nanos(u64::try_from(at.saturating_sub(now())).unwrap_or(0))
}
