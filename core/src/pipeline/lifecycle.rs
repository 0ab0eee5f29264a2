//! Admission that keeps namespaces whole: content needs a living namespace, and some namespaces are for ever.

use super::{Context, Expectation};
use crate::authz::chain::Authorizer;
use crate::authz::escalation::Grant;
use crate::object::meta::{self, Document, metadata, text};
use crate::refusal::{Cause, CauseReason, Refusal, Subject};
use crate::state::namespace_phase;
use serde_json::Value;

/// Namespaces that the cluster cannot do without.
const IMMORTAL: &[&str] = &["default", "kube-system", "kube-public"];

/// New content needs a namespace that is there and not going away.
pub(super) fn admit_create(context: &Context, document: &Document) -> Result<(), Refusal> {
    let Some(namespace) = context.request.namespace() else { return Ok(()) };
    match namespace_phase(context.state, namespace) {
        None => Err(Refusal::NotFound(Subject::new("", "namespaces", namespace))),
        Some(false) => Ok(()),
        Some(true) => {
            let message =
                format!("unable to create new content in namespace {namespace} because it is being terminated");
            Err(Refusal::Forbidden {
                subject: context.subject(meta::name(document)),
                message,
                causes: vec![Cause {
                    reason: CauseReason::NamespaceTerminating,
                    field: "metadata.namespace".into(),
                    message: format!("namespace {namespace} is being terminated"),
                }],
            })
        }
    }
}

/// The namespace must still be as it was seen when the object is written, or content could outlive it.
pub(super) fn expect_namespace(context: &Context) -> Option<Expectation> {
    let namespace = context.request.namespace()?;
    let kind = context.state.registry.namespaces();
    Some(Expectation { kind, key: namespace.into(), version: context.state.version_of(kind, namespace) })
}

/// Some writes need more than the verb on the object: a role is granted only by those who hold its rules.
pub(super) fn admit_roles(context: &Context, new: &Document, old: Option<&Document>) -> Result<(), Refusal> {
    let Some(authorize) = context.kind.hooks.authorize else { return Ok(()) };
    let request = context.request;
    authorize(&Grant {
        authorizer: Authorizer { modes: &context.settings.modes, rbac: &context.state.rbac },
        user: &request.user,
        namespace: request.namespace().unwrap_or(""),
        name: request.name(),
        subresource: request.target.subresource.as_deref().unwrap_or(""),
        subject: context.subject(text(metadata(new), "name")),
        new: &Value::Object(new.clone()),
        old: old.map(|old| Value::Object(old.clone())).as_ref(),
    })
}

/// The namespaces that hold the cluster itself stay.
pub(super) fn admit_delete(context: &Context) -> Result<(), Refusal> {
    let name = context.request.name();
    if context.request.target.kind == context.state.registry.namespaces() && IMMORTAL.contains(&name) {
        return Err(Refusal::Forbidden {
            subject: context.subject(name),
            message: "this namespace may not be deleted".into(),
            causes: Vec::new(),
        });
    }
    Ok(())
}
