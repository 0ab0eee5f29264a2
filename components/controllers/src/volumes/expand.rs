//! Writes Events for claims that request more storage than they have; the drivers of their volumes expand the volumes.

use super::volume_of;
use crate::subject::Subject;
use holdfast_core::schema::amount::Amount;
use holdfast_world::views::{PersistentVolume, PersistentVolumeClaim};
use holdfast_world::{Change, Controller, Key, Keys, Plan, Resource, Stamp, View, Viewed, World};
use std::collections::BTreeSet;

/// Each plan is for one claim.
#[derive(Default)]
pub struct Expander {
    /// Claims whose requested storage has grown, until the Event about the growth is written.
    asking: BTreeSet<Key>,
}

impl Controller for Expander {
    fn name(&self) -> &'static str {
        "persistentvolume-expander-controller"
    }

    fn queue(&self) -> &'static str {
        "volume_expand"
    }

    fn account(&self) -> &'static str {
        "expand-controller"
    }

    fn component(&self) -> &'static str {
        "volume_expand"
    }

    fn resources(&self) -> Vec<Resource> {
        vec![PersistentVolumeClaim::resource().clone(), PersistentVolume::resource().clone()]
    }

    fn concerns(&mut self, _: &World, change: &Change, keys: &mut Keys) {
        let [before, after] = [change.before::<PersistentVolumeClaim>(), change.after()];
        if let (Some(before), Some(after)) = (before, after)
            && storage(&after.spec.resources.requests) > storage(&before.spec.resources.requests)
        {
            self.asking.insert(change.key.clone());
            keys.add(change.key.clone());
        }
    }

    fn plan(&mut self, world: &World, key: &Key, _: Stamp) -> Plan {
        let mut plan = Plan::default();
        let asks = self.asking.remove(key);
        let found = world.get::<PersistentVolumeClaim>(key).filter(|claim| asks && claim.status.phase == "Bound");
        let Some(claim) = found.filter(|claim| lacks(claim)) else { return plan };
        let Some(volume) = volume_of(world, &claim) else { return plan };
        let subject = Subject::from(claim);
        plan.events.push(match volume.spec.csi {
            Some(_) => {
                subject.normal("ExternalExpanding", "waiting for an external controller to expand this PVC".into())
            }
            None => subject.warning(
                "ExternalExpanding",
                "Ignoring the PVC: didn't find a plugin capable of expanding the volume; waiting for an external \
                 controller to process this PVC."
                    .into(),
            ),
        });
        plan
    }
}

fn lacks(claim: &Viewed<'_, PersistentVolumeClaim>) -> bool {
    storage(&claim.spec.resources.requests) > storage(&claim.status.capacity)
}

fn storage(amounts: &std::collections::BTreeMap<String, String>) -> Amount {
    amounts.get("storage").and_then(|text| Amount::parse(text)).unwrap_or(Amount::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;
    use holdfast_world::Trial;

    #[test]
    fn who_asks_for_more_is_told_to_wait() {
        let mut trial = Trial::new().with(Expander::default());
        trial.create(json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "s"},
            "provisioner": "example.com/x", "allowVolumeExpansion": true}));
        trial.create(json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "s",
            "csi": {"driver": "example.com", "volumeHandle": "h"}}}));
        trial.create(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "s", "volumeName": "v",
            "resources": {"requests": {"storage": "1Gi"}}}}));
        trial.patch_status("persistentvolumeclaims", "c", json!({"phase": "Bound", "capacity": {"storage": "1Gi"}}));
        trial.run();
        assert!(trial.take_event_texts().is_empty());
        trial.patch("persistentvolumeclaims", "c", json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}));
        trial.run();
        assert_eq!(
            trial.take_event_texts(),
            ["Normal ExternalExpanding waiting for an external controller to expand this PVC"]
        );
    }
}
