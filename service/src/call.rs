//! What is asked of the server, by whom, and about which moment: the same for every transport.

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

/// One request at the door.
#[derive(Debug)]
pub struct Call {
    /// Who asks, as the transport has proved it.
    pub user: Arc<User>,
    /// In whose name, where it is another's. Whether the user may is judged behind the door.
    pub acting_as: Option<ActingAs>,
    /// How the caller names the request; without a name it gets one.
    pub id: Option<RequestId>,
    /// The moment whose view of the whole cluster is asked, where it is not the present.
    pub at: Option<String>,
    pub asked: Asked,
    /// What is wrong with the words of the call. It is told only to a user who may ask at all, and about kinds that
    /// there are.
    pub flaw: Option<Refusal>,
    /// Where the call comes from, as the audit trail tells it. It is there only where a trail is kept.
    pub source: Option<Box<Source>>,
    /// What authentication tells the client and the auditor.
    pub told: Told,
    /// The server asks itself: its own plans bound themselves, and wait for nobody's share.
    pub own: bool,
}

/// A request as it arrived.
#[derive(Debug, Clone)]
pub struct Source {
    pub received: Timestamp,
    /// Path and query, as they were sent.
    pub uri: String,
    /// The client, and the proxies that it came through.
    pub addresses: Vec<IpAddr>,
    pub agent: String,
    /// How long it took to find out whose it is.
    pub authentication: Duration,
    /// When it is cut off, where its time is limited.
    pub deadline: Option<Deadline>,
}

/// What is asked for.
#[derive(Debug)]
pub enum Asked {
    /// Objects of the kind that a path names: whether there is such a kind is found out behind the door.
    Named(Box<Named>),
    /// Objects of a kind that the caller has found already.
    Found(Box<Request>),
    /// Objects that another server answers for. Who may have them is decided here, and the transport asks there.
    Elsewhere { verb: &'static str, path: Arc<ResourcePath> },
    /// A path that is no resource. The transport answers it when it is granted.
    Path { verb: &'static str, path: String },
    /// Everything that was ever stored: the log, and forks of it. The transport answers when it is granted.
    Everything { verb: &'static str, path: String },
}

/// Objects by the path of their resource.
#[derive(Debug)]
pub struct Named {
    pub verb: Verb,
    pub path: Arc<ResourcePath>,
    pub options: Options,
    pub body: Body,
    /// The moment that this one read is about, where a parameter names one.
    pub at: Option<String>,
}

impl Named {
    /// The name of the only object that this can be about: the path's, or the one that a field selector picks.
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

/// Where a path leads, before anything is looked up. Empty text stands for absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourcePath {
    pub group: String,
    pub version: String,
    /// The namespace that the path is within, or the one that it names as an object.
    pub namespace: String,
    /// Whether the resource is one of the namespace's content, and not the namespace itself or the cluster's.
    pub within: bool,
    pub resource: String,
    pub name: String,
    pub subresource: String,
    /// What follows the subresource.
    pub rest: String,
}

/// How a request is named in events, log lines and answers: short, and of characters that need no escaping anywhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(String);

impl RequestId {
    /// As long as Kubernetes shows one.
    const BYTES_MAX: usize = 64;

    /// A name that a client gives, unless it is none that can be kept.
    pub fn given(text: &str) -> Option<RequestId> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte);
        let fits = !text.is_empty() && text.len() <= Self::BYTES_MAX && text.bytes().all(plain);
        fits.then(|| RequestId(text.to_owned()))
    }

    /// A name that the server makes up.
    pub(crate) fn made(uid: String) -> RequestId {
        RequestId(uid)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Call {
    pub fn new(user: Arc<User>, asked: Asked) -> Call {
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

    /// A request of the server's own, under the name that it carries.
    pub fn own(request: Request) -> Call {
        let id = RequestId::given(&request.id);
        Call { id, own: true, ..Call::new(request.user.clone(), Asked::Found(Box::new(request))) }
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
