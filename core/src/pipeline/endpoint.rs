//! What distinguishes one verb and subresource from another. Everything else is the same for all mutations.

use super::candidate::Made;
use super::{Context, Stop, ask, bind, body, delete, evict, patch, scale, token};
use crate::kinds;
use crate::refusal::{Internal, MethodNotAllowed, Refusal};
use crate::request::{Format, Verb};

pub(super) struct Endpoint {
    /// Makes the candidate from the body and the stored object.
    pub candidate: fn(&Context, &Endpoint) -> Result<Made, Stop>,
    pub part: Part,
    pub rules: Rules,
    pub answer: Form,
}

/// The part of an object that a write may change; the rest is reset to its old value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Everything but the status.
    Main,
    /// The status only.
    Status,
    /// `spec.finalizers` of a namespace.
    Finalize,
    /// The conditions of a certificate signing request, and its metadata.
    Approval,
    /// `spec.ephemeralContainers` of a pod.
    EphemeralContainers,
    /// Container resources of a pod.
    Resize,
    /// The number of replicas; the candidate changes nothing else.
    Replicas,
    /// The node of a pod with the Binding's labels and annotations; the candidate changes nothing else.
    Assignment,
    /// The deletion timestamp, grace period and finalizers; the candidate changes nothing else.
    Deletion,
}

impl Part {
    /// Whether only the server changes this part, in the stored object.
    pub fn is_of_server(self) -> bool {
        matches!(self, Part::Assignment | Part::Deletion)
    }
}

/// The rules by which the object is validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rules {
    /// The rules of its kind.
    Kind,
    /// The rules of its kind for a new object: the update rules forbid changing the very part that this endpoint exists
    /// for.
    New,
    /// The rules of metadata only: a status write does not check the spec.
    Metadata,
    /// None: a stored object may always be deleted, whatever rules were added since.
    Nothing,
}

/// The form of a successful answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Object,
    Scale,
    /// A Status of success, with 201.
    Success,
    /// The object while it still exists; once it is removed, a Status of success or its last state.
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

    /// The endpoint of a subresource.
    fn of_part(context: &Context, part: &str) -> Result<Endpoint, Refusal> {
        let (part, rules) = match part {
            "scale" => {
                let candidate = scale::scale;
                return Ok(Endpoint { candidate, part: Part::Replicas, rules: Rules::Kind, answer: Form::Scale });
            }
            // A custom resource has one schema for all parts.
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

    /// Whether the endpoint may create an object.
    pub fn may_create(&self) -> bool {
        self.part == Part::Main
    }
}

/// The function that makes the candidate for a write of an object or a part shaped like it.
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
