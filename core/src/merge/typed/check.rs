//! Checks an applied configuration against its schema. The schema must declare every field that the applier will own.

use std::collections::BTreeSet;

use holdfast_value::Value;

use super::{Node, Typed, field_element, of_structural, shown};
use crate::merge::strategic::go_value;
use crate::refusal::Texts;
use crate::schema::structural::{self, Additional, Structural};
use crate::schema::{Shape, Type};

/// All faults of a configuration. Each fault contains its path.
pub(crate) fn check(typed: Typed, config: &Value) -> Texts {
    let mut faults = Texts::default();
    typed.check(typed.root(), config, &mut String::new(), &mut faults);
    faults
}

impl<'s> Typed<'s> {
    fn check(self, node: Node<'s>, value: &Value, path: &mut String, faults: &mut Texts) {
        if value.is_null() {
            return;
        }
        // The parts of an atomic value have types, too, so they are checked.
        let node = self.entered(node);
        let fault = match (node, value) {
            (Node::Struct(_) | Node::Map(_) | Node::Object { .. }, Value::Object(map)) => {
                let keeps = matches!(node, Node::Object { schema, .. } if schema.preserve_unknown_fields);
                // Where unknown fields are preserved, they are preserved at every depth below.
                let within = Typed { open: self.open || keeps, ..self };
                for (key, value) in map {
                    let length = path.len();
                    path.push_str(&shown(&field_element(key)));
                    let inner = self.inside(node, key);
                    if matches!(inner, Node::Unknown) && !within.may_hold(node, key) {
                        faults.push_with(|| format!("{path}: field not declared in schema"));
                    } else {
                        within.check(inner, value, path, faults);
                    }
                    path.truncate(length);
                }
                None
            }
            (Node::Atomic(field), Value::Array(items)) => {
                self.check_positions(self.of_type(field.ty), items, path, faults);
                None
            }
            (Node::Whole(list), Value::Array(items)) if list.ty == Some(structural::Type::Array) => {
                self.check_positions(list.items.as_deref().map_or(Node::Unknown, of_structural), items, path, faults);
                None
            }
            (list, Value::Array(items)) if list.is_list() => {
                self.check_items(node, items, path, faults);
                None
            }
            (Node::Scalar(ty), _) => scalar_fault(ty, value),
            (Node::Whole(schema), _) => custom_fault(schema, value),
            (Node::Unknown, _) => None,
            (Node::Atomic(_), _) => Some(format!("expected list, got &{{{}}}", go_value(value))),
            (list, _) if list.is_list() => Some(format!("expected list, got &{{{}}}", go_value(value))),
            _ => Some(format!("expected map, got &{{{}}}", go_value(value))),
        };
        if let Some(fault) = fault {
            faults.push_with(|| format!("{path}: {fault}"));
        }
    }

    /// The node with which the parts of an atomic value are checked. An atomic list stays atomic, because its items
    /// have no keys.
    fn entered(self, node: Node<'s>) -> Node<'s> {
        match node {
            Node::AtomicStruct(message) => Node::Struct(message),
            Node::Atomic(field) => match (field.shape, field.ty) {
                (Shape::List, _) => node,
                (Shape::Map, _) => Node::Map(field),
                (Shape::Single, Type::Message(id)) => Node::Struct(self.schema.message(id)),
                (Shape::Single, scalar) => Node::Scalar(scalar),
            },
            Node::Whole(schema) if schema.ty == Some(structural::Type::Object) && !schema.int_or_string => {
                Node::Object { schema, resource: false }
            }
            node => node,
        }
    }

    /// Whether a custom resource's schema allows a key that it does not declare.
    fn may_hold(self, node: Node, key: &str) -> bool {
        let Node::Object { schema, .. } = node else { return false };
        let anything = matches!(schema.additional_properties, Some(Additional::Anything));
        let shapeless = schema.properties.is_empty() && schema.additional_properties.is_none();
        self.open || anything || shapeless || schema.field(key).is_some()
    }

    /// Checks each item of an atomic list. The path of an item contains its index.
    fn check_positions(self, item: Node<'s>, items: &[Value], path: &mut String, faults: &mut Texts) {
        for (position, value) in items.iter().enumerate() {
            let length = path.len();
            path.push_str(&format!("[{position}]"));
            self.check(item, value, path, faults);
            path.truncate(length);
        }
    }

    /// Checks the items of a keyed list or set.
    fn check_items(self, node: Node<'s>, items: &[Value], path: &mut String, faults: &mut Texts) {
        let inner = self.element_node(node);
        let mut seen = BTreeSet::new();
        for (position, item) in items.iter().enumerate() {
            let element = match self.element(node, item) {
                Ok(element) => element,
                Err(fault) => {
                    faults.push_with(|| format!("{path}: element {position}: {fault}"));
                    continue;
                }
            };
            let key = shown(&element);
            if !seen.insert(element) {
                faults.push_with(|| format!("{path}: duplicate entries for key {key}"));
                continue;
            }
            let length = path.len();
            path.push_str(&key);
            self.check(inner, item, path, faults);
            path.truncate(length);
        }
    }
}

/// The fault of a value in a custom resource if it should be a scalar or a list and is not; `None` if there is no
/// fault.
fn custom_fault(schema: &Structural, value: &Value) -> Option<String> {
    let ty = match schema.ty {
        // A value that is neither an integer nor a string is refused when the whole object is validated.
        _ if schema.int_or_string => return None,
        Some(structural::Type::String) => Type::String,
        Some(structural::Type::Boolean) => Type::Bool,
        Some(structural::Type::Integer | structural::Type::Number) => Type::Double,
        Some(structural::Type::Array) => Type::StringList,
        Some(structural::Type::Object) | None => return None,
    };
    scalar_fault(ty, value)
}

fn scalar_fault(ty: Type, value: &Value) -> Option<String> {
    let fits = match ty {
        Type::String | Type::Bytes | Type::Duration => value.is_string(),
        Type::Bool => value.is_boolean(),
        Type::Int32 | Type::Int64 | Type::Double => value.is_number(),
        Type::IntOrString | Type::Quantity | Type::Time | Type::MicroTime => !value.is_object() && !value.is_array(),
        Type::Message(_) => value.is_object(),
        Type::StringList => value.is_array(),
        _ => true,
    };
    if fits {
        return None;
    }
    Some(match ty {
        Type::Bool => format!("expected boolean, got &{{{}}}", go_value(value)),
        Type::Int32 | Type::Int64 | Type::Double => {
            format!("expected numeric (int or float), got {}", go_type(value))
        }
        Type::Message(_) => format!("expected map, got &{{{}}}", go_value(value)),
        Type::StringList => format!("expected list, got &{{{}}}", go_value(value)),
        Type::String | Type::Bytes | Type::Duration => {
            format!("expected string, got &value.valueUnstructured{{Value:{value}}}")
        }
        _ => format!("expected any scalar, got &value.valueUnstructured{{Value:{value}}}"),
    })
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
