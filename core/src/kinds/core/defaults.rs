//! Defaults of the core group: pods and their parts, services, volumes, namespaces.

use super::measure;
use crate::quota::Usage;
use crate::schema::defaults::{Rule, is_absent, is_empty, object, object_or_new, objects, set_absent, set_empty, text};
use base64::Engine as _;
use holdfast_value::{CompactString, Map, Value, json};

/// The default mode of the files in a volume: all users may read a file, and its owner may write it.
const FILE_MODE: i64 = 0o644;

pub fn rules() -> Vec<Rule> {
    let mut rules = pods();
    rules.extend(volumes());
    rules.extend([
        Rule::of("api.core.v1.EndpointPort").set("protocol", "TCP"),
        Rule::of("api.core.v1.LimitRangeItem").run(limit_range_item),
        Rule::of("api.core.v1.Namespace").run(namespace),
        Rule::of("api.core.v1.NamespaceStatus").set("phase", "Active"),
        Rule::of("api.core.v1.NodeSpec").run(node_spec),
        Rule::of("api.core.v1.NodeStatus").run(node_status),
        Rule::of("api.core.v1.ReplicationController").run(replication_controller),
        Rule::of("api.core.v1.ReplicationControllerSpec").set("replicas", 1),
        Rule::of("api.core.v1.Secret").set("type", "Opaque").run(secret),
        Rule::of("api.core.v1.Service").run(service),
        Rule::of("api.core.v1.ServiceSpec").set("sessionAffinity", "None").set("type", "ClusterIP").run(service_spec),
        Rule::of("api.core.v1.ServicePort").run(service_port),
    ]);
    rules
}

fn pods() -> Vec<Rule> {
    let container = |message| {
        Rule::of(message)
            .set("terminationMessagePath", "/dev/termination-log")
            .set("terminationMessagePolicy", "File")
            .run(container)
    };
    vec![
        Rule::of("api.core.v1.Pod").run(pod),
        Rule::of("api.core.v1.PodSpec")
            .set("dnsPolicy", "ClusterFirst")
            .set("restartPolicy", "Always")
            .set("schedulerName", "default-scheduler")
            .set("terminationGracePeriodSeconds", 30)
            .set_object("securityContext")
            .run(pod_spec),
        Rule::of("api.core.v1.PodStatus").run(pod_status),
        container("api.core.v1.Container"),
        container("api.core.v1.EphemeralContainer"),
        Rule::of("api.core.v1.Probe")
            .set("timeoutSeconds", 1)
            .set("periodSeconds", 10)
            .set("successThreshold", 1)
            .set("failureThreshold", 3),
        Rule::of("api.core.v1.HTTPGetAction").set("path", "/").set("scheme", "HTTP"),
        Rule::of("api.core.v1.ObjectFieldSelector").set("apiVersion", "v1"),
    ]
}

fn volumes() -> Vec<Rule> {
    vec![
        Rule::of("api.core.v1.Volume").run(volume),
        Rule::of("api.core.v1.ConfigMapVolumeSource").set("defaultMode", FILE_MODE),
        Rule::of("api.core.v1.DownwardAPIVolumeSource").set("defaultMode", FILE_MODE),
        Rule::of("api.core.v1.ProjectedVolumeSource").set("defaultMode", FILE_MODE),
        Rule::of("api.core.v1.SecretVolumeSource").set("defaultMode", FILE_MODE),
        Rule::of("api.core.v1.HostPathVolumeSource").set("type", ""),
        Rule::of("api.core.v1.ImageVolumeSource").run(image_volume),
        Rule::of("api.core.v1.ServiceAccountTokenProjection").set("expirationSeconds", 3600),
        Rule::of("api.core.v1.PersistentVolume").run(persistent_volume),
        Rule::of("api.core.v1.PersistentVolumeStatus").set("phase", "Pending"),
        Rule::of("api.core.v1.PersistentVolumeClaimSpec").set("volumeMode", "Filesystem"),
        Rule::of("api.core.v1.PersistentVolumeClaimStatus").set("phase", "Pending"),
    ]
}

/// The labels of `spec.template`; `None` if there are none.
pub(in crate::kinds) fn template_labels(object: &Map) -> Option<Map> {
    let labels = object.get("spec")?.get("template")?.get("metadata")?.get("labels")?.as_object()?;
    (!labels.is_empty()).then(|| labels.clone())
}

/// Sets the labels of an object that has none.
pub(in crate::kinds) fn set_labels(map: &mut Map, labels: Map) {
    if let Some(metadata) = object_or_new(map, "metadata")
        && metadata.get("labels").and_then(Value::as_object).is_none_or(Map::is_empty)
    {
        metadata.insert("labels".to_owned(), Value::Object(labels));
    }
}

/// Sets the defaults that a pod has and a pod template does not.
fn pod(pod: &mut Map) {
    let Some(spec) = object(pod, "spec") else { return };
    for list in ["containers", "initContainers"] {
        for container in objects(spec, list) {
            if let Some(resources) = object(container, "resources") {
                request_limits(resources);
            }
        }
    }
    whole_pod(spec);
    set_absent(spec, "enableServiceLinks", true);
    if spec.get("hostNetwork") == Some(&Value::Bool(true)) {
        for list in ["containers", "initContainers"] {
            for port in objects(spec, list).flat_map(|container| objects(container, "ports")) {
                if let Some(number) = port.get("containerPort").cloned() {
                    set_empty(port, "hostPort", number);
                }
            }
        }
    }
}

/// Sets the defaults of pod-level resources, if the pod has any. If the pod has limits, an unset request of the pod is
/// set to the requests of all containers together or, if the containers request nothing, to the pod's limit. Huge page
/// limits of containers become limits of the pod, too.
fn whole_pod(spec: &mut Map) {
    let of_containers = |part: &str| {
        let list = |name: &str| spec.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let amounts = |container: &Value| Usage::of(&container["resources"][part]);
        measure::of_containers(list("containers"), list("initContainers"), amounts)
    };
    let Some(resources) = spec.get("resources").and_then(Value::as_object) else { return };
    let is_said = |part: &str, name: &str| resources.get(part).is_some_and(|amounts| amounts.get(name).is_some());
    let says = |part: &str| resources.get(part).and_then(Value::as_object).is_some_and(|amounts| !amounts.is_empty());
    if !says("limits") && !says("requests") {
        return;
    }
    let is_huge = |name: &str| name.starts_with(measure::HUGE_PAGES);
    let limits = of_containers("limits").only(|name| is_huge(name) && !is_said("requests", name));
    let requests = of_containers("requests").only(|name| measure::is_pod_level(name) && !is_huge(name));
    let (limits, requests) = (entries(limits.document()), entries(requests.document()));
    let Some(resources) = object(spec, "resources") else { return };
    if !limits.is_empty()
        && let Some(said) = object_or_new(resources, "limits")
    {
        fill_from(said, limits);
    }
    let limited = resources.get("limits").and_then(Value::as_object).cloned().unwrap_or_default();
    if !limited.is_empty()
        && let Some(said) = object_or_new(resources, "requests")
    {
        fill_from(said, requests);
        fill_from(said, limited.into_iter().filter(|(name, _)| measure::is_pod_level(name)).collect());
    }
}

fn entries(document: Value) -> Map {
    match document {
        Value::Object(entries) => entries,
        _ => Map::new(),
    }
}

/// Sets the request of a resource that has only a limit to this limit.
fn request_limits(resources: &mut Map) {
    let Some(limits) = resources.get("limits").and_then(Value::as_object).filter(|limits| !limits.is_empty()) else {
        return;
    };
    let limits = limits.clone();
    if let Some(requests) = object_or_new(resources, "requests") {
        fill_from(requests, limits);
    }
}

/// Sets `serviceAccountName` and its old name `serviceAccount` to the same value. The new name has precedence.
fn pod_spec(spec: &mut Map) {
    let (name, alias) = (text(spec, "serviceAccountName"), text(spec, "serviceAccount"));
    if name == alias {
        return;
    }
    let name = if name.is_empty() { alias } else { name }.to_owned();
    spec.insert("serviceAccount".to_owned(), Value::from(name.as_str()));
    spec.insert("serviceAccountName".to_owned(), Value::from(name));
}

/// Fills `podIPs` from `podIP`, because old kubelets set only the single field.
fn pod_status(status: &mut Map) {
    let address = text(status, "podIP").to_owned();
    if !address.is_empty() {
        set_empty(status, "podIPs", json!([{"ip": address}]));
    }
}

fn container(container: &mut Map) {
    let policy = pull_policy(text(container, "image"));
    set_empty(container, "imagePullPolicy", policy);
}

fn image_volume(volume: &mut Map) {
    let policy = pull_policy(text(volume, "reference"));
    set_empty(volume, "pullPolicy", policy);
}

/// The pull policy of an image. Images tagged `latest`, explicitly or by default, are always pulled.
fn pull_policy(image: &str) -> &'static str {
    let (name, digest) = image.split_once('@').map_or((image, false), |(name, _)| (name, true));
    let (repository, tag) = match name.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => (repository, Some(tag)),
        _ => (name, None),
    };
    match tag {
        // The tag of an invalid image reference does not count.
        _ if !is_repository(repository) => "IfNotPresent",
        Some("latest") => "Always",
        None if !digest => "Always",
        _ => "IfNotPresent",
    }
}

/// Whether a repository's path, after the registry's name if any, is in lower case and complete.
fn is_repository(repository: &str) -> bool {
    let is_registry = |first: &str| {
        first.contains(['.', ':']) || first == "localhost" || first.chars().any(|c| c.is_ascii_uppercase())
    };
    let path = match repository.split_once('/') {
        Some((first, path)) if is_registry(first) => path,
        _ => repository,
    };
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    path.split('/').all(|part| {
        let bytes = part.as_bytes();
        bytes.first().is_some_and(|byte| plain(*byte))
            && bytes.last().is_some_and(|byte| plain(*byte))
            && bytes.iter().all(|byte| plain(*byte) || matches!(byte, b'.' | b'_' | b'-'))
    })
}

/// Makes a volume without a source an emptyDir.
fn volume(volume: &mut Map) {
    if volume.iter().all(|(field, value)| field == "name" || value.is_null()) {
        volume.insert("emptyDir".to_owned(), json!({}));
    }
}

fn persistent_volume(volume: &mut Map) {
    if let Some(spec) = object_or_new(volume, "spec") {
        set_empty(spec, "persistentVolumeReclaimPolicy", "Retain");
        set_absent(spec, "volumeMode", "Filesystem");
    }
}

fn limit_range_item(item: &mut Map) {
    if text(item, "type") != "Container" {
        return;
    }
    // A maximum becomes the default limit, a default limit becomes the default request, and a minimum becomes the
    // default request if there is none yet.
    for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
        let Some(values) = item.get(from).and_then(Value::as_object).filter(|values| !values.is_empty()) else {
            continue;
        };
        let values = values.clone();
        if let Some(target) = object_or_new(item, to) {
            fill_from(target, values);
        }
    }
}

fn fill_from(target: &mut Map, values: Map) {
    for (key, value) in values {
        target.entry(key).or_insert(value);
    }
}

/// Sets the label with a namespace's name, so that selectors can select the namespace. If the name is generated, the
/// label is set later, on create.
fn namespace(namespace: &mut Map) {
    let Some(metadata) = object(namespace, "metadata") else { return };
    let name = text(metadata, "name").to_owned();
    if !name.is_empty()
        && let Some(labels) = object_or_new(metadata, "labels")
    {
        labels.insert("kubernetes.io/metadata.name".to_owned(), Value::from(name));
    }
}

fn node_spec(spec: &mut Map) {
    let range = text(spec, "podCIDR").to_owned();
    if !range.is_empty() {
        set_empty(spec, "podCIDRs", vec![Value::from(range)]);
    }
}

fn node_status(status: &mut Map) {
    if is_absent(status, "allocatable")
        && let Some(capacity) = status.get("capacity").filter(|capacity| capacity.is_object()).cloned()
    {
        status.insert("allocatable".to_owned(), capacity);
    }
}

fn replication_controller(controller: &mut Map) {
    let Some(labels) = template_labels(controller) else { return };
    if let Some(spec) = object(controller, "spec")
        && spec.get("selector").and_then(Value::as_object).is_none_or(Map::is_empty)
    {
        spec.insert("selector".to_owned(), Value::Object(labels.clone()));
    }
    set_labels(controller, labels);
}

/// Merges `stringData`, which is write-only, into `data`.
fn secret(secret: &mut Map) {
    let Some(Value::Object(texts)) = secret.get("stringData") else { return };
    let encode = |text: &str| Value::from(base64::engine::general_purpose::STANDARD.encode(text));
    let encoded: Vec<(CompactString, Value)> =
        texts.iter().filter_map(|(key, value)| Some((key.clone(), encode(value.as_str()?)))).collect();
    secret.remove("stringData");
    if !encoded.is_empty()
        && let Some(data) = object_or_new(secret, "data")
    {
        data.extend(encoded);
    }
}

/// Sets the mode `VIP` (virtual) for the IP addresses of a load balancer for which the status sets no mode.
fn service(service: &mut Map) {
    if service.get("spec").and_then(|spec| spec.get("type")).and_then(Value::as_str) != Some("LoadBalancer") {
        return;
    }
    let Some(balancer) = object(service, "status").and_then(|status| object(status, "loadBalancer")) else { return };
    for ingress in objects(balancer, "ingress") {
        if !text(ingress, "ip").is_empty() {
            set_absent(ingress, "ipMode", "VIP");
        }
    }
}

fn service_spec(spec: &mut Map) {
    match text(spec, "sessionAffinity") {
        "None" => {
            spec.remove("sessionAffinityConfig");
        }
        "ClientIP" => {
            let client = object_or_new(spec, "sessionAffinityConfig").and_then(|map| object_or_new(map, "clientIP"));
            if let Some(client) = client {
                set_absent(client, "timeoutSeconds", 10800);
            }
        }
        _ => {}
    }
    let (inner, balanced, outer) = match text(spec, "type") {
        "ClusterIP" => (true, false, spec.get("externalIPs").is_some_and(|addresses| !is_empty(addresses))),
        "NodePort" => (true, false, true),
        "LoadBalancer" => (true, true, true),
        _ => (false, false, false),
    };
    if outer {
        set_empty(spec, "externalTrafficPolicy", "Cluster");
    }
    if inner {
        set_absent(spec, "internalTrafficPolicy", "Cluster");
    }
    if balanced {
        set_absent(spec, "allocateLoadBalancerNodePorts", true);
    }
}

fn service_port(port: &mut Map) {
    if let Some(number) = port.get("port").cloned() {
        set_empty(port, "targetPort", number);
    }
}

#[cfg(test)]
mod tests {
    use crate::schema::defaults::testing::check;
    use expect_test::expect;
    use holdfast_value::json;

    #[test]
    fn images_are_pulled_by_their_tag() {
        let rows = [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("nginx:1", "IfNotPresent"),
            ("localhost:5000/a/b", "Always"),
            ("Registry/a:latest", "Always"),
            ("example.com/a/b:1", "IfNotPresent"),
            ("a@sha256:00", "IfNotPresent"),
            ("a:latest@sha256:00", "Always"),
            ("", "IfNotPresent"),
            ("Not_An_Image", "IfNotPresent"),
            ("a//b", "IfNotPresent"),
        ];
        for (image, expected) in rows {
            assert_eq!(super::pull_policy(image), expected, "{image}");
        }
    }

    #[test]
    fn a_pod() {
        check(
            "api.core.v1.Pod",
            json!({
                "metadata": {"name": "p"},
                "spec": {
                    "serviceAccountName": "robot",
                    "containers": [
                        {
                            "name": "c", "image": "nginx", "ports": [{"containerPort": 80}],
                            "resources": {"limits": {"cpu": "1", "example.com/gpu": "1"}},
                        },
                    ],
                    "initContainers": [
                        {
                            "name": "i", "image": "nginx:1",
                            "resources": {"limits": {"memory": "1Gi"}, "requests": {"memory": "1Mi"}},
                        },
                    ],
                    "ephemeralContainers": [{"name": "e", "image": "nginx:latest"}],
                },
            }),
            expect![[r#"
                spec.containers[0].imagePullPolicy = "Always"
                spec.containers[0].ports[0].protocol = "TCP"
                spec.containers[0].resources.requests.cpu = "1"
                spec.containers[0].resources.requests.example.com/gpu = "1"
                spec.containers[0].terminationMessagePath = "/dev/termination-log"
                spec.containers[0].terminationMessagePolicy = "File"
                spec.dnsPolicy = "ClusterFirst"
                spec.enableServiceLinks = true
                spec.ephemeralContainers[0].imagePullPolicy = "Always"
                spec.ephemeralContainers[0].resources = {}
                spec.ephemeralContainers[0].terminationMessagePath = "/dev/termination-log"
                spec.ephemeralContainers[0].terminationMessagePolicy = "File"
                spec.initContainers[0].imagePullPolicy = "IfNotPresent"
                spec.initContainers[0].terminationMessagePath = "/dev/termination-log"
                spec.initContainers[0].terminationMessagePolicy = "File"
                spec.restartPolicy = "Always"
                spec.schedulerName = "default-scheduler"
                spec.securityContext = {}
                spec.serviceAccount = "robot"
                spec.terminationGracePeriodSeconds = 30
                status = {}"#]],
        );
    }

    #[test]
    fn a_pod_that_says_everything_is_left_as_it_is() {
        check(
            "api.core.v1.Pod",
            json!({
                "metadata": {"name": "p"}, "status": {},
                "spec": {
                    "containers": [
                        {
                            "name": "c", "image": "a:1", "imagePullPolicy": "Never",
                            "terminationMessagePath": "/x", "terminationMessagePolicy": "FallbackToLogsOnError",
                            "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "0"}},
                            "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}],
                        },
                    ],
                    "dnsPolicy": "None", "restartPolicy": "Never", "schedulerName": "s",
                    "terminationGracePeriodSeconds": 0, "securityContext": {"runAsUser": 0},
                    "enableServiceLinks": false,
                },
            }),
            expect![[r#""#]],
        );
    }

    #[test]
    fn a_pod_on_the_host_network_claims_host_ports() {
        check(
            "api.core.v1.PodTemplateSpec",
            json!({"spec": {"hostNetwork": true, "containers": [{"ports": [{"containerPort": 80}]}]}}),
            expect![[r#"
                metadata = {}
                spec.containers[0].imagePullPolicy = "IfNotPresent"
                spec.containers[0].name = ""
                spec.containers[0].ports[0].protocol = "TCP"
                spec.containers[0].resources = {}
                spec.containers[0].terminationMessagePath = "/dev/termination-log"
                spec.containers[0].terminationMessagePolicy = "File"
                spec.dnsPolicy = "ClusterFirst"
                spec.restartPolicy = "Always"
                spec.schedulerName = "default-scheduler"
                spec.securityContext = {}
                spec.terminationGracePeriodSeconds = 30"#]],
        );
    }

    #[test]
    fn probes_and_references() {
        check(
            "api.core.v1.Container",
            json!({
                "image": "a@sha256:0", "env": [{"valueFrom": {"fieldRef": {"fieldPath": "x"}}}],
                "livenessProbe": {"httpGet": {"port": 80}},
                "readinessProbe": {"grpc": {"port": 80}, "periodSeconds": 3},
                "lifecycle": {"preStop": {"httpGet": {"port": 80, "path": "/x", "scheme": "HTTPS"}}},
            }),
            expect![[r#"
                env[0].name = ""
                env[0].valueFrom.fieldRef.apiVersion = "v1"
                imagePullPolicy = "IfNotPresent"
                livenessProbe.failureThreshold = 3
                livenessProbe.httpGet.path = "/"
                livenessProbe.httpGet.scheme = "HTTP"
                livenessProbe.periodSeconds = 10
                livenessProbe.successThreshold = 1
                livenessProbe.timeoutSeconds = 1
                name = ""
                readinessProbe.failureThreshold = 3
                readinessProbe.grpc.service = ""
                readinessProbe.successThreshold = 1
                readinessProbe.timeoutSeconds = 1
                resources = {}
                terminationMessagePath = "/dev/termination-log"
                terminationMessagePolicy = "File""#]],
        );
    }

    #[test]
    fn volumes_of_a_pod() {
        check(
            "api.core.v1.PodSpec",
            json!({
                "dnsPolicy": "Default", "restartPolicy": "Always", "schedulerName": "s",
                "terminationGracePeriodSeconds": 1, "securityContext": {},
                "volumes": [
                    {"name": "none"}, {"name": "c", "configMap": {"name": "x"}},
                    {"name": "s", "secret": {"defaultMode": 0}}, {"name": "h", "hostPath": {"path": "/"}},
                    {
                        "name": "p",
                        "projected": {
                            "sources": [
                                {"serviceAccountToken": {"path": "t"}},
                                {"downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "y"}}]}},
                            ],
                        },
                    },
                    {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
                    {"name": "i", "iscsi": {"iqn": "x"}}, {"name": "a", "azureDisk": {"diskName": "d"}},
                    {"name": "r", "rbd": {"image": "x"}}, {"name": "o", "scaleIO": {"system": "x"}},
                    {"name": "m", "image": {"reference": "a:1"}},
                ],
            }),
            expect![[r#"
                containers = null
                volumes[0].emptyDir = {}
                volumes[10].image.pullPolicy = "IfNotPresent"
                volumes[1].configMap.defaultMode = 420
                volumes[3].hostPath.type = ""
                volumes[4].projected.defaultMode = 420
                volumes[4].projected.sources[0].serviceAccountToken.expirationSeconds = 3600
                volumes[4].projected.sources[1].downwardAPI.items[0].fieldRef.apiVersion = "v1"
                volumes[5].ephemeral.volumeClaimTemplate.metadata = {}
                volumes[5].ephemeral.volumeClaimTemplate.spec.resources = {}
                volumes[5].ephemeral.volumeClaimTemplate.spec.volumeMode = "Filesystem"
                volumes[6].iscsi.iscsiInterface = "default"
                volumes[6].iscsi.lun = 0
                volumes[6].iscsi.targetPortal = ""
                volumes[7].azureDisk.cachingMode = "ReadWrite"
                volumes[7].azureDisk.diskURI = ""
                volumes[7].azureDisk.fsType = "ext4"
                volumes[7].azureDisk.kind = "Shared"
                volumes[7].azureDisk.readOnly = false
                volumes[8].rbd.keyring = "/etc/ceph/keyring"
                volumes[8].rbd.monitors = null
                volumes[8].rbd.pool = "rbd"
                volumes[8].rbd.user = "admin"
                volumes[9].scaleIO.fsType = "xfs"
                volumes[9].scaleIO.gateway = ""
                volumes[9].scaleIO.secretRef = null
                volumes[9].scaleIO.storageMode = "ThinProvisioned""#]],
        );
    }

    #[test]
    fn a_service() {
        check(
            "api.core.v1.Service",
            json!({
                "spec": {
                    "ports": [
                        {"port": 80}, {"port": 81, "targetPort": "web", "protocol": "UDP"},
                        {"port": 82, "targetPort": 0},
                    ],
                    "sessionAffinityConfig": {},
                },
            }),
            expect![[r#"
                spec.internalTrafficPolicy = "Cluster"
                spec.ports[0].protocol = "TCP"
                spec.ports[0].targetPort = 80
                spec.ports[2].protocol = "TCP"
                spec.ports[2].targetPort = 82
                spec.sessionAffinity = "None"
                spec.sessionAffinityConfig removed
                spec.type = "ClusterIP"
                status.loadBalancer = {}"#]],
        );
    }

    #[test]
    fn a_service_with_affinity_and_addresses() {
        check(
            "api.core.v1.Service",
            json!({
                "spec": {"sessionAffinity": "ClientIP", "externalIPs": ["1.2.3.4"]},
                "status": {"loadBalancer": {}},
            }),
            expect![[r#"
                spec.externalTrafficPolicy = "Cluster"
                spec.internalTrafficPolicy = "Cluster"
                spec.sessionAffinityConfig.clientIP.timeoutSeconds = 10800
                spec.type = "ClusterIP""#]],
        );
    }

    #[test]
    fn a_load_balancer() {
        check(
            "api.core.v1.Service",
            json!({
                "spec": {"type": "LoadBalancer"},
                "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}, {"hostname": "x"}]}},
            }),
            expect![[r#"
                spec.allocateLoadBalancerNodePorts = true
                spec.externalTrafficPolicy = "Cluster"
                spec.internalTrafficPolicy = "Cluster"
                spec.sessionAffinity = "None"
                status.loadBalancer.ingress[0].ipMode = "VIP""#]],
        );
    }

    #[test]
    fn an_external_name() {
        check(
            "api.core.v1.Service",
            json!({"spec": {"type": "ExternalName", "sessionAffinity": "None"}}),
            expect!["status.loadBalancer = {}"],
        );
    }

    #[test]
    fn a_replication_controller() {
        check(
            "api.core.v1.ReplicationController",
            json!({
                "metadata": {},
                "spec": {
                    "replicas": 0,
                    "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"dnsPolicy": "Default"}},
                },
            }),
            expect![[r#"
                metadata.labels.a = "b"
                spec.selector.a = "b"
                spec.template.spec.containers = null
                spec.template.spec.restartPolicy = "Always"
                spec.template.spec.schedulerName = "default-scheduler"
                spec.template.spec.securityContext = {}
                spec.template.spec.terminationGracePeriodSeconds = 30
                status.replicas = 0"#]],
        );
    }

    #[test]
    fn volumes_and_claims() {
        check(
            "api.core.v1.PersistentVolume",
            json!({"spec": {"hostPath": {"path": "/"}}}),
            expect![[r#"
            spec.hostPath.type = ""
            spec.persistentVolumeReclaimPolicy = "Retain"
            spec.volumeMode = "Filesystem"
            status.phase = "Pending""#]],
        );
    }

    #[test]
    fn a_claim() {
        check(
            "api.core.v1.PersistentVolumeClaim",
            json!({"metadata": {}}),
            expect![[r#"
            spec.resources = {}
            spec.volumeMode = "Filesystem"
            status.phase = "Pending""#]],
        );
    }

    #[test]
    fn a_namespace() {
        check(
            "api.core.v1.Namespace",
            json!({"metadata": {"name": "n", "labels": {"kubernetes.io/metadata.name": "other"}}}),
            expect![[r#"
                metadata.labels.kubernetes.io/metadata.name = "n"
                spec = {}
                status.phase = "Active""#]],
        );
    }

    #[test]
    fn a_namespace_without_a_name_yet() {
        check(
            "api.core.v1.Namespace",
            json!({"metadata": {"generateName": "n-"}}),
            expect![[r#"
            spec = {}
            status.phase = "Active""#]],
        );
    }

    #[test]
    fn a_secret() {
        check(
            "api.core.v1.Secret",
            json!({"data": {"a": "eA==", "b": "eQ=="}, "stringData": {"b": "z"}}),
            expect![[r#"
                data.b = "eg=="
                stringData removed
                type = "Opaque""#]],
        );
    }

    #[test]
    fn a_limit_range() {
        check(
            "api.core.v1.LimitRange",
            json!({
                "spec": {
                    "limits": [
                        {"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1", "memory": "1Mi"}},
                        {"type": "Pod", "max": {"cpu": "2"}},
                    ],
                },
            }),
            expect![[r#"
                spec.limits[0].default.cpu = "2"
                spec.limits[0].defaultRequest.cpu = "2"
                spec.limits[0].defaultRequest.memory = "1Mi""#]],
        );
    }

    #[test]
    fn a_node() {
        check(
            "api.core.v1.Node",
            json!({"spec": {"podCIDR": "10.0.0.0/24"}, "status": {"capacity": {"cpu": "4"}}}),
            expect![[r#"
                spec.podCIDRs = ["10.0.0.0/24"]
                status.allocatable.cpu = "4"
                status.daemonEndpoints.kubeletEndpoint.Port = 0
                status.nodeInfo.architecture = ""
                status.nodeInfo.bootID = ""
                status.nodeInfo.containerRuntimeVersion = ""
                status.nodeInfo.kernelVersion = ""
                status.nodeInfo.kubeProxyVersion = ""
                status.nodeInfo.kubeletVersion = ""
                status.nodeInfo.machineID = ""
                status.nodeInfo.operatingSystem = ""
                status.nodeInfo.osImage = ""
                status.nodeInfo.systemUUID = """#]],
        );
    }

    #[test]
    fn endpoints() {
        check(
            "api.core.v1.Endpoints",
            json!({"subsets": [{"ports": [{"port": 80}, {"port": 53, "protocol": "UDP"}]}]}),
            expect![[r#"subsets[0].ports[0].protocol = "TCP""#]],
        );
    }
}
