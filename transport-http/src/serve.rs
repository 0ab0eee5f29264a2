//! The socket under the API: TLS, HTTP/1.1 and HTTP/2 on one port, and a clean end.

use crate::api::{Api, WireRequest};
use crate::authenticate::{Peer, certificate_user};
use crate::bounds::{Bounds, Guests, Place};
use crate::connection::{Connection, Streams, Told};
use crate::respond::Response;
use crate::wire::Wire;
use http::{HeaderMap, Method, Request};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::HttpService;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::DigitallySignedStruct;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch as signal;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::task::TaskTracker;
use tower::{Service, ServiceExt};
use warp::Filter;
use warp::filters::path::FullPath;

pub use crate::bounds::STREAMS_MAX;

/// How long requests in progress may take when the server stops.
const DRAIN_MAX: Duration = Duration::from_secs(5);
/// How many streams a client may reset before they were looked at, and how many the server for the client's mistakes:
/// more of them end the connection.
const PENDING_RESETS_MAX: usize = 64;
const MISTAKES_MAX: usize = 1024;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The API as a warp filter: for the socket, and for callers within the process.
pub fn filter(api: Arc<Api>) -> impl Filter<Extract = (Response,), Error = Infallible> + Clone + Send + Sync + 'static {
    let query = warp::query::raw().or(warp::any().map(String::new)).unify();
    let peer = warp::ext::optional::<Peer>();
    let client = warp::ext::optional::<SocketAddr>();
    let upgrade = warp::ext::optional::<OnUpgrade>();
    warp::method()
        .and(warp::path::full())
        .and(query)
        .and(warp::header::headers_cloned())
        .and(peer)
        .and(client)
        .and(upgrade)
        .and(warp::body::stream())
        .and_then(
            move |method: Method,
                  path: FullPath,
                  query,
                  headers: HeaderMap,
                  peer: Option<Peer>,
                  client,
                  upgrade,
                  body| {
                let api = api.clone();
                async move {
                    let peer = peer.unwrap_or(Peer::Unknown);
                    let wire = WireRequest {
                        method,
                        path: path.as_str().to_owned(),
                        query,
                        headers,
                        peer,
                        client,
                        upgrade,
                        body,
                    };
                    Ok::<Response, warp::Rejection>(api.handle(wire).await)
                }
            },
        )
        .recover(|_: warp::Rejection| async { Ok::<_, Infallible>(crate::respond::text(400, "bad request\n")) })
        .unify()
}

/// Serves until the stop signal, then lets requests in progress finish.
pub async fn serve(api: Arc<Api>, listener: TcpListener, tls: Tls, streams_max: u32) -> std::io::Result<()> {
    let door = Door {
        tls,
        service: warp::service(filter(api.clone())),
        bounds: Bounds { streams_max, ..Bounds::default() },
        stopping: api.stopping.subscribe(),
    };
    let connections = door.accept(listener).await;
    api.sockets.close();
    let ended = async { tokio::join!(connections.wait(), api.sockets.wait()) };
    let _ = tokio::time::timeout(DRAIN_MAX, ended).await;
    Ok(())
}

/// What every connection of a listener is served with.
#[derive(Clone)]
struct Door<S> {
    tls: Tls,
    service: S,
    bounds: Bounds,
    stopping: signal::Receiver<bool>,
}

impl<S, B> Door<S>
where
    S: Service<Request<Incoming>, Response = http::Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: Body<Data: Send, Error: Into<Failure>> + Send + Unpin + 'static,
{
    /// Serves whoever connects until the stop signal. The connections end when their requests have.
    async fn accept(self, listener: TcpListener) -> TaskTracker {
        let connections = TaskTracker::new();
        let guests = Guests::new(self.bounds);
        let mut stopping = self.stopping.clone();
        loop {
            let (stream, client) = tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        // Out of file descriptors, most likely: wait until some connection ends.
                        tracing::warn!(%error, "a connection could not be accepted");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                        continue;
                    }
                },
                () = stopped(&mut stopping) => break,
            };
            let Some(place) = guests.admit(client.ip()) else {
                tracing::debug!(%client, "there are too many connections");
                continue;
            };
            let _ = stream.set_nodelay(true);
            let door = self.clone();
            connections.spawn(async move {
                if let Err(error) = door.serve(stream, client, place).await {
                    tracing::debug!(%error, "a connection ended");
                }
            });
        }
        connections.close();
        connections
    }

    async fn serve(self, stream: TcpStream, client: SocketAddr, mut place: Place) -> Result<(), Failure> {
        let acceptor = TlsAcceptor::from(self.tls.config.clone());
        let stream = tokio::time::timeout(self.bounds.handshake, acceptor.accept(stream)).await??;
        place.shook_hands();
        let session = stream.get_ref().1;
        let peer = match session.peer_certificates() {
            Some(chain) => self.tls.verifier.peer(chain),
            None => Peer::Unknown,
        };
        let http2 = session.alpn_protocol() == Some(b"h2");
        let service = self.service.clone().map_request(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer.clone());
            request.extensions_mut().insert(client);
            request
        });
        let service = service.map_response(|response: http::Response<B>| response.map(Told));
        match http2 {
            true => self.serve_http2(stream, TowerToHyperService::new(service)).await,
            false => self.serve_http1(stream, TowerToHyperService::new(service)).await,
        }
    }

    async fn serve_http1<H>(mut self, stream: TlsStream<TcpStream>, service: H) -> Result<(), Failure>
    where
        H: HttpService<Incoming, ResBody = Told<B>, Error: Into<Failure>, Future: Send> + Send + 'static,
    {
        let bounds = &self.bounds;
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(bounds.head).max_buf_size(bounds.head_bytes_max as usize);
        let io = TokioIo::new(Wire::direct(stream, bounds.unread));
        let mut connection = pin!(builder.serve_connection(io, service).with_upgrades());
        tokio::select! {
            ended = connection.as_mut() => return ended.map_err(Into::into),
            () = stopped(&mut self.stopping) => {}
        }
        connection.as_mut().graceful_shutdown();
        connection.await.map_err(Into::into)
    }

    async fn serve_http2<H>(mut self, stream: TlsStream<TcpStream>, service: H) -> Result<(), Failure>
    where
        H: HttpService<Incoming, ResBody = Told<B>, Error: Into<Failure>, Future: Send + 'static> + 'static,
    {
        let bounds = &self.bounds;
        let streams = Streams::new(bounds);
        let mut builder = http2::Builder::new(streams.clone());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(bounds.streams_max)
            .max_header_list_size(bounds.head_bytes_max)
            .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
            .max_local_error_reset_streams(MISTAKES_MAX)
            .initial_stream_window_size(256 << 10)
            .initial_connection_window_size(1 << 20)
            .adaptive_window(false)
            .keep_alive_interval(bounds.ping_period)
            .keep_alive_timeout(bounds.pong)
            .max_send_buf_size(256 << 10);
        let wire = Wire::gathering(stream, bounds.unread, bounds.head);
        let http = builder.serve_connection(TokioIo::new(wire.clone()), service);
        let mut connection = Connection::new(http, wire, streams, bounds);
        tokio::select! {
            ended = &mut connection => return ended,
            () = stopped(&mut self.stopping) => {}
        }
        connection.end();
        connection.await
    }
}

async fn stopped(stopping: &mut signal::Receiver<bool>) {
    // One whose sender is gone has stopped too.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

/// The TLS side of a server.
#[derive(Clone)]
pub struct Tls {
    pub config: Arc<rustls::ServerConfig>,
    pub verifier: Arc<PeerVerifier>,
}

/// Asks for a client certificate and takes any in the handshake: whether to trust it is decided when a request
/// is authenticated, so that the client gets a Status and not a broken connection.
#[derive(Debug)]
pub struct PeerVerifier {
    trusted: Option<Arc<dyn ClientCertVerifier>>,
    front_proxies: Option<FrontProxies>,
    hints: Vec<rustls::DistinguishedName>,
    algorithms: rustls::crypto::WebPkiSupportedAlgorithms,
}

impl PeerVerifier {
    /// `authorities` sign users' certificates, and those of `front_proxies` such proxies'.
    pub fn new(
        authorities: Vec<CertificateDer<'static>>,
        front_proxies: Option<(Vec<CertificateDer<'static>>, Vec<String>)>,
    ) -> Result<PeerVerifier, String> {
        let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms;
        let trusted = verifier(authorities)?;
        let front_proxies = match front_proxies {
            None => None,
            Some((authorities, allowed_names)) => {
                verifier(authorities)?.map(|trusted| FrontProxies { trusted, allowed_names })
            }
        };
        let both = trusted.iter().chain(front_proxies.iter().map(|proxies| &proxies.trusted));
        let hints = both.flat_map(|trusted| trusted.root_hint_subjects().to_vec()).collect();
        Ok(PeerVerifier { trusted, front_proxies, hints, algorithms })
    }

    /// Whom the certificate chain of a connection stands for.
    fn peer(&self, chain: &[CertificateDer<'_>]) -> Peer {
        let user = self.user(chain);
        match &self.front_proxies {
            Some(proxies) if proxies.include(chain) => Peer::FrontProxy(Arc::new(user)),
            _ => user,
        }
    }

    fn user(&self, chain: &[CertificateDer<'_>]) -> Peer {
        let (Some(trusted), [certificate, intermediates @ ..]) = (&self.trusted, chain) else { return Peer::Unknown };
        if let Err(error) = trusted.verify_client_cert(certificate, intermediates, UnixTime::now()) {
            return Peer::Untrusted(error.to_string().into());
        }
        match certificate_user(certificate) {
            Ok(user) => Peer::Certificate(Arc::new(user)),
            Err(error) => Peer::Untrusted(error.into()),
        }
    }
}

/// Which certificates are those of proxies in front of this server.
#[derive(Debug)]
struct FrontProxies {
    trusted: Arc<dyn ClientCertVerifier>,
    /// Any, when there is none.
    allowed_names: Vec<String>,
}

impl FrontProxies {
    fn include(&self, chain: &[CertificateDer<'_>]) -> bool {
        let [certificate, intermediates @ ..] = chain else { return false };
        let named = || match certificate_user(certificate) {
            Ok(user) => self.allowed_names.contains(&user.name),
            Err(_) => false,
        };
        self.trusted.verify_client_cert(certificate, intermediates, UnixTime::now()).is_ok()
            && (self.allowed_names.is_empty() || named())
    }
}

/// Verifies clients' certificates; `None` where nobody signs any.
fn verifier(authorities: Vec<CertificateDer<'static>>) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
    if authorities.is_empty() {
        return Ok(None);
    }
    let mut roots = rustls::RootCertStore::empty();
    for authority in authorities {
        roots.add(authority).map_err(|error| error.to_string())?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    Ok(Some(verifier.build().map_err(|error| error.to_string())?))
}

impl ClientCertVerifier for PeerVerifier {
    fn offer_client_auth(&self) -> bool {
        self.trusted.is_some() || self.front_proxies.is_some()
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[rustls::DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
