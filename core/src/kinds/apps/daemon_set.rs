//! The template generation of a DaemonSet, which newer versions keep in an annotation.

use crate::kinds::Asking;
use crate::kinds::build::keep_old;
use crate::schema::spelling;
use holdfast_value::{Value, json};

/// The annotation for `spec.templateGeneration` of `extensions`.
pub const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Sets the annotation on every DaemonSet that a client writes.
pub fn show_template_generation(set: &mut Value) {
    let generation = template_generation(set).unwrap_or(0);
    write_template_generation(set, generation);
}

pub fn prepare_create(set: &mut Value) {
    let Some(fields) = set.as_object_mut() else { return };
    fields.remove("status");
    let generation = template_generation(set).unwrap_or(0).max(1);
    write_template_generation(set, generation);
}

/// Counts changes of the template, and ignores the count that the client sends.
pub fn prepare_update(new: &mut Value, old: &Value) {
    keep_old(new, old, "status");
    let kept = template_generation(old).unwrap_or(0);
    let [before, after] = [old, &*new].map(|set| set.pointer("/spec/template").unwrap_or(&Value::Null));
    let changed = !spelling::is_same(spelling::pod_template(), after, before);
    write_template_generation(new, if changed { kept.saturating_add(1) } else { kept });
}

/// A status write does not change the template generation.
pub fn keep_template_generation(new: &mut Value, old: Option<&Value>, asking: &Asking) {
    if let (Some(old), "status") = (old, asking.subresource) {
        write_template_generation(new, template_generation(old).unwrap_or(0));
    }
}

fn template_generation(set: &Value) -> Option<i64> {
    set["metadata"]["annotations"][TEMPLATE_GENERATION].as_str()?.parse().ok()
}

fn write_template_generation(set: &mut Value, generation: i64) {
    let annotations = &mut set["metadata"]["annotations"];
    if !annotations.is_object() {
        *annotations = json!({});
    }
    annotations[TEMPLATE_GENERATION] = generation.to_string().into();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_is_numbered() {
        let mut set = json!({ "metadata": { "name": "a" }, "spec": { "template": { "spec": {} } }, "status": {} });
        prepare_create(&mut set);
        assert_eq!(template_generation(&set), Some(1));
        assert!(set.get("status").is_none());

        let mut same = json!({ "metadata": { "name": "a" }, "spec": { "template": { "spec": {} } } });
        prepare_update(&mut same, &set);
        assert_eq!(template_generation(&same), Some(1));

        let mut changed =
            json!({ "metadata": { "name": "a" }, "spec": { "template": { "spec": { "nodeName": "n" } } } });
        prepare_update(&mut changed, &set);
        assert_eq!(template_generation(&changed), Some(2));
    }
}
