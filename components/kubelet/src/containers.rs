//! The containers that clients use. Each has a machine of the shell, which replays the container from its start to the
//! present.
//!
//! A machine is made when a client first uses its container, and is dropped some time after the last use. The pod
//! contains everything that is needed to make the machine again. If an executed command has changed something in a
//! machine, the machine is kept longer, because the change is recorded nowhere else.

use crate::cluster::{Cluster, TOKENS_PERIOD, now_ms};
use crate::journal::{Journal, Recent};
use holdfast_nodes::course::{message, post_start, runnable};
use holdfast_nodes::environment::{self, Sources, Volumes};
use holdfast_shell::{MAIN, Machine, OutputStream, Pid, RunResult};
use holdfast_value::{Value, json};
use holdfast_world::Time;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, watch};

/// The maximum number of machines at a time.
const MACHINES_MAX: usize = 512;
/// The maximum number of bytes of the files of all machines together.
const FILES_BYTES_MAX: usize = 256 << 20;
/// The maximum number of steps of a replay. If a command needs more steps, the replay ends early.
const REPLAY_STEPS: u64 = 300_000;
/// How many steps a machine runs without a pause. `TURN_REST` is the pause after these steps if the machine has more to
/// do.
const TURN_STEPS: u64 = 2_000;
const TURN_REST: Duration = Duration::from_millis(20);
/// How long a machine is kept after its last use if commands have changed something in it.
const STAYS_CHANGED: Duration = Duration::from_secs(3600);
/// How long a machine is kept after its last use if no executed command has changed anything in it.
const STAYS: Duration = Duration::from_secs(30);
/// The maximum number of containers that are replayed for one container because they share volumes with it.
const SHARING_MAX: usize = 16;
/// How often the pod is read again. `SOURCES_PERIOD` is how often the objects that provide its files are read again.
const POD_PERIOD: Duration = Duration::from_secs(5);
const SOURCES_PERIOD: Duration = Duration::from_secs(60);

/// Identifies one run of a container, from its start to its end.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct RunKey {
    uid: String,
    container: String,
    restarts: i64,
}

/// All containers that clients use.
#[derive(Clone)]
pub struct Containers {
    cluster: Cluster,
    containers: Arc<Mutex<HashMap<RunKey, Arc<ContainerRun>>>>,
    /// The shared volumes of each pod, by the pod's UID. They are kept as long as a machine of the pod exists.
    volumes: Arc<Mutex<HashMap<String, Weak<Volumes>>>>,
    /// The permit to replay. Machines are replayed one at a time.
    replays: Arc<Semaphore>,
}

pub struct ContainerRun {
    pub pod: Value,
    pub spec: Value,
    restarts: i64,
    volumes: Arc<Volumes>,
    /// Uses of the containers that share volumes with this container. Through these uses, the machines of those
    /// containers exist as long as the machine of this container.
    company: Mutex<Vec<ContainerUse>>,
    state: Mutex<RunState>,
    /// The number of events in the machine so far. A change of this number wakes the tasks that follow the container.
    happened: watch::Sender<u64>,
    wake: Notify,
    lookers: AtomicUsize,
}

pub struct RunState {
    pub machine: Machine,
    pub journal: Journal,
    /// Whether the shell runs the container's own command.
    pub runs: bool,
    /// The program of the container's own command, if the shell does not know this program.
    pub unknown: Option<String>,
    pub ended: Option<i32>,
    pub recent: Recent,
    /// The process of the container's `postStart` hook, while the hook runs.
    hook: Option<Pid>,
    /// Whether clients have executed commands in the container.
    has_executed: bool,
    /// Whether executed commands have changed files of the container.
    is_touched: bool,
    sources: Sources,
}

/// A client's use of a container. The machine of the container is kept while this value exists.
pub struct ContainerUse(pub Arc<ContainerRun>);

impl Drop for ContainerUse {
    fn drop(&mut self) {
        self.0.lookers.fetch_sub(1, Ordering::Relaxed);
        self.0.wake.notify_one();
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The status of the container with this name in the pod.
pub fn status<'p>(pod: &'p Value, name: &str) -> &'p Value {
    let lists = ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"];
    let mut all = lists.iter().flat_map(|list| pod["status"][*list].as_array().into_iter().flatten());
    all.find(|status| status["name"] == name).unwrap_or(&Value::Null)
}

pub fn time_ms(value: &Value) -> Option<i64> {
    Time::parse(value.as_str()?).map(Time::millis)
}

impl RunKey {
    fn of(pod: &Value, spec: &Value) -> RunKey {
        let name = text(&spec["name"]);
        RunKey {
            uid: text(&pod["metadata"]["uid"]).to_owned(),
            container: name.to_owned(),
            restarts: status(pod, name)["restartCount"].as_i64().unwrap_or(0),
        }
    }
}

/// New, empty volumes for all volumes to which the containers of the pod may write.
fn of_all(pod: &Value) -> Volumes {
    let all: Vec<&Value> = environment::containers(pod).map(|(_, container)| container).collect();
    environment::volumes(pod, &all)
}

/// The running containers of the pod that share volumes with this container.
fn sharing<'p>(pod: &'p Value, spec: &'p Value) -> impl Iterator<Item = &'p Value> {
    let own = environment::volumes(pod, &[spec]);
    let others = environment::containers(pod).map(|(_, other)| other).filter(move |other| {
        let shares = other["name"] != spec["name"] && !environment::shared_paths(&own, spec, other).is_empty();
        shares && status(pod, text(&other["name"]))["state"]["running"].is_object()
    });
    others.take(SHARING_MAX)
}

/// The init containers that ended before this container and may have left files for it, each with its start and end
/// times.
fn earlier_ones<'p>(pod: &'p Value, spec: &'p Value) -> impl Iterator<Item = (&'p Value, i64, i64)> {
    let first = environment::containers(pod).filter(|(list, _)| *list == "initContainers").map(|(_, first)| first);
    let before = first.take_while(|first| first["name"] != spec["name"]);
    let ended = before.filter(|first| first["volumeMounts"].is_array()).filter_map(|first| {
        let ended = &status(pod, text(&first["name"]))["state"]["terminated"];
        let times = (time_ms(&ended["startedAt"])?, time_ms(&ended["finishedAt"])?);
        Some((first, times.0, times.1))
    });
    ended.take(SHARING_MAX)
}

impl Containers {
    pub fn new(cluster: Cluster) -> Containers {
        let replays = Arc::new(Semaphore::new(1));
        Containers { cluster, containers: Arc::default(), volumes: Arc::default(), replays }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RunKey, Arc<ContainerRun>>> {
        self.containers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a use of a running container. If the container has no machine, its machine is made first.
    pub async fn acquire(&self, pod: &Value, spec: &Value) -> Result<ContainerUse, String> {
        let mut company = Vec::new();
        if self.known(&RunKey::of(pod, spec)).is_none() {
            // Containers that share volumes with this container are run first, so that this container finds the files
            // that they have written.
            for other in sharing(pod, spec) {
                if self.known(&RunKey::of(pod, other)).is_none() {
                    company.extend(self.find_or_start(pod, other).await);
                }
            }
        }
        let look = self.find_or_start(pod, spec).await?;
        look.0.company.lock().unwrap_or_else(PoisonError::into_inner).extend(company);
        Ok(look)
    }

    async fn find_or_start(&self, pod: &Value, spec: &Value) -> Result<ContainerUse, String> {
        let status = status(pod, text(&spec["name"]));
        let key = RunKey::of(pod, spec);
        let begin_ms = time_ms(&status["state"]["running"]["startedAt"]).ok_or("the container does not run")?;
        if let Some(known) = self.known(&key) {
            return Ok(known);
        }
        let made = self.make(pod, spec, begin_ms, None).await?;
        let container = Arc::new(made);
        {
            let mut held = self.lock();
            let bytes: usize =
                held.values().map(|container| container.lock().machine.with_files(|files| files.bytes())).sum();
            if held.len() >= MACHINES_MAX || bytes > FILES_BYTES_MAX {
                // To make room, a machine that no client uses is dropped. If clients use every machine, there is no
                // room.
                let idle = held.iter().find(|(_, container)| container.lookers.load(Ordering::Relaxed) == 0);
                let Some(key) = idle.map(|(key, _)| key.clone()) else {
                    return Err("too many containers are looked at".into());
                };
                held.remove(&key);
            }
            if let Some(known) = held.get(&key) {
                known.lookers.fetch_add(1, Ordering::Relaxed);
                return Ok(ContainerUse(known.clone()));
            }
            container.lookers.fetch_add(1, Ordering::Relaxed);
            held.insert(key.clone(), container.clone());
        }
        tokio::spawn(self.clone().advance(key, container.clone()));
        Ok(ContainerUse(container))
    }

    fn known(&self, key: &RunKey) -> Option<ContainerUse> {
        let held = self.lock();
        let known = held.get(key)?;
        known.lookers.fetch_add(1, Ordering::Relaxed);
        Some(ContainerUse(known.clone()))
    }

    /// The run of a container that has ended. The run is found only if its machine still exists because commands were
    /// executed in the container.
    pub fn ended_run(&self, pod: &Value, name: &str, restarts: i64) -> Option<ContainerUse> {
        let uid = text(&pod["metadata"]["uid"]).to_owned();
        let known = self.known(&RunKey { uid, container: name.to_owned(), restarts })?;
        let has_ended = known.0.lock().ended.is_some();
        has_ended.then_some(known)
    }

    /// Replays an ended run of a container, so that its output can be read again.
    pub async fn past(&self, pod: &Value, spec: &Value, begin_ms: i64, end_ms: i64) -> Result<ContainerRun, String> {
        self.make(pod, spec, begin_ms, Some(end_ms)).await
    }

    async fn make(
        &self,
        pod: &Value,
        spec: &Value,
        begin_ms: i64,
        end_ms: Option<i64>,
    ) -> Result<ContainerRun, String> {
        let sources = self.cluster.sources(pod, spec, true).await;
        let _turn = self.replays.acquire().await.map_err(|error| error.to_string())?;
        let volumes = match end_ms {
            None => self.volumes(pod),
            // An ended container is replayed with the volumes as they were when it began.
            Some(_) => Err(Arc::new(of_all(pod))),
        };
        let mut earlier = Vec::new();
        if volumes.is_err() {
            for (first, begin_ms, end_ms) in earlier_ones(pod, spec) {
                earlier.push((first.clone(), self.cluster.sources(pod, first, false).await, begin_ms, end_ms));
            }
        }
        let (Ok(volumes) | Err(volumes)) = volumes;
        let (pod, spec) = (pod.clone(), spec.clone());
        let making = tokio::task::spawn_blocking(move || {
            for (first, sources, begin_ms, end_ms) in earlier {
                ContainerRun::replayed(pod.clone(), first, sources, volumes.clone(), begin_ms, Some(end_ms));
            }
            ContainerRun::replayed(pod, spec, sources, volumes, begin_ms, end_ms)
        });
        making.await.map_err(|error| error.to_string())
    }

    /// The shared volumes of a pod: `Ok` if they exist and a container may have written to them, `Err` if they are new
    /// and empty.
    fn volumes(&self, pod: &Value) -> Result<Arc<Volumes>, Arc<Volumes>> {
        let mut known = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        let uid = text(&pod["metadata"]["uid"]);
        if let Some(volumes) = known.get(uid).and_then(Weak::upgrade) {
            return Ok(volumes);
        }
        known.retain(|_, volumes| volumes.strong_count() > 0);
        let volumes = Arc::new(of_all(pod));
        known.insert(uid.to_owned(), Arc::downgrade(&volumes));
        Err(volumes)
    }

    /// Runs the machine of a container as time passes, until no client uses the container any more.
    async fn advance(self, key: RunKey, container: Arc<ContainerRun>) {
        let mut looked_at = tokio::time::Instant::now();
        let mut pod_at = looked_at + POD_PERIOD;
        let mut sources_at = looked_at + SOURCES_PERIOD;
        let mut tokens_at = looked_at + TOKENS_PERIOD;
        loop {
            let turn = container.turn();
            let now = tokio::time::Instant::now();
            if container.lookers.load(Ordering::Relaxed) > 0 {
                looked_at = now;
            }
            let (executed, changed, ended) = {
                let state = container.lock();
                (state.has_executed, state.is_touched, state.ended)
            };
            if let Some(code) = ended {
                if executed {
                    if let Err(why) = self.report_end(&container, code).await {
                        tracing::debug!(why, "the end of a container was not told");
                    }
                    // The machine is kept, because the output of the container is recorded nowhere else.
                    tokio::time::sleep(STAYS_CHANGED).await;
                }
                break;
            }
            if now > looked_at + if changed { STAYS_CHANGED } else { STAYS } {
                break;
            }
            if now >= pod_at {
                pod_at = now + POD_PERIOD;
                let refreshes = now >= sources_at;
                if refreshes {
                    sources_at = now + SOURCES_PERIOD;
                }
                let with_tokens = now >= tokens_at;
                if with_tokens {
                    tokens_at = now + TOKENS_PERIOD;
                }
                if !self.is_there(&container, refreshes || with_tokens, with_tokens).await {
                    container.end();
                    break;
                }
            }
            let rest = match turn {
                RunResult::More => TURN_REST,
                RunResult::Idle { until_ms: Some(until) } => Duration::from_millis(
                    u64::try_from(until - now_ms()).unwrap_or(0).min(POD_PERIOD.as_millis() as u64),
                ),
                RunResult::Idle { until_ms: None } => POD_PERIOD,
            };
            tokio::select! {
                () = tokio::time::sleep(rest) => {}
                () = container.wake.notified() => {}
            }
        }
        self.lock().retain(|known, held| *known != key || !Arc::ptr_eq(held, &container));
    }

    /// Whether the container still runs, according to the API server. With `refreshes`, its mounted files are updated,
    /// too.
    async fn is_there(&self, container: &ContainerRun, refreshes: bool, with_tokens: bool) -> bool {
        let meta = &container.pod["metadata"];
        let pod = match self.cluster.pod(text(&meta["namespace"]), text(&meta["name"])).await {
            Ok(Some(pod)) => pod,
            Ok(None) => return false,
            // The API server does not answer, so the container counts as running.
            Err(_) => return true,
        };
        let status = status(&pod, text(&container.spec["name"]));
        let is_same = pod["metadata"]["uid"] == meta["uid"]
            && status["restartCount"].as_i64().unwrap_or(0) == container.restarts
            && status["state"]["running"].is_object();
        if !is_same || !refreshes {
            return is_same;
        }
        let mut sources = self.cluster.sources(&pod, &container.spec, with_tokens).await;
        let mut state = container.lock();
        // A token that the server did not provide now is requested again next time. Until then, the old token stays.
        for (audience, token) in std::mem::take(&mut state.sources.tokens) {
            sources.tokens.entry(audience).or_insert(token);
        }
        let now_ms = now_ms();
        let volumes = &container.volumes;
        state.machine.with_files(|files| {
            environment::mount(&pod, &container.spec, &sources, volumes, &json!({}), files, now_ms);
        });
        state.sources = sources;
        true
    }

    async fn report_end(&self, container: &ContainerRun, code: i32) -> Result<(), String> {
        let name = text(&container.spec["name"]);
        let meta = &container.pod["metadata"];
        let found = self.cluster.pod(text(&meta["namespace"]), text(&meta["name"])).await;
        let Some(pod) = found.map_err(|error| error.to_string())? else { return Ok(()) };
        let told = status(&pod, name);
        let is_same = pod["metadata"]["uid"] == meta["uid"]
            && told["restartCount"].as_i64().unwrap_or(0) == container.restarts
            && told["state"]["running"].is_object();
        if !is_same {
            // The simulated kubelet has already noticed the end and restarted the container.
            return Ok(());
        }
        let message = {
            let mut state = container.lock();
            message(&container.spec, &mut state.machine, i64::from(code), b"")
        };
        let reason = if code == 0 { "Completed" } else { "Error" };
        let mut ended = json!({"exitCode": code, "reason": reason, "finishedAt": Time::from_second(now_ms() / 1000),
            "startedAt": told["state"]["running"]["startedAt"], "containerID": told["containerID"]});
        if !message.is_empty() {
            ended["message"] = message.into();
        }
        let lists = ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"];
        let in_it = |list: &&&str| {
            container.pod["status"][**list]
                .as_array()
                .is_some_and(|all| all.iter().any(|status| status["name"] == name))
        };
        let list = lists.iter().find(in_it).copied().unwrap_or("containerStatuses");
        let status = json!([{"name": name, "ready": false, "started": false,
            "state": {"running": null, "terminated": ended}}]);
        // Because of the resource version, the server refuses the patch if the status has changed since it was read.
        let rests_on = json!({"uid": meta["uid"], "resourceVersion": pod["metadata"]["resourceVersion"]});
        let patch = json!({"metadata": rests_on, "status": {list: status}});
        self.cluster.report_end(&container.pod, &patch).await
    }
}

impl ContainerRun {
    fn replayed(
        pod: Value,
        spec: Value,
        sources: Sources,
        volumes: Arc<Volumes>,
        begin_ms: i64,
        end_ms: Option<i64>,
    ) -> ContainerRun {
        let setup = environment::setup(&pod, &spec, &sources, &volumes, &json!({}), begin_ms);
        let words = runnable(&spec, environment::words(&spec, &setup.environment));
        let mut machine = Machine::new(setup, begin_ms);
        let runs = words.is_some();
        let (with_input, is_terminal) = (spec["stdin"] == true, spec["tty"] == true);
        let words = words.unwrap_or_else(|| vec!["sleep".into(), "infinity".into()]);
        machine.start(&words, runs && with_input, runs && is_terminal);
        let hook = post_start(&spec).and_then(|words| machine.start(&words, false, false));
        let restarts = status(&pod, text(&spec["name"]))["restartCount"].as_i64().unwrap_or(0);
        let mut state = RunState {
            machine,
            journal: Journal::default(),
            recent: Recent::default(),
            has_executed: false,
            hook,
            runs,
            unknown: None,
            ended: None,
            is_touched: false,
            sources,
        };
        state.replay(begin_ms, end_ms.unwrap_or_else(now_ms));
        if end_ms.is_some() {
            state.journal.end();
        }
        ContainerRun {
            pod,
            spec,
            restarts,
            volumes,
            company: Mutex::default(),
            state: Mutex::new(state),
            happened: watch::Sender::new(0),
            wake: Notify::new(),
            lookers: AtomicUsize::new(0),
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, RunState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A receiver that is notified of each event in the container.
    pub fn follow(&self) -> watch::Receiver<u64> {
        self.happened.subscribe()
    }

    /// Wakes the task that runs the machine, after an action on the machine.
    pub fn nudge(&self) {
        self.wake.notify_one();
    }

    fn turn(&self) -> RunResult {
        let (turn, has_gone) = {
            let mut state = self.lock();
            let steps = state.machine.steps();
            let turn = state.run_until(now_ms(), TURN_STEPS);
            (turn, state.machine.steps() > steps || state.ended.is_some())
        };
        if has_gone {
            self.happened.send_modify(|count| *count += 1);
        }
        turn
    }

    /// Stops the container because it does not run any more according to the API server.
    fn end(&self) {
        {
            let mut state = self.lock();
            state.ended.get_or_insert(137);
            state.journal.end();
        }
        self.happened.send_modify(|count| *count += 1);
    }

    /// Writes input to an executed command, or to the container's own command. Returns how many bytes were accepted.
    pub fn write(&self, pid: Pid, bytes: &[u8]) -> usize {
        let mut state = self.lock();
        state.has_executed = true;
        let taken = state.machine.write(pid, bytes);
        drop(state);
        if taken > 0 {
            self.nudge();
        }
        taken
    }

    /// Closes the standard input of a command.
    pub fn end_input(&self, pid: Pid) {
        self.lock().machine.end_input(pid);
        self.nudge();
    }

    /// Starts a command in the container.
    pub fn execute(&self, words: &[String], with_input: bool, is_terminal: bool) -> Option<Executed<'_>> {
        let mut state = self.lock();
        let changes = state.machine.with_files(|files| files.changes());
        let pid = state.machine.start(words, with_input, is_terminal)?;
        state.has_executed = true;
        drop(state);
        self.nudge();
        Some(Executed { container: self, pid, changes })
    }
}

/// A command that a client executes in a container. When this value is dropped, the command ends.
pub struct Executed<'a> {
    container: &'a ContainerRun,
    pub pid: Pid,
    /// The number of file changes in the machine before the command began.
    changes: u64,
}

impl Drop for Executed<'_> {
    fn drop(&mut self) {
        let mut state = self.container.lock();
        state.machine.forget(self.pid);
        state.is_touched |= state.machine.with_files(|files| files.changes()) > self.changes;
    }
}

impl RunState {
    /// Runs up to `steps_max` steps of the machine at this time, and collects the output of the container's own
    /// command.
    fn run_until(&mut self, now_ms: i64, steps_max: u64) -> RunResult {
        let turn = self.machine.run(now_ms, steps_max);
        let mut has_put_out = false;
        for (stream, is_error) in [(OutputStream::Output, false), (OutputStream::Errors, true)] {
            let bytes = self.machine.read(MAIN, stream, usize::MAX);
            has_put_out |= !bytes.is_empty();
            self.journal.put(now_ms, is_error, &bytes);
            self.recent.put(is_error, &bytes);
        }
        if self.unknown.is_none() {
            self.unknown = self.machine.unknown();
        }
        self.go_on_with_hook();
        if self.ended.is_none() && !has_put_out {
            self.ended = self.machine.exit_code(MAIN);
            if self.ended.is_some() {
                self.journal.end();
            }
        }
        if has_put_out { RunResult::More } else { turn }
    }

    /// Continues the `postStart` hook, and discards its output.
    fn go_on_with_hook(&mut self) {
        let Some(pid) = self.hook else { return };
        for stream in [OutputStream::Output, OutputStream::Errors] {
            self.machine.read(pid, stream, usize::MAX);
        }
        if self.machine.exit_code(pid).is_some() {
            self.machine.forget(pid);
            self.hook = None;
        }
    }

    /// Replays the container from its start to the time `now_ms`.
    fn replay(&mut self, begin_ms: i64, now_ms: i64) {
        let mut time_ms = begin_ms.min(now_ms);
        while self.machine.steps() < REPLAY_STEPS && self.ended.is_none() {
            match self.run_until(time_ms, REPLAY_STEPS / 10) {
                RunResult::More => {}
                RunResult::Idle { until_ms: Some(until) } if until <= now_ms => time_ms = until.max(time_ms),
                RunResult::Idle { .. } => return,
            }
        }
        if self.ended.is_none() && time_ms < now_ms {
            let left = (now_ms - time_ms) / 1000;
            let note = format!(
                "simulated by Holdfast: what it did in the next {left} s is left out, as it is too much to go through\n"
            );
            self.journal.put(now_ms, true, note.as_bytes());
        }
    }
}
