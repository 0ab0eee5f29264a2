//! Encodes documents into Protobuf messages as Kubernetes' own servers and clients do: fields are in the order of their
//! numbers, a field that is a value in Go is written even if it is zero, and a field that is a pointer only if it is
//! set.

use base64::{
    Engine,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use holdfast_value::{Map, Value};

use super::{
    Codec, DEPTH_MAX, EncodeError, Layout, What,
    bytes::{Backward, Wire},
    special::Instant,
};
use crate::object::duration;
use crate::schema::{Field, Message, MessageId, Shape, Type};

/// The decoder of base64. Like Go's, it ignores the bits of the last letter that belong to no byte.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

pub(super) fn encode(codec: &Codec<'_>, message: MessageId, document: &Value) -> Result<Vec<u8>> {
    let mut encoder = Encoder {
        codec,
        out: Backward::with_capacity(1024),
        values: Vec::with_capacity(256),
        scratch: Vec::new(),
        depth: 0,
    };
    match document {
        Value::Object(object) => encoder.message(message, Some(object))?,
        Value::Null => encoder.message(message, None)?,
        _ => return Err(EncodeError(format!("{}: not an object", codec.schema.message(message).name))),
    }
    Ok(encoder.out.finish())
}

type Result<T, E = EncodeError> = std::result::Result<T, E>;

struct Encoder<'c, 's, 'd> {
    codec: &'c Codec<'s>,
    out: Backward,
    /// The values of the messages that are being written. The values of each message are in the order of its schema's
    /// fields.
    values: Vec<Option<&'d Value>>,
    scratch: Vec<u8>,
    depth: usize,
}

impl<'d> Encoder<'_, '_, 'd> {
    fn message(&mut self, id: MessageId, object: Option<&'d Map>) -> Result<()> {
        if self.depth == DEPTH_MAX {
            return Err(EncodeError("exceeded max depth".to_string()));
        }
        self.depth += 1;
        let codec = self.codec;
        let message = codec.schema.message(id);
        let base = self.values.len();
        self.values.resize(base + message.fields.len(), None);
        if let Some(object) = object {
            scatter(message, object, &mut self.values[base..]);
        }
        self.fields(id, message, &codec.layouts[id.0 as usize], base)?;
        self.values.truncate(base);
        self.depth -= 1;
        Ok(())
    }

    fn fields(&mut self, id: MessageId, message: &Message, layout: &Layout, base: usize) -> Result<()> {
        for slot in layout.slots.iter().rev() {
            match &slot.what {
                What::Inline(nested) => {
                    let end = self.out.len();
                    self.fields(id, message, nested, base)?;
                    self.out.close(slot.number, end);
                }
                What::Field { index, valued } => {
                    let field = &message.fields[*index];
                    match self.values[base + index] {
                        Some(value) => self.field(id, message, field, value)?,
                        None if *valued => self.zero(field)?,
                        None => {}
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes the zero of a field that is unset and is always written.
    fn zero(&mut self, field: &Field) -> Result<()> {
        match field.ty {
            Type::Bool | Type::Int32 | Type::Int64 => self.out.number(field.number, 0),
            Type::Double => {
                self.out.put(&0_f64.to_le_bytes());
                self.out.key(field.number, Wire::Fixed64);
            }
            Type::Message(id) => {
                let end = self.out.len();
                self.message(id, None)?;
                self.out.close(field.number, end);
            }
            Type::IntOrString => {
                let end = self.out.len();
                self.int_or_string(0, &[], 0);
                self.out.close(field.number, end);
            }
            Type::Quantity => {
                let end = self.out.len();
                self.out.bytes(1, b"0");
                self.out.close(field.number, end);
            }
            Type::Duration => {
                let end = self.out.len();
                self.out.number(1, 0);
                self.out.close(field.number, end);
            }
            _ => self.out.bytes(field.number, &[]),
        }
        Ok(())
    }

    fn field(&mut self, id: MessageId, message: &Message, field: &Field, value: &'d Value) -> Result<()> {
        let owner = Owner { id, message, field };
        match (field.shape, value) {
            (Shape::Single, value) => self.value(owner, field.number, value),
            (Shape::List, Value::Array(items)) => {
                items.iter().rev().try_for_each(|item| self.value(owner, field.number, item))
            }
            (Shape::Map, Value::Object(values)) if values.keys().is_sorted() => {
                values.iter().rev().try_for_each(|(key, value)| self.entry(owner, key, value))
            }
            (Shape::Map, Value::Object(values)) => {
                let mut values: Vec<_> = values.iter().collect();
                values.sort_unstable_by_key(|(key, _)| *key);
                values.into_iter().rev().try_for_each(|(key, value)| self.entry(owner, key, value))
            }
            _ => Err(owner.mismatch()),
        }
    }

    /// Writes an entry of a map.
    fn entry(&mut self, owner: Owner<'_>, key: &str, value: &'d Value) -> Result<()> {
        let end = self.out.len();
        self.value(owner, 2, value)?;
        self.out.bytes(1, key.as_bytes());
        self.out.close(owner.field.number, end);
        Ok(())
    }

    /// Writes one value: of a field, a list item or a map entry.
    fn value(&mut self, owner: Owner<'_>, number: u32, value: &'d Value) -> Result<()> {
        match (owner.field.ty, value) {
            (Type::String, Value::String(text)) => self.out.bytes(number, text.as_bytes()),
            (Type::Bool, Value::Bool(flag)) => self.out.number(number, u64::from(*flag)),
            (Type::Int32, value) => {
                let value = value.as_i64().and_then(|value| i32::try_from(value).ok());
                self.out.number(number, i64::from(value.ok_or_else(|| owner.mismatch())?) as u64);
            }
            (Type::Int64, value) => {
                self.out.number(number, value.as_i64().ok_or_else(|| owner.mismatch())? as u64);
            }
            (Type::Double, Value::Number(value)) => {
                self.out.put(&value.as_f64().ok_or_else(|| owner.mismatch())?.to_le_bytes());
                self.out.key(number, Wire::Fixed64);
            }
            (Type::Bytes, Value::String(text)) => {
                self.scratch.clear();
                let result = match text.contains(['\r', '\n']) {
                    false => BASE64.decode_vec(text, &mut self.scratch),
                    true => BASE64.decode_vec(text.replace(['\r', '\n'], ""), &mut self.scratch),
                };
                result.map_err(|_| owner.mismatch())?;
                self.out.bytes(number, &self.scratch);
            }
            // A list or map may contain nulls. A null becomes an empty message, string or schema.
            (Type::Bool | Type::Double, _) => return Err(owner.mismatch()),
            (Type::String | Type::Bytes, Value::Null) => self.out.bytes(number, &[]),
            (Type::String | Type::Bytes, _) => return Err(owner.mismatch()),
            (_, value) => {
                let end = self.out.len();
                self.contents(owner, value)?;
                self.out.close(number, end);
            }
        }
        Ok(())
    }

    /// Writes the content of a value whose Protobuf form is a message.
    fn contents(&mut self, owner: Owner<'_>, value: &'d Value) -> Result<()> {
        match (owner.field.ty, value) {
            (Type::Message(id), Value::Object(object)) => self.message(id, Some(object)),
            (Type::Message(id), Value::Null) => self.message(id, None),
            (Type::IntOrString, Value::String(text)) => {
                self.int_or_string(1, text.as_bytes(), 0);
                Ok(())
            }
            (Type::IntOrString, value) => {
                let number = value.as_i64().and_then(|value| i32::try_from(value).ok());
                self.int_or_string(0, &[], number.ok_or_else(|| owner.mismatch())?);
                Ok(())
            }
            (Type::Quantity, Value::String(text)) => {
                self.out.bytes(1, text.as_bytes());
                Ok(())
            }
            (ty @ (Type::Time | Type::MicroTime), Value::String(text)) => {
                let instant = Instant::parse(text, ty == Type::MicroTime).ok_or_else(|| owner.mismatch())?;
                if !instant.is_unset() {
                    self.out.number(2, instant.nanos as u64);
                    self.out.number(1, instant.seconds as u64);
                }
                Ok(())
            }
            (Type::Time | Type::MicroTime, Value::Null) => Ok(()),
            (Type::Duration, Value::String(text)) => {
                self.out.number(1, duration::nanos(text).map_err(|_| owner.mismatch())? as u64);
                Ok(())
            }
            (Type::RawExtension | Type::FieldsV1 | Type::Json, Value::Null) => Ok(()),
            (Type::RawExtension | Type::FieldsV1 | Type::Json, value) => {
                self.scratch.clear();
                serde_json::to_writer(&mut self.scratch, value).map_err(|_| owner.mismatch())?;
                self.out.bytes(1, &self.scratch);
                Ok(())
            }
            (Type::StringList, Value::Array(items)) => self.strings(owner, 1, items),
            (Type::StringList, Value::Null) => Ok(()),
            (
                ty @ (Type::JsonSchemaPropsOrArray | Type::JsonSchemaPropsOrBool | Type::JsonSchemaPropsOrStringArray),
                value,
            ) => self.schema_or(owner, ty, value),
            _ => Err(owner.mismatch()),
        }
    }

    /// Writes a field that contains either a JSON schema or a simpler value, such as a boolean. Only JSONSchemaProps
    /// has such fields.
    fn schema_or(&mut self, owner: Owner<'_>, ty: Type, value: &'d Value) -> Result<()> {
        let end = self.out.len();
        match (ty, value) {
            (Type::JsonSchemaPropsOrBool, Value::Bool(allows)) => self.out.number(1, u64::from(*allows)),
            (Type::JsonSchemaPropsOrBool, Value::Object(schema)) => {
                self.message(owner.id, Some(schema))?;
                self.out.close(2, end);
                self.out.number(1, 1);
            }
            (Type::JsonSchemaPropsOrArray | Type::JsonSchemaPropsOrStringArray, Value::Object(schema)) => {
                self.message(owner.id, Some(schema))?;
                self.out.close(1, end);
            }
            (Type::JsonSchemaPropsOrArray, Value::Array(items)) => {
                for item in items.iter().rev() {
                    let end = self.out.len();
                    self.message(owner.id, Some(item.as_object().ok_or_else(|| owner.mismatch())?))?;
                    self.out.close(2, end);
                }
            }
            (Type::JsonSchemaPropsOrStringArray, Value::Array(items)) => self.strings(owner, 2, items)?,
            (Type::JsonSchemaPropsOrArray | Type::JsonSchemaPropsOrStringArray, Value::Null) => {}
            _ => return Err(owner.mismatch()),
        }
        Ok(())
    }

    fn strings(&mut self, owner: Owner<'_>, number: u32, items: &'d [Value]) -> Result<()> {
        for item in items.iter().rev() {
            self.out.bytes(number, item.as_str().ok_or_else(|| owner.mismatch())?.as_bytes());
        }
        Ok(())
    }

    fn int_or_string(&mut self, ty: u64, text: &[u8], number: i32) {
        self.out.bytes(3, text);
        self.out.number(2, i64::from(number) as u64);
        self.out.number(1, ty);
    }
}

/// The field that contains a value, either directly or as an item of a list or map.
#[derive(Clone, Copy)]
struct Owner<'a> {
    id: MessageId,
    message: &'a Message,
    field: &'a Field,
}

impl Owner<'_> {
    #[cold]
    fn mismatch(&self) -> EncodeError {
        EncodeError(format!("{}.{}: the value is not of the field's type", self.message.name, self.field.json))
    }
}

/// Puts the values of an object in the order of the message's fields. Null counts as absent.
fn scatter<'d>(message: &Message, object: &'d Map, values: &mut [Option<&'d Value>]) {
    // The fields of the message are ordered by name, and usually those of the object too. So one pass through both
    // usually finds all fields.
    let mut next = 0;
    for (key, value) in object {
        if value.is_null() {
            continue;
        }
        while next < message.fields.len() && *message.fields[next].json < **key {
            next += 1;
        }
        let found = match message.fields.get(next) {
            Some(field) if field.json == *key => Some(next),
            _ => message.fields.binary_search_by(|field| field.json.as_str().cmp(key)).ok(),
        };
        if let Some(index) = found {
            values[index] = Some(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_value::json;

    use super::*;
    use crate::wire::protobuf::codec;

    fn encode(api_version: &str, kind: &str, document: &Value) -> Result<Vec<u8>> {
        codec().encode(codec().find(api_version, kind).expect("a kind"), document)
    }

    #[test]
    fn values_are_written_even_when_zero() {
        // These are the bytes into which client-go encodes a ConfigMap: values are written even if they are empty, and
        // unset pointers are not.
        let bytes = encode("v1", "ConfigMap", &json!({"metadata": {"name": "a"}, "data": {"k": "v"}}));
        let expected =
            b"\x0a\x11\x0a\x01a\x12\x00\x1a\x00\x22\x00\x2a\x00\x32\x00\x38\x00\x42\x00\x12\x06\x0a\x01k\x12\x01v";
        assert_eq!(bytes.as_deref(), Ok(&expected[..]));
        let scale = encode("autoscaling/v1", "Scale", &json!({"spec": {"replicas": 300}}));
        let expected = b"\x0a\x10\x0a\x00\x12\x00\x1a\x00\x22\x00\x2a\x00\x32\x00\x38\x00\x42\x00\
                         \x12\x03\x08\xac\x02\x1a\x04\x08\x00\x12\x00";
        assert_eq!(scale.as_deref(), Ok(&expected[..]));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let cases = [
            (json!({"metadata": 1}), "io.k8s.api.core.v1.ConfigMap.metadata"),
            (json!({"data": {"a": 1}}), "io.k8s.api.core.v1.ConfigMap.data"),
            (json!({"data": []}), "io.k8s.api.core.v1.ConfigMap.data"),
            (json!({"binaryData": {"a": "!"}}), "io.k8s.api.core.v1.ConfigMap.binaryData"),
            (json!({"metadata": {"generation": 1.5}}), "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta.generation"),
            (
                json!({"metadata": {"creationTimestamp": "x"}}),
                "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta.creationTimestamp",
            ),
        ];
        for (document, field) in cases {
            let error = encode("v1", "ConfigMap", &document).expect_err(field);
            assert!(error.0.starts_with(&format!("{field}: ")), "{error}");
        }
        assert!(encode("v1", "ConfigMap", &json!([])).is_err());
    }
}
