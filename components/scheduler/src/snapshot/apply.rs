//! Applies changes of objects to the snapshot.

use super::changes::SnapshotChange;
use super::event::{ClusterEvent, ObjectChange};
use super::node_info::{NodeId, NodeInfo};
use super::{Snapshot, Table};
use crate::object::labels::Labels;
use crate::object::node::Node;
use crate::object::pod::Pod;
use crate::object::taint_rule::TaintRule;
use crate::object::workload::{DisruptionBudget, PodSelector, Workload};
use crate::object::{Key, Kind, StringPool, Text, device, device_claim, volume};
use holdfast_value::Value;
use std::cmp::Reverse;
use std::sync::{Arc, PoisonError};

/// One object's new state, before it is put into its table.
struct TableUpdate<'a> {
    pool: &'a mut StringPool,
    key: &'a Key,
    object: Option<&'a Value>,
    /// Whether the change affects a field that the scheduler reads: most changes of statuses do not.
    changed: bool,
}

impl TableUpdate<'_> {
    /// Puts the object into its table, or removes it, and returns the object before and after.
    fn put<T: PartialEq>(
        &mut self,
        table: &mut Table<T>,
        decode: impl Fn(&mut StringPool, &Value) -> T,
    ) -> (Option<Arc<T>>, Option<Arc<T>>) {
        let after = self.object.map(|object| Arc::new(decode(self.pool, object)));
        let before = match &after {
            Some(after) => table.insert(self.key.clone(), after.clone()),
            None => table.remove(self.key),
        };
        self.changed |= before != after;
        (before, after)
    }
}

impl Snapshot {
    /// Applies the new state of an object; `None`: it was deleted. Returns the object before and after, unless it is
    /// absent in both.
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

    /// As [`Snapshot::apply`], for a pod as it is stored.
    pub fn apply_stored_pod(&mut self, key: &Key, json: Option<&[u8]>) -> Option<ClusterEvent> {
        let pod = json.map(|json| Pod::read(&mut self.pool, key.clone(), json));
        self.apply_pod(key, pod).event(Kind::Pod, key)
    }

    fn apply_other(&mut self, kind: Kind, key: &Key, object: Option<&Value>) -> ObjectChange {
        fn other<T>((before, after): (Option<Arc<T>>, Option<Arc<T>>)) -> ObjectChange {
            ObjectChange::Other { before: before.is_some(), after: after.is_some() }
        }
        let mut update = TableUpdate { pool: &mut self.pool, key, object, changed: false };
        let change = match kind {
            Kind::Pod | Kind::Node => ObjectChange::Other { before: false, after: false },
            Kind::Namespace => {
                let labels =
                    |pool: &mut StringPool, object: &Value| Labels::decode(pool, &object["metadata"]["labels"]);
                other(update.put(&mut self.namespaces, labels))
            }
            Kind::Service => other(update.put(&mut self.services, PodSelector::by_labels)),
            Kind::ReplicationController | Kind::ReplicaSet | Kind::StatefulSet => {
                let by_labels = kind == Kind::ReplicationController;
                let decode = if by_labels { PodSelector::by_labels } else { PodSelector::by_selector };
                other(update.put(self.controllers.entry(kind).or_default(), decode))
            }
            Kind::PodDisruptionBudget => other(update.put(&mut self.budgets, DisruptionBudget::decode)),
            Kind::PersistentVolume => {
                let decode =
                    |pool: &mut StringPool, object: &Value| volume::Volume::decode(pool, key.name.clone(), object);
                let (before, after) = update.put(&mut self.volumes, decode);
                ObjectChange::Volume(before, after)
            }
            Kind::PersistentVolumeClaim => {
                let decode = |pool: &mut StringPool, object: &Value| volume::Claim::decode(pool, key.clone(), object);
                other(update.put(&mut self.volume_claims, decode))
            }
            Kind::StorageClass => {
                let (before, after) = update.put(&mut self.storage_classes, volume::Class::decode);
                ObjectChange::StorageClass(before, after)
            }
            Kind::CsiNode => {
                let (before, after) = update.put(&mut self.csi_nodes, volume::CsiNode::decode);
                ObjectChange::CsiNode(before, after)
            }
            Kind::CsiDriver => {
                let decode = |_: &mut StringPool, object: &Value| volume::tracks_capacity(object);
                let (before, after) = update.put(&mut self.csi_drivers, decode);
                ObjectChange::CsiDriver(before, after)
            }
            Kind::CsiStorageCapacity => {
                let (before, after) = update.put(&mut self.capacities, volume::Capacity::decode);
                ObjectChange::Capacity(before, after)
            }
            Kind::VolumeAttachment => other(update.put(&mut self.attachments, volume::Attachment::decode)),
            Kind::ResourceClaim => {
                let decode =
                    |pool: &mut StringPool, object: &Value| device_claim::Claim::decode(pool, key.clone(), object);
                let (before, mut after) = update.put(&mut self.device_claims, decode);
                if let Some(after) = &mut after {
                    keep_assumed_allocation(before.as_deref(), after);
                    self.device_claims.insert(key.clone(), after.clone());
                }
                self.extended.claim_changed(before.as_deref(), after.as_deref());
                self.devices_in_use.claim_changed(devices_of(&before), devices_of(&after));
                ObjectChange::DeviceClaim(before, after)
            }
            Kind::ResourceSlice => {
                let (before, after) = update.put(&mut self.device_slices, device::Slice::decode);
                self.device_pools.slice_changed(key, before.as_ref(), after.as_ref());
                other((before, after))
            }
            Kind::DeviceClass => {
                let (before, after) = update.put(&mut self.device_classes, device::Class::decode);
                self.extended.class_changed(&key.name, before.as_deref(), after.as_deref());
                other((before, after))
            }
            Kind::DeviceTaintRule => other(update.put(&mut self.device_taint_rules, TaintRule::decode)),
            Kind::Workload => other(update.put(&mut self.workloads, Workload::decode)),
        };
        if update.changed {
            self.changes.push(SnapshotChange::Object(kind, key.clone()));
        }
        change
    }

    /// Replaces the ResourceClaim of this key.
    pub(super) fn put_device_claim(&mut self, key: &Key, after: Option<Arc<device_claim::Claim>>) {
        let before = match &after {
            Some(after) => self.device_claims.insert(key.clone(), after.clone()),
            None => self.device_claims.remove(key),
        };
        self.extended.claim_changed(before.as_deref(), after.as_deref());
        self.devices_in_use.claim_changed(devices_of(&before), devices_of(&after));
    }

    fn apply_pod(&mut self, key: &Key, pod: Option<Pod>) -> ObjectChange {
        let was_assumed = self.is_assumed(key);
        // A finished pod uses no resources any more, so the scheduler treats it as deleted.
        let mut after = pod.filter(|pod| !pod.finished);
        if let Some(pod) = &mut after {
            self.share_template(pod);
            self.keep_assumption(pod);
        } else {
            self.drop_assumption(key);
        }
        let is_confirmed = after.is_some() && was_assumed && !self.is_assumed(key);
        let mut before = self.put_pod(key, after.map(Arc::new));
        if is_confirmed && let Some(placed) = &mut before {
            // When this pod was assumed, no event was made, so this event must wake the pods that wait for the pod.
            // Therefore the event says that the pod had no node before.
            Arc::make_mut(placed).node_name = None;
        }
        ObjectChange::Pod(before, self.pods.get(key).cloned())
    }

    /// Replaces the pod of this key, and returns the previous pod.
    pub(super) fn put_pod(&mut self, key: &Key, after: Option<Arc<Pod>>) -> Option<Arc<Pod>> {
        let before = self.pods.remove(key);
        // Most changes of a bound pod affect nothing that the scheduler reads.
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

    /// Replaces a pod on its node by a new version that uses the same resources.
    fn swap_pod(&mut self, before: &Pod, pod: Arc<Pod>) {
        let Some(id) = pod.node_name.as_ref().and_then(|name| self.by_name.get(name)).copied() else { return };
        if before.started != pod.started {
            self.changes.push(SnapshotChange::PodStarted(id));
        }
        let pods = self.nodes[id].as_mut().map(|info| &mut info.pods);
        if let Some(own) = pods.and_then(|pods| pods.iter_mut().find(|own| own.key == pod.key)) {
            *own = pod;
        }
    }

    fn index_pod(&mut self, pod: &Arc<Pod>) {
        if let Some(gang) = &pod.template.gang {
            self.gangs.entry(gang.clone()).or_default().insert(pod.key.clone());
        }
        let Some(name) = &pod.node_name else {
            if let Some(node) = &pod.nominated {
                let index_key = (Reverse(pod.priority), pod.key.clone());
                self.nominated.entry(node.clone()).or_default().insert(index_key, pod.clone());
                self.node_changed(node);
            }
            return;
        };
        match self.by_name.get(name).copied() {
            Some(id) => self.place_pod(id, pod.clone()),
            None => self.pods_on_unknown_nodes.entry(name.clone()).or_default().push(pod.clone()),
        }
    }

    fn place_pod(&mut self, id: NodeId, pod: Arc<Pod>) {
        let Some(info) = &mut self.nodes[id] else { return };
        info.add(pod.clone());
        self.count_claim_users(&pod, true);
        self.index_affinity(id, &pod, true);
        self.changes.push(SnapshotChange::PodAdded(id, pod));
    }

    fn unindex_pod(&mut self, pod: &Arc<Pod>) {
        if let Some(gang) = &pod.template.gang
            && let Some(members) = self.gangs.get_mut(gang)
        {
            members.remove(&pod.key);
            if members.is_empty() {
                self.gangs.remove(gang);
            }
        }
        let Some(name) = &pod.node_name else {
            if let Some(node) = &pod.nominated {
                self.remove_nomination(pod, node);
                self.node_changed(node);
            }
            return;
        };
        let Some(id) = self.by_name.get(name).copied() else {
            if let Some(pods) = self.pods_on_unknown_nodes.get_mut(name) {
                pods.retain(|one| one.key != pod.key);
                if pods.is_empty() {
                    self.pods_on_unknown_nodes.remove(name);
                }
            }
            return;
        };
        let Some(info) = &mut self.nodes[id] else { return };
        if let Some(pod) = info.remove(&pod.key) {
            self.count_claim_users(&pod, false);
            self.index_affinity(id, &pod, false);
            self.changes.push(SnapshotChange::PodRemoved(id, pod));
        }
    }

    /// Counts a pod that was added to a node, or removed from it, among the users of its volume claims.
    fn count_claim_users(&mut self, pod: &Pod, is_added: bool) {
        for (claim, _) in pod.volume_claims() {
            let users = self.claim_users.get(&claim).copied().unwrap_or(0);
            match if is_added { users + 1 } else { users.saturating_sub(1) } {
                0 => _ = self.claim_users.remove(&claim),
                users => _ = self.claim_users.insert(claim, users),
            }
        }
    }

    /// Indexes a pod with pod (anti-)affinity that was added to a node, or removed from it.
    fn index_affinity(&mut self, id: NodeId, pod: &Pod, is_added: bool) {
        for index_key in pod.template.pod_affinity.scope.index_keys() {
            if is_added {
                self.with_affinity.entry(index_key).or_default().insert(pod.key.clone(), id);
            } else if let Some(pods) = self.with_affinity.get_mut(&index_key) {
                pods.remove(&pod.key);
                if pods.is_empty() {
                    self.with_affinity.remove(&index_key);
                }
            }
        }
    }

    fn remove_nomination(&mut self, pod: &Pod, node: &Text) {
        let Some(pods) = self.nominated.get_mut(node) else { return };
        pods.remove(&(Reverse(pod.priority), pod.key.clone()));
        if pods.is_empty() {
            self.nominated.remove(node);
        }
    }

    fn node_changed(&mut self, name: &Text) {
        if let Some(id) = self.by_name.get(name) {
            self.changes.push(SnapshotChange::NodeUpdated(*id));
        }
    }

    fn apply_node(&mut self, key: &Key, object: Option<&Value>) -> ObjectChange {
        let after = object.map(|object| Arc::new(Node::decode(&mut self.pool, key.name.clone(), object)));
        let id = self.by_name.get(&key.name).copied();
        let before = id.and_then(|id| self.node(id)).map(|info| info.node.clone());
        match (id, &after) {
            (Some(id), Some(after)) => self.replace_node(id, after),
            (None, Some(after)) => self.add_node(after),
            (Some(id), None) => self.remove_node(id),
            (None, None) => {}
        }
        ObjectChange::Node(before, after)
    }

    fn replace_node(&mut self, id: NodeId, after: &Arc<Node>) {
        let Some(info) = &mut self.nodes[id] else { return };
        let before = std::mem::replace(&mut info.node, after.clone());
        if before == *after {
            return;
        }
        if before.labels != after.labels {
            self.relabel(id, Some(&before), Some(after));
        }
        let same_shape = before.labels == after.labels && before.taints == after.taints;
        self.changes.push(if same_shape {
            SnapshotChange::NodeUpdated(id)
        } else {
            SnapshotChange::TopologyChanged(id)
        });
        if before.images != after.images {
            self.count_images(&before, -1);
            self.count_images(after, 1);
        }
    }

    fn add_node(&mut self, node: &Arc<Node>) {
        let id = self.free.pop().unwrap_or_else(|| {
            self.nodes.push(None);
            self.nodes.len() - 1
        });
        self.nodes[id] = Some(NodeInfo::new(id, node.clone()));
        self.by_name.insert(node.name.clone(), id);
        self.changes.push(SnapshotChange::TopologyChanged(id));
        self.relabel(id, None, Some(node));
        self.count_images(node, 1);
        for pod in self.pods_on_unknown_nodes.remove(&node.name).unwrap_or_default() {
            self.place_pod(id, pod);
        }
    }

    fn remove_node(&mut self, id: NodeId) {
        let Some(info) = self.nodes[id].take() else { return };
        self.by_name.remove(&info.node.name);
        self.free.push(id);
        for pod in &info.pods {
            self.count_claim_users(pod, false);
            self.index_affinity(id, pod, false);
            self.changes.push(SnapshotChange::PodRemoved(id, pod.clone()));
        }
        self.changes.push(SnapshotChange::TopologyChanged(id));
        self.relabel(id, Some(&info.node), None);
        self.count_images(&info.node, -1);
        if !info.pods.is_empty() {
            self.pods_on_unknown_nodes.insert(info.node.name.clone(), info.pods);
        }
    }

    fn relabel(&mut self, id: NodeId, before: Option<&Node>, after: Option<&Node>) {
        let numbers = self.numbers.get_mut().unwrap_or_else(PoisonError::into_inner);
        let none = Labels::default();
        let [before, after] = [before, after].map(|node| node.map_or(&none, |node| &node.labels));
        for (key, value) in after.iter() {
            *self.label_keys.entry(key.clone()).or_default() += 1;
            if let Some(numbers) = numbers.get_mut(key) {
                numbers.replace(id, before.get(key), Some(value));
            }
        }
        for (key, value) in before.iter() {
            if let Some(numbers) = numbers.get_mut(key).filter(|_| after.get(key).is_none()) {
                numbers.replace(id, Some(value), None);
            }
            if let Some(count) = self.label_keys.get_mut(key) {
                *count -= 1;
                if *count == 0 {
                    self.label_keys.remove(key);
                    numbers.remove(key);
                }
            }
        }
    }

    fn count_images(&mut self, node: &Node, by: i64) {
        for (name, size) in &node.images {
            // If nodes report different sizes of an image, the first one counts.
            let (_, nodes) = self.images.entry(name.clone()).or_insert((*size, 0));
            *nodes += by;
            if *nodes <= 0 {
                self.images.remove(name);
            }
        }
    }

    /// Replaces a pod's template by the shared equal one, and sets its number.
    fn share_template(&mut self, pod: &mut Pod) {
        /// Several controllers create pods at the same time, and the pods run on nodes of several zones, so more than
        /// one template is recent.
        const LAST_MAX: usize = 16;
        if let Some((_, shared, id)) = self.last_templates.iter().find(|(last, ..)| Arc::ptr_eq(last, &pod.template)) {
            (pod.template, pod.template_id) = (shared.clone(), *id);
            return;
        }
        let last = pod.template.clone();
        self.register_template(pod);
        self.last_templates.truncate(LAST_MAX - 1);
        self.last_templates.push_front((last, pod.template.clone(), pod.template_id));
    }

    fn register_template(&mut self, pod: &mut Pod) {
        if let Some((template, id)) = self.templates.get_key_value(&pod.template) {
            (pod.template, pod.template_id) = (template.clone(), *id);
            return;
        }
        if self.templates.len() >= self.sweep_templates_at {
            self.templates.retain(|template, _| Arc::strong_count(template) > 1);
            self.sweep_templates_at = (self.templates.len() * 2).max(1024);
        }
        self.next_template += 1;
        pod.template_id = self.next_template;
        self.templates.insert(pod.template.clone(), pod.template_id);
    }
}

impl Pod {
    /// Whether the two pods are equal in everything that counts on their node.
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

fn devices_of(claim: &Option<Arc<device_claim::Claim>>) -> Option<&device_claim::Allocation> {
    claim.as_ref()?.allocation.as_ref()
}

/// Keeps the assumed allocation of a claim until the claim's own status has an allocation.
fn keep_assumed_allocation(before: Option<&device_claim::Claim>, after: &mut Arc<device_claim::Claim>) {
    // A claim that is not created yet has no uid.
    let same = |before: &device_claim::Claim| before.uid == after.uid || before.uid.is_empty();
    let Some(before) = before.filter(|before| before.allocation_assumed && same(before)) else { return };
    if after.allocation.is_none() {
        let after = Arc::make_mut(after);
        after.allocation = before.allocation.clone();
        after.allocation_assumed = true;
    }
}
