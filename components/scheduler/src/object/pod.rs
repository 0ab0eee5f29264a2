//! The fields of pods that the scheduler reads, in two parts: the template, which several pods may share, and the
//! fields of one pod.

use super::extended::{self, Container};
use super::labels::Labels;
use super::requests;
use super::resources::Resources;
use super::terms::{NodeSelector, NodeTerm, PodAffinity, PreferredNodeTerm, SpreadConstraint, Toleration};
use super::volume::Disk;
use super::{KINDS, Key, Kind, StringPool, Text, items, nanoseconds, text};
use holdfast_value::Value;
use std::sync::Arc;

/// The paths of the fields of a pod that the scheduler reads.
#[rustfmt::skip]
pub(super) const FIELDS: &[&str] = &[
    "metadata.uid", "metadata.resourceVersion", "metadata.generation", "metadata.deletionTimestamp", "metadata.labels",
    "metadata.ownerReferences",
    "spec.nodeName", "spec.nodeSelector", "spec.affinity", "spec.tolerations", "spec.topologySpreadConstraints",
    "spec.priority", "spec.preemptionPolicy", "spec.schedulingGates", "spec.schedulerName", "spec.workloadRef",
    "spec.resources", "spec.overhead", "spec.resourceClaims",
    "spec.containers.name", "spec.containers.image", "spec.containers.ports", "spec.containers.resources",
    "spec.initContainers.name", "spec.initContainers.image", "spec.initContainers.ports",
    "spec.initContainers.resources", "spec.initContainers.restartPolicy",
    "spec.volumes.name", "spec.volumes.persistentVolumeClaim", "spec.volumes.ephemeral.*", "spec.volumes.image",
    "spec.volumes.gcePersistentDisk", "spec.volumes.awsElasticBlockStore", "spec.volumes.iscsi", "spec.volumes.rbd",
    "spec.volumes.azureDisk", "spec.volumes.cinder", "spec.volumes.vsphereVolume", "spec.volumes.portworxVolume",
    "spec.volumes.azureFile",
    "status.phase", "status.startTime", "status.nominatedNodeName",
    "status.conditions.type", "status.conditions.status", "status.conditions.reason", "status.conditions.message",
    "status.resourceClaimStatuses",
    "status.containerStatuses.name", "status.containerStatuses.resources",
    "status.containerStatuses.allocatedResources", "status.initContainerStatuses",
    "status.resources", "status.allocatedResources",
];

/// The fields of a pod that decide which nodes are feasible and how well they score. Pods with equal templates get
/// equal answers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Template {
    pub namespace: Text,
    pub scheduler_name: Text,
    pub labels: Labels,
    /// The requests by which filters compare the pod with a node.
    pub requests: Resources,
    /// The requests by which scores count the pod while it has no node. Containers without requests have default
    /// requests.
    pub non_zero_requests: Resources,
    /// The requests by which scores count the pod once it is on a node. Containers without requests have default
    /// requests.
    pub bound_non_zero_requests: Resources,
    /// The sum of the limits; empty unless the snapshot reads limits.
    pub limits: Resources,
    pub node_selector: Labels,
    pub node_affinity: Option<NodeSelector>,
    pub preferred_nodes: Vec<PreferredNodeTerm>,
    /// The errors in the preferred node affinity terms.
    pub preference_errors: Vec<String>,
    pub pod_affinity: PodAffinity,
    pub tolerations: Vec<Toleration>,
    pub spread: Vec<SpreadConstraint>,
    // The ports are sorted.
    pub ports: Vec<Port>,
    /// The images of init containers, containers and volumes; an image that is used twice is listed twice.
    pub images: Vec<Text>,
    /// The number of containers and init containers together.
    pub containers: i64,
    pub volumes: Vec<Volume>,
    pub claims: Vec<PodClaim>,
    /// The containers that request extended resources that devices may satisfy.
    pub extended: Vec<Container>,
    pub controller: Option<Controller>,
    pub gang: Option<Gang>,
    /// The pod's name, if the names of its volume claims or ResourceClaims derive from it. Such a template belongs to
    /// one pod alone.
    pub own_name: Option<Text>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Controller {
    pub api_version: Text,
    pub kind: Text,
    pub name: Text,
    pub uid: Text,
}

/// The group of a Workload that a pod belongs to. Each replica of a group is a gang of its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gang {
    pub namespace: Text,
    pub workload: Text,
    pub group: Text,
    pub replica: Text,
}

#[derive(Debug, Clone)]
pub struct Pod {
    pub key: Key,
    pub uid: Text,
    /// The resource version as a number; `None` if it is no number.
    pub version: Option<u64>,
    pub generation: i64,
    pub template: Arc<Template>,
    /// The number of the shared template. Pods with equal templates have equal numbers as long as the snapshot contains
    /// a pod with the template.
    pub template_id: u64,
    pub node_name: Option<Text>,
    pub nominated: Option<Text>,
    pub priority: i64,
    /// Whether the pod's preemption policy is `Never`, so no pod is evicted for it.
    pub never_preempts: bool,
    pub gates: Vec<Text>,
    pub deleting: bool,
    /// Whether the phase is `Succeeded` or `Failed`: then the pod uses no resources any more.
    pub finished: bool,
    /// The time at which the pod started, in nanoseconds since 1970.
    pub started: Option<i128>,
    /// Whether the pod has the condition that the scheduler sets when it preempts a pod.
    pub preempted: bool,
    /// The requests that count on the pod's node, if they differ from the requests of its template because the pod is
    /// being resized: first the requests that filters use, then the requests that scores use.
    pub resized: Option<Box<(Resources, Resources)>>,
    /// For each claim of the spec whose ResourceClaim was generated for the pod, the name in the spec and the name of
    /// the ResourceClaim; `None` if no object was needed.
    pub generated_claims: Vec<(Text, Option<Text>)>,
    /// The pod's condition `PodScheduled`: whether it is true, the reason and the message.
    pub scheduled: Option<(bool, Text, Text)>,
}

/// A host port of a container. An empty address means all addresses of the node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Port {
    pub port: i64,
    pub protocol: Text,
    pub address: Text,
}

/// A volume that restricts the nodes of its pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Volume {
    Claim(Text),
    /// A volume with a claim that is made for the pod. The claim's name consists of the pod's name and this volume's
    /// name.
    Ephemeral(Text),
    /// A disk of a cloud or a storage system. Two volumes may conflict if they name one disk.
    Disk(Disk),
}

/// A ResourceClaim that a pod's spec names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodClaim {
    pub name: Text,
    /// The name of the ResourceClaim; `None` if it is made from a template.
    pub claim: Option<Text>,
}

impl Pod {
    /// Decodes a pod. The pod's template is its own until the snapshot shares it.
    pub fn decode(pool: &mut StringPool, key: Key, pod: &Value) -> Pod {
        let (spec, status) = (&pod["spec"], &pod["status"]);
        let template = Arc::new(Template::decode(pool, &key, pod));
        let condition = |kind: &str| items(&status["conditions"]).find(|one| text(&one["type"]) == kind);
        Pod {
            // A uid belongs to one pod, so it is not added to the shared strings.
            uid: text(&pod["metadata"]["uid"]).into(),
            version: text(&pod["metadata"]["resourceVersion"]).parse().ok(),
            generation: pod["metadata"]["generation"].as_i64().unwrap_or(0),
            template_id: 0,
            node_name: pool.optional(&spec["nodeName"]),
            nominated: pool.optional(&status["nominatedNodeName"]),
            priority: spec["priority"].as_i64().unwrap_or(0).clamp(i32::MIN.into(), i32::MAX.into()),
            never_preempts: text(&spec["preemptionPolicy"]) == "Never",
            gates: items(&spec["schedulingGates"]).map(|gate| pool.field(&gate["name"])).collect(),
            deleting: pod["metadata"]["deletionTimestamp"].is_string(),
            finished: matches!(text(&status["phase"]), "Succeeded" | "Failed"),
            started: nanoseconds(text(&status["startTime"])),
            preempted: condition("DisruptionTarget")
                .is_some_and(|one| text(&one["status"]) == "True" && text(&one["reason"]) == "PreemptionByScheduler"),
            resized: resized(pool, pod, &template),
            generated_claims: items(&status["resourceClaimStatuses"])
                .map(|one| (pool.field(&one["name"]), pool.optional(&one["resourceClaimName"])))
                .collect(),
            scheduled: condition("PodScheduled")
                .map(|one| (text(&one["status"]) == "True", pool.field(&one["reason"]), pool.field(&one["message"]))),
            template,
            key,
        }
    }

    /// The pod's requests on its node, including a resize, as filters use them.
    pub fn effective_requests(&self) -> &Resources {
        self.resized.as_ref().map_or(&self.template.requests, |resized| &resized.0)
    }

    /// The pod's requests on its node, including a resize, as scores use them.
    pub fn effective_non_zero_requests(&self) -> &Resources {
        self.resized.as_ref().map_or(&self.template.bound_non_zero_requests, |resized| &resized.1)
    }

    pub fn namespace(&self) -> &Text {
        &self.key.namespace
    }

    /// The name of the volume claim that is made for one of the pod's generic ephemeral volumes.
    pub fn ephemeral_claim(&self, volume: &str) -> Text {
        format!("{}-{volume}", self.key.name).into()
    }

    /// The keys of the pod's volume claims, and whether each claim is made for the pod.
    pub fn volume_claims(&self) -> impl Iterator<Item = (Key, bool)> + '_ {
        let key = |name: Text| Key { namespace: self.key.namespace.clone(), name };
        self.template.volumes.iter().filter_map(move |volume| match volume {
            Volume::Claim(name) => Some((key(name.clone()), false)),
            Volume::Ephemeral(volume) => Some((key(self.ephemeral_claim(volume)), true)),
            Volume::Disk(_) => None,
        })
    }
}

fn resized(pool: &mut StringPool, pod: &Value, template: &Template) -> Option<Box<(Resources, Resources)>> {
    if !requests::is_resized(pod) {
        return None;
    }
    let effective = requests::effective_requests(pool, pod);
    (effective.0 != template.requests || effective.1 != template.bound_non_zero_requests).then(|| Box::new(effective))
}

impl Template {
    fn decode(pool: &mut StringPool, key: &Key, pod: &Value) -> Self {
        let spec = &pod["spec"];
        let labels = Labels::decode(pool, &pod["metadata"]["labels"]);
        let affinity = &spec["affinity"]["nodeAffinity"];
        let containers = || items(&spec["initContainers"]).chain(items(&spec["containers"]));
        let volumes: Vec<Volume> = items(&spec["volumes"]).filter_map(|one| Volume::decode(pool, one)).collect();
        let claims: Vec<PodClaim> = items(&spec["resourceClaims"])
            .map(|one| PodClaim { name: pool.field(&one["name"]), claim: pool.optional(&one["resourceClaimName"]) })
            .collect();
        let claims_are_named_after_pod = volumes.iter().any(|volume| matches!(volume, Volume::Ephemeral(_)))
            || claims.iter().any(|claim| claim.claim.is_none());
        let preferred = &affinity["preferredDuringSchedulingIgnoredDuringExecution"];
        let preferred_nodes = PreferredNodeTerm::decode_all(pool, preferred);
        let scheduler_name = spec["schedulerName"].as_str().filter(|name| !name.is_empty());
        Template {
            namespace: key.namespace.clone(),
            scheduler_name: pool.text(scheduler_name.unwrap_or(DEFAULT_SCHEDULER)),
            spread: SpreadConstraint::decode_all(pool, &spec["topologySpreadConstraints"], &labels),
            labels,
            requests: requests::pod_requests(pool, pod),
            non_zero_requests: requests::non_zero_requests(pool, pod),
            bound_non_zero_requests: requests::bound_non_zero_requests(pool, pod),
            limits: if pool.reads_limits { requests::limits(pool, pod) } else { Resources::default() },
            node_selector: Labels::decode(pool, &spec["nodeSelector"]),
            node_affinity: NodeSelector::decode(pool, &affinity["requiredDuringSchedulingIgnoredDuringExecution"]),
            preference_errors: PreferredNodeTerm::faults(&preferred_nodes),
            preferred_nodes,
            pod_affinity: PodAffinity::decode(pool, &spec["affinity"], &key.namespace),
            tolerations: Toleration::decode_all(pool, &spec["tolerations"]),
            ports: host_ports(pool, spec),
            images: containers()
                .map(|one| &one["image"])
                .chain(items(&spec["volumes"]).map(|one| &one["image"]["reference"]))
                .filter_map(|image| pool.optional(image))
                .collect(),
            containers: i64::try_from(containers().count()).unwrap_or(i64::MAX),
            volumes,
            claims,
            extended: Container::decode_all(pool, spec),
            controller: items(&pod["metadata"]["ownerReferences"])
                .find(|owner| owner["controller"] == true)
                .map(|owner| Controller::decode(pool, owner)),
            gang: Gang::decode(pool, &key.namespace, &spec["workloadRef"]),
            own_name: claims_are_named_after_pod.then(|| key.name.clone()),
        }
    }

    /// How many terms of the pod must be checked, for each node or for each pod on a node. The number is an estimate of
    /// the work of scheduling the pod.
    pub fn term_count(&self) -> usize {
        let node = |term: &NodeTerm| 1 + term.labels.len() + term.fields.len();
        let required = self.node_affinity.iter().flat_map(|selector| &selector.0).map(node);
        let preferred = self.preferred_nodes.iter().map(|preferred| node(&preferred.term));
        let PodAffinity { required: near, required_anti, preferred: likes, preferred_anti, .. } = &self.pod_affinity;
        let pods = [near, required_anti, likes, preferred_anti].map(Vec::len).iter().sum::<usize>();
        let others = [
            self.node_selector.len(),
            self.tolerations.len(),
            self.spread.len(),
            self.ports.len(),
            self.images.len(),
            self.volumes.len(),
            self.claims.len(),
            self.extended.len(),
        ];
        required.chain(preferred).sum::<usize>() + pods + others.iter().sum::<usize>()
    }

    /// The extended resources that the pod requests.
    pub fn extended_resources(&self) -> impl Iterator<Item = &Text> {
        extended::resources(&self.extended).into_iter()
    }

    /// Whether the node selector and the required node affinity allow a node.
    pub fn allows(&self, name: &Text, labels: &Labels) -> bool {
        self.node_selector.is_subset_of(labels)
            && self.node_affinity.as_ref().is_none_or(|affinity| affinity.matches(name, labels))
    }
}

impl Controller {
    fn decode(pool: &mut StringPool, owner: &Value) -> Self {
        let mut field = |name: &str| pool.field(&owner[name]);
        Controller { api_version: field("apiVersion"), kind: field("kind"), name: field("name"), uid: field("uid") }
    }

    /// The kind of the controller, if it is a kind whose selectors the scheduler reads.
    pub fn kind(&self) -> Option<Kind> {
        KINDS.iter().find(|one| one.name == &*self.kind && one.has_api_version(&self.api_version)).map(|one| one.kind)
    }
}

impl Gang {
    fn decode(pool: &mut StringPool, namespace: &Text, reference: &Value) -> Option<Self> {
        Some(Gang {
            workload: pool.optional(&reference["name"])?,
            namespace: namespace.clone(),
            group: pool.field(&reference["podGroup"]),
            replica: pool.field(&reference["podGroupReplicaKey"]),
        })
    }
}

pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// The host ports of containers and sidecars.
fn host_ports(pool: &mut StringPool, spec: &Value) -> Vec<Port> {
    let sidecars = items(&spec["initContainers"]).filter(|one| text(&one["restartPolicy"]) == "Always");
    let containers = items(&spec["containers"]).chain(sidecars);
    let mut ports: Vec<Port> = containers
        .flat_map(|container| items(&container["ports"]))
        .filter_map(|one| {
            let port = one["hostPort"].as_i64().filter(|port| *port > 0)?;
            let protocol = one["protocol"].as_str().filter(|text| !text.is_empty()).unwrap_or("TCP");
            let address = one["hostIP"].as_str().filter(|address| *address != "0.0.0.0").unwrap_or("");
            Some(Port { port, protocol: pool.text(protocol), address: pool.text(address) })
        })
        .collect();
    ports.sort();
    ports.dedup();
    ports
}

impl Port {
    pub fn conflicts(&self, other: &Port) -> bool {
        self.port == other.port
            && self.protocol == other.protocol
            && (self.address.is_empty() || other.address.is_empty() || self.address == other.address)
    }
}

impl Volume {
    fn decode(pool: &mut StringPool, volume: &Value) -> Option<Self> {
        if let Some(name) = pool.optional(&volume["persistentVolumeClaim"]["claimName"]) {
            return Some(Volume::Claim(name));
        }
        if volume["ephemeral"].is_object() {
            return Some(Volume::Ephemeral(pool.field(&volume["name"])));
        }
        Disk::decode(pool, volume).map(Volume::Disk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Kind;
    use holdfast_value::json;

    /// A pod in which each field that the scheduler reads has a value that changes the decoded pod.
    fn pod_with_all_fields() -> Value {
        let container = |name: &str, port: u16| {
            json!({"name": name, "image": "i", "ports": [{"containerPort": 80, "hostPort": port, "hostIP": "10.0.0.1"}],
                "resources": {"requests": {"cpu": "1", "example.com/gpu": "2"}}, "env": [{"name": "A", "value": "a"}]})
        };
        let mut sidecar = container("s", 82);
        sidecar["restartPolicy"] = "Always".into();
        let granted = |name: &str| json!({"name": name, "resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "4"}});
        let term = json!({"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "zone"});
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "5", "generation": 2, "labels": {"a": "b"},
                "deletionTimestamp": "2026-01-01T00:00:00Z", "managedFields": [{"manager": "m"}],
                "ownerReferences": [{"kind": "ReplicaSet", "name": "r", "uid": "o", "controller": true}]},
            "spec": {
                "containers": [container("c", 80)], "initContainers": [container("i", 81), sidecar],
                "nodeName": "node", "nodeSelector": {"on": "this"}, "priority": 7, "preemptionPolicy": "Never",
                "schedulerName": "other", "schedulingGates": [{"name": "g"}], "overhead": {"cpu": "1"},
                "resources": {"requests": {"memory": "1Gi"}}, "workloadRef": {"name": "w", "podGroup": "g"},
                "tolerations": [{"key": "k", "operator": "Exists"}],
                "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
                "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"a": "b"}}}],
                "resourceClaims": [{"name": "d", "resourceClaimTemplateName": "t"}],
                "volumes": [
                    {"name": "a", "persistentVolumeClaim": {"claimName": "c"}},
                    {"name": "b", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
                    {"name": "c", "image": {"reference": "r"}},
                    {"name": "d", "gcePersistentDisk": {"pdName": "d", "readOnly": true}},
                    {"name": "e", "awsElasticBlockStore": {"volumeID": "v"}},
                    {"name": "f", "iscsi": {"iqn": "i"}},
                    {"name": "g", "rbd": {"monitors": ["m"], "pool": "p", "image": "i"}},
                    {"name": "h", "azureDisk": {"diskURI": "u"}},
                    {"name": "i", "cinder": {"volumeID": "v"}},
                    {"name": "j", "vsphereVolume": {"volumePath": "p"}},
                    {"name": "k", "portworxVolume": {"volumeID": "d"}},
                    {"name": "l", "azureFile": {"shareName": "s"}},
                ],
            },
            "status": {
                "phase": "Failed", "startTime": "2026-01-01T00:00:00Z", "nominatedNodeName": "m", "hostIP": "10.0.0.2",
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "r", "message": "m"},
                    {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"},
                ],
                "resourceClaimStatuses": [{"name": "d", "resourceClaimName": "made"}],
                "containerStatuses": [granted("c")], "initContainerStatuses": [granted("i"), granted("s")],
                "resources": {"requests": {"memory": "2Gi"}}, "allocatedResources": {"memory": "3Gi"},
            },
        })
    }

    fn decoded(pod: &Value) -> String {
        format!("{:#?}", Pod::decode(&mut StringPool::default(), Key::new("n", "p"), pod))
    }

    #[test]
    fn a_glance_at_a_pod_reads_all_fields_that_decoding_uses() {
        let whole = pod_with_all_fields();
        let seen = Kind::Pod.glance().look(whole.to_string().as_bytes()).document;
        assert_eq!(decoded(&seen), decoded(&whole));
        assert_eq!(seen["metadata"]["managedFields"], Value::Null);
        assert_eq!(seen["spec"]["containers"][0]["env"], Value::Null);
    }

    /// Each pod differs from the first pod in one field. All pods after the first may take their template from the
    /// cache, which an earlier pod has filled.
    #[test]
    fn a_pod_read_with_a_cached_template_equals_the_decoded_pod() {
        let mut plain = pod_with_all_fields();
        plain["spec"]["volumes"] = json!([{"name": "token-a", "projected": {"sources": []}}]);
        plain["spec"]["resourceClaims"] = json!([{"name": "d", "resourceClaimName": "made"}]);
        for (containers, statuses) in [("containers", "containerStatuses"), ("initContainers", "initContainerStatuses")]
        {
            for at in 0..plain["spec"][containers].as_array().map_or(0, Vec::len) {
                let asked = plain["spec"][containers][at]["resources"].clone();
                plain["status"][statuses][at]["allocatedResources"] = asked["requests"].clone();
                plain["status"][statuses][at]["resources"] = asked;
            }
        }
        plain["status"]["resources"] = plain["spec"]["resources"].clone();
        plain["status"]["allocatedResources"] = plain["spec"]["resources"]["requests"].clone();
        let mut other = plain.clone();
        other["spec"]["volumes"] = json!([{"name": "token-b"}]);
        other["spec"]["nodeName"] = "elsewhere".into();
        other["metadata"]["uid"] = "v".into();
        other["status"]["conditions"][0]["message"] = "\"n\" is too small".into();
        let key = Key::new("n", "p");
        let alone =
            |key: &Key, pod: &Value| format!("{:#?}", Pod::decode(&mut StringPool::default(), key.clone(), pod));
        let behind = |key: &Key, pod: &Value, reads_limits: bool| {
            let mut pool = StringPool::default();
            let first = Pod::read(&mut pool, Key::new("n", "p"), plain.to_string().as_bytes());
            pool.reads_limits = reads_limits;
            let pod = Pod::read(&mut pool, key.clone(), pod.to_string().as_bytes());
            (Arc::ptr_eq(&first.template, &pod.template), format!("{pod:#?}"))
        };
        assert_eq!(behind(&key, &plain, false), (true, alone(&key, &plain)));
        let mut in_a_zone = plain.clone();
        in_a_zone["metadata"]["labels"]["topology.kubernetes.io/zone"] = "z".into();
        let mut pool = StringPool::default();
        let templates = [&plain, &in_a_zone, &plain, &in_a_zone]
            .map(|pod| Pod::read(&mut pool, key.clone(), pod.to_string().as_bytes()).template);
        assert!(Arc::ptr_eq(&templates[0], &templates[2]) && Arc::ptr_eq(&templates[1], &templates[3]));
        assert!(!Arc::ptr_eq(&templates[0], &templates[1]));
        assert_eq!(behind(&key, &other, false), (true, alone(&key, &other)));
        assert!(!behind(&key, &other, true).0);
        let elsewhere = Key::new("m", "p");
        assert_eq!(behind(&elsewhere, &other, false), (false, alone(&elsewhere, &other)));
        let mut shared = Vec::new();
        for path in FIELDS {
            let path = path.trim_end_matches(".*");
            for change in [remove as fn(&mut Value, &str), spoil] {
                let mut changed = other.clone();
                change(&mut changed, path);
                let (is_shared, pod) = behind(&key, &changed, false);
                assert_eq!(pod, alone(&key, &changed), "{path}");
                let says_something = alone(&key, &changed) != alone(&key, &other);
                shared.extend((is_shared && says_something).then_some(path));
            }
        }
        shared.dedup();
        let own = ["metadata.uid", "metadata.resourceVersion", "metadata.generation", "metadata.deletionTimestamp"];
        let spec = ["spec.nodeName", "spec.priority", "spec.preemptionPolicy", "spec.schedulingGates"];
        let status = ["phase", "startTime", "nominatedNodeName"].map(|field| format!("status.{field}"));
        let conditions = ["type", "status", "reason", "message"].map(|field| format!("status.conditions.{field}"));
        let status = status.iter().chain(&conditions).map(String::as_str).chain(["status.resourceClaimStatuses"]);
        assert_eq!(shared, own.into_iter().chain(spec).chain(status).collect::<Vec<_>>(), "what is a pod's own");
        for volumes in pod_with_all_fields()["spec"]["volumes"].as_array().unwrap() {
            let mut with_volume = other.clone();
            with_volume["spec"]["volumes"] = json!([volumes]);
            assert_eq!(behind(&key, &with_volume, false), (false, alone(&key, &with_volume)));
        }
        for field in ["containerStatuses", "resources", "allocatedResources"] {
            let mut resized = other.clone();
            resized["status"][field] = pod_with_all_fields()["status"][field].clone();
            assert!(alone(&key, &resized) != alone(&key, &other), "{field}");
            assert_eq!(behind(&key, &resized, false), (false, alone(&key, &resized)));
        }
    }

    /// Replaces the value at a path by a value of another type, which decoding treats as absent.
    fn spoil(value: &mut Value, path: &str) {
        let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
        match (value, rest) {
            (Value::Array(list), _) => list.iter_mut().for_each(|one| spoil(one, path)),
            (Value::Object(map), None) if map.contains_key(first) => _ = map.insert(first, json!([[true]])),
            (Value::Object(map), Some(rest)) => map.get_mut(first).into_iter().for_each(|below| spoil(below, rest)),
            _ => {}
        }
    }

    /// Each path that the glance reads is needed: without its value the pod decodes differently.
    #[test]
    fn every_field_of_the_glance_is_used() {
        for path in FIELDS {
            let mut less = pod_with_all_fields();
            remove(&mut less, path.trim_end_matches(".*"));
            assert!(decoded(&less) != decoded(&pod_with_all_fields()), "{path}");
        }
    }

    fn remove(value: &mut Value, path: &str) {
        let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
        match (value, rest) {
            (Value::Array(list), _) => list.iter_mut().for_each(|one| remove(one, path)),
            (Value::Object(map), None) => _ = map.remove(first),
            (Value::Object(map), Some(rest)) => map.get_mut(first).into_iter().for_each(|below| remove(below, rest)),
            _ => {}
        }
    }
}
