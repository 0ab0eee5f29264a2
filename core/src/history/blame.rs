//! Finds the version that last set each field of an object.

use super::difference::{Shape, leaves};
use super::path::{Path, Step};
use holdfast_value::Value;
use std::collections::BTreeMap;

/// A field of the present object and the version that set it.
#[derive(Debug, Clone, PartialEq)]
pub struct Set {
    pub path: Path,
    pub value: Value,
    pub origin: Origin,
}

/// The version that set a field, as an index into the versions that [`Blame::next`] got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    pub version: usize,
    /// Whether the field may have been set before this version. It is true for the oldest version in the log, if the
    /// log has removed a version before it.
    pub or_before: bool,
}

/// Follows the versions of an object, and records the origin of each field.
pub struct Blame<'s> {
    shape: Shape<'s>,
    is_whole: bool,
    versions: usize,
    known: BTreeMap<Path, (Value, Origin)>,
}

impl<'s> Blame<'s> {
    /// `is_whole` says that no version existed before the first version that [`next`](Self::next) gets.
    pub fn new(shape: Shape<'s>, is_whole: bool) -> Self {
        Blame { shape, is_whole, versions: 0, known: BTreeMap::new() }
    }

    /// Adds the next version; `None` for a deletion. After a deletion, earlier origins no longer count.
    pub fn next(&mut self, document: Option<&Value>) {
        let here = Origin { version: self.versions, or_before: self.versions == 0 && !self.is_whole };
        self.versions += 1;
        let fields = document.map(|document| leaves(self.shape, document)).unwrap_or_default();
        let mut before = std::mem::take(&mut self.known);
        let known = fields.into_iter().map(|(path, value)| {
            let kept = before.remove(&path).filter(|(old, _)| old == value);
            (path, kept.unwrap_or_else(|| (value.clone(), here)))
        });
        self.known = known.collect();
    }

    /// Each field of the newest version, with the version since which it has had its value without interruption. A
    /// deleted object has no fields.
    pub fn fields(self) -> Vec<Set> {
        self.known.into_iter().map(|(path, (value, origin))| Set { path, value, origin }).collect()
    }
}

/// Whether a field is at or below a JSON pointer into its document.
pub fn is_at(path: &Path, pointer: &str, document: &Value) -> bool {
    let mut at = Some(document);
    let mut steps = path.0.iter();
    for token in pointer.split('/').skip(1) {
        let token = token.replace("~1", "/").replace("~0", "~");
        let next = at.and_then(|at| match at {
            Value::Array(items) => items.get(token.parse::<usize>().ok()?),
            at => at.get(&token),
        });
        let fits = match steps.next() {
            Some(Step::Field(name)) => *name == token,
            Some(Step::Index(index)) => index.to_string() == token,
            Some(Step::Key(key)) => next.is_some_and(|item| has_key(item, key)),
            None => false,
        };
        if !fits {
            return false;
        }
        at = next;
    }
    true
}

/// Whether a list element has this key, in the form of `fieldsV1`.
fn has_key(item: &Value, key: &str) -> bool {
    let parsed = |text: &str| serde_json::from_str::<Value>(text).ok();
    match (key.strip_prefix("k:").and_then(parsed), key.strip_prefix("v:").and_then(parsed)) {
        (Some(Value::Object(fields)), _) => fields.iter().all(|(name, value)| item.get(name) == Some(value)),
        (_, Some(value)) => *item == value,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::difference::tests::with_kind;
    use super::*;
    use holdfast_value::json;

    fn told(versions: &[Value], is_whole: bool) -> Vec<String> {
        let versions: Vec<Option<Value>> =
            versions.iter().map(|version| Some(version.clone()).filter(|version| !version.is_null())).collect();
        with_kind("", "v1", "pods", |shape| {
            let line = |set: Set| {
                let sign = if set.origin.or_before { "<=" } else { "" };
                format!("{} {} {sign}{}", set.path, set.value, set.origin.version)
            };
            let mut blame = Blame::new(shape, is_whole);
            versions.iter().for_each(|version| blame.next(version.as_ref()));
            blame.fields().into_iter().map(line).collect()
        })
    }

    #[test]
    fn pointers_lead_to_fields() {
        let document = json!({"spec": {"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]}});
        let path = |key: &str| {
            let field = |name: &str| Step::Field(name.into());
            Path(vec![
                field("spec"),
                field("containers"),
                Step::Key(format!("k:{{\"name\":\"{key}\"}}")),
                field("image"),
            ])
        };
        for (pointer, of_a, of_b) in [
            ("/spec/containers/1", false, true),
            ("/spec/containers/0/image", true, false),
            ("/spec/containers", true, true),
            ("/spec/volumes", false, false),
            ("/spec/containers/1/image/more", false, false),
        ] {
            let found = [path("a"), path("b")].map(|path| is_at(&path, pointer, &document));
            assert_eq!(found, [of_a, of_b], "{pointer}");
        }
    }

    #[test]
    fn fields_come_from_the_version_that_set_them_last() {
        let labels = |labels: Value| json!({"metadata": {"labels": labels}});
        let images = |list: &[(&str, &str)]| {
            let list: Vec<Value> = list.iter().map(|(name, image)| json!({"name": name, "image": image})).collect();
            json!({"spec": {"containers": list}})
        };
        for (versions, expected) in [
            (vec![], vec![]),
            (vec![labels(json!({"a": "1", "b": "1"}))], vec!["metadata.labels.a \"1\" 0", "metadata.labels.b \"1\" 0"]),
            (
                vec![labels(json!({"a": "1", "b": "1"})), labels(json!({"a": "2", "b": "1"}))],
                vec!["metadata.labels.a \"2\" 1", "metadata.labels.b \"1\" 0"],
            ),
            // A field that is changed and changed back was set by the last change.
            (
                vec![labels(json!({"a": "1"})), labels(json!({"a": "2"})), labels(json!({"a": "1"}))],
                vec!["metadata.labels.a \"1\" 2"],
            ),
            // A field that is removed and added again with the same value was set by the addition.
            (
                vec![
                    labels(json!({"a": "1", "b": "1"})),
                    labels(json!({"b": "1"})),
                    labels(json!({"a": "1", "b": "1"})),
                ],
                vec!["metadata.labels.a \"1\" 2", "metadata.labels.b \"1\" 0"],
            ),
            // The fields of an object that was deleted and created again were set by the creation.
            (
                vec![labels(json!({"a": "1"})), Value::Null, labels(json!({"a": "1"}))],
                vec!["metadata.labels.a \"1\" 2"],
            ),
            (vec![labels(json!({"a": "1"})), Value::Null], vec![]),
            // An element keeps its origin when elements are inserted before it.
            (
                vec![images(&[("a", "a:1")]), images(&[("b", "b:1"), ("a", "a:1")])],
                vec![
                    "spec.containers[name=a].image \"a:1\" 0",
                    "spec.containers[name=a].name \"a\" 0",
                    "spec.containers[name=b].image \"b:1\" 1",
                    "spec.containers[name=b].name \"b\" 1",
                ],
            ),
            // A map that becomes empty counts as set.
            (vec![labels(json!({"a": "1"})), labels(json!({}))], vec!["metadata.labels {} 1"]),
        ] {
            assert_eq!(told(&versions, true), expected, "{versions:?}");
        }
    }

    #[test]
    fn the_oldest_version_left_may_not_be_where_a_field_comes_from() {
        let versions = [json!({"a": 1, "b": 1}), json!({"a": 2, "b": 1})];
        assert_eq!(told(&versions, false), ["a 2 1", "b 1 <=0"]);
    }
}
