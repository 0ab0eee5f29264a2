//! Service account tokens in Secrets, as clusters used them before the TokenRequest API.

pub mod clean;
pub mod fill;

#[cfg(test)]
mod tests;

use holdfast_value::Value;
use holdfast_world::views::{Secret, ServiceAccount};
use holdfast_world::{Text, Viewed, World};
use std::fmt::Debug;

const TYPE: &str = "kubernetes.io/service-account-token";
const NAME: &str = "kubernetes.io/service-account.name";
const UID: &str = "kubernetes.io/service-account.uid";
/// An index of service accounts by the Secrets that they list, as `namespace/name`.
const BY_SECRET: &str = "secret";
/// An index of Secrets by their service account, as `namespace/name`.
const BY_ACCOUNT: &str = "account";

/// Signs service account tokens that do not expire.
pub trait TokenSigner: Debug + Send + Sync {
    fn sign(&self, claims: &Value) -> Result<String, String>;
}

fn place(namespace: &str, name: &str) -> Text {
    format!("{namespace}/{name}").into()
}

fn index(world: &mut World) {
    world.index::<ServiceAccount>(BY_SECRET, |object| {
        let account = object.view::<ServiceAccount>();
        let secrets = account.into_iter().flat_map(|account| &account.secrets);
        secrets.map(|secret| place(&object.meta.namespace, &secret.name)).collect()
    });
    world.index::<Secret>(BY_ACCOUNT, |object| {
        let account =
            object.view::<Secret>().filter(|secret| secret.kind == TYPE).and_then(|_| object.meta.annotation(NAME));
        account.map(|account| place(&object.meta.namespace, account)).into_iter().collect()
    });
}

/// The service account that a Secret names by its name, and also by its uid if the Secret has a uid.
fn account_of<'a>(world: &'a World, secret: Viewed<'_, Secret>) -> Option<Viewed<'a, ServiceAccount>> {
    let meta = secret.meta();
    let account = world.get::<ServiceAccount>(&holdfast_world::Key::new(&meta.namespace, meta.annotation(NAME)?))?;
    let named = meta.annotation(UID).unwrap_or_default();
    (named.is_empty() || named == account.meta().uid).then_some(account)
}
