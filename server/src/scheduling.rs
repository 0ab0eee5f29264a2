//! The scheduler in the API server's own process: fed by watches of the engine, acting through the door.

use async_trait::async_trait;
use holdfast_core::authz::User;
use holdfast_core::list::Selection;
use holdfast_core::request::{Body, DeleteOptions, FieldValidation, Format, Options, Request, Target, Verb as Asked};
use holdfast_core::select::{FieldSelector, LabelSelector};
use holdfast_core::state::State;
use holdfast_engine::{ChangeType, Delivery, Engine, WatchStart};
use holdfast_scheduler::configuration::extender::Extender;
use holdfast_scheduler::object::KINDS;
use holdfast_scheduler::run::extend::Extenders;
use holdfast_scheduler::run::metrics::Metrics;
use holdfast_scheduler::run::{Cluster, Fed, run};
use holdfast_scheduler::{Configuration, Key, Kind};
use holdfast_service::{Call, Service};
use holdfast_world::{Action, Refusal, Verb};
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::mpsc::{Sender, channel};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Who the scheduler is to the API server.
const USER: &str = "system:kube-scheduler";
const FIELD_MANAGER: &str = "kube-scheduler";
/// How many changes may wait for the scheduler before watches are read no further.
const CHANGES_MAX: usize = 4096;

/// Schedules pods for as long as the engine is there.
pub async fn in_process(configuration: Configuration, service: Arc<Service>, metrics: Arc<Metrics>) {
    let (sender, feed) = channel(CHANGES_MAX);
    let mut watches = JoinSet::new();
    watches.spawn(feed_all(service.engine().clone(), sender));
    let user = Arc::new(User::new(USER, &["system:authenticated"]));
    let cluster = Arc::new(Here { service, user, extenders: Extenders::default() });
    // Nobody else schedules in this process.
    let (_leads, leads) = watch::channel(true);
    run(Arc::new(configuration), feed, cluster, metrics, leads).await;
}

async fn feed_all(engine: Arc<Engine>, sender: Sender<Fed>) {
    let mut following = JoinSet::new();
    let state = engine.snapshot();
    for (kind, group, plural, _) in KINDS {
        let Some(selection) = everything(&state, group, plural) else { continue };
        let (begun, beginning) = tokio::sync::oneshot::channel();
        following.spawn(follow(engine.clone(), kind, selection, sender.clone(), begun));
        // One kind after the other: what pods rest on comes before them where it can.
        let _ = beginning.await;
    }
    if sender.send(Fed::Complete).await.is_ok() {
        following.join_all().await;
    }
}

/// All objects of a resource, in the version in which they are stored.
fn everything(state: &State, group: &str, plural: &str) -> Option<Selection> {
    let named = |kind: &holdfast_core::kinds::Kind| kind.resource == plural && kind.hub().group == group;
    let (kind, _) = state.registry.iter().find(|(_, kind)| named(kind))?;
    let (labels, fields) = (LabelSelector::default(), FieldSelector::default());
    Some(Selection { kind, version: 0, prefix: String::new(), key: None, labels, fields })
}

async fn follow(
    engine: Arc<Engine>,
    kind: Kind,
    selection: Selection,
    sender: Sender<Fed>,
    begun: tokio::sync::oneshot::Sender<()>,
) {
    let mut begun = Some(begun);
    let mut watch = engine.watch(selection, WatchStart::Now);
    loop {
        while begun.is_some() {
            match watch.next_ready() {
                Ok(Some(delivery)) => {
                    if sender.send(fed(kind, delivery)).await.is_err() {
                        return;
                    }
                }
                _ => drop(begun.take()),
            }
        }
        // A fault of the log is told by the writer, which ends the server.
        let Ok(delivery) = watch.next().await else { return };
        if sender.send(fed(kind, delivery)).await.is_err() {
            return;
        }
    }
}

fn fed(kind: Kind, delivery: Delivery) -> Fed {
    let change = &delivery.event.change;
    let key = match change.key.split_once('/') {
        Some((namespace, name)) => Key::new(namespace, name),
        None => Key::cluster(&change.key),
    };
    let gone = delivery.change_type == ChangeType::Deleted;
    Fed::Change(kind, key, (!gone).then(|| change.entry.json.clone()))
}

/// The API server of this process.
struct Here {
    service: Arc<Service>,
    user: Arc<User>,
    extenders: Extenders,
}

#[async_trait]
impl Cluster for Here {
    async fn act(&self, action: &Action) -> Result<(), Refusal> {
        let state = self.service.engine().snapshot();
        let request = self.request(&state, action).ok_or_else(|| Refusal { code: 404, ..Refusal::default() })?;
        match self.service.call(Call::own(request)).await.reply {
            Ok(_) => Ok(()),
            Err(refusal) => Err(told(&refusal)),
        }
    }

    async fn extend(&self, extender: &Extender, verb: &str, body: &Value) -> Result<Value, String> {
        self.extenders.call(extender, verb, body).await
    }
}

fn told(refusal: &holdfast_core::Refusal) -> Refusal {
    let code = holdfast_service::code(refusal);
    let reason = match code {
        404 => "NotFound",
        409 => "Conflict",
        _ => "",
    };
    Refusal { code, reason: reason.to_owned(), message: refusal.message(), causes: Vec::new() }
}

impl Here {
    fn request(&self, state: &State, action: &Action) -> Option<Request> {
        let resource = &action.resource;
        let (kind, version) = state.registry.find(resource.group(), resource.version(), resource.plural())?;
        let (verb, format, body) = match &action.verb {
            Verb::Create(body) => (Asked::Create, Format::Json, Some(body)),
            Verb::Update(body) => (Asked::Update, Format::Json, Some(body)),
            Verb::MergePatch(body) => (Asked::Patch, Format::MergePatch, Some(body)),
            Verb::StrategicPatch(body) => (Asked::Patch, Format::StrategicMergePatch, Some(body)),
            Verb::JsonPatch(body) => (Asked::Patch, Format::JsonPatch, Some(body)),
            Verb::Apply(body) => (Asked::Patch, Format::ApplyPatch, Some(body)),
            Verb::Delete { .. } => (Asked::Delete, Format::Json, None),
        };
        let named = verb != Asked::Create || !action.subresource.is_empty();
        let target = Target {
            kind,
            version,
            namespace: resource.namespaced().then(|| action.key.namespace.to_string()),
            name: named.then(|| action.key.name.to_string()),
            subresource: (!action.subresource.is_empty()).then(|| action.subresource.to_owned()),
        };
        let mut delete = DeleteOptions::default();
        if let Verb::Delete { uid, grace_seconds, .. } = &action.verb {
            delete.precondition_uid = uid.as_ref().map(ToString::to_string);
            delete.grace_period_seconds = *grace_seconds;
        }
        let options = Options {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            field_validation: FieldValidation::Ignore,
            delete,
            ..Options::default()
        };
        let bytes = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let body = Body { bytes: bytes.into(), format };
        Some(Request { user: self.user.clone(), verb, target, options, body, id: String::new() })
    }
}
