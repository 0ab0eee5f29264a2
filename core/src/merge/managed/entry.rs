//! The entries of `metadata.managedFields`: reading, changing, ordering and writing them.
//!
//! An entry that no one touches keeps the very value it was read from.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};

use holdfast_value::{Map, Value};

use super::Writer;
use crate::merge::field_set::FieldSet;

/// More managers with operation `Update` than this, and the oldest are thrown together.
const UPDATE_ENTRIES_MAX: usize = 10;
const ANCIENT: &str = "ancient-changes";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::merge) enum Operation {
    Apply,
    Update,
}

#[derive(Debug, Clone)]
pub(in crate::merge) struct Entry<'v> {
    pub(in crate::merge) manager: String,
    pub(in crate::merge) operation: Operation,
    pub(in crate::merge) api_version: String,
    pub(in crate::merge) subresource: String,
    time: Option<String>,
    pub(in crate::merge) set: FieldSet,
    /// The value read, as long as it still says the same.
    read: Option<&'v Value>,
}

#[derive(Debug, Clone, Default)]
pub(in crate::merge) struct Entries<'v>(Vec<Entry<'v>>);

impl<'v> Entries<'v> {
    /// `None` when any entry cannot be read; no list at all is an empty one.
    pub(in crate::merge) fn read(fields: Option<&'v Value>) -> Option<Self> {
        let Some(fields) = fields.filter(|fields| !fields.is_null()) else { return Some(Self::default()) };
        let mut entries = Self::default();
        let mut places = BTreeMap::new();
        for value in fields.as_array()? {
            let entry = Entry::read(value)?;
            let place = *places.entry(entry.identifier()).or_insert(entries.len());
            match entries.get_mut(place) {
                Some(earlier) => *earlier = entry,
                None => entries.push(entry),
            }
        }
        Some(entries)
    }

    /// What is wrong with a list that cannot be read, in Kubernetes' words as far as they name no memory of its own.
    pub(super) fn fault(fields: &Value) -> Option<String> {
        if fields.is_null() {
            return None;
        }
        let Some(list) = fields.as_array() else { return Some("managed fields are no list".into()) };
        list.iter().enumerate().find_map(|(at, value)| Entry::fault(value, at))
    }

    /// In the order that Kubernetes writes.
    pub(in crate::merge) fn write(self) -> Option<Value> {
        let mut entries = self.0;
        entries.sort_by(|left, right| left.order().cmp(&right.order()));
        Some(Value::Array(entries.into_iter().map(Entry::write).collect()))
    }

    /// A manager has one entry for all that it applies, and one a version for what it updates.
    pub(in crate::merge) fn position(
        &self,
        manager: &str,
        operation: Operation,
        api_version: &str,
        subresource: &str,
    ) -> Option<usize> {
        self.iter().position(|entry| {
            entry.manager == manager
                && entry.operation == operation
                && entry.subresource == subresource
                && (operation == Operation::Apply || entry.api_version == api_version)
        })
    }

    /// Merges the oldest updates, version by version, until there are few enough.
    pub(in crate::merge) fn cap(&mut self) {
        let mut updates: Vec<usize> = (0..self.len()).filter(|at| self[*at].operation == Operation::Update).collect();
        let mut excess = updates.len().saturating_sub(UPDATE_ENTRIES_MAX);
        if excess == 0 {
            return;
        }
        updates.sort_by_cached_key(|at| (self[*at].seconds(), self[*at].identifier()));
        // By version: the entry that takes the others in, and what it takes in.
        let mut buckets: BTreeMap<String, (usize, Vec<FieldSet>)> = BTreeMap::new();
        let mut merged: BTreeSet<usize> = BTreeSet::new();
        for at in updates {
            if excess == 0 {
                break;
            }
            let version = self[at].api_version.clone();
            let Some((bucket, sets)) = buckets.get_mut(&version) else {
                buckets.insert(version, (at, Vec::new()));
                continue;
            };
            let time = self[at].time.take();
            sets.push(std::mem::take(&mut self[at].set));
            let bucket = &mut self[*bucket];
            bucket.manager = ANCIENT.into();
            bucket.subresource.clear();
            bucket.time = time;
            bucket.read = None;
            merged.insert(at);
            excess -= 1;
        }
        for (bucket, sets) in buckets.into_values() {
            self[bucket].set.union(FieldSet::union_all(sets));
        }
        let mut at = 0;
        self.retain(|_| {
            at += 1;
            !merged.contains(&(at - 1))
        });
    }
}

impl<'v> Entry<'v> {
    pub(in crate::merge) fn new(operation: Operation, writer: &Writer) -> Self {
        Self {
            manager: writer.manager.into(),
            operation,
            api_version: writer.api_version.into(),
            subresource: writer.subresource.into(),
            time: None,
            set: FieldSet::default(),
            read: None,
        }
    }

    fn read(value: &'v Value) -> Option<Self> {
        let text = |name: &str| match value.get(name) {
            None | Some(Value::Null) => Some(String::new()),
            Some(Value::String(text)) => Some(text.to_string()),
            Some(_) => None,
        };
        if value.get("fieldsType")?.as_str()? != "FieldsV1" {
            return None;
        }
        let set = match value.get("fieldsV1") {
            None | Some(Value::Null) => FieldSet::default(),
            Some(fields) => FieldSet::parse(fields)?,
        };
        Some(Self {
            manager: text("manager")?,
            operation: match value.get("operation")?.as_str()? {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return None,
            },
            api_version: text("apiVersion").filter(|version| !version.is_empty())?,
            subresource: text("subresource")?,
            time: text("time").map(|time| Some(time).filter(|time| !time.is_empty()))?,
            set,
            read: Some(value),
        })
    }

    fn fault(value: &Value, at: usize) -> Option<String> {
        let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or("");
        if !matches!(text("operation"), "Apply" | "Update") {
            return Some("operation must be `Apply` or `Update`".into());
        }
        if text("apiVersion").is_empty() {
            return Some("apiVersion must not be empty".into());
        }
        match text("fieldsType") {
            "FieldsV1" if Entry::read(value).is_some() => None,
            "FieldsV1" => Some(format!("error decoding versioned set of managed fields entry {at}")),
            "" => Some(format!("missing fieldsType in managed fields entry {at}")),
            other => Some(format!("invalid fieldsType {other:?} in managed fields entry {at}")),
        }
    }

    fn write(self) -> Value {
        if let Some(value) = self.read {
            return value.clone();
        }
        let mut map = Map::new();
        map.insert("manager", self.manager.into());
        let operation = if self.operation == Operation::Apply { "Apply" } else { "Update" };
        map.insert("operation", operation.into());
        map.insert("apiVersion", self.api_version.into());
        if let Some(time) = self.time {
            map.insert("time", time.into());
        }
        map.insert("fieldsType", "FieldsV1".into());
        map.insert("fieldsV1", self.set.into_value());
        if !self.subresource.is_empty() {
            map.insert("subresource", self.subresource.into());
        }
        Value::Object(map)
    }

    pub(in crate::merge) fn lose(&mut self, set: &FieldSet) {
        if self.set.subtract(set) {
            self.read = None;
        }
    }

    pub(in crate::merge) fn gain(&mut self, set: FieldSet, now: &str) {
        self.set.union(set);
        self.stamp(now);
    }

    /// Adds fields without a word about when.
    pub(in crate::merge) fn include(&mut self, set: FieldSet) {
        self.set.union(set);
        self.read = None;
    }

    pub(in crate::merge) fn forget_time(&mut self) {
        self.time = None;
        self.read = None;
    }

    /// Replaces what an applier owns.
    pub(in crate::merge) fn replace(&mut self, set: FieldSet, api_version: &str) {
        if self.set != set || self.api_version != api_version {
            self.set = set;
            self.api_version = api_version.into();
            self.read = None;
        }
    }

    pub(in crate::merge) fn stamp(&mut self, now: &str) {
        self.time = Some(now.into());
        self.read = None;
    }

    pub(in crate::merge) fn is_as_read(&self) -> bool {
        self.read.is_some()
    }

    /// As conflicts name a manager.
    pub(in crate::merge) fn shown(&self) -> String {
        let mut shown = Value::from(self.manager.as_str()).to_string();
        if !self.subresource.is_empty() {
            shown += &format!(" with subresource {}", Value::from(self.subresource.as_str()));
        }
        if self.operation == Operation::Update {
            shown += &format!(" using {}", self.api_version);
        }
        shown
    }

    /// What Kubernetes calls the entry inside: JSON of the fields that tell entries apart. Ties are broken by it.
    pub(in crate::merge) fn identifier(&self) -> String {
        let json = |text: &str| Value::from(text).to_string();
        let mut identifier = format!("{{\"manager\":{}", json(&self.manager));
        match self.operation {
            Operation::Apply => identifier += ",\"operation\":\"Apply\"",
            Operation::Update => {
                identifier += &format!(",\"operation\":\"Update\",\"apiVersion\":{}", json(&self.api_version));
            }
        }
        if !self.subresource.is_empty() {
            identifier += &format!(",\"subresource\":{}", json(&self.subresource));
        }
        identifier + "}"
    }

    fn order(&self) -> (Operation, i64, &str, &str, &str) {
        (self.operation, self.seconds(), &self.manager, &self.api_version, &self.subresource)
    }

    fn seconds(&self) -> i64 {
        let time = self.time.as_deref().and_then(|time| time.parse::<jiff::Timestamp>().ok());
        time.map_or(0, |time| time.as_second())
    }
}

impl<'v> Deref for Entries<'v> {
    type Target = Vec<Entry<'v>>;

    fn deref(&self) -> &Vec<Entry<'v>> {
        &self.0
    }
}

impl<'v> DerefMut for Entries<'v> {
    fn deref_mut(&mut self) -> &mut Vec<Entry<'v>> {
        &mut self.0
    }
}
