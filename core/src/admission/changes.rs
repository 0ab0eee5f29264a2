//! The fields that webhooks and policies set in an object, as JSON pointers, for the event.

use crate::merge::json::from_root;
use holdfast_value::Value;
use std::collections::BTreeMap;

/// The fields that a JSON patch sets. The pointer to an appended list item ends with the index of the item.
pub(super) fn of_patch(object: &Value, patch: &Value) -> Vec<String> {
    let mut added: BTreeMap<String, usize> = BTreeMap::new();
    let operations = patch.as_array().into_iter().flatten();
    let set = operations.filter(|operation| !matches!(operation["op"].as_str(), Some("remove" | "test")));
    set.filter_map(|operation| {
        let path = from_root(operation["path"].as_str()?);
        let Some(list) = path.strip_suffix("/-") else { return Some(path.to_owned()) };
        let before = object.pointer(list).and_then(Value::as_array).map_or(0, Vec::len);
        let more = added.entry(list.to_owned()).or_default();
        *more += 1;
        Some(format!("{list}/{}", before + *more - 1))
    })
    .collect()
}

/// The fields that a merged configuration set. A list item is found by comparing all fields that the configuration has.
pub(super) fn of_configuration(object: &Value, configuration: &Value) -> Vec<String> {
    let mut found = Vec::new();
    if let Value::Object(fields) = configuration {
        let said = fields.iter().filter(|(name, _)| !matches!(name.as_str(), "apiVersion" | "kind"));
        said.for_each(|(name, value)| below(&object[name.as_str()], value, step("", name), &mut found));
    }
    found
}

fn below(object: &Value, configuration: &Value, path: String, found: &mut Vec<String>) {
    match (object, configuration) {
        (Value::Object(object), Value::Object(fields)) if !fields.is_empty() => {
            for (name, value) in fields {
                below(object.get(name).unwrap_or(&Value::Null), value, step(&path, name), found);
            }
        }
        (Value::Array(items), Value::Array(wanted)) if !wanted.is_empty() => {
            for wanted in wanted {
                if let Some(at) = items.iter().position(|item| says(item, wanted)) {
                    below(&items[at], wanted, format!("{path}/{at}"), found);
                }
            }
        }
        _ => found.push(path),
    }
}

/// Whether `value` contains everything that `wanted` contains.
fn says(value: &Value, wanted: &Value) -> bool {
    match (value, wanted) {
        (Value::Object(fields), Value::Object(wanted)) => {
            wanted.iter().all(|(name, wanted)| fields.get(name).is_some_and(|value| says(value, wanted)))
        }
        (Value::Array(items), Value::Array(wanted)) => {
            wanted.iter().all(|wanted| items.iter().any(|item| says(item, wanted)))
        }
        (value, wanted) => value == wanted,
    }
}

fn step(path: &str, name: &str) -> String {
    format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn a_patch_is_told_by_its_paths() {
        let operations = [("add", "/spec/containers/-"), ("replace", "x/data/k"), ("test", "/a"), ("remove", "/b")];
        let patch: Vec<Value> = operations.iter().map(|(op, path)| json!({"op": op, "path": path})).collect();
        let object = json!({"spec": {"containers": [{}, {}]}});
        assert_eq!(of_patch(&object, &patch.into()), ["/spec/containers/2", "/data/k"]);
    }

    #[test]
    fn a_configuration_is_told_by_its_leaves() {
        let object = json!({"metadata": {"labels": {"a/b": "1", "c": "2"}}, "spec": {"containers": [
            {"name": "other", "image": "x"}, {"name": "side", "image": "s", "env": []}]}});
        let configuration = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a/b": "1"}},
            "spec": {"containers": [{"name": "side", "image": "s"}]}});
        let expected = ["/metadata/labels/a~1b", "/spec/containers/1/image", "/spec/containers/1/name"];
        assert_eq!(of_configuration(&object, &configuration), expected);
    }
}
