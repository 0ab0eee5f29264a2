//! AlwaysPullImages: sets the pull policy of all images of a pod to Always. The pod then runs only if its image pull
//! secrets allow each image, even if the node has the image already.

use super::pods::{CONTAINERS, containers, list};
use crate::admission::{Attributes, Operation};
use crate::kinds::known::POD;
use crate::object::meta::{fields_mut, object_mut};
use crate::pipeline::effect::Stop;
use crate::refusal::Cause;
use holdfast_value::Value;
use std::collections::BTreeSet;

const ALWAYS: &str = "Always";
const POLICY: &str = "pullPolicy";

pub(super) fn always_pull(attributes: &mut Attributes) -> Result<(), Stop> {
    if !concerns(attributes) {
        return Ok(());
    }
    let spec = object_mut(fields_mut(&mut attributes.object), "spec");
    for field in CONTAINERS {
        for container in spec.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten() {
            fields_mut(container).insert("imagePullPolicy", ALWAYS.into());
        }
    }
    for volume in spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(image) = volume.get_mut("image").and_then(Value::as_object_mut) {
            image.insert(POLICY, ALWAYS.into());
        }
    }
    Ok(())
}

pub(super) fn check_always_pull(attributes: &mut Attributes) -> Result<(), Stop> {
    if !concerns(attributes) {
        return Ok(());
    }
    let spec = &attributes.object["spec"];
    let wrong = |at: String, found: &Value| {
        let refused = (found != ALWAYS).then(|| Cause::not_supported(at, found, &[ALWAYS]));
        refused.map(|cause| cause.to_string())
    };
    let mut causes = Vec::new();
    for field in CONTAINERS {
        for (index, container) in list(&spec[field]).enumerate() {
            let at = format!("spec.{field}[{index}].imagePullPolicy");
            causes.extend(wrong(at, &container["imagePullPolicy"]));
        }
    }
    for (index, volume) in list(&spec["volumes"]).enumerate().filter(|(_, volume)| volume["image"].is_object()) {
        causes.extend(wrong(format!("spec.volumes[{index}].image.pullPolicy"), &volume["image"][POLICY]));
    }
    match causes.is_empty() {
        true => Ok(()),
        false => Err(attributes.forbidden(causes.join(", "))),
    }
}

/// Whether the write creates a pod or changes its images.
fn concerns(attributes: &Attributes) -> bool {
    if !attributes.is_on(POD) || !matches!(attributes.subresource(), "" | "ephemeralcontainers") {
        return false;
    }
    let images = |pod: &Value| {
        let spec = pod["spec"].clone();
        let of_containers = containers(&spec).map(|container| container["image"].clone());
        let of_volumes = list(&spec["volumes"]).map(|volume| volume["image"]["reference"].clone());
        of_containers.chain(of_volumes).filter_map(|image| image.as_str().map(str::to_owned)).collect::<BTreeSet<_>>()
    };
    match attributes.operation {
        Operation::Create => true,
        Operation::Update => !images(&attributes.object).is_subset(&images(attributes.old)),
        Operation::Delete | Operation::Connect => false,
    }
}
