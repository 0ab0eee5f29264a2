//! The scheduler against an API server elsewhere: fed by watches, acting over HTTPS.

use async_trait::async_trait;
use holdfast_core::authz::User;
use holdfast_runtime::remote::{Connect, RemoteAct, RemoteFeed};
use holdfast_runtime::{Act, Feed, News};
use holdfast_scheduler::configuration::extender::Extender;
use holdfast_scheduler::object::KINDS;
use holdfast_scheduler::run::extend::Extenders;
use holdfast_scheduler::run::{Cluster, Fed};
use holdfast_scheduler::{Key, Kind};
use holdfast_world::{Action, Actor, Refusal, Resource};
use kube::Client;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc::{Receiver, channel};

/// Who the scheduler is to the API server, as far as it says so itself.
const USER: &str = "system:kube-scheduler";
const FIELD_MANAGER: &str = "kube-scheduler";
/// How many changes may wait for the scheduler before watches are read no further.
const CHANGES_MAX: usize = 4096;

/// The version in which a kind is looked at, and whether its objects are in namespaces.
fn form(kind: Kind) -> (&'static str, bool) {
    match kind {
        Kind::Node
        | Kind::Namespace
        | Kind::PersistentVolume
        | Kind::StorageClass
        | Kind::CsiNode
        | Kind::CsiDriver
        | Kind::VolumeAttachment
        | Kind::ResourceSlice
        | Kind::DeviceClass => ("v1", false),
        Kind::Workload => ("v1alpha1", true),
        _ => ("v1", true),
    }
}

/// Everything that the scheduler looks at; `synced` turns true when all that there was has been told.
pub fn feed(client: Client, synced: Arc<AtomicBool>) -> Receiver<Fed> {
    let (sender, receiver) = channel(CHANGES_MAX);
    let kinds: BTreeMap<Resource, Kind> = KINDS
        .iter()
        .map(|(kind, group, plural, name)| {
            let (version, namespaced) = form(*kind);
            (Resource::new(group, version, plural, name, namespaced), *kind)
        })
        .collect();
    tokio::spawn(async move {
        let mut feed = RemoteFeed::new(client, kinds.keys().cloned().collect(), false);
        let mut known: BTreeMap<Kind, BTreeSet<(String, String)>> = BTreeMap::new();
        loop {
            for news in feed.next().await {
                if matches!(news, News::Complete) {
                    synced.store(true, Ordering::Relaxed);
                }
                for fed in translate(news, &kinds, &mut known) {
                    if sender.send(fed).await.is_err() {
                        return;
                    }
                }
            }
        }
    });
    receiver
}

/// What is news to the scheduler. A list that takes the place of what was known tells of what is gone, too.
fn translate(
    news: News,
    kinds: &BTreeMap<Resource, Kind>,
    known: &mut BTreeMap<Kind, BTreeSet<(String, String)>>,
) -> Vec<Fed> {
    let pair = |key: &holdfast_world::Key| (key.namespace.to_string(), key.name.to_string());
    match news {
        News::Replaced { resource, objects, .. } => {
            let Some(kind) = kinds.get(&resource).copied() else { return Vec::new() };
            let there: BTreeSet<_> = objects.iter().map(|(key, ..)| pair(key)).collect();
            let before = std::mem::replace(known.entry(kind).or_default(), there.clone());
            let gone = before.into_iter().filter(|name| !there.contains(name));
            let mut fed: Vec<Fed> = gone.map(|name| Fed::Change(kind, key_of(&name), None)).collect();
            fed.extend(objects.into_iter().map(|(key, bytes, _)| Fed::Change(kind, key_of(&pair(&key)), Some(bytes))));
            fed
        }
        News::Changed { resource, key, bytes, .. } => {
            let Some(kind) = kinds.get(&resource).copied() else { return Vec::new() };
            let (name, known) = (pair(&key), known.entry(kind).or_default());
            match bytes {
                Some(_) => drop(known.insert(name.clone())),
                None => drop(known.remove(&name)),
            }
            vec![Fed::Change(kind, key_of(&name), bytes)]
        }
        News::Complete => vec![Fed::Complete],
        News::Dropped(_) | News::Reached(..) | News::ReachedAll(_) => Vec::new(),
    }
}

fn key_of((namespace, name): &(String, String)) -> Key {
    if namespace.is_empty() { Key::cluster(name) } else { Key::new(namespace, name) }
}

/// One client for everything.
struct One(Client);

#[async_trait]
impl Connect for One {
    async fn client(&self, _: &str, _: Option<&str>) -> Result<Client, String> {
        Ok(self.0.clone())
    }
}

/// The API server elsewhere.
pub struct There {
    act: RemoteAct,
    actor: Actor,
    extenders: Extenders,
}

impl There {
    pub fn new(client: Client) -> There {
        let act = RemoteAct::new(Arc::new(One(client.clone())), client, false);
        let user = Arc::new(User::new(USER, &[]));
        There { act, actor: Actor { user, field_manager: FIELD_MANAGER }, extenders: Extenders::default() }
    }
}

#[async_trait]
impl Cluster for There {
    async fn act(&self, action: &Action) -> Result<(), Refusal> {
        self.act.act(&self.actor, action).await.map(drop)
    }

    async fn extend(&self, extender: &Extender, verb: &str, body: &Value) -> Result<Value, String> {
        self.extenders.call(extender, verb, body).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn a_new_list_tells_what_is_gone() {
        let nodes = Resource::new("", "v1", "nodes", "Node", false);
        let kinds = BTreeMap::from([(nodes.clone(), Kind::Node)]);
        let mut known = BTreeMap::new();
        let key = |name: &str| holdfast_world::Key::new("", name);
        let list = |names: &[&str]| News::Replaced {
            resource: nodes.clone(),
            objects: names.iter().map(|name| (key(name), Bytes::from_static(b"{}"), 1)).collect(),
            version: 1,
        };
        let shown = |fed: Vec<Fed>| {
            let one = |fed: Fed| match fed {
                Fed::Change(_, key, bytes) => format!("{}{}", if bytes.is_some() { '+' } else { '-' }, key.name),
                Fed::Complete => "complete".into(),
            };
            fed.into_iter().map(one).collect::<Vec<String>>()
        };
        assert_eq!(shown(translate(list(&["a", "b"]), &kinds, &mut known)), ["+a", "+b"]);
        let gone = News::Changed { resource: nodes.clone(), key: key("a"), bytes: None, version: 2 };
        assert_eq!(shown(translate(gone, &kinds, &mut known)), ["-a"]);
        assert_eq!(shown(translate(list(&["c"]), &kinds, &mut known)), ["-b", "+c"]);
        assert_eq!(shown(translate(News::Complete, &kinds, &mut known)), ["complete"]);
    }
}
