//! Conversion between the versions of a built-in kind. Each conversion goes through the hub version.

use super::{Kind, Version, default_change, show_zeros};
use crate::object::meta::{self, Document};
use crate::refusal::{BadRequest, Internal, Refusal};
use crate::schema::{MessageId, check, check_change, schema};
use holdfast_value::Value;

impl Kind {
    /// Converts a document to the hub version, in place.
    pub fn to_hub(&self, version: usize, document: &mut Document) {
        if let Some(convert) = self.versions[version].convert {
            (convert.to_hub)(document);
        }
        self.name_version(0, document);
    }

    /// Converts a hub document to the given version, in place; fields that the version lacks are removed.
    pub fn from_hub(&self, version: usize, document: &mut Document) {
        if version != 0 {
            if let Some(convert) = self.versions[version].convert {
                (convert.from_hub)(document);
            }
            if let Ok(message) = self.message(version) {
                let mut value = Value::Object(std::mem::take(document));
                // The document matches the hub's schema, so this only removes fields that the version lacks.
                let _ = check(schema(), message, &mut value);
                show_zeros(message, &mut value);
                if let Value::Object(pruned) = value {
                    *document = pruned;
                }
            }
        }
        self.name_version(version, document);
    }

    /// Sets the defaults of the version, converts to the hub version, and sets the defaults of the hub version.
    ///
    /// Parts shared with a stored hub document are skipped.
    pub fn default_to_hub(&self, version: usize, document: &mut Value, stored: Option<&Value>) -> Result<(), Refusal> {
        default_change(self.message(version)?, document, stored.filter(|_| version == 0))?;
        if version != 0 {
            self.convert_and_default(version, document, stored)?;
        }
        self.writes.agree(document);
        Ok(())
    }

    fn convert_and_default(&self, version: usize, document: &mut Value, stored: Option<&Value>) -> Result<(), Refusal> {
        self.to_hub(version, meta::fields_mut(document));
        let hub = self.message(0)?;
        if self.versions[version].convert.is_some() {
            // A conversion reads annotations, which are not validated, so its result may not fit the schema.
            check_change(schema(), hub, document, stored).map_err(|error| {
                Refusal::BadRequest(BadRequest::Unconvertible {
                    kind: self.kind.clone(),
                    from: self.versions[version].version.clone(),
                    to: self.versions[0].version.clone(),
                    fault: error.to_string(),
                })
            })?;
        }
        default_change(hub, document, stored)
    }

    /// The schema message of a version's documents.
    pub fn message(&self, version: usize) -> Result<MessageId, Refusal> {
        let Version { message, message_id, .. } = &self.versions[version];
        let id = message_id.get_or_init(|| schema().id(message));
        id.ok_or_else(|| Refusal::Internal(Internal::NoMessage { message: message.clone() }))
    }

    fn name_version(&self, version: usize, document: &mut Document) {
        document.insert("apiVersion", self.versions[version].api_version().into());
        document.insert("kind", self.kind.as_str().into());
    }
}
