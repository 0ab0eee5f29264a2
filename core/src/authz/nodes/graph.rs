//! Which objects lead to which node.
//!
//! A pod leads to its node, and what a pod names leads there through it: so does what mounting its claims takes. All of
//! that is flat: one entry for an object and a node, with how many ways lead from one to the other. An answer is a few
//! look-ups, whatever the size of the cluster, and an event touches the entries of one pod or volume.

use super::references::{self, Reference};
use crate::object::meta::split_key;
use imbl::{OrdMap, OrdSet};
use serde_json::Value;
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
/// Keys are texts with the byte zero between their parts, which is in no name.
#[derive(Debug, Clone, Default)]
pub struct NodeGraph {
    /// `node, object's letter, namespace, name`: how many ways lead from the object to the node.
    ways: OrdMap<Arc<str>, u32>,
    /// The claim that a volume is for, as `namespace, name`.
    claims: OrdMap<Arc<str>, Arc<str>>,
    /// `secret's namespace, name, claim's namespace, name, volume`: what mounting a claim's volume takes.
    claims_by_secret: OrdSet<Arc<str>>,
    /// The same with the claim first.
    secrets_by_claim: OrdSet<Arc<str>>,
}

impl NodeGraph {
    /// Whether an object leads to a node.
    pub fn leads(&self, what: Object, namespace: &str, name: &str, node: &str) -> bool {
        if [namespace, name, node].iter().any(|part| part.contains('\0')) {
            return false;
        }
        match what {
            Object::Volume => self.claims.get(name).is_some_and(|claim| self.has_claim(node, claim)),
            Object::Secret => {
                self.ways.contains_key(&*way(node, what, namespace, name)) || self.is_mounted(namespace, name, node)
            }
            _ => self.ways.contains_key(&*way(node, what, namespace, name)),
        }
    }

    fn has_claim(&self, node: &str, claim: &str) -> bool {
        self.ways.contains_key(&*format!("{node}\0{}\0{claim}", Object::Claim.letter()))
    }

    /// Whether a pod of the node mounts a volume that takes the secret. Goes over the secret's claims and over those of
    /// the node side by side, and so takes no longer than the shorter way: one secret may be for all volumes.
    fn is_mounted(&self, namespace: &str, name: &str, node: &str) -> bool {
        let secret = format!("{namespace}\0{name}\0");
        let own = format!("{node}\0{}\0", Object::Claim.letter());
        let by_secret = self.claims_by_secret.range::<_, str>(from(&secret));
        let by_secret = by_secret.take_while(|key| key.starts_with(&secret));
        let by_node = self.ways.range::<_, str>(from(&own)).take_while(|(key, _)| key.starts_with(&own));
        by_secret.zip(by_node).any(|(mounted, (claim, _))| {
            let (mounted, claim) = (&mounted[secret.len()..], &claim[own.len()..]);
            let mounted = mounted.rsplit_once('\0').map_or(mounted, |(claim, _)| claim);
            let wanted = format!("{claim}\0{secret}");
            let mut taken = self.secrets_by_claim.range::<_, str>(from(&wanted));
            self.has_claim(node, mounted) || taken.next().is_some_and(|key| key.starts_with(&wanted))
        })
    }

    /// Takes in that an object is another now, or is there for the first or the last time.
    pub fn note(&mut self, relation: Relation, key: &str, before: Option<&Value>, after: Option<&Value>) {
        let (namespace, name) = split_key(key);
        let namespace = namespace.unwrap_or("");
        match relation {
            Relation::Volume => {
                self.volume(name, before, false);
                self.volume(name, after, true);
            }
            Relation::Pod | Relation::Named(_) => {
                // What stays is counted up before it is counted down, so that no entry goes and comes again.
                self.ways_of(relation, namespace, name, after, |count| Some(count.unwrap_or(0) + 1));
                self.ways_of(relation, namespace, name, before, |count| count?.checked_sub(1).filter(|left| *left > 0));
            }
        }
    }

    fn ways_of(
        &mut self,
        relation: Relation,
        namespace: &str,
        name: &str,
        document: Option<&Value>,
        count: impl Fn(Option<u32>) -> Option<u32>,
    ) {
        let Some(document) = document else { return };
        let Some(node) = document["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) else { return };
        let mut step = |what: Object, name: &str| {
            let key = way(node, what, namespace, name);
            match count(self.ways.get(&*key).copied()) {
                Some(count) => self.ways.insert(key.into(), count),
                None => self.ways.remove(&*key),
            };
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

    fn volume(&mut self, name: &str, document: Option<&Value>, is_there: bool) {
        let Some(document) = document else { return };
        let text = |field: &str| document["spec"]["claimRef"][field].as_str().unwrap_or_default();
        let (namespace, claim) = (text("namespace"), text("name"));
        if claim.is_empty() {
            return;
        }
        let claim = format!("{namespace}\0{claim}");
        references::of_volume(document, |namespace, secret| {
            let by_secret: Arc<str> = format!("{namespace}\0{secret}\0{claim}\0{name}").into();
            let by_claim: Arc<str> = format!("{claim}\0{namespace}\0{secret}\0{name}").into();
            if is_there {
                self.claims_by_secret.insert(by_secret);
                self.secrets_by_claim.insert(by_claim);
            } else {
                self.claims_by_secret.remove(&by_secret);
                self.secrets_by_claim.remove(&by_claim);
            }
        });
        if is_there {
            self.claims.insert(name.into(), claim.into());
        } else {
            self.claims.remove(name);
        }
    }

    /// Whether nothing leads anywhere.
    pub fn is_empty(&self) -> bool {
        let sets = [&self.claims_by_secret, &self.secrets_by_claim];
        self.ways.is_empty() && self.claims.is_empty() && sets.iter().all(|set| set.is_empty())
    }
}

fn from(key: &str) -> (Bound<&str>, Bound<&str>) {
    (Bound::Included(key), Bound::Unbounded)
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
