//! Serving: protocols, certificates, credentials, limits, and the server's own information.

use flate2::read::GzDecoder;
use holdfast_core::object::yaml;
use holdfast_tests::authority::Authority;
use holdfast_tests::server::{binary, holdfast};
use holdfast_tests::wire::{Answer, HttpClient};
use holdfast_tests::{Folder, Server};
use http::{Method, Version};
use http_body_util::BodyExt;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JSON: (&str, &str) = ("content-type", "application/json");

#[tokio::test]
async fn both_versions_of_http_on_one_port() {
    let (_folder, server) = start(&[]);
    let admin = HttpClient::admin(&server);
    for (http2, version) in [(true, Version::HTTP_2), (false, Version::HTTP_11)] {
        let wire = HttpClient { http2, ..admin.clone() };
        let answer = wire.get(MAPS).await.expect(200);
        assert_eq!(answer.version, version);
        assert_eq!(answer.header("content-type"), "application/json");
        assert_eq!(answer.header("cache-control"), "no-cache, private");
        assert!(!answer.header("audit-id").is_empty());
        let name = if http2 { "two" } else { "one" };
        let made = wire.post(MAPS, &config_map(name)).await.expect(201);
        assert_eq!(made.json()["metadata"]["name"], name);
        let head = wire.send(Method::HEAD, "/version", &[], "").await.expect(200);
        assert!(head.body.is_empty());
        wire.send(Method::HEAD, &format!("{MAPS}/{name}"), &[], "").await.expect(405);
        let mut watch = wire.open(Method::GET, &format!("{MAPS}?watch=1"), &[], Default::default()).await.unwrap();
        assert!(watch.body_mut().frame().await.expect("an event").is_ok());
        wire.send(Method::PUT, MAPS, &[JSON], "{}").await.refused(405, "MethodNotAllowed");
        wire.get("/api/v1/nonsense").await.refused(404, "NotFound");
    }
    server.stop();
}

#[tokio::test]
async fn large_answers_are_compressed_for_those_who_ask() {
    let (_folder, server) = start(&[]);
    let admin = HttpClient::admin(&server);
    for index in 0..40 {
        let mut map = config_map(&format!("large-{index}"));
        map["data"] = json!({"text": "much the same ".repeat(500)});
        admin.post(MAPS, &map).await.expect(201);
    }
    let plain = admin.get(MAPS).await.expect(200);
    assert_eq!(plain.header("content-encoding"), "");
    let packed = admin.send(Method::GET, MAPS, &[("accept-encoding", "gzip")], "").await.expect(200);
    assert_eq!(packed.header("content-encoding"), "gzip");
    assert!(packed.body.len() * 5 < plain.body.len(), "{} of {}", packed.body.len(), plain.body.len());
    let mut unpacked = Vec::new();
    GzDecoder::new(&packed.body[..]).read_to_end(&mut unpacked).expect("gzip");
    assert_eq!(unpacked, plain.body);
    let small = admin.send(Method::GET, "/version", &[("accept-encoding", "gzip")], "").await.expect(200);
    assert_eq!(small.header("content-encoding"), "");
    server.stop();
}

#[tokio::test]
async fn yaml_in_and_out() {
    let (_folder, server) = start(&[]);
    let admin = HttpClient::admin(&server);
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: one\ndata:\n  a: \"1\"\n";
    let headers = [("content-type", "application/yaml"), ("accept", "application/yaml")];
    let made = admin.send(Method::POST, MAPS, &headers, text).await.expect(201);
    assert_eq!(made.header("content-type"), "application/yaml");
    let made: Value = yaml::read(&made.text()).expect("YAML");
    assert_eq!(made["data"], json!({"a": "1"}));
    let list = admin.get_as(MAPS, "application/yaml").await.expect(200);
    assert!(list.text().contains("kind: ConfigMapList"), "{}", list.text());
    let missing = admin.get_as(&format!("{MAPS}/none"), "application/yaml").await.expect(404);
    assert!(missing.text().contains("reason: NotFound"), "{}", missing.text());
    admin.get_as(MAPS, "text/html").await.refused(406, "NotAcceptable");
    server.stop();
}

#[tokio::test]
async fn client_certificates() {
    let folder = Folder::new();
    let authority = Authority::new("users");
    let file = folder.join("users.crt");
    std::fs::write(&file, authority.pem()).unwrap();
    let server = Server::start(&folder.join("data"), &["--client-ca-file", text(&file)]);
    let anonymous = HttpClient::anonymous(&server);
    let root = anonymous.clone().with_identity(authority.client("root", &["system:masters"]));
    root.get(MAPS).await.expect(200);
    let jane = anonymous.clone().with_identity(authority.client("jane", &["people"]));
    let status = jane.get(MAPS).await.refused(403, "Forbidden");
    let message = "configmaps is forbidden: User \"jane\" cannot list resource \"configmaps\" in API group \"\" in the \
                   namespace \"default\"";
    assert_eq!(status["message"], message);
    bind(&root, "people", json!([{"kind": "Group", "name": "people", "apiGroup": "rbac.authorization.k8s.io"}])).await;
    jane.get(MAPS).await.expect(200);
    // A certificate that another authority has signed is rejected, even if the authority has the same name.
    for stranger in [Authority::new("users"), Authority::new("strangers")] {
        let wire = anonymous.clone().with_identity(stranger.client("root", &["system:masters"]));
        wire.get("/version").await.refused(401, "Unauthorized");
    }
    server.stop();
}

#[tokio::test]
async fn a_client_certificate_ends_although_its_connection_lives() {
    let folder = Folder::new();
    let authority = Authority::new("users");
    let file = folder.join("users.crt");
    std::fs::write(&file, authority.pem()).unwrap();
    let server = Server::start(&folder.join("data"), &["--client-ca-file", text(&file)]);
    let short = authority.client_for("root", &["system:masters"], time::Duration::seconds(10));
    let wire = HttpClient { http2: false, ..HttpClient::anonymous(&server).with_identity(short) };
    let stream = hyper_util::rt::TokioIo::new(wire.connect().await.expect("a connection"));
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.expect("a connection");
    tokio::spawn(connection);
    let mut ask = async || {
        let request = http::Request::get(MAPS).header("host", "localhost").body(String::new()).expect("a request");
        let answer = sender.send_request(request).await.expect("an answer");
        let code = answer.status().as_u16();
        answer.into_body().collect().await.expect("a body");
        code
    };
    assert_eq!(ask().await, 200);
    let mut code = 200;
    while code == 200 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        code = ask().await;
    }
    assert_eq!(code, 401);
    server.stop();
}

#[tokio::test]
async fn static_tokens() {
    let folder = Folder::new();
    let file = folder.join("tokens.csv");
    std::fs::write(&file, "secret-1,root,1,\"system:masters,others\"\nsecret-2,joe,2\n").unwrap();
    let server = Server::start(&folder.join("data"), &["--token-auth-file", text(&file)]);
    let anonymous = HttpClient::anonymous(&server);
    anonymous.clone().with_token("secret-1").get(MAPS).await.expect(200);
    let status = anonymous.clone().with_token("secret-2").get(MAPS).await.refused(403, "Forbidden");
    assert!(status["message"].as_str().unwrap().contains("User \"joe\" cannot list"), "{status}");
    let wrong = anonymous.clone().with_token("secret-3").get("/version").await;
    assert_eq!(wrong.header("www-authenticate"), "", "clients of Kubernetes are not challenged");
    wrong.refused(401, "Unauthorized");
    server.stop();

    std::fs::write(&file, "secret-1,root\n").unwrap();
    let refused =
        Server::try_start(&folder.join("data"), &["--token-auth-file", text(&file)]).err().expect("a refusal");
    assert!(refused.stderr.contains("line 1"), "{}", refused.stderr);
}

#[tokio::test]
async fn anonymous_requests() {
    let (_folder, server) = start(&[]);
    let anonymous = HttpClient::anonymous(&server);
    // Anonymous clients may read these paths.
    for path in ["/version", "/healthz", "/livez", "/readyz"] {
        anonymous.get(path).await.expect(200);
    }
    let status = anonymous.get(MAPS).await.refused(403, "Forbidden");
    assert!(status["message"].as_str().unwrap().contains("User \"system:anonymous\" cannot list"), "{status}");
    let status = anonymous.get("/metrics").await.refused(403, "Forbidden");
    assert_eq!(status["message"], "forbidden: User \"system:anonymous\" cannot get path \"/metrics\"");
    server.stop();

    let (_folder, server) = start(&["--anonymous-auth=false"]);
    HttpClient::anonymous(&server).get("/version").await.refused(401, "Unauthorized");
    HttpClient::admin(&server).get("/version").await.expect(200);
    server.stop();
}

#[tokio::test]
async fn always_deny() {
    let (_folder, server) = start(&["--authorization-mode", "AlwaysDeny"]);
    HttpClient::anonymous(&server).get(MAPS).await.refused(403, "Forbidden");
    // As in Kubernetes, members of `system:masters` are allowed before any authorizer is called.
    HttpClient::admin(&server).get(MAPS).await.expect(200);
    server.stop();
}

#[tokio::test]
async fn service_accounts_are_held_to_their_roles() {
    let (_folder, server) = start(&[]);
    let admin = HttpClient::admin(&server);
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    admin.post(accounts, &account).await.expect(201);
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let token = admin.post(&format!("{accounts}/robot/token"), &request).await.expect(201).json();
    let robot = HttpClient::anonymous(&server).with_token(token["status"]["token"].as_str().unwrap());
    let status = robot.get(MAPS).await.refused(403, "Forbidden");
    let message = "configmaps is forbidden: User \"system:serviceaccount:default:robot\" cannot list resource \
                   \"configmaps\" in API group \"\" in the namespace \"default\"";
    assert_eq!(status["message"], message);
    assert_eq!(status["details"], json!({"kind": "configmaps"}));
    let status = robot.get(&format!("{MAPS}/one")).await.refused(403, "Forbidden");
    assert!(status["message"].as_str().unwrap().starts_with("configmaps \"one\" is forbidden: "), "{status}");
    bind(&admin, "robot", json!([{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}])).await;
    robot.get(MAPS).await.expect(200);
    robot.post(MAPS, &config_map("one")).await.refused(403, "Forbidden");
    robot.get("/api/v1/namespaces/kube-system/configmaps").await.refused(403, "Forbidden");
    let changed = format!("{}x", token["status"]["token"].as_str().unwrap());
    HttpClient::anonymous(&server).with_token(&changed).get("/version").await.refused(401, "Unauthorized");
    server.stop();
}

#[tokio::test]
async fn impersonation() {
    let folder = Folder::new();
    let file = folder.join("tokens.csv");
    std::fs::write(&file, "secret,joe,2\n").unwrap();
    let server = Server::start(&folder.join("data"), &["--token-auth-file", text(&file)]);
    let admin = HttpClient::admin(&server);
    let joe = HttpClient::anonymous(&server).with_token("secret");
    let whoami = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let question = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
    let as_jane = [
        JSON,
        ("impersonate-user", "jane"),
        ("impersonate-group", "a"),
        ("impersonate-group", "b"),
        ("impersonate-uid", "7"),
        ("impersonate-extra-scopes", "s"),
    ];
    let jane = admin.send(Method::POST, whoami, &as_jane, question.clone()).await.expect(201).json();
    let user = &jane["status"]["userInfo"];
    assert_eq!((&user["username"], &user["uid"]), (&json!("jane"), &json!("7")));
    assert_eq!(user["groups"], json!(["a", "b", "system:authenticated"]));
    assert_eq!(user["extra"], json!({"scopes": ["s"]}));
    let as_robot = [JSON, ("impersonate-user", "system:serviceaccount:default:robot")];
    let robot = admin.send(Method::POST, whoami, &as_robot, question).await.expect(201).json();
    let groups = json!(["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]);
    assert_eq!(robot["status"]["userInfo"]["groups"], groups);

    let denied = admin.send(Method::GET, MAPS, &[("impersonate-user", "jane")], "").await.refused(403, "Forbidden");
    assert!(denied["message"].as_str().unwrap().contains("User \"jane\" cannot list"), "{denied}");
    let status = joe.send(Method::GET, MAPS, &[("impersonate-user", "jane")], "").await.refused(403, "Forbidden");
    let message = "users \"jane\" is forbidden: User \"joe\" cannot impersonate resource \"users\" in API group \"\" at \
                   the cluster scope";
    assert_eq!(status["message"], message);
    // Impersonated groups without a user are refused.
    let nobody = admin.send(Method::GET, MAPS, &[("impersonate-group", "a")], "").await;
    let status = nobody.refused(500, "InternalError");
    assert!(status["message"].as_str().unwrap().contains("without impersonating a user"), "{status}");
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_over_the_limit_are_put_off() {
    let folder = Folder::new();
    let file = folder.join("tokens.csv");
    std::fs::write(&file, "secret,joe,2\n").unwrap();
    let limits =
        ["--enable-priority-and-fairness=false", "--max-mutating-requests-inflight=1", "--max-requests-inflight=2"];
    let server = Server::start(&folder.join("data"), &[&["--token-auth-file", text(&file)], &limits[..]].concat());
    let admin = HttpClient::admin(&server);
    let joe = HttpClient::anonymous(&server).with_token("secret");
    let root = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let binding = json!({"metadata": {"name": "joe"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "joe"}]});
    admin.post(root, &binding).await.expect(201);
    // The limit is one mutating request at a time. Sixteen concurrent writes exceed it, unless each ends before the
    // next begins, so the test tries until one is refused.
    let refused = holdfast_tests::eventually(Duration::from_secs(20), || async {
        let together = (0..16).map(|_| {
            let map = json!({"metadata": {"generateName": "map-"}});
            let joe = joe.clone();
            async move { joe.post(MAPS, &map).await }
        });
        let answers = futures_util::future::join_all(together).await;
        assert!(answers.iter().all(|answer| matches!(answer.code, 201 | 429)));
        answers.into_iter().find(|answer| answer.code == 429).ok_or("there was a place for all")
    })
    .await;
    assert_eq!(refused.header("retry-after"), "1");
    // As in Kubernetes, the refusal is not a Status.
    assert_eq!(refused.text(), "Too many requests, please try again later.\n");
    assert!(refused.header("content-type").starts_with("text/plain"));
    // The limit of mutating requests does not apply to reads and watches, which have limits of their own.
    joe.get(MAPS).await.expect(200);
    let watch = joe.open(Method::GET, &format!("{MAPS}?watch=1"), &[], Default::default()).await.unwrap();
    assert_eq!(watch.status(), 200);
    joe.post(MAPS, &config_map("two")).await.expect(201);
    server.stop();
}

#[tokio::test]
async fn bodies_over_three_mebibytes_are_refused() {
    let (_folder, server) = start(&[]);
    for http2 in [true, false] {
        let admin = HttpClient { http2, ..HttpClient::admin(&server) };
        // The body is padded with spaces, because a ConfigMap itself may not be so large.
        let mut body = config_map(if http2 { "two" } else { "one" }).to_string();
        body.push_str(&" ".repeat((3 << 20) - body.len()));
        admin.send(Method::POST, MAPS, &[JSON], body.clone()).await.expect(201);
        let over = admin.send(Method::POST, MAPS, &[JSON], body + " ").await;
        let status = over.refused(413, "RequestEntityTooLarge");
        assert_eq!(status["message"], "Request entity too large: limit is 3145728");
        admin.get(MAPS).await.expect(200);
    }
    server.stop();
}

#[tokio::test]
async fn what_broken_clients_send_is_answered_or_ends_the_connection() {
    let (_folder, server) = start(&[]);
    let wire = HttpClient { http2: false, ..HttpClient::admin(&server) };
    for text in ["GET\r\n\r\n", "\0\0\0\0\r\n\r\n", "GET / HTTP/1.1\r\nhost: a\r\ncontent-length: x\r\n\r\n"] {
        let mut connection = wire.connect().await.expect("a connection");
        connection.write_all(text.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(5), connection.read_to_end(&mut answer)).await;
        let answer = String::from_utf8_lossy(&answer);
        assert!(read.is_ok() && (answer.is_empty() || answer.starts_with("HTTP/1.1 400")), "{text:?}: {answer}");
    }
    wire.get("/readyz").await.expect(200);
    server.stop();
}

/// Request lines without a path or with an unusual path, each with the expected status.
const REQUEST_LINES: [(&str, u16); 22] = [
    ("CONNECT 127.0.0.1:22 HTTP/1.1", 405),
    ("CONNECT x HTTP/1.1", 405),
    ("CONNECT [::1]:22 HTTP/1.1", 405),
    ("CONNECT /x HTTP/1.1", 405),
    ("CONNECT https://a/x HTTP/1.1", 405),
    ("CONNECT * HTTP/1.1", 405),
    ("GET a HTTP/1.1", 400),
    ("GET x:1 HTTP/1.1", 400),
    ("DELETE x:1 HTTP/1.0", 400),
    ("GET ? HTTP/1.1", 400),
    ("GET #a HTTP/1.1", 400),
    ("GET a/b HTTP/1.1", 400),
    ("GET \u{e9} HTTP/1.1", 400),
    ("GET / HTTP/1.1 HTTP/1.1", 400),
    ("GET  / HTTP/1.1", 400),
    ("OPTIONS * HTTP/1.1", 403),
    ("GET * HTTP/1.1", 403),
    ("BREW /pot HTTP/1.1", 403),
    ("GET https://a HTTP/1.1", 403),
    ("GET https://a? HTTP/1.1", 403),
    ("POST ftp://a/b HTTP/1.1", 403),
    ("GET //a HTTP/1.1", 403),
];
const LINE_PIECES: [&str; 36] = [
    "GET",
    "POST",
    "CONNECT",
    "OPTIONS",
    "PRI",
    "X",
    " ",
    " ",
    "/",
    "*",
    "a",
    "a:1",
    "https://",
    "://",
    "@",
    "?",
    "#",
    "%",
    "%00",
    "..",
    "[::1]",
    ":99999",
    "\t",
    "\0",
    "\u{e9}",
    "\r",
    "/api/v1/pods",
    "?watch=1",
    "/at/1",
    " HTTP/1.1",
    " HTTP/1.1",
    " HTTP/1.0",
    " HTTP/2.0",
    "\r\nhost: a",
    "\r\ncontent-length: 3",
    "\r\ntransfer-encoding: chunked",
];
/// Possible starts of an HTTP/2 connection: frames, and parts of headers in HPACK.
const FRAME_PIECES: [&[u8]; 18] = [
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\0\0\0\x04\0\0\0\0\0",
    b"\0\0\0\x04\x01\0\0\0\0",
    b"\0\0\x06\x01\x05\0\0\0\x01\x82\x87\x84\x41\x01a",
    b"\0\0\x06\x01\x05\0\0\0\x03\x83\x87\x84\x41\x01a",
    // CONNECT, without and with a path; a path without a slash; no path at all.
    b"\0\0\x0d\x01\x05\0\0\0\x05\x42\x07CONNECT\x41\x01a\x87",
    b"\0\0\x0e\x01\x05\0\0\0\x07\x42\x07CONNECT\x41\x01a\x87\x84",
    b"\0\0\x08\x01\x05\0\0\0\x09\x82\x87\x44\x01a\x41\x01a",
    b"\0\0\x05\x01\x05\0\0\0\x0b\x82\x87\x41\x01a",
    b"\0\0\x05\x01\x05\0\0\0\x0d\x82\x87\x44\x01*",
    b"\0\0\x04\x08\0\0\0\0\0\0\0\xff\xff",
    b"\0\0\x08\x06\0\0\0\0\0whatever",
    b"\0\0\x05\0\x01\0\0\0\x03hello",
    b"\0\0\x04\x03\0\0\0\0\x01\0\0\0\x08",
    b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0",
    b"\0\0\x01\x09\x04\0\0\0\x01\x88",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    b"GET / HTTP/1.1\r\n\r\n",
];
const CONNECTIONS: usize = 60;

/// A random generator that gives the same numbers in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }

    fn pieces<'p, T: ?Sized>(&mut self, of: &[&'p T]) -> Vec<&'p T> {
        (0..1 + self.below(7)).map(|_| of[self.below(of.len())]).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_a_connection_begins_with_is_answered_and_nothing_panics() {
    let (_folder, server) = start(&[]);
    let [h1, h2] = [false, true].map(|http2| HttpClient { http2, ..HttpClient::anonymous(&server) });
    let (before, mut sent) = (server.stderr().len(), 0);
    for (line, code) in REQUEST_LINES {
        let answer =
            answer_to(&h1, format!("{line}\r\nhost: a\r\nconnection: close\r\n\r\n").as_bytes(), &mut sent).await;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert_eq!(answer.get(9..12), Some(code.to_string().as_str()), "{line}: {answer}");
        assert_eq!(server.stderr().len(), before, "{line}: {}", server.stderr());
    }
    let mut dice = Dice(0x5eed);
    for _ in 0..CONNECTIONS {
        let text = dice.pieces(&LINE_PIECES).concat() + "\r\nhost: a\r\nconnection: close\r\n\r\n";
        let answer = answer_to(&h1, text.as_bytes(), &mut sent).await;
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "{text:?}: {}", String::from_utf8_lossy(&answer));
        let mut frames = dice.pieces(&FRAME_PIECES).concat();
        if dice.below(4) > 0 {
            frames.splice(..0, [FRAME_PIECES[0], FRAME_PIECES[1]].concat());
        }
        if dice.below(3) == 0 {
            let at = dice.below(frames.len());
            frames[at] = dice.below(256) as u8;
        }
        let answer = answer_to(&h2, &frames, &mut sent).await;
        assert_eq!(answer.get(3), Some(&4), "settings come first: {frames:?}: {answer:?}");
    }
    HttpClient::admin(&server).get("/readyz").await.expect(200);
    let grown = server.stderr().len() - before;
    assert!(grown < sent && !server.stderr().contains("panicked"), "{grown} of {sent}: {}", server.stderr());
    server.stop();
}

/// Sends these bytes and nothing more, and returns the server's answer.
async fn answer_to(wire: &HttpClient, bytes: &[u8], sent: &mut usize) -> Vec<u8> {
    let mut connection = wire.connect().await.expect("a connection");
    *sent += bytes.len();
    let mut answer = Vec::new();
    let exchanged = async {
        // The server may have closed the connection before it has read everything.
        let _ = connection.write_all(bytes).await;
        // Over HTTP/1.1 the server closes the connection after its answer. Over HTTP/2 the server always sends bytes
        // first. A server that waits for more input then sees the end of the input.
        if wire.http2 {
            let _ = connection.read_buf(&mut answer).await;
        } else {
            let _ = tokio::time::timeout(Duration::from_millis(300), connection.read_to_end(&mut answer)).await;
        }
        let _ = connection.shutdown().await;
        let _ = connection.read_to_end(&mut answer).await;
    };
    let ended = tokio::time::timeout(Duration::from_secs(60), exchanged).await;
    assert!(ended.is_ok(), "no end: {bytes:?}");
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_that_are_opened_at_once_are_all_served() {
    const WATCHES: usize = 150;
    let (_folder, server) = start(&["--handshakes-max=2"]);
    for http2 in [false, true] {
        let wire = HttpClient { http2, ..HttpClient::admin(&server) };
        let path = format!("{MAPS}?watch=1");
        let opened = (0..WATCHES).map(|_| wire.open(Method::GET, &path, &[], Default::default()));
        let opened = futures_util::future::join_all(opened).await;
        let codes: Vec<u16> = opened.iter().flatten().map(|watch| watch.status().as_u16()).collect();
        assert_eq!(codes, [200; WATCHES], "{http2}");
        let metrics = wire.get("/metrics").await.expect(200).text();
        let of = |name: &str| metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<usize>().ok());
        assert!(of("holdfast_connections{of=\"users\"}") >= Some(WATCHES), "{metrics}");
        assert_eq!(of("holdfast_connections_refused_total{why=\"gave_way\"}"), Some(0));
        assert_eq!(of("holdfast_handshakes_limit"), Some(2));
    }
    server.stop();
}

#[tokio::test]
async fn a_user_has_so_many_connections() {
    let folder = Folder::new();
    let file = folder.join("tokens");
    std::fs::write(&file, "janes,jane,1\n").expect("write the tokens");
    let tokens = format!("--token-auth-file={}", text(&file));
    let server = Server::start(&folder.join("data"), &[&tokens, "--connections-per-user-max=2"]);
    let wire = HttpClient { http2: false, ..HttpClient::anonymous(&server).with_token("janes") };
    let ask = async || {
        let mut connection = wire.connect().await.expect("a connection");
        let head = "GET /version HTTP/1.1\r\nhost: a\r\nauthorization: Bearer janes\r\n\r\n";
        connection.write_all(head.as_bytes()).await.expect("written");
        let mut answer = vec![0; 12];
        connection.read_exact(&mut answer).await.expect("an answer");
        (connection, String::from_utf8(answer).expect("text"))
    };
    let kept = [ask().await, ask().await];
    assert!(kept.iter().all(|(_, answer)| answer == "HTTP/1.1 200"), "{kept:?}");
    let (mut third, answer) = ask().await;
    assert_eq!(answer, "HTTP/1.1 429");
    let mut rest = String::new();
    // The server closes a connection that exceeds the user's limit, so reading to the end succeeds.
    third.read_to_string(&mut rest).await.expect("the rest");
    assert!(rest.contains("larger --connections-per-user-max") && rest.contains("retry-after: 1"), "{rest}");
    // Other users, and anonymous clients, have limits of their own.
    HttpClient::anonymous(&server).get("/livez").await.expect(200);
    HttpClient::admin(&server).get(MAPS).await.expect(200);
    drop(kept);
    server.stop();
}

#[tokio::test]
async fn health_version_and_metrics() {
    let (_folder, server) = start(&[]);
    let admin = HttpClient::admin(&server);
    let version = admin.get("/version").await.expect(200).json();
    assert_eq!((&version["major"], &version["minor"]), (&json!("1"), &json!("35")));
    assert!(version["gitVersion"].as_str().unwrap().starts_with("v1.35."), "{version}");
    for path in ["healthz", "livez", "readyz"] {
        let short = admin.get(&format!("/{path}")).await.expect(200);
        assert_eq!((short.text().as_str(), short.header("content-type")), ("ok", "text/plain; charset=utf-8"));
        let long = admin.get(&format!("/{path}?verbose")).await.expect(200).text();
        assert!(long.contains("[+]ping ok\n") && long.contains("[+]log ok\n"), "{long}");
        assert!(long.ends_with(&format!("{path} check passed\n")), "{long}");
        assert_eq!(admin.get(&format!("/{path}/ping")).await.expect(200).text(), "ok");
        admin.get(&format!("/{path}/nonsense")).await.expect(404);
    }
    let paths = admin.get("/").await.expect(200).json();
    for path in ["/api", "/apis/apps/v1", "/healthz", "/metrics", "/openapi/v2", "/openapi/v3"] {
        assert!(paths["paths"].as_array().unwrap().contains(&json!(path)), "{path}");
    }
    admin.post(MAPS, &config_map("one")).await.expect(201);
    let metrics = admin.get("/metrics").await.expect(200).text();
    let value = |start: &str| -> f64 {
        let line = metrics.lines().find(|line| line.starts_with(start));
        let line = line.unwrap_or_else(|| panic!("{start} is not in {metrics}"));
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    };
    let created = "apiserver_request_total{verb=\"POST\",group=\"\",version=\"v1\",resource=\"configmaps\"";
    assert!(value(created) >= 1.0);
    assert!(value("apiserver_storage_objects{resource=\"configmaps\"}") >= 1.0);
    assert!(value("holdfast_log_offset") > 100.0);
    assert!(value("apiserver_request_duration_seconds_count{verb=\"POST\"") >= 1.0);
    server.stop();
}

#[tokio::test]
async fn discovery_and_openapi() {
    let (_folder, server) = start(&[]);
    let admin = HttpClient::admin(&server);
    let api = admin.get("/api").await.expect(200).json();
    assert_eq!((&api["kind"], &api["versions"]), (&json!("APIVersions"), &json!(["v1"])));
    let groups = admin.get("/apis").await.expect(200).json();
    assert_eq!(groups["kind"], "APIGroupList");
    let mut versions = vec!["/api/v1".to_owned()];
    for group in groups["groups"].as_array().unwrap() {
        let name = group["name"].as_str().unwrap();
        assert_eq!(
            admin.get(&format!("/apis/{name}")).await.expect(200).json()["preferredVersion"],
            group["preferredVersion"]
        );
        for version in group["versions"].as_array().unwrap() {
            versions.push(format!("/apis/{}", version["groupVersion"].as_str().unwrap()));
        }
    }
    assert!(versions.len() > 15, "{versions:?}");
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    let mut aggregated = 0;
    for path in ["/api", "/apis"] {
        let answer = admin.get_as(path, accept).await.expect(200);
        assert!(
            answer.header("content-type").contains("as=APIGroupDiscoveryList"),
            "{}",
            answer.header("content-type")
        );
        let list = answer.json();
        assert_eq!(list["kind"], "APIGroupDiscoveryList");
        for group in list["items"].as_array().unwrap() {
            aggregated += group["versions"].as_array().unwrap().len();
        }
        let tag = answer.header("etag").to_owned();
        let again = admin.send(Method::GET, path, &[("accept", accept), ("if-none-match", &tag)], "").await;
        assert_eq!((again.code, again.body.len()), (304, 0));
    }
    assert_eq!(aggregated, versions.len());

    let index = admin.get("/openapi/v3").await.expect(200).json();
    for path in &versions {
        let resources = admin.get(path).await.expect(200).json();
        assert_eq!(resources["kind"], "APIResourceList", "{path}");
        assert!(!resources["resources"].as_array().unwrap().is_empty(), "{path}");
        let url = index["paths"][path.trim_start_matches('/')]["serverRelativeURL"].as_str();
        let document = admin.get(url.unwrap_or_else(|| panic!("{path} is not in the index"))).await.expect(200).json();
        assert!(document["openapi"].as_str().unwrap().starts_with("3."), "{path}");
        for resource in resources["resources"].as_array().unwrap() {
            let name = resource["name"].as_str().unwrap();
            let namespace = if resource["namespaced"] == true { "/namespaces/{namespace}" } else { "" };
            let own = match name.split_once('/') {
                None => format!("{path}{namespace}/{name}"),
                Some((name, subresource)) => format!("{path}{namespace}/{name}/{{name}}/{subresource}"),
            };
            assert!(document["paths"][&own].is_object(), "{own} is not described");
        }
        resolves(&document, &document, path);
    }
    let v2 = admin.get("/openapi/v2").await.expect(200);
    assert_eq!(v2.header("content-type"), "application/json");
    let document = v2.json();
    assert_eq!(document["swagger"], "2.0");
    assert!(document["definitions"]["io.k8s.api.apps.v1.Deployment"]["properties"]["spec"].is_object());
    resolves(&document, &document, "/openapi/v2");
    let asked = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let protobuf = admin.get_as("/openapi/v2", asked).await.expect(200);
    assert!(protobuf.header("content-type").contains("protobuf"), "{}", protobuf.header("content-type"));
    // Field 1 is the swagger version, a text of three characters.
    assert_eq!(&protobuf.body[..5], b"\x0a\x032.0");
    assert!(protobuf.body.len() > 500_000, "{}", protobuf.body.len());
    server.stop();
}

/// Checks that every `$ref` in a document can be resolved.
fn resolves(document: &Value, part: &Value, path: &str) {
    match part {
        Value::Object(fields) => {
            if let Some(target) = fields.get("$ref").and_then(Value::as_str) {
                let pointer = target.strip_prefix('#').expect("a reference within the document");
                assert!(document.pointer(pointer).is_some(), "{path}: {target} leads nowhere");
            }
            fields.values().for_each(|value| resolves(document, value, path));
        }
        Value::Array(items) => items.iter().for_each(|item| resolves(document, item, path)),
        _ => {}
    }
}

#[tokio::test]
async fn certificates_by_the_name_asked_for() {
    let folder = Folder::new();
    let authority = Authority::new("servers");
    let pair = |name: &str, hosts: &[&str]| {
        let (certificate, key) = authority.server(hosts).write(folder.path(), name);
        (certificate.display().to_string(), key.display().to_string())
    };
    let (exact, exact_key) = pair("exact", &["one.example.test"]);
    let (wild, wild_key) = pair("wild", &["*.example.test"]);
    let (named, named_key) = pair("named", &["ignored.test", "given.other.test"]);
    let options = [
        "--tls-sni-cert-key".to_owned(),
        format!("{exact},{exact_key}"),
        "--tls-sni-cert-key".to_owned(),
        format!("{wild},{wild_key}"),
        "--tls-sni-cert-key".to_owned(),
        format!("{named},{named_key}:given.other.test"),
    ];
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let server = Server::start(&folder.join("data"), &options);
    let wire = HttpClient::admin(&server);
    let shown = |name: &str| {
        let trusted = if name.ends_with(".test") { authority.pem().to_owned() } else { wire.authority.clone() };
        let wire = HttpClient { server_name: name.to_owned(), authority: trusted, ..wire.clone() };
        async move {
            let stream = wire.connect().await?;
            let chain = stream.get_ref().1.peer_certificates().expect("a certificate");
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(chain[0].to_vec())
        }
    };
    let file = |path: &str| CertificateDer::from_pem_file(path).unwrap().to_vec();
    assert_eq!(shown("one.example.test").await.unwrap(), file(&exact));
    assert_eq!(shown("two.example.test").await.unwrap(), file(&wild));
    assert_eq!(shown("given.other.test").await.unwrap(), file(&named));
    let own = folder.join("data/pki/server.crt").display().to_string();
    assert_eq!(shown("localhost").await.unwrap(), file(&own));
    assert!(shown("deep.two.example.test").await.is_err(), "a wildcard stands for one label");
    server.stop();
}

static ONLY_OLD: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS12];

#[tokio::test]
async fn oldest_tls_version() {
    let (_folder, server) = start(&[]);
    HttpClient { tls: ONLY_OLD, ..HttpClient::admin(&server) }.get("/version").await.expect(200);
    server.stop();
    let (_folder, server) = start(&["--tls-min-version", "VersionTLS13"]);
    assert!(HttpClient { tls: ONLY_OLD, ..HttpClient::admin(&server) }.connect().await.is_err());
    HttpClient::admin(&server).get("/version").await.expect(200);
    server.stop();
}

#[tokio::test]
async fn a_server_of_ones_own_certificate() {
    let folder = Folder::new();
    let authority = Authority::new("servers");
    let (certificate, key) = authority.server(&["api.example.test"]).write(folder.path(), "own");
    let options = ["--tls-cert-file", text(&certificate), "--tls-private-key-file", text(&key)];
    let server = Server::start(&folder.join("data"), &options);
    let authority = authority.pem().to_owned();
    let wire = HttpClient { server_name: "api.example.test".into(), authority, ..HttpClient::anonymous(&server) };
    wire.get("/version").await.expect(200);
    server.stop();
}

#[test]
fn wrong_options_are_refused_by_name() {
    let folder = Folder::new();
    let cases: &[(&[&str], &str)] = &[
        (&["--etcd-servers", "http://127.0.0.1:2379"], "--etcd-servers"),
        (&["--no-such-option"], "--no-such-option"),
        (&["--tls-min-version", "VersionTLS9"], "VersionTLS9"),
        (&["--authorization-mode", "Nonsense"], "Nonsense"),
        (&["--tls-cipher-suites", "TLS_NONSENSE"], "TLS_NONSENSE"),
        (&["--service-cluster-ip-range", "10.0.0.0"], "10.0.0.0"),
        (&["--client-ca-file", "/nowhere/ca.crt"], "/nowhere/ca.crt"),
        (&["--tls-cert-file", "/nowhere/tls.crt"], "--tls-private-key-file"),
    ];
    for (options, name) in cases {
        let refused =
            Server::try_start(folder.path(), options).err().unwrap_or_else(|| panic!("{options:?} was taken"));
        assert!(!refused.status.success(), "{options:?}");
        assert!(refused.stderr.contains(name), "{options:?}: {}", refused.stderr);
    }
    // As with Go's flags, underscores in an option's name stand for dashes.
    Server::start(folder.path(), &["--max_requests_inflight=7"]).stop();
    let version = holdfast(["version"]);
    assert!(version.status.success());
    assert!(String::from_utf8_lossy(&version.stdout).contains("Kubernetes v1.35"));
}

/// No code refers to the allocator mimalloc, which is linked as `malloc`. So this test checks that it is really used.
#[test]
fn a_process_has_the_allocator_that_it_was_built_with() {
    let version = Command::new(binary()).arg("version").env("MIMALLOC_SHOW_STATS", "1").output().expect("run holdfast");
    let statistics = String::from_utf8_lossy(&version.stderr).into_owned();
    assert!(statistics.contains("pages"), "{statistics}");
}

fn start(options: &[&str]) -> (Folder, Server) {
    let folder = Folder::new();
    let server = Server::start(folder.path(), options);
    (folder, server)
}

/// Grants subjects read access to the default namespace.
async fn bind(admin: &HttpClient, name: &str, subjects: Value) -> Answer {
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": subjects});
    admin.post("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", &binding).await.expect(201)
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}})
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}
