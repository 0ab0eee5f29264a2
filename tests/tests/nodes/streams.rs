//! Commands in containers and forwarded ports, by kubectl and by WebSockets.

use crate::cluster::{Cluster, KUBECTLS, PATIENCE, PODS, here};
use base64::Engine as _;
use futures_util::{SinkExt, StreamExt};
use holdfast_streams::ConnectionLimits;
use holdfast_streams::remote::{CommandStreams, ProtocolVersion, Remote};
use http::Method;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use tokio::io::AsyncWriteExt;
use tokio_tungstenite::tungstenite::Message;

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
    // The command prints the size of its terminal, which the client sends on the channel for sizes.
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
            // The client reads until the end. If it dropped the socket while bytes are in transit to it, the connection
            // would be reset, and the last bytes that it sent would be lost.
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
