//! Create: a new object gets its name, identity and first version.

use super::{Context, Decision, lifecycle, patch};
use crate::merge::managed;
use crate::object::meta::{self, Document, metadata, metadata_mut, text};
use crate::object::names::name_rule;
use crate::object::validate;
use crate::refusal::{Cause, Refusal};
use crate::request::Format;
use serde_json::Value;
use std::cell::RefCell;

/// How many generated names are tried before giving up.
const GENERATED_NAME_TRIES: u64 = 8;

pub(super) fn decide(context: &Context) -> Result<Decision, Refusal> {
    let mut warnings = Vec::new();
    let document = context.decode(&mut warnings)?;
    create(context, document, warnings)
}

/// Creates `document`, which is in the version that the path names and has been checked against its schema.
pub(super) fn create(context: &Context, document: Document, warnings: Vec<String>) -> Result<Decision, Refusal> {
    if context.kind.custom.as_ref().is_some_and(|custom| custom.terminating) {
        let message = "create not allowed while custom resource definition is terminating".into();
        return Err(Refusal::MethodNotAllowed { message });
    }
    let mut document = document;
    place(context, &mut document)?;
    context.settle(&mut document)?;
    let name = identify(context, &mut document)?;
    reset(context, &mut document);
    sign(context, &mut document);
    track(context, None, &mut document)?;
    lifecycle::admit_create(context, &document)?;
    lifecycle::admit_roles(context, &document, None)?;
    super::service::allocate(context, None, &mut document)?;
    super::definition::settle(context, &mut document);

    let key = meta::key(context.request.namespace(), &name);
    let mut causes = validate::metadata(
        metadata(&document),
        name_rule(&context.kind.kind, &context.kind.versions[0].group),
        context.kind.is_namespaced(),
    );
    causes.extend(context.judge(&document, None));
    if !causes.is_empty() {
        return Err(Refusal::Invalid { subject: context.kind_subject(&name), causes });
    }
    if context.state.get(context.request.target.kind, &key).is_some() {
        return Err(Refusal::AlreadyExists(context.subject(&name)));
    }
    let write = context.write(key.into(), None, document, false)?;
    let mut decision = Decision::one(write, 201, false, warnings);
    decision.expects.extend(lifecycle::expect_namespace(context));
    Ok(decision)
}

/// Checks what the body says of its place against the path.
fn place(context: &Context, document: &mut Document) -> Result<(), Refusal> {
    let meta = metadata_mut(document);
    if !text(meta, "resourceVersion").is_empty() && text(meta, "resourceVersion") != "0" {
        return Err(Refusal::BadRequest("resourceVersion should not be set on objects to be created".into()));
    }
    match_namespace(context, meta)?;
    if let (Some(name), body) = (context.request.target.name.as_deref(), text(meta, "name"))
        && !body.is_empty()
        && body != name
    {
        return Err(name_mismatch(body, name));
    }
    Ok(())
}

/// The body's namespace is the path's, or empty and then becomes it.
pub(super) fn match_namespace(context: &Context, meta: &mut Document) -> Result<(), Refusal> {
    match context.request.namespace() {
        Some(namespace) => {
            let body = text(meta, "namespace");
            if !body.is_empty() && body != namespace {
                return Err(Refusal::BadRequest(
                    "the namespace of the provided object does not match the namespace sent on the request".into(),
                ));
            }
            meta.insert("namespace".into(), namespace.into());
        }
        // A cluster-scoped object keeps what it sent: the metadata rules refuse it by name.
        None => {
            if text(meta, "namespace").is_empty() {
                meta.remove("namespace");
            }
        }
    }
    Ok(())
}

/// A document that takes the place of an object, or changes it, names the one that the path names.
pub(super) fn match_name(context: &Context, meta: &Document) -> Result<(), Refusal> {
    let (found, path) = (text(meta, "name"), context.request.name());
    if found.is_empty() {
        return Err(Refusal::BadRequest(format!(
            "the name of the object ({path} based on URL) was undeterminable: name must be provided"
        )));
    }
    if found != path { Err(name_mismatch(found, path)) } else { Ok(()) }
}

pub(super) fn name_mismatch(body: &str, path: &str) -> Refusal {
    Refusal::BadRequest(format!("the name of the object ({body}) does not match the name on the URL ({path})"))
}

/// Name, uid and creation time.
fn identify(context: &Context, document: &mut Document) -> Result<String, Refusal> {
    let meta = metadata_mut(document);
    let mut name = text(meta, "name").to_owned();
    let base = text(meta, "generateName").to_owned();
    if name.is_empty() && !base.is_empty() {
        name = generate(context, &base);
        meta.insert("name".into(), name.as_str().into());
    }
    if name.is_empty() {
        return Err(Refusal::Invalid {
            subject: context.kind_subject(""),
            causes: vec![Cause::required("metadata.name", "name or generateName is required")],
        });
    }
    meta.insert("uid".into(), context.stamp.uid(0).into());
    meta.insert("creationTimestamp".into(), context.stamp.rfc3339().into());
    Ok(name)
}

/// A name that is free, if one of a few tries is.
fn generate(context: &Context, base: &str) -> String {
    const BASE_LENGTH_MAX: usize = 63 - 5;
    let mut end = base.len().min(BASE_LENGTH_MAX);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    let candidate = |nth| format!("{}{}", &base[..end], context.stamp.name_suffix(nth));
    let taken = |name: &str| {
        let key = meta::key(context.request.namespace(), name);
        context.state.get(context.request.target.kind, &key).is_some()
    };
    (0..GENERATED_NAME_TRIES).map(candidate).find(|name| !taken(name)).unwrap_or_else(|| candidate(0))
}

/// Clears what only the server sets.
fn reset(context: &Context, document: &mut Document) {
    let meta = metadata_mut(document);
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"] {
        meta.remove(field);
    }
    if context.kind.generation {
        meta.insert("generation".into(), 1.into());
    } else {
        meta.remove("generation");
    }
    match context.kind.hooks.prepare_create {
        Some(prepare) => {
            let mut value = Value::Object(std::mem::take(document));
            prepare(&mut value);
            if let Value::Object(prepared) = value {
                *document = prepared;
            }
        }
        None if context.has_status() => {
            document.remove("status");
        }
        None => {}
    }
}

fn sign(context: &Context, document: &mut Document) {
    let Some(sign) = context.kind.hooks.sign else { return };
    let mut value = Value::Object(std::mem::take(document));
    sign(&mut value, &context.request.user);
    if let Value::Object(signed) = value {
        *document = signed;
    }
}

/// Notes in `managedFields` who wrote what, in the version that the request speaks.
pub(super) fn track(context: &Context, old: Option<&Document>, document: &mut Document) -> Result<(), Refusal> {
    if context.request.body.format == Format::ApplyPatch {
        // Apply has done so already, and what defaults added is nobody's.
        return Ok(());
    }
    let version = context.version();
    let versioned = |document: Document| {
        let mut document = document;
        super::from_hub(context.kind, context.request.target.version, &mut document);
        Value::Object(document)
    };
    let missing = RefCell::new(None);
    let convert = |document: &Value, api_version: &str| patch::convert(context, document, api_version, &missing);
    let is_hub = context.request.target.version == context.working_version();
    let old = old.map(|old| if is_hub { Value::Object(old.clone()) } else { versioned(old.clone()) });
    let mut new = if is_hub { Value::Object(std::mem::take(document)) } else { versioned(document.clone()) };
    managed::track_update(
        old.as_ref(),
        &mut new,
        &managed::Writer {
            layout: context.layout()?,
            api_version: &version.api_version(),
            manager: context.manager(),
            subresource: context.request.target.subresource.as_deref().unwrap_or(""),
            now: &context.stamp.rfc3339(),
            reset: context.reset_fields(),
            convert: Some(&convert),
        },
    );
    if let Some(refusal) = missing.take() {
        return Err(refusal);
    }
    let Value::Object(mut tracked) = new else { return Ok(()) };
    if is_hub {
        *document = tracked;
        return Ok(());
    }
    let fields = metadata_mut(&mut tracked).remove("managedFields");
    let meta = metadata_mut(document);
    match fields {
        Some(fields) => _ = meta.insert("managedFields".into(), fields),
        None => _ = meta.remove("managedFields"),
    }
    Ok(())
}
