//! The kind Namespace. A finalizer in the spec delays the deletion; clients remove it through the subresource
//! `finalize`.

use super::{PACKAGE, columns, validate};
use crate::kinds::Kind;
use crate::kinds::build::{VIEW, keep_old};
use crate::object::meta::{Document, metadata_mut, object_mut, set_path, text};
use crate::object::names::NameRule;
use holdfast_value::{Value, json};

pub fn kind() -> Kind {
    Kind::cluster("Namespace", "namespaces")
        .versions("", PACKAGE, ["v1"])
        .short(["ns"])
        .columns(columns::of("Namespace"))
        .names(NameRule::Label)
        // The verbs do not include `deletecollection`: as in Kubernetes, namespaces are deleted one at a time.
        .verbs(["create", "delete", "get", "list", "patch", "update", "watch"])
        .part("finalize", None, &["update"])
        .part_resets("finalize", &[&["status"]])
        .part("status", None, &VIEW)
        .validate(validate::namespace)
        .validate_part("finalize", validate::namespace_finalize)
        .validate_part("status", validate::namespace_status)
        .select("status.phase")
        .prepare_create(prepare_create)
        .prepare_update(prepare_update)
        .immortal(&["default", "kube-system", "kube-public"])
        .begin_delete(|namespace, _| set_path(namespace, "status.phase", "Terminating".into()))
        .is_held(is_held)
}

/// Whether the deletion of a namespace waits, because its spec has finalizers.
fn is_held(namespace: &Document) -> bool {
    let finalizers = namespace.get("spec").and_then(|spec| spec["finalizers"].as_array());
    finalizers.is_some_and(|finalizers| !finalizers.is_empty())
}

fn prepare_create(namespace: &mut Value) {
    let Some(fields) = namespace.as_object_mut() else { return };
    // Defaults run before names are generated, so the label with a generated name is set here.
    let meta = metadata_mut(fields);
    let name = text(meta, "name").to_owned();
    object_mut(meta, "labels").insert("kubernetes.io/metadata.name", name.into());
    fields.insert("status", json!({ "phase": "Active" }));
    let spec = fields.entry("spec").or_insert_with(|| json!({}));
    if !spec["finalizers"].is_array() {
        spec["finalizers"] = json!([]);
    }
    if let Some(finalizers) = spec["finalizers"].as_array_mut()
        && !finalizers.iter().any(|name| name == "kubernetes")
    {
        finalizers.push("kubernetes".into());
    }
}

/// Keeps the finalizers and the status, which change through `/finalize` and `/status`.
fn prepare_update(new: &mut Value, old: &Value) {
    keep_old(new, old, "status");
    let Some(fields) = new.as_object_mut() else { return };
    let spec = fields.entry("spec").or_insert_with(|| json!({}));
    let Some(spec) = spec.as_object_mut() else { return };
    match old.pointer("/spec/finalizers") {
        Some(finalizers) => spec.insert("finalizers", finalizers.clone()),
        None => spec.remove("finalizers"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_namespace_is_active_and_held_by_the_cluster() {
        let mut namespace = json!({ "metadata": { "name": "a" }, "status": { "phase": "Terminating" } });
        prepare_create(&mut namespace);
        let expected = json!({
            "metadata": { "name": "a", "labels": { "kubernetes.io/metadata.name": "a" } },
            "spec": { "finalizers": ["kubernetes"] }, "status": { "phase": "Active" },
        });
        assert_eq!(namespace, expected);
    }

    #[test]
    fn an_update_changes_neither_finalizers_nor_status() {
        let old = json!({ "spec": { "finalizers": ["kubernetes"] }, "status": { "phase": "Active" } });
        let mut new = json!({ "metadata": { "labels": { "a": "b" } }, "spec": {} });
        prepare_update(&mut new, &old);
        assert_eq!(new["spec"], old["spec"]);
        assert_eq!(new["status"], old["status"]);
        assert_eq!(new["metadata"]["labels"]["a"], "b");
    }
}
