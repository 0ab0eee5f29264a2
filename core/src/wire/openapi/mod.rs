//! OpenAPI versions 2 and 3 of the served API, generated from the registry of kinds and the schema table.
//!
//! Start at [`OpenApi`]. A document is computed when it is requested. This module caches nothing: the caller caches
//! documents by the hashes that this module computes. A document is written piece by piece, so that only its bytes and
//! one definition or path are in memory at a time.

mod custom;
mod definitions;
pub(super) mod descriptions;
mod enums;
mod gnostic;
mod operation;
mod parameters;
mod paths;
mod proto;
pub mod v2;
mod v3;

pub use v2::v2_protobuf_of;

use crate::schema::Schema;
use crate::wire::discovery::{Catalog, GroupVersion, Served};
use holdfast_value::Value;
use operation::{Answer, PathItem};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

/// The media type of `/openapi/v2` in Protobuf, as responses write it.
pub const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// The media type of `/openapi/v2` in Protobuf, as clients write it in `Accept`. No response may use this spelling: `@`
/// is not allowed in a media type, and Go clients would refuse to parse it.
pub const V2_PROTOBUF_ASKED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// What the documents are made from.
#[derive(Clone, Copy)]
pub struct OpenApi<'a> {
    pub schema: &'a Schema,
    pub catalog: &'a Catalog<'a>,
    /// The Kubernetes version that the server implements: `v1.35.0`.
    pub version: &'a str,
}

/// The entity tag of a document, without quotes: a hash of its bytes.
pub fn etag(document: &[u8]) -> String {
    hex(&Sha256::digest(document)).to_uppercase()
}

impl OpenApi<'_> {
    /// A hash that changes whenever the description of these resources changes. It is computed from the inputs and not
    /// from the documents: the index needs the hash of each document, and should not make all documents for that.
    fn fingerprint<'g>(&self, resources: impl IntoIterator<Item = &'g Served<'g>>) -> String {
        let mut hash = Sha256::new();
        let mut add = |text: &str| {
            hash.update(text.len().to_le_bytes());
            hash.update(text);
        };
        add(env!("CARGO_PKG_VERSION"));
        add(self.version);
        for served in resources {
            let Served { kind, version } = served;
            for text in [&version.group, &version.version, &version.message, &kind.kind, &kind.resource] {
                add(text);
            }
            add(&format!("{:?}{:?}", kind.scope, kind.verbs));
            for sub in served.subresources() {
                add(&format!("{}{:?}{:?}", sub.name, sub.body, sub.verbs));
            }
            if let Some(custom) = &kind.custom {
                add(&format!("{} {}", custom.uid, custom.generation));
            }
        }
        hex(&hash.finalize()).to_uppercase()
    }

    fn group_version_at(&self, path: &str) -> Option<&GroupVersion<'_>> {
        let (group, version) = match path.split('/').collect::<Vec<_>>()[..] {
            ["api", version] => ("", version),
            ["apis", group, version] if !group.is_empty() => (group, version),
            _ => return None,
        };
        self.catalog.group_version(group, version)
    }
}

/// The names of the definitions to which `paths` refer directly.
fn roots(paths: &[PathItem]) -> BTreeSet<String> {
    let operations = paths.iter().flat_map(|item| &item.operations);
    operations
        .flat_map(|operation| {
            let body = operation.body.as_ref().map(|body| body.definition.clone());
            let answer = match &operation.answer {
                Answer::Definition(name) => Some(name.clone()),
                Answer::Text => None,
            };
            body.into_iter().chain(answer)
        })
        .collect()
}

/// Writes one JSON object, member by member.
struct ObjectWriter {
    out: Vec<u8>,
}

impl ObjectWriter {
    fn new() -> Self {
        Self { out: vec![b'{'] }
    }

    fn member(&mut self, name: &str, value: &Value) {
        self.name(name);
        self.out.extend_from_slice(value.to_string().as_bytes());
    }

    fn object(&mut self, name: &str, members: impl FnOnce(&mut Self)) {
        self.name(name);
        self.out.push(b'{');
        members(self);
        self.out.push(b'}');
    }

    fn name(&mut self, name: &str) {
        if self.out.last() != Some(&b'{') {
            self.out.push(b',');
        }
        self.out.extend_from_slice(Value::from(name).to_string().as_bytes());
        self.out.push(b':');
    }

    /// The text of the members, without the braces around them.
    fn members(mut self) -> Vec<u8> {
        self.out.remove(0);
        self.out
    }

    fn finish(mut self) -> Vec<u8> {
        self.out.push(b'}');
        self.out
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
