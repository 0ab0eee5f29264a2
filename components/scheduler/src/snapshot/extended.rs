//! The DeviceClasses of extended resources, and the claims that were made for pods with such resources.

use super::Snapshot;
use crate::object::device::Class;
use crate::object::device_claim::Claim;
use crate::object::extended::{CLASS_PREFIX, may_be_devices};
use crate::object::{Key, Text};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

#[derive(Debug, Default)]
pub(super) struct ExtendedResources {
    /// The classes that name each resource. The first of a set is used: the newest class, and among classes of equal
    /// age the first by name.
    classes: BTreeMap<Text, BTreeSet<(Reverse<i128>, Text)>>,
    /// The claim that was made for each pod, by the pod's uid.
    claims: HashMap<Text, Key>,
}

impl ExtendedResources {
    pub fn class_changed(&mut self, name: &Text, before: Option<&Class>, after: Option<&Class>) {
        let entry = |class: &Class| (Reverse(class.created), name.clone());
        if let Some((class, resource)) = before.and_then(|class| Some((class, class.extended_resource.as_ref()?)))
            && let Some(classes) = self.classes.get_mut(resource)
        {
            classes.remove(&entry(class));
            if classes.is_empty() {
                self.classes.remove(resource);
            }
        }
        if let Some((class, resource)) = after.and_then(|class| Some((class, class.extended_resource.as_ref()?))) {
            self.classes.entry(resource.clone()).or_default().insert(entry(class));
        }
    }

    pub fn claim_changed(&mut self, before: Option<&Claim>, after: Option<&Claim>) {
        let pod = |claim: &Claim| claim.owner.clone().filter(|_| claim.is_extended);
        if let Some(pod) = before.and_then(pod)
            && self.claims.get(&pod) == before.map(|claim| &claim.key)
        {
            self.claims.remove(&pod);
        }
        if let Some((pod, claim)) = after.and_then(|claim| Some((pod(claim)?, claim))) {
            self.claims.insert(pod, claim.key.clone());
        }
    }
}

impl Snapshot {
    /// The DeviceClass of an extended resource; `None` without the feature gate DRAExtendedResource.
    pub fn class_for(&self, resource: &str) -> Option<Text> {
        if !self.extended_resources || !may_be_devices(resource) {
            return None;
        }
        if let Some(name) = resource.strip_prefix(CLASS_PREFIX) {
            return self.device_classes.get_key_value(&Key::cluster(name)).map(|(key, _)| key.name.clone());
        }
        self.extended.classes.get(resource)?.first().map(|(_, name)| name.clone())
    }

    /// The claim that was made for extended resources of the pod with this uid.
    pub fn extended_claim(&self, pod: &Text) -> Option<&Key> {
        self.extended.claims.get(pod)
    }
}
