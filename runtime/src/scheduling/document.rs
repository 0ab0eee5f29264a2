//! Reading objects without what no scheduler looks at: who wrote which field is often half of a pod.

use holdfast_core::object::glance;
use serde_json::{Map, Value};

pub fn read(json: &[u8]) -> Option<Value> {
    let mut object: Map<String, Value>;
    match glance::apart(json) {
        Some((metadata, rest)) => {
            object = serde_json::from_slice(&rest).ok()?;
            object.insert("metadata".into(), serde_json::from_slice(&metadata).ok()?);
        }
        // What others write need not look like what is stored.
        None => {
            object = serde_json::from_slice(json).ok()?;
            object.get_mut("metadata").and_then(Value::as_object_mut).map(|metadata| metadata.remove("managedFields"));
        }
    }
    Some(Value::Object(object))
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
        assert_eq!(read(whole.to_string().as_bytes()), Some(expected.clone()));
        assert_eq!(read(format!("{whole:#}").as_bytes()), Some(expected));
        assert_eq!(read(b"[]"), None);
        assert_eq!(read(b"{"), None);
    }
}
