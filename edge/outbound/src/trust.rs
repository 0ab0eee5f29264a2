//! Verifies the certificates of servers.

use holdfast_tls::signatures::Signatures;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::sync::{Arc, LazyLock};
use x509_parser::prelude::{ASN1Time, FromDer, X509Certificate};

/// Which servers are trusted, and whether this server identifies itself to them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct TlsTrust {
    /// The authorities in PEM. If empty, the authorities that this machine trusts are used.
    pub authorities: Vec<u8>,
    /// Whether any certificate of a server is accepted.
    pub insecure: bool,
    /// Whether this server presents its client certificate, if it has a client certificate.
    pub identified: bool,
}

/// Verifies servers' certificates like Go: a certificate that is itself trusted needs no issuer.
#[derive(Debug)]
pub struct ServerVerifier {
    /// Verifies a server's chain of certificates; `None` if any certificate is accepted.
    chain: Option<Arc<WebPkiServerVerifier>>,
    trusted: Vec<CertificateDer<'static>>,
    signatures: Signatures,
}

/// The authorities that this machine trusts, read when first needed.
static MACHINE: LazyLock<Arc<RootCertStore>> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    Arc::new(roots)
});

impl ServerVerifier {
    pub fn new(trust: &TlsTrust) -> Result<ServerVerifier, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let signatures = Signatures::default();
        if trust.insecure {
            return Ok(ServerVerifier { chain: None, trusted: Vec::new(), signatures });
        }
        let trusted: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&trust.authorities).collect();
        let trusted = trusted.map_err(|error| format!("unable to load root certificates: {error}"))?;
        let roots = if trust.authorities.is_empty() {
            MACHINE.clone()
        } else {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(trusted.iter().cloned());
            Arc::new(roots)
        };
        if roots.is_empty() {
            return Err("unable to load root certificates: unable to parse bytes as PEM block".into());
        }
        let chain = WebPkiServerVerifier::builder_with_provider(roots, provider).build();
        Ok(ServerVerifier { chain: Some(chain.map_err(|error| error.to_string())?), trusted, signatures })
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        if self.trusted.iter().any(|trusted| trusted == certificate) {
            rustls::client::verify_server_name(&ParsedCertificate::try_from(certificate)?, server_name)?;
            let (_, parsed) = X509Certificate::from_der(certificate)
                .map_err(|_| rustls::Error::InvalidCertificate(rustls::CertificateError::BadEncoding))?;
            let now = ASN1Time::from_timestamp(i64::try_from(now.as_secs()).unwrap_or(i64::MAX)).ok();
            if !now.is_some_and(|now| parsed.validity().is_valid_at(now)) {
                return Err(rustls::Error::InvalidCertificate(rustls::CertificateError::Expired));
            }
            return Ok(ServerCertVerified::assertion());
        }
        chain.verify_server_cert(certificate, intermediates, server_name, ocsp, now)
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
