//! DynamicResources: a node is feasible if the devices of the pod's ResourceClaims can be used on it, or devices on it
//! can be allocated to the claims.

use super::devices::allocate::{AllocationError, AllocatorError, no_class};
use super::devices::extended_resources::{self, NodeAllocators};
use crate::object::device_claim::{Allocation, Claim, MAX_CLAIMS, MAX_RESERVATIONS, Readiness};
use crate::object::pod::PodClaim;
use crate::object::{Key, Kind};
use crate::plugin::{Filter, Normalization, Plugin, PreFilterResult, QueueingHint, SchedulingCycle, Score};
use crate::snapshot::assume::Reservation;
use crate::snapshot::node_info::NodeInfo;
use crate::snapshot::{ClusterEvent, ObjectChange};
use crate::status::{Diagnosis, Rejection};
use std::sync::Arc;
use std::time::Duration;

pub const NAME: &str = "DynamicResources";

/// If no node is feasible, the reason that this plug-in gives at `postFilter` for a pod without claims.
pub(crate) const NO_NEW_CLAIMS: &str = "no new claims to deallocate";

const NOT_ON_NODE: &str = "resourceclaim not available on the node";
const NOT_ENOUGH: &str = "cannot allocate all claims";
const BUDGET_SPENT: &str = "too much was searched for devices of this namespace lately";

#[derive(Debug)]
pub struct DynamicResources {
    /// How many seconds a pod waits for its devices to become ready, before its binding fails.
    pub binding_timeout_seconds: i64,
    /// How long the search for devices on one node may take; 0 means no limit.
    pub filter_timeout: Duration,
}

impl Default for DynamicResources {
    fn default() -> Self {
        DynamicResources { binding_timeout_seconds: 600, filter_timeout: Duration::from_secs(10) }
    }
}

impl Plugin for DynamicResources {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pre_enqueue(&self, cycle: SchedulingCycle<'_>) -> Option<Rejection> {
        claims(cycle).err().map(|reason| Rejection::unresolvable(NAME, reason))
    }

    fn pre_bind_timeout_seconds(&self) -> Option<i64> {
        Some(self.binding_timeout_seconds)
    }

    fn pre_filter(&self, cycle: SchedulingCycle<'_>) -> PreFilterResult {
        match DeviceFilter::new(cycle, self.filter_timeout) {
            Err(rejection) => PreFilterResult::Reject(rejection),
            Ok(None) => PreFilterResult::Skip,
            Ok(Some(devices)) => PreFilterResult::filter(devices),
        }
    }

    fn score(&self, cycle: SchedulingCycle<'_>) -> Option<Box<dyn Score>> {
        let prioritized =
            |claim: &Arc<Claim>| claim.allocation.is_none() && claim.requests.iter().any(|request| request.prioritized);
        // For the score the search for devices is repeated, but only if a claim has prioritized alternatives.
        let is_needed = claims(cycle).is_ok_and(|claims| claims.iter().any(prioritized));
        let devices = if is_needed { DeviceFilter::new(cycle, self.filter_timeout).ok().flatten() } else { None };
        Some(Box::new(FirstAvailableScore(devices)))
    }

    fn depends_on(&self, cycle: SchedulingCycle<'_>, kind: Kind, _: &Key) -> bool {
        match kind {
            Kind::ResourceClaim | Kind::ResourceSlice | Kind::DeviceTaintRule => uses_devices(cycle),
            // A class that no longer names the pod's extended resource may have satisfied it before the change, so the
            // change always counts.
            Kind::DeviceClass => !cycle.pod.template.claims.is_empty() || !cycle.pod.template.extended.is_empty(),
            _ => false,
        }
    }

    fn queueing_hint(&self, cycle: SchedulingCycle<'_>, event: &ClusterEvent) -> QueueingHint {
        QueueingHint::queue_if(match &event.change {
            ObjectChange::Node(before, Some(after)) => before
                .as_ref()
                .is_none_or(|before| before.labels != after.labels || before.allocatable != after.allocatable),
            ObjectChange::DeviceClaim(before, after) => {
                let allocated = |claim: &Option<Arc<Claim>>| claim.as_ref().is_some_and(|one| one.allocation.is_some());
                let freed = allocated(before) && !allocated(after);
                let own = || named_claims(cycle).any(|(_, own)| own.as_ref() == Some(&event.key));
                let was_created_for_pod =
                    |claim: &Arc<Claim>| claim.is_extended && claim.owner.as_ref() == Some(&cycle.pod.uid);
                freed
                    || (after.is_some() && own())
                    || (after.is_none() && before.as_ref().is_some_and(was_created_for_pod))
            }
            ObjectChange::Pod(_, Some(after)) => {
                after.uid == cycle.pod.uid && claims(SchedulingCycle { pod: after, ..cycle }).is_ok()
            }
            ObjectChange::Other { after: true, .. }
                if matches!(event.kind, Kind::DeviceClass | Kind::ResourceSlice) =>
            {
                true
            }
            // The rule may have made devices unusable for the pod before it was changed or deleted.
            ObjectChange::Other { before: true, .. } => event.kind == Kind::DeviceTaintRule,
            _ => false,
        })
    }
}

/// Whether a pod has ResourceClaims, or requests extended resources that devices satisfy. An entry of the spec for
/// which no claim object was needed, according to the pod's status, does not count.
pub fn uses_devices(cycle: SchedulingCycle<'_>) -> bool {
    let template = &cycle.pod.template;
    // A pod with more claims than allowed is rejected, and its claims are not looked up.
    template.claims.len() > MAX_CLAIMS
        || named_claims(cycle).next().is_some()
        || template.extended_resources().any(|one| cycle.snapshot.devices().class_for(one).is_some())
}

/// The keys of all claims that a pod uses: the claims that its spec names, and the claim that was made for its extended
/// resources.
pub fn used_claims<'a>(cycle: SchedulingCycle<'a>) -> impl Iterator<Item = Key> + 'a {
    named_claims(cycle)
        .filter_map(|(_, key)| key)
        .chain(cycle.snapshot.devices().extended_claim(&cycle.pod.uid).cloned())
}

/// The claims of a pod's spec, each with its key; `None` if the claim is still to be made. An entry for which no claim
/// object was needed, according to the pod's status, is skipped.
fn named_claims<'a>(cycle: SchedulingCycle<'a>) -> impl Iterator<Item = (&'a PodClaim, Option<Key>)> {
    let key = move |name| Key { namespace: cycle.pod.key.namespace.clone(), name };
    cycle.pod.template.claims.iter().filter_map(move |own| match &own.claim {
        Some(name) => Some((own, Some(key(name.clone())))),
        None => match cycle.pod.generated_claims.iter().find(|(name, _)| *name == own.name) {
            Some((_, made)) => made.clone().map(|made| (own, Some(key(made)))),
            None => Some((own, None)),
        },
    })
}

/// The claims that a pod uses, or the message about a claim that is missing or cannot be used.
fn claims(cycle: SchedulingCycle<'_>) -> Result<Vec<Arc<Claim>>, String> {
    let mut claims = Vec::new();
    for (own, key) in named_claims(cycle) {
        let pod = &cycle.pod.key;
        let Some(key) = key else {
            return Err(format!("pod \"{pod}\": ResourceClaim not created yet"));
        };
        let claim = cycle.snapshot.devices().claim(&key);
        let claim = claim.ok_or_else(|| format!("resourceclaim \"{}\" not found", key.name))?;
        if claim.deleting {
            return Err(format!("resourceclaim \"{}\" is being deleted", key.name));
        }
        if own.claim.is_none() && claim.owner.as_ref() != Some(&cycle.pod.uid) {
            return Err(format!("ResourceClaim {key} was not created for pod {pod} (pod is not owner)"));
        }
        claims.push(claim.clone());
    }
    Ok(claims)
}

fn rejection_of(why: AllocatorError) -> Rejection {
    match why {
        AllocatorError::Invalid(why) => Rejection::unresolvable(NAME, why),
        AllocatorError::BudgetSpent => Rejection::unresolvable(NAME, BUDGET_SPENT),
    }
}

/// Whether nodes were rejected because the namespace's budget for searches is used up. The pod must be tried again
/// although no event announces that the budget has refilled.
pub fn is_over_budget(diagnosis: &Diagnosis) -> bool {
    let is_over_budget = |rejection: &Rejection| {
        rejection.plugin == NAME && rejection.reasons.iter().any(|reason| reason == BUDGET_SPENT)
    };
    diagnosis.rejected.iter().map(|(_, rejection)| rejection).chain(&diagnosis.absent).any(is_over_budget)
}

#[derive(Clone)]
struct DeviceFilter {
    allocated: Vec<Arc<Claim>>,
    unallocated: Vec<Arc<Claim>>,
    /// The allocators for the claims without devices, one for each set of extended resources that a node may lack.
    allocators: Arc<NodeAllocators>,
    /// Whether an earlier attempt has made a claim for the pod's extended resources.
    is_stale: bool,
}

impl DeviceFilter {
    fn new(cycle: SchedulingCycle<'_>, timeout: Duration) -> Result<Option<Self>, Rejection> {
        if !uses_devices(cycle) {
            return Ok(None);
        }
        let unresolvable = |reason: String| Rejection::unresolvable(NAME, reason);
        if cycle.pod.template.claims.len() > MAX_CLAIMS {
            return Err(unresolvable(format!("more than {MAX_CLAIMS} resource claims")));
        }
        let (mut allocated, mut unallocated) = (Vec::new(), Vec::new());
        for claim in claims(cycle).map_err(unresolvable)? {
            if claim.allocation_assumed {
                return Err(unresolvable(format!("resource claim {} is in the process of being allocated", claim.key)));
            }
            let own = claim.reserved_for.contains(&cycle.pod.uid);
            if claim.allocation.is_some() && !own && claim.reserved_for.len() >= MAX_RESERVATIONS {
                return Err(unresolvable("resourceclaim in use".into()));
            }
            if claim.allocation.is_some() {
                allocated.push(claim);
                continue;
            }
            let sub_requests = claim
                .requests
                .iter()
                .flat_map(|request| request.alternatives.iter().map(move |sub_request| (request, sub_request)));
            let mut missing =
                sub_requests.filter(|(_, sub_request)| cycle.snapshot.devices().class(&sub_request.class).is_none());
            if let Some((request, sub_request)) = missing.next() {
                return Err(unresolvable(no_class(request, sub_request)));
            }
            unallocated.push(claim);
        }
        let allocators = NodeAllocators::new(cycle, unallocated.clone(), timeout).map_err(rejection_of)?.into();
        let is_stale = cycle.snapshot.devices().extended_claim(&cycle.pod.uid).is_some();
        Ok(Some(DeviceFilter { allocated, unallocated, allocators, is_stale }))
    }

    /// Searches for devices on a node. Returns an allocation for each claim without devices; the allocation for
    /// extended resources comes last.
    fn find(
        &self,
        cycle: SchedulingCycle<'_>,
        node: &NodeInfo,
    ) -> Result<(Arc<extended_resources::NodeAllocator>, Vec<Allocation>), Rejection> {
        let allocator = self.allocators.of(cycle, node).map_err(|why| match why {
            AllocatorError::Invalid(why) => Rejection::error(NAME, why),
            AllocatorError::BudgetSpent => rejection_of(why),
        })?;
        match allocator.allocator.allocate(cycle.snapshot.devices(), &node.node) {
            Ok(Some(found)) => Ok((allocator, found)),
            Ok(None) => Err(Rejection::unresolvable(NAME, NOT_ENOUGH)),
            Err(AllocationError::Timeout) => Err(Rejection::unresolvable(NAME, "timed out trying to allocate devices")),
            Err(AllocationError::BudgetSpent) => Err(Rejection::unresolvable(NAME, BUDGET_SPENT)),
            Err(AllocationError::InvalidPool) => {
                Err(Rejection::unresolvable(NAME, "invalid resource pools were encountered"))
            }
            Err(AllocationError::InvalidClaim(why)) => Err(Rejection::error(NAME, why)),
        }
    }

    fn is_usable_on(claim: &Claim, node: &NodeInfo) -> bool {
        // Devices that failed to become ready count as devices that can be used on no node.
        if matches!(claim.readiness(), Readiness::Failed(_)) {
            return false;
        }
        let nodes = claim.allocation.as_ref().and_then(|allocation| allocation.nodes.as_ref());
        nodes.is_none_or(|nodes| nodes.matches(&node.node.name, &node.node.labels))
    }
}

impl Filter for DeviceFilter {
    fn check(&self, cycle: SchedulingCycle<'_>, node: &NodeInfo) -> Result<(), Rejection> {
        if self.is_stale {
            return Err(Rejection::unresolvable(NAME, "cannot schedule extended resource claim"));
        }
        // Releasing devices helps only if the other claims can be satisfied on this node, so the other claims are
        // checked first.
        self.find(cycle, node)?;
        if !self.allocated.iter().all(|claim| DeviceFilter::is_usable_on(claim, node)) {
            return Err(Rejection::unresolvable(NAME, NOT_ON_NODE));
        }
        Ok(())
    }

    fn reserve(
        &self,
        cycle: SchedulingCycle<'_>,
        node: &NodeInfo,
        reservation: &mut Reservation,
    ) -> Result<(), Rejection> {
        let (allocator, found) = self.find(cycle, node)?;
        let new_claim = allocator.draft.as_ref().map(|draft| draft.new_claim(cycle));
        let claims =
            self.unallocated.iter().map(|claim| &claim.key).chain(new_claim.as_ref().map(|new| &new.claim.key));
        reservation.devices.extend(claims.cloned().zip(found));
        reservation.new_claim = new_claim.map(Arc::new);
        Ok(())
    }

    fn clone_box(&self) -> Box<dyn Filter> {
        Box::new(self.clone())
    }
}

/// Prefers nodes on which requests get their earlier alternatives.
struct FirstAvailableScore(Option<DeviceFilter>);

impl Score for FirstAvailableScore {
    fn score(&self, cycle: SchedulingCycle<'_>, node: &NodeInfo) -> i64 {
        let score = |devices: &DeviceFilter| {
            devices.find(cycle, node).map_or(0, |(allocator, found)| allocator.allocator.first_available_score(&found))
        };
        self.0.as_ref().map_or(0, score)
    }

    fn normalization(&self) -> Normalization {
        Normalization::ByHighest
    }
}

/// A claim of the pod whose devices may be released: the pod cannot run where the devices are, and no other pod uses
/// the claim. `None` if there is no such claim.
pub fn claim_to_deallocate(cycle: SchedulingCycle<'_>, diagnosis: &Diagnosis) -> Option<Key> {
    let is_not_on_node = |rejection: &Rejection| {
        rejection.plugin == NAME && rejection.reasons.iter().any(|reason| reason == NOT_ON_NODE)
    };
    let rejected = || diagnosis.rejected.iter().filter(|(_, rejection)| is_not_on_node(rejection));
    let nodes = || rejected().filter_map(|(name, _)| cycle.snapshot.node_named(name));
    let unused = |claim: &&Arc<Claim>| claim.reserved_for.iter().all(|user| *user == cycle.pod.uid);
    let claims = claims(cycle).unwrap_or_default();
    let mut releasable = claims.iter().filter(|claim| claim.allocation.is_some()).filter(unused);
    releasable.find(|claim| nodes().any(|node| !DeviceFilter::is_usable_on(claim, node))).map(|claim| claim.key.clone())
}
