//! Finds the DeviceClass that satisfies an extended resource, and the claim that was made for a pod with extended
//! resources.

use crate::object::device::Class;
use crate::object::device_claim::Claim;
use crate::object::{Key, Text};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

#[derive(Debug, Default)]
pub struct ExtendedResources {
    /// For each extended resource, the DeviceClasses that name it. The first class of each set is used: the newest, and
    /// among classes of equal age the first by name.
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

    /// The class that satisfies a resource; `None` if no class names it.
    pub fn class_for(&self, resource: &str) -> Option<&Text> {
        self.classes.get(resource)?.first().map(|(_, name)| name)
    }

    /// The claim that was made for the pod with this uid.
    pub fn claim(&self, pod: &Text) -> Option<&Key> {
        self.claims.get(pod)
    }
}
