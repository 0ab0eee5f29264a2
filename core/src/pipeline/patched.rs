//! Prints a patched document as Go does: a struct in the order of its fields, and a subtree that the patch changed as a
//! map in key order.

use crate::kinds::structures::in_order;
use crate::schema::{Message, Schema, Shape, Type};
use holdfast_value::{Map, Value};

/// The JSON of the document. `patched` has the maps and lists through which the paths of the patch lead; the document's
/// root is always printed as a map.
pub(super) fn json(schema: &Schema, message: Option<&Message>, document: &Value, patched: &Value) -> String {
    let mut out = String::new();
    Writer { schema, out: &mut out }.value(document, message.map(Of::Message), Some(patched));
    out
}

/// What the schema says about a value.
#[derive(Clone, Copy)]
enum Of<'a> {
    Message(&'a Message),
    /// A list or map whose values are messages of this type.
    Items(&'a Message),
}

struct Writer<'a, 'b> {
    schema: &'a Schema,
    out: &'b mut String,
}

impl<'a> Writer<'a, '_> {
    fn value(&mut self, value: &Value, of: Option<Of<'a>>, patched: Option<&Value>) {
        match (value, of) {
            (Value::Object(fields), Some(Of::Message(message))) => self.fields(fields, message, patched),
            (Value::Object(entries), of) => {
                let of = if let Some(Of::Items(message)) = of { Some(Of::Message(message)) } else { None };
                self.sequence('{', '}', entries, |writer, (key, value)| {
                    writer.entry(key, value, of, touched(patched, key));
                });
            }
            (Value::Array(items), Some(Of::Items(message))) => {
                self.sequence('[', ']', items.iter().enumerate(), |writer, (index, item)| {
                    writer.value(item, Some(Of::Message(message)), touched(patched, &index.to_string()));
                });
            }
            (other, _) => self.out.push_str(&other.to_string()),
        }
    }

    fn fields(&mut self, fields: &Map, message: &'a Message, patched: Option<&Value>) {
        let mut fields: Vec<_> = fields.iter().collect();
        if !patched.is_some_and(Value::is_object) {
            let order = in_order(message);
            fields.sort_by_cached_key(|(name, _)| order.iter().position(|field| field.json == **name));
        }
        self.sequence('{', '}', fields, |writer, (name, value)| {
            let of = message.field(name).and_then(|field| match (field.ty, field.shape) {
                (Type::Message(id), Shape::Single) => Some(Of::Message(writer.schema.message(id))),
                (Type::Message(id), _) => Some(Of::Items(writer.schema.message(id))),
                _ => None,
            });
            writer.entry(name, value, of, touched(patched, name));
        });
    }

    fn entry(&mut self, name: &str, value: &Value, of: Option<Of<'a>>, patched: Option<&Value>) {
        self.out.push_str(&Value::from(name).to_string());
        self.out.push(':');
        self.value(value, of, patched);
    }

    fn sequence<T>(
        &mut self,
        open: char,
        close: char,
        items: impl IntoIterator<Item = T>,
        write: impl Fn(&mut Self, T),
    ) {
        self.out.push(open);
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                self.out.push(',');
            }
            write(self, item);
        }
        self.out.push(close);
    }
}

/// What the patch touches below the field `name`.
fn touched<'a>(patched: Option<&'a Value>, name: &str) -> Option<&'a Value> {
    patched.and_then(|patched| patched.get(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::schema;
    use holdfast_value::json;

    #[test]
    fn structs_are_ordered_but_where_a_patch_went() {
        let document = json!({"apiVersion": "v1", "bogus": 1, "kind": "Pod",
            "metadata": {"creationTimestamp": "t", "labels": {"b": "1", "a": "2"}, "name": "n", "uid": "u"},
            "spec": {"containers": [{"image": "i", "name": "c"}], "volumes": [{"hostPath": {"type": "", "path": "p"}, "name": "v"}]}});
        let message = schema().message(schema().id("io.k8s.api.core.v1.Pod").unwrap());
        let rest = r#""spec":{"volumes":[{"name":"v","hostPath":{"path":"p","type":""}}],"containers":[{"name":"c","image":"i"}]}}"#;
        let ordered = r#"{"apiVersion":"v1","bogus":1,"kind":"Pod","metadata":{"name":"n","uid":"u","creationTimestamp":"t","labels":{"a":"2","b":"1"}},"#;
        let found = json(schema(), Some(message), &document, &json!({"bogus": 1}));
        assert_eq!(found, format!("{ordered}{rest}"));
        let touched = r#"{"apiVersion":"v1","bogus":1,"kind":"Pod","metadata":{"creationTimestamp":"t","labels":{"a":"2","b":"1"},"name":"n","uid":"u"},"#;
        let found = json(schema(), Some(message), &document, &json!({"metadata": {"labels": {"a": "2"}}}));
        assert_eq!(found, format!("{touched}{rest}"));
    }
}
