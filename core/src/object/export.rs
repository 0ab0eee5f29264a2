//! Export: an object as its user might have written it, without what the cluster filled in.

use super::meta::{Document, metadata_mut, text};
use serde_json::Value;

/// Metadata that only the server writes, whatever a client sends.
pub(crate) const SERVER_METADATA: [&str; 8] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Fields that are filled in with what this one cluster had to give, by kind: all but an exact export leaves them off.
const OF_THE_CLUSTER: [(&str, &[&str]); 4] = [
    ("PersistentVolumeClaim", &["volumeName"]),
    ("Pod", &["nodeName"]),
    ("Service", &["clusterIP", "clusterIPs", "healthCheckNodePort"]),
    ("Node", &["podCIDR", "podCIDRs", "providerID"]),
];

/// Strips what a user cannot specify; and what belongs to this cluster, unless the export is to be exact.
pub fn export(kind: &str, document: &mut Document, exact: bool) {
    let metadata = metadata_mut(document);
    for field in SERVER_METADATA {
        metadata.remove(field);
    }
    if !exact {
        metadata.remove("namespace");
        if !text(metadata, "generateName").is_empty() {
            metadata.remove("name");
        }
    }
    document.remove("status");
    if exact {
        return;
    }
    let Some(Value::Object(spec)) = document.get_mut("spec") else { return };
    // A service without an address chose to have none.
    let headless = kind == "Service" && text(spec, "clusterIP") == "None";
    let fields = OF_THE_CLUSTER.iter().find(|(found, _)| *found == kind).map_or(&[][..], |(_, fields)| fields);
    for field in fields.iter().filter(|_| !headless) {
        spec.remove(*field);
    }
    if kind == "Service" {
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Value::Object(port) = port {
                port.remove("nodePort");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_the_cluster_filled_in_goes() {
        let metadata = json!({
            "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "creationTimestamp": "t",
            "generation": 2, "managedFields": [], "labels": {"a": "b"},
        });
        let named = json!({"name": "a", "labels": {"a": "b"}});
        let ports = json!([{"port": 80, "nodePort": 30000}]);
        let cases = [
            (
                "Service",
                false,
                json!({"metadata": metadata, "spec": {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ports": ports},
                       "status": {"loadBalancer": {}}}),
                json!({"metadata": named, "spec": {"ports": [{"port": 80}]}}),
            ),
            (
                "Service",
                true,
                json!({"metadata": {"name": "a", "namespace": "n", "uid": "u"}, "spec": {"clusterIP": "10.0.0.1", "ports": ports}}),
                json!({"metadata": {"name": "a", "namespace": "n"}, "spec": {"clusterIP": "10.0.0.1", "ports": ports}}),
            ),
            (
                "Service",
                false,
                json!({"metadata": {"name": "a"}, "spec": {"clusterIP": "None"}}),
                json!({"metadata": {"name": "a"}, "spec": {"clusterIP": "None"}}),
            ),
            (
                "Pod",
                false,
                json!({"metadata": {"name": "a-x", "generateName": "a-"}, "spec": {"nodeName": "n"}, "status": {}}),
                json!({"metadata": {"generateName": "a-"}, "spec": {}}),
            ),
        ];
        for (kind, exact, before, after) in cases {
            let Value::Object(mut document) = before else { unreachable!("each is an object") };
            export(kind, &mut document, exact);
            assert_eq!(Value::Object(document), after, "{kind}, exact: {exact}");
        }
    }
}
