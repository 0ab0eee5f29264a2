//! NamespaceLifecycle: content needs a living namespace, and some namespaces are for ever.

use crate::admission::{Attributes, Operation};
use crate::kinds::known::NAMESPACE;
use crate::pipeline::effect::Stop;
use crate::refusal::{Forbidden, Refusal, Subject};
use crate::state::namespace_phase;

pub(super) fn mutate(attributes: &mut Attributes) -> Result<(), Stop> {
    match attributes.operation {
        Operation::Delete => may_go(attributes),
        Operation::Create => may_come(attributes),
        Operation::Update | Operation::Connect => Ok(()),
    }
}

/// What the cluster cannot do without stays.
fn may_go(attributes: &Attributes) -> Result<(), Stop> {
    if !attributes.kind.immortal.contains(&attributes.request.name()) {
        return Ok(());
    }
    let why = Forbidden::Undeletable { kind: attributes.kind.singular.clone() };
    Err(Refusal::Forbidden { subject: attributes.subject(), why }.into())
}

/// New content needs a namespace that is there and not going away.
fn may_come(attributes: &Attributes) -> Result<(), Stop> {
    let Some(namespace) = attributes.request.namespace() else { return Ok(()) };
    match namespace_phase(attributes.state, namespace) {
        None => Err(Refusal::NotFound(Subject::new(NAMESPACE.group, NAMESPACE.resource, namespace)).into()),
        Some(false) => Ok(()),
        Some(true) => {
            let why = Forbidden::NamespaceTerminating { namespace: namespace.into() };
            Err(Refusal::Forbidden { subject: attributes.subject(), why }.into())
        }
    }
}
