//! New objects: the documents that clients send to create them, and the shapes that the created objects should have.

use crate::custom;
use crate::rights;
use crate::shape::{ObjectShape, RBAC_GROUP, Sort};
use holdfast_value::{Value, json};

pub fn fresh_document(sort: Sort, namespace: Option<&str>, name: &str, value: &str, id: &str) -> Value {
    let mut document = bare_document(sort, namespace, name);
    document["metadata"]["labels"] = json!({"app": value});
    document["metadata"]["annotations"] = json!({"origin": id});
    match sort {
        Sort::ConfigMap => document["data"] = json!({"k0": value}),
        Sort::Deployment | Sort::Widget => document["spec"]["replicas"] = 1.into(),
        Sort::Lease => document["spec"] = json!({"holderIdentity": value}),
        _ => {}
    }
    document
}

/// A document with the fields that every object of the kind has and that never change.
pub fn bare_document(sort: Sort, namespace: Option<&str>, name: &str) -> Value {
    if sort == Sort::CustomResourceDefinition {
        return custom::VARIANTS[0].definition();
    }
    let (group, _) = sort.path();
    let mut document = json!({
        "apiVersion": holdfast_core::kinds::api_version(group, "v1"),
        "kind": format!("{sort:?}"),
        "metadata": {"name": name},
    });
    if let Some(namespace) = namespace {
        document["metadata"]["namespace"] = namespace.into();
    }
    let containers = json!([{"name": "main", "image": "registry.example/app:1"}]);
    match sort {
        Sort::Deployment => {
            document["spec"] = json!({
                "selector": {"matchLabels": {"run": "x"}},
                "template": {"metadata": {"labels": {"run": "x"}}, "spec": {"containers": containers}},
            });
        }
        Sort::Service => document["spec"] = json!({"ports": [{"port": 80}], "selector": {"run": "x"}}),
        Sort::Pod => document["spec"] = json!({"containers": containers}),
        Sort::Widget => document["spec"] = json!({}),
        Sort::RoleBinding => {
            let (api_group, owner) = (RBAC_GROUP, rights::owner(name));
            document["roleRef"] = json!({"apiGroup": api_group, "kind": "ClusterRole", "name": rights::OWNER_ROLE});
            document["subjects"] = json!([{"apiGroup": api_group, "kind": "User", "name": owner}]);
        }
        _ => {}
    }
    document
}

/// The shape that a new object should have if it is created from this document.
pub fn expected(sort: Sort, document: &Value) -> ObjectShape {
    let mut shape = ObjectShape::of(sort, document);
    match sort {
        Sort::Pod => shape.status = Some("Pending".into()),
        Sort::Namespace => {
            shape.status = Some("Active".into());
            shape.held = true;
            let name = document["metadata"]["name"].as_str().unwrap_or("");
            shape.labels.insert("kubernetes.io/metadata.name".into(), name.into());
        }
        _ => {}
    }
    shape
}
