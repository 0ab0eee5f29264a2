//! Allocates values that only one object of the cluster may hold: addresses, ports, names. Each kind with such values
//! has an allocation function, which this module calls.

use super::candidate::{Candidate, Old};
use super::endpoint::Part;
use super::{Context, Endpoint};
use crate::kinds::core::{ServiceClaim, held, port_claims};
use crate::kinds::networking::{AddressOwner, holder};
use crate::kinds::{Allocator, Claims, known};
use crate::object::meta;
use crate::refusal::{CauseReason, Internal, Refusal};
use crate::state::State;
use holdfast_value::Value;
use std::sync::{Arc, LazyLock};

pub(super) fn allocate(context: &Context, endpoint: &Endpoint, object: &mut Candidate) -> Result<(), Refusal> {
    let Some(allocate) = context.kind.claims.allocate.filter(|_| endpoint.part != Part::Deletion) else {
        return Ok(());
    };
    let owner = context.state.owner(context.request.target.kind, &object.key);
    let allocator = Allocator {
        claims: &Given { context, key: &object.key, owner: &owner },
        owner: owner.clone(),
        service_ranges: &context.settings.service_ranges,
        service_cidrs: &|| service_cidrs(context.state),
        node_ports: context.settings.node_ports,
        stamp: context.stamp,
    };
    let old = object.old.as_ref().map(|old: &Old| &old.document);
    let causes = allocate(&allocator, old, &mut object.new);
    // If no value of a range is free, the request fails with an error of the server and not of the client.
    if let Some(exhausted) = causes.iter().find(|cause| cause.reason == CauseReason::Internal) {
        return Err(Refusal::Internal(Internal::Exhausted(exhausted.message.clone())));
    }
    if causes.is_empty() {
        return Ok(());
    }
    Err(Refusal::Invalid { subject: context.kind_subject(meta::name(object.fields())), causes })
}

/// The claims that are taken: by objects of this state, by IPAddress objects, and by other servers that share the log.
struct Given<'a> {
    context: &'a Context<'a>,
    /// The key of the object that gets the claims.
    key: &'a str,
    owner: &'a Arc<str>,
}

/// The owner of a claim that is not held by an object of this state.
static ANOTHER: LazyLock<Arc<str>> = LazyLock::new(|| "another".into());

impl Claims for Given<'_> {
    fn claimant(&self, claim: &str) -> Option<&Arc<str>> {
        let claimant = self.context.state.claimant(claim);
        claimant.or_else(|| self.is_taken(held(claim)?).then(|| &*ANOTHER))
    }
}

impl Given<'_> {
    fn is_taken(&self, held: ServiceClaim) -> bool {
        let Context { state, settings, .. } = self.context;
        match held {
            ServiceClaim::Address(address) => {
                let kind = state.registry.known(known::IP_ADDRESS).map(|(kind, _)| kind);
                let Some(given) = kind.and_then(|kind| state.get(kind, address)) else { return false };
                let (namespace, name) = meta::split_key(self.key);
                // An earlier attempt to write this same object may have recorded the address before its write failed.
                holder(&given.document()).is_none_or(|AddressOwner { namespace: of, name: whose }| {
                    (of.as_str(), whose.as_str()) != (namespace.unwrap_or_default(), name)
                })
            }
            ServiceClaim::Port(port) => {
                let is_own = |claim: &String| state.claimant(claim).is_some_and(|claimant| claimant == self.owner);
                settings.ports_elsewhere.has(port) && !port_claims(port).iter().any(is_own)
            }
        }
    }
}

fn service_cidrs(state: &State) -> Vec<Value> {
    let Some((kind, _)) = state.registry.known(known::SERVICE_CIDR) else { return Vec::new() };
    state.scan(kind, "", None).map(|(_, entry)| entry.document()).collect()
}
