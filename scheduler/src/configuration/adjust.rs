//! What options change about a configuration, whatever a file says.

use super::arguments::Arguments;
use super::reader::{Fault, Faults, Reader};
use super::{Configuration, policy, profiles};
use crate::plugin::POINTS;
use crate::plugins::{self, gang_scheduling, inter_pod_affinity};
use crate::profile::{Enabled, MULTI_POINT, Profile, Set};
use serde_json::json;

/// The gates that a scheduler obeys.
const GANG_SCHEDULING: &str = "GangScheduling";
const EXTENDED_RESOURCES: &str = "DRAExtendedResource";

impl Configuration {
    /// Has the only profile go by another name; where there are several, each has its own.
    pub fn rename(&mut self, scheduler_name: &str) {
        if let [profile] = self.profiles.as_mut_slice() {
            profile.scheduler_name = scheduler_name.into();
        }
    }

    /// Takes a Policy in the place of the only profile.
    pub fn take_policy(&mut self, text: &str) -> Result<(), Vec<Fault>> {
        let (profile, extenders) = policy::read(text)?;
        self.replace(profile).map_err(|fault| vec![fault])?;
        self.extenders = extenders;
        Ok(())
    }

    /// Takes what once was the algorithm of this name.
    pub fn take_provider(&mut self, name: &str) -> Result<(), Fault> {
        let document = json!({"algorithmSource": {"provider": name}});
        let faults = Faults::default();
        let profile = Reader::new(&document, "", &faults).and_then(|reader| policy::provider(&reader));
        match (profile, faults.into_inner().pop()) {
            (Some(profile), None) => self.replace(profile),
            (_, fault) => Err(fault.unwrap_or_else(|| Fault { path: String::new(), message: "no provider".into() })),
        }
    }

    /// What required affinity is worth towards pods that do not ask for it, where arguments do not say it.
    pub fn weigh_hard_affinity(&mut self, weight: i64) {
        for profile in &mut self.profiles {
            if profile.written.arguments.iter().any(|(name, _)| name == inter_pod_affinity::NAME) {
                continue;
            }
            let mut arguments = Arguments::default();
            arguments.usual(inter_pod_affinity::NAME, json!({"hardPodAffinityWeight": weight}));
            profiles::configure(profile, arguments);
        }
    }

    /// Obeys feature gates, of which is told whether each is on.
    pub fn take_gates(&mut self, is_on: impl Fn(&str) -> bool) {
        if is_on(GANG_SCHEDULING) {
            self.schedule_gangs();
        }
        self.extended_resources = is_on(EXTENDED_RESOURCES);
    }

    /// Has the pods of a gang lie somewhere together or not at all, in all profiles that do not disable it.
    fn schedule_gangs(&mut self) {
        let Some(row) = plugins::find(gang_scheduling::NAME) else { return };
        let plugin = (row.build)();
        for profile in &mut self.profiles {
            let sets = &mut profile.written.sets;
            let disabled = |set: &Set| set.disabled.iter().any(|name| name == "*" || name == row.name);
            if profile.points.values().flatten().any(|enabled| enabled.plugin.name() == row.name)
                || sets.get(MULTI_POINT).is_some_and(disabled)
            {
                continue;
            }
            for (point, field, _) in POINTS.iter().filter(|(point, ..)| row.points.contains(point)) {
                if !sets.get(field).is_some_and(disabled) {
                    let enabled = Enabled { plugin: plugin.clone(), weight: row.weight };
                    profile.points.entry(*point).or_default().push(enabled);
                }
            }
            sets.entry(MULTI_POINT).or_default().enabled.push((row.name.to_owned(), 0));
        }
    }

    fn replace(&mut self, profile: Profile) -> Result<(), Fault> {
        let [only] = self.profiles.as_mut_slice() else {
            let message = "a Policy or a provider takes the place of one profile, and there are several".into();
            return Err(Fault { path: "profiles".into(), message });
        };
        *only = Profile { scheduler_name: only.scheduler_name.clone(), ..profile };
        self.policy = None;
        Ok(())
    }
}
