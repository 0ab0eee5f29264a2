//! Orders: requests of the scheduler to other servers, with what each is for.

use super::{Scheduler, consult};
use crate::object::{Key, Text};
use crate::queue::Time;
use holdfast_value::{Value, json};
use holdfast_world::{Action, Refusal, Resource, Verb};
use std::sync::LazyLock;

/// A request; its answer comes with the same number.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    pub number: u64,
    pub ask: Ask,
}

#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "nearly all are of the API server: a box would cost more")]
pub enum Ask {
    /// To the API server.
    Api(Action),
    /// To one of the configured extenders: the body is posted to the path of the verb.
    Extender { extender: usize, verb: String, body: Value },
}

/// The answer to an order.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The body of an extender's answer; from the API server only that the request succeeded.
    Done(Value),
    /// The API server refused the request.
    Refused(Refusal),
    /// The extender did not answer, or answered with an error.
    Failed(String),
}

impl Answer {
    fn refusal(self) -> Option<Refusal> {
        let failed = |message: String| Refusal { code: 500, message, ..Refusal::default() };
        match self {
            // An extender reports a failed binding in the body.
            Answer::Done(said) => consult::error(&said).map(|message| failed(message.to_owned())),
            Answer::Refused(refusal) => Some(refusal),
            Answer::Failed(message) => Some(failed(message)),
        }
    }
}

/// What an order is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A step of a pod's binding cycle.
    Way(Key),
    /// Writing the status of a pod.
    Status(Key),
    /// A step of the eviction of the victim with this UID.
    Victim(Text),
    /// A question to an extender.
    Consultation,
    /// Writing an Event; the answer is ignored.
    Event,
    /// The answer is ignored.
    Nothing,
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

/// Binds a pod to a node.
pub(super) fn bind(key: &Key, uid: &Text, node: &Text) -> Action {
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"namespace": &*key.namespace, "name": &*key.name, "uid": &**uid},
        "target": {"kind": "Node", "name": &**node},
    });
    Action::new(&PODS, key.clone(), Verb::Create(binding)).subresource("binding")
}

/// Changes a part of a pod's status. The uid makes the API server refuse if another pod has the name by now.
pub(super) fn patch_status(key: &Key, uid: &Text, status: Value) -> Action {
    let patch = json!({"metadata": {"uid": &**uid}, "status": status});
    Action::new(&PODS, key.clone(), Verb::StrategicPatch(patch)).subresource("status")
}

impl Scheduler {
    pub(super) fn order(&mut self, action: Action, purpose: Purpose) -> u64 {
        self.ask(Ask::Api(action), purpose)
    }

    pub(super) fn ask(&mut self, ask: Ask, purpose: Purpose) -> u64 {
        self.next_order += 1;
        let number = self.next_order;
        self.purposes.insert(number, purpose);
        self.orders.push(Order { number, ask });
        number
    }

    /// Handles the answer to an order.
    pub fn answer(&mut self, number: u64, answer: Answer, now: Time) {
        match self.purposes.remove(&number) {
            Some(Purpose::Way(pod)) => self.way_answered(&pod, number, answer.refusal(), now),
            Some(Purpose::Status(pod)) => self.status_answered(&pod, number, now),
            Some(Purpose::Victim(uid)) => self.victim_answered(&uid, answer.refusal(), now),
            Some(Purpose::Consultation) => self.consulted(number, answer, now),
            Some(Purpose::Event) => self.events.unanswered -= 1,
            Some(Purpose::Nothing) | None => {}
        }
    }
}
