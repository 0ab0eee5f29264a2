//! Audit: names every request, and says how each ended. Today that is a counter and a line in the log.

use super::{Layer, Next, Outcome, Passage};
use crate::metrics::{Metrics, Record};
use crate::{Asked, ResourcePath};
use futures_util::future::BoxFuture;
use holdfast_core::kinds::Kind;
use holdfast_core::state::State;
use std::sync::Arc;

pub struct Audit {
    metrics: Arc<Metrics>,
}

impl Audit {
    pub fn new(metrics: Arc<Metrics>) -> Audit {
        Audit { metrics }
    }
}

impl Layer for Audit {
    fn call<'a>(&'a self, passage: &'a mut Passage, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let service = next.service();
            passage.id.get_or_insert_with(|| service.new_id());
            passage.record = self.metrics.begin();
            describe(&mut passage.record, &service.engine().snapshot(), &passage.asked);
            let outcome = next.call(passage).await;
            passage.record.outcome(outcome.as_ref());
            outcome
        })
    }
}

/// Fills in what is asked for, as far as it is something that is served.
pub(crate) fn describe(record: &mut Record, state: &State, asked: &Asked) {
    let labels = &mut record.labels;
    let verb = match asked {
        Asked::Named(named) => named.verb.as_str(),
        Asked::Found(request) => request.verb.as_str(),
        Asked::Elsewhere { verb, .. } | Asked::Path { verb, .. } | Asked::Everything { verb, .. } => verb,
    };
    verb.clone_into(&mut labels.verb);
    let mut served = |kind: &Kind, version: usize, subresource: &str| {
        labels.group.clone_from(&kind.versions[version].group);
        labels.version.clone_from(&kind.versions[version].version);
        labels.resource.clone_from(&kind.resource);
        if !subresource.is_empty() && kind.subresource(version, subresource).is_some() {
            subresource.clone_into(&mut labels.subresource);
        }
    };
    match asked {
        Asked::Named(named) => {
            let ResourcePath { group, version, resource, subresource, .. } = &named.path;
            if let Some((id, version)) = state.registry.find(group, version, resource) {
                served(state.kind(id), version, subresource);
            }
        }
        Asked::Found(request) => {
            let target = &request.target;
            if state.registry.serves(target.kind) {
                served(state.kind(target.kind), target.version, target.subresource.as_deref().unwrap_or(""));
            }
        }
        // Another server's group and version stand in an APIService; what it makes of the rest nobody knows.
        Asked::Elsewhere { path, .. } => {
            labels.group.clone_from(&path.group);
            labels.version.clone_from(&path.version);
        }
        Asked::Path { .. } | Asked::Everything { .. } => {}
    }
}
