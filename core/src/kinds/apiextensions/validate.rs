//! The rules of definitions of custom kinds.

use crate::kinds::rules::{At, distinct, need, one_of};
use crate::refusal::Cause;
use serde_json::Value;

pub fn definition(new: &Value, _: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let root = At::root(new);
    let spec = root.get("spec");
    let names = spec.get("names");
    let wanted = format!("{}.{}", names.get("plural").text(), spec.get("group").text());
    let metadata = root.get("metadata");
    let name = metadata.get("name");
    if name.text() != wanted {
        causes.push(name.invalid("must be spec.names.plural+\".\"+spec.group"));
    }
    need(spec.get("group"), &mut causes);
    need(spec.get("scope"), &mut causes);
    one_of(spec.get("scope"), &["Cluster", "Namespaced"], &mut causes);
    need(names.get("plural"), &mut causes);
    need(names.get("kind"), &mut causes);
    let versions = spec.get("versions");
    distinct(versions, "name", &mut causes);
    if versions.items().filter(|version| version.get("storage").is_true()).count() != 1 {
        causes.push(versions.invalid("must have exactly one version marked as storage version"));
    }
    causes
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::check_rows;
    use serde_json::json;

    #[test]
    fn each_rule() {
        let good = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "gizmos.example.test"},
            "spec": {
                "group": "example.test", "scope": "Namespaced", "names": {"plural": "gizmos", "kind": "Gizmo"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}}}],
            },
        });
        check_rows(
            &good,
            &[
                (
                    "/metadata/name",
                    json!("wrong"),
                    "metadata.name: Invalid value: \"wrong\": must be spec.names.plural+",
                ),
                ("/spec/scope", json!("Some"), "spec.scope: Unsupported value: \"Some\""),
                ("/spec/names/kind", json!(""), "spec.names.kind: Required value"),
                ("/spec/versions/0/storage", json!(false), "spec.versions: Invalid value"),
            ],
        );
    }
}
