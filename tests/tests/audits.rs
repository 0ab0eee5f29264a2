//! The classes of findings in the public audits of Kubernetes (2019, 2022) and in its advisories, tried on this server.
//!
//! One test per class. `docs/SECURITY.md` lists the classes, including the classes that other tests cover.

use holdfast_tests::authority::{Authority, Pair};
use holdfast_tests::backend::{GROUP, ThingsServer};
use holdfast_tests::wire::{Answer, HttpClient};
use holdfast_tests::{Folder, Server, eventually};
use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const JSON: (&str, &str) = ("content-type", "application/json");
const YAML: (&str, &str) = ("content-type", "application/yaml");
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const PATIENCE: Duration = Duration::from_secs(20);

/// Path traversal in a namespace or a name (NCC-E003660-RKV, CVE-2022-3162, finding 25 of 2019).
#[tokio::test]
async fn paths_do_not_lead_out_of_their_place() {
    let cluster = Cluster::start(&[]).await;
    let secret = json!({"metadata": {"name": "key"}, "stringData": {"key": "the-secret-text"}});
    cluster.admin.post("/api/v1/namespaces/kube-system/secrets", &secret).await.expect(201);
    let tenant = cluster.tenant("mine", &["configmaps"]).await;
    for path in [
        "/api/v1/namespaces/../secrets",
        "/api/v1/namespaces/%2e%2e/secrets",
        "/api/v1/namespaces/mine/configmaps/../secrets",
        "/api/v1/namespaces/mine/configmaps/..%2F..%2Fsecrets%2Fkube-system%2Fkey",
        "/api/v1/namespaces/mine/configmaps/%2e%2e/secrets/key",
        "/api/v1/namespaces/mine%2F../configmaps/x",
        "/api/v1/namespaces/kube-system%2Fsecrets/configmaps",
        "/api/v1/namespaces/mine/configmaps/%00",
        "/api/v1/namespaces/..%2f..%2f/configmaps?limit=1",
        "/apis/apps/v1/../../api/v1/namespaces/kube-system/secrets/key",
        "//api/v1/namespaces/kube-system/secrets/key",
    ] {
        for wire in [&cluster.admin, &tenant] {
            let answer = wire.get(path).await;
            assert!(!answer.text().contains("the-secret-text"), "{path}: {}", answer.text());
            let listed = answer.code == 200 && answer.json()["items"].as_array().is_some_and(|items| !items.is_empty());
            assert!(!listed, "{path}: {}", answer.text());
        }
        let answer = tenant.send(Method::DELETE, path, &[], "").await;
        assert!(answer.code >= 400, "{path}: {}", answer.text());
    }
    cluster.admin.get("/api/v1/namespaces/kube-system/secrets/key").await.expect(200);
    cluster.server.stop();
}

/// Cluster-scoped resources requested below a namespace (CVE-2019-11247).
#[tokio::test]
async fn a_namespace_gives_no_way_to_what_belongs_to_the_cluster() {
    let cluster = Cluster::start(&[]).await;
    let tenant = cluster.tenant("mine", &["*"]).await;
    cluster.namespace("others").await;
    let node = json!({"metadata": {"name": "n"}});
    cluster.admin.post("/api/v1/nodes", &node).await.expect(201);
    for place in
        ["nodes/n", "nodes", "namespaces/others", "namespaces", "persistentvolumes", "namespaces/others/status"]
    {
        let path = format!("/api/v1/namespaces/mine/{place}");
        for method in [Method::GET, Method::PUT, Method::PATCH, Method::DELETE] {
            let headers = [("content-type", "application/merge-patch+json")];
            let headers = if method == Method::PATCH { headers } else { [JSON] };
            let answer = tenant.send(method.clone(), &path, &headers, "{}").await;
            assert!(answer.code >= 400, "{method} {path}: {}", answer.text());
        }
    }
    let other = cluster.admin.get("/api/v1/namespaces/others").await.expect(200).json();
    assert_eq!(other["metadata"].get("deletionTimestamp"), None);
    tenant.get("/api/v1/namespaces/mine").await.expect(200);
    cluster.server.stop();
}

/// Tokens and other secrets in the server's log (finding 6 of 2019, NCC-E003660-WVM).
#[tokio::test]
async fn credentials_stay_out_of_what_is_logged() {
    let cluster = Cluster::start(&["--v", "10"]).await;
    let account = json!({"metadata": {"name": "robot"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    cluster.admin.post(accounts, &account).await.expect(201);
    let made = cluster.admin.post(&format!("{accounts}/robot/token"), &token_request()).await.expect(201).json();
    let token = made["status"]["token"].as_str().unwrap().to_owned();
    let wrong = format!("{token}wrong");
    HttpClient::anonymous(&cluster.server).with_token(&token).get(MAPS).await.expect(403);
    HttpClient::anonymous(&cluster.server).with_token(&wrong).get(MAPS).await.expect(401);
    HttpClient::anonymous(&cluster.server).with_token("abcdef.0123456789abcdef").get(MAPS).await.expect(401);
    let review = json!({"spec": {"token": token}});
    cluster.admin.post("/apis/authentication.k8s.io/v1/tokenreviews", &review).await.expect(201);
    let secret = json!({"metadata": {"name": "key"}, "stringData": {"key": "the-secret-text"}});
    cluster.admin.post("/api/v1/namespaces/default/secrets", &secret).await.expect(201);
    let bad = r#"{"metadata":{"name":"bad"},"stringData":{"key":"the-secret-text"},"type":7}"#;
    cluster.admin.send(Method::POST, "/api/v1/namespaces/default/secrets", &[JSON], bad).await.expect(400);
    cluster.server.signal("TERM");
    let mut server = cluster.server;
    server.wait();
    let logged = server.stderr();
    for secret in [token.as_str(), "0123456789abcdef", "the-secret-text", "dGhlLXNlY3JldC10ZXh0"] {
        assert!(!logged.contains(secret), "{secret} is in the log");
    }
}

/// Files that all users of the machine can read (finding 8 of 2019).
#[tokio::test]
async fn files_are_for_their_owner_alone() {
    let cluster = Cluster::start(&[]).await;
    let data = cluster.folder.join("data");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&data) & 0o077, 0, "{} has mode {:o}", data.display(), mode(&data));
    for file in files(&data) {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        if name.ends_with(".key") || name.ends_with("kubeconfig") {
            assert_eq!(mode(&file) & 0o077, 0, "{} has mode {:o}", file.display(), mode(&file));
        }
    }
    cluster.server.stop();
}

/// Numbers truncated to fewer bits (finding 13 of 2019).
#[tokio::test]
async fn numbers_are_refused_and_not_cut() {
    let cluster = Cluster::start(&[]).await;
    let port = |number: Value| json!({"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": number}]}});
    for number in
        [json!(4_294_997_376_u64), json!(u64::MAX), json!(1e300), json!(-1), json!(65_536), json!(2_147_483_648_u64)]
    {
        let answer = cluster.admin.post("/api/v1/namespaces/default/services", &port(number.clone())).await;
        assert!(matches!(answer.code, 400 | 422), "{number}: {}", answer.text());
    }
    let replicas = json!({
        "metadata": {"name": "d"},
        "spec": {"replicas": 4_294_967_297_u64, "selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    let answer = cluster.admin.post("/apis/apps/v1/namespaces/default/deployments", &replicas).await;
    assert!(matches!(answer.code, 400 | 422), "{}", answer.text());
    for query in [
        "limit=18446744073709551616",
        "limit=9223372036854775807",
        "limit=-1",
        "timeoutSeconds=9223372036854775807",
        "watch=1&timeoutSeconds=18446744073709551615",
        "resourceVersion=18446744073709551616",
        "resourceVersion=18446744073709551615&resourceVersionMatch=Exact",
        "gracePeriodSeconds=9223372036854775807",
    ] {
        let opened = cluster.admin.open(Method::GET, &format!("{MAPS}?{query}"), &[], Default::default()).await;
        let answer = opened.unwrap_or_else(|error| panic!("{query}: no answer: {error}"));
        assert_ne!(answer.status(), 500, "{query}");
    }
    let map = json!({"metadata": {"name": "late", "generation": i64::MAX, "deletionGracePeriodSeconds": i64::MIN}});
    cluster.admin.post(MAPS, &map).await.expect(201);
    for seconds in [i64::MAX, i64::MIN, -1] {
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": seconds}).to_string();
        let answer = cluster.admin.send(Method::DELETE, &format!("{MAPS}/late?dryRun=All"), &[JSON], options).await;
        assert_ne!(answer.code, 500, "{seconds}: {}", answer.text());
    }
    cluster.admin.get("/readyz").await.expect(200);
    cluster.server.stop();
}

/// Small documents that expand to large ones (CVE-2019-11253, CVE-2019-11254, findings 14 and 15 of 2019).
#[tokio::test]
async fn documents_do_not_grow_beyond_what_was_sent() {
    let cluster = Cluster::start(&[]).await;
    let before = resident(&cluster.server);
    let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
    for level in 1..9 {
        let names = vec![format!("*a{}", level - 1); 9].join(",");
        bomb.push_str(&format!("a{level}: &a{level} [{names}]\n"));
    }
    let flat = format!("metadata: {{name: x}}\ndata: [{}]\n", "a,".repeat(1_500_000 - 50));
    let deep = format!("metadata: {{name: x}}\ndata: {}", "[".repeat(1_000_000));
    let keys = format!("metadata: {{name: x}}\ndata:\n{}", "  ? a\n".repeat(500_000));
    let dashes = "- ".repeat(1_500_000);
    for text in [bomb, flat, deep, keys, dashes] {
        let answer = cluster.admin.send(Method::POST, MAPS, &[YAML], text).await;
        assert!((400..500).contains(&answer.code), "{}", answer.text());
    }
    let brackets = format!("{{\"metadata\":{{\"name\":\"x\"}},\"data\":{}", "[".repeat(3_000_000));
    let answer = cluster.admin.send(Method::POST, MAPS, &[JSON], brackets).await;
    assert!((400..500).contains(&answer.code), "{}", answer.text());
    let grown = resident(&cluster.server).saturating_sub(before);
    assert!(grown < 600 << 20, "{} MiB more than before", grown >> 20);
    cluster.server.stop();
}

/// Patches with many operations, or operations that double what they copy (CVE-2019-1002100).
#[tokio::test]
async fn patches_are_bounded() {
    let cluster = Cluster::start(&[]).await;
    let map = json!({"metadata": {"name": "one"}, "data": {"a": "x".repeat(1000)}});
    cluster.admin.post(MAPS, &map).await.expect(201);
    let patch = [("content-type", "application/json-patch+json")];
    let step = json!({"op": "add", "path": "/data/a", "value": "y"});
    let many = Value::from(vec![step; 20_000]).to_string();
    let path = format!("{MAPS}/one");
    let answer = cluster.admin.send(Method::PATCH, &path, &patch, many).await;
    assert!(matches!(answer.code, 413 | 422), "{}", answer.text());
    let mut doubling = vec![json!({"op": "add", "path": "/data/b", "value": {"x": "y"}})];
    for level in 0..40 {
        let from = if level == 0 { "/data/b".to_owned() } else { format!("/data/c{}", level - 1) };
        doubling.push(json!({"op": "copy", "from": from, "path": format!("/data/c{level}")}));
        doubling.push(json!({"op": "copy", "from": "/data", "path": format!("/data/c{level}/all")}));
    }
    let answer = cluster.admin.send(Method::PATCH, &path, &patch, Value::from(doubling).to_string()).await;
    assert!((400..500).contains(&answer.code), "{}", answer.text());
    assert_eq!(cluster.admin.get(&path).await.expect(200).json()["data"]["a"], map["data"]["a"]);
    cluster.server.stop();
}

/// Files of the machine behind API paths (finding 17 of 2019, NCC-E003660-B4Y).
#[tokio::test]
async fn no_files_of_the_machine_are_served() {
    let cluster = Cluster::start(&[]).await;
    for path in [
        "/logs",
        "/logs/",
        "/logs/../../etc/passwd",
        "/static/../../../etc/passwd",
        "/..%2f..%2f..%2fetc%2fpasswd",
        "/etc/passwd",
        "/at/../etc/passwd",
        "/openapi/v3/../../../etc/passwd",
        "/swagger-ui/",
    ] {
        let answer = cluster.admin.get(path).await;
        assert!(answer.code >= 400, "{path}: {}", answer.text());
        assert!(!answer.text().contains("root:"), "{path}: {}", answer.text());
    }
    cluster.server.stop();
}

/// JSON assembled from text (finding 26 of 2019).
#[tokio::test]
async fn text_of_strangers_stays_text() {
    let cluster = Cluster::start(&[]).await;
    let nasty = "\",\"kind\":\"Secret\",\"x\":\"\\u0000\n}";
    let map = json!({"metadata": {"name": "one", "annotations": {"note": nasty}}, "data": {"text": nasty}});
    let agent = [JSON, ("user-agent", "\",\"manager\":\"kubelet\",\"x\":\"/v1")];
    let made = cluster.admin.send(Method::POST, MAPS, &agent, map.to_string()).await.expect(201).json();
    assert_eq!(made["data"]["text"], nasty);
    assert_eq!(made["metadata"]["annotations"]["note"], nasty);
    assert_eq!(made["kind"], "ConfigMap");
    let list = cluster.admin.get(MAPS).await.expect(200).json();
    let listed = list["items"].as_array().unwrap().iter().find(|item| item["metadata"]["name"] == "one");
    assert_eq!(listed.unwrap()["data"]["text"], nasty);
    let path = format!("{MAPS}?watch=1&fieldSelector=metadata.name%3Done");
    let mut watch = cluster.admin.open(Method::GET, &path, &[], Default::default()).await.unwrap();
    let event = watch.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
    let event: Value = serde_json::from_slice(&event).expect("one event of JSON");
    assert_eq!((&event["type"], &event["object"]["data"]["text"]), (&json!("ADDED"), &json!(nasty)));
    for path in [
        format!("{MAPS}/%22%7D%5D%0a"),
        format!("{MAPS}?labelSelector=%22%7D%5D"),
        format!("{MAPS}?fieldSelector=%22%3D%7D"),
        "/apis/%22%7D/v1/%22".to_owned(),
    ] {
        let status = cluster.admin.get(&path).await;
        assert_eq!(status.json()["kind"], "Status", "{path}");
    }
    cluster.server.stop();
}

/// Tokens that outlive the object they are bound to (finding 28 of 2019).
#[tokio::test]
async fn tokens_end_with_their_account_and_what_they_are_bound_to() {
    let cluster = Cluster::start(&[]).await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = json!({"metadata": {"name": "robot"}});
    cluster.admin.post(accounts, &account).await.expect(201);
    let secrets = "/api/v1/namespaces/default/secrets";
    cluster.admin.post(secrets, &json!({"metadata": {"name": "bound"}})).await.expect(201);
    let mut request = token_request();
    request["spec"] = json!({"boundObjectRef": {"kind": "Secret", "apiVersion": "v1", "name": "bound"}});
    let path = format!("{accounts}/robot/token");
    let bound = cluster.token(&path, &request).await;
    let plain = cluster.token(&path, &token_request()).await;
    let whoami = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    for wire in [&bound, &plain] {
        wire.post(whoami, &json!({})).await.expect(201);
    }
    cluster.admin.send(Method::DELETE, &format!("{secrets}/bound"), &[], "").await.expect(200);
    bound.post(whoami, &json!({})).await.expect(401);
    cluster.admin.post(secrets, &json!({"metadata": {"name": "bound"}})).await.expect(201);
    bound.post(whoami, &json!({})).await.expect(401);
    cluster.admin.send(Method::DELETE, &format!("{accounts}/robot"), &[], "").await.expect(200);
    plain.post(whoami, &json!({})).await.expect(401);
    cluster.admin.post(accounts, &account).await.expect(201);
    plain.post(whoami, &json!({})).await.expect(401);
    cluster.server.stop();
}

/// One authority for users and front proxies, which makes every user a proxy (NCC-E003660-F9W).
#[tokio::test]
async fn an_authority_of_users_and_of_proxies_needs_the_proxies_names() {
    let folder = Folder::new();
    let authority = Authority::new("both");
    let file = folder.join("both.crt");
    std::fs::write(&file, authority.pem()).unwrap();
    let file = file.to_str().unwrap();
    let options = [
        "--client-ca-file",
        file,
        "--requestheader-client-ca-file",
        file,
        "--requestheader-username-headers",
        "X-Remote-User",
        "--requestheader-group-headers",
        "X-Remote-Group",
    ];
    let refused = Server::try_start(&folder.join("data"), &options).err().expect("a refusal");
    assert!(refused.stderr.contains("requestheader-allowed-names"), "{}", refused.stderr);
    let named = [&options[..], &["--requestheader-allowed-names", "proxy"]].concat();
    let server = Server::start(&folder.join("data"), &named);
    let jane = HttpClient::anonymous(&server).with_identity(authority.client("jane", &[]));
    let forged = [("x-remote-user", "root"), ("x-remote-group", "system:masters")];
    jane.send(Method::GET, MAPS, &forged, "").await.expect(403);
    let proxy = HttpClient::anonymous(&server).with_identity(authority.client("proxy", &[]));
    proxy.send(Method::GET, MAPS, &forged, "").await.expect(200);
    server.stop();
}

/// Custom header names for users (NCC-E003660-YVU).
#[tokio::test]
async fn headers_that_name_users_are_not_sent_on() {
    let cluster = Cluster::start(&[
        "--requestheader-username-headers=X-Remote-User,X-Custom-User",
        "--requestheader-group-headers=X-Remote-Group,X-Custom-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-,X-Custom-Extra-",
    ])
    .await;
    let backend = cluster.backend().await;
    let forged = [
        ("x-custom-user", "root"),
        ("x-custom-group", "system:masters"),
        ("x-custom-extra-scopes", "all"),
        ("x-remote-group", "forged"),
    ];
    let path = format!("/apis/{GROUP}/v1/namespaces/default/things/one");
    cluster.admin.send(Method::GET, &format!("{path}?forged=1"), &forged, "").await.expect(200);
    let seen = backend.seen(&format!("{path}?forged=1"));
    let headers = &seen[0].headers;
    assert!(!headers.keys().any(|name| name.as_str().starts_with("x-custom-")), "{headers:?}");
    assert!(!headers.values().any(|value| value == "forged"), "{headers:?}");
    cluster.server.stop();
}

/// A failed upgrade that leaves the connection open as a tunnel (CVE-2018-1002105).
#[tokio::test]
async fn a_refused_upgrade_leaves_no_tunnel() {
    let cluster = Cluster::start(&[]).await;
    let backend = cluster.backend().await;
    let tenant = cluster.tenant("default", &["things"]).await;
    let wire = HttpClient { http2: false, ..tenant.clone() };
    let mut connection = wire.connect().await.expect("a connection");
    let token = tenant.token.as_deref().unwrap();
    let base = format!("/apis/{GROUP}/v1/namespaces/default/things");
    let head = |path: &str, more: &str| {
        format!("GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n{more}\r\n")
    };
    let upgrade = head(&format!("{base}/missing"), "connection: Upgrade\r\nupgrade: CAPITALS/1\r\n");
    connection.write_all(upgrade.as_bytes()).await.unwrap();
    let mut answer = [0; 4096];
    let length = connection.read(&mut answer).await.unwrap();
    assert!(!answer[..length].starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&answer[..length]));
    let forbidden = format!("/apis/{GROUP}/v1/namespaces/kube-system/things/one");
    let _ = connection.write_all(head(&forbidden, "connection: close\r\n").as_bytes()).await;
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, connection.read_to_end(&mut rest)).await;
    assert!(!String::from_utf8_lossy(&rest).contains("HTTP/1.1 200"), "{}", String::from_utf8_lossy(&rest));
    assert!(backend.seen(&forbidden).is_empty());
    cluster.server.stop();
}

/// A server registered as its own backend (NCC-E003660-JAV).
#[tokio::test]
async fn the_server_cannot_be_turned_on_itself() {
    let cluster = Cluster::start(&[]).await;
    let own_port: u16 = cluster.server.url().rsplit_once(':').unwrap().1.parse().unwrap();
    cluster.external_service().await;
    let service = json!({
        "metadata": {"name": format!("v1.{GROUP}")},
        "spec": {"group": GROUP, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 10,
            "insecureSkipTLSVerify": true,
            "service": {"namespace": "default", "name": "backend", "port": own_port}},
    });
    cluster.admin.post("/apis/apiregistration.k8s.io/v1/apiservices", &service).await.expect(201);
    let tenant = cluster.tenant("default", &["things"]).await;
    let path = format!("/apis/{GROUP}/v1/namespaces/default/things/one");
    for _ in 0..5 {
        let answer = tenant.get(&path).await;
        assert!(answer.code >= 400, "{}", answer.text());
    }
    tenant.get("/api/v1/namespaces/kube-system/secrets").await.expect(403);
    cluster.admin.get("/readyz").await.expect(200);
    cluster.server.stop();
}

/// A health check that passes while nothing can be written (finding 33 of 2019) is covered by
/// `durability::a_full_disk_stops_writes_and_nothing_else`; this test covers that checks have names and can be
/// requested singly.
#[tokio::test]
async fn health_checks_look_at_the_log() {
    let cluster = Cluster::start(&[]).await;
    for path in ["/livez/log", "/readyz/log"] {
        cluster.admin.get(path).await.expect(200);
    }
    cluster.server.stop();
}

struct Cluster {
    folder: Folder,
    server: Server,
    admin: HttpClient,
    backends: Authority,
}

impl Cluster {
    async fn start(options: &[&str]) -> Cluster {
        let folder = Folder::new();
        let server = Server::start(&folder.join("data"), options);
        let admin = HttpClient::admin(&server);
        Cluster { folder, server, admin, backends: Authority::new("backends") }
    }

    async fn namespace(&self, name: &str) {
        let answer = self.admin.post("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await;
        assert!(matches!(answer.code, 201 | 409), "{}", answer.text());
    }

    /// A service account with all rights on these resources in this namespace, and no others.
    async fn tenant(&self, namespace: &str, resources: &[&str]) -> HttpClient {
        self.namespace(namespace).await;
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        self.admin.post(&accounts, &json!({"metadata": {"name": "tenant"}})).await.expect(201);
        let rules = json!([{"apiGroups": ["*"], "resources": resources, "verbs": ["*"]}]);
        let role = json!({"metadata": {"name": "tenant"}, "rules": rules});
        self.admin.post(&format!("{RBAC}/namespaces/{namespace}/roles"), &role).await.expect(201);
        let binding = json!({
            "metadata": {"name": "tenant"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tenant"},
            "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": namespace}],
        });
        self.admin.post(&format!("{RBAC}/namespaces/{namespace}/rolebindings"), &binding).await.expect(201);
        self.token(&format!("{accounts}/tenant/token"), &token_request()).await
    }

    async fn token(&self, path: &str, request: &Value) -> HttpClient {
        let made = self.admin.post(path, request).await.expect(201).json();
        HttpClient::anonymous(&self.server).with_token(made["status"]["token"].as_str().expect("a token"))
    }

    async fn external_service(&self) {
        let spec = json!({"type": "ExternalName", "externalName": "localhost"});
        let service = json!({"metadata": {"name": "backend"}, "spec": spec});
        self.admin.post("/api/v1/namespaces/default/services", &service).await.expect(201);
    }

    /// An aggregated API server, registered and available.
    async fn backend(&self) -> ThingsServer {
        let map = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
        let told = eventually(PATIENCE, async || found(self.admin.get(map).await)).await;
        let proxies = told["data"]["requestheader-client-ca-file"].as_str().expect("a certificate").to_owned();
        let pair: Pair = self.backends.server(&["backend.default.svc"]);
        let backend = ThingsServer::start(&pair, &proxies, true).await;
        self.external_service().await;
        use base64::Engine as _;
        let authority = base64::engine::general_purpose::STANDARD.encode(self.backends.pem());
        let service = json!({
            "metadata": {"name": format!("v1.{GROUP}")},
            "spec": {"group": GROUP, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 10,
                "caBundle": authority,
                "service": {"namespace": "default", "name": "backend", "port": backend.port}},
        });
        let services = "/apis/apiregistration.k8s.io/v1/apiservices";
        self.admin.post(services, &service).await.expect(201);
        eventually(PATIENCE, async || {
            let service = found(self.admin.get(&format!("{services}/v1.{GROUP}")).await)?;
            if service["status"]["conditions"][0]["status"] == "True" { Ok(()) } else { Err(service.to_string()) }
        })
        .await;
        backend
    }
}

fn found(answer: Answer) -> Result<Value, String> {
    if answer.code == 200 { Ok(answer.json()) } else { Err(answer.text()) }
}

fn token_request() -> Value {
    json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

/// The server's peak memory in bytes.
fn resident(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0 kB");
    peak.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() << 10
}
