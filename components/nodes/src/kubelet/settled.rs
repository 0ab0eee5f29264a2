//! Recognizes pods for which the kubelet has nothing to do, without reading the whole pods. Most pods are in this state
//! most of the time.

use crate::behaviour::{BehaviourSettings, PREFIX, Span};
use crate::command::sleeps;
use crate::course;
use holdfast_world::views::Condition;
use holdfast_world::views::pod::{Container, ContainerStatus};
use holdfast_world::views::{Job, Pod};
use holdfast_world::{Meta, View, Viewed};

/// The conditions of a pod whose containers all run.
const CONDITIONS: [&str; 5] = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];

/// Whether a pod runs as its spec demands, and will continue to do so, so that [`super::live`] would do nothing. If the
/// view does not contain enough to decide this, the pod counts as not settled.
pub fn is_settled(pod: Viewed<Pod>, told: &BehaviourSettings) -> bool {
    let (meta, spec, status) = (pod.meta(), &pod.spec, &pod.status);
    let conditions = &status.conditions;
    status.phase == "Running"
        && !meta.is_deleting()
        && status.observed_generation == meta.generation
        && !status.pod_ip.is_empty()
        && status.start_time.is_some()
        && lives_for_ever(meta, told)
        && !spec.containers.iter().any(wakes)
        && spec.active_deadline_seconds.is_none()
        && spec.readiness_gates.is_empty()
        && spec.init_containers.is_empty()
        && CONDITIONS.iter().all(|kind| Condition::is_true(conditions, kind))
        && conditions.iter().all(|condition| !condition.kind.starts_with("PodResize"))
        && status.container_statuses.len() == spec.containers.len()
        && status.container_statuses.iter().all(runs)
}

/// Whether the containers of a pod neither end nor change by themselves, because no settings describe their behaviour
/// and the pod does not belong to a Job.
fn lives_for_ever(meta: &Meta, told: &BehaviourSettings) -> bool {
    let is_told = !told.is_empty() || meta.annotations.keys().any(|name| name.starts_with(PREFIX));
    !is_told && meta.controller().is_none_or(|owner| !Job::resource().is_named(&owner.api_version, &owner.kind))
}

/// Whether the container's command may end, or the container has an exec probe.
fn wakes(container: &Container) -> bool {
    let probes = [&container.startup_probe, &container.liveness_probe, &container.readiness_probe];
    if probes.into_iter().flatten().any(|probe| probe.exec.is_some()) {
        return true;
    }
    let words = || container.command.iter().chain(container.args.iter()).map(String::as_str);
    match words().next() {
        None => false,
        // The shell runs scripts with the files of their container, so a script may end at any time.
        Some(program) if course::is_shell(program) => true,
        Some(program) => match sleeps(words()) {
            Some(Span::Millis(_)) => true,
            Some(Span::Forever) => false,
            None => holdfast_shell::knows(program),
        },
    }
}

fn runs(container: &ContainerStatus) -> bool {
    container.ready && container.state.running.is_some()
}
