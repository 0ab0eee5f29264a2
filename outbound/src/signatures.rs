//! The signatures of a TLS handshake: whoever shows a certificate proves with one that the key is theirs.
//!
//! Whose certificate is good is what verifiers differ in; how a proof is checked is the same for all of them.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::CertificateDer;
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

/// The algorithms that signatures are checked with.
#[derive(Debug, Clone, Copy)]
pub struct Signatures(WebPkiSupportedAlgorithms);

impl Default for Signatures {
    fn default() -> Signatures {
        Signatures(rustls::crypto::ring::default_provider().signature_verification_algorithms)
    }
}

impl Signatures {
    pub fn verify_tls12(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signature, &self.0)
    }

    pub fn verify_tls13(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &self.0)
    }

    pub fn schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
