//! PodSecurity: the pods of a namespace keep to the standard that its labels name.

mod checks;
mod policy;

use self::checks::{Pod, Violation, violations};
use self::policy::{PREFIX, Policy, Standard};
use super::pods::{CONTAINERS, list};
use crate::admission::settings::Configuration;
use crate::admission::{Attributes, Observation, Operation};
use crate::kinds::known::{NAMESPACE, POD};
use crate::object::reader::Reader;
use crate::pipeline::effect::Stop;
use crate::refusal::{Refusal, Subject};
use serde_json::Value;
use std::sync::Arc;

/// What the operator says of it.
#[derive(Debug, Clone, Default)]
pub struct PodSecurity {
    defaults: Policy,
    exempt_users: Vec<String>,
    exempt_namespaces: Vec<String>,
    exempt_runtime_classes: Vec<String>,
}

/// Parts of pods that say nothing of how they run.
const INNOCENT_PARTS: [&str; 8] = ["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"];
/// How many pods of a namespace are looked at when its standard is raised.
const PODS_MAX: usize = 3000;

pub(super) fn validate(attributes: &mut Attributes) -> Result<(), Stop> {
    if !matches!(attributes.operation, Operation::Create | Operation::Update) {
        return Ok(());
    }
    if attributes.is_on(NAMESPACE) {
        return namespace(attributes);
    }
    if attributes.is_on(POD) {
        return if INNOCENT_PARTS.contains(&attributes.subresource()) { Ok(()) } else { pod(attributes) };
    }
    match attributes.kind.pods_at {
        Some(at) if attributes.subresource().is_empty() => template(attributes, at),
        _ => Ok(()),
    }
}

fn pod(attributes: &mut Attributes) -> Result<(), Stop> {
    if is_exempt(attributes) {
        return Ok(());
    }
    let (policy, faults) = policy_of(attributes);
    let policies = [policy.enforce, policy.audit, policy.warn];
    if faults.is_none() && policies.iter().all(Standard::asks_nothing) {
        attributes.annotate(format!("{PREFIX}enforce-policy"), Standard::PRIVILEGED.to_string());
        observe(attributes, true, "enforce", &policy.enforce);
        return Ok(());
    }
    if attributes.operation == Operation::Update && !runs_something_new(&attributes.object, attributes.old) {
        return Ok(());
    }
    let object = std::mem::take(&mut attributes.object);
    let refused = evaluate(attributes, policy, faults, &object, true);
    attributes.object = object;
    match refused {
        Some(refused) => Err(attributes.forbidden(format!("violates {refused}"))),
        None => Ok(()),
    }
}

/// Templates are not refused: what made them may not be the one to blame, and their pods are judged anyway.
fn template(attributes: &mut Attributes, at: &str) -> Result<(), Stop> {
    if is_exempt(attributes) {
        return Ok(());
    }
    let (policy, faults) = policy_of(attributes);
    if faults.is_none() && policy.audit.asks_nothing() && policy.warn.asks_nothing() {
        return Ok(());
    }
    let holder = at.strip_suffix("/spec").unwrap_or(at);
    let Some(template) = attributes.object.pointer(holder).filter(|template| template.is_object()) else {
        return Ok(());
    };
    let template = template.clone();
    evaluate(attributes, policy, faults, &template, false);
    Ok(())
}

/// Tells what there is to tell, and gives back what the pod is refused for.
fn evaluate(
    attributes: &mut Attributes,
    policy: Policy,
    faults: Option<String>,
    pod: &Value,
    is_enforced: bool,
) -> Option<String> {
    let classes = &attributes.admission.configuration.pod_security.exempt_runtime_classes;
    let class = pod["spec"]["runtimeClassName"].as_str();
    if class.is_some_and(|class| classes.iter().any(|exempt| exempt == class)) {
        attributes.annotate(format!("{PREFIX}exempt"), "runtimeClass");
        attributes.observe(Observation::PodSecurityExemption);
        return None;
    }
    if let Some(faults) = faults {
        attributes.annotate(format!("{PREFIX}error"), format!("Failed to parse policy: {faults}"));
        attributes.observe(Observation::PodSecurityError { is_fatal: false });
    }
    let pod = Pod { annotations: &pod["metadata"]["annotations"], spec: &pod["spec"] };
    let told = |standard: &Standard| {
        let violations = violations(standard, pod);
        (!violations.is_empty()).then(|| format!("PodSecurity \"{standard}\": {}", details(&violations)))
    };
    let mut refused = None;
    if is_enforced {
        attributes.annotate(format!("{PREFIX}enforce-policy"), policy.enforce.to_string());
        refused = told(&policy.enforce);
        observe(attributes, refused.is_none(), "enforce", &policy.enforce);
    }
    if let Some(told) = told(&policy.audit) {
        attributes.annotate(format!("{PREFIX}audit-violations"), format!("would violate {told}"));
        observe(attributes, false, "audit", &policy.audit);
    }
    if refused.is_none()
        && let Some(told) = told(&policy.warn)
    {
        attributes.warn(format!("would violate {told}"));
        observe(attributes, false, "warn", &policy.warn);
    }
    refused
}

fn observe(attributes: &mut Attributes, is_allowed: bool, mode: &'static str, standard: &Standard) {
    let told = standard.to_string();
    let (level, version) = told.split_once(':').unwrap_or((&told, "latest"));
    let (level, version) = (level.to_owned(), version.to_owned());
    attributes.observe(Observation::PodSecurity { is_allowed, mode, level, version });
}

fn details(violations: &[Violation]) -> String {
    let told = violations.iter().map(|violation| match violation.detail.as_str() {
        "" => violation.reason.clone(),
        detail => format!("{} ({detail})", violation.reason),
    });
    told.collect::<Vec<_>>().join(", ")
}

/// The policy for the namespace of the write, and what is wrong with what its labels say.
fn policy_of(attributes: &Attributes) -> (Policy, Option<String>) {
    let defaults = &attributes.admission.configuration.pod_security.defaults;
    let Some(entry) = attributes.namespace_entry() else { return (*defaults, None) };
    // Most have no such label, which shows without reading them.
    if !entry.index.labels.iter().any(|(label, _)| label.starts_with(PREFIX)) {
        return (*defaults, None);
    }
    let labels = entry.index.labels.iter().map(|(key, value)| (key.to_string(), Value::from(&**value)));
    let (policy, causes) = Policy::of_labels(&Value::Object(labels.collect()), defaults);
    let faults = causes.iter().map(ToString::to_string).collect::<Vec<_>>();
    let faults = match faults.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        all => Some(format!("[{}]", all.join(", "))),
    };
    (policy, faults)
}

fn is_exempt(attributes: &mut Attributes) -> bool {
    let configuration = &attributes.admission.configuration.pod_security;
    let (namespace, user) = (attributes.namespace(), &attributes.user().name);
    let because = if configuration.exempt_namespaces.iter().any(|exempt| exempt == namespace) {
        "namespace"
    } else if configuration.exempt_users.contains(user) {
        "user"
    } else {
        return false;
    };
    attributes.annotate(format!("{PREFIX}exempt"), because);
    attributes.observe(Observation::PodSecurityExemption);
    true
}

/// Whether an update adds a container, or has one run another image.
fn runs_something_new(new: &Value, old: &Value) -> bool {
    let find = |spec: &'_ Value, field: &str, name: &Value| {
        list(&spec[field]).find(|container| container["name"] == *name).cloned()
    };
    CONTAINERS.iter().any(|field| {
        list(&new["spec"][*field]).any(|container| {
            find(&old["spec"], field, &container["name"]).is_none_or(|before| before["image"] != container["image"])
        })
    })
}

/// The labels of a namespace are to be understood, and whoever asks for more learns which pods break it already.
fn namespace(attributes: &mut Attributes) -> Result<(), Stop> {
    if !attributes.subresource().is_empty() {
        return Ok(());
    }
    let configuration = &attributes.admission.configuration.pod_security;
    let of = |namespace: &Value| Policy::of_labels(&namespace["metadata"]["labels"], &configuration.defaults);
    let (new, causes) = of(&attributes.object);
    let (old, old_causes) = of(attributes.old);
    let is_new = attributes.operation == Operation::Create;
    if !causes.is_empty() && (is_new || causes != old_causes) {
        let subject = Subject { resource: attributes.kind.kind.clone(), ..attributes.subject() };
        return Err(Refusal::Invalid { subject, causes }.into());
    }
    let is_exempt = configuration.exempt_namespaces.iter().any(|exempt| exempt == attributes.name());
    let is_raised = new.enforce != old.enforce
        && !new.enforce.asks_nothing()
        && !(new.enforce.version == old.enforce.version && new.enforce.level <= old.enforce.level);
    if is_exempt {
        if new != configuration.defaults && (is_new || new != old) {
            let name = attributes.name().to_owned();
            let policy = format!("enforce={}, audit={}, warn={}", new.enforce, new.audit, new.warn);
            attributes.warn(format!(
                "namespace \"{name}\" is exempt from Pod Security, and the policy ({policy}) will be ignored"
            ));
        }
        return Ok(());
    }
    if !is_new && is_raised {
        warn_of_pods(attributes, &new.enforce);
    }
    Ok(())
}

/// Tells which pods break the standard, those that break the same together.
fn warn_of_pods(attributes: &mut Attributes, standard: &Standard) {
    let name = attributes.name().to_owned();
    let Some(kind) = attributes.id_of(POD) else { return };
    let prefix = crate::state::prefix(Some(&name));
    let count = attributes.state.count_of(kind, &prefix, None);
    let mut broken: Vec<(String, String, usize)> = Vec::new();
    let pods = attributes.state.scan(kind, &prefix, None).take(PODS_MAX).map(|(_, entry)| Arc::clone(entry));
    for entry in pods {
        let pod = entry.document();
        let seen = Pod { annotations: &pod["metadata"]["annotations"], spec: &pod["spec"] };
        let reasons = violations(standard, seen).into_iter().map(|violation| violation.reason).collect::<Vec<_>>();
        if reasons.is_empty() {
            continue;
        }
        let reasons = reasons.join(", ");
        match broken.iter_mut().find(|(_, known, _)| *known == reasons) {
            Some((_, _, count)) => *count += 1,
            None => broken.push((pod["metadata"]["name"].as_str().unwrap_or("").to_owned(), reasons, 1)),
        }
    }
    if count > PODS_MAX {
        attributes.warn(format!(
            "new PodSecurity enforce level only checked against the first {PODS_MAX} of {count} existing pods"
        ));
    }
    if broken.is_empty() {
        return;
    }
    attributes.warn(format!(
        "existing pods in namespace \"{name}\" violate the new PodSecurity enforce level \"{standard}\""
    ));
    for (pod, reasons, count) in broken {
        attributes.warn(match count {
            1 => format!("{pod}: {reasons}"),
            2 => format!("{pod} (and 1 other pod): {reasons}"),
            count => format!("{pod} (and {} other pods): {reasons}", count - 1),
        });
    }
}

pub(super) fn configure(configuration: &mut Configuration, document: &Reader) {
    const GROUP: &str = "pod-security.admission.config.k8s.io/";
    super::configuration::check(document, GROUP, "PodSecurityConfiguration");
    let exemptions = document.child("exemptions");
    let names = |field: &str| {
        let names = exemptions.as_ref().and_then(|exemptions| exemptions.texts(field)).unwrap_or_default();
        names.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    configuration.pod_security = PodSecurity {
        defaults: document.child("defaults").map(|defaults| Policy::of_defaults(&defaults)).unwrap_or_default(),
        exempt_users: names("usernames"),
        exempt_namespaces: names("namespaces"),
        exempt_runtime_classes: names("runtimeClasses"),
    };
}
