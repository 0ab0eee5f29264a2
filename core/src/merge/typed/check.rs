//! Whether an applied configuration fits the schema: apply must know every field it is to own.

use std::collections::BTreeSet;

use holdfast_value::Value;

use super::{Node, Typed, field_element, shown};
use crate::merge::strategic::go_value;
use crate::schema::structural::{self, Additional, Structural};
use crate::schema::{Field, Shape, Type};

/// Every fault, each with the path that it is about.
pub(crate) fn check(typed: Typed, config: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    typed.check(typed.root(), None, config, &mut String::new(), &mut faults);
    faults
}

impl<'s> Typed<'s> {
    /// `field` is the one that `value` stands in, if the schema knows it.
    fn check(
        self,
        node: Node<'s>,
        field: Option<&'s Field>,
        value: &Value,
        path: &mut String,
        faults: &mut Vec<String>,
    ) {
        if value.is_null() {
            return;
        }
        let fault = match (node, value) {
            (Node::Struct(_) | Node::Map(_) | Node::Object { .. }, Value::Object(map)) => {
                for (key, value) in map {
                    let length = path.len();
                    path.push_str(&shown(&field_element(key)));
                    let (inner, field) = match node {
                        Node::Struct(message) => (self.inside(node, key), message.field(key)),
                        Node::Object { .. } => (self.inside(node, key), None),
                        _ => (self.inside(node, key), field),
                    };
                    if matches!(inner, Node::Unknown) && !self.may_hold(node, key) {
                        faults.push(format!("{path}: field not declared in schema"));
                    } else {
                        self.check(inner, field, value, path, faults);
                    }
                    path.truncate(length);
                }
                None
            }
            (list, Value::Array(items)) if list.is_list() => {
                self.check_items(node, field, items, path, faults);
                None
            }
            (Node::Leaf, _) => field.and_then(|field| whole_fault(field, value)),
            (Node::Whole(schema), _) => custom_fault(schema, value),
            (Node::Unknown, _) => None,
            (list, _) if list.is_list() => Some(format!("expected list, got &{{{}}}", go_value(value))),
            _ => Some(format!("expected map, got &{{{}}}", go_value(value))),
        };
        faults.extend(fault.map(|fault| format!("{path}: {fault}")));
    }

    /// Whether the schema of a custom resource lets a key be there that it does not describe.
    fn may_hold(self, node: Node, key: &str) -> bool {
        let Node::Object { schema, .. } = node else { return false };
        let anything = matches!(schema.additional_properties, Some(Additional::Anything));
        let shapeless = schema.properties.is_empty() && schema.additional_properties.is_none();
        self.open || schema.preserve_unknown_fields || anything || shapeless || schema.field(key).is_some()
    }

    fn check_items(
        self,
        node: Node<'s>,
        field: Option<&'s Field>,
        items: &[Value],
        path: &mut String,
        faults: &mut Vec<String>,
    ) {
        let inner = self.element_node(node);
        let mut seen = BTreeSet::new();
        for (position, item) in items.iter().enumerate() {
            let element = match self.element(node, item) {
                Ok(element) => element,
                Err(fault) => {
                    faults.push(format!("{path}: element {position}: {fault}"));
                    continue;
                }
            };
            let key = shown(&element);
            if !seen.insert(element) {
                faults.push(format!("{path}: duplicate entries for key {key}"));
                continue;
            }
            let length = path.len();
            path.push_str(&key);
            match (node, field) {
                (Node::Set, Some(field)) => {
                    faults.extend(scalar_fault(field.ty, item).map(|fault| format!("{path}: {fault}")));
                }
                _ => self.check(inner, None, item, path, faults),
            }
            path.truncate(length);
        }
    }
}

/// A value of a custom resource that is owned as a whole still has a type.
fn custom_fault(schema: &Structural, value: &Value) -> Option<String> {
    let ty = match schema.ty {
        _ if schema.int_or_string => Type::IntOrString,
        Some(structural::Type::String) => Type::String,
        Some(structural::Type::Boolean) => Type::Bool,
        Some(structural::Type::Integer | structural::Type::Number) => Type::Double,
        Some(structural::Type::Array) => Type::StringList,
        Some(structural::Type::Object) if !value.is_object() => {
            return Some(format!("expected map, got &{{{}}}", go_value(value)));
        }
        Some(structural::Type::Object) | None => return None,
    };
    scalar_fault(ty, value)
}

/// What is owned as a whole still has an outer shape.
fn whole_fault(field: &Field, value: &Value) -> Option<String> {
    match (field.shape, value) {
        (Shape::List, Value::Array(_)) => None,
        (Shape::List, _) => Some(format!("expected list, got &{{{}}}", go_value(value))),
        (Shape::Map, Value::Object(_)) if field.atomic => None,
        (Shape::Map, _) if field.atomic => Some(format!("expected map, got &{{{}}}", go_value(value))),
        _ => scalar_fault(field.ty, value),
    }
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
