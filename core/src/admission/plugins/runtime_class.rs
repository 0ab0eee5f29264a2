//! RuntimeClass: copies the overhead and scheduling of a pod's RuntimeClass into the pod.

use super::tolerations;
use crate::admission::Attributes;
use crate::kinds::known::{POD, RUNTIME_CLASS};
use crate::object::meta::object_mut;
use crate::pipeline::effect::Stop;
use crate::schema::quantity;
use holdfast_value::Value;
use std::cmp::Ordering;

const OTHER_OVERHEAD: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
const OWN_OVERHEAD: &str = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";

pub(super) fn mutate(attributes: &mut Attributes) -> Result<(), Stop> {
    if !attributes.creates(POD) {
        return Ok(());
    }
    let Some(class) = class(attributes)? else { return Ok(()) };
    let overhead = &class["overhead"]["podFixed"];
    if overhead.is_object() {
        let own = &attributes.object["spec"]["overhead"];
        if !own.is_null() && !is_same(own, overhead) {
            return Err(attributes.forbidden(OTHER_OVERHEAD));
        }
        object_mut(attributes.fields_mut(), "spec").insert("overhead", overhead.clone());
    }
    let scheduling = &class["scheduling"];
    for (key, value) in scheduling["nodeSelector"].as_object().into_iter().flatten() {
        let wanted = value.as_str().unwrap_or("");
        if let Some(own) = attributes.object["spec"]["nodeSelector"][key].as_str().filter(|own| *own != wanted) {
            return Err(attributes.forbidden(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {wanted}; pod.spec.nodeSelector[{key}] = {own}"
            )));
        }
        let spec = object_mut(attributes.fields_mut(), "spec");
        object_mut(spec, "nodeSelector").insert(key.clone(), value.clone());
    }
    if scheduling["tolerations"].as_array().is_some_and(|asked| !asked.is_empty()) {
        let merged = tolerations::merged(&attributes.object["spec"]["tolerations"], &scheduling["tolerations"]);
        object_mut(attributes.fields_mut(), "spec").insert("tolerations", merged.into());
    }
    Ok(())
}

pub(super) fn validate(attributes: &mut Attributes) -> Result<(), Stop> {
    if !attributes.creates(POD) {
        return Ok(());
    }
    let class = class(attributes)?.unwrap_or_default();
    let (own, given) = (&attributes.object["spec"]["overhead"], &class["overhead"]["podFixed"]);
    match (class["overhead"].is_object(), own.is_null()) {
        (true, _) if !is_same(own, given) => Err(attributes.forbidden(OTHER_OVERHEAD)),
        (false, false) => Err(attributes.forbidden(OWN_OVERHEAD)),
        _ => Ok(()),
    }
}

fn class(attributes: &Attributes) -> Result<Option<Value>, Stop> {
    let Some(name) = attributes.object["spec"]["runtimeClassName"].as_str().filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    match attributes.find(RUNTIME_CLASS, "", name) {
        Some(class) => Ok(Some(class)),
        None => Err(attributes.forbidden(format!("pod rejected: RuntimeClass \"{name}\" not found"))),
    }
}

/// Whether two resource lists are equal as quantities.
fn is_same(one: &Value, other: &Value) -> bool {
    let fields = |list: &Value| list.as_object().cloned().unwrap_or_default();
    let (one, other) = (fields(one), fields(other));
    let equal = |a: &Value, b: &Value| {
        quantity::compare(a.as_str().unwrap_or(""), b.as_str().unwrap_or("")) == Some(Ordering::Equal)
    };
    one.len() == other.len() && one.iter().all(|(name, amount)| other.get(name).is_some_and(|more| equal(amount, more)))
}
