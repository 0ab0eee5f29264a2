//! The table of endpoints: which endpoint serves each verb and subresource.

use super::candidate::Made;
use super::endpoint::{Endpoint, Form, Part, Rules};
use super::{Context, Stop, ask, bind, body, delete, evict, patch, scale, token};
use crate::kinds;
use crate::refusal::{Internal, MethodNotAllowed, Refusal};
use crate::request::{Format, Verb};

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
            // A custom resource has one schema for all its fields, so a status write checks all of them.
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
}

/// The function that makes the candidate for a write of an object, or of a part that has the form of the object.
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
