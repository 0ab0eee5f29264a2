//! Validates an object by its schema, with Kubernetes' messages.
//!
//! A first pass only counts failures. If there are any, a second pass makes the messages. In an update, the second pass
//! skips parts that the update leaves unchanged. If all alternatives of a junctor fail, the second pass reports the
//! alternative that matches best.

use super::correlate::{OldItems, unchanged};
use super::path::{Path, Step};
use super::{Bound, Checks, Structural, Type, ValueBounds};
use crate::refusal::{Cause, CauseReason, Causes, Texts};
use holdfast_value::{Number, Value};
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// The violations of an object, and warnings about violations that the old object had already and an update may keep.
#[derive(Debug, Default)]
pub struct Judged {
    pub causes: Causes,
    pub warnings: Texts,
}

impl From<Causes> for Judged {
    fn from(causes: Causes) -> Self {
        Judged { causes, warnings: Texts::default() }
    }
}

impl Structural {
    /// The violations of a custom object. Violations in parts that an update leaves unchanged are ignored.
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> Causes {
        self.judge(object, old, Causes::default()).causes
    }

    /// Like [`Self::validate`], with warnings about rules that `old` violates already. The causes in `beside` come
    /// before the causes of rules.
    pub fn judge(&self, object: &Value, old: Option<&Value>, beside: Causes) -> Judged {
        let mut causes = self.validate_value(object, old, None);
        causes.append(beside);
        causes.append(self.embedded_causes(object, ""));
        let duplicates = self.duplicates(object);
        if !duplicates.is_empty() && old.is_none_or(|old| self.duplicates(old).is_empty()) {
            causes.append(duplicates);
        }
        if self.has_rules {
            if causes.more() > 0 || causes.iter().any(hides_rules) {
                causes.push(Cause::invalid(NOWHERE, &Value::Null, RULES_UNCHECKED));
            } else {
                let of_rules = self.judge_by_rules(object, old);
                causes.append(of_rules.causes);
                return Judged { causes, warnings: of_rules.warnings };
            }
        }
        causes.into()
    }

    /// Like [`Self::validate`], for a value at the path `prefix`, without the rules that apply only to whole objects.
    pub(super) fn validate_value(&self, value: &Value, old: Option<&Value>, prefix: Option<&str>) -> Causes {
        let mut walk = Walk { causes: Causes::default(), prefix, loud: false };
        if walk.value(self, value, None, &Path::ROOT).failures == 0 {
            return Causes::default();
        }
        walk.loud = true;
        walk.value(self, value, old, &Path::ROOT);
        let mut told = BTreeSet::new();
        walk.causes.retain(|cause| told.insert((cause.field.clone(), cause.message.clone())));
        walk.causes
    }
}

/// Whether no rules run if there is this cause: rules may assume that a value has the form that its schema requires.
fn hides_rules(cause: &Cause) -> bool {
    use CauseReason::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
    matches!(cause.reason, NotSupported | Required | TooLong | TooMany | TypeInvalid)
}

const RULES_UNCHECKED: &str = "some validation rules were not checked because the object was invalid; correct the \
                               existing errors to complete validation";

struct Walk<'p> {
    causes: Causes,
    prefix: Option<&'p str>,
    /// Whether failures are recorded as causes, or only counted.
    loud: bool,
}

/// How well a value matches a schema: the number of failed and the number of successful checks. The alternatives of a
/// junctor are compared by these numbers.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    failures: usize,
    matches: usize,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.failures += other.failures;
        self.matches += other.matches;
    }
}

impl Walk<'_> {
    fn value(&mut self, schema: &Structural, value: &Value, old: Option<&Value>, path: &Path) -> Tally {
        let mut tally = Tally::default();
        if old.is_some_and(|old| unchanged(Some(schema), value, old)) {
            return tally;
        }
        self.ty(schema, value, path, &mut tally);
        if let Value::Number(number) = value
            && !has_room(schema, number.as_i64(), number.as_f64().unwrap_or_default())
        {
            self.fail_range("Checked", schema, path, &mut tally);
        }
        if let Some(checks) = schema.checks.as_deref() {
            if !value.is_null() {
                self.junctors(checks, value, path, &mut tally);
            }
            match value {
                Value::String(text) => self.text(checks, text, value, path, &mut tally),
                Value::Number(number) => self.number(schema, checks, number, path, &mut tally),
                _ => {}
            }
        }
        if let Value::Array(items) = value {
            self.items(schema, items, old, path, &mut tally);
        }
        if let Some(members) = schema.checks.as_ref().and_then(|checks| checks.members.as_ref())
            && !members.keys.contains(&enum_key(value))
        {
            let shown = || members.shown.iter().map(String::as_str).collect::<Vec<_>>();
            self.fail(path, &mut tally, |field, _| Cause::not_supported(field, &plain(value), &shown()));
        }
        if let Value::Object(_) = value {
            self.fields(schema, value, old, path, &mut tally);
        }
        tally
    }

    /// Counts a failure, and records it if this pass makes messages. `cause` gets the path of the field, and the path
    /// as texts show it.
    fn fail(&mut self, path: &Path, tally: &mut Tally, cause: impl FnOnce(String, &str) -> Cause) {
        tally.failures += 1;
        if !self.loud {
            return;
        }
        let prefix = self.prefix;
        self.causes.push_with(|| {
            let name = path.text();
            let field = match (prefix, name.trim_start_matches('.')) {
                (Some(prefix), "") => prefix.to_owned(),
                (Some(prefix), name) => format!("{prefix}.{name}"),
                (None, "") => NOWHERE.to_owned(),
                (None, name) => name.to_owned(),
            };
            cause(field, &name)
        });
    }

    /// Records a failure with the text `<path> in body <rest>`.
    fn fail_body(&mut self, path: &Path, tally: &mut Tally, value: &Value, rest: impl FnOnce() -> String) {
        self.fail(path, tally, |field, name| {
            Cause::invalid(field, &plain(value), &format!("{name} in body {}", rest()))
        });
    }

    /// Records a failure that Kubernetes reports without a field path.
    fn fail_nowhere(&mut self, path: &Path, tally: &mut Tally, rest: &str) {
        let field = self.prefix.unwrap_or(NOWHERE).to_owned();
        self.fail(path, tally, |_, name| Cause::invalid(field, &"".into(), &format!("{} {rest}", quoted(name))));
    }

    fn ty(&mut self, schema: &Structural, value: &Value, path: &Path, tally: &mut Tally) {
        let types: &[Type] = match (schema.int_or_string, &schema.ty) {
            (true, _) => &[Type::Integer, Type::String],
            (false, ty) => ty.as_slice(),
        };
        let format = schema.checks.as_ref().and_then(|checks| checks.format.as_ref());
        if types.is_empty() && format.is_none() {
            return;
        }
        tally.matches += 1;
        let expected = || types.iter().map(|ty| ty.as_str()).collect::<Vec<_>>().join(",");
        let (found, found_format) = match value {
            Value::Null if types.is_empty() || schema.nullable => {
                tally.matches += 1;
                return;
            }
            Value::Null => return self.fail_type(path, tally, &expected(), "null"),
            Value::Bool(_) => (Type::Boolean, ""),
            Value::Number(number) if number.is_i64() => (Type::Integer, "int64"),
            Value::Number(_) => (Type::Number, "float64"),
            Value::String(_) => (Type::String, ""),
            Value::Array(_) => (Type::Array, ""),
            Value::Object(_) => (Type::Object, ""),
        };
        let whole = value.as_f64().is_some_and(is_whole);
        let fits = types.contains(&found)
            || (found == Type::Number && whole && types.contains(&Type::Integer))
            || (found == Type::Integer && types.contains(&Type::Number));
        let numeric = types.contains(&Type::Number) || types.contains(&Type::Integer);
        let texts = matches!(found, Type::String | Type::Array);
        match format {
            Some(format) if !texts && !fits => return self.fail_type(path, tally, &format.name, found_format),
            // If the schema has a format and does not allow numbers, the type of a string or a list is not checked.
            Some(_) if texts && !numeric => {}
            _ if !fits => return self.fail_type(path, tally, &expected(), found.as_str()),
            _ => {}
        }
        tally.matches += 1;
    }

    /// Records that a value, or a limit such as `multipleOf`, is outside the range of the schema's type. `what` is the
    /// name of the value or limit in the message.
    fn fail_range(&mut self, what: &str, schema: &Structural, path: &Path, tally: &mut Tally) {
        let ty = schema.ty.map_or("", Type::as_str);
        let kind = format_of(schema).map_or("(default format)".to_owned(), |format| format!("with format {format}"));
        let field = self.prefix.unwrap_or(NOWHERE).to_owned();
        self.fail(path, tally, |_, name| {
            Cause::invalid(field, &"".into(), &format!("{what} value must be of type {ty} {kind} in {name}"))
        });
    }

    fn fail_type(&mut self, path: &Path, tally: &mut Tally, expected: &str, found: &str) {
        self.fail(path, tally, |field, name| {
            let detail = format!("{name} in body must be of type {expected}: {}", quoted(found));
            Cause::type_invalid(field, &found.into(), &detail)
        });
    }

    /// Checks the junctors. Unchanged parts are checked too: an alternative could match only because parts of it were
    /// skipped.
    fn junctors(&mut self, checks: &Checks, value: &Value, path: &Path, tally: &mut Tally) {
        self.alternatives(&checks.any_of, false, value, path, tally);
        self.alternatives(&checks.one_of, true, value, path, tally);
        let mut failing = 0;
        for schema in &checks.all_of {
            let found = self.value(schema, value, None, path);
            failing += usize::from(found.failures > 0);
            tally.add(found);
        }
        if failing > 0 {
            let none = if failing == checks.all_of.len() { ". None validated" } else { "" };
            self.fail_nowhere(path, tally, &format!("must validate all the schemas (allOf){none}"));
        }
        if let Some(schema) = checks.not.as_deref()
            && self.quietly(schema, value, path).failures == 0
        {
            self.fail_nowhere(path, tally, "must not validate the schema (not)");
        }
    }

    /// Checks that a value matches one of the schemas, or with `only_one` exactly one of them: `anyOf` and `oneOf`.
    fn alternatives(&mut self, schemas: &[Structural], only_one: bool, value: &Value, path: &Path, tally: &mut Tally) {
        if schemas.is_empty() {
            return;
        }
        let mut fitting = 0;
        let mut first = Tally::default();
        let mut best: Option<(&Structural, Tally)> = None;
        for schema in schemas {
            let found = self.quietly(schema, value, path);
            if found.failures == 0 {
                fitting += 1;
                if fitting == 1 {
                    first = found;
                }
                if !only_one {
                    break;
                }
            } else if best.is_none_or(|(_, best)| found.matches > best.matches) {
                best = Some((schema, found));
            }
        }
        match (fitting, only_one) {
            (1, _) => return tally.add(first),
            (0, false) => self.fail_nowhere(path, tally, "must validate at least one schema (anyOf)"),
            (0, true) => self.fail_nowhere(path, tally, &format!("{ONLY_ONE} Found none valid")),
            (many, _) => return self.fail_nowhere(path, tally, &format!("{ONLY_ONE} Found {many} valid alternatives")),
        }
        if let Some((schema, found)) = best {
            if self.loud {
                self.value(schema, value, None, path);
            }
            tally.add(found);
        }
    }

    fn quietly(&mut self, schema: &Structural, value: &Value, path: &Path) -> Tally {
        let loud = std::mem::replace(&mut self.loud, false);
        let found = self.value(schema, value, None, path);
        self.loud = loud;
        found
    }

    fn text(&mut self, checks: &Checks, text: &str, value: &Value, path: &Path, tally: &mut Tally) {
        let ValueBounds { min, max } = checks.length;
        let length = if min.or(max).is_some() { text.chars().count() as i64 } else { 0 };
        if let Some(max) = max.filter(|max| length > *max) {
            self.fail(path, tally, |field, _| Cause::too_long(field, max.max(0) as usize));
        } else if let Some(min) = min.filter(|min| length < *min) {
            self.fail_body(path, tally, value, || format!("should be at least {min} chars long"));
        } else if let Some(pattern) = &checks.pattern {
            match pattern.is_match(text) {
                Ok(true) => {}
                Ok(false) => self.fail_body(path, tally, value, || format!("should match '{}'", pattern.source)),
                Err(error) => self.fail_body(path, tally, value, || {
                    format!("should match '{}, but pattern is invalid: {error}'", pattern.source)
                }),
            }
        }
        if let Some(format) = &checks.format {
            tally.matches += 1;
            if !format.accepts(text) {
                self.fail_type(path, tally, &format.name, text);
            }
        }
    }

    fn number(&mut self, schema: &Structural, checks: &Checks, number: &Number, path: &Path, tally: &mut Tally) {
        let value = Value::Number(number.clone());
        let float = number.as_f64().unwrap_or_default();
        // As in Kubernetes, an integer is compared with the integral part of a limit if the limit fits the schema's
        // type.
        let whole = |limit: f64| number.as_i64().filter(|_| has_room(schema, None, limit));
        if let Some(factor) = checks.multiple_of {
            if !has_room(schema, None, factor) {
                self.fail_range("MultipleOf", schema, path, tally);
            }
            let whole = whole(factor);
            let factor = if whole.is_some() { factor.trunc() } else { factor };
            let fits = match whole {
                None => is_whole(if factor < 1.0 { 1.0 / factor * float } else { float / factor }),
                Some(number) => number.checked_rem(factor as i64).is_none_or(|rest| rest == 0),
            };
            if factor <= 0.0 {
                self.fail(path, tally, |field, name| {
                    let why =
                        format!("factor MultipleOf declared for {name} must be positive: {}", shown_limit(factor));
                    let factor = if is_whole(factor) { Value::from(factor as i64) } else { Value::from(factor) };
                    Cause::invalid(field, &factor, &why)
                });
            } else if !fits {
                self.fail_body(path, tally, &value, || format!("should be a multiple of {}", shown_limit(factor)));
            }
        }
        let limits = [(checks.minimum, "Minimum", "greater"), (checks.maximum, "Maximum", "less")];
        for (bound, what, word) in limits {
            let Some(Bound { limit, exclusive }) = bound else { continue };
            if !has_room(schema, None, limit) {
                self.fail_range(&format!("{what} boundary"), schema, path, tally);
            }
            let (order, limit) = match whole(limit) {
                Some(number) => (number.cmp(&(limit as i64)), limit.trunc()),
                None => (float.partial_cmp(&limit).unwrap_or(Ordering::Equal), limit),
            };
            let order = if word == "less" { order.reverse() } else { order };
            if order.is_lt() || (exclusive && order.is_eq()) {
                let or_equal = if exclusive { "" } else { " or equal to" };
                self.fail_body(path, tally, &value, || {
                    format!("should be {word} than{or_equal} {}", shown_limit(limit))
                });
            }
        }
    }

    fn items(&mut self, schema: &Structural, items: &[Value], old: Option<&Value>, path: &Path, tally: &mut Tally) {
        if let Some(each) = schema.items.as_deref() {
            let old = OldItems::of(schema, old);
            for (index, item) in items.iter().enumerate() {
                tally.add(self.value(each, item, old.same(item), &path.then(Step::Index(index))));
            }
        }
        tally.matches += 1;
        let Some(checks) = schema.checks.as_deref() else { return };
        let count = items.len() as i64;
        if let Some(min) = checks.items.min.filter(|min| count < *min) {
            self.fail_body(path, tally, &count.into(), || format!("should have at least {min} items"));
        }
        if let Some(max) = checks.items.max.filter(|max| count > *max) {
            self.fail(path, tally, |field, _| Cause::too_many(field, items.len(), max.max(0) as usize));
        }
        let mut seen = BTreeSet::new();
        if checks.unique_items && !items.iter().all(|item| seen.insert(item.to_string())) {
            self.fail_body(path, tally, &"".into(), || "shouldn't contain duplicates".into());
        }
    }

    fn fields(&mut self, schema: &Structural, value: &Value, old: Option<&Value>, path: &Path, tally: &mut Tally) {
        let Value::Object(fields) = value else { return };
        let checks = schema.checks.as_deref();
        if let Some(checks) = checks {
            let count = fields.len() as i64;
            if let Some(min) = checks.properties.min.filter(|min| count < *min) {
                let rest = || format!("should have at least {min} properties");
                return self.fail_body(path, tally, &count.into(), rest);
            }
            if let Some(max) = checks.properties.max.filter(|max| count > *max) {
                return self.fail(path, tally, |field, _| Cause::too_many(field, fields.len(), max.max(0) as usize));
            }
        }
        for (name, value) in fields {
            let old = old.and_then(|old| old.get(name));
            if let Some(property) = schema.properties.get(name.as_str()) {
                tally.add(self.value(property, value, old, &path.then(Step::Field(name))));
                continue;
            }
            match &schema.additional_properties {
                Some(super::Additional::Like(schema)) => {
                    tally.add(self.value(schema, value, old, &path.then(Step::Extra(name))));
                }
                Some(super::Additional::Nothing) => self.fail(path, tally, |field, place| {
                    let detail = format!("{place}.{name} in body is a forbidden property");
                    Cause::invalid(field, &name.as_str().into(), &detail)
                }),
                Some(super::Additional::Anything) | None => {}
            }
        }
        let required = checks.map_or(&[][..], |checks| &checks.required);
        // A small request may contain many empty items, each with hundreds of missing required fields. Once the list of
        // messages is full, missing fields are only counted, so that the work stays small.
        if let Some(missing) = required.len().checked_sub(fields.len()).filter(|missing| *missing > 0)
            && !(self.loud && self.causes.has_room())
        {
            tally.failures += missing;
            self.causes.add_more(if self.loud { missing } else { 0 });
            return;
        }
        for name in required {
            if !fields.contains_key(name) {
                self.fail(&path.then(Step::Field(name)), tally, |field, _| Cause::required(field, ""));
            }
        }
    }
}

/// The text that Kubernetes shows if a fault has no path.
pub(super) const NOWHERE: &str = "<nil>";
const ONLY_ONE: &str = "must validate one and only one schema (oneOf).";

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn format_of(schema: &Structural) -> Option<&str> {
    schema.checks.as_ref().and_then(|checks| checks.format.as_ref()).map(|format| &*format.name)
}

/// Whether a number fits the type and the format of a schema.
fn has_room(schema: &Structural, whole: Option<i64>, float: f64) -> bool {
    let format = format_of(schema);
    match (schema.ty, whole) {
        (Some(Type::Integer), Some(whole)) => format != Some("int32") || i32::try_from(whole).is_ok(),
        (Some(Type::Integer), None) => {
            let end = 2f64.powi(if format == Some("int32") { 31 } else { 63 });
            float.trunc() == float && (-end..end).contains(&float)
        }
        (Some(Type::Number), _) => format != Some("float") || (float as f32).is_finite(),
        _ => true,
    }
}

/// Whether Kubernetes treats a float as an integer: it is whole and not too large to be exact.
fn is_whole(number: f64) -> bool {
    const SAFE_MAX: f64 = 9_007_199_254_740_991.0;
    let whole = number.trunc();
    let difference = (number - whole).abs();
    number.abs() <= SAFE_MAX && (difference == 0.0 || difference / (number.abs() + whole.abs()) < 1e-9)
}

/// The value as Go prints it: a whole number has no decimal point.
fn plain(value: &Value) -> Value {
    match value.as_f64() {
        Some(float) if value.as_i64().is_none() && is_whole(float) => Value::from(float as i64),
        _ => value.clone(),
    }
}

/// The number in the form in which Go's `%v` prints it.
fn shown_limit(number: f64) -> String {
    let magnitude = number.abs();
    if magnitude != 0.0 && !(1e-4..1e21).contains(&magnitude) {
        let text = format!("{number:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    format!("{number}")
}

/// The key by which a value is looked up in an `enum`. Numbers of the same amount have the same key.
pub(super) fn enum_key(value: &Value) -> String {
    plain(value).to_string()
}

#[cfg(test)]
mod tests;
