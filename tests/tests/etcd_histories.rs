//! Three servers on three members of etcd with clients at all of them, while servers and members are killed, paused and
//! cut off from each other, and no two servers' clocks agree: the answers must be linearizable, watches must keep their
//! guarantees, and no acknowledged write may be lost.
//!
//! `ROUNDS=200` plays more rounds, and `SEED=N` starts with another seed.

use futures_util::{StreamExt, pin_mut};
use holdfast_tests::etcd::{Cluster, Proxy};
use holdfast_tests::histories::linearizable::{self, RegisterAnswer, RegisterCall, RegisterOperation};
use holdfast_tests::histories::watches::{self, Event, Is, Shown, WatchRun};
use holdfast_tests::{Folder, Server, clock};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, PostParams, WatchEvent, WatchParams};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const SERVERS: usize = 3;
const MEMBERS: usize = 3;
const CLIENTS: usize = 6;
const KEYS: usize = 3;
/// How long clients work in one round.
const ROUND: Duration = Duration::from_secs(3);
/// The maximum number of seconds by which the clock of a server is wrong.
const CLOCK_ERROR: i64 = 300;
/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long servers may take to recover after the last disturbance.
const RECOVERY_MAX: Duration = Duration::from_secs(60);

fn number(name: &str, usually: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usually)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_clients_are_told_is_what_one_store_could_have_told() {
    let mut world = World::start();
    let seed = number("SEED", 1);
    for round in seed..seed + number("ROUNDS", 10) {
        world.play(round).await;
    }
}

/// All running programs.
struct World {
    etcd: Cluster,
    /// The proxies from each server to each member, by server and member.
    ways: Vec<Vec<Proxy>>,
    /// The servers by position; `None` while a server is killed.
    servers: Vec<Option<Server>>,
    folders: Vec<Folder>,
    values: Arc<AtomicU64>,
}

/// The requests, answers and watches of one round.
#[derive(Default)]
struct History {
    /// The operations on each object, by its name.
    operations: Mutex<BTreeMap<String, Vec<RegisterOperation>>>,
    watches: Mutex<Vec<WatchRun>>,
}

impl World {
    fn start() -> World {
        let mut etcd = Cluster::partitionable(MEMBERS);
        let ports: Vec<u16> = etcd.members().iter().map(|member| member.port()).collect();
        let ways = (0..SERVERS).map(|_| ports.iter().map(|port| Proxy::to(*port)).collect()).collect();
        let folders: Vec<Folder> = (0..SERVERS).map(|_| Folder::new()).collect();
        let mut world = World { etcd, ways, servers: Vec::new(), folders, values: Arc::default() };
        for at in 0..SERVERS {
            let server = world.spawn(at, 0);
            world.servers.push(Some(server));
        }
        world
    }

    /// Starts a server. The lists of etcd's members begin with a different member for each server, so that the servers
    /// use different members.
    fn spawn(&self, at: usize, clock_ahead: i64) -> Server {
        let mut urls: Vec<String> = self.ways[at].iter().map(Proxy::url).collect();
        urls.rotate_left(at);
        let mut command = Server::command(self.folders[at].path(), &[&format!("--etcd-servers={}", urls.join(","))]);
        clock::shift(&mut command, clock_ahead);
        Server::spawn(command).unwrap_or_else(|refused| panic!("the server ended:\n{}", refused.stderr))
    }

    async fn api(&self, at: usize) -> Option<Api<ConfigMap>> {
        let server = self.servers[at].as_ref()?;
        Some(Api::namespaced(server.client().await, "default"))
    }

    async fn play(&mut self, round: u64) {
        let mut random = StdRng::seed_from_u64(round);
        let prefix = format!("r{round}-");
        let history = Arc::new(History::default());
        let (began, over) = (Instant::now(), Arc::new(AtomicBool::new(false)));
        let start = self.newest_version().await;
        let mut clients = Vec::new();
        for client in 0..CLIENTS {
            let api = self.api(client % SERVERS).await.expect("a server that runs");
            let (history, values, over) = (history.clone(), self.values.clone(), over.clone());
            let (prefix, seed) = (prefix.clone(), random.random());
            clients.push(tokio::spawn(ask(api, client, prefix, seed, began, history, values, over)));
        }
        for at in 0..SERVERS {
            let api = self.api(at).await.expect("a server that runs");
            let (history, over, prefix) = (history.clone(), over.clone(), prefix.clone());
            clients.push(tokio::spawn(watch(api, format!("round {round}, server {at}"), prefix, start, history, over)));
        }
        self.disturb(&mut random, began + ROUND).await;
        over.store(true, Ordering::SeqCst);
        for client in clients {
            client.await.expect("a client");
        }
        self.recover(&mut random).await;
        self.read_all(&prefix, began, &history).await;
        self.judge(round, start, &prefix, &history);
    }

    /// Kills, pauses and cuts off programs until the given time. After that all programs run and reach each other,
    /// except for killed servers. A cut may last while other programs are killed and paused.
    async fn disturb(&mut self, random: &mut StdRng, until: Instant) {
        while Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(random.random_range(100..500))).await;
            let at = random.random_range(0..SERVERS);
            let while_it_lasts = Duration::from_millis(random.random_range(50..1200));
            match random.random_range(0..8) {
                0 => {
                    self.etcd.member(at).kill();
                    tokio::time::sleep(while_it_lasts).await;
                    self.etcd.member(at).restart();
                }
                1 => {
                    self.etcd.member(at).pause();
                    tokio::time::sleep(while_it_lasts).await;
                    self.etcd.member(at).resume();
                }
                2 => {
                    if let Some(server) = &self.servers[at] {
                        server.signal("STOP");
                        tokio::time::sleep(while_it_lasts).await;
                        server.signal("CONT");
                    }
                }
                3 => {
                    // At least one server is left for the round's clients.
                    if self.servers.iter().flatten().count() > 1
                        && let Some(server) = self.servers[at].take()
                    {
                        server.kill();
                    }
                }
                way => {
                    self.heal();
                    let closes = random.random_ratio(1, 2);
                    let cut = |proxy: &Proxy| if closes { proxy.close() } else { proxy.silence() };
                    match way {
                        4 => self.ways[at].iter().for_each(cut),
                        5 => cut(&self.ways[at][random.random_range(0..MEMBERS)]),
                        6 => self.etcd.cut_off(at),
                        _ => {
                            self.etcd.cut_off(at);
                            self.ways.iter().for_each(|ways| cut(&ways[at]));
                        }
                    }
                    tokio::time::sleep(while_it_lasts).await;
                    if random.random_ratio(1, 2) {
                        self.heal();
                    }
                }
            }
        }
        self.heal();
    }

    /// Ends all cuts between programs.
    fn heal(&self) {
        self.etcd.heal();
        self.ways.iter().flatten().for_each(Proxy::heal);
    }

    /// Starts the killed servers, with other clocks than before, and waits until all answer.
    async fn recover(&mut self, random: &mut StdRng) {
        for at in 0..MEMBERS {
            self.etcd.await_ready(at);
        }
        for at in 0..SERVERS {
            if self.servers[at].is_none() {
                self.servers[at] = Some(self.spawn(at, random.random_range(-CLOCK_ERROR..=CLOCK_ERROR)));
            }
            let api = self.api(at).await.expect("a server that runs");
            holdfast_tests::eventually(RECOVERY_MAX, async || api.get_opt("no-such-object").await.map(drop)).await;
        }
    }

    /// Reads all objects from each server at the end.
    async fn read_all(&self, prefix: &str, began: Instant, history: &History) {
        for at in 0..SERVERS {
            let api = self.api(at).await.expect("a server that runs");
            for key in 0..KEYS {
                let name = format!("{prefix}{key}");
                // The first read may fail, because an etcd that has just elected a leader may refuse a read.
                let (called, told) = holdfast_tests::eventually(RECOVERY_MAX, async || {
                    let called = began.elapsed().as_nanos() as u64;
                    let answer = api.get(&name).await;
                    let why = answer.as_ref().err().map(ToString::to_string);
                    told(answer).map(|told| (called, told)).ok_or_else(|| format!("server {at}: {why:?}"))
                })
                .await;
                let answered = Some(began.elapsed().as_nanos() as u64);
                note(
                    history,
                    &name,
                    RegisterOperation { client: CLIENTS + at, called, answered, asked: RegisterCall::Get, told },
                );
            }
        }
    }

    fn judge(&self, round: u64, start: u64, prefix: &str, history: &History) {
        let operations = history.operations.lock().expect("a history");
        let count: usize = operations.values().map(Vec::len).sum();
        let unknown = operations.values().flatten().filter(|operation| operation.answered.is_none()).count();
        for (name, operations) in operations.iter() {
            if let Err(violation) = linearizable::judge(operations) {
                panic!("round {round}, {name}: {violation}");
            }
        }
        let truth = self.truth(start, prefix);
        let watches = history.watches.lock().expect("a history");
        let shown: usize = watches.iter().map(|watch| watch.shown.len()).sum();
        let violations = watches::judge(&truth, &watches);
        assert!(violations.is_empty(), "round {round}: {violations:#?}");
        println!(
            "round {round}: {count} operations, {unknown} without an answer, {} events, {shown} shown by {} watches",
            truth.len(),
            watches.len()
        );
        assert!(count > 3 * KEYS && !truth.is_empty(), "nothing happened in round {round}");
    }

    async fn newest_version(&self) -> u64 {
        let api = self.api(0).await.expect("a server that runs");
        let list = holdfast_tests::eventually(RECOVERY_MAX, async || api.list(&Default::default()).await).await;
        list.metadata.resource_version.and_then(|version| version.parse().ok()).expect("a version")
    }

    /// All events that etcd has, on objects with this prefix.
    fn truth(&self, start: u64, prefix: &str) -> Vec<Event> {
        let below = format!("/registry/configmaps/default/{prefix}");
        let mut truth = Vec::new();
        for event in self.etcd.events(&below, start + 1) {
            let key = event.key.strip_prefix("/registry/configmaps/").expect("a key below the prefix").to_owned();
            let is = match (event.is_delete, event.is_create) {
                (true, _) => Is::Deleted,
                (false, true) => Is::Added,
                (false, false) => Is::Modified,
            };
            truth.push(Event { is, key, version: event.revision, value: value_in(&event.value) });
        }
        truth
    }
}

/// Values are written as `value-N.`, so that they can be found in any storage format.
fn text_of(value: u64) -> String {
    format!("value-{value}.")
}

fn value_in(stored: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(stored);
    let (_, rest) = text.split_once("value-").expect("a value");
    rest.split_once('.').and_then(|(number, _)| number.parse().ok()).expect("a number")
}

fn value_of(map: &ConfigMap) -> u64 {
    let text = map.data.as_ref().and_then(|data| data.get("v")).expect("a value");
    value_in(text.as_bytes())
}

fn version_of(map: &ConfigMap) -> u64 {
    map.metadata.resource_version.as_ref().and_then(|version| version.parse().ok()).expect("a version")
}

fn map(name: &str, value: u64, replaces: Option<u64>) -> ConfigMap {
    let mut map = ConfigMap { data: Some([("v".to_owned(), text_of(value))].into()), ..ConfigMap::default() };
    map.metadata.name = Some(name.to_owned());
    map.metadata.resource_version = replaces.map(|version| version.to_string());
    map
}

/// The content of an answer; `None` if it does not show the outcome of the request.
fn told(answer: kube::Result<ConfigMap>) -> Option<RegisterAnswer> {
    match answer {
        Ok(map) => Some(RegisterAnswer::Is { version: version_of(&map), value: value_of(&map) }),
        Err(kube::Error::Api(status)) => match (status.code, status.reason.as_str()) {
            (404, _) => Some(RegisterAnswer::NotFound),
            (409, "AlreadyExists") => Some(RegisterAnswer::AlreadyExists),
            (409, _) => Some(RegisterAnswer::Conflict),
            _ => None,
        },
        Err(_) => None,
    }
}

fn note(history: &History, name: &str, operation: RegisterOperation) {
    history.operations.lock().expect("a history").entry(name.to_owned()).or_default().push(operation);
}

#[expect(clippy::too_many_arguments, reason = "a client is told all of its round at once")]
async fn ask(
    api: Api<ConfigMap>,
    client: usize,
    prefix: String,
    seed: u64,
    began: Instant,
    history: Arc<History>,
    values: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    while !over.load(Ordering::SeqCst) {
        let name = format!("{prefix}{}", random.random_range(0..KEYS));
        let value = values.fetch_add(1, Ordering::SeqCst);
        let replaces = seen.get(&name).copied();
        let asked = match (random.random_range(0..10), replaces) {
            (0..4, _) | (6..9, None) => RegisterCall::Get,
            (4 | 5, _) => RegisterCall::Create(value),
            (6..9, replaces) => RegisterCall::Update { replaces, value },
            _ => RegisterCall::Delete { replaces: None },
        };
        let called = began.elapsed().as_nanos() as u64;
        let answer = async {
            match asked {
                RegisterCall::Get => told(api.get(&name).await),
                RegisterCall::Create(value) => told(api.create(&PostParams::default(), &map(&name, value, None)).await),
                RegisterCall::Update { replaces, value } => {
                    told(api.replace(&name, &PostParams::default(), &map(&name, value, replaces)).await)
                }
                RegisterCall::Delete { .. } => match api.delete(&name, &DeleteParams::default()).await {
                    Ok(_) => Some(RegisterAnswer::Deleted),
                    Err(error) => told(Err(error)),
                },
            }
        };
        let told = tokio::time::timeout(PATIENCE, answer).await.ok().flatten();
        let answered = told.is_some().then(|| began.elapsed().as_nanos() as u64);
        match told {
            Some(RegisterAnswer::Is { version, .. }) => drop(seen.insert(name.clone(), version)),
            // A client that gets another answer, such as a conflict, keeps its stale version half of the time, so that
            // writes with stale versions are tried, too.
            Some(_) if random.random_ratio(1, 2) => drop(seen.remove(&name)),
            Some(_) => {}
            // A killed server refuses connections at once, so wait before the next attempt.
            None => tokio::time::sleep(Duration::from_millis(50)).await,
        }
        note(
            &history,
            &name,
            RegisterOperation { client, called, answered, asked, told: told.unwrap_or(RegisterAnswer::Nothing) },
        );
    }
}

/// Watches, and resumes when the watch ends.
async fn watch(
    api: Api<ConfigMap>,
    name: String,
    prefix: String,
    start: u64,
    history: Arc<History>,
    over: Arc<AtomicBool>,
) {
    let mut from = start;
    while !over.load(Ordering::SeqCst) {
        let params = WatchParams::default().timeout(20);
        let began = tokio::time::timeout(PATIENCE, api.watch(&params, &from.to_string())).await;
        let mut shown = Vec::new();
        let resumed = from;
        if let Ok(Ok(stream)) = began {
            pin_mut!(stream);
            while !over.load(Ordering::SeqCst) {
                let next = match tokio::time::timeout(Duration::from_millis(200), stream.next()).await {
                    Ok(Some(Ok(next))) => next,
                    Err(_) => continue,
                    Ok(_) => break,
                };
                let (is, map) = match next {
                    WatchEvent::Added(map) => (Is::Added, map),
                    WatchEvent::Modified(map) => (Is::Modified, map),
                    WatchEvent::Deleted(map) => (Is::Deleted, map),
                    WatchEvent::Bookmark(bookmark) => {
                        from = bookmark.metadata.resource_version.parse().expect("a version");
                        shown.push(Shown::Bookmark(from));
                        continue;
                    }
                    WatchEvent::Error(_) => break,
                };
                from = version_of(&map);
                let own = map.metadata.name.as_deref().unwrap_or_default();
                if own.starts_with(&prefix) {
                    let key = format!("default/{own}");
                    shown.push(Shown::Event(Event { is, key, version: from, value: value_of(&map) }));
                }
            }
        }
        let prefix = format!("default/{prefix}");
        history.watches.lock().expect("a history").push(WatchRun { name: name.clone(), from: resumed, prefix, shown });
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
