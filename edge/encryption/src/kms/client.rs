//! Calls a KMS plug-in by unary gRPC on a Unix socket.
//!
//! Calls run on a separate thread. So both async and blocking code can wait for a call, and a plug-in that does not
//! answer blocks no worker and no writer.

use holdfast_grpc::{Failure, connect_unix, unary};
use prost::Message;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;
use tonic::Code;
use tonic::transport::Channel;

/// The maximum size of an answer. Answers of plug-ins are much shorter.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The socket of a plug-in: `unix:///path`, or `unix:///@name` for an abstract name without a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint(String);

impl Endpoint {
    /// Makes an endpoint from the path of an endpoint's URL, which begins with a slash.
    pub fn of_path(path: &str) -> Endpoint {
        Endpoint(path.strip_prefix("/@").map_or_else(|| path.to_owned(), |name| format!("@{name}")))
    }

    async fn connect(&self) -> Result<UnixStream, String> {
        let connected = match self.0.strip_prefix('@') {
            Some(name) => UnixStream::connect(format!("\0{name}")).await,
            None => connect_unix(Path::new(&self.0)).await,
        };
        connected.map_err(|error| Failure::dialing(format!("dial unix {}: connect: {}", self.0, words(&error))).message)
    }
}

/// The client of a plug-in. It connects at the first call, and again after the connection was lost.
pub struct Client {
    /// The runtime; `None` only while the client is dropped.
    runtime: Option<Runtime>,
    line: Arc<Line>,
}

struct Line {
    channel: Channel,
    timeout: Duration,
}

impl Client {
    pub fn new(endpoint: Endpoint, timeout: Duration) -> std::io::Result<Client> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).thread_name("kms").enable_all().build()?;
        let channel = {
            let _inside = runtime.enter();
            holdfast_grpc::channel(&holdfast_grpc::local(), move || {
                let endpoint = endpoint.clone();
                async move { endpoint.connect().await }
            })
        };
        Ok(Client { runtime: Some(runtime), line: Arc::new(Line { channel, timeout }) })
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

    /// Calls a method of the plug-in. Async code can wait for the answer.
    pub async fn call<A: Message + Default + 'static>(
        &self,
        method: &'static str,
        request: impl Message + 'static,
    ) -> Result<A, Failure> {
        let line = self.line.clone();
        let called = self.runtime().spawn(async move { line.call(method, request).await });
        called.await.map_err(internal)?
    }

    /// Calls a method, and blocks until the answer.
    pub fn call_blocking<A: Message + Default + 'static>(
        &self,
        method: &'static str,
        request: impl Message + 'static,
    ) -> Result<A, Failure> {
        let line = self.line.clone();
        let (sender, receiver) = std::sync::mpsc::channel();
        // The receiver waits below, so sending cannot fail.
        self.runtime().spawn(async move { sender.send(line.call(method, request).await) });
        receiver.recv().map_err(internal)?
    }
}

fn internal(error: impl std::fmt::Display) -> Failure {
    Failure::new(Code::Internal, error)
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
    async fn call<A>(&self, method: &str, request: impl Message + 'static) -> Result<A, Failure>
    where
        A: Message + Default + 'static,
    {
        let asking = unary(&self.channel, method, request, ANSWER_BYTES_MAX);
        match tokio::time::timeout(self.timeout, asking).await {
            Ok(answer) => answer.map_err(|status| Failure::of(&status, "the answer is too long")),
            Err(_) => Err(Failure::new(Code::DeadlineExceeded, "context deadline exceeded")),
        }
    }
}

/// The text that Go's library gives for a system error.
fn words(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "no such file or directory".into(),
        std::io::ErrorKind::ConnectionRefused => "connection refused".into(),
        std::io::ErrorKind::PermissionDenied => "permission denied".into(),
        std::io::ErrorKind::WouldBlock => "resource temporarily unavailable".into(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::v1::{DecryptRequest, DecryptResponse};
    use super::*;
    use http::{HeaderMap, Response};

    fn socket(name: &str) -> std::path::PathBuf {
        let socket = std::env::temp_dir().join(format!("holdfast-kms-{name}-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&socket);
        socket
    }

    /// The plug-in of this test listens but accepts no connection, so its backlog becomes full.
    #[test]
    fn a_full_backlog_does_not_hold_the_thread() {
        use super::super::wire::v2::{StatusRequest, StatusResponse};
        let socket = socket("backlog");
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
            client.call_blocking::<StatusResponse>("/v2.KeyManagementService/Status", StatusRequest::default());
        let failure = answer.expect_err("nobody answers");
        assert_eq!(failure.code, Code::Unavailable);
        assert!(failure.message.ends_with("connect: resource temporarily unavailable\""), "{failure}");
        std::fs::remove_file(&socket).unwrap();
    }

    /// A plug-in that answers every call with the same status and bytes.
    async fn serve(listener: tokio::net::UnixListener, http: u16, status: &'static str, bytes: Vec<u8>) {
        while let Ok((stream, _)) = listener.accept().await {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((_, mut answer))) = connection.accept().await {
                let head =
                    Response::builder().status(http).header("content-type", "application/grpc").body(()).unwrap();
                let mut stream = answer.send_response(head, false).unwrap();
                stream.send_data(bytes.clone().into(), status.is_empty()).unwrap();
                if let Some((code, message)) = status.split_once(' ') {
                    let mut trailers = HeaderMap::new();
                    trailers.insert("grpc-status", code.parse().unwrap());
                    trailers.insert("grpc-message", message.parse().unwrap());
                    stream.send_trailers(trailers).unwrap();
                }
            }
        }
    }

    #[test]
    fn answers_that_are_none_are_refused() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let long = [&[0, 0, 16, 0, 1][..], &[0; 1 << 16]].concat();
        for (at, (http, status, bytes, expected)) in [
            (200, "5 no%20such%20key%20%E2%82%AC", &b""[..], "code = NotFound desc = no such key €"),
            (200, "0 ", b"", "code = Internal desc = Missing response message."),
            (200, "0 ", b"\0\0\0\0", "code = Internal desc = "),
            (200, "0 ", b"\x01\0\0\0\0", "code = Internal desc = "),
            (200, "0 ", b"\0\0\0\0\x05abc", "code = Internal desc = "),
            (200, "0 ", b"\0\0\0\0\x01\xff", "code = Internal desc = "),
            (200, "0 ", &long, "code = ResourceExhausted desc = the answer is too long"),
            (503, "", b"", "code = Unavailable desc = unexpected HTTP status code received from server: 503"),
        ]
        .into_iter()
        .enumerate()
        {
            let socket = socket(&format!("answers-{at}"));
            let listener = runtime.block_on(async { tokio::net::UnixListener::bind(&socket).unwrap() });
            runtime.spawn(serve(listener, http, status, bytes.to_vec()));
            let client = Client::new(Endpoint::of_path(socket.to_str().unwrap()), Duration::from_secs(5)).unwrap();
            let answer = client
                .call_blocking::<DecryptResponse>("/v1beta1.KeyManagementService/Decrypt", DecryptRequest::default());
            let failure = answer.expect_err("refused").to_string();
            assert!(failure.starts_with(&format!("rpc error: {expected}")), "{at}: {failure}");
            std::fs::remove_file(&socket).unwrap();
        }
    }
}
