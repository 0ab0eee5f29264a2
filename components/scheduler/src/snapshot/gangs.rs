//! Workloads, and the pods of the gangs that Workloads define.

use super::table::{BeforeAfter, Table, TableUpdate};
use crate::object::Key;
use crate::object::pod::{Gang, Pod};
use crate::object::workload::Workload;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Debug, Default)]
pub struct Gangs {
    workloads: Table<Workload>,
    /// For each gang, the keys of its pods, with and without a node.
    members: BTreeMap<Gang, BTreeSet<Key>>,
}

impl Gangs {
    pub fn workload(&self, key: &Key) -> Option<&Arc<Workload>> {
        self.workloads.get(key)
    }

    /// The keys of a gang's pods, with and without a node.
    pub(super) fn members(&self, gang: &Gang) -> impl Iterator<Item = &Key> {
        self.members.get(gang).into_iter().flatten()
    }

    pub(super) fn put_workload(&mut self, update: &mut TableUpdate<'_>) -> BeforeAfter<Workload> {
        update.put(&mut self.workloads, Workload::decode)
    }

    pub(super) fn add(&mut self, pod: &Pod) {
        if let Some(gang) = &pod.template.gang {
            self.members.entry(gang.clone()).or_default().insert(pod.key.clone());
        }
    }

    pub(super) fn remove(&mut self, pod: &Pod) {
        if let Some(gang) = &pod.template.gang
            && let Some(members) = self.members.get_mut(gang)
        {
            members.remove(&pod.key);
            if members.is_empty() {
                self.members.remove(gang);
            }
        }
    }
}
