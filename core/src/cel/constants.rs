//! Computes constant subexpressions at compile time. cel-go computes exactly the same subexpressions at compile time.
//! Computed subexpressions are free at run time, so costs depend on this choice.

use super::ast::*;
use super::types::Type;
use super::value::Value;
use holdfast_value::Value as Json;

/// The conversion functions that are computed at compile time if their arguments are literals.
const CONVERSIONS: &[&str] = &["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "uint"];

/// Replaces constant parts of the tree by their values, from the leaves up. A literal that cannot be converted or an
/// invalid literal pattern is an error.
pub fn compute(node: &mut Node) -> Result<(), String> {
    let mut outcome = Ok(());
    node.each_child(&mut |child| {
        if outcome.is_ok() {
            outcome = compute(child);
        }
    });
    outcome?;
    let replacement = match &mut node.kind {
        Kind::List(items) => match list(items, &node.ty) {
            Some(literal) => Some(Kind::Literal(literal)),
            None if items.iter().all(|item| !item.optional && is_constant(&item.node)) => {
                Some(Kind::Constant(Box::new(Constant::List(std::mem::take(items)))))
            }
            None => None,
        },
        Kind::Map(entries) => match map(entries, &node.ty) {
            Some(literal) => Some(Kind::Literal(literal)),
            None if entries
                .iter()
                .all(|entry| !entry.optional && is_constant(&entry.key) && is_constant(&entry.value)) =>
            {
                Some(Kind::Constant(Box::new(Constant::Map(std::mem::take(entries)))))
            }
            None => None,
        },
        Kind::Call(call) if call.function == "@in" => membership(call),
        // A literal pattern of `find` or `findAll` is compiled here, so that an error in the pattern is an error in the
        // expression.
        Kind::Call(Call { function, arguments, .. }) if matches!(function.as_str(), "find" | "findAll") => {
            if let Some(Node { kind: Kind::Literal(Literal::String(pattern)), .. }) = arguments.get(1) {
                super::functions::pattern_of(pattern).map_err(|error| error.to_string())?;
            }
            None
        }
        Kind::Call(call) if CONVERSIONS.contains(&call.function.as_str()) => conversion(call)?.map(Kind::Literal),
        _ => None,
    };
    if let Some(replacement) = replacement {
        node.kind = replacement;
    }
    Ok(())
}

fn is_constant(node: &Node) -> bool {
    matches!(node.kind, Kind::Literal(_) | Kind::Constant(_)) && !matches!(node.kind, Kind::Literal(Literal::Type(_)))
}

/// The literal, list or map as JSON, if JSON can represent it. Other constants are built at every evaluation.
fn json(node: &Node, read_as: &Type) -> Option<Json> {
    let Kind::Literal(literal) = &node.kind else { return None };
    let json = match literal {
        Literal::Null => Json::Null,
        Literal::Bool(value) => Json::Bool(*value),
        Literal::Int(value) => Json::from(*value),
        Literal::Uint(value) => Json::from(*value),
        Literal::Double(value) => Json::Number(serde_json::Number::from_f64(*value)?),
        Literal::String(text) => Json::from(text.as_str()),
        Literal::Json(json) => json.clone(),
        Literal::Bytes(_) | Literal::Duration(_) | Literal::Timestamp(_) | Literal::Type(_) => return None,
    };
    // The JSON must be read back as the value that was written. Null and numbers of dynamic type could be read
    // differently.
    let faithful = match read_as.plain() {
        Type::Dyn => !matches!(literal, Literal::Uint(_)),
        Type::Null => *literal == Literal::Null,
        ty => *ty == node.ty,
    };
    faithful.then_some(json)
}

fn list(items: &[Item], ty: &Type) -> Option<Literal> {
    let Type::List(item_type) = ty.plain() else { return None };
    let item = |item: &Item| if item.optional { None } else { json(&item.node, item_type) };
    Some(Literal::Json(Json::Array(items.iter().map(item).collect::<Option<_>>()?)))
}

fn map(entries: &[Entry], ty: &Type) -> Option<Literal> {
    let Type::Map(entry_type) = ty.plain() else { return None };
    let mut map = holdfast_value::Map::new();
    for entry in entries {
        let Kind::Literal(Literal::String(key)) = &entry.key.kind else { return None };
        // If several keys are equal, the last one counts. JSON cannot express that.
        if entry.optional || map.insert(key.clone(), json(&entry.value, &entry_type.1)?).is_some() {
            return None;
        }
    }
    Some(Literal::Json(Json::Object(map)))
}

fn membership(call: &mut Call) -> Option<Kind> {
    let [_, Node { kind: Kind::Literal(Literal::Json(Json::Array(items))), .. }] = call.arguments.as_slice() else {
        return None;
    };
    if items.is_empty() {
        return Some(Kind::Literal(Literal::Bool(false)));
    }
    let mut set = LiteralSet::default();
    for item in items {
        match item {
            Json::Null => set.null = true,
            Json::Bool(value) => {
                set.bools.insert(*value);
            }
            Json::Number(number) => set.number(match number.as_i64() {
                Some(whole) => Number::Whole(whole.into()),
                None => number.as_u64().map_or_else(
                    || number_of(number.as_f64().unwrap_or(f64::NAN)),
                    |whole| Number::Whole(whole.into()),
                ),
            }),
            Json::String(text) => {
                set.texts.insert(text.to_string());
            }
            Json::Array(_) | Json::Object(_) => return None,
        }
    }
    call.arguments.truncate(1);
    Some(Kind::Among { operand: Box::new(call.arguments.pop()?), set: Box::new(set) })
}

enum Number {
    Whole(i128),
    Fraction(u64),
}

fn number_of(double: f64) -> Number {
    // A double beyond this limit equals no 64-bit integer, so its bits identify it.
    if double.fract() == 0.0 && double.abs() < 1e30 {
        Number::Whole(double as i128)
    } else {
        Number::Fraction(double.to_bits())
    }
}

impl LiteralSet {
    fn number(&mut self, number: Number) {
        match number {
            Number::Whole(whole) => self.wholes.insert(whole),
            Number::Fraction(bits) => self.fractions.insert(bits),
        };
    }

    pub fn contains(&self, value: &Value<'_>) -> bool {
        match value {
            Value::Null => self.null,
            Value::Bool(value) => self.bools.contains(value),
            Value::Int(value) => self.wholes.contains(&i128::from(*value)),
            Value::Uint(value) => self.wholes.contains(&i128::from(*value)),
            Value::Double(value) => match number_of(*value) {
                Number::Whole(whole) => self.wholes.contains(&whole),
                Number::Fraction(bits) => !value.is_nan() && self.fractions.contains(&bits),
            },
            Value::String(text) => self.texts.contains(&**text),
            _ => false,
        }
    }
}

fn conversion(call: &Call) -> Result<Option<Literal>, String> {
    let [Node { kind: Kind::Literal(literal), .. }] = call.arguments.as_slice() else { return Ok(None) };
    let argument = match literal {
        Literal::Null => Value::Null,
        Literal::Bool(value) => Value::Bool(*value),
        Literal::Int(value) => Value::Int(*value),
        Literal::Uint(value) => Value::Uint(*value),
        Literal::Double(value) => Value::Double(*value),
        Literal::String(text) => Value::text(text.as_str()),
        Literal::Bytes(bytes) => Value::Bytes(bytes.clone()),
        Literal::Duration(duration) => Value::Duration(*duration),
        Literal::Timestamp(timestamp) => Value::Timestamp(*timestamp),
        Literal::Type(_) | Literal::Json(_) => return Ok(None),
    };
    let arguments = [argument];
    let Some(overload) = call.overloads.iter().find(|overload| overload.fits(&arguments)) else { return Ok(None) };
    let value = (overload.run)(&arguments).map_err(|error| error.to_string())?;
    Ok(match value {
        Value::Null => Some(Literal::Null),
        Value::Bool(value) => Some(Literal::Bool(value)),
        Value::Int(value) => Some(Literal::Int(value)),
        Value::Uint(value) => Some(Literal::Uint(value)),
        Value::Double(value) => Some(Literal::Double(value)),
        Value::String(text) => Some(Literal::String(text.to_string())),
        Value::Bytes(bytes) => Some(Literal::Bytes(bytes)),
        Value::Duration(duration) => Some(Literal::Duration(duration)),
        Value::Timestamp(timestamp) => Some(Literal::Timestamp(timestamp)),
        _ => None,
    })
}
