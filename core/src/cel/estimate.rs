//! Estimates costs from types alone, as cel-go does. Accessing a value costs one unit. A loop costs its body times the
//! maximum length of its range. The function tables give the costs of calls.

use super::ast::*;
use super::cost::{Argument, Arguments, CallEstimate, Range};
use super::functions::Compiled;
use super::types::Type;

/// Estimates the cost of a checked tree in which constants are not yet computed. If `root` is set, it is the type that
/// values inside computed values count as (see [`super::Environment::computed_like`]).
pub fn estimate(node: &Node, variables: &[(String, Type)], root: Option<&Type>) -> Range {
    Estimator { variables, root, locals: Vec::new() }.node(node).cost
}

struct Estimator<'e> {
    variables: &'e [(String, Type)],
    root: Option<&'e Type>,
    locals: Vec<Known>,
}

#[derive(Clone)]
struct Estimate {
    cost: Range,
    known: Known,
}

/// What is known about a value before evaluation. The size of the value is the first known one of these sizes, in this
/// order: `computed`, the size of the value at `place`, the size limit of the type, and `bound`, the size of the value
/// to which a macro binds the variable.
#[derive(Clone, Default)]
struct Known {
    computed: Option<Range>,
    place: Place,
    bound: Option<Range>,
    /// The sizes of the keys and values, if the value is a list or map.
    entries: Option<Entries>,
}

/// The place in a document from which a value comes, as cel-go tracks it.
#[derive(Clone, Default)]
enum Place {
    /// The value is computed, so it has no place.
    #[default]
    Computed,
    /// The path leads to a value of this type in the schema.
    At(Type),
    /// The path leads to a value that the schema does not describe.
    Unknown,
}

#[derive(Clone, Copy)]
struct Entries {
    is_list: bool,
    key: Range,
    value: Range,
}

impl Known {
    fn size(&self, ty: &Type) -> Option<Range> {
        self.computed.or_else(|| self.place.size()).or_else(|| type_size(ty)).or(self.bound)
    }

    fn found(place: Place) -> Self {
        Known { place, ..Known::default() }
    }

    fn sized(size: Range) -> Self {
        Known { computed: Some(size), ..Known::default() }
    }
}

impl Place {
    /// The size of the value at a place. Kubernetes declares the size of every value in a schema.
    fn size(&self) -> Option<Range> {
        match self {
            Place::At(ty) => declared_size(ty),
            Place::Computed | Place::Unknown => None,
        }
    }
}

fn declared_size(ty: &Type) -> Option<Range> {
    match (ty.max_size(), ty.plain()) {
        (Some(max), _) => Some(Range { min: 0, max }),
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

fn value_of(ty: &Type) -> Option<&Type> {
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

// Each kind of node has its own function, so that common nodes use little stack in deep trees.
impl Estimator<'_> {
    fn node(&mut self, node: &Node) -> Estimate {
        match &node.kind {
            Kind::Literal(Literal::Type(_)) => Estimate { cost: Range::ONE, known: self.variable(None) },
            Kind::Literal(literal) => {
                Estimate { cost: Range::ZERO, known: Known { computed: literal_size(literal), ..Known::default() } }
            }
            Kind::Name { place, .. } => {
                let known = match place {
                    super::ast::Place::Local(number) => self.locals[*number].clone(),
                    super::ast::Place::Variable(number) => self.variable(Some(&self.variables[*number].1)),
                    super::ast::Place::Unresolved => Known::default(),
                };
                Estimate { cost: Range::ONE, known }
            }
            Kind::Select { operand, field, mode } => self.select(operand, field, *mode),
            Kind::Index { operand, index, optional } => self.index(operand, index, *optional),
            Kind::Call(call) => self.call(call, &node.ty),
            Kind::List(items) => self.list(items),
            Kind::Map(entries) => self.map(entries),
            Kind::Logic { operands, .. } => self.logic(operands),
            Kind::Conditional(parts) => self.conditional(parts),
            Kind::Among { operand, .. } => self.node(operand),
            Kind::Fold(fold) => self.fold(fold),
            Kind::OptionalMap(map) => self.optional_map(map, &node.ty),
            Kind::Bind(bind) => self.bind(bind),
            Kind::Message { fields, .. } => self.message(fields),
            Kind::Constant(_) => Estimate { cost: Range::ZERO, known: Known::default() },
        }
    }

    #[inline(never)]
    fn logic(&mut self, operands: &[Node; 2]) -> Estimate {
        let [left, right] = operands.each_ref().map(|operand| self.node(operand).cost);
        Estimate { cost: Range { min: left.min, max: left.add(right).max }, known: Known::default() }
    }

    #[inline(never)]
    fn conditional(&mut self, parts: &[Node; 3]) -> Estimate {
        let [condition, yes, no] = parts.each_ref().map(|part| self.node(part));
        let size = self.size(&yes, &parts[1]).union(self.size(&no, &parts[2]));
        let entries = union(yes.known.entries, no.known.entries);
        let known = Known { entries, ..Known::sized(size) };
        Estimate { cost: condition.cost.add(yes.cost.union(no.cost)), known }
    }

    #[inline(never)]
    fn message(&mut self, fields: &[MessageField]) -> Estimate {
        let below = fields.iter().fold(Range::ZERO, |sum, field| sum.add(self.node(&field.node).cost));
        Estimate { cost: below.add(Range::exactly(40)), known: Known::default() }
    }

    /// What is known about a variable of the environment, or about a variable of unknown type.
    fn variable(&self, ty: Option<&Type>) -> Known {
        let place = self.root.or(ty).map_or(Place::Unknown, |ty| Place::At(ty.clone()));
        Known::found(place)
    }

    /// The place of a part of a value. From a computed value the path continues at the environment's `root`, because
    /// cel-go does not store the beginning of a path.
    fn step(&self, from: &Place, of: impl Fn(&Type) -> Option<&Type>) -> Place {
        let to = match from {
            Place::Computed => self.root,
            Place::At(ty) => of(ty.plain()),
            Place::Unknown => None,
        };
        to.map_or(Place::Unknown, |ty| Place::At(ty.clone()))
    }

    fn size(&self, estimate: &Estimate, node: &Node) -> Range {
        estimate.known.size(&node.ty).unwrap_or(Range::UNKNOWN)
    }

    #[inline(never)]
    fn select(&mut self, operand: &Node, field: &str, mode: Select) -> Estimate {
        let target = self.node(operand);
        match mode {
            // Kubernetes configures cel-go so that the test for presence, `has(x.y)`, is free.
            Select::Test => Estimate { cost: target.cost, known: Known::default() },
            Select::Optional => Estimate { cost: target.cost.add(Range::ONE), known: Known::default() },
            Select::Value => {
                let step = match operand.ty.plain() {
                    Type::Map(_) | Type::Object(_) => Range::ONE,
                    _ => Range::ZERO,
                };
                let place = self.step(&target.known.place, |ty| match ty {
                    Type::Object(object) => object.field(field).map(|field| &field.ty),
                    _ => None,
                });
                Estimate { cost: target.cost.add(step), known: Known::found(place) }
            }
        }
    }

    #[inline(never)]
    fn index(&mut self, operand: &Node, index: &Node, optional: bool) -> Estimate {
        let (target, key) = (self.node(operand), self.node(index));
        let cost = target.cost.add(key.cost).add(Range::ONE);
        // Indexing an optional returns an optional, which has no place.
        if optional || matches!(operand.ty.plain(), Type::Optional(_)) {
            return Estimate { cost, known: Known::default() };
        }
        let place = self.step(&target.known.place, value_of);
        Estimate {
            cost,
            known: Known { computed: target.known.entries.map(|entries| entries.value), place, ..Known::default() },
        }
    }

    #[inline(never)]
    fn call(&mut self, call: &Call, ty: &Type) -> Estimate {
        let estimates: Vec<Estimate> = call.arguments.iter().map(|argument| self.node(argument)).collect();
        let below = estimates.iter().fold(Range::ZERO, |sum, estimate| sum.add(estimate.cost));
        if call.function == "dyn"
            && let [Estimate { known, .. }] = estimates.as_slice()
        {
            // `dyn(x)` hides only the type of `x`; the sizes stay known.
            let computed = known.size(&call.arguments[0].ty);
            let known = Known { computed, entries: known.entries, ..Known::default() };
            return Estimate { cost: below.add(Range::ONE), known };
        }
        let arguments: Vec<Argument<'_>> = estimates
            .iter()
            .zip(&call.arguments)
            .map(|(estimate, node)| self.argument(&estimate.known, node))
            .collect();
        let arguments = Arguments { arguments: &arguments };
        let estimate = |overload: &&'static Compiled| overload.cost.estimate(&arguments);
        // If several overloads are possible, the range covers the costs of all.
        let all = call.overloads.iter().map(estimate).reduce(|a, b| CallEstimate {
            cost: a.cost.union(b.cost),
            result: match (a.result, b.result) {
                (Some(a), Some(b)) => Some(a.union(b)),
                (a, b) => a.or(b).map(|size| type_size(ty).map_or(size, |of_type| size.union(of_type))),
            },
        });
        let all = all.unwrap_or(CallEstimate { cost: Range::ZERO, result: None });
        let entries = match (call.function.as_str(), estimates.as_slice()) {
            ("_+_", [left, right]) => union(left.known.entries, right.known.entries),
            _ => None,
        };
        Estimate { cost: below.add(all.cost), known: Known { computed: all.result, entries, ..Known::default() } }
    }

    fn argument<'a>(&self, known: &Known, node: &'a Node) -> Argument<'a> {
        let item_type = match node.ty.plain() {
            Type::List(item) => Some(&**item),
            _ => None,
        };
        // Kubernetes estimates the item sizes of values in the schema, but not of computed values.
        let item_size = match &known.place {
            Place::Computed => None,
            place => self.step(place, value_of).size(),
        };
        let (literal, number) = match &node.kind {
            Kind::Literal(Literal::String(text)) => (Some(text.as_str()), None),
            Kind::Literal(Literal::Int(number)) => (None, Some(*number)),
            _ => (None, None),
        };
        Argument { ty: &node.ty, size: known.size(&node.ty), item_type, item_size, literal, number }
    }

    #[inline(never)]
    fn list(&mut self, items: &[Item]) -> Estimate {
        let mut cost = Range::exactly(10);
        let mut sizes = None;
        for item in items {
            let estimate = self.node(&item.node);
            cost = cost.add(estimate.cost);
            sizes = Some(widen(sizes, self.size(&estimate, &item.node)));
        }
        let entries = Entries { is_list: true, key: Range::ONE, value: sizes.unwrap_or(Range::ZERO) };
        let known = Known { entries: Some(entries), ..Known::sized(Range::exactly(items.len() as u64)) };
        Estimate { cost, known }
    }

    #[inline(never)]
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
        let (key, value) = (sizes.0.unwrap_or(Range::ZERO), sizes.1.unwrap_or(Range::ZERO));
        let size = Range::exactly(entries.len() as u64);
        let known = Known { entries: Some(Entries { is_list: false, key, value }), ..Known::sized(size) };
        Estimate { cost, known }
    }

    /// What is known about the keys and about the values over which a loop iterates, and whether the loop runs over a
    /// list.
    fn variables_of(&self, range: &Known, ty: &Type) -> (Known, Known, bool) {
        let is_list = range.entries.map_or(matches!(ty.plain(), Type::List(_)), |entries| entries.is_list);
        let bound = |place, bound| Known { bound, ..Known::found(place) };
        let keys = bound(self.step(&range.place, key_of), range.entries.map(|entries| entries.key));
        let values = bound(self.step(&range.place, value_of), range.entries.map(|entries| entries.value));
        (keys, values, is_list)
    }

    #[inline(never)]
    fn fold(&mut self, fold: &Fold) -> Estimate {
        let range = self.node(&fold.range);
        let count = self.size(&range, &fold.range);
        let (keys, values, is_list) = self.variables_of(&range.known, &fold.range.ty);
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
        // A filtered iteration costs the filter, and either the step or one access to the accumulator.
        let filtered = |step: Range, filter: Option<Range>| match filter {
            Some(filter) => filter.add(step.union(Range::ONE)),
            None => step,
        };
        let decide = Range { min: 1, max: body.cost.max.saturating_add(1) };
        // The costs of the initial value of the loop, of one iteration, and of the result.
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
        // The list of the results is empty before the first iteration, so the estimate for its items starts at size
        // zero.
        let list_of = |size: Range| {
            let entries = Entries { is_list: true, key: Range::ONE, value: size.union(Range::ZERO) };
            Known { entries: Some(entries), ..Known::sized(count) }
        };
        let known = match fold.kind {
            FoldKind::All | FoldKind::Exists | FoldKind::ExistsOne => Known::sized(Range::ONE),
            FoldKind::Map => list_of(body_size),
            FoldKind::Filter => {
                let ty = if is_list { value_of(fold.range.ty.plain()) } else { key_of(fold.range.ty.plain()) };
                list_of(single.size(ty.unwrap_or(&Type::Dyn)).unwrap_or(Range::UNKNOWN))
            }
            FoldKind::TransformMap | FoldKind::TransformMapEntry => Known::sized(count),
        };
        Estimate { cost, known }
    }

    #[inline(never)]
    fn optional_map(&mut self, map: &OptionalMap, ty: &Type) -> Estimate {
        let target = self.node(&map.target);
        let asked = target.cost.add(Range::ONE);
        let bound = match map.target.ty.plain() {
            Type::Optional(inner) => type_size(inner),
            _ => None,
        };
        self.locals.push(Known { bound, ..Known::default() });
        let body = self.node(&map.body);
        self.locals.pop();
        // cel-go binds the variable with a loop over an empty list, which costs ten units.
        let bound = asked.add(body.cost).add(Range::exactly(10));
        let present = if map.flat { bound } else { bound.add(Range::ONE) };
        let size = type_size(ty).unwrap_or(Range::UNKNOWN);
        Estimate { cost: asked.add(present.union(Range::ONE)), known: Known::sized(size) }
    }

    #[inline(never)]
    fn bind(&mut self, bind: &Bind) -> Estimate {
        let value = self.node(&bind.value);
        let known = Known {
            computed: None,
            bound: value.known.size(&bind.value.ty),
            place: value.known.place,
            entries: value.known.entries,
        };
        self.locals.push(known);
        let body = self.node(&bind.body);
        self.locals.pop();
        // cel-go binds the variable with a loop over an empty list, which costs ten units.
        let cost = Range::exactly(10).add(value.cost).add(body.cost);
        let known = Known { computed: body.known.size(&bind.body.ty), entries: body.known.entries, ..Known::default() };
        Estimate { cost, known }
    }
}

fn widen(so_far: Option<Range>, size: Range) -> Range {
    so_far.map_or(size, |so_far| so_far.union(size))
}

fn union(a: Option<Entries>, b: Option<Entries>) -> Option<Entries> {
    let (a, b) = (a?, b?);
    Some(Entries { is_list: a.is_list, key: a.key.union(b.key), value: a.value.union(b.value) })
}

fn literal_size(literal: &Literal) -> Option<Range> {
    Some(match literal {
        Literal::String(text) => Range::exactly(text.chars().count() as u64),
        Literal::Bytes(bytes) => Range::exactly(bytes.len() as u64),
        Literal::Type(_) | Literal::Json(_) => return None,
        _ => Range::ONE,
    })
}
