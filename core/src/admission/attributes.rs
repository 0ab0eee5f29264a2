//! What a plug-in sees of a write, and what it may say.

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

/// What the document of a write is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// An object of the path's kind, in this of its versions.
    Object { version: usize },
    /// What a subresource takes: a Scale, a Binding.
    Part(Known),
}

/// One write on its way through the chain.
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
    /// Null for a deletion.
    pub object: Value,
    /// The object as it is; null for one that is not there.
    pub old: &'a Value,
    /// The version that it has, which its document leaves out.
    pub old_version: Option<Offset>,
    pub admitted: Admitted,
    pub reinvocation: Reinvocation,
    /// The second half.
    pub is_validating: bool,
    /// What expressions have cost so far.
    pub spent: Cell<u64>,
}

impl<'a> Attributes<'a> {
    pub fn user(&self) -> &'a User {
        &self.request.user
    }

    /// The server's own upkeep: what is registered has no say in it, or a webhook that is down could keep a server from
    /// starting. The name alone is nobody's: others may act under it.
    pub fn is_upkeep(&self) -> bool {
        let user = self.user();
        user.name == crate::apiservices::USER && user.is_privileged()
    }

    /// Empty for the object itself.
    pub fn subresource(&self) -> &'a str {
        let named = self.request.target.subresource.as_deref().unwrap_or("");
        // What stands behind it is the path of a proxy.
        named.split_once('/').map_or(named, |(first, _)| first)
    }

    /// As the request names the object: many are deleted at once without a name.
    pub fn asked_name(&self) -> &'a str {
        if self.request.options.delete.is_collective { "" } else { self.request.name() }
    }

    /// Empty for an object of the cluster.
    pub fn namespace(&self) -> &'a str {
        self.request.namespace().unwrap_or("")
    }

    pub fn is_dry_run(&self) -> bool {
        self.request.options.dry_run
    }

    /// Whether the path names this kind, in whichever version.
    pub fn is_on(&self, known: Known) -> bool {
        self.kind.kind == known.kind && self.kind.hub().group == known.group
    }

    /// The same, where the write is one of the object itself.
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

    /// As refusals name the object: the name may not have been made yet.
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

    /// A fault of the plug-in's own, which Kubernetes hands on as it is.
    pub(crate) fn fault(&self, why: impl Into<String>) -> Stop {
        Refusal::Unreasoned(Unreasoned::Admission(why.into())).into()
    }

    /// How the document of the write looks in a version.
    pub(super) fn layout(&self, version: usize) -> Result<Layout<'a>, String> {
        let layout = match self.body {
            Body::Object { .. } => crate::kinds::layout(self.kind, version),
            Body::Part(part) => crate::kinds::part_layout(&self.state.registry, part),
        };
        layout.map_err(|refusal| refusal.message())
    }

    /// Fits a document that somebody has changed to the version that it was shown in. Gives back which fields went
    /// because they are unknown.
    pub(super) fn check(&self, document: &mut Value, version: usize) -> Result<Texts, String> {
        self.layout(version)?.check(document).map_err(|error| error.to_string())
    }

    pub fn warn(&mut self, warning: impl Into<String>) {
        self.admitted.told.warnings.push_once(warning.into());
    }

    /// For auditors; a key that is none is left out.
    pub fn annotate(&mut self, key: impl Into<String>, value: impl Into<String>) {
        let key = key.into();
        if names::qualified_name(&key).is_empty() {
            self.admitted.told.annotations.add(key, value);
        }
    }

    /// The same of what repeats parts of the object.
    pub fn annotate_of_object(&mut self, key: impl Into<String>, value: impl Into<String>) {
        let key = key.into();
        if names::qualified_name(&key).is_empty() {
            self.admitted.told.annotations.add_of_object(key, value);
        }
    }

    /// Whether the author may do this, too.
    pub fn may(&self, verb: &str, target: ResourceTarget) -> bool {
        self.judged(verb, target).is_allowed()
    }

    /// The same, and why.
    pub fn judged(&self, verb: &str, target: ResourceTarget) -> Judged {
        self.authorizer.authorize(self.user(), &authz::Attributes::resource(verb, target))
    }

    pub fn id_of(&self, known: Known) -> Option<KindId> {
        self.state.registry.known(known).map(|(id, _)| id)
    }

    pub fn entry(&self, known: Known, namespace: &str, name: &str) -> Option<&'a Arc<Entry>> {
        self.state.get(self.id_of(known)?, &meta::key(Some(namespace), name))
    }

    /// An object of the cluster, or of a namespace where one is named.
    pub fn find(&self, known: Known, namespace: &str, name: &str) -> Option<Value> {
        self.entry(known, namespace, name).map(|entry| entry.document())
    }

    /// The objects of a kind, those of one namespace where one is named.
    pub fn all(&self, known: Known, namespace: &str) -> Vec<Value> {
        let Some(id) = self.id_of(known) else { return Vec::new() };
        let prefix = crate::state::prefix(Some(namespace));
        self.state.scan(id, &prefix, None).map(|(_, entry)| entry.document()).collect()
    }

    /// Makes another object together with this one, unless somebody else has by then.
    pub fn make_beside(&mut self, known: Known, key: Arc<str>, document: Value) {
        let Some(kind) = self.id_of(known) else { return };
        let shape = self.state.kind(kind);
        let draft = Draft::new(&shape.hub().api_version(), &shape.kind, meta::fields(&document));
        let index = Index::new(shape, &document);
        self.admitted.besides.push(Write { kind, key, expect: None, draft, index, delete: false, document: None });
    }

    /// Whether an object of this kind is made together with this one.
    pub fn makes(&self, known: Known) -> bool {
        if self.admitted.besides.is_empty() {
            return false;
        }
        let Some(kind) = self.id_of(known) else { return false };
        self.admitted.besides.iter().any(|write| write.kind == kind && write.expect.is_none())
    }

    /// Those of the objects of a kind of the cluster whose stored form has this text in it: few of many, of which the
    /// others are not read.
    pub fn all_with(&self, known: Known, text: &str) -> Vec<Value> {
        let Some(id) = self.id_of(known) else { return Vec::new() };
        let finder = memchr::memmem::Finder::new(text);
        let entries = self.state.scan(id, "", None).map(|(_, entry)| entry);
        entries.filter(|entry| finder.find(&entry.json()).is_some()).map(|entry| entry.document()).collect()
    }

    /// Writes the status of another object together with this one, as long as it is still the one that was seen.
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

    /// The namespace that the write is in.
    pub fn namespace_entry(&self) -> Option<&'a Arc<Entry>> {
        self.entry(known::NAMESPACE, "", self.namespace())
    }
}
