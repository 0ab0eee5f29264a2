//! Devices: the ResourceSlices in which drivers publish them, the DeviceClasses, and the claims to which devices are
//! allocated.

pub(crate) mod extended;
pub(crate) mod in_use;
pub(crate) mod pools;

use super::table::{BeforeAfter, Table, TableUpdate, cluster_key};
use crate::object::device::{Class, Slice};
use crate::object::device_claim::{Allocation, Claim};
use crate::object::extended::{CLASS_PREFIX, NewClaim, may_be_devices};
use crate::object::taint_rule::TaintRule;
use crate::object::{Key, Text};
use crate::plugins::devices::searches::SharedSearchState;
use extended::ExtendedResources;
use in_use::DevicesInUse;
use pools::Pools;
use std::sync::Arc;

#[derive(Debug, Default)]
pub struct Devices {
    claims: Table<Claim>,
    slices: Table<Slice>,
    classes: Table<Class>,
    taint_rules: Table<TaintRule>,
    /// The feature gate DRAExtendedResource: whether devices may satisfy extended resources.
    pub(super) satisfy_extended_resources: bool,
    extended: ExtendedResources,
    /// The slices by their pools.
    pools: Pools,
    /// The devices that are allocated to claims.
    in_use: DevicesInUse,
    searches: Arc<SharedSearchState>,
}

impl Devices {
    pub fn claim(&self, key: &Key) -> Option<&Arc<Claim>> {
        self.claims.get(key)
    }

    #[cfg(test)]
    pub(crate) fn has_claims(&self) -> bool {
        !self.claims.is_empty()
    }

    pub fn class(&self, name: &Text) -> Option<&Arc<Class>> {
        self.classes.get(&cluster_key(name))
    }

    pub fn taint_rules(&self) -> impl Iterator<Item = &Arc<TaintRule>> {
        self.taint_rules.values()
    }

    pub(crate) fn pools(&self) -> &Pools {
        &self.pools
    }

    pub(crate) fn in_use(&self) -> &DevicesInUse {
        &self.in_use
    }

    /// How many times a pool was computed from its slices.
    pub fn pool_scans(&self) -> u64 {
        self.pools.scans()
    }

    /// The state that all searches for devices share.
    pub fn searches(&self) -> &Arc<SharedSearchState> {
        &self.searches
    }

    /// The DeviceClass that satisfies an extended resource; `None` if no class does, or the feature gate
    /// DRAExtendedResource is off.
    pub fn class_for(&self, resource: &str) -> Option<Text> {
        if !self.satisfy_extended_resources || !may_be_devices(resource) {
            return None;
        }
        if let Some(name) = resource.strip_prefix(CLASS_PREFIX) {
            return self.classes.get_key_value(&Key::cluster(name)).map(|(key, _)| key.name.clone());
        }
        self.extended.class_for(resource).cloned()
    }

    /// The claim that was made for extended resources of the pod with this uid.
    pub fn extended_claim(&self, pod: &Text) -> Option<&Key> {
        self.extended.claim(pod)
    }

    /// Puts a claim into its table. An assumed allocation stays until the claim's own status has an allocation.
    pub(super) fn put_claim(&mut self, update: &mut TableUpdate<'_>) -> BeforeAfter<Claim> {
        let key = update.key;
        let (before, mut after) = update.put(&mut self.claims, |pool, object| Claim::decode(pool, key.clone(), object));
        if let Some(after) = &mut after {
            keep_assumed_allocation(before.as_deref(), after);
            self.claims.insert(key.clone(), after.clone());
        }
        self.index_claim(before.as_deref(), after.as_deref());
        (before, after)
    }

    pub(super) fn put_slice(&mut self, update: &mut TableUpdate<'_>) -> BeforeAfter<Slice> {
        let (before, after) = update.put(&mut self.slices, Slice::decode);
        self.pools.slice_changed(update.key, before.as_ref(), after.as_ref());
        (before, after)
    }

    pub(super) fn put_class(&mut self, update: &mut TableUpdate<'_>) -> BeforeAfter<Class> {
        let (before, after) = update.put(&mut self.classes, Class::decode);
        self.extended.class_changed(&update.key.name, before.as_deref(), after.as_deref());
        (before, after)
    }

    pub(super) fn put_taint_rule(&mut self, update: &mut TableUpdate<'_>) -> BeforeAfter<TaintRule> {
        update.put(&mut self.taint_rules, TaintRule::decode)
    }

    /// Reserves devices for claims, and adds the claim that must still be created, before the claims' own events show
    /// the allocations.
    pub(super) fn assume(&mut self, new_claim: Option<&NewClaim>, devices: &[(Key, Allocation)]) {
        if let Some(new) = new_claim.filter(|new| !self.claims.contains_key(&new.claim.key)) {
            self.replace_claim(&new.claim.key, Some(new.claim.clone()));
        }
        for (claim, allocation) in devices {
            self.assume_allocation(claim, Some(allocation));
        }
    }

    /// Ends what [`Devices::assume`] has reserved for a claim, unless the claim's status shows the allocation by now.
    pub(super) fn forget(&mut self, claim: &Key) {
        let is = |which: fn(&Claim) -> bool| self.claims.get(claim).is_some_and(|claim| which(claim));
        if is(|claim| claim.uid.is_empty()) {
            // The claim was only assumed, and does not exist in the cluster.
            self.replace_claim(claim, None);
        } else if is(|claim| claim.allocation_assumed) {
            self.assume_allocation(claim, None);
        }
    }

    /// Sets the allocation that a claim is assumed to have, or removes it.
    fn assume_allocation(&mut self, key: &Key, allocation: Option<&Allocation>) {
        let Some(claim) = self.claims.get(key) else { return };
        let mut claim = Claim::clone(claim);
        (claim.allocation_assumed, claim.allocation) = (allocation.is_some(), allocation.cloned());
        self.replace_claim(key, Some(Arc::new(claim)));
    }

    fn replace_claim(&mut self, key: &Key, after: Option<Arc<Claim>>) {
        let before = match &after {
            Some(after) => self.claims.insert(key.clone(), after.clone()),
            None => self.claims.remove(key),
        };
        self.index_claim(before.as_deref(), after.as_deref());
    }

    fn index_claim(&mut self, before: Option<&Claim>, after: Option<&Claim>) {
        self.extended.claim_changed(before, after);
        let [before, after] = [before, after].map(|claim| claim.and_then(|claim| claim.allocation.as_ref()));
        self.in_use.claim_changed(before, after);
    }
}

/// Keeps the assumed allocation of a claim until the claim's own status has an allocation.
fn keep_assumed_allocation(before: Option<&Claim>, after: &mut Arc<Claim>) {
    // A claim that was only assumed has no uid yet.
    let same = |before: &Claim| before.uid == after.uid || before.uid.is_empty();
    let Some(before) = before.filter(|before| before.allocation_assumed && same(before)) else { return };
    if after.allocation.is_none() {
        let after = Arc::make_mut(after);
        after.allocation = before.allocation.clone();
        after.allocation_assumed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Kind;
    use crate::snapshot::Snapshot;
    use crate::snapshot::assume::Reservation;
    use holdfast_value::{Value, json};
    use proptest::prelude::*;

    fn devices(first: u8, second: u8, shared: bool) -> Value {
        let device = |at: u8| {
            let mut result = json!({"request": "r", "driver": "d", "pool": "p", "device": format!("{}", at % 3)});
            if shared {
                result["shareID"] = "s".into();
                result["consumedCapacity"] = json!({"memory": format!("{at}Gi")});
            }
            result["adminAccess"] = (at % 5 == 4).into();
            result
        };
        json!({"devices": {"results": [device(first), device(second)]}})
    }

    fn claim(name: u8, allocation: Value) -> (Key, Value) {
        let meta = json!({"name": name.to_string(), "namespace": "a", "uid": name.to_string()});
        (Key::new("a", &name.to_string()), json!({"metadata": meta, "status": {"allocation": allocation}}))
    }

    fn slice(name: u8, pool: u8, generation: u8, node: u8) -> (Key, Value) {
        let mut spec = json!({"driver": "d", "devices": [{"name": "0"}],
            "pool": {"name": pool.to_string(), "generation": generation, "resourceSliceCount": 1}});
        match node {
            0 => spec["allNodes"] = true.into(),
            node => spec["nodeName"] = node.to_string().into(),
        }
        (Key::cluster(&name.to_string()), json!({"spec": spec}))
    }

    fn assert_indexes_match_tables(devices: &Devices) {
        let (mut pools, mut in_use) = (Pools::default(), DevicesInUse::default());
        devices.slices.iter().for_each(|(key, slice)| pools.slice_changed(key, None, Some(slice)));
        devices.claims.values().for_each(|claim| in_use.claim_changed(None, claim.allocation.as_ref()));
        assert_eq!(devices.pools, pools);
        assert_eq!(devices.in_use, in_use);
    }

    proptest! {
        #[test]
        fn indexes_follow_from_the_tables(steps in prop::collection::vec((0..8u8, 0..4u8, 0..6u8, 0..6u8), 1..60)) {
            let mut snapshot = Snapshot::new();
            for (step, name, one, other) in steps {
                let pod = Key::new("a", &name.to_string());
                match step {
                    0 | 1 => {
                        let (key, slice) = slice(name, one % 2, other % 2, one % 3);
                        snapshot.apply(Kind::ResourceSlice, &key, Some(&slice));
                    }
                    2 => _ = snapshot.apply(Kind::ResourceSlice, &Key::cluster(&name.to_string()), None),
                    3 | 4 => {
                        let (key, claim) = claim(name, if step == 3 { devices(one, other, one > 3) } else { json!(null) });
                        snapshot.apply(Kind::ResourceClaim, &key, Some(&claim));
                    }
                    5 => _ = snapshot.apply(Kind::ResourceClaim, &pod, None),
                    6 => {
                        let meta = json!({"name": name.to_string(), "namespace": "a", "uid": name.to_string()});
                        snapshot.apply(Kind::Pod, &pod, Some(&json!({"metadata": meta, "spec": {}})));
                        let (key, chosen) = claim(other % 4, devices(one, other, one > 3));
                        let chosen = Claim::decode(&mut Default::default(), key.clone(), &chosen);
                        let devices = vec![(key, chosen.allocation.unwrap())];
                        snapshot.assume(&pod, &"n".into(), &Reservation { devices, ..Reservation::default() });
                    }
                    _ => snapshot.forget(&pod),
                }
                assert_indexes_match_tables(snapshot.devices());
            }
        }
    }
}
