//! `x-kubernetes-validations`: validation rules in CEL.
//!
//! `declared` gives the CEL types of a schema, `compile` compiles its rules on first use, and `run` evaluates them on
//! an object. The rules of a new definition are validated in `well_formed`.

mod compile;
mod declared;
mod run;

use super::Structural;
use crate::object::at::At;
use crate::refusal::CauseReason;
pub(super) use compile::{Compiled, CompiledRule, compile};
pub(super) use run::{OBJECT_COST_MAX, Run};
use std::sync::{Arc, OnceLock};

impl Structural {
    /// The CEL type of an object that this schema describes as a whole; `None` if the schema has no properties.
    pub fn declared(&self) -> Option<crate::cel::Type> {
        declared::declared(self, true).filter(|_| !self.properties.is_empty()).map(|sized| sized.ty)
    }
}

/// The validation rules of one schema.
#[derive(Debug, Clone)]
pub struct Rules {
    all: Vec<Rule>,
    /// The compiled rules. They are compiled when an object is first validated, because there may be thousands of
    /// definitions and most have few objects. `None` if expressions cannot access the schema.
    compiled: OnceLock<Option<Arc<Compiled>>>,
}

#[derive(Debug, Clone)]
pub struct Rule {
    pub rule: String,
    message: String,
    pub message_expression: String,
    reason: CauseReason,
    pub field_path: String,
    /// Whether the rule also runs if there is no old value. It is the rule's field `optionalOldSelf`.
    optional_old_self: bool,
}

impl Rules {
    /// Reads the list of a schema's rules; `None` if the list is empty.
    pub(super) fn parse(list: At) -> Option<Box<Rules>> {
        let all: Vec<Rule> = list.items().map(Rule::parse).collect();
        (!all.is_empty()).then(|| Box::new(Rules { all, compiled: OnceLock::new() }))
    }

    pub(super) fn compiled(&self, schema: &Structural, is_resource: bool) -> Option<&Compiled> {
        self.compiled.get_or_init(|| compile(schema, is_resource).map(Arc::new)).as_deref()
    }
}

impl Rule {
    fn parse(at: At) -> Rule {
        let text = |field: &str| at.get(field).text().to_owned();
        Rule {
            rule: text("rule"),
            message: text("message").trim().to_owned(),
            message_expression: text("messageExpression"),
            reason: match at.get("reason").text() {
                "FieldValueDuplicate" => CauseReason::Duplicate,
                "FieldValueForbidden" => CauseReason::Forbidden,
                "FieldValueRequired" => CauseReason::Required,
                _ => CauseReason::Invalid,
            },
            field_path: text("fieldPath"),
            optional_old_self: at.get("optionalOldSelf").is_true(),
        }
    }

    /// The name of the rule in a cause: its message, or its expression if it has no message.
    fn name(&self) -> &str {
        if self.message.is_empty() { self.rule.trim() } else { &self.message }
    }

    fn default_message(&self) -> String {
        if self.message.is_empty() { format!("failed rule: {}", self.name()) } else { self.message.clone() }
    }
}

#[cfg(test)]
mod tests;
