//! The types of expressions, and of the documents that expressions read.
//!
//! A [`Type::Declared`] wraps a type with facts from a schema: a size limit, whether null is allowed, how lists are
//! compared. The checker ignores the wrapper; reading documents and estimating costs use it.

use super::names::{RESERVED, escape};
use std::fmt;
use std::sync::Arc;

#[derive(Debug, Clone)]
pub enum Type {
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    List(Arc<Type>),
    /// A map, with the type of its keys and the type of its values.
    Map(Arc<(Type, Type)>),
    Object(Arc<ObjectType>),
    Optional(Arc<Type>),
    /// The type of a value that is itself a type: the value `int` has the type `type(int)`.
    TypeOf(Arc<Type>),
    /// A type whose values only functions can read, with its full name, such as `kubernetes.Quantity`.
    Opaque(&'static str),
    /// A placeholder for a type. In a function's signature the number stands for a capital letter (0 for `A`); during
    /// type checking it is the number of a type variable.
    Param(u32),
    /// The type of an expression in which an error was reported. It fits everywhere, so that the error is reported only
    /// once.
    Error,
    Declared(Arc<Declared>),
}

/// A type, with what the schema says in addition about its values.
#[derive(Debug, Clone)]
pub struct Declared {
    pub ty: Type,
    /// The maximum number of characters of a string, bytes of a bytes value, items of a list, or entries of a map.
    pub max_size: Option<u64>,
    pub nullable: bool,
    pub list: ListKind,
}

/// How two lists are compared and concatenated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ListKind {
    #[default]
    Atomic,
    Set,
    /// The list is a map in the sense of `x-kubernetes-list-type`: the values of these JSON fields identify an item.
    Map(Vec<String>),
}

#[derive(Debug)]
pub struct ObjectType {
    pub name: String,
    // The fields. Invariant: they are sorted by `name`, and each name occurs once.
    fields: Vec<Field>,
    /// Whether an object may have fields that `fields` does not have, with unknown types.
    open: bool,
}

#[derive(Debug, Clone)]
pub struct Field {
    /// The name by which expressions select the field; see [`super::names::escape`].
    pub name: String,
    /// The name of the field in JSON documents.
    pub json: String,
    pub ty: Type,
}

impl ObjectType {
    /// Creates an object type. If two fields have the same name, the first one stays.
    pub fn new(name: impl Into<String>, mut fields: Vec<Field>) -> Self {
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        fields.dedup_by(|later, earlier| later.name == earlier.name);
        ObjectType { name: name.into(), fields, open: false }
    }

    /// This object type, with `field` added, or with the field of the same name replaced.
    pub fn with(&self, field: Field) -> Self {
        let others = self.fields.iter().filter(|known| known.name != field.name).cloned();
        let fields = others.chain([field.clone()]).collect();
        ObjectType { open: self.open, ..ObjectType::new(self.name.clone(), fields) }
    }

    /// Creates an object type that declares no fields and allows every field.
    pub fn open(name: impl Into<String>) -> Self {
        ObjectType { name: name.into(), fields: Vec::new(), open: true }
    }

    /// The type of the field that expressions call `name`; `None` if objects of this type cannot have such a field.
    pub fn type_of(&self, name: &str) -> Option<&Type> {
        const DYN: &Type = &Type::Dyn;
        self.field(name).map(|field| &field.ty).or_else(|| self.open.then_some(DYN))
    }

    /// Finds a field by its name in expressions. A reserved word, which no variable can have as its name, may be
    /// written without its escape.
    pub fn field(&self, name: &str) -> Option<&Field> {
        let find = |name: &str| self.fields.binary_search_by(|field| field.name.as_str().cmp(name)).ok();
        let found = find(name).or_else(|| match RESERVED.contains(&name) {
            true => find(&escape(name)?),
            false => None,
        });
        found.map(|at| &self.fields[at])
    }

    /// Finds a field by its name in JSON documents.
    pub fn field_of_json(&self, json: &str) -> Option<&Field> {
        self.field(&escape(json)?).filter(|field| field.json == json)
    }

    pub fn fields(&self) -> &[Field] {
        &self.fields
    }
}

impl Type {
    pub fn list(item: Type) -> Type {
        Type::List(Arc::new(item))
    }

    pub fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new((key, value)))
    }

    pub fn optional(inner: Type) -> Type {
        Type::Optional(Arc::new(inner))
    }

    pub fn type_of(inner: Type) -> Type {
        Type::TypeOf(Arc::new(inner))
    }

    /// An object type whose field names are identifiers.
    pub fn object(name: &str, fields: impl IntoIterator<Item = (&'static str, Type)>) -> Type {
        let field = |(name, ty): (&str, Type)| Field { name: name.to_owned(), json: name.to_owned(), ty };
        Type::Object(Arc::new(ObjectType::new(name, fields.into_iter().map(field).collect())))
    }

    /// The type with a maximum size. Its values cannot be null.
    pub fn sized(self, max_size: u64) -> Type {
        let list = ListKind::Atomic;
        Type::Declared(Arc::new(Declared { ty: self, max_size: Some(max_size), nullable: false, list }))
    }

    /// The type without what a schema says in addition.
    pub fn plain(&self) -> &Type {
        let mut ty = self;
        while let Type::Declared(declared) = ty {
            ty = &declared.ty;
        }
        ty
    }

    pub fn declared(&self) -> Option<&Declared> {
        match self {
            Type::Declared(declared) => Some(declared),
            _ => None,
        }
    }

    pub fn max_size(&self) -> Option<u64> {
        self.declared().and_then(|declared| declared.max_size)
    }

    pub fn is_dyn(&self) -> bool {
        matches!(self.plain(), Type::Dyn | Type::Error)
    }

    /// The text of the type when it is a value, as in `type(x)`.
    pub fn value_name(&self) -> &str {
        match self.plain() {
            Type::Dyn | Type::Param(_) => "dyn",
            Type::Error => "!error!",
            Type::Null => "null_type",
            Type::Bool => "bool",
            Type::Int => "int",
            Type::Uint => "uint",
            Type::Double => "double",
            Type::String => "string",
            Type::Bytes => "bytes",
            Type::Duration => "google.protobuf.Duration",
            Type::Timestamp => "google.protobuf.Timestamp",
            Type::List(_) => "list",
            Type::Map(_) => "map",
            Type::Object(object) => &object.name,
            Type::Optional(_) => "optional_type",
            Type::TypeOf(_) => "type",
            Type::Opaque(name) => name,
            Type::Declared(_) => unreachable!("plain() looks through declarations"),
        }
    }
}

/// Prints the type as error messages show it.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.plain() {
            Type::Null => f.write_str("null"),
            Type::Duration => f.write_str("duration"),
            Type::Timestamp => f.write_str("timestamp"),
            Type::List(item) => write!(f, "list({item})"),
            Type::Map(entry) => write!(f, "map({}, {})", entry.0, entry.1),
            Type::Optional(inner) => write!(f, "optional_type({inner})"),
            Type::TypeOf(inner) => match inner.plain() {
                Type::Dyn => f.write_str("type"),
                inner => write!(f, "type({inner})"),
            },
            Type::Param(number) => match u8::try_from(*number) {
                Ok(number) if number < 26 => write!(f, "{}", char::from(b'A' + number)),
                _ => write!(f, "_var{number}"),
            },
            plain => f.write_str(plain.value_name()),
        }
    }
}

/// Compares two types without what schemas say in addition. Object types are equal if their names are equal.
impl PartialEq for Type {
    fn eq(&self, other: &Type) -> bool {
        match (self.plain(), other.plain()) {
            (Type::List(a), Type::List(b))
            | (Type::Optional(a), Type::Optional(b))
            | (Type::TypeOf(a), Type::TypeOf(b)) => a == b,
            (Type::Map(a), Type::Map(b)) => a == b,
            (Type::Object(a), Type::Object(b)) => Arc::ptr_eq(a, b) || a.name == b.name,
            (Type::Opaque(a), Type::Opaque(b)) => a == b,
            (Type::Param(a), Type::Param(b)) => a == b,
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
        }
    }
}
