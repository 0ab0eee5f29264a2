//! OpenAPI version 2: one document for the whole API, in JSON and Protobuf. It is composed of parts, which change at
//! different times.
//!
//! kubectl before 1.27 validates objects with this document and computes strategic merge patches from it.

use super::definitions::Definitions;
use super::operation::{Form, PathItem};
use super::v3::security_schemes;
use super::{ObjectWriter, OpenApi, gnostic, parameters, paths, proto, roots};
use bytes::Bytes;
use holdfast_value::{Map, Value, json};
use prost::Message;
use prost::encoding::WireType;

/// The encoding of an OpenAPI version 2 document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    Json,
    Protobuf,
}

/// The members of `paths` and `definitions` that describe the built-in or the custom part of the API, in one encoding.
#[derive(Debug, Clone, Default)]
pub struct Part {
    pub paths: Bytes,
    pub definitions: Bytes,
}

impl OpenApi<'_> {
    /// A hash that changes whenever the document of version 2 changes.
    pub fn v2_hash(&self) -> String {
        self.fingerprint(self.catalog.group_versions().flat_map(|gv| &gv.resources))
    }

    /// The members for the built-in or the custom part of the API. The built-in part has all definitions that it refers
    /// to. A custom part has only its own definitions, because the other definitions are in the built-in part.
    pub fn v2_part(&self, encoding: Encoding, is_built_in: bool) -> Part {
        let items = self.v2_items(is_built_in);
        let roots = roots(&items);
        let definitions = Definitions::new(Form::V2, self.schema, self.catalog, &roots);
        let names = match is_built_in {
            true => definitions.closure(roots),
            false => roots.into_iter().filter(|name| definitions.is_custom(name)).collect(),
        };
        let mut part = Part::default();
        match encoding {
            Encoding::Json => {
                let mut paths = ObjectWriter::new();
                items.iter().for_each(|item| paths.member(&item.path, &item.to_value(Form::V2)));
                let mut defined = ObjectWriter::new();
                names.iter().for_each(|name| defined.member(name, &definitions.definition(name)));
                part.paths = paths.members().into();
                part.definitions = defined.members().into();
            }
            Encoding::Protobuf => {
                let (mut paths, mut defined) = (Vec::new(), Vec::new());
                for item in &items {
                    let value = gnostic::path_item(&item.to_value(Form::V2));
                    let named = proto::NamedPathItem { name: item.path.clone(), value: Some(value) };
                    prost::encoding::message::encode(proto::Paths::PATH, &named, &mut paths);
                }
                for name in names {
                    let value = gnostic::schema(&definitions.definition(&name));
                    let named = proto::NamedSchema { name, value: Some(value) };
                    prost::encoding::message::encode(proto::Definitions::NAMED, &named, &mut defined);
                }
                part.paths = paths.into();
                part.definitions = defined.into();
            }
        }
        part
    }

    /// The document at `/openapi/v2`, composed of `parts`. The returned pieces, one after another, are the document.
    pub fn v2_document(&self, encoding: Encoding, parts: &[Part]) -> Vec<Bytes> {
        let paths = parts.iter().map(|part| &part.paths).filter(|bytes| !bytes.is_empty());
        let definitions = parts.iter().map(|part| &part.definitions).filter(|bytes| !bytes.is_empty());
        let mut pieces = Vec::new();
        match encoding {
            Encoding::Json => {
                let mut writer = ObjectWriter::new();
                if let Value::Object(head) = self.v2_head() {
                    head.iter().for_each(|(name, value)| writer.member(name, value));
                }
                pieces.push(writer.members().into());
                pieces.insert(0, Bytes::from_static(b"{"));
                let mut members = |name: &'static [u8], members: &mut dyn Iterator<Item = &Bytes>| {
                    pieces.push(Bytes::from_static(name));
                    for (index, bytes) in members.enumerate() {
                        if index > 0 {
                            pieces.push(Bytes::from_static(b","));
                        }
                        pieces.push(bytes.clone());
                    }
                    pieces.push(Bytes::from_static(b"}"));
                };
                members(b",\"paths\":{", &mut paths.into_iter());
                members(b",\"definitions\":{", &mut definitions.into_iter());
                pieces.push(Bytes::from_static(b"}"));
            }
            Encoding::Protobuf => {
                pieces.push(gnostic::document(&self.v2_head()).encode_to_vec().into());
                let mut message = |number: u32, bytes: Vec<Bytes>| {
                    let mut head = Vec::new();
                    let length: usize = bytes.iter().map(Bytes::len).sum();
                    prost::encoding::encode_key(number, WireType::LengthDelimited, &mut head);
                    prost::encoding::encode_varint(length as u64, &mut head);
                    pieces.push(head.into());
                    pieces.extend(bytes);
                };
                message(proto::Document::PATHS, paths.cloned().collect());
                message(proto::Document::DEFINITIONS, definitions.cloned().collect());
            }
        }
        pieces
    }

    /// The document without its paths and definitions.
    fn v2_head(&self) -> Value {
        let shared = parameters::all_shared();
        let shared = shared.iter().map(|p| (p.name.clone().into_owned(), p.definition(Form::V2)));
        json!({
            "swagger": "2.0",
            "info": {"title": "Kubernetes", "version": self.version},
            "parameters": shared.collect::<Map>(),
            "security": [{"BearerToken": []}],
            "securityDefinitions": security_schemes(),
        })
    }

    fn v2_items(&self, is_built_in: bool) -> Vec<PathItem> {
        let mut items = Vec::new();
        if is_built_in {
            items.extend(paths::of_group_list());
            items.extend(paths::of_version());
        }
        for group in &self.catalog.groups {
            items.extend(paths::of_group(group));
            for gv in &group.versions {
                items.extend(paths::of_group_version(self.schema, self.catalog, gv));
            }
        }
        items.sort_by(|a, b| a.path.cmp(&b.path));
        items
    }
}

/// Encodes a whole OpenAPI version 2 document in [`super::V2_PROTOBUF`].
pub fn v2_protobuf_of(document: &Value) -> Bytes {
    let mut out = gnostic::document(document).encode_to_vec();
    let mut members = |field: &str, number: u32, each: &mut dyn FnMut(&str, &Value, &mut Vec<u8>)| {
        let mut encoded = Vec::new();
        for (name, value) in document[field].as_object().into_iter().flatten() {
            each(name, value, &mut encoded);
        }
        prost::encoding::bytes::encode(number, &encoded, &mut out);
    };
    members("paths", proto::Document::PATHS, &mut |name, value, out| {
        let named = proto::NamedPathItem { name: name.to_owned(), value: Some(gnostic::path_item(value)) };
        prost::encoding::message::encode(proto::Paths::PATH, &named, out);
    });
    members("definitions", proto::Document::DEFINITIONS, &mut |name, value, out| {
        let named = proto::NamedSchema { name: name.to_owned(), value: Some(gnostic::schema(value)) };
        prost::encoding::message::encode(proto::Definitions::NAMED, &named, out);
    });
    Bytes::from(out)
}
