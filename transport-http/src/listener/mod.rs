//! A listening socket and its connections: TLS, HTTP/1.1 or HTTP/2 as the client chose, bounds, and a clean shutdown.

use crate::body::Unread;
use crate::connection::Connection;
use crate::manners::Farewell;
use crate::received::Received;
use crate::sparing::Sparing;
use crate::wire::Wire;
use bytes::Bytes;
use holdfast_tls::guests::{ConnectionSlot, Guests};
use holdfast_tls::peer::Presented;
use holdfast_tls::server::{LiveTls, Tls};
use http::Request;
use http::header::{CONNECTION, HeaderValue};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::UnixTime;
use socket2::SockRef;
use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::ready;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch as signal;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::task::TaskTracker;
use tower::{Service, ServiceExt};

/// How long input is still read from the client after the last response was sent.
const LINGER: Duration = Duration::from_millis(500);
/// How many bytes of input are still read from the client after the last response was sent.
const LINGER_BYTES_MAX: usize = 4 << 20;

/// The maximum number of unsent bytes in the system's buffer. While the client does not read, at most this much of a
/// response is made, encrypted and buffered.
const UNSENT_BYTES: u32 = 128 << 10;

/// Limits the warnings about connections that could not be accepted.
static UNACCEPTED: Sparing = Sparing::new();

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The client of a request's connection.
#[derive(Clone)]
pub struct Guest {
    pub address: SocketAddr,
    pub place: Arc<ConnectionSlot>,
}

/// The settings and parts with which a listener serves every connection.
#[derive(Clone)]
pub struct Listener<S> {
    pub tls: Arc<LiveTls>,
    pub service: S,
    /// Whether a request's response takes so little work that the connection's task makes it at once.
    pub is_quick: fn(&Request<()>) -> bool,
    pub guests: Arc<Guests>,
    /// Called with the remaining validity of the client's certificate.
    pub certified: Arc<dyn Fn(Duration) + Send + Sync>,
    /// Becomes true when the server stops.
    pub stopping: signal::Receiver<bool>,
}

impl<S, B> Listener<S>
where
    S: Service<Request<Received>, Response = http::Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes, Error: Into<Failure>> + Send + Unpin + 'static,
{
    /// Accepts connections until the server stops. A connection ends when its requests have ended.
    pub async fn accept(self, listener: TcpListener) -> TaskTracker {
        let connections = TaskTracker::new();
        let mut stopping = self.stopping.clone();
        loop {
            let (stream, client) = tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        // Probably no file descriptors are left, so the listener waits a moment, in which a connection
                        // may end.
                        if UNACCEPTED.line().is_some() {
                            tracing::warn!(%error, "a connection could not be accepted");
                        }
                        tokio::time::sleep(Duration::from_millis(50)).await;
                        continue;
                    }
                },
                () = stopped(&mut stopping) => break,
            };
            let Some(place) = self.guests.admit(client.ip()).map(Arc::new) else {
                tracing::debug!(%client, "a new connection was closed: there are --connections-max already");
                continue;
            };
            let _ = stream.set_nodelay(true);
            let _ = SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_BYTES);
            let (shared, guest) = (self.clone(), Guest { address: client, place: place.clone() });
            let task = connections.spawn(async move {
                if let Err(error) = shared.serve(stream, guest).await {
                    tracing::debug!(%error, "a connection ended");
                }
            });
            let task = task.abort_handle();
            place.gives_way_by(move || task.abort());
        }
        connections.close();
        connections
    }

    async fn serve(self, stream: TcpStream, guest: Guest) -> Result<(), Failure> {
        let bounds = &self.guests.bounds;
        // A client that sends nothing must not take a turn for a handshake.
        tokio::time::timeout(bounds.handshake, stream.readable()).await??;
        poll_fn(|context| guest.place.poll_turn(context)).await;
        let tls = self.tls.current();
        let acceptor = TlsAcceptor::from(tls.config(stream.local_addr().ok().map(|local| local.ip())).clone());
        let stream = {
            // The handshake is boxed, so that its memory is freed when it ends.
            let mut handshake = Box::pin(acceptor.accept(stream));
            let steps = poll_fn(|context| {
                ready!(guest.place.poll_turn(context));
                let step = handshake.as_mut().poll(context);
                guest.place.end_turn();
                step
            });
            tokio::time::timeout(bounds.handshake, steps).await??
        };
        self.serve_http(stream, tls, guest).await
    }

    /// The future is boxed, so that connections that wait for their turn use little memory, and other connections use
    /// only the memory that their version of HTTP needs.
    fn serve_http(
        self,
        stream: TlsStream<TcpStream>,
        tls: Arc<Tls>,
        guest: Guest,
    ) -> Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>> {
        let session = stream.get_ref().1;
        let presented = Presented::new(tls.verifier.clone(), session.peer_certificates(), UnixTime::now());
        let presented = Arc::new(presented);
        let http2 = session.alpn_protocol() == Some(b"h2");
        let (certified, place) = (self.certified.clone(), guest.place.clone());
        let service = self.service.clone().map_request(move |mut request: Request<Received>| {
            let now = UnixTime::now();
            let (peer, until) = presented.peer_until(now);
            if let Some(until) = until {
                certified(Duration::from_secs(until.saturating_sub(now.as_secs())));
            }
            request.extensions_mut().insert(peer);
            request.extensions_mut().insert(guest.clone());
            request
        });
        if !http2 {
            return Box::pin(self.serve_http1(stream, place, service));
        }
        let mut connection = Connection::new(stream, service, self.is_quick, self.guests.bounds, self.stopping);
        Box::pin(async move {
            let ended = (&mut connection).await;
            if ended.is_err() {
                Box::pin(linger(connection.into_io())).await;
            }
            ended
        })
    }

    async fn serve_http1<H>(
        mut self,
        stream: TlsStream<TcpStream>,
        place: Arc<ConnectionSlot>,
        service: H,
    ) -> Result<(), Failure>
    where
        H: Service<Request<Received>, Response = http::Response<B>, Error = Infallible> + Clone + Send + 'static,
        H::Future: Send,
    {
        let bounds = self.guests.bounds;
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(bounds.head).max_buf_size(bounds.head_bytes_max as usize);
        let wire = Wire::new(stream, bounds.unread, Some(place));
        // If a client is answered before it has sent its whole body, a header of the response states that the rest is
        // not read. (HTTP/2 resets the stream.)
        let unread = Arc::new(AtomicBool::new(false));
        let seen = unread.clone();
        let service = service.map_request(|request: Request<Incoming>| request.map(Received::Http1));
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
            Box::pin(linger(wire)).await;
        }
        ended.map_err(Into::into)
    }
}

/// Reads on for a moment after the last response, because closing a socket with unread bytes resets the connection, and
/// the client might lose the response.
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
    // The server has also stopped if the sender was dropped.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

#[cfg(test)]
mod tests;
