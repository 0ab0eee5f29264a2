//! Creates the claims of generic ephemeral volumes. Such a claim exists as long as its pod.

use super::index_pods;
use crate::subject::{Subject, part};
use holdfast_value::{Value, json};
use holdfast_world::views::{PersistentVolumeClaim, Pod};
use holdfast_world::{Action, Change, Controller, Key, Keys, Plan, Refused, Resource, Stamp, Verb, View, World};

/// Each plan is for one pod.
pub struct EphemeralVolumes;

impl Controller for EphemeralVolumes {
    fn name(&self) -> &'static str {
        "ephemeral-volume-controller"
    }

    fn queue(&self) -> &'static str {
        "ephemeral_volume"
    }

    fn component(&self) -> &'static str {
        "ephemeral_volume"
    }

    fn resources(&self) -> Vec<Resource> {
        vec![Pod::resource().clone(), PersistentVolumeClaim::resource().clone()]
    }

    fn indexes(&self, world: &mut World) {
        index_pods(world);
    }

    fn concerns(&mut self, world: &World, change: &Change, keys: &mut Keys) {
        if let Some(pod) = change.after::<Pod>() {
            if pod.spec.volumes.iter().any(|volume| volume.ephemeral.is_some()) {
                keys.add(change.key.clone());
            }
        } else if change.is_of::<PersistentVolumeClaim>() && change.after.is_none() {
            super::pods_of(world, &change.key).for_each(|pod| keys.add(pod.object.key()));
        }
    }

    fn plan(&mut self, world: &World, key: &Key, _: Stamp) -> Plan {
        let mut plan = Plan::default();
        let Some(pod) = world.get::<Pod>(key).filter(|pod| !pod.meta().is_deleting()) else { return plan };
        let volumes = pod.spec.volumes.iter().enumerate().filter(|(_, volume)| volume.ephemeral.is_some());
        // The document is read only if a claim must be created, and only once for all claims.
        let mut written = None;
        for (index, volume) in volumes {
            let claim = Key::new(&key.namespace, &format!("{}-{}", key.name, volume.name));
            match world.get::<PersistentVolumeClaim>(&claim) {
                Some(found) if found.meta().is_controlled_by(&pod.meta().uid) => {}
                Some(_) => {
                    let why = format!("PVC {claim} was not created for pod {key} (pod is not owner)");
                    let message = format!("ephemeral volume {}: {why}", volume.name);
                    plan.events.push(Subject::from(pod).warning("FailedBinding", message));
                    plan.unready = true;
                    return plan;
                }
                None => {
                    let volumes = written.get_or_insert_with(|| part(pod.object, &["spec", "volumes"]));
                    let body = from_template(pod.into(), &claim, &volumes[index]["ephemeral"]["volumeClaimTemplate"]);
                    plan.then(Action::new(PersistentVolumeClaim::resource(), claim, Verb::Create(body)));
                }
            }
        }
        plan
    }

    fn refused(&mut self, world: &World, key: &Key, refused: &[Refused], _: Stamp) -> Plan {
        let Some(pod) = world.get::<Pod>(key) else { return Plan::default() };
        let note = |Refused { action, refusal }: &Refused| {
            let claim = &action.key.name;
            let volume = claim.strip_prefix(&*key.name)?.strip_prefix('-')?;
            let message = format!("ephemeral volume {volume}: create PVC {claim}: {}", refusal.message);
            Some(Subject::from(pod).warning("FailedBinding", message))
        };
        Plan { events: refused.iter().filter_map(note).collect(), ..Plan::default() }
    }
}

fn from_template(pod: Subject<'_>, claim: &Key, template: &Value) -> Value {
    let mut metadata = json!({"name": &*claim.name, "ownerReferences": [pod.reference()]});
    for field in ["labels", "annotations"] {
        let value = &template["metadata"][field];
        if !value.is_null() {
            metadata[field] = value.clone();
        }
    }
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": template["spec"]})
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_world::Trial;

    fn pod() -> Value {
        let template = json!({"metadata": {"labels": {"x": "y"}}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
            "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "e", "ephemeral": {"volumeClaimTemplate": template}}]}})
    }

    #[test]
    fn a_claim_is_made_for_the_pod_and_comes_back() {
        let mut trial = Trial::new().with(EphemeralVolumes);
        let uid = trial.create(pod())["metadata"]["uid"].clone();
        trial.run();
        let claim = trial.get("persistentvolumeclaims", "p-e");
        assert_eq!(claim["metadata"]["labels"], json!({"x": "y"}));
        assert_eq!(
            claim["metadata"]["ownerReferences"],
            json!([{"apiVersion": "v1", "kind": "Pod", "name": "p",
            "uid": uid, "controller": true, "blockOwnerDeletion": true}])
        );
        trial.patch("persistentvolumeclaims", "p-e", json!({"metadata": {"finalizers": null}}));
        trial.delete("persistentvolumeclaims", "p-e");
        trial.run();
        assert!(!trial.get("persistentvolumeclaims", "p-e").is_null());
    }

    #[test]
    fn a_claim_of_somebody_else_is_in_the_way() {
        let mut trial = Trial::new().with(EphemeralVolumes);
        trial
            .create(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "p-e"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}));
        trial.create(pod());
        trial.run_for(1);
        let notes = trial.take_event_texts();
        assert_eq!(
            notes[0],
            "Warning FailedBinding ephemeral volume e: PVC default/p-e was not created for pod default/p (pod is not owner)"
        );
        assert!(notes.len() > 5, "it is tried again: {}", notes.len());
    }

    #[test]
    fn a_claim_that_is_refused_is_told_of_and_tried_again() {
        let mut trial = Trial::new().with(EphemeralVolumes);
        crate::testing::allow(&mut trial, "persistentvolumeclaims", 0);
        trial.create(pod());
        trial.run_for(1);
        let notes = trial.take_event_texts();
        let told = "Warning FailedBinding ephemeral volume e: create PVC p-e: persistentvolumeclaims \"p-e\" is forbidden: \
                    exceeded quota: q";
        assert!(notes[0].starts_with(told), "{}", notes[0]);
        assert!(notes.len() > 5);
        trial.delete("resourcequotas", "q");
        trial.run_for(10);
        assert!(!trial.get("persistentvolumeclaims", "p-e").is_null());
    }
}
