//! Admission that keeps namespaces whole: content needs a living namespace, and some namespaces are for ever.

use super::candidate::Candidate;
use super::{Context, Expectation};
use crate::kinds::known::NAMESPACE;
use crate::object::meta;
use crate::refusal::{Forbidden, Refusal, Subject};
use crate::state::namespace_phase;

/// New content needs a namespace that is there and not going away.
pub(super) fn admit(context: &Context, object: &Candidate) -> Result<(), Refusal> {
    if object.old.is_some() {
        return Ok(());
    }
    let Some(namespace) = context.request.namespace() else { return Ok(()) };
    match namespace_phase(context.state, namespace) {
        None => Err(Refusal::NotFound(Subject::new(NAMESPACE.group, NAMESPACE.resource, namespace))),
        Some(false) => Ok(()),
        Some(true) => Err(Refusal::Forbidden {
            subject: context.subject(meta::name(object.fields())),
            why: Forbidden::NamespaceTerminating { namespace: namespace.into() },
        }),
    }
}

/// The namespace must still be as it was seen when the object is written, or content could outlive it.
pub(super) fn expect_namespace(context: &Context) -> Option<Expectation> {
    let namespace = context.request.namespace()?;
    let kind = context.state.registry.namespaces();
    Some(Expectation { kind, key: namespace.into(), version: context.state.version_of(kind, namespace) })
}

/// What the cluster cannot do without stays.
pub(super) fn admit_delete(context: &Context) -> Result<(), Refusal> {
    let name = context.request.name();
    if context.kind.immortal.contains(&name) {
        return Err(Refusal::Forbidden {
            subject: context.subject(name),
            why: Forbidden::Undeletable { kind: context.kind.singular.clone() },
        });
    }
    Ok(())
}
