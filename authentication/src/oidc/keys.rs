//! The published keys of an issuer.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use holdfast_tls::jwt::PublicKey;
use holdfast_value::Value;

/// A public key.
pub struct Key {
    pub id: Option<String>,
    /// The only algorithm that the key is for, if it names one.
    pub algorithm: Option<String>,
    pub public: PublicKey,
}

/// The keys of a key set that can verify signatures; other keys are skipped.
pub fn read(document: &Value) -> Vec<Key> {
    document["keys"].as_array().into_iter().flatten().filter_map(key).collect()
}

fn key(document: &Value) -> Option<Key> {
    let bytes = |field: &str| URL_SAFE_NO_PAD.decode(document[field].as_str()?.trim_end_matches('=')).ok();
    if document["use"].as_str().is_some_and(|purpose| purpose != "sig") {
        return None;
    }
    let public = match (document["kty"].as_str()?, document["crv"].as_str()) {
        ("RSA", _) => PublicKey::Rsa { n: without_zeros(bytes("n")?), e: without_zeros(bytes("e")?) },
        ("EC", Some(curve @ ("P-256" | "P-384"))) => {
            let size = if curve == "P-256" { 32 } else { 48 };
            let padded = |part: Vec<u8>| [vec![0; size - part.len().min(size)], part].concat();
            let point = [vec![4], padded(bytes("x")?), padded(bytes("y")?)].concat();
            if curve == "P-256" { PublicKey::P256(point) } else { PublicKey::P384(point) }
        }
        _ => return None,
    };
    let text = |field: &str| document[field].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    Some(Key { id: text("kid"), algorithm: text("alg"), public })
}

fn without_zeros(number: Vec<u8>) -> Vec<u8> {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number[zeros..].to_vec()
}
