//! Features of the resource API beyond plain objects: WebSocket watches, continue tokens, self links, exports, and
//! expiry.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use holdfast_core::event::Offset;
use holdfast_core::schema::schema;
use holdfast_core::wire::protobuf;
use holdfast_engine::{Log, LogRead};
use holdfast_storage_rocks::RocksLog;
use holdfast_tests::wire::HttpClient;
use holdfast_tests::{Folder, Server, eventually};
use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const EVENTS: &str = "/api/v1/namespaces/default/events";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const PATIENCE: Duration = Duration::from_secs(15);

#[tokio::test]
async fn a_watch_over_a_websocket() {
    let (folder, server) = start(&[]);
    let admin = HttpClient { http2: false, ..HttpClient::admin(&server) };
    admin.post(MAPS, &config_map("a")).await.expect(201);
    let mut socket = open(&admin, &format!("{MAPS}?watch=1&fieldSelector=metadata.name%3Da"), &[]).await.unwrap();
    assert_eq!(seen(&mut socket).await, ("ADDED".into(), "a".into()));
    admin.post(MAPS, &config_map("b")).await.expect(201);
    socket.send(Message::Ping(Bytes::from_static(b"there?"))).await.unwrap();
    assert_eq!(next(&mut socket).await, Message::Pong(Bytes::from_static(b"there?")));
    admin.send(Method::DELETE, &format!("{MAPS}/a"), &[], "").await.expect(200);
    assert_eq!(seen(&mut socket).await, ("DELETED".into(), "a".into()));

    // The legacy watch paths also send events in Protobuf. Each WebSocket message is one event, without the length that
    // precedes events in a stream.
    let path = "/api/v1/watch/namespaces/default/configmaps/b";
    let mut binary = open(&admin, path, &[("accept", PROTOBUF)]).await.unwrap();
    let Message::Binary(event) = next(&mut binary).await else { panic!("no binary message") };
    assert_eq!(watch_event(&event), ("ADDED".to_owned(), "b".to_owned()));

    // A browser sends its token as a subprotocol, beside another one that the server can select.
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    admin.post(accounts, &json!({"metadata": {"name": "browser"}})).await.expect(201);
    let token = admin.post(&format!("{accounts}/browser/token"), &json!({"spec": {}})).await.expect(201).json();
    let token = URL_SAFE_NO_PAD.encode(token["status"]["token"].as_str().unwrap());
    let anonymous = HttpClient { http2: false, ..HttpClient::anonymous(&server) };
    let offered = format!("base64url.bearer.authorization.k8s.io.{token}, base64.binary.k8s.io");
    let code = open(&anonymous, &format!("{MAPS}?watch=1"), &[("sec-websocket-protocol", &offered)]).await;
    assert_eq!(code.err(), Some(403), "known, and without a role");
    grant(&admin, "system:serviceaccount:default:browser").await;
    open(&anonymous, &format!("{MAPS}?watch=1"), &[("sec-websocket-protocol", &offered)]).await.unwrap();
    let alone = format!("base64url.bearer.authorization.k8s.io.{token}");
    let refused = open(&anonymous, &format!("{MAPS}?watch=1"), &[("sec-websocket-protocol", &alone)]).await;
    assert_eq!(refused.err(), Some(401));
    let refused = open(&admin, &format!("{MAPS}?watch=1&resourceVersion=x"), &[]).await;
    assert_eq!(refused.err(), Some(500), "refused as any other watch is");

    server.stop();
    assert!(matches!(socket.next().await, Some(Ok(Message::Close(_)))), "the end is told");
    drop(folder);
}

#[tokio::test]
async fn events_expire() {
    let (_folder, server) = start(&["--event-ttl=2s"]);
    let admin = HttpClient::admin(&server);
    let event = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "default"},
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}, "reason": "Tested", "type": "Normal",
        })
    };
    admin.post(EVENTS, &event("first")).await.expect(201);
    admin.post(MAPS, &config_map("stays")).await.expect(201);
    let mut watch = admin.open(Method::GET, &format!("{EVENTS}?watch=1"), &[], Bytes::new()).await.unwrap();
    let mut types = Vec::new();
    while !types.contains(&"DELETED".to_owned()) {
        let frame = tokio::time::timeout(PATIENCE, watch.body_mut().frame()).await.expect("an event in time");
        let data = frame.expect("an event").unwrap().into_data().unwrap();
        for line in data.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            types.push(serde_json::from_slice::<Value>(line).unwrap()["type"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(types, ["ADDED", "DELETED"]);
    admin.get(&format!("{EVENTS}/first")).await.refused(404, "NotFound");
    admin.get(&format!("{MAPS}/stays")).await.expect(200);
    // The Event is read at the path of the other API group: it is the same object there, and expires like other Events.
    admin.post(EVENTS, &event("second")).await.expect(201);
    let path = "/apis/events.k8s.io/v1/namespaces/default/events/second";
    admin.get(path).await.expect(200);
    eventually(PATIENCE, || async {
        match admin.get(path).await.code {
            404 => Ok(()),
            code => Err(format!("still there ({code})")),
        }
    })
    .await;
    server.stop();
}

#[tokio::test]
async fn continue_tokens_survive_a_restart_and_no_tampering() {
    let (folder, server) = start(&[]);
    let admin = HttpClient::admin(&server);
    for name in ["a", "b", "c", "d", "e"] {
        admin.post(MAPS, &config_map(name)).await.expect(201);
    }
    let first = admin.get(&format!("{MAPS}?limit=2")).await.expect(200).json();
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    admin.post(MAPS, &config_map("bb")).await.expect(201);
    server.stop();

    let server = Server::start(&folder.join("data"), &[]);
    let admin = HttpClient::admin(&server);
    let second = admin.get(&format!("{MAPS}?limit=2&continue={token}")).await.expect(200).json();
    let names: Vec<&str> =
        second["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["c", "d"], "without what came in between");
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);

    let mut bytes = URL_SAFE_NO_PAD.decode(&token).unwrap();
    for index in [0, bytes.len() / 2, bytes.len() - 1] {
        bytes[index] ^= 1;
        let forged = URL_SAFE_NO_PAD.encode(&bytes);
        // A changed token cannot be read (400), or counts as a token of another server (410).
        let code = admin.get(&format!("{MAPS}?limit=2&continue={forged}")).await.code;
        assert!([400, 410].contains(&code), "{code}");
        bytes[index] ^= 1;
    }
    admin.get(&format!("{MAPS}?limit=2&continue=short")).await.refused(400, "BadRequest");
    server.stop();

    // When the version of a list has been forgotten, the list can continue at the newest state, with the token in the
    // refusal.
    let log = RocksLog::open(&folder.join("data")).unwrap();
    log.forget(log.last().unwrap()).unwrap();
    drop(log);
    let server = Server::start(&folder.join("data"), &[]);
    let admin = HttpClient::admin(&server);
    let expired = admin.get(&format!("{MAPS}?limit=2&continue={token}")).await.refused(410, "Expired");
    let fresh = expired["metadata"]["continue"].as_str().expect("a fresh token");
    let rest = admin.get(&format!("{MAPS}?continue={fresh}")).await.expect(200).json();
    let names: Vec<&str> =
        rest["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["bb", "c", "d", "e"], "with what came in between");
    assert_ne!(rest["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    server.stop();
}

#[tokio::test]
async fn what_was_let_go_is_gone() {
    let (folder, server) = start(&[]);
    let admin = HttpClient::admin(&server);
    let version = |answer: &Value| answer["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    let first = version(&admin.post(MAPS, &config_map("a")).await.expect(201).json());
    let patch = |text: &str| json!({"data": {"a": text}}).to_string();
    let merge = [("content-type", "application/merge-patch+json")];
    let path = format!("{MAPS}/a");
    let second = version(&admin.send(Method::PATCH, &path, &merge, patch("2")).await.expect(200).json());
    let third = version(&admin.send(Method::PATCH, &path, &merge, patch("3")).await.expect(200).json());
    server.stop();
    let log = RocksLog::open(&folder.join("data")).unwrap();
    log.forget(Offset(second)).unwrap();
    drop(log);

    let server = Server::start(&folder.join("data"), &[]);
    let admin = HttpClient::admin(&server);
    let first_event = async |from: u64| {
        let path = format!("{MAPS}?watch=1&resourceVersion={from}&fieldSelector=metadata.name%3Da");
        let mut watch = admin.open(Method::GET, &path, &[], Bytes::new()).await.unwrap();
        assert_eq!(watch.status(), 200);
        let frame = tokio::time::timeout(PATIENCE, watch.body_mut().frame()).await.expect("an event in time");
        let data = frame.expect("an event").unwrap().into_data().unwrap();
        let event: Value = serde_json::from_slice(&data).unwrap();
        let rest = tokio::time::timeout(Duration::from_millis(300), watch.body_mut().collect()).await;
        (event, rest.is_ok())
    };
    let (event, ended) = first_event(first).await;
    assert_eq!((event["type"].as_str(), ended), (Some("ERROR"), true), "{event}");
    assert_eq!((&event["object"]["code"], &event["object"]["reason"]), (&json!(410), &json!("Expired")), "{event}");
    let message = format!("too old resource version: {first} ({second})");
    assert_eq!(event["object"]["message"], message);
    let (event, ended) = first_event(second).await;
    assert_eq!((event["type"].as_str(), ended), (Some("MODIFIED"), false), "{event}");
    assert_eq!(version(&event["object"]), third);
    let exact = |version: u64| format!("{MAPS}?resourceVersion={version}&resourceVersionMatch=Exact");
    admin.get(&exact(first)).await.refused(410, "Expired");
    let list = admin.get(&exact(second)).await.expect(200).json();
    assert_eq!(list["items"][0]["data"]["a"], "2", "{list}");
    server.stop();
}

#[tokio::test]
async fn self_links_under_their_gate() {
    let (_folder, server) = start(&["--feature-gates=RemoveSelfLink=false"]);
    let admin = HttpClient::admin(&server);
    let made = admin.post(MAPS, &config_map("a")).await.expect(201).json();
    let link = format!("{MAPS}/a");
    assert_eq!(made["metadata"]["selfLink"], link);
    let list = admin.get(MAPS).await.expect(200).json();
    assert_eq!(list["metadata"]["selfLink"], MAPS);
    assert!(list["items"].as_array().unwrap().iter().any(|item| item["metadata"]["selfLink"] == link), "{list}");
    let metadata = admin.get_as(&link, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").await;
    assert_eq!(metadata.expect(200).json()["metadata"]["selfLink"], link);
    let namespace = admin.get("/api/v1/namespaces/default").await.expect(200).json();
    assert_eq!(namespace["metadata"]["selfLink"], "/api/v1/namespaces/default");
    let role = admin.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/view").await.expect(200).json();
    assert_eq!(role["metadata"]["selfLink"], "/apis/rbac.authorization.k8s.io/v1/clusterroles/view");
    // A self link in a request is dropped.
    admin.send(Method::PUT, &link, &[("content-type", "application/json")], made.to_string()).await.expect(200);
    server.stop();

    let (_folder, server) = start(&[]);
    let list = HttpClient::admin(&server).get("/api/v1/namespaces").await.expect(200).json();
    assert!(!list.to_string().contains("selfLink"), "{list}");
    server.stop();
}

#[tokio::test]
async fn exports() {
    let (_folder, server) = start(&[]);
    let admin = HttpClient::admin(&server);
    let services = "/api/v1/namespaces/default/services";
    let service = json!({"metadata": {"name": "web"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    admin.post(services, &service).await.expect(201);
    let exported = admin.get(&format!("{services}/web?export=true")).await.expect(200).json();
    assert_eq!(exported["metadata"], json!({"name": "web"}));
    assert_eq!(exported["spec"]["clusterIP"], Value::Null);
    assert_eq!(exported["spec"]["ports"][0]["nodePort"], Value::Null);
    assert_eq!(exported["status"], Value::Null);
    let exact = admin.get(&format!("{services}/web?export=true&exact=true")).await.expect(200).json();
    assert_eq!(exact["metadata"], json!({"name": "web", "namespace": "default"}));
    assert!(exact["spec"]["clusterIP"].is_string(), "{exact}");
    // An exported object can be created again.
    let mut copy = exported;
    copy["metadata"]["name"] = "copy".into();
    admin.post(services, &copy).await.expect(201);
    admin.get(&format!("{services}/none?export=true")).await.refused(404, "NotFound");
    server.stop();
}

/// Objects, lists and events are the same in Protobuf as in JSON, both the first time and from the cache.
#[tokio::test]
async fn protobuf_says_the_same() {
    let (_folder, server) = start(&[]);
    let admin = HttpClient::admin(&server);
    for path in [
        "/api/v1/namespaces",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/rbac.authorization.k8s.io/v1beta1/clusterroles",
        "/api/v1/services",
        "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
    ] {
        let mut json = admin.get(path).await.expect(200).json();
        without_empty(&mut json);
        // The list's metadata depends on the time, because the server is still creating its own objects.
        json["metadata"] = Value::Null;
        for _ in 0..2 {
            let answer = admin.get_as(path, PROTOBUF).await.expect(200);
            assert_eq!(answer.header("content-type"), PROTOBUF);
            let mut decoded: Value = protobuf::codec().decode_object(&answer.body).unwrap().into();
            without_empty(&mut decoded);
            decoded["metadata"] = Value::Null;
            assert_eq!(decoded, json, "{path}");
        }
    }
    server.stop();
}

/// Removes values that one format omits and the other shows as empty.
fn without_empty(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.values_mut().for_each(without_empty);
            map.retain(|_, value| !(value.is_null() || *value == json!({}) || *value == json!([])));
        }
        Value::Array(list) => list.iter_mut().for_each(without_empty),
        _ => {}
    }
}

type Socket = WebSocketStream<TlsStream<TcpStream>>;

/// Opens a WebSocket, or returns the code of the refusal.
async fn open(wire: &HttpClient, path: &str, headers: &[(&'static str, &str)]) -> Result<Socket, u16> {
    let mut request = format!("wss://localhost{path}").into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    let stream = wire.connect().await.expect("a connection");
    match tokio_tungstenite::client_async(request, stream).await {
        Ok((socket, _)) => Ok(socket),
        Err(tokio_tungstenite::tungstenite::Error::Http(answer)) => Err(answer.status().as_u16()),
        Err(error) => panic!("{path}: {error}"),
    }
}

async fn next(socket: &mut Socket) -> Message {
    tokio::time::timeout(PATIENCE, socket.next()).await.expect("a message in time").expect("a message").unwrap()
}

/// Type and name of the next event.
async fn seen(socket: &mut Socket) -> (String, String) {
    let event: Value = serde_json::from_str(next(socket).await.to_text().expect("text")).expect("JSON");
    (event["type"].as_str().unwrap().into(), event["object"]["metadata"]["name"].as_str().unwrap().into())
}

/// Type and name of an event in Protobuf.
fn watch_event(bytes: &[u8]) -> (String, String) {
    let message = schema().id("io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent").expect("the message is known");
    let event = protobuf::codec().decode(message, bytes).expect("a watch event");
    (event["type"].as_str().unwrap().into(), event["object"]["metadata"]["name"].as_str().unwrap().into())
}

async fn grant(admin: &HttpClient, user: &str) {
    let binding = json!({
        "metadata": {"name": "viewer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
    });
    admin.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await.expect(201);
}

fn start(options: &[&str]) -> (Folder, Server) {
    let folder = Folder::new();
    let server = Server::start(&folder.join("data"), options);
    (folder, server)
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}
