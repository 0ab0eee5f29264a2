//! Protects objects that are in use from deletion: claims that pods use, volumes that are bound to claims, and
//! VolumeAttributesClasses that claims and volumes name.
//!
//! Each object gets a finalizer when it is created. The finalizer is removed once the object is being deleted and is no
//! longer in use.

use super::{claims_of, index_pods, pods_of};
use crate::get_answers::{GetAnswers, NeedsGet};
use crate::planted::{Bug, planted};
use crate::subject::Subject;
use holdfast_value::{Value, json};
use holdfast_world::views::pod::Volume as PodVolume;
use holdfast_world::views::{PersistentVolume, PersistentVolumeClaim, Pod, VolumeAttributesClass};
use holdfast_world::{
    Action, Change, Controller, Key, Keys, Meta, Plan, Refusal, Resource, Stamp, Text, View, Viewed, World,
};
use serde::Deserialize;

const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";
const CLASS_FINALIZER: &str = "kubernetes.io/vac-protection";
/// An index of claims and volumes by their present VolumeAttributesClass, and by the class that they request.
const BY_CLASS: &str = "attributes";

/// The write that adds a finalizer to an object, or removes the finalizer if the object is being deleted and not in
/// use.
fn protect<V: View>(found: Viewed<'_, V>, finalizer: &str, is_used: bool) -> Option<Action> {
    let meta = found.meta();
    let mut document = found.object.document();
    let finalizers = &mut document["metadata"]["finalizers"];
    match (meta.is_deleting(), meta.has_finalizer(finalizer)) {
        (false, false) => match finalizers.as_array_mut() {
            Some(list) => list.push(finalizer.into()),
            None => *finalizers = json!([finalizer]),
        },
        (true, true) if !is_used => finalizers.as_array_mut()?.retain(|known| known != finalizer),
        _ => return None,
    }
    Some(Subject::from(found).update(document))
}

fn plan_of(action: Option<Action>) -> Plan {
    Plan { steps: action.into_iter().map(|action| vec![action]).collect(), ..Plan::default() }
}

/// Each plan is for one claim. A pod without a node does not use its claims; a finished pod uses its claims until it is
/// removed.
#[derive(Default)]
pub struct ClaimProtection {
    answers: GetAnswers,
}

impl ClaimProtection {
    /// Whether a pod on a node uses a claim that is being deleted. If the world's pods are older than the claim, the
    /// world may lack a pod, so the server is asked. Pods that are scheduled later need not be considered: the
    /// scheduler rejects a pod whose claim is being deleted.
    fn is_used<'a>(
        &'a self,
        world: &'a World,
        claim: Viewed<'_, PersistentVolumeClaim>,
    ) -> Result<Result<bool, &'a Refusal>, NeedsGet> {
        let key = claim.object.key();
        if pods_of(world, &key).any(|pod| uses(pod.meta(), &pod, claim.meta())) {
            return Ok(Ok(true));
        }
        let version = claim.meta().resource_version.parse().unwrap_or(u64::MAX);
        if world.version(Pod::resource()) >= version {
            return Ok(Ok(false));
        }
        let list = self.answers.of(world, &key).get(&format!("/api/v1/namespaces/{}/pods", key.namespace))?;
        let is_user = |item: &Value| {
            let meta = Meta::deserialize(&item["metadata"]).unwrap_or_default();
            uses(&meta, &Pod::deserialize(item).unwrap_or_default(), claim.meta())
        };
        Ok(list.map(|list| list["items"].as_array().into_iter().flatten().any(is_user)))
    }
}

/// Whether a pod with a node uses a claim. The claim of an ephemeral volume counts only if the pod owns it, and only
/// until the node has shut the pod down.
fn uses(meta: &Meta, pod: &Pod, claim: &Meta) -> bool {
    let is_shut_down = meta.is_deleting() && meta.deletion_grace_period_seconds == Some(0);
    let made_for = |volume: &str| format!("{}-{volume}", meta.name) == claim.name && claim.is_controlled_by(&meta.uid);
    let names = |volume: &PodVolume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(named), _) => named.claim_name == claim.name,
        (None, Some(_)) => !is_shut_down && made_for(&volume.name),
        (None, None) => false,
    };
    !pod.spec.node_name.is_empty() && pod.spec.volumes.iter().any(names)
}

impl Controller for ClaimProtection {
    fn name(&self) -> &'static str {
        "persistentvolumeclaim-protection-controller"
    }

    fn queue(&self) -> &'static str {
        "pvcprotection"
    }

    fn account(&self) -> &'static str {
        "pvc-protection-controller"
    }

    fn resources(&self) -> Vec<Resource> {
        vec![PersistentVolumeClaim::resource().clone(), Pod::resource().clone()]
    }

    fn indexes(&self, world: &mut World) {
        index_pods(world);
    }

    fn concerns(&mut self, _: &World, change: &Change, keys: &mut Keys) {
        if change.is_of::<PersistentVolumeClaim>() {
            keys.add(change.key.clone());
        } else if let Some(object) = change.newest()
            && let Some(pod) = object.view::<Pod>()
        {
            claims_of(&object.meta.name, pod).for_each(|claim| keys.add(Key::new(&change.key.namespace, &claim)));
        }
    }

    fn plan(&mut self, world: &World, key: &Key, _: Stamp) -> Plan {
        let mut plan = Plan::default();
        if let Some(claim) = world.get::<PersistentVolumeClaim>(key) {
            let may_go = claim.meta().is_deleting() && claim.meta().has_finalizer(CLAIM_FINALIZER);
            match if may_go { self.is_used(world, claim) } else { Ok(Ok(true)) } {
                Err(NeedsGet(path)) => {
                    plan.gets.push(path);
                    return plan;
                }
                Ok(Err(_)) => plan.unready = true,
                Ok(Ok(is_used)) => {
                    let is_used = is_used && !planted(Bug::ClaimsUnprotected);
                    plan = plan_of(protect(claim, CLAIM_FINALIZER, is_used));
                }
            }
        }
        self.answers.forget(key);
        plan
    }

    fn answered(&mut self, key: &Key, path: &str, answer: Result<Value, Refusal>) {
        self.answers.store(key, path, answer);
    }
}

/// Each plan is for one PersistentVolume.
pub struct VolumeProtection;

impl Controller for VolumeProtection {
    fn name(&self) -> &'static str {
        "persistentvolume-protection-controller"
    }

    fn queue(&self) -> &'static str {
        "pvprotection"
    }

    fn account(&self) -> &'static str {
        "pv-protection-controller"
    }

    fn resources(&self) -> Vec<Resource> {
        vec![PersistentVolume::resource().clone()]
    }

    fn concerns(&mut self, _: &World, change: &Change, keys: &mut Keys) {
        keys.add(change.key.clone());
    }

    fn plan(&mut self, world: &World, key: &Key, _: Stamp) -> Plan {
        let Some(volume) = world.get::<PersistentVolume>(key) else { return Plan::default() };
        plan_of(protect(volume, VOLUME_FINALIZER, volume.status.phase == "Bound"))
    }
}

/// Each plan is for one VolumeAttributesClass.
pub struct AttributesClassProtection;

impl Controller for AttributesClassProtection {
    fn name(&self) -> &'static str {
        "volumeattributesclass-protection-controller"
    }

    fn resources(&self) -> Vec<Resource> {
        vec![
            VolumeAttributesClass::resource().clone(),
            PersistentVolume::resource().clone(),
            PersistentVolumeClaim::resource().clone(),
        ]
    }

    fn indexes(&self, world: &mut World) {
        world.index::<PersistentVolume>(BY_CLASS, |object| {
            let volume = object.view::<PersistentVolume>();
            volume
                .and_then(|volume| volume.spec.volume_attributes_class_name.as_deref())
                .map(Text::from)
                .into_iter()
                .collect()
        });
        world.index::<PersistentVolumeClaim>(BY_CLASS, |object| {
            object.view::<PersistentVolumeClaim>().map_or_else(Vec::new, classes_of)
        });
    }

    fn concerns(&mut self, _: &World, change: &Change, keys: &mut Keys) {
        if change.is_of::<VolumeAttributesClass>() {
            return keys.add(change.key.clone());
        }
        // The claim or volume may have been the last that named the class before the change, so the deletion of the
        // class can be completed.
        if let Some(claim) = change.before::<PersistentVolumeClaim>() {
            classes_of(&claim).iter().for_each(|class| keys.add(Key::cluster(class)));
        }
        if let Some(volume) = change.before::<PersistentVolume>() {
            volume.spec.volume_attributes_class_name.iter().for_each(|class| keys.add(Key::cluster(class)));
        }
    }

    fn plan(&mut self, world: &World, key: &Key, _: Stamp) -> Plan {
        let Some(class) = world.get::<VolumeAttributesClass>(key) else { return Plan::default() };
        let is_used = world.indexed::<PersistentVolumeClaim>(BY_CLASS, &key.name).next().is_some()
            || world.indexed::<PersistentVolume>(BY_CLASS, &key.name).next().is_some();
        plan_of(protect(class, CLASS_FINALIZER, is_used))
    }
}

fn classes_of(claim: &PersistentVolumeClaim) -> Vec<Text> {
    let named = [&claim.spec.volume_attributes_class_name, &claim.status.current_volume_attributes_class_name];
    named.into_iter().flatten().map(|class| class.as_str().into()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_world::Trial;

    fn trial() -> Trial {
        Trial::new().with(ClaimProtection::default()).with(VolumeProtection).with(AttributesClassProtection)
    }

    fn claim(name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
    }

    fn pod(name: &str, node: &str, volume: Value) -> Value {
        let mut volume = volume;
        volume["name"] = json!("v");
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"nodeName": node,
            "containers": [{"name": "c", "image": "i"}], "volumes": [volume]}})
    }

    #[test]
    fn a_claim_stays_until_no_scheduled_pod_uses_it() {
        for (node, held) in [("", false), ("n", true)] {
            let mut trial = trial();
            trial.create(claim("c"));
            trial.create(pod("p", node, json!({"persistentVolumeClaim": {"claimName": "c"}})));
            trial.run();
            trial.delete("persistentvolumeclaims", "c");
            trial.run();
            assert_eq!(!trial.get("persistentvolumeclaims", "c").is_null(), held);
            trial.delete_as("pods", "p", None, Some(0));
            trial.run();
            assert!(trial.get("persistentvolumeclaims", "c").is_null());
        }
    }

    #[test]
    fn an_ephemeral_volume_holds_the_claim_that_was_made_for_it() {
        let template =
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
        for (is_owner, shut_down, held) in [(true, false, true), (true, true, false), (false, false, false)] {
            let mut trial = trial();
            let mut user = pod("p", "n", json!({"ephemeral": {"volumeClaimTemplate": template}}));
            user["metadata"]["finalizers"] = json!(["example.com/hold"]);
            let uid = trial.create(user)["metadata"]["uid"].clone();
            let mut made = claim("p-v");
            if is_owner {
                let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": true});
                made["metadata"]["ownerReferences"] = json!([owner]);
            }
            trial.create(made);
            trial.run();
            if shut_down {
                trial.delete_as("pods", "p", None, Some(0));
            }
            trial.delete("persistentvolumeclaims", "p-v");
            trial.run();
            assert_eq!(!trial.get("persistentvolumeclaims", "p-v").is_null(), held, "{is_owner} {shut_down}");
        }
    }

    #[test]
    fn a_volume_stays_while_it_is_bound_and_its_finalizer_comes_back() {
        let mut trial = trial();
        trial.create(json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/tmp/x"}}}));
        trial.patch_status("persistentvolumes", "v", json!({"phase": "Bound"}));
        trial.patch("persistentvolumes", "v", json!({"metadata": {"finalizers": null}}));
        trial.run();
        assert_eq!(trial.get("persistentvolumes", "v")["metadata"]["finalizers"], json!([VOLUME_FINALIZER]));
        trial.delete("persistentvolumes", "v");
        trial.run();
        assert!(!trial.get("persistentvolumes", "v").is_null());
        trial.patch_status("persistentvolumes", "v", json!({"phase": "Released"}));
        trial.run();
        assert!(trial.get("persistentvolumes", "v").is_null());
    }

    #[test]
    fn a_class_of_attributes_stays_while_somebody_has_it() {
        let mut trial = trial();
        trial.create(
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "metadata": {"name": "fast"},
            "driverName": "example.com", "parameters": {"a": "b"}}),
        );
        let mut using = claim("c");
        using["spec"]["volumeAttributesClassName"] = json!("fast");
        trial.create(using);
        trial.run();
        trial.delete("volumeattributesclasses", "fast");
        trial.run();
        assert!(!trial.get("volumeattributesclasses", "fast").is_null());
        trial.delete("persistentvolumeclaims", "c");
        trial.run();
        assert!(trial.get("volumeattributesclasses", "fast").is_null());
    }
}
