//! The published keys of an issuer.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use holdfast_value::Value;
use ring::signature::{self as rings, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm};

/// A public key.
pub struct PublicKey {
    pub id: Option<String>,
    /// The only algorithm for which the key may be used, if the key names one.
    algorithm: Option<String>,
    public: Public,
}

enum Public {
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// A point of an elliptic curve with this many bits.
    Curve {
        bits: u16,
        point: Vec<u8>,
    },
}

/// The keys of a key set that can verify signatures. Keys of other types are skipped.
pub fn read(document: &Value) -> Vec<PublicKey> {
    document["keys"].as_array().into_iter().flatten().filter_map(key).collect()
}

fn key(document: &Value) -> Option<PublicKey> {
    let bytes = |field: &str| URL_SAFE_NO_PAD.decode(document[field].as_str()?.trim_end_matches('=')).ok();
    if document["use"].as_str().is_some_and(|purpose| purpose != "sig") {
        return None;
    }
    let public = match (document["kty"].as_str()?, document["crv"].as_str()) {
        ("RSA", _) => Public::Rsa { n: without_zeros(bytes("n")?), e: without_zeros(bytes("e")?) },
        ("EC", Some(curve @ ("P-256" | "P-384"))) => {
            let bits: u16 = if curve == "P-256" { 256 } else { 384 };
            let (x, y, size) = (bytes("x")?, bytes("y")?, usize::from(bits / 8));
            let padded = |part: Vec<u8>| [vec![0; size.saturating_sub(part.len())], part].concat();
            Public::Curve { bits, point: [vec![4], padded(x), padded(y)].concat() }
        }
        _ => return None,
    };
    let text = |field: &str| document[field].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    Some(PublicKey { id: text("kid"), algorithm: text("alg"), public })
}

fn without_zeros(number: Vec<u8>) -> Vec<u8> {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number[zeros..].to_vec()
}

impl PublicKey {
    /// Whether this key made `signature` with the named algorithm.
    pub fn verifies(&self, algorithm: &str, message: &[u8], signature: &[u8]) -> bool {
        if self.algorithm.as_ref().is_some_and(|own| own != algorithm) {
            return false;
        }
        match &self.public {
            Public::Rsa { n, e } => {
                let parameters = match algorithm {
                    "RS256" => &rings::RSA_PKCS1_2048_8192_SHA256,
                    "RS384" => &rings::RSA_PKCS1_2048_8192_SHA384,
                    "RS512" => &rings::RSA_PKCS1_2048_8192_SHA512,
                    "PS256" => &rings::RSA_PSS_2048_8192_SHA256,
                    "PS384" => &rings::RSA_PSS_2048_8192_SHA384,
                    "PS512" => &rings::RSA_PSS_2048_8192_SHA512,
                    _ => return false,
                };
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature).is_ok()
            }
            Public::Curve { bits, point } => {
                let verification: &dyn VerificationAlgorithm = match (algorithm, bits) {
                    ("ES256", 256) => &rings::ECDSA_P256_SHA256_FIXED,
                    ("ES384", 384) => &rings::ECDSA_P384_SHA384_FIXED,
                    _ => return false,
                };
                UnparsedPublicKey::new(verification, point).verify(message, signature).is_ok()
            }
        }
    }
}
