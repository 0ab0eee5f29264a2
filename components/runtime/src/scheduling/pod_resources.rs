//! The page `/metrics/resources`: the requests and limits of each pod.

use holdfast_scheduler::object::pod::Pod;
use holdfast_scheduler::object::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, Resources};
use holdfast_world::Key;
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A metric's name, its description, and the resources of a pod that it reports.
type Family = (&'static str, &'static str, fn(&Pod) -> &Resources);

/// The pods that have not finished, by their keys.
#[derive(Default)]
pub struct PodResources {
    pods: Mutex<HashMap<Key, Arc<Pod>>>,
}

impl PodResources {
    /// Applies the new state of a pod. `pod` is `None` if the pod was deleted.
    pub(super) fn apply_pod(&self, key: &Key, pod: Option<&Arc<Pod>>) {
        let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        match pod {
            Some(pod) => _ = pods.insert(key.clone(), pod.clone()),
            None => _ = pods.remove(key),
        }
    }

    /// The text of the page, in Prometheus' format.
    pub fn render(&self) -> String {
        let pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pods: Vec<Arc<Pod>> = pods.values().cloned().collect();
        pods.sort_by(|one, other| {
            (&one.key.namespace, &one.node_name, &one.key.name).cmp(&(
                &other.key.namespace,
                &other.node_name,
                &other.key.name,
            ))
        });
        let mut text = String::new();
        let families: [Family; 2] = [
            ("kube_pod_resource_limit", "What a pod may use at most of a resource", |pod| &pod.template.limits),
            ("kube_pod_resource_request", "What a pod asks for of a resource", |pod| &pod.template.requests),
        ];
        for (name, help, resources) in families {
            _ = write!(text, "# HELP {name} [STABLE] {help}, in the unit of that\n# TYPE {name} gauge\n");
            for pod in &pods {
                let resources = resources(pod);
                let mut named: Vec<&str> = resources.names().filter(|resource| resources.get(resource) != 0).collect();
                named.sort_unstable();
                for resource in named {
                    _ = writeln!(
                        text,
                        "{name}{{{}}} {}",
                        labels(pod, resource),
                        value(resource, resources.get(resource))
                    );
                }
            }
        }
        text
    }
}

fn labels(pod: &Pod, resource: &str) -> String {
    let unit = match resource {
        CPU => "cores",
        MEMORY | EPHEMERAL_STORAGE => "bytes",
        _ if resource.starts_with("hugepages-") => "bytes",
        _ if resource.starts_with("attachable-volumes-") => "integer",
        _ => "",
    };
    let priority = pod.priority.to_string();
    let pairs = [
        ("namespace", &*pod.key.namespace),
        ("node", pod.node_name.as_deref().unwrap_or_default()),
        ("pod", &*pod.key.name),
        ("priority", &priority),
        ("resource", resource),
        ("scheduler", &*pod.template.scheduler_name),
        ("unit", unit),
    ];
    pairs.map(|(name, value)| format!("{name}=\"{value}\"")).join(",")
}

fn value(resource: &str, amount: i64) -> f64 {
    if resource == CPU { amount as f64 / 1000.0 } else { amount as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_scheduler::{Kind, Snapshot};
    use holdfast_value::json;

    #[test]
    fn pods_are_told_by_resource() {
        let (resources, mut snapshot) = (PodResources::default(), Snapshot::new());
        snapshot.read_limits();
        let container = json!({"resources": {
            "requests": {"cpu": "250m", "memory": "1Gi", "example.com/gpu": "2"}, "limits": {"cpu": "1"}}});
        let object = json!({"spec": {"nodeName": "n", "priority": 7, "overhead": {"cpu": "50m", "memory": "1"},
            "containers": [container, {"resources": {"requests": {"hugepages-2Mi": "2Mi"}}}]}});
        let key = Key::new("default", "p");
        snapshot.apply(Kind::Pod, &key, Some(&object));
        resources.apply_pod(&key, snapshot.pod(&key));
        let labels = |resource: &str, unit: &str| {
            format!(
                "{{namespace=\"default\",node=\"n\",pod=\"p\",priority=\"7\",resource=\"{resource}\",\
                 scheduler=\"default-scheduler\",unit=\"{unit}\"}}"
            )
        };
        let text = resources.render();
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                format!("kube_pod_resource_limit{} 1.05", labels("cpu", "cores")),
                format!("kube_pod_resource_request{} 0.3", labels("cpu", "cores")),
                format!("kube_pod_resource_request{} 2", labels("example.com/gpu", "")),
                format!("kube_pod_resource_request{} 2097152", labels("hugepages-2Mi", "bytes")),
                format!("kube_pod_resource_request{} 1073741825", labels("memory", "bytes")),
            ]
        );
        resources.apply_pod(&key, None);
        assert!(resources.render().lines().all(|line| line.starts_with('#')));
    }
}
