//! Signs the cluster's connection data with each bootstrap token, by which machines join the cluster, and deletes
//! expired tokens.

use crate::encoded::decode;
use crate::subject::Subject;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac};
use holdfast_value::{Value, json};
use holdfast_world::views::{ConfigMap, Secret};
use holdfast_world::{Change, Controller, Key, Keys, Plan, Resource, Stamp, Time, View, Viewed, World};
use sha2::Sha256;
use std::collections::BTreeMap;

const TYPE: &str = "bootstrap.kubernetes.io/token";
const PREFIX: &str = "bootstrap-token-";
const NAMESPACE: &str = "kube-system";
/// The namespace and name of the ConfigMap with the connection data, which machines may read without authentication.
const INFO: (&str, &str) = ("kube-public", "cluster-info");
const KUBECONFIG: &str = "kubeconfig";
const SIGNATURE: &str = "jws-kubeconfig-";

struct BootstrapToken {
    id: String,
    secret: String,
    signs: bool,
    expires: Option<Time>,
}

impl BootstrapToken {
    /// Returns `None` if the Secret is no bootstrap token, or the token's id does not match the Secret's name.
    fn of(secret: Viewed<'_, Secret>) -> Option<BootstrapToken> {
        let meta = secret.meta();
        if secret.kind != TYPE || meta.namespace != NAMESPACE || meta.is_deleting() {
            return None;
        }
        let data = secret.object.document()["data"].take();
        let text = |field: &str| String::from_utf8(decode(data[field].as_str()?)?).ok();
        let id = meta.name.strip_prefix(PREFIX).filter(|id| !id.is_empty())?.to_owned();
        let expires = text("expiration").map(|expires| Time::parse(&expires));
        // An expiration that cannot be parsed counts as passed.
        let expires = expires.map(|expires| expires.unwrap_or(Time::from_second(0)));
        let named = text("token-id")?;
        let secret = text("token-secret").filter(|secret| !secret.is_empty())?;
        (named == id).then(|| BootstrapToken {
            id,
            secret,
            signs: text("usage-bootstrap-signing").as_deref() == Some("true"),
            expires,
        })
    }

    fn is_valid(&self, now: Time) -> bool {
        self.expires.is_none_or(|expires| expires > now)
    }
}

/// Each plan is for the ConfigMap with the connection data.
pub struct BootstrapSigner;

impl Controller for BootstrapSigner {
    fn name(&self) -> &'static str {
        "bootstrap-signer-controller"
    }

    fn queue(&self) -> &'static str {
        "bootstrap_signer_queue"
    }

    fn account(&self) -> &'static str {
        "bootstrap-signer"
    }

    fn resources(&self) -> Vec<Resource> {
        vec![ConfigMap::resource().clone(), Secret::resource().clone()]
    }

    fn concerns(&mut self, _: &World, change: &Change, keys: &mut Keys) {
        let place = (&*change.key.namespace, &*change.key.name);
        if change.is_of::<ConfigMap>() && place == INFO
            || change.is_of::<Secret>() && place.0 == NAMESPACE && place.1.starts_with(PREFIX)
        {
            keys.add(Key::new(INFO.0, INFO.1));
        }
    }

    fn plan(&mut self, world: &World, key: &Key, stamp: Stamp) -> Plan {
        let mut plan = Plan::default();
        let Some(info) = world.get::<ConfigMap>(key) else { return plan };
        let mut document = info.object.document();
        let Some(content) = document["data"][KUBECONFIG].as_str().map(str::to_owned) else { return plan };
        let tokens = world.in_namespace::<Secret>(NAMESPACE).filter_map(BootstrapToken::of);
        let signing: Vec<BootstrapToken> = tokens.filter(|token| token.signs && token.is_valid(stamp.time)).collect();
        signing.iter().filter_map(|token| token.expires).for_each(|expires| plan.requeue_at(expires));
        let wanted: BTreeMap<String, String> =
            signing.iter().map(|token| (format!("{SIGNATURE}{}", token.id), detached(&content, token))).collect();
        let Some(data) = document["data"].as_object_mut() else { return plan };
        let before = data.clone();
        data.retain(|field, _| !field.starts_with(SIGNATURE) || wanted.contains_key(field.as_str()));
        data.extend(wanted.into_iter().map(|(field, signature)| (field, Value::from(signature))));
        if *data != before {
            plan.then(Subject::from(info).update(document));
        }
        plan
    }
}

/// A detached JSON web signature of `content`: the signature does not contain the content itself.
fn detached(content: &str, token: &BootstrapToken) -> String {
    let header = URL_SAFE_NO_PAD.encode(json!({"alg": "HS256", "kid": token.id}).to_string());
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(content));
    // HMAC accepts keys of any length, so this does not fail.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(token.secret.as_bytes()) else { return String::new() };
    mac.update(signed.as_bytes());
    format!("{header}..{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
}

/// Each plan is for one token.
pub struct BootstrapCleaner;

impl Controller for BootstrapCleaner {
    fn name(&self) -> &'static str {
        "token-cleaner-controller"
    }

    fn queue(&self) -> &'static str {
        "token_cleaner"
    }

    fn account(&self) -> &'static str {
        "token-cleaner"
    }

    fn resources(&self) -> Vec<Resource> {
        vec![Secret::resource().clone()]
    }

    fn concerns(&mut self, _: &World, change: &Change, keys: &mut Keys) {
        if &*change.key.namespace == NAMESPACE {
            keys.add(change.key.clone());
        }
    }

    fn plan(&mut self, world: &World, key: &Key, stamp: Stamp) -> Plan {
        let mut plan = Plan::default();
        let Some(secret) = world.get::<Secret>(key).filter(|secret| secret.kind == TYPE) else { return plan };
        let data = secret.object.document()["data"].take();
        let text = data["expiration"].as_str().and_then(decode).and_then(|bytes| String::from_utf8(bytes).ok());
        let Some(expires) = text.map(|text| Time::parse(&text).unwrap_or(Time::from_second(0))) else { return plan };
        if expires > stamp.time {
            plan.requeue_at(expires);
        } else if !secret.meta().is_deleting() {
            plan.then(Subject::from(secret).delete());
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoded::encode;
    use holdfast_world::Trial;

    fn token(id: &str, expires: &str) -> Value {
        let fields = [
            ("token-id", id),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-signing", "true"),
            ("expiration", expires),
        ];
        let data: holdfast_value::Map =
            fields.iter().map(|(field, text)| (*field, encode(text.as_bytes()).into())).collect();
        json!({"apiVersion": "v1", "kind": "Secret", "type": TYPE, "data": data,
            "metadata": {"namespace": NAMESPACE, "name": format!("{PREFIX}{id}")}})
    }

    fn signatures(trial: &Trial) -> Vec<String> {
        let data = trial.get("configmaps", "kube-public/cluster-info")["data"].clone();
        data.as_object()
            .expect("data")
            .keys()
            .filter(|field| field.starts_with(SIGNATURE))
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn the_address_is_signed_with_each_token_until_it_expires() {
        let mut trial = Trial::new().with(BootstrapSigner).with(BootstrapCleaner);
        trial.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": INFO.0}}));
        trial
            .create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": INFO.0, "name": INFO.1},
            "data": {KUBECONFIG: "payload", "jws-kubeconfig-old000": "x"}}));
        trial.create(token("abcdef", "2026-11-21T10:01:00Z"));
        trial.create(token("fedcba", "2036-11-21T10:01:00Z"));
        trial.run();
        assert_eq!(signatures(&trial), ["jws-kubeconfig-abcdef", "jws-kubeconfig-fedcba"]);
        let signature = trial.get("configmaps", "kube-public/cluster-info")["data"]["jws-kubeconfig-abcdef"].clone();
        assert!(signature.as_str().is_some_and(|text| text.starts_with("eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..")));
        trial.run_for(60);
        assert_eq!(signatures(&trial), ["jws-kubeconfig-fedcba"]);
        assert_eq!(trial.names("secrets"), ["bootstrap-token-fedcba"]);
    }
}
