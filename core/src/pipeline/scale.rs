//! Scale: the number of replicas of an object, read and written as an object of its own.

use super::candidate::{Candidate, Made, Old};
use super::{Context, Endpoint, Stop, admit, body, decode, patch};
use crate::admission::Operation;
use crate::kinds::known::SCALE;
use crate::kinds::{Kind, ScalePaths};
use crate::merge::managed;
use crate::object::meta::{self, Document, metadata, metadata_mut, path, text};
use crate::refusal::{BadRequest, Cause, Conflict, Mismatch, Refusal, Subject};
use crate::request::{Format, Verb};
use crate::select::LabelSelector;
use serde_json::{Value, json};

pub(super) const MESSAGE: &str = "io.k8s.api.autoscaling.v1.Scale";

/// The `autoscaling/v1` Scale of an object, given as a hub document.
pub fn scale_of(paths: &ScalePaths, document: &Value) -> Document {
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
            object if object["matchLabels"].is_object() || object["matchExpressions"].is_array() => {
                LabelSelector::from_object(object).map(|selector| selector.to_string()).unwrap_or_default()
            }
            labels => {
                labels.as_object().map(|labels| LabelSelector::from_labels(labels).to_string()).unwrap_or_default()
            }
        };
        if !text.is_empty() {
            status.insert("selector".into(), text.into());
        }
    }
    out.insert("status".into(), status.into());
    out
}

/// What is wrong with the numbers that a custom resource scales by.
pub(super) fn causes(kind: &Kind, version: usize, document: &Value) -> Vec<Cause> {
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
        && let Err(why) = LabelSelector::parse(selector)
    {
        causes.push(Cause::invalid(at, &selector.as_str().into(), &why));
    }
    causes
}

/// The candidate that has the number of replicas of the Scale that is sent, or that a patch makes of the live one.
pub(super) fn scale(context: &Context, _: &Endpoint) -> Result<Made, Stop> {
    let paths = context.kind.subresource(context.request.target.version, "scale").and_then(|part| part.scale.clone());
    let paths = paths.ok_or_else(|| Refusal::NotFound(context.subject(context.request.name())))?;
    let old = context.existing()?;
    let replicas_path: Vec<&str> = paths.spec_replicas.split('.').collect();
    let live = live_scale(&paths, &old, &replicas_path);
    let mut wanted = wanted_scale(context, &live)?;
    let fixed = check_scale(context, &old, &wanted)?;
    wanted = admit::part(context, SCALE, Operation::Update, wanted, &live)?;
    let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or(0);
    track(context, &live, &mut wanted)?;

    let mut new = old.document.clone();
    let fields = meta::fields_mut(&mut new);
    meta::set_path(fields, &paths.spec_replicas, replicas.into());
    let served = |version: &str| context.kind.versions.iter().any(|served| served.api_version() == version);
    let api_version = context.version().api_version();
    let (owners, scale_owners) = (old.metadata().get("managedFields"), wanted["metadata"].get("managedFields"));
    let owners = managed::with_scale_entries(owners, scale_owners, &replicas_path, &api_version, &served);
    let owners = owners.filter(|owners| owners.as_array().is_some_and(|owners| !owners.is_empty()));
    super::reset::put(metadata_mut(fields), "managedFields", owners);
    // The object's own schema speaks about the field that this writes.
    let layout = decode::layout(context.kind, context.working_version())?;
    layout.check(&mut new).map_err(|error| Refusal::BadRequest(BadRequest::Undecodable(error.to_string())))?;
    Ok(Candidate { fixed, tracked: true, admitted: true, ..Candidate::replacing(context, old, new) }.into())
}

/// The Scale of the object as it is, with the owners of its replicas.
fn live_scale(paths: &ScalePaths, old: &Old, replicas_path: &[&str]) -> Value {
    let mut live = scale_of(paths, &old.document);
    let meta = metadata_mut(&mut live);
    meta.insert("resourceVersion".into(), old.entry.offset.to_string().into());
    if let Some(owners) = managed::scale_entries(old.metadata().get("managedFields"), replicas_path) {
        meta.insert("managedFields".into(), owners);
    }
    Value::Object(live)
}

fn wanted_scale(context: &Context, live: &Value) -> Result<Value, Stop> {
    match context.request.body.format {
        Format::Json | Format::Yaml | Format::Protobuf => {
            let scale = context.decode_as("autoscaling", "v1", "Scale", decode::layout_of(MESSAGE)?)?;
            body::match_name(context, metadata(meta::fields(&scale)))?;
            Ok(scale)
        }
        _ => patch::scale(context, live),
    }
}

/// Whether the Scale is one of this object, and its number one of replicas; true when the client fixed the version.
fn check_scale(context: &Context, old: &Old, wanted: &Value) -> Result<bool, Refusal> {
    let name = context.request.name();
    let meta = metadata(meta::fields(wanted));
    let (uid, found) = (text(meta, "uid"), text(old.metadata(), "uid"));
    if !uid.is_empty() && uid != found {
        let subject = context.subject(name);
        let subject = Subject { resource: format!("{}/scale", subject.resource), ..subject };
        return Err(Refusal::Conflict { subject, why: Conflict::Uid(Mismatch::new(uid, found)) });
    }
    let version = text(meta, "resourceVersion");
    if !version.is_empty() && version != old.entry.offset.to_string() {
        return Err(body::modified(context));
    }
    let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or(0);
    if replicas < 0 {
        let cause = Cause::invalid("spec.replicas", &replicas.into(), "must be greater than or equal to 0");
        return Err(Refusal::Invalid { subject: Subject::new("autoscaling", "Scale", name), causes: vec![cause] });
    }
    Ok(!version.is_empty() && (context.request.verb == Verb::Update || patch::names_version(&context.request.body)))
}

/// Notes the new owner of the Scale's replicas; apply has done so already.
fn track(context: &Context, live: &Value, wanted: &mut Value) -> Result<(), Refusal> {
    if context.request.body.format == Format::ApplyPatch {
        return Ok(());
    }
    let writer = managed::Writer {
        layout: decode::layout_of(MESSAGE)?,
        api_version: "autoscaling/v1",
        manager: context.request.options.field_manager.as_deref().unwrap_or("unknown"),
        subresource: "scale",
        now: &context.stamp.rfc3339(),
        reset: context.reset_fields(),
        convert: None,
    };
    managed::track_update(Some(live), wanted, &writer);
    Ok(())
}
