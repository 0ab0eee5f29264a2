//! Requests that the scheduler makes to the API server and to extenders, and the purpose of each request.

use super::{Scheduler, extender_answers};
use crate::object::{Key, Text};
use crate::queue::Time;
use holdfast_value::{Value, json};
use holdfast_world::{Action, Refusal, Resource, Verb};
use std::collections::HashMap;
use std::sync::LazyLock;

/// A request to be sent. The caller reports the request's outcome with its number.
#[derive(Debug, Clone, PartialEq)]
pub struct OutgoingRequest {
    pub number: u64,
    pub content: RequestContent,
}

#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "nearly all are of the API server: a box would cost more")]
pub enum RequestContent {
    /// A request to the API server.
    Api(Action),
    /// A request to the extender with this index in the configuration. The body is posted to the path of the verb.
    Extender { extender: usize, verb: String, body: Value },
}

/// The outcome of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum RequestOutcome {
    /// The request succeeded. The value is the body of an extender's answer; for a request to the API server the value
    /// is null.
    Succeeded(Value),
    /// The API server refused the request.
    Refused(Refusal),
    /// The extender did not answer, or answered with an error.
    Failed(String),
}

impl RequestOutcome {
    fn refusal(self) -> Option<Refusal> {
        let failed = |message: String| Refusal { reason: "InternalError".into(), message, causes: Vec::new() };
        match self {
            // An extender reports in the body of its answer that it has failed to bind.
            RequestOutcome::Succeeded(body) => extender_answers::error(&body).map(|message| failed(message.to_owned())),
            RequestOutcome::Refused(refusal) => Some(refusal),
            RequestOutcome::Failed(message) => Some(failed(message)),
        }
    }
}

/// Why a request was made, which tells what its outcome means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A step of a pod's binding cycle.
    BindingCycle(Key),
    /// Writing the status of a pod.
    Status(Key),
    /// A step of the eviction of the victim with this UID.
    Eviction(Text),
    /// A call of an extender.
    ExtenderCalls,
    /// The request writes an Event; the outcome is ignored.
    Event,
    /// Any other request whose outcome is ignored.
    Ignored,
}

pub(super) static PODS: LazyLock<Resource> = LazyLock::new(|| Resource::new("", "v1", "pods", "Pod", true));
pub(super) static VOLUMES: LazyLock<Resource> =
    LazyLock::new(|| Resource::new("", "v1", "persistentvolumes", "PersistentVolume", false));
pub(super) static VOLUME_CLAIMS: LazyLock<Resource> =
    LazyLock::new(|| Resource::new("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", true));
pub(super) static DEVICE_CLAIMS: LazyLock<Resource> =
    LazyLock::new(|| Resource::new("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", true));
pub(super) static EVENTS: LazyLock<Resource> =
    LazyLock::new(|| Resource::new("events.k8s.io", "v1", "events", "Event", true));

/// The request that binds a pod to a node.
pub(super) fn binding_action(key: &Key, uid: &Text, node: &Text) -> Action {
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"namespace": &*key.namespace, "name": &*key.name, "uid": &**uid},
        "target": {"kind": "Node", "name": &**node},
    });
    Action::new(&PODS, key.clone(), Verb::Create(binding)).subresource("binding")
}

/// The request that changes a part of a pod's status. The uid makes the API server refuse the patch if another pod has
/// the name by now.
pub(super) fn status_patch(key: &Key, uid: &Text, status: Value) -> Action {
    let patch = json!({"metadata": {"uid": &**uid}, "status": status});
    Action::new(&PODS, key.clone(), Verb::StrategicPatch(patch)).subresource("status")
}

/// The requests that have no outcome yet.
#[derive(Default)]
pub(super) struct Requests {
    last_number: u64,
    purposes: HashMap<u64, Purpose>,
    unsent: Vec<OutgoingRequest>,
}

impl Requests {
    /// A number that is larger than the numbers of all earlier requests.
    pub fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    pub fn send_action(&mut self, action: Action, purpose: Purpose) -> u64 {
        self.send(RequestContent::Api(action), purpose)
    }

    /// Queues a request for [`Scheduler::take_requests`]; returns its number.
    pub fn send(&mut self, content: RequestContent, purpose: Purpose) -> u64 {
        let number = self.next_number();
        self.purposes.insert(number, purpose);
        self.unsent.push(OutgoingRequest { number, content });
        number
    }

    pub fn take_unsent(&mut self) -> Vec<OutgoingRequest> {
        std::mem::take(&mut self.unsent)
    }

    /// How many requests have no outcome yet.
    pub fn pending(&self) -> usize {
        self.purposes.len()
    }
}

impl Scheduler {
    /// Handles the outcome of a request.
    pub fn handle_outcome(&mut self, number: u64, outcome: RequestOutcome, now: Time) {
        match self.requests.purposes.remove(&number) {
            Some(Purpose::BindingCycle(pod)) => self.handle_binding_cycle_outcome(&pod, number, outcome.refusal(), now),
            Some(Purpose::Status(pod)) => self.handle_status_outcome(&pod, number, now),
            Some(Purpose::Eviction(uid)) => self.handle_eviction_outcome(&uid, outcome.refusal(), now),
            Some(Purpose::ExtenderCalls) => self.handle_extender_outcome(number, outcome, now),
            Some(Purpose::Event) => self.events.unanswered -= 1,
            Some(Purpose::Ignored) | None => {}
        }
    }
}
