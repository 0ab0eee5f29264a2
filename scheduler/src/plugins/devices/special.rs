//! Extended resources as devices: one claim for all that a pod asks for of them on a node that does not have them itself.
//!
//! Nodes differ in what they have themselves, so the claim differs from node to node. It is made when the pod has its
//! place; until then it is known to nobody but the scheduler.

use super::allocate::{Allocator, Unusable};
use crate::object::device::{Claim, Request};
use crate::object::extended::{Made, Mapping, requests};
use crate::object::{Key, Text};
use crate::plugin::Cycle;
use crate::snapshot::node_info::NodeInfo;
use holdfast_value::Value;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How a claim is called in what people read before it has a name.
const NAMELESS: &str = "<extended-resources>";
/// As many characters of a generated name are of what it was made from.
const BASE_MAX: usize = 58;
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX: usize = 5;

/// How devices are found for a pod, by which of its extended resources a node does not have itself.
#[derive(Debug)]
pub struct Variants {
    claims: Vec<Arc<Claim>>,
    /// Those that classes stand for.
    resources: Vec<(Text, Text)>,
    timeout: Duration,
    known: Mutex<BTreeMap<Vec<bool>, Arc<Variant>>>,
}

#[derive(Debug)]
pub struct Variant {
    pub allocator: Allocator,
    pub special: Option<Special>,
}

/// A claim that is yet to be made.
#[derive(Debug)]
pub struct Special {
    requests: Vec<Request>,
    mappings: Vec<Mapping>,
}

impl Variants {
    /// For claims that have no devices yet, and the pod's extended resources.
    pub fn new(cycle: Cycle<'_>, claims: Vec<Arc<Claim>>, timeout: Duration) -> Result<Variants, Unusable> {
        let with_class = |name: &Text| Some((name.clone(), cycle.snapshot.class_for(name)?));
        let resources = cycle.pod.template.extended_resources().filter_map(with_class).collect();
        let variants = Variants { claims, resources, timeout, known: Mutex::default() };
        let none = vec![false; variants.resources.len()];
        let plain = variants.make(cycle, &none)?;
        variants.known.lock().unwrap_or_else(PoisonError::into_inner).insert(none, plain.into());
        Ok(variants)
    }

    /// How devices are found on a node.
    pub fn of(&self, cycle: Cycle<'_>, node: &NodeInfo) -> Result<Arc<Variant>, Unusable> {
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

    fn make(&self, cycle: Cycle<'_>, missing: &[bool]) -> Result<Variant, Unusable> {
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
    fn claim(&self, cycle: Cycle<'_>, name: Text) -> Claim {
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
            told: Vec::new(),
            reserved_for: Vec::new(),
            promised: false,
        }
    }

    /// The claim that is to be made for a pod.
    pub fn made(&self, cycle: Cycle<'_>) -> Made {
        let name = format!("{}{}", base_of(&cycle.pod.key.name), suffix(cycle)).into();
        Made { claim: self.claim(cycle, name).into(), mappings: self.mappings.clone() }
    }
}

/// What the name of a pod's claim begins with.
pub fn base_of(pod: &str) -> String {
    let mut base = format!("{pod}-extended-resources-");
    base.truncate(BASE_MAX);
    base
}

/// The end of a name, another one for each pod and attempt.
fn suffix(cycle: Cycle<'_>) -> String {
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
