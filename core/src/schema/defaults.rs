//! Sets unset fields to their defaults, and to the zeros that Kubernetes shows for unset fields.
//!
//! A rule belongs to a message, so a container gets the same defaults in a Pod and in a CronJob's template. A document
//! is walked along its schema, with outer messages before inner messages, because a rule may create an object that then
//! gets its own defaults. The messages that lead to a message with rules are computed once; other parts of a document
//! are not visited.

use super::{Field, Message, MessageId, Schema, Shape, Type, Zero};
use holdfast_value::{Map, Value};

/// The maximum size that defaults may add to one document, in bytes of JSON. It equals the size limit of stored
/// objects.
pub const ADDED_BYTES_MAX: usize = 8 << 20;
/// The assumed number of bytes of each field that the function of a rule adds.
const FIELD_BYTES: usize = 64;

/// The defaults would make the document too large. Only a part of them was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Swollen;

/// The number of bytes that defaults may still add to the document.
pub(crate) struct Room(pub usize);

impl Room {
    pub fn take(&mut self, bytes: usize) -> Result<(), Swollen> {
        self.0 = self.0.checked_sub(bytes).ok_or(Swollen)?;
        Ok(())
    }
}

/// The defaults of one message, which may exist in several versions.
pub struct Rule {
    /// The names of the messages, without the prefix `io.k8s.`.
    messages: Vec<String>,
    fields: Vec<(&'static str, Value)>,
    run: Option<fn(&mut Map)>,
}

impl Rule {
    /// Makes a rule for one message, by its name without `io.k8s.`.
    pub fn of(message: &str) -> Self {
        Self { messages: vec![message.to_owned()], fields: Vec::new(), run: None }
    }

    /// Makes a rule for a message that has the same defaults in several versions of a package.
    pub fn in_versions(package: &str, versions: &[&str], message: &str) -> Self {
        let messages = versions.iter().map(|version| format!("{package}.{version}.{message}")).collect();
        Self { messages, fields: Vec::new(), run: None }
    }

    /// Sets `field` to `value` where it is unset. An empty value counts as unset if Kubernetes cannot distinguish it
    /// from an absent one; the schema says whether it can.
    pub fn set(mut self, field: &'static str, value: impl Into<Value>) -> Self {
        self.fields.push((field, value.into()));
        self
    }

    /// Like [`Self::set`], but the value is an empty object.
    pub fn set_object(self, field: &'static str) -> Self {
        self.set(field, Map::new())
    }

    /// Adds a function that sets defaults which depend on other fields. It runs after the constant defaults of the
    /// message are set, and before inner messages get their defaults.
    pub fn run(mut self, run: fn(&mut Map)) -> Self {
        self.run = Some(run);
        self
    }
}

/// The defaults of all messages of a schema.
pub struct Defaults {
    /// What to set in each message, indexed by [`MessageId`].
    plans: Vec<Plan>,
}

#[derive(Default)]
struct Plan {
    fills: Vec<Fill>,
    runs: Vec<fn(&mut Map)>,
    /// The fields that are shown with their zero even if they are unset: `containers: null`, `replicas: 0`. A field
    /// that is a struct gets its own fields when the walk visits it.
    zeros: Vec<Shown>,
    /// The fields that contain messages with defaults or zeros at any depth, ordered by name.
    descend: Vec<NestedField>,
}

/// A field that is shown with its zero if it is unset.
struct Shown {
    field: String,
    zero: Value,
    /// The number of bytes that the field with its zero takes in JSON.
    bytes: usize,
    /// Whether the field is a list or map, which may be empty without being null.
    is_container: bool,
}

/// A field that contains one or more messages.
struct NestedField {
    field: String,
    message: MessageId,
    shape: Shape,
}

struct Fill {
    field: String,
    value: Value,
    bytes: usize,
    /// Whether an empty value (zero, empty string, empty list) counts as unset.
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
            // The server sets the metadata of an object itself. But the metadata of a template is an ordinary field
            // with defaults.
            for field in message.fields.iter().filter(|field| !is_own_metadata(message, field)) {
                plan.fills.extend(schema_default(field).map(|value| Fill::new(field, value)));
                if field.zero.is_shown() {
                    let is_container = field.shape != Shape::Single;
                    let zero = zero(field);
                    let bytes = entry_bytes(&field.json, &zero);
                    plan.zeros.push(Shown { field: field.json.clone(), zero, bytes, is_container });
                }
            }
        }
        Self::connect(schema, &mut plans);
        Self { plans }
    }

    /// Finds the fields that contain messages with defaults or zeros, at any depth.
    fn connect(schema: &Schema, plans: &mut [Plan]) {
        let has_work = |plan: &Plan| !plan.fills.is_empty() || !plan.runs.is_empty() || !plan.zeros.is_empty();
        let mut active: Vec<bool> = plans.iter().map(has_work).collect();
        let inner = |field: &Field| match field.ty {
            Type::Message(id) => Some(id),
            _ => None,
        };
        // Messages may contain themselves, so the search repeats until it finds no more messages.
        loop {
            let mut grown = false;
            for (at, message) in schema.messages.iter().enumerate() {
                let reaches = |field: &Field| {
                    !is_own_metadata(message, field) && inner(field).is_some_and(|id| active[id.0 as usize])
                };
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
            for field in message.fields.iter().filter(|field| !is_own_metadata(message, field)) {
                if let Some(id) = inner(field).filter(|id| active[id.0 as usize]) {
                    plan.descend.push(NestedField { field: field.json.clone(), message: id, shape: field.shape });
                }
            }
            plan.descend.sort_unstable_by(|a, b| a.field.cmp(&b.field));
        }
    }

    /// Sets all defaults. A second call changes nothing.
    ///
    /// Parts that the document shares with `stored`, the stored document, have their defaults already and are skipped.
    ///
    /// The added bytes are counted and limited to [`ADDED_BYTES_MAX`], because the defaults of three megabytes of empty
    /// items could take gigabytes.
    pub fn apply(&self, message: MessageId, document: &mut Value, stored: Option<&Value>) -> Result<(), Swollen> {
        self.fill(message, document, stored, false, &mut Room(ADDED_BYTES_MAX))
    }

    /// Sets only the zeros that Kubernetes always writes, and writes empty lists and maps as Kubernetes does. The
    /// meaning of the document stays the same.
    pub fn show_zeros(&self, message: MessageId, document: &mut Value, stored: Option<&Value>) -> Result<(), Swollen> {
        self.fill(message, document, stored, true, &mut Room(ADDED_BYTES_MAX))
    }

    /// Like [`Self::show_zeros`], for a stored object. Its size has no limit here, because it was checked when the
    /// object was stored.
    pub fn show_all_zeros(&self, message: MessageId, document: &mut Value) {
        let _ = self.fill(message, document, None, true, &mut Room(usize::MAX));
    }

    fn fill(
        &self,
        message: MessageId,
        document: &mut Value,
        stored: Option<&Value>,
        zeros_only: bool,
        room: &mut Room,
    ) -> Result<(), Swollen> {
        let (Some(plan), Value::Object(map)) = (self.plans.get(message.0 as usize), document) else { return Ok(()) };
        let stored = stored.and_then(Value::as_object);
        if stored.is_some_and(|stored| stored.is_same(map)) {
            return Ok(());
        }
        if !zeros_only {
            for fill in &plan.fills {
                fill.apply(map, room)?;
            }
            for run in &plan.runs {
                let before = map.len();
                run(map);
                room.take(FIELD_BYTES * map.len().saturating_sub(before))?;
            }
        }
        for Shown { field, zero, bytes, is_container } in &plan.zeros {
            match map.get_mut(field) {
                // Kubernetes' stores do not distinguish an empty list from an absent list, although a client that sends
                // an empty list becomes its owner. Therefore an empty list is shown as null.
                Some(value) if zeros_only && *is_container && is_empty_container(value) => *value = Value::Null,
                Some(_) => {}
                None => {
                    room.take(*bytes)?;
                    map.insert(field.clone(), zero.clone());
                }
            }
        }
        let mut fill = |inner: &NestedField, value: &mut Value| {
            let stored = stored.and_then(|stored| stored.get(&inner.field));
            inner.each(value, stored, |message, value, stored| self.fill(message, value, stored, zeros_only, room))
        };
        // Most maps have far fewer fields than their message, so the loop goes over the map's fields unless the message
        // has fewer fields to visit.
        if map.len() < plan.descend.len() {
            for (field, value) in map.iter_mut() {
                if let Ok(found) = plan.descend.binary_search_by(|inner| inner.field.as_str().cmp(field)) {
                    fill(&plan.descend[found], value)?;
                }
            }
        } else {
            for inner in &plan.descend {
                if let Some(value) = map.get_mut(&inner.field) {
                    fill(inner, value)?;
                }
            }
        }
        Ok(())
    }
}

impl NestedField {
    /// Calls `visit` for each message that the field contains.
    fn each(
        &self,
        field: &mut Value,
        stored: Option<&Value>,
        mut visit: impl FnMut(MessageId, &mut Value, Option<&Value>) -> Result<(), Swollen>,
    ) -> Result<(), Swollen> {
        let mut visit = |value: &mut Value, stored: Option<&Value>| visit(self.message, value, stored);
        match (self.shape, field) {
            (Shape::Single, value) => visit(value, stored),
            (Shape::List, Value::Array(items)) => {
                let mut each = items.iter_mut().enumerate();
                each.try_for_each(|(at, item)| visit(item, stored.and_then(|stored| stored.get(at))))
            }
            (Shape::Map, Value::Object(items)) => {
                let stored = stored.and_then(Value::as_object);
                if stored.is_some_and(|stored| stored.is_same(items)) {
                    return Ok(());
                }
                let mut each = items.iter_mut();
                each.try_for_each(|(name, item)| visit(item, stored.and_then(|stored| stored.get(name))))
            }
            _ => Ok(()),
        }
    }
}

fn is_empty_container(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        _ => false,
    }
}

impl Fill {
    fn new(field: &Field, value: Value) -> Self {
        // An IntOrString with a default is a pointer in Go, so an explicit zero counts as set.
        let pointer = field.zero.is_explicit() || field.ty == Type::IntOrString;
        let bytes = entry_bytes(&field.json, &value);
        Self { field: field.json.clone(), value, bytes, empty_is_unset: !pointer }
    }

    fn apply(&self, map: &mut Map, room: &mut Room) -> Result<(), Swollen> {
        let unset = match map.get(&self.field) {
            None | Some(Value::Null) => true,
            Some(value) => self.empty_is_unset && is_empty(value),
        };
        if unset {
            room.take(self.bytes)?;
            map.insert(self.field.clone(), self.value.clone());
        }
        Ok(())
    }
}

/// The number of bytes that the entry `"field":value,` takes in JSON.
fn entry_bytes(field: &str, value: &Value) -> usize {
    field.len() + value.to_string().len() + 4
}

/// The default that the schema table gives for an unset field.
fn schema_default(field: &Field) -> Option<Value> {
    if let Some(text) = &field.default {
        let value: Value = serde_json::from_str(text).ok()?;
        // An empty default that is not shown makes no difference, so it is not set.
        return (!is_empty(&value) || field.zero == Zero::Kept).then_some(value);
    }
    // A struct that is always present is created here, so that rules can set the fields in it.
    let is_struct = field.shape == Shape::Single && matches!(field.ty, Type::Message(_));
    (is_struct && field.zero == Zero::Always).then(|| Value::Object(Map::new()))
}

/// The zero of a field that is always shown. The zero of lists, maps and pointers is null.
fn zero(field: &Field) -> Value {
    if field.shape != Shape::Single || field.zero == Zero::Null {
        return Value::Null;
    }
    match field.ty {
        Type::String => "".into(),
        Type::Bool => false.into(),
        Type::Int32 | Type::Int64 | Type::Double | Type::IntOrString => 0.into(),
        Type::Quantity => "0".into(),
        Type::Duration => "0s".into(),
        Type::Message(_) => Value::Object(Map::new()),
        Type::Bytes
        | Type::Time
        | Type::MicroTime
        | Type::RawExtension
        | Type::FieldsV1
        | Type::Json
        | Type::JsonSchemaPropsOrArray
        | Type::JsonSchemaPropsOrBool
        | Type::JsonSchemaPropsOrStringArray
        | Type::StringList => Value::Null,
    }
}

fn is_own_metadata(message: &Message, field: &Field) -> bool {
    message.typed && field.json == "metadata"
}

/// Whether the value is the zero of its type. If the field is not a pointer, Kubernetes reads such a value as absent.
pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        // An empty object is not a zero: `emptyDir: {}` chooses a volume source.
        Value::Object(_) => false,
    }
}

/// Whether a field is absent or null.
pub(crate) fn is_absent(map: &Map, field: &str) -> bool {
    map.get(field).is_none_or(Value::is_null)
}

/// Sets a field that is absent or null.
pub(crate) fn set_absent(map: &mut Map, field: &str, value: impl Into<Value>) {
    if is_absent(map, field) {
        map.insert(field.to_owned(), value.into());
    }
}

/// Sets a field that is absent, null or empty.
pub(crate) fn set_empty(map: &mut Map, field: &str, value: impl Into<Value>) {
    if map.get(field).is_none_or(is_empty) {
        map.insert(field.to_owned(), value.into());
    }
}

/// The text of a field; empty if absent.
pub(crate) fn text<'a>(map: &'a Map, field: &str) -> &'a str {
    map.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// The object in a field; `None` if the field is absent or not an object.
pub(crate) fn object<'a>(map: &'a mut Map, field: &str) -> Option<&'a mut Map> {
    map.get_mut(field).and_then(Value::as_object_mut)
}

/// The objects in a field that is a list.
pub(crate) fn objects<'a>(map: &'a mut Map, field: &str) -> impl Iterator<Item = &'a mut Map> {
    map.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// The object in a field, created if the field is absent or null; `None` if the field has another type.
pub(crate) fn object_or_new<'a>(map: &'a mut Map, field: &str) -> Option<&'a mut Map> {
    set_absent(map, field, Map::new());
    object(map, field)
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::kinds::apply_defaults as apply;
    use crate::schema::schema;
    use expect_test::Expect;

    /// Compares the lines that defaults add to a document, change in it and remove from it with the expected lines.
    pub(crate) fn check(message: &str, document: Value, expected: Expect) {
        let id = schema().id(&format!("io.k8s.{message}")).unwrap_or_else(|| panic!("no message {message}"));
        let mut filled = document.clone();
        apply(id, &mut filled).expect("few defaults");
        let mut again = filled.clone();
        apply(id, &mut again).expect("few defaults");
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
                    let inner = if path.is_empty() { key.to_string() } else { format!("{path}.{key}") };
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
    use holdfast_value::json;

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

    /// Sets each field of this kind to an explicit zero, applies the defaults, and lists the fields that have changed.
    fn changed(which: fn(&Field) -> bool) -> (usize, Vec<String>) {
        let (mut count, mut lines) = (0, Vec::new());
        for (at, message) in schema().messages.iter().enumerate() {
            for field in message.fields.iter().filter(|field| which(field)) {
                let Some(zero) = zero(field) else { continue };
                let mut document = json!({ (&field.json): zero });
                apply(MessageId(at as u32), &mut document).expect("few defaults");
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
    fn defaults_end_before_they_fill_the_memory() {
        let pod = schema().id("io.k8s.api.core.v1.Pod").expect("pods");
        let with = |containers: usize| json!({"spec": {"containers": vec![json!({}); containers]}});
        assert_eq!(apply(pod, &mut with(10_000)), Ok(()));
        let mut many = with(1_000_000);
        let refused = apply(pod, &mut many).expect_err("too much");
        assert_eq!(
            refused.message(),
            "the object would be too large: its defaults may add 8388608 bytes, and would add more"
        );
        let filled =
            many["spec"]["containers"].as_array().into_iter().flatten().filter(|one| !one["resources"].is_null());
        assert!(filled.count() < 100_000);
    }

    #[test]
    fn empty_is_unset_only_where_kubernetes_cannot_tell() {
        let probe = |text: Value| {
            let mut value = text;
            apply(schema().id("io.k8s.api.core.v1.Probe").unwrap(), &mut value).expect("few defaults");
            value
        };
        // `timeoutSeconds` is a plain number; `grpc.service` and `terminationGracePeriodSeconds` are pointers.
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
                apply(MessageId(at as u32), &mut value).expect("few defaults");
                // Sets each field of each message, one at a time, to a value of the wrong type.
                for field in &schema().messages[at].fields {
                    let mut value = json!({ (field.json.clone()): wrong });
                    apply(MessageId(at as u32), &mut value).expect("few defaults");
                }
            }
        }
    }
}
