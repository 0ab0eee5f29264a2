//! Kinds that are never stored: reviews of access and of tokens, and ComponentStatus, which shows the parts of the
//! server.

use super::stages::Resolved;
use super::{Layer, Next, Outcome, RequestContext};
use crate::lookup::Found;
use crate::reply::{Listed, Shown};
use crate::{Reply, Reviewed, Service};
use futures_util::future::BoxFuture;
use holdfast_core::Refusal;
use holdfast_core::admission::Told;
use holdfast_core::authz::reviews::{invalid, review, token_review};
use holdfast_core::authz::{Authorizer, Opinions};
use holdfast_core::event::Offset;
use holdfast_core::kinds::{Kind, Question, apply_defaults};
use holdfast_core::list::{Page, Selection};
use holdfast_core::object::meta::{Document, metadata_mut};
use holdfast_core::object::{Draft, encode};
use holdfast_core::refusal::{Cause, MethodNotAllowed, Subject};
use holdfast_core::request::{Request, Verb};
use holdfast_core::state::{Entry, Index, State};
use holdfast_engine::{Health, Reader, Wanted};
use holdfast_value::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The maximum time that the writer may take to report its health.
const PATIENCE: Duration = Duration::from_secs(10);
/// The group that all users of nodes are in.
const NODES: &str = "system:nodes";

pub struct Unstored;

impl Layer for Unstored {
    type Takes = Resolved;
    type Gives = Resolved;

    fn call<'a>(
        &'a self,
        context: &'a mut RequestContext,
        found: Resolved,
        next: Next<'a, Resolved>,
    ) -> BoxFuture<'a, Outcome> {
        // A Binding is the old form of `pods/NAME/binding`; a later layer writes it.
        if found.kind.question.is_none_or(|question| question == Question::Binding) {
            return next.call(context, found);
        }
        Box::pin(async move {
            let mut told = Told::default();
            let outcome = answer(next.service(), &found, &mut told).await;
            context.tell(told);
            outcome
        })
    }
}

async fn answer(service: &Arc<Service>, found: &Found, told: &mut Told) -> Outcome {
    let request = &found.request;
    let posted = match request.verb {
        Verb::Create => {
            let state = found.admitting(service.engine()).await?;
            service.engine().admit(&state, request, told).await?
        }
        _ => Document::new(),
    };
    match (found.kind.question, request.verb) {
        (Some(Question::ComponentStatus), Verb::Get | Verb::List) => component_status(service, found).await,
        (Some(Question::TokenReview), Verb::Create) => review_token(service, posted, request, &found.kind, told).await,
        (Some(_), Verb::Create) => review_access(service, posted, found).await,
        _ => Err(Refusal::MethodNotAllowed(MethodNotAllowed::OnResource)),
    }
}

/// The state on which the review is judged. It may be a past state.
async fn judging(service: &Service, found: &Found, review: &Value) -> Result<Arc<State>, Refusal> {
    let (user, spec) = (&found.request.user, &review["spec"]);
    let reader = Reader::of(user);
    let asked_groups = spec["groups"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut groups = asked_groups.chain(user.groups.iter().map(String::as_str));
    // The permissions of a node depend on its pods.
    if groups.any(|group| group == NODES) {
        return found.scene.whole(service.engine(), &reader).await;
    }
    let namespace = spec["resourceAttributes"]["namespace"].as_str().or(spec["namespace"].as_str());
    let namespace = namespace.unwrap_or_default().to_owned();
    found.scene.part(service.engine(), Wanted::Roles { namespace }, &reader).await
}

/// The answer to a review. The answer has the kind that the path names, even if the client sent another kind.
fn created(kind: &Kind, request: &Request, mut answer: Value) -> Outcome {
    apply_defaults(kind.message(request.target.version)?, &mut answer)?;
    let mut answer = document(answer);
    if let Some(version) = kind.versions.get(request.target.version) {
        answer.insert("apiVersion", version.api_version().into());
        answer.insert("kind", kind.kind.clone().into());
    }
    answer.entry("metadata").or_insert_with(|| json!({}));
    Ok(Reply::Document { document: answer, created: true })
}

fn document(value: Value) -> Document {
    match value {
        Value::Object(document) => document,
        _ => Document::new(),
    }
}

async fn review_token(service: &Service, posted: Document, request: &Request, kind: &Kind, told: &mut Told) -> Outcome {
    let body = Value::Object(posted);
    let token = body["spec"]["token"].as_str().unwrap_or("");
    let asked = body["spec"]["audiences"].as_array().into_iter().flatten();
    let asked: Vec<String> = asked.filter_map(Value::as_str).map(str::to_owned).collect();
    // Tokens are verified with the current state, even in a view of the past.
    let reviewed = service.tokens().review(&service.engine().snapshot(), token, &asked, told).await;
    let reviewed = reviewed.as_ref().map(|Reviewed { user, audiences }| (&**user, audiences.as_slice()));
    created(kind, request, token_review(&body, reviewed.map_err(String::as_str))?)
}

async fn review_access(service: &Service, posted: Document, found: &Found) -> Outcome {
    let Found { request, kind, .. } = found;
    let mut body = posted;
    if kind.question == Some(Question::SelfSubjectReview) {
        metadata_mut(&mut body).insert("creationTimestamp", service.engine().stamp().rfc3339().into());
    }
    if let Some(namespace) = request.namespace() {
        let found = body.get("spec").and_then(|spec| spec["resourceAttributes"]["namespace"].as_str());
        if let Some(found) = found.filter(|found| *found != namespace) {
            let why = "must match metadata.namespace";
            let cause = Cause::invalid("spec.resourceAttributes.namespace", &found.into(), why);
            return Err(invalid(kind, cause.into()));
        }
        metadata_mut(&mut body).insert("namespace", namespace.into());
    }
    let (body, engine) = (Value::Object(body), service.engine());
    let state = judging(service, found, &body).await?;
    let judge = |authorizer: &Authorizer<'_>| created(kind, request, review(kind, &body, &request.user, authorizer)?);
    let mut opinions = Opinions::new();
    loop {
        // A review of a user in 100,000 groups takes long, so it must not block a worker thread.
        let judged = || service.judged_so_far(&state, &opinions, judge);
        match engine.by_size(&request.user.name, request.body.content.len(), judged).await {
            Ok(outcome) => return outcome,
            Err(open) => engine.consult(&mut opinions, open).await,
        }
    }
}

/// The health of the parts of the control plane: the log, and the components that run in this process.
async fn component_status(service: &Service, found: &Found) -> Outcome {
    let of_log = match service.engine().health(PATIENCE).await {
        Health::Well => json!({"type": "Healthy", "status": "True", "message": "ok"}),
        Health::ReadOnly(why) | Health::Dead(why) => {
            json!({"type": "Healthy", "status": "False", "message": why})
        }
    };
    let well = json!({"type": "Healthy", "status": "True", "message": "ok"});
    let mut parts: Vec<(&str, Value)> = service.components().iter().map(|name| (*name, well.clone())).collect();
    parts.push(("etcd-0", of_log));
    parts.sort_by_key(|(name, _)| *name);
    let state = service.engine().snapshot();
    let request = &*found.request.retarget(&state.registry, &found.kind)?;
    let (kind, version) = (&found.kind, request.target.version);
    let parts = parts.into_iter().map(|(name, health)| (name, part(kind, state.offset, name, health)));
    let name = request.name();
    if name.is_empty() {
        let selection = Selection::new(&state, request)?;
        let picked = parts.filter(|(name, part)| selection.matches(kind, name, part));
        let entries = picked.map(|(_, part)| part).collect();
        let page = Page { offset: state.offset, entries, next: None, remaining: None };
        let (continue_token, namespace, charge) = Default::default();
        return Ok(Reply::List(Listed { kind: kind.clone(), version, page, continue_token, namespace, charge }));
    }
    let Some((_, entry)) = parts.into_iter().find(|(part, _)| *part == name) else {
        return Err(Refusal::NotFound(Subject::new(&kind.hub().group, &kind.resource, name)));
    };
    Ok(Reply::Object(Shown { kind: kind.clone(), version, entry, created: false }))
}

/// Makes a ComponentStatus. It has no version of its own, so it gets the version `offset`.
fn part(kind: &Kind, offset: Offset, name: &str, health: Value) -> Arc<Entry> {
    let api_version = kind.hub().api_version();
    let object =
        json!({"apiVersion": api_version, "kind": kind.kind, "metadata": {"name": name}, "conditions": [health]});
    let index = Index::new(kind, &object);
    let fields = document(object);
    let head = Draft::new(&api_version, &kind.kind, &fields).head();
    Arc::new(Entry::new(encode::document(&fields).into(), head, offset, 0, index))
}
