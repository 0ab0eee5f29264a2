//! Placement: to which nodes the pods of a namespace may go, and which taints they may put up with.

use super::pods::{annotation, list};
use super::tolerations::{are_within, merged};
use crate::admission::settings::Configuration;
use crate::admission::{Attributes, Operation};
use crate::kinds::core::qos_class;
use crate::kinds::known::POD;
use crate::object::meta::object_mut;
use crate::object::reader::Reader;
use crate::pipeline::effect::Stop;
use holdfast_value::{Map, Value, json};

const NODE_SELECTOR: &str = "scheduler.alpha.kubernetes.io/node-selector";
const DEFAULT_TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/defaultTolerations";
const ALLOWED_TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";
const CLUSTER_DEFAULT: &str = "clusterDefaultNodeSelector";

/// PodNodeSelector: what the namespace selects, its pods select, too.
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
        Some(selector) => labels(attributes, selector)?,
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
        Some(selector) => labels(attributes, selector),
        None => Ok(Map::new()),
    }
}

/// `a=b,c=d` as a map.
fn labels(attributes: &Attributes, selector: &str) -> Result<Map, Stop> {
    let mut labels = Map::new();
    for pair in selector.split(',').filter(|pair| !pair.trim().is_empty()) {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(attributes.fault(format!("invalid selector: {selector}")));
        };
        labels.insert(key.trim().to_owned(), value.trim().into());
    }
    Ok(labels)
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

/// PodTolerationRestriction: pods put up with what their namespace does, and with nothing that it does not allow.
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
    let (allowed, whose) = match said(attributes, ALLOWED_TOLERATIONS)? {
        Some(allowed) => (allowed, "namespace"),
        None => (attributes.admission.configuration.tolerations["whitelist"].clone(), "cluster"),
    };
    let own = &attributes.object["spec"]["tolerations"];
    if list(&allowed).next().is_none() || are_within(own, &allowed) {
        return Ok(());
    }
    Err(attributes.fault(format!(
        "pod tolerations (possibly merged with namespace default tolerations) conflict with its {whose} whitelist"
    )))
}

/// The list of tolerations in an annotation of the namespace; `None`: there is no such annotation.
fn said(attributes: &Attributes, key: &str) -> Result<Option<Value>, Stop> {
    let namespace = attributes.namespace_entry().map(|entry| entry.document()).unwrap_or_default();
    match annotation(&namespace, key) {
        None => Ok(None),
        Some("") => Ok(Some(json!([]))),
        Some(text) => match serde_json::from_str::<Value>(text) {
            Ok(list @ (Value::Array(_) | Value::Null)) => Ok(Some(list)),
            Ok(_) => Err(attributes.fault(format!("the annotation {key} is no list of tolerations"))),
            Err(error) => Err(attributes.fault(error.to_string())),
        },
    }
}

pub(super) fn configure_tolerations(configuration: &mut Configuration, document: &Reader) {
    super::configuration::check(document, "podtolerationrestriction.admission.k8s.io/", "Configuration");
    let own = |field: &str| document.values(field).map_or(Value::Null, Into::into);
    configuration.tolerations = json!({"default": own("default"), "whitelist": own("whitelist")});
}
