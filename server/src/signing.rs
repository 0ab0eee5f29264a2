//! The keys that controllers sign with: of certificates, and of tokens that are kept in Secrets.

use anyhow::{Context, Result, anyhow};
use holdfast_controllers::account_tokens::TokenSigner;
use holdfast_controllers::certificates::{API_CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY_UNKNOWN, Signer, Terms};
use holdfast_transport_http::tokens;
use holdfast_world::Time;
use rcgen::{
    CertificateSigningRequestParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SerialNumber,
};
use rustls_pki_types::CertificateSigningRequestDer;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use time::OffsetDateTime;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::{FromDer, Pem, X509Certificate};

/// The one authority of a cluster on one machine, for all signers.
pub fn signers(certificate: &Path, key: &Path) -> Result<BTreeMap<String, Arc<dyn Signer>>> {
    let read = |path: &Path| std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()));
    let pem = read(certificate)?;
    let issuer = Issuer::from_ca_cert_pem(&pem, KeyPair::from_pem(&read(key)?)?)?;
    let (block, _) =
        Pem::read(std::io::Cursor::new(&pem)).map_err(|why| anyhow!("{}: {why}", certificate.display()))?;
    let (_, parsed) = X509Certificate::from_der(&block.contents)?;
    let end = Time::from_second(parsed.validity().not_after.timestamp());
    let authority: Arc<dyn Signer> = Arc::new(Authority { issuer, end });
    let names = [KUBELET_CLIENT, KUBELET_SERVING, API_CLIENT, LEGACY_UNKNOWN];
    Ok(names.iter().map(|name| ((*name).to_owned(), authority.clone())).collect())
}

/// What signs tokens with the first private key of a file.
pub fn token_signer(key: &Path) -> Result<Arc<dyn TokenSigner>> {
    let pem = std::fs::read_to_string(key).with_context(|| format!("read {}", key.display()))?;
    Ok(Arc::new(TokenKey(pem)))
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    end: Time,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an authority until {}", self.end)
    }
}

impl Signer for Authority {
    fn sign(&self, request: &[u8], terms: &Terms) -> Result<String, String> {
        let (_, parsed) = X509CertificationRequest::from_der(request).map_err(|why| why.to_string())?;
        let subject = &parsed.certification_request_info.subject;
        // A name is kept by its type, so that of several of one type all but the last would be lost.
        if subject.iter_organization().count() > 1 {
            return Err("a subject of more than one organization cannot be signed here".into());
        }
        let request = CertificateSigningRequestDer::from(request.to_vec());
        let mut signed = CertificateSigningRequestParams::from_der(&request).map_err(|why| why.to_string())?;
        let params = &mut signed.params;
        params.not_before = moment(terms.not_before);
        params.not_after = moment(terms.not_after);
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        let serial = [terms.seed.to_be_bytes(), terms.not_before.millis().to_be_bytes()].concat();
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        params.key_usages = terms.usages.iter().filter_map(|usage| key_usage(usage)).collect();
        params.extended_key_usages = terms.usages.iter().filter_map(|usage| extended_usage(usage)).collect();
        let certificate = signed.signed_by(&self.issuer).map_err(|why| why.to_string())?;
        Ok(certificate.pem())
    }

    fn end(&self) -> Time {
        self.end
    }
}

fn moment(time: Time) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(time.seconds()).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

fn key_usage(name: &str) -> Option<KeyUsagePurpose> {
    Some(match name {
        "signing" | "digital signature" => KeyUsagePurpose::DigitalSignature,
        "content commitment" => KeyUsagePurpose::ContentCommitment,
        "key encipherment" => KeyUsagePurpose::KeyEncipherment,
        "key agreement" => KeyUsagePurpose::KeyAgreement,
        "data encipherment" => KeyUsagePurpose::DataEncipherment,
        "cert sign" => KeyUsagePurpose::KeyCertSign,
        "crl sign" => KeyUsagePurpose::CrlSign,
        "encipher only" => KeyUsagePurpose::EncipherOnly,
        "decipher only" => KeyUsagePurpose::DecipherOnly,
        _ => return None,
    })
}

fn extended_usage(name: &str) -> Option<ExtendedKeyUsagePurpose> {
    Some(match name {
        "any" => ExtendedKeyUsagePurpose::Any,
        "server auth" => ExtendedKeyUsagePurpose::ServerAuth,
        "client auth" => ExtendedKeyUsagePurpose::ClientAuth,
        "code signing" => ExtendedKeyUsagePurpose::CodeSigning,
        "email protection" | "s/mime" => ExtendedKeyUsagePurpose::EmailProtection,
        "timestamping" => ExtendedKeyUsagePurpose::TimeStamping,
        "ocsp signing" => ExtendedKeyUsagePurpose::OcspSigning,
        _ => return None,
    })
}

struct TokenKey(String);

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key for tokens")
    }
}

impl TokenSigner for TokenKey {
    fn sign(&self, claims: &Value) -> Result<String, String> {
        tokens::legacy::sign(&self.0, claims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, DnType};

    #[test]
    fn a_request_becomes_a_certificate_under_its_terms() {
        let folder = tempfile::tempdir().expect("a folder");
        let (certificate, key) = (folder.path().join("ca.crt"), folder.path().join("ca.key"));
        let pair = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        std::fs::write(&certificate, params.self_signed(&pair).expect("signed").pem()).expect("written");
        std::fs::write(&key, pair.serialize_pem()).expect("written");
        let signers = signers(&certificate, &key).expect("an authority");
        let mut wanted = CertificateParams::default();
        wanted.distinguished_name.push(DnType::CommonName, "system:node:n");
        wanted.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        let own = KeyPair::generate().expect("a key");
        let request = wanted.serialize_request(&own).expect("a request");
        let terms = Terms {
            not_before: Time::from_second(1_700_000_000),
            not_after: Time::from_second(1_700_086_400),
            usages: vec!["client auth".into(), "digital signature".into()],
            seed: 7,
        };
        let pem = signers[KUBELET_CLIENT].sign(request.der(), &terms).expect("a certificate");
        let (block, _) = Pem::read(std::io::Cursor::new(&pem)).expect("PEM");
        let (_, found) = X509Certificate::from_der(&block.contents).expect("a certificate");
        assert_eq!(found.validity().not_after.timestamp(), 1_700_086_400);
        assert_eq!(found.subject().to_string(), "CN=system:node:n, O=system:nodes");
        assert!(found.extended_key_usage().expect("well formed").expect("it has some").value.client_auth);
        assert!(signers[KUBELET_CLIENT].sign(b"nothing", &terms).is_err());
    }
}
