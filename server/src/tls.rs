//! From certificate files and options to a TLS configuration.

use crate::flags::Args;
use anyhow::{Context, Result, anyhow, bail};
use holdfast_outbound::keys;
use holdfast_transport_http::peer::PeerVerifier;
use holdfast_transport_http::serve::Tls;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CipherSuite, ServerConfig, SupportedProtocolVersion};
use std::path::Path;
use std::sync::Arc;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// The configuration with its own pair, the pairs for other names, and the authorities of clients.
pub fn configure(args: &Args, certificate: &Path, key: &Path) -> Result<Tls> {
    let provider = Arc::new(provider(&args.tls_cipher_suites)?);
    let mut certificates = Certificates { default: load_pair(&provider, certificate, key)?, named: Vec::new() };
    for text in &args.tls_sni_cert_key {
        certificates.add(&provider, text).with_context(|| format!("--tls-sni-cert-key={text}"))?;
    }
    let authorities = match &args.client_ca_file {
        None => Vec::new(),
        Some(file) => load_certificates(file)?,
    };
    let front_proxies = match &args.front_proxy.requestheader_client_ca_file {
        None => None,
        Some(file) => Some((load_certificates(file)?, args.front_proxy.requestheader_allowed_names.clone())),
    };
    if let Some((proxies, names)) = &front_proxies
        && names.is_empty()
        && proxies.iter().any(|authority| authorities.contains(authority))
    {
        bail!(
            "--client-ca-file and --requestheader-client-ca-file share an authority, so that every user could name \
             another one: --requestheader-allowed-names must say who the proxies are"
        );
    }
    let verifier = Arc::new(
        PeerVerifier::new(authorities, front_proxies).map_err(|error| anyhow!("client authorities: {error}"))?,
    );
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions(&args.tls_min_version)?)
        .context("no cipher suite is left for these TLS versions")?
        .with_client_cert_verifier(verifier.clone())
        .with_cert_resolver(Arc::new(certificates));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Tls { config: Arc::new(config), verifier })
}

/// TLS 1.3 and nothing else.
static ONLY_TLS13: [&SupportedProtocolVersion; 1] = [&rustls::version::TLS13];

fn versions(minimum: &str) -> Result<&'static [&'static SupportedProtocolVersion]> {
    match minimum {
        "VersionTLS10" | "VersionTLS11" | "VersionTLS12" => Ok(rustls::ALL_VERSIONS),
        "VersionTLS13" => Ok(&ONLY_TLS13),
        other => bail!("--tls-min-version={other}: use VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13"),
    }
}

/// Go's names for suites are those of the standard, but for the two that end in a hash there.
fn provider(names: &[String]) -> Result<CryptoProvider> {
    let mut provider = rustls::crypto::ring::default_provider();
    if names.is_empty() {
        return Ok(provider);
    }
    let mut wanted: Vec<CipherSuite> = Vec::new();
    for name in names {
        let normal = |text: &str| text.trim_end_matches("_SHA256").replace("TLS13_", "TLS_");
        let found = provider.cipher_suites.iter().map(|suite| suite.suite()).find(|suite| {
            let known = format!("{suite:?}");
            normal(&known) == normal(name) || known == *name || known.replace("TLS13_", "TLS_") == *name
        });
        match found {
            Some(suite) => wanted.push(suite),
            None => {
                let known: Vec<String> = provider.cipher_suites.iter().map(|s| format!("{:?}", s.suite())).collect();
                bail!("--tls-cipher-suites: {name} is not served; there are {}", known.join(", "));
            }
        }
    }
    // As in Go, the list rules TLS 1.2 alone: the suites of 1.3 are not configurable.
    provider.cipher_suites.retain(|suite| suite.tls13().is_some() || wanted.contains(&suite.suite()));
    Ok(provider)
}

fn load_certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let certificates: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(file).with_context(|| format!("read {}", file.display()))?.collect();
    let certificates = certificates.with_context(|| format!("{} is no PEM of certificates", file.display()))?;
    if certificates.is_empty() {
        bail!("{} holds no certificate", file.display());
    }
    Ok(certificates)
}

fn load_pair(provider: &CryptoProvider, certificate: &Path, key: &Path) -> Result<Arc<CertifiedKey>> {
    let chain = load_certificates(certificate)?;
    let text = std::fs::read(key).with_context(|| format!("read {}", key.display()))?;
    let private = keys::private_key(&text).map_err(|why| anyhow!("{}: {why}", key.display()))?;
    let pair = keys::certified(provider, chain, private);
    pair.map(Arc::new).map_err(|why| anyhow!("{} and {}: {why}", certificate.display(), key.display()))
}

/// Which certificate a client gets, by the name it asks for.
#[derive(Debug)]
struct Certificates {
    default: Arc<CertifiedKey>,
    named: Vec<Named>,
}

#[derive(Debug)]
struct Named {
    /// `example.com` or `*.example.com`.
    pattern: String,
    /// Given on the command line, not taken from the certificate.
    explicit: bool,
    pair: Arc<CertifiedKey>,
}

impl Certificates {
    fn add(&mut self, provider: &CryptoProvider, text: &str) -> Result<()> {
        let (files, domains) = match text.split_once(':') {
            Some((files, domains)) => (files, Some(domains)),
            None => (text, None),
        };
        let (certificate, key) = files.split_once(',').context("expected CERT,KEY[:DOMAINS]")?;
        let pair = load_pair(provider, Path::new(certificate), Path::new(key))?;
        let patterns = match domains {
            Some(domains) => domains.split(',').map(str::to_ascii_lowercase).collect(),
            None => names_in(&pair.cert[0])?,
        };
        for pattern in patterns {
            self.named.push(Named { pattern, explicit: domains.is_some(), pair: pair.clone() });
        }
        Ok(())
    }

    fn find(&self, name: &str) -> Option<&Arc<CertifiedKey>> {
        let name = name.to_ascii_lowercase();
        let matches = |named: &&Named| match named.pattern.strip_prefix("*.") {
            Some(suffix) => name.split_once('.').is_some_and(|(_, rest)| rest == suffix),
            None => named.pattern == name,
        };
        // Exact names beat wildcards, names given here beat those in certificates.
        let rank = |named: &&Named| (!named.pattern.starts_with("*."), named.explicit);
        self.named.iter().rev().filter(matches).max_by_key(rank).map(|named| &named.pair)
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello) -> Option<Arc<CertifiedKey>> {
        let named = hello.server_name().and_then(|name| self.find(name));
        Some(named.unwrap_or(&self.default).clone())
    }
}

fn names_in(certificate: &CertificateDer) -> Result<Vec<String>> {
    let (_, parsed) = X509Certificate::from_der(certificate)?;
    let common = parsed.subject().iter_common_name().filter_map(|name| name.as_str().ok()).map(str::to_owned);
    let mut names: Vec<String> = common.collect();
    if let Some(alternatives) = parsed.subject_alternative_name()? {
        names.extend(alternatives.value.general_names.iter().filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        }));
    }
    Ok(names.iter().map(|name| name.to_ascii_lowercase()).collect())
}
