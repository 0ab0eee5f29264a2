//! Changes the resources of running containers: in-place resizing.

use super::container::{Container, ContainerKind};
use holdfast_core::schema::quantity;
use holdfast_value::Value;
use holdfast_world::Time;

/// A resize that the node cannot carry out.
#[derive(Debug)]
pub struct PendingResize {
    pub reason: &'static str,
    pub message: String,
}

/// Gives running containers the resources that their pod requests now, if the node has them.
pub fn apply_resize(
    pod: &Value,
    allocatable: &Value,
    containers: &mut [Container],
    now: Time,
) -> Option<PendingResize> {
    let changes = |container: &Container| container.resources != container.spec["resources"];
    if !containers.iter().any(changes) {
        return None;
    }
    if let Some(held) = infeasible(pod, allocatable) {
        return Some(held);
    }
    for container in containers.iter_mut().filter(|container| changes(container)) {
        let before = std::mem::replace(&mut container.resources, container.spec["resources"].clone());
        if matches!(container.sort, ContainerKind::Main | ContainerKind::Sidecar)
            && asks_for_restart(container, &before)
        {
            container.replace(now);
        }
    }
    None
}

/// Whether a changed resource has the resize policy RestartContainer.
fn asks_for_restart(container: &Container, before: &Value) -> bool {
    let policies = container.spec["resizePolicy"].as_array().into_iter().flatten();
    let mut restarting = policies.filter(|policy| policy["restartPolicy"] == "RestartContainer");
    restarting.any(|policy| {
        let name = policy["resourceName"].as_str().unwrap_or_default();
        ["requests", "limits"].iter().any(|part| before[part][name] != container.resources[part][name])
    })
}

fn infeasible(pod: &Value, allocatable: &Value) -> Option<PendingResize> {
    let containers = || pod["spec"]["containers"].as_array().into_iter().flatten();
    for (name, scale) in [("cpu", 1_000_000), ("memory", 1_000_000_000)] {
        let amount = |value: &Value| value.as_str().and_then(quantity::nanos).map(|nanos| nanos / scale);
        let requested: i128 = containers().filter_map(|spec| amount(&spec["resources"]["requests"][name])).sum();
        let Some(capacity) = amount(&allocatable[name]) else { continue };
        if requested > capacity {
            let message =
                format!("Node didn't have enough capacity: {name}, requested: {requested}, capacity: {capacity}");
            return Some(PendingResize { reason: "Infeasible", message });
        }
    }
    None
}
