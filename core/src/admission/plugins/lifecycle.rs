//! NamespaceLifecycle: new objects need an active namespace, and some namespaces cannot be deleted.

use crate::admission::{Attributes, Operation};
use crate::kinds::known::NAMESPACE;
use crate::pipeline::effect::Stop;
use crate::refusal::{Forbidden, Refusal, Subject};
use crate::state::namespace_phase;
use holdfast_value::json;

pub(super) fn mutate(attributes: &mut Attributes) -> Result<(), Stop> {
    match attributes.operation {
        Operation::Delete => may_go(attributes),
        Operation::Create => may_come(attributes),
        Operation::Update | Operation::Connect => Ok(()),
    }
}

/// Refuses to delete the namespaces that the cluster needs, such as `kube-system`.
fn may_go(attributes: &Attributes) -> Result<(), Stop> {
    if !attributes.kind.deletion.is_immortal(attributes.request.name()) {
        return Ok(());
    }
    let why = Forbidden::Undeletable { kind: attributes.kind.singular.clone() };
    Err(Refusal::Forbidden { subject: attributes.subject(), why }.into())
}

/// A new object needs a namespace that exists and is not terminating.
fn may_come(attributes: &Attributes) -> Result<(), Stop> {
    let Some(namespace) = attributes.request.namespace() else { return Ok(()) };
    // Reviews are not stored, so they need no active namespace.
    if attributes.makes(NAMESPACE) || !attributes.kind.stored {
        return Ok(());
    }
    match namespace_phase(attributes.state, namespace) {
        None => Err(Refusal::NotFound(Subject::new(NAMESPACE.group, NAMESPACE.resource, namespace)).into()),
        Some(false) => Ok(()),
        Some(true) => {
            let why = Forbidden::NamespaceTerminating { namespace: namespace.into() };
            Err(Refusal::Forbidden { subject: attributes.subject(), why }.into())
        }
    }
}

/// NamespaceExists: refuses writes in a namespace that does not exist.
pub(super) fn exists(attributes: &mut Attributes) -> Result<(), Stop> {
    let is_there = attributes.namespace().is_empty() || attributes.namespace_entry().is_some();
    if is_there || attributes.makes(NAMESPACE) {
        return Ok(());
    }
    let subject = Subject::new(NAMESPACE.group, NAMESPACE.resource, attributes.namespace());
    Err(Refusal::NotFound(subject).into())
}

/// NamespaceAutoProvision: a create in a missing namespace creates the namespace too.
pub(super) fn provide(attributes: &mut Attributes) -> Result<(), Stop> {
    let namespace = attributes.namespace();
    let is_missing = !namespace.is_empty() && attributes.namespace_entry().is_none();
    if !is_missing || attributes.operation != Operation::Create || attributes.is_dry_run() {
        return Ok(());
    }
    let Some(kind) = attributes.id_of(NAMESPACE) else { return Ok(()) };
    let shape = attributes.state.kind(kind);
    let stamp = attributes.stamp;
    let mut document = json!({"apiVersion": NAMESPACE.api_version(), "kind": NAMESPACE.kind, "metadata": {
        "name": namespace, "uid": stamp.uid(NAMESPACE_UID), "creationTimestamp": stamp.rfc3339()}});
    shape.default_to_hub(0, &mut document, None)?;
    shape.writes.prepare_create(&mut document, shape.has_status(0));
    attributes.make_beside(NAMESPACE, namespace.into(), document);
    Ok(())
}

/// The index of the stamp's UID for a namespace that is created together with an object. Lower indexes are for the
/// object.
const NAMESPACE_UID: u64 = 7;
