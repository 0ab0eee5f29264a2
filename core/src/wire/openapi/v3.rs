//! OpenAPI version 3: an index, and one document for each group version.

use super::definitions::Definitions;
use super::operation::{Form, PathItem};
use super::{ObjectWriter, OpenApi, paths, roots};
use bytes::Bytes;
use holdfast_value::{Value, json};

impl OpenApi<'_> {
    /// The paths that the index at `/openapi/v3` lists, in order: group versions (`api/v1`, `apis/apps/v1`), and the
    /// discovery paths.
    pub fn v3_paths(&self) -> Vec<String> {
        let mut all: Vec<String> = vec!["apis".into(), "version".into()];
        for group in &self.catalog.groups {
            all.push(if group.name.is_empty() { "api".into() } else { format!("apis/{}", group.name) });
            all.extend(group.versions.iter().map(|gv| gv.path()));
        }
        all.sort();
        all
    }

    /// The index at `/openapi/v3`.
    pub fn v3_index(&self) -> Bytes {
        let mut writer = ObjectWriter::new();
        writer.object("paths", |writer| {
            for path in self.v3_paths() {
                let hash = self.v3_hash(&path).unwrap_or_default();
                let url = format!("/openapi/v3/{path}?hash={hash}");
                writer.member(&path, &json!({"serverRelativeURL": url}));
            }
        });
        Bytes::from(writer.finish())
    }

    /// The hash of a document, for the parameter `hash` in the index. It changes whenever the document changes.
    pub fn v3_hash(&self, path: &str) -> Option<String> {
        match self.group_version_at(path) {
            Some(gv) => Some(self.fingerprint(&gv.resources)),
            None => self.v3_discovery_items(path).map(|_| self.fingerprint([])),
        }
    }

    /// The document at `/openapi/v3/<path>`.
    pub fn v3_document(&self, path: &str) -> Option<Bytes> {
        let items = match self.group_version_at(path) {
            Some(gv) => paths::of_group_version(self.schema, self.catalog, gv),
            None => self.v3_discovery_items(path)?,
        };
        let roots = roots(&items);
        let definitions = Definitions::new(Form::V3, self.schema, self.catalog, &roots);
        let mut writer = ObjectWriter::new();
        writer.member("openapi", &json!("3.0.0"));
        writer.member("info", &json!({"title": "Kubernetes", "version": self.version}));
        writer.object("paths", |writer| write_paths(writer, &items));
        writer.object("components", |writer| {
            writer.object("schemas", |writer| {
                for name in definitions.closure(roots) {
                    writer.member(&name, &definitions.definition(&name));
                }
            });
            writer.member("securitySchemes", &security_schemes());
        });
        Some(Bytes::from(writer.finish()))
    }

    fn v3_discovery_items(&self, path: &str) -> Option<Vec<PathItem>> {
        Some(match path {
            "api" => paths::of_group(self.catalog.group("")?),
            "apis" => paths::of_group_list(),
            "version" => paths::of_version(),
            _ => paths::of_group(path.strip_prefix("apis/").and_then(|group| self.catalog.group(group))?),
        })
    }
}

fn write_paths(writer: &mut ObjectWriter, items: &[PathItem]) {
    for item in items {
        writer.member(&item.path, &item.to_value(Form::V3));
    }
}

/// The security scheme that the documents describe, which is the only one: a bearer token.
pub(super) fn security_schemes() -> Value {
    json!({
        "BearerToken": {
            "type": "apiKey",
            "name": "authorization",
            "in": "header",
            "description": "Bearer Token authentication",
        },
    })
}
