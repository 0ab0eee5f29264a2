//! The answers of simulated nodes, requested as an API server does: over their own listener, in kubelets' protocol.

use futures_util::{SinkExt, StreamExt};
use holdfast_streams::remote::{CommandStreams, ProtocolVersion, Remote};
use holdfast_streams::spdy::Spdy;
use holdfast_streams::{ConnectionLimits, forward};
use holdfast_tests::wire::HttpClient;
use holdfast_tests::{Folder, Server, eventually};
use http::{Method, Request};
use http_body_util::Empty;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

const PATIENCE: Duration = Duration::from_secs(60);
const HOST: &str = "node-0:10250";

struct Cluster {
    _folder: Folder,
    _server: Server,
    api: HttpClient,
    /// A client that connects to the listener of the nodes.
    node: HttpClient,
}

impl Cluster {
    async fn start() -> Cluster {
        let folder = Folder::new();
        let server = Server::start(&folder.join("data"), &["--controllers=*", "--nodes=2"]);
        let api = HttpClient::admin(&server);
        let port = eventually(PATIENCE, async || {
            let node = api.get("/api/v1/nodes/node-0").await;
            let document = node.json();
            document["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64().ok_or("the node is not there yet")
        });
        let address = format!("127.0.0.1:{}", port.await);
        let node = HttpClient { address, http2: false, ..api.clone() };
        Cluster { _folder: folder, _server: server, api, node }
    }

    /// Creates a pod with one container, and waits until it is running.
    async fn run(&self, name: &str, container: Value) {
        let pod = json!({"metadata": {"name": name}, "spec": {"nodeName": "node-0", "containers": [container]}});
        self.api.post("/api/v1/namespaces/default/pods", &pod).await.expect(201);
        eventually(PATIENCE, async || {
            let pod = self.api.get(&format!("/api/v1/namespaces/default/pods/{name}")).await.json();
            let runs = pod["status"]["containerStatuses"][0]["state"]["running"].is_object();
            if runs { Ok(()) } else { Err(pod["status"].to_string()) }
        })
        .await;
    }

    async fn ask(&self, wire: &HttpClient, method: Method, path: &str) -> (u16, String) {
        let answer = wire.send(method, path, &[("host", HOST)], "").await;
        (answer.code, answer.text())
    }

    /// Opens a connection to the node, and upgrades it to SPDY.
    async fn upgrade(&self, path: &str, protocol: &str) -> TokioIo<Upgraded> {
        let stream = self.node.connect().await.expect("a connection");
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("HTTP/1.1");
        tokio::spawn(connection.with_upgrades());
        let request = Request::post(path)
            .header("host", HOST)
            .header("connection", "Upgrade")
            .header("upgrade", "SPDY/3.1")
            .header("x-stream-protocol-version", protocol)
            .body(Empty::<bytes::Bytes>::new())
            .expect("a request");
        let answer = sender.send_request(request).await.expect("an answer");
        assert_eq!(answer.status(), 101);
        TokioIo::new(hyper::upgrade::on(answer).await.expect("an upgrade"))
    }
}

fn shell(script: &str) -> Value {
    json!({"name": "c", "image": "busybox", "command": ["sh", "-c", script], "ports": [{"containerPort": 80}]})
}

#[tokio::test]
async fn strangers_are_refused_and_what_is_not_there_is_told() {
    let cluster = Cluster::start().await;
    cluster.run("web", shell("echo begun; sleep infinity")).await;
    let nobody = HttpClient { identity: None, token: None, ..cluster.node.clone() };
    let wrong = nobody.clone().with_token("rubbish");
    assert_eq!(cluster.ask(&wrong, Method::GET, "/pods").await, (401, "Unauthorized".into()));
    let forbidden = "Forbidden (user=system:anonymous, verb=get, resource=nodes, subresource(s)=[pods proxy])";
    assert_eq!(cluster.ask(&nobody, Method::GET, "/pods").await, (403, forbidden.into()));
    let forbidden = "Forbidden (user=system:anonymous, verb=create, resource=nodes, subresource(s)=[proxy])";
    assert_eq!(cluster.ask(&nobody, Method::POST, "/exec/default/web/c").await, (403, forbidden.into()));
    for (method, path, code, text) in [
        (Method::GET, "/healthz", 200, "ok"),
        (Method::GET, "/nothing", 404, "404 page not found"),
        (Method::DELETE, "/pods", 405, "Method Not Allowed"),
        (Method::GET, "/containerLogs/default/none/c", 404, "pod \"none\" does not exist"),
        (Method::GET, "/containerLogs/default/web/x", 404, "container \"x\" not found in pod \"web\""),
        (Method::GET, "/containerLogs/default/web/c", 200, "begun\n"),
        (
            Method::GET,
            "/containerLogs/default/web/c?previous=true",
            400,
            "previous terminated container \"c\" in pod \"web\" not found",
        ),
        (Method::GET, "/containerLogs/default/web/c?tailLines=-1", 422, "{\"message\": \"Invalid request.\"}"),
        (Method::GET, "/containerLogs/default/web/c?stream=stdout", 422, "{\"message\": \"Invalid request.\"}"),
        (Method::GET, "/containerLogs/default/web/c?tailLines=many", 400, "{\"message\": \"Unable to decode query.\"}"),
        (Method::GET, "/containerLogs/..%2Fdefault/web/c", 404, "does not exist"),
        (Method::POST, "/exec/default/none/c?command=ls&output=1", 404, "pod does not exist"),
        (Method::POST, "/exec/default/web/c?command=ls", 400, "you must specify at least 1 of stdin, stdout, stderr"),
        (Method::POST, "/exec/default/web/c?command=ls&output=1", 400, "Upgrade request required"),
        (Method::POST, "/exec/default/web/x?command=ls&output=1", 500, "container not found (\"x\")"),
        (Method::POST, "/exec/default/web/c?output=1", 500, "no command was given"),
        (Method::POST, "/attach/default/web/c", 400, "you must specify at least 1 of stdin, stdout, stderr"),
        (Method::POST, "/portForward/default/web?port=80,x", 400, "invalid query parameter \"port\""),
        (Method::POST, "/portForward/default/none", 404, "pod does not exist"),
        (Method::GET, "/healthz/ping", 200, "ok"),
        (Method::POST, "/run/default/web/c?cmd=echo+hello", 200, "hello\n"),
        (Method::POST, "/run/default/web/c?cmd=false", 500, "exited with 1"),
        (Method::GET, "/pods", 200, "\"name\":\"web\""),
        (Method::GET, "/runningpods/", 200, "\"name\":\"web\""),
        (Method::GET, "/metrics", 200, "kubelet_running_pods 1"),
        (Method::GET, "/metrics/resource", 200, "pod=\"web\""),
        (Method::GET, "/metrics/cadvisor", 200, "pod=\"web\""),
        (Method::GET, "/stats/summary", 200, "\"nodeName\":\"node-0\""),
        (Method::GET, "/configz", 200, "KubeletConfiguration"),
    ] {
        let (found, said) = cluster.ask(&cluster.node, method.clone(), path).await;
        assert!(found == code && said.contains(text), "{method} {path}: {found} {said}");
    }
    // A WebSocket has 256 channels, and each forwarded port needs two, so 128 ports are too many and 127 ports are not.
    let many = |count: u16| (1..=count).map(|port| port.to_string()).collect::<Vec<_>>().join(",");
    for (ports, code, text) in [
        (String::new(), 400, "query parameter \"port\" is required"),
        (many(128), 400, "invalid query parameter \"port\""),
        (many(127), 101, ""),
    ] {
        let headers = [
            ("host", HOST),
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        let path = format!("/portForward/default/web{}{ports}", if ports.is_empty() { "" } else { "?port=" });
        let answer = cluster.node.open(Method::GET, &path, &headers, Default::default()).await.expect("an answer");
        assert_eq!(answer.status().as_u16(), code, "{ports}");
        if code == 400 {
            let body = http_body_util::BodyExt::collect(answer.into_body()).await.expect("a body").to_bytes();
            assert!(String::from_utf8_lossy(&body).contains(text), "{ports}");
        }
    }
    // A simulated node serves only its own pods, and the pod `web` does not run on `node-1`.
    let other = cluster.node.send(Method::GET, "/containerLogs/default/web/c", &[("host", "node-1:10250")], "").await;
    assert_eq!(other.code, 404);
}

#[tokio::test]
async fn commands_are_run_and_their_ends_told() {
    let cluster = Cluster::start().await;
    cluster.run("web", shell("sleep infinity")).await;
    let wanted = CommandStreams { stdin: true, stdout: true, stderr: true, tty: false };
    let script = "read%20x;%20echo%20got%20$x;%20echo%20wrong%20%3E%262;%20exit%206";
    let path = format!("/exec/default/web/c?command=sh&command=-c&command={script}&input=1&output=1&error=1");
    let socket = cluster.upgrade(&path, "v4.channel.k8s.io").await;
    let mut remote =
        Remote::open(socket, ProtocolVersion::V4, wanted, ConnectionLimits::default()).await.expect("streams");
    let mut stdin = remote.stdin.take().expect("stdin");
    stdin.write_all(b"hello\n").await.expect("it is read");
    let (mut output, mut errors, mut status) = (String::new(), String::new(), String::new());
    remote.stdout.take().expect("stdout").read_to_string(&mut output).await.expect("output");
    remote.stderr.take().expect("stderr").read_to_string(&mut errors).await.expect("errors");
    remote.error.read_to_string(&mut status).await.expect("a status");
    assert_eq!((output.as_str(), errors.as_str()), ("got hello\n", "wrong\n"));
    let status: Value = serde_json::from_str(&status).expect("JSON");
    assert_eq!(status["details"]["causes"][0]["message"], "6");
}

#[tokio::test]
async fn a_client_that_goes_leaves_no_command_behind() {
    let cluster = Cluster::start().await;
    cluster.run("web", shell("sleep infinity")).await;
    let wanted = CommandStreams { stdin: false, stdout: true, stderr: false, tty: false };
    for _ in 0..40 {
        // The 40 turns start more processes than a container may have at once.
        let socket =
            cluster.upgrade("/exec/default/web/c?command=sleep&command=infinity&output=1", "v4.channel.k8s.io");
        let remote = Remote::open(socket.await, ProtocolVersion::V4, wanted, ConnectionLimits::default())
            .await
            .expect("streams");
        drop(remote);
    }
    eventually(PATIENCE, async || {
        match cluster.ask(&cluster.node, Method::POST, "/run/default/web/c?cmd=hostname").await {
            (200, text) if text == "web\n" => Ok(()),
            (code, text) => Err(format!("{code} {text}")),
        }
    })
    .await;
}

/// Clients whose protocol cannot close a stream send a file to `cat` and close the connection, as the Java client does.
#[tokio::test]
async fn what_a_client_has_sent_before_it_goes_arrives() {
    let cluster = Cluster::start().await;
    cluster.run("web", shell("sleep infinity")).await;
    let path = "/exec/default/web/c?command=sh&command=-c&command=cat%20%3E%20/tmp/x&input=1&output=1";
    let headers = [
        ("host", HOST),
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-protocol", "v4.channel.k8s.io"),
    ];
    let answer = cluster.node.open(Method::GET, path, &headers, Default::default()).await.expect("an answer");
    assert_eq!(answer.status(), 101);
    let socket = TokioIo::new(hyper::upgrade::on(answer).await.expect("an upgrade"));
    let mut socket = WebSocketStream::from_raw_socket(socket, Role::Client, None).await;
    for _ in 0..3 {
        let piece = [&[0][..], &[b'x'; 10_000]].concat();
        socket.send(Message::Binary(piece.into())).await.expect("sent");
    }
    // The client reads until the end: closing a socket with unread bytes resets the connection, and loses bytes in
    // transit.
    socket.close(None).await.expect("sent");
    while socket.next().await.is_some_and(|message| message.is_ok()) {}
    eventually(PATIENCE, async || {
        match cluster.ask(&cluster.node, Method::POST, "/run/default/web/c?cmd=wc+-c+/tmp/x").await {
            (200, text) if text.starts_with("30000 ") => Ok(()),
            (code, text) => Err(format!("{code} {text}")),
        }
    })
    .await;
}

#[tokio::test]
async fn ports_answer() {
    let cluster = Cluster::start().await;
    cluster.run("web", shell("sleep infinity")).await;
    let socket = cluster.upgrade("/portForward/default/web", "portforward.k8s.io").await;
    let (spdy, _incoming) = Spdy::client(socket, ConnectionLimits::default());
    let (mut data, mut error) = forward::connect(&spdy, 80, "0").await.expect("a connection");
    data.write_all(b"POST /x HTTP/1.1\r\nHost: web\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc")
        .await
        .expect("sent");
    let (mut answer, mut why) = (String::new(), String::new());
    data.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("no container runs"), "{answer}");
    error.read_to_string(&mut why).await.expect("no error");
    assert_eq!(why, "");
    let (mut data, _error) = forward::connect(&spdy, 80, "1").await.expect("a connection");
    data.write_all(b"\0binary").await.expect("sent");
    let mut back = [0; 7];
    data.read_exact(&mut back).await.expect("it comes back");
    assert_eq!(&back, b"\0binary");
    let (_data, mut error) = forward::connect(&spdy, 81, "2").await.expect("a connection");
    error.read_to_string(&mut why).await.expect("an error");
    assert!(why.contains("connection refused"), "{why}");
}

#[tokio::test]
async fn a_log_has_two_streams() {
    let cluster = Cluster::start().await;
    cluster.run("web", shell("echo out; echo wrong >&2; sleep infinity")).await;
    for (stream, expected) in [("Stdout", "out\n"), ("Stderr", "wrong\n"), ("All", "out\nwrong\n")] {
        let path = format!("/containerLogs/default/web/c?stream={stream}");
        assert_eq!(cluster.ask(&cluster.node, Method::GET, &path).await, (200, expected.to_owned()), "{stream}");
    }
}

#[tokio::test]
async fn a_log_is_followed_to_the_end_of_the_container() {
    let cluster = Cluster::start().await;
    cluster.run("web", shell("echo one; while [ ! -f /tmp/go ]; do sleep 1; done; echo two; exit 4")).await;
    let following = {
        let (node, path) = (cluster.node.clone(), "/containerLogs/default/web/c?follow=true&timestamps=true");
        tokio::spawn(async move { node.send(Method::GET, path, &[("host", HOST)], "").await.text() })
    };
    tokio::time::sleep(Duration::from_millis(300)).await;
    let (code, text) = cluster.ask(&cluster.node, Method::POST, "/run/default/web/c?cmd=touch+/tmp/go").await;
    assert_eq!((code, text.as_str()), (200, ""));
    let followed = following.await.expect("the log");
    let lines: Vec<&str> = followed.lines().filter_map(|line| line.split_once(' ')).map(|(_, text)| text).collect();
    assert_eq!(lines, ["one", "two"]);
    eventually(PATIENCE, async || {
        let pod = cluster.api.get("/api/v1/namespaces/default/pods/web").await.json();
        let status = &pod["status"]["containerStatuses"][0];
        let code = [&status["state"], &status["lastState"]].map(|state| state["terminated"]["exitCode"].clone());
        if code.contains(&json!(4)) { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}

/// Nodes of another process serve clients at their address: the API server, and users whom it authenticates.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nodes_of_another_process_answer() {
    let Some(address) = holdfast_tests::kubelet::address() else { return };
    let folder = Folder::new();
    // The nodes' names are in no DNS, so the server must connect to their IP addresses.
    let preferred = "--kubelet-preferred-address-types=InternalIP";
    let options = ["--controllers=serviceaccount-controller", "--nodes=0", preferred];
    let server = Server::start(&folder.join("data"), &options);
    let port = std::net::TcpListener::bind((address, 0)).and_then(|free| free.local_addr()).expect("a port").port();
    let mut nodes = std::process::Command::new(holdfast_tests::server::binary());
    nodes.args(["nodes", "--count=2", &format!("--kubelet-address={address}"), &format!("--kubelet-port={port}")]);
    nodes.arg("--kubeconfig").arg(server.kubeconfig());
    let _nodes = Process(nodes.stdout(std::process::Stdio::null()).spawn().expect("it runs"));
    let api = HttpClient { http2: false, ..HttpClient::admin(&server) };
    let get = async |path: &str| api.get(path).await;
    eventually(PATIENCE, async || match get("/api/v1/nodes/node-1").await.code {
        200 => Ok(()),
        code => Err(code),
    })
    .await;
    let pod = json!({"metadata": {"name": "web"}, "spec": {"nodeName": "node-1", "automountServiceAccountToken": false,
        "containers": [shell("echo begun; sleep infinity")]}});
    api.post("/api/v1/namespaces/default/pods", &pod).await.expect(201);
    let log = eventually(PATIENCE, async || match get("/api/v1/namespaces/default/pods/web/log").await {
        answer if answer.code == 200 && !answer.body.is_empty() => Ok(answer.text()),
        answer => Err(answer.text()),
    });
    assert_eq!(log.await, "begun\n");
    let ran = api.send(Method::POST, "/api/v1/nodes/node-1/proxy/run/default/web/c?cmd=hostname", &[], "").await;
    assert_eq!(ran.expect(200).text(), "web\n");
    for (way, value) in [("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "true"), ("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false")]
    {
        let mut kubectl = std::process::Command::new(holdfast_tests::clients().join("kubectl-1.37"));
        kubectl.arg("--kubeconfig").arg(server.kubeconfig()).args(["exec", "web", "--", "echo", "hello"]);
        let output = kubectl.env(way, value).output().expect("kubectl runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "hello\n", "{output:?}");
    }
    // Clients that connect to the nodes directly are authenticated and authorized by the API server.
    let accounts = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let token = eventually(PATIENCE, async || match api.post(accounts, &json!({"spec": {}})).await {
        answer if answer.code == 201 => Ok(answer.json()["status"]["token"].as_str().expect("a token").to_owned()),
        answer => Err(answer.text()),
    })
    .await;
    let ask = |token: &str| {
        let bearer = format!("Authorization: Bearer {token}");
        let url = format!("https://{address}:{port}/pods");
        let output = std::process::Command::new("curl").args(["-sk", "-H", &bearer, &url]).output().expect("curl runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(ask("rubbish"), "Unauthorized");
    let forbidden = "Forbidden (user=system:serviceaccount:default:default, verb=get, resource=nodes, \
                     subresource(s)=[pods proxy])";
    assert_eq!(ask(&token), forbidden);
    let rules = json!([{"apiGroups": [""], "resources": ["nodes/pods"], "verbs": ["get"]}]);
    let group = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"metadata": {"name": "looks"}, "rules": rules});
    api.post(&format!("{group}/clusterroles"), &role).await.expect(201);
    let binding = json!({"metadata": {"name": "looks"},
        "subjects": [{"kind": "ServiceAccount", "name": "late", "namespace": "default"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "looks"}});
    api.post(&format!("{group}/clusterrolebindings"), &binding).await.expect(201);
    api.post("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "late"}})).await.expect(201);
    let answer =
        api.post("/api/v1/namespaces/default/serviceaccounts/late/token", &json!({"spec": {}})).await.expect(201);
    let pods = ask(answer.json()["status"]["token"].as_str().expect("a token"));
    assert!(pods.contains("\"name\":\"web\""), "{pods}");
}

/// A process that is killed with the test.
struct Process(std::process::Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
