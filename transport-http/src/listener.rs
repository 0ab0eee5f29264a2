//! A listening socket and its connections: TLS, HTTP/1.1 or HTTP/2 as the client chose, bounds, and a clean end.

use crate::body::Unread;
use crate::connection::{Connection, Streams, Told};
use crate::manners::Farewell;
use crate::wire::Wire;
use holdfast_tls::bounds::{Bounds, Guests, Place};
use holdfast_tls::peer::Presented;
use holdfast_tls::server::LiveTls;
use http::Request;
use http::header::{CONNECTION, HeaderValue};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::HttpService;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::UnixTime;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch as signal};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::task::TaskTracker;
use tower::{Service, ServiceExt};

/// How many streams a client may reset before they were looked at, and how many the server for the client's mistakes:
/// more of them end the connection.
const PENDING_RESETS_MAX: usize = 64;
const MISTAKES_MAX: usize = 1024;

/// How long, and how much, is read of what a client still sends that has got its last answer.
const LINGER: Duration = Duration::from_millis(500);
const LINGER_BYTES_MAX: usize = 4 << 20;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What every connection of a listener is served with.
#[derive(Clone)]
pub struct Listener<S> {
    pub tls: Arc<LiveTls>,
    pub service: S,
    pub bounds: Bounds,
    /// Is told for how long the certificate of a request's sender is still good.
    pub certified: Arc<dyn Fn(Duration) + Send + Sync>,
    /// Turns true when the server stops.
    pub stopping: signal::Receiver<bool>,
}

impl<S, B> Listener<S>
where
    S: Service<Request<Incoming>, Response = http::Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: Body<Data: Send, Error: Into<Failure>> + Send + Unpin + 'static,
{
    /// Serves whoever connects until the stop signal. The connections end when their requests have.
    pub async fn accept(self, listener: TcpListener) -> TaskTracker {
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
            let shared = self.clone();
            connections.spawn(async move {
                if let Err(error) = shared.serve(stream, client, place).await {
                    tracing::debug!(%error, "a connection ended");
                }
            });
        }
        connections.close();
        connections
    }

    async fn serve(self, stream: TcpStream, client: SocketAddr, mut place: Place) -> Result<(), Failure> {
        let tls = self.tls.current();
        let acceptor = TlsAcceptor::from(tls.config(stream.local_addr().ok().map(|local| local.ip())).clone());
        let stream = tokio::time::timeout(self.bounds.handshake, acceptor.accept(stream)).await??;
        place.shook_hands();
        let session = stream.get_ref().1;
        let presented = Presented::new(tls.verifier.clone(), session.peer_certificates(), UnixTime::now());
        let presented = Arc::new(presented);
        let http2 = session.alpn_protocol() == Some(b"h2");
        let certified = self.certified.clone();
        let service = self.service.clone().map_request(move |mut request: Request<Incoming>| {
            let now = UnixTime::now();
            let (peer, until) = presented.peer_until(now);
            if let Some(until) = until {
                certified(Duration::from_secs(until.saturating_sub(now.as_secs())));
            }
            request.extensions_mut().insert(peer);
            request.extensions_mut().insert(client);
            request
        });
        // On HTTP/1.1 the connection itself waits.
        let service =
            service.map_response(move |response: http::Response<B>| response.map(|body| Told::new(body, http2)));
        if !http2 {
            return self.serve_http1(stream, service).await;
        }
        let last = Arc::new(Notify::new());
        let said = last.clone();
        let service = service.map_response(move |mut response| {
            if response.extensions_mut().remove::<Farewell>().is_some() {
                said.notify_one();
            }
            response
        });
        self.serve_http2(stream, TowerToHyperService::new(service), last).await
    }

    async fn serve_http1<H>(mut self, stream: TlsStream<TcpStream>, service: H) -> Result<(), Failure>
    where
        H: Service<Request<Incoming>, Response = http::Response<Told<B>>, Error = Infallible> + Clone + Send + 'static,
        H::Future: Send,
    {
        let bounds = &self.bounds;
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(bounds.head).max_buf_size(bounds.head_bytes_max as usize);
        let wire = Wire::direct(stream, bounds.unread);
        // Whoever is answered before having sent everything is told that nobody reads the rest. (HTTP/2 resets the stream.)
        let unread = Arc::new(AtomicBool::new(false));
        let seen = unread.clone();
        let service = service.map_response(move |mut response| {
            let is_last = response.extensions_mut().remove::<Farewell>() == Some(Farewell::Always);
            if is_last {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            if response.extensions_mut().remove::<Unread>().is_some() {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                seen.store(true, Ordering::Relaxed);
            }
            response
        });
        let http = builder.serve_connection(TokioIo::new(wire.clone()), TowerToHyperService::new(service));
        let mut connection = pin!(http.with_upgrades());
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = stopped(&mut self.stopping) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if unread.load(Ordering::Relaxed) {
            linger(wire).await;
        }
        ended.map_err(Into::into)
    }

    /// Serves until the connection ends. `last` is told when an answer is to be its last one.
    async fn serve_http2<H>(
        mut self,
        stream: TlsStream<TcpStream>,
        service: H,
        last: Arc<Notify>,
    ) -> Result<(), Failure>
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
            () = last.notified() => {}
        }
        connection.end();
        connection.await
    }
}

/// Reads on for a moment after the last answer: closing a socket from which there is something to read resets the
/// connection, and the client might lose the answer.
async fn linger(mut wire: impl AsyncRead + Unpin) {
    let mut buffer = [0; 4 << 10];
    let mut left = LINGER_BYTES_MAX;
    let read = async {
        while let Ok(count @ 1..) = wire.read(&mut buffer).await {
            left = left.saturating_sub(count);
            if left == 0 {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(LINGER, read).await;
}

async fn stopped(stopping: &mut signal::Receiver<bool>) {
    // One whose sender is gone has stopped too.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

#[cfg(test)]
mod tests;
