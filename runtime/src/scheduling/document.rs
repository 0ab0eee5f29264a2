//! Reading objects without what no scheduler looks at: who wrote which field is often half of a pod.

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

pub fn read(json: &[u8]) -> Option<Value> {
    Fields::OfObject.deserialize(&mut serde_json::Deserializer::from_slice(json)).ok().map(Value::Object)
}

/// The fields of which part are read.
enum Fields {
    OfObject,
    OfMetadata,
}

impl<'de> DeserializeSeed<'de> for Fields {
    type Value = Map<String, Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Fields {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            let value = match (&self, name.as_str()) {
                (Fields::OfMetadata, "managedFields") => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                (Fields::OfObject, "metadata") => Value::Object(map.next_value_seed(Fields::OfMetadata)?),
                _ => map.next_value()?,
            };
            fields.insert(name, value);
        }
        Ok(fields)
    }
}

#[cfg(test)]
mod tests {
    use super::read;
    use serde_json::json;

    #[test]
    fn everything_is_read_but_who_wrote_it() {
        let spec = json!({"managedFields": [1], "metadata": {"managedFields": "kept"}});
        let whole =
            json!({"kind": "Pod", "metadata": {"name": "a", "managedFields": [{"manager": "kubectl"}]}, "spec": spec});
        let expected = json!({"kind": "Pod", "metadata": {"name": "a"}, "spec": spec});
        assert_eq!(read(whole.to_string().as_bytes()), Some(expected));
        assert_eq!(read(b"[]"), None);
        assert_eq!(read(b"{"), None);
    }
}
