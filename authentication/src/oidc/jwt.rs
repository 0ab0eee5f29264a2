//! The tokens of issuers.

use super::keys::Key;
use holdfast_tls::jwt;
use holdfast_value::Value;

/// The most keys that are tried for a token that names no key, or one that several have: anyone can make tokens.
const TRIES_MAX: usize = 100;

/// A parsed token, which is not verified yet.
pub struct Token<'a>(jwt::Jwt<'a, Value>);

impl<'a> Token<'a> {
    /// `None` if the text is no token.
    pub fn read(text: &'a str) -> Option<Token<'a>> {
        jwt::Jwt::read(text).filter(|token: &jwt::Jwt<Value>| token.claims.is_object()).map(Token)
    }

    pub fn algorithm(&self) -> &str {
        &self.0.algorithm
    }

    pub fn claims(&self) -> &Value {
        &self.0.claims
    }

    pub fn claims_mut(&mut self) -> &mut Value {
        &mut self.0.claims
    }

    pub fn audiences(&self) -> Vec<String> {
        match &self.claims()["aud"] {
            Value::String(one) => vec![one.to_string()],
            Value::Array(all) => all.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        }
    }

    /// A claimed time in seconds since 1970.
    pub fn seconds(&self, claim: &str) -> Option<i64> {
        let time = &self.claims()[claim];
        time.as_i64().or_else(|| time.as_f64().map(|time| time as i64))
    }

    /// Whether one of the keys signed it: the key that it names, or any if it names none.
    pub fn is_signed_by(&self, keys: &[Key]) -> bool {
        let token = &self.0;
        let named = |key: &&Key| token.key.is_none() || key.id == token.key;
        let fits = |key: &Key| key.algorithm.as_ref().is_none_or(|own| *own == token.algorithm);
        keys.iter().filter(named).take(TRIES_MAX).any(|key| fits(key) && token.is_signed_by(&key.public))
    }
}
