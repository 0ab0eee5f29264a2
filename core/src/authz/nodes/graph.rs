//! Which objects lead to which node.
//!
//! A pod leads to its node, and what a pod names leads there through it: so does what mounting its claims takes. All of
//! that is flat: one entry for an object and a node, with how many ways lead from one to the other. An answer is a few
//! look-ups, whatever the size of the cluster, and an event touches the entries of one pod or volume.

use super::references::{self, Reference};
use crate::object::meta::split_key;
use imbl::{OrdMap, OrdSet};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::ops::Bound;
use std::sync::Arc;

/// What can lead to a node.
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
    /// Its letter in keys.
    fn letter(self) -> char {
        match self {
            Self::Pod => 'p',
            Self::Secret => 's',
            Self::ConfigMap => 'c',
            Self::Claim => 'm',
            Self::Volume => 'v',
            Self::Account => 'a',
            Self::ResourceClaim => 'r',
            Self::Attachment => 't',
            Self::Slice => 'l',
            Self::CertificateRequest => 'q',
        }
    }
}

/// What objects of a kind say of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    Pod,
    /// A volume leads where its claim does.
    Volume,
    /// `spec.nodeName` says it of the object itself.
    Named(Object),
}

/// Kept beside the state, of which it is a projection.
///
/// What is only looked up stands under a digest of its texts, so that a look-up in a large map compares numbers that
/// lie side by side; what is gone over in order stands under the texts themselves, with the byte zero between them,
/// which is in no name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeGraph {
    /// `node, object's letter, namespace, name`: how many ways lead from the object to the node.
    ways: OrdMap<Digest, u32>,
    /// The claims that pods of a node mount: `node, namespace, name`.
    claims_of_nodes: OrdSet<Arc<str>>,
    /// The claim that a volume is for, as `namespace, name`.
    claims_of_volumes: OrdMap<Digest, Arc<str>>,
    /// `secret's namespace, name, claim's namespace, name, volume`: what mounting a claim's volume takes.
    claims_of_secrets: OrdSet<Arc<str>>,
    /// `secret's namespace, name`, and the same behind `claim's namespace, name`: how many volumes take it.
    takers: OrdMap<Digest, u32>,
}

/// Stands for a text: as much of its SHA-256 as nobody finds twice.
type Digest = u128;

fn digest(text: &str) -> Digest {
    let digest = Sha256::digest(text);
    digest.iter().take(16).fold(0, |sum, byte| sum << 8 | u128::from(*byte))
}

impl NodeGraph {
    /// Whether an object leads to a node.
    pub fn leads(&self, what: Object, namespace: &str, name: &str, node: &str) -> bool {
        if [namespace, name, node].iter().any(|part| part.contains('\0')) {
            return false;
        }
        let directly = || self.ways.contains_key(&digest(&way(node, what, namespace, name)));
        match what {
            Object::Volume => self.claims_of_volumes.get(&digest(name)).is_some_and(|claim| self.mounts(node, claim)),
            Object::Secret => directly() || self.is_mounted(&format!("{namespace}\0{name}"), node),
            _ => directly(),
        }
    }

    fn mounts(&self, node: &str, claim: &str) -> bool {
        self.ways.contains_key(&digest(&format!("{node}\0{}\0{claim}", Object::Claim.letter())))
    }

    /// Whether a pod of the node mounts a volume that takes the secret. Goes over the secret's claims and over those of
    /// the node side by side, and so takes no longer than the shorter way: one secret may be for all volumes.
    fn is_mounted(&self, secret: &str, node: &str) -> bool {
        if !self.takers.contains_key(&digest(secret)) {
            return false;
        }
        let of_secret = below(&self.claims_of_secrets, format!("{secret}\0"));
        let of_node = below(&self.claims_of_nodes, format!("{node}\0"));
        of_node.zip(of_secret).any(|(own, taking)| {
            let claim = taking.rsplit_once('\0').map_or(taking, |(claim, _)| claim);
            self.takers.contains_key(&digest(&format!("{own}\0{secret}"))) || self.mounts(node, claim)
        })
    }

    /// Takes in that an object is another now, or is there for the first or the last time.
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
        let mut step = |what: Object, name: &str| {
            let left = count(&mut self.ways, digest(&way(node, what, namespace, name)), is_there);
            if what == Object::Claim {
                let claim = format!("{node}\0{namespace}\0{name}");
                if left > 0 {
                    self.claims_of_nodes.insert(claim.into())
                } else {
                    self.claims_of_nodes.remove(&*claim)
                };
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
    }

    fn volume(&mut self, name: &str, document: &Value, is_there: bool) {
        let text = |field: &str| document["spec"]["claimRef"][field].as_str().unwrap_or_default();
        let (namespace, claim) = (text("namespace"), text("name"));
        if claim.is_empty() {
            return;
        }
        let claim = format!("{namespace}\0{claim}");
        references::of_volume(document, |namespace, secret| {
            let secret = format!("{namespace}\0{secret}");
            let taking: Arc<str> = format!("{secret}\0{claim}\0{name}").into();
            let of_secrets = &mut self.claims_of_secrets;
            if is_there {
                of_secrets.insert(taking)
            } else {
                of_secrets.remove(&taking)
            };
            for taken in [digest(&secret), digest(&format!("{claim}\0{secret}"))] {
                count(&mut self.takers, taken, is_there);
            }
        });
        if is_there {
            self.claims_of_volumes.insert(digest(name), claim.into());
        } else {
            self.claims_of_volumes.remove(&digest(name));
        }
    }

    /// Whether nothing leads anywhere.
    pub fn is_empty(&self) -> bool {
        *self == NodeGraph::default()
    }
}

/// One more, or one less; what is left.
fn count(counts: &mut OrdMap<Digest, u32>, key: Digest, is_there: bool) -> u32 {
    let before = counts.get(&key).copied().unwrap_or(0);
    let left = if is_there { before.saturating_add(1) } else { before.saturating_sub(1) };
    if left > 0 {
        counts.insert(key, left)
    } else {
        counts.remove(&key)
    };
    left
}

/// What stands behind a prefix, without it.
fn below(set: &OrdSet<Arc<str>>, prefix: String) -> impl Iterator<Item = &str> {
    let from = (Bound::Included(&*prefix), Bound::Unbounded);
    let found = set.range::<_, str>(from);
    found.map_while(move |key| key.strip_prefix(&*prefix))
}

fn way(node: &str, what: Object, namespace: &str, name: &str) -> String {
    let mut key = String::with_capacity(node.len() + namespace.len() + name.len() + 5);
    key.push_str(node);
    key.push('\0');
    key.push(what.letter());
    for part in [namespace, name] {
        key.push('\0');
        key.push_str(part);
    }
    key
}
