//! Fills Secrets that ask for a token of an account, and deletes those whose account is gone.

use super::{BY_ACCOUNT, BY_SECRET, NAME, TYPE, TokenSigner, UID, account_of, index, place};
use crate::Settings;
use crate::encoded::{decode, encode};
use crate::subject::Subject;
use holdfast_world::views::{Secret, ServiceAccount};
use holdfast_world::{Action, Change, Controller, Key, Keys, Plan, Resource, Seen, Stamp, View, World};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Plans a Secret at a time.
pub struct TokenSecrets {
    signer: Option<Arc<dyn TokenSigner>>,
    root_ca: Option<String>,
    /// Secrets that were there and are gone, until no account lists them.
    gone: BTreeSet<Key>,
}

impl TokenSecrets {
    pub fn new(settings: &Settings) -> TokenSecrets {
        TokenSecrets {
            signer: settings.account_tokens.clone(),
            root_ca: settings.root_ca.clone(),
            gone: BTreeSet::new(),
        }
    }
}

impl Controller for TokenSecrets {
    fn name(&self) -> &'static str {
        "serviceaccount-token-controller"
    }

    fn resources(&self) -> Vec<Resource> {
        vec![Secret::resource().clone(), ServiceAccount::resource().clone()]
    }

    fn user(&self) -> Option<&'static str> {
        Some("system:kube-controller-manager")
    }

    fn indexes(&self, world: &mut World) {
        index(world);
    }

    fn concerns(&mut self, world: &World, change: &Change, keys: &mut Keys) {
        if change.is_of::<Secret>() {
            if change.after.is_none() {
                self.gone.insert(change.key.clone());
            }
            return keys.add(change.key.clone());
        }
        let account = place(&change.key.namespace, &change.key.name);
        world.indexed::<Secret>(BY_ACCOUNT, &account).for_each(|secret| keys.add(secret.object.key()));
        let listed = change.after::<ServiceAccount>().into_iter().flat_map(|account| &account.view.secrets);
        listed.for_each(|secret| keys.add(Key::new(&change.key.namespace, &secret.name)));
    }

    fn plan(&mut self, world: &World, key: &Key, _: Stamp) -> Plan {
        let mut plan = Plan::default();
        let Some(signer) = &self.signer else { return plan };
        let Some(secret) = world.get::<Secret>(key) else {
            // One that an account lists and that never was there may be yet to come.
            if self.gone.contains(key) {
                plan.together(unlist(world, key));
                if plan.steps.is_empty() {
                    self.gone.remove(key);
                }
            }
            return plan;
        };
        self.gone.remove(key);
        if secret.kind != TYPE || secret.meta().annotation(NAME).is_none() || secret.meta().is_deleting() {
            return plan;
        }
        let Some(account) = account_of(world, secret) else {
            plan.then(Subject::from(secret).delete());
            return plan;
        };
        match filled(secret, account, signer.as_ref(), self.root_ca.as_deref()) {
            Ok(Some(document)) => plan.then(Subject::from(secret).update(document)),
            Ok(None) => {}
            Err(why) => {
                plan.left.push(why);
                plan.unready = true;
            }
        }
        plan
    }
}

/// Accounts without the Secret among those they list.
fn unlist(world: &World, secret: &Key) -> Vec<Action> {
    let listing = world.indexed::<ServiceAccount>(BY_SECRET, &place(&secret.namespace, &secret.name));
    let unlisted = listing.map(|account| {
        let mut document = account.object.document();
        if let Some(secrets) = document["secrets"].as_array_mut() {
            secrets.retain(|listed| listed["name"] != *secret.name);
        }
        Subject::from(account).update(document)
    });
    unlisted.collect()
}

/// The Secret with all that it should have; `None` where it has that.
fn filled(
    secret: Seen<'_, Secret>,
    account: Seen<'_, ServiceAccount>,
    signer: &dyn TokenSigner,
    root_ca: Option<&str>,
) -> Result<Option<Value>, String> {
    let (meta, of) = (secret.meta(), account.meta());
    let mut document = secret.object.document();
    if !document["data"].is_object() {
        document["data"] = json!({});
    }
    let has = |document: &Value, field: &str, text: &str| {
        document["data"][field].as_str().and_then(decode).is_some_and(|bytes| bytes == text.as_bytes())
    };
    let before = document.clone();
    let known = [("namespace", Some(meta.namespace.as_str())), ("ca.crt", root_ca)];
    for (field, text) in known.iter().filter_map(|(field, text)| Some((*field, (*text)?))) {
        if !has(&document, field, text) {
            document["data"][field] = encode(text.as_bytes()).into();
        }
    }
    if document["data"]["token"].as_str().unwrap_or_default().is_empty() {
        let claims = json!({
            "iss": "kubernetes/serviceaccount",
            "kubernetes.io/serviceaccount/namespace": meta.namespace,
            "kubernetes.io/serviceaccount/secret.name": meta.name,
            "kubernetes.io/serviceaccount/service-account.name": of.name,
            "kubernetes.io/serviceaccount/service-account.uid": of.uid,
            "sub": format!("system:serviceaccount:{}:{}", meta.namespace, of.name),
        });
        document["data"]["token"] = encode(signer.sign(&claims)?.as_bytes()).into();
    }
    document["metadata"]["annotations"][UID] = of.uid.as_str().into();
    Ok((document != before).then_some(document))
}
