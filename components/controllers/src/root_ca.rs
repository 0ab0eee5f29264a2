//! Publishes the CA certificates of the API server as ConfigMap `kube-root-ca.crt` in every active namespace.

use crate::Settings;
use crate::service_account::is_active;
use crate::subject::Subject;
use holdfast_value::{Value, json};
use holdfast_world::views::{ConfigMap, Namespace};
use holdfast_world::{Action, Change, Controller, Key, Keys, Plan, Resource, Stamp, Verb, View, World};

const NAME: &str = "kube-root-ca.crt";
const DESCRIPTION: &str = "kubernetes.io/description";
const DESCRIBED: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
                         endpoints such as the internal service IP or kubernetes.default.svc. No other usage is \
                         guaranteed across distributions of Kubernetes clusters.";

/// Each plan is for one namespace.
pub struct RootCa {
    certificates: Option<String>,
}

impl RootCa {
    pub fn new(settings: &Settings) -> RootCa {
        RootCa { certificates: settings.root_ca.clone() }
    }
}

impl Controller for RootCa {
    fn name(&self) -> &'static str {
        "root-ca-certificate-publisher-controller"
    }

    fn queue(&self) -> &'static str {
        "root_ca_cert_publisher"
    }

    fn account(&self) -> &'static str {
        "root-ca-cert-publisher"
    }

    fn resources(&self) -> Vec<Resource> {
        vec![Namespace::resource().clone(), ConfigMap::resource().clone()]
    }

    fn concerns(&mut self, _: &World, change: &Change, keys: &mut Keys) {
        if change.is_of::<Namespace>() {
            keys.add(change.key.clone());
        } else if &*change.key.name == NAME {
            keys.add(Key::cluster(&change.key.namespace));
        }
    }

    fn plan(&mut self, world: &World, key: &Key, _: Stamp) -> Plan {
        let mut plan = Plan::default();
        let Some(certificates) = &self.certificates else { return plan };
        if !is_active(world, &key.name) {
            return plan;
        }
        let place = Key::new(&key.name, NAME);
        let data = json!({"ca.crt": certificates});
        let Some(found) = world.get::<ConfigMap>(&place) else {
            let metadata = json!({"name": NAME, "annotations": {DESCRIPTION: DESCRIBED}});
            let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
            plan.then(Action::new(ConfigMap::resource(), place, Verb::Create(body)));
            return plan;
        };
        let mut document = found.object.document();
        // An existing description is kept, unless it is empty.
        if document["data"] != data || found.meta().annotation(DESCRIPTION).is_none_or(str::is_empty) {
            document["data"] = data;
            if !document["metadata"]["annotations"].is_object() {
                document["metadata"]["annotations"] = Value::Object(Default::default());
            }
            document["metadata"]["annotations"][DESCRIPTION] = DESCRIBED.into();
            plan.then(Subject::from(found).update(document));
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_world::Trial;

    #[test]
    fn it_comes_back_when_it_is_deleted_or_changed() {
        let settings = Settings { root_ca: Some("PEM".into()), ..Settings::default() };
        let mut trial = Trial::new().with(RootCa::new(&settings));
        trial.run();
        assert_eq!(trial.names("configmaps"), [NAME, NAME]);
        trial.patch(
            "configmaps",
            NAME,
            json!({"data": {"ca.crt": "mine", "more": "x"}, "metadata": {"annotations": null}}),
        );
        trial.run();
        let mended = trial.get("configmaps", NAME);
        assert_eq!(mended["data"], json!({"ca.crt": "PEM"}));
        assert_eq!(mended["metadata"]["annotations"][DESCRIPTION], DESCRIBED);
        let described = |text: &str| json!({"metadata": {"annotations": {DESCRIPTION: text}}});
        for (text, left) in [("mine", "mine"), ("", DESCRIBED)] {
            trial.patch("configmaps", NAME, described(text));
            trial.run();
            assert_eq!(trial.get("configmaps", NAME)["metadata"]["annotations"][DESCRIPTION], left);
        }
        trial.delete("configmaps", NAME);
        trial.run();
        assert_eq!(trial.get("configmaps", NAME)["data"]["ca.crt"], "PEM");
    }
}
