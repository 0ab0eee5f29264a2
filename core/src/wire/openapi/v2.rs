//! Version 2: one document of everything, as JSON and as Protobuf.
//!
//! kubectl before 1.27 validates with it and computes strategic merge patches from it.

use super::definitions::Definitions;
use super::operation::{Form, PathItem};
use super::v3::security_schemes;
use super::{ObjectWriter, OpenApi, gnostic, parameters, paths, proto, roots};
use bytes::Bytes;
use prost::Message;
use serde_json::{Map, Value, json};

impl OpenApi<'_> {
    /// Changes with the documents of version 2.
    pub fn v2_hash(&self) -> String {
        self.fingerprint(self.catalog.group_versions().flat_map(|gv| &gv.resources))
    }

    /// `/openapi/v2` as JSON.
    pub fn v2_json(&self) -> Bytes {
        let mut writer = ObjectWriter::new();
        if let Value::Object(head) = self.v2_head() {
            head.iter().for_each(|(name, value)| writer.member(name, value));
        }
        let items = self.v2_items();
        writer.object("paths", |writer| {
            items.iter().for_each(|item| writer.member(&item.path, &item.to_value(Form::V2)));
        });
        writer.object("definitions", |writer| {
            self.v2_definitions(&items, |name, definition| writer.member(name, definition));
        });
        Bytes::from(writer.finish())
    }

    /// `/openapi/v2` as [`super::V2_PROTOBUF`].
    pub fn v2_protobuf(&self) -> Bytes {
        let mut out = gnostic::document(&self.v2_head()).encode_to_vec();
        let items = self.v2_items();
        let mut paths = Vec::new();
        for item in &items {
            let value = gnostic::path_item(&item.to_value(Form::V2));
            let named = proto::NamedPathItem { name: item.path.clone(), value: Some(value) };
            prost::encoding::message::encode(proto::Paths::PATH, &named, &mut paths);
        }
        prost::encoding::bytes::encode(proto::Document::PATHS, &paths, &mut out);
        drop(paths);
        let mut definitions = Vec::new();
        self.v2_definitions(&items, |name, definition| {
            let named = proto::NamedSchema { name: name.to_owned(), value: Some(gnostic::schema(definition)) };
            prost::encoding::message::encode(proto::Definitions::NAMED, &named, &mut definitions);
        });
        prost::encoding::bytes::encode(proto::Document::DEFINITIONS, &definitions, &mut out);
        Bytes::from(out)
    }

    /// The document without paths and definitions.
    fn v2_head(&self) -> Value {
        let shared = parameters::all_shared();
        let shared = shared.iter().map(|p| (p.name.clone().into_owned(), p.definition(Form::V2)));
        json!({
            "swagger": "2.0",
            "info": {"title": "Kubernetes", "version": self.version},
            "parameters": shared.collect::<Map<_, _>>(),
            "security": [{"BearerToken": []}],
            "securityDefinitions": security_schemes(),
        })
    }

    fn v2_items(&self) -> Vec<PathItem> {
        let mut items = paths::of_group_list();
        items.extend(paths::of_version());
        for group in &self.catalog.groups {
            items.extend(paths::of_group(group));
            for gv in &group.versions {
                items.extend(paths::of_group_version(self.schema, self.catalog, gv));
            }
        }
        items.sort_by(|a, b| a.path.cmp(&b.path));
        items
    }

    fn v2_definitions(&self, items: &[PathItem], mut each: impl FnMut(&str, &Value)) {
        let roots = roots(items);
        let definitions = Definitions::new(Form::V2, self.schema, self.custom, self.catalog, &roots);
        for name in definitions.closure(roots) {
            each(&name, &definitions.definition(&name));
        }
    }
}

/// A whole document of version 2 as [`super::V2_PROTOBUF`].
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
