//! What a scheduler asks of others, and what for.

use super::{Scheduler, consult};
use crate::object::{Key, Text};
use crate::queue::Time;
use holdfast_value::{Value, json};
use holdfast_world::{Action, Refusal, Resource, Verb};
use std::sync::LazyLock;

/// Something to be asked of another, whose answer comes with the same number.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    pub number: u64,
    pub ask: Ask,
}

#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "nearly all are of the API server: a box would cost more")]
pub enum Ask {
    /// Of the API server.
    Api(Action),
    /// Of one of the configured extenders: what is posted to the path of a verb.
    Extender { extender: usize, verb: String, body: Value },
}

/// What came of an order.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// What an extender says; of the API server only that it is done.
    Done(Value),
    /// The API server refused.
    Refused(Refusal),
    /// The extender did not answer, or said that it cannot.
    Failed(String),
}

impl Answer {
    fn refusal(self) -> Option<Refusal> {
        let failed = |message: String| Refusal { code: 500, message, ..Refusal::default() };
        match self {
            // An extender that could not bind a pod says so in what it answers.
            Answer::Done(said) => consult::error(&said).map(|message| failed(message.to_owned())),
            Answer::Refused(refusal) => Some(refusal),
            Answer::Failed(message) => Some(failed(message)),
        }
    }
}

/// What an answer is wanted for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A step on a pod's way.
    Way(Key),
    /// The status of a pod.
    Status(Key),
    /// A step of an eviction, of the pod of this UID.
    Victim(Text),
    /// One of those extenders that are asked now.
    Consultation,
    /// People are told something; nothing follows from it.
    Event,
    /// Nothing follows from it.
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

/// Changes a part of a pod's status; refused where the pod is not the same any more.
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

    /// Takes in what came of an order.
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
