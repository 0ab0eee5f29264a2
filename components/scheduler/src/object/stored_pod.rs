//! Decodes pods from their stored JSON. Pods of one controller mostly have equal scheduling fields. The text of these
//! fields is the key of a cache of decoded templates, so that equal text is decoded once.

use super::pod::{Pod, Template};
use super::{Key, Kind, StringPool, nanoseconds};
use holdfast_core::object::stored::{self, Raw};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// Decoded templates by the text of their fields. The cache is small, because the pods that are read at about the same
/// time mostly have few templates. Pods of one controller may have several texts, because pods get labels of their
/// node's zone.
#[derive(Debug, Default)]
pub(super) struct DecodedTemplates(HashMap<String, Arc<Template>>);

impl DecodedTemplates {
    const MAX: usize = 256;
    /// How many bytes of text one cached template may have. Longer texts are not cached, so that large pods cannot fill
    /// the memory; most texts have less than a kilobyte.
    const BYTES_MAX: usize = 16 << 10;

    fn insert(&mut self, stored: String, template: Arc<Template>) {
        if stored.len() > Self::BYTES_MAX {
            return;
        }
        if self.0.len() >= Self::MAX {
            self.0.clear();
        }
        self.0.insert(stored, template);
    }
}

impl Pod {
    /// The pod of a stored JSON text. Its template is shared with earlier pods whose scheduling fields have equal text.
    pub fn read(pool: &mut StringPool, key: Key, json: &[u8]) -> Pod {
        let whole = |pool: &mut StringPool, key| Pod::decode(pool, key, &Kind::Pod.glance().look(json).document);
        let Some(stored) = stored::read::<StoredPod>(json).ok().filter(StoredPod::is_plain) else {
            return whole(pool, key);
        };
        let text = stored.template_text(&key, pool.reads_limits);
        if let Some(template) = pool.templates.0.get(&text).cloned() {
            return stored.pod(pool, key, template);
        }
        let pod = whole(pool, key);
        // A template that contains the pod's own name cannot be used for another pod.
        if pod.template.own_name.is_none() {
            pool.templates.insert(text, pod.template.clone());
        }
        pod
    }
}

/// The fields of a pod that this module reads, as parts of the stored text.
#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredPod<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    #[serde(borrow)]
    spec: Spec<'a>,
    #[serde(borrow)]
    status: Status<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata<'a> {
    #[serde(borrow)]
    uid: Cow<'a, str>,
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
    generation: i64,
    #[serde(borrow)]
    deletion_timestamp: Option<Cow<'a, str>>,
    #[serde(borrow)]
    labels: Option<Raw<'a>>,
    #[serde(borrow)]
    owner_references: Option<Raw<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec<'a> {
    #[serde(borrow)]
    node_name: Cow<'a, str>,
    priority: i64,
    #[serde(borrow)]
    preemption_policy: Cow<'a, str>,
    #[serde(borrow)]
    scheduling_gates: Vec<NamedItem<'a>>,
    #[serde(borrow)]
    containers: Vec<Container<'a>>,
    #[serde(borrow)]
    init_containers: Vec<Container<'a>>,
    volumes: Vec<Volume>,
    #[serde(borrow)]
    affinity: Option<Raw<'a>>,
    #[serde(borrow)]
    node_selector: Option<Raw<'a>>,
    #[serde(borrow)]
    overhead: Option<Raw<'a>>,
    #[serde(borrow)]
    resource_claims: Option<Raw<'a>>,
    #[serde(borrow)]
    resources: Option<Raw<'a>>,
    #[serde(borrow)]
    scheduler_name: Option<Raw<'a>>,
    #[serde(borrow)]
    tolerations: Option<Raw<'a>>,
    #[serde(borrow)]
    topology_spread_constraints: Option<Raw<'a>>,
    #[serde(borrow)]
    workload_ref: Option<Raw<'a>>,
}

#[derive(Deserialize)]
struct NamedItem<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container<'a> {
    #[serde(borrow)]
    name: Option<Raw<'a>>,
    #[serde(borrow)]
    image: Option<Raw<'a>>,
    #[serde(borrow)]
    ports: Option<Raw<'a>>,
    #[serde(borrow)]
    resources: Resources<'a>,
    #[serde(borrow)]
    restart_policy: Option<Raw<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Resources<'a> {
    #[serde(borrow)]
    limits: Option<Raw<'a>>,
    #[serde(borrow)]
    requests: Option<Raw<'a>>,
    #[serde(borrow)]
    claims: Option<Raw<'a>>,
}

/// The fields of a volume that tell whether the volume restricts the nodes of its pod.
#[derive(Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Volume {
    persistent_volume_claim: Option<IgnoredAny>,
    ephemeral: Option<IgnoredAny>,
    image: Option<IgnoredAny>,
    gce_persistent_disk: Option<IgnoredAny>,
    aws_elastic_block_store: Option<IgnoredAny>,
    iscsi: Option<IgnoredAny>,
    rbd: Option<IgnoredAny>,
    azure_disk: Option<IgnoredAny>,
    cinder: Option<IgnoredAny>,
    vsphere_volume: Option<IgnoredAny>,
    portworx_volume: Option<IgnoredAny>,
    azure_file: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status<'a> {
    #[serde(borrow)]
    phase: Cow<'a, str>,
    #[serde(borrow)]
    start_time: Cow<'a, str>,
    #[serde(borrow)]
    nominated_node_name: Cow<'a, str>,
    #[serde(borrow)]
    conditions: Vec<Condition<'a>>,
    #[serde(borrow)]
    resource_claim_statuses: Vec<ClaimStatus<'a>>,
    #[serde(borrow)]
    container_statuses: Vec<ContainerStatus<'a>>,
    #[serde(borrow)]
    init_container_statuses: Vec<ContainerStatus<'a>>,
    #[serde(borrow)]
    resources: Option<Resources<'a>>,
    #[serde(borrow)]
    allocated_resources: Option<Raw<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Condition<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    status: Cow<'a, str>,
    #[serde(borrow)]
    reason: Cow<'a, str>,
    #[serde(borrow)]
    message: Cow<'a, str>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClaimStatus<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    resource_claim_name: Cow<'a, str>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContainerStatus<'a> {
    #[serde(borrow)]
    name: Option<Raw<'a>>,
    #[serde(borrow)]
    resources: Option<Resources<'a>>,
    #[serde(borrow)]
    allocated_resources: Option<Raw<'a>>,
}

impl<'a> StoredPod<'a> {
    /// Whether the pod can take its template from the cache: no volume restricts its nodes, and the statuses show no
    /// other resources than the spec. Other pods are decoded in full.
    fn is_plain(&self) -> bool {
        let StoredPod { spec, status, .. } = self;
        let lists =
            [(&spec.containers, &status.container_statuses), (&spec.init_containers, &status.init_container_statuses)];
        spec.volumes.iter().all(|volume| *volume == Volume::default())
            && lists.iter().all(|(containers, statuses)| container_resources_match(containers, statuses))
            && self.pod_resources_match()
    }

    /// Whether the pod-level resources of the status have the same text as the pod-level resources of the spec.
    fn pod_resources_match(&self) -> bool {
        let StoredPod { spec, status, .. } = self;
        let (Some(requests), Some(shown)) = (&spec.resources, &status.resources) else { return true };
        let is_requested = |part: &Option<Raw>| {
            part.as_ref().is_none_or(|part| requests.0.contains(&format!("\"requests\":{}", part.0)))
        };
        is_requested(&shown.requests) && is_requested(&status.allocated_resources)
    }

    /// The text of all fields from which the template is decoded: the key of the cache.
    fn template_text(&self, key: &Key, reads_limits: bool) -> String {
        let StoredPod { metadata, spec, .. } = self;
        let mut text = String::with_capacity(1 << 10);
        let mut put = |part: &Option<Raw>| {
            text.push_str(part.as_ref().map_or("", |part| part.0));
            // Stored JSON contains no line break, so a line break can separate the parts.
            text.push('\n');
        };
        let parts = [
            &metadata.labels,
            &metadata.owner_references,
            &spec.affinity,
            &spec.node_selector,
            &spec.overhead,
            &spec.resource_claims,
            &spec.resources,
            &spec.scheduler_name,
            &spec.tolerations,
            &spec.topology_spread_constraints,
            &spec.workload_ref,
        ];
        parts.into_iter().for_each(&mut put);
        for containers in [&spec.init_containers, &spec.containers] {
            for Container { name, image, ports, resources, restart_policy } in containers {
                let Resources { limits, requests, claims } = resources;
                [name, image, ports, limits, requests, claims, restart_policy].into_iter().for_each(&mut put);
            }
            put(&Some(Raw("|")));
        }
        text.push_str(&key.namespace);
        text.push(if reads_limits { '+' } else { '-' });
        text
    }

    fn pod(&self, pool: &mut StringPool, key: Key, template: Arc<Template>) -> Pod {
        let StoredPod { metadata, spec, status } = self;
        let condition = |kind: &str| status.conditions.iter().find(|one| one.kind == kind);
        let some = |pool: &mut StringPool, text: &str| (!text.is_empty()).then(|| pool.text(text));
        let claims = &status.resource_claim_statuses;
        Pod {
            uid: (*metadata.uid).into(),
            version: metadata.resource_version.parse().ok(),
            generation: metadata.generation,
            template_id: 0,
            node_name: some(pool, &spec.node_name),
            nominated: some(pool, &status.nominated_node_name),
            priority: spec.priority.clamp(i32::MIN.into(), i32::MAX.into()),
            never_preempts: spec.preemption_policy == "Never",
            gates: spec.scheduling_gates.iter().map(|gate| pool.text(&gate.name)).collect(),
            deleting: metadata.deletion_timestamp.is_some(),
            finished: matches!(&*status.phase, "Succeeded" | "Failed"),
            started: nanoseconds(&status.start_time),
            preempted: condition("DisruptionTarget")
                .is_some_and(|one| one.status == "True" && one.reason == "PreemptionByScheduler"),
            resized: None,
            generated_claims: claims
                .iter()
                .map(|one| (pool.text(&one.name), some(pool, &one.resource_claim_name)))
                .collect(),
            scheduled: condition("PodScheduled")
                .map(|one| (one.status == "True", pool.text(&one.reason), pool.text(&one.message))),
            template,
            key,
        }
    }
}

/// Whether the resources that containers' statuses show have the same text as the containers' requests. Statuses
/// without resources are skipped.
fn container_resources_match(containers: &[Container], statuses: &[ContainerStatus]) -> bool {
    fn text<'a>(part: &Option<Raw<'a>>) -> Option<&'a str> {
        part.as_ref().map(|part| part.0)
    }
    let requests = containers.iter().map(|one| (text(&one.name), text(&one.resources.requests)));
    let requests: HashMap<_, _> = requests.collect();
    statuses.iter().all(|status| {
        let (Some(shown), Some(requests)) = (&status.resources, requests.get(&text(&status.name))) else { return true };
        text(&shown.requests) == *requests && [None, *requests].contains(&text(&status.allocated_resources))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn cached_templates_are_bounded() {
        let mut pool = StringPool::default();
        let mut read = |label: &str| {
            let pod = json!({"metadata": {"labels": {"app": label}}, "spec": {"containers": [{"name": "c"}]}});
            Pod::read(&mut pool, Key::new("n", "p"), pod.to_string().as_bytes());
            pool.templates.0.len()
        };
        assert_eq!(read(&"x".repeat(DecodedTemplates::BYTES_MAX)), 0);
        let known: Vec<usize> = (0..DecodedTemplates::MAX + 1).map(|number| read(&number.to_string())).collect();
        assert_eq!(known.iter().max(), Some(&DecodedTemplates::MAX));
        assert_eq!(known.last(), Some(&1));
    }
}
