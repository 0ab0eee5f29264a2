//! Makes calls over gRPC, by channels on connections that the caller opens, and gives the text of a failed call.
//!
//! A channel connects at its first call, and again after the connection was lost. The callers set the deadlines,
//! because each caller reports a late answer with another text.

mod failure;

pub use failure::{Failure, causes, code_name};

use holdfast_files::check_socket;
use http::Uri;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use prost::Message;
use std::error::Error;
use std::path::Path;
use std::sync::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tonic::Status;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

type BoxError = Box<dyn Error + Send + Sync>;

/// An endpoint for channels whose connections do not depend on its URL. The host in the URL is never resolved.
pub fn local() -> Endpoint {
    Endpoint::from_static("http://localhost")
}

/// A channel whose connections `connect` opens. The channel must be made within a runtime of tokio.
pub fn channel<S, E, F>(endpoint: &Endpoint, connect: impl Fn() -> F + Send + 'static) -> Channel
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    E: Into<BoxError>,
    F: Future<Output = Result<S, E>> + Send + 'static,
{
    endpoint.connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
        let connecting = connect();
        async move { connecting.await.map(TokioIo::new).map_err(Into::into) }
    }))
}

/// A channel on a connection that is open already. After the connection was lost, calls fail.
pub fn channel_over<S>(endpoint: &Endpoint, stream: S) -> Channel
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let stream = Mutex::new(Some(stream));
    channel(endpoint, move || {
        let stream = stream.lock().map_or(None, |mut stream| stream.take());
        async move { stream.ok_or("the connection was lost") }
    })
}

/// Connects to the Unix socket at `path`, unless another user could have put it there. The call does not block the
/// thread. A plain `connect` would wait for ever if a server no longer accepts connections and its backlog is full.
pub async fn connect_unix(path: &Path) -> std::io::Result<UnixStream> {
    check_socket(path)?;
    UnixStream::connect(path).await
}

/// A client that is ready for a call. It reads no message longer than `bytes_max`.
pub async fn client(channel: &Channel, bytes_max: usize) -> Result<Grpc<Channel>, Status> {
    let mut client = Grpc::new(channel.clone()).max_decoding_message_size(bytes_max);
    client.ready().await.map_err(|error| Status::from_error(error.into()))?;
    Ok(client)
}

/// Calls a method with one request and one answer. The path has the form `/SERVICE/METHOD`.
pub async fn unary<Q, A>(channel: &Channel, path: &str, request: Q, bytes_max: usize) -> Result<A, Status>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let path = PathAndQuery::try_from(path).map_err(|error| Status::internal(error.to_string()))?;
    let codec: ProstCodec<Q, A> = ProstCodec::default();
    let answer = client(channel, bytes_max).await?.unary(tonic::Request::new(request), path, codec).await?;
    Ok(answer.into_inner())
}
