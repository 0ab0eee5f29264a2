//! Writes through a subresource: a view of the object that may touch only a part of it.

use super::{Answer, Context, Decision, View, create, delete, patch, update};
use crate::kinds::Kind;
use crate::merge::managed;
use crate::object::meta::{self, Document, metadata_mut, object_mut, path};
use crate::refusal::{Cause, Refusal};
use crate::request::{Format, Verb};
use crate::schema::layout::Layout;
use crate::schema::schema;
use serde_json::{Value, json};

pub(super) fn decide(context: &Context, subresource: &str) -> Result<Decision, Refusal> {
    let scope = match subresource {
        "status" => Some(update::Scope::Status),
        "finalize" => Some(update::Scope::Finalize),
        "approval" => Some(update::Scope::Approval),
        "ephemeralcontainers" => Some(update::Scope::EphemeralContainers),
        "resize" => Some(update::Scope::Resize),
        _ => None,
    };
    match (subresource, context.request.verb, scope) {
        (_, Verb::Update, Some(scope)) => update::decide(context, scope),
        (_, Verb::Patch, Some(scope)) => patch::decide(context, scope),
        ("scale", Verb::Update | Verb::Patch, _) => scale(context),
        ("binding", Verb::Create, _) => bind(context),
        ("eviction", Verb::Create, _) => delete::evict(context),
        _ => Err(Refusal::MethodNotAllowed {
            message: "the server does not allow this method on the requested resource".into(),
        }),
    }
}

/// The `autoscaling/v1` Scale of an object, given as a hub document.
pub fn scale_of(paths: &crate::kinds::ScalePaths, document: &Value) -> Document {
    let meta = &document["metadata"];
    let mut out = Document::new();
    out.insert("kind".into(), "Scale".into());
    out.insert("apiVersion".into(), "autoscaling/v1".into());
    let mut scale_meta = Document::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = meta.get(field) {
            scale_meta.insert(field.into(), value.clone());
        }
    }
    out.insert("metadata".into(), scale_meta.into());
    let mut spec = Document::new();
    if let Some(replicas) = path(document, &paths.spec_replicas).filter(|replicas| **replicas != json!(0)) {
        spec.insert("replicas".into(), replicas.clone());
    }
    out.insert("spec".into(), spec.into());
    let mut status = Document::new();
    status.insert("replicas".into(), path(document, &paths.status_replicas).cloned().unwrap_or_else(|| 0.into()));
    if let Some(selector) = paths.selector.as_deref().and_then(|selector| path(document, selector)) {
        let text = match selector {
            // Custom resources have it written out.
            Value::String(text) => text.clone(),
            object => crate::select::LabelSelector::from_object(object).map(|s| s.to_string()).unwrap_or_default(),
        };
        if !text.is_empty() {
            status.insert("selector".into(), text.into());
        }
    }
    out.insert("status".into(), status.into());
    out
}

/// What is wrong with the numbers that a custom resource scales by.
pub(super) fn scale_causes(kind: &Kind, version: usize, document: &Value) -> Vec<Cause> {
    let Some(paths) = kind.subresource(version, "scale").and_then(|scale| scale.scale.as_ref()) else {
        return Vec::new();
    };
    let negative = |at: &String| {
        let replicas = path(document, at)?.as_i64().filter(|replicas| *replicas < 0)?;
        Some(Cause::invalid(at, &replicas.into(), "should be a non-negative integer"))
    };
    let mut causes: Vec<Cause> =
        [&paths.spec_replicas, &paths.status_replicas].into_iter().filter_map(negative).collect();
    if let Some(at) = &paths.selector
        && let Some(Value::String(selector)) = path(document, at)
        && let Err(why) = crate::select::LabelSelector::parse(selector)
    {
        causes.push(Cause::invalid(at, &selector.as_str().into(), &why));
    }
    causes
}

fn scale(context: &Context) -> Result<Decision, Refusal> {
    let paths = context
        .kind
        .subresource(context.request.target.version, "scale")
        .and_then(|scale| scale.scale.clone())
        .ok_or_else(|| Refusal::NotFound(context.subject(context.request.name())))?;
    let (key, entry) = context.existing()?;
    let shown = if context.kind.custom.is_some() { context.shown(&entry)? } else { entry.document() };
    let old = context.old(&entry)?;
    let replicas_path: Vec<&str> = paths.spec_replicas.split('.').collect();
    let mut live = scale_of(&paths, &shown);
    if let Some(owners) = managed::scale_entries(meta::metadata(&old).get("managedFields"), &replicas_path) {
        metadata_mut(&mut live).insert("managedFields".into(), owners);
    }
    let live = Value::Object(live);
    let message = schema().id("io.k8s.api.autoscaling.v1.Scale");
    let layout = Layout::of(message.ok_or_else(|| Refusal::Internal("the schema has no Scale".into()))?);
    let mut warnings = Vec::new();
    let mut wanted = match context.request.body.format {
        Format::Json | Format::Yaml | Format::Protobuf => {
            let scale = context.decode_as("autoscaling", "v1", "Scale", layout, &mut warnings)?;
            create::match_name(context, meta::metadata(&scale))?;
            Value::Object(scale)
        }
        _ => patch::scale(context, &live, &mut warnings)?,
    };
    if context.request.body.format != Format::ApplyPatch {
        let writer = managed::Writer {
            layout,
            api_version: "autoscaling/v1",
            manager: context.manager(),
            subresource: "scale",
            now: &context.stamp.rfc3339(),
            reset: context.reset_fields(),
            convert: None,
        };
        managed::track_update(Some(&live), &mut wanted, &writer);
    }
    let uid = wanted["metadata"]["uid"].as_str().unwrap_or("");
    if !uid.is_empty() && uid != meta::uid(&old) {
        let subject = context.subject(context.request.name());
        let subject = crate::refusal::Subject { resource: format!("{}/scale", subject.resource), ..subject };
        let found = meta::uid(&old);
        let message = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {found}");
        return Err(Refusal::Conflict { subject, message });
    }
    let version = wanted["metadata"]["resourceVersion"].as_str().unwrap_or("");
    if !version.is_empty() && version != entry.offset.to_string() {
        return Err(update::modified(context));
    }
    let fixed = !version.is_empty() && context.request.verb == Verb::Update;
    let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or(0);
    if replicas < 0 {
        let cause = Cause::invalid("spec.replicas", &replicas.into(), "must be greater than or equal to 0");
        let subject = crate::refusal::Subject::new("autoscaling", "Scale", context.request.name());
        return Err(Refusal::Invalid { subject, causes: vec![cause] });
    }
    let mut new = old.clone();
    meta::set_path(&mut new, &paths.spec_replicas, replicas.into());
    if !update::same(context, &new, &old) && context.kind.generation {
        let meta = metadata_mut(&mut new);
        let generation = meta.get("generation").and_then(Value::as_i64).unwrap_or(0);
        meta.insert("generation".into(), (generation + 1).into());
    }
    let served = |version: &str| context.kind.versions.iter().any(|served| served.api_version() == version);
    let api_version = context.version().api_version();
    let (owners, scale_owners) = (meta::metadata(&old).get("managedFields"), wanted["metadata"].get("managedFields"));
    match managed::with_scale_entries(owners, scale_owners, &replicas_path, &api_version, &served) {
        Some(Value::Array(owners)) if !owners.is_empty() => {
            _ = metadata_mut(&mut new).insert("managedFields".into(), owners.into())
        }
        _ => _ = metadata_mut(&mut new).remove("managedFields"),
    }
    let mut decision = update::conclude(context, key, &entry, new, fixed, warnings)?;
    match &mut decision.answer {
        Answer::Written { view, .. } | Answer::Entry { view, .. } => *view = View::Scale,
        Answer::Document { .. } | Answer::Deleted { .. } => {}
    }
    Ok(decision)
}

/// Assigns a pod to a node: once, and for good.
pub(super) fn bind(context: &Context) -> Result<Decision, Refusal> {
    let message = schema().id("io.k8s.api.core.v1.Binding");
    let layout = Layout::of(message.ok_or_else(|| Refusal::Internal("the schema has no Binding".into()))?);
    let mut warnings = Vec::new();
    let binding = context.decode_as("", "v1", "Binding", layout, &mut warnings)?;
    let target = binding.get("target").cloned().unwrap_or(Value::Null);
    let node = target["name"].as_str().unwrap_or("");
    if node.is_empty() {
        let subject = crate::refusal::Subject::new("", "Binding", context.request.name());
        return Err(Refusal::Invalid { subject, causes: vec![Cause::required("target.name", "")] });
    }
    let (key, entry) = context.existing()?;
    let old = context.old(&entry)?;
    let subject = crate::refusal::Subject::new("", "pods/binding", context.request.name());
    let conflict = |message: String| Refusal::Conflict { subject: subject.clone(), message };
    let binding_uid = meta::uid(&binding);
    if !binding_uid.is_empty() && binding_uid != meta::uid(&old) {
        return Err(conflict(format!(
            "Precondition failed: UID in precondition: {binding_uid}, UID in object meta: {}",
            meta::uid(&old)
        )));
    }
    if meta::is_deleting(&old) {
        let name = context.request.name();
        return Err(conflict(format!("pod {name} is being deleted, cannot be assigned to a host")));
    }
    let assigned = old.get("spec").map(|spec| spec["nodeName"].as_str().unwrap_or("")).unwrap_or("");
    if !assigned.is_empty() {
        let name = context.request.name();
        return Err(conflict(format!("pod {name} is already assigned to node \"{assigned}\"")));
    }
    let mut new = old.clone();
    object_mut(&mut new, "spec").insert("nodeName".into(), node.into());
    let annotations = binding.get("metadata").and_then(|meta| meta["annotations"].as_object()).cloned();
    for (key, value) in annotations.into_iter().flatten() {
        object_mut(metadata_mut(&mut new), "annotations").insert(key, value);
    }
    let time = context.stamp.rfc3339();
    set_condition(
        object_mut(&mut new, "status"),
        json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": time}),
    );
    create::track(context, Some(&old), &mut new)?;
    let mut decision = update::conclude(context, key, &entry, new, false, warnings)?;
    let success = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    if let Value::Object(document) = success {
        decision.answer = Answer::Document { document, code: 201 };
    }
    Ok(decision)
}

/// Puts a condition in place of the one of its type, keeping the time of the last change when nothing changed.
fn set_condition(status: &mut Document, condition: Value) {
    let list = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(list) = list.as_array_mut() else { return };
    match list.iter_mut().find(|c| c["type"] == condition["type"]) {
        Some(found) if found["status"] == condition["status"] => {}
        Some(found) => *found = condition,
        None => list.push(condition),
    }
}
