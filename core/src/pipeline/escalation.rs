//! Privilege escalation checks: some writes require more permissions than the verb on the object. Only users that hold
//! a role's rules may grant the role, and only users that may approve for a signer may approve its certificate
//! requests. The definition of each kind contains its checks.

use super::Context;
use super::candidate::Candidate;
use crate::admission::registered::Policy;
use crate::authz::escalation::{Elsewhere, Grant};
use crate::object::meta;
use crate::refusal::Refusal;
use crate::request::Verb;
use crate::state::State;

pub(super) fn admit(context: &Context, object: &Candidate) -> Result<(), Refusal> {
    let request = context.request;
    let Some(authorize) = context.kind.rules.authorize.filter(|_| request.verb != Verb::Delete) else { return Ok(()) };
    authorize(&Grant {
        elsewhere: context.state,
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

impl Elsewhere for State {
    fn resource(&self, group: &str, version: &str, kind: &str) -> Option<&str> {
        let (id, _) = self.registry.find_kind(group, version, kind)?;
        Some(&self.registry.get(id).resource)
    }

    fn validating_parameters(&self, policy: &str) -> Option<(&str, &str)> {
        parameters(self.registered.validating_policies.get(policy)?)
    }

    fn mutating_parameters(&self, policy: &str) -> Option<(&str, &str)> {
        parameters(self.registered.mutating_policies.get(policy)?)
    }
}

fn parameters(policy: &Policy) -> Option<(&str, &str)> {
    policy.parameters.as_ref().map(|(api_version, kind)| (api_version.as_str(), kind.as_str()))
}
