//! Encryption at rest, with the real binary and a KMS plug-in: no plain secret in any file, key rotation, values that
//! were changed or moved, and unreachable plug-ins.

use holdfast_core::event::{Offset, Record};
use holdfast_encryption::{Live, Locked, SealedLog};
use holdfast_engine::{Log, LogRead, Sealing as _};
use holdfast_storage_rocks::{LogReader, RocksLog};
use holdfast_tests::kms::Plugin;
use holdfast_tests::server::{Refused, fails, holdfast, succeeds};
use holdfast_tests::wire::HttpClient;
use holdfast_tests::{Folder, Server, eventually, files_with, has_reloaded};
use http::Method;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JSON: [(&str, &str); 1] = [("content-type", "application/json")];
const PATIENCE: Duration = Duration::from_secs(20);

/// A key of 32 bytes in base64. All of its bytes are `nth`.
fn key(nth: u8) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode([nth; 32])
}

/// The YAML of a provider whose keys are made from these numbers.
fn provider(name: &str, keys: &[u8]) -> String {
    let keys: Vec<String> = keys.iter().map(|nth| format!("{{name: key{nth}, secret: {}}}", key(*nth))).collect();
    format!("{{{name}: {{keys: [{}]}}}}", keys.join(", "))
}

fn kms(version: &str, socket: &Path) -> String {
    format!("{{kms: {{name: plug-{version}, apiVersion: {version}, endpoint: 'unix://{}'}}}}", socket.display())
}

/// A configuration with these entries. Each entry lists resources and their providers.
fn configuration(entries: &[(&str, &str)]) -> String {
    let entry =
        |(resources, providers): &(&str, &str)| format!("{{resources: [{resources}], providers: [{providers}]}}");
    let entries: Vec<String> = entries.iter().map(entry).collect();
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration";
    format!("{head}\nresources: [{}]\n", entries.join(", "))
}

/// A folder for data and other files, with a configuration.
struct Place {
    folder: Folder,
}

impl Place {
    fn new() -> Place {
        Place { folder: Folder::new() }
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("kms.sock")
    }

    fn configured(&self, entries: &[(&str, &str)]) -> String {
        let file = self.folder.join("encryption.yaml");
        std::fs::write(&file, configuration(entries)).expect("written");
        format!("--encryption-provider-config={}", file.display())
    }
}

/// Incompressible text, which is searched for in files after it was written as a value.
fn needle() -> String {
    (0..32).map(|_| char::from(rand::random_range(b'a'..=b'z'))).collect()
}

fn config_map(name: &str, text: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"text": text}})
}

fn secret(name: &str, text: &str) -> Value {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(text);
    json!({"metadata": {"name": name}, "data": {"text": text}})
}

/// The text of a secret as the log stores it.
fn in_secret(text: &str) -> String {
    secret("", text)["data"]["text"].as_str().expect("text").to_owned()
}

/// All events of the folder's log, as they are stored.
fn kept(data: &Path) -> Vec<Record> {
    LogReader::open(data).expect("a log").scan(None, Offset::ZERO, 100_000).expect("events")
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().expect("a version").parse().expect("a number")
}

#[tokio::test]
async fn no_file_holds_a_secret_in_plain() {
    let place = Place::new();
    let _plugin = Plugin::start(&place.socket());
    let option = place.configured(&[
        ("secrets", &kms("v2", &place.socket())),
        ("configmaps", &provider("aescbc", &[1])),
        ("'*.example.com'", &provider("secretbox", &[1])),
        ("events", "{identity: {}}"),
        ("serviceaccounts", &kms("v1", &place.socket())),
        ("'*.*'", &provider("aesgcm", &[1])),
    ]);
    let options = [option.as_str(), "--feature-gates=KMSv1=true"];
    let server = Server::start(&place.data(), &options);
    let admin = HttpClient::admin(&server);
    let (first, second, third, custom) = (needle(), needle(), needle(), needle());
    admin.post(SECRETS, &secret("one", &first)).await.expect(201);
    admin.post(MAPS, &config_map("one", &first)).await.expect(201);
    let account = json!({"metadata": {"name": "one", "annotations": {"text": third}}});
    admin.post("/api/v1/namespaces/default/serviceaccounts", &account).await.expect(201);
    let limit = json!({"metadata": {"name": "one", "annotations": {"text": third}}, "spec": {"limits": []}});
    admin.post("/api/v1/namespaces/default/limitranges", &limit).await.expect(201);
    admin.send(Method::PUT, &format!("{SECRETS}/one"), &JSON, secret("one", &second).to_string()).await.expect(200);
    admin.send(Method::DELETE, &format!("{MAPS}/one"), &[], "").await.expect(200);
    let definition = json!({"metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"}, "versions": [{"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    admin.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.expect(201);
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "one"}, "text": custom});
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    eventually(PATIENCE, async || {
        let answer = admin.post(widgets, &widget).await;
        if answer.code == 201 { Ok(()) } else { Err(answer.text()) }
    })
    .await;
    // Makes a fork of the encrypted folder while its server is running.
    let fork = place.folder.join("fork");
    succeeds(holdfast([
        "fork",
        "--from",
        &place.data().display().to_string(),
        "--data-dir",
        &fork.display().to_string(),
    ]));
    server.kill();
    // This restart moves the content of the write-ahead log into tables.
    let server = Server::start(&place.data(), &options);
    let admin = HttpClient::admin(&server);
    let found = admin.get(&format!("{SECRETS}/one")).await.expect(200).json();
    assert_eq!(found["data"]["text"], in_secret(&second));
    let old = admin.get(&format!("/at/{}{SECRETS}/one", version(&found) - 1)).await;
    assert_eq!(old.expect(200).json()["data"]["text"], in_secret(&first));
    assert_eq!(admin.get(&format!("{widgets}/one")).await.expect(200).json()["text"], custom);
    server.stop();
    let (data, export) = (place.data().display().to_string(), place.folder.join("export"));
    succeeds(holdfast(["log", "export", "--data-dir", &data, "--output", &export.display().to_string()]));
    let imported = place.folder.join("imported");
    succeeds(holdfast(["log", "import", &export.display().to_string(), "--data-dir", &imported.display().to_string()]));
    assert!(!kept(&fork).is_empty() && kept(&imported).len() == kept(&place.data()).len());
    // Stops the plug-in, because its socket in the folder cannot be read as a file.
    drop(_plugin);
    for text in [&first, &second, &third, &custom, &in_secret(&first), &in_secret(&second)] {
        assert_eq!(files_with(place.folder.path(), text), Vec::<PathBuf>::new(), "{text}");
    }
    for record in kept(&place.data()) {
        assert_eq!(record.object.starts_with(b"k8s:enc:"), record.resource != "events", "{}", record.resource);
    }
    let plain = Folder::new();
    let server = Server::start(plain.path(), &[]);
    HttpClient::admin(&server).post(SECRETS, &secret("one", &first)).await.expect(201);
    server.stop();
    assert_ne!(files_with(plain.path(), &in_secret(&first)), Vec::<PathBuf>::new(), "the search finds what is there");
}

#[tokio::test]
async fn keys_rotate_and_commands_read_with_them() {
    let place = Place::new();
    let data = place.data().display().to_string();
    let only_first = place.configured(&[("secrets", &provider("aesgcm", &[1]))]);
    let server = Server::start(&place.data(), &[&only_first, "--encryption-provider-config-automatic-reload"]);
    let admin = HttpClient::admin(&server);
    let created = admin.post(SECRETS, &secret("one", "first")).await.expect(201).json();
    let path = format!("{SECRETS}/one");
    let put = async || {
        let now = admin.get(&path).await.expect(200).json();
        version(&admin.send(Method::PUT, &path, &JSON, now.to_string()).await.expect(200).json())
    };
    assert_eq!(put().await, version(&created), "nothing changes, and nothing is written");
    // An unusable configuration is ignored and reported.
    std::fs::write(place.folder.join("encryption.yaml"), "kind: Nonsense").expect("written");
    eventually(PATIENCE, async || {
        let health = admin.get("/readyz").await;
        if health.code == 500 && health.text().contains("[-]kms-providers failed") {
            Ok(())
        } else {
            Err(health.text())
        }
    })
    .await;
    assert_eq!(admin.get("/livez").await.code, 200);
    let metrics = admin.get("/metrics").await.text();
    assert!(has_reloaded(&metrics, "encryption", "failure", 1), "{metrics}");
    assert!(server.stderr().contains("the encryption config cannot be reloaded"), "{}", server.stderr());
    assert_eq!(put().await, version(&created));
    // The configuration has a new key for writes, and the old key for existing values.
    let both = place.configured(&[("secrets", &provider("aesgcm", &[2, 1]))]);
    eventually(PATIENCE, async || {
        let health = admin.get("/readyz").await;
        if health.code == 200 { Ok(()) } else { Err(health.text()) }
    })
    .await;
    let rewritten = put().await;
    assert!(rewritten > version(&created), "the key is another");
    assert_eq!(put().await, rewritten, "and then it is the same");
    server.stop();
    let keys: Vec<bool> = kept(&place.data())
        .iter()
        .filter(|record| record.resource == "secrets")
        .map(|record| record.object.starts_with(b"k8s:enc:aesgcm:v1:key2:"))
        .collect();
    assert_eq!(keys, [false, true]);
    // Without the keys, commands report the value that they cannot decrypt, and the option that they need.
    fails(
        holdfast(["history", "secret", "one", "--data-dir", &data]),
        &["secrets/default/one (event ", "--encryption-provider-config FILE"],
    );
    let history = succeeds(holdfast(["history", "secret", "one", "--data-dir", &data, &both]));
    assert_eq!(history.lines().count(), 3, "{history}");
    succeeds(holdfast(["blame", "secret", "one", "--data-dir", &data, &both]));
    succeeds(holdfast(["log", "verify", "--data-dir", &data, &both]));
    fails(holdfast(["log", "verify", "--data-dir", &data]), &["--encryption-provider-config FILE"]);
    succeeds(holdfast([
        "restore",
        "secret",
        "one",
        "--to",
        &version(&created).to_string(),
        "--data-dir",
        &data,
        &both,
    ]));
    succeeds(holdfast(["log", "tail", "--data-dir", &data]));
    fails(holdfast(["log", "export", "--data-dir", &data, &both]), &["--encryption-provider-config needs --plain"]);
    let plain = succeeds(holdfast(["log", "export", "--data-dir", &data, "--plain", &both]));
    assert!(plain.contains(&in_secret("first")));
    let run = ["run", "--from", &data, &both, "--", "sh", "-c", "kubectl get secret one -o jsonpath={.data.text}"];
    assert_eq!(succeeds(holdfast(run)), in_secret("first"));
    // With the new key alone, current objects are served, and older versions cannot be read.
    let only_second = place.configured(&[("secrets", &provider("aesgcm", &[2]))]);
    let server = Server::start(&place.data(), &[&only_second]);
    let admin = HttpClient::admin(&server);
    assert_eq!(admin.get(&path).await.expect(200).json()["data"]["text"], in_secret("first"));
    let old = admin.get(&format!("/at/{}{path}", version(&created))).await;
    assert!(old.code == 500 && old.text().contains("k8s:enc:aesgcm:v1:key1:"), "{}", old.text());
    server.stop();
    let Refused { stderr, .. } = Server::try_start(&place.data(), &[]).err().expect("a refusal");
    assert!(stderr.contains("secrets/default/one") && stderr.contains("--encryption-provider-config"), "{stderr}");
    let wrong = place.configured(&[("secrets", &provider("aesgcm", &[3]))]);
    let Refused { stderr, .. } = Server::try_start(&place.data(), &[&wrong]).err().expect("a refusal");
    assert!(stderr.contains("no provider for its prefix \"k8s:enc:aesgcm:v1:key2:\""), "{stderr}");
}

#[tokio::test]
async fn a_plain_log_is_rewritten_by_an_import() {
    let place = Place::new();
    let needle = needle();
    let server = Server::start(&place.data(), &[]);
    HttpClient::admin(&server).post(SECRETS, &secret("one", &needle)).await.expect(201);
    server.stop();
    let [data, export, new] =
        [place.data(), place.folder.join("export"), place.folder.join("new")].map(|path| path.display().to_string());
    succeeds(holdfast(["log", "export", "--data-dir", &data, "--output", &export]));
    let option = place.configured(&[("secrets", &provider("secretbox", &[1]))]);
    succeeds(holdfast(["log", "import", &export, "--data-dir", &new, &option]));
    assert_eq!(files_with(&place.folder.join("new"), &in_secret(&needle)), Vec::<PathBuf>::new());
    assert_ne!(files_with(&place.data(), &in_secret(&needle)), Vec::<PathBuf>::new());
    succeeds(holdfast(["log", "verify", "--data-dir", &new, &option]));
    // The export and the import below encrypt all values again with another key. The export between them contains no
    // plain value.
    let sealed = place.folder.join("sealed").display().to_string();
    succeeds(holdfast(["log", "export", "--data-dir", &new, "--output", &sealed]));
    assert!(!std::fs::read_to_string(&sealed).expect("an export").contains(&in_secret(&needle)));
    let both = place.configured(&[("secrets", &provider("secretbox", &[2, 1]))]);
    let again = place.folder.join("again");
    succeeds(holdfast(["log", "import", &sealed, "--data-dir", &again.display().to_string(), &both]));
    let secrets: Vec<Record> = kept(&again).into_iter().filter(|record| record.resource == "secrets").collect();
    assert!(secrets.iter().all(|record| record.object.starts_with(b"k8s:enc:secretbox:v1:key2:")));
    // A server refuses a folder with plain values, unless its configuration allows plain values.
    let Refused { stderr, .. } = Server::try_start(&place.data(), &[&both]).err().expect("a refusal");
    assert!(stderr.contains("is not encrypted") && stderr.contains("identity: {}"), "{stderr}");
}

#[tokio::test]
async fn what_was_changed_or_moved_is_refused_and_what_is_damaged_repaired() {
    let place = Place::new();
    let option = place.configured(&[("configmaps", &provider("aescbc", &[1]))]);
    let server = Server::start(&place.data(), &[&option]);
    let admin = HttpClient::admin(&server);
    let first = version(&admin.post(MAPS, &config_map("one", "first")).await.expect(201).json());
    let body = config_map("one", "second").to_string();
    let second = admin.send(Method::PUT, &format!("{MAPS}/one"), &JSON, body).await.expect(200).json();
    let other = version(&admin.post(MAPS, &config_map("two", "other")).await.expect(201).json());
    server.stop();
    let original = kept(&place.data()).into_iter().find(|record| record.offset == other).expect("the event");
    let refused = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut object = original.object.to_vec();
        change(&mut object);
        overwrite(&place.data(), &Record { object: object.into(), ..original.clone() });
        let Refused { stderr, .. } = Server::try_start(&place.data(), &[&option]).err().expect("a refusal");
        assert!(stderr.contains("configmaps/default/two") && stderr.contains("was changed or moved"), "{stderr}");
    };
    let first_kept = kept(&place.data()).into_iter().find(|record| record.offset == first).expect("the event");
    refused(&|object| *object = first_kept.object.to_vec());
    refused(&|object| *object.last_mut().expect("a byte") ^= 1);
    refused(&|object| object["k8s:enc:aescbc:v1:key1:".len()] ^= 1);
    overwrite(&place.data(), &original);
    // Damages the newest event of the first object, so that its checksum fails.
    {
        let db = open(&place.data());
        let events = db.cf_handle("events").expect("events");
        let at = version(&second).to_be_bytes();
        let mut value = db.get_cf(events, at).expect("read").expect("the event");
        *value.last_mut().expect("a byte") ^= 1;
        db.put_cf(events, at, value).expect("written");
    }
    let data = place.data().display().to_string();
    fails(holdfast(["log", "repair", "--data-dir", &data]), &["--encryption-provider-config"]);
    let told = succeeds(holdfast(["log", "repair", "--data-dir", &data, &option]));
    assert!(told.contains("/registry/configmaps/default/one is put back"), "{told}");
    let server = Server::start(&place.data(), &[&option]);
    let found = HttpClient::admin(&server).get(&format!("{MAPS}/one")).await.expect(200).json();
    assert_eq!(found["data"]["text"], "first");
    server.stop();
    let again = kept(&place.data()).into_iter().rfind(|event| event.key == "default/one").expect("an event");
    assert!(again.object.starts_with(b"k8s:enc:aescbc:v1:key1:"), "it is encrypted like any other");
}

/// Replaces a record by another one with a valid checksum.
fn overwrite(data: &Path, record: &Record) {
    let db = open(data);
    let events = db.cf_handle("events").expect("events");
    db.put_cf(events, record.offset.to_be_bytes(), record.encode_record()).expect("written");
}

fn open(data: &Path) -> rocksdb::DB {
    let options = rocksdb::Options::default();
    let names = rocksdb::DB::list_cf(&options, data.join("log")).expect("families");
    rocksdb::DB::open_cf(&options, data.join("log"), names).expect("a store")
}

#[tokio::test]
async fn a_server_starts_without_its_plug_in_and_goes_on_when_it_comes() {
    let place = Place::new();
    let option =
        place.configured(&[("secrets", &kms("v2", &place.socket())), ("configmaps", &kms("v1", &place.socket()))]);
    let Refused { stderr, .. } = Server::try_start(&place.data(), &[&option]).err().expect("a refusal");
    assert!(stderr.contains("resources[1].providers[0].kms.apiVersion: Forbidden: KMSv1 is deprecated"), "{stderr}");
    let options = [option.as_str(), "--feature-gates=KMSv1=true"];
    // The server of a new cluster writes a ConfigMap. Version 1 of the KMS protocol would make this write wait for the
    // plug-in, so the first start encrypts no ConfigMaps.
    let without_v1 = place.configured(&[("secrets", &kms("v2", &place.socket()))]);
    let server = Server::start(&place.data(), &[&without_v1]);
    let admin = HttpClient::admin(&server);
    let health = admin.get("/readyz").await;
    assert!(health.code == 500 && health.text().contains("[-]kms-provider-0 failed"), "{}", health.text());
    assert_eq!(admin.get("/livez").await.code, 200);
    assert_eq!(admin.get("/healthz/kms-provider-0").await.code, 500);
    let refused = admin.post(SECRETS, &secret("one", "text")).await;
    assert_eq!(refused.code, 500, "{}", refused.text());
    for part in ["Internal error occurred: ", "got unexpected nil transformer", "code = Unavailable", "no such file"] {
        assert!(refused.text().contains(part), "{part}: {}", refused.text());
    }
    admin.post(MAPS, &config_map("other", "text")).await.expect(201);
    let plugin = Plugin::start(&place.socket());
    eventually(PATIENCE, async || {
        let made = admin.post(SECRETS, &secret("one", "text")).await;
        if made.code == 201 { Ok(()) } else { Err(made.text()) }
    })
    .await;
    let asked = plugin.calls("v2.KeyManagementService/Encrypt");
    for nth in 0..20 {
        admin.post(SECRETS, &secret(&format!("more-{nth}"), "text")).await.expect(201);
    }
    assert_eq!((asked, plugin.calls("v2.KeyManagementService/Encrypt")), (1, 1), "one seed serves all");
    // After the plug-in has stopped, Secrets can still be written and read with the known keys of version 2. Version 1,
    // which encrypts ConfigMaps below, needs a new key for each write.
    drop(plugin);
    admin.post(SECRETS, &secret("without", "text")).await.expect(201);
    assert_eq!(admin.get(&format!("{SECRETS}/one")).await.expect(200).json()["data"]["text"], in_secret("text"));
    server.stop();
    place.configured(&[
        ("secrets", &kms("v2", &place.socket())),
        ("configmaps", &format!("{}, {{identity: {{}}}}", kms("v1", &place.socket()))),
    ]);
    // A server that starts waits for the plug-in, because it must read values that the plug-in's keys encrypt.
    let socket = place.socket();
    let later = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        Plugin::start(&socket)
    });
    let server = Server::start(&place.data(), &options);
    let plugin = later.join().expect("a plug-in");
    assert!(server.stderr().contains("the log cannot be decrypted yet"), "{}", server.stderr());
    assert_eq!(plugin.calls("v2.KeyManagementService/Decrypt"), 1, "21 secrets have one seed");
    let admin = HttpClient::admin(&server);
    assert_eq!(admin.get(&format!("{SECRETS}/one")).await.expect(200).json()["data"]["text"], in_secret("text"));
    let before = plugin.calls("v1beta1.KeyManagementService/Encrypt");
    admin.post(MAPS, &config_map("v1", "text")).await.expect(201);
    assert_eq!(plugin.calls("v1beta1.KeyManagementService/Encrypt"), before + 1);
    drop(plugin);
    let refused = admin.post(MAPS, &config_map("refused", "text")).await;
    assert!(refused.code == 500 && refused.text().contains("rpc error: code = Unavailable"), "{}", refused.text());
    assert_eq!(admin.get(&format!("{MAPS}/v1")).await.expect(200).json()["data"]["text"], "text");
    admin.post("/api/v1/namespaces", &json!({"metadata": {"name": "others-are-written"}})).await.expect(201);
    server.stop();
}

/// An event on a secret.
fn put(offset: u64, name: &str) -> Record {
    Record {
        offset,
        resource: "secrets".into(),
        key: format!("default/{name}"),
        object: format!("{{\"is\":{offset}}}\n").into(),
        ..Record::default()
    }
}

fn sealed(log: &Arc<RocksLog>, text: &str) -> (SealedLog<RocksLog>, Arc<Live>) {
    let live = Live::of_text(text, true, false).expect("a configuration");
    (SealedLog::new(log.clone(), live.clone()), live)
}

#[tokio::test(flavor = "multi_thread")]
async fn another_key_of_the_kms_makes_another_seed() {
    let folder = Folder::new();
    let socket = folder.join("kms.sock");
    let plugin = Plugin::start(&socket);
    let text = configuration(&[("secrets", &kms("v2", &socket))]);
    let kept = Arc::new(RocksLog::open(&folder.join("data")).expect("a log"));
    let (log, live) = sealed(&kept, &text);
    let kms = live.keyring().kms().next().expect("a plug-in").clone();
    log.prepare("secrets").expect("a seed is to be made").await.expect("it is made");
    assert!(log.prepare("secrets").is_none() && log.prepare("pods").is_none(), "then there is nothing to wait for");
    log.append(&[put(1, "one")]).expect("written");
    kms.check().await.expect("well");
    assert!(!log.is_outdated(Offset(1)).expect("read"));
    plugin.rotate();
    kms.check().await.expect("well");
    assert!(log.is_outdated(Offset(1)).expect("read"));
    log.append(&[put(2, "two")]).expect("written");
    assert!(!log.is_outdated(Offset(2)).expect("read"));
    plugin.say("sick");
    assert_eq!(kms.check().await, Err("got unexpected healthz status: sick".into()));
    log.append(&[put(3, "three")]).expect("a seed is good for a while");
    plugin.say("ok");
    // Another reader reads all events, and asks the plug-in once for each of the two seeds.
    let (fresh, _) = sealed(&kept, &text);
    let asked = plugin.calls("Decrypt");
    let read = tokio::task::spawn_blocking(move || fresh.scan(None, Offset::ZERO, 9)).await.expect("read");
    assert_eq!(read.expect("events"), [put(1, "one"), put(2, "two"), put(3, "three")]);
    assert_eq!(plugin.calls("Decrypt") - asked, 2);
    // The error shows that the plug-in is unreachable, and not that the log is damaged.
    drop(plugin);
    let (fresh, _) = sealed(&kept, &text);
    let read = tokio::task::spawn_blocking(move || fresh.read(Offset(1))).await.expect("read");
    let why = read.as_ref().err().and_then(Locked::of);
    assert!(matches!(why, Some(Locked::Unreachable(_))), "{read:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_secrets_survive_kill_9() {
    let place = Place::new();
    let _plugin = Plugin::start(&place.socket());
    let option = place.configured(&[("secrets", &kms("v2", &place.socket())), ("'*.*'", &provider("aescbc", &[1]))]);
    let server = Server::start(&place.data(), &[&option]);
    let (sender, mut acknowledged) = tokio::sync::mpsc::unbounded_channel();
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let (admin, sender) = (HttpClient::admin(&server), sender.clone());
        writers.spawn(async move {
            for nth in 0.. {
                let name = format!("w{writer}-{nth}");
                let body = secret(&name, &name).to_string().into();
                match admin.try_send(Method::POST, SECRETS, &JSON, body).await {
                    Ok(answer) if answer.code == 201 => sender.send(name).expect("somebody counts"),
                    _ => return,
                }
            }
        });
    }
    // Only the writers hold the sender now, so the channel closes when they end.
    drop(sender);
    let mut names = Vec::new();
    while names.len() < 200 {
        names.push(acknowledged.recv().await.expect("writes go on"));
    }
    server.kill();
    writers.join_all().await;
    while let Ok(name) = acknowledged.try_recv() {
        names.push(name);
    }
    let server = Server::start(&place.data(), &[&option]);
    let admin = HttpClient::admin(&server);
    for name in &names {
        let found = admin.get(&format!("{SECRETS}/{name}")).await.expect(200).json();
        assert_eq!(found["data"]["text"], in_secret(name));
    }
    server.stop();
    let data = place.data().display().to_string();
    succeeds(holdfast(["log", "verify", "--data-dir", &data, &option]));
}
