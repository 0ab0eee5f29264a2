//! Managed fields of a scale subresource: the owner of an object's replicas field owns the replicas of the Scale.

use holdfast_value::Value;

use super::entry::{Entries, Entry, Operation};
use crate::merge::field_set::FieldSet;

const SCALE_VERSION: &str = "autoscaling/v1";
const SCALE_REPLICAS: [&str; 2] = ["spec", "replicas"];

/// Makes the entries of a Scale from the entries of the scaled object. `replicas` is the path of the replicas field in
/// the scaled object. The path is the same in every version.
pub fn scale_entries(fields: Option<&Value>, replicas: &[&str]) -> Option<Value> {
    let mut entries = Entries::stored(fields)?;
    entries.retain(|entry| entry.set().contains_fields(replicas));
    for entry in entries.iter_mut() {
        entry.replace(FieldSet::of_fields(&SCALE_REPLICAS), SCALE_VERSION);
    }
    entries.write()
}

/// The entries of the scaled object after a write of its Scale, which can change only the owners of the replicas field.
///
/// A manager that becomes an owner gets an entry without a time, in the version `api_version` of the request's path. A
/// manager that stays owner keeps its entry. Entries of versions that are not in `served` are dropped.
pub fn with_scale_entries(
    fields: Option<&Value>,
    scale: Option<&Value>,
    replicas: &[&str],
    api_version: &str,
    served: &dyn Fn(&str) -> bool,
) -> Option<Value> {
    let (mut entries, mut scale) = (Entries::stored(fields)?, Entries::read(scale)?);
    scale.retain(|entry| entry.set().contains_fields(&SCALE_REPLICAS));
    let own = FieldSet::of_fields(replicas);
    // Updaters of different versions are different managers, but all entries of a Scale have the version of the Scale.
    let same = |left: &Entry, right: &Entry| {
        left.manager == right.manager && left.operation == right.operation && left.subresource == right.subresource
    };
    entries.retain_mut(|entry| {
        if entry.set().contains_fields(replicas) {
            match scale.iter().position(|owner| same(owner, entry)) {
                Some(kept) => _ = scale.remove(kept),
                None => entry.lose(&own),
            }
        }
        served(&entry.api_version) && !entry.is_empty()
    });
    for mut owner in std::mem::take(&mut *scale) {
        let known = entries.position(&owner.manager, owner.operation, api_version, &owner.subresource);
        match known {
            // If the manager has an entry already, the field is added to that entry.
            Some(position) if owner.operation == Operation::Update || entries[position].api_version == api_version => {
                entries[position].include(own.clone());
            }
            _ => {
                owner.replace(own.clone(), api_version);
                owner.forget_time();
                entries.push(owner);
            }
        }
    }
    entries.write()
}
