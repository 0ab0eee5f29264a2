//! Macros: calls that are expanded to loops and other special forms.

use super::ast::*;
use super::build::{call, node};
use super::lex::Complaint;

/// The names that cel-go gives to the variables with the results of loops. No macro variable may have these names.
const ACCUMULATORS: [&str; 2] = ["__result__", "@result"];

pub fn has(at: usize, mut arguments: Vec<Node>) -> Result<Box<Node>, Complaint> {
    let argument = arguments.remove(0);
    match argument.kind {
        Kind::Select { operand, field, mode: Select::Value } => {
            node(at, operand.depth, Kind::Select { operand, field, mode: Select::Test })
        }
        _ => Err(("invalid argument to has() macro".to_owned(), argument.at as usize)),
    }
}

/// Creates the node of a member call, or expands a macro that is written like a member call.
pub fn member_call(
    at: usize,
    target: Box<Node>,
    function: String,
    mut arguments: Vec<Node>,
) -> Result<Box<Node>, Complaint> {
    use FoldKind::*;
    // The kind of the macro, the number of its variables, and whether a filter precedes the last argument.
    let (kind, variables, has_filter) = match (function.as_str(), arguments.len()) {
        ("all", 2) => (All, 1, false),
        ("exists", 2) => (Exists, 1, false),
        ("exists_one" | "existsOne", 2) => (ExistsOne, 1, false),
        ("filter", 2) => (Filter, 1, false),
        ("map", 2) => (Map, 1, false),
        ("map", 3) => (Map, 1, true),
        ("all", 3) => (All, 2, false),
        ("exists", 3) => (Exists, 2, false),
        ("exists_one" | "existsOne", 3) => (ExistsOne, 2, false),
        ("transformList", 3) => (Map, 2, false),
        ("transformList", 4) => (Map, 2, true),
        ("transformMap", 3) => (TransformMap, 2, false),
        ("transformMap", 4) => (TransformMap, 2, true),
        ("transformMapEntry", 3) => (TransformMapEntry, 2, false),
        ("transformMapEntry", 4) => (TransformMapEntry, 2, true),
        ("optMap" | "optFlatMap", 2) => {
            let body = arguments.pop().expect("two arguments");
            let variable = match &arguments[0].kind {
                Kind::Name { name, .. } => name.clone(),
                _ => {
                    let message = format!("{function}() variable name must be a simple identifier");
                    return Err((message, arguments[0].at as usize));
                }
            };
            let depth = target.depth.max(body.depth);
            let flat = function == "optFlatMap";
            return node(at, depth, Kind::OptionalMap(Box::new(OptionalMap { target: *target, variable, body, flat })));
        }
        ("sortBy", 2) => return sort_by(at, target, arguments),
        _ => {
            arguments.insert(0, *target);
            return call(at, &function, true, arguments);
        }
    };
    fold(at, target, (kind, variables, has_filter), arguments)
}

/// Creates the node of a macro that loops over a list or a map.
#[expect(clippy::boxed_local, reason = "nodes are moved by their boxes, so that the stack stays small")]
fn fold(
    at: usize,
    target: Box<Node>,
    (kind, variables, has_filter): (FoldKind, usize, bool),
    mut arguments: Vec<Node>,
) -> Result<Box<Node>, Complaint> {
    let body = arguments.pop().expect("macros have arguments");
    let filter = if has_filter { arguments.pop() } else { None };
    // cel-go has two error messages for a variable that is not a name: one for `map` and `filter`, another for the
    // other macros.
    let is_old = variables == 1 && matches!(kind, FoldKind::Map | FoldKind::Filter);
    let mut names: Vec<String> = Vec::with_capacity(variables);
    for argument in arguments {
        let Kind::Name { name, .. } = argument.kind else {
            let what = if is_old { "argument is not an identifier" } else { "argument must be a simple name" };
            return Err((what.to_owned(), argument.at as usize));
        };
        if ACCUMULATORS.contains(&name.as_str()) {
            return Err(("iteration variable overwrites accumulator variable".to_owned(), argument.at as usize));
        }
        if names.contains(&name) {
            return Err((format!("duplicate variable name: {name}"), argument.at as usize));
        }
        names.push(name);
    }
    let depth = target.depth.max(body.depth).max(filter.as_ref().map_or(0, |filter| filter.depth));
    node(at, depth, Kind::Fold(Box::new(Fold { range: *target, kind, variables: names, filter, body })))
}

/// Expands `list.sortBy(item, key)`, which sorts the list by the keys of its items.
#[expect(clippy::boxed_local, reason = "nodes are moved by their boxes, so that the stack stays small")]
fn sort_by(at: usize, target: Box<Node>, arguments: Vec<Node>) -> Result<Box<Node>, Complaint> {
    if matches!(target.kind, Kind::Literal(_) | Kind::Map(_) | Kind::Message { .. }) {
        let can = "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
        return Err((can.to_owned(), target.at as usize));
    }
    let variable = "@__sortBy_input__";
    let name = || node(at, 0, Kind::Name { name: variable.to_owned(), place: Place::Unresolved });
    let keys = fold(at, name()?, (FoldKind::Map, 1, false), arguments)?;
    let body = call(at, "@sortByAssociatedKeys", true, vec![*name()?, *keys])?;
    let depth = target.depth.max(body.depth);
    node(at, depth, Kind::Bind(Box::new(Bind { variable: variable.to_owned(), value: *target, body: *body })))
}
