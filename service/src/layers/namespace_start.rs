//! How far back a user may look into a namespace.
//!
//! A namespace that is deleted and created again belongs to another owner, who must not see what the earlier namespace
//! contained. So reads of a namespace's past end where the current namespace was created, unless the user may read the
//! same in all namespaces.

use crate::Service;
use crate::lookup::Found;
use holdfast_core::Refusal;
use holdfast_core::authz::{Attributes, Authorizer, ResourceTarget};
use holdfast_core::event::Offset;
use holdfast_core::refusal::Expired;
use holdfast_engine::planted::{Bug, planted};
use holdfast_engine::{Fault, Length, LogRead, Reader};
use holdfast_value::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// How many namespaces' first versions are kept.
const KEPT_MAX: usize = 4096;

/// The version at which each namespace was created, by its uid.
#[derive(Default)]
pub(crate) struct NamespaceStarts {
    kept: Mutex<HashMap<String, Offset>>,
}

impl Found {
    /// Refuses to show this version, or events since, if it is older than the current namespace.
    pub(crate) async fn visible(&self, service: &Arc<Service>, version: Offset) -> Result<(), Refusal> {
        let engine = service.engine().of(self.request.target.kind);
        let state = service.engine().snapshot();
        if version >= state.offset_of(self.request.target.kind) || planted(Bug::PastOfOthers) {
            return Ok(());
        }
        let request = &self.request;
        let itself = self.kind.storage == state.kind(state.registry.namespaces()).storage;
        let namespace = match request.namespace() {
            Some(namespace) => namespace,
            None if itself && !request.name().is_empty() => request.name(),
            None => return Ok(()),
        };
        let everywhere = ResourceTarget {
            group: &self.kind.versions[request.target.version].group,
            version: &self.kind.versions[request.target.version].version,
            resource: &self.kind.resource,
            subresource: request.target.subresource.as_deref().unwrap_or(""),
            ..ResourceTarget::default()
        };
        let everywhere = Attributes::resource(request.verb.as_str(), everywhere);
        let judge = |authorizer: &Authorizer<'_>| authorizer.authorize(&request.user, &everywhere).is_allowed();
        if service.judged(&state, judge).await {
            return Ok(());
        }
        let storage = state.kind(state.registry.namespaces()).storage.clone();
        let document = state.get(state.registry.namespaces(), namespace).map(|entry| entry.document());
        let uid = document.as_ref().and_then(|document| document["metadata"]["uid"].as_str()).map(str::to_owned);
        // A namespace that does not exist now has no owner.
        let Some(uid) = uid else { return Err(earlier(version, namespace, state.offset_of(self.request.target.kind))) };
        let reader = Reader::of(&request.user);
        let mut start = self.starts.find(service, &reader, storage, namespace, uid).await?;
        if start > Offset::ZERO && state.is_apart(self.request.target.kind) {
            start = engine.same_time(service.engine(), start, &reader).await?;
        }
        if version < start { Err(earlier(version, namespace, start)) } else { Ok(()) }
    }
}

impl NamespaceStarts {
    /// The first event of the namespace with this uid; zero if there was no other of its name before.
    async fn find(
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

/// The events with this uid are the last ones of the key, so a binary search finds the first of them.
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

fn earlier(version: Offset, namespace: &str, start: Offset) -> Refusal {
    Refusal::Expired(Expired::BeforeNamespace { asked: version, namespace: namespace.to_owned(), start })
}
