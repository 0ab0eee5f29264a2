//! The published keys of an issuer.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use holdfast_tls::jwt::{Algorithm, DecodingKey, Token};
use holdfast_value::Value;

/// The maximum number of keys that are tried for a token that names no key, or a key id that several keys have. The
/// number is limited because anyone can make tokens.
const TRIES_MAX: usize = 100;

/// A public key of an issuer.
pub struct PublicKey {
    id: Option<String>,
    /// The only algorithm for which the key may be used; `None` if the key names no algorithm.
    algorithm: Option<String>,
    /// The algorithm of a key on a curve; `None` for an RSA key, which several algorithms can use.
    curve: Option<Algorithm>,
    key: DecodingKey,
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
    let (curve, key) = match (document["kty"].as_str()?, document["crv"].as_str()) {
        ("RSA", _) => {
            let (n, e) = (without_zeros(bytes("n")?), without_zeros(bytes("e")?));
            (None, DecodingKey::from_rsa_raw_components(&n, &e))
        }
        ("EC", Some(curve @ ("P-256" | "P-384"))) => {
            let (algorithm, size) = if curve == "P-256" { (Algorithm::ES256, 32) } else { (Algorithm::ES384, 48) };
            let (x, y) = (bytes("x")?, bytes("y")?);
            let padded = |part: Vec<u8>| [vec![0; usize::saturating_sub(size, part.len())], part].concat();
            // The point is in uncompressed form, because `jsonwebtoken` passes these bytes on unchanged.
            let point = [vec![4], padded(x), padded(y)].concat();
            (Some(algorithm), DecodingKey::from_ec_der(&point))
        }
        _ => return None,
    };
    let text = |field: &str| document[field].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    Some(PublicKey { id: text("kid"), algorithm: text("alg"), curve, key })
}

fn without_zeros(number: Vec<u8>) -> Vec<u8> {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number[zeros..].to_vec()
}

/// Whether one of the keys signed the token. If the token names a key, only that key counts.
pub fn verify(keys: &[PublicKey], token: &Token<'_>) -> bool {
    let named = keys.iter().filter(|key| token.key.is_none() || key.id == token.key);
    named.take(TRIES_MAX).any(|key| key.verifies(token))
}

impl PublicKey {
    fn verifies(&self, token: &Token<'_>) -> bool {
        let Ok(algorithm) = token.algorithm.parse::<Algorithm>() else { return false };
        self.algorithm.as_ref().is_none_or(|own| *own == token.algorithm)
            && self.curve.is_none_or(|curve| curve == algorithm)
            && token.is_signed_by(&self.key, algorithm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_tls::jwt::{EncodingKey, sign};
    use holdfast_value::json;

    fn published(pair: &rcgen::KeyPair, id: &str) -> Value {
        // The bytes of a point on P-256 are a byte that marks the form, and the two coordinates.
        let (x, y) = pair.public_key_raw()[1..].split_at(32);
        let encoded = |part: &[u8]| URL_SAFE_NO_PAD.encode(part);
        json!({"kty": "EC", "crv": "P-256", "kid": id, "x": encoded(x), "y": encoded(y)})
    }

    #[test]
    fn a_token_is_verified_by_the_key_that_it_names() {
        let (own, other) = (rcgen::KeyPair::generate().unwrap(), rcgen::KeyPair::generate().unwrap());
        let key = EncodingKey::from_ec_der(&own.serialize_der());
        let text = sign(Algorithm::ES256, "a", &key, &json!({"iss": "https://x"})).unwrap();
        let token = Token::read(&text).expect("a token");
        for (key, expected) in [
            (published(&own, "a"), true),
            (published(&own, "b"), false),
            (published(&other, "a"), false),
            (json!({"kty": "RSA", "n": "AQAB", "e": "AQAB", "kid": "a"}), false),
        ] {
            assert_eq!(verify(&read(&json!({"keys": [key]})), &token), expected, "{key}");
        }
        let mut for_another = published(&own, "a");
        for_another["alg"] = "RS256".into();
        assert!(!verify(&read(&json!({"keys": [for_another]})), &token), "the key is for another algorithm");
        let mut changed = text.into_bytes();
        let middle = changed.len() / 2;
        changed[middle] ^= 1;
        let changed = String::from_utf8(changed).unwrap();
        let keys = read(&json!({"keys": [published(&own, "a")]}));
        assert!(Token::read(&changed).is_none_or(|token| !verify(&keys, &token)));
    }
}
