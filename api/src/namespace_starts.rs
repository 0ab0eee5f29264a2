//! The version at which each namespace was created. Reads of a namespace's past go back no further than this version.

use crate::Service;
use holdfast_core::Refusal;
use holdfast_core::event::Offset;
use holdfast_engine::{Fault, Length, LogRead, Reader};
use holdfast_value::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// The maximum number of namespaces for which the version of their creation is cached.
const KEPT_MAX: usize = 4096;

/// The version at which each namespace was created, by the namespace's UID.
#[derive(Default)]
pub(crate) struct NamespaceStarts {
    kept: Mutex<HashMap<String, Offset>>,
}

impl NamespaceStarts {
    /// The version of the first event of the namespace with this UID; zero if no other namespace had its name before.
    pub(crate) async fn find(
        &self,
        service: &Arc<Service>,
        reader: &Reader,
        storage: String,
        namespace: &str,
        uid: String,
    ) -> Result<Offset, Refusal> {
        if let Some(start) = self.lock().get(&uid) {
            return Ok(*start);
        }
        let (log, key, wanted) = (service.engine().log().clone(), namespace.to_owned(), uid.clone());
        let first = move || first_with_uid(log.as_ref(), &storage, &key, &wanted);
        let found = service.engine().reads().run_for(reader, Length::Long, first).await;
        let start = found.map_err(Refusal::fault)?;
        let mut kept = self.lock();
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(uid, start);
        Ok(start)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Offset>> {
        self.kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The events with this UID are the last events of the key, so a binary search finds the first event with this UID.
fn first_with_uid(log: &dyn LogRead, storage: &str, key: &str, uid: &str) -> Result<Offset, Fault> {
    let versions = log.versions(storage, key)?;
    let (mut low, mut high) = (0, versions.len());
    while low < high {
        let middle = low + (high - low) / 2;
        let record = versions.get(middle).map(|version| log.read(*version)).transpose()?.flatten();
        let document = record.and_then(|record| serde_json::from_slice::<Value>(&record.object).ok());
        if document.is_some_and(|document| document["metadata"]["uid"] == uid) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok(if low == 0 { Offset::ZERO } else { versions.get(low).copied().unwrap_or(Offset::ZERO) })
}
