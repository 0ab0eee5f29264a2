//! Private keys as people have them, and certificates that go with them.
//!
//! The same key may be written as PKCS #1 (`RSA PRIVATE KEY`), as SEC 1 (`EC PRIVATE KEY`, which openssl puts behind
//! `EC PARAMETERS`) or as PKCS #8 (`PRIVATE KEY`); libraries that work with keys want the last.

use crate::der::{self, CONTEXT_0, INTEGER, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE};
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

/// The same, as PKCS #8.
pub fn private_key_in_pkcs8(pem: &[u8]) -> Result<PrivatePkcs8KeyDer<'static>, String> {
    in_pkcs8(&private_key(pem)?)
}

/// A key as PKCS #8.
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

fn wrapped(algorithm: &[u8], parameters: &[u8], key: &[u8]) -> PrivatePkcs8KeyDer<'static> {
    let version = der::made(INTEGER, &[&[0]]);
    let algorithm = der::made(SEQUENCE, &[&der::made(OBJECT_IDENTIFIER, &[algorithm]), parameters]);
    der::made(SEQUENCE, &[&version, &algorithm, &der::made(OCTET_STRING, &[key])]).into()
}

/// The curve that a key in SEC 1 names.
fn curve(key: &[u8]) -> Option<&[u8]> {
    let parameters = der::elements(der::sequence(key)?).find(|element| element.tag == CONTEXT_0)?;
    let curve = der::elements(parameters.content).next()?;
    (curve.tag == OBJECT_IDENTIFIER).then_some(curve.whole)
}

/// A chain of certificates with the key of its first one, for TLS. Certificates of every version will do.
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
