//! Admission webhooks: each gets the write as an AdmissionReview; its answer may change the object, refuse the write,
//! or add warnings and annotations.
//!
//! The call is an effect. The changed fields are recorded in the event, so that replay calls no webhook.

mod pause;
mod review;

use review::Failure;

use super::asked::Shown;
use super::expressions::Known;
use super::registered::{Condition, Policy, Webhook};
use super::{Attributes, Body, End, Observation, changes, policies};
use crate::cel::{Budget, Value as CelValue};
use crate::event::ChangedBy;
use crate::merge::json;
use crate::object::encode;
use crate::object::meta::type_name;
use crate::pipeline::effect::{Effect, Reviewed, Stop};
use crate::refusal::{Forbidden, Internal, Refusal, Ruling, RulingKind, SCHEME, Subject};
use holdfast_value::{Value, json};
use review::{Denial, Patch, Verdict};
use std::sync::Arc;

/// The cost limit for all match conditions of one webhook or policy.
const CONDITIONS_COST_MAX: u64 = 2_500_000;

/// A webhook, and its position among the registered webhooks.
struct Found {
    configuration: Arc<str>,
    webhooks: Arc<Vec<Webhook>>,
    /// The index of the webhook within its configuration.
    at: usize,
    /// The index of the webhook among all mutating or all validating webhooks of the cluster, in the order of calls.
    index: usize,
}

impl Found {
    fn webhook(&self) -> &Webhook {
        &self.webhooks[self.at]
    }
}

/// The webhooks that may match the write, in the order of calls: by the name of the configuration, then by the index in
/// it.
fn found(attributes: &Attributes, is_mutating: bool) -> Vec<Found> {
    let registered = &attributes.state.registered;
    let family = if is_mutating { &registered.mutating } else { &registered.validating };
    // Webhooks are not called for webhook configurations and policies, so that a webhook cannot lock all users out.
    if family.is_empty() || attributes.kind.influence.registers.is_some() || attributes.is_upkeep() {
        return Vec::new();
    }
    // `concerning` and `family` are both ordered by the name of the configuration.
    let mut concerning = family.concerning(&attributes.kind.resource).into_iter().peekable();
    if concerning.peek().is_none() {
        return Vec::new();
    }
    let mut all = Vec::new();
    let mut index = 0;
    for (name, webhooks) in family.iter() {
        if concerning.next_if(|(concerning, _)| concerning == name).is_some() {
            all.extend((0..webhooks.len()).map(|at| Found {
                configuration: name.clone(),
                webhooks: webhooks.clone(),
                at,
                index: index + at,
            }));
        }
        index += webhooks.len();
    }
    all
}

/// The version in which the webhook gets the write; `None` if the webhook does not match.
fn wanted(attributes: &mut Attributes, webhook: &Webhook, shown: &mut Shown) -> Result<Option<usize>, Stop> {
    let Some(version) = attributes.matches(&webhook.matching) else { return Ok(None) };
    let asking = Asking { name: &webhook.name, of: None, conditions: &webhook.conditions };
    match holds(attributes, &asking, version, shown)? {
        Ok(holds) => Ok(holds.then_some(version)),
        Err(_) if webhook.is_ignored => Ok(None),
        Err(why) => {
            // The refusal shows no name if the name is generated later.
            let subject = Subject { name: attributes.shown_name().to_owned(), ..attributes.subject() };
            Err(Refusal::Forbidden { subject, why: Forbidden::Admission(why) }.into())
        }
    }
}

/// The owner of match conditions: a webhook, or a policy with its parameter.
pub(super) struct Asking<'q> {
    pub name: &'q str,
    pub of: Option<(&'q Policy, Option<&'q Value>)>,
    pub conditions: &'q [Condition],
}

/// Whether all match conditions are true. A false condition outweighs conditions whose evaluation failed.
pub(super) fn holds(
    attributes: &mut Attributes,
    asking: &Asking,
    version: usize,
    shown: &mut Shown,
) -> Result<Result<bool, String>, Stop> {
    if asking.conditions.is_empty() {
        return Ok(Ok(true));
    }
    let began = (attributes.ticks)();
    let outcome = all_hold(attributes, asking, version, shown)?;
    attributes.observe(Observation::Conditions {
        name: asking.name.to_owned(),
        of: if asking.of.is_some() { "policy" } else { "webhook" },
        half: attributes.half(),
        hold: outcome.as_ref().ok().copied(),
        nanos: (attributes.ticks)().saturating_sub(began),
    });
    Ok(outcome)
}

fn all_hold(
    attributes: &Attributes,
    asking: &Asking,
    version: usize,
    shown: &mut Shown,
) -> Result<Result<bool, String>, Stop> {
    let Asking { of, conditions, .. } = asking;
    let documents = shown.of(attributes, version)?;
    let mut scope = attributes.scope(&documents);
    scope.hide_namespace();
    scope.parameters = of.and_then(|(policy, parameter)| policies::shown_parameter(policy, parameter));
    let known = || Known { has_parameters: scope.parameters.is_some(), ..Known::default() };
    let mut budget = Budget::new(CONDITIONS_COST_MAX);
    let mut faults = Vec::new();
    for condition in *conditions {
        match condition.expression.eval(known, &scope, &mut budget) {
            Ok(CelValue::Bool(false)) => {
                attributes.spend(CONDITIONS_COST_MAX, &budget)?;
                return Ok(Ok(false));
            }
            Ok(_) => {}
            Err(fault) => faults.push(fault.to_string()),
        }
    }
    attributes.spend(CONDITIONS_COST_MAX, &budget)?;
    Ok(match faults.as_slice() {
        [] => Ok(true),
        [one] => Err(one.clone()),
        all => Err(format!("[{}]", all.join(", "))),
    })
}

/// MutatingAdmissionWebhook: webhooks are called one after another, each with the result of the webhooks before it.
pub(super) fn mutate(attributes: &mut Attributes) -> Result<(), Stop> {
    let all = found(attributes, true);
    if all.is_empty() {
        return Ok(());
    }
    let (begun, first) = pause::resume(attributes);
    if first == 0 {
        attributes.reinvocation.webhooks.begin(&attributes.object, attributes.reinvocation.round);
    }
    let mut shown = Shown::default();
    for (at, found) in all.iter().enumerate().skip(first) {
        let (webhook, id) = (found.webhook(), format!("{}/{}/{}", found.configuration, found.webhook().name, found.at));
        let Some(version) = wanted(attributes, webhook, &mut shown)? else { continue };
        if attributes.reinvocation.round > 0 && !attributes.reinvocation.webhooks.is_due(&id) {
            continue;
        }
        let asked = ask_to_mutate(attributes, found, version, &mut shown);
        if asked.map_err(|stop| pause::pause(attributes, stop, &begun, at))? {
            attributes.reinvocation.webhooks.changed();
            attributes.reinvocation.is_wanted = true;
        }
        if webhook.is_reinvoked {
            attributes.reinvocation.webhooks.asked(id);
        }
    }
    attributes.reinvocation.webhooks.end(&attributes.object);
    Ok(())
}

/// Calls one mutating webhook; returns whether it changed the object. One audit annotation records the result in every
/// case.
fn ask_to_mutate(attributes: &mut Attributes, found: &Found, version: usize, shown: &mut Shown) -> Result<bool, Stop> {
    let place = format!("round_{}_index_{}", attributes.reinvocation.round, found.index);
    let asked = ask(attributes, found, version, shown, &place);
    if !matches!(asked, Err(Stop::Needs(_))) {
        let (configuration, webhook) = (json!(*found.configuration), json!(found.webhook().name));
        let is_changed = matches!(asked, Ok(true));
        let told = format!("{{\"configuration\":{configuration},\"webhook\":{webhook},\"mutated\":{is_changed}}}");
        attributes.annotate(format!("mutation.webhook.admission.k8s.io/{place}"), told);
    }
    asked
}

fn ask(
    attributes: &mut Attributes,
    found: &Found,
    version: usize,
    shown: &mut Shown,
    place: &str,
) -> Result<bool, Stop> {
    let webhook = found.webhook();
    if let Err(stop) = check_dry_run(attributes, webhook) {
        observe(attributes, webhook, End::Unusable, 0);
        return Err(stop);
    }
    let documents = shown.of(attributes, version)?;
    let call = review::call(attributes, &found.configuration, webhook, &documents, found.index);
    let (answer, nanos) = match attributes.answers.review(&call) {
        Some(reviewed) => (&reviewed.answer, reviewed.nanos),
        None => return Err(Stop::Needs(Effect::Review { calls: vec![call], pause: None })),
    };
    let failed = |attributes: &mut Attributes, failure: &Failure| {
        observe(attributes, webhook, End::Failed { is_ignored: webhook.is_ignored }, nanos);
        fail(attributes, webhook, failure, "failed-open.mutation", place).map(|()| false)
    };
    let verdict = match review::verdict(&call, answer, true) {
        Ok(verdict) => verdict,
        Err(failure) => return failed(attributes, &failure),
    };
    tell(attributes, webhook, &verdict);
    if let Some(Denial { code, ruling }) = verdict.denial {
        observe(attributes, webhook, End::Rejected(code), nanos);
        return Err(Refusal::Ruled(Box::new(ruling)).into());
    }
    let patch = match operations(attributes, verdict.patch.as_ref()) {
        Ok(Some(patch)) => patch,
        Ok(None) => {
            observe(attributes, webhook, End::Admitted, nanos);
            return Ok(false);
        }
        Err(failure) => return failed(attributes, &failure),
    };
    let fields = changes::of_patch(&attributes.object, &patch);
    let applied = apply(attributes, webhook, &patch, version);
    shown.forget();
    let end = if matches!(applied, Err(Stop::Refused(_))) { End::Unusable } else { End::Admitted };
    observe(attributes, webhook, end, nanos);
    let is_changed = applied?;
    let patched = json!({"configuration": *found.configuration, "webhook": webhook.name, "patch": patch,
        "patchType": "JSONPatch"});
    let patched = encode::as_go_writes(&patched.to_string());
    attributes.annotate_of_object(format!("patch.webhook.admission.k8s.io/{place}"), patched);
    if is_changed {
        let by = format!("webhook {} of {}", webhook.name, found.configuration);
        attributes.admitted.changes.push(ChangedBy { by, fields });
    }
    Ok(is_changed)
}

/// The operations of the patch; `None` without a patch. The patch type is checked only if there is an object to change.
fn operations(attributes: &Attributes, patch: Option<&Patch>) -> Result<Option<Value>, Failure> {
    let Some(patch) = patch else { return Ok(None) };
    let operations = patch.operations()?;
    if operations.is_some() && !attributes.object.is_null() {
        patch.check_type()?;
    }
    Ok(operations)
}

/// Applies a webhook's patch to the object in the form in which the webhook got the object.
fn apply(attributes: &mut Attributes, webhook: &Webhook, patch: &Value, version: usize) -> Result<bool, Stop> {
    if attributes.object.is_null() {
        let why = format!(
            "admission webhook \"{}\" attempted to modify the object, which is not supported for this operation",
            webhook.name
        );
        return Err(Refusal::Internal(Internal::Fault(why)).into());
    }
    let internal = |why: String| Stop::from(Refusal::Internal(Internal::Fault(why)));
    let shown = attributes.shown_object(version)?;
    let mut patched = json::patched(shown.clone(), patch).map_err(|fault| internal(fault.to_string()))?;
    let version = identity(attributes, &mut patched, &shown, version)?;
    attributes.check(&mut patched, version).map_err(internal)?;
    let is_changed = patched != shown;
    attributes.take_back(patched, &shown, version)?;
    Ok(is_changed)
}

/// The version of the patched object: the version shown, unless the patch changes `apiVersion`.
fn identity(attributes: &Attributes, patched: &mut Value, shown: &Value, version: usize) -> Result<usize, Stop> {
    let internal = |why: String| Stop::from(Refusal::Internal(Internal::Fault(why)));
    for field in ["apiVersion", "kind"] {
        match &patched[field] {
            Value::String(text) if !text.is_empty() => {}
            Value::Null | Value::String(_) => patched[field] = shown[field].clone(),
            other => {
                let found = type_name(other);
                let why = format!("json: cannot unmarshal {found} into Go struct field .{field} of type string");
                return Err(internal(format!("couldn't get version/kind; json parse error: {why}")));
            }
        }
    }
    if ["apiVersion", "kind"].iter().all(|field| patched[*field] == shown[*field]) {
        return Ok(version);
    }
    let text = |field: &str| patched[field].as_str().unwrap_or("").to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (group, of_group) = api_version.split_once('/').unwrap_or(("", &api_version));
    let registry = &attributes.state.registry;
    let is_built_in = matches!(attributes.body, Body::Object { .. }) && attributes.kind.custom.is_none();
    let found = registry.find_kind(group, of_group, &kind).filter(|_| is_built_in);
    let found = found.map(|(id, version)| (id, registry.share(id), version));
    let Some((id, other, found)) = found.filter(|(_, kind, _)| kind.custom.is_none()) else {
        return Err(internal(format!(
            "no kind \"{kind}\" is registered for version \"{api_version}\" in scheme \"{SCHEME}\""
        )));
    };
    if id == attributes.request.target.kind {
        return Ok(found);
    }
    // As in Kubernetes, the object is first decoded as the kind that it names; then the conversion back fails.
    let layout = crate::kinds::layout(&other, found).map_err(|refusal| internal(refusal.message()))?;
    layout.check(patched).map_err(|error| internal(error.to_string()))?;
    let package = |name: &str| name.split('.').next().filter(|name| !name.is_empty()).unwrap_or("core").to_owned();
    let (hub, own) = (attributes.kind.hub(), &attributes.kind.kind);
    let (kind, hub) = (&other.kind, package(&hub.group));
    Err(attributes.fault(format!("converting ({of_group}.{kind}) to ({hub}.{own}): unknown conversion")))
}

/// ValidatingAdmissionWebhook: all webhooks are called at once. Of several refusals, the first one in the order of
/// [`found`] is returned, but a refusal of a dry run has precedence.
pub(super) fn validate(attributes: &mut Attributes) -> Result<(), Stop> {
    let all = found(attributes, false);
    let (mut asked, mut missing, mut refused) = (Vec::new(), Vec::new(), None);
    let mut shown = Shown::default();
    for found in &all {
        let Some(version) = wanted(attributes, found.webhook(), &mut shown)? else { continue };
        // A dry run is refused for a webhook that does not support dry runs, and the webhook is not called.
        if let Err(stop) = check_dry_run(attributes, found.webhook()) {
            observe(attributes, found.webhook(), End::Unusable, 0);
            refused.get_or_insert(stop);
            asked.push((found, None));
            continue;
        }
        let documents = shown.of(attributes, version)?;
        let call = review::call(attributes, &found.configuration, found.webhook(), &documents, found.index);
        if attributes.answers.review(&call).is_none() {
            missing.push(call.clone());
        }
        asked.push((found, Some(call)));
    }
    if !missing.is_empty() {
        return Err(Stop::Needs(Effect::Review { calls: missing, pause: None }));
    }
    // Audit annotations number only the webhooks that match the write.
    for (nth, (found, call)) in asked.into_iter().enumerate() {
        let Some(call) = call else { continue };
        let (webhook, place) = (found.webhook(), format!("round_0_index_{nth}"));
        let answers = attributes.answers;
        let Some(Reviewed { answer, nanos }) = answers.review(&call) else { continue };
        let outcome = match review::verdict(&call, answer, false) {
            Ok(verdict) => {
                tell(attributes, webhook, &verdict);
                let code = verdict.denial.as_ref().map(|denial| denial.code);
                observe(attributes, webhook, code.map_or(End::Admitted, End::Rejected), *nanos);
                match verdict.denial {
                    Some(Denial { ruling, .. }) => Err(Refusal::Ruled(Box::new(ruling)).into()),
                    None => Ok(()),
                }
            }
            Err(failure) => {
                observe(attributes, webhook, End::Failed { is_ignored: webhook.is_ignored }, *nanos);
                fail(attributes, webhook, &failure, "failed-open.validating", &place)
            }
        };
        if let Err(stop) = outcome {
            refused.get_or_insert(stop);
        }
    }
    refused.map_or(Ok(()), Err)
}

fn check_dry_run(attributes: &Attributes, webhook: &Webhook) -> Result<(), Stop> {
    if !attributes.is_dry_run() || webhook.takes_dry_runs {
        return Ok(());
    }
    Err(Refusal::Ruled(Box::new(Ruling {
        kind: RulingKind::BadRequest,
        reason: "BadRequest".into(),
        message: format!("admission webhook \"{}\" does not support dry run", webhook.name),
        details: Value::Null,
    }))
    .into())
}

/// Handles a failed call by the webhook's failure policy.
fn fail(attributes: &mut Attributes, webhook: &Webhook, failure: &Failure, key: &str, place: &str) -> Result<(), Stop> {
    if webhook.is_ignored {
        attributes.annotate(format!("{key}.webhook.admission.k8s.io/{place}"), webhook.name.clone());
        return Ok(());
    }
    let why = format!("failed calling webhook \"{}\": {failure}", webhook.name);
    Err(Refusal::Internal(Internal::Fault(why)).into())
}

fn observe(attributes: &mut Attributes, webhook: &Webhook, end: End, nanos: u64) {
    let half = attributes.half();
    attributes.observe(Observation::Webhook { name: webhook.name.clone(), half, end, nanos });
}

fn tell(attributes: &mut Attributes, webhook: &Webhook, verdict: &Verdict) {
    for warning in &verdict.warnings {
        attributes.warn(warning.clone());
    }
    for (key, value) in &verdict.annotations {
        attributes.annotate(format!("{}/{key}", webhook.name), value.clone());
    }
}
