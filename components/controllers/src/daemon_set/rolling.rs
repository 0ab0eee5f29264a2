//! Rolling updates of DaemonSets: old pods are deleted first, or, with `maxSurge`, new pods are created first.

use super::Sync;
use crate::planted::{Bug, planted};
use holdfast_world::Viewed;
use holdfast_world::views::workloads::{IntOrPercent, RollingUpdate};
use holdfast_world::views::{Node, Pod};
use std::collections::BTreeSet;

/// One node's pod of the present revision and its pod of an older revision, during an update.
struct Pair<'w> {
    node: &'w str,
    new: Option<Viewed<'w, Pod>>,
    old: Option<Viewed<'w, Pod>>,
    /// Whether the set should run on this node. An update does not wait for pods of nodes on which the set should not
    /// run.
    is_wanted: bool,
    /// Whether the node has more pods of the set than `new` and `old`: the surplus pods must be deleted first.
    is_crowded: bool,
}

impl<'w> Sync<'w> {
    pub fn may_surge(&self) -> bool {
        self.set.spec.update_strategy.kind != "OnDelete" && self.amount(|rolling| rolling.max_surge, 1) > 0
    }

    fn amount(&self, of: impl Fn(&RollingUpdate) -> Option<IntOrPercent>, total: i64) -> i64 {
        let rolling = self.set.spec.update_strategy.rolling_update.as_ref();
        rolling.and_then(of).map_or(0, |amount| amount.of(total, true)).max(0)
    }

    pub fn roll(&mut self) {
        let nodes: BTreeSet<&str> = self
            .world
            .all::<Node>()
            .filter(|node| self.placement.on(*node).should_run)
            .map(|node| node.object.meta.name.as_str())
            .collect();
        let desired = i64::try_from(nodes.len()).unwrap_or(i64::MAX);
        let surge = self.amount(|rolling| rolling.max_surge, desired);
        let unavailable = self.amount(|rolling| rolling.max_unavailable, desired);
        let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable };
        let everywhere: BTreeSet<&str> = nodes.iter().copied().chain(self.pods.keys().copied()).collect();
        let pairs: Vec<Pair<'_>> = everywhere.into_iter().map(|node| self.pair(node, nodes.contains(node))).collect();
        match surge {
            0 => self.replace(&pairs, usize::try_from(unavailable).unwrap_or(usize::MAX)),
            _ => self.surge(&pairs, nodes.len(), usize::try_from(surge).unwrap_or(usize::MAX)),
        }
    }

    fn pair(&self, node: &'w str, is_wanted: bool) -> Pair<'w> {
        let pods = self.pods.get(node).into_iter().flatten().filter(|pod| !pod.meta().is_deleting());
        let (new, old): (Vec<_>, Vec<_>) = pods.copied().partition(|pod| self.is_updated(*pod));
        let is_crowded = new.len() > 1 || old.len() > 1;
        Pair { node, new: new.first().copied(), old: old.first().copied(), is_wanted, is_crowded }
    }

    /// Deletes old pods as long as at most `allowed` nodes lack an available pod. Old pods that are not available are
    /// deleted in any case.
    fn replace(&mut self, pairs: &[Pair<'w>], allowed: usize) {
        let (mut missing, mut broken, mut candidates) = (0, Vec::new(), Vec::new());
        for pair in pairs {
            let is_missing = match (pair.new, pair.old) {
                _ if pair.is_crowded => true,
                (None, None) | (Some(_), Some(_)) => true,
                (Some(new), None) => !self.is_available(new),
                (None, Some(old)) if !self.is_available(old) => {
                    broken.push(old);
                    true
                }
                (None, Some(old)) => {
                    candidates.push(old);
                    false
                }
            };
            missing += usize::from(is_missing && pair.is_wanted);
        }
        let allowed = if planted(Bug::AllAtOnce) { usize::MAX } else { allowed };
        candidates.truncate(allowed.saturating_sub(missing));
        self.surplus.extend(broken.into_iter().chain(candidates));
    }

    /// Creates new pods beside old pods: up to the allowed number beside available old pods, and in any case beside
    /// unavailable old pods. An old pod is deleted once the new pod is available. On nodes where the set should no
    /// longer run, an old pod is deleted while enough other pods are available, and at once if it is not available.
    fn surge(&mut self, pairs: &[Pair<'w>], desired: usize, allowed: usize) {
        let (mut surging, mut available) = (0, 0);
        let (mut urgent, mut candidates, mut strays) = (Vec::new(), Vec::new(), Vec::new());
        for pair in pairs {
            let is_available = [pair.old, pair.new].into_iter().flatten().any(|pod| self.is_available(pod));
            available += usize::from(is_available && !pair.is_crowded);
            match (pair.new, pair.old) {
                _ if pair.is_crowded => surging += usize::from(pair.is_wanted),
                (_, None) => {}
                (None, Some(old)) => match (pair.is_wanted, self.is_available(old)) {
                    (true, true) => candidates.push(pair.node),
                    (true, false) => urgent.push(pair.node),
                    (false, true) => strays.push(old),
                    (false, false) => self.surplus.push(old),
                },
                (Some(new), Some(old)) if self.is_available(new) => self.surplus.push(old),
                (Some(_), Some(_)) => surging += usize::from(pair.is_wanted),
            }
        }
        candidates.truncate(allowed.saturating_sub(surging));
        self.missing.extend(urgent.into_iter().chain(candidates));
        strays.truncate(available.saturating_sub(desired));
        self.surplus.extend(strays);
    }
}
