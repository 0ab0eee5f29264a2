//! Validates an object by the rules for all objects, and by the rules of its kind.

use super::candidate::{Candidate, Old};
use super::endpoint::Rules;
use super::{Context, Endpoint, scale};
use crate::authz::{Attributes, ResourceTarget, denied};
use crate::kinds::core::privileged;
use crate::kinds::{Kind, structures};
use crate::object::meta;
use crate::refusal::{Causes, Forbidden, Refusal};
use crate::request::Verb;
use crate::schema::schema;
use crate::schema::structural::Judged;
use holdfast_value::Value;

const PARTIAL_METADATA: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.PartialObjectMetadata";

/// Validates the new form of the object. A violation that the old form already has, and that may stay, becomes a
/// warning.
pub(super) fn validate(context: &Context, endpoint: &Endpoint, object: &mut Candidate) -> Result<(), Refusal> {
    if endpoint.rules == Rules::Nothing {
        return Ok(());
    }
    let judged = by_kind(context, endpoint, object);
    let new = object.fields();
    let mut causes = context.kind.judge_metadata(new, object.old());
    causes.append(judged.causes);
    causes.append(privileged_pods(context, endpoint, object));
    causes.append(in_namespace(context, object));
    if matches!(endpoint.rules, Rules::Kind | Rules::New) {
        let old = object.old.as_ref().filter(|_| endpoint.rules == Rules::Kind).map(|old| &old.document);
        context.kind.judge_gated(&object.new, old, &context.settings.gates_off, &mut causes);
    }
    if !causes.is_empty() {
        show_structures(context.kind, &mut causes);
        return Err(Refusal::Invalid { subject: context.kind_subject(meta::name(new)), causes });
    }
    context.warn_of(judged.warnings);
    match object.old {
        Some(_) => Ok(()),
        None => may_create(context),
    }
}

/// The faults of pods with privileged containers, if `--allow-privileged` is off. They are checked in every write that
/// the rules of the kind apply to.
fn privileged_pods(context: &Context, endpoint: &Endpoint, object: &Candidate) -> Causes {
    let judges = !context.settings.allow_privileged && matches!(endpoint.rules, Rules::Kind | Rules::New);
    let pods_at = context.kind.content.pods_at.filter(|_| judges);
    pods_at.map_or_else(Causes::default, |at| privileged(&object.new, at))
}

fn in_namespace(context: &Context, object: &Candidate) -> Causes {
    let (Some(rules), Some(name), None) = (context.kind.rules.in_namespace, context.request.namespace(), &object.old)
    else {
        return Causes::default();
    };
    let namespace = context.state.get(context.state.registry.namespaces(), name).map(|entry| entry.document());
    let labels = namespace.map_or(Value::Null, |namespace| namespace["metadata"]["labels"].clone());
    rules(&object.new, &labels)
}

/// Replaces the JSON of values in causes by the form in which Go prints them.
fn show_structures(kind: &Kind, causes: &mut Causes) {
    // A custom resource has no Go struct, but its metadata has one.
    let message = if kind.custom.is_some() { PARTIAL_METADATA } else { kind.hub().message.as_str() };
    if let Some(message) = schema().id(message) {
        structures::show(message, causes);
        causes.fit();
    }
}

fn by_kind(context: &Context, endpoint: &Endpoint, object: &Candidate) -> Judged {
    let old = object.old.as_ref().map(|old: &Old| &old.document);
    let target = &context.request.target;
    let part = target.subresource.as_deref().and_then(|part| context.kind.subresource(target.version, part));
    if let Some(rule) = part.and_then(|part| part.validate) {
        return rule(&object.new, old).into();
    }
    match endpoint.rules {
        // A quantity with another spelling and the same amount does not count as a change of an immutable field.
        Rules::Kind => {
            let respelled = old.and_then(|old| context.respelled(&object.new, old));
            rules_of_kind(context, respelled.as_ref().unwrap_or(&object.new), old)
        }
        Rules::New => rules_of_kind(context, &object.new, None),
        Rules::Metadata | Rules::Nothing => Judged::default(),
    }
}

fn rules_of_kind(context: &Context, new: &Value, old: Option<&Value>) -> Judged {
    if let Some(rule) = context.kind.rules_in(context.version()) {
        return rule(new, old).into();
    }
    let version = context.working_version();
    let Some(custom) = &context.kind.versions[version].custom else { return Judged::default() };
    custom.schema().judge(new, old, scale::causes(context.kind, version, new))
}

/// Checks that the user may create the object, if an update or apply creates it. The request was authorized only for
/// its own verb, before it was known whether the object exists.
fn may_create(context: &Context) -> Result<(), Refusal> {
    let request = context.request;
    if request.verb == Verb::Create {
        return Ok(());
    }
    let version = context.version();
    let target = ResourceTarget {
        group: &version.group,
        version: &version.version,
        resource: &context.kind.resource,
        subresource: "",
        namespace: request.namespace().unwrap_or(""),
        name: request.name(),
        selected: None,
    };
    let attributes = Attributes::resource("create", target);
    let verdict = context.authorizer().authorize(&request.user, &attributes);
    if verdict.is_allowed() {
        return Ok(());
    }
    // The user may use the request's own verb; only the create is forbidden.
    let why = Forbidden::Author(denied(&request.user, &attributes, verdict.reason()).to_string());
    Err(Refusal::Forbidden { subject: context.subject(request.name()), why })
}

/// Refuses a name that is taken. This is one of the last stages, because in Kubernetes only the store refuses the name,
/// after all other stages.
pub(super) fn is_free(context: &Context, object: &Candidate) -> Result<(), Refusal> {
    if object.old.is_some() {
        return Ok(());
    }
    match context.state.get(context.request.target.kind, &object.key) {
        None => Ok(()),
        Some(entry) => {
            let document = entry.document();
            let is_deleting = document.as_object().is_some_and(meta::is_deleting);
            Err(Refusal::AlreadyExists { subject: context.subject(meta::name(object.fields())), is_deleting })
        }
    }
}
