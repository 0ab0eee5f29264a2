//! Attaches volumes to the nodes whose pods use them, and detaches volumes that no pod on a node uses any more. Each
//! attachment is a VolumeAttachment, which the volume's driver carries out.

use super::{claim_key, index_pods, pods_of};
use crate::pod_gc::{index_by_node, pods_on};
use crate::settings::Settings;
use crate::subject::{Subject, part};
use holdfast_value::{Value, json};
use holdfast_world::views::{CSIDriver, Node, PersistentVolume, PersistentVolumeClaim, Pod, VolumeAttachment};
use holdfast_world::{
    Action, Change, Controller, Key, Keys, Plan, PlannedEvent, Refused, Resource, Stamp, Text, Time, Verb, View,
    Viewed, World,
};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// The annotation of a node whose volumes are attached by this controller and not by the kubelet.
const MANAGED: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// An index of attachments by their node.
const BY_NODE: &str = "attachment-node";
/// An index of attachments by their volume.
const BY_VOLUME: &str = "attachment-volume";

/// On a node that is not ready, an unused volume is detached after this many seconds, or as soon as the node reports
/// that the volume is not in use.
const UNMOUNT_SECONDS: i64 = 360;
/// The taint of a node that a user has declared to be shut down, so it uses no volumes any more.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Attaches and detaches volumes. Each plan is for one node.
pub struct Attacher {
    force_detach: bool,
    /// For each node, the volumes that the node reports as in use although no pod needs them: the name of the
    /// attachment, and since when no pod has needed the volume.
    unneeded: BTreeMap<Key, BTreeMap<String, Time>>,
    /// For each volume that only one node may have and that is being attached: the node, until the attachment is in the
    /// world.
    promised: BTreeMap<String, Key>,
    /// For each node, the pods for which an Event has reported that their volume is attached to another node: the name
    /// of the attachment, and the uid of the pod.
    reported: BTreeMap<Key, BTreeSet<(String, Text)>>,
}

impl Attacher {
    pub fn new(settings: &Settings) -> Attacher {
        Attacher {
            force_detach: settings.force_detach,
            unneeded: BTreeMap::new(),
            promised: BTreeMap::new(),
            reported: BTreeMap::new(),
        }
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
        world.index::<VolumeAttachment>(BY_VOLUME, |object| {
            let attachment = object.view::<VolumeAttachment>();
            attachment.map(|attachment| Text::from(volume_of(attachment))).into_iter().collect()
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
            let uses = |pod: &Viewed<'_, Pod>| {
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
            for attachment in sides.iter().flatten() {
                wake(&attachment.spec.node_name);
                self.promised.remove(volume_of(attachment.view));
            }
            // An attachment of the volume is gone, and another node may have waited for the volume.
            let freed = change.before::<VolumeAttachment>().filter(|_| change.after.is_none());
            let volume = freed.and_then(|gone| world.get::<PersistentVolume>(&Key::cluster(volume_of(gone.view))));
            let claim = volume.and_then(|volume| claim_key(volume.view));
            claim.iter().flat_map(|claim| pods_of(world, claim)).for_each(|pod| wake(&pod.spec.node_name));
        }
    }

    fn plan(&mut self, world: &World, key: &Key, stamp: Stamp) -> Plan {
        let mut plan = Plan::default();
        let known = self.unneeded.remove(key).unwrap_or_default();
        let told = self.reported.remove(key).unwrap_or_default();
        let Some(node) = world.get::<Node>(key).filter(|node| node.meta().annotation(MANAGED) == Some("true")) else {
            return plan;
        };
        let wanted = wanted(world, &key.name);
        let attached: Vec<Viewed<'_, VolumeAttachment>> =
            world.indexed::<VolumeAttachment>(BY_NODE, &key.name).collect();
        let in_use = part(node.object, &["status", "volumesInUse"]);
        let known_attached = part(node.object, &["status", "volumesAttached"]);
        let mut shown = Vec::new();
        let (mut attach, mut detach) = (Vec::new(), Vec::new());
        let mut waiting = BTreeSet::new();
        let mut unneeded = BTreeMap::new();
        let is_off = node.spec.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE);
        for (name, volume) in &wanted {
            match attached.iter().find(|attachment| attachment.meta().name == *name) {
                Some(attachment) if attachment.status.attached && !attachment.meta().is_deleting() => {
                    let name = unique_name(volume);
                    if !names(&known_attached).any(|known| known == name) {
                        plan.events.extend(succeeded(world, volume, key));
                    }
                    shown.push(json!({"name": name, "devicePath": ""}));
                }
                Some(_) => {}
                None if self.is_elsewhere(world, volume, key) => {
                    for pod in users(world, volume).filter(|pod| *pod.spec.node_name == *key.name) {
                        let mark = (name.clone(), Text::from(pod.meta().uid.as_str()));
                        if !told.contains(&mark) {
                            plan.events
                                .push(Subject::from(pod).warning("FailedAttachVolume", taken(world, volume, key)));
                        }
                        waiting.insert(mark);
                    }
                }
                None => {
                    if is_exclusive(volume) {
                        self.promised.insert(volume.meta().name.clone(), key.clone());
                    }
                    attach.push(attachment_of(name, volume, &key.name));
                }
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
                plan.requeue_at(end);
            }
        }
        if !waiting.is_empty() {
            self.reported.insert(key.clone(), waiting);
        }
        if !unneeded.is_empty() {
            self.unneeded.insert(key.clone(), unneeded);
        }
        // The list of attached volumes in the node's status is written before a volume is detached, so that the kubelet
        // does not use a volume that is about to be detached.
        let said = Subject::from(node).status(|status| {
            if shown.is_empty() {
                status.remove("volumesAttached");
            } else {
                status.insert("volumesAttached", shown.into());
            }
        });
        plan.together(said.into_iter().collect());
        plan.together(detach);
        plan.together(attach);
        plan
    }

    fn refused(&mut self, _: &World, key: &Key, _: &[Refused], _: Stamp) -> Plan {
        self.promised.retain(|_, node| node != key);
        Plan::default()
    }
}

impl Attacher {
    /// Whether a volume that only one node may have is attached to another node, or about to be attached to another
    /// node.
    fn is_elsewhere(&self, world: &World, volume: &Viewed<'_, PersistentVolume>, node: &Key) -> bool {
        let name = &volume.meta().name;
        let promised = self.promised.get(name).is_some_and(|promised| promised != node);
        let mut attachments = world.indexed::<VolumeAttachment>(BY_VOLUME, name);
        is_exclusive(volume) && (promised || attachments.any(|attachment| *attachment.spec.node_name != *node.name))
    }
}

fn volume_of(attachment: &VolumeAttachment) -> &str {
    &attachment.spec.source.persistent_volume_name
}

/// Whether only one node at a time may have a volume: it has access modes, and none of them allows several nodes.
fn is_exclusive(volume: &PersistentVolume) -> bool {
    let modes = &volume.spec.access_modes;
    !modes.is_empty() && !modes.iter().any(|mode| matches!(mode.as_str(), "ReadWriteMany" | "ReadOnlyMany"))
}

/// The pods that use a volume and have not ended.
fn users<'a>(world: &'a World, volume: &PersistentVolume) -> impl Iterator<Item = Viewed<'a, Pod>> + use<'a> {
    let claim = claim_key(volume);
    let pods = claim.into_iter().flat_map(|claim| pods_of(world, &claim));
    pods.filter(|pod| !pod.is_finished())
}

/// The names of the volumes in a list of a node's status, such as `volumesInUse`.
fn names(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(|volume| volume["name"].as_str())
}

/// The Events for all pods of a node that use a volume, reporting that the volume is attached to the node.
fn succeeded(world: &World, volume: &Viewed<'_, PersistentVolume>, node: &Key) -> Vec<PlannedEvent> {
    let message = format!("AttachVolume.Attach succeeded for volume {:?} ", volume.meta().name);
    let users = users(world, volume).filter(|pod| *pod.spec.node_name == *node.name);
    users.map(|pod| Subject::from(pod).normal("SuccessfulAttachVolume", message.clone())).collect()
}

/// The message for a pod whose volume cannot be attached to its node, because the volume is attached to another node.
fn taken(world: &World, volume: &Viewed<'_, PersistentVolume>, node: &Key) -> String {
    let elsewhere =
        users(world, volume).filter(|pod| !pod.spec.node_name.is_empty() && *pod.spec.node_name != *node.name);
    let pods: Vec<&str> = elsewhere.map(|pod| pod.meta().name.as_str()).collect();
    let why = match pods.is_empty() {
        true => "Volume is already exclusively attached to one node and can't be attached to another".to_owned(),
        false => format!("Volume is already used by pod(s) {}", pods.join(", ")),
    };
    format!("Multi-Attach error for volume \"{}\" {why}", volume.meta().name)
}

/// The volumes that the pods of a node use and that must be attached by a driver, by the names of their attachments.
fn wanted<'a>(world: &'a World, node: &str) -> BTreeMap<String, Viewed<'a, PersistentVolume>> {
    let running = pods_on(world, node).filter(|pod| !pod.is_finished());
    let claims = running.flat_map(|pod| {
        let namespace = pod.object.meta.namespace.clone();
        super::claims_of(&pod.object.meta.name, pod.view)
            .map(move |name| Key::new(&namespace, &name))
            .collect::<Vec<_>>()
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

/// The name of an attachment. Every implementation of Kubernetes' attach controller computes this name from the
/// volume's handle, the driver and the node.
fn attachment_name(handle: &str, driver: &str, node: &str) -> String {
    let digest = Sha256::digest(format!("{handle}{driver}{node}"));
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("csi-{hex}")
}

fn unique_name(volume: &PersistentVolume) -> String {
    let csi = volume.spec.csi.as_ref();
    csi.map_or_else(String::new, |csi| format!("kubernetes.io/csi/{}^{}", csi.driver, csi.volume_handle))
}

fn attachment_of(name: &str, volume: &Viewed<'_, PersistentVolume>, node: &str) -> Action {
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
            "claimRef": {"namespace": "default", "name": "c"},
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
        let told = "Normal SuccessfulAttachVolume AttachVolume.Attach succeeded for volume \"v\" ";
        assert_eq!(trial.take_event_texts(), [told]);
        trial.patch_status("nodes", "n", json!({"volumesInUse": ["kubernetes.io/csi/d.example.com^h"]}));
        trial.delete_as("pods", "p", None, Some(0));
        trial.run();
        assert!(trial.get("nodes", "n")["status"]["volumesAttached"].is_null());
        assert_eq!(trial.names("volumeattachments").len(), 1, "the node still uses it");
        trial.patch_status("nodes", "n", json!({"volumesInUse": null}));
        trial.run();
        assert!(trial.names("volumeattachments").is_empty());
    }

    /// A pod on a node. The pod uses the claim `c`.
    fn user(name: &str, node: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"nodeName": node,
            "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}})
    }

    /// A trial with a volume that is bound to the claim `c`, and with two nodes.
    fn two_nodes(mode: &str) -> Trial {
        let mut trial = Trial::new().with(Attacher::new(&Settings::default()));
        for node in ["m", "n"] {
            trial.create(
                json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "annotations": {MANAGED: "true"}}}),
            );
        }
        trial.create(json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": [mode], "claimRef": {"namespace": "default", "name": "c"},
            "csi": {"driver": "d.example.com", "volumeHandle": "h"}}}));
        trial.create(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": {
            "accessModes": [mode], "volumeName": "v", "resources": {"requests": {"storage": "1Gi"}}}}));
        trial.patch_status("persistentvolumeclaims", "c", json!({"phase": "Bound"}));
        trial
    }

    #[test]
    fn a_volume_for_one_node_waits_until_the_other_has_let_go() {
        let mut trial = two_nodes("ReadWriteOnce");
        trial.create(user("p", "m"));
        trial.create(user("q", "n"));
        trial.run();
        let attached = |trial: &Trial| {
            let nodes = trial.list("volumeattachments");
            nodes
                .iter()
                .map(|found| found["spec"]["nodeName"].as_str().unwrap_or_default().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(attached(&trial), ["m"]);
        let said = "Warning FailedAttachVolume Multi-Attach error for volume \"v\" Volume is already used by pod(s) p";
        assert_eq!(trial.take_event_texts(), [said]);
        // A further plan for the node, caused by a change of the node, does not repeat the Event.
        trial.patch("nodes", "n", json!({"metadata": {"labels": {"a": "b"}}}));
        trial.run();
        assert!(trial.take_event_texts().is_empty());
        trial.delete_as("pods", "p", None, Some(0));
        trial.run();
        assert_eq!(attached(&trial), ["n"]);
        assert!(trial.take_event_texts().is_empty());
    }

    #[test]
    fn a_volume_that_nobody_uses_any_more_is_told_of_in_other_words() {
        let mut trial = two_nodes("ReadWriteOncePod");
        trial.patch_status("nodes", "m", json!({"volumesInUse": ["kubernetes.io/csi/d.example.com^h"]}));
        trial.create(user("p", "m"));
        trial.run();
        trial.delete_as("pods", "p", None, Some(0));
        trial.create(user("q", "n"));
        trial.run();
        assert_eq!(
            trial.take_event_texts(),
            ["Warning FailedAttachVolume Multi-Attach error for volume \"v\" Volume is already exclusively attached \
              to one node and can't be attached to another"]
        );
    }

    #[test]
    fn a_volume_for_many_nodes_is_attached_to_each() {
        let mut trial = two_nodes("ReadWriteMany");
        trial.create(user("p", "m"));
        trial.create(user("q", "n"));
        trial.run();
        assert_eq!(trial.names("volumeattachments").len(), 2);
        assert!(trial.take_event_texts().is_empty());
    }

    /// A trial in which no pod needs a volume that node `n` reports as in use.
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
