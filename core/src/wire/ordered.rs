//! Writes documents that are made for one response and never stored, such as a Status or a review. Fields are in the
//! order in which Kubernetes' types declare them, because clients print such responses and users compare the output.

use super::protobuf;
use crate::object::encode::{self, encode, string};
use crate::object::meta::Document;
use crate::schema::{Field, MessageId, Shape, Type, schema};
use holdfast_value::Value;

/// Writes a document as JSON that ends with a newline. Fields that the schema does not declare are in canonical order.
pub fn ordered(document: &Document) -> Vec<u8> {
    let text = |field: &str| document.get(field).and_then(Value::as_str).unwrap_or_default();
    let Some(message) = protobuf::codec().find(text("apiVersion"), text("kind")) else {
        return encode::document(document);
    };
    let mut json = Vec::with_capacity(512);
    object(&mut json, message, document);
    json.push(b'\n');
    json
}

fn object(out: &mut Vec<u8>, message: MessageId, map: &Document) {
    let message = schema().message(message);
    let mut fields: Vec<_> = map.iter().map(|(name, value)| (name, value, message.field(name))).collect();
    fields.sort_by_key(|(name, _, field)| place(name, *field));
    each(out, (b'{', b'}'), fields, |out, (name, value, field)| {
        string(out, name);
        out.push(b':');
        match field {
            Some(field) => typed(out, field, value),
            None => _ = encode(out, value),
        }
    });
}

/// The key by which the fields are sorted. Fields are declared in the order of their Protobuf numbers. `kind` and
/// `apiVersion` have no number, because they are in the envelope in Protobuf; they come first.
fn place(name: &str, field: Option<&Field>) -> (u8, u32, u32) {
    match (field, name) {
        (Some(field), _) => (1, field.inline.first().copied().unwrap_or(field.number), field.number),
        (None, "kind") => (0, 0, 0),
        (None, "apiVersion") => (0, 1, 0),
        (None, _) => (2, 0, 0),
    }
}

fn typed(out: &mut Vec<u8>, field: &Field, value: &Value) {
    let Type::Message(message) = field.ty else {
        encode(out, value);
        return;
    };
    match (field.shape, value) {
        (Shape::Single, Value::Object(map)) => object(out, message, map),
        (Shape::List, Value::Array(items)) => each(out, (b'[', b']'), items, |out, item| match item {
            Value::Object(map) => object(out, message, map),
            other => _ = encode(out, other),
        }),
        _ => _ = encode(out, value),
    }
}

fn each<T>(
    out: &mut Vec<u8>,
    (open, close): (u8, u8),
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut Vec<u8>, T),
) {
    out.push(open);
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(out, item);
    }
    out.push(close);
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn fields_stand_as_their_types_declare_them() {
        for (document, expected) in [
            (
                json!({
                    "apiVersion": "v1", "code": 422, "kind": "Status", "message": "m", "metadata": {}, "reason": "Invalid",
                    "details": {
                        "causes": [{"field": "spec", "message": "w", "reason": "FieldValueInvalid"}],
                        "group": "g", "kind": "k", "name": "n", "retryAfterSeconds": 1,
                    },
                    "status": "Failure", "extra": {"b": 1, "a": 2},
                }),
                r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"m","reason":"Invalid","details":{"name":"n","group":"g","kind":"k","causes":[{"reason":"FieldValueInvalid","message":"w","field":"spec"}],"retryAfterSeconds":1},"code":422,"extra":{"a":2,"b":1}}"#,
            ),
            (
                json!({
                    "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {},
                    "metadata": {"creationTimestamp": null},
                    "status": {
                        "incomplete": false, "evaluationError": "e", "nonResourceRules": [],
                        "resourceRules": [{"apiGroups": [""], "resourceNames": ["a"], "resources": ["b"], "verbs": ["get"]}],
                    },
                }),
                r#"{"kind":"SelfSubjectRulesReview","apiVersion":"authorization.k8s.io/v1","metadata":{"creationTimestamp":null},"spec":{},"status":{"resourceRules":[{"verbs":["get"],"apiGroups":[""],"resources":["b"],"resourceNames":["a"]}],"nonResourceRules":[],"incomplete":false,"evaluationError":"e"}}"#,
            ),
            (
                json!({"apiVersion": "x.io/v1", "kind": "Status", "status": 1, "code": 2}),
                r#"{"kind":"Status","apiVersion":"x.io/v1","code":2,"status":1}"#,
            ),
        ] {
            let Value::Object(document) = document else { unreachable!("it is an object") };
            assert_eq!(String::from_utf8(ordered(&document)).unwrap().trim_end(), expected);
        }
    }
}
