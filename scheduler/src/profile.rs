//! A profile: which plug-ins answer at which point, for the pods that name it.

use crate::object::Text;
use crate::object::pod::DEFAULT_SCHEDULER;
use crate::plugin::{Plugin, Point};
use crate::plugins;
use crate::plugins::default_preemption::DefaultPreemption;
use holdfast_value::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug, Clone)]
pub struct Profile {
    pub scheduler_name: Text,
    /// How many percent of the nodes are enough to choose among; 0: fewer, the more nodes there are. Looking at more is
    /// always right, and this scheduler always does: what is kept from pod to pod makes it cheap.
    pub percentage_of_nodes_to_score: Option<i64>,
    /// The plug-ins of each point in their order, with their weights where the point scores.
    pub points: BTreeMap<Point, Vec<Enabled>>,
    /// Whether every filter is asked about a node, also after one has refused it.
    pub check_all: bool,
    /// How preemption looks for victims, if it does.
    pub preemption: Option<DefaultPreemption>,
    pub written: Written,
}

/// How a profile was asked for, as a document of version v1 says it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Written {
    /// What is enabled and disabled, by the names that points have in documents.
    pub sets: BTreeMap<&'static str, Set>,
    /// The arguments of plug-ins, by name.
    pub arguments: Vec<(String, Value)>,
    /// Whether the document that was read says itself which `Plugins` there are, and what `PluginConfig` they have.
    pub named: Vec<&'static str>,
    /// Whether it says at each point what there is, as versions without the set for all points do.
    pub by_point: bool,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Set {
    /// Names with weights; 0 where the plug-in's own counts.
    pub enabled: Vec<(String, i64)>,
    pub disabled: Vec<String>,
}

/// The set `multiPoint`, which enables plug-ins wherever they answer.
pub const MULTI_POINT: &str = "multiPoint";

/// Plug-ins whose score counts only where arguments make one: their weight is not written.
const UNWEIGHTED: [&str; 1] = [plugins::volume_binding::NAME];

impl Written {
    /// What is enabled where nothing is configured.
    pub fn usual() -> Written {
        let sets = BTreeMap::from([(MULTI_POINT, Set { enabled: usual_plugins(), disabled: Vec::new() })]);
        Written { sets, ..Written::default() }
    }
}

/// The plug-ins that are enabled by default, with their weights.
pub fn usual_plugins() -> Vec<(String, i64)> {
    let rows = plugins::PLUGINS.iter().filter(|row| row.by_default);
    let weight = |row: &plugins::Row| if UNWEIGHTED.contains(&row.name) { 0 } else { row.weight };
    rows.map(|row| (row.name.to_owned(), weight(row))).collect()
}

#[derive(Debug, Clone)]
pub struct Enabled {
    pub plugin: Arc<dyn Plugin>,
    pub weight: i64,
}

impl Profile {
    pub fn at(&self, point: Point) -> &[Enabled] {
        self.points.get(&point).map(Vec::as_slice).unwrap_or_default()
    }

    /// A plug-in that is enabled at some point.
    pub fn plugin(&self, name: &str) -> Option<&Arc<dyn Plugin>> {
        let all = self.points.values().flatten().map(|enabled| &enabled.plugin);
        all.into_iter().find(|plugin| plugin.name() == name)
    }

    pub fn has(&self, point: Point, name: &str) -> bool {
        self.at(point).iter().any(|enabled| enabled.plugin.name() == name)
    }
}

impl Default for Profile {
    /// What is enabled where nothing is configured.
    fn default() -> Self {
        let mut points: BTreeMap<Point, Vec<Enabled>> = BTreeMap::new();
        for row in plugins::PLUGINS.iter().filter(|row| row.by_default) {
            let plugin = (row.build)();
            for point in row.points {
                points.entry(*point).or_default().push(Enabled { plugin: plugin.clone(), weight: row.weight });
            }
        }
        Profile {
            scheduler_name: DEFAULT_SCHEDULER.into(),
            percentage_of_nodes_to_score: None,
            points,
            check_all: false,
            preemption: Some(DefaultPreemption::default()),
            written: Written::usual(),
        }
    }
}
