//! What tells one verb and subresource from another: all else is the same for every mutation.

use super::candidate::Made;
use super::{Context, Stop, ask, bind, body, delete, evict, patch, scale, token};
use crate::kinds;
use crate::refusal::{Internal, MethodNotAllowed, Refusal};
use crate::request::{Format, Verb};

pub(super) struct Endpoint {
    /// Makes what the object shall be, of the body and of the object as it is.
    pub candidate: fn(&Context, &Endpoint) -> Result<Made, Stop>,
    pub part: Part,
    pub rules: Rules,
    pub answer: Form,
}

/// Which part of an object a write may touch; the rest is put back to what it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// All but the status.
    Main,
    /// The status alone.
    Status,
    /// `spec.finalizers` of a namespace.
    Finalize,
    /// The conditions of a certificate signing request, and its metadata.
    Approval,
    /// `spec.ephemeralContainers` of a pod.
    EphemeralContainers,
    /// Container resources of a pod.
    Resize,
    /// The number of replicas, which is all that the candidate changes.
    Replicas,
    /// The node of a pod and what the scheduler notes with it, which is all that the candidate changes.
    Assignment,
    /// What says that and when an object goes, which is all that the candidate changes.
    Deletion,
}

impl Part {
    /// Whether the server alone says what changes, in an object as it is stored.
    pub fn is_of_server(self) -> bool {
        matches!(self, Part::Assignment | Part::Deletion)
    }
}

/// By which rules the object is validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rules {
    /// Those of its kind.
    Kind,
    /// Those of its kind for a new object: the part has an endpoint of its own just because an update may not change it.
    New,
    /// Those of all metadata: a status obeys no rule of the spec.
    Metadata,
    /// None: what is stored may always go, whatever has become a rule since.
    Nothing,
}

/// How success is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Object,
    Scale,
    /// That it is done, with 201.
    Success,
    /// The object while it is still there; then that it is gone, or what it was.
    Deletion,
}

impl Endpoint {
    pub fn of(context: &Context) -> Result<Endpoint, Refusal> {
        let verb = context.request.verb;
        let endpoint = match context.request.target.subresource.as_deref() {
            None => match verb {
                Verb::Create if !context.kind.stored => Endpoint { candidate: ask::question, ..Endpoint::MAIN },
                Verb::Create => Endpoint { candidate: body::create, ..Endpoint::MAIN },
                Verb::Update | Verb::Patch => Endpoint { candidate: changing(context), ..Endpoint::MAIN },
                Verb::Delete => Endpoint { candidate: delete::delete, ..Endpoint::DELETION },
                Verb::Get | Verb::List | Verb::Watch | Verb::DeleteCollection => {
                    return Err(Refusal::Internal(Internal::NoDecision { verb: verb.as_str() }));
                }
            },
            Some("binding") if verb == Verb::Create => Endpoint {
                candidate: bind::bind,
                part: Part::Assignment,
                rules: Rules::Metadata,
                answer: Form::Success,
            },
            Some("eviction") if verb == Verb::Create => {
                Endpoint { candidate: evict::evict, answer: Form::Success, ..Endpoint::DELETION }
            }
            Some("token") if verb == Verb::Create => Endpoint { candidate: token::request, ..Endpoint::MAIN },
            Some(way) if kinds::leads_to_node(way) => Endpoint { candidate: ask::connect, ..Endpoint::MAIN },
            Some(part) if matches!(verb, Verb::Update | Verb::Patch) => Endpoint::of_part(context, part)?,
            Some(_) => return Err(not_allowed()),
        };
        Ok(endpoint)
    }

    const MAIN: Endpoint =
        Endpoint { candidate: body::create, part: Part::Main, rules: Rules::Kind, answer: Form::Object };
    const DELETION: Endpoint =
        Endpoint { candidate: delete::delete, part: Part::Deletion, rules: Rules::Nothing, answer: Form::Deletion };

    /// A write of one part of an object.
    fn of_part(context: &Context, part: &str) -> Result<Endpoint, Refusal> {
        let (part, rules) = match part {
            "scale" => {
                let candidate = scale::scale;
                return Ok(Endpoint { candidate, part: Part::Replicas, rules: Rules::Kind, answer: Form::Scale });
            }
            // The schema of a custom resource is one for all of it.
            "status" if context.kind.custom.is_some() => (Part::Status, Rules::Kind),
            "status" => (Part::Status, Rules::Metadata),
            "finalize" => (Part::Finalize, Rules::New),
            "approval" => (Part::Approval, Rules::New),
            "ephemeralcontainers" => (Part::EphemeralContainers, Rules::New),
            "resize" => (Part::Resize, Rules::New),
            _ => return Err(not_allowed()),
        };
        Ok(Endpoint { candidate: changing(context), part, rules, answer: Form::Object })
    }

    /// Whether the endpoint may make an object that is not there.
    pub fn may_create(&self) -> bool {
        self.part == Part::Main
    }
}

/// How a write of an object, or of a part that looks like it, makes its candidate.
fn changing(context: &Context) -> fn(&Context, &Endpoint) -> Result<Made, Stop> {
    match (context.request.verb, context.request.body.format) {
        (Verb::Patch, Format::ApplyPatch) => patch::apply,
        (Verb::Patch, _) => patch::patch,
        _ => body::update,
    }
}

fn not_allowed() -> Refusal {
    Refusal::MethodNotAllowed(MethodNotAllowed::OnResource)
}
