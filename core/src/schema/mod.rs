//! The table of field types: it describes every message of the built-in API.
//!
//! Type checks, pruning, merge keys, list types, Protobuf numbers and OpenAPI all use this table. It is parsed once,
//! from the text that `cargo xtask schema` writes (`core/schema/table.txt`).

pub mod amount;
mod check;
pub mod defaults;
pub mod go_names;
pub mod layout;
mod parse;
pub mod quantity;
pub mod schedule;
pub mod spelling;
pub mod structural;
pub mod timestamp;

use holdfast_value::Value;
use std::{collections::BTreeMap, sync::LazyLock};

pub(crate) use crate::object::duration::check as check_duration;
pub use crate::object::duration::nanos as duration_nanos;
pub use check::{TypeError, check, check_change, raise_to_thousandths};
pub use parse::ParseError;

/// The index of a message in [`Schema::messages`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MessageId(pub u32);

#[derive(Debug)]
pub struct Schema {
    /// The messages, ordered by name.
    pub messages: Vec<Message>,
    /// The resources, ordered by group, version and plural.
    pub resources: Vec<Resource>,
    pub(crate) by_name: BTreeMap<String, MessageId>,
}

#[derive(Debug)]
pub struct Message {
    /// The name of the message's OpenAPI definition: `io.k8s.api.apps.v1.Deployment`.
    pub name: String,
    /// The fields as in JSON, ordered by JSON name. The fields of an inlined struct are included; `inline` of such a
    /// field has its Protobuf path.
    pub fields: Vec<Field>,
    /// Whether the Go type is marked with `+structType=atomic`.
    pub atomic: bool,
    /// Whether the JSON of the message has `apiVersion` and `kind`. They are not among `fields`, because in Protobuf
    /// they are in the envelope.
    pub typed: bool,
}

/// A resource that the sources of the table name. The sources do not name resources of older versions.
#[derive(Debug)]
pub struct Resource {
    /// The group; empty for the core group.
    pub group: String,
    pub version: String,
    pub kind: String,
    pub plural: String,
    pub namespaced: bool,
    pub message: MessageId,
}

#[derive(Debug, Clone)]
pub struct Field {
    /// The name of the field in JSON.
    pub json: String,
    /// The number of the field in Protobuf.
    pub number: u32,
    /// The Protobuf numbers of the nested messages that JSON inlines, outermost first; empty for most fields.
    pub inline: Vec<u32>,
    pub ty: Type,
    pub shape: Shape,
    pub required: bool,
    pub zero: Zero,
    pub list_type: ListType,
    pub list_map_keys: Vec<String>,
    /// Whether the field is marked with an atomic `mapType` or `structType`.
    pub atomic: bool,
    /// Whether the field is marked with a granular `structType`, so that it is not atomic even if its type is.
    pub granular: bool,
    pub patch_merge: bool,
    pub patch_retain_keys: bool,
    pub patch_merge_key: Option<String>,
    /// The value of the marker `+default=…`, as JSON text.
    pub default: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Single,
    List,
    /// A map whose keys are strings.
    Map,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    String,
    Bool,
    Int32,
    Int64,
    Double,
    /// Bytes, which are base64 in JSON.
    Bytes,
    Message(MessageId),
    IntOrString,
    Quantity,
    /// A time in RFC 3339 with whole seconds.
    Time,
    /// A time in RFC 3339 with six digits of fraction.
    MicroTime,
    /// A duration in Go's format.
    Duration,
    /// Any JSON object, which is bytes in Protobuf.
    RawExtension,
    FieldsV1,
    /// Any JSON value; only types of apiextensions.k8s.io have such fields.
    Json,
    JsonSchemaPropsOrArray,
    JsonSchemaPropsOrBool,
    JsonSchemaPropsOrStringArray,
    /// A message that JSON shows as a plain array of strings (`Verbs`, `ExtraValue`).
    StringList,
}

/// How JSON shows the field if it has a zero or is absent in Protobuf (see `facts-zero-values.txt`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Zero {
    /// The rule that all fields of this type have.
    #[default]
    Plain,
    /// A zero in Protobuf differs from an absent value, so JSON keeps it.
    Kept,
    /// Like `Kept`, and JSON shows an absent value as null.
    Null,
    /// JSON does not show a zero.
    Dropped,
    /// JSON always shows the value, even if it is absent in Protobuf.
    Always,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ListType {
    #[default]
    Atomic,
    Set,
    Map,
}

/// The built-in API's schema, parsed on first use.
pub fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        Schema::parse(include_str!("../../schema/table.txt")).expect("the table is generated, and a test parses it")
    });
    &SCHEMA
}

impl Schema {
    pub fn id(&self, name: &str) -> Option<MessageId> {
        self.by_name.get(name).copied()
    }

    pub fn message(&self, id: MessageId) -> &Message {
        &self.messages[id.0 as usize]
    }
}

impl Zero {
    /// Whether a zero of the field means something else than an absent value.
    pub fn is_explicit(self) -> bool {
        matches!(self, Zero::Kept | Zero::Null)
    }

    /// Whether JSON shows the field even if it is unset.
    pub fn is_shown(self) -> bool {
        matches!(self, Zero::Always | Zero::Null)
    }
}

impl Field {
    /// The zero of this field if it is a scalar that is always shown.
    pub fn always(&self) -> Option<Value> {
        let is_always = self.zero == Zero::Always && self.shape == Shape::Single;
        match self.ty {
            _ if !is_always => None,
            Type::String => Some("".into()),
            Type::Bool => Some(false.into()),
            Type::Int32 | Type::Int64 => Some(0.into()),
            _ => None,
        }
    }
}

impl Message {
    /// The field with this JSON name. The search is linear, because lists are short and names of another length are
    /// rejected without comparing text. A binary search would compare text.
    pub fn field(&self, json: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.json == json)
    }
}
