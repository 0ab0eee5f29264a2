//! Generates documents from the schema table. They are in the form that Kubernetes shows, and without the fields that
//! Kubernetes omits.

use holdfast_core::schema::{Field, MessageId, Shape, Type, Zero, schema};
use holdfast_value::{Map, Value, json};

/// Random choices, read from bytes, so that a failing test can shrink them. After the last byte every choice is no.
pub struct Choices<'a> {
    bytes: std::slice::Iter<'a, u8>,
    /// The depth below which optional fields stay unset.
    depth_max: usize,
    /// Whether every field that may be set is set, down to `depth_max`.
    full: bool,
    /// Whether maps may have empty keys and values.
    empty_entries: bool,
}

impl<'a> Choices<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes: bytes.iter(), depth_max: 8, full: false, empty_entries: true }
    }

    /// Choices that set every field down to `depth_max`.
    pub fn full(bytes: &'a [u8], depth_max: usize) -> Self {
        Self { bytes: bytes.iter(), depth_max, full: true, empty_entries: true }
    }

    pub fn without_empty_entries(self) -> Self {
        Self { empty_entries: false, ..self }
    }

    fn next(&mut self) -> u8 {
        self.bytes.next().copied().unwrap_or(0)
    }

    fn yes(&mut self, depth: usize) -> bool {
        depth < self.depth_max
            && (self.full || self.next() % 4 > usize::min(depth / 3, 2) as u8 + 1 - u8::from(depth < 2))
    }
}

pub fn document(id: MessageId, choices: &mut Choices<'_>) -> Value {
    message(id, choices, 0)
}

fn message(id: MessageId, choices: &mut Choices<'_>, depth: usize) -> Value {
    let mut object = Map::new();
    for field in &schema().message(id).fields {
        let set = choices.yes(depth);
        let value = match (field.shape, field.zero) {
            (Shape::Single, Zero::Always) => single(id, field, set, choices, depth),
            (_, Zero::Always) if !set => Value::Null,
            _ if !set => continue,
            (Shape::Single, _) => single(id, field, set, choices, depth),
            (Shape::List, _) => {
                let count = 1 + choices.next() % 2;
                Value::Array((0..count).map(|_| value(id, field.ty, choices, depth)).collect())
            }
            (Shape::Map, _) => {
                let keys = ["", "a", "b.c/d"].into_iter().skip(usize::from(choices.next() % 3));
                let mut entries: Map = keys.map(|key| (key.to_string(), value(id, field.ty, choices, depth))).collect();
                if !choices.empty_entries {
                    entries.retain(|key, value| !key.is_empty() && !is_empty(value));
                    if entries.is_empty() {
                        continue;
                    }
                }
                Value::Object(entries)
            }
        };
        object.insert(field.json.clone(), value);
    }
    Value::Object(object)
}

/// Generates the value of a field that is no list or map. `set` is false if the field is there only because it is
/// always shown.
fn single(owner: MessageId, field: &Field, set: bool, choices: &mut Choices<'_>, depth: usize) -> Value {
    let zero_shows = matches!(field.zero, Zero::Always | Zero::Kept);
    match field.ty {
        Type::Message(id) => message(id, choices, depth + 1),
        Type::String | Type::Bytes if !zero_shows => match value(owner, field.ty, choices, depth) {
            Value::String(text) if text.is_empty() => json!("eA=="),
            value => value,
        },
        Type::Bool if !zero_shows => json!(true),
        Type::Int32 | Type::Int64 | Type::Double if !zero_shows => json!(1 + i64::from(choices.next())),
        Type::Bytes
        | Type::Time
        | Type::MicroTime
        | Type::RawExtension
        | Type::FieldsV1
        | Type::Json
        | Type::StringList
            if !set =>
        {
            Value::Null
        }
        ty => value(owner, ty, choices, depth),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(object) => object.is_empty(),
        _ => false,
    }
}

fn value(owner: MessageId, ty: Type, choices: &mut Choices<'_>, depth: usize) -> Value {
    let pick = usize::from(choices.next());
    match ty {
        Type::String => json!(["", "a", "Ünï", "some longer text, as a message or an image's name would be"][pick % 4]),
        Type::Bool => json!(pick % 2 == 1),
        Type::Int32 => json!([0, 1, -1, 300, i32::MAX, i32::MIN][pick % 6]),
        Type::Int64 => json!([0, 1, -1, 70_000, i64::MAX, i64::MIN][pick % 6]),
        Type::Double => [json!(0), json!(-3), json!(2.5), json!(1e-9), json!(1e300)][pick % 5].clone(),
        Type::Bytes => json!(["", "/w==", "YWJj", "AAECAwQFBgcICQ=="][pick % 4]),
        Type::Message(id) => message(id, choices, depth + 1),
        Type::IntOrString => [json!(0), json!(-1), json!(8080), json!("25%"), json!("")][pick % 5].clone(),
        Type::Quantity => json!(["0", "500m", "1Gi", "-2k"][pick % 4]),
        Type::Time => json!(["2024-02-29T23:59:59Z", "1969-12-31T23:59:59Z", "0001-01-01T00:00:01Z"][pick % 3]),
        Type::MicroTime => json!(["2024-02-29T23:59:59.123456Z", "1969-12-31T23:59:59.000001Z"][pick % 2]),
        Type::Duration => json!(["0s", "1m30s", "-1.5ms", "1h0m0.5s"][pick % 4]),
        Type::RawExtension => json!({"apiVersion": "v1", "x": [1, null, {"y": "z"}]}),
        Type::FieldsV1 => json!({"f:metadata": {".": {}, "k:{\"a\":1}": {}}}),
        Type::Json => [json!({"a": [1, 2.5]}), json!("x"), json!(0)][pick % 3].clone(),
        Type::StringList => [json!([]), json!(["get", ""])][pick % 2].clone(),
        Type::JsonSchemaPropsOrBool if pick % 3 > 0 => json!(pick % 3 == 1),
        Type::JsonSchemaPropsOrStringArray if pick % 2 == 1 => json!(["a", ""]),
        Type::JsonSchemaPropsOrArray if pick % 2 == 1 => {
            json!([message(owner, choices, depth + 1), message(owner, choices, depth + 1)])
        }
        Type::JsonSchemaPropsOrArray | Type::JsonSchemaPropsOrBool | Type::JsonSchemaPropsOrStringArray => {
            message(owner, choices, depth + 1)
        }
    }
}
