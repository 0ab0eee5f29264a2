//! How simulated clients call the service. Requests are converted to the calls that a transport would make, and the
//! replies are converted to the results that a client sees.

use crate::shape::Sort;
use holdfast_core::Refusal;
use holdfast_core::authz::{PRIVILEGED_GROUP, User};
use holdfast_core::object::meta::Document;
use holdfast_core::refusal::Subject;
use holdfast_core::request::{Body, Format, Options, Request, Target, Verb};
use holdfast_core::state::{Entry, State};
use holdfast_engine::Reply as Written;
use holdfast_service::{Call, CallSubject, Reply, RequestId, ResourcePath, ResourceRequest, Service};
use holdfast_value::Value;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// The reply to a command that the service has carried out.
pub enum DoorReply {
    Object(Arc<Entry>),
    /// A document that is not stored in this form: the result of a dry run, or a Scale.
    Document(Document),
    /// The objects that a mass deletion has selected.
    Collection(Vec<Arc<Entry>>),
    Success,
    Deleted {
        subject: Subject,
        uid: String,
    },
}

/// The call that a client makes for a request. The client takes the path of the request's target from this state.
pub fn call(seen: &State, request: Request) -> Call {
    let path = path(seen, &request.target);
    let Request { user, verb, options, body, id, .. } = request;
    let id = RequestId::given(&id);
    let named = ResourceRequest { verb, path: Arc::new(path), options, body, at: None };
    Call { id, ..Call::new(user, CallSubject::Named(Box::new(named))) }
}

/// A call that reads one object or a selection of objects.
pub fn read(
    user: &Arc<User>,
    sort: Sort,
    verb: Verb,
    (namespace, name): (Option<&str>, Option<&str>),
    options: Options,
) -> Call {
    let (group, resource) = sort.path();
    let itself = if sort == Sort::Namespace { name } else { None };
    let path = ResourcePath {
        group: group.to_owned(),
        version: "v1".to_owned(),
        within: namespace.is_some(),
        namespace: namespace.or(itself).unwrap_or_default().to_owned(),
        resource: resource.to_owned(),
        name: name.unwrap_or_default().to_owned(),
        ..ResourcePath::default()
    };
    let named = ResourceRequest { verb, path: path.into(), options, body: Body::default(), at: None };
    Call { id: RequestId::given("read"), ..Call::new(user.clone(), CallSubject::Named(Box::new(named))) }
}

/// A read with the parameter `at`, which names a moment of the past.
pub fn at(mut call: Call, moment: String) -> Call {
    if let CallSubject::Named(named) = &mut call.asked {
        named.at = Some(moment);
    }
    call
}

/// A request to read the whole log. Its reply shows whether the user may see everything that was ever stored.
pub fn everything(user: &Arc<User>) -> Call {
    let asked = CallSubject::Everything { verb: "get", path: "/holdfast/log".to_owned() };
    Call { id: RequestId::given("read"), ..Call::new(user.clone(), asked) }
}

/// The call for a request whose path names `namespace`, although the object is not in this namespace.
pub fn call_through(seen: &State, request: Request, namespace: &str) -> Call {
    let mut call = call(seen, request);
    if let CallSubject::Named(named) = &mut call.asked {
        let path = Arc::make_mut(&mut named.path);
        (path.namespace, path.within) = (namespace.to_owned(), true);
    }
    call
}

fn path(seen: &State, target: &Target) -> ResourcePath {
    let kind = seen.kind(target.kind);
    let version = &kind.versions[target.version];
    let name = target.name.clone().unwrap_or_default();
    let own = if target.kind == seen.registry.namespaces() { name.clone() } else { String::new() };
    ResourcePath {
        group: version.group.clone(),
        version: version.version.clone(),
        within: target.namespace.is_some(),
        namespace: target.namespace.clone().unwrap_or(own),
        resource: kind.resource.clone(),
        name,
        subresource: target.subresource.clone().unwrap_or_default(),
        rest: String::new(),
    }
}

/// The call that creates an object which exists in every simulation, as the server makes it at its start.
pub fn creation(seen: &State, document: &Value) -> Call {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let api_version = text(&document["apiVersion"]);
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let found = seen.registry.find_kind(group, version, &text(&document["kind"]));
    let (kind, version) = found.unwrap_or_else(|| panic!("no kind for {document}"));
    let request = Request {
        user: Arc::new(User::new("system:apiserver", &[PRIVILEGED_GROUP])),
        verb: Verb::Create,
        target: Target { kind, version, namespace: None, name: None, subresource: None },
        options: Options::default(),
        body: Body { content: document.to_string().into_bytes().into(), format: Format::Json },
        id: "bootstrap".into(),
    };
    call(seen, request)
}

/// The reply of the service to a call that has nothing to wait for.
pub fn ask(service: &Arc<Service>, call: Call) -> Result<Reply, Refusal> {
    at_once(service.call(call)).reply
}

impl DoorReply {
    /// The service's reply to a mutation. A reply that no mutation may get is an error.
    pub fn by_door(reply: Reply) -> Result<DoorReply, String> {
        match reply {
            Reply::Object(shown) => Ok(DoorReply::Object(shown.entry)),
            Reply::Draft(draft) => Ok(DoorReply::Document(draft.document)),
            Reply::Document { document, .. } => Ok(DoorReply::Document(document)),
            Reply::List(listed) => Ok(DoorReply::Collection(listed.page.entries)),
            Reply::Success { .. } => Ok(DoorReply::Success),
            Reply::Deleted { subject, uid } => Ok(DoorReply::Deleted { subject, uid }),
            other => Err(format!("a mutation is answered with {other:?}")),
        }
    }

    /// The engine's reply to a decision that it has written.
    pub fn by_engine(reply: Written) -> DoorReply {
        match reply {
            Written::Object { entry, .. } => DoorReply::Object(entry),
            Written::Rehearsed { document, .. } | Written::Document { document, .. } => DoorReply::Document(document),
            Written::Success { .. } => DoorReply::Success,
            Written::Deleted { subject, uid, .. } => DoorReply::Deleted { subject, uid },
        }
    }
}

impl std::fmt::Display for DoorReply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DoorReply::Object(entry) => write!(f, "version {}", entry.offset),
            DoorReply::Document(_) => f.write_str("a document"),
            DoorReply::Collection(entries) => write!(f, "{} objects", entries.len()),
            DoorReply::Success => f.write_str("it is done"),
            DoorReply::Deleted { subject, .. } => write!(f, "{subject} is gone"),
        }
    }
}

/// The result of a future that has nothing to wait for. Panics if the future is not ready.
pub fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => panic!("a read of what is there does not wait"),
    }
}
