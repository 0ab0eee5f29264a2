//! The devices that are in use, and the parts of shared devices that are in use.

use crate::object::Text;
use crate::object::device_claim::{Allocated, Allocation};
use std::collections::{BTreeMap, HashMap};

/// The name of a driver, of one of its pools, and of a device in the pool.
pub type DeviceId = (Text, Text, Text);

/// The devices that are in use. The snapshot has one such set for the devices of all claims; each search has another
/// one for the devices that it has chosen.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(PartialEq))]
pub struct DevicesInUse {
    /// The devices that are not shared, each with the number of claims that have it. The number exceeds 1 only if the
    /// statuses of claims contradict each other.
    whole: HashMap<DeviceId, usize>,
    /// The shared devices, each with the parts that are in use.
    shared: HashMap<DeviceId, Shares>,
}

/// How much of a shared device is in use.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(PartialEq))]
struct Shares {
    count: usize,
    amounts: BTreeMap<Text, i128>,
}

impl DevicesInUse {
    /// Applies the change of a claim's allocation.
    pub fn claim_changed(&mut self, before: Option<&Allocation>, after: Option<&Allocation>) {
        // If a claim has admin access to a device, other claims can still get the device, so it does not count as in
        // use.
        fn devices(allocation: Option<&Allocation>) -> impl Iterator<Item = &Allocated> {
            allocation.into_iter().flat_map(|one| &one.devices).filter(|device| !device.admin)
        }
        if before == after {
            return;
        }
        devices(before).for_each(|device| self.remove(device));
        devices(after).for_each(|device| self.add(device));
    }

    pub fn add(&mut self, device: &Allocated) {
        if !device.shared {
            *self.whole.entry(device.id()).or_default() += 1;
            return;
        }
        let shares = self.shared.entry(device.id()).or_default();
        shares.count += 1;
        for (name, amount) in &device.consumed {
            let sum = shares.amounts.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
    }

    pub fn remove(&mut self, device: &Allocated) {
        let id = device.id();
        if !device.shared {
            if let Some(count) = self.whole.get_mut(&id) {
                *count -= 1;
                if *count == 0 {
                    self.whole.remove(&id);
                }
            }
            return;
        }
        let Some(shares) = self.shared.get_mut(&id) else { return };
        shares.count -= 1;
        for (name, amount) in &device.consumed {
            let sum = shares.amounts.entry(name.clone()).or_default();
            *sum = sum.saturating_sub(*amount);
        }
        if shares.count == 0 {
            self.shared.remove(&id);
        }
    }

    /// Whether a claim has this device as a whole.
    pub fn is_whole(&self, id: &DeviceId) -> bool {
        self.whole.contains_key(id)
    }

    /// Whether a claim has a share of this device.
    pub fn is_shared(&self, id: &DeviceId) -> bool {
        self.shared.contains_key(id)
    }

    /// How much of a capacity of a shared device claims have in total.
    pub fn amount(&self, id: &DeviceId, capacity: &Text) -> i128 {
        self.shared.get(id).and_then(|shares| shares.amounts.get(capacity)).copied().unwrap_or(0)
    }
}

impl Allocated {
    pub fn id(&self) -> DeviceId {
        (self.driver.clone(), self.pool.clone(), self.device.clone())
    }
}
