//! The Policy of old: predicates and priorities by name, as plug-ins.

use super::PolicySource;
use super::arguments::Arguments;
use super::extender::{self, Extender};
use super::profiles::{List, Switches, build, hard_affinity, hard_affinity_weight};
use super::reader::{Fault, Faults, Reader};
use super::version::Version;
use crate::object::Text;
use crate::plugin::POINTS;
use crate::plugin::Point;
use crate::plugins::*;
use crate::profile::{MULTI_POINT, Profile, Set};
use holdfast_value::{Value, json};
use std::collections::BTreeMap;

const FIT: &str = node_resources_fit::NAME;

/// All predicates about labels that nodes must have or lack, whatever each is called.
const LABELS: &str = "CheckNodeLabelPresence";

/// Predicates with the filters that they became, in the order in which they were evaluated, and whether they were used
/// when nothing was said.
const PREDICATES: &[(&str, &[&str], bool)] = &[
    ("CheckNodeUnschedulable", &[node_unschedulable::NAME], true),
    ("GeneralPredicates", &[FIT, node_name::NAME, node_ports::NAME, node_affinity::NAME], true),
    ("HostName", &[node_name::NAME], false),
    ("PodFitsHostPorts", &[node_ports::NAME], false),
    ("PodFitsPorts", &[node_ports::NAME], false),
    ("MatchNodeSelector", &[node_affinity::NAME], false),
    ("PodFitsResources", &[FIT], false),
    ("NoDiskConflict", &[volume_restrictions::NAME], true),
    ("PodToleratesNodeTaints", &[taint_toleration::NAME], true),
    (LABELS, &[legacy::NODE_LABEL], false),
    ("MaxEBSVolumeCount", &[node_volume_limits::NAME], true),
    ("MaxGCEPDVolumeCount", &[node_volume_limits::NAME], true),
    ("MaxAzureDiskVolumeCount", &[node_volume_limits::NAME], true),
    ("MaxCinderVolumeCount", &[node_volume_limits::NAME], false),
    ("MaxCSIVolumeCountPred", &[node_volume_limits::NAME], true),
    ("CheckVolumeBinding", &[volume_binding::NAME], true),
    ("NoVolumeZoneConflict", &[volume_zone::NAME], true),
    ("EvenPodsSpread", &[pod_topology_spread::NAME], true),
    ("MatchInterPodAffinity", &[inter_pod_affinity::NAME], true),
];

const MANDATORY: [&str; 2] = ["PodToleratesNodeTaints", "CheckNodeUnschedulable"];

/// Priorities with the scores that they became, and their weight when nothing was said; 0: they were not used then.
const PRIORITIES: &[(&str, &str, i64)] = &[
    ("SelectorSpreadPriority", legacy::SELECTOR_SPREAD, 1),
    ("ServiceSpreadingPriority", legacy::SELECTOR_SPREAD, 0),
    ("InterPodAffinityPriority", inter_pod_affinity::NAME, 1),
    ("LeastRequestedPriority", legacy::LEAST_ALLOCATED, 1),
    ("BalancedResourceAllocation", balanced_allocation::NAME, 1),
    ("NodePreferAvoidPodsPriority", legacy::NODE_PREFER_AVOID_PODS, 10000),
    ("NodeAffinityPriority", node_affinity::NAME, 1),
    ("TaintTolerationPriority", taint_toleration::NAME, 1),
    ("ImageLocalityPriority", image_locality::NAME, 1),
    ("EvenPodsSpreadPriority", pod_topology_spread::NAME, 2),
    ("MostRequestedPriority", legacy::MOST_ALLOCATED, 0),
    ("RequestedToCapacityRatioPriority", legacy::REQUESTED_TO_CAPACITY_RATIO, 0),
    ("ResourceLimitsPriority", legacy::RESOURCE_LIMITS, 0),
];

/// Labels that nodes must have or lack, and those that they should.
#[derive(Default)]
struct Labels {
    present: Vec<String>,
    absent: Vec<String>,
    present_preferred: Vec<String>,
    absent_preferred: Vec<String>,
}

/// What a Policy comes to.
#[derive(Default)]
struct Conversion {
    filters: Vec<&'static str>,
    scores: Vec<(&'static str, i64)>,
    labels: Labels,
    arguments: Arguments,
    /// The first priority with an argument of each kind, and its weight.
    declared: BTreeMap<&'static str, (String, i64)>,
}

/// Reads a Policy in JSON or YAML: the profile that it comes to where it does not overrule switches, and its extenders.
pub fn read(text: &str, switches: &Switches) -> Result<(Profile, Vec<Extender>), Vec<Fault>> {
    let fault = |message: String| vec![Fault { path: String::new(), message }];
    let mut document: Value = serde_yaml_ng::from_str(text).map_err(|error| fault(error.to_string()))?;
    if let Some(extenders) = document.as_object_mut().and_then(|fields| fields.get_mut("extenders")) {
        extender::name_fields(extenders);
    }
    let faults = Faults::default();
    let read = Reader::new(&document, "", &faults).map(|reader| {
        let reader = reader.lenient();
        if reader.text("kind").is_some_and(|kind| kind != "Policy") {
            reader.fault("kind", "Invalid value: must be Policy");
        }
        let mut profile = convert(&reader, switches);
        let extenders = extender::read_all(&reader);
        let managed = extenders.iter().flat_map(|extender| &extender.managed_resources);
        let ignored: Vec<Text> = managed.filter(|one| one.ignored_by_scheduler).map(|one| one.name.clone()).collect();
        super::profiles::ignore_resources(std::slice::from_mut(&mut profile), &ignored);
        (profile, extenders)
    });
    match (read, faults.into_inner()) {
        (Some(read), faults) if faults.is_empty() => Ok(read),
        (_, faults) => Err(faults),
    }
}

/// Where the Policy is that `algorithmSource` names.
pub fn source(reader: &Reader<'_>) -> Option<PolicySource> {
    let policy = reader.child("algorithmSource")?.lenient().child("policy")?;
    if let Some(file) = policy.child("file") {
        return file.text("path").map(|path| PolicySource::File(path.into()));
    }
    let map = policy.child("configMap")?;
    let text = |field: &str| map.text(field).unwrap_or("").to_owned();
    Some(PolicySource::ConfigMap { namespace: text("namespace"), name: text("name") })
}

/// The lists of the provider that `algorithmSource` names.
pub fn provider(reader: &Reader<'_>) -> Option<BTreeMap<Point, List>> {
    let source = reader.child("algorithmSource")?;
    source.get("policy");
    let name = source.text("provider")?;
    let lists = provider_named(name);
    if let Err(message) = &lists {
        source.fault("provider", message);
    }
    lists.ok()
}

/// What was enabled at each point by the provider of this name.
pub fn provider_named(name: &str) -> Result<BTreeMap<Point, List>, String> {
    let mut conversion = Conversion::default();
    conversion.usual_predicates();
    conversion.usual_priorities();
    match name {
        "DefaultProvider" => {}
        "ClusterAutoscalerProvider" => {
            for (plugin, _) in conversion.scores.iter_mut().filter(|(plugin, _)| *plugin == legacy::LEAST_ALLOCATED) {
                *plugin = legacy::MOST_ALLOCATED;
            }
        }
        _ => return Err(format!("algorithm provider \"{name}\" is not registered")),
    }
    Ok(conversion.lists())
}

fn convert(reader: &Reader<'_>, switches: &Switches) -> Profile {
    let mut conversion = Conversion::default();
    match reader.list("predicates") {
        None => conversion.usual_predicates(),
        Some(list) => conversion.predicates(&list),
    }
    match reader.list("priorities") {
        None => conversion.usual_priorities(),
        Some(list) => list.iter().for_each(|one| conversion.priority(one)),
    }
    if let Some(hard_weight) = hard_affinity_weight(reader).filter(|weight| *weight > 0) {
        conversion.arguments.usual(inter_pod_affinity::NAME, hard_affinity(hard_weight));
    }
    switches.complete(&mut conversion.arguments);
    let mut profile = switches.finish(conversion.profile());
    profile.check_all = reader.bool("alwaysCheckAllPredicates").unwrap_or(false);
    profile
}

impl Conversion {
    fn filter(&mut self, plugin: &'static str) {
        if !self.filters.contains(&plugin) {
            self.filters.push(plugin);
        }
    }

    fn score(&mut self, plugin: &'static str, weight: i64) {
        match self.scores.iter_mut().find(|(own, _)| *own == plugin) {
            Some((_, own)) => *own = own.saturating_add(weight),
            None => self.scores.push((plugin, weight)),
        }
    }

    fn usual_predicates(&mut self) {
        for (_, plugins, _) in PREDICATES.iter().filter(|row| row.2) {
            plugins.iter().for_each(|plugin| self.filter(plugin));
        }
    }

    fn usual_priorities(&mut self) {
        for (_, plugin, weight) in PRIORITIES.iter().filter(|row| row.2 > 0) {
            self.score(plugin, *weight);
        }
    }

    fn predicates(&mut self, list: &[Reader<'_>]) {
        let mut named: Vec<&str> = MANDATORY.to_vec();
        for one in list {
            let name = one.text("name").unwrap_or("");
            match one.child("argument") {
                Some(argument) => named.extend(self.custom_predicate(name, &argument)),
                None if PREDICATES.iter().any(|row| row.0 == name) => named.push(name),
                None => one.fault("name", format!("predicate type not found for \"{name}\"")),
            }
        }
        // They are evaluated in an order of their own, whichever way they are listed.
        for (_, plugins, _) in PREDICATES.iter().filter(|row| named.contains(&row.0)) {
            plugins.iter().for_each(|plugin| self.filter(plugin));
        }
    }

    /// The predicate that one with an argument is.
    fn custom_predicate(&mut self, name: &str, argument: &Reader<'_>) -> Option<&'static str> {
        if argument.get("serviceAffinity").is_some() {
            argument.fault("serviceAffinity", "service affinity is not built");
            return None;
        }
        let Some(labels) = argument.child("labelsPresence") else {
            let why = format!("exactly 1 predicate argument is required, numArgs: 0, predicate: {name}");
            argument.fault("", why);
            return None;
        };
        let names = labels.texts("labels").unwrap_or_default().into_iter().map(str::to_owned);
        match labels.bool("presence").unwrap_or(false) {
            true => self.labels.present.extend(names),
            false => self.labels.absent.extend(names),
        }
        Some(LABELS)
    }

    fn priority(&mut self, one: &Reader<'_>) {
        let name = one.text("name").unwrap_or("");
        let weight = one.int("weight").unwrap_or(0);
        if weight <= 0 || weight >= i64::MAX / 100 {
            let message = "should have a positive weight applied to it or it has overflown";
            return one.fault("", format!("priority {name} {message}"));
        }
        match one.child("argument") {
            Some(argument) => self.custom_priority(name, weight, &argument),
            None if name == "EqualPriority" => {}
            None => match PRIORITIES.iter().find(|row| row.0 == name) {
                Some((_, plugin, _)) => self.score(plugin, weight),
                None => one.fault("name", format!("priority type not found for \"{name}\"")),
            },
        }
    }

    fn custom_priority(&mut self, name: &str, weight: i64, argument: &Reader<'_>) {
        if let Some(preference) = argument.child("labelPreference") {
            // They are one plug-in, which sums them up.
            if let Some((first, _)) = self.declared("LabelPreference", name, weight).filter(|(_, own)| *own != weight) {
                let why = format!("LabelPreference  priority \"{name}\" has a different weight with \"{first}\"");
                argument.fault("", why);
            }
            let label = preference.text("label").unwrap_or("").to_owned();
            match preference.bool("presence").unwrap_or(false) {
                true => self.labels.present_preferred.push(label),
                false => self.labels.absent_preferred.push(label),
            }
            return self.score(legacy::NODE_LABEL, weight);
        }
        if let Some(ratio) = argument.child("requestedToCapacityRatioArguments") {
            let plugin = legacy::REQUESTED_TO_CAPACITY_RATIO;
            if let Some((first, _)) = self.declared(plugin, name, weight) {
                let why = format!("priority \"{name}\" redeclares custom priority \"{plugin}\", from: \"{first}\"");
                argument.fault("", why);
            }
            self.arguments.add(plugin, Some(&ratio), argument.get("requestedToCapacityRatioArguments"));
            return self.score(plugin, weight);
        }
        if argument.get("serviceAntiAffinity").is_some() {
            return argument.fault("serviceAntiAffinity", "service anti-affinity is not built");
        }
        argument.fault("", format!("exactly 1 priority argument is required, numArgs: 0, priority: {name}"));
    }

    /// The first priority of this kind, unless it is this one.
    fn declared(&mut self, kind: &'static str, name: &str, weight: i64) -> Option<(String, i64)> {
        let first = self.declared.get(kind).cloned();
        self.declared.entry(kind).or_insert_with(|| (name.to_owned(), weight));
        first
    }

    /// What is enabled at each point.
    fn lists(&self) -> BTreeMap<Point, List> {
        let answers = |plugin: &str, point: Point| find(plugin).is_some_and(|row| row.points.contains(&point));
        let mut points: BTreeMap<Point, List> = BTreeMap::new();
        for plugin in [marker::PRIORITY_SORT, default_preemption::NAME, marker::DEFAULT_BINDER, scheduling_gates::NAME]
        {
            for point in find(plugin).map_or(&[][..], |row| row.points) {
                points.entry(*point).or_default().push((plugin.into(), 0));
            }
        }
        let elsewhere = [Point::PreFilter, Point::Filter, Point::Reserve, Point::PreBind];
        for plugin in &self.filters {
            for point in elsewhere.into_iter().filter(|point| answers(plugin, *point)) {
                points.entry(point).or_default().push(((*plugin).into(), 0));
            }
        }
        for (plugin, weight) in &self.scores {
            for point in [Point::PreScore, Point::Score].into_iter().filter(|point| answers(plugin, *point)) {
                points.entry(point).or_default().push(((*plugin).into(), *weight));
            }
        }
        points
    }

    fn profile(mut self) -> Profile {
        let points = self.lists();
        let Labels { present, absent, present_preferred, absent_preferred } = self.labels;
        if self.filters.contains(&legacy::NODE_LABEL) || self.scores.iter().any(|(name, _)| *name == legacy::NODE_LABEL)
        {
            let labels = json!({
                "presentLabels": present,
                "absentLabels": absent,
                "presentLabelsPreference": present_preferred,
                "absentLabelsPreference": absent_preferred,
            });
            self.arguments.usual(legacy::NODE_LABEL, labels);
        }
        let mut sets: BTreeMap<&'static str, Set> = BTreeMap::new();
        sets.insert(MULTI_POINT, Set { enabled: Vec::new(), disabled: vec!["*".into()] });
        for (point, field, _) in POINTS {
            let enabled = points.get(&point).cloned().unwrap_or_default();
            sets.insert(field, Set { enabled, disabled: Vec::new() });
        }
        build((points, sets), self.arguments, Version::V1Alpha1)
    }
}
