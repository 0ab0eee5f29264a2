//! Pods that wait for an event, in groups: the pods of a group have one template, and the same plug-ins rejected them.

use crate::object::{Key, Text};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UnschedulableGroup {
    pub template: u64,
    pub rejectors: Arc<[&'static str]>,
    pub scheduler_name: Text,
    /// Whether the pods of the group are gated, so they must not be tried yet.
    pub gated: bool,
}

/// The scheduler's name in the pods' specs, and the plug-ins that rejected the pods.
type GroupKey = (Text, Arc<[&'static str]>);

#[derive(Debug, Default)]
pub(super) struct UnschedulablePods {
    groups: BTreeMap<GroupKey, BTreeMap<UnschedulableGroup, BTreeSet<Key>>>,
    group_of: HashMap<Key, UnschedulableGroup>,
    gated: usize,
    /// For each plug-in and scheduler name, how many waiting pods the plug-in rejected. An entry that falls to 0 stays.
    by_rejector: BTreeMap<(&'static str, Text), usize>,
}

impl UnschedulablePods {
    pub fn insert(&mut self, key: &Key, group: UnschedulableGroup) {
        self.remove(key);
        self.gated += usize::from(group.gated);
        for plugin in &*group.rejectors {
            *self.by_rejector.entry((plugin, group.scheduler_name.clone())).or_default() += 1;
        }
        let key_of_group = (group.scheduler_name.clone(), group.rejectors.clone());
        self.groups.entry(key_of_group).or_default().entry(group.clone()).or_default().insert(key.clone());
        self.group_of.insert(key.clone(), group);
    }

    pub fn remove(&mut self, key: &Key) {
        let Some(group) = self.group_of.remove(key) else { return };
        self.gated -= usize::from(group.gated);
        for plugin in &*group.rejectors {
            if let Some(count) = self.by_rejector.get_mut(&(*plugin, group.scheduler_name.clone())) {
                *count -= 1;
            }
        }
        let key_of_group = (group.scheduler_name.clone(), group.rejectors.clone());
        let Some(groups) = self.groups.get_mut(&key_of_group) else { return };
        if let Some(keys) = groups.get_mut(&group) {
            keys.remove(key);
            if keys.is_empty() {
                groups.remove(&group);
            }
        }
        if groups.is_empty() {
            self.groups.remove(&key_of_group);
        }
    }

    /// The groups of waiting pods for whose scheduler and plug-ins `concerns` is true.
    pub fn groups(
        &self,
        concerns: impl Fn(&Text, &[&'static str]) -> bool,
    ) -> impl Iterator<Item = (&UnschedulableGroup, &BTreeSet<Key>)> {
        let concerned = self.groups.iter().filter(move |((scheduler, plugins), _)| concerns(scheduler, plugins));
        concerned.flat_map(|(_, groups)| groups)
    }

    /// For each plug-in and scheduler name, how many waiting pods the plug-in rejected.
    pub fn pods_by_rejector(&self) -> impl Iterator<Item = (&'static str, &Text, usize)> {
        self.by_rejector.iter().map(|((plugin, scheduler), count)| (*plugin, scheduler, *count))
    }

    pub fn gated(&self) -> usize {
        self.gated
    }

    pub fn len(&self) -> usize {
        self.group_of.len()
    }
}
