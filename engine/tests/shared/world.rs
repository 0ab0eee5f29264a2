//! Two engines on one log, and clients of both engines. The log is sometimes late, silent or unreachable. One seed
//! determines the whole run, which uses one thread.
//!
//! Linearizability is checked against the shared log, whose order is the real order of the events. For each request the
//! test notes the log's last offset when the request was sent and when it was answered. The answer must agree with the
//! state at one of the offsets between the two.

use super::model::{Dice, Seen, SharedLog, Store};
use super::stage::{Stage, create, delete, patch, poll, selection};
use holdfast_core::Refusal;
use holdfast_core::event::{Offset, Record};
use holdfast_core::list::Freshness;
use holdfast_core::request::Request;
use holdfast_engine::{Hub, Log, Reply, Watch, WatchStart, load};
use holdfast_value::json;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Poll;

const SERVERS: usize = 2;
const CLIENTS: usize = 6;
const STEPS: usize = 400;

/// The answer that a client got. It has the numbers that the checks compare with the log.
enum Told {
    /// The answer to a write that was carried out: the object's version, if the answer has one.
    Done(Option<u64>),
    /// The answer to a read: the version of the object.
    Found(u64),
    /// The answer to a list: its version, and the versions of the objects.
    Listed(u64, Vec<u64>),
    Absent,
    Exists,
    Conflict,
    /// The write is refused for a reason that no other variant has, such as a claim that another object holds.
    Refused,
    /// The server answered that the request was not carried out.
    Unavailable,
    /// The server answered that it does not know whether the request was carried out.
    Unknown,
}

struct Asked {
    id: String,
    /// The object's resource and key, as the log has them.
    place: (&'static str, String),
    /// The version that the object must have, if the client's write names one.
    fixed: Option<u64>,
    /// The last offset of the log when the request was sent.
    begin: u64,
    future: Pin<Box<dyn Future<Output = Told>>>,
}

struct World {
    dice: Dice,
    store: Arc<Mutex<Store>>,
    stages: Vec<Stage>,
    watches: Vec<(Watch, Vec<(u64, String)>)>,
    clients: Vec<Option<(usize, Asked)>>,
    asked: u64,
    /// How many events of each request the log must have, at least and at most, according to the answers.
    counts: BTreeMap<String, (usize, usize)>,
}

/// Runs one seed. Returns the first mistake, if there was one, and the counts of the run.
pub fn run(seed: u64) -> (Result<(), String>, Seen) {
    let _time = timeless().enter();
    let store = Store::new(seed, SERVERS);
    let log = |server| -> Arc<dyn Log> { Arc::new(SharedLog { store: store.clone(), server }) };
    let mut stages = vec![Stage::new(log(0))];
    stages.extend((1..SERVERS).map(|server| Stage::on(log(server), Hub::with_queues(8))));
    let mut world = World {
        dice: Dice::new(seed ^ 0x5eed),
        store: store.clone(),
        stages,
        watches: Vec::new(),
        clients: (0..CLIENTS).map(|_| None).collect(),
        asked: 0,
        counts: BTreeMap::new(),
    };
    let outcome = world.live();
    drop(world);
    let seen = store.lock().unwrap().seen;
    (outcome, seen)
}

/// A runtime for futures with a timeout. The timeouts never end, because its clock never advances.
fn timeless() -> &'static tokio::runtime::Runtime {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap())
}

impl World {
    fn live(&mut self) -> Result<(), String> {
        for stage in &self.stages {
            let state = stage.engine.snapshot();
            let start = WatchStart::After(state.offset);
            self.watches.push((stage.engine.watch(selection(&state, "configmaps", "", "", ""), start), Vec::new()));
        }
        self.store.lock().unwrap().calm = false;
        for _ in 0..STEPS {
            self.step()?;
        }
        self.rest()?;
        self.check_log()
    }

    fn step(&mut self) -> Result<(), String> {
        let server = self.dice.below(SERVERS as u64) as usize;
        match self.dice.below(12) {
            0..=4 => self.ask(server),
            5 | 6 => self.stages[server].commit(),
            7 => {
                let wake = self.store.lock().unwrap().show(server, false);
                wake.into_iter().for_each(|wake| wake());
                self.stages[server].writer.follow();
            }
            8 => self.stages[server].writer.look_after_log(),
            9 => self.store.lock().unwrap().deliver_late(),
            10 if self.dice.one_in(4) => {
                let cut_off = self.dice.one_in(2);
                self.store.lock().unwrap().cut(server, cut_off);
            }
            _ => self.read_watches()?,
        }
        self.answer()
    }

    /// Ends all faults of the store, and waits until every request is answered.
    fn rest(&mut self) -> Result<(), String> {
        self.store.lock().unwrap().calm = true;
        for _ in 0..40 {
            for server in 0..SERVERS {
                let wake = {
                    let mut store = self.store.lock().unwrap();
                    store.cut(server, false);
                    store.show(server, true)
                };
                wake.into_iter().for_each(|wake| wake());
                self.stages[server].commit();
                self.stages[server].writer.look_after_log();
            }
            self.answer()?;
            self.read_watches()?;
        }
        match self.clients.iter().flatten().next() {
            Some((_, asked)) => Err(format!("{} is never answered", asked.id)),
            None => Ok(()),
        }
    }

    fn ask(&mut self, server: usize) {
        let Some(free) = self.clients.iter().position(Option::is_none) else { return };
        self.asked += 1;
        let id = format!("request-{}", self.asked);
        let name = format!("m{}", self.dice.below(4));
        let engine = self.stages[server].engine.clone();
        let data = json!({"k": id});
        let write = |mut request: Request, fixed: Option<u64>, resource: &'static str, key: String| {
            request.id = id.clone();
            let engine = engine.clone();
            let future: Pin<Box<dyn Future<Output = Told>>> =
                Box::pin(async move { told(engine.mutate(&request).await) });
            (future, fixed, (resource, key))
        };
        let key = format!("default/{name}");
        let (future, fixed, place) = match self.dice.below(12) {
            0 | 1 => {
                let body = json!({"metadata": {"name": name}, "data": data});
                write(create("configmaps", "default", body), None, "configmaps", key)
            }
            2 | 3 => write(patch("configmaps", "default", &name, json!({"data": data})), None, "configmaps", key),
            4 => {
                let state = engine.snapshot();
                let kind = state.registry.by_storage("configmaps").unwrap();
                let version = state.get(kind, &key).map_or(1, |entry| entry.offset.0);
                let body = json!({"metadata": {"resourceVersion": version.to_string()}, "data": data});
                write(patch("configmaps", "default", &name, body), Some(version), "configmaps", key)
            }
            5 => write(delete("configmaps", "default", &name), None, "configmaps", key),
            6 => {
                let name = format!("s{}", self.dice.below(3));
                let address = format!("10.0.0.{}", 2 + self.dice.below(2));
                let spec = json!({"clusterIP": address, "ports": [{"port": 1}]});
                let body = json!({"metadata": {"name": name}, "spec": spec});
                write(create("services", "default", body), None, "services/specs", format!("default/{name}"))
            }
            7 => {
                let name = format!("s{}", self.dice.below(3));
                write(delete("services", "default", &name), None, "services/specs", format!("default/{name}"))
            }
            8 => {
                let future: Pin<Box<dyn Future<Output = Told>>> = Box::pin(async move {
                    match engine.view_for(Freshness::Newest, None).await {
                        Err(refusal) => refused(&refusal),
                        Ok(view) => {
                            let state = view.state();
                            let kind = state.registry.by_storage("configmaps").unwrap();
                            let versions = state.scan(kind, "", None).map(|(_, entry)| entry.offset.0).collect();
                            Told::Listed(state.offset.0, versions)
                        }
                    }
                });
                (future, None, ("configmaps", String::new()))
            }
            _ => {
                let wanted = key.clone();
                let future: Pin<Box<dyn Future<Output = Told>>> = Box::pin(async move {
                    match engine.view_for(Freshness::Newest, None).await {
                        Err(refusal) => refused(&refusal),
                        Ok(view) => {
                            let state = view.state();
                            let kind = state.registry.by_storage("configmaps").unwrap();
                            state.get(kind, &wanted).map_or(Told::Absent, |entry| Told::Found(entry.offset.0))
                        }
                    }
                });
                (future, None, ("configmaps", key))
            }
        };
        let begin = self.store.lock().unwrap().last();
        self.clients[free] = Some((server, Asked { id, place, fixed, begin, future }));
    }

    /// Takes the answers that are ready, and checks them.
    fn answer(&mut self) -> Result<(), String> {
        for client in 0..CLIENTS {
            let Some((server, asked)) = &mut self.clients[client] else { continue };
            let Poll::Ready(told) = poll(&mut asked.future) else { continue };
            let server = *server;
            let Some((_, asked)) = self.clients[client].take() else { continue };
            self.judge(&asked, told, server)?;
        }
        Ok(())
    }

    fn judge(&mut self, asked: &Asked, told: Told, server: usize) -> Result<(), String> {
        let store = self.store.lock().unwrap();
        let (begin, end) = (asked.begin, store.last());
        let events: Vec<&Record> = store.events().collect();
        let own: Vec<u64> = events.iter().filter(|r| r.actor.request_id == asked.id).map(|r| r.offset).collect();
        let versions: Vec<&&Record> = events
            .iter()
            .filter(|record| (record.resource.as_str(), &record.key) == (asked.place.0, &asked.place.1))
            .collect();
        // The versions that the object had between the request and its answer; zero where it did not exist.
        let mut between: BTreeSet<u64> = BTreeSet::new();
        let mut now = 0;
        for record in &versions {
            if record.offset > begin {
                between.insert(now);
            }
            now = if record.is_delete() { 0 } else { record.offset };
        }
        between.insert(now);
        let wrong = |what: String| Err(format!("{} on {:?} at server {server}: {what}", asked.id, asked.place));
        let newest = self.stages[server].engine.snapshot().offset.0;
        let (mut least, mut most) = (0, 0);
        match &told {
            Told::Done(version) => {
                (least, most) = (1, usize::MAX);
                let Some(first) = own.first() else { return wrong("it is done, and there is no event".into()) };
                if *first <= begin {
                    return wrong(format!("it was done at {first}, before it was asked for at {begin}"));
                }
                if version.is_some_and(|version| !own.contains(&version)) {
                    return wrong(format!("its events are {own:?}, and {version:?} was told"));
                }
                if newest < *first {
                    return wrong(format!("it was told of {first}, and its server shows {newest}"));
                }
            }
            Told::Found(version) if !between.contains(version) => {
                return wrong(format!("{version} was shown, of {between:?} between {begin} and {end}"));
            }
            Told::Absent if !between.contains(&0) => {
                return wrong(format!("it is said not to be there, and was {between:?} between {begin} and {end}"));
            }
            Told::Exists if between.iter().all(|version| *version == 0) => {
                return wrong(format!("it is said to be there, and was not between {begin} and {end}"));
            }
            Told::Conflict if asked.fixed.is_none_or(|fixed| between.iter().all(|version| *version == fixed)) => {
                return wrong(format!("{:?} was not overtaken between {begin} and {end}", asked.fixed));
            }
            Told::Listed(version, found) => {
                if *version < begin || *version > end {
                    return wrong(format!("a list of {version}, between {begin} and {end}"));
                }
                let mut there = BTreeMap::new();
                let before = events.iter().filter(|r| r.resource == "configmaps" && r.offset <= *version);
                before.for_each(|record| {
                    let held = if record.is_delete() { 0 } else { record.offset };
                    there.insert(&record.key, held);
                });
                let expected: Vec<u64> = there.into_values().filter(|held| *held > 0).collect();
                if expected != *found {
                    return wrong(format!("the list of {version} has {found:?}, not {expected:?}"));
                }
            }
            Told::Unknown => most = usize::MAX,
            _ => {}
        }
        drop(store);
        self.counts.insert(asked.id.clone(), (least, most));
        Ok(())
    }

    fn read_watches(&mut self) -> Result<(), String> {
        for (server, (watch, told)) in self.watches.iter_mut().enumerate() {
            loop {
                match watch.next_ready() {
                    Ok(Some(delivery)) => {
                        let change = &delivery.event.change;
                        told.push((change.offset.0, change.key.to_string()));
                    }
                    Ok(None) => break,
                    Err(fault) => return Err(format!("the watch at server {server} ends: {fault}")),
                }
            }
        }
        Ok(())
    }

    /// Checks at the end that the log agrees with the answers, and that every server and watcher has all of its events
    /// once, in order.
    fn check_log(&self) -> Result<(), String> {
        let store = self.store.lock().unwrap();
        let events: Vec<Record> = store.events().cloned().collect();
        drop(store);
        for (id, (least, most)) in &self.counts {
            // A decision writes one event for each object, so two events on one object mean that it was carried out
            // twice.
            let mut places = BTreeMap::new();
            events
                .iter()
                .filter(|record| record.actor.request_id == *id)
                .for_each(|record| *places.entry((&record.resource, &record.key)).or_insert(0) += 1);
            let count: usize = places.values().sum();
            if count < *least || count > *most || places.values().any(|times| *times > 1) {
                return Err(format!("{id} has {count} events, of {least} to {most}: {places:?}"));
            }
        }
        let maps = events.iter().filter(|record| record.resource == "configmaps");
        let expected: Vec<(u64, String)> = maps.map(|record| (record.offset, record.key.clone())).collect();
        for (server, (_, told)) in self.watches.iter().enumerate() {
            if *told != expected {
                let first = told.iter().zip(&expected).position(|(one, other)| one != other);
                return Err(format!("the watch at server {server} was told otherwise, from place {first:?} on"));
            }
        }
        let mut holders: BTreeMap<String, String> = BTreeMap::new();
        for record in events.iter().filter(|record| record.resource == "services/specs") {
            holders.retain(|_, key| *key != record.key);
            let text = String::from_utf8_lossy(&record.object);
            let address = text.split("\"clusterIP\":\"").nth(1).and_then(|rest| rest.split('"').next());
            if let (false, Some(address)) = (record.is_delete(), address)
                && let Some(other) = holders.insert(address.to_owned(), record.key.clone())
            {
                return Err(format!("{address} is held by {other} and {}", record.key));
            }
        }
        let log = SharedLog { store: self.store.clone(), server: 0 };
        let registry = Arc::new(holdfast_core::kinds::registry().clone());
        let replayed = load(&log, registry).map_err(|fault| fault.to_string())?;
        for (server, stage) in self.stages.iter().enumerate() {
            let served = stage.engine.snapshot();
            if served.offset != replayed.offset
                || super::stage::everything(&served) != super::stage::everything(&replayed)
            {
                return Err(format!(
                    "server {server} serves another state at {} than the log tells at {}",
                    served.offset, replayed.offset
                ));
            }
            if served.offset > Offset(events.last().map_or(0, |last| last.offset)) {
                return Err(format!("server {server} is ahead of the log"));
            }
        }
        Ok(())
    }
}

fn told(outcome: Result<Reply, Refusal>) -> Told {
    match outcome {
        Ok(Reply::Object { entry, .. }) => Told::Done(Some(entry.offset.0)),
        Ok(_) => Told::Done(None),
        Err(refusal) => refused(&refusal),
    }
}

fn refused(refusal: &Refusal) -> Told {
    match refusal {
        Refusal::NotFound(_) => Told::Absent,
        Refusal::AlreadyExists { .. } => Told::Exists,
        Refusal::Conflict { .. } => Told::Conflict,
        Refusal::Unavailable(_) | Refusal::Timeout(_) => Told::Unavailable,
        Refusal::Internal(_) => Told::Unknown,
        _ => Told::Refused,
    }
}
