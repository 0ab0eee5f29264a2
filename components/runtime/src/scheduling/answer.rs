//! Reads an extender's answer within bounds. Only the fields that the scheduler uses are stored, so that a large answer
//! does not become an even larger document.

use holdfast_value::{Map, Value};
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::cell::Cell;
use std::fmt;

/// How many values an answer may have in the fields that the scheduler uses. The number is enough for the names of all
/// nodes of the largest clusters, each with a reason.
const VALUES_MAX: usize = 1 << 21;

/// The names of the fields that the scheduler uses, in lower case. In answers they may be written in upper or lower
/// case.
const FIELDS: [&str; 12] = [
    "error",
    "nodes",
    "items",
    "metadata",
    "name",
    "nodenames",
    "failednodes",
    "failedandunresolvablenodes",
    "nodenametometavictims",
    "pods",
    "uid",
    "numpdbviolations",
];
/// The fields of an item in a list of scores.
const SCORES: [&str; 2] = ["host", "score"];
/// The fields whose value is an object with node names as keys.
const BY_NODE: [&str; 3] = ["failednodes", "failedandunresolvablenodes", "nodenametometavictims"];

/// Parses the answer of an extender.
pub fn read(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    let left = Cell::new(VALUES_MAX);
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = BoundedValue { left: &left, by_node: false }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

#[derive(Clone, Copy)]
struct BoundedValue<'a> {
    left: &'a Cell<usize>,
    /// Whether the keys of the object that is being read are node names.
    by_node: bool,
}

impl BoundedValue<'_> {
    fn is_looked_at(&self, name: &str) -> bool {
        self.by_node || FIELDS.iter().chain(&SCORES).any(|field| name.eq_ignore_ascii_case(field))
    }

    fn take<E: Error>(&self) -> Result<(), E> {
        let left = self.left.get().checked_sub(1).ok_or_else(|| E::custom("it says too much"))?;
        self.left.set(left);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for BoundedValue<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.take()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for BoundedValue<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a document")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(BoundedValue { by_node: false, ..self })? {
            items.push(item);
        }
        Ok(items.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut kept = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if !self.is_looked_at(&name) {
                fields.next_value::<IgnoredAny>()?;
                continue;
            }
            let by_node = !self.by_node && BY_NODE.iter().any(|field| name.eq_ignore_ascii_case(field));
            kept.insert(name, fields.next_value_seed(BoundedValue { by_node, ..self })?);
        }
        Ok(Value::Object(kept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn what_is_looked_at_is_kept() {
        let answer = json!({"NodeNames": ["a"], "FailedNodes": {"n-1": "why", "spec": "not"}, "error": "", "other": [1, 2],
            "nodes": {"items": [{"metadata": {"name": "x", "labels": {"a": "b"}}, "status": {"images": [1]}}]},
            "nodeNameToMetaVictims": {"n": {"pods": [{"uid": "u", "spec": {}}], "numPDBViolations": 2}}});
        let read = read(answer.to_string().as_bytes()).unwrap();
        let wanted = json!({"NodeNames": ["a"], "FailedNodes": {"n-1": "why", "spec": "not"}, "error": "",
            "nodes": {"items": [{"metadata": {"name": "x"}}]},
            "nodeNameToMetaVictims": {"n": {"pods": [{"uid": "u"}], "numPDBViolations": 2}}});
        assert_eq!(read, wanted);
        assert_eq!(super::read(br#"[{"Host": "a", "Score": 3, "x": 1}]"#).unwrap(), json!([{"Host": "a", "Score": 3}]));
    }

    #[test]
    fn an_answer_that_says_too_much_is_none() {
        let many = format!("[{}0]", "0,".repeat(VALUES_MAX));
        assert!(read(many.as_bytes()).unwrap_err().to_string().contains("too much"));
        let deep = "[".repeat(10_000);
        assert!(read(deep.as_bytes()).is_err());
        assert!(read(b"{} {}").is_err());
        let passed_over = format!("{{\"x\": [{}0]}}", "0,".repeat(1000));
        assert_eq!(read(passed_over.as_bytes()).unwrap(), json!({}));
    }
}
