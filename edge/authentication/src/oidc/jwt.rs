//! A JSON Web Token: header, claims, and the signature over both.

use super::keys::PublicKey;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use holdfast_value::Value;

/// The maximum size of a token that is parsed. The head of a request cannot contain a larger token.
const BYTES_MAX: usize = 256 << 10;

/// The maximum number of keys that are tried for a token that names no key, or a key id that several keys have. The
/// number is limited because anyone can make tokens.
const TRIES_MAX: usize = 100;

/// A parsed token, which is not verified yet.
pub struct Token<'a> {
    signed: &'a str,
    signature: Vec<u8>,
    pub algorithm: String,
    key: Option<String>,
    pub claims: Value,
}

impl<'a> Token<'a> {
    /// Parses a token; `None` if the text is not a JSON Web Token.
    pub fn read(text: &'a str) -> Option<Token<'a>> {
        let (signed, signature) = text.rsplit_once('.').filter(|_| text.len() <= BYTES_MAX)?;
        let (header, claims) = signed.split_once('.')?;
        let json = |part: &str| serde_json::from_slice::<Value>(&URL_SAFE_NO_PAD.decode(part).ok()?).ok();
        let (header, claims) = (json(header)?, json(claims).filter(Value::is_object)?);
        // The token demands extensions that Holdfast does not support.
        if header.get("crit").is_some() {
            return None;
        }
        Some(Token {
            signed,
            signature: URL_SAFE_NO_PAD.decode(signature).ok()?,
            algorithm: header["alg"].as_str()?.to_owned(),
            key: header["kid"].as_str().filter(|key| !key.is_empty()).map(str::to_owned),
            claims,
        })
    }

    pub fn audiences(&self) -> Vec<String> {
        match &self.claims["aud"] {
            Value::String(one) => vec![one.to_string()],
            Value::Array(all) => all.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        }
    }

    /// A claimed time in seconds since 1970.
    pub fn seconds(&self, claim: &str) -> Option<i64> {
        let time = &self.claims[claim];
        time.as_i64().or_else(|| time.as_f64().map(|time| time as i64))
    }

    /// Whether one of the keys signed the token. If the token names a key, only that key counts.
    pub fn is_signed_by(&self, keys: &[PublicKey]) -> bool {
        let named = |key: &&PublicKey| self.key.is_none() || key.id == self.key;
        keys.iter()
            .filter(named)
            .take(TRIES_MAX)
            .any(|key| key.verifies(&self.algorithm, self.signed.as_bytes(), &self.signature))
    }
}
