//! Authentication and authorization from outside, with the real binary.

use holdfast_tests::wire::{Answer, HttpClient};
use holdfast_tests::{Folder, Server};
use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JSON: (&str, &str) = ("content-type", "application/json");
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// A server with the users jane and joe, who have no rights yet.
struct Cluster {
    server: Server,
    admin: HttpClient,
    jane: HttpClient,
    joe: HttpClient,
    _folder: Folder,
}

impl Cluster {
    fn start(flags: &[&str]) -> Cluster {
        let folder = Folder::new();
        let file = folder.join("tokens.csv");
        std::fs::write(&file, "j,jane,1\nk,joe,2\n").unwrap();
        let flags = [&["--token-auth-file", file.to_str().unwrap()], flags].concat();
        let server = Server::start(&folder.join("data"), &flags);
        let [jane, joe] = ["j", "k"].map(|token| HttpClient::anonymous(&server).with_token(token));
        Cluster { admin: HttpClient::admin(&server), jane, joe, server, _folder: folder }
    }

    /// Grants a user this rule in the whole cluster.
    async fn allow(&self, user: &str, name: &str, rule: Value) {
        let role = json!({"metadata": {"name": name}, "rules": [rule]});
        self.admin.post(&format!("{RBAC}/clusterroles"), &role).await.expect(201);
        let binding = json!({"metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
        self.admin.post(&format!("{RBAC}/clusterrolebindings"), &binding).await.expect(201);
    }

    async fn allow_maps(&self, user: &str) {
        let rule = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]});
        self.allow(user, &format!("maps-{user}"), rule).await;
    }
}

fn config_map(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

#[tokio::test]
async fn rights_on_paths_do_not_show_the_log() {
    let cluster = Cluster::start(&[]);
    cluster.allow("jane", "paths", json!({"nonResourceURLs": ["*"], "verbs": ["*"]})).await;
    let jane = &cluster.jane;
    jane.get("/metrics").await.expect(200);
    let log = "/holdfast/v1/log";
    // `//holdfast/v1/log` is not a path of the server, so it gives no access to the log.
    jane.get(&format!("/{log}")).await.expect(404);
    for path in [log.to_owned(), format!("{log}/records"), format!("{log}/current"), format!("{log}/")] {
        let denied = jane.get(&path).await.refused(403, "Forbidden");
        let message = denied["message"].as_str().unwrap();
        assert!(message.contains("cannot get resource \"*\" in API group \"*\" at the cluster scope"), "{message}");
    }
    let fork = json!({"folder": cluster._folder.join("fork")});
    jane.post("/holdfast/v1/forks", &fork).await.refused(403, "Forbidden");
    let everything = json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]});
    cluster.allow("jane", "everything", everything).await;
    jane.get(log).await.expect(200);
    jane.get(&format!("{log}/records?limit=3")).await.expect(200);
    cluster.server.stop();
}

#[tokio::test]
async fn a_namespace_is_in_no_namespace() {
    let cluster = Cluster::start(&[]);
    let admin = &cluster.admin;
    let path = "/api/v1/namespaces/default/namespaces/kube-system";
    for method in [Method::GET, Method::PUT, Method::PATCH, Method::DELETE] {
        let patch = [("content-type", "application/merge-patch+json")];
        let headers = if method == Method::PATCH { patch } else { [JSON] };
        let body = if method == Method::GET { "" } else { "{}" };
        admin.send(method, path, &headers, body).await.refused(404, "NotFound");
    }
    admin.get("/api/v1/namespaces/default/namespaces").await.refused(404, "NotFound");
    admin.get("/api/v1/watch/namespaces/default/namespaces").await.refused(404, "NotFound");
    admin.send(Method::DELETE, "/api/v1/namespaces/default/namespaces", &[], "").await.refused(404, "NotFound");
    admin.get("/api/v1/namespaces/kube-system").await.expect(200);
    cluster.server.stop();
}

/// A token of the service account `robot`.
async fn token(admin: &HttpClient, spec: Value) -> String {
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let robot = admin.get(&format!("{accounts}/robot")).await;
    if robot.code == 404 {
        admin.post(accounts, &json!({"metadata": {"name": "robot"}})).await.expect(201);
    }
    let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let made = admin.post(&format!("{accounts}/robot/token"), &asked).await.expect(201).json();
    made["status"]["token"].as_str().expect("a token").to_owned()
}

async fn review(admin: &HttpClient, token: &str, audiences: Value) -> Value {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": token, "audiences": audiences}});
    admin.post("/apis/authentication.k8s.io/v1/tokenreviews", &review).await.expect(201).json()["status"].clone()
}

#[tokio::test]
async fn a_token_is_good_for_its_own_audiences() {
    let cluster = Cluster::start(&[]);
    let admin = &cluster.admin;
    let vault = token(admin, json!({"audiences": ["vault", "bank"]})).await;
    let own = token(admin, json!({})).await;
    let server = review(admin, &own, json!(null)).await["audiences"].clone();
    for (token, asked, audiences) in [
        (&vault, json!(null), json!(null)),
        (&vault, json!(["vault"]), json!(["vault"])),
        (&vault, json!(["shop", "bank"]), json!(["bank"])),
        (&vault, json!(["shop"]), json!(null)),
        (&own, json!(["vault"]), json!(null)),
        (&own, server.clone(), server.clone()),
    ] {
        let status = review(admin, token, asked.clone()).await;
        assert_eq!(status["audiences"], audiences, "{asked}: {status}");
        assert_eq!(status["authenticated"] == true, !audiences.is_null(), "{asked}: {status}");
    }
    // A token for another audience is rejected.
    HttpClient::anonymous(&cluster.server).with_token(&vault).get("/version").await.refused(401, "Unauthorized");
    HttpClient::anonymous(&cluster.server).with_token(&own).get("/version").await.expect(200);
    // The server counts five uses of valid tokens: four successful reviews, and one request.
    let metrics = admin.get("/metrics").await.text();
    let uses = metrics.lines().find_map(|line| line.strip_prefix("serviceaccount_valid_tokens_total "));
    assert_eq!(uses, Some("5"));
    assert!(metrics.lines().any(|line| line == "serviceaccount_stale_tokens_total 0"));
    cluster.server.stop();
}

#[tokio::test]
async fn a_token_goes_with_the_node_that_it_is_bound_to() {
    let cluster = Cluster::start(&[]);
    let admin = &cluster.admin;
    let node = json!({"metadata": {"name": "n1"}});
    admin.post("/api/v1/nodes", &node).await.expect(201);
    let bound = json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Node", "name": "n1"}});
    let bound = token(admin, bound).await;
    let robot = HttpClient::anonymous(&cluster.server).with_token(&bound);
    robot.get("/version").await.expect(200);
    admin.send(Method::DELETE, "/api/v1/nodes/n1", &[], "").await.expect(200);
    robot.get("/version").await.refused(401, "Unauthorized");
    // A new node with the same name has another UID, so the token of the old node stays invalid.
    admin.post("/api/v1/nodes", &node).await.expect(201);
    robot.get("/version").await.refused(401, "Unauthorized");
    assert_eq!(review(admin, &bound, json!(null)).await["authenticated"], json!(null));
    cluster.server.stop();
}

#[tokio::test]
async fn where_all_is_allowed_nobody_is_anonymous() {
    let cluster = Cluster::start(&["--authorization-mode", "RBAC,AlwaysAllow", "--anonymous-auth=true"]);
    HttpClient::anonymous(&cluster.server).get(MAPS).await.refused(401, "Unauthorized");
    cluster.jane.get(MAPS).await.expect(200);
    cluster.server.stop();
}

#[tokio::test]
async fn request_ids_are_short() {
    let cluster = Cluster::start(&[]);
    let admin = HttpClient { http2: false, ..cluster.admin.clone() };
    let given = admin.send(Method::GET, MAPS, &[("audit-id", "mine-1")], "").await.expect(200);
    assert_eq!(given.header("audit-id"), "mine-1");
    for strange in ["x".repeat(60 << 10), "x".repeat(65), "a b".into(), "\"".into()] {
        let headers = [JSON, ("audit-id", strange.as_str())];
        let path = format!("{MAPS}?dryRun=All");
        let answer = admin.send(Method::POST, &path, &headers, config_map("a").to_string()).await.expect(201);
        let id = answer.header("audit-id");
        assert!(id != strange && !id.is_empty() && id.len() <= 64, "{id}");
    }
    cluster.server.stop();
}

#[tokio::test]
async fn what_is_only_posted_has_no_table() {
    let cluster = Cluster::start(&[]);
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let body = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let metadata = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let ask = async |accept: &str| -> Answer {
        cluster.jane.send(Method::POST, path, &[JSON, ("accept", accept)], body.to_string()).await
    };
    for accept in [table, "application/cbor"] {
        ask(accept).await.refused(406, "NotAcceptable");
    }
    assert_eq!(ask(metadata).await.expect(201).json()["kind"], "PartialObjectMetadata");
    for accept in [format!("{table},application/json"), "application/cbor, application/json".into()] {
        assert_eq!(ask(&accept).await.expect(201).json()["kind"], "SelfSubjectAccessReview");
    }
    cluster.server.stop();
}

#[tokio::test]
async fn what_strangers_ask_for_is_counted_without_names() {
    let cluster = Cluster::start(&[]);
    for number in 0..5 {
        let stranger = HttpClient::anonymous(&cluster.server);
        stranger.get(&format!("/apis/strange-{number}/v1/strange-{number}")).await.refused(403, "Forbidden");
        stranger.get(&format!("{MAPS}/a/strange-{number}")).await.refused(403, "Forbidden");
        cluster.admin.get(&format!("//apis///apps/{}", "/".repeat(number))).await.expect(404);
    }
    let metrics = cluster.admin.get("/metrics").await.expect(200).text();
    assert!(!metrics.contains("strange"), "{metrics}");
    cluster.server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_bodies_keep_nobody_out() {
    const CONTINUE: [u8; 25] = *b"HTTP/1.1 100 Continue\r\n\r\n";
    let cluster = Cluster::start(&["--max-mutating-requests-inflight", "2"]);
    cluster.allow_maps("jane").await;
    cluster.allow_maps("joe").await;
    let head = format!(
        "POST {MAPS} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer j\r\ncontent-type: application/json\r\n\
         content-length: 9999\r\nexpect: 100-continue\r\n\r\n"
    );
    let mut slow = Vec::new();
    for _ in 0..8 {
        let mut connection = HttpClient { http2: false, ..cluster.jane.clone() }.connect().await.expect("a connection");
        connection.write_all(head.as_bytes()).await.unwrap();
        // The server asks for the body (`100 Continue`) when it begins to read the body.
        let mut asks = [0; CONTINUE.len()];
        connection.read_exact(&mut asks).await.unwrap();
        assert_eq!(asks, CONTINUE);
        connection.write_all(b"{").await.unwrap();
        slow.push(connection);
    }
    for (number, user) in [&cluster.joe, &cluster.jane, &cluster.joe, &cluster.jane].into_iter().enumerate() {
        user.post(MAPS, &config_map(&format!("m{number}"))).await.expect(201);
    }
    drop(slow);
    cluster.server.stop();
}
