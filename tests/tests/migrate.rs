//! `holdfast migrate`: objects move from a data folder to a real etcd and back, and between etcds.

use bytes::Bytes;
use holdfast_core::event::{Actor, Operation, Record};
use holdfast_engine::Log;
use holdfast_storage_rocks::RocksLog;
use holdfast_tests::etcd::Cluster;
use holdfast_tests::server::{binary, fails, holdfast, succeeds};
use holdfast_tests::{Folder, Server, clients};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
/// The paths that are compared before and after a migration.
const PATHS: [&str; 7] = [
    "/api/v1/namespaces/moved",
    "/api/v1/namespaces/moved/configmaps",
    "/api/v1/namespaces/moved/secrets",
    "/api/v1/namespaces/moved/services",
    "/api/v1/namespaces/moved/events",
    "/apis/apps/v1/namespaces/moved/deployments",
    "/apis/example.com/v1/namespaces/moved/gadgets",
];

fn kubectl(server: &Server, arguments: &[&str], input: &str) -> Output {
    use std::io::Write;
    let mut command = Command::new(clients().join("kubectl-1.37"));
    command.arg("--kubeconfig").arg(server.kubeconfig()).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("run kubectl");
    child.stdin.take().expect("stdin is piped").write_all(input.as_bytes()).expect("kubectl reads");
    child.wait_with_output().expect("kubectl ends")
}

fn raw(server: &Server, path: &str) -> Value {
    serde_json::from_str(&succeeds(kubectl(server, &["get", "--raw", path], ""))).expect("JSON")
}

fn migrate(from: &str, to: &str, more: &[&str]) -> Output {
    holdfast(["migrate", "--from", from, "--to", to].iter().chain(more))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path")
}

/// The objects at [`PATHS`] by their names, and their versions.
fn objects(server: &Server) -> (BTreeMap<String, Value>, BTreeMap<String, u64>) {
    let (mut objects, mut versions) = (BTreeMap::new(), BTreeMap::new());
    for path in PATHS {
        let found = raw(server, path);
        let items = found["items"].as_array().cloned().unwrap_or_else(|| vec![found]);
        assert!(!items.is_empty(), "{path}");
        for mut item in items {
            let name = format!("{path} {}", item["metadata"]["name"]);
            let version = item["metadata"].as_object_mut().expect("metadata").remove("resourceVersion");
            versions.insert(name.clone(), number(&version.expect("a version")));
            objects.insert(name, item);
        }
    }
    (objects, versions)
}

fn number(version: &Value) -> u64 {
    version.as_str().and_then(|version| version.parse().ok()).unwrap_or_else(|| panic!("{version} is not a version"))
}

fn newest(server: &Server) -> u64 {
    number(&raw(server, "/api/v1/namespaces?limit=1")["metadata"]["resourceVersion"])
}

fn service(name: &str, address: &str, port: u16) -> String {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "moved"},
        "spec": {"type": "NodePort", "clusterIP": address, "ports": [{"port": 80, "nodePort": port}]}})
    .to_string()
}

/// Creates objects of many kinds, including objects of a custom kind.
fn fill(server: &Server) {
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
            {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    let object = |kind: Value, name: &str, more: Value| {
        let mut object = json!({"apiVersion": "v1", "metadata": {"name": name, "namespace": "moved"}});
        for part in [kind, more] {
            object.as_object_mut().expect("an object").extend(part.as_object().expect("fields").clone());
        }
        object
    };
    let pod = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
    let spec = json!({"spec": {"selector": {"matchLabels": {"app": "web"}}, "template": pod}});
    let mut all = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "moved", "labels": {"a": "b"}}}),
        definition,
        object(json!({"kind": "Secret"}), "s", json!({"stringData": {"password": "hunter2"}})),
        object(deployment, "web", spec),
        object(json!({"kind": "Event"}), "e", json!({"involvedObject": {"namespace": "moved"}, "reason": "Tried"})),
    ];
    all.extend(
        (0..300).map(|nth| object(json!({"kind": "ConfigMap"}), &format!("c{nth}"), json!({"data": {"x": "1"}}))),
    );
    let list = json!({"apiVersion": "v1", "kind": "List", "items": all});
    let options = ["apply", "--server-side", "--validate=false", "-f", "-"];
    succeeds(kubectl(server, &options, &list.to_string()));
    succeeds(kubectl(server, &options, &service("web", "10.0.0.77", 30077)));
    let deadline = Instant::now() + PATIENCE;
    let gadget = json!({"apiVersion": "example.com/v1", "kind": "Gadget"});
    let gadget = object(gadget, "g", json!({"spec": {"size": 3.5, "deep": {"list": [1, "2", null]}}})).to_string();
    loop {
        let output = kubectl(server, &options, &gadget);
        if output.status.success() {
            break;
        }
        assert!(Instant::now() < deadline, "{output:?}");
    }
    // The patch gives the Deployment a later version, and managed fields of another manager.
    let scaled = ["patch", "-n", "moved", "deployment", "web", "-p", "{\"spec\":{\"replicas\":3}}"];
    succeeds(kubectl(server, &scaled, ""));
}

/// Checks that addresses and ports of migrated Services are reserved, and that free ones are allocated.
fn check_allocations(server: &Server) {
    let create = ["create", "-f", "-"];
    fails(kubectl(server, &create, &service("other", "10.0.0.77", 30078)), &["already allocated"]);
    fails(kubectl(server, &create, &service("other", "10.0.0.78", 30077)), &["already allocated"]);
    succeeds(kubectl(server, &create, &service("other", "10.0.0.78", 30078)));
    succeeds(kubectl(server, &["delete", "-n", "moved", "service", "other"], ""));
}

#[test]
fn a_cluster_moves_to_etcd_and_back() {
    let (etcd, folder) = (Cluster::single(), Folder::new());
    let (data, urls) = (folder.join("data"), etcd.urls());
    let server = Server::start(&data, &[]);
    fill(&server);
    let (before, _) = objects(&server);
    let last = newest(&server);
    // The migration is refused, because a running server holds the lock of the source folder.
    fails(migrate(text(&data), &urls, &[]), &["--from=", "is in use by process ", "only one server may write to it"]);
    server.stop();

    let dry = succeeds(migrate(text(&data), &urls, &["--dry-run"]));
    assert!(dry.contains("302 configmaps") && dry.contains("1 example.com/gadgets"), "{dry}");
    assert!(dry.contains(" objects would be moved from "), "{dry}");
    assert_eq!(etcd.ctl(&["get", "", "--prefix", "--keys-only"]).trim(), "", "a dry run writes nothing");

    let moved = succeeds(migrate(text(&data), &urls, &[]));
    assert!(moved.contains("302 configmaps") && moved.contains("none is lower than it was"), "{moved}");
    let own = etcd.ctl(&["get", "/registry.holdfast/", "--prefix", "--keys-only"]);
    assert_eq!(own.trim(), "", "nothing of the migration is left");
    let leased = etcd.ctl(&["lease", "list"]);
    assert_eq!(leased.lines().skip(1).filter(|line| !line.is_empty()).count(), 1, "Events have a lease: {leased}");
    fails(migrate(text(&data), &urls, &[]), &[" is not empty: there are ", "/registry/", "Empty the target first"]);

    let server = Server::start(&folder.join("copy"), &["--etcd-servers", &urls]);
    let (after, new) = objects(&server);
    assert_eq!(after, before);
    assert!(new.values().all(|version| *version > last), "no version is lower than {last}: {new:?}");
    check_allocations(&server);
    succeeds(kubectl(&server, &["patch", "-n", "moved", "cm", "c7", "-p", "{\"data\":{\"x\":\"2\"}}"], ""));
    let (before, versions) = objects(&server);
    let last = newest(&server);
    // The migration is refused, because a running server has announced itself in the source etcd.
    let back = folder.join("back");
    fails(migrate(&urls, text(&back), &[]), &["a server is running on the source", "/registry/masterleases/"]);
    server.stop();

    succeeds(migrate(&urls, text(&back), &["--dry-run"]));
    assert!(!back.exists(), "a dry run makes no folder");
    let moved = succeeds(migrate(&urls, text(&back), &[]));
    assert!(moved.contains("302 configmaps") && moved.contains("They have their versions"), "{moved}");
    fails(migrate(&urls, text(&back), &[]), &[text(&back), "is not empty: a new log cannot be made there"]);
    let server = Server::start(&back, &[]);
    assert_eq!(objects(&server), (before.clone(), versions.clone()));
    check_allocations(&server);
    let oldest = versions["/api/v1/namespaces/moved/configmaps \"c1\""];
    let watch = format!("/api/v1/namespaces/moved/configmaps?watch=true&timeoutSeconds=5&resourceVersion={oldest}");
    let refused = kubectl(&server, &["get", "--raw", &watch], "");
    let told = format!("{}{}", String::from_utf8_lossy(&refused.stdout), String::from_utf8_lossy(&refused.stderr));
    assert!(told.contains("too old resource version"), "{told}");
    let watch = format!("/api/v1/namespaces/moved/configmaps?watch=true&timeoutSeconds=1&resourceVersion={last}");
    succeeds(kubectl(&server, &["get", "--raw", &watch], ""));
    server.stop();
    succeeds(holdfast(["log", "verify", "--data-dir", text(&back)]));
    // If the etcd is lost, a server's data folder can be migrated in its place, because its local copy has all objects.
    drop(etcd);
    let rescued = folder.join("rescued");
    succeeds(migrate(text(&folder.join("copy")), text(&rescued), &[]));
    let server = Server::start(&rescued, &[]);
    assert_eq!(objects(&server), (before, versions));
}

/// A data folder with many objects.
fn folder_of(folder: &Path, count: u64) {
    let log = RocksLog::open(folder).expect("a log");
    let record = |offset: u64| {
        let object = format!(
            "{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"c{offset}\",\"namespace\":\
             \"default\",\"uid\":\"u{offset}\",\"resourceVersion\":\"{offset}\",\"creationTimestamp\":\
             \"2026-11-21T04:00:00Z\"}},\"data\":{{\"x\":\"{offset}\"}}}}"
        );
        Record {
            offset,
            time_ms: 1_795_233_600_000,
            resource: "configmaps".into(),
            key: format!("default/c{offset}"),
            replaces: 0,
            operation: Operation::Put as i32,
            actor: Actor::default(),
            object: Bytes::from(object),
        }
    };
    let records: Vec<Record> = (1..=count).map(record).collect();
    for piece in records.chunks(1000) {
        log.append(piece).expect("append");
    }
}

/// The number of bytes in a log's files.
fn written(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder.join("log")).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum()
}

/// Starts a migration, and kills it as soon as `is_under_way` returns true.
fn interrupted(from: &str, to: &str, more: &[&str], is_under_way: impl Fn() -> bool) {
    let mut command = Command::new(binary());
    command.args(["migrate", "--from", from, "--to", to]).args(more);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("run holdfast");
    let deadline = Instant::now() + PATIENCE;
    while !is_under_way() {
        assert!(Instant::now() < deadline, "it does not begin");
        assert!(child.try_wait().expect("look after it").is_none(), "it was too fast to be killed");
    }
    child.kill().expect("kill it");
    child.wait().expect("wait for it");
}

#[test]
fn an_interrupted_migration_goes_on_and_nothing_else_uses_its_target() {
    const OBJECTS: usize = 30_000;
    let (etcd, folder) = (Cluster::single(), Folder::new());
    let (data, other, urls) = (folder.join("data"), folder.join("other"), etcd.urls());
    folder_of(&data, OBJECTS as u64);
    folder_of(&other, 10);
    let count = || -> usize {
        let told = etcd.ctl(&["get", "/registry/configmaps/", "--prefix", "--count-only", "-w", "fields"]);
        let count = told.lines().find_map(|line| line.strip_prefix("\"Count\" : ")).expect("a count");
        count.parse().expect("a number")
    };
    interrupted(text(&data), &urls, &[], || count() > 1000);
    let there = count();
    assert!(there < OBJECTS, "{there} are there already");
    let refused = Server::try_start(&folder.join("new"), &["--etcd-servers", &urls]).err().expect("no server starts");
    assert!(refused.stderr.contains("a migration into etcd, below /registry/, is not finished"), "{}", refused.stderr);
    fails(
        migrate(text(&other), &urls, &[]),
        &["has an unfinished migration from the log ", "continue with the same source"],
    );
    let output = migrate(text(&data), &urls, &[]);
    let progress = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(progress.contains("the migration goes on where it was interrupted"), "{progress}");
    assert!(progress.contains(" %, ") && progress.contains(" objects, "), "{progress}");
    let moved = succeeds(output);
    assert_eq!(count(), OBJECTS);
    let rest: usize = moved.split_whitespace().next().and_then(|count| count.parse().ok()).expect("a count");
    assert!(rest < OBJECTS - 1000 + 256, "it went on where it was, and moved {rest}");

    let back = folder.join("back");
    interrupted(&urls, text(&back), &[], || written(&back) > 100_000);
    let refused = Server::try_start(&back, &[]).err().expect("no server starts");
    assert!(refused.stderr.contains("is not finished") && refused.stderr.contains("holdfast migrate"), "{refused:?}");
    fails(
        migrate(text(&other), text(&back), &[]),
        &["has an unfinished migration from the keys below /registry/ in the etcd"],
    );
    succeeds(migrate(&urls, text(&back), &[]));
    let server = Server::start(&back, &[]);
    let found = raw(&server, "/api/v1/namespaces/default/configmaps?limit=1");
    let rest = found["metadata"]["remainingItemCount"].as_u64().expect("more");
    assert!(rest as usize >= OBJECTS - 1, "{rest}");
    let one = raw(&server, "/api/v1/namespaces/default/configmaps/c29999");
    assert_eq!((&one["metadata"]["uid"], &one["data"]["x"]), (&json!("u29999"), &json!("29999")));

    for (nth, (write, told)) in [
        (&["put", "/registry/configmaps/default/late", "{}"][..], "/registry/configmaps/default/late was changed"),
        (&["del", "/registry/configmaps/default/late"], "keys were deleted"),
    ]
    .into_iter()
    .enumerate()
    {
        let torn = folder.join(&format!("torn{nth}"));
        interrupted(&urls, text(&torn), &["--skip-unreadable"], || written(&torn) > 100_000);
        etcd.ctl(write);
        let parts = ["the source changed while it was read", told, "start the migration again"];
        fails(migrate(&urls, text(&torn), &["--skip-unreadable"]), &parts);
        let refused = Server::try_start(&torn, &[]).err().expect("no server starts");
        assert!(refused.stderr.contains("is not finished"), "{}", refused.stderr);
    }
}

#[test]
fn what_cannot_be_read_stops_a_migration_and_is_told_by_its_key() {
    let (etcd, folder) = (Cluster::single(), Folder::new());
    let (urls, data) = (etcd.urls(), folder.join("data"));
    etcd.ctl(&[
        "put",
        "/registry/configmaps/a/good",
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"good","namespace":"a"}}"#,
    ]);
    etcd.ctl(&["put", "/registry/configmaps/a/torn", "{"]);
    etcd.ctl(&["put", "/registry/secrets/a/locked", "k8s:enc:aescbc:v1:key1:abc"]);
    etcd.ctl(&["put", "/registry/strange/a", "{}"]);
    let dry = migrate(&urls, text(&data), &["--dry-run"]);
    let parts = ["/registry/configmaps/a/torn", "/registry/secrets/a/locked", "is encrypted", "/registry/strange/a"];
    fails(dry, &[&parts[..], &["3 objects cannot be moved"]].concat());
    fails(
        migrate(&urls, text(&data), &[]),
        &["an object cannot be moved", "/registry/configmaps/a/torn", "--skip-unreadable"],
    );
    let output = migrate(&urls, text(&data), &["--skip-unreadable"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(parts.iter().all(|part| told.contains(part)), "{told}");
    let moved = succeeds(output);
    assert!(moved.contains("1 objects were moved") && moved.contains("3 objects were left out"), "{moved}");
    fails(migrate(text(&folder.join("none")), &urls, &[]), &["--from=", "holds no Holdfast log"]);
    fails(migrate(&urls, "http://127.0.0.1:1", &[]), &["--to=http://127.0.0.1:1", "no member answers"]);
}

#[test]
fn etcd_to_etcd_keeps_every_byte_and_another_prefix_is_another_place() {
    let (from, to, folder) = (Cluster::single(), Cluster::single(), Folder::new());
    let server = Server::start(&folder.join("copy"), &["--etcd-servers", &from.urls()]);
    fill(&server);
    let (before, _) = objects(&server);
    server.stop();
    from.ctl(&["put", "/registry/ranges/other", "kept as it is"]);
    from.ctl(&["put", "/registry-b/pods/a/b", "of another cluster"]);
    let locked = "k8s:enc:aescbc:v1:key1:abc";
    from.ctl(&["put", "/registry/secrets/a/locked", locked]);
    fails(
        migrate(&from.urls(), &to.urls(), &["--to-etcd-prefix=/b"]),
        &["/registry/secrets/a/locked is encrypted and bound"],
    );
    to.ctl(&["del", "", "--prefix"]);
    // The line above removed what the failed migration had left under the prefix /b, so the etcd is empty again.
    succeeds(migrate(&from.urls(), &to.urls(), &[]));
    let all = |etcd: &Cluster, prefix: &str| {
        let told = etcd.ctl(&["get", prefix, "--prefix", "-w", "json"]);
        let told: Value = serde_json::from_str(&told).expect("JSON");
        let pair = |kv: &Value| (kv["key"].to_string(), (kv["value"].to_string(), kv["lease"].is_null()));
        told["kvs"].as_array().into_iter().flatten().map(pair).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(all(&to, "/registry/"), all(&from, "/registry/"));
    assert_eq!(all(&to, "").len(), all(&to, "/registry/").len(), "nothing else was moved");
    to.ctl(&["del", "/registry/secrets/a/locked"]);
    to.ctl(&["del", "/registry/ranges/other"]);
    let server = Server::start(&folder.join("new"), &["--etcd-servers", &to.urls()]);
    assert_eq!(objects(&server).0, before);
    server.stop();
    succeeds(migrate(&to.urls(), &to.urls(), &["--to-etcd-prefix=/b"]));
    let server = Server::start(&folder.join("b"), &["--etcd-servers", &to.urls(), "--etcd-prefix=/b"]);
    assert_eq!(objects(&server).0, before);
}

#[test]
fn a_folder_is_opened_and_closed_with_its_keys() {
    let (etcd, folder) = (Cluster::single(), Folder::new());
    let (data, urls) = (folder.join("data"), etcd.urls());
    let file = folder.join("encryption.yaml");
    let key = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, [7; 32]);
    let configuration = format!(
        "{{apiVersion: apiserver.config.k8s.io/v1, kind: EncryptionConfiguration, resources: [{{resources: [secrets], \
         providers: [{{aescbc: {{keys: [{{name: k, secret: {key}}}]}}}}]}}]}}"
    );
    std::fs::write(&file, configuration).expect("written");
    let keys = format!("--encryption-provider-config={}", file.display());
    let server = Server::start(&data, &[&keys]);
    fill(&server);
    let (before, _) = objects(&server);
    server.stop();
    fails(migrate(text(&data), &urls, &["--dry-run"]), &["secrets/moved/s", "encrypted"]);
    fails(migrate(text(&data), &urls, &[]), &["secrets/moved/s", "--encryption-provider-config FILE"]);
    // Once the migration has the keys, it continues.
    succeeds(migrate(text(&data), &urls, &[&keys]));
    let server = Server::start(&folder.join("copy"), &["--etcd-servers", &urls, &keys]);
    assert_eq!(objects(&server).0, before);
    server.stop();
    let secret = etcd.ctl(&["get", "--write-out=json", "/registry/secrets/moved/s"]);
    let sealed = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, "k8s:enc:aescbc:v1:");
    assert!(secret.contains(&sealed), "{secret}");
    // A value is encrypted again for another prefix, because its ciphertext is bound to its key in etcd.
    succeeds(migrate(&urls, &urls, &[&keys, "--to-etcd-prefix=/other"]));
    let options = ["--etcd-servers", &urls, &keys, "--etcd-prefix=/other"];
    let server = Server::start(&folder.join("other"), &options);
    assert_eq!(objects(&server).0, before);
    server.stop();
    let back = folder.join("back");
    fails(migrate(&urls, text(&back), &["--dry-run"]), &["secrets/moved/s", "encrypted"]);
    succeeds(migrate(&urls, text(&back), &[&keys]));
    let server = Server::start(&back, &[&keys]);
    assert_eq!(objects(&server).0, before);
    server.stop();
    fails(migrate(text(&back), text(&folder.join("plain")), &["--dry-run"]), &["secrets/moved/s", "encrypted"]);
    succeeds(migrate(text(&back), text(&folder.join("closed")), &[&keys]));
    let server = Server::start(&folder.join("closed"), &[&keys]);
    assert_eq!(objects(&server).0, before);
}
