//! What the documents of a version look like: a message of the schema table, or a custom resource's schema.

use super::structural::Structural;
use super::structural::default::whole_numbers;
use super::{MessageId, Schema, TypeError, check, check_change, schema};
use crate::refusal::Texts;
use holdfast_value::{Map, Value};
use std::sync::LazyLock;

#[derive(Clone, Copy)]
pub enum Layout<'s> {
    Table(&'s Schema, MessageId),
    Custom(Custom<'s>),
}

#[derive(Clone, Copy)]
pub struct Custom<'s> {
    pub schema: &'s Structural,
    /// Whether unknown fields are removed; false if the CustomResourceDefinition preserves them.
    pub prunes: bool,
}

/// The message that describes the metadata of every object.
pub fn object_meta() -> MessageId {
    static OBJECT_META: LazyLock<MessageId> = LazyLock::new(|| {
        schema().id("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").expect("every object has metadata")
    });
    *OBJECT_META
}

impl Layout<'static> {
    /// The layout of a message of the built-in API.
    pub fn of(message: MessageId) -> Self {
        Layout::Table(schema(), message)
    }
}

impl Layout<'_> {
    /// Checks the types that decoding depends on. Returns the paths of the unknown fields that it removed. For a custom
    /// object this covers only the metadata; the object's schema validates the rest later.
    pub fn check(self, document: &mut Value) -> Result<Texts, TypeError> {
        self.check_change(document, None)
    }

    /// Like [`Self::check`], for a document that was made by changing a checked document.
    pub fn check_change(self, document: &mut Value, checked: Option<&Value>) -> Result<Texts, TypeError> {
        match self {
            Layout::Table(schema, message) => check_change(schema, message, document, checked),
            Layout::Custom(custom) => custom.check(document),
        }
    }

    /// The message of a built-in kind; `None` for a custom kind. Some features exist for built-in kinds only.
    pub fn message(self) -> Option<MessageId> {
        match self {
            Layout::Table(_, message) => Some(message),
            Layout::Custom(_) => None,
        }
    }
}

impl Custom<'_> {
    fn check(self, document: &mut Value) -> Result<Texts, TypeError> {
        let mut unknown = Texts::default();
        if let Value::Object(fields) = document {
            match fields.get_mut("metadata") {
                Some(Value::Null) => _ = fields.remove("metadata"),
                Some(metadata @ Value::Object(_)) => {
                    let paths = check(schema(), object_meta(), metadata)?;
                    unknown = paths.map(|path| format!("metadata.{path}"));
                }
                Some(other) => {
                    let found = crate::object::meta::type_name(other);
                    let text = format!("json: cannot unmarshal {found} into Go value of type v1.ObjectMeta");
                    return Err(TypeError(text));
                }
                None => _ = fields.insert("metadata", Map::new().into()),
            }
            fields.values_mut().for_each(whole_numbers);
        }
        if self.prunes {
            unknown.append(self.schema.prune(document));
        }
        Ok(unknown)
    }

    /// Removes unknown fields, unless the CustomResourceDefinition preserves them.
    pub fn prune(self, document: &mut Value) {
        if self.prunes {
            self.schema.prune(document);
        }
    }
}
