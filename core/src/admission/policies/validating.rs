//! ValidatingAdmissionPolicy: validations in CEL, activated by bindings.

use super::super::asked::Shown;
use super::super::observed::error_type;
use super::super::registered::{Binding, Policy, Validation};
use super::super::{Attributes, Observation, webhooks};
use super::{COST_MAX, Evaluation, Invocation, invocations, is_exempt};
use crate::cel::Value as CelValue;
use crate::pipeline::effect::Stop;
use crate::refusal::{Refusal, Ruling, RulingKind};
use holdfast_value::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The maximum number of bytes of a message from a message expression; a longer message is not used.
const MESSAGE_BYTES_MAX: usize = 5 << 10;
/// The maximum number of bytes of an audit annotation; longer annotations are cut.
const ANNOTATION_BYTES_MAX: usize = 10 << 10;

/// Why a policy refuses a write.
struct Denial {
    policy: Arc<str>,
    binding: Option<Arc<str>>,
    message: String,
    reason: String,
}

/// A failed validation.
struct Verdict {
    message: String,
    reason: String,
    /// Whether the evaluation failed, so that it is unknown whether the write satisfies the validation.
    is_error: bool,
}

/// The results of a policy for one write.
struct Found {
    /// The failed validations, each with its index in the policy.
    failures: Vec<(usize, Verdict)>,
    annotations: Vec<(String, String)>,
    /// Audit annotations that could not be evaluated, if the failure policy is Fail. The write is refused because of
    /// these annotations, whatever the binding's validation actions are.
    untold: Vec<String>,
    /// The errors of expressions that the failure policy ignores.
    ignored: Vec<String>,
}

pub(in crate::admission) fn validate(attributes: &mut Attributes) -> Result<(), Stop> {
    let registered = &attributes.state.registered;
    if registered.validating_policies.is_empty() || is_exempt(attributes) {
        return Ok(());
    }
    let (mut denials, mut shown) = (Vec::new(), Shown::default());
    for (name, policy) in registered.validating_policies.concerning(&attributes.kind.resource) {
        let Some(version) = attributes.matches(&policy.matching) else { continue };
        judge(attributes, &name, &policy, version, &mut shown, &mut denials)?;
    }
    match denials.into_iter().next() {
        None => Ok(()),
        Some(denial) => Err(refusal(attributes, denial)),
    }
}

/// Evaluates one policy with all its bindings.
fn judge(
    attributes: &mut Attributes,
    name: &Arc<str>,
    policy: &Arc<Policy>,
    version: usize,
    shown: &mut Shown,
    denials: &mut Vec<Denial>,
) -> Result<(), Stop> {
    let bindings = attributes.state.registered.validating_bindings(name);
    let (invocations, faults) = invocations(attributes, policy, bindings);
    denials.extend(faults.into_iter().filter(|_| !policy.is_ignored).map(|fault| Denial {
        policy: name.clone(),
        binding: fault.binding,
        message: fault.message,
        reason: String::new(),
    }));
    let mut annotations: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for Invocation { binding, parameter } in &invocations {
        let began = (attributes.ticks)();
        let parameter = parameter.as_ref().map(|parameter| parameter.document(attributes)).transpose()?;
        let found = evaluate(attributes, name, policy, version, parameter.as_ref(), shown)?;
        let nanos = (attributes.ticks)().saturating_sub(began);
        for why in &found.ignored {
            observe(attributes, name, binding, (error_type(why), "allow"), nanos);
        }
        for (key, value) in found.annotations {
            let values = annotations.entry(key).or_default();
            if !values.contains(&value) {
                values.push(value);
            }
        }
        for (index, verdict) in found.failures {
            denials.extend(act(attributes, name, binding, index, verdict, nanos));
        }
        for message in found.untold {
            observe(attributes, name, binding, (error_type(&message), "deny"), nanos);
            denials.push(Denial {
                policy: name.clone(),
                binding: Some(binding.name.clone()),
                message,
                reason: String::new(),
            });
        }
    }
    for (key, values) in annotations {
        attributes.annotate(format!("{name}/{key}"), values.join(", "));
    }
    Ok(())
}

/// Applies the binding's validation actions to a failed validation.
fn act(
    attributes: &mut Attributes,
    policy: &Arc<str>,
    binding: &Binding,
    index: usize,
    verdict: Verdict,
    nanos: u64,
) -> Option<Denial> {
    let mut denial = None;
    let error = if verdict.is_error { error_type(&verdict.message) } else { "no_error" };
    for action in &binding.actions {
        let told = match action.as_str() {
            "Warn" => "warn",
            "Audit" => "audit",
            _ => "deny",
        };
        observe(attributes, policy, binding, (error, told), nanos);
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

fn observe(
    attributes: &mut Attributes,
    policy: &Arc<str>,
    binding: &Binding,
    (error, action): (&'static str, &'static str),
    nanos: u64,
) {
    let (policy, binding) = (policy.clone(), binding.name.clone());
    attributes.observe(Observation::Validated { policy, binding, error, action, nanos });
}

fn refusal(attributes: &Attributes, denial: Denial) -> Stop {
    let Denial { policy, binding, message, reason } = denial;
    let with = binding.map(|binding| format!(" with binding '{binding}'")).unwrap_or_default();
    let message = format!("ValidatingAdmissionPolicy '{policy}'{with} denied request: {message}");
    let reason = if reason.is_empty() { "Invalid".to_owned() } else { reason };
    let kind = match reason.as_str() {
        "Forbidden" => RulingKind::Forbidden,
        "Unauthorized" => RulingKind::Unauthorized,
        "RequestEntityTooLarge" => RulingKind::TooLarge,
        _ => RulingKind::Invalid,
    };
    let subject = attributes.subject();
    let mut details = json!({"name": subject.name, "kind": subject.resource, "causes": [{"message": message}]});
    if !subject.group.is_empty() {
        details["group"] = subject.group.as_str().into();
    }
    let message = format!("{subject} is forbidden: {message}");
    Refusal::Ruled(Box::new(Ruling { kind, reason, message, details })).into()
}

/// Evaluates a policy with one parameter.
fn evaluate(
    attributes: &mut Attributes,
    name: &str,
    policy: &Policy,
    version: usize,
    parameter: Option<&Value>,
    shown: &mut Shown,
) -> Result<Found, Stop> {
    let mut found = Found { failures: Vec::new(), annotations: Vec::new(), untold: Vec::new(), ignored: Vec::new() };
    let fault = |index: usize, message: String| (index, Verdict { message, reason: String::new(), is_error: true });
    let asking = webhooks::Asking { name, of: Some((policy, parameter)), conditions: &policy.conditions };
    match webhooks::holds(attributes, &asking, version, shown)? {
        Ok(true) => {}
        Ok(false) => return Ok(found),
        Err(why) => {
            if !policy.is_ignored {
                found.failures.push(fault(0, why));
            }
            return Ok(found);
        }
    }
    let documents = shown.of(attributes, version)?;
    let mut evaluation = Evaluation::new(attributes, policy, &documents, parameter);
    for (index, validation) in policy.validations.iter().enumerate() {
        match evaluation.eval(&validation.expression) {
            Ok(CelValue::Bool(true)) => {}
            Ok(_) => {
                let reason =
                    if validation.reason.is_empty() { "Invalid".to_owned() } else { validation.reason.clone() };
                let message = evaluation.message(validation);
                found.failures.push((index, Verdict { message, reason, is_error: false }));
            }
            Err(why) if policy.is_ignored => found.ignored.push(why.to_string()),
            Err(why) => found.failures.push(fault(index, why.to_string())),
        }
    }
    for (key, expression) in &policy.audit_annotations {
        match evaluation.eval(expression) {
            Ok(CelValue::String(text)) if !text.trim().is_empty() => {
                found.annotations.push((key.clone(), cut(text.trim(), ANNOTATION_BYTES_MAX).to_owned()));
            }
            Ok(_) => {}
            Err(_) if policy.is_ignored => {}
            Err(why) => found.untold.push(why.to_string()),
        }
    }
    attributes.spend(COST_MAX, &evaluation.budget)?;
    Ok(found)
}

/// Cuts a text at a character boundary.
fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

impl<'v> Evaluation<'v> {
    /// The message of a failed validation.
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
