//! Volumes that the containers of a pod share: what init containers have left there, and what others may put there.

use super::stops::advance;
use super::{STEPS_MAX, runnable};
use crate::inside::{self, Sources, Volumes};
use holdfast_shell::{MAIN, Machine};
use holdfast_value::Value;

/// How many containers are gone through for one that comes after them.
const EARLIER_MAX: usize = 16;

/// What a container finds that others of its pod have left.
pub struct Shares<'p> {
    /// The init containers that end before it begins, and write where it reads.
    earlier: Vec<&'p Value>,
    /// Paths at which it sees what containers beside it write.
    pub beside: Vec<&'p str>,
}

impl<'p> Shares<'p> {
    pub fn of(pod: &'p Value, container: &'p Value) -> Shares<'p> {
        let (mut earlier, mut beside, mut is_before) = (Vec::new(), Vec::new(), true);
        for (list, other) in inside::containers(pod) {
            if other["name"] == container["name"] {
                is_before = false;
                if list == "initContainers" {
                    // Nobody else has begun then.
                    break;
                }
                continue;
            }
            let mut shared = inside::shared_paths(pod, container, other).peekable();
            if shared.peek().is_none() {
                continue;
            }
            let ends = list == "initContainers" && other["restartPolicy"] != "Always";
            if ends && is_before && earlier.len() < EARLIER_MAX {
                earlier.push(other);
            } else if !ends || is_before {
                beside.extend(shared);
            }
        }
        Shares { earlier, beside }
    }

    /// What its course hangs on besides its own.
    pub fn told(&self) -> String {
        let earlier: Vec<String> = self.earlier.iter().map(ToString::to_string).collect();
        format!("{}\n{}", earlier.join("\n"), self.beside.join("\n"))
    }

    /// Goes through the containers before it; says whether all were known to the end.
    pub fn fill(&self, pod: &Value, volumes: &Volumes, allocatable: &Value, begin_ms: i64) -> bool {
        let none = Sources::default();
        let run = |container: &Value| {
            let setup = inside::setup(pod, container, &none, volumes, allocatable, begin_ms);
            let words = runnable(container, inside::words(container, &setup.environment))?;
            let mut machine = Machine::new(setup, begin_ms);
            machine.start(&words, false, false)?;
            advance(&mut machine, begin_ms, i64::MAX, |machine| machine.exit_code(MAIN).is_some());
            let is_known = machine.steps() < STEPS_MAX && machine.unknown().is_none();
            let is_whole = is_known && !inside::mentions_sources(pod, container, &words);
            machine.exit_code(MAIN).filter(|code| *code == 0 && is_whole)
        };
        // All are, whatever became of one of them.
        self.earlier.iter().filter(|container| run(container).is_some()).count() == self.earlier.len()
    }

    /// The paths at which it sees what the containers before it write.
    pub fn paths_before(&self, pod: &'p Value, container: &'p Value) -> Vec<&'p str> {
        self.earlier.iter().flat_map(|earlier| inside::shared_paths(pod, container, earlier)).collect()
    }
}
