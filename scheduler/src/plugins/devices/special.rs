//! Extended resources as devices: one claim for all extended resources that a pod requests and a node does not have
//! itself.
//!
//! Nodes differ in the resources that they have themselves, so the claim differs from node to node. It is created when
//! a node is chosen for the pod; until then only the scheduler knows it.

use super::allocate::{Allocator, Unusable};
use crate::object::device::{Claim, Request};
use crate::object::extended::{Mapping, NewClaim, requests};
use crate::object::{Key, Text};
use crate::plugin::SchedulingCycle;
use crate::snapshot::node_info::NodeInfo;
use holdfast_value::Value;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The name of the claim in messages before it has one.
const NAMELESS: &str = "<extended-resources>";
/// How many characters of a generated name come from its base.
const BASE_MAX: usize = 58;
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX: usize = 5;

/// The allocators for a pod, by which of its extended resources a node lacks.
#[derive(Debug)]
pub struct Variants {
    claims: Vec<Arc<Claim>>,
    /// The extended resources with a class, and the class.
    resources: Vec<(Text, Text)>,
    timeout: Duration,
    known: Mutex<BTreeMap<Vec<bool>, Arc<Variant>>>,
}

#[derive(Debug)]
pub struct Variant {
    pub allocator: Allocator,
    pub special: Option<Special>,
}

/// The parts of a claim that is yet to be created.
#[derive(Debug)]
pub struct Special {
    requests: Vec<Request>,
    mappings: Vec<Mapping>,
}

impl Variants {
    /// `claims`: the claims without devices. The pod's extended resources are added.
    pub fn new(cycle: SchedulingCycle<'_>, claims: Vec<Arc<Claim>>, timeout: Duration) -> Result<Variants, Unusable> {
        let with_class = |name: &Text| Some((name.clone(), cycle.snapshot.class_for(name)?));
        let resources = cycle.pod.template.extended_resources().filter_map(with_class).collect();
        let variants = Variants { claims, resources, timeout, known: Mutex::default() };
        let none = vec![false; variants.resources.len()];
        let plain = variants.make(cycle, &none)?;
        variants.known.lock().unwrap_or_else(PoisonError::into_inner).insert(none, plain.into());
        Ok(variants)
    }

    /// The allocator for a node.
    pub fn of(&self, cycle: SchedulingCycle<'_>, node: &NodeInfo) -> Result<Arc<Variant>, Unusable> {
        let missing: Vec<bool> =
            self.resources.iter().map(|(resource, _)| node.node.allocatable.get(resource) == 0).collect();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(variant) = known.get(&missing) {
            return Ok(variant.clone());
        }
        let variant = Arc::new(self.make(cycle, &missing)?);
        known.insert(missing, variant.clone());
        Ok(variant)
    }

    fn make(&self, cycle: SchedulingCycle<'_>, missing: &[bool]) -> Result<Variant, Unusable> {
        let wanted = self.resources.iter().zip(missing).filter(|(_, missing)| **missing);
        let wanted: Vec<(Text, Text)> = wanted.map(|(resource, _)| resource.clone()).collect();
        let mut claims = self.claims.clone();
        let special = (!wanted.is_empty()).then(|| {
            let (requests, mappings) = requests(&cycle.pod.template.extended, &wanted);
            Special { requests, mappings }
        });
        claims.extend(special.iter().map(|special| special.claim(cycle, NAMELESS.into()).into()));
        let allocator = Allocator::new(cycle.snapshot, claims, self.timeout)?;
        Ok(Variant { allocator, special })
    }
}

impl Special {
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

    /// The claim to be created for a pod.
    pub fn new_claim(&self, cycle: SchedulingCycle<'_>) -> NewClaim {
        let name = format!("{}{}", base_of(&cycle.pod.key.name), suffix(cycle)).into();
        NewClaim { claim: self.claim(cycle, name).into(), mappings: self.mappings.clone() }
    }
}

/// The beginning of the name of a pod's claim.
pub fn base_of(pod: &str) -> String {
    let mut base = format!("{pod}-extended-resources-");
    base.truncate(BASE_MAX);
    base
}

/// The end of a name, different for each pod and attempt.
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
