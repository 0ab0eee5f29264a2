//! Makes the candidates of requests whose body is a whole document: create and update.

use super::candidate::{Candidate, Made, Old};
use super::{Context, Endpoint, Stop, owners};
use crate::object::meta::{self, Document, metadata_mut, text};
use crate::refusal::{BadRequest, Cause, Conflict, Forbidden, Mismatch, Refusal, Unreasoned};
use crate::request::{Format, Request};
use holdfast_value::Value;

pub(super) fn create(context: &Context, _: &Endpoint) -> Result<Made, Stop> {
    let mut document = context.decode()?;
    owners::merge(context, metadata_mut(meta::fields_mut(&mut document)), "");
    Ok(creating(context, document)?.into())
}

pub(super) fn update(context: &Context, endpoint: &Endpoint) -> Result<Made, Stop> {
    let mut document = context.decode()?;
    let meta = metadata_mut(meta::fields_mut(&mut document));
    match_namespace(context, meta)?;
    match_name(context, meta)?;
    owners::merge(context, meta, "");
    let Some(old) = context.find()? else {
        if !endpoint.may_create() || !context.kind.writes.create_on_update {
            return Err(Refusal::NotFound(context.subject(context.request.name())).into());
        }
        let uid = text(meta, "uid");
        if !uid.is_empty() {
            return Err(other_uid(context, uid, "").into());
        }
        return Ok(creating(context, document)?.into());
    };
    let uid = text(meta, "uid");
    let found = text(old.metadata(), "uid");
    if !uid.is_empty() && uid != found {
        return Err(other_uid(context, uid, found).into());
    }
    let fixed = match_version(context, &old, meta)?;
    Ok(Candidate { fixed, ..Candidate::replacing(context, old, document) }.into())
}

/// The candidate for a new object, from a document that was checked against its schema.
pub(super) fn creating(context: &Context, document: Value) -> Result<Candidate, Refusal> {
    if context.kind.custom.as_ref().is_some_and(|custom| custom.terminating) {
        let subject = context.subject(meta::name(meta::fields(&document)));
        return Err(Refusal::Forbidden { subject, why: Forbidden::DefinitionTerminating });
    }
    let mut document = document;
    let meta = metadata_mut(meta::fields_mut(&mut document));
    // Kubernetes refuses the resourceVersion only in its store, which a dry run does not reach. Therefore a dry run
    // accepts it.
    if !matches!(text(meta, "resourceVersion"), "" | "0") && !context.request.options.dry_run {
        return Err(Refusal::BadRequest(BadRequest::VersionOnCreate));
    }
    match_namespace(context, meta)?;
    if let (Some(name), body) = (context.request.target.name.as_deref(), text(meta, "name"))
        && !body.is_empty()
        && body != name
    {
        return Err(name_mismatch(body, name));
    }
    Ok(Candidate::creating(document))
}

/// The resourceVersion in the body of a create. Only a dry run may have one.
pub fn named_version(request: &Request) -> Option<String> {
    let decoded = match request.body.format {
        Format::Json => request.body.content.json(),
        Format::Yaml => request.body.content.yaml(),
        _ => return None,
    };
    let document = decoded.ok()?.value;
    document["metadata"]["resourceVersion"].as_str().filter(|version| !version.is_empty()).map(str::to_owned)
}

/// Sets the namespace in the body to the path's namespace, or checks that they are the same. Removes the namespace if
/// the kind is cluster-scoped.
pub(super) fn match_namespace(context: &Context, meta: &mut Document) -> Result<(), Refusal> {
    match context.request.namespace() {
        Some(namespace) => {
            let body = text(meta, "namespace");
            if !body.is_empty() && body != namespace {
                return Err(Refusal::BadRequest(BadRequest::OtherNamespace));
            }
            meta.insert("namespace", namespace.into());
        }
        None => _ = meta.remove("namespace"),
    }
    Ok(())
}

/// Checks that the name in the body is the name in the path.
pub(super) fn match_name(context: &Context, meta: &Document) -> Result<(), Refusal> {
    let (found, path) = (text(meta, "name"), context.request.name());
    if found.is_empty() {
        return Err(Refusal::BadRequest(BadRequest::NoName { path: path.into() }));
    }
    if found != path { Err(name_mismatch(found, path)) } else { Ok(()) }
}

fn name_mismatch(body: &str, path: &str) -> Refusal {
    Refusal::BadRequest(BadRequest::OtherName { body: body.into(), path: path.into() })
}

/// Checks that the resourceVersion in a document is the version of the stored object. Returns whether the document has
/// one.
pub(super) fn match_version(context: &Context, old: &Old, meta: &Document) -> Result<bool, Refusal> {
    let name = context.request.name();
    match text(meta, "resourceVersion") {
        "" | "0" if !context.kind.writes.needs_version => Ok(false),
        // As in Kubernetes, the subject here is the resource, not the kind.
        "" | "0" => Err(Refusal::Invalid {
            subject: context.subject(name),
            causes: Cause::invalid("metadata.resourceVersion", &Value::from(0), "must be specified for an update")
                .into(),
        }),
        version => {
            // Kubernetes parses the version only in its store, and passes the parser's error on without a reason.
            let parsed: u64 =
                version.parse().map_err(|_| Refusal::Unreasoned(Unreasoned::NotAVersion(version.into())))?;
            if parsed != old.entry.offset.0 {
                return Err(modified(context));
            }
            Ok(true)
        }
    }
}

/// The refusal of a write that requires another UID than the object has.
fn other_uid(context: &Context, wanted: &str, found: &str) -> Refusal {
    unmet(context, Conflict::UidPrecondition(Mismatch::new(wanted, found)))
}

/// The refusal of a write whose precondition on the stored object does not hold.
pub(super) fn unmet(context: &Context, why: Conflict) -> Refusal {
    let key = format!("/registry/{}/{}", context.kind.storage.path, context.request.key());
    Refusal::Conflict {
        subject: context.subject(context.request.name()),
        why: Conflict::Stored { key, why: Box::new(why) },
    }
}

/// The refusal of a write that is based on a version which is no longer the newest.
pub(super) fn modified(context: &Context) -> Refusal {
    Refusal::modified(context.subject(context.request.name()))
}
