//! Makes the plan for one PersistentVolume.

use super::provision::{EXTERNAL_FINALIZER, FINALIZER, FOLDERS, HOST_PATH, OWN};
use super::{BOUND_BY_CONTROLLER, Binder, PROVISIONED_BY, drop_annotation, matching, migration, volume_phase};
use crate::planted::{Bug, planted};
use crate::subject::Subject;
use crate::volumes::claim_key;
use holdfast_value::Value;
use holdfast_world::views::{PersistentVolume, PersistentVolumeClaim};
use holdfast_world::{Plan, Viewed, World};

type VolumeView<'a> = Viewed<'a, PersistentVolume>;

impl Binder {
    pub(super) fn plan_volume(&self, world: &World, volume: VolumeView<'_>, plan: &mut Plan) {
        if let Some(document) = marked(volume) {
            return plan.then(Subject::from(volume).update(document));
        }
        let named = volume.spec.claim_ref.as_ref().filter(|named| !named.uid.is_empty());
        let Some(named) = named else {
            // No claim has the volume: it is free, or reserved by name for a claim that does not exist yet.
            return plan.together(volume_phase(volume, "Available", "").into_iter().collect());
        };
        let claim = claim_key(&volume).and_then(|key| world.get::<PersistentVolumeClaim>(&key));
        let Some(claim) = claim.filter(|claim| claim.meta().uid == named.uid) else { return release(volume, plan) };
        if claim.spec.volume_name.is_empty() {
            if matching::modes_differ(&volume, &claim) {
                report_modes(volume, claim, plan);
            }
            // The claim does not name the volume yet: the claim's own plan completes the binding.
        } else if claim.spec.volume_name == volume.meta().name {
            plan.together(volume_phase(volume, "Bound", "").into_iter().collect());
        } else if volume.meta().annotation(PROVISIONED_BY).is_some()
            && volume.spec.persistent_volume_reclaim_policy == "Delete"
        {
            release(volume, plan);
        } else {
            unbind(volume, plan);
        }
    }
}

/// The document of a provisioned volume with the annotation that names the driver of a migrated plug-in, and with the
/// right finalizers; `None` if the volume has both already.
fn marked(volume: VolumeView<'_>) -> Option<Value> {
    let meta = volume.meta();
    let provisioner = meta.annotation(PROVISIONED_BY)?;
    let is_here = provisioner.starts_with(OWN) && migration::driver(provisioner).is_none();
    let is_deleted_here = is_here && volume.spec.persistent_volume_reclaim_policy == "Delete";
    let lacks = is_deleted_here && !meta.has_finalizer(FINALIZER) && !meta.is_deleting();
    let is_held = !is_deleted_here && provisioner.starts_with(OWN) && meta.has_finalizer(FINALIZER);
    // External provisioners set this finalizer. No component would remove it from a volume that this controller
    // provisions.
    let is_held_elsewhere = is_here && meta.has_finalizer(EXTERNAL_FINALIZER);
    if !lacks && !is_held && !is_held_elsewhere && !migration::is_mismarked(meta, false) {
        return None;
    }
    let mut document = volume.object.document();
    migration::mark(&mut document, provisioner);
    let mut finalizers = document["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    finalizers.retain(|known| !(is_held && known == FINALIZER || is_held_elsewhere && known == EXTERNAL_FINALIZER));
    finalizers.extend(lacks.then(|| FINALIZER.into()));
    document["metadata"]["finalizers"] = finalizers.into();
    Some(document)
}

fn report_modes(volume: VolumeView<'_>, claim: Viewed<'_, PersistentVolumeClaim>, plan: &mut Plan) {
    const WHY: &str = "due to incompatible volumeMode.";
    let of_volume =
        format!("Cannot bind PersistentVolume to requested PersistentVolumeClaim {:?} {WHY}", claim.meta().name);
    let of_claim =
        format!("Cannot bind PersistentVolume {:?} to requested PersistentVolumeClaim {WHY}", volume.meta().name);
    plan.events.push(Subject::from(volume).warning("VolumeMismatch", of_volume));
    plan.events.push(Subject::from(claim).warning("VolumeMismatch", of_claim));
}

/// Ends the binding of a volume whose claim is bound to another volume. If this controller wrote the volume's
/// `claimRef`, the volume becomes free. If a user wrote it, the volume stays reserved for a claim of that name.
fn unbind(volume: VolumeView<'_>, plan: &mut Plan) {
    let mut document = volume.object.document();
    if volume.meta().annotation(BOUND_BY_CONTROLLER).is_some() {
        drop_annotation(&mut document, BOUND_BY_CONTROLLER);
        document["spec"]["claimRef"] = Value::Null;
    } else if let Some(named) = document["spec"]["claimRef"].as_object_mut() {
        named.remove("uid");
    }
    plan.then(Subject::from(volume).update(document));
}

/// Handles a volume whose claim was deleted: the volume becomes Released, and is then kept or deleted by its reclaim
/// policy.
fn release(volume: VolumeView<'_>, plan: &mut Plan) {
    if !matches!(volume.status.phase.as_str(), "Released" | "Failed") {
        return plan.together(volume_phase(volume, "Released", "").into_iter().collect());
    }
    match volume.spec.persistent_volume_reclaim_policy.as_str() {
        "Retain" => {}
        "Delete" if planted(Bug::VolumesStay) => {}
        "Delete" => delete(volume, plan),
        "Recycle" => fail(volume, "VolumeFailedRecycle", "No recycler plugin found for the volume!", plan),
        _ => fail(volume, "VolumeUnknownReclaimPolicy", "Volume has unrecognized PersistentVolumeReclaimPolicy", plan),
    }
}

/// Deletes a volume that is a folder. Only the object is deleted: nodes are simulated, so no real folder exists.
/// Volumes of external provisioners are left to their provisioners.
fn delete(volume: VolumeView<'_>, plan: &mut Plan) {
    let meta = volume.meta();
    let provisioner = meta.annotation(PROVISIONED_BY).unwrap_or_default();
    let is_anothers = migration::driver(provisioner).is_some() || !provisioner.starts_with(OWN);
    // CSI drivers and external provisioners delete their volumes themselves, even if a volume was not provisioned.
    if volume.spec.csi.is_some() || !provisioner.is_empty() && is_anothers {
        return;
    }
    if !provisioner.is_empty() && provisioner != HOST_PATH {
        return fail(volume, "VolumeFailedDelete", &format!("no volume plugin matched name: {provisioner}"), plan);
    }
    let Some(folder) = &volume.spec.host_path else {
        let message = format!(
            "error getting deleter volume plugin for volume {:?}: no deletable volume plugin matched",
            meta.name
        );
        return fail(volume, "VolumeFailedDelete", &message, plan);
    };
    if folder.path.split_once(FOLDERS).is_none_or(|(_, rest)| rest.is_empty()) {
        let message = format!("host_path deleter only supports {FOLDERS}.+ but received provided {}", folder.path);
        return fail(volume, "VolumeFailedDelete", &message, plan);
    }
    if meta.has_finalizer(FINALIZER) {
        let mut document = volume.object.document();
        if let Some(finalizers) = document["metadata"]["finalizers"].as_array_mut() {
            finalizers.retain(|finalizer| finalizer != FINALIZER);
        }
        // A later plan would add the finalizer again, so this plan both removes the finalizer and deletes the volume.
        plan.then(Subject::from(volume).update(document));
    }
    if !meta.is_deleting() {
        plan.then(Subject::from(volume).delete());
    }
}

fn fail(volume: VolumeView<'_>, reason: &'static str, message: &str, plan: &mut Plan) {
    if let Some(action) = volume_phase(volume, "Failed", message) {
        plan.then(action.with_event(Subject::from(volume).warning(reason, message.to_owned())));
    }
}
