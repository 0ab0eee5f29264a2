//! A proxy for HTTP's CONNECT method: it connects to any requested address, and records the addresses.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufStream, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixListener};

pub type SeenRequests = Arc<Mutex<Vec<String>>>;

/// Starts a proxy that listens on a Unix socket.
pub fn serve(path: &Path) -> SeenRequests {
    let (asked, listener) = (SeenRequests::default(), UnixListener::bind(path).expect("a socket"));
    let seen = asked.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(lead(stream, seen.clone()));
        }
    });
    asked
}

/// Serves on a port of this machine.
pub async fn serve_tcp() -> (SocketAddr, SeenRequests) {
    let (asked, listener) = (SeenRequests::default(), TcpListener::bind("127.0.0.1:0").await.expect("a port"));
    let (seen, address) = (asked.clone(), listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(lead(stream, seen.clone()));
        }
    });
    (address, asked)
}

async fn lead(stream: impl AsyncRead + AsyncWrite + Unpin, seen: SeenRequests) {
    let (mut stream, mut lines) = (BufStream::new(stream), Vec::new());
    while lines.last().is_none_or(|line: &String| !line.trim_end().is_empty()) {
        let mut line = String::new();
        stream.read_line(&mut line).await.expect("a request");
        lines.push(line);
    }
    let target = lines[0].split(' ').nth(1).expect("a target").to_owned();
    let mut there = TcpStream::connect(&target).await.expect("a server");
    seen.lock().expect("a list").push(target);
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.expect("an answer");
    stream.flush().await.expect("an answer");
    // Ends when either side closes its connection.
    let _ = copy_bidirectional(&mut stream, &mut there).await;
}
