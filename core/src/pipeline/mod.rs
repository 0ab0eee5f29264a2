//! Judges a request against a snapshot: a pure function from what is to what should be.
//!
//! The stages are explicit and in this order: decode, type-check and prune, default, convert to the hub,
//! merge (patches), admit, validate, encode. The outcome is a [`Decision`]: the writes it wants, each with the
//! version it expects its key to have. Nothing here changes anything; the engine's writer does, later.

mod conversion;
mod create;
mod definition;
mod delete;
mod document;
mod lifecycle;
mod patch;
mod service;
mod subresource;
mod update;

pub use conversion::Conversions;
pub use definition::{claims as definition_claims, plan as plan_definitions};
pub use delete::validate as validate_delete_options;
pub use document::{from_hub, to_hub};
pub use service::{ServiceRange, claims as service_claims};
pub use subresource::scale_of;

use crate::authz::chain::Mode;
use crate::event::{Actor, Offset};
use crate::kinds::custom::as_stored;
use crate::kinds::{Kind, KindId, Version};
use crate::list::TokenKey;
use crate::merge::managed;
use crate::object::Draft;
use crate::object::meta::{DEPTH_MAX, Document, depth};
use crate::refusal::{Cause, Refusal, Subject};
use crate::request::{Format, Request, Verb};
use crate::schema::layout::Layout;
use crate::stamp::Stamp;
use crate::state::{Entry, Index, State};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// What the operator set and decisions depend on.
#[derive(Debug, Clone)]
pub struct Settings {
    pub service_range: ServiceRange,
    /// First and last node port.
    pub node_ports: (u16, u16),
    /// How requests are authorized: nobody may grant more than that allows them.
    pub modes: Vec<Mode>,
    /// Seals continue tokens.
    pub token_key: TokenKey,
    /// How long Events are kept after their last change; `None` for ever.
    pub event_ttl: Option<Duration>,
}

/// As in Kubernetes.
const EVENT_TTL: Duration = Duration::from_secs(3600);

impl Default for Settings {
    fn default() -> Self {
        Self {
            service_range: ServiceRange::default(),
            node_ports: (30000, 32767),
            modes: vec![Mode::AlwaysAllow],
            token_key: TokenKey::default(),
            event_ttl: Some(EVENT_TTL),
        }
    }
}

/// What a request leads to.
#[derive(Debug)]
pub struct Decision {
    /// All of them are made at one offset after the other, or none.
    pub writes: Vec<Write>,
    /// Other objects that must be as they were seen: the namespace of a new object.
    pub expects: Vec<Expectation>,
    pub answer: Answer,
    /// The client fixed the version, so a stale decision is its conflict and is not decided again.
    pub fixed: bool,
    pub warnings: Vec<String>,
}

/// One event to be, but for its offset.
#[derive(Debug)]
pub struct Write {
    pub kind: KindId,
    pub key: Arc<str>,
    /// The version that the decision saw; `None`: there was no such object.
    pub expect: Option<Offset>,
    pub draft: Draft,
    pub index: Index,
    pub delete: bool,
}

/// An object and the version that the decision saw of it; `None`: it was not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectation {
    pub kind: KindId,
    pub key: Arc<str>,
    pub version: Option<Offset>,
}

/// What the client gets when the writes are done.
pub enum Answer {
    /// The object of the write with this index.
    Written { index: usize, code: u16, view: View },
    /// An object as it is already.
    Entry { entry: Arc<Entry>, code: u16, view: View },
    /// A document that is not stored.
    Document { document: Document, code: u16 },
    /// `Status` Success with details: the object is gone.
    Deleted { subject: Subject, uid: String },
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Written { index, code, view } => write!(f, "Written({index}, {code}, {view:?})"),
            Self::Entry { code, view, .. } => write!(f, "Entry({code}, {view:?})"),
            Self::Document { code, .. } => write!(f, "Document({code})"),
            Self::Deleted { subject, .. } => write!(f, "Deleted({subject})"),
        }
    }
}

/// How an object is shown: itself, or through a subresource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    Object,
    Scale,
}

/// Judges `request` against `state`. Changes nothing.
pub fn decide(state: &State, settings: &Settings, request: &Request, stamp: Stamp) -> Result<Decision, Refusal> {
    decide_with(state, settings, request, stamp, &Conversions::default())
}

/// The same, with what webhooks have converted for it. Whoever lacks one is told which
/// ([`Refusal::Unconverted`]), and decides again with it.
pub fn decide_with(
    state: &State,
    settings: &Settings,
    request: &Request,
    stamp: Stamp,
    conversions: &Conversions,
) -> Result<Decision, Refusal> {
    if !state.registry.serves(request.target.kind) {
        return Err(Refusal::Redefined);
    }
    let kind = state.kind(request.target.kind);
    let context = Context { state, settings, request, stamp, kind, conversions };
    if !context.kind.stored {
        return Err(Refusal::Internal(format!("{} is not stored, so nothing is decided on it", context.kind.kind)));
    }
    check_manager(request)?;
    if let Some(subresource) = request.target.subresource.as_deref() {
        return subresource::decide(&context, subresource);
    }
    match request.verb {
        Verb::Create => create::decide(&context),
        Verb::Update => update::decide(&context, update::Scope::Main),
        Verb::Patch => patch::decide(&context, update::Scope::Main),
        Verb::Delete => delete::decide(&context),
        Verb::Get | Verb::List | Verb::Watch | Verb::DeleteCollection => {
            Err(Refusal::Internal(format!("{} is not a decision", request.verb.as_str())))
        }
    }
}

/// The name under which the request's fields are noted, which an apply must bring, and the force that only it may use.
fn check_manager(request: &Request) -> Result<(), Refusal> {
    let options = match request.verb {
        Verb::Create => "CreateOptions",
        Verb::Update => "UpdateOptions",
        Verb::Patch => "PatchOptions",
        _ => return Ok(()),
    };
    let manager = request.options.field_manager.as_deref().unwrap_or("");
    let is_apply = request.body.format == Format::ApplyPatch;
    let mut causes = managed::field_manager_faults(manager, is_apply);
    if request.verb == Verb::Patch && !is_apply && request.options.force.is_some() {
        causes.insert(0, Cause::forbidden("force", "may not be specified for non-apply patch"));
    }
    if causes.is_empty() {
        return Ok(());
    }
    Err(Refusal::Invalid { subject: Subject::new("meta.k8s.io", options, ""), causes })
}

/// The body of a request on a kind that is not stored, checked against its schema.
pub fn decode_body(state: &State, request: &Request) -> Result<Document, Refusal> {
    let version = &state.kind(request.target.kind).versions[request.target.version];
    decode_body_as(state, request, &version.group, &version.version, &state.kind(request.target.kind).kind)
}

/// The same for a body of another kind than the path's.
pub fn decode_body_as(
    state: &State,
    request: &Request,
    group: &str,
    version: &str,
    kind: &str,
) -> Result<Document, Refusal> {
    let settings = Settings::default();
    // Decoding draws nothing from the stamp.
    let stamp = Stamp { time: jiff::Timestamp::UNIX_EPOCH, seed: 0 };
    let conversions = Conversions::default();
    let target = state.kind(request.target.kind);
    let context = Context { state, settings: &settings, request, stamp, kind: target, conversions: &conversions };
    let served = state.registry.find_kind(group, version, kind);
    let layout = match (served, crate::kinds::body_message(group, version, kind)) {
        (Some((id, index)), _) => document::layout(state.kind(id), index)?,
        (None, Some(message)) => Layout::of(
            crate::schema::schema()
                .id(message)
                .ok_or_else(|| Refusal::Internal(format!("the schema has no message {message}")))?,
        ),
        (None, None) => return Err(Refusal::NoSuchPath),
    };
    context.decode_as(group, version, kind, layout, &mut Vec::new())
}

/// What every stage sees.
struct Context<'a> {
    state: &'a State,
    settings: &'a Settings,
    request: &'a Request,
    stamp: Stamp,
    kind: &'a Kind,
    conversions: &'a Conversions,
}

impl Context<'_> {
    fn version(&self) -> &Version {
        &self.kind.versions[self.request.target.version]
    }

    /// The version that documents are judged in: the hub's for a built-in kind, the request's for a custom one, whose
    /// versions have rules of their own.
    fn working_version(&self) -> usize {
        if self.kind.custom.is_some() { self.request.target.version } else { 0 }
    }

    /// Whether the status is written through a subresource only.
    fn has_status(&self) -> bool {
        self.kind.subresource(self.request.target.version, "status").is_some()
    }

    /// The object as refusals name it: `deployments.apps "web"`.
    fn subject(&self, name: &str) -> Subject {
        Subject::new(&self.version().group, &self.kind.resource, name)
    }

    /// The object as invalid ones are named: `Deployment.apps "web"`.
    fn kind_subject(&self, name: &str) -> Subject {
        Subject::new(&self.version().group, &self.kind.kind, name)
    }

    /// The object that the path names.
    fn existing(&self) -> Result<(Arc<str>, Arc<Entry>), Refusal> {
        let key = self.request.key();
        match self.state.get(self.request.target.kind, &key) {
            Some(entry) => Ok((key.into(), entry.clone())),
            None => Err(Refusal::NotFound(self.subject(self.request.name()))),
        }
    }

    /// What the path's endpoint puts back to what it was: nobody comes to own that by writing there.
    fn reset_fields(&self) -> &'static [&'static [&'static str]] {
        match self.request.target.subresource.as_deref() {
            None if self.has_status() => &[&["status"]],
            None => &[],
            Some("status") => update::status_resets(self.kind),
            Some(_) => &[&["metadata", "labels"], &["metadata", "annotations"]],
        }
    }

    /// Encodes a hub document into a write.
    ///
    /// What clients send is bounded in depth, but conversion and managed fields may deepen it, and a record that no
    /// reader takes would stop every replay.
    fn write(&self, key: Arc<str>, expect: Option<Offset>, document: Document, delete: bool) -> Result<Write, Refusal> {
        let hub = &self.kind.versions[0];
        let mut document = self.converted(document, self.working_version(), 0)?;
        if self.kind.custom.is_some() {
            // Readers get it as it is stored, and what conversion or the loss of a status left out may have a default.
            document = conversion::object(as_stored(self.kind, Value::Object(document)).1)?;
        }
        let draft = Draft::new(&hub.api_version(), &self.kind.kind, &document);
        let document = Value::Object(document);
        if depth(&document) > DEPTH_MAX {
            let name = document["metadata"]["name"].as_str().unwrap_or_default();
            let subject = self.kind_subject(name);
            return Err(Refusal::BadRequest(format!("{subject} is nested deeper than {DEPTH_MAX} levels")));
        }
        let index = Index::new(self.kind, &document);
        Ok(Write { kind: self.request.target.kind, key, expect, draft, index, delete })
    }

    fn manager(&self) -> &str {
        self.request.options.field_manager.as_deref().unwrap_or("unknown")
    }
}

impl Decision {
    fn unchanged(entry: Arc<Entry>, code: u16, warnings: Vec<String>) -> Decision {
        Decision {
            writes: Vec::new(),
            expects: Vec::new(),
            answer: Answer::Entry { entry, code, view: View::Object },
            fixed: false,
            warnings,
        }
    }

    fn one(write: Write, code: u16, fixed: bool, warnings: Vec<String>) -> Decision {
        Decision {
            writes: vec![write],
            expects: Vec::new(),
            answer: Answer::Written { index: 0, code, view: View::Object },
            fixed,
            warnings,
        }
    }
}

/// Who is behind a request, as the event tells it.
pub fn actor(request: &Request) -> Actor {
    Actor {
        user: request.user.name.clone(),
        manager: request.options.field_manager.clone().unwrap_or_default(),
        verb: request.verb.as_str().into(),
        request_id: request.id.clone(),
    }
}
