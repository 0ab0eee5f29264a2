//! Serves the connections of a component's socket: TLS, authentication, authorization, and responses.

pub mod paths;

use crate::authentication::Authenticator;
use crate::authorization::Authorizer;
use bytes::Bytes;
use holdfast_tls::bounds::Bounds;
use holdfast_tls::guests::{ConnectionSlot, Guests};
use holdfast_tls::peer::{Peer, Presented};
use holdfast_tls::server::LiveTls;
use holdfast_value::Value;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use paths::{PageRequest, PageResponse, Paths};
use rustls::pki_types::UnixTime;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::ready;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How often certificate files are checked for changes.
pub const FILES_PERIOD: Duration = Duration::from_secs(5);
/// How long a connection may last. After this time, the client must open another connection.
const CONNECTION_MAX: Duration = Duration::from_secs(3600);
/// The largest request body that is read, in bytes. The only valid body is a number.
const BODY_BYTES_MAX: usize = 1 << 10;

/// Reloads the certificate files of a server when they change, until the server ends.
pub async fn follow(tls: Weak<LiveTls>) {
    loop {
        tokio::time::sleep(FILES_PERIOD).await;
        let Some(tls) = tls.upgrade() else { return };
        // The files are read in a thread that may block, because the disk may not answer.
        _ = tokio::task::spawn_blocking(move || tls.reload_if_changed()).await;
    }
}

/// The authentication and the authorization of the requests on a socket.
pub struct Guard {
    pub authenticator: Arc<Authenticator>,
    pub authorizer: Authorizer,
}

/// Everything that is needed to serve the connections of one socket.
#[derive(Clone)]
pub struct SocketHandler {
    pub paths: Arc<Paths>,
    /// The TLS settings, and the authentication and authorization of requests. If this is `None`, the socket serves
    /// every client in plain text.
    pub secured: Option<(Arc<LiveTls>, Arc<Guard>)>,
    pub bounds: Bounds,
}

impl SocketHandler {
    /// Accepts and serves connections for ever.
    pub async fn serve(self, listener: TcpListener) {
        accept(listener, self.bounds, move |stream, place| {
            let socket = self.clone();
            async move {
                let connection = tokio::time::timeout(CONNECTION_MAX, socket.connection(stream, &place)).await;
                connection.unwrap_or_else(|_| Err("it lasted too long".to_owned()))
            }
        })
        .await;
    }

    async fn connection(self, stream: TcpStream, place: &ConnectionSlot) -> Result<(), String> {
        let Some((tls, _)) = &self.secured else {
            return self.http1(stream, None).await;
        };
        let (stream, presented) = shake_hands(stream, tls, self.bounds, place).await?;
        match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => self.http2(stream, Some(presented)).await,
            _ => self.http1(stream, Some(presented)).await,
        }
    }

    async fn http1<S>(self, stream: S, presented: Option<Arc<Presented>>) -> Result<(), String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(self.bounds.head)
            .max_buf_size(self.bounds.head_bytes_max as usize);
        let service = service_fn(move |request| self.clone().answer(request, presented.clone()));
        builder.serve_connection(TokioIo::new(stream), service).await.map_err(|error| error.to_string())
    }

    async fn http2<S>(self, stream: S, presented: Option<Arc<Presented>>) -> Result<(), String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(self.bounds.streams_max)
            .max_header_list_size(self.bounds.head_bytes_max)
            .keep_alive_interval(self.bounds.ping_period)
            .keep_alive_timeout(self.bounds.pong);
        let service = service_fn(move |request| self.clone().answer(request, presented.clone()));
        builder.serve_connection(TokioIo::new(stream), service).await.map_err(|error| error.to_string())
    }

    async fn answer(
        self,
        request: Request<Incoming>,
        presented: Option<Arc<Presented>>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let peer = presented.map_or(Peer::Unknown, |presented| presented.peer(UnixTime::now()));
        let answer = match self.refusal(&request, &peer).await {
            Some(refusal) => refusal,
            None => self.allowed(request).await,
        };
        let mut response = Response::new(Full::new(Bytes::from(answer.text)));
        *response.status_mut() = answer.code;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        Ok(response)
    }

    /// The refusal of a request whose user is unknown or may not make the request; `None` if the request is allowed.
    async fn refusal<B>(&self, request: &Request<B>, peer: &Peer) -> Option<PageResponse> {
        let (_, guard) = self.secured.as_ref()?;
        let Some(user) = guard.authenticator.authenticate(peer, request.headers()).await else {
            return Some(status(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized"));
        };
        let (verb, path) = (request.method().as_str().to_ascii_lowercase(), request.uri().path());
        match guard.authorizer.allows(&user, &verb, path).await {
            Ok(true) => None,
            Ok(false) => {
                let message = format!("forbidden: User {:?} cannot {verb} path {path:?}", user.name);
                Some(status(StatusCode::FORBIDDEN, "Forbidden", &message))
            }
            Err(error) => {
                tracing::error!(%error, "the API server could not be asked whether a request is allowed");
                let message = format!("Internal Server Error: {path:?}: {error}");
                Some(status(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", &message))
            }
        }
    }

    async fn allowed<B>(&self, request: Request<B>) -> PageResponse
    where
        B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        let (head, body) = request.into_parts();
        let body = match head.method {
            Method::GET | Method::HEAD => Bytes::new(),
            _ => {
                let read = tokio::time::timeout(self.bounds.head, Limited::new(body, BODY_BYTES_MAX).collect()).await;
                match read {
                    Ok(Ok(body)) => body.to_bytes(),
                    _ => return PageResponse::text(StatusCode::BAD_REQUEST, "the body is too large, or never came\n"),
                }
            }
        };
        self.paths.answer(&PageRequest {
            method: &head.method,
            path: head.uri.path(),
            query: head.uri.query().unwrap_or(""),
            accept: head.headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or(""),
            body: &body,
        })
    }
}

/// Accepts connections for ever, and serves each in a task of its own. A connection ends early if a new connection
/// needs its slot.
pub async fn accept<S>(listener: TcpListener, bounds: Bounds, serve: impl Fn(TcpStream, Arc<ConnectionSlot>) -> S)
where
    S: Future<Output = Result<(), String>> + Send + 'static,
{
    let guests = Guests::new(bounds);
    loop {
        let (stream, client) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Some(place) = guests.admit(client.ip()).map(Arc::new) else { continue };
        let _ = stream.set_nodelay(true);
        let served = serve(stream, place.clone());
        let task = tokio::spawn(async move {
            if let Err(why) = served.await {
                tracing::debug!(%client, why, "a connection ended");
            }
        });
        let task = task.abort_handle();
        place.gives_way_by(move || task.abort());
    }
}

/// Does the TLS handshake, and returns the stream with the client's certificate. Handshakes wait for each other, and
/// each must end within `bounds.handshake`.
pub async fn shake_hands(
    stream: TcpStream,
    tls: &LiveTls,
    bounds: Bounds,
    place: &ConnectionSlot,
) -> Result<(TlsStream<TcpStream>, Arc<Presented>), String> {
    let late = |_| "the handshake took too long";
    // The handshake takes its turn only after the client has sent something, so a silent client does not delay other
    // handshakes.
    let said = tokio::time::timeout(bounds.handshake, stream.readable()).await;
    said.map_err(late)?.map_err(|error| error.to_string())?;
    poll_fn(|context| place.poll_turn(context)).await;
    let tls = tls.current();
    let acceptor = TlsAcceptor::from(tls.config(stream.local_addr().ok().map(|local| local.ip())).clone());
    let mut handshake = pin!(acceptor.accept(stream));
    let steps = poll_fn(|context| {
        ready!(place.poll_turn(context));
        let step = handshake.as_mut().poll(context);
        place.end_turn();
        step
    });
    let stream = tokio::time::timeout(bounds.handshake, steps).await.map_err(late)?;
    let stream = stream.map_err(|error| error.to_string())?;
    let presented = Presented::new(tls.verifier.clone(), stream.get_ref().1.peer_certificates(), UnixTime::now());
    Ok((stream, Arc::new(presented)))
}

fn status(code: StatusCode, reason: &str, message: &str) -> PageResponse {
    // The text is built by hand, so that its fields have the order of Kubernetes' type Status. A document would sort
    // the fields by name.
    let (message, reason) = (Value::from(message), Value::from(reason));
    let text = format!(
        "{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{{}},\"status\":\"Failure\",\
         \"message\":{message},\"reason\":{reason},\"details\":{{}},\"code\":{}}}",
        code.as_u16()
    );
    PageResponse { code, content_type: "application/json", text }
}
