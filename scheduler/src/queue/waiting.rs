//! Pods that wait for an event, those beside each other whom the same plug-ins refused for the same template.

use crate::object::Key;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Group {
    pub template: u64,
    pub rejectors: Arc<[&'static str]>,
}

#[derive(Debug, Default)]
pub(super) struct Waiting {
    groups: BTreeMap<Group, BTreeSet<Key>>,
    group_of: HashMap<Key, Group>,
}

impl Waiting {
    pub fn insert(&mut self, key: &Key, template: u64, rejectors: &Arc<[&'static str]>) {
        let group = Group { template, rejectors: rejectors.clone() };
        self.groups.entry(group.clone()).or_default().insert(key.clone());
        self.group_of.insert(key.clone(), group);
    }

    pub fn remove(&mut self, key: &Key) {
        let Some(group) = self.group_of.remove(key) else { return };
        if let Some(keys) = self.groups.get_mut(&group) {
            keys.remove(key);
            if keys.is_empty() {
                self.groups.remove(&group);
            }
        }
    }

    pub fn groups(&self) -> impl Iterator<Item = (&Group, &BTreeSet<Key>)> {
        self.groups.iter()
    }

    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.group_of.keys()
    }

    pub fn len(&self) -> usize {
        self.group_of.len()
    }
}
