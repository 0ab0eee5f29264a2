//! Signatures of a TLS handshake, which prove that a peer has the key of its certificate, and signatures of
//! certificates.
//!
//! Verifiers trust different certificates, but check these proofs in the same way. The TLS library parses only
//! certificates of version 3. The keys of other certificates are parsed here.

use crate::der::{self, BIT_STRING, SEQUENCE};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer};
use rustls::{CertificateError, DigitallySignedStruct, Error, PeerMisbehaved, SignatureScheme};
use x509_parser::prelude::{FromDer, X509Certificate, X509Version};

/// The signature algorithms that are accepted.
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
        let Some(key) = key_of_version_1(certificate) else {
            return rustls::crypto::verify_tls12_signature(message, certificate, signature, &self.0);
        };
        let algorithms = self.0.mapping.iter().find(|(scheme, _)| *scheme == signature.scheme);
        let (_, algorithms) = algorithms.ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
        let bad = Error::InvalidCertificate(CertificateError::BadSignature);
        let key = PublicKey::read(&key).ok_or(bad.clone())?;
        match algorithms.iter().any(|algorithm| key.verifies(*algorithm, message, signature.signature())) {
            true => Ok(HandshakeSignatureValid::assertion()),
            false => Err(bad),
        }
    }

    pub fn verify_tls13(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match key_of_version_1(certificate) {
            None => rustls::crypto::verify_tls13_signature(message, certificate, signature, &self.0),
            Some(key) => rustls::crypto::verify_tls13_signature_with_raw_key(message, &key, signature, &self.0),
        }
    }

    pub fn schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }

    /// Whether the owner of the key `signer` signed the certificate.
    pub fn certificate(&self, certificate: &CertificateDer<'_>, signer: &[u8]) -> bool {
        let check = || -> Option<bool> {
            let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
            let mut parts = der::elements(der::sequence(certificate)?);
            let (signed, algorithm, signature) = (parts.next()?, parts.next()?, bits(parts.next()?)?);
            // The checked bytes must be the bytes that other code parses, and the signature must use the stated
            // algorithm.
            let is_read = signed.whole == parsed.tbs_certificate.as_ref() && parts.next().is_none();
            if !is_read || algorithm.tag != SEQUENCE || parsed.signature_algorithm != parsed.tbs_certificate.signature {
                return None;
            }
            let key = PublicKey::read(signer)?;
            let named =
                |known: &&&dyn SignatureVerificationAlgorithm| known.signature_alg_id().as_ref() == algorithm.content;
            Some(self.0.all.iter().filter(named).any(|known| key.verifies(*known, signed.whole, signature)))
        };
        check().unwrap_or(false)
    }
}

/// Whether a certificate has version 1, which has no extensions. `openssl x509 -req` makes certificates of version 1.
pub fn is_version_1(certificate: &CertificateDer<'_>) -> bool {
    key_of_version_1(certificate).is_some()
}

fn key_of_version_1<'a>(certificate: &'a CertificateDer<'_>) -> Option<SubjectPublicKeyInfoDer<'a>> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    match parsed.version() {
        X509Version::V1 => Some(SubjectPublicKeyInfoDer::from(parsed.subject_pki.raw)),
        _ => None,
    }
}

/// The public key in a certificate.
struct PublicKey<'a> {
    algorithm: &'a [u8],
    bits: &'a [u8],
}

impl<'a> PublicKey<'a> {
    fn read(key: &'a [u8]) -> Option<PublicKey<'a>> {
        let mut parts = der::elements(der::sequence(key)?);
        let algorithm = parts.next().filter(|algorithm| algorithm.tag == SEQUENCE)?;
        let bits = bits(parts.next()?)?;
        parts.next().is_none().then_some(PublicKey { algorithm: algorithm.content, bits })
    }

    fn verifies(&self, by: &dyn SignatureVerificationAlgorithm, message: &[u8], signature: &[u8]) -> bool {
        by.public_key_alg_id().as_ref() == self.algorithm && by.verify_signature(self.bits, message, signature).is_ok()
    }
}

/// The content of a bit string of whole bytes.
fn bits(element: der::Element<'_>) -> Option<&[u8]> {
    match (element.tag, element.content) {
        (BIT_STRING, [0, bytes @ ..]) => Some(bytes),
        _ => None,
    }
}
