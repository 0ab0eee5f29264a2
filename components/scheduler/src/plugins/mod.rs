//! The plug-ins of Kubernetes' scheduler, each in its own file, and the table of all plug-ins.

pub mod allocation;
pub mod balanced_allocation;
pub mod default_preemption;
pub mod default_selector;
pub mod devices;
pub mod dynamic_resources;
pub mod gang_scheduling;
pub mod image_locality;
pub mod inter_pod_affinity;
pub mod legacy;
pub mod marker;
pub mod node_affinity;
pub mod node_name;
pub mod node_ports;
pub mod node_resources_fit;
pub mod node_unschedulable;
pub mod node_volume_limits;
pub mod pod_topology_spread;
pub mod scheduling_gates;
pub mod service_affinity;
pub mod taint_toleration;
mod topology_domains;
pub mod volume_binding;
pub mod volume_restrictions;
pub mod volume_zone;

use crate::plugin::{ExtensionPoint, Plugin};
use allocation::Strategy;
use marker::PlaceholderPlugin;
use std::sync::Arc;

/// One plug-in that a configuration can enable.
pub struct PluginEntry {
    pub name: &'static str,
    /// The points at which the plug-in can be enabled.
    pub points: &'static [ExtensionPoint],
    /// The weight of the plug-in's score if a configuration does not list the plug-in.
    pub weight: i64,
    /// Whether the plug-in is enabled without any configuration.
    pub by_default: bool,
    /// Makes the plug-in with its default arguments.
    pub build: fn() -> Arc<dyn Plugin>,
}

use ExtensionPoint::*;

const fn row(
    name: &'static str,
    points: &'static [ExtensionPoint],
    weight: i64,
    build: fn() -> Arc<dyn Plugin>,
) -> PluginEntry {
    PluginEntry { name, points, weight, by_default: true, build }
}

const fn on_demand(
    name: &'static str,
    points: &'static [ExtensionPoint],
    build: fn() -> Arc<dyn Plugin>,
) -> PluginEntry {
    PluginEntry { name, points, weight: 1, by_default: false, build }
}

/// All plug-ins in their default order. The order of filters decides which reason is reported if several filters would
/// reject a node.
pub static PLUGINS: &[PluginEntry] = &[
    row(scheduling_gates::NAME, &[PreEnqueue], 0, || Arc::new(scheduling_gates::SchedulingGates)),
    row(marker::PRIORITY_SORT, &[QueueSort], 0, || Arc::new(PlaceholderPlugin(marker::PRIORITY_SORT))),
    row(node_unschedulable::NAME, &[Filter], 0, || Arc::new(node_unschedulable::NodeUnschedulable)),
    row(node_name::NAME, &[Filter], 0, || Arc::new(node_name::NodeName)),
    row(taint_toleration::NAME, &[Filter, PreScore, Score], 3, || Arc::new(taint_toleration::TaintToleration)),
    row(node_affinity::NAME, &[PreFilter, Filter, PreScore, Score], 2, || {
        Arc::new(node_affinity::NodeAffinity::default())
    }),
    row(node_ports::NAME, &[PreFilter, Filter], 0, || Arc::new(node_ports::NodePorts)),
    row(node_resources_fit::NAME, &[PreFilter, Filter, PreScore, Score], 1, || {
        Arc::new(node_resources_fit::NodeResourcesFit::default())
    }),
    row(volume_restrictions::NAME, &[PreFilter, Filter], 0, || Arc::new(volume_restrictions::VolumeRestrictions)),
    row(node_volume_limits::NAME, &[PreFilter, Filter], 0, || Arc::new(node_volume_limits::NodeVolumeLimits)),
    row(volume_binding::NAME, &[PreFilter, Filter, PreScore, Score, Reserve, PreBind], 1, || {
        Arc::new(volume_binding::VolumeBinding::default())
    }),
    row(volume_zone::NAME, &[PreFilter, Filter], 0, || Arc::new(volume_zone::VolumeZone)),
    row(pod_topology_spread::NAME, &[PreFilter, Filter, PreScore, Score], 2, || {
        Arc::new(pod_topology_spread::PodTopologySpread::default())
    }),
    row(inter_pod_affinity::NAME, &[PreFilter, Filter, PreScore, Score], 2, || {
        Arc::new(inter_pod_affinity::InterPodAffinity::default())
    }),
    row(dynamic_resources::NAME, &[PreEnqueue, PreFilter, Filter, PostFilter, Score, Reserve, PreBind], 2, || {
        Arc::new(dynamic_resources::DynamicResources::default())
    }),
    row(default_preemption::NAME, &[PostFilter], 0, || Arc::new(PlaceholderPlugin(default_preemption::NAME))),
    row(balanced_allocation::NAME, &[PreScore, Score], 1, || {
        Arc::new(balanced_allocation::BalancedAllocation::default())
    }),
    row(image_locality::NAME, &[Score], 1, || Arc::new(image_locality::ImageLocality)),
    row(marker::DEFAULT_BINDER, &[Bind], 0, || Arc::new(PlaceholderPlugin(marker::DEFAULT_BINDER))),
    on_demand(gang_scheduling::NAME, &[PreEnqueue, Permit], || Arc::new(gang_scheduling::GangScheduling)),
    on_demand(legacy::SELECTOR_SPREAD, &[PreScore, Score], || Arc::new(legacy::SelectorSpread)),
    on_demand(legacy::NODE_PREFER_AVOID_PODS, &[Score], || Arc::new(legacy::NodePreferAvoidPods)),
    on_demand(legacy::LEAST_ALLOCATED, &[PreScore, Score], || {
        allocation(legacy::LEAST_ALLOCATED, Strategy::LeastAllocated)
    }),
    on_demand(legacy::MOST_ALLOCATED, &[PreScore, Score], || {
        allocation(legacy::MOST_ALLOCATED, Strategy::MostAllocated)
    }),
    on_demand(legacy::REQUESTED_TO_CAPACITY_RATIO, &[PreScore, Score], || {
        allocation(legacy::REQUESTED_TO_CAPACITY_RATIO, Strategy::RequestedToCapacityRatio(vec![(0, 0), (100, 100)]))
    }),
    on_demand(legacy::RESOURCE_LIMITS, &[PreScore, Score], || Arc::new(legacy::ResourceLimits)),
    on_demand(legacy::NODE_LABEL, &[Filter, Score], || Arc::new(legacy::NodeLabel::default())),
    on_demand(service_affinity::NAME, &[PreFilter, Filter, Score], || {
        Arc::new(service_affinity::ServiceAffinity::default())
    }),
];

fn allocation(name: &'static str, strategy: Strategy) -> Arc<dyn Plugin> {
    Arc::new(legacy::AllocationPlugin { name, strategy, resources: allocation::default_resources() })
}

pub fn find(name: &str) -> Option<&'static PluginEntry> {
    PLUGINS.iter().find(|row| row.name == name)
}
