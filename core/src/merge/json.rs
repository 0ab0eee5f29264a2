//! The two patch formats that know no schema: JSON merge patch (RFC 7386) and JSON patch (RFC 6902).
//!
//! Limits and texts are those of Kubernetes, whose clients match on them.

use crate::refusal::{BadRequest, PatchFault, Texts, TooLarge, Unmarshal, quoted};
use holdfast_value::{Map, Value};
use std::borrow::Cow;
use std::fmt;
use std::num::{IntErrorKind, ParseIntError};

use crate::Refusal;
use crate::object::meta::{DEPTH_MAX, depth, type_name};

const OPERATIONS_MAX: usize = 10_000;
/// `copy` is the one operation that makes more out of less, so what it copies in all is bounded.
const COPIED_BYTES_MAX: usize = 3 << 20;
/// Ten thousand operations on a list of ten thousand elements stay far below this.
const EFFORT_MAX: usize = 20_000_000;
/// Kubernetes bounds nothing but the count and the copies, and has no text for the rest.
const TOO_MUCH: &str = "the operations ask for too much";

/// A patch of either format from a request's body.
pub fn decode(body: &[u8]) -> Result<Value, Refusal> {
    serde_json::from_slice(body).map_err(|fault| bad_patch(PatchFault::Undecodable(fault.to_string())))
}

/// `original` with a merge patch applied.
pub fn merge_patch(original: Value, patch: Value) -> Result<Value, Refusal> {
    if !patch.is_object() {
        return Err(bad_patch(PatchFault::Unmarshal(Unmarshal::whole(type_name(&patch), Unmarshal::MAP))));
    }
    let mut merged = original;
    merge(&mut merged, patch);
    Ok(merged)
}

/// `original` with the operations of a JSON patch applied one after the other, or not at all.
pub fn json_patch(original: Value, patch: &Value) -> Result<Value, Refusal> {
    let Value::Array(items) = patch else {
        // Go reads null as a list of none.
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

/// The same for those whom Kubernetes tells why a patch does not apply: the authors of webhooks and policies. The members
/// of their operations may be of any type where nobody reads them.
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

/// What stands in the way of a patch, in the words that Kubernetes' library has for it. Clients of the API do not see
/// these, but the authors of webhooks and policies do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// A `test` found something else.
    Test(String),
    Other(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Fault::Test(why) | Fault::Other(why)) = self;
        f.write_str(why)
    }
}

/// A document on its way through the operations of a patch, which are bounded together.
struct Patched {
    document: Value,
    bounds: Bounds,
}

impl Patched {
    fn new(document: Value) -> Patched {
        let bounds = Bounds { depth: depth(&document), copied_bytes: 0, effort: 0 };
        Patched { document, bounds }
    }

    /// Carries out one operation. What it has taken out before it turns out not to apply is not put back.
    ///
    /// Kubernetes' library reads null where a map has no such member. So `replace` adds it, `copy` copies null, and to
    /// test for null passes, which operators count on before they add the first finalizer; the standard wants the member
    /// to exist.
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
            // The library formats an error there that it does not have.
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

    /// The place to move to is looked for once the value is gone from where it was: inside of the value there is none,
    /// and behind it in a list they are counted anew.
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

    /// Puts a value that is so deep where there is room for it.
    fn put(&mut self, place: &Place, value: Value, deepest: usize) -> Result<(), Fault> {
        self.bounds.effort += place.shifted(&self.document);
        self.bounds.deepen(place.steps() + deepest)?;
        place.insert(&mut self.document, value);
        Ok(())
    }

    /// Takes out what is there, if anything is.
    fn pull(&mut self, place: &Place) -> Result<Option<Value>, Fault> {
        self.bounds.effort += place.shifted(&self.document);
        self.bounds.check()?;
        Ok(place.remove(&mut self.document))
    }
}

/// Where an operation is to do something. Some of them tell of any path that cannot be read as if there were none.
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

/// The path itself, without what is before its first slash, which Kubernetes' library passes over.
pub fn from_root(path: &str) -> &str {
    path.find('/').map_or(path, |root| &path[root..])
}

/// How many steps it takes to get to where a path leads.
fn steps(path: &str) -> usize {
    path.matches('/').count()
}

/// A step of a path, as the key that it means.
fn key(step: &str) -> Cow<'_, str> {
    match step.contains('~') {
        true => step.replace("~1", "/").replace("~0", "~").into(),
        false => step.into(),
    }
}

/// The last step of a path, as the key that it means.
fn last_step(path: &str) -> Cow<'_, str> {
    key(path.rsplit('/').next().unwrap_or(""))
}

/// A key as a step of a path, which need not be the one that it was read from: there a `~` may stand for itself.
fn step(key: &str) -> Cow<'_, str> {
    match key.contains(['~', '/']) {
        true => key.replace('~', "~0").replace('/', "~1").into(),
        false => key.into(),
    }
}

fn merge(target: &mut Value, mut patch: Value) {
    let Value::Object(patch) = patch else {
        // Kubernetes' library takes a list for an object's place as it is.
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

/// Takes the nulls out of the objects of a list. Those that are its items stay.
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

/// An operation is an object whose `op`, `path` and `from` are strings when they are there at all.
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

/// Members of operations that none of them has, as strict reading names them.
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

/// The maps and lists that a JSON patch goes through, as maps of maps.
pub fn touched(patch: &Value) -> Value {
    let mut touched = Map::new();
    for operation in patch.as_array().into_iter().flatten() {
        for member in ["path", "from"] {
            let pointer = operation[member].as_str().unwrap_or_default();
            let parts: Vec<&str> = pointer.split('/').skip(1).take(DEPTH_MAX).collect();
            let mut at = &mut touched;
            // The last part is what is put there.
            for part in parts.iter().take(parts.len().saturating_sub(1)) {
                let below = at.entry(part.replace("~1", "/").replace("~0", "~")).or_insert_with(|| Map::new().into());
                let Value::Object(below) = below else { break };
                at = below;
            }
        }
    }
    touched.into()
}

/// Why a path leads to no place.
enum Lost {
    /// What would hold it is not there, or holds nothing.
    Holder,
    /// The list that would hold it has no such place.
    Slot(String),
}

impl Lost {
    /// `without` tells of the holder that is missing, and `at` where there is no place.
    fn fault(self, without: String, at: String) -> Fault {
        Fault::Other(match self {
            Lost::Holder => format!("{without}: missing value"),
            Lost::Slot(why) => format!("{at}: {why}"),
        })
    }
}

/// What a list is to have at the end of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slot {
    /// An element that is there.
    Kept,
    /// Room for one more, which may come after the last.
    New,
}

/// A place in a document that there is: where an element of a list is or comes to be, or a member of a map, be it there
/// or not.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    /// Where what holds it is, in the syntax of RFC 6901.
    holder: String,
    step: Step,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
}

impl Place {
    /// Kubernetes takes more paths than the standard: see `from_root` and `position`, and a `~` may stand for itself.
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

    /// How many elements of a list make room for one there, or close up behind it.
    fn shifted(&self, document: &Value) -> usize {
        // Moving one is far cheaper than looking at it.
        document.pointer(&self.holder).and_then(Value::as_array).map_or(0, |items| items.len() / 8)
    }
}

/// Why nothing is taken out of a map that has no such member.
fn absent(at: &str, path: &str) -> Fault {
    Fault::Other(format!("{at}: Unable to remove nonexistent key: {}: missing value", last_step(path)))
}

/// Which place of a list a step names: Go reads the number, so it may have a sign and zeros before it, and negative ones
/// count from the end. The end is the last element, or behind it where there is to be one more. The standard has one way
/// of writing each index, and none of these.
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

/// What a patch may make of a document, and how much work that may be.
struct Bounds {
    /// The document is no deeper than this.
    depth: usize,
    copied_bytes: usize,
    /// Elements that operations have moved or looked at beyond what they name.
    effort: usize,
}

impl Bounds {
    /// Asked before anything is done that has been counted.
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

    /// Something is to be put into the document that reaches down this far.
    fn deepen(&mut self, depth: usize) -> Result<(), Fault> {
        self.depth = self.depth.max(depth);
        self.check()
    }

    /// How deep the value at `from` is, at most. It is measured only where `steps` to a new place could make it too deep.
    fn depth_at(&mut self, from: &Place, steps: usize, document: &Value) -> usize {
        let fits = |depth: usize| steps + depth.saturating_sub(from.steps()) <= DEPTH_MAX;
        if !fits(self.depth) {
            // Many moves let the estimate grow beyond what is there.
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
