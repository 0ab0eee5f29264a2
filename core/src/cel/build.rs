//! Creates tree nodes within the depth limit.

use super::ast::*;
use super::lex::Complaint;
use super::types::Type;

/// The deepest tree. Long chains of operators are deep too, and walks recurse, so this is what the smallest thread
/// stack can bear.
pub const MAX_DEPTH: u32 = 300;

/// A node above a tree of depth `below`.
pub fn node(at: usize, below: u32, kind: Kind) -> Result<Box<Node>, Complaint> {
    let depth = below + 1;
    if depth > MAX_DEPTH {
        return Err((format!("expression recursion limit exceeded: {MAX_DEPTH}"), at));
    }
    Ok(Box::new(Node { at: at as u32, depth, ty: Type::Error, kind }))
}

pub fn call(at: usize, function: &str, member: bool, arguments: Vec<Node>) -> Result<Box<Node>, Complaint> {
    let depth = arguments.iter().map(|argument| argument.depth).max().unwrap_or(0);
    let function = function.to_owned();
    node(at, depth, Kind::Call(Call { function, member, arguments, overloads: Vec::new(), pattern: None }))
}
