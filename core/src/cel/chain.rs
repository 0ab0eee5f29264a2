//! Turns a chain of operands and binary operators into a tree, by the precedence of the operators.

use super::ast::*;
use super::build::{call, node};
use super::lex::Complaint;
use std::collections::VecDeque;

const OR: u8 = 0;
const AND: u8 = 1;

/// Each binary operator, its precedence, and the name of its function.
pub const BINARY: &[(&str, u8, &str)] = &[
    ("||", OR, "_||_"),
    ("&&", AND, "_&&_"),
    ("==", 2, "_==_"),
    ("!=", 2, "_!=_"),
    ("<=", 2, "_<=_"),
    (">=", 2, "_>=_"),
    ("<", 2, "_<_"),
    (">", 2, "_>_"),
    ("in", 2, "@in"),
    ("+", 3, "_+_"),
    ("-", 3, "_-_"),
    ("*", 4, "_*_"),
    ("/", 4, "_/_"),
    ("%", 4, "_%_"),
];

/// The operands of a chain of binary operators, and each operator between two operands: its precedence, function and
/// position.
pub struct Chain {
    pub operands: VecDeque<Box<Node>>,
    pub operators: VecDeque<(u8, &'static str, usize)>,
}

impl Chain {
    /// Takes a chain of `&&` (with `and`) or of `||`, whose operands are chains of `&&`. Long chains become balanced
    /// trees, as in cel-go.
    pub fn logic(&mut self, and: bool) -> Result<Box<Node>, Complaint> {
        let mut terms = vec![self.term(and)?];
        let mut places = Vec::new();
        while let Some(at) = self.next_operator(|strength| strength == u8::from(and)) {
            places.push(at.1);
            terms.push(self.term(and)?);
        }
        balance(&mut terms.into_iter(), &places, and)
    }

    fn term(&mut self, and: bool) -> Result<Box<Node>, Complaint> {
        if and { self.binary(AND + 1) } else { self.logic(true) }
    }

    fn binary(&mut self, strength: u8) -> Result<Box<Node>, Complaint> {
        let mut left = self.operands.pop_front().expect("an operand more than operators");
        while let Some(&(found, ..)) = self.operators.front()
            && let Some((function, at)) = self.next_operator(|found| found >= strength)
        {
            let right = self.binary(found + 1)?;
            left = call(at, function, false, vec![*left, *right])?;
        }
        Ok(left)
    }

    fn next_operator(&mut self, accept: impl Fn(u8) -> bool) -> Option<(&'static str, usize)> {
        let (_, function, at) = self.operators.pop_front_if(|operator| accept(operator.0))?;
        Some((function, at))
    }
}

/// Builds a balanced tree: the operator in the middle of `places` becomes the root. There must be one more term than
/// operators.
fn balance(terms: &mut std::vec::IntoIter<Box<Node>>, places: &[usize], and: bool) -> Result<Box<Node>, Complaint> {
    if places.is_empty() {
        return Ok(terms.next().expect("a term more than operators"));
    }
    let middle = places.len() / 2;
    let left = balance(terms, &places[..middle], and)?;
    let right = balance(terms, &places[middle + 1..], and)?;
    let depth = left.depth.max(right.depth);
    node(places[middle], depth, Kind::Logic { and, operands: Box::new([*left, *right]) })
}
