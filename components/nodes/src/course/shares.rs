//! The volumes that a container shares with other containers of its pod. Earlier init containers have left files in
//! these volumes, and other containers may write to them while the container runs.

use super::stops::advance;
use super::{STEPS_MAX, runnable};
use crate::environment::{self, Sources, Volumes};
use holdfast_shell::{MAIN, Machine};
use holdfast_value::Value;

/// The maximum number of init containers that are run to compute the files for a later container.
const EARLIER_MAX: usize = 16;
/// The maximum number of containers of a pod that are checked for shared volumes. Further containers are treated as if
/// they shared no volume.
const CONTAINERS_MAX: usize = 64;

/// The volumes that a container shares with other containers of its pod.
pub struct Shares<'p> {
    /// The init containers that end before this container starts and that write to volumes of this container.
    earlier: Vec<&'p Value>,
    /// The paths at which this container mounts the volumes that the earlier containers write to.
    pub before: Vec<&'p str>,
    /// The paths at which this container mounts volumes that other containers write to while it runs, or that init
    /// containers beyond [`EARLIER_MAX`] have written to.
    pub shared_paths: Vec<&'p str>,
}

impl<'p> Shares<'p> {
    pub fn of(pod: &'p Value, container: &'p Value) -> Shares<'p> {
        let mut shares = Shares { earlier: Vec::new(), before: Vec::new(), shared_paths: Vec::new() };
        let own = environment::volumes(pod, &[container]);
        let is_it = |(_, other): (&str, &Value)| other["name"] == container["name"];
        if own.is_empty() || !environment::containers(pod).take(CONTAINERS_MAX).any(is_it) {
            return shares;
        }
        let mut is_before = true;
        for (list, other) in environment::containers(pod).take(CONTAINERS_MAX) {
            if other["name"] == container["name"] {
                is_before = false;
                if list == "initContainers" {
                    // The containers after this container in the list have not started yet.
                    break;
                }
                continue;
            }
            let shared = environment::shared_paths(&own, container, other);
            if shared.is_empty() {
                continue;
            }
            let ends = list == "initContainers" && other["restartPolicy"] != "Always";
            if ends && is_before && shares.earlier.len() < EARLIER_MAX {
                shares.earlier.push(other);
                shares.before.extend(shared);
            } else if !ends || is_before {
                shares.shared_paths.extend(shared);
            }
        }
        shares
    }

    /// New, empty volumes for the volumes that this container and the earlier containers mount.
    pub fn volumes(&self, pod: &Value, container: &Value) -> Volumes {
        let all: Vec<&Value> = self.earlier.iter().copied().chain([container]).collect();
        environment::volumes(pod, &all)
    }

    /// A text that identifies the earlier containers, as a part of the key in the cache of courses.
    pub fn cache_key(&self) -> String {
        let earlier: Vec<String> = self.earlier.iter().map(ToString::to_string).collect();
        format!("{}\n{}", earlier.join("\n"), self.shared_paths.join("\n"))
    }

    /// Runs the earlier containers. Returns whether the shell could run all of them to their end.
    pub fn fill(&self, pod: &Value, volumes: &Volumes, allocatable: &Value, begin_ms: i64) -> bool {
        let none = Sources::default();
        // All earlier containers together may use as many steps as a single container.
        let mut left = STEPS_MAX;
        let mut run = |container: &Value| {
            let setup = environment::setup(pod, container, &none, volumes, allocatable, begin_ms);
            let words = runnable(container, environment::words(container, &setup.environment))?;
            let mut machine = Machine::new(setup, begin_ms);
            machine.start(&words, false, false)?;
            advance(&mut machine, begin_ms, i64::MAX, left, |machine| machine.exit_code(MAIN).is_some());
            left = left.saturating_sub(machine.steps());
            let is_known = left > 0 && machine.unknown().is_none();
            let is_whole = is_known && !environment::mentions_sources(pod, container, &words);
            machine.exit_code(MAIN).filter(|code| *code == 0 && is_whole)
        };
        // Every container is run, even if an earlier container could not be run.
        self.earlier.iter().filter(|container| run(container).is_some()).count() == self.earlier.len()
    }
}
