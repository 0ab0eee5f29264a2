//! PersistentVolumes and their claims, the StorageClasses and CSI drivers that provision volumes, and the number of
//! pods that use each claim.

use super::table::{BeforeAfter, Table, TableUpdate, cluster_key};
use crate::object::pod::Pod;
use crate::object::volume::{self, Attachment, Capacity, Claim, Class, CsiNode, Volume};
use crate::object::{Key, StringPool, Text};
use holdfast_value::Value;
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Debug, Default)]
pub struct Volumes {
    volumes: Table<Volume>,
    claims: Table<Claim>,
    classes: Table<Class>,
    csi_nodes: Table<CsiNode>,
    /// For each CSI driver, whether its free capacity is checked before volumes are provisioned.
    csi_drivers: Table<bool>,
    capacities: Table<Capacity>,
    attachments: Table<Attachment>,
    /// For each claim, how many pods on nodes of the snapshot use it.
    claim_users: HashMap<Key, usize>,
}

impl Volumes {
    pub fn volume(&self, name: &Text) -> Option<&Arc<Volume>> {
        self.volumes.get(&cluster_key(name))
    }

    /// All PersistentVolumes, sorted by name.
    pub fn volumes(&self) -> impl Iterator<Item = &Arc<Volume>> {
        self.volumes.values()
    }

    pub fn claim(&self, key: &Key) -> Option<&Arc<Claim>> {
        self.claims.get(key)
    }

    /// How many pods on nodes of the snapshot use a claim.
    pub fn claim_users(&self, claim: &Key) -> usize {
        self.claim_users.get(claim).copied().unwrap_or(0)
    }

    pub fn class(&self, name: &str) -> Option<&Arc<Class>> {
        self.classes.get(&Key::cluster(name))
    }

    pub fn csi_node(&self, node: &Text) -> Option<&Arc<CsiNode>> {
        self.csi_nodes.get(&cluster_key(node))
    }

    /// Whether the free capacity of a CSI driver is checked before volumes are provisioned.
    pub fn tracks_capacity(&self, driver: &Text) -> bool {
        self.csi_drivers.get(&cluster_key(driver)).is_some_and(|tracks| **tracks)
    }

    pub fn capacities(&self) -> impl Iterator<Item = &Arc<Capacity>> {
        self.capacities.values()
    }

    pub fn attachments(&self) -> impl Iterator<Item = &Arc<Attachment>> {
        self.attachments.values()
    }

    pub(super) fn put_volume(&mut self, update: &mut TableUpdate<'_>) -> BeforeAfter<Volume> {
        let name = &update.key.name;
        update.put(&mut self.volumes, |pool, object| Volume::decode(pool, name.clone(), object))
    }

    pub(super) fn put_claim(&mut self, update: &mut TableUpdate<'_>) -> BeforeAfter<Claim> {
        let key = update.key;
        update.put(&mut self.claims, |pool, object| Claim::decode(pool, key.clone(), object))
    }

    pub(super) fn put_class(&mut self, update: &mut TableUpdate<'_>) -> BeforeAfter<Class> {
        update.put(&mut self.classes, Class::decode)
    }

    pub(super) fn put_csi_node(&mut self, update: &mut TableUpdate<'_>) -> BeforeAfter<CsiNode> {
        update.put(&mut self.csi_nodes, CsiNode::decode)
    }

    pub(super) fn put_csi_driver(&mut self, update: &mut TableUpdate<'_>) -> BeforeAfter<bool> {
        update.put(&mut self.csi_drivers, |_: &mut StringPool, object: &Value| volume::tracks_capacity(object))
    }

    pub(super) fn put_capacity(&mut self, update: &mut TableUpdate<'_>) -> BeforeAfter<Capacity> {
        update.put(&mut self.capacities, Capacity::decode)
    }

    pub(super) fn put_attachment(&mut self, update: &mut TableUpdate<'_>) -> BeforeAfter<Attachment> {
        update.put(&mut self.attachments, Attachment::decode)
    }

    /// Counts a pod, which was added to a node, as a user of each of its claims.
    pub(super) fn add_user(&mut self, pod: &Pod) {
        for (claim, _) in pod.volume_claims() {
            *self.claim_users.entry(claim).or_default() += 1;
        }
    }

    pub(super) fn remove_user(&mut self, pod: &Pod) {
        for (claim, _) in pod.volume_claims() {
            match self.claim_users(&claim).saturating_sub(1) {
                0 => _ = self.claim_users.remove(&claim),
                users => _ = self.claim_users.insert(claim, users),
            }
        }
    }

    /// Reserves a volume for a claim before the claim's own events show the binding. If `volume` is `None`, a volume is
    /// to be provisioned for the claim on the node.
    pub(super) fn assume(&mut self, claim: &Key, volume: Option<&Text>, node: &Text) {
        let Some(claim) = self.claims.get_mut(claim) else { return };
        let claim = Arc::make_mut(claim);
        match volume {
            None => claim.selected_node = Some(node.clone()),
            Some(name) => {
                if let Some(volume) = self.volumes.get_mut(&cluster_key(name)) {
                    Arc::make_mut(volume).claim = Some((claim.key.clone(), claim.uid.clone()));
                }
            }
        }
    }

    /// Ends what [`Volumes::assume`] has reserved for a claim, unless the cluster shows the binding by now.
    pub(super) fn forget(&mut self, claim: &Key, volume: Option<&Text>) {
        match volume {
            None => {
                if let Some(claim) = self.claims.get_mut(claim).filter(|claim| !claim.bound) {
                    Arc::make_mut(claim).selected_node = None;
                }
            }
            Some(name) => {
                let volume = self.volumes.get_mut(&cluster_key(name));
                if let Some(volume) = volume.filter(|volume| volume.available) {
                    Arc::make_mut(volume).claim = None;
                }
            }
        }
    }
}
