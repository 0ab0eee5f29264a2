//! Calls to a KMS plug-in: unary gRPC over HTTP/2 on a Unix socket.
//!
//! Calls run on a separate thread. So both async and blocking code can wait for a call, and a plug-in that does not
//! answer blocks no worker and no writer.

use bytes::{Buf, Bytes, BytesMut};
use h2::client::SendRequest;
use holdfast_files::check_socket;
use http::header::{CONTENT_TYPE, TE};
use http::{HeaderMap, Request};
use prost::Message;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;
use tokio::sync::Mutex;

/// The maximum size of an answer. Answers of plug-ins are much shorter.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// The number of bytes before each message: a compression flag, and the length.
const FRAME: usize = 5;

/// The socket of a plug-in: `unix:///path`, or `unix:///@name` for an abstract name without a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint(String);

impl Endpoint {
    /// Makes an endpoint from the path of an endpoint's URL, which begins with a slash.
    pub fn of_path(path: &str) -> Endpoint {
        Endpoint(path.strip_prefix("/@").map_or_else(|| path.to_owned(), |name| format!("@{name}")))
    }

    /// Connects without blocking the thread. If a plug-in no longer accepts connections, its backlog is full. A plain
    /// `connect` would then block for ever, and with it all work of the client's thread.
    async fn connect(&self) -> std::io::Result<UnixStream> {
        match self.0.strip_prefix('@') {
            Some(name) => UnixStream::connect(format!("\0{name}")).await,
            None => {
                check_socket(Path::new(&self.0))?;
                UnixStream::connect(&self.0).await
            }
        }
    }
}

/// Why a call failed, in gRPC's terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub code: &'static str,
    pub message: String,
}

impl Failure {
    fn unavailable(message: impl fmt::Display) -> Failure {
        Failure { code: "Unavailable", message: message.to_string() }
    }

    fn internal(message: impl fmt::Display) -> Failure {
        Failure { code: "Internal", message: message.to_string() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rpc error: code = {} desc = {}", self.code, self.message)
    }
}

/// The client of a plug-in. It connects at the first call, and again after the connection was lost.
pub struct Client {
    /// The runtime; `None` only while the client is dropped.
    runtime: Option<Runtime>,
    line: Arc<Line>,
}

struct Line {
    endpoint: Endpoint,
    timeout: Duration,
    open: Mutex<Option<SendRequest<Bytes>>>,
}

impl Client {
    pub fn new(endpoint: Endpoint, timeout: Duration) -> std::io::Result<Client> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).thread_name("kms").enable_all().build()?;
        Ok(Client { runtime: Some(runtime), line: Arc::new(Line { endpoint, timeout, open: Mutex::default() }) })
    }

    fn runtime(&self) -> &Runtime {
        match &self.runtime {
            Some(runtime) => runtime,
            None => unreachable!("the runtime goes with the client"),
        }
    }

    /// Runs work on the client's own thread.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime().spawn(work);
    }

    /// Calls a method asynchronously.
    pub async fn call<A: Message + Default + 'static>(
        &self,
        method: &'static str,
        request: &impl Message,
    ) -> Result<A, Failure> {
        let (line, request) = (self.line.clone(), framed(request));
        let called = self.runtime().spawn(async move { line.call(method, request).await });
        called.await.map_err(Failure::internal)?.and_then(|answer| decoded(&answer))
    }

    /// Calls a method, and blocks until the answer.
    pub fn call_blocking<A: Message + Default>(
        &self,
        method: &'static str,
        request: &impl Message,
    ) -> Result<A, Failure> {
        let (line, request) = (self.line.clone(), framed(request));
        let (sender, receiver) = std::sync::mpsc::channel();
        // The receiver waits below, so sending cannot fail.
        self.runtime().spawn(async move { sender.send(line.call(method, request).await) });
        receiver.recv().map_err(Failure::internal)?.and_then(|answer| decoded(&answer))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Dropping a runtime blocks, which is not allowed in async code.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Line {
    async fn call(&self, method: &'static str, request: Bytes) -> Result<Bytes, Failure> {
        match tokio::time::timeout(self.timeout, self.ask(method, request)).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure { code: "DeadlineExceeded", message: "context deadline exceeded".into() }),
        }
    }

    async fn ask(&self, method: &'static str, request: Bytes) -> Result<Bytes, Failure> {
        let mut sender = self.sender().await?;
        let head = Request::post(format!("http://localhost{method}"))
            .header(CONTENT_TYPE, "application/grpc")
            .header(TE, "trailers")
            .body(())
            .map_err(Failure::internal)?;
        let (answer, mut body) = sender.send_request(head, false).map_err(Failure::unavailable)?;
        body.send_data(request, true).map_err(Failure::unavailable)?;
        let answer = answer.await.map_err(Failure::unavailable)?;
        let (head, mut body) = answer.into_parts();
        if head.status != 200 {
            return Err(Failure { code: "Unknown", message: format!("unexpected HTTP status {}", head.status) });
        }
        let mut bytes = BytesMut::new();
        while let Some(data) = body.data().await {
            let data = data.map_err(Failure::unavailable)?;
            let _ = body.flow_control().release_capacity(data.len());
            if bytes.len() + data.len() > ANSWER_BYTES_MAX {
                return Err(Failure { code: "ResourceExhausted", message: "the answer is too long".into() });
            }
            bytes.extend_from_slice(&data);
        }
        let trailers = body.trailers().await.map_err(Failure::unavailable)?;
        status(trailers.as_ref().unwrap_or(&head.headers))?;
        Ok(bytes.freeze())
    }

    /// The open connection, or a new one.
    async fn sender(&self) -> Result<SendRequest<Bytes>, Failure> {
        let mut open = self.open.lock().await;
        if let Some(sender) = open.clone()
            && let Ok(ready) = sender.ready().await
        {
            return Ok(ready);
        }
        let dialled = self.endpoint.connect().await.map_err(|error| {
            let (path, why) = (&self.endpoint.0, words(&error));
            Failure::unavailable(format!(
                "connection error: desc = \"transport: Error while dialing: dial unix {path}: connect: {why}\""
            ))
        })?;
        let (sender, connection) = h2::client::handshake(dialled).await.map_err(Failure::unavailable)?;
        tokio::spawn(async move {
            // The next call finds the connection closed and connects again.
            let _ = connection.await;
        });
        let ready = sender.ready().await.map_err(Failure::unavailable)?;
        *open = Some(ready.clone());
        Ok(ready)
    }
}

/// The text of Go's library for a system error.
fn words(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "no such file or directory".into(),
        std::io::ErrorKind::ConnectionRefused => "connection refused".into(),
        std::io::ErrorKind::PermissionDenied => "permission denied".into(),
        std::io::ErrorKind::WouldBlock => "resource temporarily unavailable".into(),
        _ => error.to_string(),
    }
}

fn framed(message: &impl Message) -> Bytes {
    let body = message.encode_to_vec();
    let mut frame = BytesMut::with_capacity(FRAME + body.len());
    frame.extend_from_slice(&[0]);
    frame.extend_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes());
    frame.extend_from_slice(&body);
    frame.freeze()
}

fn decoded<A: Message + Default>(answer: &Bytes) -> Result<A, Failure> {
    let mut answer = answer.clone();
    if answer.len() < FRAME {
        return Err(Failure::internal("the answer has no message"));
    }
    let (compressed, length) = (answer.get_u8(), answer.get_u32() as usize);
    if compressed != 0 || answer.len() != length {
        return Err(Failure::internal("the answer is not one plain message"));
    }
    A::decode(answer).map_err(Failure::internal)
}

/// gRPC's status codes by number.
const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

fn status(headers: &HeaderMap) -> Result<(), Failure> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let number = text("grpc-status").and_then(|status| status.parse::<usize>().ok());
    let code = number.and_then(|number| CODES.get(number)).copied().unwrap_or("Unknown");
    match code {
        "OK" => Ok(()),
        code => Err(Failure { code, message: unescaped(text("grpc-message").unwrap_or_default()) }),
    }
}

/// Decodes the percent-encoding of a status message.
fn unescaped(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, behind)) = rest.split_first() {
        let escaped = std::str::from_utf8(behind.get(..2).unwrap_or_default()).ok();
        match escaped.filter(|_| *first == b'%').and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_unescaped() {
        assert_eq!(unescaped("a%20b%zz%4"), "a b%zz%4");
        assert_eq!(unescaped("%E2%82%AC"), "€");
    }

    /// A plug-in that listens but accepts no connection, until its backlog is full.
    #[test]
    fn a_full_backlog_does_not_hold_the_thread() {
        use super::super::wire::v2::{StatusRequest, StatusResponse};
        let socket = std::env::temp_dir().join(format!("holdfast-kms-backlog-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&socket);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (_listener, _waiting) = runtime.block_on(async {
            let listener = tokio::net::UnixSocket::new_stream().unwrap();
            listener.bind(&socket).unwrap();
            let listener = listener.listen(0).unwrap();
            let mut waiting = Vec::new();
            while let Ok(stream) = UnixStream::connect(&socket).await {
                waiting.push(stream);
            }
            (listener, waiting)
        });
        let endpoint = Endpoint::of_path(socket.to_str().unwrap());
        let client = Client::new(endpoint, Duration::from_secs(5)).unwrap();
        let answer =
            client.call_blocking::<StatusResponse>("/v2.KeyManagementService/Status", &StatusRequest::default());
        let failure = answer.expect_err("nobody answers");
        assert_eq!(failure.code, "Unavailable");
        assert!(failure.message.ends_with("connect: resource temporarily unavailable\""), "{failure}");
        std::fs::remove_file(&socket).unwrap();
    }

    #[test]
    fn answers_that_are_none_are_refused() {
        use super::super::wire::v1::DecryptResponse;
        for bytes in
            [&b""[..], b"\0\0\0\0", b"\x01\0\0\0\0", b"\0\0\0\0\x05abc", b"\0\xff\xff\xff\xff", b"\0\0\0\0\x01\xff"]
        {
            assert!(decoded::<DecryptResponse>(&Bytes::copy_from_slice(bytes)).is_err(), "{bytes:?}");
        }
    }
}
