//! The rules that judge a written object.

use super::Version;
use crate::authz::escalation::Authorize;
use crate::kinds::{GatedRule, Kind};
use crate::object::meta::{Document, metadata};
use crate::object::names::NameRule;
use crate::object::validate;
use crate::refusal::{Causes, Texts};
use holdfast_value::Value;

/// Warnings about an object that is written.
pub type Warnings = fn(&Kind, &Document, Option<&Document>) -> Texts;

/// The rules of one kind. The arguments are the new object and, on update, the old object.
pub type Validate = fn(&Value, Option<&Value>) -> Causes;

/// The rules for a kind's objects that are not in its schema. The stage `validate` reads them, except `authorize`,
/// which the stage `escalation` reads, and `warnings`, which are made for a valid object.
pub struct ObjectRules {
    /// The rule that the names of objects must satisfy.
    pub(in crate::kinds) name: NameRule,
    /// Whether a finalizer needs no domain. Otherwise a finalizer without a domain must be one of Kubernetes' own.
    pub(in crate::kinds) any_finalizers: bool,
    pub(in crate::kinds) metadata_on_update: MetadataOnUpdate,
    /// Rules beyond the schema. The arguments are the new object and, on update, the old object.
    pub(in crate::kinds) validate: Option<Validate>,
    /// Rules for a new object that depend on the labels of its namespace.
    pub in_namespace: Option<fn(&Value, &Value) -> Causes>,
    /// Rules that depend on feature gates.
    pub(in crate::kinds) gated: &'static [GatedRule],
    /// Checks permissions that a write needs beyond its verb on the object, in all write paths: `escalate`, `bind`,
    /// `approve`.
    pub authorize: Option<Authorize>,
    /// Warnings about a valid object on create or update.
    pub(in crate::kinds) warnings: Option<Warnings>,
}

impl Default for ObjectRules {
    fn default() -> ObjectRules {
        ObjectRules {
            name: NameRule::Subdomain,
            any_finalizers: false,
            metadata_on_update: MetadataOnUpdate::Change,
            validate: None,
            in_namespace: None,
            gated: &[],
            authorize: None,
            warnings: None,
        }
    }
}

/// The metadata rules that the kind's own validation repeats on update. A client whose object violates such a rule gets
/// the messages of both checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetadataOnUpdate {
    /// Kind validation repeats the metadata rules for updates.
    Change,
    /// Kind validation repeats the metadata rules for new objects.
    New,
    Nothing,
}

impl Kind {
    /// The faults in the metadata of an object; `old` is the object that it replaces.
    pub fn judge_metadata(&self, new: &Document, old: Option<&Document>) -> Causes {
        let new = metadata(new);
        let as_new = || {
            let mut causes = validate::metadata(new, self.rules.name, self.is_namespaced());
            if !self.rules.any_finalizers {
                causes.append(validate::standard_finalizers(new));
            }
            causes
        };
        let Some(old) = old else { return as_new() };
        let mut causes = validate::metadata_update(new, metadata(old));
        match self.rules.metadata_on_update {
            MetadataOnUpdate::Change => causes.append(causes.clone()),
            MetadataOnUpdate::New => causes.append(as_new()),
            MetadataOnUpdate::Nothing => {}
        }
        causes
    }

    /// The rules for objects that are written through a version.
    pub fn rules_in(&self, version: &Version) -> Option<Validate> {
        version.validate.or(self.rules.validate)
    }

    /// The warnings about a valid object; `old` is the object that it replaces.
    pub fn warnings_about(&self, new: &Document, old: Option<&Document>) -> Texts {
        self.rules.warnings.map(|warnings| warnings(self, new, old)).unwrap_or_default()
    }
}
