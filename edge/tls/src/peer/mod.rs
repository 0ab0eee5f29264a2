//! Identifies the peer of a connection by its certificate: a user, a proxy in front of this server, or an untrusted
//! client.
//!
//! The handshake accepts any certificate, so that an untrusted client receives a `Status` instead of a broken
//! connection. [`Presented`] stores the certificate and verifies it again for each request, because a certificate may
//! expire during a connection.

mod version1;

use crate::signatures::{Signatures, is_version_1};
use holdfast_core::authz::User;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use x509_parser::der_parser::{Oid, oid};
use x509_parser::prelude::{FromDer, X509Certificate};

pub const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The name of the user of requests without credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// The extra field that identifies the credential.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// The subject attribute that contains the uid of a user.
const UID: Oid<'static> = oid!(1.3.6.1.4.1.57683.2);

/// Adds an authenticated user to the group `system:authenticated`, unless the user is anonymous.
pub fn authenticated(mut user: User) -> User {
    let placed = user.groups.iter().any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED);
    if !placed && user.name != ANONYMOUS {
        user.groups.push(AUTHENTICATED.into());
    }
    user
}

/// The user of requests without credentials.
pub fn anonymous() -> User {
    User::new(ANONYMOUS, &[UNAUTHENTICATED])
}

/// The client of a connection, as far as it is known before the first request.
#[derive(Clone)]
pub enum Peer {
    /// A connection without a client certificate.
    Unknown,
    /// A certificate that one of the client authorities signed.
    Certificate(Arc<User>),
    /// A certificate that is not trusted.
    Untrusted(Arc<str>),
    /// A proxy in front of this server, which names the user in headers. The value is the proxy as a peer of its own,
    /// for requests without these headers.
    FrontProxy(Arc<Peer>),
    /// A caller within the process.
    Internal(Arc<User>),
}

/// The certificates that a client presented on one connection.
pub struct Presented {
    verifier: Arc<PeerVerifier>,
    chain: Vec<CertificateDer<'static>>,
    judged: Mutex<JudgedPeer>,
}

struct JudgedPeer {
    peer: Peer,
    /// The last second in which every certificate of the trusted chain is valid. After it the chain is verified again.
    until: u64,
}

impl Presented {
    pub fn new(verifier: Arc<PeerVerifier>, chain: Option<&[CertificateDer<'static>]>, now: UnixTime) -> Presented {
        let chain = chain.unwrap_or_default().to_vec();
        let judged = Mutex::new(verifier.judge(&chain, now));
        Presented { verifier, chain, judged }
    }

    /// The peer that the certificates identify at the time `now`.
    pub fn peer(&self, now: UnixTime) -> Peer {
        self.peer_until(now).0
    }

    /// The peer, and the last second of its validity if its certificate is trusted.
    pub fn peer_until(&self, now: UnixTime) -> (Peer, Option<u64>) {
        let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        if now.as_secs() > judged.until {
            *judged = self.verifier.judge(&self.chain, now);
        }
        let is_trusted = matches!(judged.peer, Peer::Certificate(_) | Peer::FrontProxy(_));
        (judged.peer.clone(), is_trusted.then_some(judged.until))
    }
}

/// Requests a client certificate, and verifies the certificates of users and of proxies.
#[derive(Debug)]
pub struct PeerVerifier {
    users: Option<Authorities>,
    front_proxies: Option<FrontProxies>,
    hints: Vec<DistinguishedName>,
    signatures: Signatures,
    /// Whether certificates contain the uids of users.
    uids: bool,
    /// Trusted chains by their digests. These chains are cached, because clients such as kubectl make a connection for
    /// each command.
    known: Mutex<BTreeMap<[u8; 32], TrustedChain>>,
}

/// The maximum number of cached trusted chains.
const KNOWN_MAX: usize = 1024;

/// The user of a trusted chain, and the period in which every certificate of the chain is valid.
#[derive(Debug, Clone)]
struct TrustedChain {
    user: Arc<User>,
    since: u64,
    until: u64,
}

fn digest_of(chain: &[CertificateDer<'_>]) -> [u8; 32] {
    let mut digest = ring::digest::Context::new(&ring::digest::SHA256);
    for certificate in chain {
        digest.update(&certificate.len().to_le_bytes());
        digest.update(certificate);
    }
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest.finish().as_ref());
    bytes
}

impl PeerVerifier {
    /// `authorities` sign the certificates of users, and the authorities in `front_proxies` sign the certificates of
    /// proxies.
    pub fn new(
        authorities: Vec<CertificateDer<'static>>,
        front_proxies: Option<(Vec<CertificateDer<'static>>, Vec<String>)>,
    ) -> Result<PeerVerifier, String> {
        let users = Authorities::new(authorities)?;
        let front_proxies = match front_proxies {
            None => None,
            Some((authorities, allowed_names)) => {
                Authorities::new(authorities)?.map(|authorities| FrontProxies { authorities, allowed_names })
            }
        };
        let both = users.iter().chain(front_proxies.iter().map(|proxies| &proxies.authorities));
        let hints = both.flat_map(|authorities| authorities.verifier.root_hint_subjects().to_vec()).collect();
        Ok(PeerVerifier {
            users,
            front_proxies,
            hints,
            signatures: Signatures::default(),
            uids: true,
            known: Mutex::default(),
        })
    }

    /// The same verifier, but without reading uids from certificates.
    pub fn without_uids(self) -> PeerVerifier {
        PeerVerifier { uids: false, ..self }
    }

    fn judge(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> JudgedPeer {
        if chain.is_empty() {
            return self.judge_anew(chain, now);
        }
        let digest = digest_of(chain);
        let known =
            self.lock().get(&digest).filter(|known| (known.since..=known.until).contains(&now.as_secs())).cloned();
        if let Some(TrustedChain { user, until, .. }) = known {
            return JudgedPeer { peer: Peer::Certificate(user), until };
        }
        let judged = self.judge_anew(chain, now);
        // Only trusted chains are cached, because another chain may become trusted later, when a certificate becomes
        // valid.
        if let Peer::Certificate(user) = &judged.peer {
            let mut known = self.lock();
            if known.len() >= KNOWN_MAX {
                known.clear();
            }
            known.insert(digest, TrustedChain { user: user.clone(), since: now.as_secs(), until: judged.until });
        }
        judged
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<[u8; 32], TrustedChain>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn judge_anew(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> JudgedPeer {
        let user = self.user(chain, now);
        let proxy = self.front_proxies.as_ref().filter(|_| !chain.is_empty()).map(|known| known.include(chain, now));
        let peer = match (proxy, user) {
            (Some(Ok(())), user) => Peer::FrontProxy(Arc::new(user)),
            // If only proxies have certificates, any other certificate is untrusted, and its client does not count as
            // anonymous.
            (Some(Err(why)), Peer::Unknown) => Peer::Untrusted(why.into()),
            (_, user) => user,
        };
        let authorities = self.users.iter().chain(self.front_proxies.iter().map(|proxies| &proxies.authorities));
        let ends = authorities.flat_map(|authorities| authorities.ends()).chain(chain.iter().map(end));
        let until = ends.filter(|end| *end >= now.as_secs()).min().unwrap_or(u64::MAX);
        JudgedPeer { peer, until }
    }

    fn user(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Peer {
        let (Some(authorities), [certificate, ..]) = (&self.users, chain) else { return Peer::Unknown };
        match authorities.vouch_for(chain, now).and_then(|()| certificate_user(certificate, self.uids)) {
            Ok(user) => Peer::Certificate(Arc::new(user)),
            Err(why) => Peer::Untrusted(why.into()),
        }
    }
}

/// The certificates of proxies in front of this server.
#[derive(Debug)]
struct FrontProxies {
    authorities: Authorities,
    /// The allowed common names; empty if any name is allowed.
    allowed_names: Vec<String>,
}

impl FrontProxies {
    /// Checks that a chain belongs to a proxy. The error contains the reason why the chain does not belong to a proxy.
    fn include(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<(), String> {
        self.authorities.vouch_for(chain, now)?;
        if self.allowed_names.is_empty() {
            return Ok(());
        }
        let certificate = chain.first().map(|certificate| certificate.as_ref()).unwrap_or_default();
        let named = certificate_user(certificate, false)?;
        match self.allowed_names.contains(&named.name) {
            true => Ok(()),
            false => Err(format!("no proxy may be called {:?}", named.name)),
        }
    }
}

/// The authorities that sign clients' certificates.
#[derive(Debug)]
struct Authorities {
    certificates: Vec<CertificateDer<'static>>,
    /// The verifier may be used only while all authorities are valid, because it does not check when the certificate of
    /// an authority expires.
    verifier: Arc<dyn ClientCertVerifier>,
}

impl Authorities {
    /// Makes the authorities with their verifier; `None` if `certificates` is empty.
    fn new(certificates: Vec<CertificateDer<'static>>) -> Result<Option<Authorities>, String> {
        if certificates.is_empty() {
            return Ok(None);
        }
        let verifier = verifier(&certificates)?;
        Ok(Some(Authorities { certificates, verifier }))
    }

    fn ends(&self) -> impl Iterator<Item = u64> {
        self.certificates.iter().map(end)
    }

    /// Checks that a valid authority signed the chain and that no certificate of it has expired. The error contains the
    /// reason why the check failed.
    fn vouch_for(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<(), String> {
        let [certificate, intermediates @ ..] = chain else { return Err("there is no certificate".into()) };
        if is_version_1(certificate) {
            return version1::verify(chain, &self.certificates, &Signatures::default(), now);
        }
        let is_valid = |authority: &&CertificateDer<'static>| end(authority) >= now.as_secs();
        let verified = if self.certificates.iter().all(|authority| is_valid(&authority)) {
            self.verifier.verify_client_cert(certificate, intermediates, now)
        } else {
            let valid: Vec<_> = self.certificates.iter().filter(is_valid).cloned().collect();
            verifier(&valid)?.verify_client_cert(certificate, intermediates, now)
        };
        verified.map(|_| ()).map_err(|error| error.to_string())
    }
}

/// The last second in which a certificate is valid. Returns the largest number if the certificate cannot be parsed
/// here, because then only the verifier judges the certificate.
fn end(certificate: &CertificateDer<'_>) -> u64 {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else { return u64::MAX };
    u64::try_from(parsed.validity().not_after.timestamp()).unwrap_or(0)
}

fn verifier(authorities: &[CertificateDer<'static>]) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority.clone()).map_err(|error| error.to_string())?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    verifier.build().map(|verifier| verifier as Arc<dyn ClientCertVerifier>).map_err(|error| error.to_string())
}

/// The uid in the subject of a certificate; empty if the subject has no uid.
fn uid_of(certificate: &X509Certificate<'_>) -> Result<String, String> {
    let uids = certificate.subject().iter_attributes().filter(|attribute| *attribute.attr_type() == UID);
    let uids: Vec<Option<&str>> = uids.map(|attribute| attribute.as_str().ok()).collect();
    match uids.as_slice() {
        [] => Ok(String::new()),
        [Some(uid)] if !uid.is_empty() => Ok((*uid).to_owned()),
        [_] => Err("the uid in the certificate is empty or no text".into()),
        _ => Err("the certificate has more than one uid".into()),
    }
}

/// The user that a verified certificate names: the common name is the name, the organizations are the groups, and the
/// uid is read if certificates contain uids.
pub fn certificate_user(der: &[u8], uids: bool) -> Result<User, String> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(|error| error.to_string())?;
    let subject = certificate.subject();
    // If there are several common names, the last one counts, as in Go. The approver of a certificate request is shown
    // the last common name, so the certificate must not represent another user.
    let name = subject.iter_common_name().filter_map(|name| name.as_str().ok()).last().unwrap_or("");
    if name.is_empty() {
        return Err("the certificate has no common name".into());
    }
    let mut groups: Vec<String> =
        subject.iter_organization().filter_map(|group| group.as_str().ok()).map(str::to_owned).collect();
    groups.push(AUTHENTICATED.into());
    let mut user = User::new(name, &[]);
    user.groups = groups;
    if uids {
        user.uid = uid_of(&certificate)?;
    }
    let digest = ring::digest::digest(&ring::digest::SHA256, der);
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    user.extra.insert(CREDENTIAL_ID.into(), vec![format!("X509SHA256={hex}")]);
    Ok(user)
}

impl ClientCertVerifier for PeerVerifier {
    fn offer_client_auth(&self) -> bool {
        self.users.is_some() || self.front_proxies.is_some()
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
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
        self.signatures.verify_tls12(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signatures.verify_tls13(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signatures.schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
    use std::time::Duration;
    use time::OffsetDateTime;

    /// When the certificates of these tests become valid, in seconds since 1970.
    const BEGINNING: i64 = 1_800_000_000;

    fn params(name: &str, seconds: i64) -> CertificateParams {
        let time = |seconds: i64| OffsetDateTime::from_unix_timestamp(seconds).expect("a time");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        (params.not_before, params.not_after) = (time(BEGINNING), time(BEGINNING + seconds));
        params
    }

    struct Signer(CertificateDer<'static>, Issuer<'static, KeyPair>);

    impl Signer {
        fn new(name: &str, seconds: i64, by: Option<&Signer>) -> Signer {
            let key = KeyPair::generate().expect("a key");
            let mut params = params(name, seconds);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let certificate = match by {
                None => params.self_signed(&key),
                Some(by) => params.signed_by(&key, &by.1),
            };
            Signer(certificate.expect("a certificate").der().clone(), Issuer::new(params, key))
        }

        fn client(&self, name: &str, seconds: i64) -> CertificateDer<'static> {
            let mut params = params(name, seconds);
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            let key = KeyPair::generate().expect("a key");
            params.signed_by(&key, &self.1).expect("a certificate").der().clone()
        }
    }

    /// The name of the peer at `seconds` seconds after `BEGINNING`.
    fn at(presented: &Presented, seconds: i64) -> String {
        let now = UnixTime::since_unix_epoch(Duration::from_secs((BEGINNING + seconds).cast_unsigned()));
        shown(&presented.peer(now))
    }

    fn shown(peer: &Peer) -> String {
        match peer {
            Peer::Unknown => "unknown".into(),
            Peer::Certificate(user) => user.name.clone(),
            Peer::Untrusted(_) => "untrusted".into(),
            Peer::FrontProxy(proxy) => format!("proxy, {}", shown(proxy)),
            Peer::Internal(_) => "internal".into(),
        }
    }

    fn presented(verifier: PeerVerifier, chain: &[CertificateDer<'static>]) -> Presented {
        let now = UnixTime::since_unix_epoch(Duration::from_secs((BEGINNING + 1).cast_unsigned()));
        Presented::new(Arc::new(verifier), Some(chain), now)
    }

    #[test]
    fn a_certificate_ends_while_its_connection_lives() {
        let authority = Signer::new("users", 1000, None);
        let between = Signer::new("between", 60, Some(&authority));
        let verifier = || PeerVerifier::new(vec![authority.0.clone()], None).expect("a verifier");

        let direct = presented(verifier(), &[authority.client("jane", 30)]);
        assert_eq!([1, 30, 31, 40].map(|seconds| at(&direct, seconds)), ["jane", "jane", "untrusted", "untrusted"]);
        let chained = presented(verifier(), &[between.client("jane", 300), between.0.clone()]);
        assert_eq!([1, 60, 61].map(|seconds| at(&chained, seconds)), ["jane", "jane", "untrusted"]);
        // An intermediate that the chain does not use may expire.
        let beside = presented(verifier(), &[authority.client("jane", 300), between.0.clone()]);
        assert_eq!([1, 61, 300, 301].map(|seconds| at(&beside, seconds)), ["jane", "jane", "jane", "untrusted"]);
        let outlived = presented(verifier(), &[authority.client("jane", 3000)]);
        assert_eq!([1, 1000, 1001].map(|seconds| at(&outlived, seconds)), ["jane", "jane", "untrusted"]);
    }

    #[test]
    fn a_chain_that_was_trusted_is_known_while_it_is_valid() {
        let authority = Signer::new("users", 1000, None);
        let verifier = PeerVerifier::new(vec![authority.0.clone()], None).expect("a verifier");
        let at = |seconds: i64| UnixTime::since_unix_epoch(Duration::from_secs((BEGINNING + seconds).cast_unsigned()));
        let peer = |chain: &[CertificateDer<'static>], seconds| shown(&verifier.judge(chain, at(seconds)).peer);
        let (jane, joe) = (authority.client("jane", 30), authority.client("joe", 300));
        for (chain, seconds, expected, known) in [
            (vec![jane.clone()], -5, "untrusted", 0),
            (vec![jane.clone()], 1, "jane", 1),
            (vec![jane.clone()], 30, "jane", 1),
            (vec![jane.clone()], 31, "untrusted", 1),
            (vec![joe.clone()], 31, "joe", 2),
            (vec![joe.clone()], 20, "joe", 2),
            (vec![joe.clone()], -5, "untrusted", 2),
            (vec![], 1, "unknown", 2),
        ] {
            assert_eq!((peer(&chain, seconds).as_str(), verifier.lock().len()), (expected, known), "{seconds}");
        }
        // A client with five different certificates has five entries in the cache, because the cache is keyed by chain.
        for _ in 0..5 {
            assert_eq!(peer(&[authority.client("jane", 30)], 1), "jane");
        }
        assert_eq!(verifier.lock().len(), 7);
    }

    #[test]
    fn of_several_common_names_the_last_one_counts() {
        let mut params = params("first", 30);
        // The subject has the common name "last" after the common name "first".
        params.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 3]), "last");
        let certificate = params.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate");
        assert_eq!(certificate_user(certificate.der(), false).expect("a user").name, "last");
    }

    #[test]
    fn a_proxys_certificate_ends_too() {
        let (users, proxies) = (Signer::new("users", 1000, None), Signer::new("proxies", 1000, None));
        let verifier = |users: Vec<CertificateDer<'static>>| {
            PeerVerifier::new(users, Some((vec![proxies.0.clone()], vec!["front".into()]))).expect("a verifier")
        };
        let proxy = presented(verifier(vec![users.0.clone()]), &[proxies.client("front", 30)]);
        assert_eq!(
            [1, 30, 31].map(|seconds| at(&proxy, seconds)),
            ["proxy, untrusted", "proxy, untrusted", "untrusted"]
        );
        let alone = presented(verifier(Vec::new()), &[proxies.client("front", 30)]);
        assert_eq!([1, 30, 31].map(|seconds| at(&alone, seconds)), ["proxy, unknown", "proxy, unknown", "untrusted"]);
        let other = presented(verifier(vec![users.0.clone()]), &[proxies.client("other", 30)]);
        assert_eq!(at(&other, 1), "untrusted");
        let user = presented(verifier(vec![users.0.clone()]), &[users.client("jane", 30)]);
        assert_eq!(at(&user, 1), "jane");
        assert_eq!(at(&presented(verifier(Vec::new()), &[]), 1), "unknown");
    }
}
