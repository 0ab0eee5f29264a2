//! The controllers of PersistentVolumes and PersistentVolumeClaims.

pub mod attach;
pub mod binder;
pub mod ephemeral;
pub mod expand;
pub mod protection;
pub mod selinux;
pub mod standard;

use holdfast_world::views::{PersistentVolume, PersistentVolumeClaim, Pod};
use holdfast_world::{Key, Text, Viewed, World};

/// The name of the index of pods by the claims that they use, each as `namespace/name`.
pub const BY_CLAIM: &str = "claim";

/// Makes the index that [`pods_of`] reads.
pub fn index_pods(world: &mut World) {
    world.index::<Pod>(BY_CLAIM, |object| {
        let Some(pod) = object.view::<Pod>() else { return Vec::new() };
        claims_of(&object.meta.name, pod).map(|claim| place(&object.meta.namespace, &claim)).collect()
    });
}

/// The names of the claims that a pod uses: the claims that it names, and the claims of its ephemeral volumes.
pub fn claims_of<'a>(name: &'a str, pod: &'a Pod) -> impl Iterator<Item = String> + 'a {
    pod.spec.volumes.iter().filter_map(move |volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some(claim.claim_name.clone()),
        (None, Some(_)) => Some(format!("{name}-{}", volume.name)),
        (None, None) => None,
    })
}

/// The pods that use a claim.
pub fn pods_of<'a>(world: &'a World, claim: &Key) -> impl Iterator<Item = Viewed<'a, Pod>> + use<'a> {
    world.indexed::<Pod>(BY_CLAIM, &place(&claim.namespace, &claim.name))
}

fn place(namespace: &str, name: &str) -> Text {
    format!("{namespace}/{name}").into()
}

/// The key of the claim for which a volume is reserved, or to which it is bound.
pub fn claim_key(volume: &PersistentVolume) -> Option<Key> {
    let claim = volume.spec.claim_ref.as_ref()?;
    Some(Key::new(&claim.namespace, &claim.name))
}

/// The volume whose name a claim contains.
pub fn volume_of<'a>(world: &'a World, claim: &PersistentVolumeClaim) -> Option<Viewed<'a, PersistentVolume>> {
    world.get::<PersistentVolume>(&Key::cluster(&claim.spec.volume_name))
}
