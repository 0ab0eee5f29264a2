//! The scheduler in the API server's own process: fed by watches of the engine, acting through the door.

use async_trait::async_trait;
use holdfast_core::authz::User;
use holdfast_core::kinds::Kind as CoreKind;
use holdfast_core::list::Selection;
use holdfast_core::select::{FieldSelector, LabelSelector};
use holdfast_core::state::State;
use holdfast_engine::{ChangeType, Delivery, Engine, WatchStart};
use holdfast_scheduler::configuration::extender::Extender;
use holdfast_scheduler::object::KINDS;
use holdfast_scheduler::run::extend::Extenders;
use holdfast_scheduler::run::metrics::Metrics;
use holdfast_scheduler::run::{Cluster, Fed, run};
use holdfast_scheduler::{Configuration, Key, Kind};
use holdfast_service::Service;
use holdfast_world::request::{self, Actor};
use holdfast_world::{Action, Refusal};
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
    let actor = Actor { user, field_manager: FIELD_MANAGER };
    let cluster = Arc::new(Here { service, actor, extenders: Extenders::default() });
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
    let named = |kind: &CoreKind| kind.resource == plural && kind.hub().group == group;
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
    actor: Actor,
    extenders: Extenders,
}

#[async_trait]
impl Cluster for Here {
    async fn act(&self, action: &Action) -> Result<(), Refusal> {
        let state = self.service.engine().snapshot();
        let request = request::of(action, &state.registry, &self.actor, String::new());
        let request = request.ok_or_else(|| Refusal { code: 404, ..Refusal::default() })?;
        self.service.act(request).await.map(drop).map_err(|refusal| Refusal::from(&refusal))
    }

    async fn extend(&self, extender: &Extender, verb: &str, body: &Value) -> Result<Value, String> {
        self.extenders.call(extender, verb, body).await
    }
}
