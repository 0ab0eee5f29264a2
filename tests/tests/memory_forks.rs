//! Forks in the server's memory: the state that they share with the server, the state that they must not share, and
//! their end.

use holdfast_tests::wire::HttpClient;
use holdfast_tests::{Folder, Server, eventually};
use http::Method;
use serde_json::{Value, json};
use std::time::Duration;

const FORKS: &str = "/holdfast/v1/forks";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const PATIENCE: Duration = Duration::from_secs(30);

/// A server, its administrator, and the user jane with a token.
struct Cluster {
    _folder: Folder,
    server: Server,
    admin: HttpClient,
    jane: HttpClient,
}

impl Cluster {
    fn start(options: &[&str]) -> Cluster {
        let folder = Folder::new();
        let tokens = folder.join("tokens.csv");
        std::fs::write(&tokens, "jane-token,jane,1\n").unwrap();
        let tokens = format!("--token-auth-file={}", tokens.display());
        let server = Server::start(&folder.join("data"), &[&[tokens.as_str()], options].concat());
        let (admin, jane) = (HttpClient::admin(&server), HttpClient::anonymous(&server).with_token("jane-token"));
        Cluster { _folder: folder, server, admin, jane }
    }

    /// Makes a fork of the cluster at `below`, and returns its path.
    async fn fork(&self, below: &str, wanted: &Value) -> String {
        let made = self.admin.post(&format!("{below}{FORKS}"), wanted).await.expect(201).json();
        made["path"].as_str().expect("a path").to_owned()
    }

    async fn names(&self, below: &str) -> Vec<String> {
        let list = self.admin.get(&format!("{below}{MAPS}")).await.expect(200).json();
        let names = list["items"].as_array().expect("items").iter();
        let names = names.map(|item| item["metadata"]["name"].as_str().expect("a name").to_owned());
        names.filter(|name| name != "kube-root-ca.crt").collect()
    }

    /// Makes jane an administrator of the cluster at `below`.
    async fn enthrone(&self, below: &str) {
        let binding = json!({"metadata": {"name": "jane"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]});
        self.admin.post(&format!("{below}{RBAC}/clusterrolebindings"), &binding).await.expect(201);
    }
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

fn name_of(path: &str) -> &str {
    path.rsplit('/').next().expect("a name")
}

#[tokio::test]
async fn a_fork_is_served_below_its_path() {
    let cluster = Cluster::start(&[]);
    let admin = &cluster.admin;
    admin.post(MAPS, &map("first")).await.expect(201);
    let fork = cluster.fork("", &json!({})).await;
    admin.post(&format!("{fork}{MAPS}"), &map("forked")).await.expect(201);
    admin.post(MAPS, &map("second")).await.expect(201);
    assert_eq!(cluster.names(&fork).await, ["first", "forked"]);
    assert_eq!(cluster.names("").await, ["first", "second"]);
    for path in ["", "/", "/apis", "/version", "/readyz", "/livez", "/metrics", "/openapi/v2", "/holdfast/v1/log"] {
        admin.get(&format!("{fork}{path}")).await.expect(200);
    }
    // Equal APIs have equal documents, and a fork's own kinds are only in the fork's documents.
    let tag = |answer: holdfast_tests::wire::Answer| answer.header("etag").to_owned();
    assert_eq!(tag(admin.get("/openapi/v2").await), tag(admin.get(&format!("{fork}/openapi/v2")).await));
    let log = admin.get(&format!("{fork}/holdfast/v1/log")).await.expect(200).json();
    let of_parent = admin.get("/holdfast/v1/log").await.expect(200).json();
    assert_ne!(log["id"], of_parent["id"], "{log} is another log");
    let listed = admin.get(FORKS).await.expect(200).json();
    assert_eq!(listed["forks"].as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(listed["forks"][0], admin.get(&format!("{FORKS}/{}", name_of(&fork))).await.expect(200).json());
    admin.send(Method::DELETE, &format!("{FORKS}/{}", name_of(&fork)), &[], "").await.expect(200);
    admin.get(&format!("{fork}{MAPS}")).await.expect(404);
    admin.send(Method::DELETE, &format!("{FORKS}/{}", name_of(&fork)), &[], "").await.refused(404, "NotFound");
    assert!(!cluster.server.stderr().contains(name_of(&fork)), "who knows the name may knock");
    cluster.server.stop();
}

#[tokio::test]
async fn who_may_not_read_everything_has_no_fork_and_finds_none() {
    let cluster = Cluster::start(&[]);
    let Cluster { admin, jane, .. } = &cluster;
    let fork = cluster.fork("", &json!({})).await;
    jane.post(FORKS, &json!({})).await.refused(403, "Forbidden");
    jane.get(FORKS).await.refused(403, "Forbidden");
    jane.send(Method::DELETE, &format!("{FORKS}/{}", name_of(&fork)), &[], "").await.refused(403, "Forbidden");
    // In a fork jane is authenticated as in the server, and anonymous clients are anonymous.
    jane.get(&format!("{fork}{MAPS}")).await.refused(403, "Forbidden");
    HttpClient::anonymous(&cluster.server).get(&format!("{fork}{MAPS}")).await.refused(403, "Forbidden");
    HttpClient::anonymous(&cluster.server)
        .with_token("made-up")
        .get(&format!("{fork}{MAPS}"))
        .await
        .refused(401, "Unauthorized");
    jane.get(&format!("/forks/{}{MAPS}", "0".repeat(32))).await.refused(403, "Forbidden");
    for path in ["/forks", "/forks/", "/forks//api", "/forks/x", "/forks/../api/v1/pods", "/at/1/forks/x"] {
        admin.get(path).await.expect(404);
    }
    cluster.server.stop();
}

#[tokio::test]
async fn who_rules_in_a_fork_rules_nowhere_else() {
    let cluster = Cluster::start(&[]);
    let Cluster { admin, jane, .. } = &cluster;
    admin.post("/api/v1/namespaces/kube-system/serviceaccounts", &map("robot")).await.expect(201);
    let (fork, sibling) = (cluster.fork("", &json!({})).await, cluster.fork("", &json!({})).await);
    cluster.enthrone(&fork).await;
    jane.get(&format!("{fork}/api/v1/secrets")).await.expect(200);
    for below in ["", &sibling] {
        jane.get(&format!("{below}/api/v1/secrets")).await.refused(403, "Forbidden");
        jane.get(&format!("{below}{FORKS}")).await.refused(403, "Forbidden");
    }
    // Jane can list and end forks of her fork, and cannot make forks on disk.
    let listed = jane.get(&format!("{fork}{FORKS}")).await.expect(200).json();
    assert_eq!(listed, json!({"forks": []}));
    for other in [name_of(&sibling), name_of(&fork)] {
        jane.send(Method::DELETE, &format!("{fork}{FORKS}/{other}"), &[], "").await.refused(404, "NotFound");
        jane.get(&format!("{fork}{FORKS}/{other}")).await.refused(404, "NotFound");
    }
    let folder = cluster._folder.join("stolen");
    jane.post(&format!("{fork}{FORKS}"), &json!({"folder": folder})).await.refused(404, "NotFound");
    assert!(!folder.exists());
    let below = jane.post(&format!("{fork}{FORKS}"), &json!({})).await.expect(201).json();
    jane.get(&format!("{}/api/v1/secrets", below["path"].as_str().unwrap())).await.expect(200);
    // A token signed in a fork is valid only in that fork.
    let accounts = "/api/v1/namespaces/kube-system/serviceaccounts/robot/token";
    let signed = jane.post(&format!("{fork}{accounts}"), &json!({"spec": {}})).await.expect(201).json();
    let account =
        HttpClient::anonymous(&cluster.server).with_token(signed["status"]["token"].as_str().expect("a token"));
    account.get(&format!("{fork}/api")).await.expect(200);
    for elsewhere in ["", &sibling] {
        account.get(&format!("{elsewhere}/api")).await.refused(401, "Unauthorized");
    }
    cluster.server.stop();
}

#[tokio::test]
async fn forks_are_bounded_and_end() {
    let cluster = Cluster::start(&["--forks-max=6"]);
    let admin = &cluster.admin;
    cluster.enthrone("").await;
    let first = cluster.fork("", &json!({})).await;
    let below = cluster.fork(&first, &json!({})).await;
    cluster.fork(&below, &json!({})).await;
    admin.post(FORKS, &json!({})).await.refused(429, "TooManyRequests");
    cluster.jane.post(FORKS, &json!({})).await.expect(201);
    // Ending a fork also ends the forks that were made of this fork.
    admin.send(Method::DELETE, &format!("{FORKS}/{}", name_of(&first)), &[], "").await.expect(200);
    for gone in [&first, &below] {
        admin.get(&format!("{gone}/api")).await.expect(404);
    }
    let idle = cluster.fork("", &json!({"idleSeconds": 1})).await;
    eventually(PATIENCE, async || {
        let listed = admin.get(FORKS).await.expect(200).json();
        let is_there = listed["forks"].as_array().into_iter().flatten().any(|fork| fork["path"] == *idle);
        if is_there { Err("it is still there") } else { Ok(()) }
    })
    .await;
    for (body, code) in [
        (json!({"at": "999999"}), 400),
        (json!({"at": "yesterday"}), 400),
        (json!({"when": "1"}), 400),
        (json!({"idleSeconds": -1}), 400),
        (json!([]), 400),
    ] {
        admin.post(FORKS, &body).await.refused(code, "BadRequest");
    }
    admin.send(Method::PUT, FORKS, &[], "{}").await.refused(405, "MethodNotAllowed");
    cluster.server.stop();
}

#[tokio::test]
async fn a_chain_of_forks_has_an_end() {
    let cluster = Cluster::start(&[]);
    let mut path = String::new();
    for _ in 0..32 {
        path = cluster.fork(&path, &json!({})).await;
    }
    cluster.admin.post(&format!("{path}{MAPS}"), &map("deep")).await.expect(201);
    assert_eq!(cluster.names(&path).await, ["deep"]);
    assert!(cluster.names(&format!("{path}/at/1")).await.is_empty());
    cluster.admin.post(&format!("{path}{FORKS}"), &json!({})).await.refused(400, "BadRequest");
    cluster.server.stop();
}

#[tokio::test]
async fn no_forks_are_made_where_none_are_wanted() {
    let cluster = Cluster::start(&["--forks-max=0"]);
    let refused = cluster.admin.post(FORKS, &json!({})).await.refused(400, "BadRequest");
    assert!(refused["message"].as_str().unwrap().contains("--forks-max"), "{refused}");
    cluster.server.stop();
}
