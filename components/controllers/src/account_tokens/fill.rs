//! Fills in the data of Secrets that request a service account's token, and deletes such Secrets when their account is
//! deleted.

use super::{BY_ACCOUNT, NAME, TYPE, TokenSigner, UID, account_of, index, place};
use crate::Settings;
use crate::encoded::{decode, encode};
use crate::subject::Subject;
use holdfast_value::{Value, json};
use holdfast_world::views::{Secret, ServiceAccount};
use holdfast_world::{Action, Change, Controller, Key, Keys, Plan, Resource, Stamp, View, Viewed, World};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Each plan is for one Secret.
pub struct TokenSecrets {
    signer: Option<Arc<dyn TokenSigner>>,
    root_ca: Option<String>,
    /// Token Secrets that were deleted, each with the account that the Secret named. An entry stays until the account
    /// no longer lists the Secret.
    gone: BTreeMap<Key, Account>,
}

/// The account that a Secret names: its name, and maybe its uid.
struct Account {
    name: String,
    uid: String,
}

impl TokenSecrets {
    pub fn new(settings: &Settings) -> TokenSecrets {
        TokenSecrets {
            signer: settings.account_tokens.clone(),
            root_ca: settings.root_ca.clone(),
            gone: BTreeMap::new(),
        }
    }
}

impl Controller for TokenSecrets {
    fn name(&self) -> &'static str {
        "serviceaccount-token-controller"
    }

    fn queue(&self) -> &'static str {
        "serviceaccount_tokens_secret"
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
            if change.after.is_none()
                && let Some(named) = change.before::<Secret>().and_then(named)
            {
                self.gone.insert(change.key.clone(), named);
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
            // An account may list a Secret that is created later, so only a Secret that existed is removed from the
            // list.
            if let Some(named) = self.gone.get(key) {
                plan.steps.extend(unlist(world, key, named).map(|action| vec![action]));
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
                plan.skipped.push(why);
                plan.unready = true;
            }
        }
        plan
    }
}

fn named(secret: Viewed<'_, Secret>) -> Option<Account> {
    let annotation = |name: &str| secret.meta().annotation(name).map(str::to_owned);
    let name = annotation(NAME).filter(|_| secret.kind == TYPE)?;
    Some(Account { name, uid: annotation(UID).unwrap_or_default() })
}

/// The write that removes the Secret from the account's list; `None` if the account does not list it.
fn unlist(world: &World, secret: &Key, named: &Account) -> Option<Action> {
    let account = world.get::<ServiceAccount>(&Key::new(&secret.namespace, &named.name))?;
    let is_meant = named.uid.is_empty() || named.uid == account.meta().uid;
    if !is_meant || account.view.secrets.iter().all(|listed| *listed.name != *secret.name) {
        return None;
    }
    let mut document = account.object.document();
    if let Some(secrets) = document["secrets"].as_array_mut() {
        secrets.retain(|listed| listed["name"] != *secret.name);
    }
    Some(Subject::from(account).update(document))
}

/// The Secret with its missing data filled in; `None` if no data is missing.
fn filled(
    secret: Viewed<'_, Secret>,
    account: Viewed<'_, ServiceAccount>,
    signer: &dyn TokenSigner,
    root_ca: Option<&str>,
) -> Result<Option<Value>, String> {
    let (meta, of) = (secret.meta(), account.meta());
    let mut document = secret.object.document();
    if !document["data"].is_object() {
        document["data"] = json!({});
    }
    let text = |field: &str| document["data"][field].as_str().unwrap_or_default();
    let ca = root_ca.filter(|ca| decode(text("ca.crt")).is_none_or(|bytes| bytes != ca.as_bytes()));
    let needs = [text("namespace").is_empty(), text("token").is_empty()];
    if ca.is_none() && needs == [false, false] {
        return Ok(None);
    }
    if let Some(ca) = ca {
        document["data"]["ca.crt"] = encode(ca.as_bytes()).into();
    }
    // A `namespace` with another value was set by a user and stays.
    if needs[0] {
        document["data"]["namespace"] = encode(meta.namespace.as_bytes()).into();
    }
    if needs[1] {
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
    Ok(Some(document))
}
