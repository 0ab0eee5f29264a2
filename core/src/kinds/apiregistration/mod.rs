//! `apiregistration.k8s.io`: APIServices, each of which names the server of a group version.

pub mod columns;
pub mod defaults;
mod validate;

use super::build::{STATUS_RESETS_METADATA, keep_old};
use super::{ApiGroup, Kind};
use crate::object::names::NameRule;
use holdfast_value::{Value, json};

pub const GROUP: &str = "apiregistration.k8s.io";

/// The definition of this group, for the list of all built-in groups.
pub const API_GROUP: ApiGroup = ApiGroup::new(GROUP, kinds, defaults::rules);

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::cluster("APIService", "apiservices")
            .versions(GROUP, "io.k8s.kube-aggregator.pkg.apis.apiregistration", ["v1", "v1beta1"])
            .category("api-extensions")
            .storage("apiregistration.k8s.io/apiservices")
            .stored_as_json()
            .columns(columns::of("APIService"))
            .names(NameRule::PathSegment)
            .validate(validate::api_service)
            .any_finalizers()
            .conditional_update()
            .status()
            .status_resets(STATUS_RESETS_METADATA)
            .validate_part("status", validate::status)
            .prepare_create(prepare_create)
            .prepare_update(|new, old| keep_old(new, old, "status")),
    ]
}

/// Sets the status. A group version that this server serves itself is available from the start.
fn prepare_create(object: &mut Value) {
    let local = object.pointer("/spec/service").is_none_or(Value::is_null);
    let created = object.pointer("/metadata/creationTimestamp").cloned();
    let Some(fields) = object.as_object_mut() else { return };
    fields.remove("status");
    if local {
        let available = json!({
            "type": "Available",
            "status": "True",
            "lastTransitionTime": created,
            "reason": "Local",
            "message": "Local APIServices are always available",
        });
        fields.insert("status", json!({ "conditions": [available] }));
    }
}
