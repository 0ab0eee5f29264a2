//! PodNodeSelector restricts the nodes that a namespace's pods may use. PodTolerationRestriction restricts the taints
//! that they may tolerate.

use super::pods::{annotation, list};
use super::tolerations::{are_within, merged};
use crate::admission::plugins::Configuration;
use crate::admission::{Attributes, Operation};
use crate::kinds::core::qos_class;
use crate::kinds::known::POD;
use crate::object::meta::{object_mut, type_name};
use crate::object::reader::Reader;
use crate::object::{decode, names};
use crate::pipeline::effect::Stop;
use crate::refusal::{Cause, Unmarshal};
use crate::schema::{self, Message};
use holdfast_value::{Map, Value, json};

const NODE_SELECTOR: &str = "scheduler.alpha.kubernetes.io/node-selector";
const DEFAULT_TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/defaultTolerations";
const ALLOWED_TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";
const CLUSTER_DEFAULT: &str = "clusterDefaultNodeSelector";

/// PodNodeSelector: adds the namespace's node selector to its pods.
pub(super) fn select_nodes(attributes: &mut Attributes) -> Result<(), Stop> {
    if !attributes.creates(POD) {
        return Ok(());
    }
    let wanted = selector_of(attributes)?;
    check_conflict(attributes, &wanted)?;
    if !wanted.is_empty() {
        let selector = object_mut(object_mut(attributes.fields_mut(), "spec"), "nodeSelector");
        selector.extend(wanted);
    }
    check_nodes(attributes)
}

pub(super) fn check_nodes(attributes: &mut Attributes) -> Result<(), Stop> {
    if !attributes.creates(POD) {
        return Ok(());
    }
    let wanted = selector_of(attributes)?;
    check_conflict(attributes, &wanted)?;
    let allowed = attributes.admission.configuration.node_selectors.get(attributes.namespace());
    let allowed = match allowed.and_then(Value::as_str) {
        None => return Ok(()),
        Some(selector) => labels(selector).map_err(|why| attributes.fault(why))?,
    };
    let own = attributes.object["spec"]["nodeSelector"].as_object().into_iter().flatten();
    if allowed.is_empty() || own.into_iter().all(|(key, value)| allowed.get(key) == Some(value)) {
        return Ok(());
    }
    Err(attributes.forbidden("pod node label selector labels conflict with its namespace whitelist"))
}

fn selector_of(attributes: &Attributes) -> Result<Map, Stop> {
    let namespace = attributes.namespace_entry().map(|entry| entry.document()).unwrap_or_default();
    let default = attributes.admission.configuration.node_selectors.get(CLUSTER_DEFAULT).and_then(Value::as_str);
    match annotation(&namespace, NODE_SELECTOR).or(default) {
        Some(selector) => labels(selector).map_err(|why| attributes.fault(why)),
        None => Ok(Map::new()),
    }
}

/// Parses `a=b,c=d` into a map.
fn labels(selector: &str) -> Result<Map, String> {
    let mut labels = Map::new();
    if selector.is_empty() {
        return Ok(labels);
    }
    for pair in selector.split(',') {
        let parts: Vec<&str> = pair.split('=').collect();
        let [key, value] = parts[..] else {
            // Go prints a list with spaces between its items.
            return Err(format!("invalid selector: [{}]", parts.join(" ")));
        };
        let (key, value) = (key.trim(), value.trim());
        // The selector is in no document, so Go prints `<nil>` as the path of a key, and the key as the path of a
        // value.
        fit("<nil>", key, &names::qualified_name(key))?;
        fit(&format!("[{key}]"), value, &names::label_value(value))?;
        labels.insert(key, value.into());
    }
    Ok(labels)
}

fn fit(path: &str, text: &str, faults: &[String]) -> Result<(), String> {
    match faults {
        [] => Ok(()),
        _ => Err(Cause::invalid(path, &Value::from(text), &faults.join("; ")).to_string()),
    }
}

fn check_conflict(attributes: &Attributes, wanted: &Map) -> Result<(), Stop> {
    let own = &attributes.object["spec"]["nodeSelector"];
    if wanted.iter().all(|(key, value)| own.get(key).is_none_or(|own| own == value)) {
        return Ok(());
    }
    Err(attributes.forbidden("pod node label selector conflicts with its namespace node label selector"))
}

pub(super) fn configure_node_selectors(configuration: &mut Configuration, document: &Reader) {
    const FIELD: &str = "podNodeSelectorPluginConfig";
    let Some(selectors) = document.child(FIELD) else { return document.required(FIELD, "") };
    let own = document.get(FIELD).and_then(Value::as_object).into_iter().flatten();
    for (namespace, selector) in own {
        selectors.text(namespace);
        configuration.node_selectors.insert(namespace.clone(), selector.clone());
    }
}

/// PodTolerationRestriction: adds the namespace's tolerations to its pods, and refuses tolerations that the namespace
/// does not allow.
pub(super) fn tolerate(attributes: &mut Attributes) -> Result<(), Stop> {
    let is_new = attributes.creates(POD);
    if !is_new && !attributes.updates(POD) {
        return Ok(());
    }
    let own = attributes.object["spec"]["tolerations"].clone();
    let mut tolerations = list(&own).cloned().collect::<Vec<_>>();
    if is_new {
        let configured = &attributes.admission.configuration.tolerations;
        let given = said(attributes, DEFAULT_TOLERATIONS)?.unwrap_or_else(|| configured["default"].clone());
        if list(&given).next().is_some() {
            tolerations = merged(&own, &given);
        }
    }
    if qos_class(&attributes.object["spec"]) != "BestEffort" {
        let pressure =
            json!([{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}]);
        tolerations = merged(&tolerations.into(), &pressure);
    }
    if !tolerations.is_empty() {
        object_mut(attributes.fields_mut(), "spec").insert("tolerations", tolerations.into());
    }
    check_tolerations(attributes)
}

pub(super) fn check_tolerations(attributes: &mut Attributes) -> Result<(), Stop> {
    let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
    if !writes || !attributes.is_of(POD) {
        return Ok(());
    }
    let own = &attributes.object["spec"]["tolerations"];
    // The allowed tolerations, readable or not, do not matter for a pod without tolerations.
    if list(own).next().is_none() {
        return Ok(());
    }
    let (allowed, whose) = match said(attributes, ALLOWED_TOLERATIONS)? {
        Some(allowed) => (allowed, "namespace"),
        None => (attributes.admission.configuration.tolerations["whitelist"].clone(), "cluster"),
    };
    if list(&allowed).next().is_none() || are_within(own, &allowed) {
        return Ok(());
    }
    Err(attributes.fault(format!(
        "pod tolerations (possibly merged with namespace default tolerations) conflict with its {whose} whitelist"
    )))
}

/// The tolerations in an annotation of the namespace; `None` without the annotation.
fn said(attributes: &Attributes, key: &str) -> Result<Option<Value>, Stop> {
    let namespace = attributes.namespace_entry().map(|entry| entry.document()).unwrap_or_default();
    match annotation(&namespace, key) {
        None => Ok(None),
        Some("") => Ok(Some(json!([]))),
        Some(text) => read_tolerations(text).map(Some).map_err(|why| attributes.fault(why)),
    }
}

/// Parses an annotation as a list of tolerations. Errors have the text of Go's encoding/json, which Kubernetes uses
/// here instead of its own decoder.
fn read_tolerations(text: &str) -> Result<Value, String> {
    let mut document = decode::json(text.as_bytes()).map_err(|fault| fault.to_string())?.value;
    match &mut document {
        Value::Null => {}
        Value::Array(items) => {
            let schema = schema::schema();
            let id = schema.id("io.k8s.api.core.v1.Toleration").ok_or("the schema lacks tolerations")?;
            for item in items {
                name_fields(schema.message(id), item);
                schema::check(schema, id, item).map_err(|fault| fault.to_string())?;
            }
        }
        other => return Err(Unmarshal::whole(type_name(other), "[]v1.Toleration").to_string()),
    }
    Ok(document)
}

/// Corrects the case of the field names in an item, because Go's encoding/json ignores case.
fn name_fields(message: &Message, item: &mut Value) {
    let Value::Object(fields) = item else { return };
    let spelled = |name: &str| message.fields.iter().find(|field| field.json.eq_ignore_ascii_case(name));
    if fields.keys().all(|name| spelled(name).is_none_or(|field| field.json == name.as_str())) {
        return;
    }
    let named = std::mem::take(fields).into_iter();
    *fields =
        named.map(|(name, value)| (spelled(&name).map_or(name, |field| field.json.as_str().into()), value)).collect();
}

pub(super) fn configure_tolerations(configuration: &mut Configuration, document: &Reader) {
    super::configuration::check(document, "podtolerationrestriction.admission.k8s.io/", "Configuration");
    let own = |field: &str| document.values(field).map_or(Value::Null, Into::into);
    configuration.tolerations = json!({"default": own("default"), "whitelist": own("whitelist")});
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_of_a_namespace() {
        let no_key = "<nil>: Invalid value: \"\": name part must be non-empty; name part must consist of";
        for (selector, expected) in [
            ("", Ok(json!({}))),
            ("a=b, c = d ,e=", Ok(json!({"a": "b", "c": "d", "e": ""}))),
            ("a=b,a=c", Ok(json!({"a": "c"}))),
            ("a=b,,", Err("invalid selector: []")),
            ("a=b,", Err("invalid selector: []")),
            (" ", Err("invalid selector: [ ]")),
            ("a", Err("invalid selector: [a]")),
            ("a==b", Err("invalid selector: [a  b]")),
            ("x=y,a=b=c", Err("invalid selector: [a b c]")),
            ("a b=c", Err("<nil>: Invalid value: \"a b\": name part must consist of")),
            ("=c", Err(no_key)),
            ("a=b c", Err("[a]: Invalid value: \"b c\": a valid label must be an empty string or consist of")),
            // If a selector has several faults, only the first one is reported.
            ("a=b,c d=e,f", Err("<nil>: Invalid value: \"c d\": name part must consist of")),
        ] {
            let found = labels(selector);
            match expected {
                Ok(labels) => assert_eq!(found.map(Value::Object), Ok(labels), "{selector}"),
                Err(start) => {
                    let why = found.expect_err(selector);
                    let is_whole = start.starts_with("invalid selector");
                    assert!(if is_whole { why == start } else { why.starts_with(start) }, "{selector}: {why}");
                }
            }
        }
    }

    #[test]
    fn lists_of_tolerations() {
        let field = |found: &str, field: &str, ty: &str| {
            Err(format!("json: cannot unmarshal {found} into Go struct field Toleration.{field} of type {ty}"))
        };
        let whole = |found: &str, ty: &str| Err(format!("json: cannot unmarshal {found} into Go value of type {ty}"));
        let syntax = |text: &str| Err(text.to_owned());
        for (text, expected) in [
            ("null", Ok(Value::Null)),
            ("[]", Ok(json!([]))),
            // Like Go's encoding/json, the parser accepts field names in any case, nulls, and unknown fields.
            (r#"[{"Key": "a", "OPERATOR": "Exists"}]"#, Ok(json!([{"key": "a", "operator": "Exists"}]))),
            (r#"[{"key": null, "more": 1}, null]"#, Ok(json!([{}, {}]))),
            ("nope", syntax("invalid character 'o' in literal null (expecting 'u')")),
            ("[{]", syntax("invalid character ']' looking for beginning of object key string")),
            ("[] x", syntax("invalid character 'x' after top-level value")),
            ("[", syntax("unexpected end of JSON input")),
            (" ", syntax("unexpected end of JSON input")),
            ("{}", whole("object", "[]v1.Toleration")),
            ("\"a\"", whole("string", "[]v1.Toleration")),
            ("1", whole("number", "[]v1.Toleration")),
            ("true", whole("bool", "[]v1.Toleration")),
            ("[1]", whole("number", "v1.Toleration")),
            ("[[]]", whole("array", "v1.Toleration")),
            (r#"[{"key": "a"}, {"key": 1}]"#, field("number", "key", "string")),
            (r#"[{"Key": 1}]"#, field("number", "key", "string")),
            (r#"[{"value": {}}]"#, field("object", "value", "string")),
            (r#"[{"operator": true}]"#, field("bool", "operator", "v1.TolerationOperator")),
            (r#"[{"effect": []}]"#, field("array", "effect", "v1.TaintEffect")),
            (r#"[{"tolerationSeconds": "1"}]"#, field("string", "tolerationSeconds", "int64")),
            (r#"[{"tolerationSeconds": 1.5}]"#, field("number 1.5", "tolerationSeconds", "int64")),
            // Like Go's encoding/json, the parser reports a syntax error before a type error.
            (r#"[{"key": 1}"#, syntax("unexpected end of JSON input")),
        ] {
            assert_eq!(read_tolerations(text), expected, "{text}");
        }
    }
}
