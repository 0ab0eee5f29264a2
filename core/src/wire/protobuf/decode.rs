//! Decodes Protobuf messages into documents.

use base64::{Engine, engine::general_purpose::STANDARD};
use holdfast_value::{Map, Value};

use super::{
    Codec, DEPTH_MAX, DecodeError, Layout, MAGIC, What,
    bytes::{Reader, Wire},
    envelope::{self, text},
    special::Instant,
};
use crate::object::duration;
use crate::schema::{Field, Message, MessageId, Shape, Type, Zero, quantity};

/// The maximum number of values in a decoded document. A few bytes can become many values, because structs are shown
/// even if they are absent in Protobuf. Ordinary bodies have far fewer values.
const VALUES_MAX: usize = 1_000_000;

pub(super) struct Decoder<'c, 's> {
    codec: &'c Codec<'s>,
    depth: usize,
    values: usize,
}

type Result<T, E = DecodeError> = std::result::Result<T, E>;

impl<'c, 's> Decoder<'c, 's> {
    pub(super) fn new(codec: &'c Codec<'s>) -> Self {
        Self { codec, depth: 0, values: 0 }
    }

    pub(super) fn object(&mut self, body: &[u8]) -> Result<Value> {
        let unknown = envelope::unwrap(body)?;
        let Some(message) = self.codec.find(&unknown.api_version, &unknown.kind) else {
            return Err(DecodeError::UnknownKind { api_version: unknown.api_version, kind: unknown.kind });
        };
        let mut object = Map::new();
        self.message(message, unknown.raw, &mut object)?;
        object.insert("apiVersion".to_string(), Value::from(unknown.api_version));
        object.insert("kind".to_string(), Value::from(unknown.kind));
        Ok(Value::Object(object))
    }

    pub(super) fn document(&mut self, message: MessageId, bytes: &[u8]) -> Result<Value> {
        let mut object = Map::new();
        self.message(message, bytes, &mut object)?;
        Ok(Value::Object(object))
    }

    /// Adds the fields of a message to `object`. If `object` has a field already, the two values are merged, as
    /// Protobuf requires.
    fn message(&mut self, id: MessageId, bytes: &[u8], object: &mut Map) -> Result<()> {
        let codec = self.codec;
        self.nested(|decoder| {
            decoder.fields(id, codec.schema.message(id), &codec.layouts[id.0 as usize], bytes, object)
        })
    }

    fn nested<T>(&mut self, decode: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == DEPTH_MAX {
            return Err(DecodeError::too_deep());
        }
        self.depth += 1;
        let result = decode(self);
        self.depth -= 1;
        result
    }

    fn fields(
        &mut self,
        id: MessageId,
        message: &Message,
        layout: &Layout,
        bytes: &[u8],
        object: &mut Map,
    ) -> Result<()> {
        let merging = !object.is_empty();
        let mut target = Target { merging, object };
        let mut seen: u64 = 0;
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.key()? {
            let Some((place, slot)) = layout.find(number) else {
                reader.skip(wire)?;
                continue;
            };
            match &slot.what {
                What::Inline(nested) => {
                    expect(wire, Wire::Delimited, "an inlined struct")?;
                    let bytes = reader.delimited()?;
                    self.nested(|decoder| decoder.fields(id, message, nested, bytes, target.object))?;
                }
                What::Field { index, .. } => {
                    let field = &message.fields[*index];
                    target.merging = merging || seen & 1 << place != 0;
                    self.field(id, field, wire, &mut reader, &mut target)?;
                }
            }
            seen |= 1 << place;
        }
        if layout.always & !seen != 0 {
            self.unset(id, message, layout, seen, target.object)?;
        }
        Ok(())
    }

    /// Adds the fields that are shown although the message lacks them.
    fn unset(&mut self, id: MessageId, message: &Message, layout: &Layout, seen: u64, object: &mut Map) -> Result<()> {
        let mut missing = layout.always & !seen;
        while missing != 0 {
            let place = missing.trailing_zeros() as usize;
            missing &= missing - 1;
            match &layout.slots[place].what {
                What::Inline(nested) => {
                    self.nested(|decoder| decoder.fields(id, message, nested, &[], object))?;
                }
                What::Field { index, .. } => {
                    let field = &message.fields[*index];
                    if !object.contains_key(&field.json) {
                        let value = if field.shape == Shape::Single { self.zero(field.ty)? } else { Value::Null };
                        self.count()?;
                        object.insert(field.json.clone(), value);
                    }
                }
            }
        }
        Ok(())
    }

    fn field(
        &mut self,
        owner: MessageId,
        field: &Field,
        wire: Wire,
        reader: &mut Reader<'_>,
        target: &mut Target<'_>,
    ) -> Result<()> {
        self.count()?;
        match field.shape {
            Shape::Single => self.single(owner, field, wire, reader, target),
            Shape::List => {
                // Numbers may be packed: one value with a length then contains many numbers.
                if wire == Wire::Delimited && matches!(field.ty, Type::Int32 | Type::Int64 | Type::Bool | Type::Double)
                {
                    let form = if field.ty == Type::Double { Wire::Fixed64 } else { Wire::Varint };
                    let mut packed = Reader::new(reader.delimited()?);
                    let items = target.list(field);
                    while !packed.is_empty() {
                        self.count()?;
                        items.push(self.value(owner, field, form, &mut packed)?);
                    }
                    return Ok(());
                }
                let value = self.value(owner, field, wire, reader)?;
                target.list(field).push(value);
                Ok(())
            }
            Shape::Map => {
                expect(wire, Wire::Delimited, &field.json)?;
                let mut entry = Reader::new(reader.delimited()?);
                let mut key = String::new();
                let mut value = None;
                while let Some((number, wire)) = entry.key()? {
                    match (number, wire) {
                        (1, Wire::Delimited) => key = text(entry.delimited()?),
                        (2, _) => value = Some(self.value(owner, field, wire, &mut entry)?),
                        (_, wire) => entry.skip(wire)?,
                    }
                }
                let value = match value {
                    Some(value) => value,
                    None => self.item_zero(field.ty)?,
                };
                target.map(field).insert(key, value);
                Ok(())
            }
        }
    }

    fn single(
        &mut self,
        owner: MessageId,
        field: &Field,
        wire: Wire,
        reader: &mut Reader<'_>,
        target: &mut Target<'_>,
    ) -> Result<()> {
        let shows_zero = !matches!(field.zero, Zero::Plain | Zero::Dropped);
        match field.ty {
            // An empty string removes the field, which takes no memory. Most strings of a message are empty.
            Type::String => {
                expect(wire, Wire::Delimited, &field.json)?;
                let bytes = reader.delimited()?;
                match bytes.is_empty() && !shows_zero {
                    true => target.clear(field),
                    false => target.set(field, Value::from(text(bytes))),
                }
            }
            Type::Bool | Type::Int32 | Type::Int64 | Type::Double => {
                let value = self.value(owner, field, wire, reader)?;
                let zero = value == Value::Bool(false) || value.as_f64() == Some(0.0);
                match zero && !shows_zero {
                    true => target.clear(field),
                    false => target.set(field, value),
                }
            }
            Type::Bytes => {
                let value = self.value(owner, field, wire, reader)?;
                match value.as_str() == Some("") && !shows_zero {
                    true => target.clear(field),
                    false => target.set(field, value),
                }
            }
            Type::Message(id) => {
                expect(wire, Wire::Delimited, &field.json)?;
                let bytes = reader.delimited()?;
                let mut inner = target.take(field);
                self.message(id, bytes, &mut inner)?;
                target.set(field, Value::Object(inner));
            }
            _ => {
                let value = self.value(owner, field, wire, reader)?;
                // An unset time, raw value or schema is decoded as null, and a document omits it.
                match value.is_null() && !shows_zero {
                    true => target.clear(field),
                    false => target.set(field, value),
                }
            }
        }
        Ok(())
    }

    /// Reads one value of a field. If the field is a list, the value is one item.
    fn value(&mut self, owner: MessageId, field: &Field, wire: Wire, reader: &mut Reader<'_>) -> Result<Value> {
        match field.ty {
            Type::Bool => {
                expect(wire, Wire::Varint, &field.json)?;
                return Ok(Value::Bool(reader.varint()? != 0));
            }
            Type::Int32 => {
                expect(wire, Wire::Varint, &field.json)?;
                return Ok(Value::from(reader.varint()? as i32));
            }
            Type::Int64 => {
                expect(wire, Wire::Varint, &field.json)?;
                return Ok(Value::from(reader.varint()? as i64));
            }
            Type::Double => {
                expect(wire, Wire::Fixed64, &field.json)?;
                return double(reader.double()?);
            }
            _ => expect(wire, Wire::Delimited, &field.json)?,
        }
        let bytes = reader.delimited()?;
        match field.ty {
            Type::String => Ok(Value::from(text(bytes))),
            Type::Bytes => Ok(Value::from(STANDARD.encode(bytes))),
            Type::Message(id) => {
                let mut object = Map::new();
                self.message(id, bytes, &mut object)?;
                Ok(Value::Object(object))
            }
            Type::IntOrString => int_or_string(bytes),
            Type::Quantity => match only(bytes)? {
                None => Ok(Value::from("0")),
                Some(bytes) => {
                    let text = text(bytes);
                    quantity::check(&text).map_err(|problem| DecodeError::Malformed(problem.to_string()))?;
                    Ok(Value::from(text))
                }
            },
            Type::Time => time(bytes, false),
            Type::MicroTime => time(bytes, true),
            Type::Duration => {
                let [nanos, _] = two_numbers(bytes)?;
                Ok(Value::from(duration::text(nanos as i64)))
            }
            Type::RawExtension => self.raw_extension(only(bytes)?),
            Type::FieldsV1 | Type::Json => only(bytes)?.map_or(Ok(Value::Null), json),
            Type::StringList => {
                let mut reader = Reader::new(bytes);
                let mut items = Vec::new();
                while let Some((number, wire)) = reader.key()? {
                    match (number, wire) {
                        (1, Wire::Delimited) => {
                            self.count()?;
                            items.push(Value::from(text(reader.delimited()?)));
                        }
                        (_, wire) => reader.skip(wire)?,
                    }
                }
                Ok(Value::Array(items))
            }
            Type::JsonSchemaPropsOrArray | Type::JsonSchemaPropsOrBool | Type::JsonSchemaPropsOrStringArray => {
                self.schema_or(owner, field.ty, bytes)
            }
            // The arms above have read these types.
            Type::Bool | Type::Int32 | Type::Int64 | Type::Double => Ok(Value::Null),
        }
    }

    /// Reads a field that contains either a JSON schema or a simpler value, such as a boolean. Only JSONSchemaProps has
    /// such fields.
    fn schema_or(&mut self, owner: MessageId, ty: Type, bytes: &[u8]) -> Result<Value> {
        let (schema_number, other_number) = match ty {
            Type::JsonSchemaPropsOrBool => (2, 1),
            _ => (1, 2),
        };
        let mut schema: Option<Map> = None;
        let mut allows = false;
        let mut items = Vec::new();
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.key()? {
            if number == schema_number {
                expect(wire, Wire::Delimited, "schema")?;
                let bytes = reader.delimited()?;
                self.message(owner, bytes, schema.get_or_insert_default())?;
            } else if number != other_number {
                reader.skip(wire)?;
            } else if ty == Type::JsonSchemaPropsOrBool {
                expect(wire, Wire::Varint, "allows")?;
                allows = reader.varint()? != 0;
            } else {
                expect(wire, Wire::Delimited, "items")?;
                self.count()?;
                let bytes = reader.delimited()?;
                items.push(match ty {
                    Type::JsonSchemaPropsOrStringArray => Value::from(text(bytes)),
                    _ => {
                        let mut item = Map::new();
                        self.message(owner, bytes, &mut item)?;
                        Value::Object(item)
                    }
                });
            }
        }
        Ok(match schema {
            _ if !items.is_empty() => Value::Array(items),
            Some(schema) => Value::Object(schema),
            None if ty == Type::JsonSchemaPropsOrBool => Value::Bool(allows),
            None => Value::Null,
        })
    }

    /// Reads a raw extension, whose bytes are either JSON or another object in an envelope.
    fn raw_extension(&mut self, raw: Option<&[u8]>) -> Result<Value> {
        match raw {
            None | Some([]) => Ok(Value::Null),
            Some(raw) if raw.starts_with(&MAGIC) => self.nested(|decoder| decoder.object(raw)),
            Some(raw) => json(raw),
        }
    }

    /// The value that is shown for an unset field of this type.
    fn zero(&mut self, ty: Type) -> Result<Value> {
        Ok(match ty {
            Type::String => Value::from(""),
            Type::Bool => Value::Bool(false),
            Type::Int32 | Type::Int64 | Type::Double | Type::IntOrString => Value::from(0),
            Type::Message(id) => {
                let mut object = Map::new();
                self.message(id, &[], &mut object)?;
                Value::Object(object)
            }
            Type::Quantity => Value::from("0"),
            Type::Duration => Value::from("0s"),
            Type::Bytes
            | Type::Time
            | Type::MicroTime
            | Type::RawExtension
            | Type::FieldsV1
            | Type::Json
            | Type::JsonSchemaPropsOrArray
            | Type::JsonSchemaPropsOrBool
            | Type::JsonSchemaPropsOrStringArray
            | Type::StringList => Value::Null,
        })
    }

    /// The value of a map entry in which only the key is set.
    fn item_zero(&mut self, ty: Type) -> Result<Value> {
        match ty {
            Type::Bytes => Ok(Value::from("")),
            Type::StringList => Ok(Value::Array(Vec::new())),
            ty => self.zero(ty),
        }
    }

    fn count(&mut self) -> Result<()> {
        self.values += 1;
        match self.values > VALUES_MAX {
            true => Err(DecodeError::Malformed("the object has too many values".to_string())),
            false => Ok(()),
        }
    }
}

/// The object that receives a message's fields.
struct Target<'o> {
    object: &'o mut Map,
    /// Whether a field of `object` may already have a value, with which the new value must be merged.
    merging: bool,
}

impl Target<'_> {
    fn set(&mut self, field: &Field, value: Value) {
        self.object.insert(field.json.clone(), value);
    }

    fn clear(&mut self, field: &Field) {
        if self.merging {
            self.object.remove(&field.json);
        }
    }

    fn take(&mut self, field: &Field) -> Map {
        match self.object.get_mut(&field.json) {
            Some(Value::Object(object)) if self.merging => std::mem::take(object),
            _ => Map::new(),
        }
    }

    fn list(&mut self, field: &Field) -> &mut Vec<Value> {
        let value = entry(self.object, &field.json);
        if !value.is_array() {
            *value = Value::Array(Vec::new());
        }
        match value {
            Value::Array(items) => items,
            _ => unreachable!("made an array above"),
        }
    }

    fn map(&mut self, field: &Field) -> &mut Map {
        let value = entry(self.object, &field.json);
        if !value.is_object() {
            *value = Value::Object(Map::new());
        }
        match value {
            Value::Object(values) => values,
            _ => unreachable!("made an object above"),
        }
    }
}

/// The value in `object` with this key, which becomes null if it is new. Memory for the key is taken only then.
fn entry<'o>(object: &'o mut Map, key: &str) -> &'o mut Value {
    if !object.contains_key(key) {
        object.insert(key.to_string(), Value::Null);
    }
    &mut object[key]
}

fn expect(wire: Wire, expected: Wire, field: &str) -> Result<()> {
    if wire == expected {
        return Ok(());
    }
    Err(DecodeError::malformed(format!("wrong wireType = {} for field {field}", wire.number())))
}

/// The content of field 1, which is the only field of a message that wraps bytes or a string.
fn only(bytes: &[u8]) -> Result<Option<&[u8]>> {
    let mut reader = Reader::new(bytes);
    let mut found = None;
    while let Some((number, wire)) = reader.key()? {
        match (number, wire) {
            (1, Wire::Delimited) => found = Some(reader.delimited()?),
            (_, wire) => reader.skip(wire)?,
        }
    }
    Ok(found)
}

fn two_numbers(bytes: &[u8]) -> Result<[u64; 2]> {
    let mut numbers = [0; 2];
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.key()? {
        match (number, wire) {
            (1 | 2, Wire::Varint) => numbers[number as usize - 1] = reader.varint()?,
            (_, wire) => reader.skip(wire)?,
        }
    }
    Ok(numbers)
}

fn int_or_string(bytes: &[u8]) -> Result<Value> {
    const TEXT: u64 = 1;
    let (mut ty, mut number, mut string): (u64, u64, &[u8]) = (0, 0, &[]);
    let mut reader = Reader::new(bytes);
    while let Some((field, wire)) = reader.key()? {
        match (field, wire) {
            (1, Wire::Varint) => ty = reader.varint()?,
            (2, Wire::Varint) => number = reader.varint()?,
            (3, Wire::Delimited) => string = reader.delimited()?,
            (_, wire) => reader.skip(wire)?,
        }
    }
    match ty {
        0 => Ok(Value::from(number as i32)),
        TEXT => Ok(Value::from(text(string))),
        _ => Err(DecodeError::Malformed("impossible IntOrString.Type".to_string())),
    }
}

/// Reads a time; null if the time is unset.
fn time(bytes: &[u8], micros: bool) -> Result<Value> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let [seconds, nanos] = two_numbers(bytes)?;
    let instant = Instant { seconds: seconds as i64, nanos: if micros { nanos as i32 } else { 0 } };
    if instant.is_unset() {
        return Ok(Value::Null);
    }
    let text = instant.text(micros).ok_or_else(|| DecodeError::Malformed("year is out of range".to_string()))?;
    Ok(Value::from(text))
}

/// A number as Go writes it: a whole number has no fraction.
pub(crate) fn double(number: f64) -> Result<Value> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() <= EXACT && !(number == 0.0 && number.is_sign_negative()) {
        return Ok(Value::from(number as i64));
    }
    let number = serde_json::Number::from_f64(number);
    number.map(Value::Number).ok_or_else(|| DecodeError::Malformed("json: unsupported value: not a number".to_string()))
}

fn json(raw: &[u8]) -> Result<Value> {
    if raw.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(raw).map_err(|error| DecodeError::Malformed(format!("a raw value is not JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use holdfast_value::json;

    use super::super::{DecodeError, codec, wrap};
    use super::*;

    fn decode(api_version: &str, kind: &str, raw: &[u8]) -> Result<Value> {
        codec().decode_object(&wrap(api_version, kind, raw))
    }

    #[test]
    fn a_body_of_kubectl_shows_as_json() {
        // These are the bytes into which client-go encodes a ConfigMap, with empty strings and an unset time.
        let raw = b"\x0a\x13\x0a\x01a\x12\x00\x1a\x00\x22\x00\x2a\x00\x32\x00\x38\x00\x42\x00\x5a\x00\
                    \x12\x06\x0a\x01k\x12\x01v\x1a\x06\x0a\x01b\x12\x01\xff\x20\x00";
        // The empty label is a map entry without key and value.
        assert_eq!(
            decode("v1", "ConfigMap", raw),
            Ok(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"": ""}},
                "data": {"k": "v"}, "binaryData": {"b": "/w=="}, "immutable": false}))
        );
    }

    #[test]
    fn unset_values_show_as_kubernetes_shows_them() {
        assert_eq!(
            decode("apps/v1", "Deployment", b""),
            Ok(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {}, "status": {},
                "spec": {"strategy": {}, "template": {"metadata": {}, "spec": {"containers": null}}}}))
        );
        // `replicas` is a pointer in Go, so an explicit zero differs from an absent value.
        let document = decode("apps/v1", "Deployment", b"\x12\x02\x08\x00").expect("a deployment");
        assert_eq!(document["spec"]["replicas"], json!(0));
    }

    #[test]
    fn numbers_come_packed_or_not() {
        let id = codec().find("batch/v1", "Job").expect("a job");
        // Wraps the bytes of `values` in the messages on the path `spec.podFailurePolicy.rules[0].onExitCodes.values`.
        let wrapped = |values: &[u8]| {
            [0x12, 0x5a, 0x0a, 0x12]
                .iter()
                .rev()
                .fold(values.to_vec(), |inner, key| [&[*key, inner.len() as u8][..], &inner].concat())
        };
        for values in [&b"\x18\x01\x18\x02"[..], b"\x1a\x02\x01\x02", b"\x18\x01\x1a\x01\x02"] {
            let document = codec().decode(id, &wrapped(values)).expect("a job");
            let rules = &document["spec"]["podFailurePolicy"]["rules"][0];
            assert_eq!(rules["onExitCodes"]["values"], json!([1, 2]), "{document}");
        }
    }

    #[test]
    fn split_messages_are_merged_and_unknown_fields_skipped() {
        let raw = b"\x0a\x03\x0a\x01a\x9a\x3f\x01x\x0a\x03\x1a\x01n\x0a\x02\x0a\x00\x12";
        assert_eq!(decode("v1", "ConfigMap", raw), Err(DecodeError::cut_off()));
        let document = decode("v1", "ConfigMap", &raw[..raw.len() - 1]).expect("a map");
        assert_eq!(document["metadata"], json!({"namespace": "n"}));
    }

    #[test]
    fn raw_values_may_be_enveloped() {
        let inner = wrap("v1", "ConfigMap", b"\x0a\x03\x0a\x01a");
        let raw = [&[0x0a, inner.len() as u8][..], &inner].concat();
        let raw = [&[0x12, raw.len() as u8][..], &raw].concat();
        let document = decode("apps/v1", "ControllerRevision", &raw).expect("a revision");
        assert_eq!(document["data"], json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}));
        let document = decode("apps/v1", "ControllerRevision", b"\x12\x0b\x0a\x09{\"a\":[1]}").expect("a revision");
        assert_eq!(document["data"], json!({"a": [1]}));
    }

    #[test]
    fn limits_hold() {
        let id = codec().find("apiextensions.k8s.io/v1", "CustomResourceDefinition").expect("a definition");
        let schema = codec().schema.id("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps");
        // Each schema is the value of the field `not` of the schema around it.
        let mut deep = Vec::new();
        for depth in 0..2 * DEPTH_MAX {
            let mut level = super::super::bytes::Backward::with_capacity(deep.len() + 8);
            level.bytes(28, &deep);
            deep = level.finish();
            let result = codec().decode(schema.expect("a schema"), &deep);
            // The innermost schema adds one level, so the limit is reached one level earlier.
            assert_eq!(result.is_ok(), depth + 2 <= DEPTH_MAX, "{depth}");
        }
        // Each item takes two bytes in the message, and becomes a whole object in the document.
        let list = codec().list_of(id).expect("a list");
        let many = b"\x12\x00".repeat(200_000);
        assert_eq!(
            codec().decode(list, &many),
            Err(DecodeError::Malformed("the object has too many values".to_string()))
        );
    }

    #[test]
    fn malformed_bodies_are_refused() {
        let cases: [(&[u8], &str); 5] = [
            (b"\x08\x01", "wrong wireType"),
            (b"\x0a\x05a", "unexpected EOF"),
            (b"\x0f", "illegal wireType 7"),
            (b"\x02\x00", "illegal tag 0"),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "integer overflow"),
        ];
        for (raw, problem) in cases {
            let error = decode("v1", "ConfigMap", raw).expect_err(problem).to_string();
            assert!(error.contains(problem), "{error}");
        }
        assert_eq!(
            decode("v1", "Widget", b"").map_err(|error| error.to_string()),
            Err("no kind \"Widget\" is registered for version \"v1\" in scheme \"pkg/api/legacyscheme/scheme.go:30\""
                .to_string())
        );
    }
}
