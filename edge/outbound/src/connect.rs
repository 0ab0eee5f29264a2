//! Makes the connections of the pool: by URL or by Service; direct, through a proxy, or within this process.

use crate::Resolver;
use crate::egress::Dialer;
use crate::error_texts::DialError;
use crate::identity::Identity;
use crate::trust::TlsTrust;
use crate::wire::{ServerTls, Wire, either, shown};
use holdfast_engine::Engine;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio_rustls::client::TlsStream;
use tower::Service;

const DIAL_MAX: Duration = Duration::from_secs(30);
/// The maximum number of bytes in transit, in each direction, of a connection to a server in this process.
pub(crate) const INSIDE_BYTES: usize = 64 << 10;

/// A function that serves the other end of a connection to a Service, if this process answers for the Service.
pub type Inside = Arc<dyn Fn(&Arc<Engine>, DuplexStream) + Send + Sync>;

/// Makes connections for calls with the same TLS settings and the same Service.
#[derive(Clone)]
pub struct Connector {
    tls: ServerTls,
    /// Whether connections of the pool may speak HTTP/2.
    http2: bool,
    dialer: Dialer,
    service: Option<(String, String, u16)>,
    /// Finds the addresses of the Service; `Some` if `service` is `Some`.
    resolver: Option<Arc<Resolver>>,
    /// The server in this process that answers for the Service, and the engine with its data.
    inside: Option<(Inside, Arc<Engine>)>,
}

impl Connector {
    pub fn new(
        server_name: &str,
        trust: &TlsTrust,
        identity: Option<&Identity>,
        service: Option<(String, String, u16)>,
        resolver: Arc<Resolver>,
        inside: Option<Inside>,
    ) -> Result<Connector, String> {
        let direct = Connector::direct(server_name, trust, identity)?;
        let inside = inside.map(|inside| (inside, resolver.engine.clone()));
        Ok(Connector { service, resolver: Some(resolver), inside, ..direct })
    }

    /// A connector to the host of the URL.
    pub fn direct(server_name: &str, trust: &TlsTrust, identity: Option<&Identity>) -> Result<Connector, String> {
        let tls = ServerTls::new(server_name, trust, identity)?;
        Ok(Connector { tls, http2: true, dialer: Dialer::Direct, service: None, resolver: None, inside: None })
    }

    /// The same connector, whose connections go through the proxy of `dialer` if `dialer` has a proxy.
    pub fn through(self, dialer: &Dialer) -> Connector {
        Connector { dialer: dialer.clone(), ..self }
    }

    /// The same connector with HTTP/1.1, where a connection carries one call at a time. So parallel calls use several
    /// connections, and can reach all servers that share a name.
    pub fn speaking_http1(self) -> Connector {
        Connector { http2: false, ..self }
    }

    /// A connection to the host of the URL, or to the Service.
    pub async fn connect(&self, url: &http::Uri, http2: bool) -> Result<Link, DialError> {
        if let Some((inside, engine)) = &self.inside {
            let (ours, theirs) = tokio::io::duplex(INSIDE_BYTES);
            inside(engine, theirs);
            return Ok(Link::Inside(ours));
        }
        let is_plain = url.scheme() == Some(&http::uri::Scheme::HTTP);
        let (host, port) = match self.service.as_ref().zip(self.resolver.as_ref()) {
            Some(((namespace, name, port), resolver)) => {
                let address = resolver.address(namespace, name, *port);
                let address = address.map_err(|error| DialError(error.to_string()))?;
                (address.host, address.port)
            }
            _ => {
                let host = url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
                (host, url.port_u16().unwrap_or(if is_plain { 80 } else { 443 }))
            }
        };
        let stream = match tokio::time::timeout(DIAL_MAX, self.dialer.dial(&host, port)).await {
            Ok(dialled) => dialled?,
            Err(_) => return Err(DialError(format!("dial tcp {}: i/o timeout", shown(&host, port)))),
        };
        if is_plain {
            return Ok(Link::Plain(stream));
        }
        let tls = if http2 { self.tls.speaking(&[b"h2", b"http/1.1"]) } else { self.tls.speaking(&[b"http/1.1"]) };
        tls.handshake(stream).await.map(|stream| Link::Tls(Box::new(stream)))
    }
}

impl Service<http::Uri> for Connector {
    type Response = PooledStream;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<PooledStream, DialError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, url: http::Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            connector.connect(&url, connector.http2).await.map(|stream| PooledStream(TokioIo::new(stream)))
        })
    }
}

/// A connection to a server in another process, or in this process. A connection within the process needs no TLS.
pub enum Link {
    Tls(Box<TlsStream<Wire>>),
    Plain(Wire),
    Inside(DuplexStream),
}

impl Link {
    fn speaks_http2(&self) -> bool {
        match self {
            Link::Tls(stream) => stream.get_ref().1.alpn_protocol() == Some(b"h2"),
            Link::Plain(_) | Link::Inside(_) => false,
        }
    }
}

either!(Link: Tls, Plain, Inside);

/// A connection that reports to the pool whether it negotiated HTTP/2.
pub struct PooledStream(TokioIo<Link>);

impl Connection for PooledStream {
    fn connected(&self) -> Connected {
        let connected = Connected::new();
        match self.0.inner().speaks_http2() {
            true => connected.negotiated_h2(),
            false => connected,
        }
    }
}

impl Read for PooledStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl Write for PooledStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, slices)
    }
}
