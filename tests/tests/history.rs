//! What happened is told by the real binary: beside a running server and over the folder that one left.

use holdfast_tests::server::holdfast;
use holdfast_tests::wire::Wire;
use holdfast_tests::{Folder, Server};
use http::Method;
use serde_json::{Value, json};
use std::path::Path;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_blame_and_diff() {
    let folder = Folder::new();
    let server = Server::start(folder.path(), &[]);
    let admin = Wire::admin(&server);
    let before = made_changes(&admin).await;
    // Beside the server, and when it is gone.
    check(folder.path(), before);
    server.stop();
    check(folder.path(), before);
    bad_inputs(folder.path(), before);
}

/// Changes by several people; gives the version before all of them.
async fn made_changes(admin: &Wire) -> u64 {
    let marker = json!({"metadata": {"name": "marker"}});
    let before = version(&admin.post(MAPS, &marker).await.expect(201).json());
    let web = json!({"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "web:1"}]}}}});
    admin.post(&format!("{DEPLOYMENTS}?fieldManager=setup"), &web).await.expect(201);
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "web:2"}]}}}});
    patch(admin, "jane", &format!("{DEPLOYMENTS}/web?fieldManager=rollout"), "strategic-merge", &image).await;
    patch(admin, "bob", &format!("{DEPLOYMENTS}/web"), "merge", &json!({"spec": {"replicas": 3}})).await;
    for text in ["one", "two"] {
        let map = json!({"metadata": {"name": "twice"}, "data": {"text": text}});
        admin.post(MAPS, &map).await.expect(201);
        if text == "one" {
            admin.send(Method::DELETE, &format!("{MAPS}/twice"), &[], "").await.expect(200);
        }
    }
    admin.post(MAPS, &json!({"metadata": {"name": "gone"}})).await.expect(201);
    admin.send(Method::DELETE, &format!("{MAPS}/gone"), &[], "").await.expect(200);
    define(admin).await;
    before
}

/// A custom kind with a list that has keys, and a change to one of its elements.
async fn define(admin: &Wire) {
    let stops = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["at"],
        "items": {"type": "object", "required": ["at"],
            "properties": {"at": {"type": "string"}, "minutes": {"type": "integer"}}}});
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"stops": stops}}}});
    let definition = json!({"metadata": {"name": "ferries.example.com"}, "spec": {"group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "ferries", "singular": "ferry", "kind": "Ferry", "shortNames": ["fy"]},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    admin.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.expect(201);
    let ferries = "/apis/example.com/v1/namespaces/default/ferries";
    let ferry = |stops: Value| json!({"apiVersion": "example.com/v1", "kind": "Ferry", "metadata": {"name": "star"}, "spec": {"stops": stops}});
    let first = ferry(json!([{"at": "pier", "minutes": 5}]));
    admin.post(ferries, &first).await.expect(201);
    let longer = ferry(json!([{"at": "isle", "minutes": 9}, {"at": "pier", "minutes": 5}]));
    patch(admin, "jane", &format!("{ferries}/star"), "merge", &longer).await;
}

async fn patch(admin: &Wire, user: &str, path: &str, format: &str, body: &Value) {
    let ty = format!("application/{format}-patch+json");
    let headers = [("content-type", ty.as_str()), ("impersonate-user", user), ("impersonate-group", "system:masters")];
    admin.send(Method::PATCH, path, &headers, body.to_string()).await.expect(200);
}

fn check(data: &Path, before: u64) {
    // Each version with who made it and what it changed.
    let history = as_json(data, &["history", "deploy", "web"]);
    assert_eq!(history["object"], "deployments.apps/default/web");
    let versions = history["versions"].as_array().expect("versions");
    let told = |version: &Value| {
        ["event", "verb", "user", "manager"].map(|field| version[field].as_str().unwrap_or("?").to_owned())
    };
    assert_eq!(told(&versions[0])[..2], ["created", "create"]);
    assert_eq!(versions[0]["manager"], "setup");
    assert_eq!(told(&versions[1]), ["changed", "patch", "jane", "rollout"]);
    assert_eq!(told(&versions[2])[..3], ["changed", "patch", "bob"]);
    assert_eq!(versions.len(), 3);
    assert!(versions.iter().all(|version| version["requestID"].as_str().is_some_and(|id| !id.is_empty())));
    let image = json!({"path": "spec.template.spec.containers[name=web].image", "change": "changed",
        "old": "web:1", "new": "web:2"});
    assert!(versions[1]["changes"].as_array().expect("changes").contains(&image), "{}", versions[1]);

    let text = told_by(data, &["history", "deployment/web", "-p", "--limit", "2"]);
    assert!(text.contains("@@ spec.template.spec.containers[name=web] @@\n-image: web:1\n+image: web:2\n"), "{text}");
    assert!(text.ends_with("1 older version is left out by --limit\n"), "{text}");
    assert!(!text.contains('\x1b'), "no terminal, no colours: {text:?}");
    let coloured = told_by(data, &["history", "deployment/web", "-p", "--color", "always"]);
    assert!(coloured.contains("\x1b[32m+image: web:2\x1b[0m\n"), "{coloured:?}");
    let events = |object: &str| -> Vec<String> {
        let history = as_json(data, &["history", object]);
        let versions = history["versions"].as_array().expect("versions").clone();
        versions.iter().map(|version| version["event"].as_str().expect("an event").to_owned()).collect()
    };
    assert_eq!(events("cm/twice"), ["created", "deleted", "recreated"]);
    assert_eq!(events("cm/gone"), ["created", "deleted"]);

    // Every field from where it was set.
    let field = |blame: &Value, path: &str| -> Value {
        let fields = blame["fields"].as_array().expect("fields");
        fields.iter().find(|field| field["path"] == path).unwrap_or_else(|| panic!("no {path} in {blame}")).clone()
    };
    let blame = as_json(data, &["blame", "Deployment.apps", "web"]);
    let user = |path: &str| field(&blame, path)["user"].clone();
    assert_eq!(user("spec.template.spec.containers[name=web].image"), "jane");
    assert_eq!(user("spec.replicas"), "bob");
    assert_eq!(field(&blame, "metadata.name")["version"], versions[0]["version"]);
    assert_eq!(field(&blame, "spec.replicas")["version"], versions[2]["version"]);
    for kind in ["ferries", "ferry", "fy", "Ferry", "ferries.example.com", "ferries.v1.example.com"] {
        let blame = as_json(data, &["blame", kind, "star", "-n", "default"]);
        assert_eq!(field(&blame, "spec.stops[at=isle].minutes")["user"], "jane", "{kind}");
        assert_ne!(field(&blame, "spec.stops[at=pier].minutes")["user"], "jane", "{kind}: it only moved");
    }

    // The whole cluster between two moments.
    let from = before.to_string();
    let diff = as_json(data, &["diff", &from, "-n", "default"]);
    let told: Vec<String> = diff["objects"].as_array().expect("objects").iter().map(event_and_object).collect();
    let expected = [
        "created configmaps/default/twice",
        "created deployments.apps/default/web",
        "created ferries.example.com/default/star",
    ];
    assert_eq!(told, expected);
    assert_eq!(diff["summary"]["cameAndWent"], 1);
    let created = versions[0]["version"].as_u64().expect("a version").to_string();
    let diff = told_by(data, &["diff", &created, "--user", "bob"]);
    assert!(diff.contains("@@ spec @@\n-replicas: 1\n+replicas: 3\n"), "{diff}");
    assert!(diff.contains("\n1 changed (2 events from version "), "{diff}");
    let yaml = told_by(data, &["diff", "-1h", "--kind", "fy", "-o", "yaml"]);
    let yaml: Value = serde_yaml_ng::from_str(&yaml).expect("YAML");
    assert_eq!(yaml["objects"].as_array().map(Vec::len), Some(1), "{yaml}");
    let nothing = told_by(data, &["diff", "-0s"]);
    assert!(nothing.starts_with("nothing changed (0 events "), "{nothing}");
}

fn bad_inputs(data: &Path, before: u64) {
    let from = before.to_string();
    for (arguments, expected) in [
        (&["diff", "99999999"][..], "version 99999999 is in the future: the newest one is "),
        (&["diff", "99999999999999999999999"], "the number is too large"),
        (&["diff", "yesterday"], "\"yesterday\" is no moment: give a version (42), a time"),
        (&["diff", "-15x"], "\"-15x\" is no moment"),
        (&["diff", "2026-11-21"], "\"2026-11-21\" is no moment"),
        (&["diff", "2999-01-01T00:00:00Z"], "is in the future"),
        (&["diff", &from, "1"], "give the earlier moment first"),
        (&["diff", "1", "--kind", "deploymnts"], "did you mean deployments?"),
        (&["history", "deploymnt", "web"], "there is no kind \"deploymnt\": did you mean deployments?"),
        (&["history", "deploy", "wep"], "deployments.apps/default/wep was never there: did you mean web?"),
        (&["history", "deploy", "web", "-n", "other"], "did you mean web -n default?"),
        (&["history", "deploy"], "name the object, too: deploy NAME or deploy/NAME"),
        (&["history", "cm", "a/b"], "\"a/b\" is no name of an object"),
        (&["blame", "cm", "gone"], "configmaps/default/gone is deleted, since version "),
        (&["blame", "subjectaccessreviews", "x"], "there is no kind \"subjectaccessreviews\""),
    ] {
        let error = refused(data, arguments);
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
    let elsewhere = data.join("nothing-here");
    let error = refused(&elsewhere, &["history", "cm", "a"]);
    assert!(error.contains("holds no Holdfast log. Name the data folder of a server with --data-dir"), "{error}");
    assert!(!elsewhere.exists(), "a look makes no folder");
}

fn event_and_object(object: &Value) -> String {
    format!("{} {}", object["event"].as_str().unwrap_or("?"), object["object"].as_str().unwrap_or("?"))
}

fn version(object: &Value) -> u64 {
    let version = object["metadata"]["resourceVersion"].as_str().expect("a version");
    version.parse().expect("a number")
}

fn as_json(data: &Path, arguments: &[&str]) -> Value {
    let text = told_by(data, &[arguments, &["-o", "json"]].concat());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{arguments:?}: no JSON ({error}): {text}"))
}

/// What a command writes that succeeds.
#[track_caller]
fn told_by(data: &Path, arguments: &[&str]) -> String {
    let output = run(data, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Why a command fails, which writes nothing else.
#[track_caller]
fn refused(data: &Path, arguments: &[&str]) -> String {
    let output = run(data, arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    String::from_utf8(output.stderr).expect("text")
}

fn run(data: &Path, arguments: &[&str]) -> std::process::Output {
    let data = data.to_str().expect("a path in UTF-8");
    holdfast([arguments, &["--data-dir", data]].concat())
}
