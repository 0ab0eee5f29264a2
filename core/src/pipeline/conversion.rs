//! Between the versions of a kind: built-in ones by function, custom ones by name alone or by webhook.
//!
//! A webhook is the shell's to call. What it made comes in as [`Conversions`]; what is missing goes out as a refusal
//! that names it, and the decision is made again.

use super::{Context, from_hub, to_hub};
use crate::kinds::custom::{Conversion, relabelled};
use crate::object::meta::{Document, metadata_mut};
use crate::refusal::Refusal;
use crate::schema::layout::Layout;
use crate::state::Entry;
use serde_json::Value;

/// What webhooks have made, for one decision.
#[derive(Debug, Clone, Default)]
pub struct Conversions(Vec<(Conversion, Document)>);

impl Conversions {
    pub fn add(&mut self, conversion: Conversion, converted: Document) {
        self.0.push((conversion, converted));
    }

    fn find(&self, conversion: &Conversion) -> Option<&Document> {
        self.0.iter().find(|(known, _)| known == conversion).map(|(_, converted)| converted)
    }
}

impl Context<'_> {
    /// A document of one version of the path's kind as another shows it.
    pub(super) fn converted(&self, document: Document, from: usize, to: usize) -> Result<Document, Refusal> {
        if from == to {
            return Ok(document);
        }
        let Some(custom) = &self.kind.custom else {
            let mut document = document;
            to_hub(self.kind, from, &mut document);
            from_hub(self.kind, to, &mut document);
            return Ok(document);
        };
        if custom.webhook.is_none() {
            return object(relabelled(self.kind, from, to, Value::Object(document)));
        }
        self.by_webhook(Conversion { to: self.kind.versions[to].api_version(), object: Value::Object(document) })
    }

    fn by_webhook(&self, conversion: Conversion) -> Result<Document, Refusal> {
        let found = self.conversions.find(&conversion).cloned();
        found.ok_or_else(|| Refusal::Unconverted(Box::new(conversion)))
    }

    /// A stored object as the path's version shows it.
    pub(super) fn shown(&self, entry: &Entry) -> Result<Value, Refusal> {
        self.in_version(entry, self.request.target.version)
    }

    /// The document that a write begins from: without its version.
    pub(super) fn old(&self, entry: &Entry) -> Result<Document, Refusal> {
        let mut document = match self.kind.custom {
            Some(_) => object(self.in_version(entry, self.working_version())?)?,
            None => object(entry.document())?,
        };
        metadata_mut(&mut document).remove("resourceVersion");
        Ok(document)
    }

    fn in_version(&self, entry: &Entry, version: usize) -> Result<Value, Refusal> {
        match entry.awaits(self.kind, version) {
            None => Ok(entry.document_in(self.kind, version)),
            Some(conversion) => {
                let converted = self.by_webhook(conversion)?;
                entry.keep(self.kind, version, &converted);
                Ok(Value::Object(converted))
            }
        }
    }

    /// How documents of the path's version look.
    pub(super) fn layout(&self) -> Result<Layout<'_>, Refusal> {
        super::document::layout(self.kind, self.request.target.version)
    }
}

pub(super) fn object(value: Value) -> Result<Document, Refusal> {
    match value {
        Value::Object(document) => Ok(document),
        _ => Err(Refusal::Internal("a stored object is no document".into())),
    }
}
