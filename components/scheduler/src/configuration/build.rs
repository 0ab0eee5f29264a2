//! Makes profiles from lists of enabled plug-ins and the plug-ins' arguments.

use super::arguments::{Arguments, ConfiguredPlugin};
use super::version::Version;
use crate::object::Text;
use crate::plugin::{ExtensionPoint, Plugin};
use crate::plugins;
use crate::plugins::default_preemption::{self, DefaultPreemption};
use crate::plugins::pod_topology_spread;
use crate::profile::{EnabledPlugin, PluginSet, Profile, ProfileDocument};
use holdfast_value::json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The names of plug-ins with their weights, in the order in which the plug-ins are called.
pub type PluginList = Vec<(String, i64)>;
/// The plug-ins that are enabled at each point; and the sets that enable them in a document of version v1, by the set's
/// name.
pub type PointSets = (BTreeMap<ExtensionPoint, PluginList>, BTreeMap<&'static str, PluginSet>);

/// Makes a profile: makes its plug-ins from their arguments, and enables them at their points.
pub fn build((points, sets): PointSets, mut arguments: Arguments, version: Version) -> Profile {
    if !version.has_spread_defaults() {
        arguments.set_default(pod_topology_spread::NAME, json!({"defaultingType": "List"}));
    }
    let Arguments { plugins: mut configured_plugins, documents, .. } = arguments;
    let mut plugins_made: BTreeMap<String, Arc<dyn Plugin>> = BTreeMap::new();
    let mut preemption = DefaultPreemption::default();
    if let Some(ConfiguredPlugin::Preemption(own)) = configured_plugins.get(default_preemption::NAME) {
        preemption = own.clone();
    }
    let mut enabled_at = BTreeMap::new();
    for (point, list) in points {
        let mut enabled = Vec::new();
        for (name, weight) in list {
            let Some(row) = plugins::find(&name) else { continue };
            let plugin = plugins_made.entry(name.clone()).or_insert_with(|| match configured_plugins.remove(&name) {
                Some(ConfiguredPlugin::Plugin(plugin)) => plugin,
                _ => (row.build)(),
            });
            // A plug-in that is enabled without a weight has the weight 1, whatever its default weight is.
            enabled.push(EnabledPlugin { plugin: plugin.clone(), weight: weight.max(1) });
        }
        enabled_at.insert(point, enabled);
    }
    let by_point = !version.has_multi_point();
    let document = ProfileDocument { sets, arguments: documents, named: Vec::new(), by_point };
    let mut profile = Profile { points: enabled_at, check_all: false, document, ..Profile::default() };
    profile.preemption = profile.has(ExtensionPoint::PostFilter, default_preemption::NAME).then_some(preemption);
    profile
}

/// Makes the plug-ins of a profile again, with other arguments.
pub fn configure(profile: &mut Profile, arguments: Arguments) {
    for (name, configured) in arguments.plugins {
        match configured {
            ConfiguredPlugin::Plugin(plugin) => {
                let enabled = profile.points.values_mut().flatten();
                enabled
                    .filter(|enabled| enabled.plugin.name() == name)
                    .for_each(|enabled| enabled.plugin = plugin.clone());
            }
            ConfiguredPlugin::Preemption(preemption) => profile.preemption = Some(preemption),
            ConfiguredPlugin::Foreign => {}
        }
    }
    let given = |name: &String| arguments.documents.iter().any(|(own, _)| own == name);
    profile.document.arguments.retain(|(name, _)| !given(name));
    profile.document.arguments.extend(arguments.documents);
}

/// Makes NodeResourcesFit ignore the resources that extenders manage. These names replace the names that the profiles'
/// arguments list as ignored.
pub fn ignore_resources(profiles: &mut [Profile], names: &[Text]) {
    if names.is_empty() {
        return;
    }
    for enabled in profiles.iter_mut().flat_map(|profile| profile.points.values_mut()).flatten() {
        if let Some(plugin) = enabled.plugin.leave_to_extenders(names) {
            enabled.plugin = plugin;
        }
    }
}
