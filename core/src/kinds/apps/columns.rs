//! Columns of the workload kinds, such as the numbers of desired and of existing pods.

use crate::kinds::Column;
use crate::kinds::cells::{
    NONE, age_column, at, column, items, name, number, of_field, selector_column, selector_text, show,
    template_columns, text, truth,
};
use holdfast_value::Value;

/// The columns of the Table of one kind of this group. A kind without columns here is shown with the columns Name and
/// Created At.
pub fn of(kind: &str) -> Vec<Column> {
    let [containers, images] = template_columns();
    match kind {
        "Deployment" => vec![
            name(),
            ready(),
            of_field("Up-to-date", "string", 0, "status.updatedReplicas", show::number),
            of_field("Available", "string", 0, "status.availableReplicas", show::number),
            age_column(),
            containers,
            images,
            of_field("Selector", "string", 1, "spec.selector", deployment_selector),
        ],
        "ReplicaSet" => vec![
            name(),
            of_field("Desired", "integer", 0, "spec.replicas", show::number),
            of_field("Current", "integer", 0, "status.replicas", show::number),
            of_field("Ready", "integer", 0, "status.readyReplicas", show::number),
            age_column(),
            containers,
            images,
            selector_column(),
        ],
        "StatefulSet" => vec![name(), ready(), age_column(), containers, images],
        "DaemonSet" => vec![
            name(),
            of_field("Desired", "integer", 0, "status.desiredNumberScheduled", show::number),
            of_field("Current", "integer", 0, "status.currentNumberScheduled", show::number),
            of_field("Ready", "integer", 0, "status.numberReady", show::number),
            of_field("Up-to-date", "integer", 0, "status.updatedNumberScheduled", show::number),
            of_field("Available", "integer", 0, "status.numberAvailable", show::number),
            of_field("Node Selector", "string", 0, "spec.template.spec.nodeSelector", show::labels),
            age_column(),
            containers,
            images,
            selector_column(),
        ],
        "ControllerRevision" => vec![
            name(),
            column("Controller", "string", 0, "The object whose past state this is.", |doc, _| controller(doc).into())
                .reading(&[]),
            of_field("Revision", "string", 0, "revision", show::number),
            age_column(),
        ],
        _ => Vec::new(),
    }
}

fn ready() -> Column {
    column("Ready", "string", 0, "Pods that are ready, of those wanted.", |doc, _| {
        format!("{}/{}", number(doc, "status.readyReplicas"), number(doc, "spec.replicas")).into()
    })
    .reading(&["status.readyReplicas", "spec.replicas"])
}

/// The selector of a Deployment. An empty selector is shown as an empty text, where other kinds show `<none>`.
fn deployment_selector(doc: &Value, path: &str) -> Value {
    selector_text(at(doc, path)).unwrap_or_else(|| "<invalid>".into()).into()
}

/// The owner that controls the object, as text: `statefulset.apps/web`.
fn controller(doc: &Value) -> String {
    let Some(owner) = items(doc, "metadata.ownerReferences").iter().find(|owner| truth(owner, "controller")) else {
        return NONE.into();
    };
    let kind = text(owner, "kind").to_lowercase();
    match text(owner, "apiVersion").split_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{}", text(owner, "name")),
        None => format!("{kind}/{}", text(owner, "name")),
    }
}

#[cfg(test)]
mod tests {
    use super::of;
    use crate::kinds::cells::shown;
    use holdfast_value::json;

    #[test]
    fn workloads() {
        let template = json!({"spec": {
            "containers": [{"name": "app", "image": "nginx:1.27"}, {"name": "log", "image": "fluent"}],
            "nodeSelector": {"disk": "ssd"},
        }});
        let selector = json!({"matchLabels": {"app": "web"}});
        let cases = [
            (
                "Deployment",
                json!({
                    "spec": {"replicas": 3, "selector": selector, "template": template},
                    "status": {"replicas": 4, "readyReplicas": 2, "updatedReplicas": 1, "availableReplicas": 2},
                }),
                "web | 2/3 | 1 | 2 | 8d | app,log | nginx:1.27,fluent | app=web",
            ),
            (
                "Deployment",
                json!({"spec": {"replicas": 0, "selector": {}, "template": {"spec": {"containers": []}}}}),
                "web | 0/0 | 0 | 0 | 8d |  |  | ",
            ),
            (
                "ReplicaSet",
                json!({
                    "spec": {"replicas": 3, "selector": selector, "template": template},
                    "status": {"replicas": 2, "readyReplicas": 1},
                }),
                "web | 3 | 2 | 1 | 8d | app,log | nginx:1.27,fluent | app=web",
            ),
            (
                "StatefulSet",
                json!({"spec": {"replicas": 2, "template": template}, "status": {"readyReplicas": 1}}),
                "web | 1/2 | 8d | app,log | nginx:1.27,fluent",
            ),
            (
                "DaemonSet",
                json!({
                    "spec": {"selector": {}, "template": template},
                    "status": {
                        "desiredNumberScheduled": 5, "currentNumberScheduled": 4, "numberReady": 3,
                        "updatedNumberScheduled": 2, "numberAvailable": 1,
                    },
                }),
                "web | 5 | 4 | 3 | 2 | 1 | disk=ssd | 8d | app,log | nginx:1.27,fluent | <none>",
            ),
            ("ControllerRevision", json!({"revision": 7}), "web | <none> | 7 | 8d"),
        ];
        for (kind, mut doc, expected) in cases {
            doc["metadata"] = json!({"name": "web", "creationTimestamp": "2026-01-02T00:00:00Z"});
            assert_eq!(shown(&of(kind), &doc), expected, "{kind}");
        }
    }

    #[test]
    fn controllers() {
        let owned = json!({"metadata": {"ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": "n"},
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "controller": true},
        ]}});
        assert_eq!(super::controller(&owned), "statefulset.apps/web");
    }
}
