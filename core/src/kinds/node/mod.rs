//! `node.k8s.io`: ways to run containers.

pub mod columns;
pub mod defaults;

use super::Kind;

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::cluster("RuntimeClass", "runtimeclasses")
            .versions("node.k8s.io", "io.k8s.api.node", ["v1", "v1beta1", "v1alpha1"])
            .columns(columns::of("RuntimeClass")),
    ]
}
