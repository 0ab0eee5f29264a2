//! Admission that keeps namespaces whole: content needs a living namespace, and some namespaces are for ever.

use super::{Context, Expectation};
use crate::authz::chain::Authorizer;
use crate::authz::escalation;
use crate::kinds::known;
use crate::object::meta::{self, Document, metadata, text};
use crate::refusal::{Cause, CauseReason, Refusal, Subject};
use crate::state::namespace_phase;
use serde_json::Value;

/// New content needs a namespace that is there and not going away.
pub(super) fn admit_create(context: &Context, document: &Document) -> Result<(), Refusal> {
    let Some(namespace) = context.request.namespace() else { return Ok(()) };
    match namespace_phase(context.state, namespace) {
        None => Err(Refusal::NotFound(Subject::new(known::NAMESPACE.group, known::NAMESPACE.resource, namespace))),
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

/// Nobody grants more than they hold themselves.
pub(super) fn admit_roles(context: &Context, new: &Document, old: Option<&Document>) -> Result<(), Refusal> {
    let Some(role) = context.kind.role else { return Ok(()) };
    let granted = ["rules", "aggregationRule", "roleRef", "subjects"];
    if old.is_some_and(|old| granted.iter().all(|field| old.get(*field) == new.get(*field))) {
        return Ok(());
    }
    let request = context.request;
    let authorizer = Authorizer { modes: &context.settings.modes, rbac: &context.state.rbac };
    let namespace = request.namespace().unwrap_or("");
    let document = Value::Object(new.clone());
    let refused = match role.is_binding() {
        false => escalation::refuse_role(&authorizer, &request.user, role.name(), namespace, request.name(), &document),
        true => escalation::refuse_binding(&authorizer, &request.user, namespace, &document)
            .unwrap_or_else(|missing| if request.user.is_privileged() { None } else { Some(missing) }),
    };
    match refused {
        None => Ok(()),
        Some(message) => {
            let name = text(metadata(new), "name");
            Err(Refusal::Forbidden { subject: context.subject(name), message, causes: Vec::new() })
        }
    }
}

/// What the cluster cannot do without stays.
pub(super) fn admit_delete(context: &Context) -> Result<(), Refusal> {
    let name = context.request.name();
    if context.kind.immortal.contains(&name) {
        return Err(Refusal::Forbidden {
            subject: context.subject(name),
            message: format!("this {} may not be deleted", context.kind.singular),
            causes: Vec::new(),
        });
    }
    Ok(())
}
