//! The status of a DaemonSet.

use super::Sync;
use crate::subject::{Subject, count};
use holdfast_world::views::Node;

#[derive(Default)]
struct StatusCounts {
    desired: i64,
    current: i64,
    misscheduled: i64,
    ready: i64,
    updated: i64,
    available: i64,
}

impl Sync<'_> {
    pub fn write_status(&mut self) {
        let counts = self.counts();
        let status = Subject::from(self.set).status(|status| {
            status.insert("desiredNumberScheduled", counts.desired.into());
            status.insert("currentNumberScheduled", counts.current.into());
            status.insert("numberMisscheduled", counts.misscheduled.into());
            status.insert("numberReady", counts.ready.into());
            count(status, "updatedNumberScheduled", counts.updated);
            count(status, "numberAvailable", counts.available);
            count(status, "numberUnavailable", counts.desired - counts.available);
            count(status, "observedGeneration", self.set.meta().generation);
            count(status, "collisionCount", self.revisions.collisions);
        });
        self.plan.together(status.into_iter().collect());
    }

    /// Counts each node on which a pod should run by the oldest pod of the set on that node.
    fn counts(&self) -> StatusCounts {
        let mut counts = StatusCounts::default();
        for node in self.world.all::<Node>() {
            let name = node.meta().name.as_str();
            let oldest = self.pods.get(name).and_then(|pods| pods.first()).copied();
            match (self.placement.on(node).should_run, oldest) {
                (false, None) => {}
                (false, Some(_)) => counts.misscheduled += 1,
                (true, None) => {
                    let is_made = i64::from(self.made.contains(name));
                    counts.desired += 1;
                    counts.current += is_made;
                    counts.updated += is_made;
                }
                (true, Some(pod)) => {
                    counts.desired += 1;
                    counts.current += 1;
                    counts.ready += i64::from(pod.is_ready());
                    counts.available += i64::from(self.is_available(pod));
                    counts.updated += i64::from(self.is_updated(pod));
                }
            }
        }
        counts
    }
}
