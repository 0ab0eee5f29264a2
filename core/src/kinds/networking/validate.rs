//! Validation of ingresses, their classes, and network policies.

use crate::kinds::rules::{self, At, cidr, immutable, known, named, need_name, port, selector};
use crate::kinds::shapes::{at_most, domain_prefixed_path, first_of, host, local_reference, need_segment, not_longer};
use crate::object::address::{address, network};
use crate::object::names;
use crate::refusal::{Cause, Causes};
use holdfast_value::Value;

const CLASS: &str = "kubernetes.io/ingress.class";
const NOT_A_HOST: &str = "must be a DNS name, not an IP address";
const FORBIDDEN_PARTS: &[&str] = &["//", "/./", "/../", "%2f", "%2F"];
const FORBIDDEN_ENDS: &[&str] = &["/..", "/."];
const CONTROLLER_BYTES_MAX: usize = 250;

pub fn ingress(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    let (default, rules) = (spec.get("defaultBackend"), spec.get("rules"));
    if !default.is_set() && rules.is_empty() {
        let detail = "either `defaultBackend` or `rules` must be specified";
        causes.push(match rules.is_set() {
            true => Cause::invalid(spec.path(), rules.value, detail),
            false => spec.invalid_null(detail).into(),
        });
    }
    if default.is_set() {
        backend(default, &mut causes);
    }
    for rule in rules.items() {
        let name = rule.get("host");
        if !name.is_empty() {
            if address(name.text()).is_some() {
                causes.push(name.invalid(NOT_A_HOST));
            }
            host(name, &mut causes);
        }
        let http = rule.get("http");
        let paths = http.get("paths");
        if http.is_set() && paths.is_empty() {
            causes.push(paths.required(""));
        }
        for path in paths.items() {
            http_path(path, &mut causes);
        }
    }
    for tls in spec.get("tls").items() {
        for name in tls.get("hosts").items() {
            host(name, &mut causes);
        }
        if !tls.get("secretName").is_empty() {
            named(tls.get("secretName"), names::subdomain, &mut causes);
        }
    }
    let class = spec.get("ingressClassName");
    if class.is_set() {
        named(class, names::subdomain, &mut causes);
    }
    let annotation = &new["metadata"]["annotations"][CLASS];
    if old.is_none() && class.is_set() && !annotation.is_null() && annotation != class.value {
        let detail = "must match `ingressClassName` when both are specified";
        causes.push(Cause::invalid(format!("annotations.{CLASS}"), annotation, detail));
    }
    causes
}

fn http_path(path: At, causes: &mut Causes) {
    let ty = path.get("pathType");
    if !ty.is_set() {
        causes.push(ty.required("pathType must be specified"));
        return;
    }
    let at = path.get("path");
    let text = at.text();
    let wrong = |detail: &str| Cause::invalid(at.path(), &Value::from(text), detail);
    match ty.text() {
        "Exact" | "Prefix" => {
            if !text.starts_with('/') {
                causes.push(wrong("must be an absolute path"));
            }
            let parts = FORBIDDEN_PARTS.iter().filter(|part| text.contains(**part));
            causes.extend(parts.map(|part| wrong(&format!("must not contain '{part}'"))));
            let ends = FORBIDDEN_ENDS.iter().filter(|end| text.ends_with(**end));
            causes.extend(ends.map(|end| wrong(&format!("cannot end with '{end}'"))));
        }
        "ImplementationSpecific" if !text.is_empty() && !text.starts_with('/') => {
            causes.push(wrong("must be an absolute path"));
        }
        "ImplementationSpecific" => {}
        _ => causes.push(ty.not_supported(&["Exact", "ImplementationSpecific", "Prefix"])),
    }
    backend(path.get("backend"), causes);
}

fn backend(backend: At, causes: &mut Causes) {
    let (service, resource) = (backend.get("service"), backend.get("resource"));
    match (service.is_set(), resource.is_set()) {
        (true, true) => causes.push(backend.invalid_unshown("cannot set both resource and service backends")),
        (false, false) => causes.push(backend.invalid_unshown("resource or service backend is required")),
        (false, true) => local_reference(resource, causes),
        (true, false) => {
            need_name(service.get("name"), names::label_1035, causes);
            let at = service.get("port");
            let number = at.get("number").number().is_some_and(|number| number != 0);
            match (at.get("name").is_empty(), number) {
                (true, false) => causes.push(backend.required("port name or number is required")),
                (false, true) => causes.push(backend.invalid_unshown("cannot set both port name & port number")),
                (false, false) => port(at.get("name"), causes),
                (true, true) => port(at.get("number"), causes),
            }
        }
    }
}

pub fn ingress_status(new: &Value, _: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let status = root.get("status");
    let balancer = status.get("loadBalancer");
    for point in balancer.get("ingress").items() {
        let (ip, name) = (point.get("ip"), point.get("hostname"));
        if !ip.is_empty() {
            rules::ip(ip, &mut causes);
        }
        if !name.is_empty() {
            named(name, names::subdomain, &mut causes);
            if address(name.text()).is_some() {
                causes.push(name.invalid(NOT_A_HOST));
            }
        }
    }
    causes
}

pub fn ingress_class(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    let controller = spec.get("controller");
    if let Some(old) = old {
        immutable(controller, &old["spec"]["controller"], &mut causes);
    }
    not_longer(controller, CONTROLLER_BYTES_MAX, &mut causes);
    domain_prefixed_path(controller, &mut causes);
    let parameters = spec.get("parameters");
    if !parameters.is_set() {
        return causes;
    }
    if parameters.get("apiGroup").is_set() {
        named(parameters.get("apiGroup"), names::subdomain, &mut causes);
    }
    need_segment(parameters.get("kind"), &mut causes);
    need_segment(parameters.get("name"), &mut causes);
    let (scope, namespace) = (parameters.get("scope"), parameters.get("namespace"));
    match scope.text() {
        "Namespace" if !namespace.is_set() => {
            causes.push(namespace.required("`parameters.scope` is set to 'Namespace'"));
        }
        "Namespace" => named(namespace, names::label, &mut causes),
        "Cluster" if namespace.is_set() => {
            causes.push(namespace.forbidden("`parameters.scope` is set to 'Cluster'"));
        }
        "Cluster" => {}
        "" if !scope.is_set() => causes.push(scope.required("")),
        _ => causes.push(scope.not_supported(&["Cluster", "Namespace"])),
    }
    causes
}

pub fn network_policy(new: &Value, _: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    selector(spec.get("podSelector"), &mut causes);
    for (rules, side) in [("ingress", "from"), ("egress", "to")] {
        for rule in spec.get(rules).items() {
            for entry in rule.get("ports").items() {
                known(entry.get("protocol"), &["TCP", "UDP", "SCTP"], &mut causes);
                port_range(entry, &mut causes);
            }
            for from in rule.get(side).items() {
                peer(from, &mut causes);
            }
        }
    }
    let types = spec.get("policyTypes");
    if at_most(types, 2, &mut Causes::default()) {
        for ty in types.items() {
            if !matches!(ty.text(), "Ingress" | "Egress") {
                causes.push(ty.not_supported(&["Ingress", "Egress"]));
            }
        }
    } else {
        causes.push(types.invalid("may not specify more than two policyTypes"));
    }
    causes
}

fn port_range(entry: At, causes: &mut Causes) {
    let (first, last) = (entry.get("port"), entry.get("endPort"));
    port(first, causes);
    if !last.is_set() {
        return;
    }
    match first.number() {
        None if first.is_set() => causes.push(last.invalid("may not be specified when `port` is non-numeric")),
        None => causes.push(last.invalid("may not be specified when `port` is not specified")),
        Some(number) if last.number().is_some_and(|last| last < number) => {
            causes.push(last.invalid_as(number, "must be greater than or equal to `port`"));
        }
        Some(_) => port(last, causes),
    }
}

fn peer(peer: At, causes: &mut Causes) {
    let (pods, namespaces, block) = (peer.get("podSelector"), peer.get("namespaceSelector"), peer.get("ipBlock"));
    selector(pods, causes);
    selector(namespaces, causes);
    let selects = pods.is_set() || namespaces.is_set();
    if !selects && !block.is_set() {
        causes.push(peer.required("must specify a peer"));
    } else if selects && block.is_set() {
        causes.push(peer.forbidden("may not specify both ipBlock and another peer"));
    }
    if !block.is_set() {
        return;
    }
    let range = block.get("cidr");
    if range.is_empty() {
        causes.push(range.required(""));
        return;
    }
    cidr(range, causes);
    let Some((address, outer)) = network(range.text()) else { return };
    for hole in block.get("except").items() {
        cidr(hole, causes);
        if let Some((within, inner)) = network(hole.text())
            && (inner <= outer
                || within.is_ipv4() != address.is_ipv4()
                || first_of(within, outer) != first_of(address, outer))
        {
            causes.push(hole.invalid("must be a strict subset of `cidr`"));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::{check_part, check_rows, check_updates};
    use holdfast_value::{Value, json};

    #[test]
    fn each_rule_of_ingresses() {
        let ingress = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "a"},
            "spec": {"rules": [{"http": {"paths": [{"path": "/", "pathType": "Prefix",
                "backend": {"service": {"name": "a", "port": {"number": 80}}}}]}}]},
        });
        let path = "spec.rules[0].http.paths[0]";
        let of = |rest: &str| format!("{path}{rest}");
        check_rows(
            &ingress,
            &[
                ("/spec", json!({}), "spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"),
                ("/spec/rules/0/http/paths", json!([]), "spec.rules[0].http.paths: Required value"),
                ("/spec/rules/0/http/paths/0/pathType", Value::Null, &of(".pathType: Required value")),
                (
                    "/spec/rules/0/http/paths/0/pathType",
                    json!("All"),
                    &of(".pathType: Unsupported value: \"All\": sup"),
                ),
                (
                    "/spec/rules/0/http/paths/0/path",
                    json!("a"),
                    &of(".path: Invalid value: \"a\": must be an absolute"),
                ),
                (
                    "/spec/rules/0/http/paths/0/path",
                    json!("/a//b"),
                    &of(".path: Invalid value: \"/a//b\": must not con"),
                ),
                (
                    "/spec/rules/0/http/paths/0/path",
                    json!("/a/.."),
                    &of(".path: Invalid value: \"/a/..\": cannot end w"),
                ),
                (
                    "/spec/rules/0/http/paths/0/backend",
                    json!({}),
                    &of(".backend: Invalid value: \"\": resource or ser"),
                ),
                (
                    "/spec/rules/0/http/paths/0/backend/service/port",
                    json!({}),
                    &of(".backend: Required value: port name or number is required"),
                ),
                (
                    "/spec/rules/0/http/paths/0/backend/service/port/name",
                    json!("http"),
                    &of(".backend: Invalid value: \"\": cannot set both port name & port number"),
                ),
                (
                    "/spec/rules/0/http/paths/0/backend",
                    json!({"resource": {"kind": "Bucket"}}),
                    &of(".backend.resource.name: Required value: name is required"),
                ),
                ("/spec/rules/0/host", json!("10.0.0.1"), "spec.rules[0].host: Invalid value: \"10.0.0.1\": must be"),
                ("/spec/rules/0/host", json!("*.example.com"), ""),
                ("/spec/rules/0/host", json!("a.*"), "spec.rules[0].host: Invalid value: \"a.*\": a wildcard DNS-1123"),
                ("/spec/tls/0/hosts/0", json!("A"), "spec.tls[0].hosts[0]: Invalid value: \"A\": a lowercase RFC 1123"),
                ("/spec/tls/0/secretName", json!("A"), "spec.tls[0].secretName: Invalid value: \"A\": a lowercase RFC"),
                ("/spec/ingressClassName", json!("A"), "spec.ingressClassName: Invalid value: \"A\": a lowercase RFC"),
            ],
        );
        let mut classed = ingress.clone();
        classed["metadata"]["annotations"] = json!({"kubernetes.io/ingress.class": "nginx"});
        check_rows(
            &classed,
            &[
                ("/spec/ingressClassName", json!("nginx"), ""),
                (
                    "/spec/ingressClassName",
                    json!("other"),
                    "annotations.kubernetes.io/ingress.class: Invalid value: \"nginx\": must match `ingressClassName` w",
                ),
            ],
        );
        check_updates(&classed, &[("/spec/ingressClassName", json!("other"), "")]);
        let point = "/status/loadBalancer/ingress/0";
        check_part(
            &ingress,
            "status",
            &[
                (point, json!({"ip": "10.0.0.1", "hostname": "a.example.com"}), ""),
                (
                    point,
                    json!({"ip": "here"}),
                    "status.loadBalancer.ingress[0].ip: Invalid value: \"here\": must be a v",
                ),
                (point, json!({"hostname": "10.0.0.1"}), "status.loadBalancer.ingress[0].hostname: Invalid value: "),
            ],
        );
    }

    #[test]
    fn each_rule_of_classes() {
        let class = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": "a"},
            "spec": {"controller": "example.com/a", "parameters": {"kind": "P", "name": "p", "scope": "Cluster"}},
        });
        check_rows(
            &class,
            &[
                (
                    "/spec/controller",
                    json!("a"),
                    "spec.controller: Invalid value: \"a\": must be a domain-prefixed path",
                ),
                ("/spec/controller", json!(format!("a/{}", "b".repeat(250))), "spec.controller: Too long: may not be"),
                ("/spec/parameters/kind", json!(""), "spec.parameters.kind: Required value"),
                (
                    "/spec/parameters/namespace",
                    json!("n"),
                    "spec.parameters.namespace: Forbidden: `parameters.scope` is",
                ),
                (
                    "/spec/parameters/scope",
                    json!("Namespace"),
                    "spec.parameters.namespace: Required value: `parameters",
                ),
                ("/spec/parameters/scope", json!("Both"), "spec.parameters.scope: Unsupported value: \"Both\""),
            ],
        );
        check_updates(
            &class,
            &[
                ("/spec/parameters/name", json!("q"), ""),
                (
                    "/spec/controller",
                    json!("example.com/b"),
                    "spec.controller: Invalid value: \"example.com/b\": field",
                ),
            ],
        );
    }

    #[test]
    fn each_rule_of_network_policies() {
        let policy = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "a"},
            "spec": {"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]},
        });
        let except = "spec.ingress[0].from[0].ipBlock.except[0]: Invalid value: ";
        let range = "spec.ingress[0].ports[0].endPort: ";
        check_rows(
            &policy,
            &[
                (
                    "/spec/ingress/0/from/0/ipBlock/cidr",
                    json!("10.0.0.0/99"),
                    "spec.ingress[0].from[0].ipBlock.cidr: Invalid value: \"10.0.0.0/99\": must be a valid CIDR",
                ),
                ("/spec/ingress/0/from/0/ipBlock/except", json!(["10.1.0.0/16"]), ""),
                ("/spec/ingress/0/from/0/ipBlock/except", json!(["10.0.0.0/8"]), except),
                ("/spec/ingress/0/from/0/ipBlock/except", json!(["11.0.0.0/16"]), except),
                ("/spec/ingress/0/from/0/ipBlock/except", json!(["fd00::/16"]), except),
                ("/spec/ingress/0/from/0", json!({}), "spec.ingress[0].from[0]: Required value: must specify a peer"),
                (
                    "/spec/ingress/0/from/0/podSelector",
                    json!({}),
                    "spec.ingress[0].from[0]: Forbidden: may not specify both ipBlock and another peer",
                ),
                ("/spec/ingress/0/ports/0", json!({"port": 80, "endPort": 90}), ""),
                (
                    "/spec/ingress/0/ports/0",
                    json!({"port": 80, "endPort": 79}),
                    &format!("{range}Invalid value: 80: must"),
                ),
                (
                    "/spec/ingress/0/ports/0",
                    json!({"port": "a", "endPort": 9}),
                    &format!("{range}Invalid value: 9: may not be"),
                ),
                (
                    "/spec/ingress/0/ports/0",
                    json!({"endPort": 9}),
                    &format!("{range}Invalid value: 9: may not be specified when"),
                ),
                ("/spec/policyTypes", json!(["Both"]), "spec.policyTypes[0]: Unsupported value: \"Both\""),
                (
                    "/spec/policyTypes",
                    json!(["Egress", "Ingress", "Egress"]),
                    "spec.policyTypes: Invalid value: [\"Egress\",\"Ingress\",\"Egress\"]: may not specify more than two",
                ),
            ],
        );
    }
}
