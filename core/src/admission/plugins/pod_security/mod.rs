//! PodSecurity: pods must meet the standards that their namespace's labels set.

mod checks;
mod policy;

use self::checks::{Pod, Violation, violations};
use self::policy::{PREFIX, Policy, Standard};
use super::pods::{self, list};
use crate::admission::plugins::Configuration;
use crate::admission::{Attributes, Observation, Operation};
use crate::kinds::KindId;
use crate::kinds::known::{NAMESPACE, POD};
use crate::object::reader::Reader;
use crate::pipeline::effect::Stop;
use crate::refusal::{Refusal, Subject};
use crate::state::Entry;
use holdfast_value::Value;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The operator's configuration of PodSecurity.
#[derive(Debug, Clone, Default)]
pub struct PodSecurity {
    defaults: Policy,
    exempt_users: Vec<String>,
    exempt_namespaces: Vec<String>,
    exempt_runtime_classes: Vec<String>,
}

/// Subresources that do not affect how a pod runs.
const INNOCENT_PARTS: [&str; 8] = ["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"];
/// The prefix of an old annotation with a container's seccomp profile; the container's name follows.
const SECCOMP_OF_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
/// The maximum number of pods of a namespace that are checked when its standard is raised.
const PODS_MAX: usize = 3000;

impl PodSecurity {
    fn is_class_exempt(&self, class: Option<&str>) -> bool {
        class.is_some_and(|class| self.exempt_runtime_classes.iter().any(|exempt| exempt == class))
    }
}

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
    match attributes.kind.content.pods_at {
        Some(at) if attributes.subresource().is_empty() => template(attributes, at),
        _ => Ok(()),
    }
}

fn pod(attributes: &mut Attributes) -> Result<(), Stop> {
    if is_exempt(attributes) {
        return Ok(());
    }
    let (policy, faults) = policy_of(attributes);
    if faults.is_none() && policy.asks_nothing() {
        attributes.annotate(format!("{PREFIX}enforce-policy"), Standard::PRIVILEGED.to_string());
        observe(attributes, true, "enforce", &policy.enforce);
        return Ok(());
    }
    if attributes.operation == Operation::Update && !matters(&attributes.object, attributes.old) {
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

/// A template is never refused, because its pods are checked when they are created. Its violations only cause warnings
/// and audit annotations.
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

/// Adds audit annotations and warnings about the violations of a pod. Returns the reason if the pod is refused.
fn evaluate(
    attributes: &mut Attributes,
    policy: Policy,
    faults: Option<String>,
    pod: &Value,
    is_enforced: bool,
) -> Option<String> {
    if attributes.admission.configuration.pod_security.is_class_exempt(pod["spec"]["runtimeClassName"].as_str()) {
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

/// The policy of the write's namespace, and faults in its labels.
fn policy_of(attributes: &Attributes) -> (Policy, Option<String>) {
    let defaults = &attributes.admission.configuration.pod_security.defaults;
    let Some(entry) = attributes.namespace_entry() else { return (*defaults, None) };
    // Most namespaces have none of these labels; the index shows this without parsing the object.
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

/// Whether an update changes a field that the checks read: the containers, their images or their seccomp annotations.
fn matters(new: &Value, old: &Value) -> bool {
    let differs = |new_one: &Value, old_one: &Value| {
        let annotation = format!("{SECCOMP_OF_CONTAINER}{}", new_one["name"].as_str().unwrap_or(""));
        new_one["image"] != old_one["image"] || pods::annotation(new, &annotation) != pods::annotation(old, &annotation)
    };
    let containers = |pod: &'_ Value, field: &str| list(&pod["spec"][field]).cloned().collect::<Vec<_>>();
    let is_other = |field: &str| {
        let (new, old) = (containers(new, field), containers(old, field));
        new.len() != old.len() || new.iter().zip(&old).any(|(new, old)| differs(new, old))
    };
    // Ephemeral containers are matched by name.
    let before = containers(old, "ephemeralContainers");
    let is_new = |container: &Value| {
        before.iter().find(|old| old["name"] == container["name"]).is_none_or(|old| differs(container, old))
    };
    is_other("containers") || is_other("initContainers") || list(&new["spec"]["ephemeralContainers"]).any(is_new)
}

/// For a Namespace: validates the labels, and warns of existing pods that violate a raised standard.
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
    let is_raised = new.enforce != old.enforce
        && !new.enforce.asks_nothing()
        && !(new.enforce.version == old.enforce.version && new.enforce.level <= old.enforce.level);
    if !is_new && !is_raised {
        return Ok(());
    }
    if configuration.exempt_namespaces.iter().any(|exempt| exempt == attributes.name()) {
        if !new.asks_nothing() && !new.is_like(&configuration.defaults) {
            let name = attributes.name();
            let policy = new.of_labels_shown(&attributes.object["metadata"]["labels"]);
            attributes.warn(format!(
                "namespace \"{name}\" is exempt from Pod Security, and the policy ({policy}) will be ignored"
            ));
        }
        return Ok(());
    }
    if !is_new {
        warn_of_pods(attributes, &new.enforce);
    }
    Ok(())
}

/// Warns of pods that violate the standard, grouped by their violations.
fn warn_of_pods(attributes: &mut Attributes, standard: &Standard) {
    let name = attributes.name().to_owned();
    let Some(kind) = attributes.id_of(POD) else { return };
    let (pods, count) = looked_at(attributes, kind, &name);
    // For each list of violations: the first pod's name, and the number of pods.
    let mut broken: BTreeMap<String, (String, usize)> = BTreeMap::new();
    for entry in pods {
        let pod = entry.document();
        let seen = Pod { annotations: &pod["metadata"]["annotations"], spec: &pod["spec"] };
        let reasons = violations(standard, seen).into_iter().map(|violation| violation.reason).collect::<Vec<_>>();
        if reasons.is_empty() {
            continue;
        }
        let name = pod["metadata"]["name"].as_str().unwrap_or("");
        let (first, count) = broken.entry(reasons.join(", ")).or_insert_with(|| (name.to_owned(), 0));
        if name < first.as_str() {
            name.clone_into(first);
        }
        *count += 1;
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
    for warning in told_of(broken) {
        attributes.warn(warning);
    }
}

/// The warnings, one for each list of violations. The lines are sorted as whole texts, so `a (and 1 other pod)` comes
/// before `a:`.
fn told_of(broken: BTreeMap<String, (String, usize)>) -> Vec<String> {
    let told = broken.into_iter().map(|(reasons, (pod, count))| match count {
        1 => format!("{pod}: {reasons}"),
        2 => format!("{pod} (and 1 other pod): {reasons}"),
        count => format!("{pod} (and {} other pods): {reasons}", count - 1),
    });
    let mut told: Vec<String> = told.collect();
    told.sort_unstable();
    told
}

/// The pods of a namespace to check, and the number of pods to report. Pods of exempt runtime classes are skipped. If
/// there are too many, pods without a controller and one pod of each controller are checked first, because the pods of
/// one controller are mostly alike.
fn looked_at(attributes: &Attributes, kind: KindId, namespace: &str) -> (Vec<Arc<Entry>>, usize) {
    let prefix = crate::state::prefix(Some(namespace));
    let all = attributes.state.scan(kind, &prefix, None).map(|(_, entry)| entry);
    let configuration = &attributes.admission.configuration.pod_security;
    let count = attributes.state.count_of(kind, &prefix, None);
    if count <= PODS_MAX && configuration.exempt_runtime_classes.is_empty() {
        return (all.cloned().collect(), count);
    }
    let (mut first, mut others, mut controllers) = (Vec::new(), Vec::new(), BTreeSet::new());
    for entry in all {
        let json = entry.json();
        let glance: Glance = serde_json::from_slice(&json).unwrap_or_default();
        if configuration.is_class_exempt(glance.spec.class) {
            continue;
        }
        match glance.metadata.owners.into_iter().find(|owner| owner.is_controller) {
            Some(owner) if !controllers.insert(owner.uid.to_owned()) => others.push(entry.clone()),
            _ => first.push(entry.clone()),
        }
    }
    let count = first.len() + others.len();
    first.extend(others);
    first.truncate(PODS_MAX);
    (first, count)
}

/// The fields of a pod that decide whether the pod is checked when its namespace's standard is raised.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Glance<'a> {
    #[serde(borrow)]
    metadata: GlanceAtMetadata<'a>,
    #[serde(borrow)]
    spec: GlanceAtSpec<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct GlanceAtMetadata<'a> {
    #[serde(borrow, rename = "ownerReferences")]
    owners: Vec<GlanceAtOwner<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct GlanceAtOwner<'a> {
    uid: &'a str,
    #[serde(rename = "controller")]
    is_controller: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct GlanceAtSpec<'a> {
    #[serde(rename = "runtimeClassName")]
    class: Option<&'a str>,
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
