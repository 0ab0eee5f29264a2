//! Managed fields on create, update and patch. The writer becomes the owner of the fields that it changes, with the
//! operation `Update`.
//!
//! Apply is in [`super::apply`]. Both modules read and write `metadata.managedFields` through [`entry`].

pub(super) mod entry;
mod scale;

pub use scale::{scale_entries, with_scale_entries};

use std::collections::BTreeMap;

use holdfast_value::{Map, Value};

use super::field_set::FieldSet;
use super::typed::{Difference, Typed};
use crate::object::meta::{Document, metadata, metadata_mut};
use crate::refusal::{Cause, Causes};
use crate::schema::layout::Layout;
use entry::{Entries, Entry, Operation};

const MANAGER_BYTES_MAX: usize = 128;

/// The manager that makes a write, with the time, the version and the schema of the write.
#[derive(Clone, Copy)]
pub struct Writer<'a> {
    pub layout: Layout<'a>,
    /// The version of the request: `apps/v1`.
    pub api_version: &'a str,
    pub manager: &'a str,
    /// The subresource through which the manager writes; empty for the object itself.
    pub subresource: &'a str,
    /// The time of the write in RFC 3339, in UTC with whole seconds.
    pub now: &'a str,
    /// Paths that the endpoint resets to their old values, such as `status` for the object itself. The writer does not
    /// become the owner of these fields.
    pub reset: &'a [&'a [&'a str]],
    /// Converts documents to other versions of their kind. Without it (`None`) all versions count as one.
    pub convert: Option<&'a Convert<'a>>,
}

/// Converts a document to the given version and returns it with the version's schema; `None` if the version is no
/// longer served.
pub type Convert<'a> = dyn Fn(&Value, &str) -> Option<(Value, Layout<'a>)> + 'a;

/// Updates `metadata.managedFields` of `new` after a write that replaces `old`, or that creates the object if `old` is
/// `None`.
///
/// If the client sends a valid list of managers with the object itself, the client's list counts; otherwise the old
/// list counts. On an existing object an empty list, or a list of one empty entry, turns tracking off. On a custom
/// object only the empty entry does so. A changed keyed list with an element that lacks its keys also turns tracking
/// off.
pub fn track_update(old: Option<&Value>, new: &mut Value, writer: &Writer) {
    let sent = take_managed_fields(new);
    let live = old.and_then(managed_fields);
    // As in Kubernetes, an empty list on a custom object counts as absent.
    let says_nothing = |sent: &Value| writer.layout.message().is_none() && sent.as_array().is_some_and(Vec::is_empty);
    let is_reset =
        writer.subresource.is_empty() && sent.as_ref().is_some_and(|sent| is_reset(sent) && !says_nothing(sent));
    if is_reset && old.is_some() {
        return;
    }
    let difference = writer.difference(old, new);
    if difference.keyless {
        return;
    }
    // Most clients send the list of managers as they read it, or send no list.
    let says_nothing_new = sent.as_ref() == live;
    if difference.is_empty() && says_nothing_new {
        set_managed_fields(new, sent);
        return;
    }
    let sent = sent.filter(|_| writer.subresource.is_empty() && !says_nothing_new);
    let entries = Entries::read(sent.as_ref()).filter(|entries| !entries.is_empty());
    let mut entries = entries.unwrap_or_else(|| Entries::stored(live).unwrap_or_default());
    if entries.is_empty() && old.is_some() {
        return;
    }
    if !difference.is_empty() {
        let own = entries.position(writer.manager, Operation::Update, writer.api_version, writer.subresource);
        let own = own.map(|position| entries.remove(position));
        entries.disown(old, new, &difference, writer, None);
        entries.extend(own_after(own, difference, writer));
        entries.cap();
    }
    set_managed_fields(new, entries.write());
}

/// The writer's entry after a write. If the writer already owned all changed fields, the entry's `fieldsV1` are not
/// parsed.
fn own_after<'v>(own: Option<Entry<'v>>, difference: Difference, writer: &Writer) -> Option<Entry<'v>> {
    let mut own = own;
    if let Some(entry) = &mut own {
        entry.lose(&difference.removed);
    }
    if difference.changed.is_empty() {
        return own.filter(|entry| !entry.is_empty());
    }
    let mut entry = own.unwrap_or_else(|| Entry::new(Operation::Update, writer));
    entry.gain(difference.changed, writer.now);
    Some(entry)
}

/// The faults of the value of the request's parameter `fieldManager`.
pub fn field_manager_faults(manager: &str, is_apply: bool) -> Causes {
    let mut causes = Causes::default();
    if is_apply && manager.is_empty() {
        causes.push(Cause::required("fieldManager", "is required for apply patch"));
    }
    if manager.len() > MANAGER_BYTES_MAX {
        causes.push(Cause::too_long("fieldManager", MANAGER_BYTES_MAX));
    }
    for (position, character) in manager.char_indices() {
        if !is_printable(character) {
            let detail = format!("invalid character U+{:04X} (at position {position})", u32::from(character));
            causes.push(Cause::invalid("fieldManager", &Value::from(manager), &detail));
        }
    }
    causes
}

/// The reason why a client's `managedFields` cannot be read; `None` if the list is valid or absent.
pub fn fault(fields: &Value) -> Option<String> {
    Entries::fault(fields)
}

/// If the managed fields of `new` differ from those of `old` only in times, restores the old times, so that the write
/// changes nothing.
///
/// Apply compares values before they are normalized (`1000m` becomes `1`), so it may have set a new time although the
/// normalized object is unchanged.
pub fn keep_times(old: &Document, new: &mut Document) {
    let timeless = |fields: Option<&Value>| -> Vec<Map> {
        let entries = fields.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object);
        let mut entries: Vec<_> = entries.cloned().collect();
        entries.iter_mut().for_each(|entry| _ = entry.remove("time"));
        entries.sort_by_cached_key(|entry| Value::Object(entry.clone()).to_string());
        entries
    };
    let (old_meta, new_meta) = (metadata(old), metadata(new));
    let (old_fields, new_fields) = (old_meta.get("managedFields"), new_meta.get("managedFields"));
    if old_fields == new_fields || old_fields.is_none() || new_fields.is_none() {
        return;
    }
    let same = |old: &Document, new: &Document, apart: &[&str]| {
        let rest = |document: &Document| document.iter().filter(|(name, _)| !apart.contains(&name.as_str())).count();
        rest(old) == rest(new)
            && new.iter().all(|(name, value)| apart.contains(&name.as_str()) || old.get(name) == Some(value))
    };
    // Most writes change the object. Cheap comparisons find this out before the costly comparison of the entries.
    if same(old, new, &["metadata"])
        && same(old_meta, new_meta, &["managedFields", "resourceVersion"])
        && timeless(old_fields) == timeless(new_fields)
        && let Some(fields) = old_fields.cloned()
    {
        metadata_mut(new).insert("managedFields", fields);
    }
}

impl<'a> Writer<'a> {
    pub(super) fn typed(&self) -> Typed<'a> {
        Typed::new(self.layout)
    }

    /// The difference between the documents in the request's version, without fields that managers cannot own.
    pub(super) fn difference(&self, old: Option<&Value>, new: &Value) -> Difference {
        let mut difference = self.typed().difference(old, new);
        for set in [&mut difference.changed, &mut difference.removed] {
            self.strip(set);
        }
        difference
    }

    /// Removes from the set the fields that identify the object, that only the server sets, or that the endpoint
    /// resets.
    pub(super) fn strip(&self, set: &mut FieldSet) {
        const SERVER_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];
        const SERVER_METADATA: [&str; 9] = [
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
        ];
        if set.is_empty() {
            return;
        }
        set.remove_members("metadata", &SERVER_METADATA);
        for field in SERVER_FIELDS {
            set.remove_member(&[field]);
        }
        for path in self.reset {
            set.remove_tree(path);
        }
    }

    /// The document in another version; `None` if that version is no longer served.
    pub(super) fn in_version(&self, document: &Value, version: &str) -> Option<(Value, Typed<'a>)> {
        match self.convert {
            Some(convert) if document.get("apiVersion").and_then(Value::as_str) != Some(version) => {
                let (document, layout) = convert(document, version)?;
                Some((document, Typed::new(layout)))
            }
            _ => Some((document.clone(), self.typed())),
        }
    }
}

impl Entries<'_> {
    /// Removes changed and deleted fields from all entries except the entry at `own`.
    ///
    /// An entry of another version is compared in its own version. It is dropped if that version is no longer served.
    pub(super) fn disown(
        &mut self,
        old: Option<&Value>,
        new: &Value,
        difference: &Difference,
        writer: &Writer,
        own: Option<usize>,
    ) {
        let mut touched: Option<FieldSet> = None;
        // A conversion works on a whole document, so it runs only once for each version.
        let mut touched_elsewhere: BTreeMap<String, Option<FieldSet>> = BTreeMap::new();
        let mut position = 0;
        self.retain_mut(|entry| {
            let is_own = own == Some(position);
            position += 1;
            if is_own {
                return true;
            }
            if writer.convert.is_some() && entry.api_version != writer.api_version {
                if !touched_elsewhere.contains_key(&*entry.api_version) {
                    let other = writer.touched_in(old, new, &entry.api_version);
                    touched_elsewhere.insert(entry.api_version.to_string(), other);
                }
                let Some(Some(other)) = touched_elsewhere.get(&*entry.api_version) else { return false };
                entry.lose(other);
            } else {
                let touched = touched.get_or_insert_with(|| {
                    let mut touched = difference.changed.clone();
                    touched.union(difference.removed.clone());
                    touched
                });
                entry.lose(touched);
            }
            !entry.is_empty()
        });
    }
}

impl Writer<'_> {
    fn touched_in(&self, old: Option<&Value>, new: &Value, version: &str) -> Option<FieldSet> {
        let old = match old {
            Some(old) => Some(self.in_version(old, version)?.0),
            None => None,
        };
        let (new, typed) = self.in_version(new, version)?;
        let mut difference = typed.difference(old.as_ref(), &new);
        difference.changed.union(difference.removed);
        self.strip(&mut difference.changed);
        Some(difference.changed)
    }
}

pub(super) fn managed_fields(document: &Value) -> Option<&Value> {
    document.get("metadata")?.get("managedFields")
}

pub(super) fn take_managed_fields(document: &mut Value) -> Option<Value> {
    document.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

pub(super) fn set_managed_fields(document: &mut Value, fields: Option<Value>) {
    if let Some(metadata) = document.get_mut("metadata").and_then(Value::as_object_mut)
        && let Some(fields) = fields.filter(|fields| fields.as_array().is_some_and(|list| !list.is_empty()))
    {
        metadata.insert("managedFields", fields);
    }
}

/// Whether Go counts the character as printable: a letter, mark, number, punctuation, symbol, or the plain space.
fn is_printable(character: char) -> bool {
    let is_format = matches!(character, '\u{ad}' | '\u{600}'..='\u{605}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{e000}'..='\u{f8ff}' | '\u{feff}' | '\u{e0000}'..);
    character == ' ' || !(character.is_control() || character.is_whitespace() || is_format)
}

/// Whether the client turns managed fields off for this object, by `[]` or `[{}]`.
fn is_reset(sent: &Value) -> bool {
    match sent.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([Value::Object(entry)]) => entry.values().all(|value| value.is_null() || value.as_str() == Some("")),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
