//! Update: a document replaces an object, within the part of it that the request may touch.

use super::{Answer, Context, Decision, View, create, lifecycle};
use crate::kinds::Kind;
use crate::merge::managed;
use crate::object::Draft;
use crate::object::meta::{self, Document, metadata, metadata_mut, text};
use crate::object::names::name_rule;
use crate::object::validate;
use crate::refusal::{Cause, CauseReason, Refusal};
use crate::state::Entry;
use serde_json::Value;
use std::sync::Arc;

/// Which part of an object a request may touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// All but the status.
    Main,
    /// The status alone.
    Status,
    /// `spec.finalizers` of a namespace.
    Finalize,
    /// The conditions of a certificate signing request.
    Approval,
    /// `spec.ephemeralContainers` of a pod.
    EphemeralContainers,
    /// Container resources of a pod.
    Resize,
}

pub(super) fn decide(context: &Context, scope: Scope) -> Result<Decision, Refusal> {
    let mut warnings = Vec::new();
    let mut document = context.decode(&mut warnings)?;
    let meta = metadata_mut(&mut document);
    create::match_namespace(context, meta)?;
    create::match_name(context, meta)?;
    let key = context.request.key();
    let Some(entry) = context.state.get(context.request.target.kind, &key).cloned() else {
        if scope == Scope::Main && context.kind.create_on_update {
            let uid = meta::uid(&document);
            if !uid.is_empty() {
                return Err(other_uid(context, uid, ""));
            }
            return create::create(context, document, warnings);
        }
        return Err(Refusal::NotFound(context.subject(context.request.name())));
    };
    let fixed = precondition(context, &entry, metadata(&document))?;
    let old = context.old(&entry)?;
    replace(context, scope, key.into(), &entry, old, document, fixed, warnings)
}

/// Judges the whole new document (in the path's version) of an object that exists.
#[allow(clippy::too_many_arguments)]
pub(super) fn replace(
    context: &Context,
    scope: Scope,
    key: Arc<str>,
    entry: &Arc<Entry>,
    old: Document,
    document: Document,
    fixed: bool,
    warnings: Vec<String>,
) -> Result<Decision, Refusal> {
    let mut new = document;
    context.settle(&mut new)?;
    confine(context, scope, &mut new, &old);
    keep_identity(&mut new, &old);
    super::service::allocate(context, Some(&old), &mut new)?;
    count_generation(context, &mut new, &old);
    super::definition::settle(context, &mut new);

    let name = context.request.name();
    let mut causes = validate::metadata(
        metadata(&new),
        name_rule(&context.kind.kind, &context.kind.versions[0].group),
        context.kind.is_namespaced(),
    );
    causes.extend(validate::metadata_update(metadata(&new), metadata(&old)));
    causes.extend(immutable(context, &new, &old));
    // A status obeys no rule of the spec. The other parts have subresources of their own just because an ordinary
    // update may not change them, so that the rules for a new object hold there, unless the part has its own.
    let part = context.request.target.subresource.as_deref();
    let part = part.and_then(|part| context.kind.subresource(context.request.target.version, part));
    match part.and_then(|part| part.validate) {
        Some(rule) => causes.extend(rule(&Value::Object(new.clone()), Some(&Value::Object(old.clone())))),
        // The schema of a custom resource is one for all of it.
        None if context.kind.custom.is_some() || scope == Scope::Main => causes.extend(context.judge(&new, Some(&old))),
        None if scope == Scope::Status => {}
        None => causes.extend(context.judge(&new, None)),
    }
    if !causes.is_empty() {
        return Err(Refusal::Invalid { subject: context.kind_subject(name), causes });
    }
    lifecycle::admit_roles(context, &new, Some(&old))?;
    create::track(context, Some(&old), &mut new)?;
    managed::keep_times(&old, &mut new);
    conclude(context, key, entry, new, fixed, warnings)
}

/// A write of `new`, or the removal that it completes, or nothing when nothing changes.
pub(super) fn conclude(
    context: &Context,
    key: Arc<str>,
    entry: &Arc<Entry>,
    new: Document,
    fixed: bool,
    warnings: Vec<String>,
) -> Result<Decision, Refusal> {
    let gone = meta::is_deleting(&new) && is_released(&new);
    let write = context.write(key, Some(entry.offset), new, gone)?;
    if !gone && write.draft.is(&entry.json, entry.offset) {
        return Ok(Decision::unchanged(entry.clone(), 200, warnings));
    }
    Ok(Decision {
        writes: vec![write],
        expects: Vec::new(),
        answer: Answer::Written { index: 0, code: 200, view: View::Object },
        fixed,
        warnings,
    })
}

/// Nothing holds a deleted object back any more: no finalizer and no grace period.
pub(super) fn is_released(document: &Document) -> bool {
    let spec_finalizers = document
        .get("spec")
        .filter(|_| text(document, "kind") == "Namespace" && text(document, "apiVersion") == "v1")
        .and_then(|spec| spec.get("finalizers"))
        .and_then(Value::as_array)
        .is_some_and(|list| !list.is_empty());
    let grace = metadata(document).get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    meta::finalizers(document).is_empty() && !spec_finalizers && grace == 0
}

/// Checks the version and uid that the body names; true when it fixed the version.
fn precondition(context: &Context, entry: &Entry, meta: &Document) -> Result<bool, Refusal> {
    let uid = text(meta, "uid");
    if !uid.is_empty() {
        let old = entry.document();
        let found = old.as_object().map(meta::uid).unwrap_or_default();
        if uid != found {
            return Err(other_uid(context, uid, found));
        }
    }
    match_version(context, entry, meta)
}

/// Checks the version that a document names; true when it named one.
pub(super) fn match_version(context: &Context, entry: &Entry, meta: &Document) -> Result<bool, Refusal> {
    let name = context.request.name();
    match text(meta, "resourceVersion") {
        "" | "0" if context.kind.unconditional_update => Ok(false),
        // Kubernetes names the resource here, where it names the kind elsewhere.
        "" | "0" => Err(Refusal::Invalid {
            subject: context.subject(name),
            causes: vec![Cause {
                reason: CauseReason::Invalid,
                field: "metadata.resourceVersion".into(),
                // Kubernetes shows it as Go writes an unsigned number.
                message: "Invalid value: 0x0: must be specified for an update".into(),
            }],
        }),
        version => {
            // Kubernetes only parses it, deep in its store, and hands the fault on as it is.
            let parsed: u64 = version.parse().map_err(|_| {
                Refusal::Unreasoned(format!("strconv.ParseUint: parsing \"{version}\": invalid syntax"))
            })?;
            if parsed != entry.offset.0 {
                return Err(modified(context));
            }
            Ok(true)
        }
    }
}

/// The answer to a write on an object that another has taken the place of, or none.
pub(super) fn other_uid(context: &Context, wanted: &str, found: &str) -> Refusal {
    let key = format!("/registry/{}/{}", context.kind.storage, context.request.key());
    Refusal::Conflict {
        subject: context.subject(context.request.name()),
        message: format!(
            "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition \
             failed: UID in precondition: {wanted}, UID in object meta: {found}"
        ),
    }
}

/// The answer to a write on a version that is no longer the newest.
pub(super) fn modified(context: &Context) -> Refusal {
    Refusal::Conflict {
        subject: context.subject(context.request.name()),
        message: "the object has been modified; please apply your changes to the latest version and try again".into(),
    }
}

/// Puts back everything that this request may not touch.
fn confine(context: &Context, scope: Scope, new: &mut Document, old: &Document) {
    match scope {
        Scope::Main => match context.kind.hooks.prepare_update {
            Some(prepare) => {
                let mut value = Value::Object(std::mem::take(new));
                prepare(&mut value, &Value::Object(old.clone()));
                if let Value::Object(prepared) = value {
                    *new = prepared;
                }
            }
            None if context.has_status() => restore(new, old, "status"),
            None => {}
        },
        Scope::Status => {
            let status = new.remove("status");
            let wanted = std::mem::replace(new, old.clone());
            put(new, "status", status);
            let kept = status_resets(context.kind);
            for field in ["annotations", "finalizers", "labels", "ownerReferences", "managedFields"] {
                if !kept.contains(&["metadata", field].as_slice()) {
                    let value = metadata(&wanted).get(field).cloned();
                    put(metadata_mut(new), field, value);
                }
            }
        }
        Scope::Finalize => narrow(new, old, &[&["spec", "finalizers"]]),
        Scope::Approval => narrow(new, old, &[&["status", "conditions"]]),
        Scope::EphemeralContainers => narrow(new, old, &[&["spec", "ephemeralContainers"]]),
        Scope::Resize => narrow(new, old, &[&["spec", "containers"], &["spec", "initContainers"]]),
    }
}

/// What a write of the status leaves as it was, and nobody comes to own by it. Most kinds let it touch metadata.
pub(super) fn status_resets(kind: &Kind) -> &'static [&'static [&'static str]] {
    const METADATA: &[&[&str]] = &[
        &["spec"],
        &["metadata", "annotations"],
        &["metadata", "finalizers"],
        &["metadata", "labels"],
        &["metadata", "ownerReferences"],
    ];
    match kind.built_in_name() {
        // A custom resource.
        "" => METADATA,
        "Deployment" => &[&["spec"], &["metadata", "labels"]],
        "Pod" => &[&["spec"], &["metadata", "ownerReferences"]],
        "APIService"
        | "CustomResourceDefinition"
        | "FlowSchema"
        | "PriorityLevelConfiguration"
        | "ResourceClaim"
        | "VolumeAttachment" => METADATA,
        _ => &[&["spec"]],
    }
}

/// The old document with only the named fields of the new one.
fn narrow(new: &mut Document, old: &Document, fields: &[&[&str; 2]]) {
    let wanted = std::mem::replace(new, old.clone());
    for [outer, inner] in fields {
        let value = wanted.get(*outer).and_then(|value| value.get(*inner)).cloned();
        put(meta::object_mut(new, outer), inner, value);
    }
}

fn restore(new: &mut Document, old: &Document, field: &str) {
    put(new, field, old.get(field).cloned());
}

fn put(document: &mut Document, field: &str, value: Option<Value>) {
    match value {
        Some(value) => {
            document.insert(field.into(), value);
        }
        None => {
            document.remove(field);
        }
    }
}

impl Context<'_> {
    /// What is wrong with an object by the rules of its kind.
    pub(super) fn judge(&self, new: &Document, old: Option<&Document>) -> Vec<Cause> {
        let custom = &self.kind.versions[self.working_version()].custom;
        if self.kind.hooks.validate.is_none() && custom.is_none() {
            return Vec::new();
        }
        let (new, old) = (Value::Object(new.clone()), old.map(|old| Value::Object(old.clone())));
        if let Some(rule) = self.kind.hooks.validate {
            return rule(&new, old.as_ref());
        }
        let Some(custom) = custom else { return Vec::new() };
        let mut causes = custom.schema().validate(&new, old.as_ref());
        causes.extend(super::subresource::scale_causes(self.kind, self.working_version(), &new));
        causes
    }
}

/// Server-set metadata that the body left out is the old object's.
fn keep_identity(new: &mut Document, old: &Document) {
    let old_meta = metadata(old);
    let meta = metadata_mut(new);
    meta.remove("resourceVersion");
    meta.remove("selfLink");
    for field in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if meta.get(field).is_none_or(|value| value.is_null() || value.as_str() == Some("")) {
            put(meta, field, old_meta.get(field).cloned());
        }
    }
    if meta.get("generateName").is_none() {
        put(meta, "generateName", old_meta.get("generateName").cloned());
    }
    put(meta, "generation", old_meta.get("generation").cloned());
}

/// `metadata.generation` counts changes of the desired state: everything but metadata and status.
fn count_generation(context: &Context, new: &mut Document, old: &Document) {
    if !context.kind.generation {
        return;
    }
    // A status that is written like everything else is as much desired as that.
    let reported = context.kind.custom.is_none() || context.has_status();
    let desired = |document: &Document| {
        document
            .iter()
            .filter(|(field, _)| !matches!(field.as_str(), "metadata" | "apiVersion" | "kind"))
            .filter(|(field, _)| !(reported && *field == "status"))
            .map(|(field, value)| (field.clone(), value.clone()))
            .collect::<std::collections::BTreeMap<_, _>>()
    };
    if desired(new) != desired(old) {
        let meta = metadata_mut(new);
        let generation = meta.get("generation").and_then(Value::as_i64).unwrap_or(0);
        meta.insert("generation".into(), (generation + 1).into());
    }
}

/// ConfigMaps and Secrets that are marked immutable stay as they are, and a binding keeps its role.
fn immutable(context: &Context, new: &Document, old: &Document) -> Vec<Cause> {
    if context.kind.built_in_name().ends_with("RoleBinding") && new.get("roleRef") != old.get("roleRef") {
        let role = new.get("roleRef").cloned().unwrap_or_default();
        return vec![Cause::invalid("roleRef", &role, "cannot change roleRef")];
    }
    if !matches!(context.kind.built_in_name(), "ConfigMap" | "Secret")
        || old.get("immutable") != Some(&Value::Bool(true))
    {
        return Vec::new();
    }
    const DETAIL: &str = "field is immutable when `immutable` is set";
    ["immutable", "data", "binaryData"]
        .into_iter()
        .filter(|field| new.get(*field) != old.get(*field))
        .map(|field| Cause::forbidden(field, DETAIL))
        .collect()
}

/// Whether two documents are the same object once encoded.
pub(super) fn same(context: &Context, a: &Document, b: &Document) -> bool {
    let version = context.kind.versions[context.working_version()].api_version();
    Draft::new(&version, &context.kind.kind, a) == Draft::new(&version, &context.kind.kind, b)
}
