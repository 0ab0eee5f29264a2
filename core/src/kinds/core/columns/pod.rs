//! A pod's status in one word, as kubectl shows it, and the counts next to it.

use crate::kinds::Column;
use crate::kinds::cells::{
    NONE, age, age_column, at, column, condition, epoch_seconds, field, items, name, number, of_field, show, text,
    truth,
};
use holdfast_value::Value;

/// The fields that [`Summary`] reads.
const SUMMARIZED: &[&str] =
    &["spec.containers.name", "spec.initContainers.name", "spec.initContainers.restartPolicy", "status"];

pub fn columns() -> Vec<Column> {
    vec![
        name(),
        column(
            "Ready",
            "string",
            0,
            "Containers that are ready, of all that run for the pod's whole life.",
            |pod, _| {
                let summary = Summary::of(pod);
                format!("{}/{}", summary.ready, summary.containers).into()
            },
        )
        .reading(SUMMARIZED),
        column("Status", "string", 0, "What the pod is doing, or what is in its way.", |pod, _| {
            Summary::of(pod).status.into()
        })
        .reading(SUMMARIZED),
        column("Restarts", "string", 0, "How often containers were started again, and when last.", |pod, now| {
            Summary::of(pod).restarts.shown(now).into()
        })
        .reading(SUMMARIZED),
        age_column(),
        column("IP", "string", 1, field("status.podIP"), |pod, _| address(pod).into()).reading(&["status"]),
        of_field("Node", "string", 1, "spec.nodeName", show::text_or_none),
        of_field("Nominated Node", "string", 1, "status.nominatedNodeName", show::text_or_none),
        column("Readiness Gates", "string", 1, field("spec.readinessGates"), |pod, _| readiness_gates(pod).into())
            .reading(&["spec.readinessGates", "status.conditions"]),
    ]
}

#[derive(Debug, Default)]
struct Summary {
    ready: usize,
    containers: usize,
    status: String,
    restarts: Restarts,
}

#[derive(Debug, Default, Clone)]
struct Restarts {
    count: i64,
    last: Option<i64>,
}

impl Restarts {
    fn add(&mut self, container: &Value) {
        self.count = self.count.saturating_add(number(container, "restartCount"));
        let finished = epoch_seconds(text(container, "lastState.terminated.finishedAt"));
        self.last = self.last.max(finished);
    }

    fn shown(&self, now: i64) -> String {
        match self.last {
            Some(last) if self.count != 0 => format!("{} ({} ago)", self.count, age(now - last)),
            _ => self.count.to_string(),
        }
    }
}

impl Summary {
    fn of(pod: &Value) -> Self {
        let sidecars: Vec<&str> = items(pod, "spec.initContainers")
            .iter()
            .filter(|container| text(container, "restartPolicy") == "Always")
            .map(|container| text(container, "name"))
            .collect();
        let mut summary = Self {
            containers: items(pod, "spec.containers").len() + sidecars.len(),
            status: phase(pod),
            ..Self::default()
        };
        let (initialized, sidecar_restarts) = summary.initialize(pod, &sidecars);
        if initialized || condition(pod, "Initialized") == "True" {
            // All init containers are done, so restarts of finished init containers no longer count.
            summary.restarts = sidecar_restarts;
            summary.run(pod);
        }
        if at(pod, "metadata.deletionTimestamp").is_some() {
            if text(pod, "status.reason") == "NodeLost" {
                summary.status = "Unknown".into();
            } else if !matches!(text(pod, "status.phase"), "Succeeded" | "Failed") {
                summary.status = "Terminating".into();
            }
        }
        summary
    }

    /// Goes through the init containers up to the first that is not done. Returns whether all are done, and the
    /// restarts of sidecars.
    fn initialize(&mut self, pod: &Value, sidecars: &[&str]) -> (bool, Restarts) {
        let mut sidecar_restarts = Restarts::default();
        for (done, container) in items(pod, "status.initContainerStatuses").iter().enumerate() {
            let is_sidecar = sidecars.contains(&text(container, "name"));
            self.restarts.add(container);
            if is_sidecar {
                sidecar_restarts.add(container);
            }
            let terminated = at(container, "state.terminated");
            if terminated.is_some_and(|ended| number(ended, "exitCode") == 0) {
                continue;
            }
            if is_sidecar && truth(container, "started") {
                self.ready += usize::from(truth(container, "ready"));
                continue;
            }
            let waiting_for = text(container, "state.waiting.reason");
            self.status = match terminated {
                Some(ended) => format!("Init:{}", ending(ended)),
                None if !matches!(waiting_for, "" | "PodInitializing") => format!("Init:{waiting_for}"),
                None => format!("Init:{done}/{}", items(pod, "spec.initContainers").len()),
            };
            return (false, sidecar_restarts);
        }
        (true, sidecar_restarts)
    }

    /// Goes through the main containers from last to first, so that the status of the first container with a state to
    /// report is shown.
    fn run(&mut self, pod: &Value) {
        let mut running = false;
        let mut failure = None;
        for container in items(pod, "status.containerStatuses").iter().rev() {
            self.restarts.add(container);
            let waiting_for = text(container, "state.waiting.reason");
            if !waiting_for.is_empty() {
                self.status = waiting_for.into();
            } else if let Some(ended) = at(container, "state.terminated") {
                self.status = ending(ended);
                if number(ended, "exitCode") != 0 {
                    failure = Some(self.status.clone());
                }
            } else if truth(container, "ready") && at(container, "state.running").is_some() {
                running = true;
                self.ready += 1;
            }
        }
        // One completed container does not complete the pod.
        if self.status == "Completed" {
            if running && condition(pod, "Ready") == "True" {
                self.status = "Running".into();
            } else if let Some(failure) = failure {
                self.status = failure;
            } else if running {
                self.status = "NotReady".into();
            }
        }
    }
}

/// The pod's own status, before its containers are considered.
fn phase(pod: &Value) -> String {
    let gated = items(pod, "status.conditions")
        .iter()
        .any(|condition| text(condition, "type") == "PodScheduled" && text(condition, "reason") == "SchedulingGated");
    let reason = text(pod, "status.reason");
    if gated {
        "SchedulingGated".into()
    } else if reason.is_empty() {
        text(pod, "status.phase").into()
    } else {
        reason.into()
    }
}

/// How a container ended: the reason if there is one, otherwise the signal or the exit code.
fn ending(terminated: &Value) -> String {
    let reason = text(terminated, "reason");
    let signal = number(terminated, "signal");
    if !reason.is_empty() {
        reason.into()
    } else if signal != 0 {
        format!("Signal:{signal}")
    } else {
        format!("ExitCode:{}", number(terminated, "exitCode"))
    }
}

fn address(pod: &Value) -> String {
    let first = items(pod, "status.podIPs").first().map_or("", |address| text(address, "ip"));
    let address = if first.is_empty() { text(pod, "status.podIP") } else { first };
    if address.is_empty() { NONE.into() } else { address.into() }
}

fn readiness_gates(pod: &Value) -> String {
    let gates = items(pod, "spec.readinessGates");
    if gates.is_empty() {
        return NONE.into();
    }
    let open = gates.iter().filter(|gate| condition(pod, text(gate, "conditionType")) == "True").count();
    format!("{open}/{}", gates.len())
}

#[cfg(test)]
mod tests {
    use super::columns;
    use crate::kinds::cells::shown;
    use holdfast_value::{Value, json};

    /// Name, Ready, Status and Restarts of a pod with two containers, merged with the fields of the case.
    #[track_caller]
    fn check(case: Value, expected: &str) {
        let mut pod = json!({
            "metadata": {"name": "web", "creationTimestamp": "2026-01-09T23:00:00Z"},
            "spec": {"containers": [{"name": "app"}, {"name": "log"}]},
            "status": {"phase": "Running"},
        });
        pod = crate::merge::json::merge_patch(pod, case).expect("an object");
        let shown = shown(&columns()[1..4], &pod);
        assert_eq!(shown, expected);
    }

    fn running(name: &str) -> Value {
        json!({"name": name, "ready": true, "started": true, "restartCount": 0, "state": {"running": {}}})
    }

    fn ended(name: &str, terminated: Value) -> Value {
        json!({"name": name, "ready": false, "restartCount": 0, "state": {"terminated": terminated}})
    }

    fn waiting(name: &str, reason: &str) -> Value {
        json!({"name": name, "ready": false, "restartCount": 0, "state": {"waiting": {"reason": reason}}})
    }

    fn restarted(mut container: Value, times: u32, finished_at: &str) -> Value {
        container["restartCount"] = times.into();
        container["lastState"] = json!({"terminated": {"exitCode": 1, "finishedAt": finished_at}});
        container
    }

    #[test]
    fn plain_states() {
        check(json!({"status": {"phase": "Pending"}}), "0/2 | Pending | 0");
        check(json!({"status": {"containerStatuses": [running("app"), running("log")]}}), "2/2 | Running | 0");
        check(json!({"status": {"phase": "Failed", "reason": "Evicted"}}), "0/2 | Evicted | 0");
        check(
            json!({"status": {"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"},
            ]}}),
            "0/2 | SchedulingGated | 0",
        );
        check(
            json!({"status": {"phase": "Pending", "containerStatuses": [
                waiting("app", "ContainerCreating"), waiting("log", "ImagePullBackOff"),
            ]}}),
            "0/2 | ContainerCreating | 0",
        );
    }

    #[test]
    fn restarts() {
        let app = restarted(waiting("app", "CrashLoopBackOff"), 3, "2026-01-09T23:55:00Z");
        let log = restarted(running("log"), 2, "2026-01-09T23:00:00Z");
        check(json!({"status": {"containerStatuses": [app, log]}}), "1/2 | CrashLoopBackOff | 5 (5m ago)");

        let mut silent = running("app");
        silent["restartCount"] = 3.into();
        check(json!({"status": {"containerStatuses": [silent]}}), "1/2 | Running | 3");
    }

    #[test]
    fn endings() {
        let done = || ended("app", json!({"exitCode": 0, "reason": "Completed"}));
        check(json!({"status": {"phase": "Succeeded", "containerStatuses": [done(), done()]}}), "0/2 | Completed | 0");
        check(
            json!({"status": {"containerStatuses": [done(), running("log")],
                "conditions": [{"type": "Ready", "status": "True"}]}}),
            "1/2 | Running | 0",
        );
        check(json!({"status": {"containerStatuses": [done(), running("log")]}}), "1/2 | NotReady | 0");
        check(
            json!({"status": {"containerStatuses": [done(), ended("log", json!({"exitCode": 1, "reason": "Error"}))]}}),
            "0/2 | Error | 0",
        );
        check(
            json!({"status": {"phase": "Failed", "containerStatuses": [
                ended("app", json!({"exitCode": 137, "signal": 9})),
            ]}}),
            "0/2 | Signal:9 | 0",
        );
        check(
            json!({"status": {"phase": "Failed", "containerStatuses": [ended("app", json!({"exitCode": 3}))]}}),
            "0/2 | ExitCode:3 | 0",
        );
    }

    #[test]
    fn init_containers() {
        let spec = json!({"initContainers": [{"name": "i0"}, {"name": "i1"}]});
        let done = || ended("i0", json!({"exitCode": 0, "reason": "Completed"}));
        let init = |statuses: Value, expected| {
            check(
                json!({"spec": spec, "status": {"phase": "Pending", "initContainerStatuses": statuses,
                    "containerStatuses": [waiting("app", "PodInitializing")]}}),
                expected,
            );
        };
        init(json!([running("i0")]), "0/2 | Init:0/2 | 0");
        init(json!([done(), waiting("i1", "PodInitializing")]), "0/2 | Init:1/2 | 0");
        init(json!([done(), waiting("i1", "CrashLoopBackOff")]), "0/2 | Init:CrashLoopBackOff | 0");
        init(json!([ended("i0", json!({"exitCode": 1, "reason": "Error"}))]), "0/2 | Init:Error | 0");
        init(json!([ended("i0", json!({"exitCode": 2}))]), "0/2 | Init:ExitCode:2 | 0");
        init(json!([ended("i0", json!({"exitCode": 2, "signal": 9}))]), "0/2 | Init:Signal:9 | 0");
        init(
            json!([restarted(waiting("i0", "CrashLoopBackOff"), 4, "2026-01-09T23:50:00Z")]),
            "0/2 | Init:CrashLoopBackOff | 4 (10m ago)",
        );
        // Restarts of init containers do not count once all are done.
        init(json!([restarted(done(), 4, "2026-01-09T23:50:00Z"), done()]), "0/2 | PodInitializing | 0");
    }

    #[test]
    fn sidecars() {
        let spec = json!({"initContainers": [{"name": "side", "restartPolicy": "Always"}, {"name": "i1"}]});
        let side = || restarted(running("side"), 1, "2026-01-09T23:50:00Z");
        check(
            json!({"spec": spec, "status": {"phase": "Pending", "initContainerStatuses": [side(), running("i1")]}}),
            "1/3 | Init:1/2 | 1 (10m ago)",
        );
        check(
            json!({"spec": spec, "status": {
                "initContainerStatuses": [side(), ended("i1", json!({"exitCode": 0}))],
                "containerStatuses": [running("app"), running("log")],
            }}),
            "3/3 | Running | 1 (10m ago)",
        );
        let mut unstarted = side();
        unstarted["started"] = false.into();
        check(
            json!({"spec": spec, "status": {
                "initContainerStatuses": [unstarted], "containerStatuses": [running("app"), running("log")],
                "conditions": [{"type": "Initialized", "status": "True"}],
            }}),
            "2/3 | Init:0/2 | 1 (10m ago)",
        );
    }

    #[test]
    fn deletion() {
        let metadata = json!({"deletionTimestamp": "2026-01-09T23:59:00Z"});
        check(
            json!({"metadata": metadata, "status": {"containerStatuses": [running("app")]}}),
            "1/2 | Terminating | 0",
        );
        check(json!({"metadata": metadata, "status": {"reason": "NodeLost"}}), "0/2 | Unknown | 0");
        check(json!({"metadata": metadata, "status": {"phase": "Succeeded"}}), "0/2 | Succeeded | 0");
    }

    #[test]
    fn wide_columns() {
        let pod = json!({
            "metadata": {"name": "web", "creationTimestamp": "2026-01-09T23:00:00Z"},
            "spec": {"nodeName": "n1", "readinessGates": [{"conditionType": "a"}, {"conditionType": "b"}]},
            "status": {
                "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}], "nominatedNodeName": "n2",
                "conditions": [{"type": "a", "status": "True"}, {"type": "b", "status": "False"}],
            },
        });
        assert_eq!(shown(&columns()[4..], &pod), "60m | 10.0.0.1 | n1 | n2 | 1/2");
        assert_eq!(shown(&columns()[4..], &json!({})), "<unknown> | <none> | <none> | <none> | <none>");
    }
}
