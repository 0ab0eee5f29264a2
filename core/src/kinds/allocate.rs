//! What an object asks for that only one object of the cluster may hold: addresses, ports, names.
//!
//! It is picked from a snapshot and claimed by the write; the writer refuses a claim that somebody else holds by then,
//! and the request is judged again. So nothing is ever handed out twice.

use super::core::ServiceRanges;
use crate::refusal::Causes;
use crate::stamp::Stamp;
use holdfast_value::Value;
use std::sync::Arc;

/// Who holds what.
pub trait Claims {
    /// How the holder of a claim signs it; `None`: nobody has it.
    fn claimant(&self, claim: &str) -> Option<&Arc<str>>;
}

/// What a kind may ask while it completes an object.
pub struct Allocator<'a> {
    pub claims: &'a dyn Claims,
    /// How the object signs its claims: what it holds already is no conflict.
    pub owner: Arc<str>,
    /// The addresses that services get of which no ServiceCIDR tells.
    pub service_ranges: &'a ServiceRanges,
    /// Reads all ServiceCIDRs, in the order of their names: only who needs an address pays for that.
    pub service_cidrs: &'a dyn Fn() -> Vec<Value>,
    /// First and last node port.
    pub node_ports: (u16, u16),
    pub stamp: Stamp,
}

impl Allocator<'_> {
    /// Whether the object may have a claim.
    pub fn is_free(&self, claim: &str) -> bool {
        self.claims.claimant(claim).is_none_or(|owner| *owner == self.owner)
    }
}

/// Completes an object, given the one that it takes the place of, with what it is to hold. What it asks for and cannot
/// have comes back; a cause of the reason `Internal` says that there is nothing left to hand out.
pub type Allocate = fn(&Allocator, Option<&Value>, &mut Value) -> Causes;
