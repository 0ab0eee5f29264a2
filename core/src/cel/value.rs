//! Values at run time. Documents are wrapped by reference and converted lazily, so that a rule pays only for the parts
//! that it reads.

use super::types::{ListKind, Type};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

#[derive(Debug, Clone)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'a>),
    Bytes(Arc<[u8]>),
    Duration(Duration),
    Timestamp(Timestamp),
    List(List<'a>),
    Map(Rc<BTreeMap<Key<'a>, Value<'a>>>),
    Optional(Option<Rc<Value<'a>>>),
    Type(Type),
    Opaque(Rc<dyn Opaque>),
    /// An object or a JSON patch operation that a mutation constructed.
    Made(Rc<Made<'a>>),
    /// An array or object of a document with its type. A scalar of a document is never in this form: see
    /// [`Value::json`].
    Json(&'a holdfast_value::Value, &'a Type),
}

/// A value of a type that only functions can read, such as a quantity.
pub trait Opaque: fmt::Debug {
    /// The full name of the value's type, as in signatures: `kubernetes.Quantity`.
    fn type_name(&self) -> &'static str;
    fn equals(&self, other: &dyn Opaque) -> bool;
    fn as_any(&self) -> &dyn Any;
}

/// A value whose computation failed. An expression that reads this value fails with the message.
#[derive(Debug)]
pub struct Failure(pub String);

impl Opaque for Failure {
    fn type_name(&self) -> &'static str {
        "error"
    }

    fn equals(&self, _: &dyn Opaque) -> bool {
        false
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A string. It is either borrowed from a document or an expression, or computed and shared.
#[derive(Clone)]
pub enum Text<'a> {
    Borrowed(&'a str),
    Shared(Rc<str>),
}

/// A list that an expression computed: its items, or a concatenation that copies no items.
#[derive(Debug, Clone)]
pub enum List<'a> {
    Items(Rc<Vec<Value<'a>>>),
    Joined(Rc<Joined<'a>>),
    /// The union of two sets, or of two map-like lists, of a document. Comparisons ignore the order of its items.
    Keyed(Rc<Vec<Value<'a>>>, &'a ListKind),
}

#[derive(Debug)]
pub struct Joined<'a> {
    pub left: Value<'a>,
    pub right: Value<'a>,
    pub len: u64,
}

/// An object that an expression constructed. Its type has a name but no schema: `Object.spec{replicas: 3}`.
#[derive(Debug)]
pub struct Made<'a> {
    pub name: String,
    pub fields: BTreeMap<String, Value<'a>>,
}

/// A key of a map that an expression computed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key<'a> {
    /// A null key, which only literal maps can have.
    Null,
    /// The bits of a number that has a fraction.
    Fraction(u64),
    Bool(bool),
    Int(i64),
    Uint(u64),
    String(Text<'a>),
}

/// A duration in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration(pub i64);

/// An instant between the years 1 and 9999.
#[derive(Debug, Clone, Copy)]
pub struct Timestamp {
    /// The seconds since the beginning of 1970, rounded down.
    pub seconds: i64,
    pub nanos: u32,
    /// The offset from UTC in the original text, in seconds to the east. Formatting uses the offset, comparing does
    /// not.
    pub offset_seconds: i32,
}

/// Why an evaluation failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvalError {
    /// The evaluation has spent its budget. No operator ignores this error.
    Cost,
    /// An error of the expression, which clients see. `||`, `&&` and some macros ignore it if another operand decides.
    Message(String),
}

impl EvalError {
    pub fn new(message: impl Into<String>) -> Self {
        EvalError::Message(message.into())
    }

    pub fn no_such_overload() -> Self {
        EvalError::new("no such overload")
    }
}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EvalError::Cost => f.write_str("operation cancelled: actual cost limit exceeded"),
            EvalError::Message(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for EvalError {}

impl<'a> Value<'a> {
    pub fn text(text: impl Into<Text<'a>>) -> Self {
        Value::String(text.into())
    }

    pub fn list(items: Vec<Value<'a>>) -> Self {
        Value::List(List::Items(Rc::new(items)))
    }

    pub fn some(value: Value<'a>) -> Self {
        Value::Optional(Some(Rc::new(value)))
    }

    pub fn opaque(value: impl Opaque + 'static) -> Self {
        Value::Opaque(Rc::new(value))
    }

    /// The message of the failure, if the value is a [`Failure`].
    pub(super) fn failure(&self) -> Option<&str> {
        self.downcast::<Failure>().map(|failure| failure.0.as_str())
    }

    /// The opaque value as its Rust type.
    pub fn downcast<T: 'static>(&self) -> Option<&T> {
        match self {
            Value::Opaque(opaque) => opaque.as_any().downcast_ref(),
            _ => None,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Text::Borrowed(text) => text,
            Text::Shared(text) => text,
        }
    }
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Text::Borrowed(text)
    }
}

impl From<String> for Text<'_> {
    fn from(text: String) -> Self {
        Text::Shared(text.into())
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl PartialEq for Timestamp {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Timestamp {}

impl PartialOrd for Timestamp {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timestamp {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.seconds, self.nanos).cmp(&(other.seconds, other.nanos))
    }
}

impl PartialEq for Text<'_> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Text<'_> {}

impl PartialOrd for Text<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (**self).cmp(&**other)
    }
}

impl List<'_> {
    pub fn len(&self) -> u64 {
        match self {
            List::Items(items) | List::Keyed(items, _) => items.len() as u64,
            List::Joined(joined) => joined.len,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
