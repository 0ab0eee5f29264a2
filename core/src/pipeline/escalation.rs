//! Some writes need more than the verb on the object: a role is granted only by those who hold its rules, and a request
//! for a certificate is approved only by those who may approve for its signer. What is needed is the kind's own affair.

use super::Context;
use super::candidate::Candidate;
use crate::authz::escalation::Grant;
use crate::object::meta;
use crate::refusal::Refusal;
use crate::request::Verb;

pub(super) fn admit(context: &Context, object: &Candidate) -> Result<(), Refusal> {
    let request = context.request;
    let Some(authorize) = context.kind.hooks.authorize.filter(|_| request.verb != Verb::Delete) else { return Ok(()) };
    authorize(&Grant {
        state: context.state,
        authorizer: context.authorizer(),
        user: &request.user,
        namespace: request.namespace().unwrap_or(""),
        name: request.name(),
        subresource: request.target.subresource.as_deref().unwrap_or(""),
        subject: context.subject(meta::name(object.fields())),
        kind: &context.kind.kind,
        new: &object.new,
        old: object.old.as_ref().map(|old| &old.document),
    })
}
