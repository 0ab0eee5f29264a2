//! `node.k8s.io`: runtime classes.

pub mod columns;
mod convert;
pub mod defaults;
mod validate;

use super::core::warnings::old_label;
use super::{ApiGroup, Gated, Kind};
use crate::object::meta::Document;
use crate::refusal::Texts;

pub const GROUP: &str = "node.k8s.io";
const PACKAGE: &str = "io.k8s.api.node";

/// The definition of this group, for the list of all built-in groups.
pub const API_GROUP: ApiGroup =
    ApiGroup::new(GROUP, kinds, defaults::rules).prioritized(16_300, &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)]);

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::cluster("RuntimeClass", "runtimeclasses")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1"])
            .converted(GROUP, PACKAGE, "v1alpha1", convert::SPEC)
            .columns(columns::of("RuntimeClass"))
            .gated(const { &[Gated::fields("PodOverhead", &["overhead"])] })
            .validate(validate::runtime_class)
            .warnings(class_warnings)
            .create_on_update()
            .conditional_update(),
    ]
}

/// Warns of older node labels.
fn class_warnings(_: &Kind, class: &Document, _: Option<&Document>) -> Texts {
    let labels = class.get("scheduling").and_then(|scheduling| scheduling["nodeSelector"].as_object());
    let why = labels.into_iter().flat_map(|labels| labels.keys()).filter_map(|label| old_label(label));
    why.map(|why| format!("scheduling.nodeSelector: {why}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn old_labels_of_nodes_are_told_of() {
        let class = json!({"scheduling": {"nodeSelector": {"a": "b", "beta.kubernetes.io/os": "linux"}}});
        let kind = kinds().remove(0);
        assert_eq!(
            class_warnings(&kind, class.as_object().expect("an object"), None).into_vec(),
            ["scheduling.nodeSelector: deprecated since v1.14; use \"kubernetes.io/os\" instead"]
        );
    }
}
