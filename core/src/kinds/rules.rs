//! Validation rules that many kinds share. Each rule checks one value of a document ([`At`]).

use crate::object::address::{address, network};
pub(crate) use crate::object::at::At;
use crate::object::{names, validate};
use crate::refusal::Causes;
use crate::schema::quantity;
use crate::select::LabelSelector;
use holdfast_value::{Map, Value};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::net::IpAddr;

pub(super) const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
pub(super) const IMMUTABLE: &str = "field is immutable";
const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
const PORT: &str = "must be between 1 and 65535, inclusive";
const ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// Reports a required value that is missing.
pub(super) fn need(at: At, causes: &mut Causes) {
    if at.is_empty() {
        causes.push(at.required(""));
    }
}

/// Reports a value that an enum does not support. An empty text is accepted.
pub(super) fn one_of(at: At, supported: &[&str], causes: &mut Causes) {
    if !at.text().is_empty() && !supported.contains(&at.text()) {
        causes.push(at.not_supported(supported));
    }
}

/// Reports a value that an enum does not support. An empty text is reported, an unset value is accepted.
pub(super) fn known(at: At, supported: &[&str], causes: &mut Causes) {
    if at.is_set() && !supported.contains(&at.text()) {
        causes.push(at.not_supported(supported));
    }
}

/// Reports a negative number.
pub(super) fn not_negative(at: At, causes: &mut Causes) {
    if at.number().is_some_and(|number| number < 0) {
        causes.push(at.invalid(NOT_NEGATIVE));
    }
}

/// Reports the fields of one object that are negative numbers.
pub(super) fn none_negative(at: At, fields: &[&str], causes: &mut Causes) {
    for field in fields {
        not_negative(at.get(field), causes);
    }
}

pub(super) fn between(at: At, first: i64, last: i64, causes: &mut Causes) {
    if at.number().is_some_and(|number| !(first..=last).contains(&number)) {
        causes.push(at.invalid(&format!("must be between {first} and {last}, inclusive")));
    }
}

/// Validates a port number, if set.
pub(super) fn port_number(at: At, causes: &mut Causes) {
    if at.number().is_some_and(|number| !(1..=65535).contains(&number)) {
        causes.push(at.invalid(PORT));
    }
}

/// Validates a port, given by number or by name.
pub(super) fn port(at: At, causes: &mut Causes) {
    match at.value {
        Value::String(name) => causes.extend(port_name(name).iter().map(|message| at.invalid(message))),
        _ => port_number(at, causes),
    }
}

/// Adds a cause for each message of a name check.
pub(super) fn named(at: At, check: fn(&str) -> Vec<String>, causes: &mut Causes) {
    causes.extend(check(at.text()).iter().map(|message| at.invalid(message)));
}

/// Reports a missing name, and each violation that `check` finds in a name.
pub(super) fn need_name(at: At, check: fn(&str) -> Vec<String>, causes: &mut Causes) {
    if at.is_empty() { causes.push(at.required("")) } else { named(at, check, causes) }
}

/// The violations of a container port's name.
pub(super) fn port_name(name: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if name.len() > 15 {
        messages.push(names::too_long(15));
    }
    if !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-') || name.is_empty() {
        messages.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".into());
    }
    if !name.bytes().any(|byte| byte.is_ascii_lowercase()) {
        messages.push("must contain at least one letter (a-z)".into());
    }
    if name.contains("--") {
        messages.push("must not contain consecutive hyphens".into());
    }
    if name.starts_with('-') || name.ends_with('-') {
        messages.push("must not begin or end with a hyphen".into());
    }
    messages
}

/// The violations of a ConfigMap or Secret key.
pub(super) fn config_key(key: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if key.len() > 253 {
        messages.push(names::too_long(253));
    }
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
        let rule = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
        messages.push(names::pattern(rule, &["key.name", "KEY_NAME", "key-name"], "[-._a-zA-Z0-9]+"));
    }
    match key {
        "." | ".." => messages.push(format!("must not be '{key}'")),
        _ if key.starts_with("..") => messages.push("must not start with '..'".into()),
        _ => {}
    }
    messages
}

/// The violations of an environment variable's name.
pub(super) fn env_name(name: &str) -> Vec<String> {
    if !name.is_empty() && name.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=') {
        return Vec::new();
    }
    vec!["a valid environment variable name must consist only of printable ASCII characters other than '='".into()]
}

/// Validates a label selector, if set.
pub(super) fn selector(at: At, causes: &mut Causes) {
    let labels = at.get("matchLabels");
    if let Value::Object(map) = labels.value {
        validate::labels(map, &labels.path(), causes);
    }
    for expression in at.get("matchExpressions").items() {
        let values = expression.get("values");
        match expression.get("operator").text() {
            "In" | "NotIn" if values.is_empty() => {
                causes.push(values.required("must be specified when `operator` is 'In' or 'NotIn'"));
            }
            "In" | "NotIn" => {}
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                causes.push(values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'"));
            }
            "Exists" | "DoesNotExist" => {}
            _ => causes.push(expression.get("operator").invalid("not a valid selector operator")),
        }
        named(expression.get("key"), names::qualified_name, causes);
    }
}

/// Whether a label selector matches a template's labels. An invalid selector counts as a match, because it is reported
/// by its own validation.
pub(super) fn selects(selector: &Value, labels: &Value) -> bool {
    let labels = labels.as_object().cloned().unwrap_or_default();
    LabelSelector::from_object(selector).map_or(true, |selector| selector.matches(&labels))
}

/// Validates a map of labels, if set.
pub(super) fn labels(at: At, causes: &mut Causes) {
    if let Value::Object(map) = at.value {
        validate::labels(map, &at.path(), causes);
    }
}

/// Validates quantities by resource: none is negative.
pub(super) fn quantities(at: At, causes: &mut Causes) {
    for (_, amount) in at.entries() {
        if is_less(amount.value, &Value::from("0")) {
            causes.push(amount.invalid(NOT_NEGATIVE));
        }
    }
}

pub(super) fn is_less(a: &Value, b: &Value) -> bool {
    compare(a, b) == Some(Ordering::Less)
}

/// Compares two quantities, given as text or as bare numbers.
pub(super) fn compare(a: &Value, b: &Value) -> Option<Ordering> {
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.to_string()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    quantity::compare(&text(a)?, &text(b)?)
}

/// Validates a non-negative number or a percentage.
pub(super) fn number_or_percent(at: At, causes: &mut Causes) {
    if at.value.is_string() && percent(at.value).is_none() {
        let rule = "a valid percent string must be a numeric string followed by an ending '%'";
        causes.push(at.invalid(&names::pattern(rule, &["1%", "93%"], "[0-9]+%")));
    }
    not_negative(at, causes);
}

/// The number before the `%`; `None` if the text is not a percentage.
pub(super) fn percent(value: &Value) -> Option<i64> {
    let digits = value.as_str()?.strip_suffix('%')?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// Repeats the causes on update, where Kubernetes runs the same validation twice.
pub(super) fn twice_on_update(old: Option<&Value>, causes: &mut Causes) {
    if old.is_some() {
        causes.append(causes.clone());
    }
}

/// Validates a network such as `10.0.0.0/8`. Bits after the prefix are ignored.
pub(super) fn cidr(at: At, causes: &mut Causes) {
    if network(at.text()).is_none() {
        causes.push(at.invalid(CIDR));
    }
}

/// Reports a change of an immutable field.
pub(super) fn immutable(at: At, old: &Value, causes: &mut Causes) {
    if !same(at.value, old) {
        causes.push(at.invalid(IMMUTABLE));
    }
}

/// Whether two values are equal. An empty value equals an absent value. Equal quantities have the same spelling at this
/// point, because `schema::spelling` has run.
pub(crate) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(one), Value::Object(other)) => {
            let covered = |one: &Map, other: &Map| {
                one.iter().all(|(key, value)| same(value, other.get(key).unwrap_or(&Value::Null)))
            };
            covered(one, other) && covered(other, one)
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        _ => a == b || (is_nothing(a) && is_nothing(b)),
    }
}

/// Whether the value is null or the zero of its type.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.values().all(is_nothing),
    }
}

/// Reports items of a list that have the same value in a field.
pub(super) fn distinct(list: At, field: &str, causes: &mut Causes) {
    let mut seen = Seen::default();
    for item in list.items() {
        let name = item.get(field);
        if !name.is_empty() && seen.again(name.value) {
            causes.push(name.duplicate());
        }
    }
}

/// The values that were seen so far, for finding duplicates.
#[derive(Default)]
pub(super) struct Seen(BTreeSet<String>);

impl Seen {
    /// Records the value. Returns whether the value was recorded before.
    pub fn again(&mut self, value: &Value) -> bool {
        !self.0.insert(value.to_string())
    }
}

/// Reports a value that is missing, or that an enum does not support.
pub(super) fn need_one_of(at: At, supported: &[&str], causes: &mut Causes) {
    if at.is_empty() { causes.push(at.required("")) } else { one_of(at, supported, causes) }
}

/// Reports each violation that `check` finds in a name, unless the name is empty.
pub(super) fn named_if_any(at: At, check: fn(&str) -> Vec<String>, causes: &mut Causes) {
    if !at.is_empty() {
        named(at, check, causes);
    }
}

/// Validates an IP address. Returns whether the text is an IP address.
pub(super) fn ip(at: At, causes: &mut Causes) -> bool {
    let found = address(at.text()).is_some();
    if !found {
        causes.push(at.invalid_as(at.text(), ADDRESS));
    }
    found
}

/// Validates an address of an endpoint or load balancer, which must not be unspecified, loopback or link-local.
pub(super) fn ordinary_ip(at: At, causes: &mut Causes) {
    let text = at.text();
    let Some(address) = address(text) else {
        causes.push(at.invalid_as(text, "must be a valid IP address"));
        return;
    };
    if address.is_unspecified() {
        causes.push(at.invalid_as(text, &format!("may not be unspecified ({text})")));
    }
    if address.is_loopback() {
        causes.push(at.invalid_as(text, "may not be in the loopback range (127.0.0.0/8, ::1/128)"));
    }
    let (link_local, link_local_multicast) = match address {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (v6.is_unicast_link_local(), v6.segments()[0] & 0xff0f == 0xff02),
    };
    if link_local {
        causes.push(at.invalid_as(text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"));
    }
    if link_local_multicast {
        causes.push(at.invalid_as(text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"));
    }
}

/// Whether the texts contain addresses or networks of both families.
pub(super) fn is_dual_stack<'a>(texts: impl Iterator<Item = &'a str>) -> bool {
    let families: Vec<bool> = texts
        .filter_map(|text| address(text.split('/').next().unwrap_or_default()))
        .map(|address| address.is_ipv4())
        .collect();
    families.contains(&true) && families.contains(&false)
}

/// Reports a path that has a part `..`.
pub(super) fn no_backsteps(at: At, causes: &mut Causes) {
    if has_backsteps(at.text()) {
        causes.push(at.invalid("must not contain '..'"));
    }
}

pub(super) fn has_backsteps(path: &str) -> bool {
    path.split('/').any(|part| part == "..")
}

/// Checks that a path is relative and has no part `..`.
pub(super) fn descending_path(at: At, causes: &mut Causes) {
    if at.text().starts_with('/') {
        causes.push(at.invalid("must be a relative path"));
    }
    no_backsteps(at, causes);
}

/// Checks that a path is relative, has no part `..`, and does not begin with `..`: kubelets reserve such names in
/// volumes, for example `..data`.
pub(super) fn file_path(at: At, causes: &mut Causes) {
    descending_path(at, causes);
    let text = at.text();
    // The part `..` has already been reported by `descending_path`.
    if text.starts_with("..") && text != ".." && !text.starts_with("../") {
        causes.push(at.invalid("must not start with '..'"));
    }
}

/// Validates a file mode, if set: a number from 0 to 0o777.
pub(super) fn file_mode(mode: At, causes: &mut Causes) {
    if mode.number().is_some_and(|mode| !(0..=0o777).contains(&mode)) {
        causes.push(mode.invalid("must be a number between 0 and 0777 (octal), both inclusive"));
    }
}

#[cfg(test)]
mod tests {
    use super::testing::faults;
    use super::*;
    use holdfast_value::json;

    #[test]
    fn what_a_fresh_server_creates_obeys_the_rules() {
        let mut documents = crate::authz::bootstrap::bootstrap_policy();
        documents.extend(crate::authz::bootstrap_objects::bootstrap_objects());
        let service = crate::authz::bootstrap_objects::kubernetes_service(
            &"10.96.0.0/12".parse().expect("a range"),
            IpAddr::from([10, 0, 0, 1]),
            6443,
        );
        documents.extend(service);
        for document in documents {
            assert_eq!(faults(&document), [""; 0], "{document}");
        }
    }

    #[test]
    fn a_whole_application_obeys_the_rules() {
        let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data");
        for folder in ["shop", "shop-changed"] {
            let mut count = 0;
            for file in std::fs::read_dir(format!("{data}/{folder}")).expect("the application") {
                let text = std::fs::read_to_string(file.expect("a file").path()).expect("text");
                for part in text.split("\n---") {
                    let value = crate::object::decode::yaml(part.as_bytes()).expect("YAML").value;
                    if value.is_object() {
                        assert_eq!(faults(&value), [""; 0], "{value}");
                        count += 1;
                    }
                }
            }
            assert!(count > 20, "{count} objects");
        }
    }

    #[test]
    fn what_is_empty_is_as_good_as_absent() {
        for (one, other, expected) in [
            (json!({"nodeName": "m"}), json!({"nodeName": "n"}), false),
            (json!({"labels": {"a": "1k"}}), json!({"labels": {"a": "1000"}}), false),
            (json!({"a": []}), json!({}), true),
            (json!({"a": {"b": ""}}), json!({}), true),
            (json!({"a": [0]}), json!({}), false),
        ] {
            assert_eq!(same(&one, &other), expected, "{one} {other}");
        }
    }

    #[test]
    fn quantities_compare_by_amount() {
        for (a, b, order) in [
            ("100m", "0.1", Ordering::Equal),
            ("1Gi", "1G", Ordering::Greater),
            ("1e3", "1k", Ordering::Equal),
            ("-1", "0", Ordering::Less),
            ("1.5Gi", "1536Mi", Ordering::Equal),
        ] {
            assert_eq!(compare(&json!(a), &json!(b)), Some(order), "{a} {b}");
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::kinds::{Kind, Validate, registry};
    use crate::object::meta::Document;
    use crate::refusal::Cause;
    use crate::schema::schema;

    /// The object with the defaults of its version, and the rules for writes through this version.
    pub fn defaulted(object: &Value) -> (Value, Option<Validate>) {
        let api_version = object["apiVersion"].as_str().expect("an apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let (id, at) = registry().find_kind(group, version, object["kind"].as_str().expect("a kind")).expect("a kind");
        let kind = registry().get(id);
        let mut document = object.clone();
        let message = schema().id(&kind.versions[at].message).expect("a message");
        crate::schema::check(schema(), message, &mut document).expect("an object of its type");
        crate::kinds::apply_defaults(message, &mut document).expect("few defaults");
        if at != 0 {
            let mut map: Document = document.as_object().cloned().expect("an object");
            kind.to_hub(at, &mut map);
            document = Value::Object(map);
            let hub = schema().id(&kind.hub().message).expect("a message");
            crate::kinds::apply_defaults(hub, &mut document).expect("few defaults");
        }
        (document, kind.rules_in(&kind.versions[at]))
    }

    fn kind_of(object: &Value) -> &'static Kind {
        let api_version = object["apiVersion"].as_str().expect("an apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = object["kind"].as_str().expect("a kind");
        registry().get(registry().find_kind(group, version, kind).expect("a kind").0)
    }

    /// The causes for a new object with all gates on.
    pub fn faults(object: &Value) -> Vec<String> {
        let (mut document, rules) = defaulted(object);
        if document["metadata"]["uid"].is_null() {
            document["metadata"]["uid"] = "u".into();
        }
        kind_of(object).writes.prepare_create(&mut document, false);
        rules.map_or_else(Causes::default, |rules| rules(&document, None)).iter().map(Cause::to_string).collect()
    }

    /// Each row changes one field of a valid object, by JSON pointer, and gives the start of the expected fault.
    pub fn check_rows(good: &Value, rows: &[(&str, Value, &str)]) {
        assert_eq!(faults(good), [""; 0], "the good object");
        for (pointer, value, expected) in rows {
            let changed = with(good, pointer, value);
            let found = faults(&changed);
            if expected.is_empty() {
                assert_eq!(found, [""; 0], "{pointer} = {value}");
            } else {
                assert!(found.iter().any(|fault| fault.starts_with(expected)), "{pointer} = {value}: {found:?}");
            }
        }
    }

    /// Checks the rows of [`check_rows`] as updates of an existing object.
    pub fn check_updates(good: &Value, rows: &[(&str, Value, &str)]) {
        let (_, rules) = defaulted(good);
        check_changes(good, rules.expect("the kind has rules"), rows);
    }

    /// Checks the rows of [`check_rows`] as updates through a subresource.
    pub fn check_part(good: &Value, part: &str, rows: &[(&str, Value, &str)]) {
        let rules = kind_of(good).subresource(0, part).and_then(|part| part.validate);
        check_changes(good, rules.expect("the subresource has rules"), rows);
    }

    fn check_changes(good: &Value, rules: Validate, rows: &[(&str, Value, &str)]) {
        let (old, _) = defaulted(good);
        assert!(rules(&old, Some(&old)).is_empty(), "no change");
        for (pointer, value, expected) in rows {
            let (new, _) = defaulted(&with(good, pointer, value));
            let found: Vec<String> = rules(&new, Some(&old)).iter().map(Cause::to_string).collect();
            if expected.is_empty() {
                assert_eq!(found, [""; 0], "{pointer} = {value}");
            } else {
                assert!(found.iter().any(|fault| fault.starts_with(expected)), "{pointer} = {value}: {found:?}");
            }
        }
    }

    /// The object with a value set at the pointer; missing parents are created.
    fn with(object: &Value, pointer: &str, value: &Value) -> Value {
        let mut changed = object.clone();
        let mut at = &mut changed;
        for step in pointer.split('/').skip(1) {
            at = match step.parse::<usize>() {
                Ok(index) => {
                    if !at.is_array() {
                        *at = Value::Array(Vec::new());
                    }
                    let list = at.as_array_mut().expect("made a list just above");
                    while list.len() <= index {
                        list.push(Value::Null);
                    }
                    &mut list[index]
                }
                Err(_) => &mut at[step.replace("~1", "/").as_str()],
            };
        }
        *at = value.clone();
        changed
    }
}
