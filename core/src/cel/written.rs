//! Converts values to JSON documents.

use super::functions::as_text;
use super::value::{Key, Made, Value};
use crate::object::meta::DEPTH_MAX;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use holdfast_value::{Map, Value as Json};

/// The maximum number of written bytes. A computed value may contain another value many times, so its JSON can be huge.
const BYTES_MAX: usize = 3 << 20;

impl Value<'_> {
    /// Converts the value to JSON. The error names a part of the value that JSON cannot represent.
    pub fn written(&self) -> Result<Json, String> {
        Writer { left: BYTES_MAX, depth: 0 }.value(self)
    }
}

struct Writer {
    left: usize,
    depth: usize,
}

impl Writer {
    fn spend(&mut self, bytes: usize) -> Result<(), String> {
        self.left = self.left.checked_sub(bytes + 1).ok_or_else(|| format!("it is larger than {BYTES_MAX} bytes"))?;
        Ok(())
    }

    fn value(&mut self, value: &Value<'_>) -> Result<Json, String> {
        if self.depth > DEPTH_MAX {
            return Err(format!("it is deeper than {DEPTH_MAX} levels"));
        }
        self.depth += 1;
        let written = self.written(value);
        self.depth -= 1;
        written
    }

    fn written(&mut self, value: &Value<'_>) -> Result<Json, String> {
        self.spend(0)?;
        Ok(match value {
            Value::Null => Json::Null,
            Value::Bool(value) => Json::Bool(*value),
            Value::Int(value) => (*value).into(),
            Value::Uint(value) => (*value).into(),
            Value::Double(value) => number(*value)?,
            Value::String(text) => {
                self.spend(text.len())?;
                Json::from(text.to_string())
            }
            Value::Bytes(bytes) => {
                self.spend(bytes.len())?;
                Json::from(STANDARD.encode(bytes))
            }
            Value::Duration(_) | Value::Timestamp(_) => Json::from(as_text(value)),
            Value::Json(document, _) => {
                self.weigh(document)?;
                (*document).clone()
            }
            Value::Map(map) => {
                let mut fields = Map::new();
                for (key, value) in map.iter() {
                    let Key::String(name) = key else { return Err(no_name(key)) };
                    self.spend(name.len())?;
                    fields.insert(name.to_string(), self.value(value)?);
                }
                Json::Object(fields)
            }
            Value::Made(made) => {
                let mut fields = Map::new();
                for (name, value) in &made.fields {
                    self.spend(name.len())?;
                    fields.insert(name.clone(), self.value(value)?);
                }
                Json::Object(fields)
            }
            list if list.list_len().is_some() => {
                let mut items = Vec::new();
                for item in list.items() {
                    items.push(self.value(&item.map_err(|error| error.to_string())?)?);
                }
                Json::Array(items)
            }
            other => return Err(format!("it has a value of type {}", other.type_of().value_name())),
        })
    }

    /// Counts the size of a part of a document against the maximum number of written bytes.
    fn weigh(&mut self, document: &Json) -> Result<(), String> {
        match document {
            Json::String(text) => self.spend(text.len()),
            Json::Array(items) => {
                self.spend(0)?;
                items.iter().try_for_each(|item| self.weigh(item))
            }
            Json::Object(fields) => fields.iter().try_for_each(|(name, value)| {
                self.spend(name.len())?;
                self.weigh(value)
            }),
            Json::Null | Json::Bool(_) | Json::Number(_) => self.spend(0),
        }
    }
}

/// Writes a double. As in Go, a whole number has no fraction.
fn number(value: f64) -> Result<Json, String> {
    if value.fract() == 0.0 && value.abs() < 9.0e15 {
        return Ok((value as i64).into());
    }
    serde_json::Number::from_f64(value).map(Json::Number).ok_or_else(|| format!("{value} is not a number of JSON"))
}

fn no_name(key: &Key<'_>) -> String {
    let key = key.value();
    format!("map key {:?} is of type {}, not string", as_text(&key), key.type_of().value_name())
}

impl Made<'_> {
    /// A fault for each constructed object whose type does not match its path. In `Object.spec{a: Object.spec.b{}}` the
    /// type of `a` should be `Object.spec.a`.
    pub fn misplaced(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut left = BYTES_MAX / 64;
        misplaced(self, &self.name, &mut faults, &mut left);
        faults
    }
}

fn misplaced(made: &Made<'_>, path: &str, faults: &mut Vec<String>, left: &mut usize) {
    if made.name != path {
        faults.push(format!(
            "unexpected type name {:?}, expected {path:?}, which matches field name path from root Object type",
            made.name
        ));
    }
    for (name, value) in &made.fields {
        below(value, &format!("{path}.{name}"), faults, left);
    }
}

fn below(value: &Value<'_>, path: &str, faults: &mut Vec<String>, left: &mut usize) {
    // If the limit of this search is reached, the value is also too large to be written.
    let Some(fewer) = left.checked_sub(1) else { return };
    *left = fewer;
    match value {
        Value::Made(made) => misplaced(made, path, faults, left),
        Value::Map(map) => map.values().for_each(|value| below(value, path, faults, left)),
        Value::Json(..) => {}
        list => list.items().flatten().for_each(|item| below(&item, path, faults, left)),
    }
}
