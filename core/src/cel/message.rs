//! Messages that expressions can construct: Protocol Buffers' well-known types, which become CEL values, and the types
//! of mutations.

use super::ast::Literal;
use super::types::{ObjectType, Type};
use super::value::{Duration, EvalError, Timestamp, Value};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

pub struct Message {
    pub name: &'static str,
    pub ty: Type,
    pub fields: &'static [(&'static str, Type)],
    default: Literal,
}

const TIME: &[(&str, Type)] = &[("seconds", Type::Int), ("nanos", Type::Int)];

const fn wrapper(name: &'static str, ty: Type, fields: &'static [(&'static str, Type)], default: Literal) -> Message {
    Message { name, ty, fields, default }
}

pub static MESSAGES: &[Message] = &[
    wrapper("google.protobuf.Duration", Type::Duration, TIME, Literal::Null),
    wrapper("google.protobuf.Timestamp", Type::Timestamp, TIME, Literal::Null),
    wrapper("google.protobuf.BoolValue", Type::Bool, &[("value", Type::Bool)], Literal::Bool(false)),
    wrapper("google.protobuf.Int32Value", Type::Int, &[("value", Type::Int)], Literal::Int(0)),
    wrapper("google.protobuf.Int64Value", Type::Int, &[("value", Type::Int)], Literal::Int(0)),
    wrapper("google.protobuf.UInt32Value", Type::Uint, &[("value", Type::Uint)], Literal::Uint(0)),
    wrapper("google.protobuf.UInt64Value", Type::Uint, &[("value", Type::Uint)], Literal::Uint(0)),
    wrapper("google.protobuf.FloatValue", Type::Double, &[("value", Type::Double)], Literal::Double(0.0)),
    wrapper("google.protobuf.DoubleValue", Type::Double, &[("value", Type::Double)], Literal::Double(0.0)),
    wrapper("google.protobuf.StringValue", Type::String, &[("value", Type::String)], Literal::String(String::new())),
    wrapper("google.protobuf.BytesValue", Type::Bytes, &[("value", Type::Bytes)], Literal::Null),
];

/// The name of the type of a JSON patch operation in a mutation.
pub const JSON_PATCH: &str = "JSONPatch";
/// The name of the type of a partial object in a mutation that applies a configuration. The types of its parts are
/// named by their paths: `Object.spec`.
pub const OBJECT: &str = "Object";

/// A message that an expression constructs: its type, and the fields that it can have.
pub struct Made {
    pub ty: Type,
    fields: Arc<ObjectType>,
}

impl Made {
    pub fn of(message: &Message) -> Made {
        let Type::Object(fields) = Type::object(message.name, message.fields.iter().cloned()) else { unreachable!() };
        Made { ty: message.ty.clone(), fields }
    }

    pub fn change(name: &str) -> Option<Made> {
        let fields = if name == JSON_PATCH {
            let texts = ["op", "path", "from"].map(|field| (field, Type::String));
            Type::object(name, texts.into_iter().chain([("value", Type::Dyn)]))
        } else if name == OBJECT || name.strip_prefix(OBJECT).is_some_and(|rest| rest.starts_with('.')) {
            Type::Object(Arc::new(ObjectType::open(name)))
        } else {
            return None;
        };
        let Type::Object(fields) = fields else { return None };
        Some(Made { ty: Type::Object(fields.clone()), fields })
    }

    pub fn type_of(&self, field: &str) -> Option<&Type> {
        self.fields.type_of(field)
    }
}

/// The value of a message that an expression constructs. The checker has already accepted the names of the fields.
pub fn value_of<'a>(name: &str, fields: Vec<(&str, Value<'a>)>) -> Result<Value<'a>, EvalError> {
    let name = name.strip_prefix('.').unwrap_or(name);
    let Some(message) = MESSAGES.iter().find(|message| message.name == name) else {
        let fields: BTreeMap<String, Value> =
            fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        return Ok(Value::Made(Rc::new(super::value::Made { name: name.to_owned(), fields })));
    };
    let number = |wanted: &str| {
        let found = fields.iter().find(|field| field.0 == wanted);
        match found {
            Some((_, Value::Int(number))) => i128::from(*number),
            _ => 0,
        }
    };
    let nanos = number("seconds") * 1_000_000_000 + number("nanos");
    match message.ty {
        Type::Duration => i64::try_from(nanos)
            .map(|nanos| Value::Duration(Duration(nanos)))
            .map_err(|_| EvalError::new("duration overflow")),
        Type::Timestamp => {
            Timestamp::from_nanos(nanos).map(Value::Timestamp).ok_or_else(|| EvalError::new("timestamp overflow"))
        }
        _ => Ok(match fields.into_iter().next() {
            Some((_, value)) => value,
            None => match &message.default {
                Literal::Bool(value) => Value::Bool(*value),
                Literal::Int(value) => Value::Int(*value),
                Literal::Uint(value) => Value::Uint(*value),
                Literal::Double(value) => Value::Double(*value),
                Literal::String(text) => Value::text(text.clone()),
                _ => Value::Bytes([].into()),
            },
        }),
    }
}
