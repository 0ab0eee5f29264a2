//! Checks the rules in a definition: their expressions must compile, must not cost too much, and may use `oldSelf` only
//! where an update has an old value.

use super::{Faults, Group, add};
use crate::object::at::At;
use crate::object::encode::as_go_writes;
use crate::refusal::{Cause, CauseReason};
use crate::schema::structural::rules::{CompiledRule, compile};
use crate::schema::structural::{Additional, Structural};
use holdfast_value::Value;

/// The maximum estimated cost of one expression.
const EXPRESSION_COST_MAX: u64 = 10_000_000;
/// The maximum estimated cost of all expressions in a version.
const TOTAL_COST_MAX: u64 = 100_000_000;
/// If all expressions together cost too much, this many of the most expensive ones are reported.
const MOST_EXPENSIVE: usize = 4;

/// Checks the rules of a schema and of the schemas below it. The rules of a schema are skipped if a keyword of the
/// schema, or of a schema below it, has a fault. If the schema of a version is unchanged, its expressions may cost too
/// much. In `faults.all`, the faults of keywords begin at the index `words`.
pub(super) fn rules(parsed: &Structural, schema: At, words: usize, is_unchanged: bool, faults: &mut Faults) {
    if !parsed.has_rules() {
        return;
    }
    let mut bad: Vec<String> = faults.all.iter().skip(words).map(|fault| fault.cause.field.clone()).collect();
    bad.sort_unstable();
    let mut walk = Walk { bad, is_unchanged, total: 0, expensive: Vec::new(), faults };
    walk.schema(parsed, schema, Context { count_max: Some(1), uncorrelated: None, is_resource: true });
    let Walk { total, expensive, .. } = walk;
    if total > TOTAL_COST_MAX {
        let detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        for (_, path) in expensive {
            add(faults, Group::Always, || Cause::forbidden(path, detail));
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        add(faults, Group::Always, || Cause::from(schema.forbidden(&too_expensive(what, total, TOTAL_COST_MAX))));
    }
}

struct Walk<'f> {
    /// The paths of all faults outside of rules, sorted.
    bad: Vec<String>,
    is_unchanged: bool,
    total: u64,
    /// The expressions with their costs, in descending order of cost.
    expensive: Vec<(u64, String)>,
    faults: &'f mut Faults,
}

#[derive(Clone, Copy)]
struct Context<'a> {
    /// The maximum number of values in one object that the schema describes; `None` if a list or map that contains them
    /// has no limit.
    count_max: Option<u64>,
    /// The path of the outermost enclosing list whose items have no keys, so that after an update no item can be
    /// assigned to an old item.
    uncorrelated: Option<&'a str>,
    is_resource: bool,
}

impl Walk<'_> {
    fn schema(&mut self, parsed: &Structural, schema: At, context: Context) {
        if !parsed.has_rules() {
            return;
        }
        let below = |each: &Structural| Context {
            count_max: context.count_max.and_then(|count| Some(count.saturating_mul(elements_max(parsed, schema)?))),
            is_resource: each.embedded_resource,
            ..context
        };
        if let Some(Additional::Like(each)) = &parsed.additional_properties {
            self.schema(each, schema.get("additionalProperties"), below(each));
        }
        let properties = schema.get("properties");
        for (name, each) in &parsed.properties {
            self.schema(each, properties.key(name), below(each));
        }
        if let Some(each) = parsed.items.as_deref() {
            let is_keyed = schema.get("x-kubernetes-list-type").text() == "map";
            let path = if is_keyed { String::new() } else { schema.path() };
            let uncorrelated = context.uncorrelated.or((!is_keyed).then_some(path.as_str()));
            self.schema(each, schema.get("items"), Context { uncorrelated, ..below(each) });
        }
        let path = schema.path();
        let next = self.bad.get(self.bad.partition_point(|bad| *bad < path));
        if parsed.rules.is_some() && !next.is_some_and(|bad| bad.starts_with(&path)) {
            self.rules(parsed, schema.get("x-kubernetes-validations"), context);
        }
    }

    fn rules(&mut self, parsed: &Structural, list: At, context: Context) {
        let Some(compiled) = compile(parsed, context.is_resource) else {
            let message = "Internal error: internal error: failed to construct type information for \
                           x-kubernetes-validations rules: unable to convert structural schema to CEL declarations";
            self.say(|| Cause::told(CauseReason::Internal, list.path(), message));
            return;
        };
        let count = context.count_max.unwrap_or(compiled.count_max);
        for (at, rule) in list.items().zip(&compiled.rules) {
            self.rule(at, rule, count, context.uncorrelated);
        }
    }

    fn rule(&mut self, at: At, compiled: &CompiledRule, count: u64, uncorrelated: Option<&str>) {
        let (rule, message) = (at.get("rule"), at.get("messageExpression"));
        let cost = match &compiled.program {
            Some(Ok(program)) => program.estimate().max.saturating_mul(count),
            _ => 0,
        };
        self.cost(rule, "estimated rule cost", cost);
        if let Some(Err(error)) = &compiled.program {
            self.say(|| invalid_rule(rule.path(), at, error));
        }
        match &compiled.message {
            Some(Ok(program)) => self.cost(message, "estimated messageExpression cost", program.estimate().max),
            Some(Err(error)) => self.say(|| invalid_rule(message.path(), at, error)),
            None => {}
        }
        let optional = at.get("optionalOldSelf");
        match uncorrelated {
            Some(path) if compiled.uses_old_self => {
                let detail =
                    format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {path}");
                self.say(|| rule.invalid(&detail));
            }
            _ if !compiled.uses_old_self && optional.is_set() => {
                self.say(|| optional.invalid("may not be set if oldSelf is not used in rule"));
            }
            _ => {}
        }
    }

    fn cost(&mut self, at: At, what: &str, cost: u64) {
        if cost > EXPRESSION_COST_MAX && !self.is_unchanged {
            self.say(|| Cause::from(at.forbidden(&too_expensive(what, cost, EXPRESSION_COST_MAX))));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= TOTAL_COST_MAX / 100 {
            let index = self.expensive.partition_point(|(other, _)| *other >= cost);
            self.expensive.insert(index, (cost, at.path()));
            self.expensive.truncate(MOST_EXPENSIVE);
        }
    }

    fn say<C: Into<Cause>>(&mut self, cause: impl FnOnce() -> C) {
        add(self.faults, Group::Always, cause);
    }
}

/// The maximum number of items or entries directly in a value of this schema; `None` if there is no maximum.
fn elements_max(parsed: &Structural, schema: At) -> Option<u64> {
    let limit = |word: &str| schema.get(word).number().map(|max| u64::try_from(max).unwrap_or(0));
    match schema.get("type").text() {
        "object" if parsed.additional_properties.is_some() => limit("maxProperties"),
        "array" => limit("maxItems"),
        _ => Some(1),
    }
}

fn too_expensive(what: &str, cost: u64, max: u64) -> String {
    let factor = cost as f64 / max as f64;
    let factor = match factor {
        _ if factor > 100.0 => "more than 100x".to_owned(),
        _ if factor < 1.5 => format!("{factor:.6}x"),
        _ => format!("{factor:.1}x"),
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

/// A cause about a rule. It shows the rule as Kubernetes does, with the names of the fields of the Go struct.
fn invalid_rule(path: String, rule: At, detail: &str) -> Cause {
    let shown: Vec<String> = [
        ("Rule", "rule", Value::from("")),
        ("Message", "message", Value::from("")),
        ("MessageExpression", "messageExpression", Value::from("")),
        ("Reason", "reason", Value::Null),
        ("FieldPath", "fieldPath", Value::from("")),
        ("OptionalOldSelf", "optionalOldSelf", Value::Null),
    ]
    .into_iter()
    .map(|(name, field, unset)| {
        let at = rule.get(field);
        format!("\"{name}\":{}", as_go_writes(&if at.is_set() { at.value } else { &unset }.to_string()))
    })
    .collect();
    let message = format!("Invalid value: {{{}}}: {detail}", shown.join(","));
    Cause::told(CauseReason::Invalid, path, message)
}

#[cfg(test)]
mod tests;
