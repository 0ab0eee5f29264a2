//! Converts documents in the hub version to values.

use super::Fault;
use crate::kinds::Kind;
use crate::kinds::records::Record;
use crate::object::encode;
use crate::object::meta;
use crate::schema::schema;
use crate::wire::protobuf::codec;
use crate::wire::yaml::yaml;
use holdfast_value::Value;

/// The encodings in which API servers store objects, by `--storage-media-type`. Custom resources, their definitions and
/// APIServices are always stored as JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Media {
    Json,
    Yaml,
    #[default]
    Protobuf,
}

impl Media {
    pub const ALL: [(&'static str, Media); 3] = [
        ("application/json", Media::Json),
        ("application/yaml", Media::Yaml),
        ("application/vnd.kubernetes.protobuf", Media::Protobuf),
    ];

    pub fn named(name: &str) -> Option<Media> {
        Media::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, media)| media)
    }
}

/// The value of an object; `document` is in the kind's hub version. The object is written in the version in which
/// servers of the minor release `release` store it.
pub fn write(kind: &Kind, key: &str, document: Value, media: Media, release: u32) -> Result<Vec<u8>, Fault> {
    let mut document = document;
    let fields = meta::fields_mut(&mut document);
    let version = kind.stored_version(release);
    if kind.custom.is_none() {
        kind.from_hub(version, fields);
    }
    // Servers derive both fields from the key and the revision, so the fields are not stored.
    let metadata = meta::metadata_mut(fields);
    metadata.remove("resourceVersion");
    metadata.remove("selfLink");
    let media = if kind.storage.as_json { Media::Json } else { media };
    value(&document, &kind.versions[version].message, media).map_err(|problem| Fault::new(key.as_bytes(), &problem))
}

/// The value of a custom kind's object; `document` is in the version in which the object is stored.
pub(super) fn write_custom(mut document: Value) -> Vec<u8> {
    let fields = meta::fields_mut(&mut document);
    let metadata = meta::metadata_mut(fields);
    metadata.remove("resourceVersion");
    metadata.remove("selfLink");
    encode::document(fields)
}

/// The value of a record that servers store in addition to objects.
pub fn write_record(record: &Record, key: &str, document: &Value, media: Media) -> Result<Vec<u8>, Fault> {
    value(document, record.message, media).map_err(|problem| Fault::new(key.as_bytes(), &problem))
}

fn value(document: &Value, message: &str, media: Media) -> Result<Vec<u8>, String> {
    match media {
        Media::Json => Ok(encode::document(meta::fields(document))),
        Media::Yaml => Ok(yaml(document).into_bytes()),
        Media::Protobuf => {
            let message = schema().id(message).ok_or("its type has no Protobuf form")?;
            codec().encode_object(message, document).map_err(|error| error.to_string())
        }
    }
}
