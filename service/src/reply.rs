//! What comes back through the door. How it is written for a client is the transport's.

use crate::RequestId;
use crate::layers::Place;
use crate::metrics::Record;
use crate::scene::Scene;
use holdfast_audit::Trail;
use holdfast_core::Refusal;
use holdfast_core::authz::User;
use holdfast_core::kinds::{ConnectOptions, Destination, Kind};
use holdfast_core::list::Page;
use holdfast_core::object::meta::Document;
use holdfast_core::refusal::Subject;
use holdfast_core::state::Entry;
use holdfast_engine::{Charge, Watch};
use std::sync::Arc;
use std::time::Duration;

/// A reply, and what belongs to it whatever it says.
pub struct Answer {
    pub reply: Result<Reply, Refusal>,
    /// What the user should know besides, refused or not.
    pub warnings: Vec<String>,
    /// How the request is named, if the door named it.
    pub id: RequestId,
    /// What is counted when the answer has gone.
    pub record: Record,
    /// What is told of the call, where anything is: whoever writes the answer says how it ended.
    pub trail: Option<Box<Trail>>,
    /// The call's place among those in progress, kept until the answer is rendered.
    pub place: Option<Place>,
}

pub enum Reply {
    Object(Shown),
    List(Listed),
    Watch(Box<Watched>),
    /// An object that was not stored, as it would have been.
    Draft(Box<Draft>),
    /// A document that is not stored as it is.
    Document {
        document: Document,
        created: bool,
    },
    /// It is done, and there is nothing to show.
    Success {
        created: bool,
    },
    /// The object is gone.
    Deleted {
        subject: Subject,
        uid: String,
    },
    /// The caller may have what the transport itself answers.
    Granted(Granted),
    /// The caller may have what somebody behind the API answers, to whom the transport goes.
    Connect(Box<Connecting>),
}

/// A way that leads away from the API.
pub struct Connecting {
    /// In whose name the call was made.
    pub user: Arc<User>,
    pub destination: Destination,
    /// `log`, `exec`, `proxy` and so on.
    pub part: String,
    /// The path behind `proxy`.
    pub rest: String,
    /// The resource and the name in the path.
    pub resource: String,
    pub name: String,
    pub is_namespaced: bool,
    pub options: ConnectOptions,
    /// Ends with the answer.
    pub trail: Option<Box<Trail>>,
}

/// An object in one version of its kind, which its entry can be shown in.
pub struct Shown {
    pub kind: Arc<Kind>,
    pub version: usize,
    pub entry: Arc<Entry>,
    pub created: bool,
}

/// What an object would look like, in a version of its kind.
pub struct Draft {
    pub kind: Arc<Kind>,
    pub version: usize,
    /// As it would be stored.
    pub hub: Document,
    pub document: Document,
    pub created: bool,
}

pub struct Listed {
    pub kind: Arc<Kind>,
    pub version: usize,
    pub page: Page,
    /// Sealed; empty on the last page.
    pub continue_token: String,
    /// Empty: all of them, or none.
    pub namespace: String,
    /// What of it is held for its reader alone.
    pub charge: Option<Charge>,
}

/// Events to come.
pub struct Watched {
    pub kind: Arc<Kind>,
    pub version: usize,
    pub watch: Watch,
    pub timeout: Duration,
    pub bookmarks: bool,
    pub mark_initial_end: bool,
    /// What the watch says before it ends, where it cannot begin.
    pub flaw: Option<Refusal>,
    /// Ends with the watch.
    pub trail: Option<Box<Trail>>,
}

/// Permission, and what is to be looked at with it.
pub struct Granted {
    /// In whose name the call was made.
    pub user: Arc<User>,
    pub scene: Scene,
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Reply::Object(_) => "Object",
            Reply::List(_) => "List",
            Reply::Watch(_) => "Watch",
            Reply::Draft(_) => "Draft",
            Reply::Document { .. } => "Document",
            Reply::Success { .. } => "Success",
            Reply::Deleted { .. } => "Deleted",
            Reply::Granted(_) => "Granted",
            Reply::Connect(_) => "Connect",
        })
    }
}

impl Reply {
    /// The number of a success.
    pub fn code(&self) -> u16 {
        match self {
            Reply::Object(Shown { created: true, .. })
            | Reply::Document { created: true, .. }
            | Reply::Success { created: true } => 201,
            Reply::Draft(draft) if draft.created => 201,
            _ => 200,
        }
    }
}
