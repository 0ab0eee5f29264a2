//! The keys and certificates of a machine's server: created once, kept in the data folder, renewed before they expire.
//! Servers of one cluster share the authorities and the key of service account tokens ([`crate::shared_keys`]).

use anyhow::{Context, Result, anyhow, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_chronicle::fork::certificates;
use holdfast_component::files::{self, Readers, WriteMode};
use holdfast_storage_rocks::folder::{check_entries, close, make_private};
use holdfast_tls::generated::{CERTIFICATE_DAYS, alternatives, params};
use holdfast_tls::keys;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PublicKeyData,
};
use sha2::{Digest, Sha256};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use time::{Duration, OffsetDateTime};
use x509_parser::prelude::{FromDer, Pem, X509Certificate};

const AUTHORITY_DAYS: i64 = 3650;
/// At start, certificates that expire within this time are renewed.
const RENEWAL_DAYS: i64 = 30;

/// The paths of the keys and certificates.
pub struct Pki {
    pub folder: PathBuf,
    pub authority: PathBuf,
    pub authority_key: PathBuf,
    pub server_certificate: PathBuf,
    pub server_key: PathBuf,
    pub admin_certificate: PathBuf,
    pub admin_key: PathBuf,
    pub service_account_key: PathBuf,
    /// The authority of front proxies. This authority differs from the authority of users, because a user's certificate
    /// must not allow acting as another user.
    pub front_proxy_authority: PathBuf,
    pub front_proxy_authority_key: PathBuf,
    pub front_proxy_certificate: PathBuf,
    pub front_proxy_key: PathBuf,
    /// The client certificate that the API server shows to kubelets.
    pub kubelet_client_certificate: PathBuf,
    pub kubelet_client_key: PathBuf,
}

/// The common name of the front proxy's certificate.
pub const FRONT_PROXY: &str = "front-proxy-client";

const ACCOUNT_KEY: &str = "sa.key";

impl Pki {
    pub fn of(data: &Path) -> Pki {
        let folder = certificates(data);
        let file = |name: &str| folder.join(name);
        Pki {
            authority: file("ca.crt"),
            authority_key: file("ca.key"),
            server_certificate: file("server.crt"),
            server_key: file("server.key"),
            admin_certificate: file("admin.crt"),
            admin_key: file("admin.key"),
            service_account_key: file(ACCOUNT_KEY),
            front_proxy_authority: file("front-proxy-ca.crt"),
            front_proxy_certificate: file("front-proxy-client.crt"),
            front_proxy_key: file("front-proxy-client.key"),
            kubelet_client_certificate: file("apiserver-kubelet-client.crt"),
            kubelet_client_key: file("apiserver-kubelet-client.key"),
            front_proxy_authority_key: file("front-proxy-ca.key"),
            folder,
        }
    }
}

/// Creates files that are missing, and renews certificates that are about to expire or that another authority signed.
pub fn ensure(pki: &Pki, data: &Path, names: &[String], addresses: &[IpAddr], write: WriteMode) -> Result<()> {
    keys_folder(data)?;
    let own = [&pki.server_key, &pki.admin_key, &pki.service_account_key, &pki.front_proxy_key];
    for key in own.into_iter().chain([&pki.kubelet_client_key]) {
        files::close(key);
    }
    let signed = [&pki.server_certificate, &pki.admin_certificate, &pki.kubelet_client_certificate];
    let authority = authority("holdfast-ca", &pki.authority, &pki.authority_key, &signed.map(PathBuf::as_path), write)?;
    let signed = [pki.front_proxy_certificate.as_path()];
    let front_proxy = self::authority(
        "holdfast-front-proxy-ca",
        &pki.front_proxy_authority,
        &pki.front_proxy_authority_key,
        &signed,
        write,
    )?;
    if !is_good(&pki.front_proxy_certificate, &pki.front_proxy_key, &pki.front_proxy_authority, &[], &[]) {
        let mut params = params(FRONT_PROXY, CERTIFICATE_DAYS);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        issue(params, &front_proxy, &pki.front_proxy_certificate, &pki.front_proxy_key, write)?;
    }
    if !is_good(&pki.server_certificate, &pki.server_key, &pki.authority, names, addresses) {
        let mut params = params("kube-apiserver", CERTIFICATE_DAYS);
        params.subject_alt_names = alternatives(names, addresses)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        issue(params, &authority, &pki.server_certificate, &pki.server_key, write)?;
    }
    for (name, certificate, key) in [
        ("kubernetes-admin", &pki.admin_certificate, &pki.admin_key),
        ("kube-apiserver-kubelet-client", &pki.kubelet_client_certificate, &pki.kubelet_client_key),
    ] {
        if !is_good(certificate, key, &pki.authority, &[], &[]) {
            let mut params = params(name, CERTIFICATE_DAYS);
            params.distinguished_name.push(DnType::OrganizationName, "system:masters");
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            issue(params, &authority, certificate, key, write)?;
        }
    }
    keep_account_key(&pki.service_account_key, write)
}

/// The key that signs service account tokens, in the server's data folder; created if missing.
pub fn account_key(data: &Path) -> Result<PathBuf> {
    let folder = keys_folder(data)?;
    let key = folder.join(ACCOUNT_KEY);
    files::close(&key);
    keep_account_key(&key, WriteMode::Synced)?;
    Ok(key)
}

/// The folder of keys and certificates. No other user may own anything in the folder: a user who could replace the
/// authority would be administrator.
fn keys_folder(data: &Path) -> Result<PathBuf> {
    let folder = certificates(data);
    make_private(data)?;
    make_private(&folder)?;
    check_entries(&folder)?;
    close(&folder);
    Ok(folder)
}

fn keep_account_key(key: &Path, write: WriteMode) -> Result<()> {
    if key.exists() { Ok(()) } else { Ok(write.file(key, &KeyPair::generate()?.serialize_pem(), Readers::Owner)?) }
}

/// An authority, created if missing. Certificates that an earlier authority signed are then no longer trusted.
fn authority(
    name: &str,
    certificate: &Path,
    key: &Path,
    signed: &[&Path],
    write: WriteMode,
) -> Result<Issuer<'static, KeyPair>> {
    files::close(key);
    if !key.exists() || !certificate.exists() {
        let pair = KeyPair::generate()?;
        let mut params = params(name, AUTHORITY_DAYS);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        write.file(key, &pair.serialize_pem(), Readers::Owner)?;
        write.file(certificate, &params.self_signed(&pair)?.pem(), Readers::Everybody)?;
        for old in signed {
            let _ = std::fs::remove_file(old);
        }
    }
    let pair = key_pair(key)?;
    let public = with_certificate(certificate, |parsed| parsed.public_key().raw.to_vec())?;
    ensure!(
        pair.subject_public_key_info() == public,
        "{} is not the private key of {}: copy both from the same machine",
        key.display(),
        certificate.display()
    );
    Issuer::from_ca_cert_pem(&read(certificate)?, pair).with_context(|| format!("read {}", certificate.display()))
}

/// The SHA-256 digest of the public key in the file of a certificate or of a private key.
pub fn fingerprint(file: &Path) -> Result<String> {
    let public = match file.extension().is_some_and(|extension| extension == "key") {
        true => key_pair(file)?.subject_public_key_info(),
        false => with_certificate(file, |parsed| parsed.public_key().raw.to_vec())?,
    };
    Ok(format!("sha256:{}", hex(&Sha256::digest(public))))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses the first certificate in a file, and passes the certificate to `look`.
fn with_certificate<T>(file: &Path, look: impl FnOnce(&X509Certificate<'_>) -> T) -> Result<T> {
    let text = std::fs::read(file).with_context(|| format!("read {}", file.display()))?;
    let pem = Pem::iter_from_buffer(&text).next().and_then(Result::ok);
    let parsed = pem.as_ref().and_then(|pem| X509Certificate::from_der(&pem.contents).ok());
    let (_, parsed) = parsed.with_context(|| format!("{} holds no certificate", file.display()))?;
    Ok(look(&parsed))
}

/// A kubeconfig that refers to no other file.
pub fn kubeconfig(pki: &Pki, url: &str) -> Result<String> {
    let data = |path: &Path| read(path).map(|text| STANDARD.encode(text));
    let key = read(&pki.admin_key)?;
    // Java's clients recognize a key on an elliptic curve only in this form.
    let key = keys::private_key(key.as_bytes()).ok().and_then(|key| keys::in_sec1(&key)).map(in_pem).unwrap_or(key);
    Ok(format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: holdfast\n  cluster:\n    server: {url}\n    \
         certificate-authority-data: {}\nusers:\n- name: admin\n  user:\n    client-certificate-data: {}\n    \
         client-key-data: {}\ncontexts:\n- name: holdfast\n  context:\n    cluster: holdfast\n    user: admin\n\
         current-context: holdfast\n",
        data(&pki.authority)?,
        data(&pki.admin_certificate)?,
        STANDARD.encode(key),
    ))
}

/// A key on an elliptic curve in SEC 1 as PEM.
fn in_pem(key: Vec<u8>) -> String {
    let text = STANDARD.encode(key);
    let lines: Vec<&str> = (0..text.len()).step_by(64).map(|at| &text[at..text.len().min(at + 64)]).collect();
    format!("-----BEGIN EC PRIVATE KEY-----\n{}\n-----END EC PRIVATE KEY-----\n", lines.join("\n"))
}

fn issue(
    params: CertificateParams,
    authority: &Issuer<'_, KeyPair>,
    certificate: &Path,
    key: &Path,
    write: WriteMode,
) -> Result<()> {
    let pair = KeyPair::generate()?;
    write.file(key, &pair.serialize_pem(), Readers::Owner)?;
    Ok(write.file(certificate, &params.signed_by(&pair, authority)?.pem(), Readers::Everybody)?)
}

/// Whether a certificate exists, does not expire soon, was signed by this authority, and is valid for all these names
/// and addresses.
fn is_good(certificate: &Path, key: &Path, authority: &Path, names: &[String], addresses: &[IpAddr]) -> bool {
    use x509_parser::prelude::GeneralName::{DNSName, IPAddress};
    let octets = |address: &IpAddr| match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let covers = |parsed: &X509Certificate<'_>| {
        let sans = parsed.subject_alternative_name().ok().flatten();
        let has = |wanted: &dyn Fn(&x509_parser::prelude::GeneralName) -> bool| {
            sans.as_ref().is_some_and(|sans| sans.value.general_names.iter().any(wanted))
        };
        names.iter().all(|name| has(&|san| matches!(san, DNSName(found) if found == name)))
            && addresses.iter().all(|address| has(&|san| matches!(san, IPAddress(found) if *found == octets(address))))
    };
    let is_of = |parsed: &X509Certificate<'_>| {
        with_certificate(authority, |by| parsed.verify_signature(Some(by.public_key())).is_ok()).unwrap_or(false)
    };
    let lasts = |parsed: &X509Certificate<'_>| {
        parsed.validity().not_after.to_datetime() > OffsetDateTime::now_utc() + Duration::days(RENEWAL_DAYS)
    };
    key_pair(key).is_ok()
        && with_certificate(certificate, |parsed| lasts(parsed) && covers(parsed) && is_of(parsed)).unwrap_or(false)
}

/// Reads a private key in any of the common formats.
pub fn key_pair(path: &Path) -> Result<KeyPair> {
    let key = keys::private_key_in_pkcs8(read(path)?.as_bytes()).map_err(|why| anyhow!("{}: {why}", path.display()))?;
    KeyPair::try_from(&key).with_context(|| format!("read {}", path.display()))
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}
