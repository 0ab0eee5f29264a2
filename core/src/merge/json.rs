//! The two patch formats that know no schema: JSON merge patch (RFC 7386) and JSON patch (RFC 6902).
//!
//! Limits and texts are those of Kubernetes, whose clients match on them.

use crate::refusal::{BadRequest, PatchFault, TooLarge, Unmarshal};
use holdfast_value::{Map, Value};
use std::fmt;

use crate::Refusal;
use crate::object::decode::has_room;
use crate::object::meta::{DEPTH_MAX, depth, type_name};

const OPERATIONS_MAX: usize = 10_000;
/// `copy` is the one operation that makes more out of less, so what it copies in all is bounded.
const COPIED_BYTES_MAX: usize = 3 << 20;
/// Ten thousand operations on a list of ten thousand elements stay far below this.
const EFFORT_MAX: usize = 20_000_000;

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
        let fault = Unmarshal::whole(type_name(patch), "[]handlers.jsonPatchOp");
        return Err(bad_patch(PatchFault::Unmarshal(fault)));
    };
    for item in items {
        check_form(item)?;
    }
    if items.len() > OPERATIONS_MAX {
        let (found, count_max) = (items.len(), OPERATIONS_MAX);
        return Err(Refusal::TooLarge(TooLarge::PatchOperations { found, count_max }));
    }
    let mut patched = Patched::new(original);
    for item in items {
        patched.take(item).ok_or_else(does_not_apply)?;
    }
    if patched.document.is_object() { Ok(patched.document) } else { Err(does_not_apply()) }
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

    /// Carries out one operation, if it can be.
    fn take(&mut self, item: &Value) -> Option<()> {
        let operation = operation(item, &self.document)?;
        if !self.bounds.allow(&operation, &self.document) {
            return None;
        }
        if finds_nothing(&operation, &self.document) {
            return Some(());
        }
        operation.apply(&mut self.document)
    }
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

/// The first fault of a patch that does not apply, if it can be told.
pub fn fault(original: &Value, patch: &Value) -> Option<Fault> {
    let mut patched = Patched::new(original.clone());
    for item in patch.as_array()?.iter().take(OPERATIONS_MAX) {
        if let Some(fault) = fault_of(&patched.document, item) {
            return Some(fault);
        }
        patched.take(item)?;
    }
    None
}

fn fault_of(document: &Value, item: &Value) -> Option<Fault> {
    let text = |field: &str| item[field].as_str().unwrap_or("");
    let (name, path) = (text("op"), text("path"));
    if name == "test" {
        let differs = document.pointer(path) != Some(&item["value"]);
        return differs.then(|| Fault::Test(format!("testing value {path} failed: test failed")));
    }
    let holder = |path: &str| document.pointer(path.rsplit_once('/').map_or("", |(holder, _)| holder));
    let no_path =
        |what: String| Some(Fault::Other(format!("{name} operation does not apply: doc is {what}: missing value")));
    let why = match name {
        "add" => match holder(path) {
            None => return no_path(format!("missing path: \"{path}\"")),
            Some(Value::Array(items)) => format!("error in add for path: '{path}': {}", no_place(items, path, true)?),
            Some(_) => return None,
        },
        "remove" => match holder(path) {
            None => return no_path(format!("missing path: \"{path}\"")),
            Some(Value::Array(items)) => {
                format!("error in remove for path: '{path}': {}", no_place(items, path, false)?)
            }
            Some(holder) => {
                let key = missing_key(holder, path)?;
                format!("error in remove for path: '{path}': Unable to remove nonexistent key: {key}: missing value")
            }
        },
        "replace" if holder(path).is_none() => return no_path(format!("missing path: {path}")),
        "replace" => match holder(path) {
            Some(Value::Object(_)) => return None,
            _ if document.pointer(path).is_none() => return no_path(format!("missing key: {path}")),
            _ => return None,
        },
        "move" | "copy" => {
            let from = text("from");
            match holder(from) {
                None => return no_path(format!("missing from path: {from}")),
                Some(Value::Array(items)) if document.pointer(from).is_none() => {
                    let at =
                        if name == "move" { format!("path: '{}'", last_step(from)) } else { format!("from: '{from}'") };
                    format!("error in {name} for {at}: {}", no_place(items, from, false)?)
                }
                Some(_) if name == "move" && document.pointer(from).is_none() => {
                    let key = last_step(from);
                    format!("error in move for path: '{key}': Unable to remove nonexistent key: {key}: missing value")
                }
                Some(_) if holder(path).is_none() => return no_path(format!("missing destination path: {path}")),
                Some(_) => return None,
            }
        }
        _ if !item["op"].is_string() => "Unexpected kind: unknown".into(),
        unknown => format!("Unexpected kind: {unknown}"),
    };
    Some(Fault::Other(why))
}

/// The last step of a path, as the key that it means.
fn last_step(path: &str) -> String {
    path.rsplit('/').next().unwrap_or("").replace("~1", "/").replace("~0", "~")
}

fn missing_key(holder: &Value, path: &str) -> Option<String> {
    let key = last_step(path);
    holder.get(&key).is_none().then_some(key)
}

/// Why a path does not lead to a place in a list.
fn no_place(items: &[Value], path: &str, may_append: bool) -> Option<String> {
    let step = last_step(path);
    if step == "-" && may_append {
        return None;
    }
    let Ok(index) = step.parse::<i64>() else {
        return Some(match may_append {
            true => format!(
                "value was not a proper array index: '{step}': strconv.Atoi: parsing \"{step}\": invalid syntax"
            ),
            false => format!("strconv.Atoi: parsing \"{step}\": invalid syntax"),
        });
    };
    let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let last = if may_append { count } else { count - 1 };
    let is_there = index <= last && index >= -count;
    (!is_there).then(|| format!("Unable to access invalid index: {index}: invalid index referenced"))
}

/// Whether this tests for null what is not there: for Kubernetes that is as good, and operators count on it before
/// they add the first finalizer. The standard wants the member to exist.
fn finds_nothing(operation: &Operation, document: &Value) -> bool {
    let Operation::Test { path, value: Value::Null } = operation else { return false };
    is_free(document, path.as_str())
}

/// Whether a path leads to a member that its map does not have. Kubernetes' library reads null there, so that `replace`
/// adds it, and `copy` copies null.
fn is_free(document: &Value, path: &str) -> bool {
    let Some((parent, _)) = path.rsplit_once('/') else { return false };
    document.pointer(parent).and_then(Value::as_object).is_some_and(|parent| !parent.contains_key(&last_step(path)))
}

fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
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
pub fn unknown_members(patch: &Value) -> Vec<String> {
    let mut unknown = Vec::new();
    for (position, item) in patch.as_array().into_iter().flatten().enumerate() {
        for name in item.as_object().into_iter().flat_map(Map::keys) {
            if !matches!(name.as_str(), "op" | "path" | "from" | "value") && has_room(&unknown) {
                unknown.push(format!("unknown field \"[{position}].{name}\""));
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

/// Where something is in a document, in the syntax of RFC 6901.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pointer(String);

impl Pointer {
    fn parse(text: String) -> Option<Pointer> {
        let begins = text.is_empty() || text.starts_with('/');
        let is_escape = |rest: &str| rest.starts_with(['0', '1']);
        (begins && text.split('~').skip(1).all(is_escape)).then_some(Pointer(text))
    }

    fn as_str(&self) -> &str {
        &self.0
    }

    fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// How many steps it takes to get there.
    fn count(&self) -> usize {
        self.0.matches('/').count()
    }

    /// Where what holds it is.
    fn parent(&self) -> Option<&str> {
        self.0.rsplit_once('/').map(|(parent, _)| parent)
    }

    /// Whether another one leads to something inside of what is here.
    fn holds(&self, other: &Pointer) -> bool {
        other.0.strip_prefix(&self.0).is_some_and(|rest| rest.starts_with('/'))
    }
}

/// One operation of a JSON patch.
#[derive(Debug, Clone, PartialEq)]
enum Operation {
    Add { path: Pointer, value: Value },
    Remove { path: Pointer },
    Replace { path: Pointer, value: Value },
    Move { from: Pointer, path: Pointer },
    Copy { from: Pointer, path: Pointer },
    Test { path: Pointer, value: Value },
}

impl Operation {
    /// Nothing where it does not apply. What has been taken out of the document by then is not put back.
    fn apply(self, document: &mut Value) -> Option<()> {
        match self {
            Operation::Add { path, value } => add(document, &path, value),
            Operation::Remove { path } => remove(document, &path).map(|_| ()),
            Operation::Replace { path, value } => {
                *document.pointer_mut(path.as_str())? = value;
                Some(())
            }
            Operation::Move { from, path } if from.holds(&path) => None,
            Operation::Move { from, path } => {
                let value = remove(document, &from)?;
                add(document, &path, value)
            }
            Operation::Copy { from, path } => {
                let value = document.pointer(from.as_str())?.clone();
                add(document, &path, value)
            }
            Operation::Test { path, value } => (*document.pointer(path.as_str())? == value).then_some(()),
        }
    }
}

fn add(document: &mut Value, path: &Pointer, value: Value) -> Option<()> {
    let last = last_step(path.as_str());
    match document.pointer_mut(path.parent()?)? {
        Value::Object(fields) => _ = fields.insert(last, value),
        Value::Array(items) if last == "-" => items.push(value),
        Value::Array(items) => {
            let at = index(&last).filter(|at| *at <= items.len())?;
            items.insert(at, value);
        }
        _ => return None,
    }
    Some(())
}

fn remove(document: &mut Value, path: &Pointer) -> Option<Value> {
    let last = last_step(path.as_str());
    match document.pointer_mut(path.parent()?)? {
        Value::Object(fields) => fields.remove(&last),
        Value::Array(items) => index(&last).filter(|at| *at < items.len()).map(|at| items.remove(at)),
        _ => None,
    }
}

/// The standard has one way of writing each index.
fn index(step: &str) -> Option<usize> {
    let plain = step == "0" || !step.starts_with(['0', '+']);
    step.parse().ok().filter(|_| plain)
}

/// `None` when no document could take the operation: an unknown name or a path that is no pointer.
fn operation(item: &Value, document: &Value) -> Option<Operation> {
    let pointer = |name: &str| {
        let text = item.get(name)?.as_str()?;
        Pointer::parse(last_elements(text, document))
    };
    let path = pointer("path")?;
    let value = || item.get("value").cloned().unwrap_or(Value::Null);
    let whole = path.is_root();
    Some(match item.get("op")?.as_str()? {
        "replace" if is_free(document, path.as_str()) => Operation::Add { path, value: value() },
        "copy" if !whole && is_free(document, pointer("from")?.as_str()) => Operation::Add { path, value: Value::Null },
        "add" if !whole => Operation::Add { path, value: value() },
        "remove" if !whole => Operation::Remove { path },
        "replace" => Operation::Replace { path, value: value() },
        "move" if !whole => Operation::Move { from: pointer("from")?, path },
        "copy" if !whole => Operation::Copy { from: pointer("from")?, path },
        "test" => Operation::Test { path, value: value() },
        _ => return None,
    })
}

/// Kubernetes counts negative indices from the end of a list; the standard knows none, so they are rewritten.
fn last_elements(pointer: &str, document: &Value) -> String {
    if !pointer.contains("/-") {
        return pointer.into();
    }
    let mut written = String::with_capacity(pointer.len());
    let mut here = Some(document);
    for (position, token) in pointer.split('/').enumerate() {
        if position == 0 {
            written.push_str(token);
            continue;
        }
        let mut token = token.to_string();
        if let Some(Value::Array(items)) = here
            && let Some(back) = token.strip_prefix('-').and_then(|back| back.parse::<usize>().ok())
            && (1..=items.len()).contains(&back)
        {
            token = (items.len() - back).to_string();
        }
        written.push('/');
        written.push_str(&token);
        here = match here {
            Some(Value::Object(map)) => map.get(&token.replace("~1", "/").replace("~0", "~")),
            Some(Value::Array(items)) => token.parse::<usize>().ok().and_then(|index| items.get(index)),
            _ => None,
        };
    }
    written
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
    /// Whether an operation keeps inside the bounds. Asked before it runs.
    fn allow(&mut self, operation: &Operation, document: &Value) -> bool {
        let (path, deepest) = match operation {
            Operation::Add { path, value } | Operation::Replace { path, value } => (path, depth(value)),
            Operation::Move { from, path } => {
                self.effort += shifted(from, document);
                (path, self.depth_at(from, path, document))
            }
            Operation::Copy { from, path } => {
                let source = document.pointer(from.as_str());
                self.copied_bytes += source.map_or(0, |source| source.to_string().len());
                (path, self.depth_at(from, path, document))
            }
            Operation::Remove { path } => {
                self.effort += shifted(path, document);
                return self.effort <= EFFORT_MAX;
            }
            Operation::Test { .. } => return true,
        };
        if !matches!(operation, Operation::Replace { .. }) {
            self.effort += shifted(path, document);
        }
        self.depth = self.depth.max(path.count() + deepest);
        self.depth <= DEPTH_MAX && self.copied_bytes <= COPIED_BYTES_MAX && self.effort <= EFFORT_MAX
    }

    /// How deep the value at `from` is, at most. It is measured only where `path` could make it too deep.
    fn depth_at(&mut self, from: &Pointer, path: &Pointer, document: &Value) -> usize {
        let fits = |depth: usize| path.count() + depth.saturating_sub(from.count()) <= DEPTH_MAX;
        if !fits(self.depth) {
            // Many moves let the estimate grow beyond what is there.
            self.effort += count(document);
            self.depth = depth(document);
        }
        if fits(self.depth) {
            return self.depth.saturating_sub(from.count());
        }
        document.pointer(from.as_str()).map_or(0, depth)
    }
}

/// How many elements of a list make room for one at `path`, or close up behind it.
fn shifted(path: &Pointer, document: &Value) -> usize {
    let parent = path.parent().and_then(|parent| document.pointer(parent));
    // Moving one is far cheaper than looking at it.
    parent.and_then(Value::as_array).map_or(0, |items| items.len() / 8)
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
mod tests {
    use holdfast_value::json;
    use proptest::prelude::*;

    use super::*;

    /// The examples of RFC 7386, appendix A, that patch an object with an object.
    #[test]
    fn merge_patch_follows_the_standard() {
        let rows = [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ];
        for (original, patch, expected) in rows {
            assert_eq!(merge_patch(original, patch.clone()).unwrap(), expected, "{patch}");
        }
    }

    #[test]
    fn json_patch_operations() {
        let rows = [
            (json!({"a": 1}), json!([{"op": "add", "path": "/b", "value": 2}]), Some(json!({"a": 1, "b": 2}))),
            (json!({"a": [1, 3]}), json!([{"op": "add", "path": "/a/1", "value": 2}]), Some(json!({"a": [1, 2, 3]}))),
            (json!({"a": [1]}), json!([{"op": "add", "path": "/a/-", "value": 2}]), Some(json!({"a": [1, 2]}))),
            (json!({"a": [1, 2]}), json!([{"op": "remove", "path": "/a/-1"}]), Some(json!({"a": [1]}))),
            (json!({"a": {}}), json!([{"op": "test", "path": "/a/b~1c", "value": null}]), Some(json!({"a": {}}))),
            (json!({"a": {"b/c": 1}}), json!([{"op": "test", "path": "/a/b~1c", "value": null}]), None),
            (json!({"a": {}}), json!([{"op": "test", "path": "/b/c", "value": null}]), None),
            (json!({"a": {}}), json!([{"op": "test", "path": "/b", "value": 1}]), None),
            (json!({"a/b": 1}), json!([{"op": "replace", "path": "/a~1b", "value": 2}]), Some(json!({"a/b": 2}))),
            (json!({"a": 1}), json!([{"op": "move", "from": "/a", "path": "/b"}]), Some(json!({"b": 1}))),
            (json!({"a": 1}), json!([{"op": "copy", "from": "/a", "path": "/b"}]), Some(json!({"a": 1, "b": 1}))),
            (json!({"a": 1}), json!([{"op": "test", "path": "/a", "value": 1}]), Some(json!({"a": 1}))),
            (json!({"a": 1}), json!([{"op": "test", "path": "/a", "value": 2}]), None),
            (json!({"a": 1}), json!([{"op": "remove", "path": "/b"}]), None),
            (json!({"a": 1}), json!([{"op": "replace", "path": "/b", "value": 1}]), Some(json!({"a": 1, "b": 1}))),
            (json!({"a": [1]}), json!([{"op": "replace", "path": "/a/1", "value": 1}]), None),
            (json!({"a": 1}), json!([{"op": "replace", "path": "/b/c", "value": 1}]), None),
            (json!({"a": 1}), json!([{"op": "copy", "from": "/c", "path": "/b"}]), Some(json!({"a": 1, "b": null}))),
            (json!({"a": [1]}), json!([{"op": "copy", "from": "/a/1", "path": "/b"}]), None),
            (json!({"a": 1}), json!([{"op": "move", "from": "/c", "path": "/b"}]), None),
            (json!({"a": 1}), json!([{"op": "add", "path": "/b/c", "value": 1}]), None),
            (json!({"a": 1}), json!([{"op": "add", "path": "b", "value": 1}]), None),
            (json!({"a": [1]}), json!([{"op": "add", "path": "/a/7", "value": 1}]), None),
            (json!({"a": 1}), json!([{"op": "frobnicate", "path": "/a"}]), None),
            (json!({"a": 1}), json!([{"op": "replace", "path": "", "value": 1}]), None),
            (json!({"a": {}}), json!([{"op": "move", "from": "/a", "path": "/a/b"}]), None),
        ];
        for (original, patch, expected) in rows {
            let got = json_patch(original, &patch);
            match expected {
                Some(document) => assert_eq!(got.unwrap(), document, "{patch}"),
                None => assert_eq!(got.unwrap_err(), does_not_apply(), "{patch}"),
            }
        }
    }

    #[test]
    fn malformed_bodies_are_bad_requests() {
        let rows = [
            (json!({}), "json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"),
            (json!(["x"]), "json: cannot unmarshal string into Go value of type handlers.jsonPatchOp"),
            (json!([{"op": 1}]), "json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string"),
        ];
        for (patch, fault) in rows {
            let expected = format!("error decoding patch: {fault}");
            assert_eq!(json_patch(json!({}), &patch).unwrap_err().message(), expected);
        }
        assert!(matches!(merge_patch(json!({}), json!([])), Err(Refusal::BadRequest(_))));
        assert!(matches!(decode(b"{"), Err(Refusal::BadRequest(_))));
    }

    #[test]
    fn limits_hold() {
        let many = Value::Array(vec![json!({"op": "test", "path": "/a", "value": 1}); OPERATIONS_MAX + 1]);
        let expected = "The allowed maximum operations in a JSON patch is 10000, got 10001";
        assert_eq!(json_patch(json!({"a": 1}), &many).unwrap_err().message(), expected);

        // Each copy doubles the document: without a bound forty of them would be a terabyte.
        let doubling: Vec<_> =
            (0..40).map(|n| json!({"op": "copy", "from": "/a", "path": format!("/a/{n}x")})).collect();
        let refused = json_patch(json!({"a": {"text": "0123456789"}}), &Value::Array(doubling));
        assert_eq!(refused.unwrap_err(), does_not_apply());

        let deeper: Vec<_> = (0..500)
            .flat_map(|_| {
                [
                    json!({"op": "add", "path": "/b", "value": {}}),
                    json!({"op": "move", "from": "/a", "path": "/b/a"}),
                    json!({"op": "move", "from": "/b", "path": "/a"}),
                ]
            })
            .collect();
        assert_eq!(json_patch(json!({"a": {}}), &Value::Array(deeper)).unwrap_err(), does_not_apply());

        // Whoever looks for the fault keeps to the same bounds: it is behind more copies than there may be.
        let copies = (0..10).map(|n| json!({"op": "copy", "from": "/a", "path": format!("/b{n}")}));
        let copies = copies.chain([json!({"op": "remove", "path": "/c"})]).collect();
        assert_eq!(fault(&json!({"a": "x".repeat(1 << 20)}), &Value::Array(copies)), None);
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf =
            prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), "[a-c]{0,2}".prop_map(Value::from)];
        leaf.prop_recursive(3, 16, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-c/~]{1,2}", inner, 0..3)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn merging_twice_is_merging_once(original in any_json(), patch in any_json()) {
            if let Ok(once) = merge_patch(original, patch.clone()) {
                prop_assert_eq!(merge_patch(once.clone(), patch).unwrap(), once);
            }
        }

        #[test]
        fn no_patch_panics(
            original in any_json(),
            operations in prop::collection::vec(
                ("add|remove|replace|move|copy|test", "(/([a-c~-]|[0-2]|-1|~0)){0,3}", "(/([a-c]|-)){0,3}", any_json()),
                0..6,
            ),
        ) {
            let patch: Vec<_> = operations
                .into_iter()
                .map(|(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value}))
                .collect();
            let _ = json_patch(original, &Value::Array(patch));
        }

        /// The library's documents are others, and it knows the standard alone.
        #[test]
        fn operations_do_what_those_of_a_library_do(
            original in any_json(),
            operations in prop::collection::vec(
                (0..6, "(/([a-c]|[0-2]|-|01|~0|~1)){1,3}", "(/([a-c]|[0-2]|-)){0,3}", any_json()),
                1..6,
            ),
        ) {
            let (mut ours, mut theirs) = (original.clone(), serde_json::Value::from(original));
            for (which, path, from, value) in operations {
                let pointer = |text: &str| Pointer::parse(text.to_owned()).expect("a pointer");
                let named = |op: &str| json!({"op": op, "path": path, "from": from, "value": value});
                let (path, from) = (pointer(&path), pointer(&from));
                let (operation, named) = match which {
                    0 => (Operation::Add { path, value: value.clone() }, named("add")),
                    1 => (Operation::Remove { path }, named("remove")),
                    2 => (Operation::Replace { path, value: value.clone() }, named("replace")),
                    3 => (Operation::Move { from, path }, named("move")),
                    4 => (Operation::Copy { from, path }, named("copy")),
                    _ => (Operation::Test { path, value: value.clone() }, named("test")),
                };
                let named: json_patch::PatchOperation = serde_json::from_value(named.into()).expect("an operation");
                let applied = json_patch::patch(&mut theirs, &[named]).is_ok();
                prop_assert_eq!(operation.apply(&mut ours).is_some(), applied);
                if !applied {
                    return Ok(());
                }
                prop_assert_eq!(serde_json::Value::from(ours.clone()), theirs.clone());
            }
        }
    }
}
