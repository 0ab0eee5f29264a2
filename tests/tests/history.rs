//! History commands of the real binary: with a running server, and on the folder of a stopped server.

use holdfast_core::object::yaml;
use holdfast_core::visible;
use holdfast_tests::server::holdfast;
use holdfast_tests::wire::HttpClient;
use holdfast_tests::{Folder, Server};
use http::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_blame_and_diff() {
    let folder = Folder::new();
    let server = Server::start(folder.path(), &[]);
    let admin = HttpClient::admin(&server);
    let before = made_changes(&admin).await;
    // The commands are checked while the server runs, and again after it has stopped.
    check(folder.path(), before);
    server.stop();
    check(folder.path(), before);
    bad_inputs(folder.path(), before);
}

/// Makes changes as several users. Returns the version before the first change.
async fn made_changes(admin: &HttpClient) -> u64 {
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

/// A custom kind with a keyed list, and a change of one of its elements.
async fn define(admin: &HttpClient) {
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

async fn patch(admin: &HttpClient, user: &str, path: &str, format: &str, body: &Value) {
    let ty = format!("application/{format}-patch+json");
    let headers = [("content-type", ty.as_str()), ("impersonate-user", user), ("impersonate-group", "system:masters")];
    admin.send(Method::PATCH, path, &headers, body.to_string()).await.expect(200);
}

fn check(data: &Path, before: u64) {
    // `history` reports each version with its manager and changes.
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

    // `blame` reports every field with the version that set it.
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

    // `diff` compares the whole cluster at two versions.
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
    let yaml: Value = yaml::read(&yaml).expect("YAML");
    assert_eq!(yaml["objects"].as_array().map(Vec::len), Some(1), "{yaml}");
    let nothing = told_by(data, &["diff", "-0s"]);
    assert!(nothing.starts_with("nothing changed (0 events "), "{nothing}");
}

fn bad_inputs(data: &Path, before: u64) {
    let from = before.to_string();
    for (arguments, expected) in [
        (&["diff", "99999999"][..], "version 99999999 is in the future: the newest one is "),
        (&["diff", "99999999999999999999999"], "the number is too large"),
        (&["diff", "yesterday"], "\"yesterday\" is not a moment: give a version (42), a time"),
        (&["diff", "-15x"], "\"-15x\" is not a moment"),
        (&["diff", "2026-11-21"], "\"2026-11-21\" is not a moment"),
        (&["diff", "2999-01-01T00:00:00Z"], "is in the future"),
        (&["diff", &from, "1"], "give the earlier moment first"),
        (&["diff", "1", "--kind", "deploymnts"], "did you mean deployments?"),
        (&["history", "deploymnt", "web"], "there is no kind \"deploymnt\": did you mean deployments?"),
        (&["history", "deploy", "wep"], "deployments.apps/default/wep was never there: did you mean web?"),
        (&["history", "deploy", "web", "-n", "other"], "did you mean web -n default?"),
        (&["history", "deploy"], "name the object, too: deploy NAME or deploy/NAME"),
        (&["history", "cm", "a/b"], "\"a/b\" is not a name of an object"),
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

/// The output of a command that must succeed.
#[track_caller]
fn told_by(data: &Path, arguments: &[&str]) -> String {
    let output = run(data, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// The error message of a command that must fail, without other output.
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

/// Characters that a terminal obeys or that reverse text: an escape, a bell, a control character beyond ASCII, a
/// direction mark.
const POISON: &str = "x\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}\r\ny";
/// The characters of [`POISON`] that a header may contain.
const POISONED_NAME: &str = "x\u{9b}31m\u{202e}y";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_a_tenant_wrote_is_obeyed_by_a_terminal() {
    let folder = Folder::new();
    let server = Server::start(folder.path(), &[]);
    let (first, last) = poison(&HttpClient::admin(&server)).await;
    let data = folder.path().to_str().expect("a path in UTF-8");
    let kubeconfig = server.kubeconfig().to_str().expect("a path in UTF-8").to_owned();
    let copy = folder.join("export");
    let new = |name: &str| folder.join(name).to_str().expect("a path in UTF-8").to_owned();
    let (copy, fork, import) = (copy.to_str().expect("a path in UTF-8"), new("fork"), new("import"));
    let (from, to) = (first.to_string(), last.to_string());
    let of_folder = ["--data-dir", data];
    let of_server = ["--kubeconfig", &kubeconfig];
    let written = format!("cm/{POISON}");
    // Each command, its source (a folder or a server), and whether it prints a report. A report has several formats.
    let commands: [(&[&str], &[&str], bool); 21] = [
        (&["log", "tail"], &of_folder, false),
        (&["log", "tail"], &of_server, false),
        (&["log", "stats"], &of_folder, false),
        (&["log", "stats", "--json"], &of_folder, false),
        (&["log", "verify"], &of_folder, false),
        (&["log", "export"], &of_folder, false),
        (&["log", "export", "--output", copy], &of_folder, false),
        (&["log", "import", copy], &["--data-dir", &import], false),
        (&["log", "repair"], &["--data-dir", &import], false),
        (&["log", "compact", "--history-retention", "1h"], &["--data-dir", &import], false),
        (&["fork", "--from", data], &["--data-dir", &fork], false),
        (&["history", "cm/a", "-p"], &of_folder, true),
        (&["history", "fs/f", "-p"], &of_server, true),
        (&["history", &written], &of_server, false),
        (&["blame", "cm/a"], &of_folder, true),
        (&["blame", "fs/f"], &of_folder, true),
        (&["diff", &from], &of_folder, true),
        (&["explain-scheduling", "p"], &of_folder, true),
        (&["restore", "cm/a", "--to", &from, "--dry-run"], &of_server, true),
        (&["undo", &to, "--dry-run"], &of_server, true),
        (&["bisect", "--good", &from, "--kind", "cm"], &of_server, true),
    ];
    let mut called: BTreeSet<&str> = BTreeSet::new();
    for (command, place, is_report) in commands {
        called.insert(command[0]);
        let forms: &[&[&str]] = match is_report {
            true => &[&[], &["--color", "always"], &["-o", "json"], &["-o", "yaml"]],
            false => &[&[]],
        };
        for form in forms {
            let mut words = [command, place, form].concat();
            if command[0] == "bisect" {
                // bisect needs a command that fails at the last version, and not at the first.
                words.extend(["--", "sh", "-c"]);
            }
            let condition = format!("test $HOLDFAST_VERSION -lt {to}");
            if command[0] == "bisect" {
                words.push(&condition);
            }
            let output = holdfast(&words);
            let told = [output.stdout, output.stderr].map(|told| String::from_utf8(told).expect("UTF-8"));
            let is_refused = command.contains(&written.as_str());
            assert_eq!(output.status.success(), !is_refused, "{words:?}: {told:?}");
            let [out, errors] = told.each_ref().map(|told| without_paint(told, form.contains(&"always")));
            for told in [&out, &errors] {
                let obeyed = told.chars().find(|c| !matches!(c, '\n' | '\t') && visible::is_hidden(*c));
                assert_eq!(obeyed, None, "{words:?}: {told}");
            }
            let value: Option<Value> = match form {
                ["-o", "json"] => Some(serde_json::from_str(&out).expect("JSON")),
                ["-o", "yaml"] => Some(yaml::read(&out).expect("YAML")),
                _ => None,
            };
            if let Some(value) = value
                && matches!(command[..2], ["history" | "blame", _])
            {
                assert!(value.to_string().contains(&Value::from(POISON).to_string()), "{words:?}: {out}");
            }
        }
    }
    // A new command must be added to this list, or to the commands that are tested above.
    const OTHERS: [&str; 15] = [
        "apiserver",
        "at",
        "bench",
        "cloud-controller-manager",
        "controller-manager",
        "envtest",
        "etcd",
        "help",
        "migrate",
        "nodes",
        "replay",
        "run",
        "scheduler",
        "sim",
        "up",
    ];
    let help = String::from_utf8(holdfast(["help"]).stdout).expect("UTF-8");
    let all = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = all.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let unknown = names
        .filter_map(|line| line.split_whitespace().next())
        .find(|name| !called.contains(name) && !OTHERS.contains(name) && *name != "version");
    assert_eq!(unknown, None);
    server.stop();
}

fn without_paint(text: &str, is_painted: bool) -> String {
    let codes = ["\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[36m", "\x1b[0m"];
    let codes = codes.iter().filter(|_| is_painted);
    codes.fold(text.to_owned(), |text, code| text.replace(code, ""))
}

/// Creates objects with the text [`POISON`] in every field that accepts it; returns their first and last versions.
async fn poison(admin: &HttpClient) -> (u64, u64) {
    let headers = [
        ("content-type", "application/merge-patch+json"),
        ("impersonate-user", POISONED_NAME),
        ("impersonate-group", "system:masters"),
    ];
    let maps = format!("{MAPS}/a");
    let map = json!({"metadata": {"name": "a", "annotations": {"a": POISON}}, "data": {"k": POISON, "many": "1\n2\n"}});
    let first = version(&admin.post(MAPS, &map).await.expect(201).json());
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({"metadata": {"name": "fs.x.io"}, "spec": {"group": "x.io", "scope": "Namespaced",
        "names": {"plural": "fs", "singular": "f", "kind": "F"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    admin.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.expect(201);
    let custom = "/apis/x.io/v1/namespaces/default/fs";
    let object = |value: u64| {
        json!({"apiVersion": "x.io/v1", "kind": "F", "metadata": {"name": "f"},
        POISON: {POISON: POISON, "list": [{"name": POISON, "value": value}]}})
    };
    admin.post(custom, &object(1)).await.expect(201);
    admin.send(Method::PATCH, &format!("{custom}/f"), &headers, object(2).to_string()).await.expect(200);
    let pod = json!({"metadata": {"name": "p", "annotations": {"a": POISON}}, "spec": {
        "containers": [{"name": "c", "image": "i"}], "nodeSelector": {"a": "b"}}});
    admin.post("/api/v1/namespaces/default/pods", &pod).await.expect(201);
    let status = json!({"status": {"reason": POISON, "message": POISON}});
    let path = "/api/v1/namespaces/default/pods/p/status";
    admin.send(Method::PATCH, path, &headers, status.to_string()).await.expect(200);
    let patch = json!({"data": {"k": format!("{POISON}2"), "many": format!("1\n{POISON}\n2\n")}});
    let patched = admin.send(Method::PATCH, &maps, &headers, patch.to_string()).await.expect(200);
    (first, version(&patched.json()))
}
