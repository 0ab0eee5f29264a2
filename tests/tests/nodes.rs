//! Connections to nodes: logs, commands in containers, port forwarding and proxies, by two versions of kubectl and over
//! both protocols; and targets that must not be reached.

use base64::Engine as _;
use futures_util::{SinkExt, StreamExt};
use holdfast_streams::ConnectionLimits;
use holdfast_streams::remote::{CommandStreams, ProtocolVersion, Remote};
use holdfast_tests::authority::Authority;
use holdfast_tests::kubelet::{Kubelet, address};
use holdfast_tests::wire::HttpClient;
use holdfast_tests::{Folder, Server, clients, eventually};
use http::Method;
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

const PATIENCE: Duration = Duration::from_secs(30);
const PODS: &str = "/api/v1/namespaces/default/pods";

struct Cluster {
    server: Server,
    admin: HttpClient,
    kubelet: Kubelet,
    authority: Authority,
    _folder: Folder,
}

impl Cluster {
    /// A server with a node whose kubelet is in this process, and a pod there for each name. `None` if this machine has
    /// no address but loopback.
    async fn start(pods: &[&str]) -> Option<Cluster> {
        Cluster::start_with(pods, &[]).await
    }

    /// Like [`Cluster::start`], with more options.
    async fn start_with(pods: &[&str], options: &[&str]) -> Option<Cluster> {
        let address = address()?;
        let (folder, authority) = (Folder::new(), Authority::new("kubelets"));
        std::fs::create_dir_all(folder.path()).expect("a folder");
        let ca = folder.join("kubelets.crt");
        std::fs::write(&ca, authority.pem()).expect("written");
        let (certificate, key) = authority.client("kube-apiserver-kubelet-client", &[]).write(folder.path(), "client");
        let kubelet = Kubelet::start(address, &authority, &address.to_string()).await;
        let own = [
            &format!("--kubelet-certificate-authority={}", ca.display()),
            &format!("--nodeagent-client-certificate={}", certificate.display()),
            &format!("--kubelet-client-key={}", key.display()),
            "--kubelet-preferred-address-types=InternalIP,Hostname",
        ];
        let server = Server::start(&folder.join("data"), &[&own[..], options].concat());
        let admin = HttpClient { http2: false, ..HttpClient::admin(&server) };
        let cluster = Cluster { server, admin, kubelet, authority, _folder: folder };
        cluster.node("n", &address.to_string(), cluster.kubelet.address.port()).await;
        for name in pods {
            cluster.pod(name, "n").await;
        }
        Some(cluster)
    }

    async fn node(&self, name: &str, address: &str, port: u16) {
        let status = json!({
            "addresses": [{"type": "InternalIP", "address": address}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        });
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status});
        self.admin.post("/api/v1/nodes", &node).await.expect(201);
    }

    async fn pod(&self, name: &str, node: &str) {
        let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
        if !node.is_empty() {
            spec["nodeName"] = node.into();
        }
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
        self.admin.post(PODS, &pod).await.expect(201);
        // Normally a kubelet writes this status.
        let path = format!("{PODS}/{name}/status");
        let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        let patch = [("content-type", "application/merge-patch+json")];
        self.admin.send(Method::PATCH, &path, &patch, status.to_string()).await.expect(200);
    }

    /// Grants a user the right to read the subresources that lead to nodes, and the nodes' proxy, and nothing else.
    async fn let_read(&self, user: &str) {
        let rules = json!([
            {"apiGroups": [""], "resources": ["pods/attach", "pods/exec", "pods/portforward", "pods/log", "nodes/proxy"],
                "verbs": ["get"]},
        ]);
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "reader"}, "rules": rules});
        self.admin.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await.expect(201);
        let group = "rbac.authorization.k8s.io";
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "reader"}, "subjects": [{"kind": "User", "name": user, "apiGroup": group}],
            "roleRef": {"kind": "ClusterRole", "name": "reader", "apiGroup": group}});
        self.admin.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await.expect(201);
    }

    fn kubectl(&self, version: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(clients().join(format!("kubectl-{version}")));
        command.arg("--kubeconfig").arg(self.server.kubeconfig()).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs kubectl with this input; returns its exit code, output and errors.
    fn run(&self, version: &str, environment: (&str, &str), arguments: &[&str], input: &str) -> (i32, String, String) {
        let mut command = self.kubectl(version, arguments);
        let mut child = command.env(environment.0, environment.1).spawn().expect("kubectl runs");
        let mut stdin = child.stdin.take().expect("piped");
        let input = input.to_owned();
        let writing = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
        let output = child.wait_with_output().expect("it ends");
        writing.join().expect("written");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
    }

    /// A WebSocket to a path with this protocol.
    async fn websocket(&self, path: &str, protocol: &str) -> WebSocketStream<TokioIo<hyper::upgrade::Upgraded>> {
        self.websocket_with(path, protocol, &[]).await
    }

    /// Like [`Cluster::websocket`], with more headers.
    async fn websocket_with(
        &self,
        path: &str,
        protocol: &str,
        more: &[(&str, &str)],
    ) -> WebSocketStream<TokioIo<hyper::upgrade::Upgraded>> {
        let mut headers = websocket_headers(protocol);
        headers.extend(more);
        let response = self.admin.open(Method::GET, path, &headers, Default::default()).await.expect("an answer");
        assert_eq!(response.status(), 101, "{path}");
        assert_eq!(
            response.headers().get("sec-websocket-protocol").map_or("", |chosen| chosen.to_str().unwrap()),
            protocol
        );
        let upgraded = hyper::upgrade::on(response).await.expect("upgraded");
        WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, None).await
    }
}

fn websocket_headers(protocol: &str) -> Vec<(&str, &str)> {
    let mut headers = vec![
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    if !protocol.is_empty() {
        headers.push(("sec-websocket-protocol", protocol));
    }
    headers
}

/// The installed versions of kubectl, each with its environment.
const KUBECTLS: [(&str, (&str, &str)); 3] = [
    ("1.20", ("X", "")),
    ("1.37", ("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "true")),
    ("1.37", ("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false")),
];

fn here(version: &str) -> bool {
    clients().join(format!("kubectl-{version}")).exists()
}

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

    // Line by line; the connection to the node ends when the client leaves.
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

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn commands_run_by_kubectl_of_every_age() {
    let Some(cluster) = Cluster::start(&["web", "gone"]).await else { return };
    let long = "all of it\n".repeat(100_000);
    for (version, environment) in KUBECTLS.into_iter().filter(|(version, _)| here(version)) {
        let run = |arguments: &[&str], input: &str| cluster.run(version, environment, arguments, input);
        let (code, output, errors) = run(&["exec", "web", "--", "ls", "-l", "a b"], "");
        assert_eq!((code, output.as_str()), (0, "[\"ls\", \"-l\", \"a b\"]\n"), "{version} {environment:?}: {errors}");
        let (code, output, errors) = run(&["exec", "-i", "web", "--", "cat"], &long);
        assert!(code == 0 && output == long, "{version} {environment:?}: {code} {} {errors}", output.len());
        let (code, output, errors) = run(&["exec", "web", "--", "flood", "3000000"], "");
        assert!(code == 0 && output.len() == 3_000_000, "{version} {environment:?}: {code} {} {errors}", output.len());
        let (code, _, errors) = run(&["exec", "web", "--", "fail"], "");
        assert_eq!(code, 3, "{version} {environment:?}: {errors}");
        assert!(errors.starts_with("it fails\n") && errors.contains("exit code 3"), "{errors}");
        let (code, output, errors) = run(&["attach", "-i", "web"], "attached");
        assert!(code == 0 && output.contains("attached"), "{version} {environment:?}: {output} {errors}");
        let (code, _, errors) = run(&["exec", "gone", "--", "ls"], "");
        assert!(code == 1 && errors.contains("pod does not exist"), "{version} {environment:?}: {errors}");
    }
    let metrics = cluster.admin.get("/metrics").await.text();
    if here("1.37") {
        assert!(metrics.contains("apiserver_stream_translator_requests_total{code=\"101\"}"), "{metrics}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn commands_run_over_websockets_of_every_version() {
    let Some(cluster) = Cluster::start(&["web"]).await else { return };
    let path = format!("{PODS}/web/exec?command=flood&command=100000&stdout=true&stderr=true");
    for protocol in ["v5.channel.k8s.io", "v4.channel.k8s.io", "v4.base64.channel.k8s.io", "channel.k8s.io", ""] {
        let mut socket = cluster.websocket(&path, protocol).await;
        let (mut output, mut status) = (0, Vec::new());
        while let Some(Ok(message)) = socket.next().await {
            let (channel, bytes) = match message {
                Message::Binary(bytes) if !bytes.is_empty() => (bytes[0], bytes[1..].to_vec()),
                Message::Text(text) => {
                    let bytes =
                        base64::engine::general_purpose::STANDARD.decode(&text.as_bytes()[1..]).expect("base64");
                    (text.as_bytes()[0] - b'0', bytes)
                }
                _ => continue,
            };
            match channel {
                1 => output += bytes.len(),
                3 => status.extend(bytes),
                other => panic!("channel {other}"),
            }
        }
        assert_eq!(output, 100_000, "{protocol}");
        let expected = if protocol.starts_with('v') { "Success" } else { "" };
        let status: Value = serde_json::from_slice(&status).unwrap_or_default();
        assert_eq!(status["status"].as_str().unwrap_or_default(), expected, "{protocol}");
    }
    // A terminal, its size, and the end of the input only.
    let path = format!("{PODS}/web/exec?command=size&stdout=true&stdin=true&tty=true");
    let mut socket = cluster.websocket(&path, "v5.channel.k8s.io").await;
    socket.send(Message::Binary(b"\x04{\"Width\":80,\"Height\":24}"[..].into())).await.expect("sent");
    let mut output = Vec::new();
    while let Some(Ok(message)) = socket.next().await {
        if let Message::Binary(bytes) = message
            && bytes.first() == Some(&1)
        {
            output.extend_from_slice(&bytes[1..]);
        }
    }
    assert_eq!(String::from_utf8_lossy(&output), "Some(Size { width: 80, height: 24 })");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ports_are_forwarded_by_kubectl_of_every_age() {
    let Some(cluster) = Cluster::start(&["web"]).await else { return };
    for (version, value) in [("1.20", "true"), ("1.37", "true"), ("1.37", "false")] {
        if !here(version) {
            continue;
        }
        let mut command = cluster.kubectl(version, &["port-forward", "web", ":7", ":9"]);
        let mut child = command.env("KUBECTL_PORT_FORWARD_WEBSOCKETS", value).spawn().expect("kubectl runs");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
        let mut port = |to: &str| {
            let line = lines.find(|line| line.contains("127.0.0.1:") && line.ends_with(to)).expect("it listens");
            let (_, rest) = line.split_once("127.0.0.1:").expect("an address");
            rest.split(' ').next().expect("a port").parse::<u16>().expect("a number")
        };
        let (seven, nine) = (port("-> 7"), port("-> 9"));
        for _ in 0..3 {
            let mut socket = TcpStream::connect(("127.0.0.1", seven)).expect("connected");
            socket.write_all(b"hello").expect("sent");
            let mut back = [0; 5];
            socket.read_exact(&mut back).expect("read");
            assert_eq!(&back, b"HELLO");
        }
        let mut socket = TcpStream::connect(("127.0.0.1", nine)).expect("connected");
        let mut nothing = Vec::new();
        _ = socket.read_to_end(&mut nothing);
        assert!(nothing.is_empty());
        child.kill().expect("it is there");
        let mut errors = String::new();
        child.stderr.take().expect("piped").read_to_string(&mut errors).expect("read");
        assert!(errors.contains("nobody listens"), "{version} {value}: {errors}");
        child.wait().expect("it ends");
    }
    // WebSocket channels, as Python's client uses them.
    let mut socket = cluster.websocket(&format!("{PODS}/web/portforward?ports=7"), "v4.channel.k8s.io").await;
    socket.send(Message::Binary(b"\0hi"[..].into())).await.expect("sent");
    let mut all = Vec::new();
    while all.len() < 3 {
        if let Message::Binary(bytes) = socket.next().await.expect("open").expect("no fault") {
            all.push(bytes);
        }
    }
    assert_eq!(all, [&b"\0\x07\0"[..], b"\x01\x07\0", b"\0HI"]);
}

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
    // The server's own address is refused as a kubelet's.
    let own: u16 = cluster.server.url().rsplit(':').next().expect("a port").parse().expect("a number");
    let address = cluster.kubelet.address.ip().to_string();
    cluster.node("itself", &address, own).await;
    cluster.pod("itself", "itself").await;
    admin.get(&format!("{PODS}/itself/log")).await.expect(400);
    // A certificate of another authority.
    let other = Kubelet::start(cluster.kubelet.address.ip(), &Authority::new("others"), &address).await;
    cluster.node("other", &address, other.address.port()).await;
    cluster.pod("other", "other").await;
    let message =
        admin.get(&format!("{PODS}/other/log")).await.expect(500).json()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("x509"), "{message}");
    // A certificate for another name.
    let named = Kubelet::start(cluster.kubelet.address.ip(), &cluster.authority, "elsewhere.example.com").await;
    cluster.node("named", &address, named.address.port()).await;
    cluster.pod("named", "named").await;
    admin.get(&format!("{PODS}/named/log")).await.expect(500);
    // A redirect.
    let path = format!("{PODS}/moved/exec?command=ls&stdout=true");
    let answer = admin.send(Method::POST, &path, &spdy, "").await.expect(500);
    assert_eq!(answer.json()["message"], "invalid upgrade response: status code 302");
    // No upgrade at all.
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

/// Clients whose protocol cannot close a stream send a file to a command, and then close the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn input_that_was_sent_before_a_client_left_arrives() {
    const INPUT_BYTES: usize = 200_000;
    let Some(cluster) = Cluster::start(&["web"]).await else { return };
    let path = format!("{PODS}/web/exec?command=count&stdin=true&stdout=true");
    let mut commands = 0;
    // Protocols are translated for a node that declares nothing, and passed on to one that accepts WebSockets.
    for declared in [json!([]), json!(["ExtendWebSocketsToKubelet"])] {
        let status = json!({"status": {"declaredFeatures": declared}}).to_string();
        let patch = [("content-type", "application/merge-patch+json")];
        cluster.admin.send(Method::PATCH, "/api/v1/nodes/n/status", &patch, status).await.expect(200);
        let ways = [("v5.channel.k8s.io", true), ("v5.channel.k8s.io", false), ("v4.channel.k8s.io", true)];
        for (protocol, says_goodbye) in ways.into_iter().chain([("v4.channel.k8s.io", false), ("", true)]) {
            let mut socket = cluster.websocket(&path, protocol).await;
            let piece = [&[0][..], &[b'x'; INPUT_BYTES / 10]].concat();
            for _ in 0..10 {
                socket.send(Message::Binary(piece.clone().into())).await.expect("sent");
            }
            if says_goodbye {
                socket.close(None).await.expect("sent");
            } else {
                socket.get_mut().shutdown().await.expect("sent");
            }
            // A socket that is dropped while bytes are in transit to it is reset, and its own last bytes are lost.
            while socket.next().await.is_some_and(|message| message.is_ok()) {}
            commands += 1;
            let counted = tokio::time::timeout(PATIENCE, cluster.kubelet.counted(commands)).await.expect("it ends");
            assert_eq!(counted[commands - 1], INPUT_BYTES, "{declared} {protocol} {says_goodbye}");
        }
    }
    let headers =
        [("connection", "Upgrade"), ("upgrade", "SPDY/3.1"), ("x-stream-protocol-version", "v4.channel.k8s.io")];
    let answer = cluster.admin.open(Method::POST, &path, &headers, Default::default()).await.expect("an answer");
    let socket = TokioIo::new(hyper::upgrade::on(answer).await.expect("upgraded"));
    let wanted = CommandStreams { stdin: true, stdout: true, ..CommandStreams::default() };
    let mut remote =
        Remote::open(socket, ProtocolVersion::V4, wanted, ConnectionLimits::default()).await.expect("streams");
    let mut stdin = remote.stdin.take().expect("stdin");
    stdin.write_all(&[b'x'; INPUT_BYTES]).await.expect("sent");
    drop((stdin, remote));
    let counted = tokio::time::timeout(PATIENCE, cluster.kubelet.counted(commands + 1)).await.expect("it ends");
    assert_eq!(counted[commands], INPUT_BYTES, "SPDY");
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
        // A Status is JSON, in which quotes are escaped.
        assert!(found == code && text.replace("\\\"", "\"").contains(expected), "{method} {path}: {found} {text}");
        if expected == "unable to negotiate protocol" {
            assert_eq!(answer.headers.get_all("x-accepted-stream-protocol-versions").iter().count(), 4);
        }
    }
    // The name of the tunnel's protocol is passed on.
    let (_, headers) = cluster.kubelet.seen().pop().expect("a request");
    assert_eq!(headers["x-stream-protocol-version"], "x.k8s.io");
    // HTTP/2 has no upgrades.
    let http2 = HttpClient { http2: true, ..cluster.admin.clone() };
    let status = http2.send(Method::POST, &format!("{PODS}/web/exec?{ls}"), &[], "").await.expect(400).json();
    assert_eq!(status["message"], "Upgrade request required");
}

/// A kubelet may answer anything, and without end. The client gets an error, and other requests are answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_kubelet_that_answers_rubbish_or_without_end_is_an_error() {
    let Some(cluster) = Cluster::start(&["web", "endless", "headers", "moved", "rubbish"]).await else { return };
    let address = cluster.kubelet.address.ip().to_string();
    // Listens, but speaks no TLS.
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
    // Malformed frames after the upgrade.
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

/// Feature gates turn off what they guard.
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
    // A certificate of another authority is refused with the gate off, although the client asks not to verify it.
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
    // Links in a page are rewritten to the proxy's path.
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

/// If either end vanishes, the server closes the connections between them.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_that_last_leave_nothing_behind() {
    leaves_nothing_behind(200, 40).await;
}

/// Like [`many_that_last_leave_nothing_behind`], with as many connections as in a large cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "takes minutes"]
async fn very_many_that_last_leave_nothing_behind() {
    leaves_nothing_behind(1_000, 200).await;
}

async fn leaves_nothing_behind(follows_count: usize, commands_count: usize) {
    let Some(cluster) = Cluster::start(&["quiet", "web"]).await else { return };
    let pid = cluster.server.pid();
    let files = || std::fs::read_dir(format!("/proc/{pid}/fd")).expect("the server runs").count();
    cluster.admin.get(&format!("{PODS}/web/log")).await.expect(200);
    let before = files();
    let begin = async || {
        let (mut follows, mut commands) = (Vec::new(), Vec::new());
        for _ in 0..follows_count {
            let path = format!("{PODS}/quiet/log?follow=true");
            let mut follow = cluster.admin.open(Method::GET, &path, &[], Default::default()).await.expect("an answer");
            let line = follow.body_mut().frame().await.expect("a line").expect("no fault");
            assert_eq!(&line.into_data().expect("data")[..], b"a line\n");
            follows.push(follow);
        }
        for protocol in ["v5.channel.k8s.io", "v4.channel.k8s.io"].into_iter().cycle().take(commands_count) {
            let path = format!("{PODS}/web/exec?command=cat&stdin=true&stdout=true");
            // Another user sends this request, because one user may have only half of all connections to nodes.
            let other = [("impersonate-user", "other"), ("impersonate-group", "system:masters")];
            let mut command = cluster.websocket_with(&path, protocol, &other).await;
            command.send(Message::Binary(b"\0hi"[..].into())).await.expect("sent");
            loop {
                let message = command.next().await.expect("open").expect("no fault");
                if message.into_data() == b"\x01hi"[..] {
                    break;
                }
            }
            commands.push(command);
        }
        let (now, wanted) = (files(), before + 2 * (follows_count + commands_count));
        assert!(now + 8 >= wanted, "{now} files are open: each has a connection at either side, which is {wanted}");
        (follows, commands)
    };
    let all_closed = async || {
        eventually(PATIENCE, async || match files() {
            now if now <= before + 8 => Ok(()),
            now => Err(format!("{now} files are open, and were {before}")),
        })
        .await;
    };
    // The clients leave.
    drop(begin().await);
    all_closed().await;
    // The node stops.
    let (follows, commands) = begin().await;
    cluster.kubelet.stop();
    for mut follow in follows {
        while let Some(Ok(_)) = follow.body_mut().frame().await {}
    }
    for mut command in commands {
        while let Some(Ok(_)) = command.next().await {}
    }
    all_closed().await;
}
