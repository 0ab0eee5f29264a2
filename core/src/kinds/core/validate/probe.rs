//! Validation of probes and lifecycle hooks: each has exactly one handler.

use crate::kinds::rules::{At, need, none_negative, one_of, port};
use crate::object::names;
use crate::refusal::Causes;

const PROBE_WAYS: &[&str] = &["exec", "httpGet", "tcpSocket", "grpc"];
const HOOK_WAYS: &[&str] = &["exec", "httpGet", "tcpSocket", "sleep"];
const SECONDS: &[&str] =
    &["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"];

/// Validates the probes and hooks of a main container or sidecar. `grace` is the pod's termination grace period, in
/// seconds.
pub(super) fn probes_and_hooks(container: At, grace: Option<i64>, causes: &mut Causes) {
    let lifecycle = container.get("lifecycle");
    for field in ["postStart", "preStop"] {
        let hook = lifecycle.get(field);
        if hook.is_set() {
            handler(hook, HOOK_WAYS, grace, causes);
        }
    }
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = container.get(field);
        if !probe.is_set() {
            continue;
        }
        handler(probe, PROBE_WAYS, grace, causes);
        none_negative(probe, SECONDS, causes);
        let own_grace = probe.get("terminationGracePeriodSeconds");
        if own_grace.number().is_some_and(|seconds| seconds <= 0) {
            causes.push(own_grace.invalid("must be greater than 0"));
        }
        let threshold = probe.get("successThreshold");
        if field == "readinessProbe" {
            if own_grace.is_set() {
                causes.push(own_grace.invalid("must not be set for readinessProbes"));
            }
        } else if threshold.number() != Some(1) {
            causes.push(threshold.invalid_as(threshold.number_or_zero(), "must be 1"));
        }
    }
}

fn handler(at: At, ways: &[&str], grace: Option<i64>, causes: &mut Causes) {
    let mut found = false;
    for way in ways {
        let handler = at.get(way);
        if !handler.is_set() {
            continue;
        }
        if std::mem::replace(&mut found, true) {
            causes.push(handler.forbidden("may not specify more than 1 handler type"));
            continue;
        }
        match *way {
            "exec" => need(handler.get("command"), causes),
            "httpGet" => http_get(handler, causes),
            "sleep" => {
                let seconds = handler.get("seconds").number_or_zero();
                if let Some(grace) = grace.filter(|grace| !(0..=*grace).contains(&seconds)) {
                    let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                    causes.push(handler.invalid_as(seconds, &detail));
                }
            }
            _ => port(handler.get("port"), causes),
        }
    }
    if !found {
        causes.push(at.required("must specify a handler type"));
    }
}

fn http_get(handler: At, causes: &mut Causes) {
    need(handler.get("path"), causes);
    port(handler.get("port"), causes);
    one_of(handler.get("scheme"), &["HTTP", "HTTPS"], causes);
    let headers = handler.get("httpHeaders");
    for header in headers.items() {
        let name = header.value["name"].as_str().unwrap_or("");
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            let rule = "a valid HTTP header must consist of alphanumeric characters or '-'";
            let message = names::pattern(rule, &["X-Header-Name"], "[-A-Za-z0-9]+");
            causes.push(headers.invalid_as(name, &message));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::check_rows;
    use holdfast_value::json;

    #[test]
    fn each_rule_of_probes_and_hooks() {
        let good = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default"},
            "spec": {"containers": [{
                "name": "a", "image": "a",
                "readinessProbe": {"httpGet": {"port": "http"}},
                "livenessProbe": {"grpc": {"port": 80}, "terminationGracePeriodSeconds": 5},
                "lifecycle": {"preStop": {"sleep": {"seconds": 30}}},
            }]},
        });
        let ready = |field: &str| format!("/spec/containers/0/readinessProbe{field}");
        let alive = |field: &str| format!("/spec/containers/0/livenessProbe{field}");
        check_rows(
            &good,
            &[
                (
                    &ready(""),
                    json!({"periodSeconds": 1}),
                    "spec.containers[0].readinessProbe: Required value: must specify a handler type",
                ),
                (
                    &ready("/tcpSocket"),
                    json!({"port": 1}),
                    "spec.containers[0].readinessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
                ),
                (
                    &ready("/periodSeconds"),
                    json!(-1),
                    "spec.containers[0].readinessProbe.periodSeconds: Invalid value: -1: must be greater than or equal",
                ),
                (&ready("/successThreshold"), json!(2), ""),
                (
                    &ready("/terminationGracePeriodSeconds"),
                    json!(3),
                    "spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value: 3: must not be se",
                ),
                (
                    &ready("/httpGet/httpHeaders"),
                    json!([{"name": "X_Y", "value": "a"}]),
                    "spec.containers[0].readinessProbe.httpGet.httpHeaders: Invalid value: \"X_Y\": a valid HTTP heade",
                ),
                (
                    &ready("/httpGet/port"),
                    json!(0),
                    "spec.containers[0].readinessProbe.httpGet.port: Invalid value: 0: must be between 1 and 65535",
                ),
                (
                    &ready("/httpGet/scheme"),
                    json!("FTP"),
                    "spec.containers[0].readinessProbe.httpGet.scheme: Unsupported value: \"FTP\"",
                ),
                (
                    &alive("/successThreshold"),
                    json!(2),
                    "spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
                ),
                (
                    &alive("/terminationGracePeriodSeconds"),
                    json!(0),
                    "spec.containers[0].livenessProbe.terminationGracePeriodSeconds: Invalid value: 0: must be greater",
                ),
                (
                    "/spec/containers/0/lifecycle/preStop/sleep/seconds",
                    json!(31),
                    "spec.containers[0].lifecycle.preStop.sleep: Invalid value: 31: must be non-negative and less than \
                     terminationGracePeriodSeconds (30)",
                ),
                (
                    "/spec/containers/0/lifecycle/postStart",
                    json!({"exec": {}}),
                    "spec.containers[0].lifecycle.postStart.exec.command: Required value",
                ),
            ],
        );
    }
}
