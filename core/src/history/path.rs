//! Paths of fields and list elements in a document.

use holdfast_value::{CompactString, Value};
use std::fmt;

/// A path: the steps from the document's root to a field or list element.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(pub Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    Field(CompactString),
    /// An element of a keyed list, in the form of `fieldsV1`: `k:{"name":"web"}`.
    Key(String),
    /// An element of any other list.
    Index(usize),
}

impl Path {
    pub fn then(&self, step: Step) -> Path {
        let mut steps = self.0.clone();
        steps.push(step);
        Path(steps)
    }

    /// The path without its last step, and the last step; `None` for the root.
    pub fn split(&self) -> Option<(Path, &Step)> {
        let (last, before) = self.0.split_last()?;
        Some((Path(before.to_vec()), last))
    }
}

impl fmt::Display for Path {
    /// `spec.containers[name=web].ports[0]`, `metadata.labels["app.kubernetes.io/name"]`; the root is `.`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(".");
        }
        for (place, step) in self.0.iter().enumerate() {
            match step {
                Step::Field(name) if is_plain(name) => write!(f, "{}{name}", if place == 0 { "" } else { "." })?,
                Step::Field(name) => write!(f, "[{}]", Value::from(name.as_str()))?,
                Step::Key(key) => write!(f, "[{}]", shown(key))?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'$'))
}

/// Shows `k:{"name":"web"}` as `name=web`, and `v:"x"` as `"x"`.
fn shown(key: &str) -> String {
    if let Some(value) = key.strip_prefix("v:") {
        return value.to_owned();
    }
    let fields = key.strip_prefix("k:").and_then(|fields| serde_json::from_str(fields).ok());
    let Some(Value::Object(fields)) = fields else { return key.to_owned() };
    let pair = |(name, value): (&CompactString, &Value)| match value {
        Value::String(text) => format!("{name}={text}"),
        other => format!("{name}={other}"),
    };
    fields.iter().map(pair).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_written_as_people_write_them() {
        let field = |name: &str| Step::Field(name.into());
        for (steps, expected) in [
            (vec![], "."),
            (vec![field("spec"), field("replicas")], "spec.replicas"),
            (vec![field("data"), field("a.b"), Step::Index(2)], "data[\"a.b\"][2]"),
            (vec![field("x"), Step::Key("k:{\"name\":\"web\"}".into()), field("image")], "x[name=web].image"),
            (
                vec![field("ports"), Step::Key("k:{\"port\":80,\"protocol\":\"TCP\"}".into())],
                "ports[port=80,protocol=TCP]",
            ),
            (vec![field("finalizers"), Step::Key("v:\"a/b\"".into())], "finalizers[\"a/b\"]"),
            (vec![field("")], "[\"\"]"),
        ] {
            assert_eq!(Path(steps).to_string(), expected);
        }
    }
}
