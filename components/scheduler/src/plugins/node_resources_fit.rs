//! NodeResourcesFit: the free resources of a node must cover a pod's requests. The plug-in also scores nodes by how
//! much of their resources would be allocated.

use super::allocation::{self, ResourceWeight, ScoredResource, Strategy, default_resources};
use crate::object::pod::{Pod, Template};
use crate::object::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, Resources, is_extended};
use crate::object::{Key, Kind, Text};
use crate::plugin::{Filter, Plugin, PreFilterResult, QueueingHint, SchedulingCycle, Score};
use crate::snapshot::node_info::NodeInfo;
use crate::snapshot::{ClusterEvent, ObjectChange};
use crate::status::{Code, Reason, Rejection};
use std::sync::Arc;

pub const NAME: &str = "NodeResourcesFit";

#[derive(Debug)]
pub struct NodeResourcesFit {
    /// Extended resources, and prefixes of their names, that this plug-in does not check because extenders do.
    pub ignored: Arc<IgnoredResources>,
    pub strategy: Strategy,
    pub resources: Vec<ResourceWeight>,
}

#[derive(Debug, Default)]
pub struct IgnoredResources {
    pub resources: Vec<Text>,
    pub groups: Vec<Text>,
}

impl Default for NodeResourcesFit {
    fn default() -> Self {
        NodeResourcesFit { ignored: Arc::default(), strategy: Strategy::LeastAllocated, resources: default_resources() }
    }
}

impl IgnoredResources {
    fn includes(&self, name: &str) -> bool {
        let group = name.split('/').next().unwrap_or(name);
        is_extended(name)
            && (self.resources.iter().any(|one| &**one == name) || self.groups.iter().any(|one| &**one == group))
    }
}

impl Plugin for NodeResourcesFit {
    fn name(&self) -> &'static str {
        NAME
    }

    fn leave_to_extenders(&self, resources: &[Text]) -> Option<Arc<dyn Plugin>> {
        let ignored = IgnoredResources { resources: resources.to_vec(), groups: self.ignored.groups.clone() };
        let (strategy, resources) = (self.strategy.clone(), self.resources.clone());
        Some(Arc::new(NodeResourcesFit { ignored: Arc::new(ignored), strategy, resources }))
    }

    fn pre_filter(&self, _: SchedulingCycle<'_>) -> PreFilterResult {
        PreFilterResult::filter(FitFilter(self.ignored.clone()))
    }

    fn score(&self, cycle: SchedulingCycle<'_>) -> Option<Box<dyn Score>> {
        let resources = ScoredResource::for_pod(cycle, &self.resources, &cycle.pod.template.non_zero_requests);
        Some(Box::new(AllocationScore { strategy: self.strategy.clone(), resources }))
    }

    fn depends_on(&self, cycle: SchedulingCycle<'_>, kind: Kind, _: &Key) -> bool {
        let judged = kind == Kind::DeviceClass && !cycle.pod.template.extended.is_empty();
        judged || allocation::depends_on(cycle, &self.resources, kind)
    }

    fn concerns_other_pods(&self, event: &ClusterEvent) -> bool {
        event.concerns_nodes()
    }

    fn queueing_hint(&self, cycle: SchedulingCycle<'_>, event: &ClusterEvent) -> QueueingHint {
        let template = &cycle.pod.template;
        QueueingHint::queue_if(match &event.change {
            ObjectChange::Pod(Some(gone), None) => gone.node_name.is_some() || gone.nominated.is_some(),
            ObjectChange::Pod(Some(before), Some(after)) if after.uid == cycle.pod.uid => {
                requests_shrank(before, after, None)
            }
            ObjectChange::Pod(Some(before), Some(after)) => {
                after.node_name.is_some()
                    && before.node_name.is_some()
                    && requests_shrank(before, after, Some(template))
            }
            ObjectChange::Node(before, Some(after)) => {
                let fits = insufficient_resources(&self.ignored, cycle, &after.allocatable, &Resources::default(), 0)
                    .0
                    .is_empty();
                fits && before
                    .as_ref()
                    .is_none_or(|before| allocatable_grew(template, &before.allocatable, &after.allocatable))
            }
            ObjectChange::Other { after: true, .. } if event.kind == Kind::DeviceClass => {
                let mut resources = template.extended_resources();
                resources.any(|one| cycle.snapshot.devices().class_for(one).as_ref() == Some(&event.key.name))
            }
            _ => false,
        })
    }
}

/// Whether a pod's requests have shrunk. If the template `of` is given, only resources that the template requests are
/// compared.
fn requests_shrank(before: &Pod, after: &Pod, of: Option<&Template>) -> bool {
    let (before, after) = (before.effective_requests(), after.effective_requests());
    before.names().any(|name| after.get(name) < before.get(name) && of.is_none_or(|of| of.requests.get(name) > 0))
}

fn allocatable_grew(template: &Template, before: &Resources, after: &Resources) -> bool {
    after.pods > before.pods
        || template.requests.names().any(|name| template.requests.get(name) > 0 && after.get(name) > before.get(name))
}

/// Which resources a node lacks for the pod, as reasons, and whether it would lack any of them even without other pods
/// on it.
fn insufficient_resources(
    ignored: &IgnoredResources,
    cycle: SchedulingCycle<'_>,
    allocatable: &Resources,
    used: &Resources,
    pods: usize,
) -> (Vec<Reason>, bool) {
    let (mut reasons, mut never): (Vec<Reason>, bool) = (Vec::new(), false);
    if i64::try_from(pods).is_ok_and(|pods| pods + 1 > allocatable.pods) {
        reasons.push("Too many pods".into());
    }
    let requested = &cycle.pod.template.requests;
    if requested.is_zero() {
        return (reasons, never);
    }
    let mut compare = |name: &str, requested: i64, allocatable: i64, used: i64, reason: fn(&str) -> Reason| {
        if requested > 0 && requested > allocatable.saturating_sub(used) {
            reasons.push(reason(name));
            never |= requested > allocatable;
        }
    };
    compare(CPU, requested.milli_cpu, allocatable.milli_cpu, used.milli_cpu, |_| "Insufficient cpu".into());
    compare(MEMORY, requested.memory, allocatable.memory, used.memory, |_| "Insufficient memory".into());
    compare(
        EPHEMERAL_STORAGE,
        requested.ephemeral_storage,
        allocatable.ephemeral_storage,
        used.ephemeral_storage,
        |_| "Insufficient ephemeral-storage".into(),
    );
    for (name, amount) in &requested.scalars {
        // If the node does not have the resource itself and devices satisfy it, the plug-in DynamicResources checks it.
        let is_devices = || allocatable.get(name) == 0 && cycle.snapshot.devices().class_for(name).is_some();
        if !ignored.includes(name) && !is_devices() {
            compare(name, *amount, allocatable.get(name), used.get(name), |name| format!("Insufficient {name}").into());
        }
    }
    (reasons, never)
}

struct FitFilter(Arc<IgnoredResources>);

impl Filter for FitFilter {
    fn check(&self, cycle: SchedulingCycle<'_>, node: &NodeInfo) -> Result<(), Rejection> {
        let allocatable = &node.node.allocatable;
        let (reasons, never) = insufficient_resources(&self.0, cycle, allocatable, &node.requested, node.pods.len());
        if reasons.is_empty() {
            return Ok(());
        }
        let code = if never { Code::UnschedulableAndUnresolvable } else { Code::Unschedulable };
        Err(Rejection { code, plugin: NAME, reasons })
    }

    fn clone_box(&self) -> Box<dyn Filter> {
        Box::new(FitFilter(self.0.clone()))
    }
}

struct AllocationScore {
    strategy: Strategy,
    resources: Vec<ScoredResource>,
}

impl Score for AllocationScore {
    fn score(&self, cycle: SchedulingCycle<'_>, node: &NodeInfo) -> i64 {
        self.strategy.score(cycle, &self.resources, node, &cycle.pod.template.non_zero_requests)
    }
}
