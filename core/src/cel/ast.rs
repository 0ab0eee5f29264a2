//! The syntax tree of an expression. The parser creates it; the checker adds types, variable numbers and overloads.

use super::functions::Compiled;
use super::types::Type;
use super::value::{Duration, Timestamp};
use std::collections::BTreeSet;
use std::sync::Arc;

#[derive(Debug)]
pub struct Node {
    /// The position of the node in the expression's source, as an offset in bytes. Errors name this position.
    pub at: u32,
    /// The number of levels in the tree below this node. It is limited, so that recursive functions cannot exhaust the
    /// stack.
    pub depth: u32,
    /// The type of the node, which the checker sets.
    pub ty: Type,
    pub kind: Kind,
}

#[derive(Debug)]
pub enum Kind {
    Literal(Literal),
    Name {
        name: String,
        place: Place,
    },
    Select {
        operand: Box<Node>,
        field: String,
        mode: Select,
    },
    Index {
        operand: Box<Node>,
        index: Box<Node>,
        optional: bool,
    },
    Call(Call),
    List(Vec<Item>),
    Map(Vec<Entry>),
    /// `Name{field: value}`. The checker accepts only names of CEL's message types and of mutations.
    Message {
        name: String,
        fields: Vec<MessageField>,
    },
    /// An operator `&&` or `||` between two operands.
    Logic {
        and: bool,
        operands: Box<[Node; 2]>,
    },
    /// The operator `condition ? a : b`: the condition, the value if it is true, and the value if it is false.
    Conditional(Box<[Node; 3]>),
    Fold(Box<Fold>),
    /// `operand in [literals]`. The literals are stored in sets, so that the operand is found without comparing each
    /// literal.
    Among {
        operand: Box<Node>,
        set: Box<LiteralSet>,
    },
    /// The macro `target.optMap(variable, body)` or `target.optFlatMap(variable, body)`.
    OptionalMap(Box<OptionalMap>),
    /// A list or map of literals that JSON cannot represent. It is built anew at each evaluation, and costs no units.
    Constant(Box<Constant>),
    /// A value that a macro uses more than once. The value is evaluated once and gets a name.
    Bind(Box<Bind>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Select {
    Value,
    /// The test `has(x.y)`, whether the field is present.
    Test,
    /// The selection `x.?y`, whose result is an optional.
    Optional,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Unresolved,
    /// The index of a variable of the environment.
    Variable(usize),
    /// The index of a variable of an enclosing macro; the outermost variable has index 0.
    Local(usize),
}

#[derive(Debug)]
pub struct Call {
    pub function: String,
    /// Whether the call is a member call, `receiver.f(x)`. The first of `arguments` is then the receiver.
    pub member: bool,
    pub arguments: Vec<Node>,
    /// The overloads that fit the types of the arguments. The checker sets at least one.
    pub overloads: Vec<&'static Compiled>,
    /// The compiled pattern of a call of `matches`, if the pattern is a literal.
    pub pattern: Option<Box<regex::Regex>>,
}

#[derive(Debug)]
pub struct Item {
    pub node: Node,
    pub optional: bool,
}

#[derive(Debug)]
pub struct Entry {
    pub key: Node,
    pub value: Node,
    pub optional: bool,
}

#[derive(Debug)]
pub struct Fold {
    pub range: Node,
    pub kind: FoldKind,
    /// The names of the loop's variables. Two variables are index and item of a list, or key and value of a map.
    pub variables: Vec<String>,
    /// The filter of `map`, `transformList` and `transformMap`, if any.
    pub filter: Option<Node>,
    /// The predicate of `all`, `exists`, `exists_one` and `filter`, or the transformation of the other macros.
    pub body: Node,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoldKind {
    All,
    Exists,
    ExistsOne,
    Map,
    Filter,
    TransformMap,
    TransformMapEntry,
}

#[derive(Debug)]
pub struct OptionalMap {
    pub target: Node,
    pub variable: String,
    pub body: Node,
    pub flat: bool,
}

#[derive(Debug)]
pub struct MessageField {
    pub name: String,
    /// Whether the field is written `?name: value`. The value is then an optional.
    pub optional: bool,
    pub at: u32,
    pub node: Node,
}

#[derive(Debug)]
pub enum Constant {
    List(Vec<Item>),
    Map(Vec<Entry>),
}

#[derive(Debug)]
pub struct Bind {
    pub variable: String,
    pub value: Node,
    pub body: Node,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(String),
    Bytes(Arc<[u8]>),
    Duration(Duration),
    Timestamp(Timestamp),
    Type(Type),
    /// A list or map of literals as JSON. Evaluation reads it as a value of the node's type.
    Json(holdfast_value::Value),
}

/// The literals of a list, in sets, so that `in` finds a value without comparing each literal.
#[derive(Debug, Default)]
pub struct LiteralSet {
    pub null: bool,
    pub bools: BTreeSet<bool>,
    pub wholes: BTreeSet<i128>,
    /// The bits of the doubles that are not integers.
    pub fractions: BTreeSet<u64>,
    pub texts: BTreeSet<String>,
}

impl Kind {
    /// Whether the node is a path: a name, a selection, an index access or a conditional. cel-go counts the cost of a
    /// path differently.
    pub fn is_path(&self) -> bool {
        matches!(
            self,
            Kind::Name { .. }
                | Kind::Select { mode: Select::Value | Select::Optional, .. }
                | Kind::Index { .. }
                | Kind::Conditional(_)
        )
    }
}

impl Node {
    /// Calls `visit` for each direct child of the node.
    pub fn each_child(&mut self, visit: &mut dyn FnMut(&mut Node)) {
        match &mut self.kind {
            Kind::Literal(_) | Kind::Name { .. } | Kind::Constant(_) => {}
            Kind::Select { operand, .. } | Kind::Among { operand, .. } => visit(operand),
            Kind::Index { operand, index, .. } => {
                visit(operand);
                visit(index);
            }
            Kind::Call(call) => call.arguments.iter_mut().for_each(visit),
            Kind::List(items) => items.iter_mut().for_each(|item| visit(&mut item.node)),
            Kind::Map(entries) => {
                for entry in entries {
                    visit(&mut entry.key);
                    visit(&mut entry.value);
                }
            }
            Kind::Logic { operands, .. } => operands.iter_mut().for_each(visit),
            Kind::Conditional(parts) => parts.iter_mut().for_each(visit),
            Kind::Fold(fold) => {
                visit(&mut fold.range);
                if let Some(filter) = &mut fold.filter {
                    visit(filter);
                }
                visit(&mut fold.body);
            }
            Kind::Message { fields, .. } => fields.iter_mut().for_each(|field| visit(&mut field.node)),
            Kind::OptionalMap(map) => {
                visit(&mut map.target);
                visit(&mut map.body);
            }
            Kind::Bind(bind) => {
                visit(&mut bind.value);
                visit(&mut bind.body);
            }
        }
    }

    /// The text `a.b.c`, if the node is a path of names only; `None` otherwise.
    pub fn qualified_name(&self) -> Option<String> {
        match &self.kind {
            Kind::Name { name, .. } => Some(name.clone()),
            Kind::Select { operand, field, mode: Select::Value } => {
                let mut name = operand.qualified_name()?;
                name.push('.');
                name.push_str(field);
                Some(name)
            }
            _ => None,
        }
    }
}
