//! Columns of services and endpoints: addresses and ports.

use crate::kinds::Column;
use crate::kinds::cells::{
    NONE, UNKNOWN, age_column, column, field, first_few, items, name, number, of_field, show, text, text_or,
};
use holdfast_value::Value;
use std::collections::BTreeSet;

pub fn columns() -> Vec<Column> {
    vec![
        name(),
        of_field("Type", "string", 0, "spec.type", show::text),
        column("Cluster-IP", "string", 0, field("spec.clusterIP"), |doc, _| cluster_ip(doc)),
        column("External-IP", "string", 0, field("spec.externalIPs"), |doc, _| external_ip(doc).into()),
        column("Port(s)", "string", 0, field("spec.ports"), |doc, _| ports(doc).into()),
        age_column(),
        of_field("Selector", "string", 1, "spec.selector", show::labels),
    ]
}

pub fn endpoints_columns() -> Vec<Column> {
    vec![name(), column("Endpoints", "string", 0, field("subsets"), |doc, _| endpoints(doc).into()), age_column()]
}

/// A load balancer's addresses, sorted, without duplicates.
pub fn balancer_addresses(doc: &Value) -> Vec<&str> {
    let addresses: BTreeSet<&str> = items(doc, "status.loadBalancer.ingress")
        .iter()
        .map(|ingress| Some(text(ingress, "ip")).filter(|ip| !ip.is_empty()).unwrap_or(text(ingress, "hostname")))
        .filter(|address| !address.is_empty())
        .collect();
    addresses.into_iter().collect()
}

fn cluster_ip(doc: &Value) -> Value {
    match items(doc, "spec.clusterIPs").first() {
        Some(first) => first.clone(),
        None => text_or(doc, "spec.clusterIP", NONE),
    }
}

fn external_ip(doc: &Value) -> String {
    let ty = text(doc, "spec.type");
    let mut addresses = if ty == "LoadBalancer" { balancer_addresses(doc) } else { Vec::new() };
    addresses.extend(items(doc, "spec.externalIPs").iter().filter_map(Value::as_str));
    match ty {
        "ExternalName" => text(doc, "spec.externalName").into(),
        "ClusterIP" | "NodePort" if addresses.is_empty() => NONE.into(),
        "LoadBalancer" if addresses.is_empty() => "<pending>".into(),
        "ClusterIP" | "NodePort" | "LoadBalancer" => addresses.join(","),
        _ => UNKNOWN.into(),
    }
}

fn ports(doc: &Value) -> String {
    let ports = items(doc, "spec.ports").iter().map(|port| {
        let node_port = match number(port, "nodePort") {
            0 => String::new(),
            node_port => format!(":{node_port}"),
        };
        format!("{}{node_port}/{}", number(port, "port"), text(port, "protocol"))
    });
    let ports = ports.collect::<Vec<_>>().join(",");
    if ports.is_empty() { NONE.into() } else { ports }
}

fn endpoints(doc: &Value) -> String {
    let subsets = items(doc, "subsets");
    if subsets.is_empty() {
        return NONE.into();
    }
    let mut list = Vec::new();
    for subset in subsets {
        let addresses = || items(subset, "addresses").iter().map(|address| text(address, "ip"));
        let ports = items(subset, "ports");
        if ports.is_empty() {
            // Only a headless service may have no ports; its addresses are shown without ports.
            list.extend(addresses().map(str::to_owned));
        }
        for port in ports {
            list.extend(addresses().map(|ip| with_port(ip, number(port, "port"))));
        }
    }
    first_few(&list, 3)
}

fn with_port(ip: &str, port: i64) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::cells::shown;
    use holdfast_value::json;

    #[test]
    fn services() {
        let cases = [
            (
                json!({"type": "ClusterIP", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00::1"],
                    "ports": [{"port": 443, "protocol": "TCP", "targetPort": 6443}]}),
                json!({}),
                "x | ClusterIP | 10.96.0.1 | <none> | 443/TCP | 5m | <none>",
            ),
            (
                json!({"type": "ClusterIP", "clusterIP": "None", "clusterIPs": ["None"], "selector": {"app": "db"}}),
                json!({}),
                "x | ClusterIP | None | <none> | <none> | 5m | app=db",
            ),
            (
                json!({"type": "NodePort", "clusterIPs": ["10.96.0.2"], "externalIPs": ["1.1.1.1", "2.2.2.2"],
                    "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}),
                json!({}),
                "x | NodePort | 10.96.0.2 | 1.1.1.1,2.2.2.2 | 80:30080/TCP,53/UDP | 5m | <none>",
            ),
            (
                json!({"type": "LoadBalancer", "clusterIP": "10.96.0.3"}),
                json!({}),
                "x | LoadBalancer | 10.96.0.3 | <pending> | <none> | 5m | <none>",
            ),
            (
                json!({"type": "LoadBalancer", "clusterIPs": ["10.96.0.3"], "externalIPs": ["1.1.1.1"]}),
                json!({"loadBalancer": {"ingress": [{"ip": "9.9.9.9"}, {"hostname": "a-long-name.elb.example.com"}]}}),
                "x | LoadBalancer | 10.96.0.3 | 9.9.9.9,a-long-name.elb.example.com,1.1.1.1 | <none> | 5m | <none>",
            ),
            (
                json!({"type": "ExternalName", "externalName": "db.example.com"}),
                json!({}),
                "x | ExternalName | <none> | db.example.com | <none> | 5m | <none>",
            ),
        ];
        for (spec, status, expected) in cases {
            let metadata = json!({"name": "x", "creationTimestamp": "2026-01-09T23:55:00Z"});
            assert_eq!(shown(&columns(), &json!({"metadata": metadata, "spec": spec, "status": status})), expected);
        }
    }

    #[test]
    fn endpoint_lists() {
        let ips = |ips: &[&str]| ips.iter().map(|ip| json!({"ip": ip})).collect::<Vec<_>>();
        let cases = [
            (json!([]), "<none>"),
            (json!([{"notReadyAddresses": ips(&["10.0.0.1"]), "ports": [{"port": 80}]}]), ""),
            (
                json!([{"addresses": ips(&["10.0.0.1", "fd00::2"]), "ports": [{"port": 80}]}]),
                "10.0.0.1:80,[fd00::2]:80",
            ),
            (json!([{"addresses": ips(&["10.0.0.1"])}]), "10.0.0.1"),
            (
                json!([{"addresses": ips(&["10.0.0.1", "10.0.0.2"]), "ports": [{"port": 80}, {"port": 443}]},
                    {"addresses": ips(&["10.0.0.3"]), "ports": [{"port": 80}]}]),
                "10.0.0.1:80,10.0.0.2:80,10.0.0.1:443 + 2 more...",
            ),
        ];
        for (subsets, expected) in cases {
            assert_eq!(endpoints(&json!({"subsets": subsets})), expected);
        }
    }
}
