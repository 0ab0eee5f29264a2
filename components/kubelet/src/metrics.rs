//! The usage metrics of nodes and their containers, in the form in which kubelets serve them. The metrics are computed
//! from annotations at each request.

use crate::cluster::now_ms;
use crate::containers::{status, time_ms};
use holdfast_nodes::{Behaviour, BehaviourSettings, ResourceUsage};
use holdfast_value::{Value, json};
use std::fmt::Write;

/// A running container of a pod.
struct Running<'p> {
    namespace: &'p str,
    pod: &'p str,
    uid: &'p str,
    container: &'p str,
    image: &'p str,
    began_ms: i64,
    usage: ResourceUsage,
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn running<'p>(pods: &'p [Value], told: &BehaviourSettings) -> Vec<Running<'p>> {
    let mut found = Vec::new();
    for pod in pods {
        let own = BehaviourSettings::of(pod);
        let meta = &pod["metadata"];
        for list in ["initContainers", "containers"] {
            for container in pod["spec"][list].as_array().into_iter().flatten() {
                let name = text(&container["name"]);
                let began_ms = time_ms(&status(pod, name)["state"]["running"]["startedAt"]);
                found.extend(began_ms.map(|began_ms| Running {
                    namespace: text(&meta["namespace"]),
                    pod: text(&meta["name"]),
                    uid: text(&meta["uid"]),
                    container: name,
                    image: text(&container["image"]),
                    began_ms,
                    usage: Behaviour::of(name, told, &own).usage,
                }));
            }
        }
    }
    found
}

impl Running<'_> {
    /// The CPU time that the container has used since its start, in seconds.
    fn cpu_seconds(&self, now_ms: i64) -> f64 {
        let ran_ms = now_ms.saturating_sub(self.began_ms).max(0);
        self.usage.cpu_nanos as f64 / 1e9 * (ran_ms as f64 / 1000.0)
    }
}

/// The text of the page `/metrics/resource`.
pub fn resource(pods: &[Value], told: &BehaviourSettings) -> String {
    let now = now_ms();
    let running = running(pods, told);
    let mut out = String::new();
    let mut family = |name: &str, help: &str, kind: &str, lines: &[(String, f64)], is_timed: bool| {
        _ = write!(out, "# HELP {name} [STABLE] {help}\n# TYPE {name} {kind}\n");
        for (labels, value) in lines {
            let time = if is_timed { format!(" {now}") } else { String::new() };
            _ = writeln!(out, "{name}{labels} {value}{time}");
        }
    };
    let of = |value: &dyn Fn(&Running) -> f64| -> Vec<(String, f64)> {
        let line = |one: &Running| {
            let labels = format!("{{container={:?},namespace={:?},pod={:?}}}", one.container, one.namespace, one.pod);
            (labels, value(one))
        };
        running.iter().map(line).collect()
    };
    let pods = |value: &dyn Fn(&Running) -> f64| -> Vec<(String, f64)> {
        let mut sums: Vec<(String, f64)> = Vec::new();
        for one in &running {
            let labels = format!("{{namespace={:?},pod={:?}}}", one.namespace, one.pod);
            match sums.last_mut().filter(|(last, _)| *last == labels) {
                Some((_, sum)) => *sum += value(one),
                None => sums.push((labels, value(one))),
            }
        }
        sums
    };
    let node = |value: &dyn Fn(&Running) -> f64| vec![(String::new(), running.iter().map(value).sum::<f64>())];
    let cpu = |one: &Running| one.cpu_seconds(now);
    let memory = |one: &Running| one.usage.memory_bytes as f64;
    let cpu_help = "Cumulative cpu time consumed by the";
    let memory_help = "Current working set of the";
    family(
        "container_cpu_usage_seconds_total",
        &format!("{cpu_help} container in core-seconds"),
        "counter",
        &of(&cpu),
        true,
    );
    family(
        "container_memory_working_set_bytes",
        &format!("{memory_help} container in bytes"),
        "gauge",
        &of(&memory),
        true,
    );
    let began = |one: &Running| one.began_ms as f64 / 1000.0;
    family(
        "container_start_time_seconds",
        "Start time of the container since unix epoch in seconds",
        "gauge",
        &of(&began),
        false,
    );
    family("node_cpu_usage_seconds_total", &format!("{cpu_help} node in core-seconds"), "counter", &node(&cpu), true);
    family("node_memory_working_set_bytes", &format!("{memory_help} node in bytes"), "gauge", &node(&memory), true);
    family("pod_cpu_usage_seconds_total", &format!("{cpu_help} pod in core-seconds"), "counter", &pods(&cpu), true);
    family("pod_memory_working_set_bytes", &format!("{memory_help} pod in bytes"), "gauge", &pods(&memory), true);
    family(
        "resource_scrape_error",
        "1 if there was an error while getting container metrics, 0 otherwise",
        "gauge",
        &[(String::new(), 0.0)],
        false,
    );
    out
}

/// The text of the page `/metrics/cadvisor`.
pub fn cadvisor(pods: &[Value], told: &BehaviourSettings) -> String {
    let now = now_ms();
    let mut out = String::new();
    let running = running(pods, told);
    for (name, kind) in [
        ("container_cpu_usage_seconds_total", "counter"),
        ("container_memory_usage_bytes", "gauge"),
        ("container_memory_working_set_bytes", "gauge"),
        ("container_start_time_seconds", "gauge"),
    ] {
        _ = writeln!(out, "# TYPE {name} {kind}");
        for one in &running {
            let value = match name {
                "container_cpu_usage_seconds_total" => one.cpu_seconds(now),
                "container_start_time_seconds" => one.began_ms as f64 / 1000.0,
                _ => one.usage.memory_bytes as f64,
            };
            let Running { namespace, pod, uid, container, image, .. } = one;
            let id = format!("/kubepods/pod{uid}/{container}");
            _ = writeln!(
                out,
                "{name}{{container={container:?},id={id:?},image={image:?},name={container:?},namespace={namespace:?},\
                 pod={pod:?}}} {value} {now}"
            );
        }
    }
    out
}

/// The text of the page `/metrics`, which has only a few counts.
pub fn process_metrics(pods: &[Value], told: &BehaviourSettings) -> String {
    let containers = running(pods, told).len();
    let pods = pods.iter().filter(|pod| pod["status"]["phase"] == "Running").count();
    format!(
        "# HELP kubelet_running_pods [ALPHA] Number of pods that have a running pod sandbox\n\
         # TYPE kubelet_running_pods gauge\nkubelet_running_pods {pods}\n\
         # HELP kubelet_running_containers [ALPHA] Number of containers currently running\n\
         # TYPE kubelet_running_containers gauge\nkubelet_running_containers{{container_state=\"running\"}} {containers}\n"
    )
}

/// The document of the page `/stats/summary`.
pub fn summary(pods: &[Value], told: &BehaviourSettings, node: &str) -> Value {
    let now = now_ms();
    let time = |millis: i64| json!(holdfast_world::Time::from_second(millis / 1000));
    let running = running(pods, told);
    let cpu = |nanos: u64, seconds: f64| json!({"time": time(now), "usageNanoCores": nanos, "usageCoreNanoSeconds": (seconds * 1e9) as u64});
    let memory =
        |bytes: u64| json!({"time": time(now), "usageBytes": bytes, "workingSetBytes": bytes, "rssBytes": bytes});
    let mut total = ResourceUsage::default();
    let mut seconds = 0.0;
    let mut told_pods: Vec<Value> = Vec::new();
    for of_pod in running.chunk_by(|one, other| one.uid == other.uid) {
        let mut sum = ResourceUsage::default();
        let mut pod_seconds = 0.0;
        let mut containers: Vec<Value> = Vec::new();
        for one in of_pod {
            sum.add(one.usage);
            pod_seconds += one.cpu_seconds(now);
            containers.push(json!({"name": one.container, "startTime": time(one.began_ms),
                "cpu": cpu(one.usage.cpu_nanos, one.cpu_seconds(now)), "memory": memory(one.usage.memory_bytes)}));
        }
        total.add(sum);
        seconds += pod_seconds;
        let first = &of_pod[0];
        told_pods.push(json!({
            "podRef": {"name": first.pod, "namespace": first.namespace, "uid": first.uid},
            "startTime": time(first.began_ms), "containers": containers,
            "cpu": cpu(sum.cpu_nanos, pod_seconds), "memory": memory(sum.memory_bytes),
        }));
    }
    json!({
        "node": {"nodeName": node, "startTime": time(running.iter().map(|one| one.began_ms).min().unwrap_or(now)),
            "cpu": cpu(total.cpu_nanos, seconds), "memory": memory(total.memory_bytes)},
        "pods": told_pods,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_is_told_of_what_runs() {
        let pod = |name: &str, state: Value| {
            json!({"metadata": {"namespace": "n", "name": name, "uid": name, "annotations": {
                "simulate.holdfast.dev/usage-cpu": "250m", "simulate.holdfast.dev/usage-memory": "2Mi"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
                "status": {"phase": "Running", "containerStatuses": [{"name": "c", "state": state}]}})
        };
        let began = json!({"running": {"startedAt": holdfast_world::Time::from_second(now_ms() / 1000 - 100)}});
        let pods = [pod("a", began), pod("b", json!({"waiting": {}}))];
        let shown = resource(&pods, &BehaviourSettings::default());
        assert!(
            shown.contains("container_memory_working_set_bytes{container=\"c\",namespace=\"n\",pod=\"a\"} 2097152 ")
        );
        assert!(!shown.contains("pod=\"b\""));
        let used = summary(&pods, &BehaviourSettings::default(), "node-0");
        assert_eq!(used["node"]["cpu"]["usageNanoCores"], 250_000_000);
        assert_eq!(used["pods"].as_array().map(Vec::len), Some(1));
        assert!(cadvisor(&pods, &BehaviourSettings::default()).contains("container_cpu_usage_seconds_total{"));
        assert!(
            process_metrics(&pods, &BehaviourSettings::default())
                .contains("kubelet_running_containers{container_state=\"running\"} 1")
        );
    }
}
