//! The parser, from source to a tree. The parser of the crate `cel` is not used: it needs a runtime for ANTLR, and its
//! errors lack the required positions. Sources are untrusted, so the depth is limited while the tree is built.

use super::ast::*;
use super::build::{call, node};
use super::chain::{BINARY, Chain};
use super::lex::{Complaint, Lexer, NOWHERE, Spanned, Token, is_reserved};
use super::macros::{has, member_call};
use std::collections::VecDeque;

/// The maximum length of a source in characters, as in cel-go.
pub const MAX_SOURCE: usize = 100_000;
/// The maximum number of nested expressions, as in cel-go.
pub const MAX_NESTING: u32 = 250;

/// Parses a source, or returns all syntax errors in the order of the source. Parsing continues after a superfluous
/// token or a missing bracket.
pub fn parse(source: &str) -> Result<Box<Node>, Vec<Complaint>> {
    let size = source.chars().count();
    if size > MAX_SOURCE {
        let message = format!("expression code point size exceeds limit: size: {size}, limit {MAX_SOURCE}");
        return Err(vec![(message, 0)]);
    }
    let mut lexer = Lexer::new(source);
    let next = lexer.next();
    let after = lexer.next();
    let mut parser = Parser { source, lexer, next, after, nesting: 0, complaints: Vec::new(), is_lost: false };
    let outcome = parser.whole();
    let mut complaints = std::mem::take(&mut parser.complaints);
    complaints.append(&mut parser.lexer.complaints);
    match outcome {
        Ok(node) if complaints.is_empty() => return Ok(node),
        Ok(_) => {}
        // If the nesting is too deep, only that error is reported.
        Err(complaint) if complaint.1 == NOWHERE => return Err(vec![complaint]),
        Err(complaint) => complaints.push(complaint),
    }
    complaints.sort_by_key(|complaint| complaint.1);
    Err(complaints)
}

struct Parser<'s> {
    source: &'s str,
    lexer: Lexer<'s>,
    next: Spanned,
    /// The token after `next`.
    after: Spanned,
    nesting: u32,
    complaints: Vec<Complaint>,
    /// Whether an error was reported and no token has fitted since. Meanwhile no further errors are reported, because
    /// they result from the reported error.
    is_lost: bool,
}

const OPERANDS: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, \
                        IDENTIFIER}";
const OPERANDS_OR_END: &str = "{'[', '{', '(', ')', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, \
                               STRING, BYTES, IDENTIFIER}";

impl<'s> Parser<'s> {
    fn whole(&mut self) -> Result<Box<Node>, Complaint> {
        let node = self.expression()?;
        if self.next.token != Token::End {
            let what = if self.after.token == Token::End { "extraneous" } else { "mismatched" };
            self.complain(format!("Syntax error: {what} input '{}' expecting <EOF>", self.spelling()));
        }
        Ok(node)
    }

    fn complain(&mut self, message: String) {
        if !self.is_lost {
            self.complaints.push((message, self.next.start));
        }
        self.is_lost = true;
    }

    fn expression(&mut self) -> Result<Box<Node>, Complaint> {
        self.nesting += 1;
        if self.nesting > MAX_NESTING {
            return Err((format!("expression recursion limit exceeded: {MAX_NESTING}"), NOWHERE));
        }
        self.pass_over_extra(OPERANDS, false)?;
        let mut node = self.operators()?;
        if self.at_sign("?") {
            node = self.conditional(node)?;
        }
        self.nesting -= 1;
        Ok(node)
    }

    #[expect(clippy::boxed_local, reason = "nodes are moved by their boxes, so that the stack stays small")]
    fn conditional(&mut self, condition: Box<Node>) -> Result<Box<Node>, Complaint> {
        let at = self.advance().start;
        self.pass_over_extra(OPERANDS, false)?;
        let yes = self.operators()?;
        self.expect(":")?;
        let no = self.expression()?;
        let depth = condition.depth.max(yes.depth).max(no.depth);
        node(at, depth, Kind::Conditional(Box::new([*condition, *yes, *no])))
    }

    /// Reads operands and the binary operators between them. They are combined by precedence only after all have been
    /// read, because this needs less stack than recursion for each operator.
    fn operators(&mut self) -> Result<Box<Node>, Complaint> {
        let first = self.unary()?;
        let Some(operator) = self.operator() else { return Ok(first) };
        let mut chain = Chain { operands: VecDeque::from([first]), operators: VecDeque::new() };
        let mut next = Some(operator);
        while let Some((strength, function)) = next {
            let at = self.advance().start;
            chain.operators.push_back((strength, function, at));
            chain.operands.push_back(self.unary()?);
            next = self.operator();
        }
        chain.logic(false)
    }

    /// The precedence and the function of the next token, if it is a binary operator.
    fn operator(&self) -> Option<(u8, &'static str)> {
        let Token::Sign(sign) = self.next.token else { return None };
        BINARY.iter().find(|operator| operator.0 == sign).map(|operator| (operator.1, operator.2))
    }

    /// Skips one unexpected token. An operand, or with `or_end` a closing bracket, must follow this position.
    #[inline(never)]
    fn pass_over_extra(&mut self, expected: &str, or_end: bool) -> Result<(), Complaint> {
        let fits = |token: &Token| begins_operand(token) || (or_end && *token == Token::Sign(")"));
        if fits(&self.next.token) {
            return Ok(());
        }
        if self.next.token == Token::End || !fits(&self.after.token) {
            return Err(self.unexpected(expected));
        }
        self.complain(format!("Syntax error: extraneous input '{}' expecting {expected}", self.spelling()));
        self.advance();
        Ok(())
    }

    fn unary(&mut self) -> Result<Box<Node>, Complaint> {
        self.pass_over_extra(OPERANDS, false)?;
        match self.next.token {
            Token::Sign("!") => self.signed("!", "!_"),
            Token::Sign("-") => self.signed("-", "-_"),
            _ => {
                let primary = self.primary()?;
                self.members(primary)
            }
        }
    }

    #[inline(never)]
    fn signed(&mut self, sign: &str, function: &str) -> Result<Box<Node>, Complaint> {
        let at = self.next.start;
        let mut count = 0;
        while self.accept(sign) {
            count += 1;
        }
        if sign == "-" && self.at_sign("!") {
            return Err((
                format!("Syntax error: no viable alternative at input '{}!'", sign.repeat(count)),
                self.next.start,
            ));
        }
        // A minus directly before a number is a part of the literal and not an operator.
        let operand = match self.next.token {
            Token::Int(_) | Token::Double(_) if sign == "-" => {
                count -= 1;
                let literal = self.number(true)?;
                node(at + count, 0, Kind::Literal(literal))?
            }
            _ => self.primary()?,
        };
        let operand = self.members(operand)?;
        // An even number of equal unary operators (`!!x`, `--x`) has no effect.
        if count % 2 == 0 { Ok(operand) } else { call(at, function, false, vec![*operand]) }
    }

    fn members(&mut self, mut operand: Box<Node>) -> Result<Box<Node>, Complaint> {
        loop {
            if self.at_sign(".") {
                let dot = self.advance();
                let optional = self.accept("?");
                let Some(field) = self.field(&dot) else { continue };
                if !optional && self.at_sign("(") {
                    let open = self.next.start;
                    let arguments = self.arguments()?;
                    operand = member_call(open, operand, field, arguments)?;
                    continue;
                }
                let mode = if optional { Select::Optional } else { Select::Value };
                let depth = operand.depth;
                operand = node(dot.start, depth, Kind::Select { operand, field, mode })?;
            } else if self.at_sign("[") {
                let at = self.advance().start;
                let optional = self.accept("?");
                let index = self.expression()?;
                self.expect("]")?;
                let depth = operand.depth.max(index.depth);
                operand = node(at, depth, Kind::Index { operand, index, optional })?;
            } else if self.at_sign("{")
                && let Some(name) = operand.qualified_name()
            {
                operand = self.message(name)?;
            } else {
                return Ok(operand);
            }
        }
    }

    /// Reads the name after a dot. If there is no name, skips a token that cannot follow an operand.
    #[inline(never)]
    fn field(&mut self, dot: &Spanned) -> Option<String> {
        match self.next.token {
            Token::Identifier => return Some(self.advance_over_name()),
            Token::Escaped => {
                self.complaints.push(("unsupported syntax: '`'".to_owned(), self.next.start));
                return Some(self.advance_over_name());
            }
            Token::Sign("true" | "false" | "null") => {
                let complaint = self.unexpected("IDENTIFIER");
                self.complain(complaint.0);
            }
            _ => {
                let blanks = &self.source[dot.end..self.next.start];
                let blanks: String = blanks.chars().filter(|c| c.is_ascii_whitespace()).collect();
                let what = if self.next.token == Token::End { "" } else { self.spelling() };
                let at = if what.is_empty() { "" } else { &blanks };
                self.complain(format!("Syntax error: no viable alternative at input '.{at}{what}'"));
            }
        }
        let is_lost = self.is_lost;
        while self.next.token != Token::End && !follows_operand(&self.next.token) {
            self.advance();
        }
        self.is_lost = is_lost;
        None
    }

    fn advance_over_name(&mut self) -> String {
        let name = self.spelling().trim_matches('`').to_owned();
        self.advance();
        name
    }

    fn primary(&mut self) -> Result<Box<Node>, Complaint> {
        match &self.next.token {
            Token::Sign("(") => {
                self.advance();
                let inner = self.expression()?;
                self.expect(")")?;
                Ok(inner)
            }
            Token::Sign("[") => self.list(),
            Token::Sign("{") => self.map(),
            Token::Sign(".") | Token::Identifier => self.name(),
            _ => self.literal(),
        }
    }

    fn literal(&mut self) -> Result<Box<Node>, Complaint> {
        let start = self.next.start;
        let literal = match &self.next.token {
            Token::Int(_) | Token::Uint(_) | Token::Double(_) => {
                let literal = self.number(false)?;
                return node(start, 0, Kind::Literal(literal));
            }
            Token::Sign("null") => Literal::Null,
            Token::Sign("true") => Literal::Bool(true),
            Token::Sign("false") => Literal::Bool(false),
            Token::String(text) => Literal::String(text.clone()),
            Token::Bytes(bytes) => Literal::Bytes(bytes.as_slice().into()),
            _ => return Err(self.unexpected(OPERANDS)),
        };
        self.advance();
        node(start, 0, Kind::Literal(literal))
    }

    fn number(&mut self, negative: bool) -> Result<Literal, Complaint> {
        let spanned = self.advance();
        match spanned.token {
            Token::Int(number) if negative => Ok(Literal::Int(0i64.wrapping_sub_unsigned(number))),
            Token::Int(number) => match i64::try_from(number) {
                Ok(number) => Ok(Literal::Int(number)),
                Err(_) => Err(("invalid int literal".to_owned(), spanned.start)),
            },
            Token::Uint(number) => Ok(Literal::Uint(number)),
            Token::Double(number) => Ok(Literal::Double(if negative { -number } else { number })),
            _ => unreachable!("the callers look at the token"),
        }
    }

    /// Parses an expression that begins with a name: a variable, a call of a global function or a macro, or a message.
    #[inline(never)]
    fn name(&mut self) -> Result<Box<Node>, Complaint> {
        let is_absolute = self.accept(".");
        let start = self.next.start;
        let name = self.identifier()?;
        if is_reserved(&name) {
            return Err((format!("reserved identifier: {name}"), start));
        }
        if self.at_sign("(") {
            let open = self.next.start;
            let arguments = self.arguments()?;
            if name == "has" && arguments.len() == 1 {
                return has(open, arguments);
            }
            return call(open, &name, false, arguments);
        }
        let name = if is_absolute { format!(".{name}") } else { name };
        node(start, 0, Kind::Name { name, place: Place::Unresolved })
    }

    #[inline(never)]
    fn message(&mut self, name: String) -> Result<Box<Node>, Complaint> {
        let at = self.next.start;
        let mut fields = Vec::new();
        self.expect("{")?;
        while !self.at_sign("}") {
            let optional = self.accept("?");
            let name = self.identifier()?;
            let at = self.next.start as u32;
            self.expect(":")?;
            fields.push(MessageField { name, optional, at, node: *self.expression()? });
            if !self.accept(",") {
                break;
            }
        }
        self.expect_end("}")?;
        let depth = fields.iter().map(|field| field.node.depth).max().unwrap_or(0);
        node(at, depth, Kind::Message { name, fields })
    }

    #[inline(never)]
    fn list(&mut self) -> Result<Box<Node>, Complaint> {
        let at = self.advance().start;
        let mut items = Vec::new();
        // As in cel-go, a list may contain nothing but a comma.
        let is_empty = self.at_sign(",") && self.after.token == Token::Sign("]");
        while !is_empty && !self.at_sign("]") {
            let optional = self.accept("?");
            items.push(Item { node: *self.expression()?, optional });
            if !self.accept(",") {
                break;
            }
        }
        self.accept(",");
        self.expect_end("]")?;
        let depth = items.iter().map(|item| item.node.depth).max().unwrap_or(0);
        node(at, depth, Kind::List(items))
    }

    #[inline(never)]
    fn map(&mut self) -> Result<Box<Node>, Complaint> {
        let at = self.advance().start;
        let mut entries = Vec::new();
        let is_empty = self.at_sign(",") && self.after.token == Token::Sign("}");
        while !is_empty && !self.at_sign("}") {
            let optional = self.accept("?");
            let key = *self.expression()?;
            self.expect(":")?;
            entries.push(Entry { key, value: *self.expression()?, optional });
            if !self.accept(",") {
                break;
            }
        }
        self.accept(",");
        self.expect_end("}")?;
        let depth = entries.iter().map(|entry| entry.key.depth.max(entry.value.depth)).max().unwrap_or(0);
        node(at, depth, Kind::Map(entries))
    }

    #[inline(never)]
    fn arguments(&mut self) -> Result<Vec<Node>, Complaint> {
        self.expect("(")?;
        let mut arguments = Vec::new();
        self.pass_over_extra(OPERANDS_OR_END, true)?;
        if self.accept(")") {
            return Ok(arguments);
        }
        loop {
            arguments.push(*self.expression()?);
            if !self.accept(",") {
                break;
            }
        }
        self.expect(")")?;
        Ok(arguments)
    }

    fn identifier(&mut self) -> Result<String, Complaint> {
        if self.next.token != Token::Identifier {
            return Err(self.unexpected("IDENTIFIER"));
        }
        let name = self.spelling().to_owned();
        self.advance();
        Ok(name)
    }

    fn at_sign(&self, sign: &str) -> bool {
        matches!(self.next.token, Token::Sign(found) if found == sign)
    }

    fn accept(&mut self, sign: &str) -> bool {
        let found = self.at_sign(sign);
        if found {
            self.advance();
        }
        found
    }

    fn expect(&mut self, sign: &str) -> Result<(), Complaint> {
        if self.accept(sign) {
            return Ok(());
        }
        if matches!(self.after.token, Token::Sign(found) if found == sign) {
            self.complain(format!("Syntax error: extraneous input '{}' expecting '{sign}'", self.spelling()));
            self.advance();
            self.advance();
            return Ok(());
        }
        // If the next token may follow an operand, the missing bracket is reported, and assumed to be here.
        if matches!(sign, ")" | "]") && follows_operand(&self.next.token) {
            self.complain(format!("Syntax error: missing '{sign}' at '{}'", self.spelling()));
            return Ok(());
        }
        Err(self.unexpected(&format!("'{sign}'")))
    }

    /// Expects the bracket `sign` at the end of a comma-separated list.
    fn expect_end(&mut self, sign: &str) -> Result<(), Complaint> {
        match self.accept(sign) {
            true => Ok(()),
            false => Err(self.unexpected(&format!("{{'{sign}', ','}}"))),
        }
    }

    fn unexpected(&self, expected: &str) -> Complaint {
        let message = format!("Syntax error: mismatched input '{}' expecting {expected}", self.spelling());
        (message, self.next.start)
    }

    /// The source text of the next token.
    fn spelling(&self) -> &'s str {
        match self.next.token {
            Token::End => "<EOF>",
            _ => &self.source[self.next.start..self.next.end],
        }
    }

    fn advance(&mut self) -> Spanned {
        self.is_lost = false;
        let after = self.lexer.next();
        let next = std::mem::replace(&mut self.after, after);
        std::mem::replace(&mut self.next, next)
    }
}

fn begins_operand(token: &Token) -> bool {
    match token {
        Token::Sign(sign) => matches!(*sign, "[" | "{" | "(" | "." | "-" | "!" | "true" | "false" | "null"),
        Token::Escaped | Token::End => false,
        _ => true,
    }
}

/// Whether the token can follow an operand.
fn follows_operand(token: &Token) -> bool {
    match token {
        Token::Sign(sign) => {
            BINARY.iter().any(|operator| operator.0 == *sign)
                || matches!(*sign, ")" | "]" | "}" | "," | ":" | "?" | "." | "[" | "{")
        }
        token => *token == Token::End,
    }
}
