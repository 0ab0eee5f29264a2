//! Conversion between the versions of a kind. A built-in kind has conversion functions. A custom kind changes only
//! `apiVersion`, or has a conversion webhook.
//!
//! The core calls no webhook: if the answers lack the result of a conversion, judging stops with an [`Effect`].

use super::{Context, Effect, Stop, decode};
use crate::kinds::custom::{Conversion, relabelled};
use crate::object::meta::{self, Document};
use crate::refusal::Refusal;
use crate::request::Verb;
use crate::schema::layout::Layout;
use crate::state::Entry;
use holdfast_value::Value;

impl Context<'_> {
    /// Converts a document of the path's kind from one version to another.
    pub(super) fn converted(&self, document: Value, from: usize, to: usize) -> Result<Value, Stop> {
        if from == to {
            return Ok(document);
        }
        let Some(custom) = &self.kind.custom else {
            let mut document = document;
            let fields = meta::fields_mut(&mut document);
            self.kind.to_hub(from, fields);
            self.kind.from_hub(to, fields);
            return Ok(document);
        };
        if custom.webhook.is_none() {
            return Ok(relabelled(self.kind, from, to, document));
        }
        self.by_webhook(Conversion { to: self.kind.versions[to].api_version(), object: document }).map(Value::Object)
    }

    fn by_webhook(&self, conversion: Conversion) -> Result<Document, Stop> {
        match self.answers.conversion(&conversion) {
            Some(converted) => Ok(converted.map_err(Refusal::clone)?.clone()),
            None => Err(Stop::Needs(Effect::Convert(Box::new(conversion)))),
        }
    }

    /// A stored object, converted to a version of its kind. A delete calls the conversion webhook again, like a get.
    /// Other writes may use the result of an earlier call.
    pub(super) fn in_version(&self, entry: &Entry, version: usize) -> Result<Value, Stop> {
        let conversion = match self.request.verb {
            Verb::Delete => entry.conversion(self.kind, version),
            _ => entry.awaits(self.kind, version),
        };
        match conversion {
            None => Ok(entry.document_in(self.kind, version)),
            Some(conversion) => {
                let converted = self.by_webhook(conversion)?;
                entry.keep(self.kind, version, &converted);
                Ok(Value::Object(converted))
            }
        }
    }

    /// The schema of documents in the version that the path names.
    pub(super) fn layout(&self) -> Result<Layout<'_>, Refusal> {
        decode::layout(self.kind, self.request.target.version)
    }
}
