//! A profile: which plug-ins are enabled at each point, for the pods that name the profile's scheduler.

use crate::object::Text;
use crate::object::pod::DEFAULT_SCHEDULER;
use crate::plugin::{ExtensionPoint, Plugin};
use crate::plugins;
use crate::plugins::default_preemption::DefaultPreemption;
use holdfast_value::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug, Clone)]
pub struct Profile {
    pub scheduler_name: Text,
    /// When Kubernetes' search has found this percentage of all nodes to be feasible, it checks no more nodes; 0 means
    /// a percentage that is smaller in larger clusters. The value is read, but not used: this scheduler always checks
    /// all nodes, which is always right, and cheap because results are cached from pod to pod.
    pub percentage_of_nodes_to_score: Option<i64>,
    /// The enabled plug-ins of each point, in the order in which they are called. Their weights matter at the point
    /// `score`.
    pub points: BTreeMap<ExtensionPoint, Vec<EnabledPlugin>>,
    /// Whether every filter checks a node, even after one has rejected it.
    pub check_all: bool,
    /// How preemption looks for victims; `None` if the plug-in DefaultPreemption is not enabled.
    pub preemption: Option<DefaultPreemption>,
    pub document: ProfileDocument,
}

/// A profile as it was configured, in the form of a document of version v1.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProfileDocument {
    /// The plug-ins that are enabled and disabled, by the name of the set in documents.
    pub sets: BTreeMap<&'static str, PluginSet>,
    /// The arguments of plug-ins as written, by the plug-in's name.
    pub arguments: Vec<(String, Value)>,
    /// Which of the fields `plugins` and `pluginConfig` the document contained.
    pub named: Vec<&'static str>,
    /// Whether the document lists all plug-ins at each point, as the versions without `multiPoint` do.
    pub by_point: bool,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct PluginSet {
    /// The names of the enabled plug-ins, with their weights; 0 means the plug-in's default weight.
    pub enabled: Vec<(String, i64)>,
    pub disabled: Vec<String>,
}

/// The name of the set that enables a plug-in at all points that it implements.
pub const MULTI_POINT: &str = "multiPoint";

/// Plug-ins that score nodes only if their arguments say so; their weights are not written into documents.
const UNWEIGHTED: [&str; 1] = [plugins::volume_binding::NAME];

impl ProfileDocument {
    /// The plug-ins that are enabled without any configuration.
    pub fn default_configuration() -> ProfileDocument {
        let sets = BTreeMap::from([(MULTI_POINT, PluginSet { enabled: default_plugins(), disabled: Vec::new() })]);
        ProfileDocument { sets, ..ProfileDocument::default() }
    }
}

/// The plug-ins that are enabled by default, with their weights.
pub fn default_plugins() -> Vec<(String, i64)> {
    let rows = plugins::PLUGINS.iter().filter(|row| row.by_default);
    let weight = |row: &plugins::PluginEntry| if UNWEIGHTED.contains(&row.name) { 0 } else { row.weight };
    rows.map(|row| (row.name.to_owned(), weight(row))).collect()
}

#[derive(Debug, Clone)]
pub struct EnabledPlugin {
    pub plugin: Arc<dyn Plugin>,
    pub weight: i64,
}

impl Profile {
    pub fn at(&self, point: ExtensionPoint) -> &[EnabledPlugin] {
        self.points.get(&point).map(Vec::as_slice).unwrap_or_default()
    }

    /// The plug-in of this name; `None` if it is not enabled at any point.
    pub fn plugin(&self, name: &str) -> Option<&Arc<dyn Plugin>> {
        let all = self.points.values().flatten().map(|enabled| &enabled.plugin);
        all.into_iter().find(|plugin| plugin.name() == name)
    }

    pub fn has(&self, point: ExtensionPoint, name: &str) -> bool {
        self.at(point).iter().any(|enabled| enabled.plugin.name() == name)
    }
}

impl Default for Profile {
    /// The profile that applies without any configuration.
    fn default() -> Self {
        let mut points: BTreeMap<ExtensionPoint, Vec<EnabledPlugin>> = BTreeMap::new();
        for row in plugins::PLUGINS.iter().filter(|row| row.by_default) {
            let plugin = (row.build)();
            for point in row.points {
                points.entry(*point).or_default().push(EnabledPlugin { plugin: plugin.clone(), weight: row.weight });
            }
        }
        Profile {
            scheduler_name: DEFAULT_SCHEDULER.into(),
            percentage_of_nodes_to_score: None,
            points,
            check_all: false,
            preemption: Some(DefaultPreemption::default()),
            document: ProfileDocument::default_configuration(),
        }
    }
}
