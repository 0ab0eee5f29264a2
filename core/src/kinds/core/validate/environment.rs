//! Validation of environment variables, and of the pod fields that variables and files may contain.

use super::resources::text;
use crate::kinds::rules::{At, config_key, env_name, file_path, named_if_any, need, need_name};
use crate::object::names;
use crate::refusal::Causes;
use crate::schema::quantity;
use std::collections::BTreeMap;

/// The fields of a pod whose values an environment variable may have.
const VARIABLE_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// The fields of a pod whose values a file of a volume may have.
pub(super) const FILE_FIELDS: &[&str] =
    &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
/// Further fields that Kubernetes knows. `spec.host` is accepted; the others are refused with another message than
/// unknown fields.
const NAMED_FIELDS: &[&str] = &["spec.restartPolicy", "spec.schedulerName", "status.phase", "spec.host"];
const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const SIZES: &[&str] = &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

pub(super) fn variables(list: At, volumes: &BTreeMap<&str, &str>, causes: &mut Causes) {
    for variable in list.items() {
        need_name(variable.get("name"), env_name, causes);
        value_from(variable, volumes, causes);
    }
}

fn value_from(variable: At, volumes: &BTreeMap<&str, &str>, causes: &mut Causes) {
    let source = variable.get("valueFrom");
    if !source.is_set() {
        return;
    }
    let field = source.get("fieldRef");
    if field.is_set() {
        field_reference(field, VARIABLE_FIELDS, causes);
    }
    let resource = source.get("resourceFieldRef");
    if resource.is_set() {
        resource_reference(resource, false, causes);
    }
    for reference in ["configMapKeyRef", "secretKeyRef"] {
        let reference = source.get(reference);
        if reference.is_set() {
            let name = reference.get("name");
            causes.extend(names::subdomain(name.text()).iter().map(|message| name.invalid_as(name.text(), message)));
            need_name(reference.get("key"), config_key, causes);
        }
    }
    let file = source.get("fileKeyRef");
    if file.is_set() {
        file_reference(file, volumes, causes);
    }
    let count = source.value.as_object().map_or(0, |sources| sources.values().filter(|value| !value.is_null()).count());
    if count == 0 {
        let detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or \
                      `fileKeyRef`";
        causes.push(source.invalid_unshown(detail));
    } else if !variable.get("value").is_empty() {
        causes.push(source.invalid_unshown("may not be specified when `value` is not empty"));
    } else if count > 1 {
        causes.push(source.invalid_unshown("may not have more than one field specified at a time"));
    }
}

fn file_reference(file: At, volumes: &BTreeMap<&str, &str>, causes: &mut Causes) {
    need_name(file.get("key"), env_name, causes);
    let (path, volume) = (file.get("path"), file.get("volumeName"));
    need(path, causes);
    file_path(path, causes);
    need_name(volume, names::label, causes);
    match volumes.get(volume.text()) {
        None => causes.push(volume.not_found()),
        Some(source) if *source != "emptyDir" => {
            causes.push(volume.invalid("referenced volume must be of type emptyDir"));
        }
        Some(_) => {}
    }
}

pub(super) fn sources(list: At, causes: &mut Causes) {
    for source in list.items() {
        named_if_any(source.get("prefix"), env_name, causes);
        let mut count = 0;
        for reference in ["configMapRef", "secretRef"] {
            let reference = source.get(reference);
            if reference.is_set() {
                count += 1;
                // As in Kubernetes, the rule of generateName applies, so a name may end in a dash.
                let name = reference.get("name");
                if name.is_empty() {
                    causes.push(name.required(""));
                } else {
                    let messages = names::generate_name(names::NameRule::Subdomain, name.text());
                    causes.extend(messages.iter().map(|message| name.invalid(message)));
                }
            }
        }
        // Kubernetes reports these faults at the path of the list, not of the item.
        match count {
            0 => causes.push(list.invalid_unshown("must specify one of: `configMapRef` or `secretRef`")),
            1 => {}
            _ => causes.push(list.invalid_unshown("may not have more than one field specified at a time")),
        }
    }
}

/// Validates a reference to a field of the pod.
pub(super) fn field_reference(at: At, fields: &[&str], causes: &mut Causes) {
    let (version, field) = (at.get("apiVersion"), at.get("fieldPath"));
    for needed in [version, field] {
        if needed.is_empty() {
            causes.push(needed.required(""));
            return;
        }
    }
    if let Some(problem) = unreadable(version.text(), field.text()) {
        causes.push(field.invalid(&format!("error converting fieldPath: {problem}")));
        return;
    }
    match subscripted(field.text()) {
        Some(("metadata.annotations", key)) => {
            let key = key.to_lowercase();
            causes.extend(names::qualified_name(&key).iter().map(|message| at.invalid_as(key.as_str(), message)));
        }
        Some((_, key)) => {
            causes.extend(names::qualified_name(key).iter().map(|message| at.invalid_as(key, message)));
        }
        None if field.text() == "spec.host" => {}
        None if !fields.contains(&field.text()) => causes.push(field.not_supported(fields)),
        None => {}
    }
}

fn unreadable(version: &str, field: &str) -> Option<String> {
    if version != "v1" {
        return Some(format!("unsupported pod version: {version}"));
    }
    match subscripted(field) {
        Some(("metadata.annotations" | "metadata.labels", _)) => None,
        Some(_) => Some(format!("field label does not support subscript: {field}")),
        None => [VARIABLE_FIELDS, FILE_FIELDS, NAMED_FIELDS]
            .iter()
            .all(|fields| !fields.contains(&field))
            .then(|| format!("field label not supported: {field}")),
    }
}

/// Splits `metadata.labels['app']` into path and key.
fn subscripted(field: &str) -> Option<(&str, &str)> {
    let (path, key) = field.strip_suffix("']")?.split_once("['")?;
    (!path.is_empty()).then_some((path, key))
}

/// Validates a reference to a resource of a container.
pub(super) fn resource_reference(at: At, in_file: bool, causes: &mut Causes) {
    let (container, resource) = (at.get("containerName"), at.get("resource"));
    let is_huge = ["limits.hugepages-", "requests.hugepages-"].iter().any(|start| resource.text().starts_with(start));
    if in_file && container.is_empty() {
        causes.push(container.required(""));
    } else if resource.is_empty() {
        causes.push(resource.required(""));
    } else if !RESOURCES.contains(&resource.text()) && !is_huge {
        causes.push(resource.not_supported(RESOURCES));
    }
    let divisor = at.get("divisor");
    if !divisor.is_set() || quantity::nanos(&text(divisor.value)) == Some(0) {
        return;
    }
    let (supported, detail) = match resource.text() {
        "limits.cpu" | "requests.cpu" => {
            (&["1m", "1"][..], "only divisor's values 1m and 1 are supported with the cpu resource".to_owned())
        }
        "limits.memory" | "requests.memory" => (SIZES, sizes_only("memory")),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => (SIZES, sizes_only("local ephemeral storage")),
        _ if is_huge => (SIZES, sizes_only("hugepages")),
        _ => return,
    };
    if !supported.contains(&super::resources::canonical(divisor.value).as_str()) {
        causes.push(divisor.invalid_as(resource.text(), &detail));
    }
}

fn sizes_only(resource: &str) -> String {
    format!("only divisor's values {} are supported with the {resource} resource", SIZES.join(", "))
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::check_rows;
    use holdfast_value::json;

    #[test]
    fn each_rule_of_the_environment() {
        let good = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default"},
            "spec": {
                "containers": [{"name": "a", "image": "a", "env": [{"name": "A", "value": "b"}]}],
                "volumes": [{"name": "files"}, {"name": "keys", "secret": {"secretName": "k"}}],
            },
        });
        let (env, from) = ("/spec/containers/0/env/0", "/spec/containers/0/envFrom");
        let show = |source: holdfast_value::Value| json!({"name": "A", "valueFrom": source});
        check_rows(
            &good,
            &[
                (env, json!({"name": "a=b"}), "spec.containers[0].env[0].name: Invalid value: \"a=b\": a valid env"),
                (env, json!({"name": "a.b c"}), ""),
                (env, json!({}), "spec.containers[0].env[0].name: Required value"),
                (
                    "/spec/containers/0/env/0/valueFrom",
                    json!({"fieldRef": {"fieldPath": "metadata.name"}}),
                    "spec.containers[0].env[0].valueFrom: Invalid value: \"\": may not be specified when `value` is",
                ),
                (env, show(json!({})), "spec.containers[0].env[0].valueFrom: Invalid value: \"\": must specify one of"),
                (
                    env,
                    show(
                        json!({"fieldRef": {"fieldPath": "metadata.name"}, "secretKeyRef": {"name": "a", "key": "b"}}),
                    ),
                    "spec.containers[0].env[0].valueFrom: Invalid value: \"\": may not have more than one field",
                ),
                (env, show(json!({"fieldRef": {"fieldPath": "metadata.labels['app']"}})), ""),
                (
                    env,
                    show(json!({"fieldRef": {"fieldPath": "metadata.labels['a b']"}})),
                    "spec.containers[0].env[0].valueFrom.fieldRef: Invalid value: \"a b\": name part must consist of",
                ),
                (
                    env,
                    show(json!({"fieldRef": {"fieldPath": "metadata.labels"}})),
                    "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Unsupported value: \"metadata.labels\"",
                ),
                (
                    env,
                    show(json!({"fieldRef": {"fieldPath": "spec.tolerations"}})),
                    "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: \"spec.tolerations\": \
                     error converting fieldPath: field label not supported: spec.tolerations",
                ),
                (
                    env,
                    show(json!({"resourceFieldRef": {"resource": "limits.disk"}})),
                    "spec.containers[0].env[0].valueFrom.resourceFieldRef.resource: Unsupported value: \"limits.disk\"",
                ),
                (
                    env,
                    show(json!({"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1Mi"}})),
                    "spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor: Invalid value: \"limits.cpu\": only",
                ),
                (env, show(json!({"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}})), ""),
                (
                    env,
                    show(json!({"configMapKeyRef": {"name": "a", "key": "a b"}})),
                    "spec.containers[0].env[0].valueFrom.configMapKeyRef.key: Invalid value: \"a b\": a valid config",
                ),
                (
                    env,
                    show(json!({"secretKeyRef": {"key": "a"}})),
                    "spec.containers[0].env[0].valueFrom.secretKeyRef.name: Invalid value: \"\": a lowercase RFC 1123",
                ),
                (env, show(json!({"fileKeyRef": {"volumeName": "files", "path": "a.env", "key": "A"}})), ""),
                (
                    env,
                    show(json!({"fileKeyRef": {"volumeName": "keys", "path": "a.env", "key": "A"}})),
                    "spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName: Invalid value: \"keys\"",
                ),
                (from, json!([{"prefix": "A_", "configMapRef": {"name": "a"}}]), ""),
                (from, json!([{}]), "spec.containers[0].envFrom: Invalid value: \"\": must specify one of: `configM"),
                (
                    from,
                    json!([{"prefix": "a=", "configMapRef": {"name": "a"}}]),
                    "spec.containers[0].envFrom[0].prefix: Invalid value: \"a=\"",
                ),
                (
                    from,
                    json!([{"secretRef": {"name": "A"}}]),
                    "spec.containers[0].envFrom[0].secretRef.name: Invalid value: \"A\": a lowercase RFC 1123 subdom",
                ),
            ],
        );
    }
}
