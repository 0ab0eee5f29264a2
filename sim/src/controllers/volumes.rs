//! Claims, and pods that use claims. Users create and delete claims and pods while controllers provision, bind, protect
//! and delete volumes.

use super::cluster::{self, Cluster, has_ended, is_leaving, items, name, text, uid};
use super::deed::UserRequest;
use crate::oracle::{CheckResult, ensure};
use crate::random::Dice;
use holdfast_value::{Value, json};
use holdfast_world::{Action, Verb};

const CLAIMS: &str = "persistentvolumeclaims";
const USES: &str = "uses";

/// The storage class of the built-in provisioner, which exists at the start.
pub fn founded() -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "kubernetes.io/host-path",
        "metadata": {"name": "own", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}})
}

/// A request of a user to create a claim, to create a pod that uses a claim, or to delete a claim.
pub fn draw(cluster: &Cluster, dice: &mut Dice, number: usize) -> Option<UserRequest> {
    let claim = dice.pick(&["v0", "v1"]);
    match (dice.below(4), cluster.named(CLAIMS, claim)) {
        (_, None) => Some(UserRequest::Create(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": claim},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}))),
        (0, Some(found)) => {
            let verb = Verb::Delete { uid: None, version: None, propagation: None, grace_seconds: None };
            Some(UserRequest::Act(Box::new(Action::new(&cluster::resource(CLAIMS), cluster::key(found), verb))))
        }
        _ => Some(UserRequest::Create(
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("{USES}{number}")},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}],
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}}),
        )),
    }
}

fn claims_of(pod: &Value) -> impl Iterator<Item = &str> {
    items(&pod["spec"]["volumes"]).filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str())
}

/// Whether all claims of a pod are bound, so that the pod can run.
pub fn are_bound(cluster: &Cluster, pod: &Value) -> bool {
    claims_of(pod).all(|claim| {
        let found = cluster.named(CLAIMS, claim);
        found.is_some_and(|claim| claim["status"]["phase"] == "Bound" && !is_leaving(claim))
    })
}

/// The pods that use claims. The simulated users must delete these pods, because a pod that has ended keeps its claim,
/// and a pending pod may wait for a claim that is being deleted.
pub fn users(cluster: &Cluster) -> impl Iterator<Item = &Value> {
    cluster.all("pods").filter(|pod| claims_of(pod).next().is_some())
}

/// Checks that a claim is removed only when no running pod uses it, and that a volume is removed only when its claim is
/// gone.
pub fn gone(cluster: &Cluster, plural: &str, gone: &Value) -> CheckResult {
    match plural {
        "persistentvolumes" => {
            let claim = &gone["spec"]["claimRef"]["uid"];
            let is_kept = cluster.by_uid(text(claim)).is_some();
            ensure(!is_kept, || format!("a volume goes before its claim: {}", name(gone)))
        }
        CLAIMS => {
            let runs = |pod: &&Value| !text(&pod["spec"]["nodeName"]).is_empty() && !has_ended(pod);
            let has = |pod: &&Value| claims_of(pod).any(|claim| claim == name(gone));
            let user = cluster.all("pods").filter(runs).find(has);
            ensure(user.is_none(), || format!("a claim goes that a pod has: {}", name(gone)))
        }
        _ => Ok(()),
    }
}

/// Checks that at rest every claim has a volume of its own, and every volume has its claim.
pub fn check(cluster: &Cluster) -> CheckResult {
    for claim in cluster.all(CLAIMS) {
        let volume = cluster.named("persistentvolumes", text(&claim["spec"]["volumeName"]));
        let is_bound = claim["status"]["phase"] == "Bound"
            && volume.is_some_and(|volume| text(&volume["spec"]["claimRef"]["uid"]) == uid(claim));
        ensure(is_bound, || format!("a claim has no volume: {}: {}", name(claim), claim["status"]))?;
    }
    for volume in cluster.all("persistentvolumes") {
        let has_claim = cluster.by_uid(text(&volume["spec"]["claimRef"]["uid"])).is_some();
        ensure(has_claim, || format!("a volume outlives its claim: {}: {}", name(volume), volume["status"]))?;
    }
    Ok(())
}
