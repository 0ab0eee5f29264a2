//! The objects by which pods are selected: Services, controllers and PodDisruptionBudgets; and the labels of
//! namespaces.

use super::table::{BeforeAfter, Table, TableUpdate, cluster_key, in_namespace};
use crate::object::labels::Labels;
use crate::object::workload::{DisruptionBudget, PodSelector};
use crate::object::{Key, Kind, StringPool, Text};
use holdfast_value::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug, Default)]
pub struct PodSelectors {
    namespaces: Table<Labels>,
    services: Table<PodSelector>,
    /// The ReplicationControllers, ReplicaSets and StatefulSets, by kind.
    controllers: BTreeMap<Kind, Table<PodSelector>>,
    budgets: Table<DisruptionBudget>,
}

impl PodSelectors {
    /// The labels of a namespace; empty if the snapshot does not have the namespace.
    pub fn namespace_labels(&self, namespace: &Text) -> Arc<Labels> {
        self.namespaces.get(&cluster_key(namespace)).cloned().unwrap_or_default()
    }

    /// The Services of a namespace, sorted by name.
    pub fn services(&self, namespace: &Text) -> impl Iterator<Item = &Arc<PodSelector>> {
        in_namespace(&self.services, namespace)
    }

    pub fn controller(&self, kind: Kind, key: &Key) -> Option<&Arc<PodSelector>> {
        self.controllers.get(&kind)?.get(key)
    }

    pub fn budgets(&self) -> impl Iterator<Item = (&Key, &Arc<DisruptionBudget>)> {
        self.budgets.iter()
    }

    pub(super) fn put_namespace(&mut self, update: &mut TableUpdate<'_>) -> BeforeAfter<Labels> {
        let labels = |pool: &mut StringPool, object: &Value| Labels::decode(pool, &object["metadata"]["labels"]);
        update.put(&mut self.namespaces, labels)
    }

    pub(super) fn put_service(&mut self, update: &mut TableUpdate<'_>) -> BeforeAfter<PodSelector> {
        update.put(&mut self.services, PodSelector::by_labels)
    }

    pub(super) fn put_controller(&mut self, kind: Kind, update: &mut TableUpdate<'_>) -> BeforeAfter<PodSelector> {
        let by_labels = kind == Kind::ReplicationController;
        let decode = if by_labels { PodSelector::by_labels } else { PodSelector::by_selector };
        update.put(self.controllers.entry(kind).or_default(), decode)
    }

    pub(super) fn put_budget(&mut self, update: &mut TableUpdate<'_>) -> BeforeAfter<DisruptionBudget> {
        update.put(&mut self.budgets, DisruptionBudget::decode)
    }
}
