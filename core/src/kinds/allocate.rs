//! Allocates values that only one object of the cluster may hold: addresses, ports, names.
//!
//! A value is picked from a snapshot, and the write claims the value. If another object has claimed the value in the
//! meantime, the writer refuses the claim and the request is judged again. So no value is given out twice.

use super::core::ServiceRanges;
use crate::refusal::Causes;
use crate::stamp::Stamp;
use holdfast_value::Value;
use std::sync::Arc;

/// Finds the object that holds a claim.
pub trait Claims {
    /// The holder of a claim; `None` if it is free.
    fn claimant(&self, claim: &str) -> Option<&Arc<str>>;
}

/// The inputs that a kind may use to complete an object.
pub struct Allocator<'a> {
    pub claims: &'a dyn Claims,
    /// The name of the object as a holder of claims. The object's own claims are no conflict.
    pub owner: Arc<str>,
    /// The service address ranges that exist without a ServiceCIDR.
    pub service_ranges: &'a ServiceRanges,
    /// Reads all ServiceCIDRs in order of their names; called only when an address is needed.
    pub service_cidrs: &'a dyn Fn() -> Vec<Value>,
    /// The first and the last node port.
    pub node_ports: (u16, u16),
    pub stamp: Stamp,
}

impl Allocator<'_> {
    /// Whether a claim is free or is held by the object itself.
    pub fn is_free(&self, claim: &str) -> bool {
        self.claims.claimant(claim).is_none_or(|owner| *owner == self.owner)
    }
}

/// Completes an object with the values that it claims. The second argument is the object that it replaces. Returns the
/// causes for values that the object cannot get; the reason `Internal` means that a range is exhausted.
pub type Allocate = fn(&Allocator, Option<&Value>, &mut Value) -> Causes;
