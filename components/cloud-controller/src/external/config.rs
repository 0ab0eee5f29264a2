//! The configuration file of an external provider: its address and the deadline of calls. Unknown fields are faults.

use holdfast_core::object::reader::{Reader, read_text};
use std::path::PathBuf;
use std::time::Duration;

/// The default deadline of a call, in seconds.
const DEADLINE_SECONDS: f64 = 30.0;
const DEADLINE_SECONDS_MAX: f64 = 600.0;

/// The address of a provider, and the deadline of calls to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Configuration {
    pub endpoint: ProviderAddress,
    pub deadline: Duration,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ProviderAddress {
    /// A Unix socket on this machine.
    Unix(PathBuf),
    /// A URL without TLS. Its host must be this machine.
    Plain(String),
    Tls(ProviderTls),
}

#[derive(Debug, Clone, PartialEq)]
pub struct ProviderTls {
    pub url: String,
    /// The file with the certificate of the authority that signed the provider's certificate.
    pub authority: PathBuf,
    /// The files with the client certificate and the private key that the manager shows to the provider.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name in the provider's certificate, if it is not the host of the URL.
    pub server_name: Option<String>,
}

impl Configuration {
    /// Reads a configuration in YAML or JSON. The error lists all faults of the configuration.
    pub fn parse(text: &str) -> Result<Configuration, Vec<String>> {
        read_text(text, Configuration::read)?.ok_or_else(Vec::new)
    }

    fn read(reader: &Reader<'_>) -> Option<Configuration> {
        let seconds = reader.seconds("deadline").unwrap_or(DEADLINE_SECONDS);
        if !(0.001..=DEADLINE_SECONDS_MAX).contains(&seconds) {
            reader.invalid("deadline", format!("{seconds}s"), "must be from 1ms to 10m");
        }
        let deadline = Duration::from_secs_f64(seconds.clamp(0.001, DEADLINE_SECONDS_MAX));
        let file = |field: &str| reader.text(field).filter(|text| !text.is_empty()).map(PathBuf::from);
        let (authority, certificate, key) = (file("caFile"), file("certFile"), file("keyFile"));
        let server_name = reader.text("serverName").map(str::to_owned);
        let Some(endpoint) = reader.text("endpoint").filter(|text| !text.is_empty()) else {
            reader.required("endpoint", "where the provider listens: unix:///PATH, https://HOST:PORT");
            return None;
        };
        if certificate.is_some() != key.is_some() {
            reader
                .required(if key.is_some() { "certFile" } else { "keyFile" }, "a certificate and its key go together");
        }
        let has_tls = authority.is_some() || certificate.is_some() || server_name.is_some();
        let endpoint = match endpoint.split_once("://") {
            Some(("unix", path)) if path.starts_with('/') => ProviderAddress::Unix(path.into()),
            Some(("http", host)) if is_loopback(host) => ProviderAddress::Plain(endpoint.to_owned()),
            Some(("https", _)) => {
                let Some(authority) = authority else {
                    reader.required("caFile", "who signed the provider's certificate");
                    return None;
                };
                let identity = certificate.zip(key);
                return Some(Configuration {
                    endpoint: ProviderAddress::Tls(ProviderTls {
                        url: endpoint.to_owned(),
                        authority,
                        identity,
                        server_name,
                    }),
                    deadline,
                });
            }
            _ => {
                let message =
                    "must be unix:///PATH, https://HOST:PORT, or http://127.0.0.1:PORT for this machine alone";
                reader.invalid("endpoint", format!("{endpoint:?}"), message);
                return None;
            }
        };
        if has_tls {
            reader.fault("caFile", "certificates are for endpoints with https");
        }
        Some(Configuration { endpoint, deadline })
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_end_matches('/').parse::<std::net::SocketAddr>();
    host.starts_with("localhost:") || address.is_ok_and(|address| address.ip().is_loopback())
}
