//! Sets the defaults of a custom resource's structural schema.

use super::Structural;
use crate::schema::defaults::{ADDED_BYTES_MAX, Room, Swollen};
use holdfast_value::Value;

impl Structural {
    /// Sets each absent field that has a default. A null that the schema does not allow counts as absent and is
    /// removed. The total size of the defaults is limited, because the client chooses how many times they are needed.
    pub fn apply_defaults(&self, object: &mut Value) -> Result<(), Swollen> {
        walk(self, object, true, &mut Room(ADDED_BYTES_MAX))
    }

    /// Like [`Self::apply_defaults`], for the result of server-side apply. A null in a field without a default stays,
    /// so that validation reports it.
    pub fn apply_defaults_beside_nulls(&self, object: &mut Value) -> Result<(), Swollen> {
        walk(self, object, false, &mut Room(ADDED_BYTES_MAX))
    }

    fn copy_default(&self, name: &str, room: &mut Room) -> Result<Option<Value>, Swollen> {
        let Some(default) = &self.default else { return Ok(None) };
        room.take(name.len() + self.default_bytes + ENTRY_BYTES)?;
        Ok(Some(default.clone()))
    }
}

/// The number of bytes that an entry takes in JSON in addition to its name and its value.
const ENTRY_BYTES: usize = 4;

fn walk(schema: &Structural, value: &mut Value, nulls_go: bool, room: &mut Room) -> Result<(), Swollen> {
    match value {
        Value::Object(fields) => {
            let mut outcome = Ok(());
            fields.retain(|name, value| {
                let Some(schema) = schema.field(name).filter(|schema| value.is_null() && !schema.nullable) else {
                    return true;
                };
                match schema.copy_default(name, room) {
                    Ok(Some(default)) => *value = default,
                    Ok(None) => return !nulls_go,
                    Err(swollen) => outcome = Err(swollen),
                }
                true
            });
            outcome?;
            for name in &schema.defaulted {
                if let Some(property) = schema.properties.get(name)
                    && !fields.contains_key(name)
                    && let Some(default) = property.copy_default(name, room)?
                {
                    fields.insert(name.clone(), default);
                }
            }
            for (name, value) in fields.iter_mut() {
                if let Some(schema) = schema.field(name) {
                    walk(schema, value, nulls_go, room)?;
                }
            }
        }
        Value::Array(items) => {
            let Some(schema) = schema.items.as_deref() else { return Ok(()) };
            for item in items {
                // A null item whose schema has no default stays, because without it the items after it would have other
                // indexes.
                if item.is_null()
                    && !schema.nullable
                    && let Some(default) = schema.copy_default("", room)?
                {
                    *item = default;
                }
                walk(schema, item, nulls_go, room)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Turns each float that is a whole number into an integer: `2.0` becomes `2`, as after a round trip through YAML.
pub fn whole_numbers(value: &mut Value) {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) if number.is_f64() => {
            let whole = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() <= EXACT_MAX);
            if let Some(whole) = whole {
                *value = (whole as i64).into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::Structural;
    use super::Swollen;
    use holdfast_value::{Value, json};

    #[test]
    fn what_apply_made_keeps_its_nulls() {
        let integer = |default: Option<i64>| match default {
            Some(default) => json!({"type": "integer", "default": default}),
            None => json!({"type": "integer"}),
        };
        let schema = json!({"type": "object", "properties": {"a": integer(None), "b": integer(Some(1)),
            "list": {"type": "array", "items": {"type": "object", "properties": {"a": integer(None)}}}}});
        let sent = json!({"a": null, "b": null, "list": [{"a": null}]});
        let schema = Structural::parse(&schema).expect("a good schema");
        let (mut posted, mut applied) = (sent.clone(), sent);
        assert_eq!(schema.apply_defaults(&mut posted), Ok(()));
        assert_eq!(schema.apply_defaults_beside_nulls(&mut applied), Ok(()));
        assert_eq!(posted, json!({"b": 1, "list": [{}]}));
        assert_eq!(applied, json!({"a": null, "b": 1, "list": [{"a": null}]}));
    }

    #[test]
    fn defaults() {
        let object = |fields: Value| json!({"type": "object", "properties": fields});
        let one = json!({"type": "integer", "default": 1});
        let cases = [
            (object(json!({"a": one})), json!({}), json!({"a": 1})),
            (object(json!({"a": one})), json!({"a": 2}), json!({"a": 2})),
            (object(json!({"a": one})), json!({"a": null}), json!({"a": 1})),
            (object(json!({"a": {"type": "number", "default": -0.0}})), json!({}), json!({"a": 0})),
            (object(json!({"a": {"type": "array", "default": [2.0, 2.5]}})), json!({}), json!({"a": [2, 2.5]})),
            (
                object(json!({"a": {"type": "integer", "default": 1, "nullable": true}})),
                json!({"a": null}),
                json!({"a": null}),
            ),
            (object(json!({"a": {"type": "integer"}})), json!({"a": null}), json!({})),
            (object(json!({"in": object(json!({"a": one}))})), json!({}), json!({})),
            (
                object(json!({"in": {"type": "object", "default": {}, "properties": {"a": one}}})),
                json!({}),
                json!({"in": {"a": 1}}),
            ),
            (
                object(json!({"list": {"type": "array", "items": object(json!({"a": one}))}})),
                json!({"list": [{}, {"a": 2}, null]}),
                json!({"list": [{"a": 1}, {"a": 2}, null]}),
            ),
            (
                object(json!({"map": {"type": "object", "additionalProperties": object(json!({"a": one}))}})),
                json!({"map": {"k": {}, "l": null}}),
                json!({"map": {"k": {"a": 1}}}),
            ),
        ];
        for (schema, mut value, expected) in cases {
            assert_eq!(Structural::parse(&schema).expect("a good schema").apply_defaults(&mut value), Ok(()));
            assert_eq!(value, expected, "{schema}");
        }
    }

    #[test]
    fn copies_do_not_multiply() {
        let schema = json!({"type": "object", "properties": {"list": {"type": "array", "items":
            {"type": "object", "properties": {"a": {"type": "string", "default": "x".repeat(1 << 20)}}}}}});
        let mut object = json!({"list": vec![json!({}); 1000]});
        assert_eq!(Structural::parse(&schema).expect("a good schema").apply_defaults(&mut object), Err(Swollen));
        assert!(object.to_string().len() < 10 << 20);
    }
}
