//! The keys of service account tokens, read from all supported forms.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use holdfast_tls::jwt::{Algorithm, DecodingKey, EncodingKey};
use holdfast_tls::keys::{KeyKind, in_pkcs8, private_key, public_info};
use holdfast_value::{Value, json};
use ring::rand::SystemRandom;
use ring::signature::{self as rings, EcdsaKeyPair, KeyPair, RsaKeyPair};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer};
use sha2::Digest;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::{FromDer, Pem, SubjectPublicKeyInfo};
use x509_parser::public_key::{PublicKey, RSAPublicKey};

/// A signing key: the algorithm, the key's id, and the key.
pub type Signing = (Algorithm, String, EncodingKey);
/// A key that verifies tokens.
pub struct Verifying {
    pub algorithm: Algorithm,
    pub id: String,
    pub key: DecodingKey,
    /// The key as a JWK, the form in which the server publishes it.
    pub published: Value,
}

/// Reads the first private key in a PEM text, as a signing key.
pub fn signing_key(pem: &str) -> Result<Signing, String> {
    let key = in_pkcs8(&private_key(pem.as_bytes())?)?;
    let key = key.secret_pkcs8_der();
    let Public { algorithm, key: public } = public_half(key)?;
    let signing = match algorithm {
        Algorithm::RS256 => EncodingKey::from_rsa_der(key),
        _ => EncodingKey::from_ec_der(key),
    };
    Ok((algorithm, key_id(algorithm, &public), signing))
}

/// The public keys in a PEM text: given as such, in certificates, or as parts of private keys. Other blocks are
/// skipped.
pub fn verifying_keys(pem: &str) -> Result<Vec<Verifying>, String> {
    let mut keys = Vec::new();
    for block in Pem::iter_from_buffer(pem.as_bytes()) {
        let block = block.map_err(|error| format!("a service account key file is not PEM: {error}"))?;
        let public = public_key(&block.label, block.contents);
        let public = public.map_err(|why| format!("a {} in a service account key file: {why}", block.label))?;
        keys.extend(public.map(|public| public.verifying()));
    }
    match keys.is_empty() {
        true => Err("a service account key file holds neither a key nor a certificate".into()),
        false => Ok(keys),
    }
}

fn public_key(label: &str, der: Vec<u8>) -> Result<Option<Public>, String> {
    let private = match label {
        "PUBLIC KEY" => return described(&der).map(Some),
        "RSA PUBLIC KEY" => return Ok(Some(Public { algorithm: Algorithm::RS256, key: der })),
        "CERTIFICATE" => {
            let (_, certificate) = X509Certificate::from_der(&der).map_err(|error| error.to_string())?;
            return described(certificate.public_key().raw).map(Some);
        }
        "PRIVATE KEY" => PrivateKeyDer::from(PrivatePkcs8KeyDer::from(der)),
        "RSA PRIVATE KEY" => PrivatePkcs1KeyDer::from(der).into(),
        "EC PRIVATE KEY" => PrivateSec1KeyDer::from(der).into(),
        _ => return Ok(None),
    };
    public_half(in_pkcs8(&private)?.secret_pkcs8_der()).map(Some)
}

/// A public key in the form that verification takes. An RSA key is given as PKCS #1, a key on a curve as its point.
struct Public {
    algorithm: Algorithm,
    key: Vec<u8>,
}

impl Public {
    fn published(&self, id: &str) -> Value {
        let algorithm = format!("{:?}", self.algorithm);
        let mut published = json!({"use": "sig", "kid": id, "alg": algorithm});
        let mut say = |field: &str, bytes: &[u8]| published[field] = URL_SAFE_NO_PAD.encode(bytes).into();
        let curve = match self.algorithm {
            Algorithm::RS256 => {
                if let Ok((_, key)) = RSAPublicKey::from_der(&self.key) {
                    // A leading zero byte only means that the number is not negative.
                    let plain = |bytes: &[u8]| bytes.strip_prefix(&[0]).unwrap_or(bytes).to_vec();
                    say("n", &plain(key.modulus));
                    say("e", &plain(key.exponent));
                }
                published["kty"] = "RSA".into();
                return published;
            }
            Algorithm::ES256 => "P-256",
            _ => "P-384",
        };
        // The point is uncompressed: a byte that marks this form, and both coordinates.
        let (x, y) = self.key.split_at_checked(self.key.len() / 2 + 1).unwrap_or_default();
        say("x", x.get(1..).unwrap_or_default());
        say("y", y);
        published["kty"] = "EC".into();
        published["crv"] = curve.into();
        published
    }

    fn verifying(self) -> Verifying {
        let key = match self.algorithm {
            Algorithm::RS256 => DecodingKey::from_rsa_der(&self.key),
            _ => DecodingKey::from_ec_der(&self.key),
        };
        let id = key_id(self.algorithm, &self.key);
        let published = self.published(&id);
        Verifying { algorithm: self.algorithm, id, key, published }
    }
}

/// The public key that belongs to a private key in PKCS #8.
fn public_half(key: &[u8]) -> Result<Public, String> {
    let random = SystemRandom::new();
    let curves = [
        (Algorithm::ES256, &rings::ECDSA_P256_SHA256_FIXED_SIGNING),
        (Algorithm::ES384, &rings::ECDSA_P384_SHA384_FIXED_SIGNING),
    ];
    for (algorithm, curve) in curves {
        if let Ok(pair) = EcdsaKeyPair::from_pkcs8(curve, key, &random) {
            return Ok(Public { algorithm, key: pair.public_key().as_ref().to_vec() });
        }
    }
    match RsaKeyPair::from_pkcs8(key) {
        Ok(pair) => Ok(Public { algorithm: Algorithm::RS256, key: pair.public_key().as_ref().to_vec() }),
        Err(why) => Err(format!("the private key is neither RSA of 2048 to 4096 bits nor on P-256 or P-384: {why}")),
    }
}

/// The public key in a SubjectPublicKeyInfo, which is given in DER.
fn described(der: &[u8]) -> Result<Public, String> {
    let (_, info) = SubjectPublicKeyInfo::from_der(der).map_err(|error| error.to_string())?;
    let key = info.subject_public_key.data.to_vec();
    let algorithm = match info.parsed().map_err(|error| error.to_string())? {
        PublicKey::RSA(_) => Algorithm::RS256,
        PublicKey::EC(point) => match point.key_size() {
            256 => Algorithm::ES256,
            384 => Algorithm::ES384,
            size => return Err(format!("a key on a curve of {size} bits cannot be used: use P-256 or P-384")),
        },
        _ => return Err("it is neither RSA nor on an elliptic curve".into()),
    };
    Ok(Public { algorithm, key })
}

/// The id of a public key: the digest of its SubjectPublicKeyInfo.
fn key_id(algorithm: Algorithm, public: &[u8]) -> String {
    let info = match algorithm {
        Algorithm::RS256 => public_info(KeyKind::Rsa, public),
        Algorithm::ES256 => public_info(KeyKind::P256, public),
        _ => public_info(KeyKind::P384, public),
    };
    URL_SAFE_NO_PAD.encode(sha2::Sha256::digest(info))
}
