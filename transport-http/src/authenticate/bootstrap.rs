//! Verifies bootstrap tokens. The holder of a token may join the cluster if a Secret has that token.

use crate::secrets;
use holdfast_core::authz::User;
use holdfast_core::kinds::known;
use holdfast_core::object::meta;
use holdfast_core::state::State;
use holdfast_tls::peer::authenticated;
use holdfast_value::Value;
use std::sync::Arc;

const NAMESPACE: &str = "kube-system";
const TYPE: &str = "bootstrap.kubernetes.io/token";
const GROUP: &str = "system:bootstrappers";
/// The maximum length of an extra group's name, without the common prefix.
const EXTRA_MAX: usize = 256;

/// The user of a token `abcdef.0123456789abcdef`, if a Secret allows it.
pub fn user(state: &State, token: &str) -> Option<Arc<User>> {
    let (id, secret) = parts(token)?;
    let (kind, _) = state.registry.known(known::SECRET)?;
    let entry = state.get(kind, &meta::key(Some(NAMESPACE), &format!("bootstrap-token-{id}")))?;
    let document = entry.document();
    if document["type"] != TYPE || !document["metadata"]["deletionTimestamp"].is_null() {
        return None;
    }
    let data = |key: &str| decoded(&document["data"][key]);
    let same = secrets::same(data("token-secret")?.as_bytes(), secret.as_bytes());
    if !same || data("token-id")? != id || has_expired(data("expiration").as_deref()) {
        return None;
    }
    if data("usage-bootstrap-authentication")? != "true" {
        return None;
    }
    let mut groups = extra_groups(data("auth-extra-groups").as_deref().unwrap_or(""))?;
    groups.push(GROUP.into());
    groups.sort();
    groups.dedup();
    let mut user = User::new(format!("system:bootstrap:{id}"), &[]);
    user.groups = groups;
    Some(Arc::new(authenticated(user)))
}

/// Splits a bootstrap token into its id and its secret; `None` if the token has another form.
fn parts(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    (id.len() == 6 && secret.len() == 16 && plain(id) && plain(secret)).then_some((id, secret))
}

fn decoded(value: &Value) -> Option<String> {
    use base64::Engine;
    let bytes = base64::engine::general_purpose::STANDARD.decode(value.as_str()?).ok()?;
    String::from_utf8(bytes).ok().filter(|text| !text.is_empty())
}

/// Whether the token has expired. An expiration that is no valid time counts as passed.
fn has_expired(expiration: Option<&str>) -> bool {
    expiration.is_some_and(|text| match text.parse::<jiff::Timestamp>() {
        Ok(end) => end <= jiff::Timestamp::now(),
        Err(_) => true,
    })
}

/// The extra groups of a token's holders; `None` if a name is not allowed.
fn extra_groups(text: &str) -> Option<Vec<String>> {
    let good = |group: &str| {
        let Some(rest) = group.strip_prefix("system:bootstrappers:") else { return false };
        let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        rest.len() <= EXTRA_MAX && rest.ends_with(edge) && rest.chars().all(|c| edge(c) || ":-".contains(c))
    };
    if text.is_empty() {
        return Some(Vec::new());
    }
    text.split(',').map(|group| good(group).then(|| group.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_groups_have_their_form() {
        assert_eq!(parts("abc123.0123456789abcdef"), Some(("abc123", "0123456789abcdef")));
        for token in ["abc123", "abc12.0123456789abcdef", "ABC123.0123456789abcdef", "abc123.0123456789abcde", ""] {
            assert_eq!(parts(token), None, "{token}");
        }
        let groups = extra_groups("system:bootstrappers:a,system:bootstrappers:b-c:1").expect("good ones");
        assert_eq!(groups, ["system:bootstrappers:a", "system:bootstrappers:b-c:1"]);
        for wrong in [
            "system:masters",
            "system:bootstrappers:",
            "system:bootstrappers:a-",
            "system:bootstrappers:A",
            "system:bootstrappers:a,",
        ] {
            assert_eq!(extra_groups(wrong), None, "{wrong}");
        }
        assert!(has_expired(Some("2020-01-01T00:00:00Z")) && has_expired(Some("soon")));
        assert!(!has_expired(None) && !has_expired(Some("2999-01-01T00:00:00Z")));
    }
}
