//! Decides which PersistentVolume fits a PersistentVolumeClaim.

use super::{FREE, OF_CLAIM};
use holdfast_core::schema::amount::Amount;
use holdfast_world::views::{PersistentVolume, PersistentVolumeClaim};
use holdfast_world::{Viewed, World};

const STORAGE: &str = "storage";
const FILESYSTEM: &str = "Filesystem";

/// Whether a volume's `claimRef` names this claim. If the `claimRef` has a uid, the claim must have that uid, too.
pub fn is_bound_to(volume: &PersistentVolume, claim: Viewed<'_, PersistentVolumeClaim>) -> bool {
    let meta = claim.meta();
    volume.spec.claim_ref.as_ref().is_some_and(|named| {
        named.name == meta.name && named.namespace == meta.namespace && (named.uid.is_empty() || named.uid == meta.uid)
    })
}

pub fn modes_differ(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let [of_volume, of_claim] = [&volume.spec.volume_mode, &claim.spec.volume_mode];
    of_volume.as_deref().unwrap_or(FILESYSTEM) != of_claim.as_deref().unwrap_or(FILESYSTEM)
}

fn amount(amounts: &std::collections::BTreeMap<String, String>) -> Amount {
    amounts.get(STORAGE).and_then(|text| Amount::parse(text)).unwrap_or(Amount::ZERO)
}

fn offers_modes(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    claim.spec.access_modes.iter().all(|mode| volume.spec.access_modes.contains(mode))
}

fn same_attributes(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let [of_volume, of_claim] = [&volume.spec.volume_attributes_class_name, &claim.spec.volume_attributes_class_name];
    of_volume.as_deref().unwrap_or_default() == of_claim.as_deref().unwrap_or_default()
}

/// Why a claim cannot be bound to the volume that it names; `None` if it can.
pub fn mismatch(volume: Viewed<'_, PersistentVolume>, claim: Viewed<'_, PersistentVolumeClaim>) -> Option<String> {
    if volume.meta().is_deleting() {
        return Some(format!("the volume is marked for deletion {:?}", volume.meta().name));
    }
    misfit(volume, claim).map(str::to_owned)
}

fn misfit(volume: Viewed<'_, PersistentVolume>, claim: Viewed<'_, PersistentVolumeClaim>) -> Option<&'static str> {
    if amount(&volume.spec.capacity) < amount(&claim.spec.resources.requests) {
        return Some("requested PV is too small");
    }
    if volume.class(volume.meta()) != claim.class(claim.meta()).unwrap_or_default() {
        return Some("storageClassName does not match");
    }
    if !same_attributes(&volume, &claim) {
        return Some("volumeAttributesClassName does not match");
    }
    if modes_differ(&volume, &claim) {
        return Some("incompatible volumeMode");
    }
    (!offers_modes(&volume, &claim)).then_some("incompatible accessMode")
}

/// The best volume for a claim: among the volumes with the fewest access modes, a volume that is reserved for the
/// claim, or else the smallest volume. With `is_delayed` the scheduler chooses volumes, so only volumes that are
/// reserved for the claim count.
pub fn best<'a>(
    world: &'a World,
    claim: Viewed<'_, PersistentVolumeClaim>,
    is_delayed: bool,
) -> Option<Viewed<'a, PersistentVolume>> {
    let class = claim.class(claim.meta()).unwrap_or_default();
    let of_claim = world.indexed::<PersistentVolume>(OF_CLAIM, &claim.object.key().to_string());
    let promised = of_claim.filter(|volume| is_bound_to(volume, claim) && fits(*volume, claim));
    let free = (!is_delayed).then(|| world.indexed::<PersistentVolume>(FREE, class)).into_iter().flatten();
    let free = free.filter(|volume| could_take(*volume, claim));
    let ranked = promised.map(|volume| (false, volume)).chain(free.map(|volume| (true, volume)));
    let rank = |(free, volume): &(bool, Viewed<'_, PersistentVolume>)| {
        (volume.spec.access_modes.len(), *free, amount(&volume.spec.capacity), volume.meta().name.clone())
    };
    ranked.min_by_key(rank).map(|(_, volume)| volume)
}

fn fits(volume: Viewed<'_, PersistentVolume>, claim: Viewed<'_, PersistentVolumeClaim>) -> bool {
    offers_modes(&volume, &claim)
        && amount(&volume.spec.capacity) >= amount(&claim.spec.resources.requests)
        && !modes_differ(&volume, &claim)
        && same_attributes(&volume, &claim)
        && !volume.meta().is_deleting()
}

/// Whether a volume is free for any claim.
pub fn is_free(volume: &PersistentVolume) -> bool {
    volume.spec.claim_ref.is_none() && volume.status.phase == "Available"
}

/// Whether a claim that names no volume could be bound to this volume.
pub fn could_take(volume: Viewed<'_, PersistentVolume>, claim: Viewed<'_, PersistentVolumeClaim>) -> bool {
    is_free(&volume)
        && claim.spec.volume_name.is_empty()
        && fits(volume, claim)
        && claim.spec.selector.as_ref().is_none_or(|selector| selector.matches(volume.meta()))
        && volume.class(volume.meta()) == claim.class(claim.meta()).unwrap_or_default()
}
