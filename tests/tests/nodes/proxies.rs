//! Requests that the server passes on to nodes, pods and Services.

use crate::cluster::{Cluster, PATIENCE, PODS};
use futures_util::{SinkExt, StreamExt};
use holdfast_tests::Folder;
use holdfast_tests::authority::Authority;
use holdfast_tests::kubelet::Kubelet;
use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn requests_are_passed_on_to_nodes_pods_and_services() {
    let Some(cluster) = Cluster::start(&["web"]).await else { return };
    let (admin, address) = (&cluster.admin, cluster.kubelet.address.ip().to_string());
    let get = async |path: &str| admin.get(path).await.expect(200).text();
    assert_eq!(get("/api/v1/nodes/n/proxy/pods?x=y").await, "GET /pods?x=y ");
    let port = cluster.kubelet.address.port();
    assert_eq!(get(&format!("/api/v1/nodes/https:n:{port}/proxy/a%2Fb/")).await, "GET /a%2Fb/? ");
    let (_, headers) = cluster.kubelet.seen().pop().expect("a request");
    assert_eq!(headers["x-forwarded-uri"], format!("/api/v1/nodes/https:n:{port}/proxy/a%2Fb/"));
    assert!(!headers.contains_key("authorization"));
    let moved = admin.get("/api/v1/nodes/n/proxy").await.expect(301);
    assert_eq!(moved.header("location"), "/api/v1/nodes/n/proxy/");

    let web = Kubelet::plain(cluster.kubelet.address.ip()).await;
    let patch = [("content-type", "application/merge-patch+json")];
    let status = json!({"status": {"podIP": address, "podIPs": [{"ip": address}]}}).to_string();
    admin.send(Method::PATCH, &format!("{PODS}/web/status"), &patch, status).await.expect(200);
    let path = format!("{PODS}/web:{}/proxy/echo", web.address.port());
    let answer = admin.send(Method::PUT, &path, &[("content-type", "text/x-any")], "a body").await.expect(200);
    assert_eq!(answer.text(), "PUT /echo? a body");
    // The server rewrites the links in a page to the path of the proxy.
    let prefix = format!("{PODS}/web:{}/proxy", web.address.port());
    assert_eq!(get(&format!("{prefix}/page")).await, format!("<p>/x</p><a href=\"{prefix}/x\">x</a>"));
    let spec = json!({"ports": [{"name": "http", "port": 80, "targetPort": web.address.port()}]});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec});
    admin.post("/api/v1/namespaces/default/services", &service).await.expect(201);
    let path = "/api/v1/namespaces/default/services/web:http/proxy/x";
    admin.get(path).await.expect(404);
    let target = json!({"kind": "Pod", "namespace": "default", "name": "web"});
    let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "web"}, "subsets": [
        {"addresses": [{"ip": address, "targetRef": target}], "ports": [{"name": "http", "port": web.address.port()}]}]});
    admin.post("/api/v1/namespaces/default/endpoints", &endpoints).await.expect(201);
    assert_eq!(get(path).await, "GET /x? ");
    assert_eq!(get("/api/v1/namespaces/default/services/web:80/proxy/x").await, "GET /x? ");
    drop(web);
    let status = admin.get(path).await.refused(503, "ServiceUnavailable");
    let message = status["message"].as_str().unwrap();
    assert!(message.starts_with("error trying to reach service: dial tcp"), "{message}");
    // For a pod without a port, the proxy connects to port 80, where nothing listens.
    admin.get(&format!("{PODS}/web/proxy/")).await.expect(503);
}

/// Egress proxies lead to nodes: CONNECT over TCP and over a Unix socket, and a konnectivity server at a socket and
/// over TLS.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn proxies_lead_to_nodes() {
    let ways = [("tcp", "HTTPConnect"), ("uds", "HTTPConnect"), ("uds", "GRPC"), ("tcp", "GRPC"), ("", "Direct")];
    for (way, protocol) in ways {
        let folder = Folder::new();
        let socket = folder.join("proxy.sock");
        let (transport, asked) = match (way, protocol) {
            ("tcp", "GRPC") => {
                let authority = Authority::new("proxies");
                let (address, asked) = holdfast_tests::konnectivity::serve_tls(&authority).await;
                std::fs::create_dir_all(folder.path()).expect("a folder");
                std::fs::write(folder.join("proxies.crt"), authority.pem()).expect("written");
                let (certificate, key) = authority.client("kube-apiserver", &[]).write(folder.path(), "konnectivity");
                let tls = json!({"caBundle": folder.join("proxies.crt"), "clientCert": certificate, "clientKey": key});
                (json!({"tcp": {"url": format!("https://{address}"), "tlsConfig": tls}}), asked)
            }
            ("tcp", _) => {
                let (address, asked) = holdfast_tests::proxy::serve_tcp().await;
                (json!({"tcp": {"url": format!("http://{address}")}}), asked)
            }
            (_, "HTTPConnect") => (json!({"uds": {"udsName": socket}}), holdfast_tests::proxy::serve(&socket)),
            (_, "GRPC") => (json!({"uds": {"udsName": socket}}), holdfast_tests::konnectivity::serve(&socket)),
            _ => (Value::Null, Default::default()),
        };
        let mut connection = json!({"proxyProtocol": protocol});
        if !transport.is_null() {
            connection["transport"] = transport;
        }
        let document = json!({"apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration",
            "egressSelections": [{"name": "cluster", "connection": connection}]});
        let file = folder.join("egress.yaml");
        std::fs::write(&file, document.to_string()).expect("a configuration");
        let option = format!("--egress-selector-config-file={}", file.display());
        let Some(cluster) = Cluster::start_with(&["web", "quiet"], &[&option]).await else { return };
        assert_eq!(cluster.admin.get(&format!("{PODS}/web/log")).await.expect(200).text(), "a line\n\n");
        assert_eq!(cluster.admin.get("/api/v1/nodes/n/proxy/x").await.expect(200).text(), "GET /x? ");
        for protocol in ["v5.channel.k8s.io", "v4.channel.k8s.io"] {
            let path = format!("{PODS}/web/exec?command=flood&command=300000&stdout=true");
            let mut socket = cluster.websocket(&path, protocol).await;
            let mut output = 0;
            while let Some(Ok(message)) = socket.next().await {
                if let Message::Binary(bytes) = message
                    && bytes.first() == Some(&1)
                {
                    output += bytes.len() - 1;
                }
            }
            assert_eq!(output, 300_000, "{way} {protocol}");
        }
        let mut socket = cluster.websocket(&format!("{PODS}/web/portforward?ports=7"), "v4.channel.k8s.io").await;
        socket.send(Message::Binary(b"\0hi"[..].into())).await.expect("sent");
        while socket.next().await.expect("open").expect("no fault").into_data() != b"\0HI"[..] {}
        // When a client disconnects, its connection to the node is closed, too.
        let path = format!("{PODS}/quiet/log?follow=true");
        let mut follow = cluster.admin.open(Method::GET, &path, &[], Default::default()).await.expect("an answer");
        follow.body_mut().frame().await.expect("a line").expect("no fault");
        drop((follow, socket));
        tokio::time::timeout(PATIENCE, cluster.kubelet.is_left()).await.expect("the kubelet is left alone");
        let (asked, node) = (asked.lock().expect("a list").clone(), cluster.kubelet.address.to_string());
        let wanted = if protocol == "Direct" { 0 } else { 6 };
        assert!(asked.len() == wanted && asked.iter().all(|target| *target == node), "{way} {protocol}: {asked:?}");
    }
}
