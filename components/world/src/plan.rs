//! The actions that a controller wants to make for one key, as data.

use crate::{Key, Object, Resource, Text, Time, cloud};
use holdfast_value::Value;
use std::sync::Arc;

/// A controller's plan for one key. After the plan was carried out, the next plan for the key has no steps until
/// something changes.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Plan {
    /// The steps of the plan. They are carried out one after the other; the step with a refused action is the last one.
    pub steps: Vec<ParallelActions>,
    /// Events for people. They are written even if there are no actions.
    pub events: Vec<PlannedEvent>,
    /// The time at which this key is planned again even if nothing changes.
    pub requeue_at: Option<Time>,
    /// Paths that must be read with GET before the controller can plan anything. A plan with `gets` has no steps, and
    /// its key is planned again as soon as the controller has received all answers.
    pub gets: Vec<String>,
    /// Bodies of `SubjectAccessReview`s. As with `gets`, a plan with reviews has no steps, and the key is planned again
    /// after [`crate::Controller::reviewed`].
    pub reviews: Vec<Value>,
    /// Calls to a cloud, which are all made at once. As with `gets`, a plan with calls has no steps, and the key is
    /// planned again after [`crate::Controller::called`].
    pub calls: Vec<cloud::CloudCall>,
    /// Whether some work cannot be done yet although nothing was refused. If so, the key is planned again, with a
    /// longer wait each time.
    pub unready: bool,
    /// The reasons why work that could be expected was not done, for logs and tests.
    pub skipped: Vec<String>,
}

/// Actions that do not depend on each other, so they are carried out at the same time.
pub type ParallelActions = Vec<Action>;

/// One request to the API server. It contains its preconditions: a version in the body or the patch, or a UID or a
/// version for a deletion.
#[derive(Debug, Clone, PartialEq)]
pub struct Action {
    pub resource: Resource,
    pub key: Key,
    /// The subresource of the object: empty, `status`, `scale`, `binding` and so on.
    pub subresource: &'static str,
    pub verb: Verb,
    /// Objects that must not exist, with their UIDs. An existing object may be missing from the world, so each of these
    /// objects is looked up at the server before the action is carried out. If one of them exists, the action is
    /// refused with a conflict.
    pub absent: Vec<(Resource, Key, Text)>,
    /// The field manager of the write; `None` if it is the controller's own field manager.
    pub manager: Option<&'static str>,
    /// An Event that is written after the action was carried out. The text `{name}` in its message is replaced by the
    /// object's name, which the server may have generated.
    pub event: Option<PlannedEvent>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Verb {
    /// Creates the object. The name in the key may be empty if the object has a `generateName`.
    Create(Value),
    /// Replaces the object. Its `metadata.resourceVersion` is the version on which the plan is based.
    Update(Value),
    /// Replaces the object by an object with another status and otherwise equal content.
    UpdateStatus(StatusUpdate),
    /// A JSON merge patch. A `metadata.resourceVersion` or a `metadata.uid` in the patch is a precondition.
    MergePatch(Value),
    StrategicPatch(Value),
    /// A JSON patch.
    JsonPatch(Value),
    /// A server-side apply under the controller's field manager.
    Apply(Value),
    Delete {
        uid: Option<Text>,
        version: Option<Text>,
        propagation: Option<Propagation>,
        grace_seconds: Option<i64>,
    },
}

/// An object with another status. The document is made only when it is sent, because for a large object this takes
/// longer than the rest of a plan.
#[derive(Debug, Clone)]
pub struct StatusUpdate {
    pub object: Arc<Object>,
    pub status: Value,
}

impl StatusUpdate {
    pub fn document(&self) -> Value {
        let mut document = self.object.document();
        document["status"] = self.status.clone();
        document
    }
}

impl PartialEq for StatusUpdate {
    fn eq(&self, other: &StatusUpdate) -> bool {
        self.object.body == other.object.body && self.status == other.status
    }
}

impl Verb {
    /// The body that the request sends; `None` for a deletion.
    pub fn document(&self) -> Option<Value> {
        Some(match self {
            Verb::UpdateStatus(restated) => restated.document(),
            Verb::Create(body)
            | Verb::Update(body)
            | Verb::MergePatch(body)
            | Verb::StrategicPatch(body)
            | Verb::JsonPatch(body)
            | Verb::Apply(body) => body.clone(),
            Verb::Delete { .. } => return None,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// An Event about an object, for people. Equal Events are counted in one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedEvent {
    pub resource: Resource,
    pub key: Key,
    pub uid: Text,
    pub version: Text,
    pub warning: bool,
    pub reason: &'static str,
    pub message: String,
    /// The part of the object to which the Event refers, such as `spec.containers{web}`; empty for the whole object.
    pub part: String,
    /// The node that reports the Event; empty if no node reports it.
    pub host: String,
}

/// An action that the server refused, with the refusal.
#[derive(Debug, Clone, PartialEq)]
pub struct Refused {
    pub action: Action,
    pub refusal: Refusal,
}

/// The server's refusal. The default value stands for a request that got no usable answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refusal {
    /// A reason of Kubernetes' API, such as `NotFound`, or `Unknown`; empty if there was no usable answer.
    pub reason: String,
    pub message: String,
    /// The reasons of the causes in the details of the status.
    pub causes: Vec<String>,
}

impl Refusal {
    /// The refusal that a `Status` with this reason and this HTTP code means. As in Kubernetes' clients, the code
    /// counts only if the reason is unknown, because answers of other programs have no reason, and webhooks may write
    /// any text as the reason.
    pub fn of_status(reason: &str, code: u16, message: String, causes: Vec<String>) -> Refusal {
        let reason = if REASONS.contains(&reason) { reason } else { reason_of_code(code) };
        Refusal { reason: reason.to_owned(), message, causes }
    }

    pub fn is(&self, reason: &str) -> bool {
        self.reason == reason
    }

    /// A refusal because a precondition of the request does not hold any more.
    pub fn stale(message: String) -> Refusal {
        Refusal { reason: "Conflict".to_owned(), message, causes: Vec::new() }
    }

    pub fn is_conflict(&self) -> bool {
        self.reason == "Conflict"
    }

    pub fn is_not_found(&self) -> bool {
        self.reason == "NotFound"
    }

    /// Whether the server has forgotten the version that the request names.
    pub fn is_expired(&self) -> bool {
        self.is("Expired") || self.is("Gone")
    }

    /// Whether the server does not serve the path at all.
    pub fn is_no_such_path(&self) -> bool {
        self.is_not_found() && self.message == holdfast_core::Refusal::NoSuchPath.message()
    }

    /// Whether the request got no usable answer.
    pub fn is_unanswered(&self) -> bool {
        self.reason.is_empty()
    }

    /// Whether the server was overloaded, failed or did not answer, so that it may accept the same request later.
    pub fn is_temporary(&self) -> bool {
        self.is_unanswered() || TEMPORARY.contains(&self.reason.as_str())
    }

    /// Whether the plan was based on an old state, so that a new plan may succeed.
    pub fn is_stale(&self) -> bool {
        self.is_conflict() || self.is_not_found() && !self.is_no_such_path()
    }
}

/// The reasons that Kubernetes' API has: the `knownReasons` of its clients.
const REASONS: [&str; 19] = [
    "AlreadyExists",
    "BadRequest",
    "Conflict",
    "Expired",
    "Forbidden",
    "Gone",
    "InternalError",
    "Invalid",
    "MethodNotAllowed",
    "NotAcceptable",
    "NotFound",
    "RequestEntityTooLarge",
    "ServerTimeout",
    "ServiceUnavailable",
    "StorageReadError",
    "Timeout",
    "TooManyRequests",
    "Unauthorized",
    "UnsupportedMediaType",
];
/// The reasons of a server that is overloaded or has failed.
const TEMPORARY: [&str; 6] =
    ["InternalError", "ServerTimeout", "ServiceUnavailable", "StorageReadError", "Timeout", "TooManyRequests"];

/// The reason that Kubernetes' clients give to an answer that has this HTTP code and no reason.
fn reason_of_code(code: u16) -> &'static str {
    match code {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        405 => "MethodNotAllowed",
        406 => "NotAcceptable",
        409 => "Conflict",
        410 => "Gone",
        413 => "RequestEntityTooLarge",
        415 => "UnsupportedMediaType",
        422 => "Invalid",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        500.. => "InternalError",
        _ => "Unknown",
    }
}

impl PlannedEvent {
    /// The Event, with `{name}` in its message replaced by the object's name.
    pub fn with_object_name(self, name: &str) -> PlannedEvent {
        PlannedEvent { message: self.message.replace("{name}", name), ..self }
    }
}

impl Plan {
    pub fn is_empty(&self) -> bool {
        self.is_idle() && self.events.is_empty()
    }

    /// Whether the plan has no actions and requests no answers. A plan that is idle may have Events.
    pub fn is_idle(&self) -> bool {
        let asks_nothing = self.gets.is_empty() && self.reviews.is_empty() && self.calls.is_empty();
        asks_nothing && self.steps.iter().all(Vec::is_empty)
    }

    /// Adds one action, after all steps so far.
    pub fn then(&mut self, action: Action) {
        self.steps.push(vec![action]);
    }

    /// Adds a step of actions that are carried out at the same time, after all steps so far.
    pub fn together(&mut self, actions: Vec<Action>) {
        if !actions.is_empty() {
            self.steps.push(actions);
        }
    }

    /// Requests that the key is planned again at this time, or at the time that was requested before if that is
    /// earlier.
    pub fn requeue_at(&mut self, time: Time) {
        self.requeue_at = Some(self.requeue_at.map_or(time, |known| known.min(time)));
    }
}

impl Action {
    pub fn new(resource: &Resource, key: Key, verb: Verb) -> Action {
        let (absent, manager, told) = Default::default();
        Action { resource: resource.clone(), key, subresource: "", verb, absent, manager, event: told }
    }

    pub fn subresource(self, subresource: &'static str) -> Action {
        Action { subresource, ..self }
    }

    /// Returns the action with the condition that none of these objects may exist.
    pub fn unless(self, absent: Vec<(Resource, Key, Text)>) -> Action {
        Action { absent, ..self }
    }

    pub fn manager(self, manager: &'static str) -> Action {
        Action { manager: Some(manager), ..self }
    }

    /// The approximate number of bytes that the action sends.
    pub fn json_bytes(&self) -> usize {
        match &self.verb {
            Verb::Create(body)
            | Verb::Update(body)
            | Verb::MergePatch(body)
            | Verb::StrategicPatch(body)
            | Verb::JsonPatch(body)
            | Verb::Apply(body) => json_bytes(body),
            Verb::UpdateStatus(restated) => restated.object.body.len(),
            Verb::Delete { .. } => 0,
        }
    }

    pub fn with_event(self, event: PlannedEvent) -> Action {
        Action { event: Some(event), ..self }
    }
}

/// The approximate size of a document in JSON, computed without encoding it.
fn json_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 3,
        Value::Array(items) => items.iter().map(|item| json_bytes(item) + 1).sum::<usize>() + 2,
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| name.len() + json_bytes(value) + 4).sum::<usize>() + 2
        }
        _ => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_core::refusal::{GivenCode, Internal, Ruling, RulingKind, Unreasoned};

    #[test]
    fn a_code_counts_if_there_is_no_known_reason() {
        for (reason, code, expected) in [
            ("NotFound", 404, "NotFound"),
            ("AlreadyExists", 409, "AlreadyExists"),
            ("Expired", 410, "Expired"),
            ("", 401, "Unauthorized"),
            ("no pods today", 403, "Forbidden"),
            ("", 404, "NotFound"),
            ("", 405, "MethodNotAllowed"),
            ("", 410, "Gone"),
            ("", 429, "TooManyRequests"),
            ("", 500, "InternalError"),
            ("made up", 502, "InternalError"),
            ("", 507, "InternalError"),
            ("Unknown", 418, "Unknown"),
            ("", 0, "Unknown"),
        ] {
            let refusal = Refusal::of_status(reason, code, String::new(), Vec::new());
            assert_eq!(refusal.reason, expected, "{reason} {code}");
            assert!(!refusal.is_unanswered(), "{reason} {code}");
            assert_eq!(refusal.is_temporary(), code == 429 || code >= 500, "{reason} {code}");
            assert_eq!(refusal.is_expired(), code == 410, "{reason} {code}");
        }
        assert!(Refusal::default().is_unanswered() && Refusal::default().is_temporary());
    }

    #[test]
    fn refusals_in_the_process_have_the_same_reasons() {
        let ruled = |kind, reason: &str| {
            let (reason, message) = (reason.to_owned(), String::new());
            let details = holdfast_value::Value::Null;
            holdfast_core::Refusal::Ruled(Box::new(Ruling { kind, reason, message, details }))
        };
        let given = |code| RulingKind::Given(GivenCode(code));
        for (refusal, expected) in [
            (holdfast_core::Refusal::NoSuchPath, "NotFound"),
            (holdfast_core::Refusal::Internal(Internal::Panicked), "InternalError"),
            (holdfast_core::Refusal::Unreasoned(Unreasoned::SeveralBudgets), "InternalError"),
            (holdfast_core::Refusal::InsufficientStorage(String::new()), "InternalError"),
            (ruled(RulingKind::Forbidden, "Invalid"), "Forbidden"),
            (ruled(RulingKind::TooManyRequests, "TooManyRequests"), "TooManyRequests"),
            (ruled(given(400), "Conflict"), "Conflict"),
            (ruled(given(403), "no pods today"), "Forbidden"),
            (ruled(given(777), ""), "InternalError"),
            (ruled(given(400), ""), "BadRequest"),
        ] {
            assert_eq!(Refusal::from(&refusal).reason, expected, "{refusal:?}");
        }
        let nowhere = Refusal::from(&holdfast_core::Refusal::NoSuchPath);
        assert!(nowhere.is_no_such_path() && !nowhere.is_stale());
    }
}
