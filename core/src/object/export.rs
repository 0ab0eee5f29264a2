//! Exports an object as its user might have written it, without the fields that the cluster sets.

use super::meta::{Document, metadata_mut, text};

/// The fields of `metadata` that only the server sets.
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

/// Removes the fields that a user cannot set. Unless `exact` is set, it also removes the metadata that has a meaning
/// only in this cluster, and calls `of_the_cluster`, which removes further such fields of the object's kind.
pub fn export(document: &mut Document, exact: bool, of_the_cluster: Option<fn(&mut Document)>) {
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
    if let Some(strip) = of_the_cluster.filter(|_| !exact) {
        strip(document);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::{known, registry};
    use holdfast_value::{Value, json};

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
                known::SERVICE,
                false,
                json!({"metadata": metadata, "spec": {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ports": ports},
                       "status": {"loadBalancer": {}}}),
                json!({"metadata": named, "spec": {"ports": [{"port": 80}]}}),
            ),
            (
                known::SERVICE,
                true,
                json!({"metadata": {"name": "a", "namespace": "n", "uid": "u"}, "spec": {"clusterIP": "10.0.0.1", "ports": ports}}),
                json!({"metadata": {"name": "a", "namespace": "n"}, "spec": {"clusterIP": "10.0.0.1", "ports": ports}}),
            ),
            (
                known::SERVICE,
                false,
                json!({"metadata": {"name": "a"}, "spec": {"clusterIP": "None"}}),
                json!({"metadata": {"name": "a"}, "spec": {"clusterIP": "None"}}),
            ),
            (
                known::POD,
                false,
                json!({"metadata": {"name": "a-x", "generateName": "a-"}, "spec": {"nodeName": "n"}, "status": {}}),
                json!({"metadata": {"generateName": "a-"}, "spec": {}}),
            ),
        ];
        for (kind, exact, before, after) in cases {
            let (id, _) = registry().known(kind).expect("a kind that is served");
            let strip = registry().get(id).content.export;
            let Value::Object(mut document) = before else { unreachable!("each is an object") };
            export(&mut document, exact, strip);
            assert_eq!(Value::Object(document), after, "{kind:?}, exact: {exact}");
        }
    }
}
