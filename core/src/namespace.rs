//! Empties terminating namespaces: deletes the pods, then all other objects, and then removes the finalizer.
//!
//! [`Emptying`] stores the progress between rounds. It walks through the objects of a namespace in order and continues
//! in the next round after the last object that it read, so that no object is read in every round. Objects that wait
//! for another program (finalizers) are read again after a pause. During the pause the plan only checks whether any
//! content is left. The walk may begin after a delay, so that the client that deleted the namespace can empty it first.

use crate::authz::User;
use crate::kinds::KindId;
use crate::object::meta::{self, Document, metadata, object_mut, text};
use crate::request::{Body, DeleteOptions, Format, Options, Request, Target, Verb};
use crate::stamp::Stamp;
use crate::state::{State, prefix};
use holdfast_value::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A request that the server makes on its own behalf and not for a client.
#[derive(Debug, Clone)]
pub struct Step {
    pub request: Request,
}

/// The steps to take now, and the time of the next plan.
#[derive(Debug, Default)]
pub struct Plan {
    pub steps: Vec<Step>,
    /// The time of the next plan, in milliseconds since 1970. A time in the past means that more steps follow as soon
    /// as these are carried out. `None` means that the next plan is made when something is written.
    pub again_ms: Option<i64>,
}

/// The service account in kube-system as which the server empties namespaces.
const ACCOUNT: &str = "namespace-controller";
/// The field manager with which the server empties namespaces, as in Kubernetes.
const MANAGER: &str = "kube-controller-manager";
/// The finalizer that every namespace is created with.
const FINALIZER: &str = "kubernetes";
/// The maximum number of deletions in one plan.
const STEPS_MAX: usize = 512;
/// The maximum number of objects that are read in one round.
const LOOKS_MAX: usize = 8192;
/// The pause after a walk that found only objects that wait for other programs: `REST_MS`, plus one millisecond for
/// every `OBJECTS_A_REST_MS` objects that the walk read.
const REST_MS: i64 = 1000;
const OBJECTS_A_REST_MS: i64 = 10;
/// The interval, in milliseconds, at which a plan checks, during the delay of a namespace, whether a client waits for
/// the deletion of the namespace.
const PATIENCE_MS: i64 = 50;

/// The progress of the walk through each terminating namespace.
#[derive(Debug, Default)]
pub struct Emptying {
    grace_ms: i64,
    walks: BTreeMap<Arc<str>, Walk>,
    /// The number of objects that were read in all rounds.
    pub looked_at: usize,
}

/// One walk through the content of a namespace.
#[derive(Debug, Default)]
struct Walk {
    /// The end of the delay in which the client that deleted the namespace can empty it; `None` after the walk has
    /// begun.
    left_alone_until_ms: Option<i64>,
    stage: Stage,
    /// The kind and key of the last object that was read.
    place: Option<(KindId, Arc<str>)>,
    seen: usize,
    deletions: usize,
    /// The number of consecutive walks before this one that requested deletions.
    repeated: u32,
    remaining: Remaining,
    /// The reasons why requested deletions were refused; of each kind only the first reason.
    failed: BTreeMap<KindId, String>,
    /// The time at which the next walk begins; set when this walk has ended.
    rests_until_ms: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    /// Pods are deleted first, because they may need other objects while they stop.
    #[default]
    Pods,
    Everything,
}

impl Stage {
    fn kinds(self, state: &State) -> impl Iterator<Item = KindId> {
        let kinds = state.registry.iter().filter(|(_, kind)| kind.stored && kind.is_namespaced());
        kinds.filter(move |(_, kind)| kind.deletion.deleted_first || self == Stage::Everything).map(|(id, _)| id)
    }
}

impl Emptying {
    /// Delays the walk through each namespace by `grace` after the deletion of the namespace, unless a client waits for
    /// the end of the namespace.
    pub fn after(grace: Duration) -> Emptying {
        Emptying { grace_ms: i64::try_from(grace.as_millis()).unwrap_or(i64::MAX), ..Emptying::default() }
    }

    /// The namespaces whose walk has not begun, because the delay has not ended.
    pub fn left_alone(&self) -> impl Iterator<Item = &Arc<str>> {
        self.walks.iter().filter(|(_, walk)| walk.left_alone_until_ms.is_some()).map(|(name, _)| name)
    }

    /// Ends the delay of a namespace, so that the walk through it begins with the next plan.
    pub fn hurry(&mut self, name: &str) {
        if let Some(walk) = self.walks.get_mut(name) {
            walk.left_alone_until_ms = None;
        }
    }

    /// Records why the deletion of an object in a namespace was refused.
    pub fn refused(&mut self, namespace: &str, kind: KindId, why: String) {
        if let Some(walk) = self.walks.get_mut(namespace) {
            walk.failed.entry(kind).or_insert(why);
        }
    }

    /// Plans the next requests. There are none if no namespace is terminating, or if all objects in terminating
    /// namespaces wait for other programs.
    pub fn plan(&mut self, state: &State, stamp: Stamp) -> Plan {
        let mut plan = Plan::default();
        self.walks.retain(|name, _| state.terminating.contains(name));
        let mut looks = LOOKS_MAX;
        for name in &state.terminating {
            let Some(entry) = state.get(state.registry.namespaces(), name) else { continue };
            let Value::Object(namespace) = entry.document() else { continue };
            let now_ms = stamp.time.as_millisecond();
            let walk = self.walks.entry(name.clone()).or_insert_with(|| Walk::begin(now_ms, self.grace_ms));
            if let Some(until_ms) = walk.left_alone_until_ms.filter(|until_ms| *until_ms > now_ms) {
                let again_ms = until_ms.min(now_ms.saturating_add(PATIENCE_MS));
                plan.again_ms = Some(plan.again_ms.map_or(again_ms, |soonest: i64| soonest.min(again_ms)));
                continue;
            }
            walk.left_alone_until_ms = None;
            let before = looks;
            let again_ms = walk.go_on(state, stamp, &namespace, &mut looks, &mut plan.steps);
            self.looked_at += before - looks;
            plan.again_ms = [plan.again_ms, again_ms].into_iter().flatten().min();
            if plan.steps.len() >= STEPS_MAX || looks == 0 {
                plan.again_ms = Some(0);
                break;
            }
        }
        plan
    }
}

impl Walk {
    fn begin(now_ms: i64, grace_ms: i64) -> Walk {
        let left_alone_until_ms = (grace_ms > 0).then(|| now_ms.saturating_add(grace_ms));
        Walk { left_alone_until_ms, ..Walk::default() }
    }

    /// Continues the walk through the namespace. Returns the time of the next plan, in milliseconds since 1970. If
    /// something is written before that time, the next plan is made then.
    fn go_on(
        &mut self,
        state: &State,
        stamp: Stamp,
        namespace: &Document,
        looks: &mut usize,
        steps: &mut Vec<Step>,
    ) -> Option<i64> {
        let name = text(metadata(namespace), "name");
        let now_ms = stamp.time.as_millisecond();
        loop {
            if let Some(until_ms) = self.rests_until_ms {
                let is_over = now_ms >= until_ms;
                if !is_over && !self.stage.kinds(state).all(|kind| is_empty(state, kind, name)) {
                    return Some(until_ms);
                }
                self.begin_again(self.repeated);
            }
            if !self.look(state, name, looks, steps) {
                return Some(0);
            }
            if self.deletions > 0 {
                // The previous walk requested these deletions as well, so pause before the next attempt.
                if self.repeated > 0 {
                    if !self.failed.is_empty() {
                        steps.extend(self.told(state, stamp, namespace));
                    }
                    return Some(self.rest(now_ms));
                }
                self.begin_again(1);
                return Some(0);
            }
            (self.repeated, self.failed) = (0, BTreeMap::new());
            if !self.remaining.is_empty() {
                steps.extend(self.told(state, stamp, namespace));
                return Some(self.rest(now_ms));
            }
            if self.stage == Stage::Everything {
                steps.extend(release(state, stamp, namespace));
                return None;
            }
            *self = Walk { stage: Stage::Everything, ..Walk::default() };
        }
    }

    /// Reads the next objects. Returns false if the round's limit on reads or deletions is reached before the end.
    fn look(&mut self, state: &State, namespace: &str, looks: &mut usize, steps: &mut Vec<Step>) -> bool {
        let prefix = prefix(Some(namespace));
        let start = self.place.clone();
        let start = start.as_ref().map(|(kind, key)| (*kind, &**key));
        // A CustomResourceDefinition that is created again gets a higher kind number, so the walk still reaches it.
        for kind in self.stage.kinds(state).skip_while(|kind| start.is_some_and(|(first, _)| *kind < first)) {
            let after = start.filter(|(first, _)| *first == kind).map(|(_, key)| key);
            for (key, entry) in state.scan(kind, &prefix, after) {
                if *looks == 0 || steps.len() >= STEPS_MAX {
                    return false;
                }
                *looks -= 1;
                self.seen += 1;
                self.place = Some((kind, key.clone()));
                match deleting(&entry.json()) {
                    Some(object) => self.remaining.count(state, kind, &object),
                    None => {
                        self.deletions += 1;
                        let (_, object) = meta::split_key(key);
                        steps.push(Step { request: deletion(kind, namespace, object.to_owned()) });
                    }
                }
            }
        }
        true
    }

    /// Starts the next walk, which requests refused deletions again. The reasons of the refusals stay.
    fn begin_again(&mut self, repeated: u32) {
        let failed = std::mem::take(&mut self.failed);
        *self = Walk { stage: self.stage, repeated, failed, ..Walk::default() };
    }

    /// The step that updates the namespace's conditions. While pods are being deleted, the remaining objects are not
    /// counted.
    fn told(&mut self, state: &State, stamp: Stamp, namespace: &Document) -> Option<Step> {
        let failed = std::mem::take(&mut self.failed);
        match self.stage {
            Stage::Pods => Remaining::default().told(state, stamp, namespace, &failed),
            Stage::Everything => self.remaining.told(state, stamp, namespace, &failed),
        }
    }

    fn rest(&mut self, now_ms: i64) -> i64 {
        let until_ms = rest(now_ms, self.seen);
        self.rests_until_ms = Some(until_ms);
        until_ms
    }
}

/// The end of the pause after a walk that read `seen` objects, in milliseconds since 1970.
pub(crate) fn rest(now_ms: i64, seen: usize) -> i64 {
    let seen = i64::try_from(seen).unwrap_or(i64::MAX);
    now_ms.saturating_add(REST_MS).saturating_add(seen / OBJECTS_A_REST_MS)
}

fn is_empty(state: &State, kind: KindId, namespace: &str) -> bool {
    state.scan(kind, &prefix(Some(namespace)), None).next().is_none()
}

/// The parsed object, if the object is being deleted. Most objects are not being deleted, and a text search avoids
/// parsing them.
pub(crate) fn deleting(json: &[u8]) -> Option<Document> {
    memchr::memmem::find(json, b"\"deletionTimestamp\":")?;
    let object: Document = serde_json::from_slice(json).ok()?;
    meta::is_deleting(&object).then_some(object)
}

/// Objects that are being deleted but still exist, for example because of their finalizers.
#[derive(Debug, Default)]
struct Remaining {
    /// Number of objects by resource and group: `pods.`, `deployments.apps`.
    resources: BTreeMap<String, usize>,
    /// Number of objects by finalizer.
    finalizers: BTreeMap<String, usize>,
}

impl Remaining {
    fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }

    fn count(&mut self, state: &State, kind: KindId, object: &Document) {
        let kind = state.kind(kind);
        *self.resources.entry(format!("{}.{}", kind.resource, kind.versions[0].group)).or_default() += 1;
        for finalizer in meta::finalizers(object) {
            *self.finalizers.entry(finalizer.to_owned()).or_default() += 1;
        }
    }

    /// The step that updates the namespace's conditions; `None` if the status already has them.
    fn told(
        &self,
        state: &State,
        stamp: Stamp,
        namespace: &Document,
        failed: &BTreeMap<KindId, String>,
    ) -> Option<Step> {
        let mut conditions = namespace.get("status").and_then(|status| status["conditions"].as_array()).cloned();
        let known = conditions.get_or_insert_default();
        let before = known.clone();
        for [ty, status, reason, message] in self.conditions(failed) {
            let place = known.iter().position(|condition| condition["type"] == ty);
            let since = place.map(|place| &known[place]).filter(|condition| condition["status"] == status);
            let since = since.and_then(|condition| condition["lastTransitionTime"].as_str().map(str::to_owned));
            let since = since.unwrap_or_else(|| stamp.rfc3339());
            let wanted = json!({
                "type": ty, "status": status, "reason": reason, "message": message, "lastTransitionTime": since,
            });
            match place {
                Some(place) => known[place] = wanted,
                None => known.push(wanted),
            }
        }
        if *known == before {
            return None;
        }
        let mut told = namespace.clone();
        object_mut(&mut told, "status").insert("conditions", conditions.into());
        Some(update(state, "status", told))
    }

    /// Type, status, reason and message of the namespace's deletion conditions, in Kubernetes' order.
    fn conditions(&self, failed: &BTreeMap<KindId, String>) -> [[String; 4]; 5] {
        let each = |items: &BTreeMap<String, usize>, verb: &str| {
            let items = items.iter().map(|(what, count)| format!("{what} {verb} {count} resource instances"));
            items.collect::<Vec<_>>().join(", ")
        };
        let remaining = match self.resources.is_empty() {
            true => ["False", "ContentRemoved", "All content successfully removed"].map(str::to_owned),
            false => {
                let message = format!("Some resources are remaining: {}", each(&self.resources, "has"));
                ["True".into(), "SomeResourcesRemain".into(), message]
            }
        };
        let held = match self.finalizers.is_empty() {
            true => {
                ["False", "ContentHasNoFinalizers", "All content-preserving finalizers finished"].map(str::to_owned)
            }
            false => {
                let finalizers = each(&self.finalizers, "in");
                let message = format!("Some content in the namespace has finalizers remaining: {finalizers}");
                ["True".into(), "SomeFinalizersRemain".into(), message]
            }
        };
        let well = |reason: &str, message: &str| ["False".to_owned(), reason.to_owned(), message.to_owned()];
        let deletion = match failed.len() {
            0 => well("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
            count => {
                let mut faults: Vec<&str> = failed.values().map(String::as_str).collect();
                faults.sort_unstable();
                let message = format!("Failed to delete all resource types, {count} remaining: {}", faults.join(", "));
                ["True".into(), "ContentDeletionFailed".into(), message]
            }
        };
        let conditions = [
            ("NamespaceDeletionDiscoveryFailure", well("ResourcesDiscovered", "All resources successfully discovered")),
            (
                "NamespaceDeletionGroupVersionParsingFailure",
                well("ParsedGroupVersions", "All legacy kube types successfully parsed"),
            ),
            ("NamespaceDeletionContentFailure", deletion),
            ("NamespaceContentRemaining", remaining),
            ("NamespaceFinalizersRemaining", held),
        ];
        conditions.map(|(ty, [status, reason, message])| [ty.to_owned(), status, reason, message])
    }
}

/// The next step for an empty namespace: the update of its conditions, or the removal of the finalizer if the
/// conditions are up to date.
fn release(state: &State, stamp: Stamp, namespace: &Document) -> Option<Step> {
    let held = namespace.get("spec").and_then(|spec| spec["finalizers"].as_array());
    let held: Vec<&str> = held.into_iter().flatten().filter_map(Value::as_str).collect();
    let rest: Vec<&str> = held.iter().copied().filter(|finalizer| *finalizer != FINALIZER).collect();
    if let Some(told) = Remaining::default().told(state, stamp, namespace, &BTreeMap::new()) {
        return Some(told);
    }
    if !held.contains(&FINALIZER) {
        return None;
    }
    let mut released = namespace.clone();
    object_mut(&mut released, "spec").insert("finalizers", rest.into());
    Some(update(state, "finalize", released))
}

fn deletion(kind: KindId, namespace: &str, name: String) -> Request {
    let mut deletion = request(kind, Verb::Delete, Some(namespace.to_owned()), name, None, Body::default());
    // The deletion need not wait for dependents, because they are also being deleted.
    deletion.options.delete =
        DeleteOptions { propagation_policy: Some("Background".into()), ..DeleteOptions::default() };
    deletion
}

fn update(state: &State, subresource: &str, document: Document) -> Step {
    let name = text(metadata(&document), "name").to_owned();
    let bytes = crate::object::encode::document(&document);
    let body = Body { content: bytes.into(), format: Format::Json };
    let kind = state.registry.namespaces();
    Step { request: request(kind, Verb::Update, None, name, Some(subresource.to_owned()), body) }
}

fn request(
    kind: KindId,
    verb: Verb,
    namespace: Option<String>,
    name: String,
    subresource: Option<String>,
    body: Body,
) -> Request {
    let user = User::service_account("kube-system", ACCOUNT, "");
    let options = Options { field_manager: Some(MANAGER.into()), ..Options::default() };
    let target = Target { kind, version: 0, namespace, name: Some(name), subresource };
    Request { user: Arc::new(user), verb, target, options, body, id: ACCOUNT.into() }
}
