//! Columns of the kinds of the core group.

mod event;
mod node;
mod pod;
mod service;
mod volume;

use crate::kinds::Column;
use crate::kinds::cells::{
    age_column, column, count, entries, field, items, joined, labels, name, of_field, plain, show, template_columns,
    text,
};
use holdfast_value::Value;

pub use service::balancer_addresses;

/// The columns of the Table of one kind of this group. A kind without columns here is shown with the columns Name and
/// Created At.
pub fn of(kind: &str) -> Vec<Column> {
    match kind {
        "Pod" => pod::columns(),
        "Node" => node::columns(),
        "Service" => service::columns(),
        "Endpoints" => service::endpoints_columns(),
        "PersistentVolume" => volume::columns(),
        "PersistentVolumeClaim" => volume::claim_columns(),
        "Event" => event::columns(),
        "Namespace" => vec![
            name(),
            column("Status", "string", 0, "Active, or Terminating while its content is deleted.", |doc, _| {
                text(doc, "status.phase").into()
            }),
            age_column(),
        ],
        "ConfigMap" => vec![
            name(),
            column("Data", "string", 0, field("data"), |doc, _| (count(doc, "data") + count(doc, "binaryData")).into())
                .reading(&["data.*", "binaryData.*"]),
            age_column(),
        ],
        "Secret" => vec![
            name(),
            of_field("Type", "string", 0, "type", show::text),
            of_field("Data", "string", 0, "data", show::count).reading(&["data.*"]),
            age_column(),
        ],
        "ServiceAccount" => vec![name(), of_field("Secrets", "string", 0, "secrets", show::count), age_column()],
        "ReplicationController" => replication_controller(),
        "PodTemplate" => vec![
            name(),
            column("Containers", "string", 0, "Names of the template's containers.", |doc, _| {
                joined(items(doc, "template.spec.containers"), "name").into()
            }),
            column("Images", "string", 0, "Images of the template's containers.", |doc, _| {
                joined(items(doc, "template.spec.containers"), "image").into()
            }),
            column("Pod Labels", "string", 0, "Labels that the template gives to pods.", |doc, _| {
                labels(doc, "template.metadata.labels").into()
            }),
        ],
        "ResourceQuota" => vec![
            name(),
            column("Request", "string", 0, "Used and allowed, of requests and of object counts.", |doc, _| {
                quota(doc, |resource| !is_limit(resource)).into()
            }),
            column("Limit", "string", 0, "Used and allowed, of limits.", |doc, _| quota(doc, is_limit).into()),
            age_column(),
        ],
        "ComponentStatus" => vec![
            name(),
            column("Status", "string", 0, "Healthy or not.", |doc, _| component_health(doc).into()),
            column("Message", "string", 0, "What the health check answered.", |doc, _| {
                healthy_condition(doc).map_or("", |condition| text(condition, "message")).into()
            }),
            column("Error", "string", 0, "Why the health check failed.", |doc, _| {
                healthy_condition(doc).map_or("", |condition| text(condition, "error")).into()
            }),
        ],
        _ => Vec::new(),
    }
}

fn replication_controller() -> Vec<Column> {
    let [containers, images] = template_columns();
    vec![
        name(),
        of_field("Desired", "integer", 0, "spec.replicas", show::number),
        of_field("Current", "integer", 0, "status.replicas", show::number),
        of_field("Ready", "integer", 0, "status.readyReplicas", show::number),
        age_column(),
        containers,
        images,
        // The selector of a ReplicationController is a plain map of labels, unlike the selectors of newer kinds.
        of_field("Selector", "string", 1, "spec.selector", show::labels),
    ]
}

fn is_limit(resource: &str) -> bool {
    resource.starts_with("limits.")
}

/// The used and the hard amounts of the wanted resources: `cpu: 1/2, memory: 1Gi/4Gi`.
fn quota(doc: &Value, wanted: fn(&str) -> bool) -> String {
    let used = entries(doc, "status.used");
    let shown =
        entries(doc, "status.hard").into_iter().filter(|(resource, _)| wanted(resource)).map(|(resource, hard)| {
            let used =
                used.iter().find(|(name, _)| *name == resource).map_or_else(|| "0".into(), |(_, used)| plain(used));
            format!("{resource}: {used}/{}", plain(hard))
        });
    shown.collect::<Vec<_>>().join(", ")
}

fn healthy_condition(doc: &Value) -> Option<&Value> {
    items(doc, "conditions").iter().find(|condition| text(condition, "type") == "Healthy")
}

fn component_health(doc: &Value) -> &'static str {
    match healthy_condition(doc).map(|condition| text(condition, "status")) {
        None => "Unknown",
        Some("True") => "Healthy",
        Some(_) => "Unhealthy",
    }
}

#[cfg(test)]
mod tests {
    use super::of;
    use crate::kinds::cells::shown;
    use holdfast_value::json;

    #[test]
    fn small_kinds() {
        let metadata = json!({"name": "x", "creationTimestamp": "2026-01-06T20:00:00Z"});
        let cases = [
            ("Namespace", json!({"status": {"phase": "Active"}}), "x | Active | 3d4h"),
            ("ConfigMap", json!({"data": {"a": "1", "b": "2"}, "binaryData": {"c": "AA=="}}), "x | 3 | 3d4h"),
            ("Secret", json!({"type": "Opaque", "data": {"a": "MQ=="}}), "x | Opaque | 1 | 3d4h"),
            ("Secret", json!({"type": "kubernetes.io/tls"}), "x | kubernetes.io/tls | 0 | 3d4h"),
            ("ServiceAccount", json!({"secrets": [{"name": "t"}]}), "x | 1 | 3d4h"),
            (
                "ReplicationController",
                json!({
                    "spec": {"replicas": 3, "selector": {"run": "x", "app": "y"}, "template": {"spec": {"containers": [
                        {"name": "a", "image": "nginx:1"}, {"name": "b", "image": "busybox"},
                    ]}}},
                    "status": {"replicas": 2, "readyReplicas": 1},
                }),
                "x | 3 | 2 | 1 | 3d4h | a,b | nginx:1,busybox | app=y,run=x",
            ),
            (
                "PodTemplate",
                json!({"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [
                    {"name": "c", "image": "i"},
                ]}}}),
                "x | c | i | a=b",
            ),
            (
                "ResourceQuota",
                json!({"status": {
                    "hard": {"requests.cpu": "2", "limits.memory": "4Gi", "pods": "10", "limits.cpu": "4"},
                    "used": {"requests.cpu": "500m", "limits.memory": "1Gi", "limits.cpu": "1"},
                }}),
                "x | pods: 0/10, requests.cpu: 500m/2 | limits.cpu: 1/4, limits.memory: 1Gi/4Gi | 3d4h",
            ),
            (
                "ComponentStatus",
                json!({"conditions": [{"type": "Healthy", "status": "True", "message": "ok"}]}),
                "x | Healthy | ok | ",
            ),
            (
                "ComponentStatus",
                json!({"conditions": [{"type": "Healthy", "status": "False", "error": "refused"}]}),
                "x | Unhealthy |  | refused",
            ),
            ("ComponentStatus", json!({}), "x | Unknown |  | "),
        ];
        for (kind, mut doc, expected) in cases {
            doc["metadata"] = metadata.clone();
            assert_eq!(shown(&of(kind), &doc), expected, "{kind}");
        }
    }

    #[test]
    fn kinds_without_columns_of_their_own() {
        assert!(of("LimitRange").is_empty());
        assert!(of("Nothing").is_empty());
    }
}
