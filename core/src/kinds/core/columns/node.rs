//! Columns of nodes: whether they accept pods, their roles, and their software.

use crate::kinds::Column;
use crate::kinds::cells::{
    NONE, UNKNOWN, age_column, column, entries, field, items, name, of_field, show, text, truth,
};
use holdfast_value::Value;
use std::collections::BTreeSet;

pub fn columns() -> Vec<Column> {
    vec![
        name(),
        column("Status", "string", 0, "Whether the node is ready, and whether new pods may come.", |node, _| {
            status(node).into()
        })
        .reading(&["spec.unschedulable", "status.conditions"]),
        column("Roles", "string", 0, "Roles, from the node's labels.", |node, _| roles(node).into()).reading(&[]),
        age_column(),
        of_field("Version", "string", 0, "status.nodeInfo.kubeletVersion", show::text),
        of_field("Internal-IP", "string", 1, "status.addresses", |node, path| address(node, path, "InternalIP").into()),
        of_field("External-IP", "string", 1, "status.addresses", |node, path| address(node, path, "ExternalIP").into()),
        of_field("OS-Image", "string", 1, "status.nodeInfo.osImage", show::text_or_unknown),
        column("Kernel-Version", "string", 1, field("status.nodeInfo.kernelVersion"), |node, _| {
            let (version, architecture) =
                (text(node, "status.nodeInfo.kernelVersion"), text(node, "status.nodeInfo.architecture"));
            match (version, architecture) {
                ("", _) => UNKNOWN.into(),
                (version, "") => version.into(),
                (version, architecture) => format!("{version} ({architecture})").into(),
            }
        })
        .reading(&["status.nodeInfo"]),
        of_field("Container-Runtime", "string", 1, "status.nodeInfo.containerRuntimeVersion", show::text_or_unknown),
    ]
}

fn status(node: &Value) -> String {
    let ready = items(node, "status.conditions").iter().rfind(|condition| text(condition, "type") == "Ready");
    let status = match ready.map(|condition| text(condition, "status")) {
        None => "Unknown",
        Some("True") => "Ready",
        Some(_) => "NotReady",
    };
    if truth(node, "spec.unschedulable") { format!("{status},SchedulingDisabled") } else { status.into() }
}

fn roles(node: &Value) -> String {
    let roles: BTreeSet<&str> = entries(node, "metadata.labels")
        .into_iter()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    if roles.is_empty() { NONE.into() } else { roles.into_iter().collect::<Vec<_>>().join(",") }
}

fn address<'a>(node: &'a Value, path: &str, ty: &str) -> &'a str {
    let found = items(node, path).iter().find(|address| text(address, "type") == ty);
    found.map_or(NONE, |address| text(address, "address"))
}

#[cfg(test)]
mod tests {
    use super::columns;
    use crate::kinds::cells::shown;
    use holdfast_value::json;

    #[test]
    fn nodes() {
        let info = json!({
            "kubeletVersion": "v1.35.0", "osImage": "Debian GNU/Linux 13", "kernelVersion": "6.12.0",
            "containerRuntimeVersion": "containerd://2.1.0",
        });
        let cases = [
            (
                json!({
                    "metadata": {"name": "n1", "creationTimestamp": "2026-01-09T22:00:00Z", "labels": {
                        "node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/control-plane": "",
                        "kubernetes.io/role": "edge", "kubernetes.io/os": "linux", "node-role.kubernetes.io/": "x",
                    }},
                    "status": {
                        "conditions": [
                            {"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"},
                        ],
                        "addresses": [
                            {"type": "Hostname", "address": "n1"}, {"type": "InternalIP", "address": "10.0.0.1"},
                            {"type": "InternalIP", "address": "fd00::1"}, {"type": "ExternalIP", "address": "1.2.3.4"},
                        ],
                        "nodeInfo": info,
                    },
                }),
                "n1 | Ready | control-plane,edge,worker | 120m | v1.35.0 | 10.0.0.1 | 1.2.3.4 | Debian GNU/Linux 13 | \
                 6.12.0 | containerd://2.1.0",
            ),
            (
                json!({
                    "metadata": {"name": "n2"},
                    "spec": {"unschedulable": true},
                    "status": {"conditions": [{"type": "Ready", "status": "Unknown"}], "nodeInfo": {"osImage": ""}},
                }),
                "n2 | NotReady,SchedulingDisabled | <none> | <unknown> |  | <none> | <none> | <unknown> | <unknown> | \
                 <unknown>",
            ),
            (
                json!({"metadata": {"name": "n3"}, "spec": {"unschedulable": true}}),
                "n3 | Unknown,SchedulingDisabled | <none> | <unknown> |  | <none> | <none> | <unknown> | <unknown> | \
                 <unknown>",
            ),
        ];
        for (node, expected) in cases {
            assert_eq!(shown(&columns(), &node), expected);
        }
    }
}
