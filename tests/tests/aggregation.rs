//! Aggregated APIs: other servers are discovered, proxied to with the user's identity, and reported when they are
//! unavailable.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_tests::authority::{Authority, Pair};
use holdfast_tests::backend::{GROUP, ThingsServer};
use holdfast_tests::wire::HttpClient;
use holdfast_tests::{Folder, Server, clients, eventually};
use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::process::Command;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const THINGS: &str = "/apis/things.example.com/v1/namespaces/default/things";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const PATIENCE: Duration = Duration::from_secs(20);

// The test needs two threads: running kubectl blocks one thread, and the backend answers kubectl's requests on the
// other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_server_serves_is_found_and_reached() {
    let cluster = Cluster::start(&[]).await;
    let backend = cluster.backend(true).await;
    cluster.register(&backend, cluster.authority.pem()).await;
    let Cluster { admin, .. } = &cluster;

    let groups = admin.get("/apis").await.expect(200).json();
    let groups: Vec<&str> = groups["groups"].as_array().unwrap().iter().map(|g| g["name"].as_str().unwrap()).collect();
    let place = |name: &str| groups.iter().position(|found| *found == name).unwrap_or_else(|| panic!("{groups:?}"));
    assert!(place("apps") < place(GROUP) && place(GROUP) < place("batch"), "{groups:?}");
    let group = admin.get(&format!("/apis/{GROUP}")).await.expect(200).json();
    assert_eq!(group["kind"], "APIGroup");
    assert_eq!(group["preferredVersion"], json!({"groupVersion": format!("{GROUP}/v1"), "version": "v1"}));
    let resources = admin.get(&format!("/apis/{GROUP}/v1")).await.expect(200).json();
    assert_eq!(resources["resources"][0]["name"], "things");
    let version = cluster.discovered().await;
    assert_eq!((&version["freshness"], &version["resources"][0]["shortNames"]), (&json!("Current"), &json!(["th"])));
    let version_2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    let description = admin.get("/openapi/v2").await.expect(200).json();
    assert!(description["paths"][format!("/apis/{GROUP}/v1/things")].is_object());
    assert!(description["paths"]["/api/v1/pods"].is_object());
    assert_eq!(description["definitions"]["com.example.Thing"], json!({"type": "object"}));
    assert_eq!(description["definitions"].get("com.example.Unused"), None);
    let protobuf = admin.get_as("/openapi/v2", version_2).await.expect(200);
    let name = b"com.example.Thing";
    assert!(protobuf.body.windows(name.len()).any(|window| window == name));
    let index = admin.get("/openapi/v3").await.expect(200).json();
    let url = index["paths"][format!("apis/{GROUP}/v1")]["serverRelativeURL"].as_str().expect("a URL").to_owned();
    assert_eq!(url, format!("/openapi/v3/apis/{GROUP}/v1?hash=ABC"));
    assert_eq!(admin.get(&url).await.expect(200).json()["openapi"], "3.0.0");

    let list = admin.get(THINGS).await.expect(200).json();
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    let one = admin.get(&format!("{THINGS}/one?pretty=false")).await.expect(200);
    assert_eq!(one.json()["metadata"]["name"], "one");
    assert!(backend.seen(&format!("{THINGS}/one?pretty=false")).len() == 1);
    let sent = json!({"metadata": {"name": "new"}, "text": "x".repeat(200_000)});
    let made = admin.post(THINGS, &sent).await.expect(201);
    assert_eq!(made.json(), sent);
    admin.get(&format!("{THINGS}/none")).await.expect(404);
    let moved = admin.get(&format!("{THINGS}/moved")).await.expect(502);
    assert_eq!(moved.text(), "the backend attempted to redirect this request, which is not permitted");

    // Events of a watch arrive one by one.
    let path = format!("{THINGS}?watch=true");
    let mut watch = admin.open(Method::GET, &path, &[], Default::default()).await.unwrap();
    for name in ["one", "later"] {
        if name == "later" {
            backend.tell(name);
        }
        let frame = tokio::time::timeout(PATIENCE, watch.body_mut().frame()).await.expect("an event in time");
        let event: Value = serde_json::from_slice(&frame.unwrap().unwrap().into_data().unwrap()).unwrap();
        assert_eq!(event["object"]["metadata"]["name"], name);
    }
    drop(watch);

    // `scripts/fetch-clients.sh` finds no kubectl 1.20 on some systems.
    for kubectl in ["kubectl-1.37", "kubectl-1.20"].map(|name| clients().join(name)).iter().filter(|file| file.exists())
    {
        let mut command = Command::new(kubectl);
        command.args(["get", "th", "--no-headers", "-o", "custom-columns=NAME:.metadata.name"]);
        let home = cluster.folder.join(kubectl.file_name().unwrap().to_str().unwrap());
        let output = command.env("KUBECONFIG", cluster.server.kubeconfig()).env("HOME", home).output();
        let output = output.expect("run kubectl");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(out, "one\ntwo\n", "{err}");
    }

    // Deleting an APIService removes its part of the API.
    admin.send(Method::DELETE, &format!("{SERVICES}/v1.{GROUP}"), &[], "").await.expect(200);
    eventually(PATIENCE, async || match admin.get(THINGS).await.code {
        404 => Ok(()),
        code => Err(code),
    })
    .await;
    admin.get(&format!("/apis/{GROUP}")).await.expect(404);
    cluster.server.stop();
}

#[tokio::test]
async fn the_other_server_learns_who_asks() {
    let folder = Folder::new();
    let file = folder.join("tokens.csv");
    std::fs::write(&file, "secret,root,7,\"system:masters,others\"\nweak,joe,8\n").unwrap();
    let cluster = Cluster::start(&["--token-auth-file", file.to_str().unwrap()]).await;
    let backend = cluster.backend(false).await;
    cluster.register(&backend, cluster.authority.pem()).await;
    // The backend serves no aggregated discovery, so the server reads the backend's resources from the legacy list.
    assert_eq!(cluster.discovered().await["resources"][0]["resource"], "things");

    let root = HttpClient::anonymous(&cluster.server).with_token("secret");
    let joe = HttpClient::anonymous(&cluster.server).with_token("weak");
    let status = joe.get(&format!("{THINGS}/one?who=joe")).await.refused(403, "Forbidden");
    assert!(status["message"].as_str().unwrap().contains("User \"joe\" cannot get resource \"things\""), "{status}");
    let forged = [
        ("x-remote-user", "forged"),
        ("x-remote-group", "forged"),
        ("x-remote-extra-scopes", "forged"),
        ("x-forwarded-for", "192.0.2.7"),
        ("accept", "application/json"),
    ];
    root.send(Method::GET, &format!("{THINGS}/one?who=root"), &forged, "").await.expect(200);
    let as_jane = [
        ("impersonate-user", "jane"),
        ("impersonate-group", "system:masters"),
        ("impersonate-uid", "9"),
        ("impersonate-extra-example.com%2fscopes", "view"),
    ];
    root.send(Method::GET, &format!("{THINGS}/one?who=jane"), &as_jane, "").await.expect(200);

    assert!(backend.seen(&format!("{THINGS}/one?who=joe")).is_empty());
    for (who, expected) in [
        (
            "root",
            &[
                "x-remote-user: root",
                "x-remote-uid: 7",
                "x-remote-group: system:masters",
                "x-remote-group: others",
                "x-remote-group: system:authenticated",
                "x-forwarded-for: 192.0.2.7, 127.0.0.1",
                "x-forwarded-proto: https",
            ][..],
        ),
        (
            "jane",
            &[
                "x-remote-user: jane",
                "x-remote-uid: 9",
                "x-remote-group: system:masters",
                "x-remote-group: system:authenticated",
                "x-remote-extra-example.com%2fscopes: view",
                "x-forwarded-for: 127.0.0.1",
                "x-forwarded-proto: https",
            ][..],
        ),
    ] {
        let seen = backend.seen(&format!("{THINGS}/one?who={who}"));
        assert_eq!(seen.len(), 1);
        let headers = &seen[0].headers;
        let shown = |name: &http::HeaderName| {
            let name = name.as_str();
            name.starts_with("x-remote-") || name == "x-forwarded-for" || name == "x-forwarded-proto"
        };
        let mut lines: Vec<String> = headers
            .iter()
            .filter(|(name, _)| shown(name))
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        lines.sort();
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(lines, expected);
        assert_eq!(headers.get("authorization"), None);
        assert!(!headers.keys().any(|name| name.as_str().starts_with("impersonate-")));
        assert!(headers.contains_key("audit-id"));
        assert_eq!(headers["x-forwarded-uri"], format!("{THINGS}/one"));
    }
    cluster.server.stop();
}

#[tokio::test]
async fn a_server_that_cannot_be_used_is_told_of() {
    let cluster = Cluster::start(&[]).await;
    let backend = cluster.backend(true).await;
    let Cluster { admin, .. } = &cluster;
    cluster.register(&backend, cluster.authority.pem()).await;
    admin.get(THINGS).await.expect(200);
    let port = backend.port;
    drop(backend);
    // The server has not noticed yet that the backend has stopped, so it tries to connect to the backend.
    let answer = admin.get(THINGS).await.expect(503).text();
    let refused = format!("error trying to reach service: dial tcp [::1]:{port}: connect: connection refused\n");
    assert!([refused.replace("[::1]", "127.0.0.1"), refused].contains(&answer), "{answer}");
    // A change of the Service makes the server check the backend at once, and find that it has stopped.
    let service = "/api/v1/namespaces/default/services/backend";
    let mut changed = admin.get(service).await.expect(200).json();
    changed["metadata"]["labels"] = json!({"changed": "yes"});
    let json = [("content-type", "application/json")];
    admin.send(Method::PUT, service, &json, changed.to_string()).await.expect(200);
    let condition = cluster.condition("FailedDiscoveryCheck").await;
    let message = condition["message"].as_str().unwrap();
    let url = format!("https://localhost:{port}/apis/{GROUP}/v1");
    let start = format!("failing or missing response from {url}: Get \"{url}\": dial tcp ");
    assert!(message.starts_with(&start) && message.ends_with("connect: connection refused"), "{message}");
    assert_eq!(admin.get(THINGS).await.expect(503).text(), "service unavailable\n");
    let version = eventually(PATIENCE, async || {
        let version = cluster.discovered().await;
        if version["freshness"] == "Stale" { Ok(version) } else { Err(version) }
    })
    .await;
    assert_eq!(version["resources"][0]["resource"], "things", "what was served before is still known");
    let table = admin.get_as(&format!("{SERVICES}/v1.{GROUP}"), "application/json;as=Table;v=v1;g=meta.k8s.io").await;
    let cells = table.expect(200).json()["rows"][0]["cells"].clone();
    assert_eq!(cells[1], "default/backend");
    assert_eq!(cells[2], "False (FailedDiscoveryCheck)");

    admin.send(Method::DELETE, service, &[], "").await.expect(200);
    let condition = cluster.condition("ServiceNotFound").await;
    assert_eq!(condition["message"], "service/backend in \"default\" is not present");
    let ports = json!([{"name": "https", "port": port, "protocol": "TCP"}]);
    cluster.service(json!({"ports": ports})).await;
    let condition = cluster.condition("EndpointsNotFound").await;
    assert_eq!(condition["message"], "cannot find endpointslices for service/backend in \"default\"");
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": [],
        "metadata": {"name": "backend", "labels": {"kubernetes.io/service-name": "backend"}}, "ports": ports,
    });
    admin.post("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", &slice).await.expect(201);
    cluster.condition("MissingEndpoints").await;
    cluster.server.stop();
}

#[tokio::test]
async fn requests_go_to_endpoints_when_they_are_to() {
    // Endpoints must not be in the loopback range, so the test needs another address of this machine. Connecting a UDP
    // socket selects such an address, and sends nothing.
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    let Ok(()) = socket.connect("192.0.2.1:9") else { return eprintln!("skipped: there is no network here") };
    let own = socket.local_addr().unwrap().ip();
    let cluster = Cluster::start(&["--enable-aggregator-routing"]).await;
    let backend = cluster.backend(true).await;
    cluster.service(json!({"ports": [{"name": "https", "port": 443, "protocol": "TCP"}]})).await;
    cluster.api_service(443, cluster.authority.pem()).await;
    cluster.condition("EndpointsNotFound").await;
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let mut slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "backend", "labels": {"kubernetes.io/service-name": "backend"}},
        "endpoints": [{"addresses": [own.to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": backend.port, "protocol": "TCP"}],
    });
    cluster.admin.post(slices, &slice).await.expect(201);
    cluster.condition("Passed").await;
    cluster.admin.get(THINGS).await.expect(200);
    assert_eq!(backend.seen(THINGS)[0].headers["x-forwarded-host"], format!("{own}:{}", backend.port));
    // Once the only endpoint is not ready, the server no longer connects to it.
    slice["endpoints"][0]["conditions"]["ready"] = false.into();
    let json = [("content-type", "application/json")];
    let path = format!("{slices}/backend");
    cluster.admin.send(Method::PUT, &path, &json, slice.to_string()).await.expect(200);
    cluster.condition("MissingEndpoints").await;
    assert_eq!(cluster.admin.get(THINGS).await.expect(503).text(), "service unavailable\n");
    cluster.server.stop();
}

#[tokio::test]
async fn a_server_that_nobody_vouches_for_is_not_talked_to() {
    let cluster = Cluster::start(&[]).await;
    let backend = cluster.backend(true).await;
    cluster.register(&backend, Authority::new("strangers").pem()).await;
    // The availability check does not verify the certificate.
    let answer = cluster.admin.get(THINGS).await.expect(503);
    let message = "error trying to reach service: tls: failed to verify certificate: x509: certificate signed by \
                   unknown authority\n";
    assert_eq!(answer.text(), message);
    assert_eq!(answer.header("content-type"), "text/plain; charset=utf-8");
    assert!(backend.seen(THINGS).is_empty());
    assert_eq!(cluster.discovered().await["freshness"], "Stale");

    // The right authority has signed the backend's certificate, which is for another name.
    let other = cluster.authority.server(&["other.default.svc", "other.example.com"]);
    let backend = cluster.backend_with(&other).await;
    cluster.admin.send(Method::DELETE, &format!("{SERVICES}/v1.{GROUP}"), &[], "").await.expect(200);
    cluster.admin.send(Method::DELETE, "/api/v1/namespaces/default/services/backend", &[], "").await.expect(200);
    cluster.register(&backend, cluster.authority.pem()).await;
    let message = "error trying to reach service: tls: failed to verify certificate: x509: certificate is valid for \
                   other.default.svc, other.example.com, not backend.default.svc\n";
    assert_eq!(cluster.admin.get(THINGS).await.expect(503).text(), message);
    cluster.server.stop();
}

// The test needs two threads: one waits for the server to stop, and the other serves the test's own connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_goes_on_as_something_else() {
    let cluster = Cluster::start(&[]).await;
    let backend = cluster.backend(true).await;
    cluster.register(&backend, cluster.authority.pem()).await;
    let wire = HttpClient { http2: false, ..cluster.admin.clone() };
    let mut connection = wire.connect().await.unwrap();
    let request = format!(
        "POST {THINGS}/one/echo?stdin=true HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: CAPITALS/1\r\n\
         Content-Length: 0\r\n\r\n",
        wire.address
    );
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(connection.read_u8().await.expect("an answer"));
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101 ") && head.contains("upgrade: capitals/1"), "{head}");
    for text in ["hello", "again"] {
        connection.write_all(text.as_bytes()).await.unwrap();
        let mut back = vec![0; text.len()];
        let read = connection.read_exact(&mut back);
        tokio::time::timeout(PATIENCE, read).await.expect("an echo in time").unwrap();
        assert_eq!(back, text.to_ascii_uppercase().as_bytes());
    }
    let seen = backend.seen(&format!("{THINGS}/one/echo"));
    assert_eq!(seen[0].headers["x-remote-user"], "kubernetes-admin");
    // An upgraded connection may stay open; a stopping server does not wait for it.
    let mut watch =
        cluster.admin.open(Method::GET, &format!("{THINGS}?watch=1"), &[], Default::default()).await.unwrap();
    watch.body_mut().frame().await.expect("an event").expect("an event");
    cluster.server.stop();
    assert_eq!(connection.read(&mut [0; 8]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn definitions_have_api_services() {
    let folder = Folder::new();
    let server = Server::start(&folder.join("data"), &[]);
    let admin = HttpClient::admin(&server);
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let version =
        |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": schema});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "apples.fruit.example.com"},
        "spec": {
            "group": "fruit.example.com", "scope": "Namespaced",
            "names": {"plural": "apples", "singular": "apple", "kind": "Apple", "listKind": "AppleList"},
            "versions": [version("v1", true), version("v2", false)],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    admin.post(definitions, &definition).await.expect(201);
    let there = async |name: &str, wanted: bool| {
        eventually(PATIENCE, async || {
            let answer = admin.get(&format!("{SERVICES}/{name}")).await;
            if (answer.code == 200) == wanted { Ok(answer) } else { Err(answer.text()) }
        })
        .await
    };
    let service = there("v1.fruit.example.com", true).await.json();
    let label = "kube-aggregator.kubernetes.io/automanaged";
    assert_eq!(service["metadata"]["labels"], json!({label: "true"}));
    let spec = json!({
        "group": "fruit.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 100,
    });
    assert_eq!((&service["spec"], &service["status"]["conditions"][0]["reason"]), (&spec, &json!("Local")));
    there("v2.fruit.example.com", true).await;
    // An APIService that was deleted by hand is created again, as a new object.
    let uid = service["metadata"]["uid"].clone();
    admin.send(Method::DELETE, &format!("{SERVICES}/v1.fruit.example.com"), &[], "").await.expect(200);
    assert_ne!(there("v1.fruit.example.com", true).await.json()["metadata"]["uid"], uid);
    // After a restart, in which the server makes up for missed changes, the APIServices exist and follow their
    // definitions.
    server.stop();
    let server = Server::start(&folder.join("data"), &[]);
    let admin = HttpClient::admin(&server);
    let there = async |name: &str, wanted: bool| {
        eventually(PATIENCE, async || {
            let answer = admin.get(&format!("{SERVICES}/{name}")).await;
            if (answer.code == 200) == wanted { Ok(()) } else { Err(answer.text()) }
        })
        .await
    };
    there("v2.fruit.example.com", true).await;
    admin.send(Method::DELETE, &format!("{definitions}/apples.fruit.example.com"), &[], "").await.expect(200);
    there("v1.fruit.example.com", false).await;
    there("v2.fruit.example.com", false).await;
    there("v1.apps", true).await;
    server.stop();
}

#[tokio::test]
async fn a_proxy_in_front_names_the_user() {
    let folder = Folder::new();
    let server = Server::start(&folder.join("data"), &[]);
    let file = |name: &str| std::fs::read_to_string(folder.join("data").join("pki").join(name)).unwrap();
    let pair = || Pair { certificate: file("front-proxy-client.crt"), key: file("front-proxy-client.key") };
    let proxy = HttpClient::anonymous(&server).with_identity(pair());
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let named = [
        ("content-type", "application/json"),
        ("x-remote-user", "jane"),
        ("x-remote-group", "people"),
        ("x-remote-extra-scope", "all"),
    ];
    let answer = proxy.send(Method::POST, path, &named, review.clone()).await.expect(201).json();
    let expected = json!({
        "username": "jane", "groups": ["people", "system:authenticated"], "extra": {"scope": ["all"]},
    });
    assert_eq!(answer["status"]["userInfo"], expected);
    // A proxy that names no user is not authenticated, and a client that is not a proxy cannot name others.
    proxy.get("/version").await.refused(401, "Unauthorized");
    let answer = HttpClient::admin(&server).send(Method::POST, path, &named, review).await.expect(201).json();
    assert_eq!(answer["status"]["userInfo"]["username"], "kubernetes-admin");

    // The server writes the ConfigMap for aggregated servers again after it was deleted.
    let admin = HttpClient::admin(&server);
    let map = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let told = admin.get(map).await.expect(200).json()["data"].clone();
    assert_eq!(told["requestheader-username-headers"], "[\"X-Remote-User\"]");
    assert_eq!(told["requestheader-client-ca-file"], file("front-proxy-ca.crt"));
    admin.send(Method::DELETE, map, &[], "").await.expect(200);
    let again = eventually(PATIENCE, async || {
        let answer = admin.get(map).await;
        if answer.code == 200 { Ok(answer.json()) } else { Err(answer.text()) }
    })
    .await;
    assert_eq!(again["data"], told);
    server.stop();
}

/// A server, and an authority for aggregated servers.
struct Cluster {
    folder: Folder,
    server: Server,
    admin: HttpClient,
    authority: Authority,
}

impl Cluster {
    async fn start(options: &[&str]) -> Cluster {
        let folder = Folder::new();
        let server = Server::start(&folder.join("data"), options);
        let admin = HttpClient::admin(&server);
        Cluster { folder, server, admin, authority: Authority::new("backends") }
    }

    async fn backend(&self, aggregated: bool) -> ThingsServer {
        let pair = self.authority.server(&["backend.default.svc"]);
        ThingsServer::start(&pair, &self.front_proxies().await, aggregated).await
    }

    async fn backend_with(&self, pair: &Pair) -> ThingsServer {
        ThingsServer::start(pair, &self.front_proxies().await, true).await
    }

    /// The front-proxy authorities, as aggregated servers read them.
    async fn front_proxies(&self) -> String {
        let map = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
        let found = eventually(PATIENCE, async || {
            let answer = self.admin.get(map).await;
            if answer.code == 200 { Ok(answer.json()) } else { Err(answer.text()) }
        });
        found.await["data"]["requestheader-client-ca-file"].as_str().expect("a certificate").to_owned()
    }

    async fn service(&self, spec: Value) {
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "backend"}, "spec": spec});
        self.admin.post("/api/v1/namespaces/default/services", &service).await.expect(201);
    }

    /// Registers the backend for the group, and waits until the server finds it available.
    async fn register(&self, backend: &ThingsServer, authority: &str) {
        self.service(json!({"type": "ExternalName", "externalName": "localhost"})).await;
        self.api_service(backend.port, authority).await;
        let condition = self.condition("Passed").await;
        assert_eq!((&condition["status"], &condition["message"]), (&json!("True"), &json!("all checks passed")));
    }

    async fn api_service(&self, port: u16, authority: &str) {
        let service = json!({
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": format!("v1.{GROUP}")},
            "spec": {
                "group": GROUP, "version": "v1", "groupPriorityMinimum": 17750, "versionPriority": 10,
                "service": {"namespace": "default", "name": "backend", "port": port},
                "caBundle": STANDARD.encode(authority),
            },
        });
        self.admin.post(SERVICES, &service).await.expect(201);
    }

    /// Waits until the APIService's condition has this reason, and returns the condition.
    async fn condition(&self, reason: &str) -> Value {
        eventually(PATIENCE, async || {
            let service = self.admin.get(&format!("{SERVICES}/v1.{GROUP}")).await.expect(200).json();
            let condition = service["status"]["conditions"][0].clone();
            if condition["reason"] == reason { Ok(condition) } else { Err(condition) }
        })
        .await
    }

    /// The entry of the backend's version in the server's aggregated discovery.
    async fn discovered(&self) -> Value {
        let document = self.admin.get_as("/apis", AGGREGATED).await.expect(200).json();
        let group = document["items"].as_array().unwrap().iter().find(|item| item["metadata"]["name"] == GROUP);
        group.map(|group| group["versions"][0].clone()).unwrap_or_default()
    }
}
