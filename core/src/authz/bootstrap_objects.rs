//! The objects that a new server creates in addition to roles and bindings: namespaces, priority classes, flow control,
//! the server's own Service.

use super::table::{self, Block, RuleLine};
use crate::kinds::core::ServiceRanges;
use crate::kinds::known;
use crate::kinds::networking::{AddressOwner, given_address};
use holdfast_value::{Map, Value, json};
use std::net::IpAddr;

const FLOW_CONTROL: &str = include_str!("../../data/flow-control.txt");
/// The annotation that says whether the server keeps a flow control object up to date.
pub const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

/// Namespaces, priority classes, flow schemas and priority levels, without UIDs and timestamps.
pub fn bootstrap_objects() -> Vec<Value> {
    let mut documents: Vec<Value> =
        ["default", "kube-system", "kube-public", "kube-node-lease"].into_iter().map(namespace).collect();
    documents.push(priority_class(
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ));
    documents.push(priority_class(
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ));
    documents.extend(flow_control_objects());
    documents
}

/// The flow schemas and priority levels among the bootstrap objects.
pub fn flow_control_objects() -> Vec<Value> {
    table::blocks(FLOW_CONTROL).iter().map(flow_control).collect()
}

/// The Service `kubernetes` for the server at `advertise:port`, with its endpoints, its IPAddress and the ServiceCIDR
/// that lists the ranges. The Service's address is from the first range.
pub fn kubernetes_service(service_ranges: &ServiceRanges, advertise: IpAddr, port: u16) -> Vec<Value> {
    let address = service_ranges.first.address(1);
    let service_ranges: Vec<String> = service_ranges.iter().map(ToString::to_string).collect();
    let metadata = |labels: Value| json!({"name": "kubernetes", "namespace": "default", "labels": labels});
    let ports = json!([{"name": "https", "port": port, "protocol": "TCP"}]);
    vec![
        json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "ServiceCIDR",
            "metadata": {"name": "kubernetes"},
            "spec": {"cidrs": service_ranges},
        }),
        given_address(&address.to_string(), &AddressOwner { namespace: "default".into(), name: "kubernetes".into() }),
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata(json!({"component": "apiserver", "provider": "kubernetes"})),
            "spec": {
                "clusterIP": address.to_string(),
                "clusterIPs": [address.to_string()],
                "internalTrafficPolicy": "Cluster",
                "ipFamilies": [family(address)],
                "ipFamilyPolicy": "SingleStack",
                "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
                "sessionAffinity": "None",
                "type": "ClusterIP",
            },
            "status": {"loadBalancer": {}},
        }),
        json!({
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": metadata(json!({"endpointslice.kubernetes.io/skip-mirror": "true"})),
            "subsets": [{"addresses": [{"ip": advertise.to_string()}], "ports": ports}],
        }),
        json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": metadata(json!({"kubernetes.io/service-name": "kubernetes"})),
            "addressType": family(advertise),
            "endpoints": [{"addresses": [advertise.to_string()], "conditions": {"ready": true}}],
            "ports": ports,
        }),
    ]
}

fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

fn namespace(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    })
}

fn priority_class(name: &str, value: i64, description: &str) -> Value {
    json!({
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "description": description,
        "preemptionPolicy": "PreemptLowerPriority",
    })
}

fn flow_control(block: &Block) -> Value {
    let (kind, spec) = match block.words[0].as_str() {
        "level" => (known::PRIORITY_LEVEL_CONFIGURATION, level(&block.words[2..])),
        "schema" => (known::FLOW_SCHEMA, schema(block)),
        other => unreachable!("the flow control table has no {other}"),
    };
    json!({
        "apiVersion": kind.api_version(),
        "kind": kind.kind,
        "metadata": {"name": block.words[1], "annotations": {AUTO_UPDATE: "true"}},
        "spec": spec,
        "status": {},
    })
}

fn level(words: &[String]) -> Value {
    if words == ["exempt"] {
        return json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}});
    }
    let mut limited = json!({"nominalConcurrencyShares": number(&words[0]), "lendablePercent": number(&words[1])});
    for word in &words[2..] {
        match word.split_once('=') {
            None => limited["limitResponse"] = json!({"type": "Reject"}),
            Some((_, numbers)) => {
                let numbers: Vec<i64> = numbers.split(',').map(number).collect();
                let queuing = json!({"queues": numbers[0], "handSize": numbers[1], "queueLengthLimit": numbers[2]});
                limited["limitResponse"] = json!({"type": "Queue", "queuing": queuing});
            }
        }
    }
    json!({"type": "Limited", "limited": limited})
}

fn schema(block: &Block) -> Value {
    let mut spec = json!({
        "priorityLevelConfiguration": {"name": block.words[2]},
        "matchingPrecedence": number(&block.words[3]),
    });
    let mut subjects = Vec::new();
    for word in &block.words[4..] {
        match word.as_str() {
            "by-user" => spec["distinguisherMethod"] = json!({"type": "ByUser"}),
            "by-namespace" => spec["distinguisherMethod"] = json!({"type": "ByNamespace"}),
            subject => subjects.push(flow_subject(subject)),
        }
    }
    let mut rules = Map::new();
    rules.insert("subjects", subjects.into());
    for line in block.lines.iter().map(|line| RuleLine::parse(line)) {
        let (list, rule) = if line.paths.is_empty() {
            let mut rule = json!({
                "verbs": line.verbs,
                "apiGroups": line.groups,
                "resources": line.resources,
                "namespaces": ["*"],
            });
            if line.cluster {
                rule["clusterScope"] = true.into();
            }
            ("resourceRules", rule)
        } else {
            ("nonResourceRules", json!({"verbs": line.verbs, "nonResourceURLs": line.paths}))
        };
        let list = rules.entry(list).or_insert_with(|| json!([]));
        list.as_array_mut().expect("rules are lists").push(rule);
    }
    spec["rules"] = json!([rules]);
    spec
}

fn flow_subject(word: &str) -> Value {
    match table::subject(word) {
        ("user", name) => json!({"kind": "User", "user": {"name": name}}),
        ("group", name) => json!({"kind": "Group", "group": {"name": name}}),
        (_, account) => {
            let (namespace, name) = account.split_once('/').expect("accounts are namespace/name");
            json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": name}})
        }
    }
}

fn number(word: &str) -> i64 {
    word.parse().unwrap_or_else(|_| panic!("{word} is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(kind: &str, name: &str) -> Value {
        let all = bootstrap_objects();
        let mut found = all.into_iter().filter(|one| one["kind"] == kind && one["metadata"]["name"] == name);
        found.next().unwrap_or_else(|| panic!("no {kind} {name}"))
    }

    #[test]
    fn counts_and_references() {
        let all = bootstrap_objects();
        let of = |kind: &str| all.iter().filter(|one| one["kind"] == kind).collect::<Vec<_>>();
        let counts = ["Namespace", "PriorityClass", "PriorityLevelConfiguration", "FlowSchema"].map(|k| of(k).len());
        assert_eq!(counts, [4, 2, 8, 11]);
        for schema in of("FlowSchema") {
            let level = schema["spec"]["priorityLevelConfiguration"]["name"].as_str().expect("a level");
            find("PriorityLevelConfiguration", level);
            assert_eq!(schema["spec"]["rules"].as_array().map(Vec::len), Some(1));
        }
    }

    #[test]
    fn flow_control_documents() {
        assert_eq!(
            find("PriorityLevelConfiguration", "leader-election")["spec"],
            json!({"type": "Limited", "limited": {
                "nominalConcurrencyShares": 10, "lendablePercent": 0,
                "limitResponse": {"type": "Queue", "queuing": {"queues": 16, "handSize": 4, "queueLengthLimit": 50}}
            }})
        );
        assert_eq!(
            find("PriorityLevelConfiguration", "catch-all")["spec"]["limited"],
            json!({"nominalConcurrencyShares": 5, "lendablePercent": 0, "limitResponse": {"type": "Reject"}})
        );
        assert_eq!(
            find("FlowSchema", "system-leader-election")["spec"],
            json!({
                "priorityLevelConfiguration": {"name": "leader-election"},
                "matchingPrecedence": 100,
                "distinguisherMethod": {"type": "ByUser"},
                "rules": [{
                    "subjects": [
                        {"kind": "User", "user": {"name": "system:kube-controller-manager"}},
                        {"kind": "User", "user": {"name": "system:kube-scheduler"}},
                        {"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": "*"}}
                    ],
                    "resourceRules": [{
                        "verbs": ["get", "create", "update"], "apiGroups": ["coordination.k8s.io"],
                        "resources": ["leases"], "namespaces": ["*"]
                    }]
                }]
            })
        );
        let exempt = find("FlowSchema", "exempt")["spec"].clone();
        assert_eq!(exempt.get("distinguisherMethod"), None);
        assert_eq!(exempt["rules"][0]["resourceRules"][0]["clusterScope"], true);
        assert_eq!(exempt["rules"][0]["nonResourceRules"], json!([{"verbs": ["*"], "nonResourceURLs": ["*"]}]));
    }

    #[test]
    fn the_service_takes_the_first_address() {
        let advertise: IpAddr = "192.0.2.7".parse().expect("an address");
        let documents = kubernetes_service(&"10.96.0.0/12".parse().expect("a range"), advertise, 6443);
        let kinds: Vec<&str> = documents.iter().filter_map(|one| one["kind"].as_str()).collect();
        assert_eq!(kinds, ["ServiceCIDR", "IPAddress", "Service", "Endpoints", "EndpointSlice"]);
        assert_eq!(documents[0]["spec"], json!({"cidrs": ["10.96.0.0/12"]}));
        assert_eq!(documents[1]["metadata"]["name"], "10.96.0.1");
        assert_eq!(documents[2]["spec"]["clusterIP"], "10.96.0.1");
        assert_eq!(documents[2]["spec"]["ports"][0]["targetPort"], 6443);
        assert_eq!(documents[3]["subsets"][0]["addresses"], json!([{"ip": "192.0.2.7"}]));
        assert_eq!(documents[4]["addressType"], "IPv4");
    }
}
