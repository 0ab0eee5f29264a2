//! Patch: the newest object, changed as the patch says, then judged as an update.

use super::{Context, Decision, create, document, update};
use crate::merge::{apply, json, managed, strategic};
use crate::object::decode;
use crate::object::meta::{self, Document, metadata, metadata_mut, text};
use crate::refusal::{Cause, Refusal};
use crate::request::{FieldValidation, Format};
use crate::schema::{MessageId, check, schema};
use crate::state::Entry;
use serde_json::Value;
use std::sync::Arc;

pub(super) fn decide(context: &Context, scope: update::Scope) -> Result<Decision, Refusal> {
    if context.request.body.format == Format::ApplyPatch {
        return decide_apply(context, scope);
    }
    if context.request.options.force.is_some() {
        return Err(Refusal::Invalid {
            subject: crate::refusal::Subject::new("meta.k8s.io", "PatchOptions", ""),
            causes: vec![Cause::forbidden("force", "may not be specified for non-apply patch")],
        });
    }
    let (key, entry) = context.existing()?;
    let live = entry.document_in(context.kind, context.request.target.version);
    let (patched, duplicates) = patched(context, &live)?;
    let mut warnings = Vec::new();
    let new = checked(context, patched, duplicates, &mut warnings)?;
    let version = text(metadata(&new), "resourceVersion").to_owned();
    if version != entry.offset.to_string() && !version.is_empty() {
        return Err(update::modified(context));
    }
    let fixed = names_version(&context.request.body.bytes);
    let old = update::old_document(&entry);
    update::replace(context, scope, key, &entry, old, new, fixed, warnings)
}

/// Whether the patch itself names a resource version: then a stale decision is the client's conflict.
fn names_version(patch: &[u8]) -> bool {
    const FIELD: &[u8] = b"resourceVersion";
    patch.windows(FIELD.len()).any(|window| window == FIELD)
}

/// The live document with the patch on it, and the duplicate keys found in the patch.
fn patched(context: &Context, live: &Value) -> Result<(Value, Vec<String>), Refusal> {
    patched_as(context, context.message()?, live)
}

fn patched_as(context: &Context, message: MessageId, live: &Value) -> Result<(Value, Vec<String>), Refusal> {
    let body = &context.request.body;
    let bad = |why: String| Refusal::BadRequest(format!("error decoding patch: {why}"));
    match body.format {
        Format::JsonPatch => {
            let patch = decode::json(&body.bytes).map_err(|error| bad(error.to_string()))?;
            let new = json::json_patch(live, &patch.value)?;
            Ok((new, patch.strict_errors()))
        }
        Format::MergePatch => {
            let patch = decode::json(&body.bytes).map_err(|error| bad(error.to_string()))?;
            Ok((json::merge_patch(live, &patch.value)?, patch.strict_errors()))
        }
        Format::StrategicMergePatch => {
            let patch = decode::json(&body.bytes).map_err(|error| bad(error.to_string()))?;
            let new = strategic::strategic_merge(live, &patch.value, schema(), message)?;
            Ok((new, patch.strict_errors()))
        }
        Format::Json | Format::Yaml | Format::Protobuf | Format::ApplyPatch => Err(Refusal::UnsupportedMediaType {
            message: "the body of the request was in an unknown format - accepted media types include: \
                      application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml, \
                      application/strategic-merge-patch+json"
                .into(),
        }),
    }
}

/// The patched document, type-checked: what does not fit is the patch's fault.
fn checked(
    context: &Context,
    patched: Value,
    duplicates: Vec<String>,
    warnings: &mut Vec<String>,
) -> Result<Document, Refusal> {
    let mut patched = patched;
    let fault = |why: String| Refusal::Invalid {
        subject: context.kind_subject(context.request.name()),
        causes: vec![Cause::invalid(
            "patch",
            &String::from_utf8_lossy(&context.request.body.bytes).into_owned().into(),
            &why,
        )],
    };
    let unknown = check(schema(), context.message()?, &mut patched).map_err(|error| fault(error.to_string()))?;
    let complaints = document::complaints(duplicates, &unknown);
    match context.request.options.field_validation {
        FieldValidation::Strict if !complaints.is_empty() => {
            return Err(fault(format!("strict decoding error: {}", complaints.join(", "))));
        }
        FieldValidation::Warn => warnings.extend(complaints),
        FieldValidation::Strict | FieldValidation::Ignore => {}
    }
    let Value::Object(mut new) = patched else {
        return Err(fault("the patched object is no object".into()));
    };
    let api_version = context.version().api_version();
    for (field, expected) in [("apiVersion", api_version.as_str()), ("kind", context.kind.kind.as_str())] {
        let found = text(&new, field);
        if !found.is_empty() && found != expected {
            return Err(Refusal::BadRequest(format!(
                "the {field} in the data ({found}) does not match the expected {field} ({expected})"
            )));
        }
    }
    create::match_namespace(context, metadata_mut(&mut new))?;
    create::match_name(context, metadata(&new))?;
    Ok(new)
}

/// The Scale that a patch makes of the live one.
pub(super) fn scale(context: &Context, live: &Value) -> Result<Value, Refusal> {
    let body = &context.request.body;
    let message = schema().id("io.k8s.api.autoscaling.v1.Scale");
    let message = message.ok_or_else(|| Refusal::Internal("the schema has no Scale".into()))?;
    let (mut new, _) = if body.format == Format::ApplyPatch {
        let decoded =
            decode::yaml(&body.bytes).map_err(|error| Refusal::BadRequest(format!("error decoding YAML: {error}")))?;
        (json::merge_patch(live, &decoded.value)?, decoded.strict_errors())
    } else {
        patched_as(context, message, live)?
    };
    check(schema(), message, &mut new).map_err(|error| {
        let sent = String::from_utf8_lossy(&body.bytes).into_owned();
        Refusal::Invalid {
            subject: crate::refusal::Subject::new("autoscaling", "Scale", context.request.name()),
            causes: vec![Cause::invalid("patch", &sent.into(), &error.to_string())],
        }
    })?;
    Ok(new)
}

/// Server-side apply: creates the object, or merges what the manager wants into it.
fn decide_apply(context: &Context, scope: update::Scope) -> Result<Decision, Refusal> {
    let request = context.request;
    let mut warnings = Vec::new();
    let config = apply_body(context, &mut warnings)?;
    let existing = context.state.get(request.target.kind, &request.key()).cloned();
    if existing.is_none() && scope != update::Scope::Main {
        return Err(Refusal::NotFound(context.subject(request.name())));
    }
    let config_version = text(metadata(&config), "resourceVersion").to_owned();
    if let Some(entry) = &existing
        && !config_version.is_empty()
        && config_version != entry.offset.to_string()
    {
        return Err(update::modified(context));
    }
    let live = existing.as_ref().map(|entry| live_document(context, entry));
    let convert = |document: &Value, api_version: &str| convert(context, document, api_version);
    let merged = apply::apply(apply::ApplyRequest {
        live: live.as_ref(),
        config: &Value::Object(config),
        force: request.options.force.unwrap_or(false),
        writer: managed::Writer {
            schema: schema(),
            message: context.message()?,
            api_version: &context.version().api_version(),
            manager: request.options.field_manager.as_deref().unwrap_or(""),
            subresource: request.target.subresource.as_deref().unwrap_or(""),
            now: &context.stamp.rfc3339(),
            reset: context.reset_fields(),
            convert: Some(&convert),
        },
    })?;
    let Value::Object(mut merged) = merged else {
        return Err(Refusal::Internal("apply made no object".into()));
    };
    match existing {
        None => {
            let uid = meta::uid(&merged);
            if !uid.is_empty() {
                return Err(update::other_uid(context, uid, ""));
            }
            metadata_mut(&mut merged).remove("resourceVersion");
            create::create(context, merged, warnings)
        }
        Some(entry) => {
            metadata_mut(&mut merged).remove("resourceVersion");
            let old = update::old_document(&entry);
            let key: Arc<str> = request.key().into();
            update::replace(context, scope, key, &entry, old, merged, !config_version.is_empty(), warnings)
        }
    }
}

fn live_document(context: &Context, entry: &Entry) -> Value {
    entry.document_in(context.kind, context.request.target.version)
}

/// A document of the path's version in another version of the same kind; `None`: there is none of that name.
fn convert(context: &Context, value: &Value, api_version: &str) -> Option<(Value, MessageId)> {
    let to = context.kind.versions.iter().position(|version| version.api_version() == api_version)?;
    let mut document = value.as_object()?.clone();
    super::to_hub(context.kind, context.request.target.version, &mut document);
    super::from_hub(context.kind, to, &mut document);
    Some((Value::Object(document), document::message(context.kind, to).ok()?))
}

/// The applied configuration: YAML (and so JSON too), strictly typed, about the object that the path names.
fn apply_body(context: &Context, warnings: &mut Vec<String>) -> Result<Document, Refusal> {
    let body = &context.request.body;
    let bad = |why: String| Refusal::BadRequest(format!("error decoding YAML: {why}"));
    let decoded = decode::yaml(&body.bytes).map_err(|error| bad(error.to_string()))?;
    let strict_errors = decoded.strict_errors();
    let mut value = decoded.value;
    let version = context.version();
    let Some(found) = value.as_object() else {
        return Err(bad("the body is not an object".into()));
    };
    for (field, expected) in [("apiVersion", version.api_version()), ("kind", context.kind.kind.clone())] {
        let found = text(found, field);
        if found.is_empty() {
            return Err(Refusal::BadRequest(format!("invalid object type: {field} must be set")));
        }
        if found != expected {
            return Err(Refusal::BadRequest(format!(
                "failed to create typed patch object: {field} {found} does not match {expected}"
            )));
        }
    }
    let unknown = check(schema(), context.message()?, &mut value)
        .map_err(|error| Refusal::BadRequest(format!("failed to create typed patch object: {error}")))?;
    let complaints = document::complaints(strict_errors, &unknown);
    match context.request.options.field_validation {
        FieldValidation::Strict if !complaints.is_empty() => {
            return Err(Refusal::BadRequest(format!("strict decoding error: {}", complaints.join(", "))));
        }
        FieldValidation::Warn => warnings.extend(complaints),
        FieldValidation::Strict | FieldValidation::Ignore => {}
    }
    let Value::Object(mut config) = value else { return Err(bad("the body is not an object".into())) };
    let meta = metadata_mut(&mut config);
    create::match_namespace(context, meta)?;
    let name = text(meta, "name");
    if !name.is_empty() && name != context.request.name() {
        return Err(create::name_mismatch(name, context.request.name()));
    }
    meta.insert("name".into(), context.request.name().into());
    if meta.get("managedFields").is_some_and(|fields| fields.as_array().is_none_or(|list| !list.is_empty())) {
        return Err(Refusal::BadRequest("metadata.managedFields must be nil".into()));
    }
    Ok(config)
}
