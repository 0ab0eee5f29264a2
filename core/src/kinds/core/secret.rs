//! The kind Secret. The field `stringData` is merged into `data` and never stored.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use holdfast_value::{Map, Value};

/// Merges `stringData` into `data`. A plain string replaces the encoded value with the same key.
pub fn encode_strings(secret: &mut Value) {
    let Some(fields) = secret.as_object_mut() else { return };
    let Some(Value::Object(strings)) = fields.remove("stringData") else { return };
    if strings.is_empty() {
        return;
    }
    let data = fields.entry("data").or_insert(Value::Null);
    if !data.is_object() {
        *data = Map::new().into();
    }
    for (key, text) in strings {
        data[key] = STANDARD.encode(text.as_str().unwrap_or_default()).into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn plain_strings_become_data() {
        for (given, expected) in [
            (json!({ "stringData": { "a": "b" } }), json!({ "data": { "a": "Yg==" } })),
            (
                json!({ "data": { "a": "eA==", "c": "ZA==" }, "stringData": { "a": "b" } }),
                json!({ "data": { "a": "Yg==", "c": "ZA==" } }),
            ),
            (json!({ "data": null, "stringData": { "a": "" } }), json!({ "data": { "a": "" } })),
            (json!({ "stringData": {} }), json!({})),
            (json!({ "data": { "a": "Yg==" } }), json!({ "data": { "a": "Yg==" } })),
        ] {
            let mut secret = given.clone();
            encode_strings(&mut secret);
            assert_eq!(secret, expected, "{given}");
        }
    }
}
