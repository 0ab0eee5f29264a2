//! The entries of `metadata.managedFields`: reading, changing, sorting and writing them.
//!
//! An unchanged entry keeps the value from which it was read. The `fieldsV1` of an entry are parsed only when they are
//! needed: most writes change the fields of one manager, and an object has several managers.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};

use holdfast_value::{CompactString, Map, Value};

use super::Writer;
use crate::merge::field_set::FieldSet;

/// The maximum number of `Update` entries. If an object has more, the oldest entries are merged.
const UPDATE_ENTRIES_MAX: usize = 10;
const ANCIENT: &str = "ancient-changes";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::merge) enum Operation {
    Apply,
    Update,
}

#[derive(Debug, Clone)]
pub(in crate::merge) struct Entry<'v> {
    pub(in crate::merge) manager: Cow<'v, str>,
    pub(in crate::merge) operation: Operation,
    pub(in crate::merge) api_version: Cow<'v, str>,
    pub(in crate::merge) subresource: Cow<'v, str>,
    time: Option<Cow<'v, str>>,
    /// The set of owned fields, after they were parsed or changed.
    set: OnceCell<FieldSet>,
    /// The `fieldsV1` as they were read; `None` after a change.
    fields: Option<&'v Value>,
    /// The value of the entry as it was read; `None` after a change.
    read: Option<&'v Value>,
}

#[derive(Debug, Clone, Default)]
pub(in crate::merge) struct Entries<'v>(Vec<Entry<'v>>);

impl<'v> Entries<'v> {
    /// Reads a stored `managedFields`, which was validated when it was written. Returns `None` if an entry is
    /// malformed.
    pub(in crate::merge) fn stored(fields: Option<&'v Value>) -> Option<Self> {
        Self::read_each(fields, Entry::stored)
    }

    /// Reads and validates a client's `managedFields`. Returns `None` if an entry cannot be read. An absent list is
    /// empty.
    pub(in crate::merge) fn read(fields: Option<&'v Value>) -> Option<Self> {
        Self::read_each(fields, Entry::read)
    }

    fn read_each(fields: Option<&'v Value>, read: impl Fn(&'v Value) -> Option<Entry<'v>>) -> Option<Self> {
        let Some(fields) = fields.filter(|fields| !fields.is_null()) else { return Some(Self::default()) };
        let list = fields.as_array()?;
        let mut entries = Vec::with_capacity(list.len() + 1);
        let mut places = BTreeMap::new();
        for value in list {
            let entry = read(value)?;
            let place = match list.len() {
                1 => 0,
                _ => *places.entry(entry.names()).or_insert(entries.len()),
            };
            match entries.get_mut(place) {
                Some(earlier) => *earlier = entry,
                None => entries.push(entry),
            }
        }
        Some(Self(entries))
    }

    /// The reason why a client's `managedFields` cannot be read, in Kubernetes' words. The detail of an error in
    /// `fieldsV1` is left out.
    pub(super) fn fault(fields: &Value) -> Option<String> {
        if fields.is_null() {
            return None;
        }
        let Some(list) = fields.as_array() else { return Some("metadata.managedFields is not a list".into()) };
        list.iter().enumerate().find_map(|(at, value)| Entry::fault(value, at))
    }

    /// Writes `managedFields`, with its entries in Kubernetes' order. Without entries it is an empty list.
    pub(in crate::merge) fn write(self) -> Option<Value> {
        let mut entries = self.0;
        entries.sort_by(|left, right| left.order().cmp(&right.order()));
        Some(Value::Array(entries.into_iter().map(Entry::write).collect()))
    }

    /// The position of a manager's entry. A manager has, for each subresource, one entry for apply and one update entry
    /// for each version.
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

    /// Merges the oldest update entries of each version, until at most [`UPDATE_ENTRIES_MAX`] update entries remain, or
    /// one for each version.
    pub(in crate::merge) fn cap(&mut self) {
        let mut updates: Vec<usize> = (0..self.len()).filter(|at| self[*at].operation == Operation::Update).collect();
        let mut excess = updates.len().saturating_sub(UPDATE_ENTRIES_MAX);
        if excess == 0 {
            return;
        }
        updates.sort_by_cached_key(|at| (self[*at].seconds(), self[*at].identifier()));
        // For each version, the entry into which other entries are merged, and the fields of these other entries.
        let mut buckets: BTreeMap<String, (usize, Vec<FieldSet>)> = BTreeMap::new();
        let mut merged: BTreeSet<usize> = BTreeSet::new();
        for at in updates {
            if excess == 0 {
                break;
            }
            let version = self[at].api_version.to_string();
            let Some((bucket, sets)) = buckets.get_mut(&version) else {
                buckets.insert(version, (at, Vec::new()));
                continue;
            };
            let time = self[at].time.take();
            sets.push(self[at].change(std::mem::take));
            let bucket = &mut self[*bucket];
            bucket.manager = ANCIENT.into();
            bucket.subresource = "".into();
            bucket.time = time;
            bucket.read = None;
            merged.insert(at);
            excess -= 1;
        }
        for (bucket, sets) in buckets.into_values() {
            self[bucket].change(|set| set.union(FieldSet::union_all(sets)));
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
            manager: writer.manager.to_owned().into(),
            operation,
            api_version: writer.api_version.to_owned().into(),
            subresource: writer.subresource.to_owned().into(),
            time: None,
            set: OnceCell::from(FieldSet::default()),
            fields: None,
            read: None,
        }
    }

    /// Reads an entry without parsing its `fieldsV1`.
    fn stored(value: &'v Value) -> Option<Self> {
        let text = |name: &str| match value.get(name) {
            None | Some(Value::Null) => Some(Cow::Borrowed("")),
            Some(Value::String(text)) => Some(Cow::Borrowed(text.as_str())),
            Some(_) => None,
        };
        if value.get("fieldsType")?.as_str()? != "FieldsV1" {
            return None;
        }
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
            set: OnceCell::new(),
            fields: value.get("fieldsV1"),
            read: Some(value),
        })
    }

    /// Reads an entry and parses its `fieldsV1`. Path elements that are not in canonical form are rewritten, because
    /// paths are compared as text.
    fn read(value: &'v Value) -> Option<Self> {
        let mut entry = Self::stored(value)?;
        let set = match entry.fields {
            None | Some(Value::Null) => FieldSet::default(),
            Some(fields) => {
                let (set, is_canonical) = FieldSet::parse_noting(fields)?;
                if !is_canonical {
                    (entry.fields, entry.read) = (None, None);
                }
                set
            }
        };
        entry.set = OnceCell::from(set);
        Some(entry)
    }

    pub(in crate::merge) fn set(&self) -> &FieldSet {
        self.set.get_or_init(|| self.fields.and_then(FieldSet::parse).unwrap_or_default())
    }

    /// Changes the set of owned fields. The texts from which the entry was read no longer apply, so they are dropped.
    fn change<T>(&mut self, change: impl FnOnce(&mut FieldSet) -> T) -> T {
        let mut set = self.set.take().or_else(|| FieldSet::parse(self.fields?)).unwrap_or_default();
        let outcome = change(&mut set);
        self.set = OnceCell::from(set);
        (self.fields, self.read) = (None, None);
        outcome
    }

    /// The `fieldsV1` as they were read, so that they can be searched without parsing; `None` if they have been parsed.
    fn unread(&self) -> Option<&'v Value> {
        self.fields.filter(|_| self.set.get().is_none())
    }

    pub(in crate::merge) fn is_empty(&self) -> bool {
        !self.unread().is_some_and(FieldSet::names_any) && self.set().is_empty()
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
        let fields = match (self.fields, self.set.into_inner()) {
            (Some(fields), _) => fields.clone(),
            (None, set) => set.unwrap_or_default().into_value(),
        };
        let operation = if self.operation == Operation::Apply { "Apply" } else { "Update" };
        let mut map = Map::with_capacity(7);
        let mut set = |name: &'static str, value: Value| _ = map.insert(CompactString::const_new(name), value);
        set("apiVersion", self.api_version.into());
        set("fieldsType", "FieldsV1".into());
        set("fieldsV1", fields);
        set("manager", self.manager.into());
        set("operation", operation.into());
        if !self.subresource.is_empty() {
            set("subresource", self.subresource.into());
        }
        if let Some(time) = self.time {
            set("time", time.into());
        }
        Value::Object(map)
    }

    /// The fields of `changed` that the entry owns.
    pub(in crate::merge) fn shared(&self, changed: &FieldSet) -> FieldSet {
        match self.unread() {
            Some(fields) if !changed.meets(fields) => FieldSet::default(),
            _ => self.set().intersection(changed),
        }
    }

    /// Removes the fields in `lost` from the entry.
    pub(in crate::merge) fn lose(&mut self, lost: &FieldSet) {
        if self.unread().is_some_and(|fields| !lost.meets(fields)) {
            return;
        }
        let read = (self.fields, self.read);
        if !self.change(|set| set.subtract(lost)) {
            (self.fields, self.read) = read;
        }
    }

    pub(in crate::merge) fn gain(&mut self, gained: FieldSet, now: &str) {
        if !self.unread().is_some_and(|fields| gained.is_within(fields)) {
            self.change(|set| set.union(gained));
        }
        self.stamp(now);
    }

    /// Adds fields to the entry and keeps the time of the entry.
    pub(in crate::merge) fn include(&mut self, set: FieldSet) {
        self.change(|own| own.union(set));
    }

    pub(in crate::merge) fn forget_time(&mut self) {
        self.time = None;
        self.read = None;
    }

    /// Replaces the fields of an applier's entry by `set`.
    pub(in crate::merge) fn replace(&mut self, set: FieldSet, api_version: &str) {
        if *self.set() != set {
            self.change(|own| *own = set);
        }
        if self.api_version != api_version {
            self.api_version = api_version.to_owned().into();
            self.read = None;
        }
    }

    pub(in crate::merge) fn stamp(&mut self, now: &str) {
        self.time = Some(now.to_owned().into());
        self.read = None;
    }

    pub(in crate::merge) fn is_as_read(&self) -> bool {
        self.read.is_some()
    }

    /// How messages about conflicts name the manager: its name, and what else distinguishes the entry.
    pub(in crate::merge) fn shown(&self) -> String {
        let mut shown = Value::from(&*self.manager).to_string();
        if !self.subresource.is_empty() {
            shown += &format!(" with subresource {}", Value::from(&*self.subresource));
        }
        if self.operation == Operation::Update {
            shown += &format!(" using {}", self.api_version);
        }
        shown
    }

    /// The fields that identify an entry, as described at [`Entries::position`].
    fn names(&self) -> (Cow<'v, str>, Operation, Cow<'v, str>, Cow<'v, str>) {
        let version = match self.operation {
            Operation::Apply => Cow::Borrowed(""),
            Operation::Update => self.api_version.clone(),
        };
        (self.manager.clone(), self.operation, version, self.subresource.clone())
    }

    /// Kubernetes' internal identifier of the entry: JSON of the identifying fields. It orders entries of the same time
    /// when the oldest entries are merged.
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
