//! `discovery.k8s.io`: the endpoints behind a service, in slices.

pub mod columns;
mod convert;
pub mod defaults;
mod validate;

use super::core::warnings;
use super::{ApiGroup, Asking, Kind, MetadataOnUpdate};
use holdfast_value::Value;

pub const GROUP: &str = "discovery.k8s.io";
const PACKAGE: &str = "io.k8s.api.discovery";

/// The definition of this group, for the list of all built-in groups.
pub const API_GROUP: ApiGroup =
    ApiGroup::new(GROUP, kinds, defaults::rules).prioritized(16_200, &[("v1", 15), ("v1beta1", 12)]);

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::namespaced("EndpointSlice", "endpointslices")
            .versions(GROUP, PACKAGE, ["v1"])
            .converted(GROUP, PACKAGE, "v1beta1", convert::TOPOLOGY)
            .columns(columns::of("EndpointSlice"))
            .validate(validate::endpoint_slice)
            .warnings(warnings::endpoint_slice)
            .metadata_on_update(MetadataOnUpdate::New)
            .generation_with(&["labels"])
            .note(drop_topology),
    ]
}

/// Removes topologies that `v1` clients set; only `v1beta1` clients may set them. An existing topology stays until the
/// endpoints change.
fn drop_topology(slice: &mut Value, old: Option<&Value>, asking: &Asking) {
    if asking.version.version != "v1" || old.is_some_and(|old| old.get("endpoints") == slice.get("endpoints")) {
        return;
    }
    let endpoints = slice.get_mut("endpoints").and_then(Value::as_array_mut);
    for endpoint in endpoints.into_iter().flatten().filter_map(Value::as_object_mut) {
        endpoint.remove("deprecatedTopology");
    }
}
