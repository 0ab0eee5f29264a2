//! The device pools that drivers publish: which of their slices exist, for which nodes, and their flaws.
//!
//! A snapshot keeps the pools. When a slice changes, only its own pool is computed again from its slices, as soon as a
//! search on a node needs that pool. A search on a node reads only the pools for that node.

use crate::object::device::{Counters, Device, NodeSelection, Slice};
use crate::object::node::Node;
use crate::object::{Key, Text};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The name of a driver, and the driver's name for one of its pools.
type PoolName = (Text, Text);

#[derive(Debug, Default)]
pub struct Pools {
    published: HashMap<PoolName, PublishedPool>,
    /// For each node, the pools that have slices for this node alone; under `None`, the pools that have other slices.
    /// Each pool comes with the number of such slices.
    by_node: HashMap<Option<Text>, BTreeMap<PoolName, usize>>,
    scans: AtomicU64,
}

/// The slices of one pool, and the pool that is computed from them.
#[derive(Debug, Default)]
struct PublishedPool {
    slices: BTreeMap<Key, Arc<Slice>>,
    /// The pool as computed from `slices`; empty until a search on a node needs the pool.
    pool: OnceLock<Pool>,
}

impl Pools {
    /// Applies the change of one slice.
    pub fn slice_changed(&mut self, key: &Key, before: Option<&Arc<Slice>>, after: Option<&Arc<Slice>>) {
        if let Some(before) = before {
            let name = name_of(before);
            count(&mut self.by_node, node_of(before), &name, false);
            if let Some(published) = self.published.get_mut(&name) {
                published.slices.remove(key);
                published.pool.take();
                if published.slices.is_empty() {
                    self.published.remove(&name);
                }
            }
        }
        if let Some(after) = after {
            let name = name_of(after);
            count(&mut self.by_node, node_of(after), &name, true);
            let published = self.published.entry(name).or_default();
            published.slices.insert(key.clone(), after.clone());
            published.pool.take();
        }
    }

    /// The pools that have devices for a node, sorted by name. Pools with devices that have binding conditions come
    /// last.
    pub fn on_node(&self, node: &Node) -> Vec<NodePool<'_>> {
        let places = [Some(node.name.clone()), None];
        let names = places.iter().filter_map(|place| self.by_node.get(place)).flat_map(BTreeMap::keys);
        let mut names: Vec<&PoolName> = names.collect();
        names.sort_unstable();
        names.dedup();
        let pools = names.into_iter().filter_map(|name| self.published.get_key_value(name));
        let mut node_pools: Vec<NodePool> =
            pools.filter_map(|(name, published)| self.pool(name, published).on_node(node)).collect();
        let waits = |node_pool: &NodePool| {
            let mut devices = node_pool.slices().flat_map(|slice| &slice.devices);
            node_pool.flaw.is_none() && devices.any(|device| !device.binding.conditions.is_empty())
        };
        node_pools.sort_by_cached_key(waits);
        node_pools
    }

    fn pool<'a>(&self, (driver, name): &PoolName, published: &'a PublishedPool) -> &'a Pool {
        published.pool.get_or_init(|| {
            self.scans.fetch_add(1, Ordering::Relaxed);
            let slices = published.slices.values();
            let generation = slices.clone().map(|slice| slice.generation).max();
            Pool::new(driver, name, slices.filter(|slice| Some(slice.generation) == generation).cloned().collect())
        })
    }

    /// How many times a pool was computed from its slices: once for each version of a pool that a search on a node
    /// needed.
    pub fn scans(&self) -> u64 {
        self.scans.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
impl PartialEq for Pools {
    /// A computed pool follows from its slices, so only the slices are compared.
    fn eq(&self, other: &Pools) -> bool {
        let slices = |pools: &Pools| -> HashMap<_, _> {
            pools.published.iter().map(|(name, published)| (name.clone(), published.slices.clone())).collect()
        };
        self.by_node == other.by_node && slices(self) == slices(other)
    }
}

fn name_of(slice: &Slice) -> PoolName {
    (slice.driver.clone(), slice.pool.clone())
}

/// The name of the only node on which the slice's devices can be used; `None` if the slice is not for one node alone.
fn node_of(slice: &Slice) -> Option<Text> {
    match &slice.node_selection {
        NodeSelection::Node(name) => Some(name.clone()),
        _ => None,
    }
}

fn count(
    by_node: &mut HashMap<Option<Text>, BTreeMap<PoolName, usize>>,
    node: Option<Text>,
    pool: &PoolName,
    is_added: bool,
) {
    let pools = by_node.entry(node.clone()).or_default();
    let slices = pools.entry(pool.clone()).or_default();
    *slices = if is_added { *slices + 1 } else { slices.saturating_sub(1) };
    if *slices == 0 {
        pools.remove(pool);
    }
    if pools.is_empty() {
        by_node.remove(&node);
    }
}

/// One pool of a driver: the slices of its newest generation.
#[derive(Debug)]
pub struct Pool {
    pub driver: Text,
    pub name: Text,
    pub slices: Vec<Arc<Slice>>,
    /// For each node, the positions in `slices` of the slices that are for this node alone.
    by_node: HashMap<Text, Vec<usize>>,
    /// The positions in `slices` of all other slices.
    for_other_nodes: Vec<usize>,
    /// The counters that the pool's devices share, by the name of the counter set.
    pub counters: HashMap<Text, Counters>,
    /// Whether two devices of the pool have the same name. That is a flaw only if both devices can be used on one node.
    has_name_twice: bool,
    /// Whether a device consumes a counter that the pool does not have, or two counter sets have the same name.
    has_invalid_counters: bool,
}

impl Pool {
    fn new(driver: &Text, name: &Text, slices: Vec<Arc<Slice>>) -> Self {
        let devices = || slices.iter().flat_map(|slice| &slice.devices);
        // Within one slice the names of devices differ, so names are compared only if several slices have devices.
        let several = slices.iter().filter(|slice| !slice.devices.is_empty()).nth(1).is_some();
        let sets = || slices.iter().flat_map(|slice| &slice.counters);
        // A driver may publish any number of slices, counter sets and devices. So the counters are looked up in a map,
        // and not searched for each device.
        let counters: HashMap<Text, Counters> = sets().cloned().collect();
        let known = |device: &Device| {
            let has = |(set, consumed): &(Text, Counters)| {
                counters.get(set).is_some_and(|there| consumed.keys().all(|counter| there.contains_key(counter)))
            };
            device.consumes.iter().all(has)
        };
        let has_name_twice = several && has_twice(devices().map(|device| &device.name));
        let has_invalid_counters = has_twice(sets().map(|(name, _)| name)) || !devices().all(known);
        let (mut by_node, mut for_other_nodes): (HashMap<Text, Vec<usize>>, Vec<usize>) = Default::default();
        for (number, slice) in slices.iter().enumerate() {
            match node_of(slice) {
                Some(node) => by_node.entry(node).or_default().push(number),
                None => for_other_nodes.push(number),
            }
        }
        let (driver, name) = (driver.clone(), name.clone());
        Pool { driver, name, slices, by_node, for_other_nodes, counters, has_name_twice, has_invalid_counters }
    }

    /// The slices of the pool that concern a node; `None` if the pool has none.
    fn on_node(&self, node: &Node) -> Option<NodePool<'_>> {
        let own = self.by_node.get(&node.name).map(Vec::as_slice).unwrap_or_default();
        let reaches = |slice: &Slice| match slice.node_selection {
            NodeSelection::PerDevice => {
                slice.devices.iter().any(|device| device.node_selection.includes(&node.name, &node.labels))
            }
            _ => slice.node_selection.includes(&node.name, &node.labels),
        };
        // Counters belong to the whole pool, so slices with counters are needed even if their devices cannot be used on
        // this node.
        let counts = |number: &usize| !self.slices[*number].counters.is_empty() || reaches(&self.slices[*number]);
        let mut numbers: Vec<usize> = own.iter().chain(&self.for_other_nodes).copied().filter(counts).collect();
        numbers.sort_unstable();
        let mut node_pool = NodePool { pool: self, numbers, flaw: None };
        node_pool.flaw = node_pool.find_flaw();
        (!node_pool.numbers.is_empty()).then_some(node_pool)
    }
}

fn has_twice<'a>(mut names: impl Iterator<Item = &'a Text>) -> bool {
    let mut seen = HashSet::new();
    names.any(|name| !seen.insert(name))
}

/// The slices of a pool that concern one node.
pub struct NodePool<'a> {
    pub pool: &'a Pool,
    /// The positions of these slices in [`Pool::slices`].
    numbers: Vec<usize>,
    /// Why no device of the pool can be allocated on the node; `None` if devices can be allocated.
    pub flaw: Option<PoolFlaw>,
}

impl<'a> NodePool<'a> {
    pub fn slices(&self) -> impl Iterator<Item = &'a Arc<Slice>> {
        let slices = &self.pool.slices;
        self.numbers.iter().map(move |number| &slices[*number])
    }

    /// Determines whether the pool's devices cannot be allocated on the node, and why.
    fn find_flaw(&self) -> Option<PoolFlaw> {
        let wanted = self.slices().next()?.count;
        let is_all = |count: usize| i64::try_from(count) == Ok(wanted);
        if !is_all(self.numbers.len()) && !is_all(self.pool.slices.len()) {
            return Some(PoolFlaw::Incomplete);
        }
        let names_collide = || has_twice(self.slices().flat_map(|slice| &slice.devices).map(|device| &device.name));
        (self.pool.has_invalid_counters || (self.pool.has_name_twice && names_collide())).then_some(PoolFlaw::Invalid)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolFlaw {
    /// Not all slices of the pool are published yet.
    Incomplete,
    /// Two devices of the pool have the same name, or devices consume counters that the pool does not have.
    Invalid,
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::{Value, json};

    /// The names of the devices that the only pool has for the node `n`, or the pool's flaw.
    fn devices_on_node(pools: &Pools) -> String {
        let node = json!({"metadata": {"name": "n"}});
        let node = Node::decode(&mut Default::default(), "n".into(), &node);
        let node_pools = pools.on_node(&node);
        let shown = node_pools.iter().map(|node_pool| match node_pool.flaw {
            Some(flaw) => format!("{flaw:?}"),
            None => node_pool.slices().flat_map(|slice| &slice.devices).map(|device| &*device.name).collect(),
        });
        shown.collect()
    }

    fn slice(node: &str, generation: i64, count: i64, devices: &[&str]) -> Arc<Slice> {
        let devices: Vec<Value> = devices.iter().map(|name| json!({"name": name})).collect();
        let pool = json!({"name": "p", "generation": generation, "resourceSliceCount": count});
        let slice = json!({"spec": {"driver": "d", "nodeName": node, "pool": pool, "devices": devices}});
        Arc::new(Slice::decode(&mut Default::default(), &slice))
    }

    #[test]
    fn a_node_gets_the_devices_of_complete_pools_in_their_newest_generation() {
        for (slices, expected) in [
            (vec![slice("m", 1, 1, &["a"])], ""),
            (vec![slice("n", 1, 1, &["a"])], "a"),
            (vec![slice("n", 1, 1, &["a"]), slice("n", 2, 1, &["b"])], "b"),
            (vec![slice("n", 1, 1, &["a"]), slice("m", 2, 1, &["b"])], ""),
            (vec![slice("n", 1, 2, &["a"])], "Incomplete"),
            // The pool is complete if its number of slices matches all slices, or the slices for the node.
            (vec![slice("n", 1, 2, &["a"]), slice("m", 1, 2, &["b"])], "a"),
            (vec![slice("n", 1, 1, &["a"]), slice("m", 1, 1, &["b"])], "a"),
            // Two devices may have equal names if they are on different nodes.
            (vec![slice("n", 1, 2, &["a"]), slice("m", 1, 2, &["a"])], "a"),
            (vec![slice("n", 1, 2, &["a"]), slice("n", 1, 2, &["a"])], "Invalid"),
        ] {
            let mut pools = Pools::default();
            for (at, slice) in slices.iter().enumerate() {
                pools.slice_changed(&Key::cluster(&at.to_string()), None, Some(slice));
            }
            assert_eq!(devices_on_node(&pools), expected, "{slices:?}");
        }
    }

    #[test]
    fn a_pool_follows_its_slices() {
        let mut pools = Pools::default();
        let (key, first, second) = (Key::cluster("s"), slice("n", 1, 1, &["a"]), slice("n", 1, 1, &["b"]));
        pools.slice_changed(&key, None, Some(&first));
        assert_eq!(devices_on_node(&pools), "a");
        pools.slice_changed(&key, Some(&first), Some(&second));
        assert_eq!((devices_on_node(&pools), pools.scans()), ("b".into(), 2));
        let other = Key::cluster("t");
        pools.slice_changed(&other, None, Some(&first));
        assert_eq!(devices_on_node(&pools), "Incomplete", "there is one too many");
        pools.slice_changed(&other, Some(&first), None);
        assert_eq!((devices_on_node(&pools), pools.scans()), ("b".into(), 4));
        pools.slice_changed(&key, Some(&second), None);
        assert_eq!(devices_on_node(&pools), "");
        assert_eq!(pools, Pools::default());
    }
}
