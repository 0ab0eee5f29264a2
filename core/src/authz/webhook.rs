//! Authorization webhooks: the questions to another server, and the interpretation of its answers.
//!
//! This module never waits. If a judgement needs an answer that is not there yet, it records the question in
//! [`Consulted`], and its result is discarded. The caller asks the webhook, adds the answer to the [`Opinions`], and
//! judges again.

use super::{Attributes, Selected, Target, User, Verdict};
use crate::cel::{Budget, Environment, Program, Type, Value as CelValue, compile};
use holdfast_value::{Map, Value, json};
use imbl::OrdMap;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::LazyLock;

/// The cost limit of one match condition.
const CONDITION_COST_MAX: u64 = 1_000_000;
/// The maximum number of bytes of a question whose answer is cached. The limit is needed because users choose the size
/// of their questions.
const KEPT_BYTES_MAX: usize = 10_000;

/// A webhook in the chain. The engine finds its connection by name.
#[derive(Debug)]
pub struct Webhook {
    pub name: String,
    /// The webhook is asked only if all of these conditions are true.
    pub conditions: Vec<Condition>,
    pub on_failure: OnFailure,
}

/// The decision if a webhook cannot be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    NoOpinion,
    Deny,
}

impl OnFailure {
    pub fn verdict(self) -> Verdict {
        match self {
            Self::NoOpinion => Verdict::NoOpinion { reason: String::new() },
            Self::Deny => Verdict::Deny { reason: String::new() },
        }
    }
}

/// Whether a webhook is asked about a request.
pub(super) enum Concern {
    Asked(Question),
    NotAsked,
    /// The match conditions failed, for this reason.
    Unknown(String),
}

/// A question to an authorization webhook about one request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Question {
    pub webhook: String,
    /// The user that the question is about.
    pub user: String,
    /// The `spec` of a SubjectAccessReview in version v1, as JSON.
    pub spec: String,
    /// Whether the answer may be cached for other requests with the same question.
    pub may_be_kept: bool,
}

/// The decision in a webhook's answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Opinion {
    pub allowed: bool,
    pub denied: bool,
    pub reason: String,
}

/// An opinion, or why there is none.
pub type Answer = Result<Opinion, String>;

/// The webhooks' answers to the questions of one request so far.
pub type Opinions = OrdMap<Question, Answer>;

/// The opinions that one judgement may read, and the questions that it leaves open. Clones share the open questions;
/// all of them belong to the same judgement.
#[derive(Debug, Clone, Default)]
pub struct Consulted(Rc<Consultation>);

#[derive(Debug, Default)]
struct Consultation {
    opinions: Opinions,
    open: RefCell<Vec<Question>>,
}

impl Consulted {
    pub fn of(opinions: &Opinions) -> Consulted {
        Consulted(Rc::new(Consultation { opinions: opinions.clone(), open: RefCell::default() }))
    }

    /// The answer to a question. A question without an answer is recorded as open.
    pub(super) fn answer(&self, question: Question) -> Option<Answer> {
        let answer = self.0.opinions.get(&question).cloned();
        let mut open = self.0.open.borrow_mut();
        if answer.is_none() && !open.contains(&question) {
            open.push(question);
        }
        answer
    }

    /// Removes and returns the open questions.
    pub fn take_open(&self) -> Vec<Question> {
        self.0.open.take()
    }

    /// Whether any question has no answer.
    pub fn is_open(&self) -> bool {
        !self.0.open.borrow().is_empty()
    }
}

impl Webhook {
    pub(super) fn concern(&self, user: &User, attributes: &Attributes<'_>) -> Concern {
        let spec = spec(user, attributes);
        if !self.conditions.is_empty() {
            match hold(&self.conditions, &spec) {
                Ok(true) => {}
                Ok(false) => return Concern::NotAsked,
                Err(why) => return Concern::Unknown(why),
            }
        }
        let may_be_kept = asked_bytes(attributes) < KEPT_BYTES_MAX;
        Concern::Asked(Question {
            webhook: self.name.clone(),
            user: user.name.clone(),
            spec: spec.to_string(),
            may_be_kept,
        })
    }

    pub(super) fn understand(&self, answer: &Answer) -> (Verdict, Option<String>) {
        let opinion = match answer {
            Ok(opinion) => opinion,
            Err(why) => return (self.on_failure.verdict(), Some(why.clone())),
        };
        let reason = opinion.reason.clone();
        match (opinion.allowed, opinion.denied) {
            (true, true) => {
                let why = "webhook subject access review returned both allow and deny response";
                (Verdict::Deny { reason }, Some(why.to_owned()))
            }
            (_, true) => (Verdict::Deny { reason }, None),
            (true, false) => (Verdict::Allow { reason }, None),
            (false, false) => (Verdict::NoOpinion { reason }, None),
        }
    }
}

fn asked_bytes(attributes: &Attributes<'_>) -> usize {
    attributes.verb.len()
        + match &attributes.target {
            Target::Path(path) => path.len(),
            Target::Resource(target) => {
                let texts = [target.group, target.version, target.resource, target.subresource];
                let selected = target.selected.map_or(0, |selected| {
                    let requirements = selected.fields.iter().chain(&selected.labels);
                    requirements.map(|one| one.key.len() + one.values.iter().map(String::len).sum::<usize>()).sum()
                });
                let texts = texts.into_iter().chain([target.namespace, target.name]);
                texts.map(str::len).sum::<usize>() + selected
            }
        }
}

/// The `spec` of a SubjectAccessReview for this request.
fn spec(user: &User, attributes: &Attributes<'_>) -> Value {
    let mut spec = Map::new();
    match &attributes.target {
        Target::Path(path) => {
            spec.insert("nonResourceAttributes", texts([("path", path), ("verb", attributes.verb)]));
        }
        Target::Resource(target) => {
            let mut asked = texts([
                ("namespace", target.namespace),
                ("verb", attributes.verb),
                ("group", target.group),
                ("version", target.version),
                ("resource", target.resource),
                ("subresource", target.subresource),
                ("name", target.name),
            ]);
            if let Some(Selected { fields, labels }) = target.selected {
                for (field, requirements) in [("fieldSelector", fields), ("labelSelector", labels)] {
                    if !requirements.is_empty() {
                        asked[field] =
                            json!({"requirements": requirements.iter().map(requirement).collect::<Vec<_>>()});
                    }
                }
            }
            spec.insert("resourceAttributes", asked);
        }
    }
    for (field, text) in [("user", &user.name), ("uid", &user.uid)] {
        if !text.is_empty() {
            spec.insert(field, text.as_str().into());
        }
    }
    if !user.groups.is_empty() {
        spec.insert("groups", user.groups.clone().into());
    }
    if !user.extra.is_empty() {
        spec.insert("extra", json!(user.extra));
    }
    Value::Object(spec)
}

fn texts<const N: usize>(fields: [(&str, &str); N]) -> Value {
    let present = fields.into_iter().filter(|(_, text)| !text.is_empty());
    Value::Object(present.map(|(field, text)| (field.to_owned(), text.into())).collect())
}

fn requirement(requirement: &super::Requirement) -> Value {
    let mut shown = json!({"key": requirement.key, "operator": requirement.operator});
    if !requirement.values.is_empty() {
        shown["values"] = requirement.values.clone().into();
    }
    shown
}

static REQUEST: LazyLock<Type> = LazyLock::new(|| {
    let texts = || Type::list(Type::String);
    let selector = |own: &str| {
        let requirement = Type::object(
            "kubernetes.SelectorRequirement",
            [("key", Type::String), ("operator", Type::String), ("values", texts())],
        );
        Type::object(
            &format!("kubernetes.{own}SelectorAttributes"),
            [("rawSelector", Type::String), ("requirements", Type::list(requirement))],
        )
    };
    let resource = Type::object(
        "kubernetes.ResourceAttributes",
        [
            ("namespace", Type::String),
            ("verb", Type::String),
            ("group", Type::String),
            ("version", Type::String),
            ("resource", Type::String),
            ("subresource", Type::String),
            ("name", Type::String),
            ("fieldSelector", selector("Field")),
            ("labelSelector", selector("Label")),
        ],
    );
    let path = Type::object("kubernetes.NonResourceAttributes", [("path", Type::String), ("verb", Type::String)]);
    Type::object(
        "kubernetes.SubjectAccessReviewSpec",
        [
            ("resourceAttributes", resource),
            ("nonResourceAttributes", path),
            ("user", Type::String),
            ("groups", texts()),
            ("extra", Type::map(Type::String, texts())),
            ("uid", Type::String),
        ],
    )
});

/// A match condition: an expression over `request`, the `spec` of a SubjectAccessReview.
#[derive(Debug)]
pub struct Condition {
    text: String,
    program: Program,
}

impl Condition {
    /// Compiles the condition, or returns the error.
    pub fn new(text: &str) -> Result<Condition, String> {
        let environment = Environment::kubernetes().variable("request", REQUEST.clone());
        let program = compile(text, &environment).map_err(|faults| {
            let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
            format!("compilation failed: {}", faults.join("\n"))
        })?;
        if *program.result() != Type::Bool {
            return Err("must evaluate to bool".into());
        }
        Ok(Condition { text: text.to_owned(), program })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    fn holds(&self, spec: &Value) -> Result<bool, String> {
        let text = &self.text;
        let value = CelValue::json(spec, &REQUEST);
        let result = value.and_then(|value| self.program.eval(&[value], &mut Budget::new(CONDITION_COST_MAX)));
        match result {
            Ok(CelValue::Bool(holds)) => Ok(holds),
            Ok(_) => Err(format!("cel evaluation error: expression '{text}' eval result type should be bool")),
            Err(why) => Err(format!("cel evaluation error: expression '{text}' resulted in error: {why}")),
        }
    }
}

/// Whether all conditions are true. A false condition outweighs conditions whose evaluation failed.
fn hold(conditions: &[Condition], spec: &Value) -> Result<bool, String> {
    let spec = filled(spec);
    let mut errors = Vec::new();
    for condition in conditions {
        match condition.holds(&spec) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(why) => errors.push(why),
        }
    }
    if errors.is_empty() { Ok(true) } else { Err(super::rbac::joined_errors(errors)) }
}

/// Adds the empty values that reviews omit, so that expressions find every field.
fn filled(spec: &Value) -> Value {
    let mut spec = spec.clone();
    let fill = |part: &mut Value, fields: &[&str]| {
        for field in fields {
            if part.is_object() && part[*field].is_null() {
                part[*field] = "".into();
            }
        }
    };
    fill(&mut spec, &["user", "uid"]);
    let parts = [
        ("resourceAttributes", &["namespace", "verb", "group", "version", "resource", "subresource", "name"][..]),
        ("nonResourceAttributes", &["path", "verb"]),
    ];
    for (part, fields) in parts {
        if let Some(part) = spec.get_mut(part) {
            fill(part, fields);
        }
    }
    for (field, empty) in [("groups", json!([])), ("extra", json!({}))] {
        if spec[field].is_null() {
            spec[field] = empty;
        }
    }
    spec
}

#[cfg(test)]
#[path = "webhook_tests.rs"]
mod tests;
