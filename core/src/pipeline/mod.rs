//! Judges a request against a snapshot. Judging is a pure function: the same input gives the same decision.
//!
//! Start at [`judge`]. `stages`, below it, lists the stages of every mutation in order; no write of any verb or
//! subresource bypasses them. [`Endpoint`] describes the differences between verbs and subresources. The result is a
//! [`Decision`]: the writes, each with the version that its key must still have. This module changes no state; the
//! engine's writer does that later. Work that needs the outside (webhooks, signatures) is an [`Effect`]: the caller
//! carries it out, adds the outcome to [`Answers`], and judges again.

mod admit;
mod allocate;
mod ask;
mod bind;
mod body;
mod candidate;
mod claims;
mod convert;
pub(crate) mod decision;
mod decode;
mod default;
mod definition;
mod delete;
pub(crate) mod effect;
mod encode;
mod endpoint;
mod endpoints;
mod escalation;
mod evict;
mod generation;
mod identity;
mod lifecycle;
mod manage;
mod owners;
mod patch;
mod patched;
mod reset;
mod room;
mod scale;
mod settings;
mod token;
mod validate;

pub use crate::admission::outcome::Pause;
pub use body::named_version;
pub use claims::{BoundTo, TokenClaims};
pub use decision::{Answer, Decision, Expectation, Representation, Write};
pub use decode::{decode_body, parsed, requested};
pub use definition::Clearing;
pub use delete::{validate_options as validate_delete_options, validate_options_of_many, warning as delete_warning};
pub use effect::{Answers, Effect, Reviewed, SignedToken};
pub use room::makes_room;
pub use scale::scale_of;
pub use settings::{PortsElsewhere, Settings};

use crate::admission::{Admitted, Told};
use crate::authz::{Authorizer, Chain, Consulted};
use crate::event::Actor;
use crate::kinds::{Kind, Question, Version};
use crate::refusal::{Internal, Refusal, Subject, Texts};
use crate::request::Request;
use crate::stamp::Stamp;
use crate::state::State;
use candidate::Made;
use effect::Stop;
use endpoint::Endpoint;
use std::cell::RefCell;
use std::sync::Arc;

/// The result of judging a request.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one a request, and most are done: a box would cost more")]
pub enum Judgement {
    /// Judging is complete: the decision or refusal, with warnings and audit annotations in both cases.
    Done(Result<Decision, Refusal>, Told),
    /// An effect that must be carried out. The request is then judged again, with the outcome among the answers.
    Need(Effect),
}

/// The input of judging, in addition to the request, its stamp and the outcomes of effects.
#[derive(Clone, Copy)]
pub struct Basis<'a> {
    pub state: &'a State,
    pub settings: &'a Settings,
    /// The authorizers. They decide whether a request is allowed, and which permissions a user may grant.
    pub chain: &'a Arc<Chain>,
}

impl<'a> Basis<'a> {
    /// A basis with authorizers that allow everything.
    pub fn without_authorization(state: &'a State, settings: &'a Settings) -> Basis<'a> {
        Basis { state, settings, chain: Chain::always_allow() }
    }
}

/// Judges a request. The function changes nothing, and the same input gives the same judgement.
pub fn judge(basis: Basis<'_>, request: &Request, stamp: Stamp, answers: &Answers) -> Judgement {
    let context = Context::new(basis, request, stamp, answers);
    let decided = stages(&context);
    // An authorization webhook was asked and has not answered yet, so this judgement is not final.
    let open = context.consulted.take_open();
    if !open.is_empty() {
        return Judgement::Need(Effect::Authorize(open));
    }
    let mut told = context.admitted.into_inner().told;
    match decided {
        Ok(mut decision) => {
            told.warnings.append(std::mem::take(&mut decision.warnings));
            decision.warnings = std::mem::take(&mut told.warnings);
            Judgement::Done(Ok(decision), told)
        }
        Err(Stop::Refused(refusal)) => Judgement::Done(Err(refusal), told),
        Err(Stop::Needs(effect)) => Judgement::Need(effect),
    }
}

/// Like [`judge`], for a request that needs no effects.
pub fn decide(basis: Basis<'_>, request: &Request, stamp: Stamp) -> Result<Decision, Refusal> {
    match judge(basis, request, stamp, &Answers::default()) {
        Judgement::Done(done, _) => done,
        Judgement::Need(effect) => Err(Refusal::Internal(Internal::NobodyToAsk { what: effect.what() })),
    }
}

/// Runs the stages of a mutation, in order.
fn stages(context: &Context) -> Result<Decision, Stop> {
    context.check_stored()?;
    manage::check_options(context.request)?;
    let endpoint = Endpoint::of(context)?;
    // Decodes, checks and prunes the body, and makes the candidate from the body and the stored object.
    let mut object = match (endpoint.candidate)(context, &endpoint)? {
        Made::Object(object) => *object,
        Made::Answer(decision) => return Ok(*decision),
    };
    default::to_hub(context, &endpoint, &mut object)?;
    // Managed fields are recorded before mutating admission, which can read them. So fields that admission or the
    // server sets have no owner. Validation checks these fields like the client's fields.
    identity::wipe(&mut object);
    manage::track(context, &mut object)?;
    admit::mutate(context, &endpoint, &mut object)?;
    identity::identify(context, &endpoint, &mut object);
    reset::narrow_to_part(context, &endpoint, &mut object);
    reset::prepare(context, &endpoint, &mut object);
    escalation::admit(context, &object)?;
    allocate::allocate(context, &endpoint, &mut object)?;
    validate::validate(context, &endpoint, &mut object)?;
    default::show_zeros(context, &endpoint, &mut object)?;
    manage::keep_times(&mut object);
    generation::count(context, &endpoint, &mut object);
    encode::warn(context, &endpoint, &object);
    // Validating admission sees the object as it would be stored.
    admit::validate(context, &endpoint, &mut object)?;
    validate::is_free(context, &object)?;
    encode::decide(context, &endpoint, object)
}

/// The user and the request, in the form in which the event records them.
pub fn actor(request: &Request) -> Actor {
    Actor {
        user: request.user.name.clone(),
        manager: request.options.field_manager.clone().unwrap_or_default(),
        verb: request.verb.as_str().into(),
        request_id: request.id.clone(),
        changes: Vec::new(),
    }
}

/// The input that all stages share.
struct Context<'a> {
    state: &'a State,
    settings: &'a Settings,
    chain: &'a Arc<Chain>,
    request: &'a Request,
    stamp: Stamp,
    kind: &'a Kind,
    answers: &'a Answers,
    /// The answers of webhooks to questions of authorization, and the questions that this judgement could not answer.
    consulted: Consulted,
    /// What admission has added so far: warnings, audit annotations and further writes.
    admitted: RefCell<Admitted>,
}

impl<'a> Context<'a> {
    fn new(basis: Basis<'a>, request: &'a Request, stamp: Stamp, answers: &'a Answers) -> Context<'a> {
        let Basis { state, settings, chain } = basis;
        let (kind, consulted) = (state.kind(request.target.kind), Consulted::of(&answers.opinions));
        Context { state, settings, chain, request, stamp, kind, answers, consulted, admitted: RefCell::default() }
    }

    /// Adds warnings for the client, who gets them with a decision and with a refusal.
    fn warn(&self, warnings: impl IntoIterator<Item = String>) {
        let told = &mut self.admitted.borrow_mut().told.warnings;
        warnings.into_iter().for_each(|warning| told.push_once(warning));
    }

    /// Adds a bounded list of warnings for the client.
    fn warn_of(&self, warnings: Texts) {
        let more = warnings.more();
        self.warn(warnings.iter().cloned());
        self.admitted.borrow_mut().told.warnings.add_more(more);
    }

    /// Adds an annotation to the audit event of the request.
    fn annotate(&self, key: &str, value: String) {
        self.admitted.borrow_mut().told.annotations.add(key, value);
    }

    /// The authorizer for permissions beyond the request's own verb. It uses the answers that webhooks have given so
    /// far.
    fn authorizer(&self) -> Authorizer<'_> {
        self.state.authorizer(self.chain, &self.consulted)
    }

    /// Checks that the server serves the kind and that its objects can be written. A kind that is never stored must be
    /// a review. The path was resolved with the registry of this snapshot.
    fn check_stored(&self) -> Result<(), Refusal> {
        if !self.state.registry.serves(self.request.target.kind) {
            return Err(Refusal::NoSuchPath);
        }
        if !self.kind.stored && !self.kind.question.is_some_and(|question| question != Question::Binding) {
            return Err(Refusal::Internal(Internal::NotStored { kind: self.kind.kind.clone() }));
        }
        Ok(())
    }

    fn version(&self) -> &Version {
        &self.kind.versions[self.request.target.version]
    }

    /// The index of the version in which documents are judged: the hub version for a built-in kind. For a custom kind
    /// it is the request's version, because each version has its own rules.
    fn working_version(&self) -> usize {
        if self.kind.custom.is_some() { self.request.target.version } else { 0 }
    }

    /// Whether the kind has a status subresource in the path's version.
    fn has_status(&self) -> bool {
        self.kind.has_status(self.request.target.version)
    }

    /// The object as it is named in refusals that use the resource: `deployments.apps "web"`.
    fn subject(&self, name: &str) -> Subject {
        Subject::new(&self.version().group, &self.kind.resource, name)
    }

    /// The object as it is named in refusals that use the kind: `Deployment.apps "web"`, with the group of the hub
    /// version.
    fn kind_subject(&self, name: &str) -> Subject {
        Subject::new(&self.kind.hub().group, &self.kind.kind, name)
    }
}
