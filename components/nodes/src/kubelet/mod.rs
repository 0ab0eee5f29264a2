//! The work of a kubelet on a pod of its node: it computes the pod's next status from the present status and the time.
//!
//! Nothing is remembered between plans. The status contains each container's start, restarts and end, so a restarted
//! kubelet continues where the previous one stopped.

pub mod admission;
mod conditions;
mod container;
mod resize;
mod settled;
#[cfg(test)]
mod tests;

use crate::behaviour::{Behaviour, BehaviourSettings, Span};
use crate::command::sleeps;
use crate::course::{self, Course, Courses, Stop};
pub use settled::is_settled;

use container::{Container, ContainerKind, ContainerState, LifeConditions};
use holdfast_value::{Map, Value, json};
use holdfast_world::views::Job;
use holdfast_world::{Time, View};
use std::collections::HashMap;

/// The data of a node on which the status of a pod depends.
pub struct NodeSide<'a> {
    pub host_ip: &'a str,
    /// The node's allocatable resources.
    pub allocatable: &'a Value,
    /// The settings of behaviour for pods whose annotations do not specify these settings.
    pub told: &'a BehaviourSettings,
    /// Whether all Events of containers are written, or only Events about failures.
    pub tells_all: bool,
    /// The time up to which Events about the pod's containers are written.
    pub told_until: Time,
    /// The cache of courses.
    pub courses: &'a Courses,
}

/// The result of a kubelet's plan for a pod.
#[derive(Debug, Default, PartialEq)]
pub struct Life {
    /// The change of the pod's status, as a strategic merge patch; `None` if the status does not change.
    pub status: Option<Value>,
    /// Whether the pod's containers have stopped, so that the pod can be deleted.
    pub gone: bool,
    pub again: Option<Time>,
    pub notices: Vec<Notice>,
}

/// An Event to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub warning: bool,
    pub reason: &'static str,
    pub message: String,
    /// The field path of the container, such as `spec.containers{web}`; empty for the pod.
    pub part: String,
}

/// Computes the next step of a pod at the time `now`. `address` returns an IP address for the pod. If `address` is
/// called again, it returns the address that it has returned before.
pub fn live(pod: &Value, place: &NodeSide, now: Time, address: &mut dyn FnMut() -> String) -> Life {
    // Times in statuses have a precision of one second.
    let now = Time::from_second(now.seconds());
    let told = BehaviourSettings::of(pod);
    let mut kubelet = Kubelet::new(pod, place, &told, now);
    if pod["metadata"]["deletionTimestamp"].is_string() {
        return kubelet.end(address);
    }
    if is_finished(pod) {
        return Life::default();
    }
    if !pod["status"]["startTime"].is_string() {
        let mistake = |message| Notice { warning: true, reason: "InvalidBehaviour", message, part: String::new() };
        kubelet.notices.extend(told.mistakes().into_iter().map(mistake));
    }
    kubelet.go_on();
    kubelet.told(address, false)
}

pub fn is_finished(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

struct Kubelet<'a> {
    pod: &'a Value,
    place: &'a NodeSide<'a>,
    containers: Vec<Container<'a>>,
    clock: LifeConditions,
    started: Time,
    /// The phase and reason of a pod that failed for a reason other than its containers.
    failed: Option<(&'static str, &'static str)>,
    resize: Option<resize::PendingResize>,
    notices: Vec<Notice>,
}

impl<'a> Kubelet<'a> {
    fn new(pod: &'a Value, place: &'a NodeSide<'a>, told: &BehaviourSettings, now: Time) -> Kubelet<'a> {
        let started = pod["status"]["startTime"].as_str().and_then(Time::parse).unwrap_or(now);
        let lists = [
            ("initContainers", "initContainerStatuses", ContainerKind::Init),
            ("containers", "containerStatuses", ContainerKind::Main),
            ("ephemeralContainers", "ephemeralContainerStatuses", ContainerKind::Ephemeral),
        ];
        let mut containers = Vec::new();
        for (specs, statuses, sort) in lists {
            let statuses = pod["status"][statuses].as_array().map_or(&[][..], Vec::as_slice);
            let statuses: HashMap<_, _> =
                statuses.iter().filter_map(|status| Some((status["name"].as_str()?, status))).collect();
            for spec in pod["spec"][specs].as_array().into_iter().flatten() {
                let status = spec["name"].as_str().and_then(|name| statuses.get(name)).copied().unwrap_or(&Value::Null);
                let sort = if sort == ContainerKind::Init && spec["restartPolicy"] == "Always" {
                    ContainerKind::Sidecar
                } else {
                    sort
                };
                let mut behaviour = Behaviour::of(spec["name"].as_str().unwrap_or_default(), place.told, told);
                foresee(&mut behaviour, pod, spec, status, place, now);
                containers.push(Container::new(sort, spec, status, behaviour, pod));
            }
        }
        let clock = LifeConditions { now, origin: started, next_change: None };
        Kubelet { pod, place, containers, clock, started, failed: None, resize: None, notices: Vec::new() }
    }

    /// Makes the changes of the pod's containers that are due by now.
    fn go_on(&mut self) {
        if let Some(seconds) = self.pod["spec"]["activeDeadlineSeconds"].as_i64() {
            let deadline = self.started.plus_seconds(seconds);
            if deadline <= self.clock.now {
                self.stop();
                self.failed =
                    Some(("DeadlineExceeded", "Pod was active on the node longer than the specified deadline"));
                return;
            }
            self.clock.next_change = Some(deadline);
        }
        self.resize = resize::apply_resize(self.pod, self.place.allocatable, &mut self.containers, self.clock.now);
        let initialized = self.initialize();
        let runs_out = self.ends_by_itself();
        for container in &mut self.containers {
            match container.sort {
                ContainerKind::Main if initialized => {
                    container.advance(&mut self.clock, main_span(&container.behaviour, runs_out, container.spec))
                }
                ContainerKind::Main if matches!(container.state, ContainerState::Waiting { .. }) => {
                    container.state = ContainerState::waiting("PodInitializing", "");
                }
                ContainerKind::Ephemeral => {
                    container.advance(&mut self.clock, container.behaviour.run_for.unwrap_or(Span::Forever))
                }
                _ => {}
            }
        }
        // Sidecars stop when the other containers have ended.
        if self.phase() != "Pending" && self.is_over() {
            self.stop_sidecars();
        }
    }

    /// Runs the init containers one after another. Returns whether all of them have succeeded.
    fn initialize(&mut self) -> bool {
        // Once the pod's main containers have started, only sidecars are run.
        let begun = self.containers.iter().any(|c| {
            c.sort == ContainerKind::Main && (!matches!(c.state, ContainerState::Waiting { .. }) || c.last.is_some())
        });
        let mut initialized = true;
        for container in
            self.containers.iter_mut().filter(|c| matches!(c.sort, ContainerKind::Init | ContainerKind::Sidecar))
        {
            if !initialized {
                if matches!(container.state, ContainerState::Waiting { .. }) && container.last.is_none() {
                    container.state = ContainerState::waiting("PodInitializing", "");
                }
                continue;
            }
            let run_for = match container.sort {
                ContainerKind::Init => container.behaviour.run_for.unwrap_or(Span::Millis(0)),
                _ => container.behaviour.run_for.unwrap_or(Span::Forever),
            };
            if container.sort == ContainerKind::Sidecar || !begun {
                container.advance(&mut self.clock, run_for);
            }
            if let Some(end) = container.end().filter(|end| end.code == 0) {
                self.clock.origin = self.clock.origin.max(end.finished);
            }
            initialized &= begun || container.lets_on();
        }
        initialized
    }

    /// Whether the pod belongs to a Job. The containers of such a pod end at once, unless annotations specify how long
    /// they run.
    fn ends_by_itself(&self) -> bool {
        let owners = self.pod["metadata"]["ownerReferences"].as_array();
        let is_job = |owner: &Value| {
            let [version, kind] = ["apiVersion", "kind"].map(|field| owner[field].as_str().unwrap_or_default());
            Job::resource().is_named(version, kind)
        };
        owners.into_iter().flatten().any(|owner| owner["controller"] == true && is_job(owner))
    }

    fn main(&self) -> impl Iterator<Item = &Container<'a>> {
        self.containers.iter().filter(|container| container.sort == ContainerKind::Main)
    }

    fn init(&self) -> impl Iterator<Item = &Container<'a>> {
        self.containers
            .iter()
            .filter(|container| matches!(container.sort, ContainerKind::Init | ContainerKind::Sidecar))
    }

    fn is_over(&self) -> bool {
        self.init().any(|container| container.sort == ContainerKind::Init && container.has_failed())
            || self.main().all(Container::is_done)
    }

    fn phase(&self) -> &'static str {
        if self.failed.is_some() {
            return "Failed";
        }
        if self.init().any(|container| container.sort == ContainerKind::Init && container.has_failed()) {
            return "Failed";
        }
        if self.main().all(Container::is_done) {
            return if self.main().any(Container::has_failed) { "Failed" } else { "Succeeded" };
        }
        let waits = |c: &Container| matches!(c.state, ContainerState::Waiting { .. }) && c.last.is_none();
        if self.main().any(waits) { "Pending" } else { "Running" }
    }

    /// Stops all containers of the pod now.
    fn stop(&mut self) {
        for container in &mut self.containers {
            container.stop(self.clock.now, container.behaviour.stop_exit_code);
        }
    }

    fn stop_sidecars(&mut self) {
        for container in self.containers.iter_mut().filter(|container| container.sort != ContainerKind::Main) {
            container.stop(self.clock.now, if container.is_running() { 0 } else { 137 });
        }
    }

    /// Plans a pod that is being deleted: its containers stop, and then the pod can be deleted.
    fn end(&mut self, address: &mut dyn FnMut() -> String) -> Life {
        let meta = &self.pod["metadata"];
        let grace = meta["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
        if grace == 0 {
            // The grace period is over, so the deletion does not wait for the pod's containers. Finalizers may keep the
            // pod.
            return Life::default();
        }
        if is_finished(self.pod) {
            return Life { gone: true, ..Life::default() };
        }
        let deadline = meta["deletionTimestamp"].as_str().and_then(Time::parse).unwrap_or(self.clock.now);
        let told = deadline.plus_seconds(grace.saturating_neg());
        self.foresee_stops(told, grace);
        let stops = self.containers.iter().map(|container| container.stopped_at(told).unwrap_or(deadline));
        let stopped = stops.max().unwrap_or(told).min(deadline);
        if stopped > self.clock.now {
            return Life { again: Some(stopped), ..Life::default() };
        }
        self.stop();
        Life { gone: true, again: None, ..self.told(address, true) }
    }

    /// Computes how the containers stop, from their hooks and traps, unless annotations specify how they stop.
    fn foresee_stops(&mut self, told: Time, grace: i64) {
        for container in &mut self.containers {
            let ContainerState::Running { since } = container.state else { continue };
            if container.behaviour.stop_for != Span::Millis(0) {
                continue;
            }
            let grace_ms = grace.saturating_mul(1000);
            let allocatable = self.place.allocatable;
            let stop = course::stops(self.pod, container.spec, allocatable, since.millis(), told.millis(), grace_ms);
            if let Some(Stop { ending, hook_failed }) = stop {
                container.behaviour.stop_for = Span::Millis(ending.after_ms);
                container.behaviour.stop_exit_code = ending.code;
                container.behaviour.stop_hook_failed = hook_failed;
            }
        }
    }

    /// The patch that changes the present status of the pod to its new status.
    fn told(&mut self, address: &mut dyn FnMut() -> String, ending: bool) -> Life {
        let mut phase = self.phase();
        if ending {
            let failed = self.main().any(|container| container.end().is_none_or(|end| end.code != 0));
            phase = if failed { "Failed" } else { "Succeeded" };
        }
        let old = &self.pod["status"];
        let mut status = Map::new();
        let generation = self.pod["metadata"]["generation"].as_i64().filter(|generation| *generation > 0);
        if let Some(generation) = generation {
            status.insert("observedGeneration", generation.into());
        }
        status.insert("phase", phase.into());
        if let Some((reason, message)) = self.failed {
            status.insert("reason", reason.into());
            status.insert("message", message.into());
        }
        if !old["startTime"].is_string() {
            status.insert("startTime", json!(self.started));
        }
        self.addresses(&mut status, address);
        let ready = self.statuses(&mut status);
        let all = self.place.tells_all;
        let mut notices = std::mem::take(&mut self.notices);
        let address = status.get("podIP").unwrap_or(&old["podIP"]).as_str().unwrap_or_default();
        for container in &self.containers {
            notices.extend(container.events(self.place.told_until, address, all, &mut self.clock));
        }
        let conditions = conditions::written(self, phase, &ready, generation);
        let mut patch: Map = status.into_iter().filter(|(name, value)| old[name] != *value).collect();
        if !conditions.is_empty() {
            patch.insert("conditions", conditions.into());
        }
        let status = (!patch.is_empty()).then(|| {
            let uid = &self.pod["metadata"]["uid"];
            json!({"metadata": {"uid": uid}, "status": patch})
        });
        if status.is_some() {
            notices.extend(self.containers.iter().flat_map(|container| container.notices(all)));
        }
        Life { status, gone: false, again: self.clock.next_change, notices }
    }

    fn addresses(&self, status: &mut Map, address: &mut dyn FnMut() -> String) {
        let old = &self.pod["status"];
        let host = self.place.host_ip;
        if old["hostIP"].as_str().unwrap_or_default().is_empty() {
            status.insert("hostIP", host.into());
            status.insert("hostIPs", json!([{"ip": host}]));
        }
        if old["podIP"].as_str().unwrap_or_default().is_empty() {
            let ip = if self.pod["spec"]["hostNetwork"] == true { host.to_owned() } else { address() };
            status.insert("podIPs", json!([{"ip": ip}]));
            status.insert("podIP", ip.into());
        }
    }

    /// Adds the statuses of all containers to the pod's status. Returns whether each container is ready.
    fn statuses(&mut self, status: &mut Map) -> Vec<bool> {
        let mut ready = Vec::with_capacity(self.containers.len());
        for container in &self.containers {
            ready.push(container.is_ready(&mut self.clock));
        }
        let lists: [(&str, &[ContainerKind]); 3] = [
            ("initContainerStatuses", &[ContainerKind::Init, ContainerKind::Sidecar]),
            ("containerStatuses", &[ContainerKind::Main]),
            ("ephemeralContainerStatuses", &[ContainerKind::Ephemeral]),
        ];
        for (name, sorts) in lists {
            let of = self.containers.iter().zip(&ready).filter(|(container, _)| sorts.contains(&container.sort));
            let mut of: Vec<_> = of.collect();
            if !sorts.contains(&ContainerKind::Init) {
                // The statuses of init containers have the order of the spec, and all other statuses are sorted by the
                // containers' names.
                of.sort_by_key(|(container, _)| container.name());
            }
            let statuses: Vec<Value> = of.into_iter().map(|(container, ready)| container.status(*ready)).collect();
            if !statuses.is_empty() {
                status.insert(name, statuses.into());
            }
        }
        ready
    }
}

/// Computes the course of a container's command, unless annotations specify how long it runs.
fn foresee(behaviour: &mut Behaviour, pod: &Value, spec: &Value, status: &Value, place: &NodeSide, now: Time) {
    if behaviour.run_for.is_some() {
        return;
    }
    let since = status["state"]["running"]["startedAt"].as_str().and_then(Time::parse).unwrap_or(now);
    let found = place.courses.find(pod, spec, behaviour, place.allocatable, since.millis());
    behaviour.ready_at = found.ready;
    behaviour.events = found.events;
    match found.course {
        Course::Ends(ending) => {
            behaviour.run_for = Some(Span::Millis(ending.after_ms));
            behaviour.exit_code.get_or_insert(ending.code);
            if !ending.message.is_empty() {
                behaviour.exit_message.get_or_insert(ending.message);
            }
        }
        Course::Lasts => behaviour.run_for = Some(Span::Forever),
        Course::Unknown => {
            let words = ["command", "args"].into_iter().filter_map(|field| spec[field].as_array()).flatten();
            behaviour.run_for = sleeps(words.filter_map(Value::as_str));
        }
    }
}

/// How long a main container of the pod runs.
fn main_span(behaviour: &Behaviour, runs_out: bool, spec: &Value) -> Span {
    let forever = behaviour.run_for.is_none() && (!runs_out || is_pause(spec["image"].as_str().unwrap_or_default()));
    behaviour.run_for.unwrap_or(if forever { Span::Forever } else { Span::Millis(0) })
}

/// Whether an image is the pause image, whose program only waits until it is stopped.
fn is_pause(image: &str) -> bool {
    let name = image.split('@').next().unwrap_or_default();
    let last = name.rsplit('/').next().unwrap_or_default();
    last.split(':').next() == Some("pause")
}
