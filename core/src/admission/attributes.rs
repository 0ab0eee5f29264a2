//! What a plug-in sees of a write, and what it may say.

use super::Admission;
use crate::authz::{self, Authorizer, ResourceTarget, User};
use crate::kinds::{Kind, KindId, Known, known};
use crate::object::meta::{self, Document};
use crate::pipeline::decision::Write;
use crate::pipeline::effect::{Answers, Stop};
use crate::refusal::{Forbidden, Refusal, Subject, Unreasoned};
use crate::request::Request;
use crate::stamp::Stamp;
use crate::state::{Entry, State};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a write does, as plug-ins and webhooks tell writes apart: whatever the verb of the request was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

impl Operation {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

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
    pub answers: &'a Answers,
    pub operation: Operation,
    pub body: Body,
    /// Null for a deletion.
    pub object: Value,
    /// The object as it is; null for one that is not there.
    pub old: &'a Value,
    pub admitted: Admitted,
}

/// What came of admission beside the object.
#[derive(Debug, Default)]
pub struct Admitted {
    pub told: Told,
    /// Writes of other objects that must happen together with this one: a quota's usage.
    pub besides: Vec<Write>,
}

/// What the client and the auditor are told, whether the write is admitted or not.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Told {
    pub warnings: Vec<String>,
    /// For the request's audit events.
    pub annotations: BTreeMap<String, String>,
}

impl Admitted {
    pub fn extend(&mut self, more: Admitted) {
        self.told.warnings.extend(more.told.warnings);
        self.told.annotations.extend(more.told.annotations);
        self.besides.extend(more.besides);
    }
}

impl<'a> Attributes<'a> {
    pub fn user(&self) -> &'a User {
        &self.request.user
    }

    /// Empty for the object itself.
    pub fn subresource(&self) -> &'a str {
        self.request.target.subresource.as_deref().unwrap_or("")
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

    /// A write of the spec of a pod that is there: through the object, or through one of the parts that may change it.
    pub fn fields(&self) -> &Document {
        meta::fields(&self.object)
    }

    pub fn fields_mut(&mut self) -> &mut Document {
        meta::fields_mut(&mut self.object)
    }

    /// As refusals name the object: the name may not have been made yet.
    pub fn name(&self) -> &str {
        let metadata = meta::metadata(self.fields());
        let told = [self.request.name(), meta::text(metadata, "name"), meta::text(metadata, "generateName")];
        told.into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown")
    }

    pub fn subject(&self) -> Subject {
        let version = &self.kind.versions[self.request.target.version];
        Subject::new(&version.group, &self.kind.resource, self.name())
    }

    pub fn forbidden(&self, why: impl Into<String>) -> Stop {
        Refusal::Forbidden { subject: self.subject(), why: Forbidden::Admission(why.into()) }.into()
    }

    /// A fault of the plug-in's own, which Kubernetes hands on as it is.
    pub fn fault(&self, why: impl Into<String>) -> Stop {
        Refusal::Unreasoned(Unreasoned::Admission(why.into())).into()
    }

    pub fn warn(&mut self, warning: impl Into<String>) {
        self.admitted.told.warnings.push(warning.into());
    }

    pub fn annotate(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.admitted.told.annotations.insert(key.into(), value.into());
    }

    /// Whether the author may do this, too.
    pub fn may(&self, verb: &str, target: ResourceTarget) -> bool {
        self.authorizer.authorize(self.user(), &authz::Attributes::resource(verb, target)).is_allowed()
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

    /// The namespace that the write is in.
    pub fn namespace_entry(&self) -> Option<&'a Arc<Entry>> {
        self.entry(known::NAMESPACE, "", self.namespace())
    }
}
