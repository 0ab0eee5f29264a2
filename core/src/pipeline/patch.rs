//! Patch: the newest object, changed as the patch says, then judged as an update.

use super::{Context, Decision, create, document, update};
use crate::merge::{apply, json, managed, strategic};
use crate::object::decode;
use crate::object::meta::{self, Document, metadata, metadata_mut, text};
use crate::refusal::{Cause, Refusal, Subject};
use crate::request::{FieldValidation, Format};
use crate::schema::layout::Layout;
use crate::schema::schema;
use serde_json::Value;
use std::cell::RefCell;

pub(super) fn decide(context: &Context, scope: update::Scope) -> Result<Decision, Refusal> {
    if context.request.body.format == Format::ApplyPatch {
        return decide_apply(context, scope);
    }
    let (key, entry) = context.existing()?;
    let live = context.shown(&entry)?;
    let patched = patched(context, context.layout()?, &live)?;
    let mut warnings = Vec::new();
    let mut new = checked(context, patched, &mut warnings)?;
    create::match_namespace(context, metadata_mut(&mut new))?;
    create::match_name(context, metadata(&new))?;
    let fixed = update::match_version(context, &entry, metadata(&new))? && names_version(&context.request.body.bytes);
    let old = context.old(&entry)?;
    update::replace(context, scope, key, &entry, old, new, fixed, warnings)
}

/// Whether the patch itself names a resource version: then a stale decision is the client's conflict.
fn names_version(patch: &[u8]) -> bool {
    const FIELD: &[u8] = b"resourceVersion";
    patch.windows(FIELD.len()).any(|window| window == FIELD)
}

/// A document with a patch on it, not yet checked.
struct Patched {
    document: Value,
    /// What a complaint about the outcome shows: the whole document, or the patch where it was strategic.
    shown: String,
    /// What strict reading finds wrong with the patch itself.
    strict_errors: Vec<String>,
    /// Kubernetes decodes the outcome of the other formats, but fills a Go struct with that of this one.
    strategic: bool,
}

fn patched(context: &Context, layout: Layout, live: &Value) -> Result<Patched, Refusal> {
    let body = &context.request.body;
    let bad = |why: String| Refusal::BadRequest(format!("error decoding patch: {why}"));
    let with = |document: Value, strict_errors| {
        Ok(Patched { shown: document.to_string(), document, strict_errors, strategic: false })
    };
    match body.format {
        Format::JsonPatch => {
            let patch = decode::json(&body.bytes).map_err(|error| bad(error.to_string()))?;
            let document = json::json_patch(live, &patch.value)?;
            let mut strict_errors = patch.strict_errors();
            strict_errors.extend(json::unknown_members(&patch.value));
            with(document, strict_errors.into_iter().map(|error| format!("json patch {error}")).collect())
        }
        Format::MergePatch => {
            let patch = decode::json(&body.bytes).map_err(|error| bad(error.to_string()))?;
            with(json::merge_patch(live, &patch.value)?, patch.strict_errors())
        }
        Format::StrategicMergePatch => {
            let message = layout.message().ok_or_else(|| {
                document::unsupported(
                    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
                )
            })?;
            let patch = decode::json(&body.bytes).map_err(|error| Refusal::BadRequest(error.to_string()))?;
            if !patch.value.is_object() {
                let found = json::type_name(&patch.value);
                let why = format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}");
                return Err(Refusal::BadRequest(why));
            }
            let document = strategic::strategic_merge(live, &patch.value, schema(), message)?;
            let shown = patch.value.as_object().map(strategic::go_map).unwrap_or_default();
            Ok(Patched { document, shown, strict_errors: patch.strict_errors(), strategic: true })
        }
        Format::Json | Format::Yaml | Format::Protobuf | Format::ApplyPatch => Err(Refusal::UnsupportedMediaType {
            message: "the body of the request was in an unknown format - accepted media types include: \
                      application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml, \
                      application/strategic-merge-patch+json"
                .into(),
        }),
    }
}

impl Patched {
    /// The refusal of an outcome that is no object of its kind. Kubernetes names none.
    fn fault(&self, why: &str) -> Refusal {
        let cause = Cause::invalid("patch", &Value::from(self.shown.as_str()), why);
        Refusal::Invalid { subject: Subject::default(), causes: vec![cause] }
    }

    /// Fits the document to its message. Unknown and repeated fields are refused or told of as the client asks.
    fn check(
        &mut self,
        layout: Layout,
        validation: FieldValidation,
        warnings: &mut Vec<String>,
    ) -> Result<(), Refusal> {
        let unknown = layout.check(&mut self.document).map_err(|error| match self.strategic {
            true => self.fault(&as_converter_says(&error.to_string())),
            false => self.fault(&error.to_string()),
        })?;
        let mut complaints = std::mem::take(&mut self.strict_errors);
        complaints.extend(document::complaints(Vec::new(), &unknown));
        match validation {
            FieldValidation::Strict if !complaints.is_empty() => {
                return Err(self.fault(&format!("strict decoding error: {}", complaints.join(", "))));
            }
            FieldValidation::Warn => warnings.extend(complaints),
            FieldValidation::Strict | FieldValidation::Ignore => {}
        }
        Ok(())
    }
}

/// The words of the converter that fills structs from maps, for what a decoder would say of the same fault.
fn as_converter_says(error: &str) -> String {
    let parts = error
        .strip_prefix("json: cannot unmarshal ")
        .and_then(|rest| rest.split_once(" into Go struct field "))
        .and_then(|(found, rest)| Some((found, rest.rsplit_once(" of type ")?.1)));
    let Some((found, wanted)) = parts else { return error.into() };
    let (kind, name) = match found.split(' ').next().unwrap_or_default() {
        "object" => ("map", "map[string]interface {}"),
        "array" => ("slice", "[]interface {}"),
        "number" if found.contains('.') => ("float64", "float64"),
        "number" => ("int64", "int64"),
        scalar => (scalar, scalar),
    };
    match wanted {
        "string" | "bool" | "int32" | "int64" | "float64" => format!("cannot convert {name} to {wanted}"),
        list if list.starts_with("[]") => format!("cannot restore slice from {kind}"),
        map if map.starts_with("map[") || map == "v1.ResourceList" => format!("cannot restore map from {kind}"),
        _ => format!("cannot restore struct from: {kind}"),
    }
}

/// The patched document, type-checked, in the version of the path.
fn checked(context: &Context, patched: Patched, warnings: &mut Vec<String>) -> Result<Document, Refusal> {
    let mut patched = patched;
    let own = context.request.target.version;
    let mut version = own;
    // A struct is what it is, whatever the map says that fills it.
    if !patched.strategic
        && let Some(document) = patched.document.as_object()
    {
        let found =
            |field: &str, own: String| Some(text(document, field).to_owned()).filter(|f| !f.is_empty()).unwrap_or(own);
        let api_version = found("apiVersion", context.version().api_version());
        let kind = found("kind", context.kind.kind.clone());
        let served = context.kind.versions.iter().position(|version| version.api_version() == api_version);
        version = served
            .filter(|_| kind == context.kind.kind)
            .ok_or_else(|| patched.fault(&context.kind_fault(&api_version, &kind)))?;
    }
    patched.check(document::layout(context.kind, version)?, context.request.options.field_validation, warnings)?;
    let Value::Object(mut new) = patched.document else {
        return Err(patched.fault("the patched object is no object"));
    };
    if version != own {
        new = context.converted(new, version, own)?;
    }
    Ok(new)
}

/// The Scale that a patch makes of the live one. Both hold the managed fields of their replicas.
pub(super) fn scale(context: &Context, live: &Value, warnings: &mut Vec<String>) -> Result<Value, Refusal> {
    let message = schema().id("io.k8s.api.autoscaling.v1.Scale");
    let layout = Layout::of(message.ok_or_else(|| Refusal::Internal("the schema has no Scale".into()))?);
    if context.request.body.format == Format::ApplyPatch {
        let now = context.stamp.rfc3339();
        let config = apply_body(context, "autoscaling/v1", "Scale", warnings)?;
        let merged = applied(context, Some(live), &config, "autoscaling/v1", &now, layout, None)?;
        return fitted(merged, &config, layout);
    }
    let mut patched = patched(context, layout, live)?;
    patched.check(layout, context.request.options.field_validation, warnings)?;
    Ok(patched.document)
}

/// Server-side apply: creates the object, or merges what the manager wants into it.
fn decide_apply(context: &Context, scope: update::Scope) -> Result<Decision, Refusal> {
    let request = context.request;
    let mut warnings = Vec::new();
    let existing = context.state.get(request.target.kind, &request.key()).cloned();
    if existing.is_none() && scope != update::Scope::Main {
        return Err(Refusal::NotFound(context.subject(request.name())));
    }
    let api_version = context.version().api_version();
    let config = apply_body(context, &api_version, &context.kind.kind, &mut warnings)?;
    let live = existing.as_ref().map(|entry| context.shown(entry)).transpose()?;
    let (now, missing) = (context.stamp.rfc3339(), RefCell::new(None));
    let convert = |document: &Value, api_version: &str| convert(context, document, api_version, &missing);
    let layout = context.layout()?;
    let merged = applied(context, live.as_ref(), &config, &api_version, &now, layout, Some(&convert));
    if let Some(refusal) = missing.take() {
        return Err(refusal);
    }
    let Value::Object(mut merged) = fitted(merged?, &config, layout)? else {
        return Err(Refusal::Internal("apply made no object".into()));
    };
    let uid = meta::uid(&merged);
    if existing.is_none() && !uid.is_empty() {
        let message =
            format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
        return Err(Refusal::Conflict { subject: context.subject(request.name()), message });
    }
    create::match_namespace(context, metadata_mut(&mut merged))?;
    create::match_name(context, metadata(&merged))?;
    let Some(entry) = existing else {
        metadata_mut(&mut merged).remove("resourceVersion");
        return create::create(context, merged, warnings);
    };
    let names_version = config["metadata"]["resourceVersion"].as_str().is_some_and(|version| !version.is_empty());
    let fixed = update::match_version(context, &entry, metadata(&merged))? && names_version;
    let old = context.old(&entry)?;
    update::replace(context, scope, request.key().into(), &entry, old, merged, fixed, warnings)
}

#[allow(clippy::too_many_arguments)]
fn applied<'a>(
    context: &'a Context,
    live: Option<&'a Value>,
    config: &'a Value,
    api_version: &'a str,
    now: &'a str,
    layout: Layout<'a>,
    convert: Option<&'a managed::Convert<'a>>,
) -> Result<Value, Refusal> {
    apply::apply(apply::ApplyRequest {
        live,
        config,
        force: context.request.options.force.unwrap_or(false),
        writer: managed::Writer {
            layout,
            api_version,
            manager: context.request.options.field_manager.as_deref().unwrap_or(""),
            subresource: context.request.target.subresource.as_deref().unwrap_or(""),
            now,
            reset: context.reset_fields(),
            convert,
        },
    })
}

/// The merged document as its types show it: apply compares what was sent, letter by letter.
fn fitted(merged: Value, config: &Value, layout: Layout) -> Result<Value, Refusal> {
    let mut merged = merged;
    layout.check(&mut merged).map_err(|error| {
        let (object, kind) = apply::named(config);
        let why = as_converter_says(&error.to_string());
        Refusal::Unreasoned(format!(
            "failed to convert new object ({object}; {kind}) to proper version: unable to convert unstructured object to \
             {}: {why}",
            kind.trim_start_matches('/')
        ))
    })?;
    Ok(merged)
}

/// A document of any served version in another version of the same kind; `None`: there is none of that name, or a
/// webhook has yet to convert it, which is then noted as missing.
pub(super) fn convert<'a>(
    context: &'a Context,
    value: &Value,
    api_version: &str,
    missing: &RefCell<Option<Refusal>>,
) -> Option<(Value, Layout<'a>)> {
    let to = context.kind.version_named(api_version)?;
    let document = value.as_object()?.clone();
    let from = context.kind.version_named(text(&document, "apiVersion")).unwrap_or(context.request.target.version);
    match context.converted(document, from, to) {
        Ok(document) => Some((Value::Object(document), document::layout(context.kind, to).ok()?)),
        Err(refusal) => {
            missing.borrow_mut().get_or_insert(refusal);
            None
        }
    }
}

/// The applied configuration: YAML (and so JSON too) of the kind that the path takes. Its types are apply's to check.
fn apply_body(context: &Context, api_version: &str, kind: &str, warnings: &mut Vec<String>) -> Result<Value, Refusal> {
    let body = &context.request.body;
    let bad = |why: String| Refusal::BadRequest(format!("error decoding YAML: {why}"));
    let decoded = decode::yaml(&body.bytes).map_err(|error| bad(error.to_string()))?;
    let strict_errors = decoded.strict_errors();
    let config = match decoded.value {
        Value::Null => Value::Object(Document::new()),
        Value::Object(config) => Value::Object(config),
        other => {
            let found = json::type_name(&other);
            return Err(bad(format!(
                "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into Go value of type \
                 map[string]interface {{}}"
            )));
        }
    };
    if config["apiVersion"].as_str() != Some(api_version) || config["kind"].as_str() != Some(kind) {
        return Err(Refusal::BadRequest(format!("invalid object type: {}", apply::named(&config).1)));
    }
    // Kubernetes looks for repeated keys when all else is well, which is seen where both are wrong alone.
    if !strict_errors.is_empty() {
        match context.request.options.field_validation {
            FieldValidation::Strict => {
                return Err(Refusal::BadRequest(format!("error strict decoding YAML: {}", strict_errors.join(", "))));
            }
            FieldValidation::Warn => warnings.extend(strict_errors),
            FieldValidation::Ignore => {}
        }
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converter_words() {
        let rows = [
            (
                "string into Go struct field DeploymentSpec.spec.replicas of type int32",
                "cannot convert string to int32",
            ),
            ("number into Go struct field Container.image of type string", "cannot convert int64 to string"),
            ("number 1.5 into Go struct field S.spec.replicas of type int32", "cannot convert float64 to int32"),
            (
                "string into Go struct field PodSpec.spec.containers of type []v1.Container",
                "cannot restore slice from string",
            ),
            ("array into Go struct field M.metadata.labels of type map[string]string", "cannot restore map from slice"),
            ("string into Go struct field D.spec of type v1.DeploymentSpec", "cannot restore struct from: string"),
            ("object into Go struct field D.kind of type string", "cannot convert map[string]interface {} to string"),
        ];
        for (decoder, converter) in rows {
            assert_eq!(as_converter_says(&format!("json: cannot unmarshal {decoder}")), converter);
        }
        assert_eq!(as_converter_says("something else"), "something else");
    }
}
