//! What an object is to hold and no other may: addresses, ports, names.

use super::candidate::Candidate;
use super::endpoint::Part;
use super::{Context, Endpoint};
use crate::kinds::Allocator;
use crate::object::meta;
use crate::refusal::{CauseReason, Refusal};

/// Completes an object with what it lacks of that, where its kind says how.
pub(super) fn allocate(context: &Context, endpoint: &Endpoint, object: &mut Candidate) -> Result<(), Refusal> {
    let Some(allocate) = context.kind.hooks.allocate.filter(|_| endpoint.part != Part::Deletion) else { return Ok(()) };
    let allocator = Allocator {
        claims: context.state,
        owner: context.state.owner(context.request.target.kind, &object.key),
        service_range: &context.settings.service_range,
        node_ports: context.settings.node_ports,
        stamp: context.stamp,
    };
    let old = object.old.as_ref().map(|old| old.fields());
    let causes = allocate(&allocator, old, meta::fields_mut(&mut object.new));
    // Nothing left to hand out is no fault of the client's.
    if let Some(exhausted) = causes.iter().find(|cause| cause.reason == CauseReason::Internal) {
        return Err(Refusal::Internal(exhausted.message.clone()));
    }
    if causes.is_empty() {
        return Ok(());
    }
    Err(Refusal::Invalid { subject: context.kind_subject(meta::name(object.new())), causes })
}
