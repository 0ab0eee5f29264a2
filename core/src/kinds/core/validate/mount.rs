//! Validation of volume mounts and block devices of containers.

use super::volume::Volumes;
use crate::kinds::rules::{At, Seen, descending_path, has_backsteps, need};
use crate::refusal::Causes;
use std::collections::BTreeSet;

const PROPAGATIONS: &[&str] = &["Bidirectional", "HostToContainer", "None"];
const RECURSIVE: &[&str] = &["Disabled", "Enabled", "IfPossible"];

/// Validates `volumeMounts` and `volumeDevices` of a container: no volume and no path is in both.
pub(super) fn mounts_and_devices(container: At, volumes: &Volumes, causes: &mut Causes) {
    let (mounts, devices) = (container.get("volumeMounts"), container.get("volumeDevices"));
    let collect = |list: &At, field: &str| -> BTreeSet<String> {
        list.items().filter_map(|item| item.value[field].as_str()).map(str::to_owned).collect()
    };
    let (device_names, device_paths) = (collect(&devices, "name"), collect(&devices, "devicePath"));
    let (mount_names, mount_paths) = (collect(&mounts, "name"), collect(&mounts, "mountPath"));
    let privileged = container.value["securityContext"]["privileged"] == true;

    let mut seen = Seen::default();
    for mount in mounts.items() {
        let (name, path) = (mount.get("name"), mount.get("mountPath"));
        need(name, causes);
        if !volumes.contains_key(name.text()) {
            causes.push(name.not_found());
        }
        need(path, causes);
        if seen.again(&path.text().into()) {
            causes.push(path.invalid_as(path.text(), "must be unique"));
        }
        if device_names.contains(name.text()) {
            causes.push(name.invalid("must not already exist in volumeDevices"));
        }
        if device_paths.contains(path.text()) {
            causes.push(path.invalid("must not already exist as a path in volumeDevices"));
        }
        below(mounts, mount, causes);
        propagation(mounts, mount, privileged, causes);
    }

    let (mut names, mut paths) = (Seen::default(), Seen::default());
    for device in devices.items() {
        let (name, path) = (device.get("name"), device.get("devicePath"));
        need(name, causes);
        if !name.is_empty() && names.again(name.value) {
            causes.push(name.invalid("must be unique"));
        }
        match volumes.get(name.text()) {
            None => causes.push(name.not_found()),
            Some(&("persistentVolumeClaim" | "ephemeral")) => {}
            Some(_) => {
                let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                causes.push(name.invalid(detail));
            }
        }
        need(path, causes);
        if has_backsteps(path.text()) {
            causes.push(path.invalid("can not contain backsteps ('..')"));
        } else if paths.again(&path.text().into()) {
            causes.push(path.invalid_as(path.text(), "must be unique"));
        }
        if mount_names.contains(name.text()) {
            causes.push(name.invalid("must not already exist in volumeMounts"));
        }
        if mount_paths.contains(path.text()) {
            causes.push(path.invalid("must not already exist as a path in volumeMounts"));
        }
    }
}

/// Validates `subPath` and `subPathExpr`. Kubernetes omits the item's index from their paths.
fn below(list: At, mount: At, causes: &mut Causes) {
    let (plain, expanded) = (mount.get("subPath"), mount.get("subPathExpr"));
    descending_path(list.get("subPath").holding(plain.value), causes);
    if !expanded.is_empty() && !plain.is_empty() {
        causes.push(expanded.invalid("subPathExpr and subPath are mutually exclusive"));
    }
    descending_path(list.get("subPathExpr").holding(expanded.value), causes);
}

/// Validates `mountPropagation` and `recursiveReadOnly`. Kubernetes omits the item's index from their paths, too.
fn propagation(list: At, mount: At, privileged: bool, causes: &mut Causes) {
    let value = mount.get("mountPropagation");
    if value.is_set() {
        let at = list.get("mountPropagation").holding(value.value);
        if !PROPAGATIONS.contains(&at.text()) {
            causes.push(at.not_supported(PROPAGATIONS));
        }
        if at.text() == "Bidirectional" && !privileged {
            causes.push(at.forbidden("Bidirectional mount propagation is available only to privileged containers"));
        }
    }
    let recursive = mount.get("recursiveReadOnly");
    if !recursive.is_set() || recursive.text() == "Disabled" {
        return;
    }
    let at = list.get("recursiveReadOnly").holding(recursive.value);
    if !RECURSIVE.contains(&at.text()) {
        causes.push(at.not_supported(RECURSIVE));
        return;
    }
    if !mount.get("readOnly").is_true() {
        causes.push(at.forbidden("may only be specified when readOnly is true"));
    }
    if !matches!(value.text(), "" | "None") {
        causes.push(at.forbidden("may only be specified when mountPropagation is None or not specified"));
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::check_rows;
    use holdfast_value::json;

    #[test]
    fn each_rule_of_mounts_and_devices() {
        let good = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default"},
            "spec": {
                "containers": [{"name": "a", "image": "a",
                    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                    "volumeDevices": [{"name": "d", "devicePath": "/dev/d"}]}],
                "volumes": [{"name": "v"}, {"name": "d", "persistentVolumeClaim": {"claimName": "d"}}],
            },
        });
        let (mounts, devices) = ("/spec/containers/0/volumeMounts", "/spec/containers/0/volumeDevices");
        let mount = |change: holdfast_value::Value| {
            let mut mount = json!({"name": "v", "mountPath": "/v"});
            change.as_object().expect("fields").iter().for_each(|(k, v)| mount[k] = v.clone());
            json!([mount])
        };
        check_rows(
            &good,
            &[
                (mounts, mount(json!({"name": "w"})), "spec.containers[0].volumeMounts[0].name: Not found: \"w\""),
                (
                    mounts,
                    json!([{"name": "v", "mountPath": "/v"}, {"name": "v", "mountPath": "/v"}]),
                    "spec.containers[0].volumeMounts[1].mountPath: Invalid value: \"/v\": must be unique",
                ),
                (
                    mounts,
                    mount(json!({"mountPath": ""})),
                    "spec.containers[0].volumeMounts[0].mountPath: Required valu",
                ),
                (mounts, mount(json!({"subPath": "a/b"})), ""),
                (
                    mounts,
                    mount(json!({"subPath": "/a"})),
                    "spec.containers[0].volumeMounts.subPath: Invalid value: \"/a\": must be a relative path",
                ),
                (
                    mounts,
                    mount(json!({"subPath": "a/../b"})),
                    "spec.containers[0].volumeMounts.subPath: Invalid value: \"a/../b\": must not contain '..'",
                ),
                (
                    mounts,
                    mount(json!({"subPath": "a", "subPathExpr": "b"})),
                    "spec.containers[0].volumeMounts[0].subPathExpr: Invalid value: \"b\": subPathExpr and subPath are",
                ),
                (
                    mounts,
                    mount(json!({"mountPropagation": "Bidirectional"})),
                    "spec.containers[0].volumeMounts.mountPropagation: Forbidden: Bidirectional mount propagation is",
                ),
                (
                    mounts,
                    mount(json!({"mountPropagation": "Up"})),
                    "spec.containers[0].volumeMounts.mountPropagation: Unsupported value: \"Up\"",
                ),
                (
                    mounts,
                    mount(json!({"recursiveReadOnly": "Enabled"})),
                    "spec.containers[0].volumeMounts.recursiveReadOnly: Forbidden: may only be specified when readOnly",
                ),
                (mounts, mount(json!({"recursiveReadOnly": "Enabled", "readOnly": true})), ""),
                (
                    devices,
                    json!([{"name": "v", "devicePath": "/dev/d"}]),
                    "spec.containers[0].volumeDevices[0].name: Invalid value: \"v\": can only use volume source type",
                ),
                (
                    devices,
                    json!([{"name": "d", "devicePath": "/v"}]),
                    "spec.containers[0].volumeDevices[0].devicePath: Invalid value: \"/v\": must not already exist as",
                ),
                (
                    devices,
                    json!([{"name": "d", "devicePath": "/a/../b"}]),
                    "spec.containers[0].volumeDevices[0].devicePath: Invalid value: \"/a/../b\": can not contain",
                ),
                (devices, json!([{"name": "e", "devicePath": "/e"}]), "spec.containers[0].volumeDevices[0].name: Not"),
            ],
        );
    }
}
