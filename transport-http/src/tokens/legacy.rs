//! Tokens that are kept in Secrets: they do not end, and are good as long as the Secret holds them.

use super::keys::{Verifying, signing_key};
use super::proved;
use super::uses::{Use, Uses};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_core::authz::{User, service_account_user};
use holdfast_core::kinds::known;
use holdfast_core::object::meta;
use holdfast_core::state::State;
use jsonwebtoken::Header;
use serde::Deserialize;
use serde_json::Value;

pub(super) const ISSUER: &str = "kubernetes/serviceaccount";
/// A token that nobody used for long counts no more, and is deleted later.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

#[derive(Deserialize, Clone, Default)]
#[serde(default)]
struct Claims {
    sub: String,
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
pub(super) fn verify(keys: &[Verifying], state: &State, token: &str, uses: &Uses) -> Result<User, String> {
    let Claims { sub, namespace, secret: name, account, uid } = proved::<Claims>(keys, token)?;
    for (claim, value) in [
        ("sub", &sub),
        ("namespace", &namespace),
        ("secretName", &name),
        ("serviceAccountName", &account),
        ("serviceAccountUID", &uid),
    ] {
        if value.is_empty() {
            return Err(format!("{claim} claim is missing"));
        }
    }
    if sub != service_account_user(&namespace, &account) {
        return Err("sub claim is invalid".into());
    }
    let find = |known, name: &str| {
        let (id, _) = state.registry.known(known)?;
        Some(state.get(id, &meta::key(Some(&namespace), name))?.document())
    };
    let stays = |object: &Value| object["metadata"]["deletionTimestamp"].is_null();
    let secret = find(known::SECRET, &name).filter(stays).ok_or("service account token has been invalidated")?;
    let kept = secret["data"]["token"].as_str().and_then(|data| STANDARD.decode(data).ok());
    if kept.as_deref() != Some(token.as_bytes()) {
        return Err("service account token does not match server's copy".into());
    }
    let found =
        find(known::SERVICE_ACCOUNT, &account).ok_or_else(|| format!("serviceaccounts {account:?} not found"))?;
    if !stays(&found) {
        return Err(format!("service account {namespace}/{account} has been deleted"));
    }
    let current = found["metadata"]["uid"].as_str().unwrap_or_default();
    if current != uid {
        return Err(format!("service account UID ({current}) does not match claim ({uid})"));
    }
    let mut of_account = found["secrets"].as_array().into_iter().flatten();
    let is_automatic = of_account.any(|secret| secret["name"] == name.as_str());
    if !secret["metadata"]["labels"][INVALID_SINCE].is_null() {
        if is_automatic {
            uses.count(Use::InvalidLegacyAuto);
        }
        return Err(format!(
            "the token in secret {namespace}/{name} for service account {namespace}/{account} has been marked invalid. Use \
             tokens from the TokenRequest API or manually created secret-based tokens, or remove the '{INVALID_SINCE}' label \
             from the secret to temporarily allow use of this token"
        ));
    }
    uses.count(if is_automatic { Use::LegacyAuto } else { Use::LegacyManual });
    uses.count(Use::Legacy);
    Ok(User::service_account(&namespace, &account, &uid))
}
