//! Structure of whole documents.

use super::*;
use crate::kinds::{Kind, registry};
use crate::schema::schema;
use prost::Message as _;
use serde_json::json;
use std::collections::BTreeMap;

fn check<T>(custom: &dyn CustomSchemas, kinds: Vec<Kind>, with: impl FnOnce(&OpenApi) -> T) -> T {
    let mut registry = registry().clone();
    for kind in kinds {
        registry.add(kind);
    }
    let catalog = Catalog::new(&registry);
    with(&OpenApi { schema: schema(), catalog: &catalog, custom, version: "v1.35.0" })
}

fn parsed(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

/// Every reference, wherever it stands.
fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            if let Some(reference) = map.get("$ref").and_then(Value::as_str) {
                found.insert(reference.to_owned());
            }
            map.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

fn assert_references_resolve(document: &Value) {
    let mut found = BTreeSet::new();
    references(document, &mut found);
    assert!(!found.is_empty());
    for reference in found {
        // Only definition names hold dots, so none needs unescaping.
        let target = document.pointer(reference.strip_prefix('#').unwrap());
        assert!(target.is_some(), "{reference}");
    }
}

/// Operation ids and what they do, by action and kind.
fn operations(document: &Value) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap().iter().filter(|(key, _)| *key != "parameters") {
            let id = operation["operationId"].as_str().unwrap().to_owned();
            let placed = json!({"path": path, "method": method, "operation": operation});
            assert_eq!(found.insert(id.clone(), placed), None, "operation id {id} twice");
        }
    }
    found
}

#[test]
fn every_v3_document_stands_on_its_own() {
    check(&NoCustomSchemas, vec![], |openapi| {
        let paths = openapi.v3_paths();
        assert!(paths.contains(&"api/v1".to_owned()) && paths.contains(&"apis/apps/v1".to_owned()));
        for path in &paths {
            let document = parsed(&openapi.v3_document(path).unwrap());
            assert_references_resolve(&document);
            operations(&document);
        }
        assert_eq!(openapi.v3_document("apis/apps/v3"), None);
        assert_eq!(openapi.v3_document("apis//v1"), None);
    });
}

#[test]
fn the_v3_index_lists_every_path_with_its_hash() {
    check(&NoCustomSchemas, vec![], |openapi| {
        let index = parsed(&openapi.v3_index());
        let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap();
        assert_eq!(url, format!("/openapi/v3/apis/apps/v1?hash={}", openapi.v3_hash("apis/apps/v1").unwrap()));
        assert_ne!(openapi.v3_hash("apis/apps/v1"), openapi.v3_hash("apis/batch/v1"));
        assert_eq!(index["paths"].as_object().unwrap().len(), openapi.v3_paths().len());
    });
}

#[test]
fn v2_describes_every_kind_of_the_registry() {
    check(&NoCustomSchemas, vec![], |openapi| {
        let document = parsed(&openapi.v2_json());
        assert_references_resolve(&document);
        let operations = operations(&document);
        assert!(document["definitions"].as_object().unwrap().len() > 900);
        let mut actions: BTreeSet<(String, String)> = BTreeSet::new();
        for placed in operations.values() {
            let operation = &placed["operation"];
            if let Some(action) = operation["x-kubernetes-action"].as_str() {
                let kind = operation["x-kubernetes-group-version-kind"].to_string();
                actions.insert((kind, action.to_owned()));
            }
        }
        for gv in openapi.catalog.group_versions() {
            for served in &gv.resources {
                let own = json!({"group": gv.group, "kind": served.kind.kind, "version": gv.version});
                for verb in &served.kind.verbs {
                    let action = match *verb {
                        "create" => "post",
                        "update" => "put",
                        other => other,
                    };
                    assert!(actions.contains(&(own.to_string(), action.to_owned())), "{own} {verb}");
                }
                let definition = &document["definitions"][&served.version.message];
                let kinds = definition["x-kubernetes-group-version-kind"].as_array().unwrap();
                assert!(kinds.contains(&own), "{own}");
            }
        }
    });
}

#[test]
fn operations_look_as_clients_expect() {
    check(&NoCustomSchemas, vec![], |openapi| {
        let document = parsed(&openapi.v3_document("api/v1").unwrap());
        let operations = operations(&document);
        for (id, method, path) in [
            ("listCoreV1NamespacedPod", "get", "/api/v1/namespaces/{namespace}/pods"),
            ("listCoreV1PodForAllNamespaces", "get", "/api/v1/pods"),
            ("createCoreV1NamespacedPod", "post", "/api/v1/namespaces/{namespace}/pods"),
            ("deleteCoreV1CollectionNamespacedPod", "delete", "/api/v1/namespaces/{namespace}/pods"),
            ("readCoreV1NamespacedPod", "get", "/api/v1/namespaces/{namespace}/pods/{name}"),
            ("replaceCoreV1NamespacedPodStatus", "put", "/api/v1/namespaces/{namespace}/pods/{name}/status"),
            ("readCoreV1NamespacedPodLog", "get", "/api/v1/namespaces/{namespace}/pods/{name}/log"),
            ("connectCoreV1GetNamespacedPodExec", "get", "/api/v1/namespaces/{namespace}/pods/{name}/exec"),
            ("connectCoreV1PostNodeProxyWithPath", "post", "/api/v1/nodes/{name}/proxy/{path}"),
            ("watchCoreV1NamespacedPodList", "get", "/api/v1/watch/namespaces/{namespace}/pods"),
            ("watchCoreV1PodListForAllNamespaces", "get", "/api/v1/watch/pods"),
            ("replaceCoreV1NamespaceFinalize", "put", "/api/v1/namespaces/{name}/finalize"),
            (
                "patchCoreV1NamespacedReplicationControllerScale",
                "patch",
                "/api/v1/namespaces/{namespace}/replicationcontrollers/{name}/scale",
            ),
        ] {
            let placed = operations.get(id).unwrap_or_else(|| panic!("{id}"));
            assert_eq!((&placed["method"], &placed["path"]), (&json!(method), &json!(path)), "{id}");
        }
        let patch = &operations["patchCoreV1NamespacedPod"]["operation"];
        let names: Vec<&str> =
            patch["parameters"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
        assert!(patch["requestBody"]["content"]["application/strategic-merge-patch+json"].is_object());
        let eviction = &operations["createCoreV1NamespacedPodEviction"]["operation"];
        let kind = json!({"group": "policy", "version": "v1", "kind": "Eviction"});
        assert_eq!(eviction["x-kubernetes-group-version-kind"], kind);
    });
}

#[test]
fn definitions_carry_what_patches_and_explain_need() {
    check(&NoCustomSchemas, vec![], |openapi| {
        let document = parsed(&openapi.v3_document("api/v1").unwrap());
        let schemas = &document["components"]["schemas"];
        let containers = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
        assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
        assert_eq!(containers["x-kubernetes-patch-strategy"], "merge");
        assert_eq!(containers["x-kubernetes-list-type"], "map");
        assert_eq!(containers["x-kubernetes-list-map-keys"], json!(["name"]));
        let item = json!({"allOf": [{"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"}], "default": {}});
        assert_eq!(containers["items"], item);
        assert!(containers["description"].as_str().unwrap().starts_with("List of containers"));
        let volumes = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["volumes"];
        assert_eq!(volumes["x-kubernetes-patch-strategy"], "merge,retainKeys");
        let pod = &schemas["io.k8s.api.core.v1.Pod"];
        assert_eq!(pod["properties"]["kind"]["type"], "string");
        assert_eq!(pod["properties"]["metadata"]["default"], json!({}));
        let own = json!([{"group": "", "kind": "Pod", "version": "v1"}]);
        assert_eq!(pod["x-kubernetes-group-version-kind"], own);
        let port = &schemas["io.k8s.api.core.v1.ContainerPort"];
        assert_eq!(port["properties"]["protocol"]["default"], "TCP");
        assert_eq!(port["properties"]["containerPort"]["default"], 0);
        assert_eq!(port["required"], json!(["containerPort"]));
        let port = &schemas["io.k8s.api.core.v1.ServicePort"]["properties"]["targetPort"];
        let reference = "#/components/schemas/io.k8s.apimachinery.pkg.util.intstr.IntOrString";
        assert_eq!(port["allOf"], json!([{"$ref": reference}]));
        assert_eq!(schemas["io.k8s.api.core.v1.SecretKeySelector"]["x-kubernetes-map-type"], "atomic");
    });
}

#[test]
fn old_betas_are_described_in_their_own_names() {
    check(&NoCustomSchemas, vec![], |openapi| {
        let document = parsed(&openapi.v3_document("apis/extensions/v1beta1").unwrap());
        let schemas = &document["components"]["schemas"];
        let deployment = &schemas["io.k8s.api.extensions.v1beta1.Deployment"];
        assert!(!deployment["description"].as_str().unwrap().is_empty());
        let document = parsed(&openapi.v3_document("apis/batch/v2alpha1").unwrap());
        assert!(operations(&document).contains_key("listBatchV2alpha1NamespacedCronJob"));
    });
}

#[test]
fn v2_protobuf_says_what_the_json_says() {
    check(&NoCustomSchemas, vec![], |openapi| {
        let json = parsed(&openapi.v2_json());
        let document = proto::Document::decode(openapi.v2_protobuf()).unwrap();
        assert_eq!(document.swagger, "2.0");
        let definitions = document.definitions.unwrap().named;
        assert_eq!(definitions.len(), json["definitions"].as_object().unwrap().len());
        let paths = document.paths.unwrap().path;
        assert_eq!(paths.len(), json["paths"].as_object().unwrap().len());

        let find = |name: &str| definitions.iter().find(|d| d.name == name).unwrap().value.as_ref().unwrap();
        let spec = find("io.k8s.api.core.v1.PodSpec");
        let containers = spec.properties.as_ref().unwrap().named.iter().find(|p| p.name == "containers").unwrap();
        let containers = containers.value.as_ref().unwrap();
        assert_eq!(containers.ty.as_ref().unwrap().value, ["array"]);
        let items = &containers.items.as_ref().unwrap().schema;
        assert_eq!(items[0].reference, "#/definitions/io.k8s.api.core.v1.Container");
        let extension = |name: &str| {
            let found = containers.vendor_extension.iter().find(|e| e.name == name).unwrap();
            found.value.as_ref().unwrap().yaml.clone()
        };
        assert_eq!(extension("x-kubernetes-patch-merge-key"), "\"name\"\n");
        assert_eq!(extension("x-kubernetes-list-map-keys"), "[\"name\"]\n");

        let pods = paths.iter().find(|p| p.name == "/api/v1/namespaces/{namespace}/pods/{name}").unwrap();
        let patch = pods.value.as_ref().unwrap().patch.as_ref().unwrap();
        let dry_run = patch.parameters.iter().filter_map(inline_query).any(|query| query.name == "dryRun");
        assert!(dry_run, "old kubectl looks for it there");
        let kind = patch.vendor_extension.iter().find(|e| e.name == "x-kubernetes-group-version-kind").unwrap();
        let kind = parsed(kind.value.as_ref().unwrap().yaml.as_bytes());
        assert_eq!(kind, json!({"group": "", "kind": "Pod", "version": "v1"}));
    });
}

fn inline_query(item: &proto::ParametersItem) -> Option<&proto::QueryParameter> {
    let Some(proto::ParameterOrReference::Parameter(parameter)) = &item.item else { return None };
    let Some(proto::ParameterKind::NonBody(parameter)) = &parameter.kind else { return None };
    match &parameter.kind {
        Some(proto::NonBodyKind::Query(query)) => Some(query),
        _ => None,
    }
}

struct Tabs(Value);

impl CustomSchemas for Tabs {
    fn schema(&self, message: &str) -> Option<&Value> {
        (message == "com.example.stable.v1.CronTab").then_some(&self.0)
    }
}

fn tabs() -> Vec<Kind> {
    let tab = Kind::namespaced("CronTab", "crontabs").status();
    vec![tab.versions("stable.example.com", "com.example.stable", ["v1", "v1beta1"])]
}

#[test]
fn custom_resources_take_part() {
    let custom = Tabs(json!({
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {
            "replicas": {"type": "integer", "default": 1},
            "port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
        }}},
    }));
    check(&custom, tabs(), |openapi| {
        let document = parsed(&openapi.v3_document("apis/stable.example.com/v1").unwrap());
        assert_references_resolve(&document);
        let tab = &document["components"]["schemas"]["com.example.stable.v1.CronTab"];
        assert_eq!(tab["properties"]["spec"]["properties"]["replicas"]["default"], 1);
        assert_eq!(tab["properties"]["apiVersion"]["type"], "string");
        assert!(tab["properties"]["metadata"]["allOf"].is_array());
        let operations = operations(&document);
        let patch = &operations["patchStableExampleComV1NamespacedCronTab"]["operation"];
        assert!(patch["requestBody"]["content"]["application/strategic-merge-patch+json"].is_null());

        let v2 = parsed(&openapi.v2_json());
        assert_references_resolve(&v2);
        let tab = &v2["definitions"]["com.example.stable.v1.CronTab"]["properties"]["spec"]["properties"];
        assert_eq!(tab["replicas"], json!({"type": "integer"}));
        // A version without a schema is described, loosely.
        let loose = &v2["definitions"]["com.example.stable.v1beta1.CronTab"];
        assert_eq!(loose["x-kubernetes-preserve-unknown-fields"], true);
    });
}

#[test]
fn hashes_follow_the_schemas_of_custom_resources() {
    let hash = |schema: Value| {
        check(&Tabs(schema), tabs(), |openapi| {
            (openapi.v3_hash("apis/stable.example.com/v1").unwrap(), openapi.v3_hash("apis/apps/v1"), openapi.v2_hash())
        })
    };
    let (before, after) = (hash(json!({"type": "object"})), hash(json!({"type": "object", "description": "new"})));
    assert_ne!(before.0, after.0);
    assert_eq!(before.1, after.1);
    assert_ne!(before.2, after.2);
}
