//! Tokens that are kept in Secrets: they do not end, and are good as long as the Secret holds them.

use super::keys::{Verifying, signing_key};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_core::authz::User;
use holdfast_core::kinds::known;
use holdfast_core::object::meta;
use holdfast_core::state::State;
use jsonwebtoken::{Header, Validation};
use serde::Deserialize;
use serde_json::Value;

const ISSUER: &str = "kubernetes/serviceaccount";
/// A token that nobody used for long counts no more, and is deleted later.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

#[derive(Deserialize)]
struct Claims {
    #[serde(rename = "kubernetes.io/serviceaccount/namespace")]
    namespace: String,
    #[serde(rename = "kubernetes.io/serviceaccount/secret.name")]
    secret: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.name")]
    account: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.uid")]
    uid: String,
}

/// Signs such a token with the first private key in a PEM text.
pub fn sign(pem: &str, claims: &Value) -> Result<String, String> {
    let (algorithm, id, key) = signing_key(pem)?;
    let mut header = Header::new(algorithm);
    header.typ = None;
    header.kid = Some(id);
    jsonwebtoken::encode(&header, claims, &key).map_err(|error| error.to_string())
}

/// The user of such a token, if its Secret has it and its account is the one that it was made for.
pub(super) fn verify(keys: &[Verifying], state: &State, token: &str) -> Option<User> {
    let header = jsonwebtoken::decode_header(token).ok()?;
    let claims = keys.iter().filter(|key| key.algorithm == header.alg).find_map(|key| {
        let mut validation = Validation::new(key.algorithm);
        validation.set_issuer(&[ISSUER]);
        validation.validate_aud = false;
        validation.validate_exp = false;
        validation.set_required_spec_claims(&["iss", "sub"]);
        jsonwebtoken::decode::<Claims>(token, &key.key, &validation).ok()
    })?;
    let Claims { namespace, secret, account, uid } = claims.claims;
    let find = |known, name: &str| {
        let (id, _) = state.registry.known(known)?;
        Some(state.get(id, &meta::key(Some(&namespace), name))?.document())
    };
    let secret = find(known::SECRET, &secret)?;
    let kept = STANDARD.decode(secret["data"]["token"].as_str()?).ok()?;
    let stays = |object: &Value| object["metadata"]["deletionTimestamp"].is_null();
    let is_valid = kept == token.as_bytes() && secret["metadata"]["labels"][INVALID_SINCE].is_null() && stays(&secret);
    let found = find(known::SERVICE_ACCOUNT, &account)?;
    let is_the_one = found["metadata"]["uid"] == uid.as_str() && stays(&found);
    (is_valid && is_the_one).then(|| User::service_account(&namespace, &account, &uid))
}
