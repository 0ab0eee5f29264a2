//! Quantities that two documents spell differently, such as `1Gi` and `1073741824`.
//!
//! Kubernetes compares quantities by amount when it checks whether a field has changed. This server compares documents
//! as written, so for such a check the new document first gets the old spelling of each equal amount.

use super::{Field, MessageId, Schema, Shape, Type, quantity, schema};
use holdfast_value::{Map, Value};
use std::cmp::Ordering;
use std::sync::LazyLock;

/// The document `new`, in which each amount that equals the old amount is written as in `old`; `None` if nothing
/// changes.
pub fn respelled(message: MessageId, new: &Value, old: &Value) -> Option<Value> {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => object(message, new, old).map(Value::Object),
        _ => None,
    }
}

/// Whether two documents are equal apart from the spelling of quantities.
pub fn is_same(message: MessageId, one: &Value, other: &Value) -> bool {
    one == other || respelled(message, one, other).is_some_and(|one| one == *other)
}

/// The message of pod templates.
pub fn pod_template() -> MessageId {
    static POD_TEMPLATE: LazyLock<MessageId> =
        LazyLock::new(|| schema().id("io.k8s.api.core.v1.PodTemplateSpec").expect("pods have templates"));
    *POD_TEMPLATE
}

fn object(message: MessageId, new: &Map, old: &Map) -> Option<Map> {
    if new.is_same(old) || !has_amounts(message) {
        return None;
    }
    let message = schema().message(message);
    each(new, old, |key, new, old| field(message.field(key)?, new, old))
}

fn field(field: &Field, new: &Value, old: &Value) -> Option<Value> {
    match (field.shape, new, old) {
        (Shape::Single, new, old) => value(field.ty, new, old),
        (Shape::Map, Value::Object(new), Value::Object(old)) => {
            each(new, old, |_, new, old| value(field.ty, new, old)).map(Value::Object)
        }
        (Shape::List, Value::Array(new), Value::Array(old)) => {
            let mut changed: Option<Vec<Value>> = None;
            for (index, (item, old)) in new.iter().zip(old).enumerate() {
                if let Some(item) = value(field.ty, item, old) {
                    changed.get_or_insert_with(|| new.clone())[index] = item;
                }
            }
            changed.map(Value::Array)
        }
        _ => None,
    }
}

fn value(ty: Type, new: &Value, old: &Value) -> Option<Value> {
    match ty {
        Type::Message(message) => respelled(message, new, old),
        Type::Quantity if new != old => {
            let is_same = quantity::compare(new.as_str()?, old.as_str()?) == Some(Ordering::Equal);
            is_same.then(|| old.clone())
        }
        _ => None,
    }
}

/// Calls `change` for each field that both objects have. Returns a copy of `new` with the values that `change` returned;
/// `None` if `change` returned no value.
fn each(new: &Map, old: &Map, change: impl Fn(&str, &Value, &Value) -> Option<Value>) -> Option<Map> {
    if new.is_same(old) {
        return None;
    }
    let mut changed: Option<Map> = None;
    for (key, value) in new {
        if let Some(value) = old.get(key).and_then(|old| change(key, value, old)) {
            changed.get_or_insert_with(|| new.clone()).insert(key.as_str(), value);
        }
    }
    changed
}

/// Whether the message contains quantities, directly or in inner messages.
fn has_amounts(message: MessageId) -> bool {
    static WITH_AMOUNTS: LazyLock<Vec<bool>> = LazyLock::new(|| with_amounts(schema()));
    WITH_AMOUNTS[message.0 as usize]
}

fn with_amounts(schema: &Schema) -> Vec<bool> {
    let mut found = vec![false; schema.messages.len()];
    // Messages may contain themselves, so the search repeats until it finds no more messages.
    loop {
        let mut grown = false;
        for (at, message) in schema.messages.iter().enumerate() {
            let holds = |field: &Field| match field.ty {
                Type::Quantity => true,
                Type::Message(inner) => found[inner.0 as usize],
                _ => false,
            };
            if !found[at] && message.fields.iter().any(holds) {
                found[at] = true;
                grown = true;
            }
        }
        if !grown {
            return found;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    /// A document of the message in which one quantity has the value `amount`: the first quantity that is found at any
    /// depth. `met` has the messages that were entered before, which are not entered again.
    fn with_amount(message: MessageId, field: &Field, amount: &str, met: &mut Vec<MessageId>) -> Option<Value> {
        let inner = match field.ty {
            Type::Quantity => Value::from(amount),
            Type::Message(inner) if has_amounts(inner) && inner != message && !met.contains(&inner) => {
                met.push(inner);
                let mut fields = schema().message(inner).fields.iter();
                let found =
                    fields.find_map(|field| Some((field.json.as_str(), with_amount(inner, field, amount, met)?)));
                met.pop();
                [found?].into_iter().collect()
            }
            _ => return None,
        };
        Some(match field.shape {
            Shape::Single => inner,
            Shape::List => json!([inner]),
            Shape::Map => json!({ "key": inner }),
        })
    }

    /// Tests every field of the table that is a quantity or contains one.
    #[test]
    fn every_amount_is_compared_by_what_it_comes_to() {
        let mut amounts = 0;
        for (at, message) in schema().messages.iter().enumerate() {
            let id = MessageId(at as u32);
            for field in message.fields.iter() {
                let of = |amount: &str| {
                    let value = with_amount(id, field, amount, &mut vec![id])?;
                    Some([(field.json.as_str(), value), ("other", 1.into())].into_iter().collect::<Value>())
                };
                let Some(old) = of("1Gi") else { continue };
                amounts += 1;
                for (text, expected) in [("1073741824", true), ("1024Mi", true), ("1Gi", true), ("2Gi", false)] {
                    let new = of(text).expect("as above");
                    assert_eq!(is_same(id, &new, &old), expected, "{}.{}: {text}", message.name, field.json);
                }
            }
        }
        assert!(amounts > 100, "only {amounts} fields with amounts");
    }

    #[test]
    fn only_amounts_are_respelled() {
        let pod = schema().id("io.k8s.api.core.v1.Pod").unwrap();
        let of = |image: &str, memory: &str, label: &str| {
            json!({"metadata": {"labels": {"limits": label}}, "spec": {"containers": [
                {"name": "a", "image": image, "resources": {"limits": {"memory": memory}}}]}})
        };
        let old = of("i", "1Gi", "1Gi");
        assert_eq!(respelled(pod, &of("j", "1073741824", "1024Mi"), &old), Some(of("j", "1Gi", "1024Mi")));
        assert_eq!(respelled(pod, &of("j", "2Gi", "1024Mi"), &old), None);
        assert_eq!(respelled(pod, &old, &old), None);
    }
}
