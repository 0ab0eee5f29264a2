//! PersistentVolume and PersistentVolumeClaim start as pending. A claim has an older and a newer field for its data
//! source.

use crate::kinds::build::keep_old;
use crate::kinds::{Asking, Gated};
use crate::object::meta;
use holdfast_value::{Value, json};

pub fn prepare_create(volume: &mut Value) {
    if let Some(fields) = volume.as_object_mut() {
        fields.insert("status", json!({ "phase": "Pending" }));
    }
}

/// Sets the time of the last phase change, unless the client sets it.
pub fn date_phase(volume: &mut Value, old: Option<&Value>, asking: &Asking) {
    const FIELD: &str = "lastPhaseTransitionTime";
    if asking.subresource.is_empty() && old.is_some() {
        return;
    }
    let before = old.map_or(&Value::Null, |old| &old["status"]);
    let status = meta::object_mut(meta::fields_mut(volume), "status");
    let same = |field: &str| status.get(field).unwrap_or(&Value::Null) == &before[field];
    match (same("phase"), status.contains_key(FIELD)) {
        (true, false) if before[FIELD].is_string() => _ = status.insert(FIELD, before[FIELD].clone()),
        (false, is_said) if !is_said || same(FIELD) => _ = status.insert(FIELD, asking.now.into()),
        _ => {}
    }
}

pub fn prepare_claim_create(claim: &mut Value) {
    if let Some(fields) = claim.as_object_mut() {
        fields.insert("status", json!({ "phase": "Pending" }));
    }
    fill_data_source(claim);
}

pub fn prepare_claim_update(new: &mut Value, old: &Value) {
    keep_old(new, old, "status");
    fill_data_source(new);
}

pub const CLAIM_GATED: &[Gated] = &[
    Gated::by("AnyVolumeDataSource", drop_other_sources),
    Gated::by("CrossNamespaceVolumeDataSource", |claim, old| drop_foreign_source(claim, old.unwrap_or(&Value::Null))),
    Gated::by("VolumeSnapshotDataSource", drop_snapshots),
];

const CLAIM: (&str, &str) = ("", "PersistentVolumeClaim");
const SNAPSHOT: (&str, &str) = ("snapshot.storage.k8s.io", "VolumeSnapshot");

/// Removes a data source of an unwanted kind, unless the old claim already has the same source.
fn drop_source(claim: &mut Value, old: Option<&Value>, is_wanted: impl Fn((&str, &str)) -> bool) {
    let Some(source) = claim["spec"].get("dataSource").filter(|source| !source.is_null()) else { return };
    let text = |field: &str| source[field].as_str().unwrap_or_default();
    let is_kept = old.is_some_and(|old| old["spec"]["dataSource"] == *source);
    if !is_kept && !is_wanted((text("apiGroup"), text("kind"))) {
        claim["spec"].as_object_mut().map(|spec| spec.remove("dataSource"));
    }
}

/// While the gate `AnyVolumeDataSource` is off, a claim's data source can only be a claim or a snapshot, and
/// `dataSourceRef` cannot be newly set.
fn drop_other_sources(claim: &mut Value, old: Option<&Value>) {
    if old.is_none_or(|old| old["spec"]["dataSourceRef"].is_null()) {
        claim.get_mut("spec").and_then(Value::as_object_mut).map(|spec| spec.remove("dataSourceRef"));
    }
    drop_source(claim, old, |kind| kind == CLAIM || kind == SNAPSHOT);
}

fn drop_snapshots(claim: &mut Value, old: Option<&Value>) {
    drop_source(claim, old, |kind| kind != SNAPSHOT);
}

/// While the gate `CrossNamespaceVolumeDataSource` is off, a data source in another namespace cannot be newly set.
fn drop_foreign_source(claim: &mut Value, old: &Value) {
    let is_foreign = |claim: &Value| {
        claim["spec"]["dataSourceRef"]["namespace"].as_str().is_some_and(|namespace| !namespace.is_empty())
    };
    if is_foreign(claim) && !is_foreign(old) {
        let spec = claim.get_mut("spec").and_then(Value::as_object_mut);
        spec.map(|spec| spec.remove("dataSourceRef"));
    }
}

/// Fills `dataSource` and `dataSourceRef` from each other: older clients write only `dataSource`, and newer clients may
/// write only `dataSourceRef`. A reference to another namespace has no older form.
fn fill_data_source(claim: &mut Value) {
    let Some(spec) = claim.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let present = |value: Option<&Value>| value.filter(|v| !v.is_null()).cloned();
    match (present(spec.get("dataSource")), present(spec.get("dataSourceRef"))) {
        (Some(source), None) => {
            spec.insert("dataSourceRef", source);
        }
        (None, Some(reference)) => {
            let foreign = reference.get("namespace").and_then(Value::as_str).is_some_and(|name| !name.is_empty());
            if !foreign {
                spec.insert("dataSource", reference);
            }
        }
        _ => (),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_source_is_known_by_both_names() {
        let snapshot = json!({ "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "monday" });
        let foreign = json!({ "kind": "VolumeSnapshot", "name": "monday", "namespace": "other" });
        for (spec, expected) in [
            (json!({ "dataSource": snapshot }), json!({ "dataSource": snapshot, "dataSourceRef": snapshot })),
            (json!({ "dataSourceRef": snapshot }), json!({ "dataSource": snapshot, "dataSourceRef": snapshot })),
            (json!({ "dataSourceRef": foreign }), json!({})),
            (json!({}), json!({})),
        ] {
            let mut claim = json!({ "spec": spec });
            drop_foreign_source(&mut claim, &Value::Null);
            prepare_claim_create(&mut claim);
            assert_eq!(claim, json!({ "spec": expected, "status": { "phase": "Pending" } }));
        }
    }
}
