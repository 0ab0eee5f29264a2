//! The socket under the API: TLS, HTTP/1.1 and HTTP/2 on one port, and a clean end.

use crate::authenticate::{Peer, certificate_user};
use crate::respond::Response;
use crate::transport::{Transport, WireRequest};
use http::{HeaderMap, Method};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rustls::DigitallySignedStruct;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use warp::Filter;
use warp::filters::path::FullPath;

/// How long a client may take to shake hands.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// How long requests in progress may take when the server stops.
const DRAIN_MAX: Duration = Duration::from_secs(5);
/// An HTTP/2 client may have this many requests in progress on one connection.
pub const STREAMS_MAX: u32 = 250;

/// The API as a warp filter: for the socket, and for callers within the process.
pub fn filter(
    transport: Arc<Transport>,
) -> impl Filter<Extract = (Response,), Error = Infallible> + Clone + Send + Sync + 'static {
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
                let transport = transport.clone();
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
                    Ok::<Response, warp::Rejection>(transport.handle(wire).await)
                }
            },
        )
        .recover(|_: warp::Rejection| async { Ok::<_, Infallible>(crate::respond::text(400, "bad request\n")) })
        .unify()
}

/// Serves until the stop signal, then lets requests in progress finish.
pub async fn serve(
    transport: Arc<Transport>,
    listener: TcpListener,
    tls: Tls,
    streams_max: u32,
) -> std::io::Result<()> {
    let acceptor = TlsAcceptor::from(tls.config.clone());
    let mut stopping = transport.stopping.subscribe();
    let graceful = hyper_util::server::graceful::GracefulShutdown::new();
    let service = warp::service(filter(transport.clone()));
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).keep_alive(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(streams_max)
        .initial_stream_window_size(256 << 10)
        .initial_connection_window_size(1 << 20)
        .adaptive_window(false)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(15))
        .max_send_buf_size(256 << 10);
    let builder = Arc::new(builder);
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
            () = async { drop(stopping.wait_for(|stopping| *stopping).await) } => break,
        };
        let _ = stream.set_nodelay(true);
        let (acceptor, verifier, builder) = (acceptor.clone(), tls.verifier.clone(), builder.clone());
        let service = service.clone();
        let watcher = graceful.watcher();
        tokio::spawn(async move {
            let handshake = tokio::time::timeout(HANDSHAKE_MAX, acceptor.accept(stream));
            let stream = match handshake.await {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => return tracing::debug!(%error, "TLS handshake failed"),
                Err(_) => return tracing::debug!("TLS handshake timed out"),
            };
            let peer = match stream.get_ref().1.peer_certificates() {
                Some(chain) => verifier.peer(chain),
                None => Peer::Unknown,
            };
            let service =
                tower::ServiceExt::map_request(service, move |mut request: http::Request<hyper::body::Incoming>| {
                    request.extensions_mut().insert(peer.clone());
                    request.extensions_mut().insert(client);
                    request
                });
            let connection =
                builder.serve_connection_with_upgrades(TokioIo::new(stream), TowerToHyperService::new(service));
            if let Err(error) = watcher.watch(connection.into_owned()).await {
                tracing::debug!(%error, "a connection ended");
            }
        });
    }
    drop(listener);
    transport.sockets.close();
    let ended = async { tokio::join!(graceful.shutdown(), transport.sockets.wait()) };
    let _ = tokio::time::timeout(DRAIN_MAX, ended).await;
    Ok(())
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
