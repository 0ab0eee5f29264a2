//! MutatingAdmissionPolicy: policies run one after another, each on the result of the policies before it.

use super::super::asked::Shown;
use super::super::observed::error_type;
use super::super::registered::{Mutation, Policy};
use super::super::{Attributes, Observation, changes, webhooks};
use super::patches::{self, MutationOutcome};
use super::{COST_MAX, Evaluation, Invocation, invocations, is_exempt};
use crate::event::ChangedBy;
use crate::pipeline::effect::Stop;
use crate::refusal::{Refusal, Ruling, RulingKind};
use holdfast_value::{Value, json};
use std::sync::Arc;

/// Why a policy refuses a write.
struct Denial {
    policy: Arc<str>,
    binding: Option<Arc<str>>,
    message: String,
    /// The reason that the refusal's `Status` has if this denial is the first denial of the write.
    reason: &'static str,
}

/// A policy that must still be applied to the write, with its binding and parameter.
struct Due<'a> {
    name: Arc<str>,
    policy: Arc<Policy>,
    version: usize,
    invocation: Invocation<'a>,
}

pub(in crate::admission) fn mutate(attributes: &mut Attributes) -> Result<(), Stop> {
    let registered = &attributes.state.registered;
    if registered.mutating_policies.is_empty() || is_exempt(attributes) || attributes.object.is_null() {
        return Ok(());
    }
    let (mut all, mut denials) = (Vec::new(), Vec::new());
    for (name, policy) in registered.mutating_policies.concerning(&attributes.kind.resource) {
        let Some(version) = attributes.matches(&policy.matching) else { continue };
        let (invocations, faults) = invocations(attributes, &policy, registered.mutating_bindings(&name));
        denials.extend(faults.into_iter().filter(|_| !policy.is_ignored).map(|fault| Denial {
            policy: name.clone(),
            binding: fault.binding,
            message: fault.message,
            reason: "Forbidden",
        }));
        let due = |invocation| Due { name: name.clone(), policy: policy.clone(), version, invocation };
        all.extend(invocations.into_iter().map(due));
    }
    if !all.is_empty() {
        run(attributes, &all, &mut denials)?;
    }
    if denials.is_empty() { Ok(()) } else { Err(refusal(attributes, &denials)) }
}

fn run(attributes: &mut Attributes, all: &[Due], denials: &mut Vec<Denial>) -> Result<(), Stop> {
    attributes.reinvocation.policies.begin(&attributes.object, attributes.reinvocation.round);
    let (mut has_run, mut shown) = (false, Shown::default());
    for due in all {
        let Due { name, policy, version, invocation } = due;
        let denied = |message: String| Denial {
            policy: name.clone(),
            binding: Some(invocation.binding.name.clone()),
            message,
            reason: "Invalid",
        };
        let parameter = invocation.parameter.as_ref().map(|parameter| parameter.document(attributes)).transpose()?;
        let of = Some((&**policy, parameter.as_ref()));
        let asking = webhooks::Asking { name, of, conditions: &policy.conditions };
        match webhooks::holds(attributes, &asking, *version, &mut shown)? {
            Ok(true) => {}
            Ok(false) => continue,
            Err(why) => {
                denials.extend((!policy.is_ignored).then(|| denied(why)));
                continue;
            }
        }
        let id = due.id();
        if attributes.reinvocation.round > 0 && !attributes.reinvocation.policies.is_due(&id) {
            continue;
        }
        let mut is_changed = false;
        for mutation in &policy.mutations {
            let began = (attributes.ticks)();
            let outcome = change(attributes, due, parameter.as_ref(), mutation, &mut shown)?;
            attributes.observe(Observation::Mutated {
                policy: name.clone(),
                binding: invocation.binding.name.clone(),
                error: outcome.as_ref().map_or_else(|why| error_type(why), |_| "no_error"),
                nanos: (attributes.ticks)().saturating_sub(began),
            });
            match outcome {
                Ok(has_changed) => {
                    has_run = true;
                    is_changed |= has_changed;
                }
                Err(why) => denials.extend((!policy.is_ignored).then(|| denied(why))),
            }
        }
        if is_changed {
            attributes.reinvocation.policies.changed();
        }
        if policy.is_reinvoked {
            attributes.reinvocation.policies.asked(id);
        }
    }
    if has_run {
        // As in Kubernetes, a policy with reinvocation runs again even if only the policy itself has changed the
        // object.
        attributes.reinvocation.policies.changed();
        attributes.reinvocation.is_wanted = true;
    }
    attributes.reinvocation.policies.end(&attributes.object);
    Ok(())
}

impl Due<'_> {
    /// Identifies this combination of policy, binding and parameter.
    fn id(&self) -> String {
        let parameter = self.invocation.parameter.as_ref().map_or("", |parameter| &*parameter.key);
        format!("{}/{}/{parameter}", self.name, self.invocation.binding.name)
    }
}

/// Applies one mutation. Returns whether it changed the object, or the reason why it failed.
fn change(
    attributes: &mut Attributes,
    due: &Due,
    parameter: Option<&Value>,
    mutation: &Mutation,
    seen: &mut Shown,
) -> Result<Result<bool, String>, Stop> {
    let documents = seen.of(attributes, due.version)?;
    let shown = &documents.object.value;
    let mut evaluation = Evaluation::new(attributes, &due.policy, &documents, parameter);
    let value = evaluation.eval_change(&mutation.expression);
    attributes.spend(COST_MAX, &evaluation.budget)?;
    let outcome = match value {
        Ok(value) if mutation.is_apply => patches::apply(attributes, &value, shown, due.version)?,
        Ok(value) => patches::patch(attributes, &value, shown, due.version)?,
        Err(fault) => return Ok(Err(fault.to_string())),
    };
    let (changed, change) = match outcome {
        MutationOutcome::Changed(changed, change) => (changed, change),
        MutationOutcome::Same => return Ok(Ok(false)),
        MutationOutcome::Fault(why) => return Ok(Err(why)),
    };
    if changed == *shown {
        return Ok(Ok(false));
    }
    let fields = match mutation.is_apply {
        true => changes::of_configuration(&changed, &change),
        false => changes::of_patch(shown, &change),
    };
    attributes.take_back(changed, shown, due.version)?;
    seen.forget();
    let by = format!("policy {} with binding {}", due.name, due.invocation.binding.name);
    attributes.admitted.changes.push(ChangedBy { by, fields });
    Ok(Ok(true))
}

/// The refusal: the first denial is its message, all denials are causes.
fn refusal(attributes: &Attributes, denials: &[Denial]) -> Stop {
    let told = |denial: &Denial| {
        let with = denial.binding.as_ref().map(|binding| format!(" with binding '{binding}'")).unwrap_or_default();
        format!("policy '{}'{with} denied request: {}", denial.policy, denial.message)
    };
    let causes: Vec<Value> = denials.iter().map(|denial| json!({"message": told(denial)})).collect();
    let subject = attributes.subject();
    let mut details = json!({"name": subject.name, "kind": subject.resource, "causes": causes});
    if !subject.group.is_empty() {
        details["group"] = subject.group.as_str().into();
    }
    let (message, reason) = denials.first().map(|denial| (told(denial), denial.reason.to_owned())).unwrap_or_default();
    Refusal::Ruled(Box::new(Ruling { kind: RulingKind::Forbidden, reason, message, details })).into()
}
