//! The objects that a server stores in etcd, decoded by Kubernetes' own library.

use base64::{Engine, engine::general_purpose::STANDARD};
use holdfast_tests::clients::go;
use holdfast_tests::etcd::Cluster;
use holdfast_tests::scripts::Script;
use holdfast_tests::{Folder, Server, eventually, facts};
use http::{Method, Request};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

const NAMESPACE: &str = "written";
/// The maximum number of recorded creates of one kind that are repeated.
const OF_EACH: usize = 12;
/// The number of stored kinds.
const KINDS: usize = 68;

/// Admission plug-ins through which some of the objects would affect others.
const WITHOUT: &str = "--disable-admission-plugins=ServiceAccount,LimitRanger,ResourceQuota,Priority,PodSecurity,\
     MutatingAdmissionPolicy,MutatingAdmissionWebhook,ValidatingAdmissionPolicy,ValidatingAdmissionWebhook";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute, and needs Go"]
async fn every_kind_is_stored_as_kubernetes_stores_it() {
    let (etcd, folder) = (Cluster::single(), Folder::new());
    let servers = format!("--etcd-servers={}", etcd.urls());
    let server = Server::start(folder.path(), &[&servers, "--runtime-config=api/all=true", WITHOUT]);
    let client = server.client().await;
    create_objects(&client).await;
    let served = served(&client).await;
    server.stop();
    read_back(&servers, &served).await;

    let stored: Value = serde_json::from_str(&etcd.ctl(&["get", "/registry/", "--prefix", "-w", "json"])).unwrap();
    let stored = stored["kvs"].as_array().expect("keys");
    let values: Vec<&str> = stored.iter().map(|stored| stored["value"].as_str().expect("a value")).collect();
    let (mut compared, mut same, mut kinds, mut wrong) = (0, 0, BTreeSet::new(), Vec::new());
    for (stored, decoded) in stored.iter().zip(decode(&values)) {
        let key = STANDARD.decode(stored["key"].as_str().expect("a key")).expect("base64");
        let key = String::from_utf8(key).expect("a key of text");
        let mut object = decoded["object"].clone();
        let Some(metadata) = object["metadata"].as_object_mut() else {
            wrong.push(format!("{key}: {}", decoded["failure"]));
            continue;
        };
        // A stored object contains no version, because its version is the revision of its key.
        metadata.insert("resourceVersion".into(), stored["mod_revision"].to_string().into());
        if decoded["form"] == "protobuf" && decoded["same"] != true {
            wrong.push(format!("{key}: Kubernetes would store other bytes: {object}"));
        }
        same += usize::from(decoded["same"] == true);
        let Some(expected) = served.get(&place(&object)).filter(|expected| version(expected) == version(&object))
        else {
            // The server itself has written the object after the test had read it from the API, so the two versions are
            // not compared.
            continue;
        };
        compared += 1;
        kinds.insert(object["kind"].to_string());
        if without_types(expected) != object {
            wrong.push(format!("{key}: is stored as\n  {object}\nand served as\n  {expected}"));
        }
    }
    println!(
        "{} values, {same} with Kubernetes' bytes, {compared} compared with the API, of {} kinds",
        stored.len(),
        kinds.len()
    );
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), stored.len(), wrong.join("\n"));
    assert!(compared > 600 && kinds.len() >= KINDS, "{compared} of {}, {kinds:?}", stored.len());
}

/// A new server with only the stored data serves the same objects.
async fn read_back(servers: &str, served: &BTreeMap<[String; 4], Value>) {
    let folder = Folder::new();
    let server = Server::start(folder.path(), &[servers, "--runtime-config=api/all=true", WITHOUT]);
    let again = self::served(&server.client().await).await;
    server.stop();
    let mut same = 0;
    for (place, object) in served {
        let read = again.get(place).unwrap_or_else(|| panic!("{place:?} is gone"));
        // At its start a server writes some objects anew; these have another version and are not compared.
        if version(read) == version(object) {
            assert_eq!(read, object);
            same += 1;
        }
    }
    assert!(same > 600, "{same} of {}", served.len());
}

fn version(object: &Value) -> &Value {
    &object["metadata"]["resourceVersion"]
}

/// In Protobuf, embedded objects have no `apiVersion` and `kind`. The API adds both to claim templates of StatefulSets,
/// so they are removed before the comparison.
fn without_types(object: &Value) -> Value {
    let mut object = object.clone();
    if object["kind"] == "StatefulSet" {
        let templates = object.pointer_mut("/spec/volumeClaimTemplates").and_then(Value::as_array_mut);
        for template in templates.into_iter().flatten() {
            template.as_object_mut().expect("a template").retain(|name, _| name != "apiVersion" && name != "kind");
        }
    }
    object
}

/// Creates objects of every kind, by the requests of recorded clients.
async fn create_objects(client: &kube::Client) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    post(client, "/api/v1/namespaces", &namespace).await.expect("a namespace");
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.example.com"},
        "spec": {"group": "example.com", "names": {"kind": "Gadget", "plural": "gadgets"}, "scope": "Namespaced",
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    post(client, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.expect("a definition");
    let path = format!("/apis/example.com/v1/namespaces/{NAMESPACE}/gadgets");
    let gadget =
        json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "g"}, "x": [1, {"y": "<"}]});
    eventually(Duration::from_secs(60), || post(client, &path, &gadget)).await;
    let path = format!("/apis/scheduling.k8s.io/v1alpha1/namespaces/{NAMESPACE}/workloads");
    let group = json!({"name": "g", "policy": {"gang": {"minCount": 3}}});
    let workload = json!({"apiVersion": "scheduling.k8s.io/v1alpha1", "kind": "Workload", "metadata": {"name": "w"},
        "spec": {"podGroups": [group]}});
    post(client, &path, &workload).await.expect("a workload");
    for (path, object) in of_store() {
        // Objects that every server creates exist already.
        let _ = post(client, &path, &object).await;
    }
    let asked = of_clients();
    let mut made: BTreeMap<&str, usize> = BTreeMap::new();
    for (path, object) in &asked {
        let made = made.entry(path).or_default();
        if *made < OF_EACH && post(client, path, object).await.is_ok() {
            *made += 1;
        }
    }
}

/// Objects that kube-apiserver had stored, with the collections to which they belong.
fn of_store() -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for case in facts::lines::<Value>("etcd").into_iter().skip(1) {
        let Some((path, _)) = case["path"].as_str().and_then(|path| path.rsplit_once('/')) else { continue };
        let mut object = case["object"].clone();
        let Some(metadata) = object["metadata"].as_object_mut() else { continue };
        metadata.retain(|name, _| !matches!(name.as_str(), "uid" | "resourceVersion" | "managedFields"));
        let mut path = path.to_owned();
        if let Some(Value::String(namespace)) = metadata.get_mut("namespace") {
            path = path.replace(&format!("/namespaces/{namespace}/"), &format!("/namespaces/{NAMESPACE}/"));
            NAMESPACE.clone_into(namespace);
        }
        found.push((path, object));
    }
    found
}

/// Objects that clients created with one request, with their collections.
fn of_clients() -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for (nth, script) in facts::lines::<Script>("api").iter().enumerate() {
        for (asked, answer) in script.requests.iter().zip(&script.answers) {
            let Some(body) = &asked.body else { continue };
            let is_create = asked.method == "POST" && answer["code"] == 201 && !asked.path.contains(['?', '%']);
            if !is_create || ["$RV", "$UID", "$NAME", "$CONT"].iter().any(|known| body.contains(known)) {
                continue;
            }
            let fill = |text: &str| {
                let text = text.replace("$NS", NAMESPACE).replace("$U", &format!("w{nth}"));
                text.replace("$O1", &(nth / 250 + 1).to_string()).replace("$O2", &(nth % 250 + 1).to_string())
            };
            if let Ok(object) = serde_json::from_str(&fill(body)) {
                found.push((fill(&asked.path), object));
            }
        }
    }
    found
}

/// All objects in all versions that the server offers; there are some of every kind.
async fn served(client: &kube::Client) -> BTreeMap<[String; 4], Value> {
    let groups = client.request::<Value>(get("/apis")).await.expect("groups");
    let mut versions = vec!["/api/v1".to_owned()];
    for group in groups["groups"].as_array().expect("groups") {
        for version in group["versions"].as_array().expect("versions") {
            versions.push(format!("/apis/{}", version["groupVersion"].as_str().expect("a version")));
        }
    }
    let (mut served, mut without) = (BTreeMap::new(), Vec::new());
    for path in versions {
        let Ok(resources) = client.request::<Value>(get(&path)).await else { continue };
        for resource in resources["resources"].as_array().expect("resources") {
            let verbs = resource["verbs"].as_array().expect("verbs");
            if !["create", "list"].iter().all(|verb| verbs.contains(&(*verb).into())) {
                continue;
            }
            let of_resource = format!("{path}/{}", resource["name"].as_str().expect("a name"));
            let list = client.request::<Value>(get(&of_resource)).await.expect("a list");
            let items = list["items"].as_array().expect("items");
            // Some recorded requests define a kind and create no object of the kind.
            if items.is_empty() && !path.contains(".example.com/") {
                without.push(of_resource);
            }
            for item in items {
                let mut item = item.clone();
                item["apiVersion"] = resources["groupVersion"].clone();
                item["kind"] = resource["kind"].clone();
                served.insert(place(&item), item);
            }
        }
    }
    assert!(without.is_empty(), "of these there are no objects: {without:?}");
    served
}

fn place(object: &Value) -> [String; 4] {
    let (version, kind, metadata) = (&object["apiVersion"], &object["kind"], &object["metadata"]);
    [version, kind, &metadata["namespace"], &metadata["name"]].map(|part| part.as_str().unwrap_or("").to_owned())
}

/// The objects that Kubernetes' library decodes from values in base64.
fn decode(values: &[&str]) -> Vec<Value> {
    let mut command = go(&holdfast_tests::folder().join("clients/decoded"));
    command.args(["run", "."]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let mut input = child.stdin.take().expect("stdin is piped");
    let lines: String = values.iter().map(|value| format!("\"{value}\"\n")).collect();
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = child.wait_with_output().expect("wait for go");
    writer.join().expect("the writer").expect("write the values");
    assert!(output.status.success(), "{command:?} ended with {}", output.status);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let decoded: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(decoded.len(), values.len());
    decoded
}

fn get(path: &str) -> Request<Vec<u8>> {
    Request::get(path).body(Vec::new()).expect("a request")
}

async fn post(client: &kube::Client, path: &str, object: &Value) -> Result<Value, kube::Error> {
    let request = Request::builder().method(Method::POST).uri(path).header("content-type", "application/json");
    client.request(request.body(object.to_string().into_bytes()).expect("a request")).await
}
