//! Counts the devices of a DeviceClass on a node, for scores of extended resources that devices satisfy.

use super::expression::Expression;
use crate::object::Text;
use crate::object::node::Node;
use crate::snapshot::Devices;
use std::sync::Arc;

/// Counts the devices of one DeviceClass.
#[derive(Debug)]
pub struct DeviceCounter {
    /// The expressions that a device must satisfy to belong to the class.
    selectors: Vec<Arc<Expression>>,
}

impl DeviceCounter {
    /// Returns `None` if the class does not exist, or one of its expressions does not compile; then no node has devices
    /// of the class.
    pub fn new(devices: &Devices, class: &Text) -> Option<DeviceCounter> {
        let class = devices.class(class)?;
        let compile = |source: &Text| Some(devices.searches().expressions.get(source).ok()?.0);
        Some(DeviceCounter { selectors: class.selectors.iter().map(compile).collect::<Option<_>>()? })
    }

    /// How many devices of the class a node has, and how many of them are in use. Invalid and incomplete pools count,
    /// too, and a shared device is in use if any part of it is in use. Returns `None` if an expression failed for a
    /// device.
    pub fn count(&self, devices: &Devices, node: &Node) -> Option<(i64, i64)> {
        let (mut total, mut in_use) = (0, 0);
        for slice in devices.pools().on_node(node).iter().flat_map(|node_pool| node_pool.slices()) {
            for (number, device) in slice.devices.iter().enumerate() {
                if !slice.node_selection_of(device).includes(&node.name, &node.labels) {
                    continue;
                }
                let mut selected = true;
                for expression in &self.selectors {
                    selected &= devices.searches().expressions.holds(expression, slice, number)?;
                    if !selected {
                        break;
                    }
                }
                let id = (slice.driver.clone(), slice.pool.clone(), device.name.clone());
                let devices_in_use = devices.in_use();
                total += i64::from(selected);
                in_use += i64::from(selected && (devices_in_use.is_whole(&id) || devices_in_use.is_shared(&id)));
            }
        }
        Some((total, in_use))
    }
}
