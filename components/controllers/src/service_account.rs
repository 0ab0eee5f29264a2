//! Creates the service account `default`, which pods need, in every active namespace.

use holdfast_value::json;
use holdfast_world::views::{Namespace, ServiceAccount};
use holdfast_world::{Action, Change, Controller, Key, Keys, Plan, Resource, Stamp, Verb, View, World};

const DEFAULT: &str = "default";

/// Each plan is for one namespace.
pub struct DefaultAccounts;

impl Controller for DefaultAccounts {
    fn name(&self) -> &'static str {
        "serviceaccount-controller"
    }

    fn queue(&self) -> &'static str {
        "serviceaccount"
    }

    fn account(&self) -> &'static str {
        "service-account-controller"
    }

    fn resources(&self) -> Vec<Resource> {
        vec![Namespace::resource().clone(), ServiceAccount::resource().clone()]
    }

    fn concerns(&mut self, _: &World, change: &Change, keys: &mut Keys) {
        if change.is_of::<Namespace>() {
            keys.add(change.key.clone());
        } else if change.after.is_none() && &*change.key.name == DEFAULT {
            keys.add(Key::cluster(&change.key.namespace));
        }
    }

    fn plan(&mut self, world: &World, key: &Key, _: Stamp) -> Plan {
        let mut plan = Plan::default();
        let account = Key::new(&key.name, DEFAULT);
        if is_active(world, &key.name) && world.get::<ServiceAccount>(&account).is_none() {
            let body = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": DEFAULT}});
            plan.then(Action::new(ServiceAccount::resource(), account, Verb::Create(body)));
        }
        plan
    }
}

/// Whether objects may still be created in a namespace.
pub fn is_active(world: &World, namespace: &str) -> bool {
    let found = world.get::<Namespace>(&Key::cluster(namespace));
    found.is_some_and(|namespace| namespace.status.phase == "Active" && !namespace.meta().is_deleting())
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_world::Trial;

    #[test]
    fn every_active_namespace_has_one() {
        let mut trial = Trial::new().with(DefaultAccounts);
        trial.run();
        assert_eq!(trial.names("serviceaccounts"), ["default", "default"]);
        let first = trial.get("serviceaccounts", "default")["metadata"]["uid"].clone();
        trial.delete("serviceaccounts", "default");
        trial.run();
        assert_ne!(trial.get("serviceaccounts", "default")["metadata"]["uid"], first);
    }

    #[test]
    fn a_namespace_that_goes_gets_none() {
        let mut trial = Trial::new().with(DefaultAccounts);
        trial.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "passing"}}));
        trial.run();
        trial.delete("namespaces", "passing");
        trial.delete("serviceaccounts", "passing/default");
        trial.run();
        assert_eq!(trial.names("serviceaccounts").len(), 2);
    }
}
