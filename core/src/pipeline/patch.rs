//! Makes candidates by patching the stored object: JSON patch, merge patch, strategic merge patch and apply.

use super::candidate::{Candidate, Made, Old};
use super::{Context, Endpoint, Stop, body, decode as documents, manage, patched};
use crate::merge::{apply as server_side, json, managed, strategic};
use crate::object::decode::warnings;
use crate::object::meta::{self, metadata_mut, text};
use crate::refusal::{
    ApplyFault, BadRequest, Cause, Causes, Conflict, PatchFault, Refusal, Subject, Texts, Unmarshal, Unreasoned,
};
use crate::request::{Body, FieldValidation, Format};
use crate::schema::layout::Layout;
use crate::schema::{go_names, schema};
use holdfast_value::Value;
use std::cell::RefCell;

pub(super) fn patch(context: &Context, _: &Endpoint) -> Result<Made, Stop> {
    let old = context.existing()?;
    let live = context.shown(&old);
    let patched = Patched::new(context, context.layout()?, &live)?;
    let named = patched.names_version;
    let mut new = checked(context, patched)?;
    let meta = metadata_mut(meta::fields_mut(&mut new));
    body::match_namespace(context, meta)?;
    body::match_name(context, meta)?;
    let fixed = body::match_version(context, &old, meta)? && named;
    Ok(Candidate { fixed, ..Candidate::replacing(context, old, new) }.into())
}

/// Whether the patch in a body sets the resourceVersion. If so, and another write is first, the client gets a conflict.
pub(super) fn names_version(body: &Body) -> bool {
    match body.format {
        Format::ApplyPatch => body.content.yaml().is_ok_and(|patch| sets_version(&patch.value)),
        _ => body.content.json().is_ok_and(|patch| sets_version(&patch.value)),
    }
}

/// Whether a parsed patch sets the object's resourceVersion. A `resourceVersion` inside data or annotations does not
/// count.
fn sets_version(patch: &Value) -> bool {
    let is_version = |value: &Value| value.as_str().is_some_and(|version| !version.is_empty());
    match patch {
        Value::Array(operations) => operations.iter().any(|operation| {
            if !matches!(operation["op"].as_str(), Some("add" | "replace" | "move" | "copy")) {
                return false;
            }
            let value = &operation["value"];
            match operation["path"].as_str().map(json::from_root) {
                Some("/metadata/resourceVersion") => value.is_null() || is_version(value),
                Some("/metadata") => is_version(&value["resourceVersion"]),
                Some("") => is_version(&value["metadata"]["resourceVersion"]),
                _ => false,
            }
        }),
        patch => is_version(&patch["metadata"]["resourceVersion"]),
    }
}

/// The patched document, which is not checked yet.
struct Patched<'a> {
    context: &'a Context<'a>,
    layout: Layout<'a>,
    /// The document before the patch: the object, or its Scale.
    live: &'a Value,
    document: Value,
    /// Faults that strict decoding finds in the patch itself.
    strict_errors: Texts,
    /// Whether the patch sets the object's resourceVersion.
    names_version: bool,
}

impl<'a> Patched<'a> {
    fn new(context: &'a Context<'a>, layout: Layout<'a>, live: &'a Value) -> Result<Patched<'a>, Refusal> {
        let body = &context.request.body;
        let mut patched = Patched {
            context,
            layout,
            live,
            document: Value::Null,
            strict_errors: Texts::default(),
            names_version: false,
        };
        let patch = match body.format {
            Format::JsonPatch | Format::MergePatch => {
                body.content.json().map_err(|error| json::bad_patch(PatchFault::Undecodable(error.to_string())))?
            }
            Format::StrategicMergePatch if layout.message().is_some() => {
                body.content.json().map_err(|error| Refusal::BadRequest(BadRequest::Undecodable(error.to_string())))?
            }
            Format::StrategicMergePatch => {
                return Err(Refusal::UnsupportedMediaType {
                    accepted: "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
                });
            }
            Format::Json | Format::Yaml | Format::Protobuf | Format::ApplyPatch => return Err(unknown_format()),
        };
        patched.strict_errors = patch.strict_errors();
        patched.names_version = sets_version(&patch.value);
        if body.format == Format::JsonPatch {
            patched.strict_errors.append(json::unknown_members(&patch.value));
            patched.strict_errors = patched.strict_errors.map(|error| format!("json patch {error}"));
        }
        patched.document = patched.apply(patch.value)?;
        Ok(patched)
    }

    fn apply(&self, patch: Value) -> Result<Value, Refusal> {
        match (self.context.request.body.format, self.layout.message()) {
            (Format::JsonPatch, _) => json::json_patch(self.live.clone(), &patch),
            (Format::MergePatch, _) => json::merge_patch(self.live.clone(), patch),
            (_, Some(_)) if patch.is_null() => Ok(self.live.clone()),
            (_, Some(message)) if patch.is_object() => strategic::strategic_merge(self.live, &patch, schema(), message),
            _ => {
                let found = meta::type_name(&patch);
                Err(Refusal::BadRequest(BadRequest::Unmarshal(Unmarshal::whole(found, Unmarshal::MAP))))
            }
        }
    }

    /// Whether the patch is a strategic merge patch. For that format Kubernetes converts the result into a Go struct;
    /// for the other formats it decodes the JSON of the result.
    fn is_strategic(&self) -> bool {
        self.context.request.body.format == Format::StrategicMergePatch
    }

    /// The refusal of a patch whose result is not an object of its kind. As in Kubernetes, the refusal names no object.
    fn fault(&self, why: &str) -> Refusal {
        let cause = Cause::invalid("patch", &Value::from(self.shown()), why);
        Refusal::Invalid { subject: Subject::default(), causes: cause.into() }
    }

    /// The text that an error about the result shows: the patch itself if it is strategic, otherwise the whole patched
    /// document before pruning. The patched document is computed again for the message.
    fn shown(&self) -> String {
        let patch = self.context.request.body.content.json().map(|patch| patch.value).unwrap_or_default();
        if self.is_strategic() {
            return patch.as_object().map(strategic::go_map).unwrap_or_default();
        }
        let touched = match self.context.request.body.format {
            Format::JsonPatch => json::touched(&patch),
            _ => patch.clone(),
        };
        let message = self.layout.message().map(|message| schema().message(message));
        let shown = |document: Value| patched::json(schema(), message, &document, &touched);
        self.apply(patch).map(shown).unwrap_or_default()
    }

    /// Checks and prunes the patched document by its schema. Unknown and duplicate fields are refused, reported as
    /// warnings or ignored, depending on the client's `fieldValidation`.
    ///
    /// Subtrees that the document shares with `checked` are skipped, because they are known to be valid.
    fn check(&mut self, layout: Layout, checked: Option<&Value>) -> Result<(), Refusal> {
        let unknown = layout.check_change(&mut self.document, checked).map_err(|error| match self.is_strategic() {
            true => self.fault(&as_converter_says(&error.to_string())),
            false => self.fault(&error.to_string()),
        })?;
        let mut complaints = std::mem::take(&mut self.strict_errors);
        complaints.append(documents::complaints(Texts::default(), unknown));
        match self.context.request.options.field_validation {
            FieldValidation::Strict if !complaints.is_empty() => {
                return Err(self.fault(&format!("strict decoding error: {}", complaints.into_vec().join(", "))));
            }
            FieldValidation::Warn => self.context.warn_of(complaints),
            FieldValidation::Strict | FieldValidation::Ignore => {}
        }
        Ok(())
    }
}

fn unknown_format() -> Refusal {
    Refusal::UnsupportedMediaType {
        accepted: "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml, \
                   application/strategic-merge-patch+json",
    }
}

/// Rewrites an error of the decoder into the words in which Go's map-to-struct converter reports the same fault.
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
        text if go_names::is_text(text) => format!("cannot convert {name} to {text}"),
        list if list.starts_with("[]") => format!("cannot restore slice from {kind}"),
        map if map.starts_with("map[") || map == "v1.ResourceList" => format!("cannot restore map from {kind}"),
        _ => format!("cannot restore struct from: {kind}"),
    }
}

/// Checks the types of the patched document, and converts it to the version of the path.
fn checked(context: &Context, patched: Patched) -> Result<Value, Stop> {
    let mut patched = patched;
    let own = context.request.target.version;
    let mut version = own;
    // A strategic patch is converted into the struct of the path's kind, even if it sets another apiVersion and kind.
    if !patched.is_strategic()
        && let Some(document) = patched.document.as_object()
    {
        if context.kind.custom.is_some() && patched.layout.message().is_none() {
            check_custom_type(context, &patched, document)?;
        }
        let found =
            |field: &str, own: String| Some(text(document, field).to_owned()).filter(|f| !f.is_empty()).unwrap_or(own);
        let api_version = found("apiVersion", context.version().api_version());
        let kind = found("kind", context.kind.kind.clone());
        let served = context.kind.versions.iter().position(|version| version.api_version() == api_version);
        version = served
            .filter(|_| kind == context.kind.kind)
            .ok_or_else(|| patched.fault(&context.kind_fault(&api_version, &kind).to_string()))?;
    }
    // The stored object has been checked in this version before, so the parts that the result shares with it are
    // skipped.
    let checked = (version == own).then_some(patched.live);
    patched.check(documents::layout(context.kind, version)?, checked)?;
    if !patched.document.is_object() {
        return Err(patched.fault("the result of the patch is not an object").into());
    }
    context.converted(patched.document, version, own)
}

/// Checks that a patched custom object still has the kind of the path, in any served version.
fn check_custom_type(context: &Context, patched: &Patched, document: &meta::Document) -> Result<(), Refusal> {
    let (found_version, found_kind) = (text(document, "apiVersion"), text(document, "kind"));
    if found_kind.is_empty() {
        return Err(patched.fault(&format!("Object 'Kind' is missing in '{}'", patched.shown())));
    }
    let (own_version, own_kind) = (context.version().api_version(), &context.kind.kind);
    let is_served = context.kind.versions.iter().any(|version| version.api_version() == found_version);
    let mut causes = Causes::default();
    if found_kind != own_kind {
        causes.push(Cause::invalid("kind", &found_kind.into(), &format!("must be {own_kind}")));
    }
    if !is_served {
        causes.push(Cause::invalid("apiVersion", &found_version.into(), &format!("must be {own_version}")));
    }
    if causes.is_empty() {
        return Ok(());
    }
    let group = found_version.split_once('/').map_or("", |(group, _)| group);
    Err(Refusal::Invalid { subject: Subject::new(group, found_kind, context.request.name()), causes })
}

/// The Scale that results from a patch of the live Scale. Both Scales have managed fields, with the owners of the
/// replicas.
pub(super) fn scale(context: &Context, layout: Layout, live: &Value) -> Result<Value, Stop> {
    if context.request.body.format == Format::ApplyPatch {
        let config = apply_body(context, "autoscaling/v1", "Scale")?;
        let now = &context.stamp.rfc3339();
        let apply = Apply { live: Some(live), config: &config, api_version: "autoscaling/v1", layout, now };
        return Ok(fitted(apply.merged(context, None)?, &config, layout)?);
    }
    let mut patched = Patched::new(context, layout, live)?;
    patched.check(layout, None)?;
    Ok(patched.document)
}

/// Server-side apply: creates the object, or merges the manager's configuration into it.
pub(super) fn apply(context: &Context, endpoint: &Endpoint) -> Result<Made, Stop> {
    let request = context.request;
    let old = context.find()?;
    if old.is_none() && !endpoint.may_create() {
        return Err(Refusal::NotFound(context.subject(request.name())).into());
    }
    let api_version = context.version().api_version();
    let config = apply_body(context, &api_version, &context.kind.kind)?;
    let live = old.as_ref().map(|old| context.shown(old));
    let missing = RefCell::new(None);
    let convert = |document: &Value, api_version: &str| manage::convert(context, document, api_version, &missing);
    let layout = context.layout()?;
    let now = &context.stamp.rfc3339();
    let apply = Apply { live: live.as_ref(), config: &config, api_version: &api_version, layout, now };
    let merged = apply.merged(context, Some(&convert));
    if let Some(stop) = missing.take() {
        return Err(stop);
    }
    let merged = fitted(merged?, &config, layout)?;
    Ok(applied(context, old, merged, sets_version(&config))?.into())
}

/// The candidate for a document that apply has merged.
fn applied(context: &Context, old: Option<Old>, merged: Value, names_version: bool) -> Result<Candidate, Refusal> {
    let mut merged = merged;
    let meta = metadata_mut(meta::fields_mut(&mut merged));
    let uid = text(meta, "uid");
    if old.is_none() && !uid.is_empty() {
        let why = Conflict::NoObjectWithUid(uid.into());
        return Err(Refusal::Conflict { subject: context.subject(context.request.name()), why });
    }
    body::match_namespace(context, meta)?;
    body::match_name(context, meta)?;
    let Some(old) = old else {
        meta.remove("resourceVersion");
        return Ok(Candidate { tracked: true, ..body::creating(context, merged)? });
    };
    let fixed = body::match_version(context, &old, meta)? && names_version;
    Ok(Candidate { fixed, tracked: true, ..Candidate::replacing(context, old, merged) })
}

/// The input of one apply.
struct Apply<'a> {
    live: Option<&'a Value>,
    config: &'a Value,
    api_version: &'a str,
    layout: Layout<'a>,
    now: &'a str,
}

impl<'a> Apply<'a> {
    fn merged(self, context: &'a Context, convert: Option<&'a managed::Convert<'a>>) -> Result<Value, Refusal> {
        server_side::apply(server_side::ApplyRequest {
            live: self.live,
            config: self.config,
            force: context.request.options.force.unwrap_or(false),
            writer: managed::Writer {
                layout: self.layout,
                api_version: self.api_version,
                manager: context.request.options.field_manager.as_deref().unwrap_or(""),
                subresource: context.request.target.subresource.as_deref().unwrap_or(""),
                now: self.now,
                reset: context.reset_fields(),
                convert,
            },
        })
    }
}

/// Checks and normalizes the merged document by its schema. This happens after the merge, because apply compares values
/// as clients sent them.
fn fitted(merged: Value, config: &Value, layout: Layout) -> Result<Value, Refusal> {
    let mut merged = merged;
    layout.check(&mut merged).map_err(|error| {
        let (object, kind) = server_side::named(config);
        let fault = as_converter_says(&error.to_string());
        Refusal::Unreasoned(Unreasoned::Unconverted { object, kind, fault })
    })?;
    Ok(merged)
}

/// The applied configuration, in YAML (which includes JSON), of the path's kind. The merge itself checks the types of
/// its fields later.
fn apply_body(context: &Context, api_version: &str, kind: &str) -> Result<Value, Refusal> {
    let body = &context.request.body;
    let bad = |fault: ApplyFault| Refusal::BadRequest(BadRequest::Apply(fault));
    let decoded = body.content.yaml().map_err(|error| bad(ApplyFault::Undecodable(error.to_string())))?;
    let strict_errors = decoded.strict_errors();
    let config = match decoded.value {
        Value::Null => Value::Object(meta::Document::new()),
        Value::Object(config) => Value::Object(config),
        other => {
            let found = meta::type_name(&other);
            return Err(bad(ApplyFault::Unmarshal(Unmarshal::whole(found, Unmarshal::MAP))));
        }
    };
    if config["apiVersion"].as_str() != Some(api_version) || config["kind"].as_str() != Some(kind) {
        return Err(bad(ApplyFault::OtherKind { kind: server_side::named(&config).1 }));
    }
    // As in Kubernetes, duplicate keys are reported only if the configuration has no other fault.
    if !strict_errors.is_empty() {
        match context.request.options.field_validation {
            FieldValidation::Strict => return Err(bad(ApplyFault::Strict(strict_errors.into_vec()))),
            FieldValidation::Warn => context.warn_of(warnings(strict_errors)),
            FieldValidation::Ignore => {}
        }
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn patches_that_set_the_version() {
        let one = |path: &str, value: Value| json!([{"op": "add", "path": path, "value": value}]);
        let rows = [
            (one("/metadata/resourceVersion", json!("7")), true),
            (one("x/metadata/resourceVersion", json!("7")), true),
            (one("/metadata", json!({"resourceVersion": "7"})), true),
            (one("/metadata/resourceVersion", json!("")), false),
            (one("/data/resourceVersion", json!("7")), false),
            (one("/x/metadata/resourceVersion", json!("7")), false),
            (json!({"metadata": {"resourceVersion": "7"}}), true),
            (json!({"data": {"resourceVersion": "7"}}), false),
        ];
        for (patch, expected) in rows {
            assert_eq!(sets_version(&patch), expected, "{patch}");
        }
    }

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
