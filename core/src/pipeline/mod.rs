//! Judges a request against a snapshot: a pure function from what is to what should be.
//!
//! [`judge`] is the way in. `stages`, below it, lists what happens to every mutation, in order: whatever the verb and the
//! subresource, there is no other way for a write. What differs between them is an [`Endpoint`]. The outcome is a
//! [`Decision`]: the writes it wants, each with the version it expects its key to have. Nothing here changes anything;
//! the engine's writer does, later. What only the outside can do is an [`Effect`]: whoever asked runs it, and asks again
//! with what came of it in [`Answers`].

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

pub use body::named_version;
pub use claims::{BoundTo, TokenClaims};
pub use decision::{Answer, Decision, Expectation, Representation, Write};
pub use decode::{decode_body, parsed, requested};
pub use definition::Clearing;
pub use delete::{validate_options as validate_delete_options, warning as delete_warning};
pub use effect::{Answers, Effect, Reviewed, SignedToken};
pub use room::makes_room;
pub use scale::scale_of;
pub use settings::Settings;

use crate::admission::{Admitted, Told};
use crate::authz::{Authorizer, Chain};
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

/// What came of judging a request.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one a request, and most are done: a box would cost more")]
pub enum Judgement {
    /// With what is told beside it: a refusal has warnings, too.
    Done(Result<Decision, Refusal>, Told),
    /// Something that only the outside can do. With its outcome among the answers the request is judged again.
    Need(Effect),
}

/// Judges `request` against `state`. Changes nothing, and gives the same for the same.
pub fn judge(state: &State, settings: &Settings, request: &Request, stamp: Stamp, answers: &Answers) -> Judgement {
    let kind = state.kind(request.target.kind);
    let chain = settings.authorization.now();
    let context = Context { state, settings, chain, request, stamp, kind, answers, admitted: RefCell::default() };
    let decided = stages(&context);
    // Whatever came of it rests on what nobody has said yet.
    let open = answers.consulted.take_open();
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

/// The same for a request that needs nothing from outside.
pub fn decide(state: &State, settings: &Settings, request: &Request, stamp: Stamp) -> Result<Decision, Refusal> {
    match judge(state, settings, request, stamp, &Answers::default()) {
        Judgement::Done(done, _) => done,
        Judgement::Need(effect) => Err(Refusal::Internal(Internal::NobodyToAsk { what: effect.what() })),
    }
}

/// The stages of every mutation, in order.
fn stages(context: &Context) -> Result<Decision, Stop> {
    context.check_stored()?;
    manage::check_options(context.request)?;
    let endpoint = Endpoint::of(context)?;
    // Decode the body, check and prune it, and make of it and of the object as it is what the object shall be.
    let mut object = match (endpoint.candidate)(context, &endpoint)? {
        Made::Object(object) => *object,
        Made::Answer(decision) => return Ok(*decision),
    };
    default::to_hub(context, &endpoint, &mut object)?;
    // What admission changes, and what the server says and hands out, is nobody's field: managed fields are noted
    // before, and admission sees them. What it changes is validated like the client's own changes.
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
    // The second half of admission sees what would be stored.
    admit::validate(context, &endpoint, &mut object)?;
    validate::is_free(context, &object)?;
    encode::decide(context, &endpoint, object)
}

/// Who is behind a request, as the event tells it.
pub fn actor(request: &Request) -> Actor {
    Actor {
        user: request.user.name.clone(),
        manager: request.options.field_manager.clone().unwrap_or_default(),
        verb: request.verb.as_str().into(),
        request_id: request.id.clone(),
        changes: Vec::new(),
    }
}

/// What every stage sees.
struct Context<'a> {
    state: &'a State,
    settings: &'a Settings,
    chain: Arc<Chain>,
    request: &'a Request,
    stamp: Stamp,
    kind: &'a Kind,
    answers: &'a Answers,
    /// What admission tells and wants beside the object, as far as it has come.
    admitted: RefCell<Admitted>,
}

impl Context<'_> {
    /// Tells whoever asks, whatever comes of the request.
    fn warn(&self, warnings: impl IntoIterator<Item = String>) {
        let told = &mut self.admitted.borrow_mut().told.warnings;
        warnings.into_iter().for_each(|warning| told.push_once(warning));
    }

    /// The same of warnings of which not all are told.
    fn warn_of(&self, warnings: Texts) {
        let more = warnings.more();
        self.warn(warnings.iter().cloned());
        self.admitted.borrow_mut().told.warnings.add_more(more);
    }

    /// Tells the auditor.
    fn annotate(&self, key: &str, value: String) {
        self.admitted.borrow_mut().told.annotations.add(key, value);
    }

    /// Says what users may do beside the verb of the request, which somebody has asked before.
    fn authorizer(&self) -> Authorizer<'_> {
        self.state.authorizer(&self.chain, &self.answers.consulted)
    }

    /// Targets are resolved against the snapshot's own registry before. Kinds that are only posted have no writes, but
    /// questions.
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

    /// The object as invalid ones are named: `Deployment.apps "web"`, whichever of its groups the path names.
    fn kind_subject(&self, name: &str) -> Subject {
        Subject::new(&self.kind.hub().group, &self.kind.kind, name)
    }
}
