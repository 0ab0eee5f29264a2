//! Creates the nodes of syntax trees, and limits the depth of the trees.

use super::ast::*;
use super::lex::Complaint;
use super::types::Type;

/// The maximum depth of a tree. A long chain of operators is a deep tree, and walks recurse, so the smallest thread
/// stack must be large enough for this depth.
pub const MAX_DEPTH: u32 = 300;

/// Creates a node whose deepest child has `below` levels. Fails if the tree would be deeper than [`MAX_DEPTH`].
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
