//! JSON Web Tokens: parsed, signed, and verified by `ring`, which TLS uses as well.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{
    self as rings, EcdsaKeyPair, KeyPair, RsaKeyPair, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey,
    VerificationAlgorithm,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

/// The largest token that is parsed: the head of a request has no more room.
const BYTES_MAX: usize = 256 << 10;

/// The algorithms of signatures that can be verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
}

const NAMES: [(Algorithm, &str); 8] = [
    (Algorithm::Rs256, "RS256"),
    (Algorithm::Rs384, "RS384"),
    (Algorithm::Rs512, "RS512"),
    (Algorithm::Ps256, "PS256"),
    (Algorithm::Ps384, "PS384"),
    (Algorithm::Ps512, "PS512"),
    (Algorithm::Es256, "ES256"),
    (Algorithm::Es384, "ES384"),
];

impl Algorithm {
    pub fn named(name: &str) -> Option<Algorithm> {
        NAMES.iter().find(|(_, own)| *own == name).map(|(algorithm, _)| *algorithm)
    }

    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(own, _)| *own == self).map_or("", |(_, name)| name)
    }

    fn of_rsa(self) -> Option<&'static RsaParameters> {
        Some(match self {
            Algorithm::Rs256 => &rings::RSA_PKCS1_2048_8192_SHA256,
            Algorithm::Rs384 => &rings::RSA_PKCS1_2048_8192_SHA384,
            Algorithm::Rs512 => &rings::RSA_PKCS1_2048_8192_SHA512,
            Algorithm::Ps256 => &rings::RSA_PSS_2048_8192_SHA256,
            Algorithm::Ps384 => &rings::RSA_PSS_2048_8192_SHA384,
            Algorithm::Ps512 => &rings::RSA_PSS_2048_8192_SHA512,
            Algorithm::Es256 | Algorithm::Es384 => return None,
        })
    }
}

/// A public key.
pub enum PublicKey {
    /// The modulus and the exponent, without leading zeros.
    Rsa { n: Vec<u8>, e: Vec<u8> },
    /// An RSA key in PKCS #1.
    RsaDer(Vec<u8>),
    /// An uncompressed point of P-256.
    P256(Vec<u8>),
    /// An uncompressed point of P-384.
    P384(Vec<u8>),
}

impl PublicKey {
    /// Whether `signature` is a signature of `message` by this key with this algorithm.
    fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        let by = |with: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(with, key).verify(message, signature).is_ok()
        };
        match (self, algorithm) {
            (PublicKey::Rsa { n, e }, algorithm) => algorithm
                .of_rsa()
                .is_some_and(|with| RsaPublicKeyComponents { n, e }.verify(with, message, signature).is_ok()),
            (PublicKey::RsaDer(der), algorithm) => algorithm.of_rsa().is_some_and(|with| by(with, der)),
            (PublicKey::P256(point), Algorithm::Es256) => by(&rings::ECDSA_P256_SHA256_FIXED, point),
            (PublicKey::P384(point), Algorithm::Es384) => by(&rings::ECDSA_P384_SHA384_FIXED, point),
            (PublicKey::P256(_) | PublicKey::P384(_), _) => false,
        }
    }
}

/// A parsed token, which is not verified yet.
pub struct Jwt<'a, Claims> {
    signed: &'a str,
    signature: Vec<u8>,
    /// As the header names it; it may be unknown.
    pub algorithm: String,
    /// The id of the key, if the header names one.
    pub key: Option<String>,
    pub claims: Claims,
}

impl<'a, Claims: DeserializeOwned> Jwt<'a, Claims> {
    /// `None` if the text is no token with these claims.
    pub fn read(text: &'a str) -> Option<Jwt<'a, Claims>> {
        let (signed, signature) = text.rsplit_once('.').filter(|_| text.len() <= BYTES_MAX)?;
        let (header, claims) = signed.split_once('.')?;
        let header: serde_json::Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
        // The token demands extensions that are not understood here.
        if header.get("crit").is_some() {
            return None;
        }
        Some(Jwt {
            signed,
            signature: URL_SAFE_NO_PAD.decode(signature).ok()?,
            algorithm: header["alg"].as_str()?.to_owned(),
            key: header["kid"].as_str().filter(|key| !key.is_empty()).map(str::to_owned),
            claims: serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?,
        })
    }
}

impl<Claims> Jwt<'_, Claims> {
    /// Whether this key signed the token.
    pub fn is_signed_by(&self, key: &PublicKey) -> bool {
        let algorithm = Algorithm::named(&self.algorithm);
        algorithm.is_some_and(|algorithm| key.verifies(algorithm, self.signed.as_bytes(), &self.signature))
    }
}

/// A private key that signs tokens.
pub struct SigningKey {
    pub algorithm: Algorithm,
    pair: Pair,
}

enum Pair {
    Rsa(RsaKeyPair),
    Curve(EcdsaKeyPair),
}

impl SigningKey {
    /// From a private key in PKCS #8.
    pub fn of_pkcs8(key: &[u8]) -> Result<SigningKey, String> {
        let curves = [
            (Algorithm::Es256, &rings::ECDSA_P256_SHA256_FIXED_SIGNING),
            (Algorithm::Es384, &rings::ECDSA_P384_SHA384_FIXED_SIGNING),
        ];
        for (algorithm, curve) in curves {
            if let Ok(pair) = EcdsaKeyPair::from_pkcs8(curve, key, &SystemRandom::new()) {
                return Ok(SigningKey { algorithm, pair: Pair::Curve(pair) });
            }
        }
        match RsaKeyPair::from_pkcs8(key) {
            Ok(pair) => Ok(SigningKey { algorithm: Algorithm::Rs256, pair: Pair::Rsa(pair) }),
            Err(why) => {
                Err(format!("the private key is neither RSA of 2048 to 4096 bits nor on P-256 or P-384: {why}"))
            }
        }
    }

    /// The public key: RSA as in PKCS #1, or the uncompressed point of a curve.
    pub fn public(&self) -> &[u8] {
        match &self.pair {
            Pair::Rsa(pair) => pair.public_key().as_ref(),
            Pair::Curve(pair) => pair.public_key().as_ref(),
        }
    }

    /// A token with these claims, which names the key by `id`.
    pub fn sign(&self, id: &str, claims: &impl Serialize) -> Result<String, String> {
        let claims = serde_json::to_vec(claims).map_err(|error| error.to_string())?;
        let header = json!({"alg": self.algorithm.name(), "kid": id}).to_string();
        let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let random = SystemRandom::new();
        let failed = |_| "the token cannot be signed".to_owned();
        let signature = match &self.pair {
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&rings::RSA_PKCS1_SHA256, &random, message.as_bytes(), &mut signature).map_err(failed)?;
                signature
            }
            Pair::Curve(pair) => pair.sign(&random, message.as_bytes()).map_err(failed)?.as_ref().to_vec(),
        };
        Ok(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::private_key_in_pkcs8;
    use serde_json::Value;

    fn key() -> SigningKey {
        let pair = rcgen::KeyPair::generate().expect("a key");
        let pem = private_key_in_pkcs8(pair.serialize_pem().as_bytes()).expect("PKCS #8");
        SigningKey::of_pkcs8(pem.secret_pkcs8_der()).expect("a signing key")
    }

    #[test]
    fn a_token_is_signed_by_its_key_alone() {
        let (own, other) = (key(), key());
        let text = own.sign("k", &json!({"sub": "s"})).expect("a token");
        let token = Jwt::<Value>::read(&text).expect("it is a token");
        assert_eq!(
            (token.algorithm.as_str(), token.key.as_deref(), token.claims["sub"].as_str()),
            ("ES256", Some("k"), Some("s"))
        );
        let public = |key: &SigningKey| PublicKey::P256(key.public().to_vec());
        assert!(token.is_signed_by(&public(&own)) && !token.is_signed_by(&public(&other)));
        assert!(!token.is_signed_by(&PublicKey::P384(own.public().to_vec())));
        assert!(!token.is_signed_by(&PublicKey::RsaDer(own.public().to_vec())));
    }

    #[test]
    fn what_is_no_token_is_not_read() {
        let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let text = |header: &str, claims: &str| format!("{}.{}.", part(header), part(claims));
        assert!(Jwt::<Value>::read(&text(r#"{"alg":"none"}"#, "{}")).is_some(), "no key has signed it");
        let extended = text(r#"{"alg":"ES256","crit":["exp"]}"#, "{}");
        let long = text(r#"{"alg":"ES256"}"#, &(" ".repeat(BYTES_MAX) + "{}"));
        for text in
            ["", ".", "..", "a.b", "a.b.c.d", &extended, &text("{}", "{}"), &text(r#"{"alg":"ES256"}"#, ""), &long]
        {
            assert!(Jwt::<Value>::read(text).is_none(), "{}", &text[..text.len().min(99)]);
        }
    }
}
