//! JSON Web Tokens: the server's own tokens, and tokens of other issuers.
//!
//! The header of an issuer's token is parsed here and not by `jsonwebtoken`. That library fails on an unknown
//! algorithm, although an error has to name the algorithm. It also fails on header fields of an issuer that are not
//! strings.

mod signatures;

pub use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use holdfast_value::Value;
use jsonwebtoken::{Header, Validation, crypto};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The maximum size of a token that is parsed. The head of a request cannot contain a larger token.
const BYTES_MAX: usize = 256 << 10;

/// Signs claims with a key that has this id.
pub fn sign(algorithm: Algorithm, id: &str, key: &EncodingKey, claims: &impl Serialize) -> Result<String, String> {
    signatures::install();
    let mut header = Header::new(algorithm);
    header.typ = None;
    header.kid = Some(id.to_owned());
    jsonwebtoken::encode(&header, claims, key).map_err(|error| error.to_string())
}

/// The algorithm of a token, and the id of its key.
pub fn header(token: &str) -> Result<(Algorithm, Option<String>), String> {
    let header = jsonwebtoken::decode_header(token).map_err(|error| error.to_string())?;
    Ok((header.alg, header.kid))
}

/// The claims of a token, if the key signed them with this algorithm. The caller checks the audiences and times.
pub fn verified<T: DeserializeOwned + Clone>(token: &str, algorithm: Algorithm, key: &DecodingKey) -> Option<T> {
    signatures::install();
    let mut validation = Validation::new(algorithm);
    validation.validate_aud = false;
    validation.validate_exp = false;
    validation.set_required_spec_claims::<&str>(&[]);
    jsonwebtoken::decode::<T>(token, key, &validation).ok().map(|token| token.claims)
}

/// The issuer that a token names, without verification; `None` if the text is no token.
pub fn unverified_issuer(token: &str) -> Option<String> {
    let Encoded { claims, .. } = Encoded::of(token)?;
    json(claims)?["iss"].as_str().map(str::to_owned)
}

/// The encoded parts of a token.
struct Encoded<'a> {
    /// The header and the claims with the dot between them.
    signed: &'a str,
    header: &'a str,
    claims: &'a str,
    signature: &'a str,
}

impl Encoded<'_> {
    fn of(token: &str) -> Option<Encoded<'_>> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        Some(Encoded { signed, header, claims, signature })
    }
}

fn json(part: &str) -> Option<Value> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

/// A parsed token of an issuer, which is not verified yet.
pub struct Token<'a> {
    signed: &'a str,
    signature: &'a str,
    /// The name of the algorithm, which may be unknown to this server.
    pub algorithm: String,
    /// The id of the key, if the token names a key.
    pub key: Option<String>,
    pub claims: Value,
}

impl<'a> Token<'a> {
    /// Parses a token; `None` if the text is not a JSON Web Token, is too large, or requires an extension.
    pub fn read(text: &'a str) -> Option<Token<'a>> {
        let Encoded { signed, header, claims, signature } = Encoded::of(text).filter(|_| text.len() <= BYTES_MAX)?;
        let (header, claims) = (json(header)?, json(claims).filter(Value::is_object)?);
        // `crit` lists extensions that the verifier must support, and Holdfast supports none.
        if header.get("crit").is_some() {
            return None;
        }
        URL_SAFE_NO_PAD.decode(signature).ok()?;
        Some(Token {
            signed,
            signature,
            algorithm: header["alg"].as_str()?.to_owned(),
            key: header["kid"].as_str().filter(|key| !key.is_empty()).map(str::to_owned),
            claims,
        })
    }

    /// Whether the key signed the token with this algorithm.
    pub fn is_signed_by(&self, key: &DecodingKey, algorithm: Algorithm) -> bool {
        signatures::install();
        crypto::verify(self.signature, self.signed.as_bytes(), key, algorithm).unwrap_or(false)
    }
}
