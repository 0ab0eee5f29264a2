//! Has volumes attached to the nodes whose pods use them, and detached when none does: by asking their drivers.

use super::{index_pods, pods_of};
use crate::pod_gc::{index_by_node, pods_on};
use crate::settings::Settings;
use crate::subject::{Subject, part};
use holdfast_world::views::{CSIDriver, Node, PersistentVolume, PersistentVolumeClaim, Pod, VolumeAttachment};
use holdfast_world::{
    Action, Change, Controller, Key, Keys, Plan, Resource, Seen, Stamp, Text, Time, Verb, View, World,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Nodes that leave attaching to this controller say so.
const MANAGED: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// An index of attachments by their node.
const BY_NODE: &str = "attachment-node";

/// How long a volume that nobody needs waits for a node that is not ready to say that it uses it no more.
const UNMOUNT_SECONDS: i64 = 360;
/// A node that is known to be off uses nothing.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Plans a node at a time.
pub struct Attacher {
    force_detach: bool,
    /// Since when nobody needs what a node says that it uses, by the names of the attachments.
    unneeded: BTreeMap<Key, BTreeMap<String, Time>>,
}

impl Attacher {
    pub fn new(settings: &Settings) -> Attacher {
        Attacher { force_detach: settings.force_detach, unneeded: BTreeMap::new() }
    }
}

impl Controller for Attacher {
    fn name(&self) -> &'static str {
        "persistentvolume-attach-detach-controller"
    }

    fn account(&self) -> &'static str {
        "attachdetach-controller"
    }

    fn component(&self) -> &'static str {
        "attachdetach-controller"
    }

    fn resources(&self) -> Vec<Resource> {
        vec![
            Node::resource().clone(),
            Pod::resource().clone(),
            PersistentVolumeClaim::resource().clone(),
            PersistentVolume::resource().clone(),
            VolumeAttachment::resource().clone(),
            CSIDriver::resource().clone(),
        ]
    }

    fn indexes(&self, world: &mut World) {
        index_pods(world);
        index_by_node(world);
        world.index::<VolumeAttachment>(BY_NODE, |object| {
            let attachment = object.view::<VolumeAttachment>();
            attachment.map(|attachment| Text::from(attachment.spec.node_name.as_str())).into_iter().collect()
        });
    }

    fn concerns(&mut self, world: &World, change: &Change, keys: &mut Keys) {
        let mut wake = |node: &str| {
            if !node.is_empty() {
                keys.add(Key::cluster(node));
            }
        };
        if change.is_of::<Node>() {
            wake(&change.key.name);
        } else if change.is_of::<Pod>() {
            let uses = |pod: &Seen<'_, Pod>| {
                pod.spec
                    .volumes
                    .iter()
                    .any(|volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some())
            };
            let sides = [change.before::<Pod>(), change.after()];
            sides.iter().flatten().filter(|pod| uses(pod)).for_each(|pod| wake(&pod.spec.node_name));
        } else if change.is_of::<PersistentVolumeClaim>() {
            pods_of(world, &change.key).for_each(|pod| wake(&pod.spec.node_name));
        } else if change.is_of::<VolumeAttachment>() {
            let sides = [change.before::<VolumeAttachment>(), change.after()];
            sides.iter().flatten().for_each(|attachment| wake(&attachment.spec.node_name));
        }
    }

    fn plan(&mut self, world: &World, key: &Key, stamp: Stamp) -> Plan {
        let mut plan = Plan::default();
        let known = self.unneeded.remove(key).unwrap_or_default();
        let Some(node) = world.get::<Node>(key).filter(|node| node.meta().annotation(MANAGED) == Some("true")) else {
            return plan;
        };
        let wanted = wanted(world, &key.name);
        let attached: Vec<Seen<'_, VolumeAttachment>> = world.indexed::<VolumeAttachment>(BY_NODE, &key.name).collect();
        let in_use = part(node.object, &["status", "volumesInUse"]);
        let mut shown = Vec::new();
        let (mut attach, mut detach) = (Vec::new(), Vec::new());
        let mut unneeded = BTreeMap::new();
        let is_off = node.spec.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE);
        for (name, volume) in &wanted {
            match attached.iter().find(|attachment| attachment.meta().name == *name) {
                Some(attachment) if attachment.status.attached && !attachment.meta().is_deleting() => {
                    shown.push(json!({"name": unique_name(volume), "devicePath": ""}));
                }
                Some(_) => {}
                None => attach.push(attachment_of(name, volume, &key.name)),
            }
        }
        for attachment in attached.iter().filter(|attachment| !wanted.contains_key(&attachment.meta().name)) {
            let volume = world.get::<PersistentVolume>(&Key::cluster(&attachment.spec.source.persistent_volume_name));
            let used = volume.map(|volume| Value::from(unique_name(&volume)));
            let is_used = used.is_some_and(|name| in_use.as_array().is_some_and(|list| list.contains(&name)));
            if attachment.meta().is_deleting() {
                continue;
            }
            let since = known.get(&attachment.meta().name).copied().unwrap_or(stamp.time);
            let end = since.plus_seconds(UNMOUNT_SECONDS);
            let is_forced = self.force_detach && !node.is_ready() && stamp.time >= end;
            if !is_used || is_off || is_forced {
                detach.push(Subject::from(*attachment).delete());
                continue;
            }
            unneeded.insert(attachment.meta().name.clone(), since);
            if self.force_detach && stamp.time < end {
                plan.again_at(end);
            }
        }
        if !unneeded.is_empty() {
            self.unneeded.insert(key.clone(), unneeded);
        }
        // A node must not count on a volume that is about to be detached.
        let said = Subject::from(node).status(|status| {
            if shown.is_empty() {
                status.remove("volumesAttached");
            } else {
                status.insert("volumesAttached".into(), shown.into());
            }
        });
        plan.together(said.into_iter().collect());
        plan.together(detach);
        plan.together(attach);
        plan
    }
}

/// The volumes of drivers that must attach them, that the pods of a node use, by the names of their attachments.
fn wanted<'a>(world: &'a World, node: &str) -> BTreeMap<String, Seen<'a, PersistentVolume>> {
    let running = pods_on(world, node).filter(|pod| !pod.is_finished());
    let claims = running.flat_map(|pod| {
        let namespace = pod.object.meta.namespace.clone();
        super::claims_of(pod.object, pod.view).map(move |name| Key::new(&namespace, &name)).collect::<Vec<_>>()
    });
    let volumes = claims.filter_map(|key| {
        let claim = world.get::<PersistentVolumeClaim>(&key).filter(|claim| claim.status.phase == "Bound")?;
        world.get::<PersistentVolume>(&Key::cluster(&claim.spec.volume_name))
    });
    let attachable = volumes.filter_map(|volume| {
        let csi = volume.view.spec.csi.as_ref()?;
        let driver = world.get::<CSIDriver>(&Key::cluster(&csi.driver));
        let needs = driver.is_none_or(|driver| driver.spec.attach_required != Some(false));
        needs.then(|| (attachment_name(&csi.volume_handle, &csi.driver, node), volume))
    });
    attachable.collect()
}

/// The same for everybody who computes it.
fn attachment_name(handle: &str, driver: &str, node: &str) -> String {
    let digest = Sha256::digest(format!("{handle}{driver}{node}"));
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("csi-{hex}")
}

fn unique_name(volume: &PersistentVolume) -> String {
    let csi = volume.spec.csi.as_ref();
    csi.map_or_else(String::new, |csi| format!("kubernetes.io/csi/{}^{}", csi.driver, csi.volume_handle))
}

fn attachment_of(name: &str, volume: &Seen<'_, PersistentVolume>, node: &str) -> Action {
    let resource = VolumeAttachment::resource();
    let driver = volume.spec.csi.as_ref().map_or("", |csi| csi.driver.as_str());
    let body = json!({
        "apiVersion": resource.api_version(),
        "kind": resource.kind(),
        "metadata": {"name": name},
        "spec": {"attacher": driver, "nodeName": node, "source": {"persistentVolumeName": volume.meta().name}},
    });
    Action::new(resource, Key::cluster(name), Verb::Create(body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_world::Trial;

    #[test]
    fn a_volume_is_attached_while_a_pod_of_the_node_uses_it() {
        let mut trial = Trial::new().with(Attacher::new(&Settings::default()));
        trial.create(
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "annotations": {MANAGED: "true"}}}),
        );
        trial.create(json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "d.example.com", "volumeHandle": "h"}}}));
        trial.create(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "volumeName": "v", "resources": {"requests": {"storage": "1Gi"}}}}));
        trial.patch_status("persistentvolumeclaims", "c", json!({"phase": "Bound"}));
        trial.create(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"nodeName": "n",
            "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}}));
        trial.run();
        let name = trial.names("volumeattachments").remove(0);
        assert_eq!(name, attachment_name("h", "d.example.com", "n"));
        assert!(trial.get("nodes", "n")["status"]["volumesAttached"].is_null());
        trial.patch_status("volumeattachments", &name, json!({"attached": true}));
        trial.run();
        assert_eq!(
            trial.get("nodes", "n")["status"]["volumesAttached"],
            json!([{"name": "kubernetes.io/csi/d.example.com^h", "devicePath": ""}])
        );
        trial.patch_status("nodes", "n", json!({"volumesInUse": ["kubernetes.io/csi/d.example.com^h"]}));
        trial.delete_as("pods", "p", None, Some(0));
        trial.run();
        assert!(trial.get("nodes", "n")["status"]["volumesAttached"].is_null());
        assert_eq!(trial.names("volumeattachments").len(), 1, "the node still uses it");
        trial.patch_status("nodes", "n", json!({"volumesInUse": null}));
        trial.run();
        assert!(trial.names("volumeattachments").is_empty());
    }

    /// A cluster with a volume that node `n` says it uses, and no pod that needs it.
    fn unneeded(settings: &Settings) -> Trial {
        let mut trial = Trial::new().with(Attacher::new(settings));
        trial.create(
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "annotations": {MANAGED: "true"}}}),
        );
        trial.create(json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "d.example.com", "volumeHandle": "h"}}}));
        trial.create(json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "a"},
            "spec": {"attacher": "d.example.com", "nodeName": "n", "source": {"persistentVolumeName": "v"}}}));
        trial.patch_status(
            "nodes",
            "n",
            json!({"volumesInUse": ["kubernetes.io/csi/d.example.com^h"],
            "conditions": [{"type": "Ready", "status": "Unknown"}]}),
        );
        trial.run_for(UNMOUNT_SECONDS - 1);
        trial
    }

    #[test]
    fn a_node_that_is_not_ready_keeps_a_volume_for_six_minutes() {
        let mut trial = unneeded(&Settings::default());
        assert_eq!(trial.names("volumeattachments"), ["a"]);
        trial.run_for(1);
        assert!(trial.names("volumeattachments").is_empty());
        let mut trial = unneeded(&Settings { force_detach: false, ..Settings::default() });
        trial.run_for(UNMOUNT_SECONDS);
        assert_eq!(trial.names("volumeattachments"), ["a"], "as long as nobody says that the node is off");
        trial.patch("nodes", "n", json!({"spec": {"taints": [{"key": OUT_OF_SERVICE, "effect": "NoExecute"}]}}));
        trial.run();
        assert!(trial.names("volumeattachments").is_empty());
    }

    #[test]
    fn a_node_that_is_ready_keeps_a_volume_as_long_as_it_uses_it() {
        let mut trial = unneeded(&Settings::default());
        trial.patch_status("nodes", "n", json!({"conditions": [{"type": "Ready", "status": "True"}]}));
        trial.run_for(UNMOUNT_SECONDS);
        assert_eq!(trial.names("volumeattachments"), ["a"]);
    }
}
