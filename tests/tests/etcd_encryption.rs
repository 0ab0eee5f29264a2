//! Servers on a real etcd whose values are encrypted, as kube-apiserver encrypts them, or cannot be read.

use bytes::Bytes;
use futures_util::FutureExt;
use holdfast_encryption::Live;
use holdfast_storage_etcd::client::{Etcd, KeyRange, Operation, Range, Txn};
use holdfast_storage_etcd::grpc::{Address, Cluster as Client};
use holdfast_tests::etcd::Cluster;
use holdfast_tests::kms::Plugin;
use holdfast_tests::wire::{Answer, HttpClient};
use holdfast_tests::{Folder, Server, eventually, files_with};
use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

/// Secrets that Kubernetes' own code has encrypted, one for each provider: with the keys of `provider`, and with a KMS
/// plug-in that wraps keys like [`Plugin`].
const OF_KUBERNETES: &str = include_str!("../data/kube-encrypted.jsonl");

/// The YAML of a provider whose keys are made from these numbers.
fn provider(name: &str, keys: &[u8]) -> String {
    let keys: Vec<String> =
        keys.iter().map(|nth| format!("{{name: key{nth}, secret: {}}}", base64(&[*nth; 32]))).collect();
    format!("{{{name}: {{keys: [{}]}}}}", keys.join(", "))
}

fn kms(version: &str, socket: &Path) -> String {
    format!("{{kms: {{name: plug-{version}, apiVersion: {version}, endpoint: 'unix://{}'}}}}", socket.display())
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

fn unbase64(text: &str) -> Vec<u8> {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.decode(text).expect("base64")
}

/// A configuration with these entries. Each entry lists resources and their providers.
fn configuration(entries: &[(&str, String)]) -> String {
    let entry =
        |(resources, providers): &(&str, String)| format!("{{resources: [{resources}], providers: [{providers}]}}");
    let entries: Vec<String> = entries.iter().map(entry).collect();
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration";
    format!("{head}\nresources: [{}]\n", entries.join(", "))
}

/// An etcd, and a folder with the data folders and other files of the servers on this etcd.
struct Place {
    etcd: Cluster,
    folder: Folder,
}

impl Place {
    fn new() -> Place {
        Place { etcd: Cluster::single(), folder: Folder::new() }
    }

    fn client(&self) -> Client {
        let addresses = self.etcd.urls().split(',').map(|url| Address::parse(url).expect("an address")).collect();
        Client::new(addresses, None).expect("a client")
    }

    /// The stored bytes; empty if there are none.
    fn raw(&self, key: &str) -> Vec<u8> {
        let found = self.client().range(&Range::of(KeyRange::one(key.to_owned()))).expect("a range").found;
        found.first().map(|found| found.value.to_vec()).unwrap_or_default()
    }

    fn put(&self, key: &str, value: &[u8]) {
        let put = Operation::Put { key: key.to_owned().into(), value: value.to_vec().into(), lease: 0 };
        let txn = Txn { operations: vec![put], ..Txn::default() };
        self.client().transact(vec![txn]).remove(0).expect("written");
    }

    fn configured(&self, entries: &[(&str, String)]) -> String {
        let file = self.folder.join("encryption.yaml");
        std::fs::write(&file, configuration(entries)).expect("written");
        format!("--encryption-provider-config={}", file.display())
    }

    fn data(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn start(&self, data: &str, options: &[&str]) -> Server {
        let servers = format!("--etcd-servers={}", self.etcd.urls());
        let options: Vec<&str> = [servers.as_str()].into_iter().chain(options.iter().copied()).collect();
        Server::start(&self.data(data), &options)
    }
}

/// Incompressible text, which is searched for in files after it was written as a value.
fn needle() -> String {
    (0..32).map(|_| char::from(rand::random_range(b'a'..=b'z'))).collect()
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().expect("a version").parse().expect("a number")
}

/// Writes an object again unchanged. Returns its version.
async fn touch(admin: &HttpClient, path: &str) -> u64 {
    let now = admin.get(path).await.expect(200).json();
    version(&admin.send(Method::PUT, path, &JSON, now.to_string()).await.expect(200).json())
}

fn map(name: &str, text: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "annotations": {"text": text}}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_that_kubernetes_has_encrypted_are_read_and_written_anew_with_the_first_key() {
    let place = Place::new();
    let socket = place.folder.join("kms.sock");
    let _plugin = Plugin::start(&socket);
    let facts: Vec<(String, Vec<u8>)> = OF_KUBERNETES
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
        .map(|fact| {
            (fact["key"].as_str().expect("a key").to_owned(), unbase64(fact["value"].as_str().expect("a value")))
        })
        .collect();
    facts.iter().for_each(|(key, value)| place.put(key, value));
    let providers = [
        provider("aesgcm", &[2]),
        provider("aescbc", &[1]),
        provider("secretbox", &[3]),
        kms("v1", &socket),
        kms("v2", &socket),
    ];
    let option = place.configured(&[("secrets", providers.join(", "))]);
    let options = [option.as_str(), "--feature-gates=KMSv1=true"];
    let server = place.start("one", &options);
    let admin = HttpClient::admin(&server);
    let own = |name: &str| format!("{SECRETS}/own-{name}");
    let names = ["aescbc", "aesgcm", "secretbox", "kms-v1", "kms-v2"];
    assert_eq!(facts.len(), names.len());
    for name in names {
        let found = admin.get(&own(name)).await.expect(200).json();
        assert_eq!(found["data"]["text"], base64(format!("told by {name}").as_bytes()), "{name}");
    }
    // A value that is moved to another key cannot be decrypted: AES-GCM authenticates the key's name.
    place.put("/registry/secrets/default/moved", &place.raw("/registry/secrets/default/own-aesgcm"));
    eventually(PATIENCE, async || match admin.get(&format!("{SECRETS}/moved")).await.code {
        500 => Ok(()),
        code => Err(code),
    })
    .await;
    place.etcd.ctl(&["del", "/registry/secrets/default/moved"]);
    for (name, is_fresh) in names.map(|name| (name, name == "aesgcm")) {
        let before = version(&admin.get(&own(name)).await.expect(200).json());
        let after = touch(&admin, &own(name)).await;
        assert_eq!(after == before, is_fresh, "{name}: {before} and {after}");
        assert_eq!(touch(&admin, &own(name)).await, after, "{name} has the newest key");
        let raw = place.raw(&format!("/registry/secrets/default/own-{name}"));
        assert!(raw.starts_with(b"k8s:enc:aesgcm:v1:key2:"), "{name}");
    }
    server.stop();
    // The newest key alone suffices, on a folder that has read the old values and on an empty folder.
    let option = place.configured(&[("secrets", provider("aesgcm", &[2]))]);
    for data in ["one", "two"] {
        let server = place.start(data, &[&option]);
        let list = HttpClient::admin(&server).get(SECRETS).await.expect(200).json();
        let texts = list["items"].as_array().expect("items").iter().filter(|item| item["data"]["text"].is_string());
        assert_eq!(texts.count(), names.len());
        server.stop();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_etcd_nor_the_own_disk_has_a_covered_value_in_plain() {
    let place = Place::new();
    let socket = place.folder.join("kms.sock");
    let plugin = Plugin::start(&socket);
    let entries = [
        ("secrets", kms("v2", &socket)),
        ("configmaps", provider("aescbc", &[1])),
        ("'*.example.com'", provider("secretbox", &[1])),
        ("events", "{identity: {}}".to_owned()),
        ("serviceaccounts", kms("v1", &socket)),
        ("'*.*'", provider("aesgcm", &[1])),
    ];
    let option = place.configured(&entries);
    let options = [option.as_str(), "--feature-gates=KMSv1=true"];
    let server = place.start("one", &options);
    let admin = HttpClient::admin(&server);
    let text = needle();
    let post = async |path: &str, object: Value| admin.post(path, &object).await.expect(201);
    let named = |kind: &str| json!({"kind": kind, "metadata": {"name": "own", "annotations": {"text": text}}});
    post(SECRETS, json!({"metadata": {"name": "own"}, "data": {"text": base64(text.as_bytes())}})).await;
    post(MAPS, map("own", &text)).await;
    post("/api/v1/namespaces/default/serviceaccounts", named("ServiceAccount")).await;
    let limits = json!({"metadata": {"name": "own", "annotations": {"text": text}}, "spec": {"limits": []}});
    post("/api/v1/namespaces/default/limitranges", limits).await;
    let definition = json!({"metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com",
        "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"}, "versions": [{"name": "v1",
        "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
        "x-kubernetes-preserve-unknown-fields": true}}}]}});
    post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await;
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "own"}, "text": text});
    eventually(PATIENCE, async || match admin.post(widgets, &widget).await {
        answer if answer.code == 201 => Ok(()),
        answer => Err(answer.text()),
    })
    .await;
    // Each value is stored under the prefix of its provider, and is decrypted like a value that kube-apiserver wrote.
    let live = Live::of_text(&configuration(&entries), true, false).expect("a configuration");
    for (resource, key, prefix) in [
        ("secrets", "secrets/default/own", "kms:v2:plug-v2:"),
        ("configmaps", "configmaps/default/own", "aescbc:v1:key1:"),
        ("serviceaccounts", "serviceaccounts/default/own", "kms:v1:plug-v1:"),
        ("limitranges", "limitranges/default/own", "aesgcm:v1:key1:"),
        ("example.com/widgets", "example.com/widgets/default/own", "secretbox:v1:key1:"),
    ] {
        let key = format!("/registry/{key}");
        let raw = place.raw(&key);
        assert!(raw.starts_with(format!("k8s:enc:{prefix}").as_bytes()), "{key}: {}", raw.escape_ascii());
        let (live, resource) = (live.clone(), resource.to_owned());
        let plain = tokio::task::spawn_blocking(move || {
            live.keyring().open_value(&resource, &key, &raw).map(|plain| plain.to_vec())
        });
        let plain = plain.await.expect("a task").expect("it opens");
        assert!(plain.starts_with(b"k8s\0") || plain.starts_with(b"{"), "{}", plain.escape_ascii());
    }
    let news = json!({"metadata": {"name": "own"}, "involvedObject": {"namespace": "default"}, "reason": "x"});
    post("/api/v1/namespaces/default/events", news).await;
    assert!(place.raw("/registry/events/default/own").starts_with(b"k8s\0"), "events are in plain");
    let all = place.client().range(&Range::of(KeyRange::between("/registry", "/registry0"))).expect("a range").found;
    for found in &all {
        let is_plain = |text: &str| found.value.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(!is_plain(&text) && !is_plain(&base64(text.as_bytes())), "{}", found.key.escape_ascii());
    }
    server.stop();
    drop(plugin);
    for text in [&text, &base64(text.as_bytes())] {
        assert_eq!(files_with(place.folder.path(), text), Vec::<PathBuf>::new());
    }
    // The plug-in runs again. A server on the old folder then reads its own disk, and a server on a new folder reads
    // everything from etcd.
    let _plugin = Plugin::start(&socket);
    for data in ["one", "two"] {
        let server = place.start(data, &options);
        let admin = HttpClient::admin(&server);
        for path in [&format!("{SECRETS}/own"), &format!("{MAPS}/own"), &format!("{widgets}/own")] {
            let found = admin.get(path).await.expect(200).text();
            assert!(found.contains(&text) || found.contains(&base64(text.as_bytes())), "{found}");
        }
        server.stop();
    }
    // This step checks the search itself, which must find a plain value.
    let plain = place.start("plain", &["--etcd-prefix=/plain"]);
    HttpClient::admin(&plain).post(MAPS, &map("own", &text)).await.expect(201);
    plain.stop();
    assert_ne!(files_with(&place.data("plain"), &text), Vec::<PathBuf>::new());
}

/// Each step of a rotation is rolled out server by server. A server that skips a step is refused, and says why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_start_beside_those_whose_values_they_read_and_the_other_way_round() {
    let place = Place::new();
    let configured = |data: &str, keys: &[u8]| {
        let file = place.folder.join(&format!("{data}.yaml"));
        std::fs::write(&file, configuration(&[("secrets", provider("aescbc", keys))])).expect("written");
        format!("--encryption-provider-config={}", file.display())
    };
    let servers = format!("--etcd-servers={}", place.etcd.urls());
    let options = |data: &str, keys: &[u8]| {
        let address = if data == "one" { "10.1.1.1" } else { "10.1.1.2" };
        [servers.clone(), configured(data, keys), format!("--advertise-address={address}")]
    };
    let start = |data: &str, keys: &[u8]| {
        let options = options(data, keys);
        Server::start(&place.data(data), &options.each_ref().map(String::as_str))
    };
    let refused = |data: &str, keys: &[u8], expected: &str| {
        let options = options(data, keys);
        let started = Server::try_start(&place.data(data), &options.each_ref().map(String::as_str));
        let told = started.err().expect("a refusal").stderr;
        assert!(told.contains(expected) && told.contains("--encryption-provider-config: "), "{told}");
    };
    let (mut one, mut two) = (start("one", &[1]), start("two", &[1]));
    let steps: [&[u8]; 3] = [&[1, 2], &[2, 1], &[2]];
    for (nth, keys) in steps.into_iter().enumerate() {
        for of_first in [true, false] {
            if of_first {
                one.stop();
                one = start("one", keys);
            } else {
                two.stop();
                two = start("two", keys);
            }
            let name = format!("own-{nth}-{of_first}");
            for (writer, reader, name) in [(&one, &two, format!("{name}-1")), (&two, &one, format!("{name}-2"))] {
                let secret = json!({"metadata": {"name": name}, "data": {"text": base64(b"x")}});
                HttpClient::admin(writer).post(SECRETS, &secret).await.expect(201);
                HttpClient::admin(reader).get(&format!("{SECRETS}/{name}")).await.expect(200);
            }
        }
    }
    two.stop();
    let new = "secrets would be encrypted by this server with k8s:enc:aescbc:v1:key3:, which the server at 10.1.1.1 does not have";
    refused("two", &[3, 2], new);
    refused("two", &[3], "the server at 10.1.1.1 encrypts secrets with k8s:enc:aescbc:v1:key2:");
    let published = place
        .client()
        .range(&Range::of(KeyRange::between("/registry.holdfast/options/", "/registry.holdfast/options0")));
    let published = published.expect("a range").found;
    let text = String::from_utf8_lossy(&published[0].value);
    assert!(published.len() == 1 && !text.contains(&base64(&[2; 32])), "{text}");
    // If a running server reads its configuration again and then has other keys, the other server logs the difference.
    let file = place.folder.join("two.yaml");
    let [servers, option, address] = options("two", &[2, 3]);
    let automatic = "--encryption-provider-config-automatic-reload";
    let two = Server::start(&place.data("two"), &[&servers, &option, &address, automatic]);
    std::fs::write(&file, configuration(&[("secrets", provider("aescbc", &[3, 2]))])).expect("written");
    eventually(PATIENCE, async || match two.stderr() {
        told if told.contains(new) => Ok(()),
        told => Err(told),
    })
    .await;
    eventually(PATIENCE, async || match one.stderr() {
        told if told.contains("the server at 10.1.1.2 encrypts secrets with") => Ok(()),
        told => Err(told),
    })
    .await;
}

/// A server that lacks one key serves everything except the values encrypted with this key, and serves these values
/// once it has the key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_comes_later_opens_what_was_not_readable() {
    let place = Place::new();
    let secret = |name: &str| json!({"metadata": {"name": name}, "data": {"text": base64(b"x")}});
    // A server that encrypted with another key and has stopped does not prevent a start.
    let before = place.configured(&[("secrets", provider("aesgcm", &[1]))]);
    let first = place.start("first", &[&before]);
    HttpClient::admin(&first).post(SECRETS, &secret("own")).await.expect(201);
    first.stop();
    let both = place.configured(&[("secrets", [provider("aescbc", &[2]), provider("aesgcm", &[1])].join(", "))]);
    let first = place.start("first", &[&both]);
    let file = place.folder.join("second.yaml");
    std::fs::write(&file, configuration(&[("secrets", provider("aescbc", &[2]))])).expect("written");
    let option = format!("--encryption-provider-config={}", file.display());
    let reload = "--encryption-provider-config-automatic-reload";
    let second = place.start("second", &[&option, reload, "--advertise-address=10.1.1.2"]);
    let admin = HttpClient::admin(&second);
    let answer = admin.get(&format!("{SECRETS}/own")).await;
    assert_eq!(answer.code, 500);
    let told = answer.json()["message"].as_str().expect("a message").to_owned();
    assert!(told.starts_with("Internal error occurred: ") && told.contains("k8s:enc:aesgcm:v1:key1:"), "{told}");
    // The first server can read what the second server writes.
    HttpClient::admin(&second).post(SECRETS, &secret("other")).await.expect(201);
    HttpClient::admin(&first).get(&format!("{SECRETS}/other")).await.expect(200);
    let before = place.raw("/registry/secrets/default/own");
    std::fs::write(
        &file,
        configuration(&[("secrets", [provider("aescbc", &[2]), provider("aesgcm", &[1])].join(", "))]),
    )
    .expect("written");
    eventually(PATIENCE, async || match admin.get(&format!("{SECRETS}/own")).await {
        answer if answer.code == 200 => Ok(()),
        answer => Err(answer.text()),
    })
    .await;
    assert_eq!(place.raw("/registry/secrets/default/own"), before, "nobody has changed it");
    // Both servers show the object with the same version, and the second server can now write it.
    let version_of = async |server: &Server| {
        let found = HttpClient::admin(server).get(&format!("{SECRETS}/own")).await.expect(200).json();
        version(&found)
    };
    assert_eq!(version_of(&first).await, version_of(&second).await);
    touch(&admin, &format!("{SECRETS}/own")).await;
    assert!(place.raw("/registry/secrets/default/own").starts_with(b"k8s:enc:aescbc:v1:key2:"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_read_fails_by_name_and_stays_as_it_is() {
    let place = Place::new();
    let at = |path: &str| format!("/registry/{path}");
    let sealed = b"k8s:enc:aescbc:v1:lost:0123456789abcdef0123456789abcdef";
    place.put(&at("configmaps/a/broken"), b"{");
    place.put(&at("configmaps/b/sealed"), sealed);
    place.put(&at("secrets/stray"), b"\xff\xfe");
    place.put(&at("minions/a/b"), b"");
    let namespace = |name: &str| json!({"metadata": {"name": name}});
    let server = place.start("one", &[]);
    let admin = HttpClient::admin(&server);
    for name in ["a", "b", "c"] {
        admin.post("/api/v1/namespaces", &namespace(name)).await.expect(201);
    }
    let maps = |namespace: &str| format!("/api/v1/namespaces/{namespace}/configmaps");
    let failed = |answer: Answer, reason: &str, parts: &[&str]| {
        let status = answer.json();
        let told = status["message"].as_str().unwrap_or_default();
        assert_eq!((answer.code, status["reason"].as_str().unwrap_or_default()), (500, reason), "{status}");
        assert!(parts.iter().all(|part| told.contains(part)), "{told}");
    };
    let check = async |admin: &HttpClient| {
        // As in Kubernetes, a value that is no object gives an error without a reason, and a value whose key is missing
        // gives an internal error.
        let (broken, lost) = (at("configmaps/a/broken"), at("configmaps/b/sealed"));
        failed(admin.get(&format!("{}/broken", maps("a"))).await, "", &[&broken, "unexpected end of JSON input"]);
        let words = ["Internal error occurred: unable to transform key", &lost, "no configuration says how to"];
        failed(admin.get(&format!("{}/sealed", maps("b"))).await, "InternalError", &words);
        failed(admin.get(&maps("a")).await, "", &[&broken]);
        failed(admin.get(&maps("b")).await, "InternalError", &[&lost]);
        failed(admin.get("/api/v1/configmaps").await, "", &[&broken, &lost]);
        failed(admin.get(&format!("{}?watch=true", maps("b"))).await, "InternalError", &[&lost]);
        failed(admin.get("/api/v1/secrets").await, "", &[&at("secrets/stray")]);
        failed(admin.get("/api/v1/nodes").await, "", &[&at("minions/a/b"), "it is empty"]);
        // Reads of another object by name, and of other namespaces and kinds, succeed.
        admin.get(&maps("c")).await.expect(200);
        admin.get(&format!("{}?fieldSelector=metadata.name%3Dfine", maps("a"))).await.expect(200);
        admin.get("/api/v1/namespaces/a/secrets").await.expect(200);
        admin.get("/api/v1/namespaces").await.expect(200);
    };
    check(&admin).await;
    let log = server.stderr();
    for key in ["configmaps/a/broken", "configmaps/b/sealed", "secrets/stray", "minions/a/b"] {
        assert!(log.contains(&format!("the value stored under {} cannot be read: ", at(key))), "{key}: {log}");
    }
    // A create, an update, a patch and an apply of the broken object fail, and do not overwrite it.
    let broken = format!("{}/broken", maps("a"));
    let exists = admin.post(&maps("a"), &map("broken", "x")).await.refused(409, "AlreadyExists");
    assert!(exists["message"].as_str().expect("a message").contains("configmaps \"broken\" already exists"));
    failed(admin.send(Method::PUT, &broken, &JSON, map("broken", "x").to_string()).await, "", &["broken"]);
    let merge = [("content-type", "application/merge-patch+json")];
    failed(admin.send(Method::PATCH, &broken, &merge, "{}").await, "", &["broken"]);
    let apply = [("content-type", "application/apply-patch+yaml")];
    let managed = format!("{broken}?fieldManager=m");
    failed(admin.send(Method::PATCH, &managed, &apply, map("broken", "x").to_string()).await, "", &["broken"]);
    failed(admin.send(Method::DELETE, &broken, &[], "").await, "", &["broken"]);
    failed(admin.send(Method::DELETE, &maps("a"), &[], "").await, "", &["broken"]);
    assert_eq!(place.raw(&at("configmaps/a/broken")), b"{");
    admin.post(&maps("a"), &map("fine", "x")).await.expect(201);
    // A namespace is not removed while it contains an object that cannot be deleted.
    let gone = async || admin.get("/api/v1/namespaces/b").await.code == 404;
    admin.send(Method::DELETE, "/api/v1/namespaces/b", &[], "").await.expect(200);
    admin.post("/api/v1/namespaces", &namespace("d")).await.expect(201);
    admin.send(Method::DELETE, "/api/v1/namespaces/d", &[], "").await.expect(200);
    eventually(PATIENCE, async || match admin.get("/api/v1/namespaces/d").await.code {
        404 => Ok(()),
        code => Err(code),
    })
    .await;
    assert!(!gone().await);

    // An object that becomes unreadable ends the watches that include it, and no others.
    admin.post(&maps("c"), &map("changing", "x")).await.expect(201);
    let watch = async |path: &str| {
        let path = format!("{path}?watch=true");
        admin.open(Method::GET, &path, &[], Bytes::new()).await.expect("a watch").into_body()
    };
    let (ends, mut stays) = (watch(&maps("c")).await, watch("/api/v1/namespaces/c/pods").await);
    place.put(&at("configmaps/c/changing"), b"garbage");
    let seen =
        tokio::time::timeout(PATIENCE, ends.collect()).await.expect("the watch ends").expect("a body").to_bytes();
    assert!(!String::from_utf8_lossy(&seen).contains("DELETED"), "{}", seen.escape_ascii());
    assert!(stays.frame().now_or_never().is_none(), "a watch of other objects goes on");
    drop(stays);
    failed(admin.get(&format!("{}/changing", maps("c"))).await, "", &["changing"]);
    server.stop();

    // A server on the old folder, which reads only new events from etcd, and a server on an empty folder both know all
    // unreadable objects.
    for data in ["one", "two"] {
        let server = place.start(data, &[]);
        let admin = HttpClient::admin(&server);
        failed(admin.get(&format!("{}/changing", maps("c"))).await, "", &["changing"]);
        failed(admin.get(&maps("c")).await, "", &["changing"]);
        place.etcd.ctl(&["del", &at("configmaps/c/changing")]);
        eventually(PATIENCE, async || match admin.get(&maps("c")).await {
            answer if answer.code == 200 && !answer.text().contains("changing") => Ok(()),
            answer => Err(answer.text()),
        })
        .await;
        check(&admin).await;
        server.stop();
        place.put(&at("configmaps/c/changing"), b"garbage");
    }
    // Once its value in etcd is repaired, the object can be used again.
    let server = place.start("two", &[]);
    let admin = HttpClient::admin(&server);
    let mut repaired = map("broken", "x");
    repaired["metadata"]["namespace"] = "a".into();
    place.put(&at("configmaps/a/broken"), repaired.to_string().as_bytes());
    eventually(PATIENCE, async || match admin.get(&broken).await {
        answer if answer.code == 200 => Ok(()),
        answer => Err(answer.text()),
    })
    .await;
    admin.send(Method::DELETE, &broken, &[], "").await.expect(200);
}

/// Keys that belong to no object and values of no kind are logged once, counted, and not changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_of_no_object_is_named_once_and_stays() {
    let place = Place::new();
    let definition = json!({"metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com",
        "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"}, "versions": [{"name": "v1",
        "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    let server = place.start("one", &[]);
    let admin = HttpClient::admin(&server);
    admin.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.expect(201);
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "own"}});
    let stray =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "x", "namespace": "default"}});
    let (deep, valid) = ("/registry/example.com/widgets/default/x/y", stray.to_string());
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}).to_string();
    let strays = [
        (deep, valid.as_str()),
        ("/registry/pods/x", &pod),
        ("/registry/gizmos/a/b", "{}"),
        ("/registry/gizmos/a/c", "garbage"),
        ("/registry/note", "mine"),
    ];
    for _ in 0..2 {
        strays.iter().for_each(|(key, value)| place.put(key, value.as_bytes()));
    }
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    eventually(PATIENCE, async || match admin.post(widgets, &widget).await {
        answer if answer.code == 201 => Ok(()),
        answer => Err(answer.text()),
    })
    .await;
    for path in [widgets, "/api/v1/pods"] {
        let found = admin.get(path).await.expect(200).text();
        assert!(!found.contains("\"x\""), "{found}");
    }
    let told = server.stderr();
    for (place, words) in [
        (deep, "is no key of an object of its kind"),
        ("/registry/pods/x", "is no key of an object of its kind"),
        ("/registry/gizmos/", "in etcd is of no kind that this release knows"),
        ("/registry/note", "in etcd is of no kind that this release knows"),
    ] {
        assert_eq!(told.matches(&format!("{place} {words}")).count(), 1, "{place}: {told}");
    }
    let metrics = admin.get("/metrics").await.expect(200).text();
    for count in ["{cause=\"depth\"} 4\n", "{cause=\"kind\"} 6\n"] {
        assert!(metrics.contains(&format!("holdfast_etcd_left_out_values_total{count}")), "{metrics}");
    }
    // Deleting all objects of the kind, and then the kind itself, does not delete the values that the server has left
    // out.
    admin.send(Method::DELETE, widgets, &[], "").await.expect(200);
    admin
        .send(Method::DELETE, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com", &[], "")
        .await
        .expect(200);
    eventually(PATIENCE, async || match admin.get(widgets).await.code {
        404 => Ok(()),
        code => Err(code),
    })
    .await;
    server.stop();
    for (key, value) in strays {
        assert_eq!(place.raw(key), value.as_bytes(), "{key}");
    }
}

/// `ignoreStoreReadErrorWithClusterBreakingPotential` deletes an object that cannot be read, if the feature gate is on
/// and the user has the verb for such deletions. The option deletes no other objects.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_read_is_deleted_unseen_where_that_is_allowed() {
    const IGNORE: &str = "ignoreStoreReadErrorWithClusterBreakingPotential=true";
    let place = Place::new();
    let sealed = b"k8s:enc:aescbc:v1:lost:0123456789abcdef0123456789abcdef";
    let (broken, lost) = ("/registry/configmaps/default/broken", "/registry/secrets/default/lost");
    // While the feature gate is off, which is the default, the option has no effect.
    let server = place.start("one", &[]);
    let admin = HttpClient::admin(&server);
    admin.post(MAPS, &map("fine", "x")).await.expect(201);
    place.put(broken, b"{");
    place.put(lost, sealed);
    let delete = async |wire: &HttpClient, path: &str, more: &str| {
        wire.send(Method::DELETE, &format!("{path}?{IGNORE}{more}"), &[], "").await
    };
    assert_eq!(delete(&admin, &format!("{MAPS}/broken"), "&gracePeriodSeconds=0").await.code, 500);
    delete(&admin, &format!("{MAPS}/fine"), "&dryRun=All").await.expect(200);
    server.stop();
    assert_eq!(place.raw(broken), b"{");

    let audit = place.folder.join("audit.log");
    let policy = place.folder.join("policy.yaml");
    std::fs::write(&policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n")
        .expect("written");
    let options = [
        "--feature-gates=AllowUnsafeMalformedObjectDeletion=true".to_owned(),
        format!("--audit-log-path={}", audit.display()),
        format!("--audit-policy-file={}", policy.display()),
    ];
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let server = place.start("one", &options);
    let admin = HttpClient::admin(&server);
    // The form of a read error says which objects can be deleted with the option.
    let why = admin.get(&format!("{SECRETS}/lost")).await.refused(500, "InternalError");
    let expected = format!(
        "Internal error occurred: StorageError: corrupt object, Code: 7, Key: {lost}, ResourceVersion: 0, \
         AdditionalErrorMsg: data from the storage is not transformable revision=0: "
    );
    assert!(why["message"].as_str().is_some_and(|message| message.starts_with(&expected)), "{why}");
    for path in [MAPS.to_owned(), format!("{MAPS}?watch=true")] {
        let why = admin.get(&path).await.refused(500, "StorageReadError");
        assert_eq!(why["message"], "failed to read one or more configmaps from the storage");
        let cause = &why["details"]["causes"][0];
        assert_eq!((&why["details"]["name"], &why["details"]["kind"]), (&json!("list"), &json!("configmaps")));
        assert_eq!((&cause["reason"], &cause["field"]), (&json!("UnexpectedServerResponse"), &json!(broken)));
        assert!(cause["message"].as_str().is_some_and(|text| text.contains("object not decodable revision=")), "{why}");
    }
    // The option cannot be combined with other options of a deletion, nor used to delete a collection.
    let path = format!("{MAPS}/broken");
    for other in ["dryRun=All", "propagationPolicy=Background", "orphanDependents=true", "gracePeriodSeconds=0"] {
        let why = delete(&admin, &path, &format!("&{other}")).await.refused(422, "Invalid");
        let (name, _) = other.split_once('=').expect("a value");
        let expected = format!(
            "DeleteOptions.meta.k8s.io \"\" is invalid: ignoreStoreReadErrorWithClusterBreakingPotential: Invalid value: \
             true: cannot be set together with .{name}"
        );
        assert_eq!(why["message"], expected);
    }
    let body = json!({"ignoreStoreReadErrorWithClusterBreakingPotential": true, "preconditions": {"uid": "u"}});
    let why = admin.send(Method::DELETE, &path, &JSON, body.to_string()).await.refused(422, "Invalid");
    assert!(why["message"].as_str().is_some_and(|why| why.ends_with("together with .preconditions")), "{why}");
    let why = delete(&admin, MAPS, "").await.refused(422, "Invalid");
    assert!(why["message"].as_str().is_some_and(|why| why.contains("is not allowed with DELETECOLLECTION")), "{why}");
    // The option does not delete an object that can be read, and fails if there is no object.
    for name in ["fine", "none"] {
        let why = delete(&admin, &format!("{MAPS}/{name}"), "").await.refused(422, "Invalid");
        let expected = format!(
            "configmaps \"{name}\" is invalid: ignoreStoreReadErrorWithClusterBreakingPotential: Invalid value: true: is \
             exclusively used to delete corrupt object(s), try again by removing this option"
        );
        assert_eq!(why["message"], expected);
    }
    admin.get(&format!("{MAPS}/fine")).await.expect(200);
    // A deletion with the option needs another verb in addition to `delete`.
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = |verbs: &[&str]| {
        json!({"metadata": {"name": "deleter"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}]})
    };
    admin.post(&format!("{rbac}/roles"), &role(&["delete"])).await.expect(201);
    admin
        .post("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "deleter"}}))
        .await
        .expect(201);
    let binding = json!({"metadata": {"name": "deleter"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "deleter"},
        "subjects": [{"kind": "ServiceAccount", "name": "deleter", "namespace": "default"}]});
    admin.post(&format!("{rbac}/rolebindings"), &binding).await.expect(201);
    let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let token = admin.post("/api/v1/namespaces/default/serviceaccounts/deleter/token", &token).await.expect(201).json();
    let deleter = HttpClient::anonymous(&server).with_token(token["status"]["token"].as_str().expect("a token"));
    let why = delete(&deleter, &path, "").await.refused(403, "Forbidden");
    let expected =
        "configmaps \"broken\" is forbidden: not permitted to do \"unsafe-delete-ignore-read-errors\", reason: ";
    assert!(why["message"].as_str().is_some_and(|message| message.starts_with(expected)), "{why}");
    // Admission policies apply to a deletion with the option.
    let policy = json!({"metadata": {"name": "keep"}, "spec": {"matchConstraints": {"resourceRules": [{"apiGroups": [""],
        "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["configmaps"]}]},
        "validations": [{"expression": "request.name != 'broken'", "message": "it is to be kept"}]}});
    let admission = "/apis/admissionregistration.k8s.io/v1";
    admin.post(&format!("{admission}/validatingadmissionpolicies"), &policy).await.expect(201);
    let binding = json!({"metadata": {"name": "keep"}, "spec": {"policyName": "keep", "validationActions": ["Deny"]}});
    admin.post(&format!("{admission}/validatingadmissionpolicybindings"), &binding).await.expect(201);
    eventually(PATIENCE, async || match delete(&admin, &path, "").await {
        answer if answer.text().contains("it is to be kept") => Ok(()),
        answer => Err(answer.text()),
    })
    .await;
    admin
        .send(Method::DELETE, &format!("{admission}/validatingadmissionpolicybindings/keep"), &[], "")
        .await
        .expect(200);
    assert_eq!(place.raw(broken), b"{", "nothing of all this has deleted it");
    // With the verb, the user can delete the object. The object was stored only in etcd, and is no longer in etcd.
    let wider = role(&["delete", "unsafe-delete-ignore-read-errors"]).to_string();
    admin.send(Method::PUT, &format!("{rbac}/roles/deleter"), &JSON, wider).await.expect(200);
    let answer = delete(&deleter, &path, "").await.expect(200).json();
    assert_eq!((&answer["kind"], &answer["status"]), (&json!("Status"), &json!("Success")), "{answer}");
    assert_eq!(answer["details"], json!({"name": "broken", "kind": "ConfigMap"}));
    assert_eq!(place.raw(broken), b"");
    admin.get(&path).await.refused(404, "NotFound");
    admin.get(MAPS).await.expect(200);
    admin.post(MAPS, &map("broken", "x")).await.expect(201);
    delete(&deleter, &format!("{SECRETS}/lost"), "").await.refused(403, "Forbidden");
    delete(&admin, &format!("{SECRETS}/lost"), "").await.expect(200);
    admin.get(SECRETS).await.expect(200);
    // The server has read this object before it became unreadable, so the deletion still causes a watch event.
    let known = version(&admin.post(MAPS, &map("known", "x")).await.expect(201).json());
    place.put("/registry/configmaps/default/known", b"garbage");
    eventually(PATIENCE, async || match admin.get(&format!("{MAPS}/known")).await.code {
        500 => Ok(()),
        code => Err(code),
    })
    .await;
    delete(&admin, &format!("{MAPS}/known"), "").await.expect(200);
    let seen =
        admin.get(&format!("{MAPS}?watch=true&timeoutSeconds=1&resourceVersion={known}")).await.expect(200).text();
    assert!(seen.contains("\"DELETED\"") && seen.contains("\"known\""), "{seen}");
    server.stop();
    let audit = std::fs::read_to_string(audit).expect("audit events");
    let tried = audit.lines().filter(|line| line.contains("apiserver.k8s.io/unsafe-delete-ignore-read-error"));
    assert!(tried.clone().count() >= 4, "{audit}");
    assert!(tried.clone().any(|line| line.contains("system:serviceaccount:default:deleter")), "{audit}");
}
