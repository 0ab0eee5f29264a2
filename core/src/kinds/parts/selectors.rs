//! The fields by which lists and watches select objects.

use crate::kinds::lookup::Near;
use crate::object::glance::Glance;
use holdfast_value::Value;

/// The fields for field selectors. Lists and watches select by these fields, and the state reads the values of the
/// fields from every stored object.
pub struct KindSelectors {
    /// Fields for field selectors, in addition to `metadata.name` and `metadata.namespace`.
    pub fields: Vec<Selectable>,
    /// Whether the error for an unknown selector field names the kind.
    pub names_itself: bool,
    /// The fields that selectors and claims need. When the log is loaded, only these fields are parsed.
    pub indexed: Glance,
}

impl Default for KindSelectors {
    fn default() -> KindSelectors {
        KindSelectors { fields: Vec::new(), names_itself: false, indexed: Glance::only_at(&["metadata.labels"]) }
    }
}

impl KindSelectors {
    /// The index of the field that has this name in requests of a group.
    pub fn position(&self, group: &str, name: &str) -> Option<usize> {
        self.fields.iter().position(|field| field.field == name && field.is_in(group))
    }

    /// Whether requests of a group can select by more than the metadata.
    pub fn exist_in(&self, group: &str) -> bool {
        self.fields.iter().any(|field| field.is_in(group))
    }

    /// The values of an object's selectable fields, in their order.
    pub fn values(&self, object: &Value) -> Box<[Box<str>]> {
        let mut near = Near::default();
        self.fields.iter().map(|field| field.read.near(object, &mut near).into()).collect()
    }
}

pub struct Selectable {
    /// The name of the field in selectors: `spec.nodeName`.
    pub field: String,
    /// The only group whose requests may use this name; `None` for all groups. Each group has its own names for the
    /// fields of Event.
    pub group: Option<String>,
    /// Reads the field's value in the hub version, as text. An unset field gives an empty text.
    pub read: Read,
}

impl Selectable {
    fn is_in(&self, group: &str) -> bool {
        self.group.as_ref().is_none_or(|only| only == group)
    }
}

pub enum Read {
    With(fn(&Value) -> String),
    /// A scalar at a path, and the value that an unset field has.
    At {
        path: Vec<String>,
        unset: &'static str,
    },
}
