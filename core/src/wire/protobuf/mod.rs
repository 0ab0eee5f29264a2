//! The Protobuf form of built-in objects. The codec reads the schema table, so no types are generated.
//!
//! A body is an envelope ([`wrap`], [`unwrap`]) around a message; `apiVersion` and `kind` are only in the envelope.
//! [`Codec`] converts messages to JSON documents and back. Both directions use a [`Layout`], which has the schema's
//! fields ordered by Protobuf number, and inlined structs as the nested messages that they are in Protobuf.

mod bytes;
mod decode;
mod encode;
mod envelope;
mod frames;
mod names;
mod special;

use std::{collections::BTreeMap, fmt, sync::LazyLock};

use holdfast_value::Value;

use crate::refusal::SCHEME;
use crate::schema::{Field, Message, MessageId, Schema, Shape, Type, Zero, schema};

pub(crate) use decode::double;
pub use envelope::{MAGIC, Unknown, unwrap, wrap};
pub use frames::{LIST_END, item_size, list_item, list_start, watch_frame};

/// Decodes and encodes the messages of one schema.
pub struct Codec<'s> {
    schema: &'s Schema,
    /// How each message is laid out in Protobuf, indexed by [`MessageId`].
    layouts: Vec<Layout>,
    /// The package of each group, without the prefix `io.k8s.api.`: `apps` for the group `apps`.
    packages: BTreeMap<String, String>,
}

/// The codec of the built-in API.
pub fn codec() -> &'static Codec<'static> {
    static BUILT_IN: LazyLock<Codec<'static>> = LazyLock::new(|| Codec::new(schema()));
    &BUILT_IN
}

impl<'s> Codec<'s> {
    pub fn new(schema: &'s Schema) -> Self {
        Self { schema, layouts: schema.messages.iter().map(Layout::new).collect(), packages: names::packages(schema) }
    }

    /// The message of a kind, by the names that documents and envelopes use. Messages are found for every version in
    /// the schema, even if the version is not served. The kinds that all groups have, such as `DeleteOptions`, are
    /// found for any group.
    pub fn find(&self, api_version: &str, kind: &str) -> Option<MessageId> {
        names::find(self.schema, &self.packages, api_version, kind)
    }

    /// The message of the list whose items are the message `item`.
    pub fn list_of(&self, item: MessageId) -> Option<MessageId> {
        self.schema.id(&format!("{}List", self.schema.message(item).name))
    }

    /// Decodes a message into a document. The document has no `apiVersion` and no `kind`.
    ///
    /// Unset fields are shown as in Kubernetes: an empty struct as `{}`, and a list or time that is always shown as
    /// null.
    pub fn decode(&self, message: MessageId, bytes: &[u8]) -> Result<Value, DecodeError> {
        decode::Decoder::new(self).document(message, bytes)
    }

    /// Decodes a body in an envelope into a document. `apiVersion` and `kind` come from the envelope.
    pub fn decode_object(&self, body: &[u8]) -> Result<Value, DecodeError> {
        decode::Decoder::new(self).object(body)
    }

    /// Encodes a document into a message. Fields that the schema does not declare are skipped.
    pub fn encode(&self, message: MessageId, document: &Value) -> Result<Vec<u8>, EncodeError> {
        encode::encode(self, message, document)
    }

    /// Encodes a document into a body in an envelope, which gets the document's `apiVersion` and `kind`.
    pub fn encode_object(&self, message: MessageId, document: &Value) -> Result<Vec<u8>, EncodeError> {
        let text = |key| document.get(key).and_then(Value::as_str).unwrap_or_default();
        Ok(wrap(text("apiVersion"), text("kind"), &self.encode(message, document)?))
    }

    /// The number of the field `items` in the message of a list.
    pub fn items_number(&self, message: MessageId) -> u32 {
        self.schema.message(message).field("items").map_or(ITEMS, |field| field.number)
    }
}

/// The number of the field `items` in almost every list.
const ITEMS: u32 = 2;

/// The fields of a message, as Protobuf has them.
struct Layout {
    /// The fields and inlined structs of the message, ordered by number.
    slots: Vec<Slot>,
    /// For each field number, the index in `slots` plus one; 0 if the message has no field with this number.
    by_number: Vec<u8>,
    /// One bit for each slot: whether JSON shows the field even if the message lacks it.
    always: u64,
}

struct Slot {
    number: u32,
    what: What,
}

enum What {
    Field {
        /// The index in [`Message::fields`].
        index: usize,
        /// Whether the field is a value in Go and not a pointer. A value is written even if it is zero.
        valued: bool,
    },
    /// A struct that JSON inlines. Go always writes it.
    Inline(Layout),
}

/// Structs that JSON omits if they are zero, although they are values in Go. Each row has the end of the message's
/// name, and the name of the field.
const VALUES: [(&str, &str); 5] = [
    (".meta.v1.ObjectMeta", "creationTimestamp"),
    (".ControllerRevision", "data"),
    (".AdmissionRequest", "object"),
    (".AdmissionRequest", "oldObject"),
    (".AdmissionRequest", "options"),
];

impl Layout {
    fn new(message: &Message) -> Self {
        let fields: Vec<(&[u32], usize)> =
            message.fields.iter().enumerate().map(|(index, field)| (&field.inline[..], index)).collect();
        Self::of(message, &fields)
    }

    /// Makes the layout of a message. Each item of `fields` is the index of a field, with those numbers of its Protobuf
    /// path that are below this layout.
    fn of(message: &Message, fields: &[(&[u32], usize)]) -> Self {
        let mut slots = Vec::new();
        let mut nested: BTreeMap<u32, Vec<(&[u32], usize)>> = BTreeMap::new();
        for (path, index) in fields {
            match path.split_first() {
                Some((first, rest)) => nested.entry(*first).or_default().push((rest, *index)),
                None => {
                    let field = &message.fields[*index];
                    let what = What::Field { index: *index, valued: is_value(message, field) };
                    slots.push(Slot { number: field.number, what });
                }
            }
        }
        for (number, fields) in nested {
            slots.push(Slot { number, what: What::Inline(Self::of(message, &fields)) });
        }
        slots.sort_by_key(|slot| slot.number);
        assert!(slots.len() <= u64::BITS as usize, "{}: more fields than a bit set holds", message.name);
        let mut always = 0;
        for (place, slot) in slots.iter().enumerate() {
            let shows = match &slot.what {
                What::Field { index, .. } => message.fields[*index].zero == Zero::Always,
                What::Inline(nested) => nested.always != 0,
            };
            always |= u64::from(shows) << place;
        }
        let last = slots.last().map_or(0, |slot| slot.number as usize);
        let mut by_number = vec![0; last + 1];
        for (place, slot) in (1_u8..).zip(&slots) {
            by_number[slot.number as usize] = place;
        }
        Self { slots, by_number, always }
    }

    #[inline]
    fn find(&self, number: u32) -> Option<(usize, &Slot)> {
        let place = usize::from(*self.by_number.get(number as usize)?).checked_sub(1)?;
        Some((place, &self.slots[place]))
    }
}

fn is_value(message: &Message, field: &Field) -> bool {
    if field.shape != Shape::Single {
        return false;
    }
    match field.ty {
        Type::String | Type::Bool | Type::Int32 | Type::Int64 | Type::Double => !field.zero.is_explicit(),
        Type::Message(_)
        | Type::IntOrString
        | Type::Quantity
        | Type::Time
        | Type::MicroTime
        | Type::Duration
        | Type::RawExtension => {
            let listed = |(name, json): &(&str, &str)| message.name.ends_with(name) && field.json == *json;
            field.zero == Zero::Always || VALUES.iter().any(listed)
        }
        Type::Bytes
        | Type::FieldsV1
        | Type::Json
        | Type::JsonSchemaPropsOrArray
        | Type::JsonSchemaPropsOrBool
        | Type::JsonSchemaPropsOrStringArray
        | Type::StringList => false,
    }
}

/// The maximum number of messages inside each other that are decoded or encoded. JSON documents cannot be deeper.
const DEPTH_MAX: usize = 128;

/// The reason why bytes cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecodeError {
    /// The body does not begin with [`MAGIC`].
    NoEnvelope,
    /// The schema does not have the kind that the envelope names.
    UnknownKind {
        api_version: String,
        kind: String,
    },
    Malformed(String),
}

impl DecodeError {
    fn malformed(problem: String) -> Self {
        Self::Malformed(format!("proto: {problem}"))
    }

    fn cut_off() -> Self {
        Self::Malformed("unexpected EOF".to_string())
    }

    fn too_deep() -> Self {
        Self::Malformed("exceeded max depth".to_string())
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoEnvelope => {
                write!(f, "provided data does not appear to be a protobuf message, expected prefix {MAGIC:?}")
            }
            Self::UnknownKind { api_version, kind } => {
                write!(f, "no kind \"{kind}\" is registered for version \"{api_version}\" in scheme \"{SCHEME}\"")
            }
            Self::Malformed(problem) => f.write_str(problem),
        }
    }
}

impl std::error::Error for DecodeError {}

/// The reason why a document cannot be encoded: a value has another type than its field. The check against the schema
/// refuses such a document earlier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodeError(pub String);

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for EncodeError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_place() {
        fn count(layout: &Layout) -> usize {
            assert!(layout.slots.is_sorted_by(|a, b| a.number < b.number));
            let of = |slot: &Slot| match &slot.what {
                What::Field { .. } => 1,
                What::Inline(nested) => count(nested),
            };
            layout.slots.iter().map(of).sum()
        }
        for (message, layout) in schema().messages.iter().zip(&codec().layouts) {
            assert_eq!(count(layout), message.fields.len(), "{}", message.name);
        }
    }

    #[test]
    fn every_stored_resource_has_a_list() {
        for resource in &schema().resources {
            if crate::kinds::registry()
                .find(&resource.group, &resource.version, &resource.plural)
                .is_some_and(|(id, _)| crate::kinds::registry().get(id).stored)
            {
                let list = codec().list_of(resource.message).unwrap_or_else(|| panic!("{}", resource.kind));
                let message = schema().message(list);
                let item = message.field("items").map(|field| field.ty);
                assert_eq!(item, Some(Type::Message(resource.message)), "{}", message.name);
            }
        }
    }
}
