//! Certificate authorities that a test makes up.

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use std::path::{Path, PathBuf};
use time::{Duration, OffsetDateTime};

/// The attribute "organization".
const ORGANIZATION: [u64; 4] = [2, 5, 4, 10];

pub struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key, as PEM.
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

    /// A client's certificate: the name is the user, the organizations are its groups.
    pub fn client(&self, name: &str, groups: &[&str]) -> Pair {
        self.sign(client(name, groups))
    }

    /// The same for so long from now on.
    pub fn client_for(&self, name: &str, groups: &[&str], valid: Duration) -> Pair {
        let mut params = client(name, groups);
        params.not_after = OffsetDateTime::now_utc() + valid;
        self.sign(params)
    }

    /// A server's certificate for these names.
    pub fn server(&self, names: &[&str]) -> Pair {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names of hosts");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    /// One by which a server is also a client of its like, as members of etcd are.
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
    // A name holds one value of a type: the second is of a type that is written in the same way.
    for (group, kind) in groups.iter().zip([DnType::OrganizationName, DnType::CustomDnType(ORGANIZATION.into())]) {
        params.distinguished_name.push(kind, *group);
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

impl Pair {
    /// Writes `NAME.crt` and `NAME.key`.
    pub fn write(&self, folder: &Path, name: &str) -> (PathBuf, PathBuf) {
        let (certificate, key) = (folder.join(format!("{name}.crt")), folder.join(format!("{name}.key")));
        std::fs::write(&certificate, &self.certificate).expect("write a certificate");
        std::fs::write(&key, &self.key).expect("write a key");
        (certificate, key)
    }
}
