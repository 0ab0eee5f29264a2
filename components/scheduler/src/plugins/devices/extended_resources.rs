//! Satisfies extended resources by devices: a pod gets one claim for all extended resources that it requests and its
//! node does not have itself.
//!
//! Nodes differ in the resources that they have themselves, so the claim differs from node to node. It is created when
//! a node is chosen for the pod; until then it exists only in the scheduler.

use super::allocate::{Allocator, AllocatorError};
use crate::object::device_claim::{Claim, Request};
use crate::object::extended::{Mapping, NewClaim, requests};
use crate::object::{Key, Text};
use crate::plugin::SchedulingCycle;
use crate::snapshot::node_info::NodeInfo;
use holdfast_value::Value;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The name of the claim in messages before the claim has a name.
const UNNAMED: &str = "<extended-resources>";
/// The length of the longest base of a generated name, in characters.
const BASE_MAX: usize = 58;
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX: usize = 5;

/// The allocators for one pod. There is one for each set of the pod's extended resources that a node may lack.
#[derive(Debug)]
pub struct NodeAllocators {
    claims: Vec<Arc<Claim>>,
    /// The pod's extended resources that a DeviceClass satisfies, each with the name of the class.
    resources: Vec<(Text, Text)>,
    timeout: Duration,
    by_missing: Mutex<BTreeMap<Vec<bool>, Arc<NodeAllocator>>>,
}

#[derive(Debug)]
pub struct NodeAllocator {
    pub allocator: Allocator,
    pub draft: Option<ClaimDraft>,
}

/// A claim for extended resources that does not exist in the cluster yet.
#[derive(Debug)]
pub struct ClaimDraft {
    requests: Vec<Request>,
    mappings: Vec<Mapping>,
}

impl NodeAllocators {
    /// `claims` contains the pod's claims that have no devices yet. Each allocator also serves the claim for the
    /// extended resources that its nodes lack.
    pub fn new(
        cycle: SchedulingCycle<'_>,
        claims: Vec<Arc<Claim>>,
        timeout: Duration,
    ) -> Result<NodeAllocators, AllocatorError> {
        let with_class = |name: &Text| Some((name.clone(), cycle.snapshot.devices().class_for(name)?));
        let resources = cycle.pod.template.extended_resources().filter_map(with_class).collect();
        let allocators = NodeAllocators { claims, resources, timeout, by_missing: Mutex::default() };
        let none = vec![false; allocators.resources.len()];
        let plain = allocators.make(cycle, &none)?;
        allocators.by_missing.lock().unwrap_or_else(PoisonError::into_inner).insert(none, plain.into());
        Ok(allocators)
    }

    /// The allocator for a node: the one for the extended resources that this node lacks.
    pub fn of(&self, cycle: SchedulingCycle<'_>, node: &NodeInfo) -> Result<Arc<NodeAllocator>, AllocatorError> {
        let missing: Vec<bool> =
            self.resources.iter().map(|(resource, _)| node.node.allocatable.get(resource) == 0).collect();
        let mut by_missing = self.by_missing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(allocator) = by_missing.get(&missing) {
            return Ok(allocator.clone());
        }
        let allocator = Arc::new(self.make(cycle, &missing)?);
        by_missing.insert(missing, allocator.clone());
        Ok(allocator)
    }

    fn make(&self, cycle: SchedulingCycle<'_>, missing: &[bool]) -> Result<NodeAllocator, AllocatorError> {
        let wanted = self.resources.iter().zip(missing).filter(|(_, missing)| **missing);
        let wanted: Vec<(Text, Text)> = wanted.map(|(resource, _)| resource.clone()).collect();
        let mut claims = self.claims.clone();
        let draft = (!wanted.is_empty()).then(|| {
            let (requests, mappings) = requests(&cycle.pod.template.extended, &wanted);
            ClaimDraft { requests, mappings }
        });
        claims.extend(draft.iter().map(|draft| draft.claim(cycle, UNNAMED.into()).into()));
        let allocator = Allocator::new(cycle.snapshot.devices(), cycle.snapshot.clock, claims, self.timeout)?;
        Ok(NodeAllocator { allocator, draft })
    }
}

impl ClaimDraft {
    fn claim(&self, cycle: SchedulingCycle<'_>, name: Text) -> Claim {
        Claim {
            key: Key { namespace: cycle.pod.key.namespace.clone(), name },
            uid: "".into(),
            deleting: false,
            protected: true,
            config: Value::Null,
            owner: Some(cycle.pod.uid.clone()),
            is_extended: true,
            requests: self.requests.clone(),
            constraints: Vec::new(),
            allocation: None,
            device_statuses: Vec::new(),
            reserved_for: Vec::new(),
            allocation_assumed: false,
        }
    }

    /// The claim that must be created for a pod whose node is chosen.
    pub fn new_claim(&self, cycle: SchedulingCycle<'_>) -> NewClaim {
        let name = format!("{}{}", base_of(&cycle.pod.key.name), suffix(cycle)).into();
        NewClaim { claim: self.claim(cycle, name).into(), mappings: self.mappings.clone() }
    }
}

/// The beginning of the name of the claim that is created for a pod.
pub fn base_of(pod: &str) -> String {
    let mut base = format!("{pod}-extended-resources-");
    base.truncate(BASE_MAX);
    base
}

/// The end of the name of a claim, which differs from pod to pod and from attempt to attempt.
fn suffix(cycle: SchedulingCycle<'_>) -> String {
    let mut hasher = DefaultHasher::new();
    (&cycle.pod.uid, &cycle.pod.key, cycle.snapshot.changes().next()).hash(&mut hasher);
    let mut rest = hasher.finish();
    let mut end = String::new();
    for _ in 0..SUFFIX {
        end.push(char::from(ALPHABET[(rest % ALPHABET.len() as u64) as usize]));
        rest /= ALPHABET.len() as u64;
    }
    end
}
