//! `holdfast etcd`: replaces the etcd that envtest starts.
//!
//! envtest starts two programs and waits until both are healthy. The events are in the API server's log, so this
//! program stores nothing. It answers health checks like etcd. An API server that is started with the address of this
//! program joins it ([`join`]), and learns whether events must survive the process. Only one server may join at a time:
//! two servers on one etcd would have to share their objects.

use crate::settled::{self, Settled};
use anyhow::{Context, Result, bail, ensure};
use clap::ArgAction;
use holdfast_component::values::parse_bool;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;

#[derive(clap::Args)]
#[group(skip)]
pub struct Args {
    /// Addresses to listen on: http://HOST:PORT.
    #[arg(long, value_delimiter = ',', default_value = "http://localhost:2379", value_name = "URLS")]
    listen_client_urls: Vec<ClientUrl>,
    /// Let the API server keep its log in memory. The log is lost when the API server stops.
    #[arg(long, default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    unsafe_no_fsync: bool,
    #[command(flatten)]
    _settled: Settled<settled::Etcd>,
}

/// The address to listen on: `http://HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientUrl {
    host: String,
    port: u16,
}

impl FromStr for ClientUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<ClientUrl, String> {
        let Some(rest) = text.strip_prefix("http://") else {
            return Err("only http:// is spoken between the two programs that envtest starts".into());
        };
        let (host, port) = rest.trim_end_matches('/').rsplit_once(':').ok_or("the port is missing")?;
        let port = port.parse().map_err(|_| format!("{port:?} is not a port"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || host.contains('/') {
            return Err(format!("{host:?} is not a host"));
        }
        Ok(ClientUrl { host: host.to_owned(), port })
    }
}

impl std::fmt::Display for ClientUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "http://[{}]:{}", self.host, self.port),
            false => write!(f, "http://{}:{}", self.host, self.port),
        }
    }
}

/// The path at which a server joins.
const JOIN: &str = "/holdfast/v1/join";
/// The header that says whether events must survive the process.
const FSYNC: &str = "holdfast-fsync";

const CONNECTIONS_MAX: usize = 64;
const REQUEST_MAX: Duration = Duration::from_secs(10);

pub fn run(args: Args) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let etcd = Arc::new(Etcd { fsync: !args.unsafe_no_fsync, joined: AtomicBool::new(false) });
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        for url in &args.listen_client_urls {
            let bound = TcpListener::bind((url.host.as_str(), url.port)).await;
            let listener = bound.with_context(|| format!("listen on {url}"))?;
            tokio::spawn(accept(listener, etcd.clone(), room.clone()));
        }
        tokio::select! {
            _ = terminate.recv() => Ok(()),
            _ = interrupt.recv() => Ok(()),
        }
    })
}

struct Etcd {
    fsync: bool,
    joined: AtomicBool,
}

async fn accept(listener: TcpListener, etcd: Arc<Etcd>, room: Arc<Semaphore>) {
    loop {
        let Ok(place) = room.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Accepting failed, for example at the limit of open files. Connections will end, so try again.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let etcd = etcd.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| std::future::ready(Ok::<_, Infallible>(etcd.clone().answer(&request))));
            let mut builder = hyper::server::conn::http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(REQUEST_MAX);
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
            drop(place);
        });
    }
}

type Body = BoxBody<Bytes, Infallible>;

impl Etcd {
    fn answer(self: Arc<Self>, request: &Request<Incoming>) -> Response<Body> {
        match request.uri().path() {
            "/health" => told(StatusCode::OK, "{\"health\":\"true\",\"reason\":\"\"}\n"),
            "/livez" | "/readyz" => told(StatusCode::OK, "ok\n"),
            JOIN => self.join(),
            _ => told(StatusCode::NOT_FOUND, "This is not an etcd: the events are in the log of the API server.\n"),
        }
    }

    fn join(self: Arc<Self>) -> Response<Body> {
        if self.joined.swap(true, Ordering::AcqRel) {
            return told(StatusCode::CONFLICT, "another API server is in use with it\n");
        }
        let fsync = self.fsync;
        let mut response = Response::new(BodyExt::boxed(StreamBody::new(Joined(self))));
        response.headers_mut().insert(FSYNC, hyper::header::HeaderValue::from_static(word(fsync)));
        response
    }
}

fn told(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed());
    *response.status_mut() = status;
    response
}

fn word(truth: bool) -> &'static str {
    if truth { "true" } else { "false" }
}

/// The body of the answer to a join: it stays open while the server that joined runs.
struct Joined(Arc<Etcd>);

impl futures_util::Stream for Joined {
    type Item = Result<Frame<Bytes>, Infallible>;

    fn poll_next(self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        Poll::Pending
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.0.joined.store(false, Ordering::Release);
    }
}

/// The result of joining. The server leaves when this value is dropped.
pub struct Membership {
    /// Whether events must survive the end of the process.
    pub fsync: bool,
    _connection: TcpStream,
}

/// How long a server waits for this program to start, or for the end of the previous server to be noticed.
const JOIN_MAX: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_millis(20);
/// The maximum number of bytes of an answer's head.
const HEAD_MAX: usize = 8192;

/// Joins the program at `url`. Returns `None` if another program answers there, such as a real etcd.
pub fn join(url: &str) -> Result<Option<Membership>> {
    let shown = url;
    let Ok(url) = url.parse::<ClientUrl>() else { return Ok(None) };
    let deadline = Instant::now() + JOIN_MAX;
    loop {
        match try_join(&url) {
            Ok(Answer::Joined(membership)) => return Ok(Some(membership)),
            Ok(Answer::NotOurs) => return Ok(None),
            Ok(Answer::Taken) if Instant::now() >= deadline => {
                bail!("another API server is in use with the etcd at {shown}: only one can be")
            }
            Err(error) if Instant::now() >= deadline => {
                return Err(error).with_context(|| format!("--etcd-servers={shown}: reach it"));
            }
            Ok(Answer::Taken) | Err(_) => std::thread::sleep(RETRY),
        }
    }
}

enum Answer {
    Joined(Membership),
    Taken,
    NotOurs,
}

fn try_join(url: &ClientUrl) -> Result<Answer> {
    let address = (url.host.as_str(), url.port).to_socket_addrs()?.next().context("the host has no address")?;
    let mut connection = TcpStream::connect_timeout(&address, JOIN_MAX)?;
    connection.set_read_timeout(Some(JOIN_MAX))?;
    connection.set_write_timeout(Some(JOIN_MAX))?;
    connection.write_all(format!("GET {JOIN} HTTP/1.1\r\nhost: {}:{}\r\n\r\n", url.host, url.port).as_bytes())?;
    let head = head(&mut connection)?;
    let mut lines = head.lines();
    let status = lines.next().unwrap_or_default();
    if status.contains(" 409 ") {
        return Ok(Answer::Taken);
    }
    let told = lines.find_map(|line| line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case(FSYNC)));
    match told {
        Some((_, told)) if status.contains(" 200 ") => {
            Ok(Answer::Joined(Membership { fsync: told.trim() != word(false), _connection: connection }))
        }
        _ => Ok(Answer::NotOurs),
    }
}

/// Reads the head of an HTTP response.
fn head(connection: &mut TcpStream) -> Result<String> {
    let mut read = Vec::new();
    let mut piece = [0; 512];
    while !read.windows(4).any(|end| end == b"\r\n\r\n") {
        ensure!(read.len() < HEAD_MAX, "the answer is not HTTP");
        match connection.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => read.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(String::from_utf8_lossy(&read).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_urls_parse_or_say_why() {
        for (text, host, port) in [
            ("http://127.0.0.1:2379", "127.0.0.1", 2379),
            ("http://localhost:0", "localhost", 0),
            ("http://[::1]:7/", "::1", 7),
        ] {
            assert_eq!(text.parse(), Ok(ClientUrl { host: host.into(), port }), "{text}");
        }
        for text in ["https://a:1", "unix:///x", "http://a", "http://:1", "http://a:x", "http://a:99999", "a:1", ""] {
            assert!(text.parse::<ClientUrl>().is_err(), "{text}");
        }
    }
}
