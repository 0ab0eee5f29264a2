//! A request to the server with its user and its moment. Every transport makes requests of this form.

use holdfast_audit::Deadline;
use holdfast_core::Refusal;
use holdfast_core::admission::Told;
use holdfast_core::authz::{ActingAs, User};
use holdfast_core::request::{Body, Options, Request, Verb};
use holdfast_core::select::FieldSelector;
use jiff::Timestamp;
use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// One request that a user or the server itself makes to the service.
#[derive(Debug)]
pub struct Call {
    /// The user that the transport has authenticated.
    pub user: Arc<User>,
    /// The user to impersonate, if any. The service decides whether that is allowed.
    pub acting_as: Option<ActingAs>,
    /// The id that the caller gave the request; if there is none, the service makes an id.
    pub id: Option<RequestId>,
    /// The moment of a view of the whole cluster; `None` for the present.
    pub at: Option<String>,
    pub asked: CallSubject,
    /// The refusal for a malformed part of the request. It is reported only after the user is authorized and the kind
    /// is found.
    pub flaw: Option<Refusal>,
    /// The origin of the request, if the service writes an audit trail.
    pub source: Option<Box<Source>>,
    /// The warnings for the client and the audit annotations that authentication has produced.
    pub told: Told,
    /// Whether the server itself makes the request. The number of such requests in progress is not limited here,
    /// because the plans of the server's work limit how many requests they contain.
    pub own: bool,
}

/// The origin of a request, which audit events record.
#[derive(Debug, Clone)]
pub struct Source {
    pub received: Timestamp,
    /// The path and the query of the request, as the client sent them.
    pub uri: String,
    /// The client's address, and the addresses of the proxies between client and server.
    pub addresses: Vec<IpAddr>,
    pub agent: String,
    /// The time that the authentication of the request took.
    pub authentication: Duration,
    /// The time at which the request is ended, if its duration is limited.
    pub deadline: Option<Deadline>,
}

/// The objects or the path that a call is about.
#[derive(Debug)]
pub enum CallSubject {
    /// Objects of the kind that a path names. The service looks the kind up.
    Named(Box<ResourceRequest>),
    /// Objects of a kind. The caller has already found the kind and made the request.
    Found(Box<Request>),
    /// Objects that another API server serves. This server authorizes the request, and the transport forwards it.
    Elsewhere { verb: &'static str, path: Arc<ResourcePath> },
    /// A path that names no resource, such as `/version`. If the call is granted, the transport answers it.
    Path { verb: &'static str, path: String },
    /// The whole log, or forks of the log. If the call is granted, the transport answers it.
    Everything { verb: &'static str, path: String },
}

/// A request for the objects that the path of a resource names.
#[derive(Debug)]
pub struct ResourceRequest {
    pub verb: Verb,
    pub path: Arc<ResourcePath>,
    pub options: Options,
    pub body: Body,
    /// The moment at which the objects are read, if the query parameter `at` names one.
    pub at: Option<String>,
}

impl ResourceRequest {
    /// The name of the only object that the request can be about: the name in the path, or the name that a field
    /// selector requires.
    pub fn name(&self) -> Cow<'_, str> {
        let many = matches!(self.verb, Verb::List | Verb::Watch | Verb::DeleteCollection);
        match &self.options.field_selector {
            Some(selector) if many && self.path.name.is_empty() => {
                let picked = FieldSelector::parse(selector).ok();
                picked.and_then(|picked| picked.exact("metadata.name").map(str::to_owned)).unwrap_or_default().into()
            }
            _ => Cow::Borrowed(&self.path.name),
        }
    }
}

/// The parts of a path, before the kind is looked up. An absent part is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourcePath {
    pub group: String,
    pub version: String,
    /// The namespace that contains the resource, or the namespace that the path names as an object.
    pub namespace: String,
    /// Whether the resource is inside the namespace; false for the namespace itself and for cluster-scoped resources.
    pub within: bool,
    pub resource: String,
    pub name: String,
    pub subresource: String,
    /// The part of the path after the subresource.
    pub rest: String,
}

/// The id of a request in events, log lines and answers. It is short and needs no escaping anywhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(String);

impl RequestId {
    /// The maximum length of an id in bytes, as in Kubernetes.
    const BYTES_MAX: usize = 64;

    /// An id that the client sent; `None` if it is empty, too long, or contains characters that ids may not contain.
    pub fn given(text: &str) -> Option<RequestId> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte);
        let fits = !text.is_empty() && text.len() <= Self::BYTES_MAX && text.bytes().all(plain);
        fits.then(|| RequestId(text.to_owned()))
    }

    /// The id of a request for which the client sent no id, made from a new UID.
    pub(crate) fn made(uid: String) -> RequestId {
        RequestId(uid)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Call {
    pub fn new(user: Arc<User>, asked: CallSubject) -> Call {
        Call {
            user,
            acting_as: None,
            id: None,
            at: None,
            asked,
            flaw: None,
            source: None,
            told: Told::default(),
            own: false,
        }
    }

    /// A request of the server itself. The call has the request's id.
    pub fn own(request: Request) -> Call {
        let id = RequestId::given(&request.id);
        Call { id, own: true, ..Call::new(request.user.clone(), CallSubject::Found(Box::new(request))) }
    }
}

#[cfg(test)]
mod tests {
    use super::RequestId;

    #[test]
    fn long_and_strange_request_ids_are_not_kept() {
        for kept in ["a", "0f3b-7", "replay/1:2", &"x".repeat(64)] {
            assert!(RequestId::given(kept).is_some(), "{kept}");
        }
        for refused in ["", "a b", "a\"b", "a\nb", "ä", &"x".repeat(65), &"x".repeat(60 << 10)] {
            assert_eq!(RequestId::given(refused), None);
        }
    }
}
