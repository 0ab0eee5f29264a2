//! Nobody grants more by a role or a binding than they hold themselves.

use super::Context;
use super::candidate::Candidate;
use crate::authz::chain::Authorizer;
use crate::authz::escalation;
use crate::object::meta;
use crate::refusal::Refusal;

pub(super) fn admit(context: &Context, object: &Candidate) -> Result<(), Refusal> {
    let Some(role) = context.kind.role else { return Ok(()) };
    const GRANTS: [&str; 4] = ["rules", "aggregationRule", "roleRef", "subjects"];
    let new = object.new();
    if object.old().is_some_and(|old| GRANTS.iter().all(|field| old.get(*field) == new.get(*field))) {
        return Ok(());
    }
    let request = context.request;
    let authorizer = Authorizer { modes: &context.settings.modes, rbac: &context.state.rbac };
    let namespace = request.namespace().unwrap_or("");
    let refused = match role.is_binding() {
        false => {
            escalation::refuse_role(&authorizer, &request.user, role.name(), namespace, request.name(), &object.new)
        }
        true => escalation::refuse_binding(&authorizer, &request.user, namespace, &object.new)
            .unwrap_or_else(|missing| if request.user.is_privileged() { None } else { Some(missing) }),
    };
    match refused {
        None => Ok(()),
        Some(message) => {
            Err(Refusal::Forbidden { subject: context.subject(meta::name(new)), message, causes: Vec::new() })
        }
    }
}
