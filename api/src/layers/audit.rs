//! The audit layer describes every request for metrics, and records it as the audit policy requires. The transport that
//! writes the answer records the end of the request by the [`Trail`] in the answer.

use super::stages::{Audited, CallParts, Received};
use super::{Layer, Next, Outcome, RequestContext};
use crate::metrics::{Record, RequestLabels, RowKey};
use crate::reply::{Reply, Shown};
use crate::{CallSubject, ResourcePath, ResourceRequest, Service, Source};
use futures_util::future::BoxFuture;
use holdfast_audit::{self as audit, Auditor, Begun, NotStored, ObjectReference, Ruling, Subject, Trail};
use holdfast_core::Refusal;
use holdfast_core::authz::User;
use holdfast_core::kinds::KindId;
use holdfast_core::object::meta;
use holdfast_core::pipeline::{parsed, requested};
use holdfast_core::refusal::Internal;
use holdfast_core::request::{Body, Format, Request, Verb};
use holdfast_core::state::State;
use jiff::Timestamp;
use serde::Deserialize;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

pub struct Audit;

impl Layer for Audit {
    type Takes = Received;
    type Gives = Audited;

    fn call<'a>(
        &'a self,
        context: &'a mut RequestContext,
        call: Received,
        next: Next<'a, Audited>,
    ) -> BoxFuture<'a, Outcome> {
        let service = next.service();
        let Received { parts, acting_as, own, source } = call;
        describe(&mut context.record, &service.engine().snapshot(), &parts.subject);
        let Some(auditor) = service.auditor() else { return next.call(context, Audited { parts, acting_as, own }) };
        Box::pin(async move {
            begin(service, auditor, context, &parts, source).await?;
            next.call(context, Audited { parts, acting_as, own }).await
        })
    }
}

/// Records that the call has arrived, if the policy requires it.
async fn begin(
    service: &Service,
    auditor: &Arc<Auditor>,
    context: &mut RequestContext,
    CallParts { user, subject, .. }: &CallParts,
    source: Option<Box<Source>>,
) -> Result<(), Refusal> {
    let state = service.engine().snapshot();
    let ruling = judge(auditor, &state, user, subject);
    let begun = || begun(&state, context.id.as_str(), user, subject, source);
    let trail = auditor.begin(ruling, begun).await;
    context.trail = trail.map_err(|NotStored| Refusal::Internal(Internal::AuditNotStored))?.map(Box::new);
    Ok(())
}

/// Records the result of a call for metrics and in its trail, also when a layer has panicked.
pub(crate) fn ended(context: &mut RequestContext, outcome: &Outcome) {
    context.record.outcome(outcome.as_ref());
    let Some(trail) = &mut context.trail else { return };
    trail.annotate_all(&context.annotations);
    if let Ok(reply) = outcome {
        trail.names(|| name_of(reply));
    }
}

/// The ruling of the audit policy for a call.
pub(crate) fn judge(auditor: &Auditor, state: &State, user: &User, asked: &CallSubject) -> Ruling {
    let verb = verb(asked);
    let found;
    let (path, name) = match asked {
        CallSubject::Path { path, .. } | CallSubject::Everything { path, .. } => {
            return auditor.judge(Subject { user, verb, asked: audit::RequestTarget::Path(path) });
        }
        CallSubject::Named(named) => (&*named.path, named.name()),
        CallSubject::Found(request) => {
            found = path_of(state, request);
            (&found, request.name().into())
        }
        CallSubject::Elsewhere { path, .. } => (&**path, path.name.as_str().into()),
    };
    let ResourcePath { group, namespace, resource, subresource, .. } = path;
    let asked = audit::RequestTarget::Resource { group, resource, subresource, namespace, name: &name };
    auditor.judge(Subject { user, verb, asked })
}

fn verb(asked: &CallSubject) -> &'static str {
    match asked {
        CallSubject::Named(named) => named.verb.as_str(),
        CallSubject::Found(request) => request.verb.as_str(),
        CallSubject::Elsewhere { verb, .. } | CallSubject::Path { verb, .. } | CallSubject::Everything { verb, .. } => {
            verb
        }
    }
}

/// The properties of a call that its audit trail records at the call's arrival.
pub(crate) fn begun(
    state: &State,
    id: &str,
    user: &Arc<User>,
    asked: &CallSubject,
    source: Option<Box<Source>>,
) -> Begun {
    // A remote request without a deadline is long-running.
    let lasts = source.as_ref().is_some_and(|source| source.deadline.is_none());
    let source = source.map(|source| *source).unwrap_or_else(|| Source {
        received: Timestamp::now(),
        uri: String::new(),
        addresses: vec![IpAddr::from(Ipv6Addr::LOCALHOST)],
        agent: "holdfast".into(),
        authentication: Duration::ZERO,
        deadline: None,
    });
    let Source { received, uri, addresses, agent, authentication, deadline } = source;
    let (id, verb, user) = (id.to_owned(), verb(asked), user.clone());
    let object = reference(state, asked);
    Begun { id, verb, user, received, uri, source_ips: addresses, agent, object, authentication, deadline, lasts }
}

/// The path of a request whose kind is already found.
fn path_of(state: &State, request: &Request) -> ResourcePath {
    let target = &request.target;
    let mut path = ResourcePath {
        namespace: request.namespace().unwrap_or_default().to_owned(),
        name: request.name().to_owned(),
        subresource: target.subresource.clone().unwrap_or_default(),
        ..ResourcePath::default()
    };
    if state.registry.serves(target.kind) {
        let kind = state.kind(target.kind);
        path.resource.clone_from(&kind.resource);
        if let Some(version) = kind.versions.get(target.version) {
            (path.group, path.version) = (version.group.clone(), version.version.clone());
        }
    }
    path
}

fn reference(state: &State, asked: &CallSubject) -> Option<ObjectReference> {
    let (path, name) = match asked {
        CallSubject::Named(named) => (ResourcePath::clone(&named.path), named.name().into_owned()),
        CallSubject::Elsewhere { path, .. } => (ResourcePath::clone(path), path.name.clone()),
        CallSubject::Found(request) => (path_of(state, request), request.name().to_owned()),
        CallSubject::Path { .. } | CallSubject::Everything { .. } => return None,
    };
    Some(ObjectReference {
        resource: path.resource,
        namespace: path.namespace,
        name,
        api_group: path.group,
        api_version: path.version,
        subresource: path.subresource,
        ..ObjectReference::default()
    })
}

/// Records the request's object. If the object is large, this work does not run on a worker thread of the async
/// runtime.
pub(crate) async fn tell_request_of(service: &Service, trail: &mut Trail, parts: &CallParts) {
    let CallSubject::Named(named) = &parts.subject else { return };
    let state = service.engine().snapshot();
    let tell = || tell_request(trail, &state, &parts.subject);
    service.engine().by_size(&parts.user.name, named.body.content.len(), tell).await;
}

/// Records the decoded body of the request: an object with the defaults of its version, or a patch unchanged.
pub(crate) fn tell_request(trail: &mut Trail, state: &State, asked: &CallSubject) {
    let CallSubject::Named(named) = asked else { return };
    let ResourceRequest { verb, path, body, .. } = &**named;
    if body.content.is_empty() {
        return;
    }
    let sent = body.clone();
    match verb {
        Verb::Create => trail.names_at_last(move || metadata_in(&sent).name.unwrap_or_default()),
        Verb::Update => trail.refers_at_last(move || {
            let SentMetadata { uid, resource_version, .. } = metadata_in(&sent);
            (uid.unwrap_or_default(), resource_version.unwrap_or_default())
        }),
        _ => {}
    }
    if !trail.wants_request() {
        return;
    }
    let sent = match verb {
        Verb::Delete | Verb::DeleteCollection => parsed(body).map(|mut options| {
            // Kubernetes records delete options in their internal version.
            options["kind"] = "DeleteOptions".into();
            options["apiVersion"] = "meta.k8s.io/__internal".into();
            options
        }),
        Verb::Create | Verb::Update => {
            let found = state.registry.find(&path.group, &path.version, &path.resource);
            let whole = found.filter(|_| path.subresource.is_empty() || path.subresource == "status");
            match whole {
                Some((kind, version)) => requested(state.kind(kind), version, body),
                None => parsed(body),
            }
        }
        _ => parsed(body),
    };
    if let Some(sent) = sent {
        trail.request(sent);
    }
}

/// The metadata of the object in the body, as the client sent them.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SentMetadata {
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
}

fn metadata_in(body: &Body) -> SentMetadata {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct SentObject {
        metadata: SentMetadata,
    }
    if body.format == Format::Json {
        return serde_json::from_slice(&body.content.bytes())
            .map(|SentObject { metadata }| metadata)
            .unwrap_or_default();
    }
    let sent = parsed(body).unwrap_or_default();
    let text = |field: &str| sent["metadata"][field].as_str().map(str::to_owned);
    SentMetadata { name: text("name"), uid: text("uid"), resource_version: text("resourceVersion") }
}

/// The name of the object that a reply shows.
fn name_of(reply: &Reply) -> String {
    match reply {
        Reply::Object(Shown { entry, .. }) => entry.name(),
        Reply::Draft(draft) => meta::name(&draft.document).to_owned(),
        _ => String::new(),
    }
}

/// The request's verb and scope in the form that dashboards query, and whether the request is a dry run.
fn counted_as(asked: &CallSubject) -> (&'static str, &'static str, bool) {
    let scope = |verb: &str, namespace: &str, name: &str| match (verb, namespace, name) {
        ("create", ..) => "resource",
        (_, _, name) if !name.is_empty() => "resource",
        (_, "", _) => "cluster",
        _ => "namespace",
    };
    let (dry_run, applies, scope) = match asked {
        CallSubject::Named(named) => {
            let ResourcePath { namespace, name, .. } = &*named.path;
            let applies = named.body.format == Format::ApplyPatch;
            (named.options.dry_run, applies, scope(named.verb.as_str(), namespace, name))
        }
        CallSubject::Found(request) => {
            let (namespace, name) = (request.namespace().unwrap_or_default(), request.name());
            let applies = request.body.format == Format::ApplyPatch;
            (request.options.dry_run, applies, scope(request.verb.as_str(), namespace, name))
        }
        CallSubject::Elsewhere { verb, path } => (false, false, scope(verb, &path.namespace, &path.name)),
        CallSubject::Path { .. } | CallSubject::Everything { .. } => (false, false, ""),
    };
    let verb = match verb(asked) {
        "create" | "post" => "POST",
        "update" | "put" => "PUT",
        "patch" if applies => "APPLY",
        "patch" => "PATCH",
        "delete" => "DELETE",
        "deletecollection" => "DELETECOLLECTION",
        "get" => "GET",
        "list" => "LIST",
        "watch" => "WATCH",
        "head" => "HEAD",
        "options" => "OPTIONS",
        "connect" => "CONNECT",
        _ => "other",
    };
    (verb, scope, dry_run)
}

/// Sets the labels of the request for metrics. If this server does not serve the requested API, the labels do not name
/// the requested resource.
pub(crate) fn describe(record: &mut Record, state: &State, asked: &CallSubject) {
    let (verb, scope, dry_run) = counted_as(asked);
    let mut served = |kind_id: KindId, version: usize, subresource: &str| {
        let kind = state.kind(kind_id);
        let parts = kind.subresources(version);
        let part = if subresource.is_empty() { None } else { parts.iter().position(|part| part.name == subresource) };
        let key = RowKey { verb, kind: kind_id, version, subresource: part, scope, dry_run };
        record.about_kind(key, || RequestLabels {
            verb,
            group: kind.versions[version].group.clone(),
            version: kind.versions[version].version.clone(),
            resource: kind.resource.clone(),
            subresource: part.map(|_| subresource.to_owned()).unwrap_or_default(),
            scope,
            dry_run,
        });
    };
    let unknown = RequestLabels { verb, scope, dry_run, ..RequestLabels::default() };
    match asked {
        CallSubject::Named(named) => {
            let ResourcePath { group, version, resource, subresource, .. } = &*named.path;
            match state.registry.find(group, version, resource) {
                Some((id, version)) => served(id, version, subresource),
                None => record.about(&unknown),
            }
        }
        CallSubject::Found(request) => {
            let target = &request.target;
            match state.registry.serves(target.kind) {
                true => served(target.kind, target.version, target.subresource.as_deref().unwrap_or("")),
                false => record.about(&unknown),
            }
        }
        // The APIService has the group and version that another server serves. The resources of the other server are
        // unknown here, so the labels do not contain the rest of the path.
        CallSubject::Elsewhere { path, .. } => {
            let (group, version) = (path.group.clone(), path.version.clone());
            record.about(&RequestLabels { group, version, ..unknown });
        }
        CallSubject::Path { .. } | CallSubject::Everything { .. } => record.about(&unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ResourceRequest;
    use holdfast_audit::backend::Sink;
    use holdfast_audit::{Backend, Event, Mode, Policy, RequestEnd};
    use holdfast_core::kinds::registry;
    use holdfast_value::json;
    use std::sync::{Mutex, PoisonError};

    /// Stores the object reference of each audit event.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<ObjectReference>>>);

    impl Sink for Kept {
        fn name(&self) -> &'static str {
            "kept"
        }

        fn store<'a>(&'a self, events: &'a [Event]) -> BoxFuture<'a, Result<(), String>> {
            let objects = events.iter().filter_map(|event| event.object_ref.clone());
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(objects);
            Box::pin(async { Ok(()) })
        }
    }

    /// The object reference in the last event of a write with this body, under a policy with this level.
    fn told(level: &str, verb: Verb, body: Body) -> ObjectReference {
        let policy = format!("{{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{{level: {level}}}]}}");
        let kept = Kept::default();
        let backend = Backend::new(Box::new(kept.clone()), Mode::Blocking, None);
        let auditor = Auditor::new(Policy::read(&policy).expect("a policy").0, vec![backend]);
        let state = State::new(Arc::new(registry().clone()));
        let path = ResourcePath { version: "v1".into(), resource: "configmaps".into(), ..ResourcePath::default() };
        let named = ResourceRequest { verb, path: Arc::new(path), options: Default::default(), body, at: None };
        let (user, asked) = (Arc::new(User::new("jane", &[])), CallSubject::Named(Box::new(named)));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let ruling = judge(&auditor, &state, &user, &asked);
            let trail = auditor.begin(ruling, || begun(&state, "i", &user, &asked, None)).await.expect("it is told");
            let mut trail = trail.expect("a trail");
            tell_request(&mut trail, &state, &asked);
            trail.end(RequestEnd { code: 200, ..RequestEnd::default() }).await;
        });
        let kept = kept.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.last().expect("an event").clone()
    }

    /// The audit event of a write names the version of the object that the write changes, at every audit level.
    #[test]
    fn updates_name_the_version_that_they_change() {
        let document = json!({"metadata": {"name": "c", "uid": "u", "resourceVersion": "7"}, "data": {"a": "b"}});
        let body = |format| Body { content: document.to_string().into_bytes().into(), format };
        for level in ["Metadata", "Request"] {
            for format in [Format::Json, Format::Yaml] {
                let object = told(level, Verb::Update, body(format));
                assert_eq!((&*object.uid, &*object.resource_version), ("u", "7"), "{level}");
                let object = told(level, Verb::Create, body(format));
                assert_eq!((&*object.name, &*object.resource_version), ("c", ""), "{level}");
            }
        }
    }
}
