//! Which devices are in use, and how much is taken of those that several share.

use crate::object::Text;
use crate::object::device::{Allocated, Allocation};
use std::collections::{BTreeMap, HashMap};

/// A driver, a pool and a device.
pub type Id = (Text, Text, Text);

/// What is in use. A snapshot keeps what claims have, and a search what it has chosen beside that.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(PartialEq))]
pub struct Taken {
    /// Devices that nobody shares, each with how many have it: claims may contradict each other.
    whole: HashMap<Id, usize>,
    shared: HashMap<Id, Shares>,
}

/// What is taken of a device that several share.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(PartialEq))]
struct Shares {
    count: usize,
    amounts: BTreeMap<Text, i128>,
}

impl Taken {
    /// Learns what devices a claim had and has now.
    pub fn claim_changed(&mut self, before: Option<&Allocation>, after: Option<&Allocation>) {
        // Who only looks at devices takes nothing of them.
        fn taken(allocation: Option<&Allocation>) -> impl Iterator<Item = &Allocated> {
            allocation.into_iter().flat_map(|one| &one.devices).filter(|device| !device.admin)
        }
        if before == after {
            return;
        }
        taken(before).for_each(|device| self.give_back(device));
        taken(after).for_each(|device| self.take(device));
    }

    pub fn take(&mut self, device: &Allocated) {
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

    pub fn give_back(&mut self, device: &Allocated) {
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

    /// Whether somebody has the device for himself.
    pub fn is_whole(&self, id: &Id) -> bool {
        self.whole.contains_key(id)
    }

    /// Whether somebody has a share of the device.
    pub fn is_shared(&self, id: &Id) -> bool {
        self.shared.contains_key(id)
    }

    /// How much is taken of what a device that is shared has.
    pub fn amount(&self, id: &Id, capacity: &Text) -> i128 {
        self.shared.get(id).and_then(|shares| shares.amounts.get(capacity)).copied().unwrap_or(0)
    }
}

impl Allocated {
    pub fn id(&self) -> Id {
        (self.driver.clone(), self.pool.clone(), self.device.clone())
    }
}
