//! Makes the plan for one PersistentVolumeClaim.

use super::{
    BETA_DEFAULT_CLASS, BETA_PROVISIONER, BIND_COMPLETED, BOUND_BY_CONTROLLER, Binder, DEFAULT_CLASS, PROVISIONER,
    SELECTED_NODE, annotate, matching, migration, volume_phase,
};
use crate::subject::Subject;
use crate::volumes::{pods_of, volume_of};
use holdfast_value::json;
use holdfast_world::views::{PersistentVolume, PersistentVolumeClaim, StorageClass};
use holdfast_world::{Action, Key, Plan, PlannedEvent, Viewed, World};

type ClaimView<'a> = Viewed<'a, PersistentVolumeClaim>;
type VolumeView<'a> = Viewed<'a, PersistentVolume>;

impl Binder {
    pub(super) fn plan_claim(&self, world: &World, claim: ClaimView<'_>, plan: &mut Plan) {
        if migration::is_mismarked(claim.meta(), true) {
            let mut document = claim.object.document();
            let named = [PROVISIONER, BETA_PROVISIONER].iter().find_map(|name| claim.meta().annotation(name));
            migration::mark(&mut document, named.unwrap_or_default());
            return plan.then(Subject::from(claim).update(document));
        }
        if claim.meta().annotation(BIND_COMPLETED).is_some() {
            check_bound(world, claim, plan);
        } else if claim.spec.volume_name.is_empty() {
            self.find_volume(world, claim, plan);
        } else {
            bind_named(world, claim, plan);
        }
    }

    /// Finds a volume for a claim that names no volume, or has a volume provisioned.
    fn find_volume(&self, world: &World, claim: ClaimView<'_>, plan: &mut Plan) {
        let class = claim.class(claim.meta()).filter(|class| !class.is_empty());
        let is_delayed = is_delayed(world, claim);
        let waits = is_delayed && claim.meta().annotation(SELECTED_NODE).is_none();
        if let Some(volume) = matching::best(world, claim, is_delayed) {
            return bind(volume, claim, plan);
        }
        if claim.class(claim.meta()).is_none()
            && let Some(default) = default_class(world)
        {
            let mut document = claim.object.document();
            document["spec"]["storageClassName"] = default.meta().name.as_str().into();
            return plan.then(Subject::from(claim).update(document));
        }
        let subject = Subject::from(claim);
        match class {
            _ if waits => plan.events.push(waiting(world, claim)),
            Some(class) => self.provision(world, claim, class, plan),
            None => plan.events.push(subject.normal(
                "FailedBinding",
                "no persistent volumes available for this claim and no storage class is set".into(),
            )),
        }
        pending(claim, plan);
    }
}

/// Whether a claim is bound only after a pod that uses it has a node. The scheduler then chooses a volume that the node
/// can use, or names the node for which a volume is provisioned.
pub(super) fn is_delayed(world: &World, claim: ClaimView<'_>) -> bool {
    let class = claim.class(claim.meta()).and_then(|class| world.get::<StorageClass>(&Key::cluster(class)));
    class.is_some_and(|class| class.waits_for_consumer())
}

/// Binds a claim to the volume that it names.
fn bind_named(world: &World, claim: ClaimView<'_>, plan: &mut Plan) {
    let subject = Subject::from(claim);
    let Some(volume) = volume_of(world, &claim) else { return pending(claim, plan) };
    if volume.spec.claim_ref.is_none() {
        match matching::mismatch(volume, claim) {
            None => return bind(volume, claim, plan),
            Some(why) => {
                let message = format!("Cannot bind to requested volume {:?}: {why}", volume.meta().name);
                plan.events.push(subject.warning("VolumeMismatch", message));
            }
        }
    } else if matching::is_bound_to(&volume, claim) {
        return bind(volume, claim, plan);
    } else if claim.meta().annotation(BOUND_BY_CONTROLLER).is_none() {
        let message = format!("volume {:?} already bound to a different claim.", volume.meta().name);
        plan.events.push(subject.warning("FailedBinding", message));
    } else {
        plan.skipped.push(format!("{} is bound by this controller to a volume of another claim", claim.object.key()));
        return;
    }
    pending(claim, plan);
}

/// Checks that the volume of a claim whose binding was complete still exists and is still bound to the claim.
fn check_bound(world: &World, claim: ClaimView<'_>, plan: &mut Plan) {
    const LOST: &str = "ClaimLost";
    if claim.spec.volume_name.is_empty() {
        return lose(
            claim,
            LOST,
            "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!",
            plan,
        );
    }
    let Some(volume) = volume_of(world, &claim) else {
        return lose(claim, LOST, "Bound claim has lost its PersistentVolume. Data on the volume is lost!", plan);
    };
    match &volume.spec.claim_ref {
        Some(named) if named.uid != claim.meta().uid => {
            let message = "Two claims are bound to the same volume, this one is bound incorrectly";
            lose(claim, "ClaimMisbound", message, plan);
        }
        _ => bind(volume, claim, plan),
    }
}

/// Plans the next of the four writes that bind a volume and a claim. A write of `claimRef` into the volume, or of the
/// volume's name into the claim, ends the plan, and a later plan continues.
fn bind(volume: VolumeView<'_>, claim: ClaimView<'_>, plan: &mut Plan) {
    let meta = claim.meta();
    let named = volume.spec.claim_ref.as_ref();
    let is_promised = matching::is_bound_to(&volume, claim);
    if !is_promised || named.is_some_and(|named| named.uid.is_empty()) {
        let mut document = volume.object.document();
        document["spec"]["claimRef"] = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": meta.namespace,
            "name": meta.name,
            "uid": meta.uid,
            "resourceVersion": meta.resource_version,
        });
        if !is_promised {
            annotate(&mut document, BOUND_BY_CONTROLLER, "yes");
        }
        return plan.then(Subject::from(volume).update(document));
    }
    plan.together(volume_phase(volume, "Bound", "").into_iter().collect());
    if claim.spec.volume_name != volume.meta().name || meta.annotation(BIND_COMPLETED).is_none() {
        let mut document = claim.object.document();
        if claim.spec.volume_name != volume.meta().name {
            document["spec"]["volumeName"] = volume.meta().name.as_str().into();
            annotate(&mut document, BOUND_BY_CONTROLLER, "yes");
        }
        annotate(&mut document, BIND_COMPLETED, "yes");
        return plan.then(Subject::from(claim).update(document));
    }
    plan.together(bound_status(volume, claim).into_iter().collect());
}

fn bound_status(volume: VolumeView<'_>, claim: ClaimView<'_>) -> Option<Action> {
    let is_new = claim.status.phase != "Bound";
    let document = volume.object.document();
    Subject::from(claim).status(|status| {
        status.insert("phase", "Bound".into());
        status.insert("accessModes", document["spec"]["accessModes"].clone());
        // The capacity is set only when the claim becomes bound. Later the claim's capacity may differ from the
        // volume's capacity, because a file system is smaller than its device.
        if is_new {
            status.insert("capacity", document["spec"]["capacity"].clone());
            if let Some(class) = volume.spec.volume_attributes_class_name.as_deref() {
                status.insert("currentVolumeAttributesClassName", class.into());
            }
        }
    })
}

fn pending(claim: ClaimView<'_>, plan: &mut Plan) {
    // If the plan already has a write, the next plan writes the status.
    if plan.steps.is_empty() && claim.status.phase != "Pending" {
        plan.together(unbound_status(claim, "Pending").into_iter().collect());
    }
}

fn lose(claim: ClaimView<'_>, reason: &'static str, message: &str, plan: &mut Plan) {
    if claim.status.phase != "Lost"
        && let Some(action) = unbound_status(claim, "Lost")
    {
        plan.then(action.with_event(Subject::from(claim).warning(reason, message.into())));
    }
}

fn unbound_status(claim: ClaimView<'_>, phase: &str) -> Option<Action> {
    Subject::from(claim).status(|status| {
        status.insert("phase", phase.into());
        status.remove("accessModes");
        status.remove("capacity");
    })
}

pub(super) fn is_default(class: &Viewed<'_, StorageClass>) -> bool {
    [DEFAULT_CLASS, BETA_DEFAULT_CLASS].iter().any(|name| class.meta().annotation(name) == Some("true"))
}

/// The newest default StorageClass; among default classes of equal age, the first by name.
fn default_class(world: &World) -> Option<Viewed<'_, StorageClass>> {
    let defaults = world.all::<StorageClass>().filter(is_default);
    defaults.min_by_key(|class| (std::cmp::Reverse(class.meta().creation_timestamp), class.meta().name.clone()))
}

fn waiting(world: &World, claim: ClaimView<'_>) -> PlannedEvent {
    let pods = pods_of(world, &claim.object.key()).filter(|pod| pod.spec.node_name.is_empty() && !pod.is_finished());
    let names: Vec<&str> = pods.map(|pod| pod.object.meta.name.as_str()).collect();
    let subject = Subject::from(claim);
    match names.as_slice() {
        [] => subject.normal("WaitForFirstConsumer", "waiting for first consumer to be created before binding".into()),
        [one] => subject.normal("WaitForPodScheduled", format!("waiting for pod {one} to be scheduled")),
        many => subject.normal("WaitForPodScheduled", format!("waiting for pods {} to be scheduled", many.join(","))),
    }
}
