//! `discovery.k8s.io`: the endpoints behind a service, in slices.

pub mod columns;
pub mod defaults;

use super::Kind;

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::namespaced("EndpointSlice", "endpointslices")
            .versions("discovery.k8s.io", "io.k8s.api.discovery", ["v1", "v1beta1"])
            .columns(columns::of("EndpointSlice"))
            .generation(),
    ]
}
