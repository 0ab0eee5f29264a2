//! Validation of API services.

use crate::kinds::rules::{At, named, need};
use crate::kinds::shapes::{exactly_one_of, service_port};
use crate::object::names;
use crate::refusal::{Cause, Causes};
use holdfast_value::Value;

const GROUP_PRIORITY_MAX: i64 = 20_000;
const VERSION_PRIORITY_MAX: i64 = 1_000;

pub fn api_service(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    let (group, version) = (spec.get("group"), spec.get("version"));
    let wanted = format!("{}.{}", version.text(), group.text());
    let metadata = root.get("metadata");
    let name = metadata.get("name");
    let prefix = metadata.get("generateName");
    let detail = format!("must be `spec.version+\".\"+spec.group`: {}", Value::from(wanted.as_str()));
    let is_wrong = |name: &At| name.text() != wanted && names::path_segment(name.text()).is_empty();
    if !name.is_empty() && is_wrong(&name) {
        causes.push(name.invalid(&detail));
    }
    // As in Kubernetes, a generateName is validated like a name.
    if old.is_none() && !prefix.is_empty() && is_wrong(&prefix) {
        causes.push(prefix.invalid(&detail));
    }
    if group.is_empty() && version.text() != "v1" {
        causes.push(group.required("only v1 may have an empty group and it better be legacy kube"));
    }
    if !group.is_empty() {
        named(group, names::subdomain, &mut causes);
    }
    let text = Value::from(version.text());
    named(version.holding(&text), names::label_1035, &mut causes);
    for (field, most) in [("groupPriorityMinimum", GROUP_PRIORITY_MAX), ("versionPriority", VERSION_PRIORITY_MAX)] {
        let priority = spec.get(field);
        let number = priority.number().unwrap_or(0);
        if number <= 0 || number > most {
            let detail = format!("must be positive and less than {most}");
            causes.push(Cause::invalid(priority.path(), &Value::from(number), &detail));
        }
    }
    backend(spec, &mut causes);
    causes
}

fn backend(spec: At, causes: &mut Causes) {
    let (service, bundle, insecure) = (spec.get("service"), spec.get("caBundle"), spec.get("insecureSkipTLSVerify"));
    if !service.is_set() {
        if !bundle.is_empty() {
            // Four base64 letters encode three bytes.
            let bytes = bundle.text().trim_end_matches('=').len() * 3 / 4;
            let shown = Value::from(format!("{bytes} bytes"));
            causes.push(bundle.holding(&shown).invalid("local APIServices may not have a caBundle"));
        }
        if insecure.is_true() {
            causes.push(insecure.invalid("local APIServices may not have insecureSkipTLSVerify"));
        }
        return;
    }
    need(service.get("namespace"), causes);
    need(service.get("name"), causes);
    service_port(service.get("port"), causes);
    if insecure.is_true() && !bundle.is_empty() {
        causes.push(insecure.invalid("may not be true if caBundle is present"));
    }
}

pub fn status(new: &Value, _: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let status = root.get("status");
    for condition in status.get("conditions").items() {
        exactly_one_of(condition.get("status"), &["True", "False", "Unknown"], &mut causes);
    }
    causes
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::{check_part, check_rows};
    use holdfast_value::{Value, json};

    #[test]
    fn each_rule() {
        let good = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.example.com"},
            "spec": {
                "group": "example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10,
                "service": {"name": "s", "namespace": "n"},
            },
        });
        let name =
            "metadata.name: Invalid value: \"v1.example.com\": must be `spec.version+\".\"+spec.group`: \"v2.exam";
        check_rows(
            &good,
            &[
                ("/spec/version", json!("v2"), name),
                ("/spec/version", json!("2"), "spec.version: Invalid value: \"2\": a DNS-1035 label must consist of"),
                ("/spec/version", json!("v2"), name),
                (
                    "/spec/groupPriorityMinimum",
                    json!(0),
                    "spec.groupPriorityMinimum: Invalid value: 0: must be positiv",
                ),
                (
                    "/spec/groupPriorityMinimum",
                    json!(20_001),
                    "spec.groupPriorityMinimum: Invalid value: 20001: must be",
                ),
                (
                    "/spec/versionPriority",
                    json!(1001),
                    "spec.versionPriority: Invalid value: 1001: must be positive and",
                ),
                ("/spec/service/name", json!(""), "spec.service.name: Required value"),
                (
                    "/spec/service/port",
                    json!(0),
                    "spec.service.port: Invalid value: 0: port is not valid: must be betw",
                ),
                ("/spec/service", Value::Null, ""),
            ],
        );
        let mut local = good.clone();
        local["spec"]["service"] = Value::Null;
        check_rows(
            &local,
            &[
                (
                    "/spec/caBundle",
                    json!("AAAA"),
                    "spec.caBundle: Invalid value: \"3 bytes\": local APIServices may no",
                ),
                ("/spec/insecureSkipTLSVerify", json!(true), "spec.insecureSkipTLSVerify: Invalid value: true: local"),
            ],
        );
        let condition = json!([{"type": "Available", "status": "Perhaps"}]);
        let fault =
            "status.conditions[0].status: Unsupported value: \"Perhaps\": supported values: \"True\", \"False\", ";
        check_part(&good, "status", &[("/status/conditions", condition, fault)]);
    }
}
