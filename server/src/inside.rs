//! The feed and the actor of components in the server's own process. The feed reads the log's commits, and the actor
//! passes actions to the service.

use async_trait::async_trait;
use futures_util::future::select_all;
use holdfast_core::event::Offset;
use holdfast_core::kinds::{Kind, KindId, Registry};
use holdfast_core::object::{Body, meta};
use holdfast_core::state::{Change, State};
use holdfast_engine::{Engine, Tap, TapOutput};
use holdfast_runtime::remote::{fault, refusal};
use holdfast_runtime::{Act, ActionDone, Clock, Feed, News, heavy};
use holdfast_service::{Call, Reply, Service};
use holdfast_transport_http::{Transport, memory};
use holdfast_value::Value;
use holdfast_world::request::{self, Actor};
use holdfast_world::{Action, ExtraKinds, Key, Refusal, Resource, Stamp, Time, Verb, WriteResult};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, Weak};

/// The maximum number of bytes of a response that is read.
const ANSWER_BYTES_MAX: usize = 32 << 20;

/// All commits after a snapshot. The objects are shared with the state, and each object is parsed once.
pub struct InsideFeed {
    engine: Arc<Engine>,
    /// Resources that are watched by name, in the version named.
    named: Vec<Resource>,
    /// Other resources that are watched, by metadata only.
    extra_kinds: ExtraKinds,
    /// Whether `shown` was computed after the last change of `extra_kinds`.
    is_shown: bool,
    /// One tap for each engine, which receives the engine's commits; the main engine's tap comes first. The list is
    /// empty until the news is first read.
    taps: Vec<Tap>,
    shown: BTreeMap<Resource, Shown>,
    by_kind: HashMap<KindId, Resource>,
    /// The revision of the registry from which `shown` was made.
    revision: u64,
}

/// The form in which the objects of a resource are reported.
#[derive(Clone, Copy)]
struct Shown {
    kind: KindId,
    /// The version of the objects; `None` means the stored version, because only their metadata is read.
    version: Option<usize>,
    /// Changes up to this version were already reported.
    since: u64,
}

impl InsideFeed {
    pub fn new(engine: Arc<Engine>, named: Vec<Resource>, extra_kinds: ExtraKinds) -> InsideFeed {
        let (shown, by_kind) = (BTreeMap::new(), HashMap::new());
        InsideFeed { engine, named, extra_kinds, is_shown: true, taps: Vec::new(), shown, by_kind, revision: 0 }
    }

    /// Starts at a new snapshot, and returns news of all objects.
    fn begin(&mut self) -> Vec<News> {
        self.taps = self.engine.all().map(|engine| Tap::new(engine)).collect();
        // The taps deliver again some changes that the snapshot already has; such changes are skipped by version.
        let begin = self.engine.snapshot();
        let mut news = self.compare(&begin);
        let known: Vec<Resource> = self.shown.keys().cloned().collect();
        news.retain(|news| matches!(news, News::Dropped(_) | News::Served(_)));
        news.extend(known.iter().filter_map(|resource| self.all_of(&begin, resource)));
        // The objects of a kind in another log were reported with the version of that log, so this news concerns only
        // the main log.
        news.extend(self.reached(&self.engine, begin.offset));
        news.push(News::Complete);
        news
    }

    /// News of resources that appeared or disappeared with custom resource definitions.
    fn compare(&mut self, state: &State) -> Vec<News> {
        let registry = &state.registry;
        (self.revision, self.is_shown) = (registry.revision(), true);
        let mut wanted = wanted(registry, &self.named, &self.extra_kinds);
        let mut news = Vec::new();
        if !self.extra_kinds.is_none() {
            news.push(News::Served(request::served(registry)));
        }
        for (resource, shown) in std::mem::take(&mut self.shown) {
            match wanted.get_mut(&resource) {
                Some(wanted) => wanted.since = shown.since,
                None => news.push(News::Dropped(resource)),
            }
        }
        let is_new = |(resource, shown): (&Resource, &Shown)| (shown.since == 0).then(|| resource.clone());
        let new: Vec<Resource> = wanted.iter().filter_map(is_new).collect();
        self.by_kind = wanted.iter().map(|(resource, shown)| (shown.kind, resource.clone())).collect();
        self.shown = wanted;
        news.extend(new.iter().filter_map(|resource| self.all_of(state, resource)));
        news
    }

    /// News of all objects of a resource.
    fn all_of(&mut self, state: &State, resource: &Resource) -> Option<News> {
        let shown = self.shown.get_mut(resource)?;
        // The version is at least 1, because 0 means that the resource is not shown yet. The bootstrap has committed
        // events by now, so no event is skipped.
        let version = state.offset_of(shown.kind).0;
        shown.since = version.max(1);
        let (kind, shown) = (state.kind(shown.kind), *shown);
        let object = |(key, entry): (&Arc<str>, &Arc<holdfast_core::state::Entry>)| {
            (key_of(key), body_of(entry, kind, shown.version), entry.offset.0)
        };
        let objects = state.scan(shown.kind, "", None).map(object).collect();
        Some(News::Replaced { resource: resource.clone(), objects, version })
    }

    /// The news that all changes of one log up to a version were reported.
    fn reached(&self, engine: &Arc<Engine>, through: Offset) -> Vec<News> {
        if !self.engine.is_divided() {
            return vec![News::ReachedAll(through.0)];
        }
        let of_it = self.shown.iter().filter(|(_, shown)| Arc::ptr_eq(self.engine.of(shown.kind), engine));
        of_it.map(|(resource, _)| News::Reached(resource.clone(), through.0)).collect()
    }

    fn changed(&self, registry: &Registry, change: &Change) -> Option<News> {
        let kind = registry.get(change.kind);
        let resource = match self.by_kind.get(&change.kind) {
            Some(resource) => resource,
            // The change belongs to an old definition of the kind. The objects now belong to the definition that
            // replaced the old one.
            None if !registry.serves(change.kind) => self.shown.keys().find(|resource| is_of(resource, kind))?,
            None => return None,
        };
        let shown = self.shown.get(resource)?;
        let body = (!change.deleted).then(|| body_of(&change.entry, kind, shown.version));
        let version = change.offset.0;
        let news = News::Changed { resource: resource.clone(), key: key_of(&change.key), body, version };
        (version > shown.since).then_some(news)
    }
}

#[async_trait]
impl Feed for InsideFeed {
    async fn next(&mut self) -> Vec<News> {
        if self.taps.is_empty() {
            return heavy(|| self.begin());
        }
        if !self.is_shown {
            return self.compare(&self.engine.snapshot());
        }
        let (drawn, nth, _) = select_all(self.taps.iter_mut().map(|tap| Box::pin(tap.next()))).await;
        match drawn {
            TapOutput::Behind => heavy(|| self.begin()),
            TapOutput::Changes { changes, through, registry } => {
                // Only the main engine's registry has all kinds.
                let registry = if nth == 0 { registry } else { self.engine.own_snapshot().registry.clone() };
                let mut news = Vec::with_capacity(changes.len() + 1);
                if registry.revision() != self.revision {
                    // `compare` reads the objects of new resources from a newer state. The tap delivers the older
                    // changes of these objects once more, and `changed` skips them by version.
                    news.extend(self.compare(&self.engine.snapshot()));
                }
                news.extend(changes.iter().filter_map(|change| self.changed(&registry, change)));
                news.extend(
                    self.engine.all().nth(nth).map(|engine| self.reached(engine, through)).into_iter().flatten(),
                );
                news
            }
        }
    }

    fn set_extra_kinds(&mut self, extra_kinds: ExtraKinds) {
        if self.extra_kinds != extra_kinds {
            (self.extra_kinds, self.is_shown) = (extra_kinds, false);
        }
    }
}

/// The resources to show, among the resources that the registry serves.
fn wanted(registry: &Registry, named: &[Resource], extra_kinds: &ExtraKinds) -> BTreeMap<Resource, Shown> {
    let mut wanted = BTreeMap::new();
    let mut taken = Vec::new();
    for resource in named {
        if let Some((kind, version)) = registry.find(resource.group(), resource.version(), resource.plural()) {
            wanted.insert(resource.clone(), Shown { kind, version: Some(version), since: 0 });
            taken.push(kind);
        }
    }
    // Objects that expire, such as Events, are left out: they own nothing, and nothing owns them for long.
    let is_seen =
        |kind: &Kind| kind.stored && !kind.deletion.expires && extra_kinds.covers(&kind.hub().group, &kind.kind);
    let others = registry.iter().filter(|(id, kind)| is_seen(kind) && !taken.contains(id));
    wanted.extend(others.map(|(kind, of)| (request::resource_of(of), Shown { kind, version: None, since: 0 })));
    wanted
}

fn is_of(resource: &Resource, kind: &Kind) -> bool {
    resource.group() == kind.hub().group && resource.plural() == kind.resource
}

fn key_of(key: &str) -> Key {
    let (namespace, name) = meta::split_key(key);
    Key::new(namespace.unwrap_or_default(), name)
}

fn body_of(entry: &holdfast_core::state::Entry, kind: &Kind, version: Option<usize>) -> Body {
    match version.filter(|version| *version < kind.versions.len()) {
        Some(version) => entry.body_in(kind, version),
        None => entry.body().clone(),
    }
}

/// Carries out actions through the service, which authorizes the actor like any user.
pub struct InsideAct {
    transport: Weak<Transport>,
}

impl InsideAct {
    pub fn new(transport: &Arc<Transport>) -> InsideAct {
        InsideAct { transport: Arc::downgrade(transport) }
    }

    fn transport(&self) -> Result<Arc<Transport>, Refusal> {
        let gone = || Refusal { reason: "ServiceUnavailable".into(), ..Refusal::default() };
        self.transport.upgrade().ok_or_else(gone)
    }

    fn service(&self) -> Result<Arc<Service>, Refusal> {
        Ok(self.transport()?.service().clone())
    }
}

#[async_trait]
impl Act for InsideAct {
    async fn act(&self, actor: &Actor, action: &Action) -> Result<ActionDone, Refusal> {
        let service = self.service()?;
        let engine = service.engine();
        let snapshot = engine.snapshot();
        for (resource, key, uid) in &action.absent {
            let found = request::find(&snapshot, resource, key);
            if found.is_some_and(|(_, entry)| named(&entry.json()).uid == **uid) {
                return Err(Refusal::stale(format!("{resource} {key} is there")));
            }
        }
        let id = engine.stamp().uid(u64::MAX);
        let request = request::of(action, &snapshot.registry, actor, id);
        let request = request.ok_or_else(|| Refusal::from(&holdfast_core::Refusal::NoSuchPath))?;
        drop(snapshot);
        let reply = engine.expect(service.act(request)).await.map_err(|refusal| Refusal::from(&refusal))?;
        let result = match &reply {
            Reply::Object(shown) => WriteResult::Version(shown.entry.offset.0),
            Reply::Deleted { uid, .. } => WriteResult::Gone(uid.as_str().into()),
            _ => WriteResult::Nothing,
        };
        let name = match &reply {
            Reply::Object(shown) if action.key.name.is_empty() => named(&shown.entry.json()).name,
            _ => action.key.name.to_string(),
        };
        let bytes = match &reply {
            Reply::Object(shown) => shown.entry.body().len(),
            _ => 0,
        };
        Ok(ActionDone { name, result, bytes })
    }

    async fn get(&self, actor: &Actor, path: &str) -> Result<Value, Refusal> {
        // The whole API can be read, including the parts that other servers serve.
        let answer = memory::get(self.transport()?, actor.user.clone(), path, ANSWER_BYTES_MAX).await.map_err(fault)?;
        match answer.status().is_success() {
            true => serde_json::from_slice(answer.body()).map_err(fault),
            false => Err(refusal(answer.status(), answer.body())),
        }
    }

    async fn review(&self, actor: &Actor, review: &Value) -> Result<Value, Refusal> {
        let service = self.service()?;
        let engine = service.engine();
        let action = Action::new(&REVIEWS, Key::cluster(""), Verb::Create(review.clone()));
        let no_such_path = || Refusal::from(&holdfast_core::Refusal::NoSuchPath);
        let id = engine.stamp().uid(u64::MAX);
        let request = request::of(&action, &engine.snapshot().registry, actor, id).ok_or_else(no_such_path)?;
        match service.call(Call::own(request)).await.reply.map_err(|refusal| Refusal::from(&refusal))? {
            Reply::Document { document, .. } => Ok(Value::Object(document)),
            _ => Err(no_such_path()),
        }
    }
}

/// The resource of SubjectAccessReviews.
static REVIEWS: LazyLock<Resource> =
    LazyLock::new(|| Resource::new("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", false));

/// An object's name and UID.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ObjectName {
    name: String,
    uid: String,
}

fn named(json: &[u8]) -> ObjectName {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Object {
        metadata: ObjectName,
    }
    serde_json::from_slice::<Object>(json).unwrap_or_default().metadata
}

/// The clock of the engine, as components use it.
pub struct InsideClock(pub Arc<Engine>);

impl Clock for InsideClock {
    fn stamp(&self) -> Stamp {
        let stamp = self.0.stamp();
        Stamp { time: Time(stamp.time), seed: stamp.seed }
    }
}
