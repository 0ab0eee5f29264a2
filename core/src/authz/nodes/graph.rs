//! Finds the objects that a node's pods need.
//!
//! A pod leads to its node. The objects that the pod refers to, and the secrets for mounting its claims' volumes, lead
//! to the node through the pod. The graph is stored flat: each node has an entry for an object, with the number of
//! paths between the two. An answer takes a few look-ups for any size of the cluster, and an event changes the entries
//! of one pod or volume.

use super::references::{self, Reference};
use crate::object::meta::split_key;
use holdfast_value::Value;
use imbl::shared_ptr::DefaultSharedPtr;
use imbl::{GenericHashMap, OrdMap, OrdSet};
use sha2::{Digest as _, Sha256};
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// A kind of object that can lead to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object {
    Pod,
    Secret,
    ConfigMap,
    Claim,
    Volume,
    Account,
    ResourceClaim,
    Attachment,
    Slice,
    CertificateRequest,
}

impl Object {
    /// The letter that stands for the kind in the digests of objects.
    fn letter(self) -> &'static str {
        match self {
            Self::Pod => "p",
            Self::Secret => "s",
            Self::ConfigMap => "c",
            Self::Claim => "m",
            Self::Volume => "v",
            Self::Account => "a",
            Self::ResourceClaim => "r",
            Self::Attachment => "t",
            Self::Slice => "l",
            Self::CertificateRequest => "q",
        }
    }
}

/// How objects of a kind relate to nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    Pod,
    /// A volume leads to the nodes of its claim.
    Volume,
    /// The object's `spec.nodeName` names the node.
    Named(Object),
}

/// The objects that lead to each node. The graph is a projection of the state and is stored in the state.
///
/// Nodes and objects are keyed by digests of their names, and the entries of one node are stored together: a look-up
/// compares numbers, and searches the map of nodes and then that node's small map, not one map of everything. The large
/// maps are hash tables over the digest's bits, because each step of an ordered search would be a cache miss.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeGraph {
    nodes: Table<Node>,
    /// The digest of the claim of each PersistentVolume, by the digest of the volume.
    claims_of_volumes: Table<Digest>,
    /// For each secret, the claims whose volumes need it to be mounted, with the number of such volumes.
    takers: OrdMap<Digest, Table<u32>>,
}

/// The objects that lead to one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Node {
    /// The number of paths from each object to the node.
    ways: OrdMap<Digest, u32>,
    /// The PersistentVolumeClaims among the objects in `ways`.
    claims: OrdSet<Digest>,
}

type Table<V> = GenericHashMap<Digest, V, BuildHasherDefault<Bits>, DefaultSharedPtr>;

/// Represents a name: 16 bytes of its SHA-256, so that finding a collision is infeasible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Digest([u64; 2]);

impl Hash for Digest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0[0]);
    }
}

/// A hasher that returns the digest's own bits.
#[derive(Default)]
struct Bits(u64);

impl Hasher for Bits {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, bits: u64) {
        self.0 = bits;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The digest of a name that consists of these parts. A zero byte follows each part, so a part must not contain a zero
/// byte.
fn digest<const N: usize>(parts: [&str; N]) -> Digest {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part);
        hasher.update([0]);
    }
    let hash = hasher.finalize();
    let half = |at: usize| hash.iter().skip(at).take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    Digest([half(0), half(8)])
}

impl Object {
    fn digest(self, namespace: &str, name: &str) -> Digest {
        digest([self.letter(), namespace, name])
    }
}

impl NodeGraph {
    /// Whether an object leads to a node.
    pub fn leads(&self, what: Object, namespace: &str, name: &str, node: &str) -> bool {
        if [namespace, name, node].iter().any(|part| part.contains('\0')) {
            return false;
        }
        let Some(node) = self.nodes.get(&digest([node])) else { return false };
        let object = what.digest(namespace, name);
        match what {
            Object::Volume => self.claims_of_volumes.get(&object).is_some_and(|claim| node.ways.contains_key(claim)),
            Object::Secret => node.ways.contains_key(&object) || self.is_mounted(object, node),
            _ => node.ways.contains_key(&object),
        }
    }

    /// Whether a pod of the node mounts a volume that needs the secret. Iterates over the secret's claims or the node's
    /// claims, the smaller set, because one secret may be for all volumes.
    fn is_mounted(&self, secret: Digest, node: &Node) -> bool {
        let Some(taking) = self.takers.get(&secret) else { return false };
        if node.claims.len() <= taking.len() {
            node.claims.iter().any(|claim| taking.contains_key(claim))
        } else {
            taking.keys().any(|claim| node.claims.contains(claim))
        }
    }

    /// Updates the graph for a change of an object; `before` is `None` for a new object, `after` is `None` for a
    /// deleted object.
    pub fn note(&mut self, relation: Relation, key: &str, before: Option<&Value>, after: Option<&Value>) {
        let (namespace, name) = split_key(key);
        let namespace = namespace.unwrap_or("");
        for (document, is_there) in [(before, false), (after, true)] {
            let Some(document) = document else { continue };
            match relation {
                Relation::Volume => self.volume(name, document, is_there),
                Relation::Pod | Relation::Named(_) => self.ways_of(relation, namespace, name, document, is_there),
            }
        }
    }

    fn ways_of(&mut self, relation: Relation, namespace: &str, name: &str, document: &Value, is_there: bool) {
        let Some(node) = document["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) else { return };
        let key = digest([node]);
        let node = self.nodes.entry(key).or_default();
        let mut step = |what: Object, name: &str| {
            let object = what.digest(namespace, name);
            let is_claim = what == Object::Claim;
            match counted(node.ways.get(&object), is_there) {
                0 => {
                    node.ways.remove(&object);
                    is_claim.then(|| node.claims.remove(&object));
                }
                left => {
                    node.ways.insert(object, left);
                    is_claim.then(|| node.claims.insert(object));
                }
            }
        };
        match relation {
            Relation::Named(what) => step(what, name),
            Relation::Pod => {
                step(Object::Pod, name);
                references::of_pod(document, |reference| {
                    let (what, name) = match reference {
                        Reference::Secret(name) => (Object::Secret, name),
                        Reference::ConfigMap(name) => (Object::ConfigMap, name),
                        Reference::Claim(name) => (Object::Claim, name),
                        Reference::Account(name) => (Object::Account, name),
                        Reference::ResourceClaim(name) => (Object::ResourceClaim, name),
                    };
                    step(what, &name);
                });
            }
            Relation::Volume => {}
        }
        if node.ways.is_empty() {
            self.nodes.remove(&key);
        }
    }

    fn volume(&mut self, name: &str, document: &Value, is_there: bool) {
        let text = |field: &str| document["spec"]["claimRef"][field].as_str().unwrap_or_default();
        let (namespace, claim) = (text("namespace"), text("name"));
        if claim.is_empty() {
            return;
        }
        let claim = Object::Claim.digest(namespace, claim);
        references::of_volume(document, |namespace, secret| {
            let secret = Object::Secret.digest(namespace, secret);
            let taking = self.takers.entry(secret).or_default();
            match counted(taking.get(&claim), is_there) {
                0 => taking.remove(&claim),
                left => taking.insert(claim, left),
            };
            if taking.is_empty() {
                self.takers.remove(&secret);
            }
        });
        let volume = Object::Volume.digest("", name);
        if is_there {
            self.claims_of_volumes.insert(volume, claim);
        } else {
            self.claims_of_volumes.remove(&volume);
        }
    }

    /// Whether the graph is empty.
    pub fn is_empty(&self) -> bool {
        *self == NodeGraph::default()
    }
}

/// The count plus one if `is_there` is true, otherwise minus one.
fn counted(before: Option<&u32>, is_there: bool) -> u32 {
    let before = before.copied().unwrap_or(0);
    if is_there { before.saturating_add(1) } else { before.saturating_sub(1) }
}
