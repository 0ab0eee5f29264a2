//! Defaults of storage classes and drivers.

use crate::schema::defaults::Rule;
use holdfast_value::json;

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

#[cfg(test)]
mod tests {
    use crate::schema::defaults::testing::check;
    use expect_test::expect;
    use holdfast_value::json;

    #[test]
    fn a_class() {
        check(
            "api.storage.v1.StorageClass",
            json!({"provisioner": "x"}),
            expect![[r#"
            reclaimPolicy = "Delete"
            volumeBindingMode = "Immediate""#]],
        );
    }

    #[test]
    fn a_driver() {
        check(
            "api.storage.v1.CSIDriver",
            json!({"spec": {"attachRequired": false, "volumeLifecycleModes": []}}),
            expect![[r#"
                spec.fsGroupPolicy = "ReadWriteOnceWithFSType"
                spec.podInfoOnMount = false
                spec.requiresRepublish = false
                spec.seLinuxMount = false
                spec.storageCapacity = false
                spec.volumeLifecycleModes[0] = "Persistent""#]],
        );
    }
}
