//! The resources that are watched.

use serde_json::{Value, json};

/// A resource: plural name, kind, API version, and whether it is namespaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceInfo {
    pub plural: &'static str,
    pub kind: &'static str,
    pub api_version: &'static str,
    pub namespaced: bool,
}

const fn resource(
    plural: &'static str,
    kind: &'static str,
    api_version: &'static str,
    namespaced: bool,
) -> ResourceInfo {
    ResourceInfo { plural, kind, api_version, namespaced }
}

pub const RESOURCES: &[ResourceInfo] = &[
    resource("namespaces", "Namespace", "v1", false),
    resource("nodes", "Node", "v1", false),
    resource("persistentvolumes", "PersistentVolume", "v1", false),
    resource("pods", "Pod", "v1", true),
    resource("services", "Service", "v1", true),
    resource("endpoints", "Endpoints", "v1", true),
    resource("configmaps", "ConfigMap", "v1", true),
    resource("secrets", "Secret", "v1", true),
    resource("serviceaccounts", "ServiceAccount", "v1", true),
    resource("persistentvolumeclaims", "PersistentVolumeClaim", "v1", true),
    resource("replicationcontrollers", "ReplicationController", "v1", true),
    resource("resourcequotas", "ResourceQuota", "v1", true),
    resource("limitranges", "LimitRange", "v1", true),
    resource("events", "Event", "v1", true),
    resource("deployments", "Deployment", "apps/v1", true),
    resource("replicasets", "ReplicaSet", "apps/v1", true),
    resource("statefulsets", "StatefulSet", "apps/v1", true),
    resource("daemonsets", "DaemonSet", "apps/v1", true),
    resource("controllerrevisions", "ControllerRevision", "apps/v1", true),
    resource("jobs", "Job", "batch/v1", true),
    resource("cronjobs", "CronJob", "batch/v1", true),
    resource("endpointslices", "EndpointSlice", "discovery.k8s.io/v1", true),
    resource("poddisruptionbudgets", "PodDisruptionBudget", "policy/v1", true),
    resource("horizontalpodautoscalers", "HorizontalPodAutoscaler", "autoscaling/v2", true),
    resource("certificatesigningrequests", "CertificateSigningRequest", "certificates.k8s.io/v1", false),
    resource("clusterroles", "ClusterRole", "rbac.authorization.k8s.io/v1", false),
    resource("resourceclaims", "ResourceClaim", "resource.k8s.io/v1", true),
    resource("servicecidrs", "ServiceCIDR", "networking.k8s.io/v1", false),
    resource("validatingadmissionpolicies", "ValidatingAdmissionPolicy", "admissionregistration.k8s.io/v1", false),
    resource("volumeattributesclasses", "VolumeAttributesClass", "storage.k8s.io/v1", false),
];

impl ResourceInfo {
    #[track_caller]
    pub fn named(plural: &str) -> ResourceInfo {
        let found = RESOURCES.iter().find(|resource| resource.plural == plural);
        *found.unwrap_or_else(|| panic!("{plural} are not looked at"))
    }

    pub fn of_kind(kind: &str) -> Option<ResourceInfo> {
        RESOURCES.iter().find(|resource| resource.kind == kind).copied()
    }

    /// The path of the resource's objects in a namespace, or in all namespaces if `namespace` is empty.
    pub fn path(&self, namespace: &str) -> String {
        let root = if self.api_version.contains('/') { "apis" } else { "api" };
        let within =
            if self.namespaced && !namespace.is_empty() { format!("namespaces/{namespace}/") } else { String::new() };
        format!("/{root}/{}/{within}{}", self.api_version, self.plural)
    }
}

/// The status that a scenario's kubelet writes for a running pod.
pub fn running(pod: &Value, ip: &str, ready: bool, now: &str) -> Value {
    let condition = |kind: &str| {
        let holds = ready || !matches!(kind, "Ready" | "ContainersReady");
        json!({"type": kind, "status": if holds { "True" } else { "False" }, "lastTransitionTime": now})
    };
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten().map(|container| {
        json!({"name": container["name"], "image": container["image"], "imageID": "x", "ready": ready, "started": true,
            "restartCount": 0, "state": {"running": {"startedAt": now}}})
    });
    let conditions = ["Initialized", "Ready", "ContainersReady", "PodScheduled"].map(condition);
    json!({"status": {
        "phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "startTime": now, "hostIP": "10.199.0.1",
        "conditions": conditions,
        "containerStatuses": containers.collect::<Vec<_>>(),
    }})
}

/// The current time in the format of objects.
pub fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
