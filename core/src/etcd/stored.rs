//! Converts between the values of a store and the objects of events. An event contains its object as canonical JSON in
//! the kind's hub version.

use super::{Fault, Media, read, read::read_custom, write, write::write_custom};
use crate::event::Offset;
use crate::kinds::Kind;
use crate::object::{Draft, meta, stored};
use bytes::Bytes;
use holdfast_value::{Value, json};

/// The value for an event's object. `kind` is `None` for custom kinds.
pub fn write_event(kind: Option<&Kind>, key: &str, json: &[u8], media: Media, release: u32) -> Result<Vec<u8>, Fault> {
    let document = document(json).map_err(|problem| Fault::new(key.as_bytes(), &problem))?;
    match kind {
        Some(kind) => write(kind, key, document, media, release),
        None => Ok(write_custom(document)),
    }
}

/// The event's object for a value, with this version as its resourceVersion, and the object's last author.
pub fn read_event(kind: Option<&Kind>, key: &str, value: &[u8], version: Offset) -> Result<(Bytes, Author), Fault> {
    let document = match kind {
        Some(kind) => read(kind, key, value)?,
        None => read_custom(key, value)?,
    };
    let fields = meta::fields(&document);
    let author = Author::of(&document);
    let draft = match kind {
        Some(kind) => Draft::new(&kind.versions[0].api_version(), &kind.kind, fields),
        None => Draft::new(meta::text(fields, "apiVersion"), meta::text(fields, "kind"), fields),
    };
    Ok((draft.seal(version), author))
}

/// The JSON of an event's object with another resourceVersion.
pub fn renumbered(key: &str, json: &[u8], version: Offset) -> Result<Bytes, Fault> {
    let document = document(json).map_err(|problem| Fault::new(key.as_bytes(), &problem))?;
    let fields = meta::fields(&document);
    Ok(Draft::new(meta::text(fields, "apiVersion"), meta::text(fields, "kind"), fields).seal(version))
}

/// An object that has nothing but its names, taken from its key within the kind.
pub fn nothing_but(api_version: &str, kind: &str, key: &str, version: Offset) -> Bytes {
    let (namespace, name) = meta::split_key(key);
    let metadata = match namespace {
        Some(namespace) => json!({"name": name, "namespace": namespace}),
        None => json!({"name": name}),
    };
    let document = json!({"metadata": metadata});
    Draft::new(api_version, kind, meta::fields(&document)).seal(version)
}

/// The last author of an object and the time of the change, from its managed fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Author {
    pub manager: String,
    /// The time in Kubernetes' format; empty if unknown.
    pub time: String,
}

impl Author {
    fn of(document: &Value) -> Author {
        let metadata = &document["metadata"];
        let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        let entries = metadata["managedFields"].as_array().into_iter().flatten();
        // Times in one format sort like their texts.
        match entries.max_by_key(|entry| entry["time"].as_str().unwrap_or_default()) {
            Some(entry) => Author { manager: text(entry, "manager"), time: text(entry, "time") },
            None => Author { manager: String::new(), time: text(metadata, "creationTimestamp") },
        }
    }
}

fn document(json: &[u8]) -> Result<Value, String> {
    match stored::document(json) {
        Ok(document) => Ok(document),
        Err(_) => serde_json::from_slice(json).map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::offered::NEWEST;
    use crate::kinds::registry;

    #[test]
    fn what_an_event_holds_comes_back_under_another_version() {
        let (id, _) = registry().find("", "v1", "configmaps").expect("config maps");
        let kind = registry().get(id);
        let json = b"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"b\",\"namespace\":\"a\",\
            \"creationTimestamp\":\"2026-01-02T03:04:05Z\",\"resourceVersion\":\"7\"},\"data\":{\"x\":\"y\"}}\n";
        for media in [Media::Protobuf, Media::Json, Media::Yaml] {
            let value = write_event(Some(kind), "k", json, media, NEWEST).expect("a value");
            assert!(!String::from_utf8_lossy(&value).contains("resourceVersion"));
            let (found, author) = read_event(Some(kind), "k", &value, Offset(41)).expect("an object");
            let expected = String::from_utf8_lossy(json).replace("\"7\"", "\"41\"");
            let value: Value = serde_json::from_slice(&found).expect("JSON");
            assert_eq!(value, serde_json::from_str::<Value>(&expected).expect("JSON"));
            assert_eq!(author.time, "2026-01-02T03:04:05Z");
            assert_eq!(renumbered("k", &found, Offset(7)).map(|json| json.len() + 1), Ok(found.len()));
        }
    }

    #[test]
    fn custom_objects_are_read_without_their_definition() {
        let json = b"{\"apiVersion\":\"example.com/v1\",\"kind\":\"Gadget\",\"metadata\":{\"name\":\"g\",\
            \"managedFields\":[{\"manager\":\"a\",\"time\":\"2026-01-02T03:04:05Z\"},\
            {\"manager\":\"b\",\"time\":\"2026-01-03T03:04:05Z\"}]},\"spec\":{\"size\":3}}";
        let (found, author) = read_event(None, "k", json, Offset(9)).expect("an object");
        assert_eq!(author, Author { manager: "b".into(), time: "2026-01-03T03:04:05Z".into() });
        let value = write_event(None, "k", &found, Media::Protobuf, NEWEST).expect("a value");
        assert_eq!(
            serde_json::from_slice::<Value>(&value).expect("JSON"),
            serde_json::from_slice::<Value>(json).expect("JSON")
        );
        for wrong in [&b"{}"[..], b"[]", b"{\"apiVersion\":\"v1\"}", b""] {
            assert!(read_event(None, "k", wrong, Offset(9)).is_err());
        }
    }
}
