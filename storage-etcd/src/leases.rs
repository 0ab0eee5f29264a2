//! Leases of objects that expire, such as Events. Many objects share one lease, which saves etcd work.

use crate::client::{Etcd, Fault};
use std::time::Duration;

/// The maximum number of objects on one lease: they expire together, at one revision.
pub const OBJECTS_MAX: u32 = 1000;
/// A lease lasts longer than the requested time by at most 1/`REUSE_PART` of that time.
const REUSE_PART: u32 = 20;

/// Grants leases, and attaches the new objects of one kind to the current lease.
#[derive(Debug)]
pub struct Leases {
    /// How long one lease is used for new objects: the option `--lease-reuse-duration-seconds`.
    reuse: Duration,
    current: Option<Current>,
}

#[derive(Debug)]
struct Current {
    id: u64,
    ends: Duration,
    objects: u32,
}

impl Leases {
    pub fn new(reuse: Duration) -> Leases {
        Leases { reuse, current: None }
    }

    /// The lease for another object that must exist for `ttl`. `now` is from any monotonic clock.
    pub fn lease(&mut self, etcd: &dyn Etcd, ttl: Duration, now: Duration) -> Result<u64, Fault> {
        let longer = self.reuse.min(ttl / REUSE_PART);
        if let Some(current) = &mut self.current {
            let is_long_enough = now + ttl < current.ends;
            // This lease was granted for objects with a longer life, and would keep this object too long.
            let is_too_long = now + ttl + longer < current.ends;
            if is_long_enough && !is_too_long && current.objects < OBJECTS_MAX {
                current.objects += 1;
                return Ok(current.id);
            }
        }
        let seconds = (ttl + longer).as_secs().max(1);
        let granted = etcd.grant(seconds)?;
        self.current = Some(Current { id: granted.id, ends: now + Duration::from_secs(seconds), objects: 1 });
        Ok(granted.id)
    }

    /// Drops a lease that etcd does not have: it was revoked by hand, or the store was replaced. The next object gets a
    /// new lease.
    pub fn forget(&mut self, id: u64) {
        self.current.take_if(|current| current.id == id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Lease, Operation, Txn};
    use crate::model::{Fate, Model};

    const HOUR: Duration = Duration::from_secs(3600);
    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_lease_is_taken_again_for_a_minute_and_a_thousand_objects() {
        let client = Model::default().plain_client(1);
        let mut leases = Leases::new(MINUTE);
        let mut at = |seconds| leases.lease(&client, HOUR, Duration::from_secs(seconds)).expect("a lease");
        let first = at(0);
        assert_eq!([at(1), at(59)], [first, first]);
        let second = at(60);
        assert_ne!(second, first, "an object of that time would live for less than an hour");
        let more: Vec<u64> = (1..OBJECTS_MAX).map(|_| at(61)).collect();
        assert!(more.iter().all(|lease| *lease == second));
        assert_ne!(at(61), second, "a thousand hang on it");
    }

    #[test]
    fn a_lease_is_longer_by_a_twentieth_at_most() {
        let model = Model::default();
        let client = model.plain_client(1);
        for (ttl, reuse, seconds) in [(3600, 60, 3660), (100, 60, 105), (15, 60, 15), (3600, 0, 3600), (0, 60, 1)] {
            let mut leases = Leases::new(Duration::from_secs(reuse));
            let id = leases.lease(&client, Duration::from_secs(ttl), Duration::ZERO).expect("a lease");
            let key = bytes::Bytes::from(format!("/{ttl}-{reuse}"));
            let put = Operation::Put { key: key.clone(), value: key.clone(), lease: id };
            client.transact(vec![Txn { operations: vec![put], ..Txn::default() }]).remove(0).expect("a write");
            let is_there = || model.events().iter().filter(|event| event.now.key == key).count() == 1;
            model.advance(seconds - 1);
            assert!(is_there(), "{ttl} {reuse}");
            model.advance(1);
            assert!(!is_there(), "{ttl} {reuse}");
        }
    }

    #[test]
    fn what_is_to_live_shorter_gets_a_lease_of_its_own() {
        let client = Model::default().plain_client(1);
        let mut leases = Leases::new(MINUTE);
        let long = leases.lease(&client, HOUR, Duration::ZERO).expect("a lease");
        let short = leases.lease(&client, 2 * MINUTE, Duration::ZERO).expect("a lease");
        assert_ne!(long, short);
    }

    #[test]
    fn a_lease_that_is_gone_or_was_not_granted_is_asked_for_anew() {
        let model = Model::default();
        let client = model.plain_client(1);
        let mut leases = Leases::new(MINUTE);
        let refused = leases.lease(&model.client(1, Box::new(|_| Fate::Unreachable)), HOUR, Duration::ZERO);
        assert!(refused.is_err());
        let first = leases.lease(&client, HOUR, Duration::ZERO).expect("a lease");
        leases.forget(first + 1);
        assert_eq!(leases.lease(&client, HOUR, Duration::ZERO), Ok(first));
        leases.forget(first);
        let Lease { id: newest, .. } = client.grant(1).expect("a lease");
        assert!(leases.lease(&client, HOUR, Duration::ZERO).expect("a lease") > newest);
    }
}
