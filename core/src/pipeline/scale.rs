//! The scale subresource: an object's number of replicas, read and written as a Scale.

use super::candidate::{Candidate, Made, Old};
use super::{Context, Endpoint, Stop, admit, body, decode, patch};
use crate::admission::Operation;
use crate::kinds::known::SCALE;
use crate::kinds::{Kind, ScalePaths};
use crate::merge::managed;
use crate::object::meta::{self, Document, metadata, metadata_mut, path, text};
use crate::refusal::{BadRequest, Cause, Causes, Conflict, Mismatch, Refusal, Subject};
use crate::request::{Format, Verb};
use crate::select::LabelSelector;
use holdfast_value::{Value, json};

const MESSAGE: &str = "io.k8s.api.autoscaling.v1.Scale";

/// The `autoscaling/v1` Scale of an object in the hub version.
pub fn scale_of(paths: &ScalePaths, document: &Value) -> Document {
    let meta = &document["metadata"];
    let mut out = Document::new();
    out.insert("kind", "Scale".into());
    out.insert("apiVersion", "autoscaling/v1".into());
    let mut scale_meta = Document::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = meta.get(field) {
            scale_meta.insert(field, value.clone());
        }
    }
    out.insert("metadata", scale_meta.into());
    let mut spec = Document::new();
    if let Some(replicas) = path(document, &paths.spec_replicas).filter(|replicas| **replicas != json!(0)) {
        spec.insert("replicas", replicas.clone());
    }
    out.insert("spec", spec.into());
    let mut status = Document::new();
    status.insert("replicas", path(document, &paths.status_replicas).cloned().unwrap_or(Value::from(0)));
    if let Some(selector) = paths.selector.as_deref().and_then(|selector| path(document, selector)) {
        let text = match selector {
            // A custom resource stores its selector as text.
            Value::String(text) => text.to_string(),
            object if object["matchLabels"].is_object() || object["matchExpressions"].is_array() => {
                LabelSelector::from_object(object).map(|selector| selector.to_string()).unwrap_or_default()
            }
            labels => {
                labels.as_object().map(|labels| LabelSelector::from_labels(labels).to_string()).unwrap_or_default()
            }
        };
        if !text.is_empty() {
            status.insert("selector", text.into());
        }
    }
    out.insert("status", status.into());
    out
}

/// The faults in the fields to which a custom resource's scale subresource points. These fields are checked even if the
/// schema of the resource does not restrict them.
pub(super) fn causes(kind: &Kind, version: usize, document: &Value) -> Causes {
    let Some(paths) = kind.subresource(version, "scale").and_then(|scale| scale.scale.as_ref()) else {
        return Causes::default();
    };
    let mut causes: Causes = [&paths.spec_replicas, &paths.status_replicas]
        .into_iter()
        .filter_map(|at| replicas_fault(document, at))
        .collect();
    if let Some(at) = &paths.selector {
        causes.extend(reach(document, at, "string", Value::is_string).err().map(|why| fault(at, &"".into(), &why)));
    }
    causes
}

fn replicas_fault(document: &Value, at: &str) -> Option<Cause> {
    let replicas = match reach(document, at, "int64", Value::is_i64) {
        Ok(replicas) => replicas?.as_i64()?,
        Err(why) => return Some(fault(at, &0.into(), &why)),
    };
    let why = match replicas {
        ..0 => "should be a non-negative integer".to_owned(),
        _ if replicas > i32::MAX.into() => format!("should be less than or equal to {}", i32::MAX),
        _ => return None,
    };
    Some(fault(at, &replicas.into(), &why))
}

/// Makes a fault at a path. As CustomResourceDefinitions write paths, the path is shown with a leading dot.
fn fault(at: &str, value: &Value, why: &str) -> Cause {
    Cause::invalid(format!(".{at}"), value, why)
}

/// The value to which a path leads; `None` if a field on the path does not exist. Returns an error if the path leads
/// through a value that is not an object, or if the value is not of the expected type.
fn reach<'a>(
    document: &'a Value,
    at: &str,
    wanted: &str,
    fits: fn(&Value) -> bool,
) -> Result<Option<&'a Value>, String> {
    let accessor = |at: &str, found: &Value, wanted: &str| {
        let (mut shown, ty) = (String::new(), go_type(found));
        put_go(&mut shown, found);
        Err(format!(".{at} accessor error: {shown} is of the type {ty}, expected {wanted}"))
    };
    let (mut value, mut end) = (document, 0);
    for field in at.split('.') {
        end += field.len();
        match value {
            Value::Null => return Ok(None),
            Value::Object(fields) => match fields.get(field) {
                Some(inner) => value = inner,
                None => return Ok(None),
            },
            other => return accessor(&at[..end], other, "map[string]interface{}"),
        }
        end += 1;
    }
    if fits(value) { Ok(Some(value)) } else { accessor(at, value, wanted) }
}

/// The name that Go has for the type of a scalar in messages.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Appends a value to `out` in the form in which Go prints it.
fn put_go(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::String(text) => out.push_str(text),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { " " });
                put_go(out, item);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable_by_key(|(key, _)| *key);
            out.push_str("map[");
            for (index, (key, value)) in fields.into_iter().enumerate() {
                out.push_str(if index == 0 { "" } else { " " });
                out.push_str(key);
                out.push(':');
                put_go(out, value);
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

/// Makes the candidate, whose number of replicas comes from the posted Scale, or from a patch of the live Scale.
pub(super) fn scale(context: &Context, _: &Endpoint) -> Result<Made, Stop> {
    let paths = context.kind.subresource(context.request.target.version, "scale").and_then(|part| part.scale.clone());
    let paths = paths.ok_or_else(|| Refusal::NotFound(context.subject(context.request.name())))?;
    let old = context.existing()?;
    let replicas_path: Vec<&str> = paths.spec_replicas.split('.').collect();
    let live = live_scale(&paths, &old, &replicas_path);
    let mut wanted = wanted_scale(context, &live)?;
    let fixed = check_scale(context, &old, &wanted)?;
    let mut mutated = Value::Null;
    admit::completed_update(context, SCALE, Operation::Update, wanted, &live, |scale| {
        // Validating admission gets the Scale that shows the number of replicas of the changed object.
        let replicas = scale["spec"]["replicas"].clone();
        mutated = std::mem::replace(scale, live.clone());
        let spec = meta::object_mut(meta::fields_mut(scale), "spec");
        super::reset::put(
            spec,
            "replicas",
            Some(replicas).filter(|replicas| !matches!(replicas.as_i64(), None | Some(0))),
        );
        Ok(())
    })?;
    wanted = mutated;
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
    // The replicas field of the object gets a value here, so the object's own schema checks the object.
    let layout = decode::layout(context.kind, context.working_version())?;
    layout.check(&mut new).map_err(|error| Refusal::BadRequest(BadRequest::Undecodable(error.to_string())))?;
    Ok(Candidate { fixed, tracked: true, admitted: true, ..Candidate::replacing(context, old, new) }.into())
}

/// The Scale of the stored object, with the managed fields of its replicas.
fn live_scale(paths: &ScalePaths, old: &Old, replicas_path: &[&str]) -> Value {
    let mut live = scale_of(paths, &old.document);
    let meta = metadata_mut(&mut live);
    meta.insert("resourceVersion", old.entry.offset.to_string().into());
    if let Some(owners) = managed::scale_entries(old.metadata().get("managedFields"), replicas_path) {
        meta.insert("managedFields", owners);
    }
    Value::Object(live)
}

/// The Scale in the body, or the result of the patch in the body. It must have the name of the object that the path
/// names.
fn wanted_scale(context: &Context, live: &Value) -> Result<Value, Stop> {
    let mut scale = match context.request.body.format {
        Format::Json | Format::Yaml | Format::Protobuf => {
            context.decode_as("autoscaling", "v1", "Scale", decode::layout_of(MESSAGE)?)?
        }
        _ => patch::scale(context, decode::layout_of(MESSAGE)?, live)?,
    };
    let meta = metadata_mut(meta::fields_mut(&mut scale));
    body::match_namespace(context, meta)?;
    body::match_name(context, meta)?;
    Ok(scale)
}

/// Checks the UID, the version and the number of replicas in a Scale. Returns whether the client named the version.
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
    // For a custom resource, the number is checked when the whole object is validated.
    if replicas < 0 && context.kind.custom.is_none() {
        let cause = Cause::invalid("spec.replicas", &replicas.into(), "must be greater than or equal to 0");
        return Err(Refusal::Invalid { subject: Subject::new("autoscaling", "Scale", name), causes: cause.into() });
    }
    Ok(!version.is_empty() && (context.request.verb == Verb::Update || patch::names_version(&context.request.body)))
}

/// Records who owns the replicas of the Scale. For an apply this has been done already.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_resource_scales_by_is_reached_or_not() {
        let told = |document: Value| match replicas_fault(&document, "spec.n") {
            Some(cause) => format!("{}: {}", cause.field, cause.message),
            None => String::new(),
        };
        for (document, expected) in [
            (json!({}), ""),
            (json!({"spec": null}), ""),
            (json!({"spec": {"n": 3}}), ""),
            (json!({"spec": {"n": -1}}), ".spec.n: Invalid value: -1: should be a non-negative integer"),
            (
                json!({"spec": {"n": 2_147_483_648_i64}}),
                ".spec.n: Invalid value: 2147483648: should be less than or equal to 2147483647",
            ),
            (
                json!({"spec": "x"}),
                ".spec.n: Invalid value: 0: .spec.n accessor error: x is of the type string, expected \
                 map[string]interface{}",
            ),
            (
                json!({"spec": {"n": {"b": [1, true], "a": null}}}),
                ".spec.n: Invalid value: 0: .spec.n accessor error: map[a:<nil> b:[1 true]] is of the type \
                 map[string]interface {}, expected int64",
            ),
        ] {
            assert_eq!(told(document.clone()), expected, "{document}");
        }
    }
}
