//! Connections to the members of an etcd cluster.

use rustls_pki_types::ServerName;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};

/// The maximum time to open a connection, as in kube-apiserver's etcd client.
const DIAL_MAX: Duration = Duration::from_secs(20);
/// The interval at which a keepalive is sent, as in kube-apiserver's etcd client.
const KEEP_ALIVE_PERIOD: Duration = Duration::from_secs(30);
const KEEP_ALIVE_MAX: Duration = Duration::from_secs(10);
/// The maximum number of bytes that a member may send before they are read.
const WINDOW_BYTES: u32 = 8 << 20;

/// The address of an etcd member, as in `--etcd-servers`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address(http::Uri);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an address of etcd: it has the form http://HOST:PORT or https://HOST:PORT")]
pub struct BadAddress(String);

impl Address {
    /// Parses an address. An address without a scheme gets the scheme `http`.
    pub fn parse(text: &str) -> Result<Address, BadAddress> {
        let bad = || BadAddress(text.to_owned());
        let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let uri: http::Uri = whole.parse().map_err(|_| bad())?;
        let is_right = matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.host().is_some_and(|host| !host.is_empty())
            && uri.port_u16().is_some()
            && matches!(uri.path(), "" | "/")
            && uri.query().is_none()
            && !uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
        if is_right { Ok(Address(uri)) } else { Err(bad()) }
    }

    pub fn is_https(&self) -> bool {
        self.0.scheme_str() == Some("https")
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authority = self.0.authority().map_or("", |authority| authority.as_str());
        write!(f, "{}://{authority}", self.0.scheme_str().unwrap_or("http"))
    }
}

trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<L: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for L {}

/// A connection that is opened at the first call, and again after it was lost.
pub fn channel(address: &Address, tls: Option<Arc<rustls::ClientConfig>>) -> Channel {
    let (tls, target) = (tls.map(TlsConnector::from), address.0.clone());
    let connector = move || {
        let (tls, target) = (tls.clone(), target.clone());
        async move {
            match tokio::time::timeout(DIAL_MAX, connect(&target, tls)).await {
                Ok(line) => line,
                Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "it does not answer")),
            }
        }
    };
    // The connector does TLS. tonic refuses an endpoint of `https` without its own TLS, so the endpoint has the scheme
    // `http`, and `origin` gives requests the scheme `https`.
    let mut parts = address.0.clone().into_parts();
    parts.scheme = Some(http::uri::Scheme::HTTP);
    let plain = http::Uri::from_parts(parts).unwrap_or_else(|_| address.0.clone());
    let endpoint = Endpoint::from(plain)
        .origin(address.0.clone())
        .http2_keep_alive_interval(KEEP_ALIVE_PERIOD)
        .keep_alive_timeout(KEEP_ALIVE_MAX)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES);
    holdfast_grpc::channel(&endpoint, connector)
}

async fn connect(uri: &http::Uri, tls: Option<TlsConnector>) -> io::Result<Box<dyn ByteStream>> {
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
    let line = TcpStream::connect((host.as_str(), uri.port_u16().unwrap_or_default())).await?;
    line.set_nodelay(true)?;
    if uri.scheme_str() != Some("https") {
        return Ok(Box::new(line));
    }
    let unsupported = || io::Error::new(io::ErrorKind::Unsupported, "there is no configuration for https");
    let tls = tls.ok_or_else(unsupported)?;
    let name = ServerName::try_from(host).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    Ok(Box::new(tls.connect(name, line).await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_from_what_is_none() {
        for (text, shown) in [
            ("http://127.0.0.1:2379", "http://127.0.0.1:2379"),
            ("https://etcd.example:2379/", "https://etcd.example:2379"),
            ("127.0.0.1:2379", "http://127.0.0.1:2379"),
            ("https://[::1]:2379", "https://[::1]:2379"),
        ] {
            assert_eq!(Address::parse(text).map(|address| address.to_string()), Ok(shown.to_owned()));
        }
        for text in ["", "http://", "ftp://a:1", "http://a", "http://a:1/b", "http://u:p@a:1", "a:1?b", "\u{1b}:1"] {
            let fault = Address::parse(text).expect_err(text).to_string();
            assert!(!fault.contains('\u{1b}'), "{fault}");
        }
    }
}
