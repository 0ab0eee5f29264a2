//! Creates pods from templates, and deletes pods.

use crate::subject::Subject;
use holdfast_value::{Value, json};
use holdfast_world::views::Pod;
use holdfast_world::{Action, Key, Refused, Time, Verb, View, Viewed};

/// The longest name of a pod, in characters; a prefix of a generated name may be as long.
const NAME_MAX: usize = 253;

/// A pod made from a template and owned by `owner`. The server generates the pod's name.
pub fn from_template(owner: Subject<'_>, template: &Value) -> Value {
    let name = &owner.object.meta.name;
    let generate_name = if name.len() < NAME_MAX { format!("{name}-") } else { name.clone() };
    let mut metadata = json!({
        "generateName": generate_name,
        "namespace": owner.object.meta.namespace,
        "ownerReferences": [owner.reference()],
    });
    for field in ["labels", "annotations", "finalizers"] {
        let value = &template["metadata"][field];
        if !value.is_null() {
            metadata[field] = value.clone();
        }
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
}

/// Creates a pod; if that succeeds, an Event about the owner reports it.
pub fn create(owner: Subject<'_>, pod: Value) -> Action {
    let key = Key::new(&owner.object.meta.namespace, pod["metadata"]["name"].as_str().unwrap_or_default());
    Action::new(Pod::resource(), key, Verb::Create(pod))
        .with_event(owner.normal("SuccessfulCreate", "Created pod: {name}".to_owned()))
}

/// Deletes a pod; if that succeeds, an Event about the owner reports it.
pub fn delete(owner: Subject<'_>, pod: Viewed<'_, Pod>) -> Action {
    let note = owner.normal("SuccessfulDelete", format!("Deleted pod: {}", pod.meta().name));
    Subject::from(pod).delete().with_event(note)
}

/// Splits items into groups of one, two, four items and so on. If an item of a group is refused, the later groups are
/// not tried, because they would most likely be refused, too.
pub fn slow_start<T>(items: Vec<T>) -> Vec<Vec<T>> {
    let mut items = items.into_iter();
    let groups = (0..).map(|doubling: u32| items.by_ref().take(1 << doubling.min(30)).collect::<Vec<T>>());
    groups.take_while(|group| !group.is_empty()).collect()
}

/// What refused creations and deletions of pods become: Events for people, and the first refusal for a condition of the
/// owner.
pub fn refusals(
    owner: Subject<'_>,
    refused: &[Refused],
) -> (Vec<holdfast_world::PlannedEvent>, Option<PodWriteFailure>) {
    let mut notes = Vec::new();
    let mut first = None;
    let of_pods = refused.iter().filter(|refused| is_pod(refused));
    for Refused { action, refusal } in of_pods.filter(|refused| !is_expected(refused)) {
        let (reason, doing) = match action.verb {
            Verb::Create(_) => ("FailedCreate", "creating"),
            Verb::Delete { .. } => ("FailedDelete", "deleting"),
            _ => continue,
        };
        notes.push(owner.warning(reason, format!("Error {doing}: {}", refusal.message)));
        first.get_or_insert_with(|| PodWriteFailure { reason, message: refusal.message.clone() });
    }
    (notes, first)
}

/// Whether the creation or deletion of a pod was refused. The plan that follows the refusals then writes the owner's
/// status, because the refused plan ended before its write of the status.
pub fn concern_pods(refused: &[Refused]) -> bool {
    let changes_pods =
        |refused: &Refused| matches!(refused.action.verb, Verb::Create(_) | Verb::Delete { .. }) && is_pod(refused);
    refused.iter().any(changes_pods)
}

fn is_pod(refused: &Refused) -> bool {
    refused.action.resource == *Pod::resource()
}

/// Why pods could not be created or deleted, as a condition shows it.
#[derive(Debug, Clone)]
pub struct PodWriteFailure {
    pub reason: &'static str,
    pub message: String,
}

/// Whether a refusal needs no Event: the namespace is terminating, or the object to be deleted no longer exists.
pub fn is_expected(refused: &Refused) -> bool {
    match refused.action.verb {
        Verb::Create(_) => refused.refusal.causes.iter().any(|cause| cause == "NamespaceTerminating"),
        _ => refused.refusal.is_not_found() || refused.refusal.is_conflict(),
    }
}

/// The time at which the next pod that is ready but not yet available becomes available; `None` if there is no such
/// pod.
pub fn next_available<'w>(
    pods: impl IntoIterator<Item = Viewed<'w, Pod>>,
    min_ready_seconds: i64,
    now: Time,
) -> Option<Time> {
    let waiting = pods.into_iter().filter(|pod| pod.is_ready() && !pod.is_available(min_ready_seconds, now));
    waiting.filter_map(|pod| pod.available_at(min_ready_seconds)).min()
}
