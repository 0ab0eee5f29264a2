//! The last stage of a mutation: encodes the document into a write, and makes the answer.

use super::candidate::{Candidate, Old};
use super::decision::{Answer, Decision, Representation, Write};
use super::endpoint::{Form, Part};
use super::{Context, Endpoint, Stop, lifecycle};
use crate::event::Offset;
use crate::kinds::custom::as_stored;
use crate::object::Draft;
use crate::object::meta::{self, DEPTH_MAX, Document, metadata};
use crate::quota::BYTES;
use crate::refusal::{BadRequest, Forbidden, Refusal, Texts, TooLarge};
use crate::request::Verb;
use crate::state::{Index, Recent};
use holdfast_value::Value;
use std::sync::Arc;

/// The maximum size of a stored object in bytes: the largest body plus its managed fields. Without a limit, patches
/// could make an object grow without end, and each watch and list of the kind would send it.
const OBJECT_BYTES_MAX: usize = 8 << 20;

/// Makes the decision: a write or a removal of the object, or no write if the request changes nothing.
pub(super) fn decide(context: &Context, endpoint: &Endpoint, object: Candidate) -> Result<Decision, Stop> {
    let Candidate { key, old, new, removed, fixed, besides, .. } = object;
    let fields = meta::fields(&new);
    let gone = removed || (old.is_some() && meta::is_deleting(fields) && is_released(context, fields));
    let uid = meta::uid(fields).to_owned();
    let expect = old.as_ref().map(|old| old.entry.offset);
    // An object of a kind with a grace period is always deleted in two phases, even if the period is zero: a watcher
    // then sees the beginning of the deletion before the removal.
    let begins = gone && context.kind.deletion.is_gradual();
    let begins = begins && old.as_ref().is_some_and(|old| !meta::is_deleting(old.fields()));
    // If an object is removed unchanged, its last state is written without calling the kind's conversion webhook.
    let goes = old.as_ref().filter(|old| gone && context.kind.converts_elsewhere() && old.document == new);
    let (last, version) = match goes {
        Some(old) => (context.in_version(&old.entry, 0)?, 0),
        None => (new, context.working_version()),
    };
    let write = context.write(key, expect, last, version, gone)?;
    let first = begins.then(|| Write { delete: false, ..write.clone() });
    check_size(&write, old.as_ref())?;
    check_room(context, &write, old.as_ref())?;
    let is_kept = |old: &&Old| !gone && !context.answers.is_outdated(old.entry.offset);
    let unchanged = old.as_ref().filter(is_kept).filter(|old| write.draft.is(&old.entry.json(), old.entry.offset));
    let answer = match endpoint.answer {
        Form::Success => Answer::Success,
        Form::Deletion if gone && !context.kind.deletion.returns_deleted => {
            Answer::Deleted { subject: context.subject(context.request.name()), uid }
        }
        form => shown(form, unchanged, usize::from(begins), old.is_none()),
    };
    let mut writes = Vec::with_capacity(2 + besides.len());
    writes.extend(first);
    if unchanged.is_none() {
        writes.push(write);
    }
    writes.extend(besides);
    writes.append(&mut context.admitted.borrow_mut().besides);
    let fixed = fixed && !writes.is_empty();
    let expects = if old.is_none() { lifecycle::expect_namespace(context).into_iter().collect() } else { Vec::new() };
    let changes = std::mem::take(&mut context.admitted.borrow_mut().changes);
    Ok(Decision { writes, expects, answer, fixed, warnings: Texts::default(), changes })
}

/// Adds the warnings of the object's kind about a valid object.
pub(super) fn warn(context: &Context, endpoint: &Endpoint, object: &Candidate) {
    if endpoint.part == Part::Main && endpoint.answer != Form::Deletion {
        context.warn_of(context.kind.warnings_about(object.fields(), object.old()));
    }
}

/// Checks the size limit. An object that is above the limit may still become smaller or be removed.
fn check_size(write: &Write, old: Option<&Old>) -> Result<(), Refusal> {
    let (size, before) = (write.draft.size(), old.map_or(0, |old| old.entry.size()));
    if size <= OBJECT_BYTES_MAX || write.delete || size <= before {
        return Ok(());
    }
    Err(Refusal::TooLarge(TooLarge::Object { bytes: size, bytes_max: OBJECT_BYTES_MAX }))
}

/// The namespaces of the cluster's own components. The option `--namespace-bytes` does not limit them.
const OF_CLUSTER: [&str; 3] = ["kube-system", "kube-node-lease", "kube-public"];

/// Checks the limit on a namespace's stored bytes. In a full namespace objects may still shrink or be removed. Writes
/// of subresources, with which components and nodes report status, may exceed the limit by an eighth, so that running
/// workloads continue.
fn check_room(context: &Context, write: &Write, old: Option<&Old>) -> Result<(), Refusal> {
    let (room, request) = (&context.state.room, context.request);
    // ResourceQuotas may be written in a full namespace, so that its limit can be raised.
    let is_free = write.delete || request.target.kind == context.state.registry.quotas();
    let Some(namespace) = request.target.namespace.as_deref().filter(|_| !is_free) else { return Ok(()) };
    let of_quota = room.limit(namespace);
    let of_option = context.settings.namespace_bytes.filter(|_| !OF_CLUSTER.contains(&namespace));
    let Some(limit) = of_quota.map(|(_, limit)| limit).or(of_option) else { return Ok(()) };
    let (size, before) = (write.draft.size() as u64, old.map_or(0, |old| old.entry.size() as u64));
    let (more, used) = (size.saturating_sub(before), room.stored(namespace));
    let is_part = request.target.subresource.is_some();
    let most = limit.saturating_add(if is_part { limit / 8 } else { 0 });
    if more == 0 || request.verb == Verb::Delete || used.saturating_add(more) <= most {
        return Ok(());
    }
    let why = match of_quota {
        Some((name, _)) => {
            format!("exceeded quota: {name}, requested: {BYTES}={more}, used: {BYTES}={used}, limited: {BYTES}={limit}")
        }
        None => format!(
            "exceeded --namespace-bytes, requested: {more}, used by namespace {namespace}: {used}, limited: {limit}; a \
             ResourceQuota for {BYTES} sets another limit for its namespace"
        ),
    };
    let name = meta::split_key(&write.key).1;
    Err(Refusal::Forbidden { subject: context.subject(name), why: Forbidden::Admission(why) })
}

fn shown(form: Form, unchanged: Option<&Old>, index: usize, created: bool) -> Answer {
    let representation = if form == Form::Scale { Representation::Scale } else { Representation::Object };
    match unchanged {
        Some(old) => Answer::Entry { entry: old.entry.clone(), representation },
        None => Answer::Written { index, created, representation },
    }
}

/// Whether a deleted object has no finalizers and no grace period left.
pub(super) fn is_released(context: &Context, document: &Document) -> bool {
    let held = context.kind.deletion.is_held(document);
    let grace = metadata(document).get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    meta::finalizers(document).is_empty() && !held && grace == 0
}

impl Context<'_> {
    /// Encodes a document of a version into a write.
    ///
    /// Bodies are limited in depth, but conversion and managed fields can add depth. A record too deep to be read back
    /// would stop every replay, so it is refused.
    fn write(
        &self,
        key: Arc<str>,
        expect: Option<Offset>,
        document: Value,
        version: usize,
        delete: bool,
    ) -> Result<Write, Stop> {
        let hub = &self.kind.versions[0];
        let mut document = self.converted(document, version, 0)?;
        if self.kind.custom.is_some() {
            // Objects are read from the store with defaults, which may restore a removed status, or fields that
            // conversion left out. The written object gets the same defaults.
            document = as_stored(self.kind, document).1;
        }
        let fields = meta::fields(&document);
        let draft = Draft::new(&hub.api_version(), &self.kind.kind, fields);
        if draft.depth() > DEPTH_MAX {
            let subject = self.kind_subject(meta::name(fields));
            return Err(Refusal::BadRequest(BadRequest::TooDeep { subject, depth_max: DEPTH_MAX }).into());
        }
        let index = Index::new(self.kind, &document);
        let is_kept = !delete && self.kind.custom.is_none() && Recent::has_room(draft.size(), &document);
        let document = is_kept.then(|| {
            let fields = meta::fields_mut(&mut document);
            fields.insert("apiVersion", hub.api_version().into());
            fields.insert("kind", self.kind.kind.as_str().into());
            meta::metadata_mut(fields).remove("resourceVersion");
            document
        });
        Ok(Write { kind: self.request.target.kind, key, expect, draft, index, delete, document })
    }
}
