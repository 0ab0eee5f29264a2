//! PodTopologyLabels, LimitPodHardAntiAffinityTopology and ExtendedResourceToleration.

use super::pods::list;
use crate::admission::{Attributes, Body, Operation};
use crate::kinds::known::{BINDING, NODE, POD};
use crate::object::meta::{metadata_mut, object_mut};
use crate::pipeline::effect::Stop;
use holdfast_value::{CompactString, Value};

/// The only kind of target that a Binding may have.
const NODE_KIND: &str = NODE.kind;
const LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// PodTopologyLabels: copies the node's topology labels to a pod when the pod gets its node.
pub(super) fn labels(attributes: &mut Attributes) -> Result<(), Stop> {
    let node = if attributes.body == Body::Part(BINDING) {
        let target = &attributes.object["target"];
        target["name"].as_str().filter(|_| matches!(target["kind"].as_str(), None | Some("") | Some(NODE_KIND)))
    } else if attributes.creates(POD) {
        attributes.object["spec"]["nodeName"].as_str()
    } else {
        None
    };
    let node = node.filter(|node| !node.is_empty()).and_then(|node| attributes.entry(NODE, "", node));
    for label in node.iter().flat_map(|_| LABELS) {
        if let Some(value) = node.as_ref().and_then(|node| node.index.label(label)) {
            let metadata = metadata_mut(attributes.fields_mut());
            object_mut(metadata, "labels").insert(label, value.into());
        }
    }
    Ok(())
}

/// LimitPodHardAntiAffinityTopology: refuses a pod with a required anti-affinity term whose topology key is not
/// `kubernetes.io/hostname`.
pub(super) fn limit_anti_affinity(attributes: &mut Attributes) -> Result<(), Stop> {
    const HOST: &str = "kubernetes.io/hostname";
    let is_write = matches!(attributes.operation, Operation::Create | Operation::Update);
    if !is_write || !attributes.is_of(POD) {
        return Ok(());
    }
    let terms =
        &attributes.object["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let other = list(terms).filter_map(|term| term["topologyKey"].as_str()).find(|key| *key != HOST);
    match other {
        Some(key) => Err(attributes.forbidden(format!(
            "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {HOST} is allowed"
        ))),
        None => Ok(()),
    }
}

/// ExtendedResourceToleration: a pod that requests extended resources tolerates taints with the resources' names.
pub(super) fn extended_resources(attributes: &mut Attributes) -> Result<(), Stop> {
    let is_write = matches!(attributes.operation, Operation::Create | Operation::Update);
    if !is_write || !attributes.is_of(POD) {
        return Ok(());
    }
    let spec = &attributes.object["spec"];
    let containers = ["containers", "initContainers"].into_iter().flat_map(|field| list(&spec[field]));
    let requests = containers.filter_map(|container| container["resources"]["requests"].as_object());
    let names: std::collections::BTreeSet<String> = requests
        .flat_map(|requests| requests.keys())
        .filter(|name| is_extended(name))
        .map(CompactString::to_string)
        .collect();
    let wanted = names
        .into_iter()
        .map(|name| holdfast_value::json!({"key": name, "operator": "Exists", "effect": "NoSchedule"}));
    let missing: Vec<Value> =
        wanted.filter(|toleration| !list(&spec["tolerations"]).any(|own| own == toleration)).collect();
    super::tolerations::add(&mut attributes.object, missing);
    Ok(())
}

/// Whether a resource has a domain outside `kubernetes.io`. Names that begin with `requests.` are names of quota
/// limits.
fn is_extended(name: &str) -> bool {
    let Some((domain, _)) = name.split_once('/') else { return false };
    domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io") && !name.starts_with("requests.")
}
