//! The registered webhooks and policies, an index kept up to date with the objects that define them.
//!
//! Each event on such an object updates the index. A request looks up the webhooks and policies for its resource; if
//! there are none, this costs one look-up.

use super::expressions::Expression;
use super::rules::{Matching, rules};
use crate::kinds::Registers;
use holdfast_value::Value;
use imbl::OrdMap;
use std::collections::BTreeSet;
use std::sync::Arc;

/// All registered webhooks and policies. A clone is cheap because it shares the content.
#[derive(Clone, Default)]
pub struct Registered {
    pub mutating: Family<Vec<Webhook>>,
    pub validating: Family<Vec<Webhook>>,
    pub validating_policies: Family<Policy>,
    pub mutating_policies: Family<Policy>,
    /// The bindings, by policy name and binding name.
    validating_bindings: OrdMap<(Arc<str>, Arc<str>), Arc<Binding>>,
    mutating_bindings: OrdMap<(Arc<str>, Arc<str>), Arc<Binding>>,
}

/// The objects of one kind by name, and by the resources that their rules name.
pub struct Family<T> {
    by_name: OrdMap<Arc<str>, Arc<T>>,
    /// The names of the objects by the resource in their rules: `pods`, or `*` for all resources.
    by_resource: OrdMap<Arc<str>, BTreeSet<Arc<str>>>,
}

impl<T> Default for Family<T> {
    fn default() -> Self {
        Self { by_name: OrdMap::new(), by_resource: OrdMap::new() }
    }
}

impl<T> Clone for Family<T> {
    fn clone(&self) -> Self {
        Self { by_name: self.by_name.clone(), by_resource: self.by_resource.clone() }
    }
}

impl<T: Concerns> Family<T> {
    fn put(&mut self, name: &Arc<str>, value: Option<T>) {
        if let Some(before) = self.by_name.remove(name) {
            for resource in before.resources() {
                if let Some(names) = self.by_resource.get_mut(&*resource) {
                    names.remove(name);
                    if names.is_empty() {
                        self.by_resource.remove(&*resource);
                    }
                }
            }
        }
        let Some(value) = value else { return };
        for resource in value.resources() {
            self.by_resource.entry(resource.as_str().into()).or_default().insert(name.clone());
        }
        self.by_name.insert(name.clone(), Arc::new(value));
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub fn get(&self, name: &str) -> Option<&Arc<T>> {
        self.by_name.get(name)
    }

    fn concerns(&self, resource: &str) -> bool {
        ["*", resource].into_iter().any(|resource| self.by_resource.contains_key(resource))
    }

    /// The objects that may match a resource, by name.
    pub fn concerning(&self, resource: &str) -> Vec<(Arc<str>, Arc<T>)> {
        if self.by_name.is_empty() {
            return Vec::new();
        }
        let names = ["*", resource].into_iter().filter_map(|resource| self.by_resource.get(resource));
        let names: BTreeSet<&Arc<str>> = names.flatten().collect();
        names.into_iter().filter_map(|name| Some((name.clone(), self.by_name.get(name)?.clone()))).collect()
    }

    /// All objects, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<T>)> {
        self.by_name.iter()
    }
}

/// The resources that an object's rules name.
pub trait Concerns {
    fn resources(&self) -> BTreeSet<String>;
}

/// One webhook of a webhook configuration.
pub struct Webhook {
    pub name: String,
    pub client: Value,
    pub matching: Matching,
    pub conditions: Vec<Condition>,
    /// Whether the failure policy is Ignore.
    pub is_ignored: bool,
    /// Whether the webhook is called again if the object changes after its call.
    pub is_reinvoked: bool,
    /// Whether the webhook has no side effects, at least in dry runs, so that it may be called for a dry run.
    pub takes_dry_runs: bool,
    pub timeout_seconds: u64,
    /// The AdmissionReview version that the webhook gets.
    pub review_version: &'static str,
}

/// A match condition: an expression that must be true, otherwise the webhook or policy is skipped.
pub struct Condition {
    pub name: String,
    pub expression: Expression,
}

impl Concerns for Vec<Webhook> {
    fn resources(&self) -> BTreeSet<String> {
        self.iter().flat_map(|webhook| webhook.matching.resources()).collect()
    }
}

/// A validating or mutating policy.
pub struct Policy {
    pub matching: Matching,
    pub conditions: Vec<Condition>,
    pub is_ignored: bool,
    pub is_reinvoked: bool,
    /// The `apiVersion` and `kind` of the policy's parameters; `None` if the policy has no parameters.
    pub parameters: Option<(String, String)>,
    /// The variables: name and expression. Each expression can use the variables before it.
    pub variables: Vec<(String, Expression)>,
    pub validations: Vec<Validation>,
    pub audit_annotations: Vec<(String, Expression)>,
    pub mutations: Vec<Mutation>,
}

pub struct Validation {
    pub expression: Expression,
    pub message: String,
    pub message_expression: Option<Expression>,
    pub reason: String,
}

pub struct Mutation {
    pub is_apply: bool,
    pub expression: Expression,
}

impl Concerns for Policy {
    fn resources(&self) -> BTreeSet<String> {
        self.matching.resources().into_iter().collect()
    }
}

/// A binding, which activates a policy.
pub struct Binding {
    pub name: Arc<str>,
    /// The binding's own matching; `None` if the binding covers all writes that the policy matches.
    pub matching: Option<Matching>,
    pub parameters: Value,
    pub actions: Vec<String>,
}

impl Registered {
    /// Updates the index with the newest state of an object; `None` if the object was deleted.
    pub fn note(&mut self, registers: Registers, name: &Arc<str>, document: Option<&Value>) {
        match registers {
            Registers::MutatingWebhooks => self.mutating.put(name, document.map(webhooks)),
            Registers::ValidatingWebhooks => self.validating.put(name, document.map(webhooks)),
            Registers::ValidatingPolicy => self.validating_policies.put(name, document.map(policy)),
            Registers::MutatingPolicy => self.mutating_policies.put(name, document.map(policy)),
            Registers::ValidatingBinding => bind(&mut self.validating_bindings, name, document),
            Registers::MutatingBinding => bind(&mut self.mutating_bindings, name, document),
        }
    }

    /// Whether any policy may match a resource. If so, judging may take a second or more.
    pub fn has_policies_on(&self, resource: &str) -> bool {
        self.validating_policies.concerns(resource) || self.mutating_policies.concerns(resource)
    }

    /// The bindings of a policy, by name.
    pub fn validating_bindings(&self, policy: &Arc<str>) -> Vec<Arc<Binding>> {
        bindings(&self.validating_bindings, policy)
    }

    pub fn mutating_bindings(&self, policy: &Arc<str>) -> Vec<Arc<Binding>> {
        bindings(&self.mutating_bindings, policy)
    }
}

type Bindings = OrdMap<(Arc<str>, Arc<str>), Arc<Binding>>;

fn bindings(all: &Bindings, policy: &Arc<str>) -> Vec<Arc<Binding>> {
    let from = (policy.clone(), Arc::from(""));
    let range = all.range(from..).take_while(|((of, _), _)| of == policy);
    range.map(|(_, binding)| binding.clone()).collect()
}

fn bind(all: &mut Bindings, name: &Arc<str>, document: Option<&Value>) {
    // The binding may have named another policy before. There are few bindings, so a scan is cheap.
    let before = all.keys().find(|(_, bound)| bound == name).cloned();
    if let Some(before) = before {
        all.remove(&before);
    }
    let Some(document) = document else { return };
    let spec = &document["spec"];
    let policy: Arc<str> = text(spec, "policyName").into();
    let actions = spec["validationActions"].as_array().into_iter().flatten();
    let binding = Binding {
        name: name.clone(),
        matching: spec["matchResources"].as_object().map(|_| matching(&spec["matchResources"])),
        parameters: spec["paramRef"].clone(),
        actions: actions.filter_map(Value::as_str).map(str::to_owned).collect(),
    };
    all.insert((policy, name.clone()), Arc::new(binding));
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or("")
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn webhooks(configuration: &Value) -> Vec<Webhook> {
    list(&configuration["webhooks"]).map(webhook).collect()
}

fn webhook(webhook: &Value) -> Webhook {
    let versions = list(&webhook["admissionReviewVersions"]).filter_map(Value::as_str);
    let review_version = versions.into_iter().find_map(|version| match version {
        "v1" => Some("v1"),
        "v1beta1" => Some("v1beta1"),
        _ => None,
    });
    Webhook {
        name: text(webhook, "name").to_owned(),
        client: webhook["clientConfig"].clone(),
        matching: Matching::new(webhook, rules(&webhook["rules"]), Vec::new()),
        conditions: conditions(webhook),
        is_ignored: text(webhook, "failurePolicy") == "Ignore",
        is_reinvoked: text(webhook, "reinvocationPolicy") == "IfNeeded",
        takes_dry_runs: matches!(text(webhook, "sideEffects"), "None" | "NoneOnDryRun"),
        timeout_seconds: webhook["timeoutSeconds"].as_u64().unwrap_or(10).clamp(1, 30),
        review_version: review_version.unwrap_or("v1"),
    }
}

fn conditions(holder: &Value) -> Vec<Condition> {
    let conditions = list(&holder["matchConditions"]);
    let condition = |condition: &Value| Condition {
        name: text(condition, "name").to_owned(),
        expression: Expression::new(text(condition, "expression")),
    };
    conditions.map(condition).collect()
}

/// The `matchConstraints` of a policy or `matchResources` of a binding.
fn matching(resources: &Value) -> Matching {
    Matching::new(resources, rules(&resources["resourceRules"]), rules(&resources["excludeResourceRules"]))
}

fn policy(document: &Value) -> Policy {
    let spec = &document["spec"];
    let named = |list_of: &str, name: &str, expression: &str| {
        let items = list(&spec[list_of]);
        items.map(|item| (text(item, name).to_owned(), Expression::new(text(item, expression)))).collect()
    };
    let optional = |expression: &str| (!expression.trim().is_empty()).then(|| Expression::new(expression));
    Policy {
        matching: matching(&spec["matchConstraints"]),
        conditions: conditions(spec),
        is_ignored: text(spec, "failurePolicy") == "Ignore",
        is_reinvoked: text(spec, "reinvocationPolicy") == "IfNeeded",
        parameters: spec["paramKind"].as_object().map(|_| {
            let kind = &spec["paramKind"];
            (text(kind, "apiVersion").to_owned(), text(kind, "kind").to_owned())
        }),
        variables: named("variables", "name", "expression"),
        validations: list(&spec["validations"])
            .map(|validation| Validation {
                expression: Expression::new(text(validation, "expression")),
                message: text(validation, "message").to_owned(),
                message_expression: optional(text(validation, "messageExpression")),
                reason: text(validation, "reason").to_owned(),
            })
            .collect(),
        audit_annotations: named("auditAnnotations", "key", "valueExpression"),
        mutations: list(&spec["mutations"])
            .map(|mutation| {
                let is_apply = text(mutation, "patchType") == "ApplyConfiguration";
                let field = if is_apply { "applyConfiguration" } else { "jsonPatch" };
                Mutation { is_apply, expression: Expression::new(text(&mutation[field], "expression")) }
            })
            .collect(),
    }
}
