//! Finds the lists, maps and structs of a document that are replaced as a whole by an apply.

use super::{Node, Typed, field_element, shown};
use holdfast_value::Value;

/// The paths of the atomic lists, maps and structs in a configuration.
pub(crate) fn atomic_parts(typed: Typed, configuration: &Value) -> Vec<String> {
    let mut found = Vec::new();
    typed.atomic_parts(typed.root(), configuration, &mut String::new(), &mut found);
    found
}

impl<'s> Typed<'s> {
    fn atomic_parts(self, node: Node<'s>, value: &Value, path: &mut String, found: &mut Vec<String>) {
        let length = path.len();
        match value {
            Value::Object(_) | Value::Array(_) if node.is_leaf() => found.push(path.clone()),
            Value::Object(fields) => {
                for (name, value) in fields {
                    path.push_str(&shown(&field_element(name)));
                    self.atomic_parts(self.inside(node, name), value, path, found);
                    path.truncate(length);
                }
            }
            Value::Array(items) => {
                let inner = self.element_node(node);
                for (at, item) in items.iter().enumerate() {
                    path.push_str(&format!("[{at}]"));
                    self.atomic_parts(inner, item, path, found);
                    path.truncate(length);
                }
            }
            _ => {}
        }
    }
}
