//! ValidatingAdmissionPolicy: rules in expressions, put to use by bindings.

use super::asked::Documents;
use super::expressions::{ANY, Expression, Known, Scope, variable};
use super::registered::{Binding, Policy, Validation};
use super::{Attributes, webhooks};
use crate::cel::value::{Failure, Key};
use crate::cel::{Budget, Type, Value as CelValue};
use crate::kinds::Registers;
use crate::pipeline::effect::Stop;
use crate::refusal::{Refusal, Ruling};
use crate::select::LabelSelector;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// What all expressions of one policy may cost for one binding and parameter.
const COST_MAX: u64 = 10_000_000;
/// What is kept of a message that an expression gives, and of a value for auditors.
const MESSAGE_BYTES_MAX: usize = 5 << 10;
const ANNOTATION_BYTES_MAX: usize = 10 << 10;

/// Why a policy stands in the way.
struct Denial {
    policy: Arc<str>,
    binding: Option<Arc<str>>,
    message: String,
    reason: String,
}

/// What came of one validation.
struct Verdict {
    message: String,
    reason: String,
}

/// What a policy found of one write.
struct Found {
    /// By the number of the validation.
    failures: Vec<(usize, Verdict)>,
    annotations: Vec<(String, String)>,
}

pub(super) fn validate(attributes: &mut Attributes) -> Result<(), Stop> {
    let registered = &attributes.state.registered;
    let is_policy = attributes
        .kind
        .registers
        .is_some_and(|registers| !matches!(registers, Registers::MutatingWebhooks | Registers::ValidatingWebhooks));
    if registered.validating_policies.is_empty() || is_policy || attributes.is_upkeep() {
        return Ok(());
    }
    let mut denials = Vec::new();
    for (name, policy) in registered.validating_policies.concerning(&attributes.kind.resource) {
        let Some(version) = attributes.matches(&policy.matching) else { continue };
        judge(attributes, &name, &policy, version, &mut denials)?;
    }
    match denials.into_iter().next() {
        None => Ok(()),
        Some(denial) => Err(refusal(attributes, denial)),
    }
}

/// All bindings of one policy.
fn judge(
    attributes: &mut Attributes,
    name: &Arc<str>,
    policy: &Arc<Policy>,
    version: usize,
    denials: &mut Vec<Denial>,
) -> Result<(), Stop> {
    let failed = |binding: Option<&Binding>, message: String| {
        let binding = binding.map(|binding| binding.name.clone());
        let denial = Denial { policy: name.clone(), binding, message, reason: String::new() };
        (!policy.is_ignored).then_some(denial)
    };
    if let Some((api_version, kind)) = &policy.parameters
        && parameter_kind(attributes, api_version, kind).is_none()
    {
        let shown = if api_version.contains('/') { api_version.clone() } else { format!("/{api_version}") };
        let shown = shown.trim_start_matches('/');
        let why = format!("failed to find resource referenced by paramKind: '{shown}, Kind={kind}'");
        denials.extend(failed(None, format!("failed to configure policy: {why}")));
        return Ok(());
    }
    let mut annotations: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for binding in attributes.state.registered.validating_bindings(name) {
        if binding.matching.as_ref().is_some_and(|matching| attributes.matches(matching).is_none()) {
            continue;
        }
        let parameters = match parameters(attributes, policy, &binding) {
            Ok(parameters) => parameters,
            Err(why) => {
                denials.extend(failed(Some(&binding), format!("failed to configure binding: {why}")));
                continue;
            }
        };
        for parameter in parameters {
            let found = evaluate(attributes, policy, version, parameter.as_ref())?;
            for (key, value) in found.annotations {
                let values = annotations.entry(key).or_default();
                if !values.contains(&value) {
                    values.push(value);
                }
            }
            for (index, verdict) in found.failures {
                denials.extend(act(attributes, name, &binding, index, verdict));
            }
        }
    }
    for (key, values) in annotations {
        attributes.annotate(format!("{name}/{key}"), values.join(", "));
    }
    Ok(())
}

/// Does with a failed validation what the binding says.
fn act(
    attributes: &mut Attributes,
    policy: &Arc<str>,
    binding: &Binding,
    index: usize,
    verdict: Verdict,
) -> Option<Denial> {
    let mut denial = None;
    for action in &binding.actions {
        match action.as_str() {
            "Warn" => attributes.warn(format!(
                "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{}': {}",
                binding.name, verdict.message
            )),
            "Audit" => {
                let failure = json!([{"message": verdict.message, "policy": **policy, "binding": *binding.name,
                    "expressionIndex": index, "validationActions": binding.actions}]);
                attributes.annotate("validation.policy.admission.k8s.io/validation_failure", failure.to_string());
            }
            _ => {
                denial = Some(Denial {
                    policy: policy.clone(),
                    binding: Some(binding.name.clone()),
                    message: verdict.message.clone(),
                    reason: verdict.reason.clone(),
                });
            }
        }
    }
    denial
}

fn refusal(attributes: &Attributes, denial: Denial) -> Stop {
    let Denial { policy, binding, message, reason } = denial;
    let with = binding.map(|binding| format!(" with binding '{binding}'")).unwrap_or_default();
    let message = format!("ValidatingAdmissionPolicy '{policy}'{with} denied request: {message}");
    let reason = if reason.is_empty() { "Invalid".to_owned() } else { reason };
    let code = match reason.as_str() {
        "Forbidden" => 403,
        "Unauthorized" => 401,
        "RequestEntityTooLarge" => 413,
        _ => 422,
    };
    let subject = attributes.subject();
    let mut details = json!({"name": subject.name, "kind": subject.resource, "causes": [{"message": message}]});
    if !subject.group.is_empty() {
        details["group"] = subject.group.as_str().into();
    }
    let message = format!("{subject} is forbidden: {message}");
    Refusal::Ruled(Box::new(Ruling { code, reason, message, details })).into()
}

/// Evaluates a policy with one parameter.
fn evaluate(
    attributes: &Attributes,
    policy: &Policy,
    version: usize,
    parameter: Option<&Value>,
) -> Result<Found, Stop> {
    let mut found = Found { failures: Vec::new(), annotations: Vec::new() };
    let fault = |index: usize, message: String| (index, Verdict { message, reason: String::new() });
    match webhooks::holds(attributes, &policy.conditions, version)? {
        Ok(true) => {}
        Ok(false) => return Ok(found),
        Err(why) => {
            if !policy.is_ignored {
                found.failures.push(fault(0, why));
            }
            return Ok(found);
        }
    }
    let documents = attributes.documents(version)?;
    let mut evaluation = Evaluation::new(attributes, policy, &documents, parameter);
    for (index, validation) in policy.validations.iter().enumerate() {
        match evaluation.eval(&validation.expression) {
            Ok(CelValue::Bool(true)) => {}
            Ok(_) => {
                let reason =
                    if validation.reason.is_empty() { "Invalid".to_owned() } else { validation.reason.clone() };
                let message = evaluation.message(validation);
                found.failures.push((index, Verdict { message, reason }));
            }
            Err(_) if policy.is_ignored => {}
            Err(why) => found.failures.push(fault(index, why)),
        }
    }
    for (index, (key, expression)) in policy.audit_annotations.iter().enumerate() {
        match evaluation.eval(expression) {
            Ok(CelValue::String(text)) if !text.trim().is_empty() => {
                found.annotations.push((key.clone(), cut(text.trim(), ANNOTATION_BYTES_MAX).to_owned()));
            }
            Ok(_) => {}
            Err(_) if policy.is_ignored => {}
            Err(why) => {
                let why = why.replacen("expression '", "valueExpression '", 1);
                found.failures.push(fault(policy.validations.len() + index, why));
            }
        }
    }
    Ok(found)
}

/// The beginning of a text, at a boundary of characters.
fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The expressions of a policy over one write.
struct Evaluation<'v> {
    policy: &'v Policy,
    scope: Scope<'v>,
    /// Variables that were needed so far.
    computed: BTreeMap<Key<'v>, CelValue<'v>>,
    budget: Budget,
}

impl<'v> Evaluation<'v> {
    fn new(
        attributes: &Attributes,
        policy: &'v Policy,
        documents: &'v Documents,
        parameter: Option<&'v Value>,
    ) -> Evaluation<'v> {
        let mut scope = attributes.scope(documents);
        if policy.parameters.is_some() {
            let value = parameter.map(|parameter| CelValue::json(parameter, &ANY).unwrap_or(CelValue::Null));
            scope.parameters = Some(value.unwrap_or(CelValue::Null));
        }
        Evaluation { policy, scope, computed: BTreeMap::new(), budget: Budget::new(COST_MAX) }
    }

    fn eval(&mut self, expression: &'v Expression) -> Result<CelValue<'v>, String> {
        self.eval_before(expression, self.policy.variables.len())
    }

    /// An expression that sees the variables before this one.
    fn eval_before(&mut self, expression: &'v Expression, count: usize) -> Result<CelValue<'v>, String> {
        let policy = self.policy;
        for (at, (name, of)) in policy.variables[..count].iter().enumerate() {
            if !expression.text.contains(name.as_str()) || self.computed.contains_key(&key(name)) {
                continue;
            }
            let value = self.eval_before(of, at).unwrap_or_else(|why| {
                // Only whoever needs it fails by it.
                CelValue::opaque(Failure(format!("composited variable \"{name}\" fails to evaluate: {why}")))
            });
            self.computed.insert(key(name), value);
        }
        let mut scope = self.scope.clone();
        scope.variables = Some(CelValue::Map(Rc::new(self.computed.clone())));
        expression.eval(|| known(policy, count), &scope, &mut self.budget)
    }

    /// What is told of a validation that failed.
    fn message(&mut self, validation: &'v Validation) -> String {
        let computed = validation.message_expression.as_ref().and_then(|expression| self.eval(expression).ok());
        let computed = match &computed {
            Some(CelValue::String(text)) => text.trim(),
            _ => "",
        };
        if !computed.is_empty() && computed.len() <= MESSAGE_BYTES_MAX && !computed.contains('\n') {
            return computed.to_owned();
        }
        match validation.message.trim() {
            "" => format!("failed expression: {}", validation.expression.text.trim()),
            message => message.to_owned(),
        }
    }
}

fn key<'v>(name: &'v str) -> Key<'v> {
    Key::String(name.into())
}

/// What an expression of the policy sees that stands behind so many of its variables.
fn known(policy: &Policy, count: usize) -> Known {
    let typed = policy.variables[..count].iter().enumerate().filter_map(|(at, (name, expression))| {
        let program = expression.program(|| known(policy, at));
        variable(name, program.map_or(Type::Dyn, |program| program.result().clone()))
    });
    Known { has_parameters: policy.parameters.is_some(), variables: Some(typed.collect()) }
}

fn parameter_kind(attributes: &Attributes, api_version: &str, kind: &str) -> Option<(crate::kinds::KindId, usize)> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    attributes.state.registry.find_kind(group, version, kind)
}

/// The parameters of a binding; one that is nothing where there are none to be.
fn parameters(attributes: &Attributes, policy: &Policy, binding: &Binding) -> Result<Vec<Option<Value>>, String> {
    let reference = &binding.parameters;
    let Some((api_version, kind)) = policy.parameters.as_ref().filter(|_| reference.is_object()) else {
        return Ok(vec![None]);
    };
    let Some((id, version)) = parameter_kind(attributes, api_version, kind) else {
        return Err(format!("paramKind kind `{api_version}, Kind={kind}` not known"));
    };
    let shape = attributes.state.kind(id);
    let own = reference["namespace"].as_str().unwrap_or("");
    let namespace = match (shape.is_namespaced(), own, attributes.namespace()) {
        (false, "", _) => "",
        (false, ..) => return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".into()),
        (true, "", "") => {
            return Err("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".into());
        }
        (true, "", of_request) => of_request,
        (true, own, _) => own,
    };
    let show = |entry: &crate::state::Entry| Some(entry.document_in(shape, version));
    let name = reference["name"].as_str().unwrap_or("");
    let found: Vec<Option<Value>> = if name.is_empty() {
        let selector = LabelSelector::from_object(&reference["selector"])?;
        let prefix = crate::state::prefix(Some(namespace));
        let all = attributes.state.scan(id, &prefix, None);
        all.filter(|(_, entry)| selector.matches_by(|key| entry.index.label(key)))
            .map(|(_, entry)| show(entry))
            .collect()
    } else {
        let key = crate::object::meta::key(Some(namespace), name);
        attributes.state.get(id, &key).map(|entry| show(entry)).into_iter().collect()
    };
    if found.is_empty() && reference["parameterNotFoundAction"] == "Deny" {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".into());
    }
    Ok(found)
}
