//! The two patch formats without a schema: JSON merge patch (RFC 7386) and JSON patch (RFC 6902).
//!
//! Limits and messages are the same as in Kubernetes, because clients compare messages.

use crate::refusal::{BadRequest, PatchFault, Texts, TooLarge, Unmarshal, quoted};
use holdfast_value::{Map, Value};
use std::borrow::Cow;
use std::fmt;
use std::num::{IntErrorKind, ParseIntError};

use crate::Refusal;
use crate::object::meta::{DEPTH_MAX, depth, type_name};

const OPERATIONS_MAX: usize = 10_000;
/// The maximum number of bytes that all `copy` operations of a patch add. Only `copy` lets a document grow by more than
/// the size of the patch.
const COPIED_BYTES_MAX: usize = 3 << 20;
/// The maximum effort of a patch (see [`Bounds::effort`]). Ten thousand insertions into a list of ten thousand elements
/// stay below it.
const EFFORT_MAX: usize = 20_000_000;
/// The message for a patch above [`EFFORT_MAX`]. Kubernetes has no such limit, so it has no such message.
const TOO_MUCH: &str = "the operations of the patch take too much work: send fewer operations at once";

/// Decodes a patch of either format from a request body.
pub fn decode(body: &[u8]) -> Result<Value, Refusal> {
    serde_json::from_slice(body).map_err(|fault| bad_patch(PatchFault::Undecodable(fault.to_string())))
}

/// Applies a merge patch to `original`.
pub fn merge_patch(original: Value, patch: Value) -> Result<Value, Refusal> {
    if !patch.is_object() {
        return Err(bad_patch(PatchFault::Unmarshal(Unmarshal::whole(type_name(&patch), Unmarshal::MAP))));
    }
    let mut merged = original;
    merge(&mut merged, patch);
    Ok(merged)
}

/// Applies all operations of a JSON patch to `original`, in order.
pub fn json_patch(original: Value, patch: &Value) -> Result<Value, Refusal> {
    let Value::Array(items) = patch else {
        // As in Go, a JSON patch that is null is an empty list of operations.
        if patch.is_null() {
            return Ok(original);
        }
        let fault = Unmarshal::whole(type_name(patch), "[]handlers.jsonPatchOp");
        return Err(bad_patch(PatchFault::Unmarshal(fault)));
    };
    for item in items {
        check_form(item)?;
    }
    check_count(items)?;
    operate(original, items).map_err(|_| does_not_apply())
}

/// Like [`json_patch`], with Kubernetes' detailed errors, which authors of webhooks and policies get. Unused members of
/// operations may have any type.
pub fn patched(original: Value, patch: &Value) -> Result<Value, Fault> {
    let items = patch.as_array().map_or(&[][..], Vec::as_slice);
    check_count(items).map_err(|refusal| Fault::Other(refusal.message()))?;
    operate(original, items)
}

fn check_count(items: &[Value]) -> Result<(), Refusal> {
    let (found, count_max) = (items.len(), OPERATIONS_MAX);
    if found > count_max {
        return Err(Refusal::TooLarge(TooLarge::PatchOperations { found, count_max }));
    }
    Ok(())
}

fn operate(original: Value, items: &[Value]) -> Result<Value, Fault> {
    let mut patched = Patched::new(original);
    for item in items {
        patched.take(item)?;
    }
    if patched.document.is_object() {
        return Ok(patched.document);
    }
    Err(Fault::Other("the operations leave no object".into()))
}

/// The reason why a patch cannot be applied, in the words of Kubernetes' library. Only authors of webhooks and policies
/// get these messages; API clients do not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The value that a `test` operation requires is not there.
    Test(String),
    Other(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Fault::Test(why) | Fault::Other(why)) = self;
        f.write_str(why)
    }
}

/// A document that is being patched, with limits for all operations together.
struct Patched {
    document: Value,
    bounds: Bounds,
}

impl Patched {
    fn new(document: Value) -> Patched {
        let bounds = Bounds { depth: depth(&document), copied_bytes: 0, effort: 0 };
        Patched { document, bounds }
    }

    /// Applies one operation. If it fails, the document may be incomplete.
    ///
    /// As in Kubernetes' library, a map member that is missing reads as null. So `replace` adds the member, `copy`
    /// copies null, and a `test` for null succeeds: operators test for null before they add the first finalizer. The
    /// RFC requires the member to exist.
    fn take(&mut self, item: &Value) -> Result<(), Fault> {
        match item["op"].as_str().unwrap_or("unknown") {
            "add" => self.add(item),
            "remove" => self.remove(item),
            "replace" => self.replace(item),
            "move" => self.relocate(item),
            "copy" => self.copy(item),
            "test" => self.test(item),
            unknown => Err(Fault::Other(format!("Unexpected kind: {unknown}"))),
        }
    }

    fn add(&mut self, item: &Value) -> Result<(), Fault> {
        let path = path(item, "add")?;
        let place = Place::find(&self.document, path, Slot::New).map_err(|lost| {
            lost.fault(
                format!("add operation does not apply: doc is missing path: \"{path}\""),
                format!("error in add for path: '{path}'"),
            )
        })?;
        let value = item["value"].clone();
        let deepest = depth(&value);
        self.put(&place, value, deepest)
    }

    fn remove(&mut self, item: &Value) -> Result<(), Fault> {
        let path = path(item, "remove")?;
        let place = Place::find(&self.document, path, Slot::Kept).map_err(|lost| {
            lost.fault(
                format!("remove operation does not apply: doc is missing path: \"{path}\""),
                format!("error in remove for path: '{path}'"),
            )
        })?;
        let removed = self.pull(&place)?;
        removed.map(|_| ()).ok_or_else(|| absent(&format!("error in remove for path: '{path}'"), path))
    }

    fn replace(&mut self, item: &Value) -> Result<(), Fault> {
        let (path, value) = (path(item, "replace")?, item["value"].clone());
        let place = match path {
            // Kubernetes' library formats a nil error here, so the message ends with this text.
            "" if !value.is_object() && !value.is_array() => {
                let why = "replace operation value must be object or array: %!w(<nil>)";
                return Err(Fault::Other(why.into()));
            }
            "" => None,
            path => Some(Place::find(&self.document, path, Slot::Kept).map_err(|lost| {
                let missing = |what: &str| {
                    format!("replace operation does not apply: doc is missing {what}: {path}: missing value")
                };
                Fault::Other(match lost {
                    Lost::Holder => missing("path"),
                    Lost::Slot(_) => missing("key"),
                })
            })?),
        };
        self.bounds.deepen(steps(path) + depth(&value))?;
        match place {
            Some(place) => place.set(&mut self.document, value),
            None => self.document = value,
        }
        Ok(())
    }

    /// Moves a value. The target is looked up after the value has been removed. So the target cannot be inside the
    /// value, and the indexes of later list elements are one less.
    fn relocate(&mut self, item: &Value) -> Result<(), Fault> {
        let from = from(item, "move")?;
        let at = || format!("error in move for path: '{}'", last_step(from));
        let source = Place::find(&self.document, from, Slot::Kept).map_err(|lost| {
            lost.fault(format!("move operation does not apply: doc is missing from path: {from}"), at())
        })?;
        let steps = item["path"].as_str().map_or(0, steps);
        let deepest = self.bounds.depth_at(&source, steps, &self.document);
        let value = self.pull(&source)?.ok_or_else(|| absent(&at(), from))?;
        let path = path(item, "move")?;
        let place = Place::find(&self.document, path, Slot::New).map_err(|lost| {
            lost.fault(
                format!("move operation does not apply: doc is missing destination path: {path}"),
                format!("error in move for path: '{path}'"),
            )
        })?;
        self.put(&place, value, deepest)
    }

    fn copy(&mut self, item: &Value) -> Result<(), Fault> {
        let from = from(item, "copy")?;
        let source = Place::find(&self.document, from, Slot::Kept).map_err(|lost| {
            lost.fault(
                format!("copy operation does not apply: doc is missing from path: {from}"),
                format!("error in copy for from: '{from}'"),
            )
        })?;
        let path = path(item, "copy")?;
        let place = Place::find(&self.document, path, Slot::New).map_err(|lost| {
            lost.fault(
                format!("copy operation does not apply: doc is missing destination path: {path}"),
                "error while adding value during copy".into(),
            )
        })?;
        let Some(value) = source.get(&self.document) else { return self.put(&place, Value::Null, 0) };
        self.bounds.copy(value.to_string().len())?;
        let value = value.clone();
        let deepest = self.bounds.depth_at(&source, place.steps(), &self.document);
        self.put(&place, value, deepest)
    }

    fn test(&self, item: &Value) -> Result<(), Fault> {
        let path = path(item, "test")?;
        let found = match path {
            "" => &self.document,
            path => Place::find(&self.document, path, Slot::Kept)
                .map_err(|lost| {
                    lost.fault(
                        format!("test operation does not apply: is missing path: {path}"),
                        format!("error in test for path: '{path}'"),
                    )
                })?
                .get(&self.document)
                .unwrap_or(&Value::Null),
        };
        if *found == item["value"] {
            return Ok(());
        }
        Err(Fault::Test(format!("testing value {path} failed: test failed")))
    }

    /// Inserts a value that has `deepest` nested levels, if the document then stays within the limits.
    fn put(&mut self, place: &Place, value: Value, deepest: usize) -> Result<(), Fault> {
        self.bounds.effort += place.shifted(&self.document);
        self.bounds.deepen(place.steps() + deepest)?;
        place.insert(&mut self.document, value);
        Ok(())
    }

    /// Removes a value, and returns it if it existed.
    fn pull(&mut self, place: &Place) -> Result<Option<Value>, Fault> {
        self.bounds.effort += place.shifted(&self.document);
        self.bounds.check()?;
        Ok(place.remove(&mut self.document))
    }
}

/// The path of an operation. For some operations Kubernetes reports an invalid path as a missing path.
fn path<'a>(item: &'a Value, operation: &str) -> Result<&'a str, Fault> {
    text(&item["path"], "operation missing path field: missing value").map_err(|why| {
        let why = if matches!(operation, "add" | "remove" | "copy") { "missing value" } else { &why };
        Fault::Other(format!("{operation} operation failed to decode path: {why}"))
    })
}

fn from<'a>(item: &'a Value, operation: &str) -> Result<&'a str, Fault> {
    text(&item["from"], "operation, missing from field: missing value")
        .map_err(|why| Fault::Other(format!("{operation} operation failed to decode from: {why}")))
}

fn text<'a>(member: &'a Value, missing: &str) -> Result<&'a str, String> {
    match member {
        Value::String(text) => Ok(text),
        Value::Null => Err(missing.into()),
        other => Err(Unmarshal::whole(type_name(other), "string").to_string()),
    }
}

/// The part of a path that begins with the first slash. Kubernetes' library ignores the text before it.
pub fn from_root(path: &str) -> &str {
    path.find('/').map_or(path, |root| &path[root..])
}

/// The number of steps in a path: 2 in `/spec/replicas`.
fn steps(path: &str) -> usize {
    path.matches('/').count()
}

/// The key that a step of a path means: `~1` means `/`, and `~0` means `~`.
fn key(step: &str) -> Cow<'_, str> {
    match step.contains('~') {
        true => step.replace("~1", "/").replace("~0", "~").into(),
        false => step.into(),
    }
}

/// The key that the last step of a path means.
fn last_step(path: &str) -> Cow<'_, str> {
    key(path.rsplit('/').next().unwrap_or(""))
}

/// Writes a key as a step of a path. The step may differ from the step from which the key was parsed, because a step
/// may also contain a bare `~`.
fn step(key: &str) -> Cow<'_, str> {
    match key.contains(['~', '/']) {
        true => key.replace('~', "~0").replace('/', "~1").into(),
        false => key.into(),
    }
}

fn merge(target: &mut Value, mut patch: Value) {
    let Value::Object(patch) = patch else {
        // Kubernetes' library accepts a list as a replacement for an object.
        if !target.is_object() {
            drop_null_members(&mut patch);
        }
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return };
    for (key, change) in patch {
        if change.is_null() {
            target.remove(&key);
        } else {
            merge(target.entry(key).or_insert(Value::Null), change);
        }
    }
}

/// Removes null members from objects in a list. Null items stay.
fn drop_null_members(value: &mut Value) {
    match value {
        Value::Object(members) => members.retain(|_, member| {
            drop_null_members(member);
            !member.is_null()
        }),
        Value::Array(items) => items.iter_mut().for_each(drop_null_members),
        _ => {}
    }
}

/// Checks that an operation is an object, and that its `op`, `path` and `from` are strings if they are present.
fn check_form(item: &Value) -> Result<(), Refusal> {
    let Value::Object(fields) = item else {
        if item.is_null() {
            return Ok(());
        }
        let fault = Unmarshal::whole(type_name(item), "handlers.jsonPatchOp");
        return Err(bad_patch(PatchFault::Unmarshal(fault)));
    };
    for (name, field) in [("op", "jsonPatchOp.op"), ("path", "jsonPatchOp.path"), ("from", "jsonPatchOp.from")] {
        if let Some(value) = fields.get(name).filter(|value| !value.is_string() && !value.is_null()) {
            let fault = Unmarshal { found: type_name(value), field, expected: "string" };
            return Err(bad_patch(PatchFault::Unmarshal(fault)));
        }
    }
    Ok(())
}

/// The unknown members of operations, as messages of strict decoding name them.
pub fn unknown_members(patch: &Value) -> Texts {
    let mut unknown = Texts::default();
    for (position, item) in patch.as_array().into_iter().flatten().enumerate() {
        for name in item.as_object().into_iter().flat_map(Map::keys) {
            if !matches!(name.as_str(), "op" | "path" | "from" | "value") {
                unknown.push_with(|| format!("unknown field \"[{position}].{name}\""));
            }
        }
    }
    unknown
}

/// The maps and lists through which the paths of a JSON patch lead, as maps inside maps.
pub fn touched(patch: &Value) -> Value {
    let mut touched = Map::new();
    for operation in patch.as_array().into_iter().flatten() {
        for member in ["path", "from"] {
            let pointer = operation[member].as_str().unwrap_or_default();
            let parts: Vec<&str> = pointer.split('/').skip(1).take(DEPTH_MAX).collect();
            let mut at = &mut touched;
            // The last step of a path is the name of the changed value, not of a map or list that contains the value.
            for part in parts.iter().take(parts.len().saturating_sub(1)) {
                let below = at.entry(part.replace("~1", "/").replace("~0", "~")).or_insert_with(|| Map::new().into());
                let Value::Object(below) = below else { break };
                at = below;
            }
        }
    }
    touched.into()
}

/// The reason why a path does not lead to a value.
enum Lost {
    /// The map or list that should contain the value does not exist, or the path leads into a scalar.
    Holder,
    /// The list has no element with this index.
    Slot(String),
}

impl Lost {
    /// The fault's message. `without` is the text if the container is missing, `at` is the text if the list has no such
    /// index.
    fn fault(self, without: String, at: String) -> Fault {
        Fault::Other(match self {
            Lost::Holder => format!("{without}: missing value"),
            Lost::Slot(why) => format!("{at}: {why}"),
        })
    }
}

/// The kind of list index that an operation needs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slot {
    /// The operation needs the index of an existing element.
    Kept,
    /// The index for a new element, which may be the one after the last element.
    New,
}

/// A valid position in a document: an existing or new list element, or a map member, which may be missing.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    /// The path of the container, in the syntax of RFC 6901.
    holder: String,
    step: Step,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
}

impl Place {
    /// Finds a position. Kubernetes accepts more paths than the RFC: see [`from_root`] and [`position`]. A bare `~` is
    /// allowed.
    fn find(document: &Value, path: &str, slot: Slot) -> Result<Place, Lost> {
        let (_, steps) = path.split_once('/').ok_or(Lost::Holder)?;
        let (holders, last) = steps.rsplit_once('/').map_or((None, steps), |(holders, last)| (Some(holders), last));
        let mut holder = String::with_capacity(path.len());
        let mut here = document;
        for step in holders.into_iter().flat_map(|holders| holders.split('/')) {
            let key = key(step);
            let next = match here {
                Value::Object(fields) => {
                    holder.push('/');
                    holder.push_str(&self::step(&key));
                    fields.get(key.as_ref())
                }
                Value::Array(items) => position(&key, items.len(), Slot::Kept).ok().and_then(|index| {
                    holder.push_str(&format!("/{index}"));
                    items.get(index)
                }),
                _ => None,
            };
            here = next.ok_or(Lost::Holder)?;
        }
        let step = match here {
            Value::Object(_) => Step::Key(key(last).into()),
            Value::Array(items) => Step::Index(position(&key(last), items.len(), slot).map_err(Lost::Slot)?),
            _ => return Err(Lost::Holder),
        };
        Ok(Place { holder, step })
    }

    fn steps(&self) -> usize {
        steps(&self.holder) + 1
    }

    fn get<'a>(&self, document: &'a Value) -> Option<&'a Value> {
        match (document.pointer(&self.holder)?, &self.step) {
            (Value::Object(fields), Step::Key(key)) => fields.get(key),
            (Value::Array(items), Step::Index(index)) => items.get(*index),
            _ => None,
        }
    }

    fn insert(&self, document: &mut Value, value: Value) {
        match (document.pointer_mut(&self.holder), &self.step) {
            (Some(Value::Object(fields)), Step::Key(key)) => _ = fields.insert(key.clone(), value),
            (Some(Value::Array(items)), Step::Index(index)) => items.insert(*index, value),
            _ => {}
        }
    }

    fn set(&self, document: &mut Value, value: Value) {
        match (document.pointer_mut(&self.holder), &self.step) {
            (Some(Value::Object(fields)), Step::Key(key)) => _ = fields.insert(key.clone(), value),
            (Some(Value::Array(items)), Step::Index(index)) => items[*index] = value,
            _ => {}
        }
    }

    fn remove(&self, document: &mut Value) -> Option<Value> {
        match (document.pointer_mut(&self.holder)?, &self.step) {
            (Value::Object(fields), Step::Key(key)) => fields.remove(key),
            (Value::Array(items), Step::Index(index)) => Some(items.remove(*index)),
            _ => None,
        }
    }

    /// The effort of moving the list elements after this position when an element is inserted or removed.
    fn shifted(&self, document: &Value) -> usize {
        // Moving an element costs far less than examining it, so eight moved elements count as one examined element.
        document.pointer(&self.holder).and_then(Value::as_array).map_or(0, |items| items.len() / 8)
    }
}

/// The fault of an operation that would remove a map member that does not exist.
fn absent(at: &str, path: &str) -> Fault {
    Fault::Other(format!("{at}: Unable to remove nonexistent key: {}: missing value", last_step(path)))
}

/// The list index that a step means. Kubernetes parses the step as a Go number, which may have a sign and leading
/// zeros. Negative indexes count from the end: -1 is the last element, or the position after it for an insertion. The
/// RFC allows none of these forms.
fn position(step: &str, count: usize, slot: Slot) -> Result<usize, String> {
    let is_new = slot == Slot::New;
    if is_new && step == "-" {
        return Ok(count);
    }
    let places = if is_new { count + 1 } else { count };
    let index: i64 = step.parse().map_err(|fault: ParseIntError| {
        let fault = match fault.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        let why = format!("strconv.Atoi: parsing {}: {fault}", quoted(step));
        if is_new { format!("value was not a proper array index: '{step}': {why}") } else { why }
    })?;
    let distance = usize::try_from(index.unsigned_abs()).ok();
    let found = match index {
        0.. => distance.filter(|distance| *distance < places),
        _ => distance.and_then(|distance| places.checked_sub(distance)),
    };
    found.ok_or_else(|| format!("Unable to access invalid index: {index}: invalid index referenced"))
}

/// Limits the growth of a document, and the work of the patch that is applied to it.
struct Bounds {
    /// An upper bound of the number of levels in the document.
    depth: usize,
    copied_bytes: usize,
    /// The number of elements that operations moved or examined. The elements that operations name do not count.
    effort: usize,
}

impl Bounds {
    /// Checks the limits. It must be called after counting work and before doing the work.
    fn check(&self) -> Result<(), Fault> {
        match self.depth <= DEPTH_MAX && self.effort <= EFFORT_MAX {
            true => Ok(()),
            false => Err(Fault::Other(TOO_MUCH.into())),
        }
    }

    fn copy(&mut self, bytes: usize) -> Result<(), Fault> {
        self.copied_bytes += bytes;
        if self.copied_bytes <= COPIED_BYTES_MAX {
            return Ok(());
        }
        Err(Fault::Other(format!(
            "Unable to complete the copy, the accumulated size increase of copy is {}, exceeding the limit {COPIED_BYTES_MAX}",
            self.copied_bytes
        )))
    }

    /// Raises the bound of the depth for a value that will be inserted, and checks the limits.
    fn deepen(&mut self, depth: usize) -> Result<(), Fault> {
        self.depth = self.depth.max(depth);
        self.check()
    }

    /// An upper bound of the depth of the value at `from`. The depth is measured only if moving the value to a path of
    /// `steps` steps might exceed the limit.
    fn depth_at(&mut self, from: &Place, steps: usize, document: &Value) -> usize {
        let fits = |depth: usize| steps + depth.saturating_sub(from.steps()) <= DEPTH_MAX;
        if !fits(self.depth) {
            // After many moves the bound may be far above the real depth, so the real depth is measured again.
            self.effort += count(document);
            self.depth = depth(document);
        }
        if fits(self.depth) {
            return self.depth.saturating_sub(from.steps());
        }
        from.get(document).map_or(0, depth)
    }
}

fn count(value: &Value) -> usize {
    match value {
        Value::Object(map) => 1 + map.values().map(count).sum::<usize>(),
        Value::Array(items) => 1 + items.iter().map(count).sum::<usize>(),
        _ => 1,
    }
}

pub fn bad_patch(fault: PatchFault) -> Refusal {
    Refusal::BadRequest(BadRequest::Patch(fault))
}

pub(super) fn does_not_apply() -> Refusal {
    Refusal::Unprocessable
}

#[cfg(test)]
mod tests;
