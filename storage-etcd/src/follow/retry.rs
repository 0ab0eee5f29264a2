//! Retries values that could not be read: at the start, after a change of the encryption keys, and while a KMS plug-in
//! does not answer.

use super::{Follower, PAGE};
use crate::client::{self, Operation, Range};
use crate::shared::{Seen, fault, now_ms};
use crate::transaction::plain;
use holdfast_core::event::Offset;
use holdfast_encryption::Keyring;
use holdfast_engine::Fault;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The interval at which the server tries again to read values that could not be read.
const PERIOD: Duration = Duration::from_secs(1);

/// The state of the retries of values that could not be read.
pub(super) struct Retry {
    at: Instant,
    /// The encryption keys with which all unreadable values were tried.
    keyring: Arc<Keyring>,
    /// The resource and the key of the last object that was tried.
    after: (String, String),
}

impl Retry {
    pub(super) fn new(keyring: Arc<Keyring>) -> Retry {
        Retry { at: Instant::now(), keyring, after: Default::default() }
    }
}

impl Follower {
    /// Finds the unreadable values that were written before the last event of the local log.
    pub(super) fn find_unread(&mut self) -> Result<(), Fault> {
        let shared = self.shared.clone();
        let mut known: HashMap<(String, String), u64> = HashMap::new();
        shared.local.current(&mut |record| {
            known.insert((record.resource, record.key), record.offset);
            Ok(())
        })?;
        let through = shared.through();
        let mut keys = shared.places.objects();
        loop {
            let page = shared.etcd.range(&Range::of(keys.clone()).limit(PAGE)).map_err(fault)?;
            shared.check(&page.header)?;
            // Values that were written after the last event of the local log arrive by the watch.
            for found in page.found.iter().filter(|found| found.mod_revision <= through) {
                let Some(placed) = shared.placed(&found.key) else { continue };
                let object = (placed.resource.clone(), placed.key.clone());
                if known.get(&object) != Some(&found.mod_revision)
                    && shared.put(found, 0, None, Seen::Later(now_ms())).is_some()
                {
                    self.touch(found);
                }
            }
            shared.unread.check()?;
            let Some(last) = page.found.last().filter(|_| page.more) else { break };
            keys.from = [&last.key[..], &[0]].concat().into();
        }
        self.source.has_unread = !shared.unread.is_empty();
        shared.local.keep_source(&self.source)
    }

    /// Retries unreadable values. After a change of the keys all values are retried once. In each round the values
    /// whose KMS plug-in did not answer are retried.
    pub(super) fn retry_unread(&mut self) {
        let shared = self.shared.clone();
        if shared.unread.is_empty() || self.retry.at > Instant::now() {
            return;
        }
        self.retry.at = Instant::now() + PERIOD;
        let keyring = shared.keys.keyring();
        let are_new = !Arc::ptr_eq(&keyring, &self.retry.keyring);
        let some = shared.unread.to_retry(are_new, &self.retry.after, PAGE as usize);
        let last = some.last().filter(|_| some.len() == PAGE as usize).map(|again| again.object.clone());
        // In each round, a plug-in that does not answer is called only once.
        let mut is_silent = false;
        for again in some {
            if is_silent && again.may_pass {
                continue;
            }
            // If etcd does not answer, the next round begins with this object.
            let Ok(answer) = shared.etcd.range(&Range::of(client::KeyRange::one(again.place))) else { return };
            let found = answer.found.first().filter(|found| Offset(found.mod_revision) == again.version);
            let Some((found, placed)) = found.and_then(|found| Some((found, shared.placed(&found.key)?))) else {
                // The watch will deliver the newer event of this object.
                continue;
            };
            match shared.read(&placed, found) {
                Ok(_) if !placed.is_stray => self.touch(found),
                Ok(_) => shared.unread.forget(&placed.resource, &placed.key),
                Err((_, may_pass)) => {
                    is_silent |= may_pass;
                    // The reason why the object is unreadable may have changed, so the object is recorded again.
                    shared.put(found, 0, None, Seen::Later(now_ms()));
                }
            }
        }
        if last.is_none() {
            self.retry.keyring = keyring;
        }
        self.retry.after = last.unwrap_or_default();
    }

    /// Writes a value again unchanged, because the value can be read only now. All watches have skipped the value, so
    /// the value needs a version that the watches have not passed yet.
    fn touch(&self, found: &client::KeyValue) {
        let client::KeyValue { key, value, lease, mod_revision, .. } = found.clone();
        let txn = plain(mod_revision, Operation::Put { key, value, lease });
        for answer in self.shared.etcd.transact(vec![txn]) {
            if let Err(fault) = answer {
                tracing::warn!(%fault, "a value can be read again, but rewriting it for clients failed: they do not see it yet");
            }
        }
    }
}
