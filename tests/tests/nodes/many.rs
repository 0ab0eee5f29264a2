//! The server handles many connections to nodes at once.

use crate::cluster::{Cluster, PATIENCE, PODS};
use futures_util::{SinkExt, StreamExt};
use holdfast_tests::eventually;
use http::Method;
use http_body_util::BodyExt;
use tokio_tungstenite::tungstenite::Message;

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
    // When the clients disconnect, the server closes its connections to the node.
    drop(begin().await);
    all_closed().await;
    // When the node stops, the server closes its connections to the clients.
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
