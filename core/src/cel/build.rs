//! Makes nodes of the tree, none deeper than an expression may be.

use super::ast::*;
use super::lex::Complaint;
use super::types::Type;

/// Levels of the tree. Long chains of operators of one precedence are deep as well, and whoever walks the tree
/// recurses, so this is what the smallest stack that a thread may have can bear.
pub const MAX_DEPTH: u32 = 300;

/// A node over a tree of this depth.
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
