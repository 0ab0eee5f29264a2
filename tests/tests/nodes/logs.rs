//! Logs of containers, and what feature gates change about them.

use crate::cluster::{Cluster, PATIENCE, PODS, here, websocket_headers};
use base64::Engine as _;
use futures_util::StreamExt;
use holdfast_tests::authority::Authority;
use holdfast_tests::eventually;
use holdfast_tests::kubelet::Kubelet;
use http::Method;
use http_body_util::BodyExt;
use serde_json::json;
use std::io::{BufRead, BufReader};
use tokio_tungstenite::tungstenite::Message;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn logs_are_read_and_followed() {
    let Some(cluster) = Cluster::start(&["web", "waiting", "broken", "gone", "moved"]).await else { return };
    let admin = &cluster.admin;
    cluster.pod("nowhere", "").await;
    let log = admin.get(&format!("{PODS}/web/log?tailLines=5&timestamps=true&limitBytes=100")).await.expect(200);
    assert_eq!(log.text(), "a line\nlimitBytes=100&tailLines=5&timestamps=true\n");
    assert_eq!(log.header("content-type"), "text/plain");
    let (path, headers) = cluster.kubelet.seen().pop().expect("a request");
    assert!(path.starts_with("/containerLogs/default/web/c?"), "{path}");
    assert!(!headers.contains_key("authorization") && !headers.contains_key("x-remote-user"));
    assert!(admin.get(&format!("{PODS}/nowhere/log")).await.expect(204).body.is_empty());
    let told = |answer: holdfast_tests::wire::Answer| {
        let status = answer.json();
        (
            status["code"].as_u64().unwrap(),
            status["reason"].as_str().unwrap_or_default().to_owned(),
            status["message"].as_str().unwrap().to_owned(),
        )
    };
    for (path, code, reason, message) in [
        ("waiting/log", 400, "BadRequest", "container \"c\" in pod \"waiting\" is waiting to start: x"),
        ("broken/log", 500, "InternalError", "Internal error occurred: it is broken"),
        ("gone/log", 404, "NotFound", "the server could not find the requested resource ( pods/log gone)"),
        ("web/log?container=x", 400, "BadRequest", "container x is not valid for pod web"),
        ("none/log", 404, "NotFound", "pods \"none\" not found"),
        (
            "web/log?limitBytes=0",
            422,
            "Invalid",
            "PodLogOptions \"web\" is invalid: limitBytes: Invalid value: 0: must be greater than 0",
        ),
        (
            "web/log?sinceSeconds=0",
            422,
            "Invalid",
            "PodLogOptions \"web\" is invalid: sinceSeconds: Invalid value: 0: must be greater than 0",
        ),
        (
            "web/log?tailLines=-1",
            422,
            "Invalid",
            "PodLogOptions \"web\" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0",
        ),
    ] {
        let found = told(admin.get(&format!("{PODS}/{path}")).await);
        assert_eq!(found, (code, reason.to_owned(), message.to_owned()), "{path}");
    }
    let (_, _, message) = told(admin.get(&format!("{PODS}/moved/log")).await.expect(500));
    assert!(message.ends_with("redirects forbidden"), "{message}");

    // The client gets a followed log line by line. The connection to the node ends when the client disconnects.
    let path = format!("{PODS}/web/log?follow=true");
    let mut follow = admin.open(Method::GET, &path, &[], Default::default()).await.expect("an answer");
    let mut text = String::new();
    while !text.contains("line 3\n") {
        let frame = tokio::time::timeout(PATIENCE, follow.body_mut().frame()).await.expect("in time").expect("a frame");
        text.push_str(&String::from_utf8_lossy(&frame.expect("no fault").into_data().expect("data")));
    }
    assert!(text.starts_with("line 0\nline 1\n"), "{text}");
    drop(follow);
    tokio::time::timeout(PATIENCE, cluster.kubelet.is_left()).await.expect("the kubelet is left alone");

    for protocol in ["", "binary.k8s.io", "base64.binary.k8s.io"] {
        let mut socket = cluster.websocket(&format!("{PODS}/web/log"), protocol).await;
        let mut text = Vec::new();
        while let Some(Ok(message)) = socket.next().await {
            match message {
                Message::Binary(piece) => text.extend(piece),
                Message::Text(piece) => {
                    text.extend(base64::engine::general_purpose::STANDARD.decode(piece.as_str()).expect("base64"));
                }
                _ => {}
            }
        }
        assert_eq!(text, b"a line\n\n", "{protocol}");
    }
    let (path, headers) = (format!("{PODS}/web/log"), websocket_headers("v4.channel.k8s.io"));
    let answer = admin.open(Method::GET, &path, &headers, Default::default()).await.expect("an answer");
    assert_eq!(answer.status(), 403, "no protocol of logs");

    for version in ["1.20", "1.37"].into_iter().filter(|version| here(version)) {
        let (code, output, errors) = cluster.run(version, ("X", ""), &["logs", "web", "--tail=7"], "");
        assert_eq!((code, output.as_str()), (0, "a line\ntailLines=7\n"), "{errors}");
        let mut child = cluster.kubectl(version, &["logs", "-f", "web"]).spawn().expect("kubectl runs");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        assert!(lines.map_while(Result::ok).any(|line| line == "line 5"));
        child.kill().expect("it is there");
        child.wait().expect("it ends");
    }
    tokio::time::timeout(PATIENCE, cluster.kubelet.is_left()).await.expect("the kubelet is left alone");
}

/// Without their feature gates, certain requests to nodes are refused or sent differently.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn gates_change_what_nodes_are_asked() {
    const REMOTE: &str = "TranslateStreamCloseWebsocketRequests";
    const FORWARD: &str = "PortForwardWebsockets";
    let exec = ("web/exec?command=ls&stdout=true", "v5.channel.k8s.io");
    let forward = ("web/portforward", "SPDY/3.1+portforward.k8s.io");
    // The protocol that the kubelet is asked to upgrade to, for a node that declares nothing and for one with
    // WebSockets.
    for (gates, part, expected) in [
        ("", exec, ["spdy/3.1", "websocket"]),
        ("", forward, ["spdy/3.1", "websocket"]),
        (REMOTE, exec, ["websocket", "websocket"]),
        (REMOTE, forward, ["spdy/3.1", "websocket"]),
        (FORWARD, exec, ["spdy/3.1", "websocket"]),
        (FORWARD, forward, ["websocket", "websocket"]),
        ("ExtendWebSocketsToKubelet", exec, ["spdy/3.1", "spdy/3.1"]),
        ("ExtendWebSocketsToKubelet", forward, ["spdy/3.1", "spdy/3.1"]),
    ] {
        let options = [format!("--feature-gates={gates}=false")];
        let options: Vec<&str> = options.iter().map(String::as_str).filter(|_| !gates.is_empty()).collect();
        let Some(cluster) = Cluster::start_with(&["web"], &options).await else { return };
        for (declared, expected) in [json!([]), json!(["ExtendWebSocketsToKubelet"])].iter().zip(expected) {
            let status = json!({"status": {"declaredFeatures": declared}}).to_string();
            let patch = [("content-type", "application/merge-patch+json")];
            cluster.admin.send(Method::PATCH, "/api/v1/nodes/n/status", &patch, status).await.expect(200);
            let ((path, protocol), before) = (part, cluster.kubelet.seen().len());
            let _socket = cluster.websocket(&format!("{PODS}/{path}"), protocol).await;
            let asked = || async { cluster.kubelet.seen().split_off(before).pop().ok_or("nothing yet") };
            let asked = eventually(PATIENCE, asked).await;
            let wire = asked.1["upgrade"].to_str().expect("text").to_ascii_lowercase();
            assert_eq!(wire, expected, "{gates} {path} {declared}");
        }
    }

    let off = "--feature-gates=AuthorizePodWebsocketUpgradeCreatePermission=false,AllowInsecureBackendProxy=false";
    let Some(cluster) = Cluster::start_with(&["web"], &[off]).await else { return };
    cluster.let_read("jane").await;
    let mut headers = websocket_headers("v4.channel.k8s.io");
    headers.push(("impersonate-user", "jane"));
    let path = format!("{PODS}/web/exec?command=ls&stdout=true");
    let answer = cluster.admin.open(Method::GET, &path, &headers, Default::default()).await.expect("an answer");
    assert_eq!(answer.status(), 101, "reading is enough");
    let path = "/api/v1/nodes/n/proxy/exec/default/web/c?command=ls&output=1";
    let answer = cluster.admin.open(Method::GET, path, &headers, Default::default()).await.expect("an answer");
    assert_eq!(answer.status(), 403, "the gate is about pods");
    // The client asks the server not to verify the kubelet's certificate. With the gate off, the server still refuses a
    // certificate of another authority.
    let address = cluster.kubelet.address.ip();
    let other = Kubelet::start(address, &Authority::new("others"), &address.to_string()).await;
    cluster.node("other", &address.to_string(), other.address.port()).await;
    cluster.pod("other", "other").await;
    let path = format!("{PODS}/other/log?insecureSkipTLSVerifyBackend=true");
    let status = cluster.admin.get(&path).await.expect(500).json();
    assert!(status["message"].as_str().is_some_and(|message| message.contains("x509")), "{status}");
    let metrics = cluster.admin.get("/metrics").await.text();
    let denied = "kube_apiserver_pod_logs_insecure_backend_total{usage=\"skip_tls_denied\"} 1";
    assert!(metrics.contains(denied), "{metrics}");
}

/// A request may select one stream of a log if the gate for it is on.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_stream_of_a_log_is_sent_if_the_gate_is_on() {
    let on = [
        ("stream=Stdout", Ok("stream=Stdout")),
        ("stream=Stdout&tailLines=5", Err("`tailLines` and specific `stream` are mutually exclusive for now")),
        ("stream=stdout", Err("supported values: \"All\", \"Stderr\", \"Stdout\"")),
    ];
    let off = [("tailLines=5", Ok("tailLines=5")), ("stream=All", Err("stream: Forbidden: may not be specified"))];
    for (gate, requests) in [("true", &on[..]), ("false", &off)] {
        let option = format!("--feature-gates=PodLogsQuerySplitStreams={gate}");
        let Some(cluster) = Cluster::start_with(&["web"], &[&option]).await else { return };
        for (query, expected) in requests {
            let answer = cluster.admin.get(&format!("{PODS}/web/log?{query}")).await;
            match expected {
                Ok(asked) => assert_eq!(answer.expect(200).text(), format!("a line\n{asked}\n")),
                Err(why) => {
                    let status = answer.refused(422, "Invalid");
                    let message = status["message"].as_str().expect("a message");
                    assert!(message.contains(why), "{query}: {message}");
                }
            }
        }
    }
}
