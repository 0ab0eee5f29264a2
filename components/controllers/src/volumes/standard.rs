//! A default StorageClass for clusters that have none: claims without a class then get volumes of this class.

use super::binder::{DEFAULT_CLASS, HOST_PATH, is_default_class};
use holdfast_core::state::State;
use holdfast_value::json;
use holdfast_world::views::StorageClass;
use holdfast_world::{Action, Key, Verb, View};

const NAME: &str = "standard";

/// The request that creates the StorageClass; `None` if a default class exists already. Volumes of the class can be
/// used on every node, so claims are bound at once, without waiting for a pod.
pub fn lacking(state: &State) -> Option<Action> {
    let resource = StorageClass::resource();
    let (kind, _) = state.registry.find(resource.group(), resource.version(), resource.plural())?;
    if state.scan(kind, "", None).any(|(_, entry)| is_default_class(&entry.document()["metadata"]["annotations"])) {
        return None;
    }
    let class = json!({
        "apiVersion": resource.api_version(), "kind": resource.kind(),
        "metadata": {"name": NAME, "annotations": {DEFAULT_CLASS: "true"}},
        "provisioner": HOST_PATH, "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate",
    });
    Some(Action::new(resource, Key::cluster(NAME), Verb::Create(class)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;
    use crate::volumes::binder::Binder;
    use crate::volumes::protection::{ClaimProtection, VolumeProtection};
    use holdfast_value::Value;
    use holdfast_world::Trial;

    fn class(name: &str, annotations: &Value) -> Value {
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name,
            "annotations": annotations}, "provisioner": "example.com/own"})
    }

    #[test]
    fn it_is_made_where_no_class_is_the_default_one() {
        for (annotations, is_made) in [
            (json!({}), true),
            (json!({DEFAULT_CLASS: "false"}), true),
            (json!({DEFAULT_CLASS: "true"}), false),
            (json!({"storageclass.beta.kubernetes.io/is-default-class": "true"}), false),
        ] {
            let mut trial = Trial::new();
            trial.create(class("own", &annotations));
            assert_eq!(lacking(&trial.state).is_some(), is_made, "{annotations}");
        }
    }

    #[test]
    fn a_claim_without_a_class_is_bound_and_its_volume_goes_with_it() {
        let settings = Settings { host_path_provisioner: true, ..Settings::default() };
        let mut trial =
            Trial::new().with(Binder::new(&settings)).with(ClaimProtection::default()).with(VolumeProtection);
        trial.user_acts(lacking(&trial.state).expect("it lacks")).expect("it is made");
        assert!(lacking(&trial.state).is_none());
        trial.create(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}));
        trial.run();
        let claim = trial.get("persistentvolumeclaims", "c");
        assert_eq!((&claim["status"]["phase"], &claim["spec"]["storageClassName"]), (&json!("Bound"), &json!(NAME)));
        assert_eq!(trial.names("persistentvolumes").len(), 1);
        trial.delete("persistentvolumeclaims", "c");
        trial.run();
        assert_eq!(trial.names("persistentvolumes"), Vec::<String>::new());
    }
}
