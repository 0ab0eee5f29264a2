//! Server-side apply: merges an applier's configuration into the live document and records which manager owns which
//! field.
//!
//! The configuration contains all fields that the applier sets. A field that the applier applied before and omits now
//! is removed, unless another manager owns it. If the configuration gives a field another value than the live object
//! and another manager owns the field, this is a conflict, unless the apply is forced.

mod kubectl;

use std::collections::BTreeMap;

use holdfast_value::{Map, Value};

use super::field_set::FieldSet;
use super::managed::entry::{Entries, Entry, Operation};
use super::managed::{Writer, managed_fields, set_managed_fields, take_managed_fields};
use super::typed::{Difference, Typed, check, hollow, merge, remove};
use crate::Refusal;
use crate::refusal::{ApplyFault, BadRequest, OwnedFields, Unreasoned};

/// The name of the manager that becomes the owner of the fields that were set before the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

#[derive(Clone, Copy)]
pub struct ApplyRequest<'a> {
    /// The live object; `None` if the apply creates it.
    pub live: Option<&'a Value>,
    pub config: &'a Value,
    /// Whether the applier becomes the owner of fields that other managers own.
    pub force: bool,
    pub writer: Writer<'a>,
}

/// The merged document with its managed fields. If the apply changes nothing, the result equals the live document byte
/// for byte.
pub fn apply(request: ApplyRequest) -> Result<Value, Refusal> {
    let ApplyRequest { live, config, force, writer } = request;
    check_config(config, &writer)?;
    let mut entries = Entries::stored(live.and_then(managed_fields)).unwrap_or_default();
    let read = entries.len();
    let bare = live.map(|live| {
        let mut bare = live.clone();
        take_managed_fields(&mut bare);
        bare
    });
    if let Some(bare) = &bare
        && entries.is_empty()
    {
        entries.extend(owner_before_first_apply(bare, &writer));
    }

    let typed = writer.typed();
    let start = bare.clone().unwrap_or_else(|| Value::Object(Map::new()));
    let mut merged = merge(typed, &start, config);
    keep_server_fields(bare.as_ref(), &mut merged);

    let mut wanted = typed.paths(config);
    writer.strip(&mut wanted);
    let own = entries.position(writer.manager, Operation::Apply, writer.api_version, writer.subresource);
    let last = own.map(|position| entries[position].clone());
    let own = own.unwrap_or_else(|| {
        entries.push(Entry::new(Operation::Apply, &writer));
        entries.len() - 1
    });
    entries[own].replace(wanted, writer.api_version);
    if let Some(last) = last
        && leaves_out(&last, &entries[own])
    {
        merged = prune(merged, &last, &entries, &writer);
    }

    let difference = writer.difference(bare.as_ref(), &merged);
    if !force {
        refuse_conflicts(&entries, own, bare.as_ref(), &merged, &difference, &writer)?;
    }
    // If the apply changes only the ownership of fields and not the object itself, the applier's entry keeps its time.
    if bare.as_ref() != Some(&merged) {
        entries[own].stamp(writer.now);
    }
    entries.disown(bare.as_ref(), &merged, &difference, &writer, Some(own));
    entries.retain(|entry| !entry.is_empty());

    kubectl::update_annotation(&mut merged, config, &writer);
    if bare.as_ref() == Some(&merged)
        && entries.len() == read
        && entries.iter().all(Entry::is_as_read)
        && let Some(live) = live
    {
        return Ok(live.clone());
    }
    if !entries.is_empty() {
        set_managed_fields(&mut merged, entries.write());
    }
    Ok(merged)
}

fn check_config(config: &Value, writer: &Writer) -> Result<(), Refusal> {
    let bad = |fault: ApplyFault| Err(Refusal::BadRequest(BadRequest::Apply(fault)));
    if !config.is_object() {
        return bad(ApplyFault::NotAnObject);
    }
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_string();
    let version = text(config.get("apiVersion"));
    if version != writer.api_version {
        return bad(ApplyFault::OtherVersion { found: version, expected: writer.api_version.to_string() });
    }
    if managed_fields(config).is_some_and(|fields| !fields.is_null()) {
        return bad(ApplyFault::ManagedFields);
    }
    let faults = check(writer.typed(), config);
    if faults.is_empty() {
        return Ok(());
    }
    let (object, kind) = named(config);
    Err(Refusal::Unreasoned(Unreasoned::Untyped { object, kind, faults: faults.into_vec() }))
}

/// The names by which errors show a configuration: its object is `default/web`, its kind is `apps/v1, Kind=Deployment`.
pub fn named(config: &Value) -> (String, String) {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let of_metadata = |name: &str| text(config.get("metadata").and_then(|metadata| metadata.get(name)));
    let version = text(config.get("apiVersion"));
    let group = if version.contains('/') { "" } else { "/" };
    (
        format!("{}/{}", of_metadata("namespace"), of_metadata("name")),
        format!("{group}{version}, Kind={}", text(config.get("kind"))),
    )
}

/// Makes an entry for the fields of a live object that has no managers yet; `None` if it has no such fields. The entry
/// says that [`BEFORE_FIRST_APPLY`] owns the fields by an update, so that conflicts with them are detected.
fn owner_before_first_apply(live: &Value, writer: &Writer) -> Option<Entry<'static>> {
    let writer = Writer { manager: BEFORE_FIRST_APPLY, ..*writer };
    let owned = writer.difference(None, live).changed;
    let mut entry = Entry::new(Operation::Update, &writer);
    entry.gain(owned, writer.now);
    Some(entry).filter(|entry| !entry.is_empty())
}

/// Restores the metadata fields that the server sets, which no configuration can remove.
fn keep_server_fields(live: Option<&Value>, merged: &mut Value) {
    const KEPT: [&str; 6] = ["name", "namespace", "uid", "resourceVersion", "creationTimestamp", "generation"];
    let live_metadata = live.and_then(|live| live.get("metadata"));
    if let Some(metadata) = merged.get_mut("metadata").and_then(Value::as_object_mut) {
        for name in KEPT {
            if let Some(value) = live_metadata.and_then(|metadata| metadata.get(name))
                && !metadata.contains_key(name)
            {
                metadata.insert(name, value.clone());
            }
        }
    }
}

/// Whether the applier may omit fields that it applied last time; if not, no field needs to be removed. Entries in
/// different versions are not compared.
fn leaves_out(last: &Entry, now: &Entry) -> bool {
    if last.api_version != now.api_version {
        return true;
    }
    let mut left_out = last.set().clone();
    left_out.subtract(now.set());
    !left_out.is_empty()
}

/// Removes fields that the applier applied last time (`last`) and that no entry owns now.
fn prune(merged: Value, last: &Entry, entries: &Entries, writer: &Writer) -> Value {
    if last.is_empty() {
        return merged;
    }
    let Some((document, typed)) = writer.in_version(&merged, &last.api_version) else { return merged };
    let last_paths = typed.with_structs(last.set());
    let mut pruned = hollow(typed, &document, &last_paths);
    for (version, owned) in owned_by_version(entries, &last.api_version) {
        pruned = restore_owned(&document, pruned, typed, &last.api_version, version, &owned, writer);
    }
    let mut gone = typed.with_structs(&typed.paths(&document));
    gone.subtract(&typed.with_structs(&typed.paths(&pruned)));
    let gone = gone.intersection(&last_paths);
    if gone.is_empty() {
        return merged;
    }
    let left = remove(typed, &document, &gone);
    if last.api_version == writer.api_version || writer.convert.is_none() {
        return left;
    }
    writer.convert.and_then(|convert| convert(&left, writer.api_version)).map_or(merged, |(left, _)| left)
}

/// Restores in `pruned` the fields of `document` that were removed although they are in `owned`, the fields that
/// entries of the version `version` own.
fn restore_owned(
    document: &Value,
    pruned: Value,
    typed: Typed,
    own_version: &str,
    version: &str,
    owned: &FieldSet,
    writer: &Writer,
) -> Value {
    let convert = writer.convert.filter(|_| version != own_version);
    let Some(convert) = convert else { return put_back(typed, document, &pruned, owned) };
    let (Some((document, typed)), Some((there, _))) =
        (writer.in_version(document, version), writer.in_version(&pruned, version))
    else {
        return pruned;
    };
    let restored = put_back(typed, &document, &there, owned);
    convert(&restored, own_version).map_or(pruned, |(restored, _)| restored)
}

fn put_back(typed: Typed, document: &Value, pruned: &Value, owned: &FieldSet) -> Value {
    let mut gone = typed.with_structs(&typed.paths(document));
    gone.subtract(&typed.with_structs(&typed.paths(pruned)));
    gone.subtract(&typed.with_structs(owned));
    hollow(typed, document, &gone)
}

/// For each version, the fields that entries of this version own. The version `first` comes first: a pruned document
/// may lack fields without which it cannot be converted to other versions.
fn owned_by_version<'e>(entries: &'e Entries, first: &str) -> Vec<(&'e str, FieldSet)> {
    let mut sets: BTreeMap<&str, Vec<FieldSet>> = BTreeMap::new();
    for entry in entries.iter() {
        sets.entry(&entry.api_version).or_default().push(entry.set().clone());
    }
    let mut owned: Vec<_> = sets.into_iter().map(|(version, sets)| (version, FieldSet::union_all(sets))).collect();
    owned.sort_by_key(|(version, _)| *version != first);
    owned
}

fn refuse_conflicts(
    entries: &Entries,
    own: usize,
    live: Option<&Value>,
    merged: &Value,
    difference: &Difference,
    writer: &Writer,
) -> Result<(), Refusal> {
    let mut conflicts: Vec<(&Entry, FieldSet)> = Vec::new();
    // A conversion works on a whole document, so it runs only once for each version.
    let mut changed_elsewhere: BTreeMap<&str, Option<FieldSet>> = BTreeMap::new();
    let changed_in = |version: &str| {
        let old = live.and_then(|live| writer.in_version(live, version));
        let (new, typed) = writer.in_version(merged, version)?;
        Some(typed.difference(old.as_ref().map(|(old, _)| old), &new).changed)
    };
    for (position, entry) in entries.iter().enumerate() {
        if position == own {
            continue;
        }
        let shared = if writer.convert.is_some() && entry.api_version != writer.api_version {
            let changed = changed_elsewhere.entry(&entry.api_version).or_insert_with_key(|version| changed_in(version));
            let Some(changed) = changed else { continue };
            entry.shared(changed)
        } else {
            entry.shared(&difference.changed)
        };
        if !shared.is_empty() {
            conflicts.push((entry, shared));
        }
    }
    kubectl::allow(&mut conflicts, live, writer);
    if conflicts.is_empty() {
        return Ok(());
    }
    conflicts.sort_by_key(|(entry, _)| entry.identifier());
    let owned = conflicts.iter().map(|(entry, set)| OwnedFields { owner: entry.shown(), fields: set.paths() });
    Err(Refusal::ApplyConflict(owned.collect()))
}

#[cfg(test)]
mod tests;
