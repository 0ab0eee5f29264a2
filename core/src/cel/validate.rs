//! Checks of a typed tree beyond types: literal arguments must be parsable, the items of a literal list or map must
//! have one type, and literal format templates must fit their arguments.

use super::ast::*;
use super::functions::text_format::{self, Clause, Piece};
use super::lex::Complaint;
use super::types::Type;
use super::value::{Duration, Timestamp};

pub fn validate(node: &mut Node) -> Vec<Complaint> {
    let mut validator = Validator { complaints: Vec::new(), below_format: 0 };
    validator.node(node);
    validator.complaints.sort_by_key(|complaint| complaint.1);
    validator.complaints
}

struct Validator {
    complaints: Vec<Complaint>,
    /// The number of calls of `format` that enclose the node. Lists inside such a call may have items of different
    /// types.
    below_format: usize,
}

impl Validator {
    fn complain(&mut self, at: u32, message: String) {
        self.complaints.push((message, at as usize));
    }

    fn node(&mut self, node: &mut Node) {
        let is_format = matches!(&node.kind, Kind::Call(call) if call.function == "format");
        self.below_format += usize::from(is_format);
        node.each_child(&mut |child| self.node(child));
        self.below_format -= usize::from(is_format);
        match &mut node.kind {
            Kind::Call(call) => self.call(node.at, call),
            Kind::List(items) if self.below_format == 0 => {
                self.alike(items.iter().map(|item| (&item.node, item.optional)));
            }
            Kind::Map(entries) if self.below_format == 0 => {
                self.alike(entries.iter().map(|entry| (&entry.key, false)));
                self.alike(entries.iter().map(|entry| (&entry.value, entry.optional)));
            }
            _ => {}
        }
    }

    /// Checks that all nodes have the type of the first node. Of an optional node, the type inside the optional counts.
    fn alike<'n>(&mut self, nodes: impl Iterator<Item = (&'n Node, bool)>) {
        let mut first: Option<&Type> = None;
        for (node, is_optional) in nodes {
            let ty = match node.ty.plain() {
                Type::Optional(inner) if is_optional => inner,
                ty => ty,
            };
            match first {
                None => first = Some(ty),
                Some(expected) if *expected == *ty => {}
                Some(expected) => self.complain(node.at, format!("expected type '{expected}' but found '{ty}'")),
            }
        }
    }

    fn call(&mut self, at: u32, call: &mut Call) {
        let (index, valid) = match (call.function.as_str(), call.arguments.as_slice()) {
            ("matches", [_, Node { kind: Kind::Literal(Literal::String(pattern)), .. }]) => {
                call.pattern = super::functions::pattern_of(pattern).ok().map(Box::new);
                (1, call.pattern.is_some())
            }
            ("duration", [Node { kind: Kind::Literal(Literal::String(text)), .. }]) => {
                (0, Duration::parse(text).is_some())
            }
            ("timestamp", [Node { kind: Kind::Literal(Literal::String(text)), .. }]) => {
                (0, Timestamp::parse(text).is_some_and(Timestamp::is_in_range))
            }
            ("format", [Node { kind: Kind::Literal(Literal::String(template)), .. }, list]) => {
                let Kind::List(items) = &list.kind else { return };
                if let Err((message, place)) = template_of(template, items, at) {
                    self.complain(place, message);
                }
                return;
            }
            _ => return,
        };
        if !valid {
            let message = format!("invalid {} argument", call.function);
            self.complain(call.arguments[index].at, message);
        }
    }
}

/// Checks that a literal template fits these arguments. The error has a message and its position.
fn template_of(template: &str, items: &[Item], at: u32) -> Result<(), (String, u32)> {
    let asked = text_format::read(
        template,
        items.len(),
        |piece| {
            let Piece::Asked(asked) = piece else { return Ok(()) };
            let Some(node) = refused(asked.clause, &items[asked.argument].node) else { return Ok(()) };
            let refusal = asked.clause.refusal(node.ty.value_name());
            Err((format!("error during formatting: {refusal}"), node.at))
        },
        |message| (message, at),
    )?;
    if items.len() > asked {
        let found = items.len();
        return Err((format!("too many arguments supplied to string.format (expected {asked}, got {found})"), at));
    }
    Ok(())
}

/// The first part of an argument that the clause cannot format: the argument, or an item of its literal list or map.
fn refused(clause: Clause, node: &Node) -> Option<&Node> {
    if !clause.accepts(&node.ty) {
        return Some(node);
    }
    match &node.kind {
        Kind::List(items) if clause == Clause::Text => items.iter().find_map(|item| refused(clause, &item.node)),
        Kind::Map(entries) if clause == Clause::Text => {
            entries.iter().find_map(|entry| refused(clause, &entry.key).or_else(|| refused(clause, &entry.value)))
        }
        _ => None,
    }
}
