//! A simple second model of the store, the twin: a list of all events, and a list of the versions of each object.
//!
//! Each document is parsed once, when the twin learns its event. The oracles share the parsed document.

use crate::custom::{DEFINITION, DEFINITIONS, Law};
use crate::shape::{ObjectShape, Sort};
use holdfast_core::event::Record;
use holdfast_value::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The storage path and the key of an object.
pub type StoredAt = (String, String);

#[derive(Default)]
pub struct Twin {
    events: Vec<ObjectVersion>,
    /// The offsets of each object's events, by storage path and key.
    objects: BTreeMap<String, BTreeMap<String, Vec<u64>>>,
    by_storage: BTreeMap<String, Vec<u64>>,
    /// The offsets of the events that each request made, by the request's id.
    by_request: BTreeMap<String, Vec<u64>>,
    uids: BTreeSet<String>,
    /// The log may have forgotten those versions that other versions replaced up to this version.
    pub forgotten: u64,
}

/// The state of an object from one of its events to the next.
pub struct ObjectVersion {
    pub offset: u64,
    pub deleted: bool,
    pub record: Record,
    pub document: Value,
    /// The fields that the simulation models; `None` if clients do not use the kind.
    pub shape: Option<ObjectShape>,
}

impl Twin {
    pub fn last(&self) -> u64 {
        self.events.len() as u64
    }

    pub fn event(&self, offset: u64) -> Option<&ObjectVersion> {
        self.events.get(offset.checked_sub(1)? as usize)
    }

    pub fn push(&mut self, record: Record, document: Value) {
        let offsets = self.objects.entry(record.resource.clone()).or_default();
        offsets.entry(record.key.clone()).or_default().push(record.offset);
        self.by_storage.entry(record.resource.clone()).or_default().push(record.offset);
        self.by_request.entry(record.actor.request_id.clone()).or_default().push(record.offset);
        if record.replaces == 0 {
            self.uids.insert(document["metadata"]["uid"].as_str().unwrap_or_default().to_owned());
        }
        let shape = Sort::of_storage(&record.resource).map(|sort| ObjectShape::of(sort, &document));
        let deleted = record.is_delete();
        self.events.push(ObjectVersion { offset: record.offset, deleted, record, document, shape });
    }

    /// The offsets of the events that a request made.
    pub fn of_request(&self, id: &str) -> &[u64] {
        self.by_request.get(id).map(Vec::as_slice).unwrap_or_default()
    }

    pub fn knows_uid(&self, uid: &str) -> bool {
        self.uids.contains(uid)
    }

    /// The events of a kind after the offset `after`, up to and including the offset `to`.
    pub fn of_storage(&self, storage: &str, after: u64, to: u64) -> impl Iterator<Item = &ObjectVersion> {
        let offsets = self.by_storage.get(storage).map(Vec::as_slice).unwrap_or_default();
        let from = offsets.partition_point(|offset| *offset <= after);
        let until = offsets.partition_point(|offset| *offset <= to).max(from);
        offsets[from..until].iter().filter_map(|offset| self.event(*offset))
    }

    fn offsets(&self, storage: &str, key: &str) -> &[u64] {
        self.objects.get(storage).and_then(|objects| objects.get(key)).map(Vec::as_slice).unwrap_or_default()
    }

    fn newest_of(&self, offsets: &[u64], offset: u64) -> Option<&ObjectVersion> {
        let at = offsets.partition_point(|found| *found <= offset).checked_sub(1)?;
        self.event(offsets[at]).filter(|version| !version.deleted)
    }

    /// The version of the object at `offset`; `None` if the object did not exist then.
    pub fn version_at(&self, storage: &str, key: &str, offset: u64) -> Option<&ObjectVersion> {
        self.newest_of(self.offsets(storage, key), offset)
    }

    /// The content of the definition of widgets at `offset`; `None` if the definition did not exist then.
    pub fn law(&self, offset: u64) -> Option<Law<'_>> {
        Law::of(&self.version_at(DEFINITIONS, DEFINITION, offset)?.document)
    }

    /// Whether the object did not exist at the version `from`, or at some time after this version.
    pub fn was_absent(&self, storage: &str, key: &str, from: u64) -> bool {
        let offsets = self.offsets(storage, key);
        let later = offsets.iter().rev().take_while(|offset| **offset > from);
        self.newest_of(offsets, from).is_none()
            || later.into_iter().any(|offset| self.event(*offset).is_some_and(|version| version.deleted))
    }

    /// All versions that the object had between two offsets, which are included. If the object did not exist for some
    /// time, the list contains `None`.
    pub fn versions_within(&self, place: &StoredAt, from: u64, to: u64) -> Vec<Option<&ObjectVersion>> {
        let offsets = self.offsets(&place.0, &place.1);
        let mut found = vec![self.newest_of(offsets, from)];
        for offset in offsets.iter().filter(|offset| (from + 1..=to).contains(*offset)) {
            found.push(self.event(*offset).filter(|version| !version.deleted));
        }
        found
    }

    /// The objects of a kind at `offset`, by key.
    pub fn at(&self, storage: &str, offset: u64) -> impl Iterator<Item = (&str, &ObjectVersion)> {
        let objects = self.objects.get(storage).into_iter().flatten();
        objects.filter_map(move |(key, offsets)| Some((key.as_str(), self.newest_of(offsets, offset)?)))
    }

    /// All objects at `offset`: the storage path, the key and the version of each.
    pub fn all_at(&self, offset: u64) -> impl Iterator<Item = (&str, &str, &ObjectVersion)> {
        self.objects.keys().flat_map(move |storage| {
            self.at(storage, offset).map(move |(key, version)| (storage.as_str(), key, version))
        })
    }

    /// The current objects of a kind, by key.
    pub fn present(&self, storage: &str) -> impl Iterator<Item = (&str, &ObjectVersion)> {
        self.at(storage, u64::MAX)
    }

    /// Whether the log may have forgotten an event: either an event up to `forgotten` has replaced it, or it is itself
    /// a deletion up to `forgotten`.
    pub fn may_be_gone(&self, version: &ObjectVersion) -> bool {
        let offsets = self.offsets(&version.record.resource, &version.record.key);
        let next = offsets.get(offsets.partition_point(|offset| *offset <= version.offset));
        next.is_some_and(|next| *next <= self.forgotten) || version.deleted && version.offset <= self.forgotten
    }
}

impl ObjectVersion {
    pub fn uid(&self) -> &str {
        self.document["metadata"]["uid"].as_str().unwrap_or("")
    }

    /// The fields that the simulation models. The caller must call this function only for kinds that clients use.
    pub fn shape(&self) -> ObjectShape {
        self.shape.clone().unwrap_or_default()
    }

    pub fn is_deleting(&self) -> bool {
        !self.document["metadata"]["deletionTimestamp"].is_null()
    }
}
