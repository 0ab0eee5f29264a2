//! Computes the next state of one container from its current state in the pod's status.

use super::Notice;
use crate::behaviour::{Behaviour, Pull, Span};
use holdfast_value::{Map, Value, json};
use holdfast_world::Time;
use sha2::{Digest, Sha256};

/// The first wait of the back-off between restarts, in milliseconds. The first restart is immediate, the second restart
/// waits this long, and each further restart waits twice as long as the one before, but at most `BACKOFF_MAX_MS`.
const BACKOFF_FIRST_MS: i64 = 10_000;
const BACKOFF_MAX_MS: i64 = 300_000;
/// If a container has run this long, in milliseconds, its back-off starts again.
const BACKOFF_FORGOTTEN_MS: i64 = 2 * BACKOFF_MAX_MS;
/// After this time, in milliseconds, a container whose pull failed is shown as waiting for the next pull.
const PULL_RETRY_MS: i64 = 10_000;
/// The reason for which a container waits while its image is pulled.
const CREATING: &str = "ContainerCreating";
/// The waiting reason after a failed pull. `PULL_WAITS` is the waiting reason while the kubelet waits for the next
/// pull.
const PULL_FAILED: &str = "ErrImagePull";
const PULL_WAITS: &str = "ImagePullBackOff";
/// The reason for which a container waits before a restart.
const CRASHES: &str = "CrashLoopBackOff";
/// The termination reason of a container that never started.
const NEVER_SEEN: &str = "ContainerStatusUnknown";
/// The maximum number of state changes of one container in one plan.
const CHANGES_MAX: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerKind {
    Init,
    /// An init container with the restart policy Always.
    Sidecar,
    Main,
    Ephemeral,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ContainerState {
    Waiting { reason: String, message: String },
    Running { since: Time },
    Ended(ContainerEnd),
}

#[derive(Debug, Clone, PartialEq)]
pub struct ContainerEnd {
    pub code: i64,
    pub reason: String,
    pub message: String,
    pub started: Time,
    pub finished: Time,
}

#[derive(Debug)]
pub struct Container<'a> {
    pub sort: ContainerKind,
    pub spec: &'a Value,
    pub behaviour: Behaviour,
    pub state: ContainerState,
    pub last: Option<ContainerEnd>,
    pub restarts: i64,
    /// How many times the container had run before this plan.
    ran: i64,
    /// The reason for which the container waited before this plan; empty if it did not wait.
    waited_for: String,
    /// The start time of the run before this plan; `None` if the container was not running.
    ran_since: Option<Time>,
    /// Whether the container was running and has been stopped.
    is_stopped: bool,
    /// The resources with which the container runs. If a resize has not been applied yet, the spec has other resources.
    pub resources: Value,
    /// The container's effective restart policy.
    policy: String,
    /// The pod's UID.
    uid: &'a str,
    shown: String,
}

/// The external conditions on which a container's next state depends, and the time of its next change.
pub struct LifeConditions {
    pub now: Time,
    /// The earliest time at which the container could start.
    pub origin: Time,
    /// The earliest time at which the pod's state will change; `None` if the pod will not change by itself.
    pub next_change: Option<Time>,
}

impl LifeConditions {
    /// Whether a time has been reached. If the time has not been reached, the next plan is due at this time at the
    /// latest.
    fn reached(&mut self, time: Time) -> bool {
        let reached = time <= self.now;
        if !reached {
            // Plans work with whole seconds, so a time within a second counts as reached at the end of this second.
            let time = Time::from_second(time.plus_millis(999).seconds());
            self.next_change = Some(self.next_change.map_or(time, |again| again.min(time)));
        }
        reached
    }

    fn passed(&mut self, since: Time, span: Span) -> bool {
        match span {
            Span::Millis(millis) => self.reached(since.plus_millis(millis)),
            Span::Forever => false,
        }
    }
}

impl<'a> Container<'a> {
    pub fn new(
        sort: ContainerKind,
        spec: &'a Value,
        status: &Value,
        behaviour: Behaviour,
        pod: &'a Value,
    ) -> Container<'a> {
        let policy = spec["restartPolicy"].as_str().or(pod["spec"]["restartPolicy"].as_str()).unwrap_or("Always");
        let policy = match sort {
            ContainerKind::Sidecar => "Always",
            ContainerKind::Ephemeral => "Never",
            // A pod-level `Always` does not apply to init containers, which must end before the pod starts.
            ContainerKind::Init if policy == "Always" => "OnFailure",
            _ => policy,
        };
        let told = |name: &str| pod["metadata"][name].as_str().unwrap_or_default();
        let name = spec["name"].as_str().unwrap_or_default();
        let mut container = Container {
            sort,
            spec,
            behaviour,
            state: ContainerState::read(&status["state"]),
            last: ContainerEnd::read(&status["lastState"]["terminated"]),
            restarts: status["restartCount"].as_i64().unwrap_or(0),
            ran: 0,
            waited_for: status["state"]["waiting"]["reason"].as_str().unwrap_or_default().to_owned(),
            ran_since: status["state"]["running"]["startedAt"].as_str().and_then(Time::parse),
            is_stopped: false,
            resources: match status.get("resources") {
                Some(resources) => resources.clone(),
                None => spec["resources"].clone(),
            },
            policy: policy.to_owned(),
            uid: told("uid"),
            shown: format!("{name} pod={}_{}({})", told("name"), told("namespace"), told("uid")),
        };
        container.ran = container.runs();
        container
    }

    /// How many times the container has run.
    fn runs(&self) -> i64 {
        let never = match &self.state {
            ContainerState::Waiting { .. } => true,
            ContainerState::Ended(end) => end.reason == NEVER_SEEN,
            ContainerState::Running { .. } => false,
        };
        if never && self.last.is_none() { 0 } else { self.restarts.saturating_add(1) }
    }

    pub fn name(&self) -> &'a str {
        self.spec["name"].as_str().unwrap_or_default()
    }

    fn image(&self) -> &'a str {
        self.spec["image"].as_str().unwrap_or_default()
    }

    pub fn is_running(&self) -> bool {
        matches!(self.state, ContainerState::Running { .. })
    }

    pub fn end(&self) -> Option<&ContainerEnd> {
        match &self.state {
            ContainerState::Ended(end) => Some(end),
            _ => None,
        }
    }

    /// Whether the container has ended and will not be restarted.
    pub fn is_done(&self) -> bool {
        self.end().is_some_and(|end| !self.restarts_after(end))
    }

    pub fn has_failed(&self) -> bool {
        self.is_done() && self.end().is_some_and(|end| end.code != 0)
    }

    /// Whether the containers that wait for this init container may start now.
    pub fn lets_on(&self) -> bool {
        match self.sort {
            ContainerKind::Sidecar => self.is_running(),
            _ => self.end().is_some_and(|end| end.code == 0),
        }
    }

    fn restarts_after(&self, end: &ContainerEnd) -> bool {
        for rule in self.spec["restartPolicyRules"].as_array().into_iter().flatten() {
            let codes = &rule["exitCodes"];
            let named = codes["values"].as_array().is_some_and(|values| values.contains(&end.code.into()));
            if rule["action"] == "Restart" && named == (codes["operator"] == "In") {
                return true;
            }
        }
        match self.policy.as_str() {
            "Never" => false,
            "OnFailure" => end.code != 0,
            _ => true,
        }
    }

    /// Makes all changes of the container's state that are due at the present time.
    pub fn advance(&mut self, clock: &mut LifeConditions, run_for: Span) {
        for _ in 0..CHANGES_MAX {
            let next = match &self.state {
                ContainerState::Waiting { .. } => self.start_if_due(clock),
                ContainerState::Running { since } => {
                    let since = *since;
                    if !clock.passed(since, run_for) {
                        return;
                    }
                    let millis = if let Span::Millis(millis) = run_for { millis } else { 0 };
                    Some(ContainerState::Ended(self.expected_end(since, since.plus_millis(millis))))
                }
                ContainerState::Ended(end) if self.restarts_after(end) => self.restart(end.clone(), clock),
                ContainerState::Ended(_) => return,
            };
            match next {
                Some(next) if next != self.state => self.state = next,
                _ => return,
            }
        }
        // The container ends as soon as it starts, so further changes follow only in the next plan, one second later.
        clock.next_change =
            Some(clock.next_change.map_or(clock.now.plus_seconds(1), |again| again.min(clock.now.plus_seconds(1))));
    }

    fn expected_end(&self, started: Time, finished: Time) -> ContainerEnd {
        let code = self.behaviour.exit_code.unwrap_or(0);
        let reason = match &self.behaviour.exit_reason {
            Some(reason) => reason.clone(),
            None => if code == 0 { "Completed" } else { "Error" }.to_owned(),
        };
        ContainerEnd {
            code,
            reason,
            message: self.behaviour.exit_message.clone().unwrap_or_default(),
            started,
            finished,
        }
    }

    /// The next state of a waiting container. The container starts when its image is pulled, or when its back-off ends.
    fn start_if_due(&mut self, clock: &mut LifeConditions) -> Option<ContainerState> {
        if let Some(last) = self.last.clone() {
            return self.restart(last, clock);
        }
        match self.behaviour.pull {
            Pull::After(span) if clock.passed(clock.origin, span) => Some(ContainerState::Running { since: clock.now }),
            Pull::After(_) => Some(ContainerState::waiting(CREATING, "")),
            Pull::Fails => {
                let image = self.image();
                let retried = clock.reached(clock.origin.plus_millis(PULL_RETRY_MS));
                Some(if retried {
                    ContainerState::waiting(PULL_WAITS, &format!("Back-off pulling image \"{image}\""))
                } else {
                    let message =
                        format!("failed to pull and unpack image \"{image}\": the image is simulated to be missing");
                    ContainerState::waiting(PULL_FAILED, &message)
                })
            }
        }
    }

    fn restart(&mut self, end: ContainerEnd, clock: &mut LifeConditions) -> Option<ContainerState> {
        let wait = self.backoff(&end);
        let finished = end.finished;
        self.last = Some(end);
        if clock.reached(finished.plus_millis(wait)) {
            self.restarts = self.restarts.saturating_add(1);
            return Some(ContainerState::Running { since: clock.now });
        }
        let message = format!("back-off {} restarting failed container={}", shown_seconds(wait), self.shown);
        Some(ContainerState::waiting(CRASHES, &message))
    }

    fn backoff(&self, end: &ContainerEnd) -> i64 {
        if self.restarts == 0 || end.finished.millis_since(end.started) > BACKOFF_FORGOTTEN_MS {
            return 0;
        }
        let doublings = u32::try_from(self.restarts - 1).unwrap_or(0).min(10);
        (BACKOFF_FIRST_MS << doublings).min(BACKOFF_MAX_MS)
    }

    /// Restarts a running container although it has not ended by itself.
    pub fn replace(&mut self, now: Time) {
        if let ContainerState::Running { since } = self.state {
            let reason = "Completed".to_owned();
            self.last = Some(ContainerEnd { code: 0, reason, message: String::new(), started: since, finished: now });
            self.restarts = self.restarts.saturating_add(1);
            self.state = ContainerState::Running { since: now };
        }
    }

    /// Ends the container if it runs or waits.
    pub fn stop(&mut self, now: Time, code: i64) {
        let reason = if code == 0 { "Completed" } else { "Error" }.to_owned();
        self.is_stopped |= self.is_running();
        self.state = match std::mem::replace(&mut self.state, ContainerState::waiting("", "")) {
            ContainerState::Running { since } => ContainerState::Ended(ContainerEnd {
                code,
                reason,
                message: String::new(),
                started: since,
                finished: now,
            }),
            ContainerState::Waiting { .. } => ContainerState::Ended(ContainerEnd {
                code: 137,
                reason: NEVER_SEEN.to_owned(),
                message: "The container could not be located when the pod was terminated".to_owned(),
                started: now,
                finished: now,
            }),
            ended => ended,
        };
    }

    /// The time at which a container stops if it gets the request to stop at `told`; `None` if it stops only because
    /// its grace period ends.
    pub fn stopped_at(&self, told: Time) -> Option<Time> {
        match (&self.state, self.behaviour.stop_for) {
            (ContainerState::Running { .. }, Span::Forever) => None,
            (ContainerState::Running { .. }, Span::Millis(millis)) => Some(told.plus_millis(millis)),
            _ => Some(told),
        }
    }

    /// Whether the container is ready.
    pub fn is_ready(&self, clock: &mut LifeConditions) -> bool {
        match &self.state {
            ContainerState::Running { since } => {
                let is_asked = !matches!(self.sort, ContainerKind::Init | ContainerKind::Ephemeral);
                !is_asked || clock.passed(*since, self.behaviour.ready_after) && self.seems_ready(*since, clock)
            }
            ContainerState::Ended(end) => self.sort == ContainerKind::Init && end.code == 0,
            ContainerState::Waiting { .. } => false,
        }
    }

    /// Whether the last readiness probe of the container succeeded.
    fn seems_ready(&self, since: Time, clock: &mut LifeConditions) -> bool {
        let mut ready = true;
        for (after_ms, found) in &self.behaviour.ready_at {
            if !clock.reached(since.plus_millis(*after_ms)) {
                break;
            }
            ready = *found;
        }
        ready
    }

    /// The Events about changes since the last plan: Events about failures, and with `all` also about starts and stops.
    pub fn notices(&self, all: bool) -> Vec<Notice> {
        let mut notices = Vec::new();
        if all {
            self.add_run_notices(&mut notices);
        }
        if self.is_stopped && self.behaviour.stop_hook_failed {
            notices.push(self.notice(true, "FailedPreStopHook", "PreStopHook failed".into()));
        }
        self.add_waiting_notice(all, &mut notices);
        notices
    }

    /// The Events of the container's probes and of its hook since `told_until`. The next plan is due at the time of the
    /// next such Event.
    pub fn events(&self, told_until: Time, address: &str, all: bool, clock: &mut LifeConditions) -> Vec<Notice> {
        let since = match (self.ran_since, &self.state) {
            (Some(since), _) => since,
            (None, ContainerState::Running { since }) => *since,
            (None, _) => return Vec::new(),
        };
        let mut notices = Vec::new();
        for telling in &self.behaviour.events {
            let at = since.plus_millis(telling.at_ms);
            if at > clock.now && !self.is_running() || !clock.reached(at) {
                break;
            }
            if at > told_until && (all || telling.warning) {
                let message = telling.message.replace(crate::course::ADDRESS, address);
                notices.push(self.notice(telling.warning, telling.reason, message));
            }
        }
        notices
    }

    fn notice(&self, warning: bool, reason: &'static str, message: String) -> Notice {
        Notice { warning, reason, message, part: self.part() }
    }

    fn add_run_notices(&self, notices: &mut Vec<Notice>) {
        let image = self.image();
        let mut tell = |reason: &'static str, message: String| notices.push(self.notice(false, reason, message));
        for run in self.ran..self.runs() {
            match self.pulls(run == 0) {
                Some(millis) => {
                    if self.waited_for != CREATING {
                        tell("Pulling", format!("Pulling image {image:?}"));
                    }
                    let took = shown_seconds(millis);
                    let pulled = format!("Successfully pulled image {image:?} in {took} ({took} including waiting)");
                    tell("Pulled", format!("{pulled}. Image size: 0 bytes."));
                }
                None => tell("Pulled", format!("Container image {image:?} already present on machine")),
            }
            tell("Created", "Container created".into());
            tell("Started", "Container started".into());
        }
        if self.is_stopped {
            tell("Killing", format!("Stopping container {}", self.name()));
        }
    }

    /// Adds the Event about the reason for which the container has begun to wait.
    fn add_waiting_notice(&self, all: bool, notices: &mut Vec<Notice>) {
        let ContainerState::Waiting { reason, message } = &self.state else { return };
        if *reason == self.waited_for {
            return;
        }
        let image = self.image();
        let mut tell = |warning: bool, reason, message: String| notices.push(self.notice(warning, reason, message));
        let pulls = reason == CREATING && self.behaviour.pull != Pull::After(Span::Millis(0)) || reason == PULL_FAILED;
        if all && pulls {
            tell(false, "Pulling", format!("Pulling image {image:?}"));
        }
        match reason.as_str() {
            PULL_FAILED => {
                tell(true, "Failed", format!("Failed to pull image {image:?}: {message}"));
                tell(true, "Failed", format!("Error: {reason}"));
            }
            PULL_WAITS => {
                tell(false, "BackOff", message.clone());
                tell(true, "Failed", format!("Error: {reason}"));
            }
            CRASHES => {
                let of = self.shown.replacen(" pod=", " in pod ", 1);
                tell(true, "BackOff", format!("Back-off restarting failed container {of}"));
            }
            _ => {}
        }
    }

    /// How long pulling the container's image took before a run, in milliseconds; `None` if the image was already
    /// present.
    fn pulls(&self, is_first: bool) -> Option<i64> {
        match self.behaviour.pull {
            Pull::After(Span::Millis(millis)) if is_first && millis > 0 => Some(millis),
            _ if self.spec["imagePullPolicy"] == "Always" => Some(0),
            _ => None,
        }
    }

    /// The path of the container within the pod, such as `spec.containers{web}`.
    fn part(&self) -> String {
        let list = match self.sort {
            ContainerKind::Init | ContainerKind::Sidecar => "initContainers",
            ContainerKind::Main => "containers",
            ContainerKind::Ephemeral => "ephemeralContainers",
        };
        format!("spec.{list}{{{}}}", self.name())
    }

    /// The status of the container as it is in the pod's status.
    pub fn status(&self, ready: bool) -> Value {
        let image = self.image();
        let id = |restarts: i64| {
            let name = self.name();
            container_id(&format!("{}/{name}/{restarts}", self.uid))
        };
        let has_id = !matches!(self.state, ContainerState::Waiting { .. }) || self.last.is_some();
        let mut status = Map::new();
        status.insert("name", self.name().into());
        status.insert("image", image.into());
        status.insert("imageID", if has_id { image_id(image) } else { String::new() }.into());
        if has_id {
            status.insert("containerID", id(self.restarts).into());
        }
        status.insert("state", self.state.written(&id(self.restarts)));
        let last = self
            .last
            .as_ref()
            .map(|last| json!({"terminated": last.written(&id(self.restarts.saturating_sub(1).max(0)))}));
        status.insert("lastState", last.unwrap_or_else(|| json!({})));
        status.insert("ready", ready.into());
        status.insert("started", self.is_running().into());
        status.insert("restartCount", self.restarts.into());
        if self.resources.as_object().is_some_and(|resources| !resources.is_empty()) {
            status.insert("resources", self.resources.clone());
            if let Some(requests) = self.resources.get("requests") {
                status.insert("allocatedResources", requests.clone());
            }
        }
        status.into()
    }
}

impl ContainerState {
    pub fn waiting(reason: &str, message: &str) -> ContainerState {
        ContainerState::Waiting { reason: reason.into(), message: message.into() }
    }

    fn read(state: &Value) -> ContainerState {
        if let Some(end) = ContainerEnd::read(&state["terminated"]) {
            return ContainerState::Ended(end);
        }
        if let Some(since) = state["running"]["startedAt"].as_str().and_then(Time::parse) {
            return ContainerState::Running { since };
        }
        let text = |name: &str| state["waiting"][name].as_str().unwrap_or_default();
        ContainerState::waiting(text("reason"), text("message"))
    }

    fn written(&self, id: &str) -> Value {
        match self {
            ContainerState::Waiting { reason, message } if message.is_empty() => json!({"waiting": {"reason": reason}}),
            ContainerState::Waiting { reason, message } => json!({"waiting": {"reason": reason, "message": message}}),
            ContainerState::Running { since } => json!({"running": {"startedAt": since}}),
            ContainerState::Ended(end) => json!({"terminated": end.written(id)}),
        }
    }
}

impl ContainerEnd {
    fn read(terminated: &Value) -> Option<ContainerEnd> {
        let text = |name: &str| terminated[name].as_str().unwrap_or_default().to_owned();
        let time = |name: &str| terminated[name].as_str().and_then(Time::parse);
        let code = terminated.get("exitCode")?.as_i64()?;
        let finished = time("finishedAt").or(time("startedAt")).unwrap_or(Time::from_second(0));
        let started = time("startedAt").unwrap_or(finished);
        Some(ContainerEnd { code, reason: text("reason"), message: text("message"), started, finished })
    }

    fn written(&self, id: &str) -> Value {
        let mut end = json!({"exitCode": self.code, "reason": self.reason, "startedAt": self.started,
            "finishedAt": self.finished, "containerID": id});
        if !self.message.is_empty() {
            end["message"] = self.message.as_str().into();
        }
        end
    }
}

fn container_id(of: &str) -> String {
    format!("simulated://{}", crate::template::hex(&Sha256::digest(of)))
}

/// The ID of an image: the digest in the image's name, or else a digest that is made from the name.
fn image_id(image: &str) -> String {
    match image.split_once('@') {
        Some(_) => image.to_owned(),
        None => {
            let after_host = image.rfind('/').map_or(0, |slash| slash + 1);
            let name = image[after_host..].find(':').map_or(image, |colon| &image[..after_host + colon]);
            format!("{name}@sha256:{}", crate::template::hex(&Sha256::digest(image)))
        }
    }
}

/// Formats a duration in milliseconds like Go: `10s`, `2m40s`.
fn shown_seconds(millis: i64) -> String {
    match millis / 1000 {
        seconds if seconds < 60 => format!("{seconds}s"),
        seconds => format!("{}m{}s", seconds / 60, seconds % 60),
    }
}
