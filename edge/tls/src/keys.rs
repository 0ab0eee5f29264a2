//! Private keys in their various formats, and certificates with their keys.
//!
//! The same key may be written as PKCS #1 (`RSA PRIVATE KEY`), as SEC 1 (`EC PRIVATE KEY`, which openssl writes after
//! `EC PARAMETERS`) or as PKCS #8 (`PRIVATE KEY`). Libraries that use keys require PKCS #8.

use crate::der::{self, BIT_STRING, CONTEXT_0, INTEGER, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{Error, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer, X509Certificate};

const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const ELLIPTIC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const NULL: &[u8] = &[0x05, 0x00];

/// The first private key in a PEM text.
pub fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        Error::NoItemsFound if mentions(pem, b"ENCRYPTED") => "the private key is encrypted".into(),
        Error::NoItemsFound => "there is no private key in PEM".into(),
        error => format!("there is no private key that can be read: {error}"),
    })
}

/// The first private key in a PEM text, as PKCS #8.
pub fn private_key_in_pkcs8(pem: &[u8]) -> Result<PrivatePkcs8KeyDer<'static>, String> {
    in_pkcs8(&private_key(pem)?)
}

/// Converts a key to PKCS #8.
pub fn in_pkcs8(key: &PrivateKeyDer) -> Result<PrivatePkcs8KeyDer<'static>, String> {
    match key {
        PrivateKeyDer::Pkcs8(key) => Ok(key.clone_key()),
        PrivateKeyDer::Pkcs1(key) => Ok(wrapped(RSA, NULL, key.secret_pkcs1_der())),
        PrivateKeyDer::Sec1(key) => {
            let key = key.secret_sec1_der();
            let curve = curve(key).ok_or("the EC private key does not tell its curve")?;
            Ok(wrapped(ELLIPTIC, curve, key))
        }
        _ => Err("the private key has an unknown form".into()),
    }
}

/// Converts a key on an elliptic curve to SEC 1, with the name of its curve; `None` for other keys.
pub fn in_sec1(key: &PrivateKeyDer) -> Option<Vec<u8>> {
    let PrivateKeyDer::Pkcs8(key) = key else { return None };
    let mut parts = der::elements(der::sequence(key.secret_pkcs8_der())?).skip(1);
    let (algorithm, inner) = (parts.next()?, parts.next()?);
    let mut algorithm = der::elements(algorithm.content);
    let curve = algorithm.next().filter(|name| name.content == ELLIPTIC).and_then(|_| algorithm.next())?;
    let mut inner = der::elements(der::sequence(inner.content)?);
    let (version, secret) = (inner.next()?, inner.next()?);
    let rest: Vec<&[u8]> = inner.filter(|part| part.tag != CONTEXT_0).map(|part| part.whole).collect();
    let curve = der::encode(CONTEXT_0, &[curve.whole]);
    Some(der::encode(SEQUENCE, &[&[version.whole, secret.whole, &curve], &rest[..]].concat()))
}

fn wrapped(algorithm: &[u8], parameters: &[u8], key: &[u8]) -> PrivatePkcs8KeyDer<'static> {
    let version = der::encode(INTEGER, &[&[0]]);
    let algorithm = der::encode(SEQUENCE, &[&der::encode(OBJECT_IDENTIFIER, &[algorithm]), parameters]);
    der::encode(SEQUENCE, &[&version, &algorithm, &der::encode(OCTET_STRING, &[key])]).into()
}

/// The kind of a public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    Rsa,
    P256,
    P384,
}

const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];

/// A public key as a SubjectPublicKeyInfo. An RSA key is given as PKCS #1, a key on a curve as its point.
pub fn public_info(kind: KeyKind, key: &[u8]) -> Vec<u8> {
    let (algorithm, parameters) = match kind {
        KeyKind::Rsa => (RSA, NULL.to_vec()),
        KeyKind::P256 => (ELLIPTIC, der::encode(OBJECT_IDENTIFIER, &[P256])),
        KeyKind::P384 => (ELLIPTIC, der::encode(OBJECT_IDENTIFIER, &[P384])),
    };
    let algorithm = der::encode(SEQUENCE, &[&der::encode(OBJECT_IDENTIFIER, &[algorithm]), &parameters]);
    // The zero byte of a bit string means that all bits of its last byte are used.
    der::encode(SEQUENCE, &[&algorithm, &der::encode(BIT_STRING, &[&[0], key])])
}

/// The curve that a SEC 1 key names.
fn curve(key: &[u8]) -> Option<&[u8]> {
    let parameters = der::elements(der::sequence(key)?).find(|element| element.tag == CONTEXT_0)?;
    let curve = der::elements(parameters.content).next()?;
    (curve.tag == OBJECT_IDENTIFIER).then_some(curve.whole)
}

/// A certificate chain with the key of its first certificate, for TLS. Certificates of every version are accepted.
pub fn certified(
    provider: &CryptoProvider,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<CertifiedKey, String> {
    let first = chain.first().ok_or("there is no certificate")?;
    let key = provider.key_provider.load_private_key(key).map_err(|error| error.to_string())?;
    let (_, certificate) = X509Certificate::from_der(first).map_err(|error| error.to_string())?;
    let is_its = key.public_key().is_none_or(|public| public.as_ref() == certificate.public_key().raw);
    is_its.then(|| CertifiedKey::new(chain.clone(), key)).ok_or("the key is not that of the certificate".into())
}

fn mentions(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::KeyPair;
    use rustls::pki_types::PrivateSec1KeyDer;

    #[test]
    fn a_key_is_the_same_in_both_forms() {
        let made = KeyPair::generate().expect("a key");
        let key = private_key(made.serialize_pem().as_bytes()).expect("PEM");
        let other = PrivateKeyDer::Sec1(PrivateSec1KeyDer::from(in_sec1(&key).expect("on a curve")));
        let provider = rustls::crypto::ring::default_provider();
        let public = |key: PrivateKeyDer<'static>| {
            let key = provider.key_provider.load_private_key(key).expect("a key");
            key.public_key().expect("its public key").as_ref().to_vec()
        };
        assert_eq!(public(other.clone_key()), public(key));
        assert!(in_pkcs8(&other).is_ok(), "it names its curve");
        assert_eq!(in_sec1(&other), None, "it is in that form already");
    }
}
