//! Applies changes of objects to the snapshot.

use super::Snapshot;
use super::changes::SnapshotChange;
use super::event::{ClusterEvent, ObjectChange};
use super::node_info::NodeId;
use super::table::TableUpdate;
use crate::object::node::Node;
use crate::object::pod::Pod;
use crate::object::{Key, Kind, Text};
use holdfast_value::Value;
use std::sync::Arc;

impl Snapshot {
    /// Applies the new state of an object; `object` is `None` if it was deleted. Returns the event with the object
    /// before and after the change; `None` if the object did not exist before and does not exist now.
    pub fn apply(&mut self, kind: Kind, key: &Key, object: Option<&Value>) -> Option<ClusterEvent> {
        let change = match kind {
            Kind::Pod => {
                let pod = object.map(|object| Pod::decode(&mut self.pool, key.clone(), object));
                self.apply_pod(key, pod)
            }
            Kind::Node => self.apply_node(key, object),
            _ => self.apply_other(kind, key, object),
        };
        change.event(kind, key)
    }

    /// Like [`Snapshot::apply`], for a pod in the JSON text in which it is stored.
    pub fn apply_stored_pod(&mut self, key: &Key, json: Option<&[u8]>) -> Option<ClusterEvent> {
        let pod = json.map(|json| Pod::read(&mut self.pool, key.clone(), json));
        self.apply_pod(key, pod).event(Kind::Pod, key)
    }

    fn apply_other(&mut self, kind: Kind, key: &Key, object: Option<&Value>) -> ObjectChange {
        let mut update = TableUpdate { pool: &mut self.pool, key, object, changed: false };
        let change = match kind {
            Kind::Pod | Kind::Node => ObjectChange::Other { before: false, after: false },
            Kind::Namespace => ObjectChange::other(self.selectors.put_namespace(&mut update)),
            Kind::Service => ObjectChange::other(self.selectors.put_service(&mut update)),
            Kind::ReplicationController | Kind::ReplicaSet | Kind::StatefulSet => {
                ObjectChange::other(self.selectors.put_controller(kind, &mut update))
            }
            Kind::PodDisruptionBudget => ObjectChange::other(self.selectors.put_budget(&mut update)),
            Kind::PersistentVolume => {
                let (before, after) = self.volumes.put_volume(&mut update);
                ObjectChange::Volume(before, after)
            }
            Kind::PersistentVolumeClaim => ObjectChange::other(self.volumes.put_claim(&mut update)),
            Kind::StorageClass => {
                let (before, after) = self.volumes.put_class(&mut update);
                ObjectChange::StorageClass(before, after)
            }
            Kind::CsiNode => {
                let (before, after) = self.volumes.put_csi_node(&mut update);
                ObjectChange::CsiNode(before, after)
            }
            Kind::CsiDriver => {
                let (before, after) = self.volumes.put_csi_driver(&mut update);
                ObjectChange::CsiDriver(before, after)
            }
            Kind::CsiStorageCapacity => {
                let (before, after) = self.volumes.put_capacity(&mut update);
                ObjectChange::Capacity(before, after)
            }
            Kind::VolumeAttachment => ObjectChange::other(self.volumes.put_attachment(&mut update)),
            Kind::ResourceClaim => {
                let (before, after) = self.devices.put_claim(&mut update);
                ObjectChange::DeviceClaim(before, after)
            }
            Kind::ResourceSlice => ObjectChange::other(self.devices.put_slice(&mut update)),
            Kind::DeviceClass => ObjectChange::other(self.devices.put_class(&mut update)),
            Kind::DeviceTaintRule => ObjectChange::other(self.devices.put_taint_rule(&mut update)),
            Kind::Workload => ObjectChange::other(self.gangs.put_workload(&mut update)),
        };
        if update.changed {
            self.changes.push(SnapshotChange::Object(kind, key.clone()));
        }
        change
    }

    fn apply_pod(&mut self, key: &Key, pod: Option<Pod>) -> ObjectChange {
        let was_assumed = self.is_assumed(key);
        // A finished pod uses no resources any more, so the scheduler treats it as deleted.
        let mut after = pod.filter(|pod| !pod.finished);
        if let Some(pod) = &mut after {
            self.templates.share(pod);
            self.keep_assumption(pod);
        } else {
            self.drop_assumption(key);
        }
        let is_confirmed = after.is_some() && was_assumed && !self.is_assumed(key);
        let mut before = self.put_pod(key, after.map(Arc::new));
        if is_confirmed && let Some(placed) = &mut before {
            // When this pod was assumed to be on its node, no event was made. So this event must make active the pods
            // that wait for this pod: in the event, the pod has no node before the change.
            Arc::make_mut(placed).node_name = None;
        }
        ObjectChange::Pod(before, self.pods.get(key).cloned())
    }

    /// Replaces the pod of this key, and returns the previous pod.
    pub(super) fn put_pod(&mut self, key: &Key, after: Option<Arc<Pod>>) -> Option<Arc<Pod>> {
        let before = self.pods.remove(key);
        // Most changes of a bound pod affect no field that counts on the node, so the node's sums stay as they are.
        if let (Some(before), Some(after)) = (&before, &after)
            && before.counts_like(after)
        {
            self.swap_pod(before, after.clone());
            self.pods.insert(key.clone(), after.clone());
            return Some(before.clone());
        }
        if let Some(before) = &before {
            self.unindex_pod(before);
        }
        if let Some(after) = after {
            self.index_pod(&after);
            self.pods.insert(key.clone(), after);
        }
        before
    }

    /// Replaces a pod on its node by its new version, which uses the same amounts of resources.
    fn swap_pod(&mut self, before: &Pod, pod: Arc<Pod>) {
        let Some(id) = pod.node_name.as_ref().and_then(|name| self.nodes.id_of(name)) else { return };
        if before.started != pod.started {
            self.changes.push(SnapshotChange::PodStarted(id));
        }
        let pods = self.nodes.get_mut(id).map(|info| &mut info.pods);
        if let Some(own) = pods.and_then(|pods| pods.iter_mut().find(|own| own.key == pod.key)) {
            *own = pod;
        }
    }

    fn index_pod(&mut self, pod: &Arc<Pod>) {
        self.gangs.add(pod);
        let Some(name) = &pod.node_name else {
            if let Some(node) = &pod.nominated {
                self.nominations.add(pod, node);
                self.node_changed(node);
            }
            return;
        };
        match self.nodes.id_of(name) {
            Some(id) => self.place_pod(id, pod.clone()),
            None => self.nodes.add_pod_on_unknown(name, pod.clone()),
        }
    }

    fn place_pod(&mut self, id: NodeId, pod: Arc<Pod>) {
        let Some(info) = self.nodes.get_mut(id) else { return };
        info.add(pod.clone());
        self.volumes.add_user(&pod);
        self.affinity.add(&pod, id);
        self.changes.push(SnapshotChange::PodAdded(id, pod));
    }

    fn unindex_pod(&mut self, pod: &Arc<Pod>) {
        self.gangs.remove(pod);
        let Some(name) = &pod.node_name else {
            if let Some(node) = &pod.nominated {
                self.nominations.remove(pod, node);
                self.node_changed(node);
            }
            return;
        };
        let Some(id) = self.nodes.id_of(name) else { return self.nodes.remove_pod_on_unknown(name, &pod.key) };
        if let Some(pod) = self.nodes.get_mut(id).and_then(|info| info.remove(&pod.key)) {
            self.unplace_pod(id, pod);
        }
    }

    /// Updates the indexes after a pod was removed from its node.
    fn unplace_pod(&mut self, id: NodeId, pod: Arc<Pod>) {
        self.volumes.remove_user(&pod);
        self.affinity.remove(&pod);
        self.changes.push(SnapshotChange::PodRemoved(id, pod));
    }

    fn node_changed(&mut self, name: &Text) {
        if let Some(id) = self.nodes.id_of(name) {
            self.changes.push(SnapshotChange::NodeUpdated(id));
        }
    }

    fn apply_node(&mut self, key: &Key, object: Option<&Value>) -> ObjectChange {
        let after = object.map(|object| Arc::new(Node::decode(&mut self.pool, key.name.clone(), object)));
        let id = self.nodes.id_of(&key.name);
        let before = id.and_then(|id| self.nodes.get(id)).map(|info| info.node.clone());
        match (id, &after) {
            (Some(id), Some(after)) => self.replace_node(id, after),
            (None, Some(after)) => self.add_node(after),
            (Some(id), None) => self.remove_node(id),
            (None, None) => {}
        }
        ObjectChange::Node(before, after)
    }

    fn replace_node(&mut self, id: NodeId, after: &Arc<Node>) {
        let Some(before) = self.nodes.replace(id, after).filter(|before| before != after) else { return };
        if before.labels != after.labels {
            self.node_labels.relabel(id, Some(&before), Some(after));
        }
        let same_shape = before.labels == after.labels && before.taints == after.taints;
        self.changes.push(if same_shape {
            SnapshotChange::NodeUpdated(id)
        } else {
            SnapshotChange::TopologyChanged(id)
        });
    }

    fn add_node(&mut self, node: &Arc<Node>) {
        let id = self.nodes.add(node);
        self.changes.push(SnapshotChange::TopologyChanged(id));
        self.node_labels.relabel(id, None, Some(node));
        for pod in self.nodes.take_pods_on_unknown(&node.name) {
            self.place_pod(id, pod);
        }
    }

    fn remove_node(&mut self, id: NodeId) {
        let Some(info) = self.nodes.remove(id) else { return };
        for pod in &info.pods {
            self.unplace_pod(id, pod.clone());
        }
        self.changes.push(SnapshotChange::TopologyChanged(id));
        self.node_labels.relabel(id, Some(&info.node), None);
        self.nodes.keep_pods_on_unknown(info);
    }
}

impl Pod {
    /// Whether two versions of a pod are equal in everything that counts on their node.
    fn counts_like(&self, other: &Pod) -> bool {
        self.node_name.is_some()
            && self.node_name == other.node_name
            && self.uid == other.uid
            && self.template_id == other.template_id
            && self.priority == other.priority
            && self.deleting == other.deleting
            && self.resized == other.resized
    }
}
