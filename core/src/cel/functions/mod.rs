//! Functions as tables of overloads: signature, implementation and cost.
//!
//! A signature reads `<string>.contains(string) -> bool` for a member, `optional.of(A) -> optional(A)` for a global
//! function. Types are spelled as in CEL (`list(A)`, `map(K, V)`, `optional(A)`, `type(A)`, `dyn`, `timestamp`). A
//! single capital letter is a placeholder. Any other name is the full name of an opaque type (`kubernetes.Quantity`).

mod arithmetic;
mod convert;
pub mod kubernetes;
mod lists;
mod optional;
mod sets;
mod standard;
mod strings;
pub mod text_format;
mod time;

pub use arithmetic::index;
pub use convert::as_text;
pub use standard::{pattern_cost, pattern_estimate, pattern_of};

use super::cost::{Arguments, CallEstimate, Range};
use super::types::Type;
use super::value::{EvalError, Value};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The tables of the CEL language itself. A later table may add overloads to a function of an earlier table.
static TABLES: &[&[Overload]] = &[arithmetic::TABLE, arithmetic::ORDER, standard::TABLE, convert::TABLE, time::TABLE];

/// The tables of the extensions of CEL that Kubernetes enables, without the libraries that only Kubernetes has.
static EXTENSIONS: &[&[Overload]] = &[strings::TABLE, text_format::TABLE, sets::TABLE, lists::TABLE, optional::TABLE];

/// One overload. The receiver of a member is its first argument.
#[derive(Debug)]
pub struct Overload {
    pub signature: &'static str,
    pub run: Run,
    pub cost: Cost,
    /// Whether the types of arguments that are dynamic before evaluation are compared with the signature at run time.
    pub guarded: bool,
}

/// The implementation of an overload. If the types of the arguments are known before evaluation, they are the types of
/// the signature. If an argument has the type `dyn`, the evaluator calls the first overload that fits the values.
pub type Run = for<'a> fn(&[Value<'a>]) -> Result<Value<'a>, EvalError>;

/// The cost of a call in addition to its arguments.
#[derive(Debug, Clone, Copy)]
pub enum Cost {
    /// One unit, whatever the arguments are.
    One,
    Fixed(u64),
    /// A tenth of the sum of the sizes of the arguments with these indexes, rounded up.
    Traverse(&'static [usize]),
    Custom(CustomCost),
    /// A cost that depends only on the arguments. The evaluator spends it before the call runs.
    Beforehand(Beforehand),
}

impl Cost {
    pub fn estimate(&self, arguments: &Arguments<'_>) -> CallEstimate {
        match self {
            Cost::One => CallEstimate { cost: Range::ONE, result: None },
            Cost::Fixed(cost) => CallEstimate { cost: Range::exactly(*cost), result: None },
            Cost::Traverse(which) => {
                let size = which.iter().fold(Range::ZERO, |sum, &index| sum.add(arguments.size(index)));
                CallEstimate { cost: size.traversal(), result: None }
            }
            Cost::Custom(CustomCost { estimate, .. }) | Cost::Beforehand(Beforehand { estimate, .. }) => {
                estimate(arguments)
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct CustomCost {
    /// The cost at run time, from the arguments and the result.
    pub actual: for<'a> fn(&[Value<'a>], &Value<'a>) -> u64,
    /// The estimate of the cost before evaluation, from the possible sizes of the arguments.
    pub estimate: fn(&Arguments<'_>) -> CallEstimate,
}

#[derive(Debug, Clone, Copy)]
pub struct Beforehand {
    pub actual: for<'a> fn(&[Value<'a>]) -> u64,
    pub estimate: fn(&Arguments<'_>) -> CallEstimate,
}

pub const fn overload(signature: &'static str, run: Run, cost: Cost) -> Overload {
    Overload { signature, run, cost, guarded: true }
}

/// Makes an overload whose function itself reports arguments of wrong types.
pub const fn unguarded(signature: &'static str, run: Run, cost: Cost) -> Overload {
    Overload { signature, run, cost, guarded: false }
}

/// An overload with a parsed signature.
#[derive(Debug)]
pub struct Compiled {
    pub signature: &'static str,
    pub name: &'static str,
    pub member: bool,
    pub parameters: Vec<Type>,
    pub result: Type,
    /// The number of placeholders in the signature.
    pub placeholders: u32,
    pub run: Run,
    pub cost: Cost,
    pub guarded: bool,
    /// Whether the overload belongs to an extension or a library, and not to the CEL language itself.
    pub is_extension: bool,
}

/// All overloads by the names of their functions.
pub struct Library {
    pub functions: BTreeMap<&'static str, Vec<Compiled>>,
}

pub static LIBRARY: LazyLock<Library> = LazyLock::new(|| {
    let mut library = Library { functions: BTreeMap::new() };
    let language = TABLES.iter().map(|table| (*table, false));
    let extensions = EXTENSIONS.iter().chain(kubernetes::TABLES).map(|table| (*table, true));
    for (table, is_extension) in language.chain(extensions) {
        for overload in table {
            let compiled = Compiled { is_extension, ..compile(overload) };
            library.functions.entry(compiled.name).or_default().push(compiled);
        }
    }
    library
});

/// Parses the signature of an overload. Panics if the signature is malformed.
fn compile(overload: &Overload) -> Compiled {
    let signature = overload.signature;
    let mut reader = Reader { signature, rest: signature, placeholders: 0 };
    let member = reader.accept("<");
    let mut parameters = Vec::new();
    if member {
        parameters.push(reader.ty());
        reader.expect(">.");
    }
    let open = reader.rest.find('(').unwrap_or_else(|| panic!("no parameters: {signature}"));
    let name = &reader.rest[..open];
    reader.rest = &reader.rest[open + 1..];
    while !reader.accept(")") {
        parameters.push(reader.ty());
        reader.accept(", ");
    }
    reader.expect(" -> ");
    let result = reader.ty();
    assert!(reader.rest.is_empty(), "more than a signature: {signature}");
    let placeholders = reader.placeholders;
    let Overload { run, cost, guarded, .. } = *overload;
    Compiled { signature, name, member, parameters, result, placeholders, run, cost, guarded, is_extension: false }
}

struct Reader {
    signature: &'static str,
    rest: &'static str,
    placeholders: u32,
}

impl Reader {
    fn accept(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, text: &str) {
        assert!(self.accept(text), "{text:?} is missing in {}", self.signature);
    }

    fn ty(&mut self) -> Type {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '_';
        let length = self.rest.find(|c| !is_name(c)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(length);
        self.rest = rest;
        match name {
            "dyn" => Type::Dyn,
            "null" => Type::Null,
            "bool" => Type::Bool,
            "int" => Type::Int,
            "uint" => Type::Uint,
            "double" => Type::Double,
            "string" => Type::String,
            "bytes" => Type::Bytes,
            "duration" => Type::Duration,
            "timestamp" => Type::Timestamp,
            "list" | "optional" | "type" => {
                self.expect("(");
                let inner = self.ty();
                self.expect(")");
                match name {
                    "list" => Type::list(inner),
                    "optional" => Type::optional(inner),
                    _ => Type::type_of(inner),
                }
            }
            "map" => {
                self.expect("(");
                let key = self.ty();
                self.expect(", ");
                let value = self.ty();
                self.expect(")");
                Type::map(key, value)
            }
            name if name.len() == 1 && name.as_bytes()[0].is_ascii_uppercase() => {
                let number = u32::from(name.as_bytes()[0] - b'A');
                self.placeholders = self.placeholders.max(number + 1);
                Type::Param(number)
            }
            name => {
                assert!(!name.is_empty(), "a type is missing in {}", self.signature);
                Type::Opaque(name)
            }
        }
    }
}

impl Compiled {
    /// Whether the values may be the arguments of this overload. Only their outermost types are compared.
    pub fn fits(&self, arguments: &[Value<'_>]) -> bool {
        self.parameters.len() == arguments.len()
            && (!self.guarded
                || self.parameters.iter().zip(arguments).all(|(parameter, argument)| fits(parameter, argument)))
    }
}

fn fits(parameter: &Type, value: &Value<'_>) -> bool {
    match (parameter, value) {
        (Type::Dyn | Type::Param(_), _)
        | (Type::Null, Value::Null)
        | (Type::Bool, Value::Bool(_))
        | (Type::Int, Value::Int(_))
        | (Type::Uint, Value::Uint(_))
        | (Type::Double, Value::Double(_))
        | (Type::String, Value::String(_))
        | (Type::Bytes, Value::Bytes(_))
        | (Type::Duration, Value::Duration(_))
        | (Type::Timestamp, Value::Timestamp(_))
        | (Type::Optional(_), Value::Optional(_))
        | (Type::TypeOf(_), Value::Type(_)) => true,
        (Type::List(item), value) => match value.item(0) {
            // An empty list fits every list type.
            None => value.list_len() == Some(0),
            Some(Ok(first)) => fits(item, &first),
            Some(Err(_)) => true,
        },
        (Type::Map(_), value) => value.is_map(),
        (Type::Opaque(name), Value::Opaque(opaque)) => opaque.type_name() == *name,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_signatures_are_read() {
        let overload = |function: &str, signature: &str| {
            LIBRARY.functions[function].iter().any(|overload| overload.signature == signature)
        };
        assert!(overload("contains", "<string>.contains(string) -> bool"));
        assert!(overload("optional.of", "optional.of(A) -> optional(A)"));
        let optional = &LIBRARY.functions["optional.of"][0];
        assert_eq!((optional.member, optional.placeholders), (false, 1));
        assert_eq!(optional.result, Type::optional(Type::Param(0)));
    }
}
