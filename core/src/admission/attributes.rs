//! A plug-in's view of a write, with the methods by which the plug-in changes the object.

use super::Admission;
use super::outcome::{Admitted, Operation, Reinvocation, Ticks};
use crate::authz::{self, Authorizer, Judged, ResourceTarget, User};
use crate::event::Offset;
use crate::kinds::{Kind, KindId, Known, known};
use crate::object::meta::{self, Document};
use crate::object::{Draft, names};
use crate::pipeline::decision::Write;
use crate::pipeline::effect::{Answers, Stop};
use crate::refusal::{Forbidden, Refusal, Subject, Texts, Unreasoned};
use crate::request::Request;
use crate::schema::layout::Layout;
use crate::stamp::Stamp;
use crate::state::{Entry, Index, State};
use holdfast_value::Value;
use std::cell::Cell;
use std::sync::Arc;

/// The kind of document that a write has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// An object of the path's kind, in the kind's version with this index.
    Object { version: usize },
    /// The body of a subresource: a Scale, a Binding.
    Part(Known),
}

/// A write as the plug-ins of the chain see and change it.
pub struct Attributes<'a> {
    pub state: &'a State,
    pub admission: &'a Admission,
    pub authorizer: Authorizer<'a>,
    pub request: &'a Request,
    /// The kind that the path names.
    pub kind: &'a Kind,
    pub stamp: Stamp,
    pub ticks: Ticks,
    pub answers: &'a Answers,
    pub operation: Operation,
    pub body: Body,
    /// The new object; null for a delete.
    pub object: Value,
    /// The stored object; null if there is none.
    pub old: &'a Value,
    /// The version of the stored object; the document `old` does not contain it.
    pub old_version: Option<Offset>,
    pub admitted: Admitted,
    pub reinvocation: Reinvocation,
    /// Whether the validating half is running.
    pub is_validating: bool,
    /// The cost that policies and match conditions have spent in this half of the write so far, in CEL's units of cost.
    pub spent: Cell<u64>,
}

impl<'a> Attributes<'a> {
    pub fn user(&self) -> &'a User {
        &self.request.user
    }

    /// Whether the server itself made the request. Webhooks and policies do not get such requests: otherwise a webhook
    /// that is down could keep a server from starting. The user name alone does not prove that the server makes the
    /// request, because other users may impersonate the name.
    pub fn is_upkeep(&self) -> bool {
        let user = self.user();
        user.name == crate::apiservices::USER && user.is_privileged()
    }

    /// The subresource; empty for the object itself.
    pub fn subresource(&self) -> &'a str {
        let named = self.request.target.subresource.as_deref().unwrap_or("");
        // The part after the slash is the path of a proxy request.
        named.split_once('/').map_or(named, |(first, _)| first)
    }

    /// The name in the request; empty for the deletion of a collection.
    pub fn asked_name(&self) -> &'a str {
        if self.request.options.delete.is_collective { "" } else { self.request.name() }
    }

    /// The namespace; empty for a cluster-scoped object.
    pub fn namespace(&self) -> &'a str {
        self.request.namespace().unwrap_or("")
    }

    pub fn is_dry_run(&self) -> bool {
        self.request.options.dry_run
    }

    /// Whether the path names this kind, in any version.
    pub fn is_on(&self, known: Known) -> bool {
        self.kind.kind == known.kind && self.kind.hub().group == known.group
    }

    /// Whether the path names this kind without a subresource, in any version.
    pub fn is_of(&self, known: Known) -> bool {
        self.is_on(known) && self.request.target.subresource.is_none()
    }

    pub fn creates(&self, known: Known) -> bool {
        self.operation == Operation::Create && self.is_of(known)
    }

    pub fn updates(&self, known: Known) -> bool {
        self.operation == Operation::Update && self.is_of(known)
    }

    pub fn fields(&self) -> &Document {
        meta::fields(&self.object)
    }

    pub fn fields_mut(&mut self) -> &mut Document {
        meta::fields_mut(&mut self.object)
    }

    /// The object's name for refusals. If the name is not generated yet, this is the `generateName`.
    pub fn name(&self) -> &str {
        let metadata = meta::metadata(self.fields());
        let told = [self.asked_name(), meta::text(metadata, "name"), meta::text(metadata, "generateName")];
        told.into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown")
    }

    pub fn subject(&self) -> Subject {
        let version = &self.kind.versions[self.request.target.version];
        Subject::new(&version.group, &self.kind.resource, self.name())
    }

    pub(crate) fn forbidden(&self, why: impl Into<String>) -> Stop {
        Refusal::Forbidden { subject: self.subject(), why: Forbidden::Admission(why.into()) }.into()
    }

    /// The refusal for an error of the plug-in itself. As in Kubernetes, its status has no reason.
    pub(crate) fn fault(&self, why: impl Into<String>) -> Stop {
        Refusal::Unreasoned(Unreasoned::Admission(why.into())).into()
    }

    /// The schema of the write's document in a version.
    pub(super) fn layout(&self, version: usize) -> Result<Layout<'a>, String> {
        let layout = match self.body {
            Body::Object { .. } => crate::kinds::layout(self.kind, version),
            Body::Part(part) => crate::kinds::part_layout(&self.state.registry, part),
        };
        layout.map_err(|refusal| refusal.message())
    }

    /// Checks and prunes a document that a webhook or policy changed, in the version in which the webhook or policy saw
    /// the document. Returns the unknown fields that were dropped.
    pub(super) fn check(&self, document: &mut Value, version: usize) -> Result<Texts, String> {
        self.layout(version)?.check(document).map_err(|error| error.to_string())
    }

    pub fn warn(&mut self, warning: impl Into<String>) {
        self.admitted.told.warnings.push_once(warning.into());
    }

    /// Adds an audit annotation. An annotation with an invalid key is dropped.
    pub fn annotate(&mut self, key: impl Into<String>, value: impl Into<String>) {
        let key = key.into();
        if names::qualified_name(&key).is_empty() {
            self.admitted.told.annotations.add(key, value);
        }
    }

    /// Adds an audit annotation that contains parts of the object.
    pub fn annotate_of_object(&mut self, key: impl Into<String>, value: impl Into<String>) {
        let key = key.into();
        if names::qualified_name(&key).is_empty() {
            self.admitted.told.annotations.add_of_object(key, value);
        }
    }

    /// Whether the request's user also has permission for `verb` on `target`.
    pub fn may(&self, verb: &str, target: ResourceTarget) -> bool {
        self.judged(verb, target).is_allowed()
    }

    /// The authorizers' decision about `verb` on `target`, with its reason.
    pub fn judged(&self, verb: &str, target: ResourceTarget) -> Judged {
        self.authorizer.authorize(self.user(), &authz::Attributes::resource(verb, target))
    }

    pub fn id_of(&self, known: Known) -> Option<KindId> {
        self.state.registry.known(known).map(|(id, _)| id)
    }

    pub fn entry(&self, known: Known, namespace: &str, name: &str) -> Option<&'a Arc<Entry>> {
        self.state.get(self.id_of(known)?, &meta::key(Some(namespace), name))
    }

    /// The document of an object; `None` if the object does not exist. `namespace` is empty for a cluster-scoped kind.
    pub fn find(&self, known: Known, namespace: &str, name: &str) -> Option<Value> {
        self.entry(known, namespace, name).map(|entry| entry.document())
    }

    /// All objects of a kind in `namespace`. If `namespace` is empty, the objects of all namespaces.
    pub fn all(&self, known: Known, namespace: &str) -> Vec<Value> {
        let Some(id) = self.id_of(known) else { return Vec::new() };
        let prefix = crate::state::prefix(Some(namespace));
        self.state.scan(id, &prefix, None).map(|(_, entry)| entry.document()).collect()
    }

    /// Creates another object in the same commit as the object of this write, unless the other object exists by then.
    pub fn make_beside(&mut self, known: Known, key: Arc<str>, document: Value) {
        let Some(kind) = self.id_of(known) else { return };
        let shape = self.state.kind(kind);
        let draft = Draft::new(&shape.hub().api_version(), &shape.kind, meta::fields(&document));
        let index = Index::new(shape, &document);
        self.admitted.besides.push(Write { kind, key, expect: None, draft, index, delete: false, document: None });
    }

    /// Whether another object of this kind is created in the same commit as the object of this write.
    pub fn makes(&self, known: Known) -> bool {
        if self.admitted.besides.is_empty() {
            return false;
        }
        let Some(kind) = self.id_of(known) else { return false };
        self.admitted.besides.iter().any(|write| write.kind == kind && write.expect.is_none())
    }

    /// The objects of a cluster-scoped kind whose stored form contains this text. Other objects are not parsed.
    pub fn all_with(&self, known: Known, text: &str) -> Vec<Value> {
        let Some(id) = self.id_of(known) else { return Vec::new() };
        let finder = memchr::memmem::Finder::new(text);
        let entries = self.state.scan(id, "", None).map(|(_, entry)| entry);
        entries.filter(|entry| finder.find(&entry.json()).is_some()).map(|entry| entry.document()).collect()
    }

    /// Writes the status of another object in the same commit as the object of this write. If the other object changes
    /// before the commit, the request is judged again.
    pub(super) fn write_beside(
        &mut self,
        known: Known,
        key: Arc<str>,
        seen: &Entry,
        document: Value,
    ) -> Result<(), Stop> {
        let Some(kind) = self.id_of(known) else { return Ok(()) };
        let write = Write::of_status(self.state, kind, key, seen, document, &self.stamp.rfc3339())?;
        self.admitted.besides.push(write);
        Ok(())
    }

    /// The Namespace object of the request's namespace.
    pub fn namespace_entry(&self) -> Option<&'a Arc<Entry>> {
        self.entry(known::NAMESPACE, "", self.namespace())
    }
}
