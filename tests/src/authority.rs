//! Certificate authorities of tests.

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use time::{Duration, OffsetDateTime};
use tokio_rustls::TlsAcceptor;

/// The object identifier of the attribute "organization".
const ORGANIZATION: [u64; 4] = [2, 5, 4, 10];

pub struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key in PEM.
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Authority { pem, issuer: Issuer::new(params, key) }
    }

    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The private key of the authority, in PEM.
    pub fn key(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// A client certificate whose common name is the user and whose organizations are the user's groups, two at most.
    pub fn client(&self, name: &str, groups: &[&str]) -> Pair {
        self.sign(client(name, groups))
    }

    /// A client certificate as from `client`, which expires after `valid`.
    pub fn client_for(&self, name: &str, groups: &[&str], valid: Duration) -> Pair {
        let mut params = client(name, groups);
        params.not_after = OffsetDateTime::now_utc() + valid;
        self.sign(params)
    }

    /// A server certificate for these names.
    pub fn server(&self, names: &[&str]) -> Pair {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names of hosts");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    /// A server's side of TLS with a certificate for `name`; it serves only clients with a certificate of the
    /// authority.
    pub fn acceptor(&self, name: &str, protocols: &[&[u8]]) -> TlsAcceptor {
        let Pair { certificate, key } = self.server(&[name]);
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(self.pem().as_bytes()) {
            roots.add(certificate.expect("PEM")).expect("a certificate");
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
        let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<Vec<_>, _>>().unwrap();
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients)
            .with_single_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }

    /// A certificate for servers that are also clients of each other, such as members of etcd.
    pub fn member(&self, names: &[&str]) -> Pair {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names of hosts");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Pair {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Pair { certificate, key: key.serialize_pem() }
    }
}

fn client(name: &str, groups: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    // A name holds one value of each type, so the second organization uses a custom type with the same encoding.
    for (group, kind) in groups.iter().zip([DnType::OrganizationName, DnType::CustomDnType(ORGANIZATION.into())]) {
        params.distinguished_name.push(kind, *group);
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

impl Pair {
    /// Writes the pair to `NAME.crt` and `NAME.key` in the folder.
    pub fn write(&self, folder: &Path, name: &str) -> (PathBuf, PathBuf) {
        let (certificate, key) = (folder.join(format!("{name}.crt")), folder.join(format!("{name}.key")));
        std::fs::write(&certificate, &self.certificate).expect("write a certificate");
        std::fs::write(&key, &self.key).expect("write a key");
        (certificate, key)
    }
}
