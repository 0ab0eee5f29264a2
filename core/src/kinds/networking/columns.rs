//! Columns of the networking kinds.

use crate::kinds::Column;
use crate::kinds::cells::{NONE, age_column, at, column, field, items, name, of_field, show, text};
use crate::kinds::core::columns::balancer_addresses;
use holdfast_value::Value;

/// The columns of the Table of one kind of this group. A kind without columns here is shown with the columns Name and
/// Created At.
pub fn of(kind: &str) -> Vec<Column> {
    match kind {
        "Ingress" => vec![
            name(),
            column("Class", "string", 0, "The ingress class that serves it.", |doc, _| {
                at(doc, "spec.ingressClassName").cloned().unwrap_or_else(|| NONE.into())
            }),
            column("Hosts", "string", 0, "Hosts that the rules match.", |doc, _| hosts(doc).into()),
            column("Address", "string", 0, "Where the load balancer is reached.", |doc, _| {
                balancer_addresses(doc).join(",").into()
            }),
            column("Ports", "string", 0, "Ports that are open.", |doc, _| {
                if items(doc, "spec.tls").is_empty() { "80".into() } else { "80, 443".into() }
            }),
            age_column(),
        ],
        "IngressClass" => vec![
            name(),
            column("Controller", "string", 0, "The controller behind the class.", |doc, _| {
                text(doc, "spec.controller").into()
            }),
            column("Parameters", "string", 0, "The object with the class's settings.", |doc, _| {
                at(doc, "spec.parameters").map_or_else(|| NONE.into(), parameters).into()
            }),
            age_column(),
        ],
        "NetworkPolicy" => {
            vec![name(), of_field("Pod-Selector", "string", 0, "spec.podSelector", show::selector), age_column()]
        }
        "ServiceCIDR" => vec![
            name(),
            column("CIDRs", "string", 0, field("spec.cidrs"), |doc, _| {
                let ranges: Vec<_> = items(doc, "spec.cidrs").iter().filter_map(Value::as_str).collect();
                ranges.join(",").into()
            }),
            age_column(),
        ],
        "IPAddress" => vec![
            name(),
            column("ParentRef", "string", 0, field("spec.parentRef"), |doc, _| {
                at(doc, "spec.parentRef").map_or_else(|| NONE.into(), parent).into()
            }),
            // Kubernetes sends the age in every row, but without a name in the header.
            Column { name: String::new(), ..age_column() },
        ],
        _ => Vec::new(),
    }
}

fn hosts(doc: &Value) -> String {
    const MOST: usize = 3;
    let rules = items(doc, "spec.rules");
    let mut named =
        rules.iter().enumerate().map(|(index, rule)| (index, text(rule, "host"))).filter(|(_, host)| !host.is_empty());
    let shown: Vec<_> = named.by_ref().take(MOST).collect();
    let list = shown.iter().map(|(_, host)| *host).collect::<Vec<_>>().join(",");
    match shown.get(MOST - 1) {
        // The number of further rules includes rules without a host.
        Some((last, _)) if last + 1 < rules.len() => format!("{list} + {} more...", rules.len() - MOST),
        _ if list.is_empty() => "*".into(),
        _ => list,
    }
}

fn parameters(reference: &Value) -> String {
    let group = at(reference, "apiGroup").map_or_else(String::new, |_| format!(".{}", text(reference, "apiGroup")));
    format!("{}{group}/{}", text(reference, "kind"), text(reference, "name"))
}

/// The parent as text, such as `services/default/web`: resource, group, namespace and name, without empty parts.
fn parent(reference: &Value) -> String {
    let prefixed = |mark: &str, field| match text(reference, field) {
        "" => String::new(),
        part => format!("{mark}{part}"),
    };
    let resource = format!("{}{}", text(reference, "resource"), prefixed(".", "group")).to_lowercase();
    format!("{resource}{}/{}", prefixed("/", "namespace"), text(reference, "name"))
}

#[cfg(test)]
mod tests {
    use super::of;
    use crate::kinds::cells::shown;
    use holdfast_value::json;

    #[test]
    fn networking() {
        let host = |host: &str| json!({"host": host});
        let cases = [
            (
                "Ingress",
                json!({
                    "spec": {"ingressClassName": "nginx", "rules": [host("a.com"), host("b.com")], "tls": [{}]},
                    "status": {"loadBalancer": {"ingress": [{"hostname": "lb.example.com"}, {"ip": "1.1.1.1"}]}},
                }),
                "x | nginx | a.com,b.com | 1.1.1.1,lb.example.com | 80, 443 | 5m",
            ),
            ("Ingress", json!({"spec": {"rules": [{}]}}), "x | <none> | * |  | 80 | 5m"),
            (
                "Ingress",
                json!({"spec": {"rules": [host("a"), host(""), host("b"), host("c"), host("d")]}}),
                "x | <none> | a,b,c + 2 more... |  | 80 | 5m",
            ),
            (
                "Ingress",
                json!({"spec": {"rules": [host("a"), {}, host("b"), host("c")]}}),
                "x | <none> | a,b,c |  | 80 | 5m",
            ),
            (
                "IngressClass",
                json!({"spec": {"controller": "k8s.io/nginx",
                    "parameters": {"apiGroup": "e.io", "kind": "P", "name": "p"}}}),
                "x | k8s.io/nginx | P.e.io/p | 5m",
            ),
            ("IngressClass", json!({"spec": {"controller": "c"}}), "x | c | <none> | 5m"),
            ("NetworkPolicy", json!({"spec": {"podSelector": {}}}), "x | <none> | 5m"),
            ("NetworkPolicy", json!({"spec": {"podSelector": {"matchLabels": {"a": "b"}}}}), "x | a=b | 5m"),
            (
                "ServiceCIDR",
                json!({"spec": {"cidrs": ["10.96.0.0/16", "fd00::/112"]}}),
                "x | 10.96.0.0/16,fd00::/112 | 5m",
            ),
            (
                "IPAddress",
                json!({"spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "web"}}}),
                "x | services/default/web | 5m",
            ),
            (
                "IPAddress",
                json!({"spec": {"parentRef": {"group": "g.io", "resource": "Gateways", "name": "g"}}}),
                "x | gateways.g.io/g | 5m",
            ),
        ];
        for (kind, mut doc, expected) in cases {
            doc["metadata"] = json!({"name": "x", "creationTimestamp": "2026-01-09T23:55:00Z"});
            assert_eq!(shown(&of(kind), &doc), expected, "{kind}");
        }
    }
}
