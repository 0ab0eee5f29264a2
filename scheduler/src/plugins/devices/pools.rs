//! The pools that drivers publish devices in: which of their slices are there, and what is wrong with them.

use crate::object::Text;
use crate::object::device::{Counters, Device, Place, Slice};
use crate::object::node::Node;
use crate::snapshot::Snapshot;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// The slices of the newest generation of each pool.
#[derive(Debug)]
pub struct Pools {
    /// Those of one pool after another.
    pub slices: Vec<Arc<Slice>>,
    /// The number of each slice's pool.
    pool_of: Vec<usize>,
    pub pools: Vec<Pool>,
    /// The numbers of the slices of each node, and of those that are not for one node alone.
    by_node: HashMap<Text, Vec<usize>>,
    elsewhere: Vec<usize>,
}

impl Pools {
    pub fn new(snapshot: &Snapshot) -> Self {
        let mut newest: BTreeMap<(&Text, &Text), Vec<&Arc<Slice>>> = BTreeMap::new();
        for slice in snapshot.device_slices.values() {
            let all = newest.entry((&slice.driver, &slice.pool)).or_default();
            let generation = all.first().map_or(slice.generation, |first| first.generation);
            if slice.generation > generation {
                all.clear();
            }
            if slice.generation >= generation {
                all.push(slice);
            }
        }
        let (mut slices, mut pool_of, mut pools) = (Vec::new(), Vec::new(), Vec::new());
        for ((driver, name), all) in newest {
            pools.push(Pool::new(driver, name, &all));
            pool_of.resize(pool_of.len() + all.len(), pools.len() - 1);
            slices.extend(all.into_iter().cloned());
        }
        let (mut by_node, mut elsewhere): (HashMap<Text, Vec<usize>>, Vec<usize>) = Default::default();
        for (number, slice) in slices.iter().enumerate() {
            match &slice.place {
                Place::Node(name) => by_node.entry(name.clone()).or_default().push(number),
                _ => elsewhere.push(number),
            }
        }
        Pools { slices, pool_of, pools, by_node, elsewhere }
    }

    /// The pools that have something for a node, by name; those last whose devices are not ready at once.
    pub fn near(&self, node: &Node) -> Vec<Near> {
        let own = self.by_node.get(&node.name).map(Vec::as_slice).unwrap_or_default();
        let mut numbers: Vec<usize> = own.iter().chain(&self.elsewhere).copied().collect();
        numbers.sort_unstable();
        let reaches = |slice: &Slice| match slice.place {
            Place::PerDevice => slice.devices.iter().any(|device| device.place.includes(&node.name, &node.labels)),
            _ => slice.place.includes(&node.name, &node.labels),
        };
        let mut pools: Vec<Near> = Vec::new();
        for number in numbers.into_iter().filter(|number| {
            // Counters are those of the whole pool.
            !self.slices[*number].counters.is_empty() || reaches(&self.slices[*number])
        }) {
            match pools.last_mut().filter(|last| last.pool == self.pool_of[number]) {
                Some(last) => last.slices.push(number),
                None => pools.push(Near { pool: self.pool_of[number], slices: vec![number], flaw: None }),
            }
        }
        for near in &mut pools {
            near.flaw = self.flaw(near);
        }
        let waits = |near: &Near| {
            let mut devices = near.slices.iter().flat_map(|number| &self.slices[*number].devices);
            near.flaw.is_none() && devices.any(|device| !device.binding.conditions.is_empty())
        };
        pools.sort_by_cached_key(waits);
        pools
    }

    /// What keeps the devices of a pool from being given on a node.
    fn flaw(&self, near: &Near) -> Option<Flaw> {
        let pool = &self.pools[near.pool];
        let wanted = self.slices[near.slices[0]].count;
        let is_all = |count: usize| i64::try_from(count) == Ok(wanted);
        if !is_all(near.slices.len()) && !is_all(pool.slices) {
            return Some(Flaw::Incomplete);
        }
        let twice = || {
            let devices = near.slices.iter().flat_map(|number| &self.slices[*number].devices);
            has_twice(devices.map(|device| &device.name))
        };
        (pool.is_muddled || (pool.has_name_twice && twice())).then_some(Flaw::Invalid)
    }
}

/// The slices of a driver's pool, in its newest generation.
#[derive(Debug)]
pub struct Pool {
    pub driver: Text,
    pub name: Text,
    /// How many there are.
    slices: usize,
    /// Whether two devices have one name. They may be those of nodes that have nothing to do with each other.
    has_name_twice: bool,
    /// Whether what its devices consume is not what it has.
    is_muddled: bool,
}

impl Pool {
    fn new(driver: &Text, name: &Text, slices: &[&Arc<Slice>]) -> Self {
        let devices = || slices.iter().flat_map(|slice| &slice.devices);
        // Within one slice no name is there twice.
        let several = slices.iter().filter(|slice| !slice.devices.is_empty()).nth(1).is_some();
        let sets = || slices.iter().flat_map(|slice| &slice.counters);
        // A driver chooses how many slices, sets and devices there are.
        let by_name: HashMap<&Text, &Counters> = sets().map(|(name, counters)| (name, counters)).collect();
        let known = |device: &Device| {
            let has = |(set, consumed): &(Text, Counters)| {
                by_name.get(set).is_some_and(|there| consumed.keys().all(|counter| there.contains_key(counter)))
            };
            device.consumes.iter().all(has)
        };
        Pool {
            driver: driver.clone(),
            name: name.clone(),
            slices: slices.len(),
            has_name_twice: several && has_twice(devices().map(|device| &device.name)),
            is_muddled: has_twice(sets().map(|(name, _)| name)) || !devices().all(known),
        }
    }
}

fn has_twice<'a>(mut names: impl Iterator<Item = &'a Text>) -> bool {
    let mut seen = HashSet::new();
    names.any(|name| !seen.insert(name))
}

/// A pool as a node has it.
pub struct Near {
    pub pool: usize,
    /// The numbers of its slices that have something for the node.
    pub slices: Vec<usize>,
    pub flaw: Option<Flaw>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// Not all of its slices are there.
    Incomplete,
    /// It contradicts itself.
    Invalid,
}
