//! Makes the keys and certificates that Holdfast creates for itself.

use rcgen::{
    CertificateParams, DistinguishedName, DnType, Error, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, SanType,
};
use std::net::IpAddr;
use time::{Duration, OffsetDateTime};

/// The validity of a certificate that has to be renewed.
pub const CERTIFICATE_DAYS: i64 = 365;

/// A certificate and its key, in PEM.
pub struct GeneratedPair {
    pub certificate: String,
    pub key: String,
}

/// Makes a self-signed server certificate.
pub fn self_signed(name: &str, names: &[String], addresses: &[IpAddr]) -> Result<GeneratedPair, Error> {
    let key = KeyPair::generate()?;
    let mut params = params(name, CERTIFICATE_DAYS);
    params.subject_alt_names = alternatives(names, addresses)?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(GeneratedPair { certificate: params.self_signed(&key)?.pem(), key: key.serialize_pem() })
}

/// The parameters of every certificate: a name and a validity.
pub fn params(name: &str, days: i64) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    // The clocks of machines differ a little, so the validity begins in the past.
    params.not_before = OffsetDateTime::now_utc() - Duration::hours(1);
    params.not_after = OffsetDateTime::now_utc() + Duration::days(days);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params
}

/// The names and addresses for which a certificate is valid.
pub fn alternatives(names: &[String], addresses: &[IpAddr]) -> Result<Vec<SanType>, Error> {
    let names = names.iter().map(|name| Ok(SanType::DnsName(name.as_str().try_into()?)));
    names.chain(addresses.iter().map(|address| Ok(SanType::IpAddress(*address)))).collect()
}
