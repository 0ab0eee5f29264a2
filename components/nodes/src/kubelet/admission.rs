//! Decides whether a node admits a pod. The scheduler binds only pods that fit, but a user who sets `nodeName` may bind
//! any pod.

use holdfast_scheduler::object::labels::Labels;
use holdfast_scheduler::object::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, Resources, is_extended};
use holdfast_scheduler::object::selector::Selector;
use holdfast_scheduler::object::terms::{NodeSelector, Taint, Toleration, tolerated};
use holdfast_scheduler::object::{StringPool, requests};
use holdfast_value::{Value, json};
use holdfast_world::{Interned, Text, Time};

/// The resources and ports that a pod uses on its node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct PodUsage {
    resources: Resources,
    /// The pod's host ports: number, protocol and address of each. An empty address means all addresses of the node.
    ports: Vec<(i64, String, String)>,
}

impl PodUsage {
    /// The resources and ports of a pod. Pods of one template use the same resources and ports, so they share one
    /// value.
    pub fn by(pod: &Value) -> Interned<PodUsage> {
        let lists = ["initContainers", "containers"].into_iter();
        let containers = lists.flat_map(|list| pod["spec"][list].as_array().into_iter().flatten());
        let ports = containers.flat_map(|container| container["ports"].as_array().into_iter().flatten());
        let text = |port: &Value, field: &str| port[field].as_str().unwrap_or_default().to_owned();
        let of_node = ports.filter_map(|port| {
            let number = port["hostPort"].as_i64().filter(|number| *number > 0)?;
            let address = Some(text(port, "hostIP")).filter(|address| address != "0.0.0.0").unwrap_or_default();
            Some((number, text(port, "protocol"), address))
        });
        Interned::new(PodUsage {
            resources: requests::pod_requests(&mut StringPool::default(), pod),
            ports: of_node.collect(),
        })
    }

    fn shares_a_port(&self, other: &PodUsage) -> bool {
        self.ports.iter().any(|(number, protocol, address)| {
            let meets = |of: &str| of == address || of.is_empty() || address.is_empty();
            other.ports.iter().any(|port| port.0 == *number && port.1 == *protocol && meets(&port.2))
        })
    }
}

/// The properties of a node that decide which pods it admits.
#[derive(Debug, Default)]
pub struct NodeCapacity {
    name: Text,
    labels: Labels,
    taints: Vec<Taint>,
    /// The node's allocatable resources; `None` if the node's status does not contain them.
    allocatable: Option<Resources>,
}

/// Why a node does not admit a pod: the reason and message of the pod's status.
#[derive(Debug, PartialEq, Eq)]
pub struct Rejection {
    pub reason: String,
    pub message: String,
}

impl NodeCapacity {
    pub fn of(node: &Value) -> NodeCapacity {
        let (pool, allocatable) = (&mut StringPool::default(), &node["status"]["allocatable"]);
        NodeCapacity {
            name: node["metadata"]["name"].as_str().unwrap_or_default().into(),
            labels: Labels::decode(pool, &node["metadata"]["labels"]),
            taints: Taint::decode_all(pool, &node["spec"]["taints"]),
            allocatable: allocatable.is_object().then(|| Resources::decode(pool, allocatable)),
        }
    }

    /// Why the node does not admit a pod in addition to the pods that it has already admitted; `None` if the node
    /// admits the pod.
    pub fn rejects(&self, pod: &Value, wanted: &PodUsage, others: &[Interned<PodUsage>]) -> Option<Rejection> {
        let failed = |predicate: &str, why: &str| {
            let message = format!("Predicate {predicate} failed: {why}");
            Rejection { reason: predicate.to_owned(), message }
        };
        if let Some((name, requested, used, capacity)) = self.lacks(&wanted.resources, others) {
            let numbers = format!("requested: {requested}, used: {used}, capacity: {capacity}");
            let message = format!("Node didn't have enough resource: {name}, {numbers}");
            return Some(Rejection { reason: format!("OutOf{name}"), message });
        }
        if !self.is_meant(pod) {
            return Some(failed("NodeAffinity", "node(s) didn't match Pod's node affinity/selector"));
        }
        if others.iter().any(|other| wanted.shares_a_port(other)) {
            return Some(failed("NodePorts", "node(s) didn't have free ports for the requested pod ports"));
        }
        let tolerations = Toleration::decode_all(&mut StringPool::default(), &pod["spec"]["tolerations"]);
        let drives_out = |taint: &&Taint| &*taint.effect == "NoExecute" && !tolerated(taint, &tolerations);
        let untolerated = self.taints.iter().find(drives_out);
        untolerated.map(|_| failed("TaintToleration", "node(s) had taints that the pod didn't tolerate"))
    }

    /// The first resource of which the node has too little, with the requested, used and available amounts.
    fn lacks<'a>(&'a self, wanted: &'a Resources, others: &[Interned<PodUsage>]) -> Option<(&'a str, i64, i64, i64)> {
        let all = self.allocatable.as_ref()?;
        let count = i64::try_from(others.len()).unwrap_or(i64::MAX);
        if count >= all.pods {
            return Some(("pods", 1, count, all.pods));
        }
        let scalars = wanted.scalars.iter().map(|(name, _)| &**name);
        // An extended resource that the node does not have at all is not compared.
        let is_counted = |name: &&str| !is_extended(name) || all.scalars.iter().any(|(known, _)| **known == **name);
        let names = [CPU, MEMORY, EPHEMERAL_STORAGE].into_iter().chain(scalars.filter(is_counted));
        names.map(|name| (name, wanted.get(name))).filter(|(_, requested)| *requested > 0).find_map(
            |(name, requested)| {
                let used = others.iter().map(|other| other.resources.get(name)).fold(0, i64::saturating_add);
                let capacity = all.get(name);
                (requested > capacity.saturating_sub(used)).then_some((name, requested, used, capacity))
            },
        )
    }

    /// Whether the node matches the pod's node selector and affinity.
    fn is_meant(&self, pod: &Value) -> bool {
        let (pool, spec) = (&mut StringPool::default(), &pod["spec"]);
        let affinity = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        let labels = Selector::of_labels(&Labels::decode(pool, &spec["nodeSelector"]));
        let affinity = NodeSelector::decode(pool, affinity);
        labels.matches(&self.labels) && affinity.is_none_or(|affinity| affinity.matches(&self.name, &self.labels))
    }
}

/// The status of a rejected pod, as a strategic merge patch.
pub fn rejected(pod: &Value, rejection: &Rejection, now: Time) -> Value {
    let meta = &pod["metadata"];
    let mut status = json!({
        "phase": "Failed", "reason": rejection.reason, "message": format!("Pod was rejected: {}", rejection.message),
        "startTime": Time::from_second(now.seconds()),
    });
    if meta["generation"].as_i64().is_some_and(|generation| generation > 0) {
        status["observedGeneration"] = meta["generation"].clone();
    }
    json!({"metadata": {"uid": meta["uid"]}, "status": status})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(spec: Value) -> Value {
        let mut spec = spec;
        if spec["containers"].is_null() {
            spec["containers"] = json!([{"name": "c"}]);
        }
        json!({"metadata": {"name": "p"}, "spec": spec})
    }

    fn asking(amounts: Value) -> Value {
        pod(json!({"containers": [{"name": "c", "resources": {"requests": amounts}}]}))
    }

    fn using(address: &str, port: i64) -> Value {
        pod(json!({"containers": [{"name": "c", "ports": [{"hostPort": port, "protocol": "TCP", "hostIP": address}]}]}))
    }

    #[test]
    fn what_does_not_fit_is_rejected_with_the_first_reason() {
        let room = NodeCapacity::of(&json!({
            "metadata": {"name": "n", "labels": {"disk": "fast"}},
            "spec": {"taints": [{"key": "k", "effect": "NoExecute"}, {"key": "l", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "4", "memory": "1Gi", "pods": "3", "example.com/gpu": "1"}},
        }));
        let tolerating = |mut pod: Value| {
            pod["spec"]["tolerations"] = json!([{"key": "k", "operator": "Exists"}]);
            pod
        };
        let selecting = |disk: &str| tolerating(pod(json!({"nodeSelector": {"disk": disk}})));
        let others: Vec<_> = [asking(json!({"cpu": "1"})), using("10.0.0.1", 80)].iter().map(PodUsage::by).collect();
        let no_room = |what: &str| format!("Node didn't have enough resource: {what}");
        let failed = |what: &str| format!("Predicate {what}");
        for (pod, reason, message) in [
            (asking(json!({"cpu": "3500m"})), "OutOfcpu", no_room("cpu, requested: 3500, used: 1000, capacity: 4000")),
            (
                asking(json!({"memory": "2Gi"})),
                "OutOfmemory",
                no_room("memory, requested: 2147483648, used: 0, capacity: 1073741824"),
            ),
            (
                asking(json!({"example.com/gpu": "2"})),
                "OutOfexample.com/gpu",
                no_room("example.com/gpu, requested: 2, used: 0, capacity: 1"),
            ),
            (
                selecting("slow"),
                "NodeAffinity",
                failed("NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"),
            ),
            (
                tolerating(using("", 80)),
                "NodePorts",
                failed("NodePorts failed: node(s) didn't have free ports for the requested pod ports"),
            ),
            (
                pod(json!({})),
                "TaintToleration",
                failed("TaintToleration failed: node(s) had taints that the pod didn't tolerate"),
            ),
        ] {
            let rejection = room.rejects(&pod, &PodUsage::by(&pod), &others);
            assert_eq!(rejection, Some(Rejection { reason: reason.into(), message }), "{pod}");
        }
        for pod in [
            tolerating(asking(json!({"cpu": "3", "example.com/elsewhere": "7"}))),
            tolerating(using("10.0.0.2", 80)),
            selecting("fast"),
        ] {
            assert_eq!(room.rejects(&pod, &PodUsage::by(&pod), &others), None, "{pod}");
        }
        let full: Vec<_> = (0..3).map(|_| PodUsage::by(&pod(json!({})))).collect();
        let pod = tolerating(pod(json!({})));
        let rejection = room.rejects(&pod, &PodUsage::by(&pod), &full).expect("three are enough");
        assert_eq!(
            (rejection.reason.as_str(), rejection.message.as_str()),
            ("OutOfpods", no_room("pods, requested: 1, used: 3, capacity: 3").as_str())
        );
        assert_eq!(
            NodeCapacity::default().rejects(&pod, &PodUsage::by(&pod), &full),
            None,
            "a node that says nothing has room"
        );
    }
}
