//! The TLS side of a server. The TLS side is made from certificates, keys and options, and is made again when a file
//! changes.
//!
//! Changed files that cannot be used have no effect, because a file is often written in two steps.

use crate::keys;
use crate::peer::PeerVerifier;
use crate::suites;
use arc_swap::ArcSwap;
use holdfast_files::trouble::Trouble;
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CipherSuite, ServerConfig, SupportedProtocolVersion};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// A certificate or a key, in a file or as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pem {
    File(PathBuf),
    Text(String),
}

/// The settings of a TLS server.
#[derive(Debug, Clone)]
pub struct TlsOptions {
    pub certificate: Pem,
    pub key: Pem,
    /// Pairs of certificate and key, each as `CERT,KEY[:DOMAINS]`.
    pub named: Vec<String>,
    /// The cipher suites by their names in Go; empty for all safe suites.
    pub cipher_suites: Vec<String>,
    /// Key exchange groups by their numbers in Go; empty for all safe groups.
    pub curves: Vec<u16>,
    /// The minimum version, such as `VersionTLS12`; empty for the lowest supported version.
    pub min_version: String,
    pub http2: bool,
    /// The authorities that sign the certificates of users.
    pub client_authorities: Vec<Pem>,
    /// The authorities that sign the certificates of proxies in front of the server.
    pub front_proxy_authorities: Vec<Pem>,
    /// The common names that certificates of proxies may have; empty for any name.
    pub front_proxy_names: Vec<String>,
    /// Whether certificates contain the uids of users.
    pub certificate_uids: bool,
}

/// The TLS side of a server, as one connection uses it.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ServerConfig>,
    /// The configurations for connections to addresses that have certificates of their own.
    by_address: BTreeMap<IpAddr, Arc<ServerConfig>>,
    pub verifier: Arc<PeerVerifier>,
}

impl Tls {
    /// Makes a TLS side with one configuration for all addresses.
    pub fn of(config: Arc<ServerConfig>, verifier: Arc<PeerVerifier>) -> Tls {
        Tls { config, by_address: BTreeMap::new(), verifier }
    }

    pub fn new(options: &TlsOptions) -> Result<Tls, String> {
        let mut faults = Vec::new();
        let mut provider = rustls::crypto::ring::default_provider();
        faults.extend(keep_suites(&mut provider, &options.cipher_suites));
        suites::by_cost(&mut provider);
        faults.extend(keep_curves(&mut provider, &options.curves));
        let versions = versions(&options.min_version).unwrap_or_else(|why| {
            faults.push(why);
            rustls::ALL_VERSIONS
        });
        let default = load_pair(&provider, &options.certificate, &options.key)
            .map_err(|why| faults.push(format!("--tls-cert-file, --tls-private-key-file: {why}")));
        let mut named = Vec::new();
        for text in &options.named {
            match ServerNameCertificate::load(&provider, text) {
                Ok(all) => named.extend(all),
                Err(why) => faults.push(format!("--tls-sni-cert-key={text}: {why}")),
            }
        }
        let mut load = |option: &str, all: &[Pem]| {
            load_authorities(all).unwrap_or_else(|why| {
                faults.push(format!("{option}: {why}"));
                Vec::new()
            })
        };
        let authorities = load("--client-ca-file", &options.client_authorities);
        let proxies = load("--requestheader-client-ca-file", &options.front_proxy_authorities);
        let names = &options.front_proxy_names;
        if names.is_empty() && proxies.iter().any(|authority| authorities.contains(authority)) {
            faults.push(
                "--client-ca-file and --requestheader-client-ca-file share an authority, so that every user could \
                        name another one: --requestheader-allowed-names must say who the proxies are"
                    .into(),
            );
        }
        let (Ok(default), true) = (default, faults.is_empty()) else { return Err(faults.join("; ")) };
        let addresses: BTreeSet<IpAddr> = named.iter().filter_map(|named| named.pattern.parse().ok()).collect();
        let certificates = Certificates { without_name: default.clone(), default, named: named.into() };
        let provider = Arc::new(provider);
        let proxies = (!proxies.is_empty()).then(|| (proxies, names.clone()));
        let verifier =
            PeerVerifier::new(authorities, proxies).map_err(|error| format!("client authorities: {error}"))?;
        let verifier = Arc::new(if options.certificate_uids { verifier } else { verifier.without_uids() });
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(|_| "no cipher suite is left for these TLS versions")?
            .with_client_cert_verifier(verifier.clone())
            .with_cert_resolver(Arc::new(certificates.clone()));
        // As in Go, the server chooses the suite, and gives each connection one ticket to resume it.
        config.ignore_client_order = true;
        config.send_tls13_tickets = 1;
        let http2 = options.http2.then(|| b"h2".to_vec());
        config.alpn_protocols = http2.into_iter().chain([b"http/1.1".to_vec()]).collect();
        let of_address = |address: IpAddr| {
            let without_name = certificates.find(&address.to_string())?.clone();
            let mut config = config.clone();
            config.cert_resolver = Arc::new(Certificates { without_name, ..certificates.clone() });
            Some((address, Arc::new(config)))
        };
        let by_address = addresses.into_iter().filter_map(of_address).collect();
        Ok(Tls { config: Arc::new(config), by_address, verifier })
    }

    /// The configuration for a client that connected to this address of the server.
    pub fn config(&self, local: Option<IpAddr>) -> &Arc<ServerConfig> {
        local.and_then(|local| self.by_address.get(&local.to_canonical())).unwrap_or(&self.config)
    }
}

/// The TLS side of a server that reads its files again when they change.
pub struct LiveTls {
    current: ArcSwap<Tls>,
    /// The options and the stamps of the files; `None` if the TLS side never changes.
    made_of: Mutex<Option<(TlsOptions, Vec<Option<Stamp>>)>>,
    /// The error if the current content of the files is not used.
    pub trouble: Trouble,
    /// The number of times the files were read again.
    reloads: AtomicU64,
    /// The number of times reading the files again failed.
    failures: AtomicU64,
}

/// The modification time of a file in seconds and nanoseconds, its size and its inode. If one of them changes, the
/// content may have changed.
pub type Stamp = (i64, i64, u64, u64);

impl From<Tls> for LiveTls {
    /// Makes a TLS side that never changes.
    fn from(tls: Tls) -> LiveTls {
        LiveTls::made_of(tls, None)
    }
}

impl LiveTls {
    pub fn new(options: TlsOptions) -> Result<LiveTls, String> {
        let stamps = options.stamps();
        let tls = Tls::new(&options)?;
        let unserved = suites::unserved(&options.cipher_suites);
        if !unserved.is_empty() {
            tracing::warn!("--tls-cipher-suites: these are not spoken here: {}", unserved.join(", "));
        }
        Ok(LiveTls::made_of(tls, Some((options, stamps))))
    }

    fn made_of(tls: Tls, made_of: Option<(TlsOptions, Vec<Option<Stamp>>)>) -> LiveTls {
        let (current, made_of) = (ArcSwap::from_pointee(tls), Mutex::new(made_of));
        let (reloads, failures) = (AtomicU64::new(0), AtomicU64::new(0));
        LiveTls { current, made_of, trouble: Trouble::default(), reloads, failures }
    }

    /// The number of reloads after a change of files, in Prometheus' text form.
    pub fn metrics(&self) -> String {
        let name = "holdfast_tls_automatic_reloads_total";
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        format!(
            "# HELP {name} How often changed files of certificates, keys and authorities were read anew\n\
             # TYPE {name} counter\n\
             {name}{{status=\"failure\"}} {}\n{name}{{status=\"success\"}} {}\n",
            count(&self.failures),
            count(&self.reloads),
        )
    }

    /// The TLS side for the next connection.
    pub fn current(&self) -> Arc<Tls> {
        self.current.load_full()
    }

    /// Checks whether a file has changed, and applies the new content.
    pub fn reload_if_changed(&self) {
        let mut made_of = self.made_of.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((options, stamps)) = made_of.as_mut() else { return };
        let now = options.stamps();
        if now == *stamps {
            return;
        }
        *stamps = now;
        let read = Tls::new(options);
        self.trouble.note(&read);
        let counted = if read.is_ok() { &self.reloads } else { &self.failures };
        counted.fetch_add(1, Ordering::Relaxed);
        match read {
            Ok(tls) => {
                self.current.store(Arc::new(tls));
                tracing::info!("certificates have changed and are served from now on");
            }
            Err(why) => tracing::error!(why, "certificates have changed and cannot be read: the old ones stay in use"),
        }
    }

    /// Changes the options, unless the result would be unusable.
    pub fn change(&self, change: impl FnOnce(&mut TlsOptions)) -> Result<(), String> {
        let mut made_of = self.made_of.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((options, stamps)) = made_of.as_mut() else { return Ok(()) };
        let mut changed = options.clone();
        change(&mut changed);
        let tls = Tls::new(&changed)?;
        self.current.store(Arc::new(tls));
        (*stamps, *options) = (changed.stamps(), changed);
        Ok(())
    }
}

impl TlsOptions {
    /// The current stamp of each file.
    fn stamps(&self) -> Vec<Option<Stamp>> {
        let own = [&self.certificate, &self.key].into_iter();
        let all = own.chain(&self.client_authorities).chain(&self.front_proxy_authorities);
        let named =
            self.named.iter().filter_map(|text| named_files(text)).flat_map(|(certificate, key, _)| [certificate, key]);
        let files = all.filter_map(|pem| match pem {
            Pem::File(path) => Some(path.as_path()),
            Pem::Text(_) => None,
        });
        files.chain(named.map(Path::new)).map(stamp).collect()
    }
}

/// The current stamp of a file; `None` if the file does not exist.
pub fn stamp(file: &Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(file).ok()?;
    Some((metadata.mtime(), metadata.mtime_nsec(), metadata.size(), metadata.ino()))
}

impl Pem {
    /// Reads the PEM text, from the file if it is in a file.
    pub fn read(&self) -> Result<Cow<'_, str>, String> {
        match self {
            Pem::Text(text) => Ok(text.into()),
            Pem::File(file) => match std::fs::read_to_string(file) {
                Ok(text) => Ok(text.into()),
                Err(error) => Err(format!("read {}: {error}", file.display())),
            },
        }
    }

    pub fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        let text = self.read()?;
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
        let certificates = certificates.map_err(|error| format!("{self} is not PEM of certificates: {error}"))?;
        if certificates.is_empty() {
            return Err(format!("{self} holds no certificate"));
        }
        Ok(certificates)
    }
}

impl Display for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pem::File(file) => write!(f, "{}", file.display()),
            Pem::Text(_) => f.write_str("the text"),
        }
    }
}

fn load_authorities(all: &[Pem]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Result<Vec<_>, _> = all.iter().map(Pem::certificates).collect();
    Ok(certificates?.concat())
}

fn load_pair(provider: &CryptoProvider, certificate: &Pem, key: &Pem) -> Result<Arc<CertifiedKey>, String> {
    let chain = certificate.certificates()?;
    let private = keys::private_key(key.read()?.as_bytes()).map_err(|why| format!("{key}: {why}"))?;
    let pair = keys::certified(provider, chain, private);
    pair.map(Arc::new).map_err(|why| format!("{certificate} and {key}: {why}"))
}

/// The files and the domains in `CERT,KEY[:DOMAINS]`.
fn named_files(text: &str) -> Option<(&str, &str, Option<&str>)> {
    let (files, domains) = match text.split_once(':') {
        Some((files, domains)) => (files, Some(domains)),
        None => (text, None),
    };
    let (certificate, key) = files.split_once(',')?;
    Some((certificate, key, domains))
}

static ONLY_TLS13: [&SupportedProtocolVersion; 1] = [&rustls::version::TLS13];

fn versions(minimum: &str) -> Result<&'static [&'static SupportedProtocolVersion], String> {
    match minimum {
        "" | "VersionTLS10" | "VersionTLS11" | "VersionTLS12" => Ok(rustls::ALL_VERSIONS),
        "VersionTLS13" => Ok(&ONLY_TLS13),
        other => Err(format!("unknown tls version {other:?}")),
    }
}

/// Keeps only the named suites. Returns the errors in the names.
fn keep_suites(provider: &mut CryptoProvider, names: &[String]) -> Vec<String> {
    let unknown = names.iter().filter(|name| !suites::exists(name));
    let faults = unknown.map(|name| format!("Cipher suite {name} not supported or doesn't exist")).collect();
    if !names.is_empty() {
        // As in Go, the list applies only to TLS 1.2, because the suites of TLS 1.3 are not configurable.
        let is_wanted = |suite: CipherSuite| names.iter().any(|name| suites::is(suite, name));
        provider.cipher_suites.retain(|suite| suite.tls13().is_some() || is_wanted(suite.suite()));
    }
    faults
}

/// Keeps only the key exchange groups with these numbers. As in Go, the order of the numbers has no meaning. Returns
/// the errors in the numbers.
fn keep_curves(provider: &mut CryptoProvider, numbers: &[u16]) -> Vec<String> {
    let number = |group: &&'static dyn SupportedKxGroup| u16::from(group.name());
    let served: Vec<u16> = provider.kx_groups.iter().map(number).collect();
    let unknown = numbers.iter().filter(|number| !served.contains(number));
    let shown: Vec<String> = served.iter().map(u16::to_string).collect();
    let faults = unknown
        .map(|unknown| format!("--tls-curve-preferences: {unknown} is not served; there are {}", shown.join(", ")));
    let faults = faults.collect();
    if !numbers.is_empty() {
        provider.kx_groups.retain(|group| numbers.contains(&number(group)));
    }
    faults
}

/// Selects the certificate by the name that a client requests.
#[derive(Debug, Clone)]
struct Certificates {
    /// The certificate for names without a certificate of their own.
    default: Arc<CertifiedKey>,
    /// The certificate for clients that request no name, because they connected to an address.
    without_name: Arc<CertifiedKey>,
    named: Arc<[ServerNameCertificate]>,
}

#[derive(Debug)]
struct ServerNameCertificate {
    /// A name such as `example.com`, a wildcard such as `*.example.com`, or an IP address.
    pattern: String,
    /// Whether the pattern comes from the command line, and not from the certificate.
    explicit: bool,
    pair: Arc<CertifiedKey>,
}

impl ServerNameCertificate {
    /// The certificate with its key, under each of its names.
    fn load(provider: &CryptoProvider, text: &str) -> Result<Vec<ServerNameCertificate>, String> {
        let (certificate, key, domains) = named_files(text).ok_or("expected CERT,KEY[:DOMAINS]")?;
        let file = |path: &str| Pem::File(path.into());
        let pair = load_pair(provider, &file(certificate), &file(key))?;
        let patterns = match domains {
            Some(domains) => domains.split(',').map(|domain| canonical(domain.trim())).collect::<Vec<_>>(),
            None => names_in(&pair.cert[0])?,
        };
        let named = |pattern| ServerNameCertificate { pattern, explicit: domains.is_some(), pair: pair.clone() };
        Ok(patterns.into_iter().map(named).collect())
    }
}

impl Certificates {
    fn find(&self, name: &str) -> Option<&Arc<CertifiedKey>> {
        let name = name.to_ascii_lowercase();
        let matches = |named: &&ServerNameCertificate| match named.pattern.strip_prefix("*.") {
            Some(suffix) => name.split_once('.').is_some_and(|(_, rest)| rest == suffix),
            None => named.pattern == name,
        };
        // Exact names have precedence over wildcards, and names from the command line over names in certificates.
        let rank = |named: &&ServerNameCertificate| (!named.pattern.starts_with("*."), named.explicit);
        self.named.iter().rev().filter(matches).max_by_key(rank).map(|named| &named.pair)
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello) -> Option<Arc<CertifiedKey>> {
        Some(match hello.server_name() {
            Some(name) => self.find(name).unwrap_or(&self.default).clone(),
            None => self.without_name.clone(),
        })
    }
}

/// A name or an address in the form in which it is looked up.
fn canonical(name: &str) -> String {
    name.parse::<IpAddr>().map_or_else(|_| name.to_ascii_lowercase(), |address| address.to_canonical().to_string())
}

/// The names and addresses in a certificate.
fn names_in(certificate: &CertificateDer) -> Result<Vec<String>, String> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|error| error.to_string())?;
    let common = parsed.subject().iter_common_name().filter_map(|name| name.as_str().ok()).map(str::to_owned);
    let mut names: Vec<String> = common.collect();
    if let Some(alternatives) = parsed.subject_alternative_name().map_err(|error| error.to_string())? {
        names.extend(alternatives.value.general_names.iter().filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            GeneralName::IPAddress(bytes) => match bytes.len() {
                4 => <[u8; 4]>::try_from(*bytes).ok().map(|bytes| IpAddr::from(bytes).to_string()),
                _ => <[u8; 16]>::try_from(*bytes).ok().map(|bytes| IpAddr::from(bytes).to_string()),
            },
            _ => None,
        }));
    }
    Ok(names.iter().map(|name| canonical(name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generated::self_signed;

    fn options(folder: &Path) -> TlsOptions {
        TlsOptions {
            certificate: Pem::File(folder.join("tls.crt")),
            key: Pem::File(folder.join("tls.key")),
            named: Vec::new(),
            cipher_suites: Vec::new(),
            curves: Vec::new(),
            min_version: String::new(),
            http2: true,
            client_authorities: Vec::new(),
            front_proxy_authorities: Vec::new(),
            front_proxy_names: Vec::new(),
            certificate_uids: true,
        }
    }

    fn write(folder: &Path, name: &str) {
        let made = self_signed(name, &[name.to_owned()], &[]).expect("a certificate");
        std::fs::write(folder.join("tls.crt"), made.certificate).expect("it is written");
        std::fs::write(folder.join("tls.key"), made.key).expect("it is written");
    }

    #[test]
    fn new_files_are_served_and_broken_ones_are_not() {
        let folder = tempfile::tempdir().expect("a folder");
        write(folder.path(), "first");
        let live = LiveTls::new(options(folder.path())).expect("it is made");
        let first = live.current();
        live.reload_if_changed();
        assert!(Arc::ptr_eq(&first, &live.current()), "nothing has changed");
        write(folder.path(), "second.example.com");
        live.reload_if_changed();
        let second = live.current();
        assert!(!Arc::ptr_eq(&first, &second));
        std::fs::write(folder.path().join("tls.crt"), "nonsense").expect("it is written");
        live.reload_if_changed();
        assert!(Arc::ptr_eq(&second, &live.current()), "what cannot be read changes nothing");
    }

    /// The files of a certificate and key for some names and addresses, in the form of the option.
    fn pair(folder: &Path, name: &str, addresses: &[&str]) -> String {
        let addresses: Vec<IpAddr> = addresses.iter().map(|address| address.parse().expect("an address")).collect();
        let made = self_signed(name, &[name.to_owned()], &addresses).expect("a certificate");
        let (certificate, key) = (folder.join(format!("{name}.crt")), folder.join(format!("{name}.key")));
        std::fs::write(&certificate, made.certificate).expect("it is written");
        std::fs::write(&key, made.key).expect("it is written");
        format!("{},{}", certificate.display(), key.display())
    }

    #[test]
    fn addresses_have_certificates_too() {
        let folder = tempfile::tempdir().expect("a folder");
        write(folder.path(), "first");
        let mut options = options(folder.path());
        options.named = vec![
            pair(folder.path(), "own.example.com", &["10.0.0.1", "fd00::1"]),
            format!("{}:10.0.0.2,10.0.0.1", pair(folder.path(), "explicit.example.com", &["10.0.0.3"])),
        ];
        let tls = Tls::new(&options).expect("it is made");
        let of = |address: &str| tls.config(Some(address.parse().expect("an address"))).cert_resolver.clone();
        let shown = |address: &str| format!("{:?}", of(address));
        let other = format!("{:?}", tls.config(None).cert_resolver);
        // Names from the command line have precedence over names in certificates, and replace the names in their own
        // certificate.
        assert_eq!(shown("10.0.0.1"), shown("10.0.0.2"));
        assert_eq!(shown("::ffff:10.0.0.2"), shown("10.0.0.2"));
        assert_ne!(shown("fd00::1"), shown("10.0.0.1"));
        assert_ne!(shown("fd00::1"), other);
        assert_eq!((shown("10.0.0.3"), shown("10.0.0.4")), (other.clone(), other));
    }

    #[test]
    fn all_names_that_are_none_are_told() {
        let folder = tempfile::tempdir().expect("a folder");
        write(folder.path(), "first");
        let mut options = options(folder.path());
        options.cipher_suites = ["TLS_X", "TLS_RSA_WITH_AES_128_CBC_SHA", "TLS_Y"].map(str::to_owned).into();
        options.curves = vec![23, 1, 2];
        options.min_version = "VersionTLS9".into();
        let faults = Tls::new(&options).err().expect("refused");
        for part in ["Cipher suite TLS_X not", "Cipher suite TLS_Y not", ": 1 is", ": 2 is", "version \"VersionTLS9\""]
        {
            assert!(faults.contains(part), "{part} in {faults}");
        }
        assert!(!faults.contains("AES_128_CBC"), "{faults}");
    }

    #[test]
    fn an_authority_of_users_is_none_of_proxies() {
        let folder = tempfile::tempdir().expect("a folder");
        write(folder.path(), "first");
        let authority = Pem::File(folder.path().join("tls.crt"));
        let live = LiveTls::new(options(folder.path())).expect("it is made");
        let before = live.current();
        let refused = live.change(|options| {
            options.client_authorities = vec![authority.clone()];
            options.front_proxy_authorities = vec![authority.clone()];
        });
        assert!(refused.expect_err("refused").contains("share an authority"));
        assert!(Arc::ptr_eq(&before, &live.current()));
        let named = live.change(|options| {
            options.client_authorities = vec![authority.clone()];
            options.front_proxy_authorities = vec![authority];
            options.front_proxy_names = vec!["front".into()];
        });
        assert_eq!(named, Ok(()));
    }
}
