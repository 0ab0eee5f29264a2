//! Changes that command line options make to a configuration that was read from a file.

use super::arguments::Arguments;
use super::global_options::hard_affinity_arguments;
use super::reader::Fault;
use super::{Configuration, build, policy, profiles};
use crate::plugin::POINTS;
use crate::plugins::{self, gang_scheduling, inter_pod_affinity, legacy};
use crate::profile::{EnabledPlugin, MULTI_POINT, PluginSet, Profile};

/// The feature gate that enables the plug-in GangScheduling.
const GANG_SCHEDULING: &str = "GangScheduling";
/// The feature gate that enables the score ResourceLimits.
const RESOURCE_LIMITS: &str = "ResourceLimitsPriorityFunction";
const EXTENDED_RESOURCES: &str = "DRAExtendedResource";
const POP_FROM_BACKOFF: &str = "SchedulerPopFromBackoffQ";
const NOMINATE_EXPECTED_NODES: &str = "NominatedNodeNameForExpectation";

impl Configuration {
    /// Gives the only profile another scheduler name. If there are several profiles, all keep their names.
    pub fn rename(&mut self, scheduler_name: &str) {
        if let [profile] = self.profiles.as_mut_slice() {
            profile.scheduler_name = scheduler_name.into();
        }
    }

    /// Replaces the only profile by a Policy.
    pub fn apply_policy(&mut self, text: &str) -> Result<(), Vec<Fault>> {
        let (profile, extenders) = policy::read(text, &self.global_options)?;
        if let Some(what) = self.profiles.iter().find_map(|profile| profile.document.named.first()) {
            let message = format!("using {what} and Policy simultaneously is not supported");
            return Err(vec![Fault { path: String::new(), message }]);
        }
        self.replace(profile).map_err(|fault| vec![fault])?;
        self.extenders = extenders;
        Ok(())
    }

    /// Replaces the only profile by the profile of the algorithm provider of this name.
    pub fn apply_provider(&mut self, name: &str) -> Result<(), Fault> {
        let path = "algorithmSource.provider";
        let lists = policy::provider_named(name).map_err(|message| Fault { path: path.into(), message })?;
        let mut arguments = Arguments::default();
        for (name, document) in self.profiles.iter().flat_map(|profile| &profile.document.arguments) {
            arguments.set_default(name, document.clone());
        }
        self.replace(profiles::from_provider(&lists, arguments, &self.global_options))
    }

    /// Sets the default of `hardPodAffinityWeight`, which applies where neither the arguments of InterPodAffinity nor a
    /// Policy set a value.
    pub fn set_hard_pod_affinity_weight(&mut self, weight: i64) {
        let before = self.global_options.hard_pod_affinity_weight.replace(weight).map(hard_affinity_arguments);
        for profile in &mut self.profiles {
            let own = profile.document.arguments.iter().find(|(name, _)| name == inter_pod_affinity::NAME);
            if own.is_some_and(|(_, arguments)| Some(arguments) != before.as_ref()) {
                continue;
            }
            let mut arguments = Arguments::default();
            arguments.set_default(inter_pod_affinity::NAME, hard_affinity_arguments(weight));
            build::configure(profile, arguments);
        }
    }

    /// Applies feature gates. `is_on` returns whether a gate is on.
    pub fn apply_feature_gates(&mut self, is_on: impl Fn(&str) -> bool) {
        for (gate, plugin) in [(GANG_SCHEDULING, gang_scheduling::NAME), (RESOURCE_LIMITS, legacy::RESOURCE_LIMITS)] {
            if is_on(gate) {
                self.enable(plugin);
            }
        }
        self.extended_resources = is_on(EXTENDED_RESOURCES);
        self.pops_from_backoff = is_on(POP_FROM_BACKOFF);
        self.nominates_expected_nodes = is_on(NOMINATE_EXPECTED_NODES);
    }

    /// Enables a plug-in at all points that it implements, in every profile that does not disable it.
    fn enable(&mut self, plugin: &str) {
        let Some(row) = plugins::find(plugin) else { return };
        let plugin = (row.build)();
        for profile in &mut self.profiles {
            let sets = &mut profile.document.sets;
            let disabled = |set: &PluginSet| set.disabled.iter().any(|name| name == "*" || name == row.name);
            // A version without `multiPoint` lists all plug-ins at each point, so the plug-in is added to the lists of
            // single points.
            let by_point = profile.document.by_point;
            if profile.points.values().flatten().any(|enabled| enabled.plugin.name() == row.name)
                || (!by_point && sets.get(MULTI_POINT).is_some_and(disabled))
            {
                continue;
            }
            for (point, field, _) in POINTS.iter().filter(|(point, ..)| row.points.contains(point)) {
                if sets.get(field).is_some_and(disabled) {
                    continue;
                }
                let enabled = EnabledPlugin { plugin: plugin.clone(), weight: 1 };
                profile.points.entry(*point).or_default().push(enabled);
                if by_point {
                    sets.entry(field).or_default().enabled.push((row.name.to_owned(), 1));
                }
            }
            if !by_point {
                sets.entry(MULTI_POINT).or_default().enabled.push((row.name.to_owned(), 1));
            }
        }
    }

    fn replace(&mut self, profile: Profile) -> Result<(), Fault> {
        let [only] = self.profiles.as_mut_slice() else {
            let message = "a Policy or a provider takes the place of one profile, and there are several".into();
            return Err(Fault { path: "profiles".into(), message });
        };
        let (name, percentage) = (only.scheduler_name.clone(), only.percentage_of_nodes_to_score);
        *only = Profile { scheduler_name: name, percentage_of_nodes_to_score: percentage, ..profile };
        self.policy = None;
        Ok(())
    }
}
