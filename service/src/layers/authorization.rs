//! Authorization: whether this user may ask for this, by the roles of now, and whether one may act in another's name.

use super::{Layer, Next, Outcome, Passage, audit, refused};
use crate::{ActingAs, Asked, ResourcePath, Service};
use futures_util::future::BoxFuture;
use holdfast_core::Refusal;
use holdfast_core::authz::chain::Authorizer;
use holdfast_core::authz::{Attributes, ResourceTarget, User, Verdict, denied};
use holdfast_core::kinds::known;
use holdfast_core::refusal::{Forbidden, Subject};
use holdfast_core::request::Request;
use holdfast_core::state::State;
use std::sync::Arc;

pub struct Authorization;

/// Comes before flow control: it is for whom a request is made that says whose turn it is.
pub struct Impersonation;

impl Layer for Impersonation {
    fn call<'a>(&'a self, passage: &'a mut Passage, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        match act_as_another(next.service(), passage) {
            Ok(()) => next.call(passage),
            Err(refusal) => refused(refusal),
        }
    }
}

/// All kinds of all groups, or all objects.
const ALL: &str = "*";
/// What one must be allowed to do with all of them to see the log.
const READS: [&str; 3] = ["get", "list", "watch"];

impl Layer for Authorization {
    fn call<'a>(&'a self, passage: &'a mut Passage, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        let judged = judge(next.service(), passage);
        if let Some(trail) = &mut passage.trail {
            let (decision, reason) = match &judged {
                Ok(reason) => ("allow", reason.as_str()),
                Err(Refusal::Forbidden { why: Forbidden::Access(denied), .. }) => ("forbid", denied.reason.as_str()),
                Err(_) => ("forbid", ""),
            };
            trail.annotate("authorization.k8s.io/decision", decision);
            trail.annotate("authorization.k8s.io/reason", reason);
            if judged.is_ok() {
                audit::tell_request(trail, &next.service().engine().snapshot(), &passage.asked);
            }
        }
        match judged {
            Ok(_) => next.call(passage),
            Err(refusal) => refused(refusal),
        }
    }
}

/// Goes on in another's name, where the caller wants that and may.
fn act_as_another(service: &Service, passage: &mut Passage) -> Result<(), Refusal> {
    let Some(other) = passage.acting_as.take() else { return Ok(()) };
    let state = service.engine().snapshot();
    passage.user = Arc::new(impersonate(&service.authorizer(&state), &passage.user, other)?);
    if let Some(trail) = &mut passage.trail {
        trail.impersonates(&passage.user);
    }
    Ok(())
}

/// Why it is granted, or what refuses it.
fn judge(service: &Service, passage: &Passage) -> Result<String, Refusal> {
    let state = service.engine().snapshot();
    let authorizer = service.authorizer(&state);
    let user = &passage.user;
    match &passage.asked {
        Asked::Named(named) => {
            let name = named.name();
            let attributes = match &*name == named.path.name.as_str() {
                true => attributes(named.verb.as_str(), &named.path),
                // Whoever may see one object alone may ask for a list of it.
                false => named_attributes(named.verb.as_str(), &named.path, &name),
            };
            may(&authorizer, user, &attributes)
        }
        Asked::Elsewhere { verb, path } => may(&authorizer, user, &attributes(verb, path)),
        Asked::Found(request) => may(&authorizer, user, &of_request(&state, request)?),
        Asked::Path { verb, path } => may(&authorizer, user, &Attributes::path(verb, path)),
        Asked::Everything { verb, path } => {
            may(&authorizer, user, &Attributes::path(verb, path))?;
            let everything = ResourceTarget { group: ALL, version: ALL, resource: ALL, ..ResourceTarget::default() };
            READS
                .iter()
                .try_for_each(|verb| may(&authorizer, user, &Attributes::resource(verb, everything)).map(drop))?;
            Ok(String::new())
        }
    }
}

/// What a path asks for.
pub(crate) fn attributes<'a>(verb: &'a str, path: &'a ResourcePath) -> Attributes<'a> {
    named_attributes(verb, path, &path.name)
}

fn named_attributes<'a>(verb: &'a str, path: &'a ResourcePath, name: &'a str) -> Attributes<'a> {
    let ResourcePath { group, version, namespace, resource, subresource, .. } = path;
    Attributes::resource(verb, ResourceTarget { group, version, resource, subresource, namespace, name })
}

/// The same for a request that knows its kind.
pub(crate) fn of_request<'a>(state: &'a State, request: &'a Request) -> Result<Attributes<'a>, Refusal> {
    let target = &request.target;
    // The kind has gone since the caller saw it, and so has what was to be done.
    if !state.registry.serves(target.kind) {
        return Err(Refusal::NoSuchPath);
    }
    let kind = state.kind(target.kind);
    let version = kind.versions.get(target.version).ok_or(Refusal::NoSuchPath)?;
    let name = request.name();
    // A namespace is judged as if it were within itself.
    let own = if target.kind == state.registry.namespaces() { name } else { "" };
    let target = ResourceTarget {
        group: &version.group,
        version: &version.version,
        resource: &kind.resource,
        subresource: target.subresource.as_deref().unwrap_or(""),
        namespace: request.namespace().unwrap_or(own),
        name,
    };
    Ok(Attributes::resource(request.verb.as_str(), target))
}

fn may(authorizer: &Authorizer<'_>, user: &User, attributes: &Attributes<'_>) -> Result<String, Refusal> {
    match authorizer.authorize(user, attributes) {
        Verdict::Allow { reason } => Ok(reason),
        verdict @ (Verdict::Deny { .. } | Verdict::NoOpinion { .. }) => Err(Refusal::Forbidden {
            subject: match &attributes.target {
                holdfast_core::authz::Target::Resource(target) => {
                    Subject::new(target.group, target.resource, target.name)
                }
                holdfast_core::authz::Target::Path(_) => Subject::default(),
            },
            why: Forbidden::Access(Box::new(denied(user, attributes, verdict.reason()))),
        }),
    }
}

/// The user in whose name the caller acts, if it may take on each part of that.
fn impersonate(authorizer: &Authorizer<'_>, caller: &User, other: ActingAs) -> Result<User, Refusal> {
    let may_be = |group: &str, resource: &str, subresource: &str, namespace: &str, name: &str| {
        let target = ResourceTarget { group, version: "v1", resource, subresource, namespace, name };
        may(authorizer, caller, &Attributes::resource("impersonate", target))
    };
    let account = other.name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    match account {
        Some((namespace, account)) => may_be("", known::SERVICE_ACCOUNT.resource, "", namespace, account)?,
        None => may_be("", "users", "", "", &other.name)?,
    };
    let mut user = match account {
        Some((namespace, account)) => User::service_account(namespace, account, ""),
        None => User::new(other.name.as_str(), &[]),
    };
    for group in &other.groups {
        may_be("", "groups", "", "", group)?;
    }
    if !other.groups.is_empty() {
        user.groups = other.groups;
    }
    if let Some(uid) = other.uid {
        may_be("authentication.k8s.io", "uids", "", "", &uid)?;
        user.uid = uid;
    }
    for (key, values) in &other.extra {
        for value in values {
            may_be("authentication.k8s.io", "userextras", key, "", value)?;
        }
    }
    user.extra = other.extra;
    let everybody = if user.name == "system:anonymous" { "system:unauthenticated" } else { "system:authenticated" };
    if !user.groups.iter().any(|group| group == everybody) {
        user.groups.push(everybody.into());
    }
    Ok(user)
}
