//! Determines the order in which surplus pods of a set are deleted.

use holdfast_world::views::Pod;
use holdfast_world::views::pod::ContainerStatus;
use holdfast_world::{Time, Viewed};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The annotation of a pod with the cost of its deletion, relative to the costs of other pods of its set.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Sorts pods so that the pod to be deleted first comes first. A pod that shares its node with more `related` pods is
/// deleted earlier.
pub fn in_deletion_order<'w>(
    pods: Vec<Viewed<'w, Pod>>,
    related: &[Viewed<'_, Pod>],
    now: Time,
) -> Vec<Viewed<'w, Pod>> {
    let mut company = BTreeMap::<&str, usize>::new();
    for pod in related {
        *company.entry(&pod.spec.node_name).or_default() += 1;
    }
    let company = |pod: &Viewed<'_, Pod>| company.get(pod.spec.node_name.as_str()).copied().unwrap_or(0);
    let mut ranked: Vec<_> = pods.into_iter().map(|pod| (DeletionRank::of(pod, company(&pod), now), pod)).collect();
    ranked.sort_by(|(one, _), (other, _)| one.cmp(other));
    ranked.into_iter().map(|(_, pod)| pod).collect()
}

/// The properties by which pods are compared for deletion, in the order in which they decide. The pod with the smallest
/// rank is deleted first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct DeletionRank {
    is_assigned: bool,
    phase: u8,
    is_ready: bool,
    cost: i32,
    company: Reverse<usize>,
    ready_for: Age,
    restarts: Reverse<(i64, i64)>,
    lives_for: Age,
}

impl DeletionRank {
    fn of(pod: Viewed<'_, Pod>, company: usize, now: Time) -> DeletionRank {
        DeletionRank {
            is_assigned: !pod.spec.node_name.is_empty(),
            phase: match pod.status.phase.as_str() {
                "Pending" => 0,
                "Unknown" => 1,
                _ => 2,
            },
            is_ready: pod.is_ready(),
            cost: pod.meta().annotation(DELETION_COST).and_then(|cost| cost.parse().ok()).unwrap_or(0),
            company: Reverse(company),
            ready_for: Age::since(pod.ready_since(), now),
            restarts: Reverse(restarts(&pod)),
            lives_for: Age::since(pod.meta().creation_timestamp, now),
        }
    }
}

/// The highest restart count among the pod's containers, and the highest restart count among its sidecars.
fn restarts(pod: &Pod) -> (i64, i64) {
    let most = |all: &mut dyn Iterator<Item = &ContainerStatus>| all.map(|of| of.restart_count).max().unwrap_or(0);
    let beside = |status: &&ContainerStatus| {
        pod.spec.init_containers.iter().any(|init| init.name == status.name && init.restart_policy == "Always")
    };
    (
        most(&mut pod.status.container_statuses.iter()),
        most(&mut pod.status.init_container_statuses.iter().filter(beside)),
    )
}

/// How long a state has lasted, in powers of two. Ages within one power of two count as equal, and a hash of the exact
/// time decides between such pods, so that not always the newest pods are deleted. The hash depends on the time alone,
/// so the order is repeatable. If two times are equal, the next field of [`DeletionRank`] decides.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Age(Option<(i64, u64)>);

impl Age {
    fn since(since: Option<Time>, now: Time) -> Age {
        Age(since.map(|since| {
            let millis = now.millis_since(since);
            let magnitude = if millis > 0 { i64::from((i128::from(millis) * 1_000_000).ilog2()) } else { -1 };
            (magnitude, since.millis().unsigned_abs().wrapping_mul(0x9e37_79b9_7f4a_7c15))
        }))
    }
}
