//! What an evaluation can cost, from the types alone, as cel-go estimates it: looking at something costs one, loops cost
//! their body as often as their range can be long, calls what the tables of functions say.

use super::ast::*;
use super::cost::{Argument, Arguments, CallEstimate, Range};
use super::functions::{Compiled, Cost};
use super::types::Type;

/// The estimate for a checked tree whose constants were not yet computed.
pub fn estimate(node: &Node, variables: &[(String, Type)]) -> Range {
    Estimator { variables, locals: Vec::new() }.node(node).cost
}

struct Estimator<'e> {
    variables: &'e [(String, Type)],
    locals: Vec<Known>,
}

#[derive(Clone)]
struct Estimate {
    cost: Range,
    known: Known,
}

/// What is known of a value.
#[derive(Clone, Default)]
struct Known {
    /// The type in the schema, for values that are found by a path from a variable.
    declared: Option<Type>,
    size: Option<Range>,
    /// The sizes of keys and of items or values.
    entries: Option<(Range, Range)>,
}

impl Known {
    /// Computed sizes come first, then those of the schema, then those of types.
    fn size(&self, ty: &Type) -> Option<Range> {
        self.declared.as_ref().and_then(declared_size).or_else(|| type_size(ty)).or(self.size)
    }

    fn items(&self, of: impl Fn(&Type) -> Option<&Type>, entry: Option<Range>) -> Known {
        Known { declared: self.declared.as_ref().and_then(|ty| of(ty.plain()).cloned()), size: entry, entries: None }
    }
}

fn declared_size(ty: &Type) -> Option<Range> {
    match (ty.max_size(), ty.plain()) {
        (Some(max), _) => Some(Range { min: 0, max }),
        // Kubernetes says of everything in a schema how large it gets, and of these zero.
        (
            None,
            Type::Bool | Type::Int | Type::Uint | Type::Double | Type::Duration | Type::Timestamp | Type::Object(_),
        ) => Some(Range::ZERO),
        (None, _) => None,
    }
}

fn type_size(ty: &Type) -> Option<Range> {
    match ty.plain() {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => Some(Range::ONE),
        Type::Optional(inner) => type_size(inner),
        _ => None,
    }
}

fn item_of(ty: &Type) -> Option<&Type> {
    match ty {
        Type::List(item) => Some(item),
        Type::Map(entry) => Some(&entry.1),
        _ => None,
    }
}

fn key_of(ty: &Type) -> Option<&Type> {
    match ty {
        Type::Map(entry) => Some(&entry.0),
        _ => None,
    }
}

const NOTHING: Known = Known { declared: None, size: None, entries: None };

impl Estimator<'_> {
    fn node(&mut self, node: &Node) -> Estimate {
        match &node.kind {
            Kind::Literal(Literal::Type(_)) => Estimate { cost: Range::ONE, known: NOTHING },
            Kind::Literal(literal) => {
                Estimate { cost: Range::ZERO, known: Known { size: literal_size(literal), ..NOTHING } }
            }
            Kind::Name { place, .. } => {
                let known = match place {
                    Place::Local(number) => self.locals[*number].clone(),
                    Place::Variable(number) => Known { declared: Some(self.variables[*number].1.clone()), ..NOTHING },
                    Place::Unresolved => NOTHING,
                };
                Estimate { cost: Range::ONE, known }
            }
            Kind::Select { operand, field, mode } => self.select(operand, field, *mode),
            Kind::Index { operand, index, optional } => self.index(operand, index, *optional),
            Kind::Call(call) => self.call(call),
            Kind::List(items) => self.list(items),
            Kind::Map(entries) => self.map(entries),
            Kind::Logic { operands, .. } => {
                let [left, right] = operands.each_ref().map(|operand| self.node(operand).cost);
                Estimate { cost: Range { min: left.min, max: left.add(right).max }, known: NOTHING }
            }
            Kind::Conditional(parts) => {
                let [condition, yes, no] = parts.each_ref().map(|part| self.node(part));
                let size = self.size(&yes, &parts[1]).union(self.size(&no, &parts[2]));
                let known =
                    Known { size: Some(size), entries: union(yes.known.entries, no.known.entries), declared: None };
                Estimate { cost: condition.cost.add(yes.cost.union(no.cost)), known }
            }
            Kind::Among { operand, .. } => self.node(operand),
            Kind::Fold(fold) => self.fold(fold),
            Kind::OptionalMap(map) => self.optional_map(map),
            Kind::Message { .. } => Estimate { cost: Range::ZERO, known: NOTHING },
        }
    }

    fn size(&self, estimate: &Estimate, node: &Node) -> Range {
        estimate.known.size(&node.ty).unwrap_or(Range::UNKNOWN)
    }

    fn select(&mut self, operand: &Node, field: &str, mode: Select) -> Estimate {
        let target = self.node(operand);
        match mode {
            // Asking for presence is free, as Kubernetes sets it up.
            Select::Test => Estimate { cost: target.cost, known: NOTHING },
            Select::Optional => Estimate { cost: target.cost.add(Range::ONE), known: NOTHING },
            Select::Value => {
                let step = match operand.ty.plain() {
                    Type::Map(_) | Type::Object(_) => Range::ONE,
                    _ => Range::ZERO,
                };
                let declared = target.known.declared.as_ref().and_then(|ty| match ty.plain() {
                    Type::Object(object) => object.field(field).map(|field| field.ty.clone()),
                    _ => None,
                });
                Estimate { cost: target.cost.add(step), known: Known { declared, ..NOTHING } }
            }
        }
    }

    fn index(&mut self, operand: &Node, index: &Node, optional: bool) -> Estimate {
        let (target, key) = (self.node(operand), self.node(index));
        let cost = target.cost.add(key.cost).add(Range::ONE);
        let known =
            if optional { NOTHING } else { target.known.items(item_of, target.known.entries.map(|entry| entry.1)) };
        Estimate { cost, known }
    }

    fn call(&mut self, call: &Call) -> Estimate {
        let estimates: Vec<Estimate> = call.arguments.iter().map(|argument| self.node(argument)).collect();
        let below = estimates.iter().fold(Range::ZERO, |sum, estimate| sum.add(estimate.cost));
        if call.function == "dyn" {
            // It only hides the type.
            return Estimate {
                cost: below.add(Range::ONE),
                known: estimates.into_iter().next().map_or(NOTHING, |only| only.known),
            };
        }
        let arguments: Vec<Argument<'_>> = estimates
            .iter()
            .zip(&call.arguments)
            .map(|(estimate, node)| {
                let known = &estimate.known;
                let item = known.items(item_of, known.entries.map(|entry| entry.1));
                let item_size = item_of(node.ty.plain())
                    .and_then(|ty| item.declared.as_ref().and_then(declared_size).or_else(|| type_size(ty)))
                    .or(item.size);
                let (literal, number) = match &node.kind {
                    Kind::Literal(Literal::String(text)) => (Some(text.as_str()), None),
                    Kind::Literal(Literal::Int(number)) => (None, Some(*number)),
                    _ => (None, None),
                };
                let ty = known.declared.as_ref().unwrap_or(&node.ty);
                Argument { ty, size: known.size(&node.ty), item_size, literal, number }
            })
            .collect();
        let arguments = Arguments { arguments: &arguments };
        let estimate = |overload: &&'static Compiled| match &overload.cost {
            Cost::One => CallEstimate { cost: Range::ONE, result: None },
            Cost::Fixed(cost) => CallEstimate { cost: Range::exactly(*cost), result: None },
            Cost::Traverse(which) => {
                let size = which.iter().fold(Range::ZERO, |sum, &index| sum.add(arguments.size(index)));
                CallEstimate { cost: size.traversal(), result: None }
            }
            Cost::Custom(custom) => (custom.estimate)(&arguments),
        };
        // Where the types leave several overloads possible, the range covers all of them.
        let all = call.overloads.iter().map(estimate).reduce(|a, b| CallEstimate {
            cost: a.cost.union(b.cost),
            result: match (a.result, b.result) {
                (Some(a), Some(b)) => Some(a.union(b)),
                (a, b) => a.or(b),
            },
        });
        let all = all.unwrap_or(CallEstimate { cost: Range::ZERO, result: None });
        let entries = match (call.function.as_str(), estimates.as_slice()) {
            ("_+_", [left, right]) => union(left.known.entries, right.known.entries),
            _ => None,
        };
        Estimate { cost: below.add(all.cost), known: Known { size: all.result, entries, declared: None } }
    }

    fn list(&mut self, items: &[Item]) -> Estimate {
        let mut cost = Range::exactly(10);
        let mut sizes = None;
        for item in items {
            let estimate = self.node(&item.node);
            cost = cost.add(estimate.cost);
            sizes = Some(widen(sizes, self.size(&estimate, &item.node)));
        }
        let known = Known {
            size: Some(Range::exactly(items.len() as u64)),
            entries: Some((Range::ONE, sizes.unwrap_or(Range::ZERO))),
            declared: None,
        };
        Estimate { cost, known }
    }

    fn map(&mut self, entries: &[Entry]) -> Estimate {
        let mut cost = Range::exactly(30);
        let mut sizes = (None, None);
        for entry in entries {
            let (key, value) = (self.node(&entry.key), self.node(&entry.value));
            cost = cost.add(key.cost).add(value.cost);
            sizes = (
                Some(widen(sizes.0, self.size(&key, &entry.key))),
                Some(widen(sizes.1, self.size(&value, &entry.value))),
            );
        }
        let known = Known {
            size: Some(Range::exactly(entries.len() as u64)),
            entries: Some((sizes.0.unwrap_or(Range::ZERO), sizes.1.unwrap_or(Range::ZERO))),
            declared: None,
        };
        Estimate { cost, known }
    }

    fn fold(&mut self, fold: &Fold) -> Estimate {
        let range = self.node(&fold.range);
        let count = self.size(&range, &fold.range);
        let is_list = matches!(fold.range.ty.plain(), Type::List(_));
        let keys = range.known.items(key_of, range.known.entries.map(|entry| entry.0));
        let values = range.known.items(item_of, range.known.entries.map(|entry| entry.1));
        let single = if is_list { values.clone() } else { keys.clone() };
        let outer = self.locals.len();
        match fold.variables.len() {
            1 => self.locals.push(single.clone()),
            _ => self.locals.extend([keys, values]),
        }
        let filter = fold.filter.as_ref().map(|filter| self.node(filter).cost);
        let body = self.node(&fold.body);
        let body_size = self.size(&body, &fold.body);
        self.locals.truncate(outer);
        // A filtered round costs the filter, then the step or a look at what was found so far.
        let filtered = |step: Range, filter: Option<Range>| match filter {
            Some(filter) => filter.add(step.union(Range::ONE)),
            None => step,
        };
        let decide = Range { min: 1, max: body.cost.max.saturating_add(1) };
        // What the loop starts with, one round, and the look at what came out.
        let (start, round, end) = match fold.kind {
            FoldKind::All => (0, decide.add(Range::exactly(2)), 1),
            FoldKind::Exists => (0, decide.add(Range::exactly(3)), 1),
            FoldKind::ExistsOne => (0, body.cost.add(Range { min: 1, max: 2 }), 2),
            FoldKind::Filter => (10, filtered(Range::exactly(13), Some(body.cost)), 1),
            FoldKind::Map => (10, filtered(body.cost.add(Range::exactly(12)), filter), 1),
            FoldKind::TransformMap => (30, filtered(body.cost.add(Range::exactly(3)), filter), 1),
            FoldKind::TransformMapEntry => (30, filtered(body.cost.add(Range::exactly(2)), filter), 1),
        };
        let cost = range.cost.add(Range::exactly(start + end)).add(count.mul(round));
        let known = match fold.kind {
            FoldKind::All | FoldKind::Exists | FoldKind::ExistsOne => Known { size: Some(Range::ONE), ..NOTHING },
            // The list starts out empty, so its items may be as small as nothing.
            FoldKind::Map => {
                Known { size: Some(count), entries: Some((Range::ONE, body_size.union(Range::ZERO))), declared: None }
            }
            FoldKind::Filter => {
                let ty = if is_list { item_of(fold.range.ty.plain()) } else { key_of(fold.range.ty.plain()) };
                let size = ty.and_then(|ty| single.size(ty)).unwrap_or(Range::UNKNOWN).union(Range::ZERO);
                Known { size: Some(count), entries: Some((Range::ONE, size)), declared: None }
            }
            FoldKind::TransformMap | FoldKind::TransformMapEntry => Known { size: Some(count), ..NOTHING },
        };
        Estimate { cost, known }
    }

    fn optional_map(&mut self, map: &OptionalMap) -> Estimate {
        let target = self.node(&map.target);
        let asked = target.cost.add(Range::ONE);
        self.locals.push(NOTHING);
        let body = self.node(&map.body);
        self.locals.pop();
        // The range of the loop that binds the variable is an empty list, which is paid for.
        let bound = asked.add(body.cost).add(Range::exactly(10));
        let present = if map.flat { bound } else { bound.add(Range::ONE) };
        Estimate { cost: asked.add(present.union(Range::ONE)), known: NOTHING }
    }
}

fn widen(so_far: Option<Range>, size: Range) -> Range {
    so_far.map_or(size, |so_far| so_far.union(size))
}

fn union(a: Option<(Range, Range)>, b: Option<(Range, Range)>) -> Option<(Range, Range)> {
    let ((ak, av), (bk, bv)) = (a?, b?);
    Some((ak.union(bk), av.union(bv)))
}

fn literal_size(literal: &Literal) -> Option<Range> {
    Some(match literal {
        Literal::String(text) => Range::exactly(text.chars().count() as u64),
        Literal::Bytes(bytes) => Range::exactly(bytes.len() as u64),
        Literal::Type(_) | Literal::Json(_) => return None,
        _ => Range::ONE,
    })
}
