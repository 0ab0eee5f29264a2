//! Evaluates a checked tree, counting costs as cel-go does.
//!
//! A path (`self.a[i].b`) costs one unit, plus one for each step; literals are free. cel-go expands a macro into a
//! loop. This evaluator runs macros directly, and spends for each as many units as cel-go's loop.

use super::ast::*;
use super::compare::{Fuel, equal};
use super::cost::Budget;
use super::follow::{at, select, test};
use super::functions::{self, Cost};
use super::message;
use super::value::{EvalError, Key, Text, Value};
use super::work;
use std::collections::BTreeMap;

const LIST_COST: u64 = 10;
const MAP_COST: u64 = 30;
const MESSAGE_COST: u64 = 40;
/// The number of comparisons inside lists and maps that each call may make free of cost.
const FREE_STEPS: u64 = 1_000;
/// The number of further comparisons inside lists and maps for one unit of cost.
const STEPS_PER_UNIT: u64 = 100;

pub struct Machine<'m, 'a> {
    pub variables: &'m [Value<'a>],
    /// The variables of enclosing macros, outermost first.
    pub locals: Vec<Value<'a>>,
    pub budget: &'m mut Budget,
}

type EvalResult<'a> = Result<Value<'a>, EvalError>;

impl<'a> Machine<'_, 'a> {
    pub fn eval(&mut self, node: &'a Node) -> EvalResult<'a> {
        match &node.kind {
            Kind::Literal(literal) => literal_value(literal, node),
            Kind::Name { .. } | Kind::Index { .. } | Kind::Select { .. } | Kind::Conditional(_) => self.path(node),
            Kind::Call(call) => self.call(call),
            Kind::Logic { and, operands } => self.logic(*and, operands),
            Kind::List(items) => self.list(items),
            Kind::Map(entries) => self.map(entries),
            Kind::Among { operand, set } => self.eval(operand).map(|value| Value::Bool(set.contains(&value))),
            Kind::Fold(fold) => self.fold(fold),
            Kind::OptionalMap(map) => self.optional_map(map),
            Kind::Bind(bind) => self.bind(bind),
            Kind::Constant(constant) => self.constant(constant),
            Kind::Message { name, fields } => self.message(name, fields),
        }
    }

    /// Evaluates a whole path. The path costs one unit in addition to its steps, unless it starts with a conditional
    /// (`c ? a : b`).
    fn path(&mut self, node: &'a Node) -> EvalResult<'a> {
        if let Kind::Select { operand, field, mode: Select::Test } = &node.kind {
            let value = self.follow_operand(operand)?;
            self.root_cost(operand)?;
            return test(&value, field).map(Value::Bool);
        }
        let value = self.follow(node)?;
        self.root_cost(node)?;
        Ok(value)
    }

    fn root_cost(&mut self, node: &'a Node) -> Result<(), EvalError> {
        let mut root = node;
        loop {
            root = match &root.kind {
                Kind::Select { operand, mode: Select::Value | Select::Optional, .. } | Kind::Index { operand, .. } => {
                    operand
                }
                Kind::Conditional(_) => return Ok(()),
                _ => return self.budget.spend(1),
            }
        }
    }

    /// Evaluates the steps of a path, without the unit for the whole path.
    fn follow(&mut self, node: &'a Node) -> EvalResult<'a> {
        match &node.kind {
            Kind::Name { place: Place::Variable(number), .. } => Ok(self.variables[*number].clone()),
            Kind::Name { place: Place::Local(number), .. } => Ok(self.locals[*number].clone()),
            Kind::Select { operand, field, mode } if *mode != Select::Test => {
                let value = self.follow_operand(operand)?;
                self.budget.spend(1)?;
                select(&value, field, *mode == Select::Optional)
            }
            Kind::Index { operand, index, optional } => self.follow_index(operand, index, *optional),
            Kind::Conditional(parts) => {
                let [condition, yes, no] = &**parts;
                match self.eval(condition)? {
                    Value::Bool(true) => self.follow_operand(yes),
                    Value::Bool(false) => self.follow_operand(no),
                    _ => Err(EvalError::no_such_overload()),
                }
            }
            _ => self.eval(node),
        }
    }

    fn follow_operand(&mut self, operand: &'a Node) -> EvalResult<'a> {
        if operand.kind.is_path() { self.follow(operand) } else { self.eval(operand) }
    }

    fn follow_index(&mut self, operand: &'a Node, index: &'a Node, optional: bool) -> EvalResult<'a> {
        let value = self.follow_operand(operand)?;
        let key = self.follow_operand(index)?;
        if !matches!(index.kind, Kind::Conditional(_)) {
            self.budget.spend(1)?;
        }
        at(value, key, optional)
    }

    fn call(&mut self, call: &'a Call) -> EvalResult<'a> {
        match call.arguments.as_slice() {
            [only] => {
                let arguments = [self.eval(only)?];
                self.apply(call, &arguments)
            }
            [first, second] => {
                let first = self.eval(first)?;
                // If the optional has a value, the alternative is not evaluated. As in cel-go, the alternative then
                // costs nothing.
                if let Value::Optional(value) = &first
                    && let "or" | "orValue" = call.function.as_str()
                {
                    return match (value, call.function.as_str()) {
                        (Some(value), "orValue") => Ok((**value).clone()),
                        (Some(_), _) => Ok(first),
                        (None, _) => self.eval(second),
                    };
                }
                let arguments = [first, self.eval(second)?];
                self.apply(call, &arguments)
            }
            more => {
                let arguments: Vec<Value<'a>> = more.iter().map(|node| self.eval(node)).collect::<Result<_, _>>()?;
                self.apply(call, &arguments)
            }
        }
    }

    fn apply(&mut self, call: &'a Call, arguments: &[Value<'a>]) -> EvalResult<'a> {
        if let (Some(pattern), [Value::String(text), _]) = (&call.pattern, arguments) {
            let matched = Value::Bool(pattern.is_match(text));
            let cost = functions::pattern_cost(arguments, &matched);
            self.budget.spend(if call.member { cost } else { 1 + work::beyond_free(cost) })?;
            return Ok(matched);
        }
        let fitting = call.overloads.iter().find(|overload| overload.fits(arguments));
        let overload = fitting.ok_or_else(|| no_overload_of(call, arguments))?;
        self.budget.spend(work::before(call, overload, arguments))?;
        if let Cost::Beforehand(cost) = &overload.cost {
            self.budget.spend((cost.actual)(arguments))?;
        }
        let result = match call.function.as_str() {
            "_==_" => Value::Bool(self.equal(&arguments[0], &arguments[1])?),
            "_!=_" => Value::Bool(match self.equal(&arguments[0], &arguments[1]) {
                Err(EvalError::Cost) => return Err(EvalError::Cost),
                // If the values cannot be compared, for example because their types differ, they are not equal.
                other => !other.unwrap_or(false),
            }),
            "@in" if arguments[1].list_len().is_some() => self.is_in(&arguments[0], &arguments[1])?,
            _ => (overload.run)(arguments)?,
        };
        let cost = match &overload.cost {
            Cost::One => 1,
            Cost::Fixed(cost) => *cost,
            Cost::Traverse(which) => {
                super::cost::traversal(which.iter().map(|&index| arguments[index].size()).fold(0, u64::saturating_add))
            }
            Cost::Custom(custom) => (custom.actual)(arguments, &result),
            Cost::Beforehand(_) => 0,
        };
        self.budget.spend(cost.saturating_add(work::after(call, &result)))?;
        Ok(result)
    }

    /// Compares two values. The cost of the call counts only the sizes of the two values, so comparisons of values
    /// inside them have a limit of their own.
    fn equal(&mut self, a: &Value<'a>, b: &Value<'a>) -> Result<bool, EvalError> {
        self.with_fuel(|fuel| equal(a, b, fuel))
    }

    fn is_in(&mut self, value: &Value<'a>, list: &Value<'a>) -> EvalResult<'a> {
        self.with_fuel(|fuel| {
            for item in list.items() {
                if equal(value, &item?, fuel)? {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        })
    }

    fn with_fuel<T>(&mut self, run: impl FnOnce(&mut Fuel) -> Result<T, EvalError>) -> Result<T, EvalError> {
        let full = self.budget.left.saturating_mul(STEPS_PER_UNIT).saturating_add(FREE_STEPS);
        let mut fuel = Fuel(full);
        let result = run(&mut fuel)?;
        self.budget.spend((full - fuel.0).saturating_sub(FREE_STEPS) / STEPS_PER_UNIT)?;
        Ok(result)
    }

    /// Evaluates `&&` or `||`. If one operand decides the result, an error of the other operand is ignored.
    fn logic(&mut self, and: bool, operands: &'a [Node; 2]) -> EvalResult<'a> {
        let [left, right] = operands;
        let left = self.eval(left);
        match &left {
            Ok(Value::Bool(value)) if *value != and => return left,
            Err(EvalError::Cost) => return left,
            _ => {}
        }
        let right = self.eval(right);
        match (left, right) {
            (_, Err(EvalError::Cost)) => Err(EvalError::Cost),
            (_, Ok(Value::Bool(right))) if right != and => Ok(Value::Bool(right)),
            (Err(error), _) | (Ok(Value::Bool(_)), Err(error)) => Err(error),
            (Ok(Value::Bool(_)), Ok(Value::Bool(right))) => Ok(Value::Bool(right)),
            _ => Err(EvalError::no_such_overload()),
        }
    }

    fn list(&mut self, items: &'a [Item]) -> EvalResult<'a> {
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            let value = self.eval(&item.node)?;
            match (item.optional, value) {
                (false, value) => values.push(value),
                (true, Value::Optional(Some(value))) => values.push((*value).clone()),
                (true, Value::Optional(None)) => {}
                (true, other) => return Err(no_optional(&other)),
            }
        }
        self.budget.spend(LIST_COST + work::items(items.len()))?;
        Ok(Value::list(values))
    }

    fn map(&mut self, entries: &'a [Entry]) -> EvalResult<'a> {
        let mut map = BTreeMap::new();
        for entry in entries {
            let key = self.eval(&entry.key)?;
            let value = self.eval(&entry.value)?;
            let value = match (entry.optional, value) {
                (false, value) => value,
                (true, Value::Optional(Some(value))) => (*value).clone(),
                (true, Value::Optional(None)) => continue,
                (true, other) => return Err(no_optional(&other)),
            };
            insert(&mut map, &key, value, "Failed with repeated key: ", "")?;
        }
        self.budget.spend(MAP_COST + work::items(entries.len()))?;
        Ok(Value::map(map))
    }

    fn fold(&mut self, fold: &'a Fold) -> EvalResult<'a> {
        let range = self.eval(&fold.range)?;
        self.budget.spend(work::keys(&range))?;
        let outer = self.locals.len();
        let result = self.fold_over(fold, &range);
        self.locals.truncate(outer);
        let result = result?;
        // At the end of a loop cel-go reads the accumulator, which costs one unit; `exists_one` also compares it.
        self.budget.spend(if fold.kind == FoldKind::ExistsOne { 2 } else { 1 })?;
        Ok(result)
    }

    fn fold_over(&mut self, fold: &'a Fold, range: &Value<'a>) -> EvalResult<'a> {
        let outer = self.locals.len();
        let mut state = State::of(fold.kind);
        let mut step = |machine: &mut Self, key: Option<Value<'a>>, value: Value<'a>| {
            machine.locals.truncate(outer);
            machine.locals.extend(key);
            machine.locals.push(value);
            machine.step(fold, &mut state)
        };
        let two = fold.variables.len() == 2;
        if range.list_len().is_some() {
            for (index, item) in range.items().enumerate() {
                if !step(self, two.then_some(Value::Int(index as i64)), item?)? {
                    break;
                }
            }
        } else if range.is_map() {
            for key in range.keys() {
                let (key, value) = match two {
                    false => (None, key),
                    true => {
                        let value = range.get(&key)?.unwrap_or(Value::Null);
                        (Some(key), value)
                    }
                };
                if !step(self, key, value)? {
                    break;
                }
            }
        } else {
            let ty = range.type_of();
            return Err(EvalError::new(format!("got '{}', expected iterable type", ty.value_name())));
        }
        match state {
            State::Decided(value) => value.map(Value::Bool),
            State::Count(count) => Ok(Value::Bool(count == 1)),
            State::Items(items) => Ok(Value::list(items)),
            State::Entries(entries) => Ok(Value::map(entries)),
        }
    }

    /// Runs one iteration of a loop. Returns false if no further iteration is needed.
    fn step(&mut self, fold: &'a Fold, state: &mut State<'a>) -> Result<bool, EvalError> {
        match state {
            State::Decided(so_far) => {
                let all = fold.kind == FoldKind::All;
                self.budget.spend(if all { 2 } else { 3 })?;
                if matches!(so_far, Ok(value) if *value != all) {
                    return Ok(false);
                }
                self.budget.spend(1)?;
                match self.eval(&fold.body) {
                    Err(EvalError::Cost) => return Err(EvalError::Cost),
                    Ok(Value::Bool(value)) if value != all => *so_far = Ok(value),
                    Ok(Value::Bool(_)) => {}
                    Ok(_) if so_far.is_ok() => *so_far = Err(EvalError::no_such_overload()),
                    Err(error) if so_far.is_ok() => *so_far = Err(error),
                    _ => {}
                }
            }
            State::Count(count) => {
                if self.condition(&fold.body)? {
                    self.budget.spend(2)?;
                    *count += 1;
                }
            }
            State::Items(items) if fold.kind == FoldKind::Filter => {
                if self.condition(&fold.body)? {
                    self.budget.spend(LIST_COST + 3)?;
                    items.extend(self.locals.last().cloned());
                }
            }
            State::Items(items) => {
                if self.passes(fold)? {
                    let value = self.eval(&fold.body)?;
                    self.budget.spend(LIST_COST + 2)?;
                    items.push(value);
                }
            }
            State::Entries(entries) => {
                if self.passes(fold)? {
                    let value = self.eval(&fold.body)?;
                    let (before, after) = ("insert failed: key '", "' already exists");
                    if fold.kind == FoldKind::TransformMap {
                        self.budget.spend(3)?;
                        let key = self.locals[self.locals.len() - 2].clone();
                        insert(entries, &key, value, before, after)?;
                    } else {
                        self.budget.spend(2)?;
                        for key in value.keys() {
                            let value = value.get(&key)?.unwrap_or(Value::Null);
                            insert(entries, &key, value, before, after)?;
                        }
                    }
                }
            }
        }
        Ok(true)
    }

    fn passes(&mut self, fold: &'a Fold) -> Result<bool, EvalError> {
        fold.filter.as_ref().map_or(Ok(true), |filter| self.condition(filter))
    }

    fn condition(&mut self, node: &'a Node) -> Result<bool, EvalError> {
        match self.eval(node)? {
            Value::Bool(value) => Ok(value),
            _ => Err(EvalError::no_such_overload()),
        }
    }

    #[inline(never)]
    fn message(&mut self, name: &str, fields: &'a [MessageField]) -> EvalResult<'a> {
        let mut written = Vec::new();
        for field in fields {
            match (field.optional, self.eval(&field.node)?) {
                (true, Value::Optional(None)) => {}
                (true, Value::Optional(Some(value))) => written.push((field.name.as_str(), (*value).clone())),
                (true, _) => return Err(EvalError::no_such_overload()),
                (false, value) => written.push((field.name.as_str(), value)),
            }
        }
        self.budget.spend(MESSAGE_COST)?;
        message::value_of(name, written)
    }

    /// Builds a list or map of literals. If entries of a map have the same key, the last one counts.
    #[inline(never)]
    fn constant(&mut self, constant: &'a Constant) -> EvalResult<'a> {
        match constant {
            Constant::List(items) => {
                self.budget.spend(work::items(items.len()))?;
                items.iter().map(|item| self.eval(&item.node)).collect::<Result<_, _>>().map(Value::list)
            }
            Constant::Map(entries) => {
                self.budget.spend(work::items(entries.len()))?;
                let mut map = BTreeMap::new();
                for entry in entries {
                    let (key, value) = (self.eval(&entry.key)?, self.eval(&entry.value)?);
                    map.insert(Key::of_constant(&key)?, value);
                }
                Ok(Value::map(map))
            }
        }
    }

    #[inline(never)]
    fn bind(&mut self, bind: &'a Bind) -> EvalResult<'a> {
        let value = self.eval(&bind.value)?;
        self.locals.push(value);
        let body = self.eval(&bind.body);
        self.locals.pop();
        body
    }

    /// cel-go evaluates the target twice, to test its presence and for the value. Here the target is evaluated once and
    /// its cost is counted twice.
    fn optional_map(&mut self, map: &'a OptionalMap) -> EvalResult<'a> {
        let before = self.budget.left;
        let target = self.eval(&map.target)?;
        let cost = before - self.budget.left;
        self.budget.spend(1)?;
        let Value::Optional(target) = target else { return Err(EvalError::no_such_overload()) };
        let Some(target) = target else {
            self.budget.spend(1)?;
            return Ok(Value::Optional(None));
        };
        self.budget.spend(cost + 1)?;
        self.locals.push((*target).clone());
        let body = self.eval(&map.body);
        self.locals.pop();
        let body = body?;
        if map.flat {
            return Ok(body);
        }
        self.budget.spend(1)?;
        Ok(Value::some(body))
    }
}

/// The error for arguments that fit no overload. If the function is an extension of the language, the error names the
/// arguments' types.
fn no_overload_of(call: &Call, arguments: &[Value<'_>]) -> EvalError {
    if !call.overloads.iter().any(|overload| overload.is_extension) {
        return EvalError::no_such_overload();
    }
    let types: Vec<String> = arguments.iter().map(|argument| argument.type_of().value_name().to_owned()).collect();
    EvalError::new(format!("no such overload: {}({})", call.function, types.join(", ")))
}

/// The result of the iterations of a loop that have run.
enum State<'a> {
    Decided(Result<bool, EvalError>),
    Count(u64),
    Items(Vec<Value<'a>>),
    Entries(BTreeMap<Key<'a>, Value<'a>>),
}

impl State<'_> {
    fn of(kind: FoldKind) -> Self {
        match kind {
            FoldKind::All => State::Decided(Ok(true)),
            FoldKind::Exists => State::Decided(Ok(false)),
            FoldKind::ExistsOne => State::Count(0),
            FoldKind::Map | FoldKind::Filter => State::Items(Vec::new()),
            FoldKind::TransformMap | FoldKind::TransformMapEntry => State::Entries(BTreeMap::new()),
        }
    }
}

fn insert<'a>(
    map: &mut BTreeMap<Key<'a>, Value<'a>>,
    key: &Value<'a>,
    value: Value<'a>,
    before: &str,
    after: &str,
) -> Result<(), EvalError> {
    let found = match key {
        Value::Double(_) => None,
        key => Key::of(key),
    };
    let Some(found) = found else {
        let ty = key.type_of();
        return Err(EvalError::new(format!("unsupported key type: {}", ty.value_name())));
    };
    match map.insert(found, value) {
        None => Ok(()),
        Some(_) => Err(EvalError::new(format!("{before}{}{after}", functions::as_text(key)))),
    }
}

fn no_optional(value: &Value<'_>) -> EvalError {
    let ty = value.type_of();
    EvalError::new(format!("cannot initialize optional list element from non-optional value {}", ty.value_name()))
}

fn literal_value<'a>(literal: &'a Literal, node: &'a Node) -> EvalResult<'a> {
    Ok(match literal {
        Literal::Null => Value::Null,
        Literal::Bool(value) => Value::Bool(*value),
        Literal::Int(value) => Value::Int(*value),
        Literal::Uint(value) => Value::Uint(*value),
        Literal::Double(value) => Value::Double(*value),
        Literal::String(text) => Value::String(Text::Borrowed(text)),
        Literal::Bytes(bytes) => Value::Bytes(bytes.clone()),
        Literal::Duration(duration) => Value::Duration(*duration),
        Literal::Timestamp(timestamp) => Value::Timestamp(*timestamp),
        Literal::Type(ty) => Value::Type(ty.clone()),
        Literal::Json(json) => return Value::json(json, &node.ty),
    })
}
