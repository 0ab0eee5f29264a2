//! The naive twin of the store: every event in a list, and every object's versions in another.

use crate::shape::{Shape, Sort};
use holdfast_core::event::Record;
use serde_json::Value;
use std::collections::BTreeMap;

/// Storage path and key.
pub type Place = (String, String);

#[derive(Default)]
pub struct Twin {
    pub records: Vec<Record>,
    versions: BTreeMap<Place, Vec<Version>>,
    /// The events that each request led to.
    pub by_request: BTreeMap<String, Vec<u64>>,
}

/// An object as it was from one event to the next.
#[derive(Debug, Clone)]
pub struct Version {
    pub offset: u64,
    pub deleted: bool,
    pub document: Value,
}

impl Twin {
    pub fn last(&self) -> u64 {
        self.records.len() as u64
    }

    pub fn record(&self, offset: u64) -> Option<&Record> {
        self.records.get(offset.checked_sub(1)? as usize)
    }

    pub fn push(&mut self, record: Record) -> Result<(), String> {
        let document = serde_json::from_slice(&record.object)
            .map_err(|error| format!("event {} holds no JSON: {error}", record.offset))?;
        let version = Version { offset: record.offset, deleted: record.is_delete(), document };
        self.versions.entry((record.resource.clone(), record.key.clone())).or_default().push(version);
        self.by_request.entry(record.actor.request_id.clone()).or_default().push(record.offset);
        self.records.push(record);
        Ok(())
    }

    /// The object as it was at `offset`.
    pub fn version_at(&self, place: &Place, offset: u64) -> Option<&Version> {
        let versions = self.versions.get(place)?;
        versions.iter().rev().find(|version| version.offset <= offset).filter(|version| !version.deleted)
    }

    /// All that the object was between two offsets, both included; `None`: it was not there.
    pub fn versions_within(&self, place: &Place, from: u64, to: u64) -> Vec<Option<&Version>> {
        let mut found = vec![self.version_at(place, from)];
        for version in self.versions.get(place).into_iter().flatten() {
            if version.offset > from && version.offset <= to {
                found.push(Some(version).filter(|version| !version.deleted));
            }
        }
        found
    }

    /// Everything that was there at `offset`.
    pub fn at(&self, offset: u64) -> BTreeMap<Place, &Record> {
        let mut all = BTreeMap::new();
        for record in self.records.iter().take_while(|record| record.offset <= offset) {
            let place = (record.resource.clone(), record.key.clone());
            if record.is_delete() {
                all.remove(&place)
            } else {
                all.insert(place, record)
            };
        }
        all
    }

    /// Keys of a kind's objects that are there now, with their newest versions.
    pub fn present(&self, storage: &str) -> impl Iterator<Item = (&str, &Version)> {
        self.versions.iter().filter_map(move |((resource, key), versions)| {
            let newest = versions.last().filter(|version| resource == storage && !version.deleted)?;
            Some((key.as_str(), newest))
        })
    }

    /// Everything that is there now.
    pub fn present_everywhere(&self) -> impl Iterator<Item = (&Place, &Version)> {
        self.versions.iter().filter_map(|(place, versions)| Some((place, versions.last().filter(|v| !v.deleted)?)))
    }
}

impl Version {
    pub fn shape(&self, sort: Sort) -> Shape {
        Shape::of(sort, &self.document)
    }

    pub fn uid(&self) -> &str {
        self.document["metadata"]["uid"].as_str().unwrap_or("")
    }
}
