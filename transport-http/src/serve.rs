//! The socket under the API: TLS, HTTP/1.1 and HTTP/2 on one port, and a clean end.

use crate::api::{Api, WireRequest};
use crate::authenticate::Peer;
use crate::peer::{PeerVerifier, Presented};
use crate::respond::Response;
use http::{HeaderMap, Method};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::UnixTime;
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
    let acceptor = TlsAcceptor::from(tls.config.clone());
    let mut stopping = api.stopping.subscribe();
    let graceful = hyper_util::server::graceful::GracefulShutdown::new();
    let service = warp::service(filter(api.clone()));
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
            let chain = stream.get_ref().1.peer_certificates();
            let presented = Arc::new(Presented::new(verifier, chain, UnixTime::now()));
            let service =
                tower::ServiceExt::map_request(service, move |mut request: http::Request<hyper::body::Incoming>| {
                    request.extensions_mut().insert(presented.peer(UnixTime::now()));
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
    api.sockets.close();
    let ended = async { tokio::join!(graceful.shutdown(), api.sockets.wait()) };
    let _ = tokio::time::timeout(DRAIN_MAX, ended).await;
    Ok(())
}

/// The TLS side of a server.
#[derive(Clone)]
pub struct Tls {
    pub config: Arc<rustls::ServerConfig>,
    pub verifier: Arc<PeerVerifier>,
}
