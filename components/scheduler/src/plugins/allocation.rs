//! Scores nodes by how much of their resources would be allocated with the pod on them.

use super::devices::device_counter::DeviceCounter;
use crate::object::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, Resources, is_scalar};
use crate::object::{Kind, Text};
use crate::plugin::{MAX_SCORE, SchedulingCycle};
use crate::snapshot::node_info::NodeInfo;

/// A resource by which nodes are scored, with its weight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceWeight {
    pub name: Text,
    pub weight: i64,
}

/// The default resources: CPU and memory, with equal weights.
pub fn default_resources() -> Vec<ResourceWeight> {
    [CPU, MEMORY].map(|name| ResourceWeight { name: name.into(), weight: 1 }).into()
}

/// A resource by which nodes are scored for one pod.
#[derive(Debug)]
pub struct ScoredResource {
    pub name: Text,
    weight: i64,
    /// If the resource is an extended resource that devices satisfy: counts these devices, for nodes that do not have
    /// the resource itself.
    devices: Option<DeviceCounter>,
}

impl ScoredResource {
    /// Prepares the resources for scoring a pod that has these requests.
    pub fn for_pod(
        cycle: SchedulingCycle<'_>,
        resources: &[ResourceWeight],
        requested: &Resources,
    ) -> Vec<ScoredResource> {
        let devices = |name: &str| cycle.snapshot.devices().class_for(name).filter(|_| requested.get(name) != 0);
        let counted = |ResourceWeight { name, weight }: &ResourceWeight| ScoredResource {
            name: name.clone(),
            weight: *weight,
            devices: devices(name).and_then(|class| DeviceCounter::new(cycle.snapshot.devices(), &class)),
        };
        resources.iter().map(counted).collect()
    }

    /// The amount that the node can allocate, and the amount that is allocated with the pod on the node. Returns `None`
    /// if the resource does not count on this node.
    pub fn amounts(
        &self,
        cycle: SchedulingCycle<'_>,
        node: &NodeInfo,
        sums: &Resources,
        pod: i64,
    ) -> Option<(i64, i64)> {
        let name = &*self.name;
        // Other amounts that a node lists, such as its number of pods, do not count.
        let counts = if is_scalar(name) { pod != 0 } else { matches!(name, CPU | MEMORY | EPHEMERAL_STORAGE) };
        if !counts {
            return None;
        }
        let allocatable = node.node.allocatable.get(name);
        if allocatable != 0 {
            return Some((allocatable, sums.get(name).saturating_add(pod)));
        }
        let (allocatable, in_use) = self.devices.as_ref()?.count(cycle.snapshot.devices(), &node.node)?;
        (allocatable != 0).then(|| (allocatable, in_use.saturating_add(pod)))
    }
}

/// Whether the score of a pod depends on objects of this kind: objects about devices matter if devices satisfy a
/// resource that the pod requests.
pub fn depends_on(cycle: SchedulingCycle<'_>, resources: &[ResourceWeight], kind: Kind) -> bool {
    let template = &cycle.pod.template;
    let mut named = template.extended_resources().filter(|own| resources.iter().any(|one| one.name == **own));
    match kind {
        // A class that no longer names the resource may have satisfied it before the change, so only the pod's
        // resources are tested.
        Kind::DeviceClass => named.next().is_some(),
        Kind::ResourceClaim | Kind::ResourceSlice => named.any(|own| cycle.snapshot.devices().class_for(own).is_some()),
        _ => false,
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Strategy {
    LeastAllocated,
    MostAllocated,
    /// The points of a line, in ascending order: a utilization in percent, and the score at that utilization, from 0 to
    /// 100.
    RequestedToCapacityRatio(Vec<(i64, i64)>),
}

impl Strategy {
    pub fn score(
        &self,
        cycle: SchedulingCycle<'_>,
        resources: &[ScoredResource],
        node: &NodeInfo,
        pod: &Resources,
    ) -> i64 {
        let (mut sum, mut weights) = (0i64, 0i64);
        for resource in resources {
            let ScoredResource { name, weight, .. } = resource;
            // For processors and memory, containers without requests count with the default requests.
            let sums = if matches!(&**name, CPU | MEMORY) { &node.non_zero_requested } else { &node.requested };
            let Some((allocatable, requested)) = resource.amounts(cycle, node, sums, pod.get(name)) else { continue };
            let score = self.score_resource(allocatable, requested);
            if matches!(self, Strategy::RequestedToCapacityRatio(_)) && score <= 0 {
                continue;
            }
            sum = sum.saturating_add(score.saturating_mul(*weight));
            weights += weight;
        }
        match (self, weights) {
            (_, 0) => 0,
            (Strategy::RequestedToCapacityRatio(_), _) => (sum as f64 / weights as f64).round() as i64,
            _ => sum / weights,
        }
    }

    fn score_resource(&self, allocatable: i64, requested: i64) -> i64 {
        let percent = |part: i64| percent(part, allocatable);
        match self {
            Strategy::LeastAllocated if requested > allocatable => 0,
            Strategy::LeastAllocated => percent(allocatable.saturating_sub(requested)),
            Strategy::MostAllocated => percent(requested.min(allocatable)),
            Strategy::RequestedToCapacityRatio(shape) => {
                interpolate(shape, if requested > allocatable { 100 } else { percent(requested) })
            }
        }
    }
}

fn percent(part: i64, whole: i64) -> i64 {
    let percent = i128::from(part) * i128::from(MAX_SCORE) / i128::from(whole);
    i64::try_from(percent).unwrap_or(i64::MAX)
}

/// The score at the utilization `at`: interpolated between two points, and constant before the first and after the last
/// point.
fn interpolate(shape: &[(i64, i64)], at: i64) -> i64 {
    let after = shape.iter().position(|(x, _)| at <= *x);
    match after {
        None => shape.last().map_or(0, |(_, y)| *y),
        Some(0) => shape[0].1,
        Some(index) => {
            let ((x0, y0), (x1, y1)) = (shape[index - 1], shape[index]);
            y0 + (y1 - y0) * (at - x0) / (x1 - x0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::pod::Pod;
    use crate::object::{Key, StringPool};
    use crate::snapshot::Snapshot;
    use holdfast_value::{Value, json};

    #[test]
    fn scores_are_constant_beyond_the_ends_of_the_shape() {
        let shape = [(20, 30), (50, 100), (80, 0)];
        assert_eq!([0, 20, 35, 50, 65, 80, 100].map(|at| interpolate(&shape, at)), [30, 30, 65, 100, 50, 0, 0]);
    }

    /// The result of [`ScoredResource::amounts`] for each resource on the only node, for a pod that requests these
    /// amounts.
    fn shares(snapshot: &Snapshot, resources: &[(&str, i64)]) -> Vec<Option<(i64, i64)>> {
        let node = snapshot.nodes().next().unwrap();
        let requests: Value = resources.iter().map(|(name, requested)| (*name, json!(requested.to_string()))).collect();
        let pod = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}});
        let pod = Pod::decode(&mut StringPool::default(), Key::new("default", "p"), &pod);
        let cycle = SchedulingCycle { snapshot, pod: &pod };
        let weighted = |(name, _): &(&str, i64)| ResourceWeight { name: (*name).into(), weight: 1 };
        let weighted: Vec<ResourceWeight> = resources.iter().map(weighted).collect();
        let counted = ScoredResource::for_pod(cycle, &weighted, &pod.template.requests);
        let amounts = |(one, (_, requested)): (&ScoredResource, &(&str, i64))| {
            one.amounts(cycle, node, &node.requested, *requested)
        };
        counted.iter().zip(resources).map(amounts).collect()
    }

    fn with_node(allocatable: Value) -> Snapshot {
        let mut snapshot = Snapshot::new();
        let node = json!({"metadata": {"name": "n"}, "status": {"allocatable": allocatable}});
        snapshot.apply(Kind::Node, &Key::cluster("n"), Some(&node));
        snapshot
    }

    #[test]
    fn only_requested_node_resources_count() {
        let snapshot = with_node(json!({"cpu": "4", "pods": "9", "ephemeral-storage": "8", "example.com/a": "2"}));
        let requested =
            [("ephemeral-storage", 1), (CPU, 0), ("pods", 0), ("", 0), ("example.com/a", 0), ("example.com/b", 1)];
        assert_eq!(shares(&snapshot, &requested), [Some((8, 1)), Some((4000, 0)), None, None, None, None]);
        assert_eq!(shares(&snapshot, &[("example.com/a", 1)]), [Some((2, 1))]);
    }

    #[test]
    fn devices_count_as_the_extended_resource_of_their_class() {
        let mut snapshot = with_node(json!({"cpu": "4", "example.com/own": "2"}));
        snapshot.set_extended_resources(true);
        for name in ["gpu", "own"] {
            let good = json!([{"cel": {"expression": "device.attributes['d.example'].good"}}]);
            let class = json!({"spec": {"extendedResourceName": format!("example.com/{name}"), "selectors": good}});
            snapshot.apply(Kind::DeviceClass, &Key::cluster(name), Some(&class));
        }
        let device = |name: &str, good: bool| json!({"name": name, "attributes": {"good": {"bool": good}}});
        let devices = json!([device("a", true), device("b", true), device("c", false), device("d", true)]);
        for (node, devices) in [("n", &devices), ("m", &devices)] {
            let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 1});
            let slice = json!({"spec": {"driver": "d.example", "nodeName": node, "pool": pool, "devices": devices}});
            snapshot.apply(Kind::ResourceSlice, &Key::cluster(node), Some(&slice));
        }
        for (claim, device, admin) in [("x", "a", false), ("y", "c", false), ("z", "b", true)] {
            let result =
                json!({"request": "r", "driver": "d.example", "pool": "n", "device": device, "adminAccess": admin});
            let claim =
                (Key::new("default", claim), json!({"status": {"allocation": {"devices": {"results": [result]}}}}));
            snapshot.apply(Kind::ResourceClaim, &claim.0, Some(&claim.1));
        }
        let implied = "deviceclass.resource.kubernetes.io/gpu";
        assert_eq!(shares(&snapshot, &[("example.com/gpu", 1), (implied, 2)]), [Some((3, 2)), Some((3, 3))]);
        let own = [("example.com/own", 1), ("example.com/gpu", 0), ("example.com/none", 1)];
        assert_eq!(shares(&snapshot, &own), [Some((2, 1)), None, None], "a node has the resource itself");
        let class = json!({"spec": {"extendedResourceName": "example.com/gpu",
            "selectors": [{"cel": {"expression": "device.attributes['d.example'].absent"}}]}});
        snapshot.apply(Kind::DeviceClass, &Key::cluster("gpu"), Some(&class));
        assert_eq!(shares(&snapshot, &[("example.com/gpu", 1)]), [None], "nothing can be told");
    }

    #[test]
    fn percentages_of_large_amounts_do_not_overflow() {
        assert_eq!(percent(i64::MAX, i64::MAX), 100);
    }
}
