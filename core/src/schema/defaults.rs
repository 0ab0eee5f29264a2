//! Fills what a document leaves unset.
//!
//! Rules belong to messages, so that a container is defaulted alike in a Pod and in a CronJob's template. A document
//! is walked along its schema, the outer message before its inner ones: a rule may create an object that then gets
//! its own defaults, never the other way round. Which messages lie on a way to some rule is computed once; all other
//! parts of a document are never looked at.

use super::{Field, MessageId, Schema, Shape, Type, Zero};
use serde_json::{Map, Value};

/// The defaults of one message, or of the same message in several versions.
pub struct Rule {
    /// Names below `io.k8s.`.
    messages: Vec<String>,
    fields: Vec<(&'static str, Value)>,
    run: Option<fn(&mut Map<String, Value>)>,
}

impl Rule {
    /// For one message, by its name below `io.k8s.`.
    pub fn of(message: &str) -> Self {
        Self { messages: vec![message.to_owned()], fields: Vec::new(), run: None }
    }

    /// For a message that means the same in several versions of a package.
    pub fn in_versions(package: &str, versions: &[&str], message: &str) -> Self {
        let messages = versions.iter().map(|version| format!("{package}.{version}.{message}")).collect();
        Self { messages, fields: Vec::new(), run: None }
    }

    /// Gives a field its value where it is unset. Empty values count as unset where Kubernetes cannot tell the two
    /// apart, which the schema knows.
    pub fn set(mut self, field: &'static str, value: impl Into<Value>) -> Self {
        self.fields.push((field, value.into()));
        self
    }

    /// As [`Self::set`], with an empty object.
    pub fn set_object(self, field: &'static str) -> Self {
        self.set(field, Map::new())
    }

    /// What depends on other fields. It runs when the constant fields are set and before inner messages are.
    pub fn run(mut self, run: fn(&mut Map<String, Value>)) -> Self {
        self.run = Some(run);
        self
    }
}

/// What to do for each message of a schema.
pub struct Defaults {
    /// Indexed by [`MessageId`].
    plans: Vec<Plan>,
}

#[derive(Default)]
struct Plan {
    fills: Vec<Fill>,
    runs: Vec<fn(&mut Map<String, Value>)>,
    /// Fields below which some plan has something to do.
    descend: Vec<(String, MessageId, Shape)>,
}

struct Fill {
    field: String,
    value: Value,
    /// Whether an empty value (zero, empty text, empty list) is as good as none.
    empty_is_unset: bool,
}

impl Defaults {
    pub fn new(schema: &Schema, rules: &[Rule]) -> Self {
        let mut plans: Vec<Plan> = schema.messages.iter().map(|_| Plan::default()).collect();
        for rule in rules {
            for id in rule.messages.iter().filter_map(|name| schema.id(&format!("io.k8s.{name}"))) {
                let plan = &mut plans[id.0 as usize];
                let message = schema.message(id);
                for (name, value) in &rule.fields {
                    plan.fills.extend(message.field(name).map(|field| Fill::new(field, value.clone())));
                }
                plan.runs.extend(rule.run);
            }
        }
        for (plan, message) in plans.iter_mut().zip(&schema.messages) {
            let is_status = message.name.ends_with("Status");
            for field in &message.fields {
                // A document's own metadata is the server's business; a template's is a field like any other.
                if message.typed && field.json == "metadata" {
                    continue;
                }
                plan.fills.extend(schema_default(field, is_status).map(|value| Fill::new(field, value)));
            }
        }
        Self::connect(schema, &mut plans);
        Self { plans }
    }

    /// Finds the ways from message to message that lead to something to do.
    fn connect(schema: &Schema, plans: &mut [Plan]) {
        let mut active: Vec<bool> = plans.iter().map(|plan| !plan.fills.is_empty() || !plan.runs.is_empty()).collect();
        let inner = |field: &Field| match field.ty {
            Type::Message(id) => Some(id),
            _ => None,
        };
        // Messages may contain themselves: repeat until nothing more is reached.
        loop {
            let mut grown = false;
            for (at, message) in schema.messages.iter().enumerate() {
                let reaches = |field: &Field| inner(field).is_some_and(|id| active[id.0 as usize]);
                if !active[at] && message.fields.iter().any(reaches) {
                    active[at] = true;
                    grown = true;
                }
            }
            if !grown {
                break;
            }
        }
        for (plan, message) in plans.iter_mut().zip(&schema.messages) {
            for field in &message.fields {
                if let Some(id) = inner(field).filter(|id| active[id.0 as usize]) {
                    plan.descend.push((field.json.clone(), id, field.shape));
                }
            }
        }
    }

    /// Sets everything that a document leaves unset. Applying it twice changes nothing more.
    pub fn apply(&self, message: MessageId, document: &mut Value) {
        let (Some(plan), Value::Object(map)) = (self.plans.get(message.0 as usize), document) else { return };
        for fill in &plan.fills {
            fill.apply(map);
        }
        for run in &plan.runs {
            run(map);
        }
        for (field, inner, shape) in &plan.descend {
            let Some(value) = map.get_mut(field) else { continue };
            match (shape, value) {
                (Shape::Single, value) => self.apply(*inner, value),
                (Shape::List, Value::Array(items)) => items.iter_mut().for_each(|item| self.apply(*inner, item)),
                (Shape::Map, Value::Object(items)) => items.values_mut().for_each(|item| self.apply(*inner, item)),
                _ => {}
            }
        }
    }
}

impl Fill {
    fn new(field: &Field, value: Value) -> Self {
        // Behind an IntOrString with a default is a pointer: its zero was meant.
        let pointer = field.zero == Zero::Kept || field.ty == Type::IntOrString;
        Self { field: field.json.clone(), value, empty_is_unset: !pointer }
    }

    fn apply(&self, map: &mut Map<String, Value>) {
        let unset = match map.get(&self.field) {
            None | Some(Value::Null) => true,
            Some(value) => self.empty_is_unset && is_empty(value),
        };
        if unset {
            map.insert(self.field.clone(), self.value.clone());
        }
    }
}

/// What the table itself says of an unset field.
fn schema_default(field: &Field, is_status: bool) -> Option<Value> {
    if let Some(text) = &field.default {
        let value: Value = serde_json::from_str(text).ok()?;
        // An empty value that does not show when it is set need not be set.
        return (!is_empty(&value) || field.zero == Zero::Kept).then_some(value);
    }
    if field.zero != Zero::Always || field.shape != Shape::Single {
        return None;
    }
    match field.ty {
        Type::Message(_) => Some(Value::Object(Map::new())),
        // Clients send specs, where a missing number may be a mistake to be told of; a status counts from zero.
        Type::Int32 | Type::Int64 if is_status => Some(Value::from(0)),
        Type::Bool if is_status => Some(Value::Bool(false)),
        _ => None,
    }
}

/// Whether Kubernetes, where the field is no pointer, takes the value for none.
pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        // An empty object is a value: `emptyDir: {}`.
        Value::Object(_) => false,
    }
}

/// Whether a field is absent or null.
pub(crate) fn is_absent(map: &Map<String, Value>, field: &str) -> bool {
    map.get(field).is_none_or(Value::is_null)
}

/// Sets a field that is absent or null.
pub(crate) fn set_absent(map: &mut Map<String, Value>, field: &str, value: impl Into<Value>) {
    if is_absent(map, field) {
        map.insert(field.to_owned(), value.into());
    }
}

/// Sets a field that is absent, null or empty.
pub(crate) fn set_empty(map: &mut Map<String, Value>, field: &str, value: impl Into<Value>) {
    if map.get(field).is_none_or(is_empty) {
        map.insert(field.to_owned(), value.into());
    }
}

/// The text of a field, empty when it has none.
pub(crate) fn text<'a>(map: &'a Map<String, Value>, field: &str) -> &'a str {
    map.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// The object in a field.
pub(crate) fn object<'a>(map: &'a mut Map<String, Value>, field: &str) -> Option<&'a mut Map<String, Value>> {
    map.get_mut(field).and_then(Value::as_object_mut)
}

/// The objects in a list.
pub(crate) fn objects<'a>(
    map: &'a mut Map<String, Value>,
    field: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    map.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// The object in a field, made when the field is absent or null; `None` when something else stands there.
pub(crate) fn object_or_new<'a>(map: &'a mut Map<String, Value>, field: &str) -> Option<&'a mut Map<String, Value>> {
    set_absent(map, field, Map::new());
    object(map, field)
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::kinds::apply_defaults as apply;
    use crate::schema::schema;
    use expect_test::Expect;

    /// Compares what defaulting adds to, changes in, and removes from a document: one line a place.
    pub(crate) fn check(message: &str, document: Value, expected: Expect) {
        let id = schema().id(&format!("io.k8s.{message}")).unwrap_or_else(|| panic!("no message {message}"));
        let mut filled = document.clone();
        apply(id, &mut filled);
        let mut again = filled.clone();
        apply(id, &mut again);
        assert_eq!(filled, again, "applied twice");
        let mut lines = Vec::new();
        compare("", Some(&document), Some(&filled), &mut lines);
        lines.sort();
        expected.assert_eq(&lines.join("\n"));
    }

    fn compare(path: &str, old: Option<&Value>, new: Option<&Value>, lines: &mut Vec<String>) {
        match (old, new) {
            (Some(Value::Object(old)), Some(Value::Object(new))) => {
                let added = new.keys().filter(|key| !old.contains_key(*key));
                for key in old.keys().chain(added) {
                    let inner = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    compare(&inner, old.get(key), new.get(key), lines);
                }
            }
            (Some(Value::Array(old)), Some(Value::Array(new))) => {
                for at in 0..old.len().max(new.len()) {
                    compare(&format!("{path}[{at}]"), old.get(at), new.get(at), lines);
                }
            }
            (old, Some(new)) if old == Some(new) => {}
            (Some(_), None) => lines.push(format!("{path} removed")),
            (_, Some(Value::Object(new))) if !new.is_empty() => {
                new.iter().for_each(|(key, value)| compare(&format!("{path}.{key}"), None, Some(value), lines));
            }
            (_, Some(new)) => lines.push(format!("{path} = {new}")),
            (None, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::{apply_defaults as apply, default_rules};
    use crate::schema::schema;
    use serde_json::json;

    #[test]
    fn every_rule_names_a_message_and_its_fields() {
        for rule in default_rules() {
            for name in &rule.messages {
                let id = schema().id(&format!("io.k8s.{name}"));
                let message = schema().message(id.unwrap_or_else(|| panic!("no message {name}")));
                for (field, _) in &rule.fields {
                    assert!(message.field(field).is_some(), "no field {name} {field}");
                }
            }
        }
    }

    #[test]
    fn every_default_of_the_schema_is_json() {
        for field in schema().messages.iter().flat_map(|message| &message.fields) {
            if let Some(text) = &field.default {
                assert!(serde_json::from_str::<Value>(text).is_ok(), "{} {text}", field.json);
            }
        }
    }

    /// The zero value of a scalar.
    fn zero(field: &Field) -> Option<Value> {
        match field.ty {
            _ if field.shape != Shape::Single => None,
            Type::Int32 | Type::Int64 | Type::IntOrString => Some(json!(0)),
            Type::Bool => Some(json!(false)),
            Type::String => Some(json!("")),
            _ => None,
        }
    }

    /// What defaulting makes of an explicit zero in each field of this kind, one line a field that it changes.
    fn changed(which: fn(&Field) -> bool) -> (usize, Vec<String>) {
        let (mut count, mut lines) = (0, Vec::new());
        for (at, message) in schema().messages.iter().enumerate() {
            for field in message.fields.iter().filter(|field| which(field)) {
                let Some(zero) = zero(field) else { continue };
                let mut document = json!({ &field.json: zero });
                apply(MessageId(at as u32), &mut document);
                count += 1;
                if document[&field.json] != zero {
                    lines.push(format!("{} {} = {}", message.name, field.json, document[&field.json]));
                }
            }
        }
        (count, lines)
    }

    #[test]
    fn an_explicit_zero_is_no_missing_value() {
        let (count, lines) = changed(|field| field.zero == Zero::Kept);
        assert!(count > 450, "{count}");
        expect_test::expect![[""]].assert_eq(&lines.join("\n"));
        let (_, lines) = changed(|field| field.ty == Type::IntOrString);
        expect_test::expect![[""]].assert_eq(&lines.join("\n"));
    }

    #[test]
    fn a_zero_that_says_nothing_gets_the_default() {
        let (count, lines) = changed(|field| field.zero == Zero::Dropped && field.ty != Type::IntOrString);
        assert!(count > 200, "{count}");
        expect_test::expect![[r#"
            io.k8s.api.core.v1.Probe failureThreshold = 3
            io.k8s.api.core.v1.Probe periodSeconds = 10
            io.k8s.api.core.v1.Probe successThreshold = 1
            io.k8s.api.core.v1.Probe timeoutSeconds = 1
            io.k8s.api.resource.v1.DeviceSubRequest count = 1
            io.k8s.api.resource.v1.ExactDeviceRequest count = 1
            io.k8s.api.resource.v1beta1.DeviceSubRequest count = 1
            io.k8s.api.resource.v1beta2.DeviceSubRequest count = 1
            io.k8s.api.resource.v1beta2.ExactDeviceRequest count = 1"#]]
        .assert_eq(&lines.join("\n"));
    }

    #[test]
    fn a_config_map_is_never_looked_into() {
        let defaults = Defaults::new(schema(), &default_rules());
        let id = schema().id("io.k8s.api.core.v1.ConfigMap").unwrap();
        let plan = &defaults.plans[id.0 as usize];
        assert!(plan.fills.is_empty() && plan.runs.is_empty() && plan.descend.is_empty());
    }

    #[test]
    fn empty_is_unset_only_where_kubernetes_cannot_tell() {
        let probe = |text: Value| {
            let mut value = text;
            apply(schema().id("io.k8s.api.core.v1.Probe").unwrap(), &mut value);
            value
        };
        // `timeoutSeconds` is a plain number, `grpc.service` and `terminationGracePeriodSeconds` are pointers.
        let actual = probe(json!({
            "timeoutSeconds": 0, "periodSeconds": null, "terminationGracePeriodSeconds": 0, "grpc": {"port": 1},
        }));
        let expected = json!({
            "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
            "terminationGracePeriodSeconds": 0, "grpc": {"port": 1, "service": ""},
        });
        assert_eq!(actual, expected);
    }

    #[test]
    fn values_of_the_wrong_type_are_left_alone() {
        let messages = schema().messages.len();
        for wrong in [json!(null), json!(1), json!("x"), json!([1, "x", [], {}]), json!({"spec": 1, "metadata": []})] {
            for at in 0..messages {
                let mut value = wrong.clone();
                apply(MessageId(at as u32), &mut value);
                // Every field of every message in turn.
                for field in &schema().messages[at].fields {
                    let mut value = json!({ field.json.clone(): wrong });
                    apply(MessageId(at as u32), &mut value);
                }
            }
        }
    }
}
