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
/// Indexes of service accounts by the Secrets that they list, and of Secrets by their account, as `namespace/name`.
const BY_SECRET: &str = "secret";
const BY_ACCOUNT: &str = "account";

/// Signs tokens that do not expire.
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

/// The account that a Secret names: by its name, and by its uid if the Secret has one.
fn account_of<'a>(world: &'a World, secret: Viewed<'_, Secret>) -> Option<Viewed<'a, ServiceAccount>> {
    let meta = secret.meta();
    let account = world.get::<ServiceAccount>(&holdfast_world::Key::new(&meta.namespace, meta.annotation(NAME)?))?;
    let named = meta.annotation(UID).unwrap_or_default();
    (named.is_empty() || named == account.meta().uid).then_some(account)
}
