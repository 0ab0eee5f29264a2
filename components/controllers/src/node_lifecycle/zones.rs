//! Zones of nodes: how many nodes of each zone are lost, and how fast lost nodes get NoExecute taints.
//!
//! If very many nodes are lost at once, a network failure is more likely than dead nodes, so evictions slow down or
//! stop. If all nodes of all zones are lost, this controller itself is cut off.

use crate::settings::NodeSettings;
use holdfast_world::views::Condition;
use holdfast_world::views::Node;
use holdfast_world::{Time, Viewed};
use std::collections::{BTreeMap, BTreeSet};

const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";

pub struct Zones {
    settings: NodeSettings,
    zones: BTreeMap<String, ZoneHealth>,
    /// The zone of each counted node, and whether the node is ready.
    nodes: BTreeMap<String, (String, bool)>,
    /// Nodes that may get the NoExecute taint now, and that do not show the taint yet.
    due: BTreeSet<String>,
    /// Whether all nodes of all zones are lost, which means that this controller itself is cut off.
    is_cut_off: bool,
}

#[derive(Default)]
struct ZoneHealth {
    ready: usize,
    lost: usize,
    /// Before this time no other node of the zone gets the NoExecute taint.
    next: Option<Time>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ZoneState {
    Normal,
    Partial,
    Full,
}

/// What one node's change means for the other nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    None,
    /// The zone's nodes now get taints at another rate.
    Changed,
    /// A node is ready again after all nodes of all zones were lost.
    Recovered,
}

/// Whether and when a node gets the NoExecute taint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaintTurn {
    Now,
    At(Time),
    /// The zone has so many lost nodes that none gets the taint.
    Never,
}

impl Zones {
    pub fn new(settings: NodeSettings) -> Zones {
        Zones { settings, zones: BTreeMap::new(), nodes: BTreeMap::new(), due: BTreeSet::new(), is_cut_off: false }
    }

    /// Applies the new state of a node.
    pub fn update_node(&mut self, name: &str, node: Option<Viewed<'_, Node>>) -> Effect {
        let counts = node.filter(|node| node.meta().label(EXCLUDED).is_none());
        let after = counts.map(|node| (zone_of(node), Condition::is_true(&node.view.status.conditions, "Ready")));
        let before = match &after {
            Some(after) => self.nodes.insert(name.to_owned(), after.clone()),
            None => self.nodes.remove(name),
        };
        if before == after {
            return Effect::None;
        }
        let states = [&before, &after].map(|side| side.as_ref().map(|(zone, _)| (zone.clone(), self.state(zone))));
        self.count(before, false);
        self.count(after, true);
        let was_cut_off = self.is_cut_off;
        self.is_cut_off = !self.zones.is_empty() && self.zones.keys().all(|zone| self.state(zone) == ZoneState::Full);
        match (was_cut_off, self.is_cut_off) {
            (true, false) => {
                self.due.clear();
                Effect::Recovered
            }
            (false, true) => {
                self.due.clear();
                Effect::Changed
            }
            _ if states.iter().flatten().any(|(zone, state)| self.state(zone) != *state) => Effect::Changed,
            _ => Effect::None,
        }
    }

    fn count(&mut self, side: Option<(String, bool)>, more: bool) {
        let Some((name, ready)) = side else { return };
        let zone = self.zones.entry(name.clone()).or_default();
        let number = if ready { &mut zone.ready } else { &mut zone.lost };
        *number = if more { *number + 1 } else { number.saturating_sub(1) };
        if zone.ready + zone.lost == 0 {
            self.zones.remove(&name);
        }
    }

    fn state(&self, zone: &str) -> ZoneState {
        let Some(ZoneHealth { ready, lost, .. }) = self.zones.get(zone) else { return ZoneState::Normal };
        let part = *lost as f64 / (*lost + *ready) as f64;
        match (ready, lost) {
            (0, 1..) => ZoneState::Full,
            (_, 3..) if part >= self.settings.unhealthy_zone => ZoneState::Partial,
            _ => ZoneState::Normal,
        }
    }

    /// How many nodes of a zone get the NoExecute taint in a second.
    fn rate(&self, zone: &str) -> f64 {
        let size = self.zones.get(zone).map_or(0, |zone| zone.ready + zone.lost);
        match self.state(zone) {
            ZoneState::Partial if size > self.settings.large_cluster => self.settings.secondary_eviction_rate,
            ZoneState::Partial => 0.0,
            ZoneState::Normal | ZoneState::Full => self.settings.eviction_rate,
        }
    }

    /// When a lost node may get the taint. A node that has one of the two NoExecute taints may always get the other
    /// taint instead.
    pub fn taint_turn(&mut self, name: &str, has_any: bool, now: Time) -> TaintTurn {
        if self.is_cut_off {
            return TaintTurn::Never;
        }
        if has_any {
            self.due.remove(name);
            return TaintTurn::Now;
        }
        if self.due.contains(name) {
            return TaintTurn::Now;
        }
        let zone = self.nodes.get(name).map(|(zone, _)| zone.clone()).unwrap_or_default();
        let rate = self.rate(&zone);
        if rate <= 0.0 {
            return TaintTurn::Never;
        }
        let known = self.zones.entry(zone).or_default();
        match known.next.filter(|next| *next > now) {
            Some(next) => TaintTurn::At(next),
            None => {
                known.next = Some(now.plus_millis((1000.0 / rate) as i64));
                self.due.insert(name.to_owned());
                TaintTurn::Now
            }
        }
    }

    pub fn forget_turn(&mut self, name: &str) {
        self.due.remove(name);
    }

    pub fn forget(&mut self, name: &str) {
        self.forget_turn(name);
        let side = self.nodes.remove(name);
        self.count(side, false);
    }
}

/// The region and zone of a node in one text; empty if the node has neither.
fn zone_of(node: Viewed<'_, Node>) -> String {
    let label = |stable: &str, older: &str| {
        let meta = node.meta();
        meta.label(stable).or_else(|| meta.label(older)).unwrap_or_default().to_owned()
    };
    let region = label("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region");
    let zone = label("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone");
    if region.is_empty() && zone.is_empty() { String::new() } else { format!("{region}:\0:{zone}") }
}
