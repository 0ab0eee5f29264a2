//! Targets that must not be reached, users without rights, upgrades that are not possible, and broken kubelets.

use crate::cluster::{Cluster, PODS, websocket_headers};
use futures_util::StreamExt;
use holdfast_tests::authority::Authority;
use holdfast_tests::kubelet::Kubelet;
use holdfast_tests::wire::HttpClient;
use http::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio_tungstenite::tungstenite::Message;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_must_not_be_reached_is_not() {
    let Some(cluster) = Cluster::start(&["web", "moved"]).await else { return };
    let (admin, port) = (&cluster.admin, cluster.kubelet.address.port());
    let spdy = [("connection", "Upgrade"), ("upgrade", "SPDY/3.1"), ("x-stream-protocol-version", "v4.channel.k8s.io")];
    for (at, host) in ["127.0.0.1", "localhost", "169.254.169.254", "0.0.0.0", "::1"].into_iter().enumerate() {
        let (node, pod) = (format!("bad-{at}"), format!("bad-{at}"));
        cluster.node(&node, host, port).await;
        cluster.pod(&pod, &node).await;
        for path in [format!("{PODS}/{pod}/log"), format!("/api/v1/nodes/{node}/proxy/pods")] {
            let status = admin.get(&path).await.expect(400).json();
            assert_eq!(status["message"], "address not allowed", "{host} {path}");
        }
        let path = format!("{PODS}/{pod}/exec?command=ls&stdout=true");
        let answer = admin.send(Method::POST, &path, &spdy, "").await.expect(400);
        assert_eq!(answer.json()["message"], "address not allowed", "{host}");
    }
    // The annotation of simulated nodes alone grants nothing.
    let marked = json!({"metadata": {"annotations": {"simulate.holdfast.dev/node": "true"}}});
    let patch = [("content-type", "application/merge-patch+json")];
    admin.send(Method::PATCH, "/api/v1/nodes/bad-0", &patch, marked.to_string()).await.expect(200);
    admin.get(&format!("{PODS}/bad-0/log")).await.expect(400);
    // The server refuses its own address as the address of a kubelet.
    let own: u16 = cluster.server.url().rsplit(':').next().expect("a port").parse().expect("a number");
    let address = cluster.kubelet.address.ip().to_string();
    cluster.node("itself", &address, own).await;
    cluster.pod("itself", "itself").await;
    admin.get(&format!("{PODS}/itself/log")).await.expect(400);
    // A kubelet whose certificate another authority has signed is refused.
    let other = Kubelet::start(cluster.kubelet.address.ip(), &Authority::new("others"), &address).await;
    cluster.node("other", &address, other.address.port()).await;
    cluster.pod("other", "other").await;
    let message =
        admin.get(&format!("{PODS}/other/log")).await.expect(500).json()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("x509"), "{message}");
    // A kubelet whose certificate is valid for another name is refused.
    let named = Kubelet::start(cluster.kubelet.address.ip(), &cluster.authority, "elsewhere.example.com").await;
    cluster.node("named", &address, named.address.port()).await;
    cluster.pod("named", "named").await;
    admin.get(&format!("{PODS}/named/log")).await.expect(500);
    // The kubelet answers this request with a redirect.
    let path = format!("{PODS}/moved/exec?command=ls&stdout=true");
    let answer = admin.send(Method::POST, &path, &spdy, "").await.expect(500);
    assert_eq!(answer.json()["message"], "invalid upgrade response: status code 302");
    // A request to exec without upgrade headers is refused.
    let path = format!("{PODS}/web/exec?command=ls&stdout=true");
    let answer = admin.send(Method::POST, &path, &[], "").await.expect(400);
    assert_eq!(answer.json()["message"], "Upgrade request required");
    let answer = admin.send(Method::POST, &format!("{path}&dryRun=All"), &spdy, "").await.expect(400);
    assert_eq!(answer.json()["message"], "dryRun is not supported");
    // Nothing listens at this node's port.
    cluster.node("closed", &address, 1).await;
    cluster.pod("closed", "closed").await;
    let answer = admin.send(Method::POST, &format!("{PODS}/closed/exec?command=ls"), &spdy, "").await.expect(500);
    let message = answer.json()["message"].as_str().unwrap().to_owned();
    assert_eq!(message, format!("error dialing backend: dial tcp {address}:1: connect: connection refused"));
    assert_eq!(status_of(&cluster, &format!("{PODS}/closed/exec?stdout=true")).await["code"], 500);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whoever_may_only_read_runs_nothing() {
    let Some(cluster) = Cluster::start(&["web"]).await else { return };
    let admin = &cluster.admin;
    cluster.let_read("jane").await;
    let jane = [("impersonate-user", "jane")];
    let get = async |path: &str| admin.send(Method::GET, path, &jane, "").await;
    get(&format!("{PODS}/web/log")).await.expect(200);
    get("/api/v1/nodes/n/proxy/pods").await.expect(200);
    for path in [
        format!("{PODS}/web/exec?command=ls&stdout=true"),
        format!("{PODS}/web/attach?stdout=true"),
        format!("{PODS}/web/portforward?ports=80"),
        "/api/v1/nodes/n/proxy/exec/default/web/c?command=ls&output=1".to_owned(),
        "/api/v1/nodes/n/proxy/run/default/web/c?cmd=ls".to_owned(),
        "/api/v1/nodes/n/proxy//exec/default/web/c".to_owned(),
        "/api/v1/nodes/n/proxy/x/../%65xec/default/web/c".to_owned(),
        "/api/v1/nodes/n/proxy/portForward/default/web".to_owned(),
    ] {
        let status = get(&path).await.refused(403, "Forbidden");
        let message = status["message"].as_str().unwrap();
        assert!(message.contains("cannot create resource"), "{path}: {message}");
    }
}

/// Requests that cannot be upgraded are refused while the connection is still HTTP: by this server, or with the
/// kubelet's own answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn upgrades_that_cannot_be_are_refused() {
    let Some(cluster) = Cluster::start(&["web"]).await else { return };
    cluster.pod("nowhere", "").await;
    cluster.pod("lost", "lost").await;
    let spdy = |protocol: &'static str| {
        let mut headers = vec![("connection", "Upgrade"), ("upgrade", "SPDY/3.1")];
        headers.extend((!protocol.is_empty()).then_some(("x-stream-protocol-version", protocol)));
        headers
    };
    let (ls, v4) = ("command=ls&stdout=true", "v4.channel.k8s.io");
    for (method, path, headers, code, expected) in [
        (Method::POST, format!("nowhere/exec?{ls}"), spdy(v4), 400, "pod nowhere does not have a host assigned"),
        (Method::POST, format!("lost/exec?{ls}"), spdy(v4), 404, "\"lost\" not found"),
        (Method::POST, format!("web/exec?{ls}&container=x"), spdy(v4), 400, "container x is not valid for pod web"),
        (Method::POST, format!("web/exec?{ls}"), spdy(""), 400, "header X-Stream-Protocol-Version does not exist"),
        (Method::POST, format!("web/exec?{ls}"), spdy("v9.channel.k8s.io"), 403, "unable to negotiate protocol"),
        (Method::GET, format!("web/exec?{ls}"), websocket_headers("v9.channel.k8s.io"), 403, "unable to upgrade"),
        (Method::GET, "web/portforward".to_owned(), websocket_headers("SPDY/3.1+x.k8s.io"), 403, "negotiate protocol"),
        (Method::POST, "web/portforward?ports=x".to_owned(), spdy("portforward.k8s.io"), 400, "\"x\""),
    ] {
        let answer = cluster.admin.send(method.clone(), &format!("{PODS}/{path}"), &headers, "").await;
        let (found, text) = (answer.code, answer.text());
        // The answer is a Status in JSON, so the quotes in its message are escaped.
        assert!(found == code && text.replace("\\\"", "\"").contains(expected), "{method} {path}: {found} {text}");
        if expected == "unable to negotiate protocol" {
            assert_eq!(answer.headers.get_all("x-accepted-stream-protocol-versions").iter().count(), 4);
        }
    }
    // The server passes the name of the tunnel's protocol on to the kubelet.
    let (_, headers) = cluster.kubelet.seen().pop().expect("a request");
    assert_eq!(headers["x-stream-protocol-version"], "x.k8s.io");
    // A request over HTTP/2 cannot be upgraded, because HTTP/2 has no upgrades.
    let http2 = HttpClient { http2: true, ..cluster.admin.clone() };
    let status = http2.send(Method::POST, &format!("{PODS}/web/exec?{ls}"), &[], "").await.expect(400).json();
    assert_eq!(status["message"], "Upgrade request required");
}

/// A kubelet may send any answer, even an endless answer. The client gets an error, and other requests are answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_kubelet_that_answers_rubbish_or_without_end_is_an_error() {
    let Some(cluster) = Cluster::start(&["web", "endless", "headers", "moved", "rubbish"]).await else { return };
    let address = cluster.kubelet.address.ip().to_string();
    // The program at this address accepts connections, and does not speak TLS.
    let listener = tokio::net::TcpListener::bind((address.as_str(), 0)).await.expect("a port");
    cluster.node("garbage", &address, listener.local_addr().expect("an address").port()).await;
    cluster.pod("garbage", "garbage").await;
    let serving = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            _ = stream.write_all(&[b'?'; 4096]).await;
        }
    });
    for (pod, code, message) in [
        ("endless", 418, "the server responded with the status code 418 but did not return more details"),
        ("headers", 500, "Get \"https://"),
        ("moved", 500, "redirects forbidden"),
        ("garbage", 500, "Get \"https://"),
    ] {
        let status = cluster.admin.get(&format!("{PODS}/{pod}/log")).await.expect(code).json();
        assert!(status["message"].as_str().is_some_and(|said| said.contains(message)), "{pod}: {status}");
        if pod == "endless" {
            let cause = status["details"]["causes"][0]["message"].as_str().expect("a cause");
            assert_eq!(cause.len(), 50_000, "as much as Kubernetes reads");
        }
    }
    let spdy = [("connection", "Upgrade"), ("upgrade", "SPDY/3.1"), ("x-stream-protocol-version", "v4.channel.k8s.io")];
    for (pod, code, length) in [("endless", 418, 1 << 20), ("headers", 500, 0), ("moved", 500, 0), ("garbage", 500, 0)]
    {
        let path = format!("{PODS}/{pod}/exec?command=ls&stdout=true");
        let answer = cluster.admin.send(Method::POST, &path, &spdy, "").await.expect(code);
        assert!(length == 0 || answer.body.len() == length, "{pod}: {} bytes", answer.body.len());
        let status = status_of(&cluster, &path).await;
        assert_eq!((&status["status"], &status["code"]), (&json!("Failure"), &json!(500)), "{pod}: {status}");
    }
    // The kubelet sends malformed frames after the upgrade.
    let status = status_of(&cluster, &format!("{PODS}/rubbish/exec?stdout=true")).await;
    assert_eq!(status["status"], "Failure", "{status}");
    serving.abort();
    assert_eq!(cluster.admin.get(&format!("{PODS}/web/log")).await.expect(200).text(), "a line\n\n");
}

/// The Status that a WebSocket of version 5 ends with.
async fn status_of(cluster: &Cluster, path: &str) -> Value {
    let mut socket = cluster.websocket(path, "v5.channel.k8s.io").await;
    let mut status = Vec::new();
    while let Some(Ok(message)) = socket.next().await {
        if let Message::Binary(bytes) = message
            && bytes.first() == Some(&3)
        {
            status.extend_from_slice(&bytes[1..]);
        }
    }
    serde_json::from_slice(&status).expect("a status")
}
