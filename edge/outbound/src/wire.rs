//! Opens a connection to a name or an address, and speaks TLS over the connection.

use crate::error_texts::{self, DialError};
use crate::identity::Identity;
use crate::trust::{ServerVerifier, TlsTrust};
use holdfast_tls::suites;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// TLS settings towards a server: its name, the trusted authorities, and the client certificate.
#[derive(Debug, Clone)]
pub struct ServerTls {
    name: ServerName<'static>,
    config: Arc<ClientConfig>,
}

/// The rustls configuration with these trusted authorities and client certificate, for connections that other crates
/// make.
pub fn client_config(trust: &TlsTrust, identity: Option<&Identity>) -> Result<ClientConfig, String> {
    let verifier = Arc::new(ServerVerifier::new(trust)?);
    let mut provider = rustls::crypto::ring::default_provider();
    suites::by_cost(&mut provider);
    let builder = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => builder.with_client_cert_resolver(identity.resolver()),
    };
    Ok(config)
}

impl ServerTls {
    pub fn new(name: &str, trust: &TlsTrust, identity: Option<&Identity>) -> Result<ServerTls, String> {
        let name = ServerName::try_from(name.to_owned()).map_err(|_| format!("{name:?} is not a host name"))?;
        let config = client_config(trust, identity)?;
        Ok(ServerTls { name, config: Arc::new(config) })
    }

    /// The same settings towards a server of another name.
    pub(crate) fn towards(&self, name: &str) -> Result<ServerTls, String> {
        let name = ServerName::try_from(name.to_owned()).map_err(|_| format!("{name:?} is not a host name"))?;
        Ok(ServerTls { name, config: self.config.clone() })
    }

    /// The same settings with these protocols offered by ALPN.
    pub(crate) fn speaking(&self, protocols: &[&[u8]]) -> ServerTls {
        let mut tls = self.clone();
        Arc::make_mut(&mut tls.config).alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        tls
    }

    pub(crate) async fn handshake<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> Result<TlsStream<S>, DialError> {
        let handshake = TlsConnector::from(self.config.clone()).connect(self.name.clone(), stream);
        match tokio::time::timeout(HANDSHAKE_MAX, handshake).await {
            Ok(spoken) => spoken.map_err(|error| DialError(error_texts::of_handshake(&error))),
            Err(_) => Err(DialError("net/http: TLS handshake timeout".into())),
        }
    }
}

pub(crate) async fn dial(host: &str, port: u16) -> Result<TcpStream, DialError> {
    let addresses = tokio::net::lookup_host((host, port)).await;
    let addresses = addresses.map_err(|_| DialError(format!("dial tcp: lookup {host}: no such host")))?;
    let mut first = None;
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) => {
                let error = format!("dial tcp {address}: {}", error_texts::of_connect(&error));
                first.get_or_insert(error);
            }
        }
    }
    Err(DialError(first.unwrap_or_else(|| format!("dial tcp: lookup {host}: no such host"))))
}

pub(crate) fn shown(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// A connection to another process.
pub enum Wire {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// A TLS connection to a proxy.
    Tls(Box<TlsStream<Wire>>),
    /// A connection through a konnectivity server.
    Tunnel(DuplexStream),
}

impl Wire {
    /// Turns on keepalive, so that a vanished peer is noticed within a few minutes.
    pub(crate) fn keep_alive(&self, idle: Duration) {
        if let Wire::Tcp(stream) = self {
            _ = rustix::net::sockopt::set_socket_keepalive(stream, true);
            _ = rustix::net::sockopt::set_tcp_keepidle(stream, idle);
            _ = rustix::net::sockopt::set_tcp_keepintvl(stream, idle / 3);
            _ = rustix::net::sockopt::set_tcp_keepcnt(stream, 3);
        }
    }
}

/// Implements reading and writing by the stream in each variant.
macro_rules! either {
    ($type:ident: $($way:ident),+) => {
        impl AsyncRead for $type {
            fn poll_read(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buffer: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                match &mut *self {
                    $($type::$way(stream) => Pin::new(stream).poll_read(cx, buffer),)+
                }
            }
        }

        impl AsyncWrite for $type {
            fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
                match &mut *self {
                    $($type::$way(stream) => Pin::new(stream).poll_write(cx, bytes),)+
                }
            }

            fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                match &mut *self {
                    $($type::$way(stream) => Pin::new(stream).poll_flush(cx),)+
                }
            }

            fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                match &mut *self {
                    $($type::$way(stream) => Pin::new(stream).poll_shutdown(cx),)+
                }
            }

            fn is_write_vectored(&self) -> bool {
                match self {
                    $($type::$way(stream) => stream.is_write_vectored(),)+
                }
            }

            fn poll_write_vectored(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                slices: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                match &mut *self {
                    $($type::$way(stream) => Pin::new(stream).poll_write_vectored(cx, slices),)+
                }
            }
        }
    };
}

pub(crate) use either;

either!(Wire: Tcp, Unix, Tls, Tunnel);
