//! Allocates values that only one object of the cluster may hold (addresses, ports, names), as the kind says.

use super::candidate::{Candidate, Old};
use super::endpoint::Part;
use super::{Context, Endpoint};
use crate::kinds::{Allocator, known};
use crate::object::meta;
use crate::refusal::{CauseReason, Internal, Refusal};
use crate::state::State;
use holdfast_value::Value;

pub(super) fn allocate(context: &Context, endpoint: &Endpoint, object: &mut Candidate) -> Result<(), Refusal> {
    let Some(allocate) = context.kind.hooks.allocate.filter(|_| endpoint.part != Part::Deletion) else {
        return Ok(());
    };
    let allocator = Allocator {
        claims: context.state,
        owner: context.state.owner(context.request.target.kind, &object.key),
        service_ranges: &context.settings.service_ranges,
        service_cidrs: &|| service_cidrs(context.state),
        node_ports: context.settings.node_ports,
        stamp: context.stamp,
    };
    let old = object.old.as_ref().map(|old: &Old| &old.document);
    let causes = allocate(&allocator, old, &mut object.new);
    // An exhausted range is a server error, not the client's.
    if let Some(exhausted) = causes.iter().find(|cause| cause.reason == CauseReason::Internal) {
        return Err(Refusal::Internal(Internal::Exhausted(exhausted.message.clone())));
    }
    if causes.is_empty() {
        return Ok(());
    }
    Err(Refusal::Invalid { subject: context.kind_subject(meta::name(object.fields())), causes })
}

fn service_cidrs(state: &State) -> Vec<Value> {
    let Some((kind, _)) = state.registry.known(known::SERVICE_CIDR) else { return Vec::new() };
    state.scan(kind, "", None).map(|(_, entry)| entry.document()).collect()
}
