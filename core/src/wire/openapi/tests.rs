//! Tests of the structure of whole OpenAPI documents.

use super::*;
use crate::event::Offset;
use crate::kinds::{Kind, custom, registry};
use crate::schema::schema;
use bytes::Bytes;
use holdfast_value::{CompactString, json};
use prost::Message as _;
use std::collections::BTreeMap;

fn check<T>(kinds: Vec<Kind>, with: impl FnOnce(&OpenApi) -> T) -> T {
    let mut registry = registry().clone();
    for kind in kinds {
        registry.add(kind);
    }
    let catalog = Catalog::new(&registry);
    with(&OpenApi { schema: schema(), catalog: &catalog, version: "v1.35.0" })
}

/// The whole document of version 2. Custom kinds are described as if they were built in.
fn v2(openapi: &OpenApi, encoding: v2::Encoding) -> Bytes {
    openapi.v2_document(encoding, &[openapi.v2_part(encoding, true)]).concat().into()
}

fn parsed(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

/// Collects all references in a value.
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
        // No reference contains an escape, so it can be used as a JSON pointer.
        let target = document.pointer(reference.strip_prefix('#').unwrap());
        assert!(target.is_some(), "{reference}");
    }
}

/// The operations of a document by their ids, each with its action and its kind.
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
    check(vec![], |openapi| {
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
    check(vec![], |openapi| {
        let index = parsed(&openapi.v3_index());
        let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap();
        assert_eq!(url, format!("/openapi/v3/apis/apps/v1?hash={}", openapi.v3_hash("apis/apps/v1").unwrap()));
        assert_ne!(openapi.v3_hash("apis/apps/v1"), openapi.v3_hash("apis/batch/v1"));
        assert_eq!(index["paths"].as_object().unwrap().len(), openapi.v3_paths().len());
    });
}

#[test]
fn v2_describes_every_kind_of_the_registry() {
    check(vec![], |openapi| {
        let document = parsed(&v2(openapi, v2::Encoding::Json));
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
fn operations_stand_where_clients_look_for_them() {
    let pods = "/api/v1/namespaces/{namespace}/pods";
    let rows = [
        ("listCoreV1NamespacedPod", "get", pods.to_owned()),
        ("listCoreV1PodForAllNamespaces", "get", "/api/v1/pods".into()),
        ("createCoreV1NamespacedPod", "post", pods.into()),
        ("deleteCoreV1CollectionNamespacedPod", "delete", pods.into()),
        ("readCoreV1NamespacedPod", "get", format!("{pods}/{{name}}")),
        ("replaceCoreV1NamespacedPodStatus", "put", format!("{pods}/{{name}}/status")),
        ("patchCoreV1NamespacedPodResize", "patch", format!("{pods}/{{name}}/resize")),
        ("readCoreV1NamespacedPodEphemeralcontainers", "get", format!("{pods}/{{name}}/ephemeralcontainers")),
        ("createCoreV1NamespacedPodBinding", "post", format!("{pods}/{{name}}/binding")),
        ("readCoreV1NamespacedPodLog", "get", format!("{pods}/{{name}}/log")),
        ("connectCoreV1GetNamespacedPodExec", "get", format!("{pods}/{{name}}/exec")),
        ("connectCoreV1PostNamespacedPodAttach", "post", format!("{pods}/{{name}}/attach")),
        ("connectCoreV1PostNamespacedPodPortforward", "post", format!("{pods}/{{name}}/portforward")),
        ("connectCoreV1HeadNamespacedPodProxy", "head", format!("{pods}/{{name}}/proxy")),
        ("connectCoreV1PostNodeProxyWithPath", "post", "/api/v1/nodes/{name}/proxy/{path}".into()),
        ("watchCoreV1NamespacedPodList", "get", "/api/v1/watch/namespaces/{namespace}/pods".into()),
        ("watchCoreV1NamespacedPod", "get", "/api/v1/watch/namespaces/{namespace}/pods/{name}".into()),
        ("watchCoreV1PodListForAllNamespaces", "get", "/api/v1/watch/pods".into()),
        ("replaceCoreV1NamespaceFinalize", "put", "/api/v1/namespaces/{name}/finalize".into()),
        (
            "createCoreV1NamespacedServiceAccountToken",
            "post",
            "/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token".into(),
        ),
        (
            "patchAppsV1NamespacedDeploymentScale",
            "patch",
            "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale".into(),
        ),
        (
            "replaceCertificatesV1CertificateSigningRequestApproval",
            "put",
            "/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}/approval".into(),
        ),
        ("getAPIVersions", "get", "/apis/".into()),
        ("getCoreAPIVersions", "get", "/api/".into()),
        ("getCoreV1APIResources", "get", "/api/v1/".into()),
        ("getAppsAPIGroup", "get", "/apis/apps/".into()),
        ("getAppsV1APIResources", "get", "/apis/apps/v1/".into()),
        ("getCodeVersion", "get", "/version/".into()),
    ];
    check(vec![], |openapi| {
        let operations = operations(&parsed(&v2(openapi, v2::Encoding::Json)));
        for (id, method, path) in rows {
            let placed = operations.get(id).unwrap_or_else(|| panic!("{id}"));
            assert_eq!((&placed["method"], &placed["path"]), (&json!(method), &json!(path)), "{id}");
        }
        assert!(!operations.contains_key("watchCoreV1ComponentStatusList"), "it cannot be watched");
    });
}

/// A summary of an operation: its kind, the kind that `name` refers to, its options (without `pretty`, which all
/// operations have), status codes, and media types.
fn summary(document: &Value, placed: &Value) -> String {
    let (operation, item) = (&placed["operation"], &document["paths"][placed["path"].as_str().unwrap()]);
    let shared = item["parameters"].as_array();
    let about = shared
        .into_iter()
        .flatten()
        .find(|p| p["name"] == "name")
        .map_or("-", |p| p["description"].as_str().unwrap().strip_prefix("name of the ").unwrap());
    let own = operation["parameters"].as_array();
    let options: BTreeSet<&str> = (own.into_iter().chain(shared).flatten())
        .filter(|p| p["in"] == "query" && p["name"] != "pretty")
        .map(|p| p["name"].as_str().unwrap())
        .collect();
    let types = |content: &Value| {
        let types = content.as_object().into_iter().flatten().map(|(ty, _)| ty.replace("application/", ""));
        types.collect::<Vec<_>>().join(" ")
    };
    let codes: Vec<&str> = operation["responses"].as_object().unwrap().keys().map(CompactString::as_str).collect();
    format!(
        "{} | {about} | {} | {} | {} | {}",
        operation["description"].as_str().unwrap(),
        options.into_iter().collect::<Vec<_>>().join(" "),
        codes.join(" "),
        types(&operation["requestBody"]["content"]),
        types(&operation["responses"]["200"]["content"]),
    )
}

#[test]
fn operations_say_what_kubernetes_says() {
    let list = "allowWatchBookmarks continue fieldSelector labelSelector limit resourceVersion resourceVersionMatch \
                sendInitialEvents timeoutSeconds watch";
    let object = "json vnd.kubernetes.protobuf yaml";
    let stream = "json json;stream=watch vnd.kubernetes.protobuf vnd.kubernetes.protobuf;stream=watch yaml";
    let delete = "dryRun gracePeriodSeconds ignoreStoreReadErrorWithClusterBreakingPotential orphanDependents \
                  propagationPolicy";
    let collection = "continue dryRun fieldSelector gracePeriodSeconds \
                      ignoreStoreReadErrorWithClusterBreakingPotential labelSelector limit orphanDependents \
                      propagationPolicy resourceVersion resourceVersionMatch sendInitialEvents timeoutSeconds";
    let write = "dryRun fieldManager fieldValidation";
    let exec = "command container stderr stdin stdout tty";
    let log =
        "container follow insecureSkipTLSVerifyBackend limitBytes previous sinceSeconds stream tailLines timestamps";
    let patch = "apply-patch+yaml json-patch+json merge-patch+json strategic-merge-patch+json";
    let rows = [
        (
            "listCoreV1NamespacedEndpoints",
            format!("list or watch objects of kind Endpoints | - | {list} | 200 401 |  | {stream}"),
        ),
        (
            "listCoreV1ComponentStatus",
            format!("list objects of kind ComponentStatus | - | {list} | 200 401 |  | {stream}"),
        ),
        (
            "createCoreV1NamespacedEndpoints",
            format!("create Endpoints | - | {write} | 200 201 202 401 | */* | {object}"),
        ),
        ("createCoreV1NamespacedEvent", format!("create an Event | - | {write} | 200 201 202 401 | */* | {object}")),
        ("readCoreV1NamespacedPod", format!("read the specified Pod | Pod |  | 200 401 |  | {object}")),
        (
            "replaceCoreV1NamespacedPod",
            format!("replace the specified Pod | Pod | {write} | 200 201 401 | */* | {object}"),
        ),
        (
            "patchCoreV1NamespacedPodStatus",
            format!(
                "partially update status of the specified Pod | Pod | {write} force | 200 201 401 | {patch} | {object}"
            ),
        ),
        ("deleteCoreV1NamespacedPod", format!("delete a Pod | Pod | {delete} | 200 202 401 | */* | {object}")),
        (
            "deleteCoreV1CollectionNamespacedPod",
            format!("delete collection of Pod | - | {collection} | 200 401 | */* | {object}"),
        ),
        (
            "createCoreV1NamespacedPodEviction",
            format!("create eviction of a Pod | Eviction | {write} | 200 201 202 401 | */* | {object}"),
        ),
        (
            "readCoreV1NamespacedReplicationControllerScale",
            format!("read scale of the specified ReplicationController | Scale |  | 200 401 |  | {object}"),
        ),
        (
            "readCoreV1NamespacedPodLog",
            format!("read log of the specified Pod | Pod | {log} | 200 401 |  | {object} text/plain"),
        ),
        (
            "connectCoreV1PostNamespacedPodExec",
            format!("connect POST requests to exec of Pod | PodExecOptions | {exec} | 200 401 |  | */*"),
        ),
        ("getCoreV1APIResources", format!("get available resources | - |  | 200 401 |  | {object}")),
    ];
    check(vec![], |openapi| {
        let document = parsed(&openapi.v3_document("api/v1").unwrap());
        let operations = operations(&document);
        for (id, expected) in rows {
            let placed = operations.get(id).unwrap_or_else(|| panic!("{id}"));
            assert_eq!(summary(&document, placed), expected, "{id}");
        }
        let eviction = &operations["createCoreV1NamespacedPodEviction"]["operation"];
        let kind = json!({"group": "policy", "version": "v1", "kind": "Eviction"});
        assert_eq!(eviction["x-kubernetes-group-version-kind"], kind);
    });
}

#[test]
fn options_of_logs_and_connections_are_parameters() {
    let pods = "/api/v1/namespaces/{namespace}/pods/{name}";
    let rows = [
        (
            "log",
            "container:string follow:boolean insecureSkipTLSVerifyBackend:boolean limitBytes:integer pretty:string \
             previous:boolean sinceSeconds:integer stream:string tailLines:integer timestamps:boolean",
        ),
        ("exec", "command:string container:string stderr:boolean stdin:boolean stdout:boolean tty:boolean"),
        ("attach", "container:string stderr:boolean stdin:boolean stdout:boolean tty:boolean"),
        ("portforward", "ports:integer"),
        ("proxy", "path:string"),
        ("proxy/{path}", "path:string"),
    ];
    check(vec![], |openapi| {
        let document = parsed(&openapi.v3_document("api/v1").unwrap());
        for (part, expected) in rows {
            let parameters = document["paths"][format!("{pods}/{part}")]["parameters"].as_array().unwrap();
            let query = parameters.iter().filter(|parameter| parameter["in"] == "query");
            let mut shown: Vec<String> = query
                .map(|p| {
                    assert!(p["description"].as_str().is_some_and(|text| !text.is_empty()), "{part} {p}");
                    format!("{}:{}", p["name"].as_str().unwrap(), p["schema"]["type"].as_str().unwrap())
                })
                .collect();
            shown.sort();
            assert_eq!(shown.join(" "), expected, "{part}");
        }
    });
}

#[test]
fn every_parameter_is_described_and_every_path_parameter_declared() {
    check(vec![], |openapi| {
        let document = parsed(&v2(openapi, v2::Encoding::Json));
        for (path, item) in document["paths"].as_object().unwrap() {
            let declared: BTreeSet<&str> = (item["parameters"].as_array().into_iter().flatten())
                .map(|parameter| match parameter["$ref"].as_str() {
                    Some(reference) => &document.pointer(&reference[1..]).unwrap()["name"],
                    None => &parameter["name"],
                })
                .map(|name| name.as_str().unwrap())
                .collect();
            for name in path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
                assert!(declared.contains(name), "{path}");
            }
        }
        for (name, parameter) in document["parameters"].as_object().unwrap() {
            assert!(parameter["description"].as_str().is_some_and(|text| text.len() > 20), "{name}");
        }
    });
}

#[test]
fn definitions_carry_what_patches_and_explain_need() {
    check(vec![], |openapi| {
        let document = parsed(&openapi.v3_document("api/v1").unwrap());
        let schemas = &document["components"]["schemas"];
        let containers = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
        assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
        assert_eq!(containers["x-kubernetes-patch-strategy"], "merge");
        assert_eq!(containers["x-kubernetes-list-type"], "map");
        assert_eq!(containers["x-kubernetes-list-map-keys"], json!(["name"]));
        // The default is the zero that Go writes for the struct, although a container without a name is not valid.
        let container = "#/components/schemas/io.k8s.api.core.v1.Container";
        assert_eq!(containers["items"], json!({"allOf": [{"$ref": container}], "default": {}}));
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
        let claim = &schemas["io.k8s.api.core.v1.PersistentVolumeClaimSpec"]["properties"];
        let modes = json!(["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"]);
        assert_eq!(claim["accessModes"]["items"], json!({"type": "string", "enum": modes, "default": ""}));
        assert_eq!(claim["volumeMode"]["enum"], json!(["Block", "Filesystem"]));
        let profile = &schemas["io.k8s.api.core.v1.SeccompProfile"];
        assert_eq!(profile["x-kubernetes-unions"][0]["discriminator"], "type");
        assert_eq!(profile["properties"]["type"]["default"], "");
        assert_eq!(schemas["io.k8s.api.core.v1.Event"]["required"], json!(["involvedObject", "metadata"]));
    });
}

/// The faults of a document: definitions to which nothing refers, and defaults that have another type than their
/// schema. A default may be Go's zero, so it may lack required fields, and may be none of the values of an enum.
fn faults(document: &Value, schemas: &str, prefix: &str) -> Vec<String> {
    let definitions = document.pointer(schemas).unwrap().as_object().unwrap();
    let mut used = BTreeSet::new();
    references(document, &mut used);
    let unused = definitions.keys().filter(|name| !used.contains(&format!("{prefix}{name}")));
    let mut found: Vec<String> = unused.map(|name| format!("{name} is unused")).collect();
    for (name, definition) in definitions {
        for (field, property) in definition["properties"].as_object().into_iter().flatten() {
            for schema in [property, &property["items"], &property["additionalProperties"]] {
                let target = schema["allOf"][0]["$ref"].as_str().and_then(|r| definitions.get(r.strip_prefix(prefix)?));
                let default = &schema["default"];
                let ty = match default {
                    Value::Null => continue,
                    Value::Bool(_) => "boolean",
                    Value::Number(_) => "integer",
                    Value::String(_) => "string",
                    Value::Array(_) => "array",
                    Value::Object(_) => "object",
                };
                if target.unwrap_or(schema)["type"] != ty {
                    found.push(format!("{name}.{field}: {default}"));
                }
            }
        }
    }
    found
}

#[test]
fn no_definition_is_unused_and_every_default_is_of_its_type() {
    check(vec![], |openapi| {
        let document = parsed(&v2(openapi, v2::Encoding::Json));
        assert_eq!(faults(&document, "/definitions", "#/definitions/"), Vec::<String>::new());
        assert_eq!(faults(&document, "/parameters", "#/parameters/"), Vec::<String>::new());
        for path in openapi.v3_paths() {
            let document = parsed(&openapi.v3_document(&path).unwrap());
            let found = faults(&document, "/components/schemas", "#/components/schemas/");
            assert_eq!(found, Vec::<String>::new(), "{path}");
        }
    });
}

#[test]
fn kinds_of_every_group_belong_to_the_built_in_ones() {
    check(tabs(None), |openapi| {
        let document = parsed(&openapi.v3_document("apis/stable.example.com/v1").unwrap());
        let options = &document["components"]["schemas"]["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"];
        let kinds = options["x-kubernetes-group-version-kind"].as_array().unwrap();
        for (group, version, there) in [
            ("", "v1", true),
            ("apps", "v1", true),
            ("admission.k8s.io", "v1", true),
            ("extensions", "v1beta1", true),
            // The groups of custom resources are not listed here: otherwise a new group would change the documents of
            // all other groups, although the hashes of these documents stay the same.
            ("stable.example.com", "v1", false),
        ] {
            let kind = json!({"group": group, "kind": "DeleteOptions", "version": version});
            assert_eq!(kinds.contains(&kind), there, "{kind}");
        }
    });
}

#[test]
fn old_betas_are_described_in_their_own_names() {
    check(vec![], |openapi| {
        let document = parsed(&openapi.v3_document("apis/extensions/v1beta1").unwrap());
        let schemas = &document["components"]["schemas"];
        let deployment = &schemas["io.k8s.api.extensions.v1beta1.Deployment"];
        assert!(!deployment["description"].as_str().unwrap().is_empty());
        let document = parsed(&openapi.v3_document("apis/batch/v2alpha1").unwrap());
        assert!(operations(&document).contains_key("listBatchV2alpha1NamespacedCronJob"));
    });
}

#[test]
fn v2_protobuf_is_the_same_from_the_whole_document() {
    check(Vec::new(), |openapi| {
        let whole = v2_protobuf_of(&parsed(&v2(openapi, v2::Encoding::Json)));
        let parts = v2(openapi, v2::Encoding::Protobuf);
        assert!(proto::Document::decode(whole).unwrap() == proto::Document::decode(parts).unwrap());
    });
}

#[test]
fn v2_protobuf_says_what_the_json_says() {
    check(vec![], |openapi| {
        let json = parsed(&v2(openapi, v2::Encoding::Json));
        let document = proto::Document::decode(v2(openapi, v2::Encoding::Protobuf)).unwrap();
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

/// The versions of a custom kind. If a schema is given, the first version has it.
fn tabs(schema: Option<Value>) -> Vec<Kind> {
    tabs_with(schema, &|_| {})
}

/// Like [`tabs`], with a change to the definition.
fn tabs_with(schema: Option<Value>, change: &dyn Fn(&mut Value)) -> Vec<Kind> {
    let version = |name: &str, schema: Option<Value>| {
        let schema = schema.map_or(json!({}), |schema| json!({ "openAPIV3Schema": schema }));
        json!({"name": name, "served": true, "storage": name == "v1", "schema": schema, "subresources": {"status": {}}})
    };
    // The generation represents the definition's content, so it differs for each schema.
    let generation = schema.as_ref().map_or(0, |schema| schema.to_string().len());
    let mut definition = json!({
        "metadata": {"name": "crontabs.stable.example.com", "uid": "u", "generation": generation},
        "spec": {"group": "stable.example.com", "scope": "Namespaced",
            "names": {"kind": "CronTab", "plural": "crontabs", "singular": "crontab", "listKind": "CronTabList"},
            "versions": [version("v1", schema), version("v1beta1", None)]},
        "status": {"conditions": [{"type": "Established", "status": "True"}]},
    });
    change(&mut definition);
    let json = Bytes::from(definition.to_string());
    vec![custom::kind_of(&json, Offset(1), &definition).expect("an established definition")]
}

#[test]
fn custom_resources_take_part() {
    let schema = json!({
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {
            "replicas": {"type": "integer", "default": 1},
            "port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
        }}},
    });
    check(tabs(Some(schema)), |openapi| {
        let document = parsed(&openapi.v3_document("apis/stable.example.com/v1").unwrap());
        assert_references_resolve(&document);
        let tab = &document["components"]["schemas"]["com.example.stable.v1.CronTab"];
        assert_eq!(tab["properties"]["spec"]["properties"]["replicas"]["default"], 1);
        assert_eq!(tab["properties"]["apiVersion"]["type"], "string");
        assert!(tab["properties"]["metadata"]["allOf"].is_array());
        let operations = operations(&document);
        let patch = &operations["patchStableExampleComV1NamespacedCronTab"]["operation"];
        assert!(patch["requestBody"]["content"]["application/strategic-merge-patch+json"].is_null());
        let rows = [
            ("listStableExampleComV1NamespacedCronTab", "list objects of kind CronTab"),
            ("createStableExampleComV1NamespacedCronTab", "create a CronTab"),
        ];
        for (id, description) in rows {
            let operation = &operations[id]["operation"];
            assert_eq!(operation["description"], description);
            let types: Vec<&CompactString> =
                operation["responses"]["200"]["content"].as_object().unwrap().keys().collect();
            assert_eq!(types, ["application/json", "application/yaml"], "{id}");
        }
        assert!(!operations.keys().any(|id| id.starts_with("watch")));

        let v2 = parsed(&super::tests::v2(openapi, v2::Encoding::Json));
        assert_references_resolve(&v2);
        let tab = &v2["definitions"]["com.example.stable.v1.CronTab"]["properties"]["spec"]["properties"];
        assert_eq!(tab["replicas"], json!({"type": "integer"}));
    });
}

/// The definition of the kind in its first version (or of `CronTabList`), in OpenAPI versions 2 and 3.
fn tab_definitions(schema: Option<Value>, kind: &str) -> [Value; 2] {
    check(tabs(schema), |openapi| {
        let v2 = parsed(&super::tests::v2(openapi, v2::Encoding::Json));
        let v3 = parsed(&openapi.v3_document("apis/stable.example.com/v1").unwrap());
        let name = format!("com.example.stable.v1.{kind}");
        [v2["definitions"][&name].clone(), v3["components"]["schemas"][&name].clone()]
    })
}

#[test]
fn custom_resources_that_may_hold_anything_are_bare_objects() {
    let kinds = json!([{"group": "stable.example.com", "version": "v1", "kind": "CronTab"}]);
    let bare = json!({"type": "object", "x-kubernetes-group-version-kind": kinds});
    assert_eq!(tab_definitions(None, "CronTab"), [bare.clone(), bare.clone()]);
    let keeps = json!({
        "type": "object", "description": "All of it.", "x-kubernetes-preserve-unknown-fields": true,
        "properties": {"spec": {"type": "string"}},
    });
    let [v2, v3] = tab_definitions(Some(keeps), "CronTab");
    assert_eq!(v2, bare);
    assert_eq!(v3["x-kubernetes-preserve-unknown-fields"], true);
    assert_eq!(v3["description"], "All of it.");
    let properties: Vec<&CompactString> = v3["properties"].as_object().unwrap().keys().collect();
    assert_eq!(properties, ["apiVersion", "kind", "metadata", "spec"]);
}

#[test]
fn embedded_objects_show_what_every_object_has() {
    let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true, "required": ["kind"]});
    let mut open = embedded.clone();
    open["x-kubernetes-preserve-unknown-fields"] = true.into();
    let properties = json!({"closed": embedded, "open": open});
    let [v2, v3] = tab_definitions(Some(json!({"type": "object", "properties": properties})), "CronTab");
    for definition in [&v2, &v3] {
        let closed = &definition["properties"]["closed"];
        assert_eq!(closed["required"], json!(["kind", "apiVersion"]));
        let kind = closed["properties"]["kind"]["description"].as_str().unwrap();
        assert!(kind.starts_with("kind is a string value representing the type of this object."), "{kind}");
        let metadata = closed["properties"]["metadata"]["description"].as_str().unwrap();
        assert!(metadata.starts_with("Standard object's metadata."), "{metadata}");
    }
    assert_eq!(v3["properties"]["open"]["required"], json!(["kind", "apiVersion"]));
    let kept = json!({
        "x-kubernetes-preserve-unknown-fields": true, "x-kubernetes-embedded-resource": true, "required": ["kind"],
    });
    assert_eq!(v2["properties"]["open"], kept);
}

#[test]
fn what_a_definition_chooses_is_published() {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "color": {"type": "string"}, "size": {"type": "integer"}}}}});
    let change = |definition: &mut Value| {
        definition["spec"]["names"]["listKind"] = json!("Tablature");
        definition["status"]["acceptedNames"] = definition["spec"]["names"].clone();
        definition["spec"]["versions"][0]["selectableFields"] =
            json!([{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.size"}]);
    };
    check(tabs_with(Some(schema), &change), |openapi| {
        let v2 = parsed(&super::tests::v2(openapi, v2::Encoding::Json));
        let v3 = parsed(&openapi.v3_document("apis/stable.example.com/v1").unwrap());
        assert_references_resolve(&v2);
        for definitions in [&v2["definitions"], &v3["components"]["schemas"]] {
            let fields = &definitions["com.example.stable.v1.CronTab"]["x-kubernetes-selectable-fields"];
            assert_eq!(*fields, json!([{"fieldPath": "spec.color"}, {"fieldPath": "spec.size"}]));
            let list = &definitions["com.example.stable.v1.Tablature"];
            assert_eq!(list["x-kubernetes-group-version-kind"][0]["kind"], "Tablature");
            assert_eq!(list["description"], "Tablature is a list of CronTab");
            assert!(definitions.get("com.example.stable.v1.CronTabList").is_none());
        }
    });
}

#[test]
fn custom_resources_are_described_in_kubernetes_words() {
    const MORE: &str = "More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";
    let described = |definition: &Value, property: &str| definition["properties"][property]["description"].clone();
    for tab in tab_definitions(Some(json!({"type": "object"})), "CronTab") {
        assert_eq!(described(&tab, "metadata"), format!("Standard object's metadata. {MORE}#metadata"));
        let api_version = described(&tab, "apiVersion");
        assert!(api_version.as_str().unwrap().starts_with("APIVersion defines the versioned schema"), "{api_version}");
        let kind = described(&tab, "kind");
        assert!(kind.as_str().unwrap().starts_with("Kind is a string value representing the REST resource"), "{kind}");
    }
    for list in tab_definitions(Some(json!({"type": "object"})), "CronTabList") {
        assert_eq!(list["description"], "CronTabList is a list of CronTab");
        assert_eq!(described(&list, "items"), format!("List of crontabs. {MORE}"));
        assert_eq!(described(&list, "metadata"), format!("Standard list metadata. {MORE}#types-kinds"));
        assert_eq!(list["required"], json!(["items"]));
    }
}

#[test]
fn hashes_follow_the_schemas_of_custom_resources() {
    let hash = |schema: Value| {
        check(tabs(Some(schema)), |openapi| {
            (openapi.v3_hash("apis/stable.example.com/v1").unwrap(), openapi.v3_hash("apis/apps/v1"), openapi.v2_hash())
        })
    };
    let (before, after) = (hash(json!({"type": "object"})), hash(json!({"type": "object", "description": "new"})));
    assert_ne!(before.0, after.0);
    assert_eq!(before.1, after.1);
    assert_ne!(before.2, after.2);
}
