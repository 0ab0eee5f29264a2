//! Removes duplicate owner references.

use super::Context;
use crate::object::meta::{Document, text};
use holdfast_value::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Removes duplicate owner references and warns about them. As in Kubernetes this is done for the object that the
/// client sends, and again after a patch is applied and after admission.
pub(super) fn merge(context: &Context, meta: &mut Document, when: &str) {
    let repeated = repeated(meta);
    if repeated.is_empty() {
        return;
    }
    let uids = repeated.values().map(String::as_str).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>();
    context.warn([format!(
        ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may \
         reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
        uids.join(",")
    )]);
    if let Some(Value::Array(references)) = meta.get_mut("ownerReferences") {
        let mut at = 0;
        references.retain(|_| {
            at += 1;
            !repeated.contains_key(&(at - 1))
        });
    }
}

/// For each owner reference that equals an earlier one: its index in the list, and its UID.
fn repeated(meta: &Document) -> BTreeMap<usize, String> {
    let Some(Value::Array(references)) = meta.get("ownerReferences") else { return BTreeMap::new() };
    if references.len() < 2 {
        return BTreeMap::new();
    }
    let mut seen = BTreeSet::new();
    let is_repeated = |(at, reference): (usize, &Value)| {
        let uid = reference.as_object().map(|reference| text(reference, "uid").to_owned())?;
        (!seen.insert(reference.to_string())).then_some((at, uid))
    };
    references.iter().enumerate().filter_map(is_repeated).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn only_equal_references_are_repeated() {
        let of = |name: &str, uid: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid});
        let mut controlling = of("a", "1");
        controlling["controller"] = true.into();
        let rows = [
            (json!([]), vec![]),
            (json!([of("a", "1"), of("b", "2")]), vec![]),
            (json!([of("a", "1"), of("b", "2"), of("a", "1"), of("a", "1")]), vec![2, 3]),
            (json!([of("a", "1"), controlling, of("b", "1")]), vec![]),
        ];
        for (references, expected) in rows {
            let meta = json!({"ownerReferences": references});
            let found: Vec<usize> = repeated(meta.as_object().unwrap()).into_keys().collect();
            assert_eq!(found, expected, "{references}");
        }
    }
}
