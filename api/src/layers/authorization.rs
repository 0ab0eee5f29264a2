//! The authorization layer decides whether the user may make the request, by the chain of authorizers and the current
//! roles.

use super::stages::{Authorized, CallParts, Dispatched};
use super::{Layer, Next, Outcome, RequestContext, audit, refused};
use crate::{CallSubject, ResourcePath};
use futures_util::future::BoxFuture;
use holdfast_audit::Spent;
use holdfast_core::Refusal;
use holdfast_core::authz::{Attributes, Authorizer, Judged, Opinions, ResourceTarget, Selected, User, forbidden};
use holdfast_core::refusal::Internal;
use holdfast_core::request::{Options, Request, Verb};
use holdfast_core::state::State;
use std::time::Instant;

pub struct Authorization;

/// The value in an authorization question that stands for all groups, all kinds or all objects.
const ALL: &str = "*";
/// The verbs that a user needs on all objects to read the log.
const READS: [&str; 3] = ["get", "list", "watch"];

impl Layer for Authorization {
    type Takes = Dispatched;
    type Gives = Authorized;

    fn call<'a>(
        &'a self,
        context: &'a mut RequestContext,
        Dispatched { parts }: Dispatched,
        next: Next<'a, Authorized>,
    ) -> BoxFuture<'a, Outcome> {
        let (service, began) = (next.service(), Instant::now());
        let state = service.engine().snapshot();
        let judge = |authorizer: &Authorizer<'_>| Judgement::of(authorizer, &state, &parts);
        match service.judged_so_far(&state, &Opinions::new(), judge) {
            Ok(judgement) => record_and_pass(judgement, context, parts, next, began),
            // A call waits here only if a webhook must be asked, which is rare.
            Err(mut open) => Box::pin(async move {
                let (service, state) = (next.service(), next.service().engine().snapshot());
                let mut opinions = Opinions::new();
                loop {
                    service.engine().consult(&mut opinions, open).await;
                    let judge = |authorizer: &Authorizer<'_>| Judgement::of(authorizer, &state, &parts);
                    match service.judged_so_far(&state, &opinions, judge) {
                        Ok(judgement) => break record_and_pass(judgement, context, parts, next, began).await,
                        Err(more) => open = more,
                    }
                }
            }),
        }
    }
}

/// The result of the authorization of one call.
struct Judgement {
    /// The chain's verdict on the attributes of the call; the last verdict if the call needs several.
    judged: Option<Judged>,
    granted: Result<(), Refusal>,
}

impl Judgement {
    fn of(authorizer: &Authorizer<'_>, state: &State, parts: &CallParts) -> Judgement {
        let mut judged = None;
        let granted = judge(authorizer, state, &parts.user, &parts.subject, &mut judged);
        Judgement { judged, granted }
    }
}

/// Counts a judgement, records it for audit, and passes a granted call to the next layer.
fn record_and_pass<'a>(
    judgement: Judgement,
    context: &'a mut RequestContext,
    parts: Box<CallParts>,
    next: Next<'a, Authorized>,
    began: Instant,
) -> BoxFuture<'a, Outcome> {
    let Judgement { judged, granted } = judgement;
    if let Some(judged) = &judged {
        next.service().counts().authorized(judged, began.elapsed());
    }
    if let Some(trail) = &mut context.trail {
        trail.spent(Spent::Authorization, began.elapsed());
        let reason = judged.as_ref().map_or("", Judged::reason);
        match &granted {
            Ok(()) => trail.annotate("authorization.k8s.io/decision", "allow"),
            Err(Refusal::Internal(Internal::NotAuthorizable { .. })) => {}
            Err(_) => trail.annotate("authorization.k8s.io/decision", "forbid"),
        }
        let reason = match &granted {
            Err(Refusal::Internal(Internal::NotAuthorizable { .. })) => "internal error",
            _ => reason,
        };
        trail.annotate("authorization.k8s.io/reason", reason);
    }
    match granted {
        Ok(()) if context.trail.is_some() => Box::pin(async move {
            if let Some(trail) = &mut context.trail {
                audit::tell_request_of(next.service(), trail, &parts).await;
            }
            next.call(context, Authorized { parts }).await
        }),
        Ok(()) => next.call(context, Authorized { parts }),
        Err(refusal) => refused(refusal),
    }
}

/// Returns `Ok` if the call is granted, and otherwise its refusal.
fn judge(
    authorizer: &Authorizer<'_>,
    state: &State,
    user: &User,
    asked: &CallSubject,
    judged: &mut Option<Judged>,
) -> Result<(), Refusal> {
    let reads_selectors = authorizer.chain.reads_selectors();
    let mut may =
        |attributes: &Attributes<'_>| may(user, attributes, judged.insert(authorizer.authorize(user, attributes)));
    match asked {
        CallSubject::Named(named) => {
            let name = named.name();
            let many = matches!(named.verb, Verb::List | Verb::Watch | Verb::DeleteCollection);
            let selected = (reads_selectors && many).then(|| selected(&named.options));
            // A permission for one object also covers lists with a field selector for that object's name.
            may(&named_attributes(named.verb.as_str(), &named.path, &name, selected.as_ref()))
        }
        CallSubject::Elsewhere { verb, path } => may(&attributes(verb, path)),
        CallSubject::Found(request) => {
            let selected = reads_selectors.then(|| selected(&request.options));
            may(&of_request(state, request, selected.as_ref())?)
        }
        CallSubject::Path { verb, path } => may(&Attributes::path(verb, path)),
        CallSubject::Everything { verb, path } => {
            may(&Attributes::path(verb, path))?;
            let everything = ResourceTarget { group: ALL, version: ALL, resource: ALL, ..ResourceTarget::default() };
            READS.iter().try_for_each(|verb| may(&Attributes::resource(verb, everything)))
        }
    }
}

/// Whether the user of a request may make the request.
pub(super) fn may_request(authorizer: &Authorizer<'_>, state: &State, request: &Request) -> Result<(), Refusal> {
    let attributes = of_request(state, request, None)?;
    may(&request.user, &attributes, &authorizer.authorize(&request.user, &attributes))
}

/// The selectors of the request, for authorizers that judge by selectors.
fn selected(options: &Options) -> Selected {
    let text = |selector: &Option<String>| selector.as_deref().unwrap_or("").to_owned();
    Selected::parse(&text(&options.field_selector), &text(&options.label_selector))
}

/// The attributes of a call, without its selectors; `None` if its kind is no longer served.
pub(crate) fn asked_for<'a>(state: &'a State, asked: &'a CallSubject) -> Option<Attributes<'a>> {
    match asked {
        CallSubject::Named(named) => Some(attributes(named.verb.as_str(), &named.path)),
        CallSubject::Found(request) => of_request(state, request, None).ok(),
        CallSubject::Elsewhere { verb, path } => Some(attributes(verb, path)),
        CallSubject::Path { verb, path } | CallSubject::Everything { verb, path } => Some(Attributes::path(verb, path)),
    }
}

/// The attributes by which authorization judges a request with this verb on a path.
fn attributes<'a>(verb: &'a str, path: &'a ResourcePath) -> Attributes<'a> {
    named_attributes(verb, path, &path.name, None)
}

fn named_attributes<'a>(
    verb: &'a str,
    path: &'a ResourcePath,
    name: &'a str,
    selected: Option<&'a Selected>,
) -> Attributes<'a> {
    let ResourcePath { group, version, namespace, resource, subresource, .. } = path;
    let selected = selected.filter(|selected| !selected.is_everything());
    Attributes::resource(verb, ResourceTarget { group, version, resource, subresource, namespace, name, selected })
}

/// The attributes by which authorization judges a request whose kind is already found.
fn of_request<'a>(
    state: &'a State,
    request: &'a Request,
    selected: Option<&'a Selected>,
) -> Result<Attributes<'a>, Refusal> {
    let target = &request.target;
    // The kind no longer exists, so there is nothing to authorize.
    if !state.registry.serves(target.kind) {
        return Err(Refusal::NoSuchPath);
    }
    let kind = state.kind(target.kind);
    let version = kind.versions.get(target.version).ok_or(Refusal::NoSuchPath)?;
    let name = request.name();
    // A request for a namespace is judged as a request within that namespace.
    let own = if target.kind == state.registry.namespaces() { name } else { "" };
    let target = ResourceTarget {
        group: &version.group,
        version: &version.version,
        resource: &kind.resource,
        subresource: target.subresource.as_deref().unwrap_or(""),
        namespace: request.namespace().unwrap_or(own),
        name,
        selected: selected.filter(|selected| !selected.is_everything()),
    };
    Ok(Attributes::resource(request.verb.as_str(), target))
}

/// The refusal if the judgement does not allow the request. If an authorizer failed, the refusal reports the error,
/// because then the judgement does not show the user's permissions.
fn may(user: &User, attributes: &Attributes<'_>, judged: &Judged) -> Result<(), Refusal> {
    if judged.is_allowed() {
        return Ok(());
    }
    match judged.error() {
        Some(why) => Err(Refusal::Internal(Internal::NotAuthorizable { why })),
        None => Err(forbidden(user, attributes, judged.reason())),
    }
}
