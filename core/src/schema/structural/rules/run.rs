//! Evaluates the rules of a schema on an object.

use super::compile::{Compiled, CompiledRule, OLD_SELF};
use super::{Rule, Rules};
use crate::cel::{Budget, EvalError, Program, Value as Seen};
use crate::refusal::{Cause, CauseReason, Causes, Texts};
use crate::schema::structural::correlate::{OldItems, unchanged};
use crate::schema::structural::path::{Path, Step};
use crate::schema::structural::validate::NOWHERE;
use crate::schema::structural::{Additional, Judged, Structural};
use holdfast_value::Value;

/// The maximum cost of one evaluation of a rule.
const CALL_COST_MAX: u64 = 1_000_000;
/// The maximum cost of all evaluations of rules for one object.
pub(in super::super) const OBJECT_COST_MAX: u64 = 10_000_000;
const MESSAGE_BYTES_MAX: usize = 5 << 10;

impl Structural {
    /// The rules that the object violates. If an update leaves a value unchanged, a violation in it becomes a warning,
    /// unless the rule uses `oldSelf`.
    pub(in super::super) fn judge_by_rules(&self, object: &Value, old: Option<&Value>) -> Judged {
        let mut run = Run::new(Some(OBJECT_COST_MAX));
        run.object(self, object, old);
        let mut warnings: Texts = run.old_news.iter().map(Cause::to_string).collect();
        warnings.add_more(run.old_news.more());
        Judged { causes: run.causes, warnings }
    }
}

pub(in super::super) struct Run<'p> {
    pub causes: Causes,
    /// The violations that the object had before the update already.
    old_news: Causes,
    /// The path of the validated value, if the value is only a part of an object.
    prefix: Option<&'p str>,
    /// The cost that further evaluations may have; `None` after the budget was exceeded.
    pub left: Option<u64>,
    /// The value that was last compared with its old value, and whether it was unchanged. All items of a list share the
    /// comparison of the list.
    compared: Option<(*const Value, bool)>,
}

/// A value on which rules are evaluated.
#[derive(Clone, Copy)]
struct Place<'a, 'p> {
    value: &'a Value,
    /// The old value; `None` if there is none to which rules may refer.
    old: Option<&'a Value>,
    kept: Kept<'a>,
    path: &'p Path<'p>,
    is_resource: bool,
}

/// Helps to decide whether a violation existed before the update.
#[derive(Clone, Copy)]
struct Kept<'a> {
    /// The nearest value that has an old value: the validated value itself, or a value that contains it. The schema
    /// comes first, then the value and the old value.
    pair: Option<(&'a Structural, &'a Value, &'a Value)>,
    /// Whether `pair` has the validated value itself.
    is_own: bool,
}

impl<'a> Kept<'a> {
    const NOTHING: Kept<'static> = Kept { pair: None, is_own: false };

    fn below(self, schema: &'a Structural, value: &'a Value, old: Option<&'a Value>) -> Self {
        match old {
            Some(old) if self.is_own => Kept { pair: Some((schema, value, old)), is_own: true },
            _ => Kept { is_own: false, ..self },
        }
    }
}

impl<'p> Run<'p> {
    pub fn new(left: Option<u64>) -> Self {
        Run { causes: Causes::default(), old_news: Causes::default(), prefix: None, left, compared: None }
    }

    fn is_unchanged(&mut self, kept: Kept) -> bool {
        let Some((schema, value, old)) = kept.pair else { return false };
        match self.compared {
            Some((known, same)) if std::ptr::eq(known, value) => same,
            _ => {
                let same = unchanged(Some(schema), value, old);
                self.compared = Some((value, same));
                same
            }
        }
    }

    fn object<'a>(&mut self, schema: &'a Structural, object: &'a Value, old: Option<&'a Value>) {
        let pair = old.map(|old| (schema, object, old));
        let kept = Kept { pair, is_own: old.is_some() };
        self.walk(schema, Place { value: object, old, kept, path: &Path::ROOT, is_resource: true });
    }

    /// Evaluates the rules of a schema on its default. In the rules, `oldSelf` is the default itself, as in an update
    /// that leaves the value unchanged.
    pub fn default_value(&mut self, schema: &Structural, value: &Value, prefix: &'p str, is_resource: bool) {
        self.prefix = Some(prefix);
        self.walk(schema, Place { value, old: Some(value), kept: Kept::NOTHING, path: &Path::ROOT, is_resource });
    }

    fn walk<'a>(&mut self, schema: &'a Structural, place: Place<'a, '_>) {
        // Expressions cannot access values without a type, or anything in them, so no rules run on them.
        let is_seen = schema.ty.is_some() || schema.int_or_string;
        if !schema.has_rules || place.value.is_null() || !is_seen || self.left.is_none() {
            return;
        }
        if let Some(rules) = schema.rules.as_deref() {
            self.rules(schema, rules, place);
        }
        match place.value {
            Value::Array(items) => self.items(schema, items, place),
            Value::Object(fields) => {
                let old = |name: &str| place.old.and_then(|old| old.get(name));
                let kept = |name: &str| place.kept.pair.and_then(|(_, _, old)| old.get(name));
                for (name, value) in fields {
                    let (schema, step) = match (schema.properties.get(name.as_str()), &schema.additional_properties) {
                        (Some(property), _) => (property, Step::Field(name)),
                        (None, Some(Additional::Like(schema))) => (&**schema, Step::Key(name)),
                        _ => continue,
                    };
                    let is_hidden = matches!(place.path.step, Step::Root) && matches!(&**name, "apiVersion" | "kind");
                    let kept = if is_hidden { Kept::NOTHING } else { place.kept.below(schema, value, kept(name)) };
                    let (old, path) = (old(name), &place.path.then(step));
                    self.walk(schema, Place { value, old, kept, path, is_resource: schema.embedded_resource });
                }
            }
            _ => {}
        }
    }

    fn items<'a>(&mut self, schema: &'a Structural, items: &'a [Value], place: Place<'a, '_>) {
        let Some(each) = schema.items.as_deref().filter(|each| each.has_rules) else { return };
        let olds = OldItems::of(schema, place.old);
        let kept = OldItems::of(schema, place.kept.pair.filter(|_| place.kept.is_own).map(|(_, _, old)| old));
        for (index, value) in items.iter().enumerate() {
            let kept = place.kept.below(each, value, kept.same(value).filter(|old| !old.is_null()));
            let (old, path) = (olds.same(value), &place.path.then(Step::Index(index)));
            self.walk(each, Place { value, old, kept, path, is_resource: each.embedded_resource });
        }
    }

    fn rules<'a>(&mut self, schema: &'a Structural, rules: &'a Rules, place: Place<'a, '_>) {
        let Some(compiled) = rules.compiled(schema, place.is_resource) else { return };
        let ty = schema.ty.map_or("", |ty| ty.as_str());
        let mut node = Node { run: self, compiled, place, ty };
        for (rule, program) in rules.all.iter().zip(&compiled.rules) {
            if node.run.left.is_none() {
                return;
            }
            if node.run.left == Some(0) {
                return node.end(OUT_OF_BUDGET);
            }
            node.rule(rule, program);
        }
    }
}

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// Evaluates the rules of one schema on one value.
struct Node<'n, 'r, 'p, 'm> {
    run: &'m mut Run<'r>,
    compiled: &'n Compiled,
    place: Place<'n, 'p>,
    /// The type of the value, which Kubernetes shows in place of the value.
    ty: &'static str,
}

impl<'n> Node<'n, '_, '_, '_> {
    fn rule(&mut self, rule: &Rule, compiled: &'n CompiledRule) {
        let program = match &compiled.program {
            None => return,
            Some(Err(error)) => return self.fail(&format!("rule compile error: {error}")),
            Some(Ok(program)) => program,
        };
        let old = self.place.old.filter(|old| !old.is_null());
        if compiled.uses_old_self && old.is_none() && !rule.optional_old_self {
            return;
        }
        let name = rule.name();
        match self.eval(program, old, rule.optional_old_self) {
            Err(Stop::Budget) => self.end(OUT_OF_BUDGET),
            Err(Stop::Error(EvalError::Cost)) => self.end(&format!(
                "'{}': no further validation rules will be run due to call cost exceeds limit for rule: {name}",
                EvalError::Cost
            )),
            Err(Stop::Error(EvalError::Message(error))) if error.starts_with("no such overload") => {
                self.fail(&format!(
                    "'{error}': call arguments did not match a supported operator, function or macro signature for \
                     rule: {name}"
                ));
            }
            Err(Stop::Error(EvalError::Message(error))) => self.fail(&format!("{error} evaluating rule: {name}")),
            Ok(Seen::Bool(true)) => {}
            Ok(_) => self.broken(rule, compiled, old),
        }
    }

    fn broken(&mut self, rule: &Rule, compiled: &'n CompiledRule, old: Option<&'n Value>) {
        let message = match &compiled.message {
            Some(Ok(program)) if old.is_some() || rule.optional_old_self || !program.uses(OLD_SELF) => {
                match self.eval(program, old, rule.optional_old_self) {
                    Ok(Seen::String(text)) => as_message(&text),
                    Ok(_) | Err(Stop::Error(EvalError::Message(_))) => None,
                    Err(stop) => {
                        let detail = words(&stop, &rule.message_expression);
                        let ty = Value::from(self.ty);
                        self.tell(compiled, |field| Cause::invalid(field, &ty, &detail));
                        self.run.left = None;
                        return;
                    }
                }
            }
            _ => None,
        };
        let detail = message.unwrap_or_else(|| rule.default_message());
        // A cause about a list or an object does not repeat the value.
        let value = Some(self.place.value).filter(|value| !value.is_array() && !value.is_object());
        self.tell(compiled, |field| match (rule.reason, value) {
            (CauseReason::Forbidden, _) => Cause::forbidden(field, &detail),
            (CauseReason::Required, _) => Cause::required(field, &detail),
            (CauseReason::Duplicate, Some(value)) => Cause::duplicate(field, value),
            (CauseReason::Duplicate, None) => Cause::told(CauseReason::Duplicate, field, "Duplicate value"),
            (_, Some(value)) => Cause::invalid(field, value, &detail),
            (_, None) => Cause::told(CauseReason::Invalid, field, format!("Invalid value: {detail}")),
        });
    }

    fn eval(&mut self, program: &'n Program, old: Option<&'n Value>, is_optional: bool) -> Result<Seen<'n>, Stop> {
        let ty = &self.compiled.ty;
        let this = Seen::json(self.place.value, ty).map_err(Stop::Error)?;
        let old = old.map(|old| Seen::json(old, ty)).transpose().map_err(Stop::Error)?;
        let old = match old {
            Some(old) if is_optional => Seen::some(old),
            Some(old) => old,
            None if is_optional => Seen::Optional(None),
            None => Seen::Null,
        };
        let mut budget = Budget::new(CALL_COST_MAX);
        let result = program.eval(&[this, old], &mut budget);
        let left = self.run.left.unwrap_or(0).checked_sub(CALL_COST_MAX - budget.left);
        self.run.left = Some(left.ok_or(Stop::Budget)?);
        result.map_err(Stop::Error)
    }

    /// Records a violation. If the value is unchanged and the rule does not use `oldSelf`, the violation existed
    /// before.
    fn tell(&mut self, compiled: &CompiledRule, cause: impl FnOnce(String) -> Cause) {
        let is_old = !compiled.uses_old_self && self.run.is_unchanged(self.place.kept);
        self.add(&compiled.field, is_old, cause);
    }

    fn fail(&mut self, detail: &str) {
        let ty = Value::from(self.ty);
        self.add("", false, |field| Cause::invalid(field, &ty, detail));
    }

    /// Records a failure and stops the evaluation of all rules for the object.
    fn end(&mut self, detail: &str) {
        self.fail(detail);
        self.run.left = None;
    }

    fn add(&mut self, below: &str, is_old: bool, cause: impl FnOnce(String) -> Cause) {
        let (prefix, path) = (self.run.prefix, self.place.path);
        let complaints = if is_old { &mut self.run.old_news } else { &mut self.run.causes };
        complaints.push_with(|| {
            let mut field = prefix.unwrap_or_default().to_owned();
            for part in [path.text().as_str(), below] {
                let dot = if field.is_empty() || part.is_empty() || part.starts_with('[') { "" } else { "." };
                field.extend([dot, part]);
            }
            cause(if field.is_empty() { NOWHERE.to_owned() } else { field })
        });
    }
}

enum Stop {
    /// The evaluation would exceed the cost budget of the object.
    Budget,
    Error(EvalError),
}

fn words(stop: &Stop, source: &str) -> String {
    match stop {
        Stop::Budget => "messageExpression evaluation failed due to running out of cost budget, no further validation \
                         rules will be run"
            .into(),
        Stop::Error(_) => format!(
            "no further validation rules will be run due to call cost exceeds limit for messageExpression: {}",
            Value::from(source)
        ),
    }
}

/// The text that a message expression returned; `None` if the text cannot be a message.
fn as_message(text: &str) -> Option<String> {
    let text = text.trim();
    let fits = !text.is_empty() && text.len() <= MESSAGE_BYTES_MAX && !text.contains('\n');
    fits.then(|| text.to_owned())
}
