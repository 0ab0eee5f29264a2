//! An HTTP/2 connection, and a pool of connections. A connection sends requests, counts the bytes of response bodies,
//! and keeps only the beginning and the end of each body.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use h2::RecvStream;
use h2::client::SendRequest;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::access::Access;

/// Connections that are opened together. Clones share the connections.
#[derive(Clone)]
pub struct Pool {
    clients: Arc<[Client]>,
}

#[derive(Clone)]
pub struct Client {
    connection: Arc<SharedConnection>,
    authority: Arc<str>,
    scheme: &'static str,
    headers: HeaderMap,
}

/// A connection to the server, which is replaced when the server sends GOAWAY.
struct SharedConnection {
    access: Arc<Access>,
    sender: Mutex<SendRequest<Bytes>>,
    /// This lock is held while one worker reconnects; other workers wait for the lock.
    connecting: tokio::sync::Mutex<()>,
}

/// A 2xx response. Its body was read; only the beginning and the end of the body are kept.
#[derive(Debug, Default)]
pub struct Answer {
    pub body_bytes: u64,
    pub head: Vec<u8>,
    pub tail: Vec<u8>,
}

/// Why an operation is not counted as a success.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperationFailure {
    #[error("HTTP {code} {reason}")]
    Refused { code: u16, reason: String },
    #[error("no answer within {} s", REQUEST_TIME_MAX.as_secs())]
    TimedOut,
    #[error("connection: {0}")]
    Broken(String),
    #[error("watch: {0}")]
    Watch(String),
}

const REQUEST_TIME_MAX: Duration = Duration::from_secs(60);
/// The number of bytes kept at each end of a body: enough for a list's metadata or an error's Status.
const EDGE_BYTES_MAX: usize = 4096;
/// The flow-control window of each stream, in bytes. Both windows are as large as in client-go, because the benchmark
/// does not measure flow control.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
/// The flow-control window of each connection, in bytes.
const CONNECTION_WINDOW_BYTES: u32 = 1 << 30;

impl Pool {
    pub async fn connect(access: &Arc<Access>, connections: u16) -> anyhow::Result<Self> {
        let mut clients = Vec::new();
        for _ in 0..connections {
            clients.push(Client::connect(access).await.with_context(|| format!("cannot connect to {}", access.url()))?);
        }
        Ok(Self { clients: clients.into() })
    }

    /// The connection of a worker; workers are spread evenly over connections.
    pub fn pick(&self, worker: usize) -> Client {
        self.clients[worker % self.clients.len()].clone()
    }
}

impl Client {
    async fn connect(access: &Arc<Access>) -> anyhow::Result<Self> {
        let sender = Mutex::new(connect(access).await?);
        let connection = SharedConnection { access: access.clone(), sender, connecting: tokio::sync::Mutex::default() };
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("holdfast-bench/", env!("CARGO_PKG_VERSION"))));
        if let Some(authorization) = &access.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        let scheme = if access.tls.is_some() { "https" } else { "http" };
        Ok(Self { connection: connection.into(), authority: access.authority().into(), scheme, headers })
    }

    /// The same connection with another `Accept` header.
    pub fn accepting(mut self, accept: &'static str) -> Self {
        self.headers.insert(ACCEPT, HeaderValue::from_static(accept));
        self
    }

    /// Sends one request and reads its response to the end; any status but 2xx is an [`OperationFailure`].
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, Bytes)>,
    ) -> Result<Answer, OperationFailure> {
        tokio::time::timeout(REQUEST_TIME_MAX, async {
            let (code, stream) = self.open(method, path, body).await?;
            let answer = read_to_end(stream).await?;
            if (200..300).contains(&code) { Ok(answer) } else { Err(refused(code, &answer.head)) }
        })
        .await
        .unwrap_or(Err(OperationFailure::TimedOut))
    }

    /// Sends a request whose response does not end, such as a watch, and returns its body.
    pub async fn stream(&self, path: &str) -> Result<RecvStream, OperationFailure> {
        let opening = tokio::time::timeout(REQUEST_TIME_MAX, self.open(Method::GET, path, None));
        let (code, stream) = opening.await.unwrap_or(Err(OperationFailure::TimedOut))?;
        if (200..300).contains(&code) {
            return Ok(stream);
        }
        Err(refused(code, &read_to_end(stream).await?.head))
    }

    async fn open(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, Bytes)>,
    ) -> Result<(u16, RecvStream), OperationFailure> {
        let uri = format!("{}://{}{path}", self.scheme, self.authority);
        let mut request = Request::builder().method(method).uri(uri).body(()).map_err(broken)?;
        *request.headers_mut() = self.headers.clone();
        if let Some((content_type, _)) = &body {
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        loop {
            let sender = self.connection.sender();
            match exchange(sender, request.clone(), body.as_ref().map(|(_, bytes)| bytes)).await {
                // A server may end any connection to rebalance its clients; in that case the server has not processed
                // the request.
                Err(error) if is_goodbye(&error) => self.connection.renew().await.map_err(broken)?,
                answer => return answer.map_err(broken),
            }
        }
    }
}

impl SharedConnection {
    fn sender(&self) -> SendRequest<Bytes> {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reconnects, unless another worker has already done so.
    async fn renew(&self) -> anyhow::Result<()> {
        let _connecting = self.connecting.lock().await;
        if self.sender().ready().await.is_err() {
            let fresh = connect(&self.access).await?;
            *self.sender.lock().unwrap_or_else(PoisonError::into_inner) = fresh;
        }
        Ok(())
    }
}

async fn exchange(
    sender: SendRequest<Bytes>,
    request: Request<()>,
    body: Option<&Bytes>,
) -> Result<(u16, RecvStream), h2::Error> {
    let (answer, mut upload) = sender.ready().await?.send_request(request, body.is_none())?;
    if let Some(bytes) = body {
        upload.send_data(bytes.clone(), true)?;
    }
    let (parts, stream) = answer.await?.into_parts();
    Ok((parts.status.as_u16(), stream))
}

fn is_goodbye(error: &h2::Error) -> bool {
    error.is_go_away() && error.is_remote() && error.reason() == Some(h2::Reason::NO_ERROR)
}

async fn connect(access: &Access) -> anyhow::Result<SendRequest<Bytes>> {
    let stream = TcpStream::connect((access.host.as_str(), access.port)).await?;
    stream.set_nodelay(true)?;
    match &access.tls {
        None => handshake(stream).await,
        Some(tls) => {
            let stream = TlsConnector::from(tls.config.clone()).connect(tls.server_name.clone(), stream).await?;
            let chosen = stream.get_ref().1.alpn_protocol();
            anyhow::ensure!(chosen == Some(b"h2"), "the server does not offer HTTP/2");
            handshake(stream).await
        }
    }
}

async fn handshake<S>(stream: S) -> anyhow::Result<SendRequest<Bytes>>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) = h2::client::Builder::new()
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .enable_push(false)
        .handshake(stream)
        .await?;
    // Errors of the connection also make its requests fail.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

async fn read_to_end(mut stream: RecvStream) -> Result<Answer, OperationFailure> {
    let mut answer = Answer::default();
    while let Some(chunk) = next_chunk(&mut stream).await? {
        answer.body_bytes += chunk.len() as u64;
        let room = EDGE_BYTES_MAX - answer.head.len();
        answer.head.extend_from_slice(&chunk[..room.min(chunk.len())]);
        keep_tail(&mut answer.tail, &chunk);
    }
    Ok(answer)
}

/// Reads the next chunk of a body, and releases its flow-control window.
pub async fn next_chunk(stream: &mut RecvStream) -> Result<Option<Bytes>, OperationFailure> {
    let Some(chunk) = stream.data().await else { return Ok(None) };
    let chunk = chunk.map_err(broken)?;
    stream.flow_control().release_capacity(chunk.len()).map_err(broken)?;
    Ok(Some(chunk))
}

fn keep_tail(tail: &mut Vec<u8>, chunk: &[u8]) {
    if chunk.len() >= EDGE_BYTES_MAX {
        tail.clear();
        tail.extend_from_slice(&chunk[chunk.len() - EDGE_BYTES_MAX..]);
        return;
    }
    let excess = (tail.len() + chunk.len()).saturating_sub(EDGE_BYTES_MAX);
    tail.drain(..excess);
    tail.extend_from_slice(chunk);
}

fn refused(code: u16, body: &[u8]) -> OperationFailure {
    let status: holdfast_value::Value = serde_json::from_slice(body).unwrap_or_default();
    let reason = status["reason"].as_str().unwrap_or("(no reason given)").to_owned();
    OperationFailure::Refused { code, reason }
}

fn broken(error: impl std::fmt::Display) -> OperationFailure {
    OperationFailure::Broken(error.to_string())
}

impl Answer {
    /// The value of the first `"name":"value"` near either end of the body, where a list's metadata is.
    pub fn metadata_text(&self, name: &str) -> Option<&str> {
        text_field(&self.head, name).or_else(|| text_field(&self.tail, name))
    }
}

/// The value of the first `"name":"value"`, found without parsing the document. The value must have no escapes, as
/// versions and tokens have none.
pub fn text_field<'a>(json: &'a [u8], name: &str) -> Option<&'a str> {
    let needle = format!("\"{name}\":\"");
    let start = json.windows(needle.len()).position(|window| window == needle.as_bytes())? + needle.len();
    let length = json[start..].iter().position(|byte| *byte == b'"')?;
    std::str::from_utf8(&json[start..start + length]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_at_either_edge() {
        let head = br#"{"kind":"ConfigMapList","metadata":{"resourceVersion":"7","continue":"abc"},"items":["#.to_vec();
        let tail = br#"{}],"metadata":{"resourceVersion":"9"}}"#.to_vec();
        let answer = Answer { body_bytes: 0, head, tail };
        assert_eq!(answer.metadata_text("resourceVersion"), Some("7"));
        assert_eq!(answer.metadata_text("continue"), Some("abc"));
        assert_eq!(answer.metadata_text("remainingItemCount"), None);
        assert_eq!(text_field(br#"{"cut":"off"#, "cut"), None);
    }

    #[test]
    fn the_tail_is_the_end_of_the_body() {
        let body: Vec<u8> = (0..20_000u32).map(|i| i as u8).collect();
        for size in [1, 7, 1000, 4095, 4096, 9000, 20_000] {
            let mut tail = Vec::new();
            body.chunks(size).for_each(|chunk| keep_tail(&mut tail, chunk));
            assert_eq!(tail, body[body.len() - EDGE_BYTES_MAX..], "chunks of {size}");
        }
    }

    #[test]
    fn refusals_name_their_reason() {
        let failure = refused(409, br#"{"kind":"Status","reason":"Conflict","code":409}"#);
        assert_eq!(failure.to_string(), "HTTP 409 Conflict");
        assert_eq!(refused(502, b"<html>").to_string(), "HTTP 502 (no reason given)");
    }
}
