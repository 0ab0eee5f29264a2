//! Tests of candidates with a lock in memory. The candidates' clocks differ, and answers are late or lost.

use super::elector::{ElectionStep, Elector, Now, Record, StepResult, Terms};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// The lock in memory: its record, and the number of writes so far.
#[derive(Default)]
struct Store(Option<(Record, u64)>);

/// A candidate with a clock that is wrong by `skew`.
struct Candidate {
    elector: Elector,
    skew: i64,
    /// The number of writes at which the candidate last read or wrote the lock.
    seen: u64,
    next: ElectionStep,
    /// The time at which the candidate takes its next step. `answer` is the result of the last step, which the
    /// candidate gets then.
    due: Duration,
    answer: StepResult,
}

impl Candidate {
    fn new(name: &str, terms: Terms, skew: i64) -> Candidate {
        let elector = Elector::new(name, terms);
        let (next, due) = (ElectionStep::Wait(Duration::ZERO), Duration::ZERO);
        Candidate { elector, skew, seen: 0, next, due, answer: StepResult::Waited }
    }

    fn now(&self, elapsed: Duration, chance: f64) -> Now {
        let wall =
            Timestamp::UNIX_EPOCH + SignedDuration::try_from(elapsed).unwrap() + SignedDuration::from_secs(self.skew);
        Now { elapsed, wall, chance }
    }

    fn leads(&self, elapsed: Duration) -> bool {
        self.elector.gives_up_at().is_some_and(|end| elapsed < end)
    }

    /// Processes the answer that is due, and carries out the next step. `luck` decides whether the request or its
    /// answer is lost.
    fn turn(&mut self, elapsed: Duration, store: &mut Store, luck: &Luck) {
        let answer = std::mem::replace(&mut self.answer, StepResult::Failed);
        self.next = self.elector.step(self.now(elapsed, luck.chance), answer);
        let mut delay = luck.delay;
        if let Some(end) = self.elector.gives_up_at() {
            delay = delay.min(end.saturating_sub(elapsed));
        }
        self.due = elapsed + delay;
        self.answer = match self.next.clone() {
            ElectionStep::Wait(time) => {
                self.due = elapsed + time;
                StepResult::Waited
            }
            ElectionStep::Lost => StepResult::Waited,
            _ if luck.lost_before => StepResult::Failed,
            ElectionStep::Read => match &store.0 {
                None => StepResult::Missing,
                Some((record, version)) => {
                    self.seen = *version;
                    StepResult::Found(record.clone(), version.to_string())
                }
            },
            ElectionStep::Create(record) if store.0.is_none() => self.write(record, store),
            ElectionStep::Update(record) if store.0.as_ref().is_some_and(|(_, version)| *version == self.seen) => {
                self.write(record, store)
            }
            ElectionStep::Create(_) | ElectionStep::Update(_) => StepResult::Failed,
        };
        if luck.lost_behind || luck.delay > delay && !matches!(self.next, ElectionStep::Wait(_)) {
            // In this case the lock was written, but the answer to the candidate is lost.
            if !matches!(self.answer, StepResult::Waited) {
                self.answer = StepResult::Failed;
            }
        }
    }

    fn write(&mut self, record: Record, store: &mut Store) -> StepResult {
        let version = store.0.as_ref().map_or(0, |(_, version)| *version) + 1;
        self.seen = version;
        store.0 = Some((record, version));
        StepResult::Written
    }
}

#[derive(Debug, Clone)]
struct Luck {
    lost_before: bool,
    lost_behind: bool,
    delay: Duration,
    chance: f64,
}

fn luck() -> impl Strategy<Value = Luck> {
    (0u8..10, 0u8..10, 0u64..6000, 0f64..1f64).prop_map(|(before, behind, delay, chance)| Luck {
        lost_before: before < 2,
        lost_behind: behind < 2,
        delay: Duration::from_millis(if before > 7 { delay } else { delay / 100 }),
        chance,
    })
}

proptest! {
    /// Two candidates never lead at the same time, even if requests are lost and clocks are wrong. The lock contains
    /// the leader's name, or contained the name when the leader last read the lock.
    #[test]
    fn two_never_lead(
        lucks in proptest::collection::vec(luck(), 400),
        skews in proptest::array::uniform3(-100_000i64..100_000),
        lease in 2u32..20, renew in 1u32..20, retry in 1u32..5,
    ) {
        let terms = Terms { lease: SECOND * lease, renew: SECOND * renew.min(lease), retry: SECOND * retry };
        let mut store = Store::default();
        let mut candidates: Vec<Candidate> =
            skews.iter().enumerate().map(|(at, skew)| Candidate::new(&format!("c{at}"), terms, *skew)).collect();
        for luck in &lucks {
            let at = (0..3).min_by_key(|at| candidates[*at].due).unwrap();
            let elapsed = candidates[at].due;
            if candidates[at].next == ElectionStep::Lost {
                // A process that has lost the lead ends, and another process starts in its place.
                let skew = candidates[at].skew;
                candidates[at] = Candidate { due: elapsed + SECOND, ..Candidate::new(&format!("c{at}+"), terms, skew) };
                continue;
            }
            candidates[at].turn(elapsed, &mut store, luck);
            let leading: Vec<&str> =
                candidates.iter().filter(|one| one.leads(elapsed)).map(|one| one.elector.identity()).collect();
            prop_assert!(leading.len() <= 1, "{leading:?} at {elapsed:?}");
        }
    }
}

fn terms() -> Terms {
    Terms { lease: 15 * SECOND, renew: 10 * SECOND, retry: 2 * SECOND }
}

fn calm() -> Luck {
    Luck { lost_before: false, lost_behind: false, delay: Duration::ZERO, chance: 0.0 }
}

/// Runs a candidate until it waits.
fn settle(candidate: &mut Candidate, elapsed: Duration, store: &mut Store) -> ElectionStep {
    loop {
        candidate.turn(elapsed, store, &calm());
        if matches!(candidate.next, ElectionStep::Wait(_) | ElectionStep::Lost) {
            return candidate.next.clone();
        }
    }
}

#[test]
fn the_first_one_leads_and_the_next_waits_for_its_lease() {
    let mut store = Store::default();
    let (mut first, mut second) = (Candidate::new("a", terms(), 0), Candidate::new("b", terms(), 999));
    assert_eq!(settle(&mut first, Duration::ZERO, &mut store), ElectionStep::Wait(2 * SECOND));
    let record = store.0.clone().unwrap().0;
    assert_eq!((record.holder.as_str(), record.lease_seconds, record.transitions), ("a", 15, 0));
    assert_eq!(settle(&mut second, SECOND, &mut store), ElectionStep::Wait(2 * SECOND));
    assert_eq!(second.elector.leader(), "a");
    // The second candidate sees the renewal of the first at 3 s, and counts the lease's duration from the moment at
    // which it saw it.
    settle(&mut first, 2 * SECOND, &mut store);
    settle(&mut second, 3 * SECOND, &mut store);
    settle(&mut second, 17 * SECOND, &mut store);
    assert!(!second.elector.leads(), "14 seconds after it was seen");
    settle(&mut second, 18 * SECOND, &mut store);
    assert!(second.elector.leads());
    let record = store.0.clone().unwrap().0;
    assert_eq!((record.holder.as_str(), record.transitions), ("b", 1));
    assert_eq!(settle(&mut first, 18 * SECOND, &mut store), ElectionStep::Lost);
}

#[test]
fn a_leader_without_answers_gives_up_after_its_deadline() {
    let mut store = Store::default();
    let mut leader = Candidate::new("a", terms(), 0);
    settle(&mut leader, Duration::ZERO, &mut store);
    let deaf = Luck { lost_before: true, ..calm() };
    let mut elapsed = 2 * SECOND;
    while leader.next != ElectionStep::Lost {
        leader.turn(elapsed, &mut store, &deaf);
        if let ElectionStep::Wait(time) = leader.next {
            elapsed += time;
        }
    }
    assert_eq!(elapsed, 12 * SECOND, "ten seconds after it began to try");
    assert!(!leader.elector.leads());
}

#[test]
fn who_steps_down_is_followed_at_once() {
    let mut store = Store::default();
    let (mut first, mut second) = (Candidate::new("a", terms(), 0), Candidate::new("b", terms(), 0));
    settle(&mut first, Duration::ZERO, &mut store);
    settle(&mut second, SECOND, &mut store);
    let released = first.elector.release(first.now(SECOND, 0.0)).expect("it led");
    assert_eq!((released.holder.as_str(), released.lease_seconds), ("", 1));
    first.write(released, &mut store);
    settle(&mut second, 2 * SECOND, &mut store);
    assert!(second.elector.leads() && !first.elector.leads());
    assert_eq!(store.0.unwrap().0.transitions, 1);
    assert_eq!(second.elector.release(second.now(3 * SECOND, 0.0)).map(|record| record.transitions), Some(1));
    assert_eq!(second.elector.release(second.now(3 * SECOND, 0.0)), None);
}

#[test]
fn a_leader_that_is_written_over_gives_up() {
    let mut store = Store::default();
    let mut leader = Candidate::new("a", terms(), 0);
    settle(&mut leader, Duration::ZERO, &mut store);
    let (record, version) = store.0.clone().unwrap();
    store.0 = Some((Record { holder: "kubectl".into(), ..record }, version + 1));
    assert_eq!(settle(&mut leader, 2 * SECOND, &mut store), ElectionStep::Lost);
}
