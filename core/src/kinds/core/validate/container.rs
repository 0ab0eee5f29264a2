//! Containers: images, ports, environment, mounts, resources and probes.

use crate::kinds::rules::{
    At, PROTOCOLS, between, compare, config_key, distinct, env_name, named, need, need_name, none_negative, one_of,
    port, port_name, port_number, quantities,
};
use crate::object::names;
use crate::refusal::Cause;
use crate::schema::quantity;
use serde_json::Value;
use std::cmp::Ordering;
use std::collections::BTreeSet;

const ONE_HANDLER: &str = "may not specify more than 1 handler type";
const NO_HANDLER: &str = "must specify a handler type";
const PULL_POLICIES: &[&str] = &["Always", "IfNotPresent", "Never"];
const NOT_IN_INIT: &str = "may not be set for init containers without restartPolicy=Always";
const USER_MAX: i64 = i32::MAX as i64;

/// Names that the containers of a pod refer to, or may not share.
pub(super) struct Names {
    pub volumes: BTreeSet<String>,
    pub containers: BTreeSet<String>,
}

/// `containers` and `initContainers` of a pod's spec.
pub(super) fn containers(spec: At, names: &mut Names, causes: &mut Vec<Cause>) {
    let list = spec.get("containers");
    if list.is_empty() {
        causes.push(list.required(""));
    }
    let mut host_ports = BTreeSet::new();
    let on_host = spec.get("hostNetwork").is_true();
    for container in list.items() {
        common(container, names, causes);
        ports(container.get("ports"), on_host, &mut host_ports, causes);
        probes(container, causes);
    }
    for container in spec.get("initContainers").items() {
        common(container, names, causes);
        // Those that end before the next one starts may use the same ports.
        ports(container.get("ports"), on_host, &mut BTreeSet::new(), causes);
        if container.get("restartPolicy").text() == "Always" {
            probes(container, causes);
            continue;
        }
        for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            let probe = container.get(field);
            if probe.is_set() {
                causes.push(probe.forbidden(NOT_IN_INIT));
            }
        }
    }
}

fn common(container: At, names: &mut Names, causes: &mut Vec<Cause>) {
    let name = container.get("name");
    need_name(name, names::label, causes);
    if !name.is_empty() && !names.containers.insert(name.text().to_owned()) {
        causes.push(name.duplicate());
    }
    need(container.get("image"), causes);
    one_of(container.get("imagePullPolicy"), PULL_POLICIES, causes);
    one_of(container.get("terminationMessagePolicy"), &["FallbackToLogsOnError", "File"], causes);
    for variable in container.get("env").items() {
        environment(variable, causes);
    }
    for source in container.get("envFrom").items() {
        environment_source(source, causes);
    }
    mounts(container.get("volumeMounts"), &names.volumes, causes);
    for device in container.get("volumeDevices").items() {
        let name = device.get("name");
        if name.is_empty() {
            causes.push(name.required(""));
        } else if !names.volumes.contains(name.text()) {
            causes.push(Cause::not_found(name.path(), name.value));
        }
    }
    resources(container.get("resources"), causes);
    security_context(container.get("securityContext"), causes);
}

fn ports(list: At, on_host: bool, host_ports: &mut BTreeSet<String>, causes: &mut Vec<Cause>) {
    distinct(list, "name", causes);
    for entry in list.items() {
        let name = entry.get("name");
        if !name.is_empty() {
            named(name, port_name, causes);
        }
        let number = entry.get("containerPort");
        match number.number() {
            None | Some(0) => causes.push(number.required("")),
            Some(_) => port_number(number, causes),
        }
        one_of(entry.get("protocol"), PROTOCOLS, causes);
        let host = entry.get("hostPort");
        let Some(host_number) = host.number().filter(|number| *number != 0) else { continue };
        port_number(host, causes);
        if on_host && number.number() != Some(host_number) {
            causes.push(number.invalid("must match `hostPort` when `hostNetwork` is true"));
        }
        let claim = format!("{}/{}/{host_number}", entry.get("protocol").text(), entry.get("hostIP").text());
        let shown = Value::from(claim.as_str());
        if !host_ports.insert(claim) {
            causes.push(Cause::duplicate(host.path(), &shown));
        }
    }
}

fn environment(variable: At, causes: &mut Vec<Cause>) {
    need_name(variable.get("name"), env_name, causes);
    let source = variable.get("valueFrom");
    if !source.is_set() {
        return;
    }
    let count = source.value.as_object().map_or(0, |sources| sources.values().filter(|value| !value.is_null()).count());
    if count == 0 {
        let detail = "must specify one of: `configMapKeyRef`, `fieldRef`, `fileKeyRef`, `resourceFieldRef` or \
                      `secretKeyRef`";
        causes.push(source.invalid_unshown(detail));
    }
    if !variable.get("value").is_empty() {
        if count != 0 {
            causes.push(source.invalid_unshown("may not be specified when `value` is not empty"));
        }
    } else if count > 1 {
        causes.push(source.invalid_unshown("may not have more than one field specified at a time"));
    }
    for reference in ["configMapKeyRef", "secretKeyRef"] {
        let reference = source.get(reference);
        if reference.is_set() {
            need_name(reference.get("key"), config_key, causes);
        }
    }
    let field = source.get("fieldRef");
    if field.is_set() {
        need(field.get("fieldPath"), causes);
    }
    let resource = source.get("resourceFieldRef");
    if resource.is_set() {
        need(resource.get("resource"), causes);
    }
}

fn environment_source(source: At, causes: &mut Vec<Cause>) {
    match (source.get("configMapRef").is_set(), source.get("secretRef").is_set()) {
        (false, false) => causes.push(source.invalid_unshown("must specify one of: `configMapRef` or `secretRef`")),
        (true, true) => causes.push(source.invalid_unshown("may not have more than one field specified at a time")),
        _ => {}
    }
    for reference in ["configMapRef", "secretRef"] {
        let reference = source.get(reference);
        if reference.is_set() {
            need(reference.get("name"), causes);
        }
    }
}

fn mounts(list: At, volumes: &BTreeSet<String>, causes: &mut Vec<Cause>) {
    let mut paths = BTreeSet::new();
    for mount in list.items() {
        let name = mount.get("name");
        if name.is_empty() {
            causes.push(name.required(""));
        }
        if !volumes.contains(name.text()) {
            causes.push(Cause::not_found(name.path(), &Value::from(name.text())));
        }
        let path = mount.get("mountPath");
        if path.is_empty() {
            causes.push(path.required(""));
        }
        if !paths.insert(path.text().to_owned()) {
            causes.push(path.invalid("must be unique"));
        }
        let below = mount.get("subPath");
        if below.text().starts_with('/') {
            causes.push(below.invalid("must be a relative path"));
        }
        if below.text().split('/').any(|part| part == "..") {
            causes.push(below.invalid("must not contain '..'"));
        }
        let expanded = mount.get("subPathExpr");
        if !expanded.is_empty() && !below.is_empty() {
            causes.push(expanded.invalid("subPathExpr and subPath are mutually exclusive"));
        }
    }
}

fn resources(resources: At, causes: &mut Vec<Cause>) {
    let (requests, limits) = (resources.get("requests"), resources.get("limits"));
    quantities(limits, causes);
    quantities(requests, causes);
    for (name, request) in requests.entries() {
        let limit = &limits.value[name];
        let order = compare(request.value, limit);
        let shown = canonical(limit);
        // What cannot be shared is limited to just what is requested.
        let fixed = name.starts_with("hugepages-") || (name.contains('/') && !name.contains("kubernetes.io/"));
        let detail = match order {
            Some(Ordering::Less | Ordering::Greater) if fixed => format!("must be equal to {name} limit of {shown}"),
            Some(Ordering::Greater) => format!("must be less than or equal to {name} limit of {shown}"),
            _ => continue,
        };
        causes.push(Cause::invalid(requests.path(), &Value::from(canonical(request.value)), &detail));
    }
}

/// A quantity as Kubernetes writes it.
fn canonical(amount: &Value) -> String {
    let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
    quantity::canonical(&text).unwrap_or(text)
}

fn security_context(context: At, causes: &mut Vec<Cause>) {
    between(context.get("runAsUser"), 0, USER_MAX, causes);
    between(context.get("runAsGroup"), 0, USER_MAX, causes);
    let escalation = context.get("allowPrivilegeEscalation");
    if escalation.value == &Value::Bool(false) && context.get("privileged").is_true() {
        causes.push(context.invalid("cannot set `allowPrivilegeEscalation` to false and `privileged` to true"));
    }
}

fn probes(container: At, causes: &mut Vec<Cause>) {
    for (field, only_one) in [("livenessProbe", true), ("readinessProbe", false), ("startupProbe", true)] {
        let probe = container.get(field);
        if !probe.is_set() {
            continue;
        }
        handler(probe, &["exec", "httpGet", "tcpSocket", "grpc"], causes);
        none_negative(
            probe,
            &["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"],
            causes,
        );
        let threshold = probe.get("successThreshold");
        if only_one && threshold.number().is_some_and(|number| number != 1) {
            causes.push(threshold.invalid("must be 1"));
        }
    }
    let lifecycle = container.get("lifecycle");
    for field in ["postStart", "preStop"] {
        let hook = lifecycle.get(field);
        if hook.is_set() {
            handler(hook, &["exec", "httpGet", "tcpSocket", "sleep"], causes);
        }
    }
}

/// Just one way to ask or tell a container.
fn handler(at: At, ways: &[&str], causes: &mut Vec<Cause>) {
    let mut found = 0;
    for way in ways {
        let handler = at.get(way);
        if !handler.is_set() {
            continue;
        }
        found += 1;
        if found > 1 {
            causes.push(handler.forbidden(ONE_HANDLER));
            continue;
        }
        match *way {
            "exec" => need(handler.get("command"), causes),
            "httpGet" => {
                need(handler.get("path"), causes);
                port(handler.get("port"), causes);
                one_of(handler.get("scheme"), &["HTTP", "HTTPS"], causes);
            }
            "tcpSocket" | "grpc" => port(handler.get("port"), causes),
            _ => {}
        }
    }
    if found == 0 {
        causes.push(at.required(NO_HANDLER));
    }
}
