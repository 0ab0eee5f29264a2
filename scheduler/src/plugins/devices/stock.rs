//! How many devices of a class there are on a node: what extended resources are scored by that devices stand for.

use super::expression::Expression;
use crate::object::node::Node;
use crate::object::{Key, Text};
use crate::snapshot::Snapshot;
use std::sync::Arc;

/// A class whose devices are counted.
#[derive(Debug)]
pub struct Stock {
    /// What its devices must be like.
    selectors: Vec<Arc<Expression>>,
}

impl Stock {
    /// `None` where there is no such class, or an expression of it is none: then nothing of it is anywhere.
    pub fn new(snapshot: &Snapshot, class: &Text) -> Option<Stock> {
        let class = snapshot.device_classes.get(&Key::cluster(class))?;
        let compile = |source: &Text| Some(snapshot.searches.expressions.get(source).ok()?.0);
        Some(Stock { selectors: class.selectors.iter().map(compile).collect::<Option<_>>()? })
    }

    /// How many devices of the class a node has, and how many of them are in use: also of pools with a flaw, and however
    /// little of a device that several share. `None` where an expression fails for one of them.
    pub fn count(&self, snapshot: &Snapshot, node: &Node) -> Option<(i64, i64)> {
        let (mut there, mut in_use) = (0, 0);
        for slice in snapshot.device_pools.near(node).iter().flat_map(|near| near.slices()) {
            for (number, device) in slice.devices.iter().enumerate() {
                if !slice.place_of(device).includes(&node.name, &node.labels) {
                    continue;
                }
                let mut selected = true;
                for expression in &self.selectors {
                    selected &= snapshot.searches.expressions.holds(expression, slice, number)?;
                    if !selected {
                        break;
                    }
                }
                let id = (slice.driver.clone(), slice.pool.clone(), device.name.clone());
                let taken = &snapshot.devices_taken;
                there += i64::from(selected);
                in_use += i64::from(selected && (taken.is_whole(&id) || taken.is_shared(&id)));
            }
        }
        Some((there, in_use))
    }
}
