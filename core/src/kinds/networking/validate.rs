//! The rules of ingresses and network policies.

use crate::kinds::rules::{At, PROTOCOLS, cidr, need_name, network, one_of, port, selector};
use crate::object::names;
use crate::refusal::Cause;
use serde_json::Value;

pub fn ingress(new: &Value, _: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let root = At::root(new);
    let spec = root.get("spec");
    let (default, rules) = (spec.get("defaultBackend"), spec.get("rules"));
    if !default.is_set() && rules.is_empty() {
        causes.push(spec.invalid("either `defaultBackend` or `rules` must be specified"));
    }
    if default.is_set() {
        backend(default, &mut causes);
    }
    for rule in rules.items() {
        let host = rule.get("host");
        if host.text().parse::<std::net::IpAddr>().is_ok() {
            causes.push(host.invalid("must be a DNS name, not an IP address"));
        }
        let http = rule.get("http");
        let paths = http.get("paths");
        if http.is_set() && paths.is_empty() {
            causes.push(paths.required(""));
        }
        for path in paths.items() {
            let ty = path.get("pathType");
            if ty.is_empty() {
                causes.push(ty.required("pathType must be specified"));
            }
            one_of(ty, &["Exact", "ImplementationSpecific", "Prefix"], &mut causes);
            let below = path.get("path");
            if matches!(ty.text(), "Exact" | "Prefix") && !below.text().starts_with('/') {
                causes.push(Cause::invalid(below.path(), &Value::from(below.text()), "must be an absolute path"));
            }
            backend(path.get("backend"), &mut causes);
        }
    }
    causes
}

fn backend(backend: At, causes: &mut Vec<Cause>) {
    let service = backend.get("service");
    match (service.is_set(), backend.get("resource").is_set()) {
        (true, true) => causes.push(backend.invalid_unshown("cannot set both resource and service backends")),
        (false, false) => causes.push(backend.invalid_unshown("resource or service backend is required")),
        (false, true) => {}
        (true, false) => {
            need_name(service.get("name"), names::label_1035, causes);
            let at = service.get("port");
            let number = at.get("number").number().is_some_and(|number| number != 0);
            match (at.get("name").is_empty(), number) {
                (true, false) => causes.push(at.required("port name or number is required")),
                (false, true) => causes.push(at.invalid_unshown("cannot set both port name & port number")),
                (false, false) => port(at.get("name"), causes),
                (true, true) => port(at.get("number"), causes),
            }
        }
    }
}

pub fn network_policy(new: &Value, _: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let root = At::root(new);
    let spec = root.get("spec");
    selector(spec.get("podSelector"), &mut causes);
    for (rules, side) in [("ingress", "from"), ("egress", "to")] {
        for rule in spec.get(rules).items() {
            for entry in rule.get("ports").items() {
                one_of(entry.get("protocol"), PROTOCOLS, &mut causes);
                port(entry.get("port"), &mut causes);
            }
            for from in rule.get(side).items() {
                peer(from, &mut causes);
            }
        }
    }
    for ty in spec.get("policyTypes").items() {
        one_of(ty, &["Egress", "Ingress"], &mut causes);
    }
    causes
}

fn peer(peer: At, causes: &mut Vec<Cause>) {
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
    for hole in block.get("except").items() {
        cidr(hole, causes);
        if let (Some((_, outer)), Some((_, inner))) = (network(range.text()), network(hole.text()))
            && inner <= outer
        {
            causes.push(hole.invalid("must be a strict subset of `cidr`"));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::check_rows;
    use serde_json::{Value, json};

    #[test]
    fn each_rule() {
        let ingress = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "a"},
            "spec": {"rules": [{"http": {"paths": [{"path": "/", "pathType": "Prefix",
                "backend": {"service": {"name": "a", "port": {"number": 80}}}}]}}]},
        });
        let path = "spec.rules[0].http.paths[0]";
        check_rows(
            &ingress,
            &[
                ("/spec", json!({}), "spec: Invalid value: {}: either `defaultBackend` or `rules` must be specified"),
                ("/spec/rules/0/http/paths/0/pathType", Value::Null, &format!("{path}.pathType: Required value")),
                ("/spec/rules/0/http/paths/0/path", json!("a"), &format!("{path}.path: Invalid value: \"a\": must be")),
                ("/spec/rules/0/http/paths/0/backend", json!({}), &format!("{path}.backend: Invalid value: \"\": res")),
                ("/spec/rules/0/host", json!("10.0.0.1"), "spec.rules[0].host: Invalid value: \"10.0.0.1\": must be"),
            ],
        );
        let policy = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "a"},
            "spec": {"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]},
        });
        check_rows(
            &policy,
            &[
                (
                    "/spec/ingress/0/from/0/ipBlock/cidr",
                    json!("10.0.0.0/99"),
                    "spec.ingress[0].from[0].ipBlock.cidr: Invalid value: \"10.0.0.0/99\": must be a valid CIDR",
                ),
                ("/spec/ingress/0/from/0/ipBlock/except", json!(["10.1.0.0/16"]), ""),
                ("/spec/ingress/0/from/0/ipBlock/except", json!(["10.0.0.0/8"]), "spec.ingress[0].from[0].ipBlock.exc"),
                ("/spec/ingress/0/from/0", json!({}), "spec.ingress[0].from[0]: Required value: must specify a peer"),
                ("/spec/policyTypes", json!(["Both"]), "spec.policyTypes[0]: Unsupported value: \"Both\""),
            ],
        );
    }
}
