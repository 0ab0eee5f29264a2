//! Limits how often health checks send a request to etcd, regardless of the number of callers.

use crate::client::{self, Etcd, Fault, Range, RangeContent};
use holdfast_core::etcd::Keys;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A health check. It sends at most two requests to etcd per timeout; further callers receive the last answer.
#[derive(Debug)]
pub struct Probe {
    timeout: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The time at which the last request was sent to etcd.
    asked: Option<Duration>,
    /// The time at which the request was sent whose outcome is in `last`.
    answered: Option<Duration>,
    last: Result<(), String>,
}

/// What the caller of a health check does next.
#[derive(Debug, PartialEq, Eq)]
pub enum ProbeTurn {
    /// Send a request to etcd, and pass the outcome with this time to [`Probe::answer`].
    Ask(Duration),
    /// The last outcome. A request was sent to etcd recently, or is in progress.
    Known(Result<(), String>),
}

impl Probe {
    /// `timeout` is `--etcd-healthcheck-timeout` or `--etcd-readycheck-timeout`.
    pub fn new(timeout: Duration) -> Probe {
        let last = Err("etcd client connection not yet established".to_owned());
        Probe { timeout, state: Mutex::new(State { asked: None, answered: None, last }) }
    }

    /// The time limit of one request of this check to etcd.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Decides what the caller does next. `now` is the time of any monotonic clock.
    pub fn turn(&self, now: Duration) -> ProbeTurn {
        let mut state = self.lock();
        if state.asked.is_some_and(|asked| now < asked + self.timeout / 2) {
            return ProbeTurn::Known(state.last.clone());
        }
        state.asked = Some(now);
        ProbeTurn::Ask(now)
    }

    /// Records the outcome of a request sent at `asked`, unless the outcome of a later request is known.
    pub fn answer(&self, asked: Duration, outcome: Result<(), String>) {
        let mut state = self.lock();
        if state.answered.is_none_or(|answered| answered <= asked) {
            state.answered = Some(asked);
            state.last = outcome;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a key that is never written, as kube-apiserver does: a linearizable read needs a leader.
pub fn ask(etcd: &dyn Etcd, keys: &Keys) -> Result<(), Fault> {
    let key = format!("{}health", keys.root());
    etcd.range(&Range::of(client::KeyRange::one(key)).limit(1).only(RangeContent::WithoutValues)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Fate, Model};

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn failed(why: &str) -> Result<(), String> {
        Err(why.to_owned())
    }

    #[test]
    fn etcd_is_asked_twice_in_each_time_limit() {
        let probe = Probe::new(ms(2000));
        assert_eq!(probe.turn(ms(0)), ProbeTurn::Ask(ms(0)));
        let unknown = ProbeTurn::Known(failed("etcd client connection not yet established"));
        assert_eq!(probe.turn(ms(1)), unknown, "nobody has answered yet");
        probe.answer(ms(0), Ok(()));
        assert_eq!(probe.turn(ms(999)), ProbeTurn::Known(Ok(())));
        assert_eq!(probe.turn(ms(1000)), ProbeTurn::Ask(ms(1000)));
        probe.answer(ms(1000), failed("no leader"));
        assert_eq!(probe.turn(ms(1001)), ProbeTurn::Known(failed("no leader")));
    }

    #[test]
    fn a_late_answer_says_nothing_of_a_later_question() {
        let probe = Probe::new(ms(2000));
        probe.turn(ms(0));
        probe.turn(ms(1500));
        probe.answer(ms(1500), Ok(()));
        probe.answer(ms(0), failed("no answer in 2s"));
        assert_eq!(probe.turn(ms(1600)), ProbeTurn::Known(Ok(())));
    }

    #[test]
    fn a_member_without_a_leader_is_not_healthy() {
        let (model, prefix) = (Model::default(), Keys::new("/registry"));
        assert_eq!(ask(&model.plain_client(1), &prefix), Ok(()));
        assert!(ask(&model.client(1, Box::new(|_| Fate::Unreachable)), &prefix).is_err());
    }
}
