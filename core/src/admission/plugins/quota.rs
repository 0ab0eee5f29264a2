//! ResourceQuota: refuses writes that exceed a namespace's quotas.
//!
//! The usage of a write is added to the quotas' `status.used` by writes that are made together with it and require the
//! versions read here. If two requests take the rest of a quota at once, the writer returns one of the decisions as
//! stale. Its request is judged again, and refused.

use crate::admission::plugins::Configuration;
use crate::admission::{Attributes, Operation};
use crate::kinds::known::{EVENT, RESOURCE_QUOTA};
use crate::object::meta::{self, object_mut};
use crate::object::reader::Reader;
use crate::pipeline::effect::Stop;
use crate::quota::{Counted, Quota, Selector, Usage};
use crate::state::{Entry, prefix};
use holdfast_value::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A resource that may be used only where a quota covers it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limited {
    pub group: String,
    pub resource: String,
    /// A resource is limited if its name contains one of these texts.
    pub containing: Vec<String>,
    pub scopes: Vec<Selector>,
    /// The scopes in the form in which refusals show them.
    pub shown: Vec<String>,
}

/// A quota that the write counts against.
struct Charged {
    key: Arc<str>,
    entry: Arc<Entry>,
    document: Value,
    hard: Usage,
    used: Usage,
}

pub(super) fn validate(attributes: &mut Attributes) -> Result<(), Stop> {
    if !concerns(attributes) {
        return Ok(());
    }
    let quotas = quotas(attributes);
    if quotas.is_empty() && attributes.admission.configuration.limited_resources.is_empty() {
        return Ok(());
    }
    let counted = attributes.kind.counted(0);
    let Pertinent { charged, scopes } = pertinent(attributes, &counted, quotas)?;
    let now = attributes.stamp.rfc3339();
    let wanted = counted.usage(&attributes.object, &now);
    check_covered(attributes, &wanted, &counted, &charged, &scopes)?;
    if charged.is_empty() {
        return Ok(());
    }
    let negative: Vec<&str> =
        wanted.0.iter().filter(|(_, amount)| amount.is_negative()).map(|(name, _)| name.as_str()).collect();
    if !negative.is_empty() {
        return Err(attributes.forbidden(format!("quota usage is negative for resource(s): {}", negative.join(","))));
    }
    let mut more = wanted;
    if attributes.operation == Operation::Update {
        more.subtract(&counted.usage(attributes.old, &now));
    }
    more.0.retain(|_, amount| !amount.is_zero());
    if more.0.is_empty() {
        return Ok(());
    }
    for quota in charged {
        charge(attributes, quota, &more)?;
    }
    Ok(())
}

/// Whether the write may raise the namespace's usage.
fn concerns(attributes: &Attributes) -> bool {
    let grows_through = attributes.kind.content.measure.grows_through;
    !attributes.namespace().is_empty()
        && !attributes.is_on(EVENT)
        && match attributes.operation {
            Operation::Create => attributes.subresource().is_empty(),
            Operation::Update => grows_through.contains(&attributes.subresource()),
            Operation::Delete | Operation::Connect => false,
        }
}

fn quotas(attributes: &Attributes) -> Vec<(Arc<str>, Arc<Entry>)> {
    let Some(kind) = attributes.id_of(RESOURCE_QUOTA) else { return Vec::new() };
    let prefix = prefix(Some(attributes.namespace()));
    attributes.state.scan(kind, &prefix, None).map(|(key, entry)| (key.clone(), entry.clone())).collect()
}

/// The quotas of a namespace that concern an object.
struct Pertinent {
    /// The quotas that limit its kind and cover the object.
    charged: Vec<Charged>,
    /// All scopes, of any quota in the namespace, that the object matches.
    scopes: BTreeSet<String>,
}

fn pertinent(
    attributes: &Attributes,
    counted: &Counted,
    quotas: Vec<(Arc<str>, Arc<Entry>)>,
) -> Result<Pertinent, Stop> {
    let mut found = Pertinent { charged: Vec::new(), scopes: BTreeSet::new() };
    for (key, entry) in quotas {
        let document = entry.document();
        // The limits in the status apply, which the controller copies from the spec.
        let hard = Usage::of(&document["status"]["hard"]);
        let quota = Quota { hard, selectors: Selector::all(&document["spec"]) };
        let within = quota.selectors.iter().filter(|selector| (counted.measure.within)(&attributes.object, selector));
        found.scopes.extend(within.map(|selector| selector.scope.clone()));
        if !quota.concerns(counted) || !quota.covers(counted, &attributes.object) {
            continue;
        }
        let names: Vec<&str> = quota.hard.0.keys().map(String::as_str).filter(|name| counted.answers(name)).collect();
        let name = document["metadata"]["name"].as_str().unwrap_or("");
        if let Some(missing) = (counted.measure.missing)(&attributes.object, &names) {
            return Err(attributes.forbidden(format!("failed quota: {name}: {missing}")));
        }
        let used = Usage::of(&document["status"]["used"]);
        if names.iter().any(|name| used.get(name).is_none()) {
            let why = format!("status unknown for quota: {name}, resources: {}", names.join(","));
            return Err(attributes.forbidden(why));
        }
        found.charged.push(Charged { key, entry, hard: quota.hard, used, document });
    }
    Ok(found)
}

/// Refuses an object that uses a limited resource without a quota that covers it.
fn check_covered(
    attributes: &Attributes,
    wanted: &Usage,
    counted: &Counted,
    charged: &[Charged],
    scopes: &BTreeSet<String>,
) -> Result<(), Stop> {
    let group = &attributes.kind.versions[attributes.request.target.version].group;
    let limited = &attributes.admission.configuration.limited_resources;
    let parts = limited.iter().filter(|one| one.resource == attributes.kind.resource && one.group == *group);
    let parts: Vec<&String> = parts.flat_map(|limited| &limited.containing).collect();
    let covers = |name: &str| charged.iter().any(|quota| quota.hard.get(name).is_some() && counted.answers(name));
    let is_limited = |name: &str| parts.iter().any(|part| name.contains(part.as_str()));
    let used = wanted.0.iter().filter(|(_, amount)| !amount.is_zero()).map(|(name, _)| name.as_str());
    let uncovered: Vec<&str> = used.filter(|name| is_limited(name) && !covers(name)).collect();
    if !uncovered.is_empty() {
        return Err(attributes.forbidden(format!("insufficient quota to consume: {}", uncovered.join(","))));
    }
    // Kubernetes checks the scopes of all limited resources together. An object outside of these scopes is not
    // affected.
    let limited_scopes = limited.iter().flat_map(|limited| limited.scopes.iter().zip(&limited.shown));
    let uncovered: Vec<&str> = limited_scopes
        .filter(|(scope, _)| (counted.measure.within)(&attributes.object, scope) && !scopes.contains(&scope.scope))
        .map(|(_, shown)| shown.as_str())
        .collect();
    if !uncovered.is_empty() {
        let why = format!("insufficient quota to match these scopes: [{}]", uncovered.join(" "));
        return Err(attributes.fault(why));
    }
    Ok(())
}

/// Adds `more` to a quota's usage, or refuses the write if the sum exceeds the quota's limit.
fn charge(attributes: &mut Attributes, quota: Charged, more: &Usage) -> Result<(), Stop> {
    let Charged { key, entry, document, hard, mut used } = quota;
    let asked = more.clone().only(|name| hard.get(name).is_some());
    if asked.0.is_empty() {
        return Ok(());
    }
    let before = used.clone();
    used.add(&asked);
    let is_over = |name: &str| matches!((used.get(name), hard.get(name)), (Some(used), Some(hard)) if used > hard);
    let exceeded: Vec<&str> = asked.0.keys().map(String::as_str).filter(|name| is_over(name)).collect();
    if !exceeded.is_empty() {
        let shown = |usage: &Usage| {
            let amounts = exceeded.iter().map(|name| (*name, usage.get(name).unwrap_or_default().to_string()));
            let amounts: BTreeMap<&str, String> = amounts.collect();
            amounts.into_iter().map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(",")
        };
        let name = document["metadata"]["name"].as_str().unwrap_or("");
        return Err(attributes.forbidden(format!(
            "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
            shown(&asked),
            shown(&before),
            shown(&hard)
        )));
    }
    if attributes.is_dry_run() {
        return Ok(());
    }
    let mut document = document;
    let fields = meta::fields_mut(&mut document);
    object_mut(fields, "status").insert("used", used.document());
    attributes.write_beside(RESOURCE_QUOTA, key, &entry, document)
}

pub(super) fn configure(configuration: &mut Configuration, document: &Reader) {
    // In older configuration files, the kind of the configuration is in a group of its own.
    let is_old = document.text("apiVersion").is_some_and(|version| version.starts_with(OLD_GROUP));
    let (group, kind) = if is_old { (OLD_GROUP, "Configuration") } else { (GROUP, "ResourceQuotaConfiguration") };
    super::configuration::check(document, group, kind);
    configuration.limited_resources = document.list("limitedResources").unwrap_or_default().iter().map(told).collect();
}

fn told(limited: &Reader) -> Limited {
    let owned = |texts: Option<Vec<&str>>| texts.unwrap_or_default().into_iter().map(str::to_owned).collect::<Vec<_>>();
    let resource = limited.text("resource").unwrap_or("");
    if resource.is_empty() {
        limited.required("resource", "");
    }
    let shown = |scope: Reader| {
        let text = |field: &str| scope.text(field).unwrap_or("");
        let values = owned(scope.texts("values")).join(" ");
        format!("{{{} {} [{values}]}}", text("scopeName"), text("operator"))
    };
    let scopes = limited.get("matchScopes").unwrap_or(&Value::Null);
    Limited {
        group: limited.text("apiGroup").unwrap_or("").to_owned(),
        resource: resource.to_owned(),
        containing: owned(limited.texts("matchContains")),
        scopes: Selector::all(&json!({"scopeSelector": {"matchExpressions": scopes}})),
        shown: limited.list("matchScopes").unwrap_or_default().into_iter().map(shown).collect(),
    }
}

const GROUP: &str = "apiserver.config.k8s.io/";
const OLD_GROUP: &str = "resourcequota.admission.k8s.io/";
