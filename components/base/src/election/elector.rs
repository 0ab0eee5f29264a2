//! Decides who leads, from the record in the lock.
//!
//! The times in a record come from other machines and are not compared with the local clock. A lease has expired if the
//! record has not changed for its duration by the observer's own clock. So clocks may differ by any amount, if they run
//! at the same rate. A leader that cannot renew its lease stops leading before any other process may consider the lease
//! expired: at the latest when the lease's duration has passed since the leader began its last successful write.

use jiff::Timestamp;
use std::time::Duration;

/// The durations of an election.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Terms {
    /// How long other candidates wait for a leader that does not renew its lease.
    pub lease: Duration,
    /// How long a leader tries to renew its lease before it steps down.
    pub renew: Duration,
    /// How long a candidate waits between two attempts to acquire or renew the lease.
    pub retry: Duration,
}

/// Each attempt to become the leader is delayed by a random time of at most this many retry periods, so that candidates
/// do not all try at once.
pub const JITTER: f64 = 1.2;

/// The record in a lock.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    /// The name of the holder; empty if there is none.
    pub holder: String,
    pub lease_seconds: i64,
    pub acquired: Timestamp,
    pub renewed: Timestamp,
    pub transitions: i64,
}

/// The time and the random number that the caller passes to a step.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// The time since a fixed moment, which is the same moment in all calls.
    pub elapsed: Duration,
    pub wall: Timestamp,
    /// A random number from 0 to 1.
    pub chance: f64,
}

/// What the caller must do next.
#[derive(Debug, Clone, PartialEq)]
pub enum ElectionStep {
    Read,
    Create(Record),
    Update(Record),
    Wait(Duration),
    /// This process was the leader and is not the leader any more.
    Lost,
}

/// The result of the step that the caller has carried out.
#[derive(Debug, Clone, PartialEq)]
pub enum StepResult {
    /// The record in the lock, and the text of this record. If a later text is equal, no process has written the lock
    /// in between.
    Found(Record, String),
    Missing,
    Written,
    /// Another process wrote the lock first, or no answer arrived in time.
    Failed,
    /// The time to wait is over.
    Waited,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ElectorState {
    Waiting,
    /// The candidate writes the record that it wrote last with a new time, without reading the lock first.
    Renewing,
    Reading,
    Creating,
    Updating,
    Over,
}

/// One process that tries to become the leader or leads.
#[derive(Debug)]
pub struct Elector {
    identity: String,
    terms: Terms,
    at: ElectorState,
    /// The record that was last read. `observed_text` is its text, and `observed_at` is the time at which this text was
    /// first read.
    observed: Record,
    observed_text: Option<String>,
    observed_at: Duration,
    /// The record that is being written. `asked_at` is the time at which the write began.
    writing: Record,
    asked_at: Duration,
    leading: Option<Leading>,
    /// How many renewals had to read the lock first, because a write without reading the lock had failed.
    pub slow_renewals: u64,
}

#[derive(Debug, Clone, Copy)]
struct Leading {
    /// The time at which the last successful renewal began.
    renewed: Duration,
    /// The time at which the attempts at the next renewal began; `None` if there was no attempt yet.
    trying: Option<Duration>,
}

impl Elector {
    pub fn new(identity: impl Into<String>, terms: Terms) -> Elector {
        Elector {
            identity: identity.into(),
            terms,
            at: ElectorState::Waiting,
            observed: Record::default(),
            observed_text: None,
            observed_at: Duration::ZERO,
            writing: Record::default(),
            asked_at: Duration::ZERO,
            leading: None,
            slow_renewals: 0,
        }
    }

    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// The name of the leader in the last record read; empty if there is no leader.
    pub fn leader(&self) -> &str {
        &self.observed.holder
    }

    /// The time at which the last record was first read.
    pub fn observed_at(&self) -> Duration {
        self.observed_at
    }

    pub fn leads(&self) -> bool {
        self.leading.is_some()
    }

    /// The time at which this process stops leading if it does not renew the lease; `None` if it does not lead.
    pub fn gives_up_at(&self) -> Option<Duration> {
        let Leading { renewed, trying } = self.leading?;
        let lease_over = renewed + Duration::from_secs(self.lease_seconds().unsigned_abs());
        Some(trying.map_or(lease_over, |trying| lease_over.min(trying + self.terms.renew)))
    }

    fn lease_seconds(&self) -> i64 {
        i64::try_from(self.terms.lease.as_secs()).unwrap_or(i64::MAX)
    }

    /// Decides the caller's next step. `answer` is the result of the previous step; in the first call it is
    /// [`StepResult::Waited`].
    pub fn step(&mut self, now: Now, answer: StepResult) -> ElectionStep {
        match (self.at, answer) {
            (ElectorState::Waiting, StepResult::Waited) => self.begin(now),
            (ElectorState::Renewing, StepResult::Failed) if !self.is_too_late(now) => self.read(),
            (ElectorState::Reading, StepResult::Missing) => {
                let record = self.record(now);
                self.write(ElectorState::Creating, record, ElectionStep::Create)
            }
            (ElectorState::Reading, StepResult::Found(record, text)) => self.found(now, record, text),
            (ElectorState::Renewing | ElectorState::Creating | ElectorState::Updating, StepResult::Written) => {
                self.written(now)
            }
            (ElectorState::Over, _) => ElectionStep::Lost,
            _ => self.failed(now),
        }
    }

    /// The record with which a leader steps down, so that the next leader need not wait for the lease to expire; `None`
    /// if this process does not lead. The process does not lead any more after this call.
    pub fn release(&mut self, now: Now) -> Option<Record> {
        self.leading.take()?;
        self.at = ElectorState::Over;
        let transitions = self.observed.transitions;
        let record =
            Record { lease_seconds: 1, acquired: now.wall, renewed: now.wall, transitions, ..Record::default() };
        self.observed = record.clone();
        Some(record)
    }

    fn begin(&mut self, now: Now) -> ElectionStep {
        if let Some(leading) = &mut self.leading {
            leading.trying.get_or_insert(now.elapsed);
        }
        if self.is_too_late(now) {
            return self.lose();
        }
        self.asked_at = now.elapsed;
        if self.leads() && self.is_held(now) && self.observed.holder == self.identity {
            let record = self.renewal(now);
            return self.write(ElectorState::Renewing, record, ElectionStep::Update);
        }
        self.read()
    }

    fn read(&mut self) -> ElectionStep {
        self.at = ElectorState::Reading;
        ElectionStep::Read
    }

    fn write(&mut self, at: ElectorState, record: Record, step: fn(Record) -> ElectionStep) -> ElectionStep {
        self.at = at;
        self.writing = record.clone();
        step(record)
    }

    fn record(&self, now: Now) -> Record {
        Record {
            holder: self.identity.clone(),
            lease_seconds: self.lease_seconds(),
            acquired: now.wall,
            renewed: now.wall,
            transitions: 0,
        }
    }

    fn renewal(&self, now: Now) -> Record {
        let Record { acquired, transitions, .. } = self.observed;
        Record { acquired, transitions, ..self.record(now) }
    }

    fn found(&mut self, now: Now, record: Record, text: String) -> ElectionStep {
        if self.observed_text.as_ref() != Some(&text) {
            self.observed = record;
            self.observed_text = Some(text);
            self.observed_at = now.elapsed;
        }
        let own = self.observed.holder == self.identity;
        if self.leads() && !own {
            return self.lose();
        }
        if !own && !self.observed.holder.is_empty() && self.is_held(now) {
            return self.failed(now);
        }
        let record = if own {
            self.slow_renewals += u64::from(self.leads());
            self.renewal(now)
        } else {
            Record { transitions: self.observed.transitions.saturating_add(1), ..self.record(now) }
        };
        self.asked_at = now.elapsed;
        self.write(ElectorState::Updating, record, ElectionStep::Update)
    }

    fn written(&mut self, now: Now) -> ElectionStep {
        self.observed = self.writing.clone();
        self.observed_text = None;
        self.observed_at = now.elapsed;
        self.leading = Some(Leading { renewed: self.asked_at, trying: None });
        if self.is_too_late(now) { self.lose() } else { self.wait(self.terms.retry) }
    }

    fn failed(&mut self, now: Now) -> ElectionStep {
        match self.gives_up_at() {
            None => self.wait(self.terms.retry.mul_f64(1.0 + JITTER * now.chance)),
            Some(end) if now.elapsed >= end => self.lose(),
            Some(end) => self.wait(self.terms.retry.min(end - now.elapsed)),
        }
    }

    fn wait(&mut self, time: Duration) -> ElectionStep {
        self.at = ElectorState::Waiting;
        ElectionStep::Wait(time)
    }

    fn lose(&mut self) -> ElectionStep {
        self.leading = None;
        self.at = ElectorState::Over;
        ElectionStep::Lost
    }

    fn is_too_late(&self, now: Now) -> bool {
        self.gives_up_at().is_some_and(|end| now.elapsed >= end)
    }

    /// Whether the lease in the last record that was read has not expired.
    fn is_held(&self, now: Now) -> bool {
        let lease = Duration::from_secs(u64::try_from(self.observed.lease_seconds).unwrap_or(0));
        now.elapsed < self.observed_at.saturating_add(lease)
    }
}
