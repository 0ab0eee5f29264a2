//! Validation of annotations of pods that have a meaning: mirrors of static pods, the deletion cost, and older security
//! settings, which must agree with the newer fields.

use super::security::CONTAINER_LISTS;
use crate::kinds::rules::{At, descending_path};
use crate::refusal::Causes;
use holdfast_value::Value;
use std::collections::BTreeSet;

pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const LOCALHOST: &str = "localhost/";

/// Validates each annotation without regard to the fields of the same meaning.
pub(super) fn check(annotations: At, spec: At, causes: &mut Causes) {
    let lists = CONTAINER_LISTS.iter().filter_map(|list| spec.value[*list].as_array()).flatten();
    let containers: BTreeSet<&str> = lists.filter_map(|container| container["name"].as_str()).collect();
    for (key, at) in annotations.entries() {
        let text = at.text();
        if key == MIRROR && spec.get("nodeName").is_empty() {
            causes.push(at.invalid("must set spec.nodeName if mirror pod annotation is set"));
        } else if key == DELETION_COST && !is_cost(text) {
            causes.push(at.invalid("must be a 32bit integer"));
        } else if key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER) {
            let at = annotations.get(key);
            match text.strip_prefix(LOCALHOST) {
                Some(path) => descending_path(at.holding(&Value::from(path)), causes),
                None if matches!(text, "runtime/default" | "docker/default" | "unconfined") => {}
                None => causes.push(at.invalid("must be a valid seccomp profile")),
            }
        } else if let Some(container) = key.strip_prefix(APP_ARMOR) {
            if !containers.contains(container) {
                causes.push(at.invalid_as(container, "container not found"));
            }
            if !matches!(text, "" | "runtime/default" | "unconfined") && !text.starts_with(LOCALHOST) {
                causes.push(at.invalid(&format!("invalid AppArmor profile name: {}", at.value)));
            }
        }
    }
}

/// Reports annotations whose values differ from the fields with the same meaning.
pub(super) fn agree(annotations: &Value, spec: At, causes: &mut Causes) {
    let context = spec.get("securityContext");
    profiles_agree(&annotations[SECCOMP_POD], context.get("seccompProfile"), "seccomp", causes);
    let whole_app_armor = context.get("appArmorProfile");
    let on_windows = spec.value["os"]["name"] == "windows";
    for list in CONTAINER_LISTS {
        for container in spec.get(list).items() {
            let name = container.value["name"].as_str().unwrap_or_default();
            let context = container.get("securityContext");
            let annotation = &annotations[format!("{SECCOMP_CONTAINER}{name}")];
            profiles_agree(annotation, context.get("seccompProfile"), "seccomp", causes);
            if !on_windows {
                let own = context.get("appArmorProfile");
                let profile = if own.is_set() { own } else { own.holding(whole_app_armor.value) };
                profiles_agree(&annotations[format!("{APP_ARMOR}{name}")], profile, "apparmor", causes);
            }
        }
    }
}

fn profiles_agree(annotation: &Value, profile: At, what: &str, causes: &mut Causes) {
    let Some(annotation) = annotation.as_str().filter(|_| profile.is_set()) else { return };
    let (ty, local) = (profile.get("type"), profile.get("localhostProfile"));
    let path = annotation.strip_prefix(LOCALHOST);
    let same_type = match ty.text() {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => annotation == "runtime/default" || (what == "seccomp" && annotation == "docker/default"),
        "Localhost" => path.is_some(),
        _ => true,
    };
    if !same_type {
        causes.push(ty.forbidden(&format!("{what} type in annotation and field must match")));
    } else if ty.text() == "Localhost" && path != local.value.as_str() {
        causes.push(local.forbidden(&format!("{what} profile in annotation and field must match")));
    }
}

/// Reports changes of annotations that cannot change.
pub(super) fn update(new: At, old: &Value, causes: &mut Causes) {
    let fixed = |key: &str| match key {
        MIRROR => Some("mirror pod annotation"),
        _ if key.starts_with(APP_ARMOR) => Some("AppArmor annotations"),
        _ => None,
    };
    for (key, value) in old.as_object().into_iter().flatten() {
        if let Some(what) = fixed(key).filter(|_| new.value[key] != *value) {
            causes.push(new.key(key).forbidden(&format!("may not remove or update {what}")));
        }
    }
    for (key, at) in new.entries() {
        if let Some(what) = fixed(key).filter(|_| old[key].is_null()) {
            causes.push(at.forbidden(&format!("may not add {what}")));
        }
    }
}

/// Whether the text is a 32-bit integer in its plain spelling.
fn is_cost(text: &str) -> bool {
    let plain = text == "0" || text.starts_with('-') || text.starts_with(|c: char| matches!(c, '1'..='9'));
    plain && text.parse::<i32>().is_ok()
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::{check_rows, check_updates};
    use holdfast_value::json;

    #[test]
    fn each_rule_of_a_pods_annotations() {
        let good = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "namespace": "default", "annotations": {"x": "y"}},
            "spec": {"containers": [{"name": "a", "image": "a",
                "securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}}]},
        });
        let armor = "/metadata/annotations/container.apparmor.security.beta.kubernetes.io~1";
        check_rows(
            &good,
            &[
                (
                    "/metadata/annotations/controller.kubernetes.io~1pod-deletion-cost",
                    json!("+1"),
                    "metadata.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: \"+1\": must be",
                ),
                ("/metadata/annotations/controller.kubernetes.io~1pod-deletion-cost", json!("-100"), ""),
                (
                    "/metadata/annotations/kubernetes.io~1config.mirror",
                    json!("x"),
                    "metadata.annotations[kubernetes.io/config.mirror]: Invalid value: \"x\": must set spec.nodeName",
                ),
                (&format!("{armor}a"), json!("runtime/default"), ""),
                (
                    &format!("{armor}a"),
                    json!("unconfined"),
                    "spec.containers[0].securityContext.appArmorProfile.type: Forbidden: apparmor type in annotation",
                ),
                (
                    &format!("{armor}b"),
                    json!("unconfined"),
                    "metadata.annotations[container.apparmor.security.beta.kubernetes.io/b]: Invalid value: \"b\": con",
                ),
                (
                    "/metadata/annotations/seccomp.security.alpha.kubernetes.io~1pod",
                    json!("mine"),
                    "metadata.annotations.seccomp.security.alpha.kubernetes.io/pod: Invalid value: \"mine\": must be a",
                ),
            ],
        );
        check_updates(
            &good,
            &[(
                &format!("{armor}a"),
                json!("runtime/default"),
                "metadata.annotations[container.apparmor.security.beta.kubernetes.io/a]: Forbidden: may not add AppArmo",
            )],
        );
    }
}
