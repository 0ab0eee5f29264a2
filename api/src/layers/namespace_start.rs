//! Limits how far into a namespace's past a user may look.
//!
//! A namespace that is deleted and created again may belong to another owner, who must not see the content of the
//! earlier namespace. So reads of a namespace's past reach back only to the creation of the current namespace, unless
//! the user may read the same objects in all namespaces.

use crate::Service;
use crate::lookup::Found;
use holdfast_core::Refusal;
use holdfast_core::authz::{Attributes, Authorizer, ResourceTarget};
use holdfast_core::event::Offset;
use holdfast_core::refusal::Expired;
use holdfast_engine::Reader;
use holdfast_engine::planted::{Bug, planted};
use std::sync::Arc;

impl Found {
    /// Refuses to show this version, or the events after it, if the version is older than the current namespace.
    pub(crate) async fn visible(&self, service: &Arc<Service>, version: Offset) -> Result<(), Refusal> {
        let engine = service.engine().of(self.request.target.kind);
        let state = service.engine().snapshot();
        if version >= state.offset_of(self.request.target.kind) || planted(Bug::PastOfOthers) {
            return Ok(());
        }
        let request = &self.request;
        let itself = self.kind.storage.path == state.kind(state.registry.namespaces()).storage.path;
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
        let storage = state.kind(state.registry.namespaces()).storage.path.clone();
        let document = state.get(state.registry.namespaces(), namespace).map(|entry| entry.document());
        let uid = document.as_ref().and_then(|document| document["metadata"]["uid"].as_str()).map(str::to_owned);
        // A namespace that does not exist now has no owner, so its past is not shown.
        let Some(uid) = uid else { return Err(earlier(version, namespace, state.offset_of(self.request.target.kind))) };
        let reader = Reader::of(&request.user);
        let mut start = self.starts.find(service, &reader, storage, namespace, uid).await?;
        if start > Offset::ZERO && state.is_apart(self.request.target.kind) {
            start = engine.same_time(service.engine(), start, &reader).await?;
        }
        if version < start { Err(earlier(version, namespace, start)) } else { Ok(()) }
    }
}

fn earlier(version: Offset, namespace: &str, start: Offset) -> Refusal {
    Refusal::Expired(Expired::BeforeNamespace { asked: version, namespace: namespace.to_owned(), start })
}
