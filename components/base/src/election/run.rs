//! Runs a candidate on its lock, and the work while the candidate leads.

use super::elector::{ElectionStep, Elector, Now, Record, StepResult, Terms};
use super::lock::{Lock, LockKind};
use crate::api::{Api, ApiError};
use crate::metrics::Metrics;
use holdfast_value::json;
use jiff::Timestamp;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long ago the lease of a leader may have expired before the leader counts as unhealthy. Its process should have
/// ended by then.
const OVERDUE_MAX: Duration = Duration::from_secs(20);

/// A candidate for leadership.
pub struct Election {
    pub api: Arc<Api>,
    pub form: LockKind,
    pub namespace: String,
    pub name: String,
    pub terms: Terms,
    /// The name of this process in the lock. It is unique.
    pub identity: String,
    /// The name of the component that is the source of the election's Events.
    pub component: String,
    pub metrics: Arc<Metrics>,
    pub standing: Arc<Standing>,
}

/// How an election ended.
#[derive(Debug, PartialEq, Eq)]
pub enum ElectionOutcome<T> {
    /// The work has ended by itself.
    Done(T),
    /// The process received a signal to end.
    Stopped,
    /// Another process may lead now, so the work of this process must stop.
    Lost,
}

/// Whether a candidate leads, which other parts of the process may read.
#[derive(Debug, Default)]
pub struct Standing(Mutex<Option<Lead>>);

#[derive(Debug)]
struct Lead {
    renewed: Instant,
    lease: Duration,
    name: String,
}

impl Standing {
    pub fn leads(&self) -> bool {
        self.lock().is_some()
    }

    /// The health check `leaderElection`. It fails for a leader whose lease expired more than 20 s ago.
    pub fn check(&self) -> Result<(), String> {
        match self.lock().as_ref() {
            Some(Lead { renewed, lease, name }) if renewed.elapsed() > *lease + OVERDUE_MAX => {
                Err(format!("failed election to renew leadership on lease {name}"))
            }
            _ => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Lead>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The host name of this machine.
pub fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// A unique name for a candidate, which consists of the machine's name and a random UUID.
pub fn identity() -> String {
    let host = host();
    let bits: u128 = rand::random();
    let hex = format!("{bits:032x}");
    // In a UUID of version 4, one digit contains the variant and one digit the version.
    let (variant, version) = (['8', '9', 'a', 'b'][(bits & 3) as usize], '4');
    let parts = (&hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..]);
    format!("{host}_{}-{}-{version}{}-{variant}{}-{}", parts.0, parts.1, parts.2, parts.3, parts.4)
}

impl Election {
    /// Runs `work` while this process leads, and releases the lease at the end.
    pub async fn lead<T>(self, work: impl Future<Output = T>, stop: impl Future<Output = ()>) -> ElectionOutcome<T> {
        let mut candidate = Candidate::new(self);
        tokio::pin!(stop);
        let mut work = Box::pin(work);
        let outcome = tokio::select! {
            biased;
            () = &mut stop => ElectionOutcome::Stopped,
            () = candidate.acquire() => tokio::select! {
                biased;
                () = &mut stop => ElectionOutcome::Stopped,
                () = candidate.renew() => ElectionOutcome::Lost,
                done = &mut work => ElectionOutcome::Done(done),
            },
        };
        // The work is dropped before the lease is released, so that it never runs without the lease.
        drop(work);
        candidate.end().await;
        outcome
    }
}

struct Candidate {
    election: Election,
    elector: Elector,
    lock: Lock,
    began: Instant,
    next: ElectionStep,
    reported: String,
}

impl Candidate {
    fn new(election: Election) -> Candidate {
        let elector = Elector::new(election.identity.clone(), election.terms);
        let lock = Lock::new(election.form, election.namespace.clone(), election.name.clone());
        election.metrics.leads(&election.name, false);
        let next = ElectionStep::Wait(Duration::ZERO);
        Candidate { election, elector, lock, began: Instant::now(), next, reported: String::new() }
    }

    fn now(&self) -> Now {
        Now { elapsed: self.began.elapsed(), wall: Timestamp::now(), chance: rand::random() }
    }

    /// Tries to become the leader, and returns when this process leads.
    async fn acquire(&mut self) {
        tracing::info!(lease = self.lease(), "attempting to acquire leader lease");
        while !self.elector.leads() {
            self.step().await;
        }
        tracing::info!(lease = self.lease(), "successfully acquired lease");
        self.election.metrics.leads(&self.election.name, true);
        self.note("became leader").await;
    }

    /// Renews the lease, and returns when this process does not lead any more.
    async fn renew(&mut self) {
        while self.next != ElectionStep::Lost {
            self.step().await;
        }
        tracing::error!(lease = self.lease(), "failed to renew lease");
    }

    /// Does the next step. If the future is dropped in the middle, it is unknown whether the step took effect, and the
    /// next step finds this out.
    async fn step(&mut self) {
        let answer = match self.next.clone() {
            ElectionStep::Wait(time) => {
                tokio::time::sleep(time).await;
                StepResult::Waited
            }
            ElectionStep::Lost => return,
            call => {
                // A leader waits for an answer only until the time at which it gives up its lead.
                let patience = self.elector.gives_up_at().map(|end| end.saturating_sub(self.began.elapsed()));
                let most = (self.election.terms.renew / 2).max(Duration::from_secs(1));
                let asked = self.ask(&call);
                match tokio::time::timeout(patience.map_or(most, |patience| patience.min(most)), asked).await {
                    Ok(Ok(answer)) => answer,
                    Ok(Err(error)) => {
                        tracing::error!(%error, lease = self.lease(), step = call_name(&call), "the lock did not answer as wished");
                        StepResult::Failed
                    }
                    Err(_) => {
                        tracing::error!(
                            lease = self.lease(),
                            step = call_name(&call),
                            "the lock did not answer in time"
                        );
                        StepResult::Failed
                    }
                }
            }
        };
        let slow = self.elector.slow_renewals;
        self.next = self.elector.step(self.now(), answer);
        if self.elector.slow_renewals > slow {
            self.election.metrics.renewed_slowly(&self.election.name);
        }
        self.report();
    }

    async fn ask(&mut self, call: &ElectionStep) -> Result<StepResult, ApiError> {
        let api = self.election.api.clone();
        match call {
            ElectionStep::Create(record) => self.lock.create(&api, record).await.map(|()| StepResult::Written),
            ElectionStep::Update(record) => self.lock.update(&api, record).await.map(|()| StepResult::Written),
            _ => self.lock.read(&api).await,
        }
    }

    /// Updates the standing of this candidate, and logs the leader's name if there is a new leader.
    fn report(&mut self) {
        let lead = self.elector.leads().then(|| Lead {
            renewed: self.began + self.elector.observed_at(),
            lease: self.election.terms.lease,
            name: self.election.name.clone(),
        });
        *self.election.standing.lock() = lead;
        if self.elector.leader() != self.reported {
            self.reported = self.elector.leader().to_owned();
            tracing::info!(lease = self.lease(), leader = self.reported, "new leader elected");
        }
    }

    /// Steps down, and writes an Event about it.
    async fn end(mut self) {
        let released = self.elector.release(self.now());
        self.election.metrics.leads(&self.election.name, false);
        *self.election.standing.lock() = None;
        if let Some(record) = released {
            self.release(&record).await;
            self.note("stopped leading").await;
        }
    }

    /// Writes a record without a leader into the lock, unless another process already leads.
    async fn release(&mut self, record: &Record) {
        let (api, most) = (self.election.api.clone(), self.election.terms.renew);
        let given = async {
            match self.lock.read(&api).await? {
                StepResult::Found(found, _) if found.holder == self.election.identity => {
                    self.lock.update(&api, record).await
                }
                _ => Ok(()),
            }
        };
        match tokio::time::timeout(most, given).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "failed to release lock"),
            Err(_) => tracing::error!("failed to release lock in time"),
        }
    }

    /// Writes an Event about the lock. A failure to write the Event is ignored.
    async fn note(&self, what: &str) {
        let Election { api, component, identity, namespace, terms, .. } = &self.election;
        let now = Timestamp::now();
        let time = now.round(jiff::Unit::Second).unwrap_or(now).to_string();
        let path = format!("/api/v1/namespaces/{namespace}/events");
        for (name, reference) in self.lock.references(now) {
            let event = json!({
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": name, "namespace": namespace},
                "involvedObject": reference,
                "reason": "LeaderElection",
                "message": format!("{identity} {what}"),
                "source": {"component": component},
                "firstTimestamp": time,
                "lastTimestamp": time,
                "count": 1,
                "type": "Normal",
                "reportingComponent": component,
                "reportingInstance": "",
            });
            match tokio::time::timeout(terms.retry, api.post(&path, &event)).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => tracing::warn!(%error, "an event about the lease could not be written"),
                Err(_) => tracing::warn!("an event about the lease could not be written in time"),
            }
        }
    }

    fn lease(&self) -> String {
        format!("{}/{}", self.election.namespace, self.election.name)
    }
}

fn call_name(step: &ElectionStep) -> &'static str {
    match step {
        ElectionStep::Read => "read",
        ElectionStep::Create(_) => "create",
        ElectionStep::Update(_) => "update",
        ElectionStep::Wait(_) => "wait",
        ElectionStep::Lost => "lost",
    }
}
