//! `--etcd-servers-overrides`: resources in an etcd of their own.

use holdfast_tests::etcd::Cluster;
use holdfast_tests::server::{fails, holdfast, succeeds};
use holdfast_tests::wire::{Answer, HttpClient};
use holdfast_tests::{Folder, Server, eventually};
use http::Method;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
const EVENTS: &str = "/api/v1/namespaces/default/events";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// An etcd for Events, and one for all other resources.
struct Etcds {
    main: Cluster,
    events: Cluster,
}

impl Etcds {
    fn start() -> Etcds {
        Etcds { main: Cluster::single(), events: Cluster::single() }
    }

    fn server(&self, folder: &Path, options: &[&str]) -> Server {
        let main = format!("--etcd-servers={}", self.main.urls());
        let events = format!("--etcd-servers-overrides=/events#{}", self.events.urls().replace(',', ";"));
        Server::start(folder, &[&[main.as_str(), &events], options].concat())
    }
}

fn keys(etcd: &Cluster, prefix: &str) -> Vec<String> {
    let found = etcd.ctl(&["get", prefix, "--prefix", "--keys-only"]);
    found.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

fn revision(etcd: &Cluster, key: &str) -> String {
    let found: Value = serde_json::from_str(&etcd.ctl(&["get", key, "-w", "json"])).expect("JSON");
    found["kvs"][0]["mod_revision"].to_string()
}

fn event(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "reason": "Tested",
        "involvedObject": {"kind": "Pod", "namespace": namespace, "name": "p"},
    })
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

fn secret(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}})
}

async fn delete(wire: &HttpClient, path: &str) -> Answer {
    wire.send(Method::DELETE, path, &[], "").await
}

fn version(answer: &Answer) -> String {
    answer.json()["metadata"]["resourceVersion"].as_str().expect("a version").to_owned()
}

fn names(list: &Answer) -> Vec<String> {
    let list = list.json();
    let items = list["items"].as_array().unwrap_or_else(|| panic!("no list: {list}"));
    let names = items.iter().filter_map(|item| item["metadata"]["name"].as_str());
    names.filter(|name| name.starts_with("own-")).map(str::to_owned).collect()
}

/// The events that a watch from a version shows at once, as `TYPE name`.
async fn seen(wire: &HttpClient, path: &str, from: &str) -> Vec<String> {
    let path = format!("{path}?watch=true&timeoutSeconds=1&resourceVersion={from}");
    let answer = wire.get(&path).await.expect(200);
    let text = answer.text();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("an event"));
    let told = |event: Value| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        format!("{} {}", text(&event["type"]), text(&event["object"]["metadata"]["name"]))
    };
    lines.map(told).filter(|event| event.contains(" own-") || event.starts_with("ERROR")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_in_an_etcd_of_their_own_for_all_servers() {
    let (etcds, folders) = (Etcds::start(), [Folder::new(), Folder::new()]);
    let servers = folders.each_ref().map(|folder| etcds.server(folder.path(), &[]));
    let [one, other] = servers.each_ref().map(HttpClient::admin);

    // Each object is in the etcd of its resource, under the expected key and version.
    let made = one.post(EVENTS, &event("default", "own-a")).await.expect(201);
    one.post(MAPS, &map("own-map")).await.expect(201);
    let first = version(&made);
    assert_eq!(revision(&etcds.events, "/registry/events/default/own-a"), first);
    assert_eq!(version(&other.get(&format!("{EVENTS}/own-a")).await.expect(200)), first);
    assert_eq!(keys(&etcds.main, "/registry/events/"), Vec::<String>::new());
    let others = keys(&etcds.events, "").into_iter().filter(|key| !key.starts_with("/registry/events/"));
    let others: Vec<String> = others.filter(|key| !key.starts_with("/registry.holdfast/")).collect();
    assert_eq!(others, Vec::<String>::new(), "nothing else is in the etcd of Events");
    assert!(
        keys(&etcds.main, "/registry/configmaps/default/").contains(&"/registry/configmaps/default/own-map".into())
    );

    // The server returns an Event that another server wrote to the etcd of Events, and patches it at the Event's
    // revision in that etcd.
    let stored = etcds.events.ctl(&["get", "/registry/events/default/own-a", "-w", "json"]);
    assert!(stored.contains("\"lease\":"), "{stored}");
    let foreign = json!({
        "kind": "Event", "apiVersion": "v1", "reason": "Foreign", "metadata": {
            "name": "own-foreign", "namespace": "default", "uid": "9a1c2d3e-0000-4000-8000-000000000001",
            "creationTimestamp": "2026-01-02T03:04:05Z"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}, "source": {}, "type": "Normal",
        "firstTimestamp": null, "lastTimestamp": null, "eventTime": null, "reportingComponent": "", "reportingInstance": "",
    });
    etcds.events.ctl(&["put", "/registry/events/default/own-foreign", &foreign.to_string()]);
    let read = one.get(&format!("{EVENTS}/own-foreign")).await.expect(200);
    assert_eq!(version(&read), revision(&etcds.events, "/registry/events/default/own-foreign"));
    let patch = [("content-type", "application/merge-patch+json")];
    let path = format!("{EVENTS}/own-foreign");
    other.send(Method::PATCH, &path, &patch, json!({"reason": "Patched"}).to_string()).await.expect(200);
    let read = one.get("/apis/events.k8s.io/v1/namespaces/default/events/own-foreign").await.expect(200);
    assert_eq!(read.json()["reason"], "Patched");

    // A value in etcd that cannot be read makes requests for its kind fail, and does not affect requests for other
    // kinds.
    etcds.events.ctl(&["put", "/registry/events/default/own-broken", "garbage"]);
    for path in [format!("{EVENTS}/own-broken"), EVENTS.to_owned()] {
        let told = one.get(&path).await.expect(500).text();
        assert!(told.contains("/registry/events/default/own-broken"), "{told}");
    }
    one.get(MAPS).await.expect(200);
    etcds.events.ctl(&["del", "/registry/events/default/own-broken"]);
    one.get(&format!("{EVENTS}/own-broken")).await.refused(404, "NotFound");

    // Lists, their pages, and watches continue at the other server.
    for name in ["own-b", "own-c"] {
        one.post(EVENTS, &event("default", name)).await.expect(201);
    }
    let all = other.get(EVENTS).await.expect(200);
    assert_eq!(names(&all), ["own-a", "own-b", "own-c", "own-foreign"]);
    let newest: u64 = version(&all).parse().expect("a number");
    assert!(newest >= revision(&etcds.events, "/registry/events/default/own-c").parse().expect("a number"));
    let page = one.get(&format!("{EVENTS}?limit=2&fieldSelector=reason!=Nothing")).await.expect(200);
    let token = page.json()["metadata"]["continue"].as_str().expect("more").to_owned();
    one.post(EVENTS, &event("default", "own-d")).await.expect(201);
    let rest =
        other.get(&format!("{EVENTS}?limit=500&continue={token}&fieldSelector=reason!=Nothing")).await.expect(200);
    assert!(!names(&rest).contains(&"own-d".to_owned()), "the pages are of one version");
    assert_eq!(version(&rest), version(&page));
    assert_eq!([names(&page), names(&rest)].concat(), ["own-a", "own-b", "own-c", "own-foreign"]);
    delete(&other, &format!("{EVENTS}/own-b")).await.expect(200);
    let expected =
        ["ADDED own-foreign", "MODIFIED own-foreign", "ADDED own-b", "ADDED own-c", "ADDED own-d", "DELETED own-b"];
    for wire in [&one, &other] {
        // A watch sends only events that the server has received, so a list first waits for the newest state.
        wire.get(EVENTS).await.expect(200);
        assert_eq!(seen(wire, EVENTS, &first).await, expected);
    }
    // Reads of the past: at an exact version, and by the parameter `at`.
    for asked in ["resourceVersionMatch=Exact&resourceVersion", "at"] {
        let then = one.get(&format!("{EVENTS}?{asked}={first}")).await.expect(200);
        assert_eq!(names(&then), ["own-a"], "{asked}");
    }
    one.get(&format!("{EVENTS}?resourceVersion={}", newest + 1_000_000)).await.refused(504, "Timeout");

    // The history of an object is in the log of its kind.
    let kubeconfig = servers[0].kubeconfig().display().to_string();
    for (command, part) in [("history", "changed   patch   kubernetes-admin"), ("blame", "Patched")] {
        let told = succeeds(holdfast([command, "events/own-foreign", "--kubeconfig", &kubeconfig]));
        assert!(told.contains(part), "{told}");
    }
    let told = succeeds(holdfast(["history", "configmap/own-map", "--kubeconfig", &kubeconfig]));
    assert!(told.contains("created"), "{told}");

    // After a restart, a server on the old folder and a server on an empty folder show the same objects and versions.
    let before = names(&one.get(EVENTS).await.expect(200));
    let [server, other_server] = servers;
    server.stop();
    for fresh in [false, true] {
        let folder = Folder::new();
        let server = etcds.server(if fresh { folder.path() } else { folders[0].path() }, &[]);
        let wire = HttpClient::admin(&server);
        assert_eq!(names(&wire.get(EVENTS).await.expect(200)), before, "fresh: {fresh}");
        assert_eq!(version(&wire.get(&format!("{EVENTS}/own-a")).await.expect(200)), first);
        if !fresh {
            assert_eq!(seen(&wire, EVENTS, &first).await, expected);
        }
        let now = version(&wire.get(EVENTS).await.expect(200));
        let name = format!("own-after-{fresh}");
        other.post(EVENTS, &event("default", &name)).await.expect(201);
        wire.get(EVENTS).await.expect(200);
        assert_eq!(seen(&wire, EVENTS, &now).await, [format!("ADDED {name}")]);
        delete(&wire, &format!("{EVENTS}/{name}")).await.expect(200);
        server.stop();
    }
    other_server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namespaces_and_quotas_count_what_is_elsewhere() {
    let (etcds, folders) = (Etcds::start(), [Folder::new(), Folder::new()]);
    let maps_too = format!("--etcd-servers-overrides=/configmaps#{}", etcds.events.urls());
    let servers = folders.each_ref().map(|folder| etcds.server(folder.path(), &[&maps_too]));
    let [one, other] = servers.each_ref().map(HttpClient::admin);
    let events = "/api/v1/namespaces/own/events";
    one.post(events, &event("own", "own-a")).await.refused(404, "NotFound");
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "own"}});
    one.post("/api/v1/namespaces", &namespace).await.expect(201);
    // The second server writes to the new namespace before it has read anything in this namespace.
    other.post(events, &event("own", "own-a")).await.expect(201);
    let maps = "/api/v1/namespaces/own/configmaps";
    other.post(maps, &map("own-a")).await.expect(201);
    other.post("/api/v1/namespaces/own/secrets", &secret("own-a")).await.expect(201);
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"},
        "spec": {"hard": {"count/configmaps": "3"}},
    });
    let quotas = "/api/v1/namespaces/own/resourcequotas";
    one.post(quotas, &quota).await.expect(201);
    // No controller runs here to count the existing objects, so the test writes the count.
    let status = json!({"status": {"hard": {"count/configmaps": "3"}, "used": {"count/configmaps": "1"}}}).to_string();
    let patch = [("content-type", "application/merge-patch+json")];
    one.send(Method::PATCH, &format!("{quotas}/few/status"), &patch, status).await.expect(200);
    for name in ["own-b", "own-c"] {
        one.post(maps, &map(name)).await.expect(201);
        one.post(events, &event("own", name)).await.expect(201);
    }
    let refused = other.post(maps, &map("own-d")).await.refused(403, "Forbidden");
    assert!(refused["message"].as_str().is_some_and(|why| why.contains("exceeded quota: few")), "{refused}");
    assert_eq!(one.get(&format!("{quotas}/few")).await.json()["status"]["used"]["count/configmaps"], "3");

    // Delete a collection and a namespace, and create a namespace with the same name.
    let old = version(&one.get(events).await.expect(200));
    delete(&one, &format!("{events}?fieldSelector=metadata.name=own-c")).await.expect(200);
    assert_eq!(names(&other.get(events).await), ["own-a", "own-b"]);
    delete(&one, "/api/v1/namespaces/own").await.expect(200);
    for wire in [&one, &other] {
        eventually(PATIENCE, async || match wire.get("/api/v1/namespaces/own").await {
            answer if answer.code == 404 => Ok(()),
            answer => Err(answer.text()),
        })
        .await;
    }
    assert_eq!(keys(&etcds.events, "/registry/events/own/"), Vec::<String>::new());
    assert_eq!(keys(&etcds.events, "/registry/configmaps/own/"), Vec::<String>::new());
    assert_eq!(keys(&etcds.main, "/registry/secrets/own/"), Vec::<String>::new());
    one.post("/api/v1/namespaces", &namespace).await.expect(201);
    one.post(events, &event("own", "own-new")).await.expect(201);
    // A user who may read only this namespace does not see events of its predecessor.
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader"}});
    one.post("/api/v1/namespaces/own/serviceaccounts", &account).await.expect(201);
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "own"}],
    });
    one.post("/apis/rbac.authorization.k8s.io/v1/namespaces/own/rolebindings", &binding).await.expect(201);
    let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let token = one.post("/api/v1/namespaces/own/serviceaccounts/reader/token", &asked).await.expect(201).json();
    let reader = HttpClient::anonymous(&servers[0]).with_token(token["status"]["token"].as_str().expect("a token"));
    let exactly = |version: &str| format!("{events}?resourceVersionMatch=Exact&resourceVersion={version}");
    assert_eq!(names(&one.get(&exactly(&old)).await.expect(200)), ["own-a", "own-b", "own-c"]);
    reader.get(&exactly(&old)).await.refused(410, "Expired");
    let new = version(&reader.get(events).await.expect(200));
    one.post(events, &event("own", "own-newer")).await.expect(201);
    assert_eq!(names(&reader.get(&exactly(&new)).await.expect(200)), ["own-new"]);
    assert_eq!(seen(&reader, events, &new).await, ["ADDED own-newer"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_etcd_is_looked_after_by_itself() {
    let mut etcds = Etcds::start();
    let folder = Folder::new();
    let options = [
        "--etcd-db-metric-poll-interval=100ms",
        "--etcd-compaction-interval=300ms",
        "--etcd-healthcheck-timeout=500ms",
    ];
    let server = etcds.server(folder.path(), &options);
    let wire = HttpClient::admin(&server);
    let checks = wire.get("/readyz?verbose").await.expect(200).text();
    for name in ["etcd", "etcd-readiness", "etcd-override-0", "etcd-override-readiness-0"] {
        assert!(checks.contains(&format!("[+]{name} ok\n")), "{checks}");
    }
    let lives = wire.get("/livez?verbose").await.expect(200).text();
    assert!(lives.contains("etcd-override-0") && !lives.contains("override-readiness"), "{lives}");
    eventually(PATIENCE, async || {
        let text = wire.get("/metrics").await.expect(200).text();
        let sizes =
            ["etcd-0", "etcd-1"].map(|id| format!("apiserver_storage_size_bytes{{storage_cluster_id=\"{id}\"}} "));
        let has = |start: &String| text.lines().filter(|line| line.starts_with(start.as_str())).count() == 1;
        if sizes.iter().all(has) { Ok(()) } else { Err(text) }
    })
    .await;
    for etcd in [&etcds.main, &etcds.events] {
        eventually(PATIENCE, async || match etcd.ctl(&["get", "compact_rev_key", "--print-value-only"]).trim() {
            "" | "0" => Err("nothing is compacted"),
            _ => Ok(()),
        })
        .await;
    }
    // While the etcd of Events does not answer, all other kinds can be used.
    wire.post(EVENTS, &event("default", "own-a")).await.expect(201);
    etcds.events.member(0).pause();
    eventually(PATIENCE, async || match wire.get("/readyz/etcd-override-0").await {
        answer if answer.code == 500 => Ok(()),
        _ => Err("it is well"),
    })
    .await;
    let told = wire.get("/readyz?exclude=etcd&exclude=etcd-readiness").await;
    assert_eq!(told.text(), "ok");
    wire.post(MAPS, &map("own-map")).await.expect(201);
    assert_eq!(names(&wire.get(MAPS).await.expect(200)), ["own-map"]);
    assert_eq!(names(&wire.get(&format!("{EVENTS}?resourceVersion=0")).await.expect(200)), ["own-a"]);
    assert_eq!(wire.get(EVENTS).await.code, 503, "nobody knows the newest");
    etcds.events.member(0).resume();
    eventually(PATIENCE, async || match wire.get(EVENTS).await {
        answer if answer.code == 200 => Ok(()),
        answer => Err(answer.text()),
    })
    .await;
    wire.post(EVENTS, &event("default", "own-b")).await.expect(201);
}

/// Events are read from another etcd when an override is added, and from the former etcd when the override is removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_goes_on_with_other_overrides() {
    let (etcds, folder) = (Etcds::start(), Folder::new());
    let main = format!("--etcd-servers={}", etcds.main.urls());
    for round in 0..2 {
        let server = Server::start(folder.path(), &[&main]);
        let wire = HttpClient::admin(&server);
        wire.post(EVENTS, &event("default", &format!("own-main-{round}"))).await.expect(201);
        let all: Vec<String> = (0..=round).map(|round| format!("own-main-{round}")).collect();
        assert_eq!(names(&wire.get(EVENTS).await.expect(200)), all);
        server.stop();
        let server = etcds.server(folder.path(), &[]);
        let wire = HttpClient::admin(&server);
        wire.post(EVENTS, &event("default", &format!("own-other-{round}"))).await.expect(201);
        let all: Vec<String> = (0..=round).map(|round| format!("own-other-{round}")).collect();
        assert_eq!(names(&wire.get(EVENTS).await.expect(200)), all);
        server.stop();
    }
}

/// The encryption configuration covers a resource, whichever etcd stores the resource.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_in_an_etcd_of_its_own_is_encrypted_there() {
    let (etcds, folder) = (Etcds::start(), Folder::new());
    let file = folder.join("encryption.yaml");
    let configure = |keys: &[&str]| {
        let key = |name: &&str| {
            format!(
                "{{name: {name}, secret: {}}}",
                if *name == "a" { "QUFBQUFBQUFBQUFBQUFBQQ==" } else { "QkJCQkJCQkJCQkJCQkJCQg==" }
            )
        };
        let keys: Vec<String> = keys.iter().map(key).collect();
        let entry =
            format!("{{resources: [events, secrets], providers: [{{aesgcm: {{keys: [{}]}}}}]}}", keys.join(", "));
        let text = format!("{{apiVersion: v1, kind: EncryptionConfig, resources: [{entry}]}}");
        std::fs::write(&file, text).expect("written");
    };
    let option = format!("--encryption-provider-config={}", file.display());
    let raw = |etcd: &Cluster, key: &str| etcd.ctl(&["get", key, "--print-value-only"]);
    let (own_event, own_secret) = ("/registry/events/default/own-a", "/registry/secrets/default/own-a");
    configure(&["a"]);
    let server = etcds.server(&folder.join("data"), &[&option]);
    let wire = HttpClient::admin(&server);
    wire.post(EVENTS, &event("default", "own-a")).await.expect(201);
    wire.post("/api/v1/namespaces/default/secrets", &secret("own-a")).await.expect(201);
    assert!(raw(&etcds.events, own_event).starts_with("k8s:enc:aesgcm:v1:a:"));
    assert!(raw(&etcds.main, own_secret).starts_with("k8s:enc:aesgcm:v1:a:"));
    server.stop();
    // The configuration gets a new first key. One server has a copy of the events, and one server has none.
    configure(&["b", "a"]);
    for data in ["data", "fresh"] {
        let server = etcds.server(&folder.join(data), &[&option]);
        let wire = HttpClient::admin(&server);
        let path = format!("{EVENTS}/own-a");
        let found = wire.get(&path).await.expect(200).json();
        assert_eq!(found["reason"], "Tested");
        let kind = [("content-type", "application/json")];
        wire.send(Method::PUT, &path, &kind, found.to_string()).await.expect(200);
        assert!(raw(&etcds.events, own_event).starts_with("k8s:enc:aesgcm:v1:b:"), "{data}");
        server.stop();
    }
    // Without the key, requests for Events fail, naming the object's key in etcd and the missing encryption key.
    // Requests for Secrets succeed.
    configure(&["a"]);
    let server = etcds.server(&folder.join("other"), &[&option]);
    let wire = HttpClient::admin(&server);
    let told = wire.get(EVENTS).await.expect(500).text();
    assert!(told.contains(own_event) && told.contains("k8s:enc:aesgcm:v1:b:"), "{told}");
    wire.get("/api/v1/namespaces/default/secrets").await.expect(200);
}

/// Controllers in the server's process see their own writes, whichever log contains them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn controllers_work_across_etcds() {
    let (etcds, folder) = (Etcds::start(), Folder::new());
    let events = etcds.events.urls();
    let options = [
        format!("--etcd-servers={}", etcds.main.urls()),
        format!("--etcd-servers-overrides=apps/replicasets#{events},coordination.k8s.io/leases#{events}"),
        "--controllers=deployment,replicaset,garbagecollector,resourcequota".to_owned(),
    ];
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let server = Server::start(folder.path(), &options);
    let wire = HttpClient::admin(&server);
    let template =
        json!({"metadata": {"labels": {"app": "own"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "own-web"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "own"}}, "template": template},
    });
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    wire.post(deployments, &deployment).await.expect(201);
    let pods = async |count: usize| {
        eventually(PATIENCE, async || {
            match names(&wire.get("/api/v1/namespaces/default/pods").await.expect(200)).len() {
                found if found == count => Ok(()),
                found => Err(format!("{found} pods")),
            }
        })
        .await
    };
    pods(3).await;
    let sets = keys(&etcds.events, "/registry/replicasets/default/");
    assert_eq!((sets.len(), keys(&etcds.main, "/registry/replicasets/").len()), (1, 0), "{sets:?}");
    let patch = [("content-type", "application/merge-patch+json")];
    let fewer = json!({"spec": {"replicas": 1}}).to_string();
    wire.send(Method::PATCH, &format!("{deployments}/own-web"), &patch, fewer).await.expect(200);
    pods(1).await;
    delete(&wire, &format!("{deployments}/own-web")).await.expect(200);
    pods(0).await;
    assert_eq!(keys(&etcds.events, "/registry/replicasets/"), Vec::<String>::new());
    assert!(!keys(&etcds.events, "/registry/leases/").is_empty(), "the server's own Lease is there");
}

#[test]
fn what_is_wrong_is_told_with_the_option() {
    let (etcd, folder) = (Cluster::single(), Folder::new());
    let data = folder.path().display().to_string();
    let servers = format!("--etcd-servers={}", etcd.urls());
    let refused = |options: &[&str], parts: &[&str]| {
        let all = ["apiserver", "--secure-port=0", "--data-dir", &data].into_iter().chain(options.iter().copied());
        fails(holdfast(all), parts);
    };
    let overrides = "--etcd-servers-overrides=/events#http://127.0.0.1:1";
    refused(&[overrides], &["--etcd-servers-overrides is about etcd, and --etcd-servers names none"]);
    refused(&[&servers, overrides], &[overrides, "no member answers: http://127.0.0.1:1: "]);
    for (text, why) in [
        ("/events/http://127.0.0.1:1", "it must have the form group/resource#servers"),
        ("/nonsense#http://127.0.0.1:1", "/nonsense is not a resource of this server"),
        ("/namespaces#http://127.0.0.1:1", "/namespaces must stay in the etcd of --etcd-servers"),
        ("/events#tcp://127.0.0.1:1", "is not an address of etcd"),
    ] {
        refused(&[&servers, &format!("--etcd-servers-overrides={text}")], &["--etcd-servers-overrides", why]);
    }
}
