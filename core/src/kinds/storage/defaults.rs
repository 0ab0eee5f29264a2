//! Defaults of storage classes and drivers.

use crate::schema::defaults::Rule;
use serde_json::json;

const VERSIONS: &[&str] = &["v1", "v1beta1"];

pub fn rules() -> Vec<Rule> {
    vec![
        Rule::in_versions("api.storage", VERSIONS, "StorageClass")
            .set("reclaimPolicy", "Delete")
            .set("volumeBindingMode", "Immediate"),
        Rule::in_versions("api.storage", VERSIONS, "CSIDriverSpec")
            .set("attachRequired", true)
            .set("fsGroupPolicy", "ReadWriteOnceWithFSType")
            .set("podInfoOnMount", false)
            .set("requiresRepublish", false)
            .set("seLinuxMount", false)
            .set("storageCapacity", false)
            .set("volumeLifecycleModes", json!(["Persistent"])),
    ]
}
