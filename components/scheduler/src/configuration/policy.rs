//! The old Policy format: predicates and priorities by name, converted to plug-ins.

use super::PolicySource;
use super::arguments::Arguments;
use super::build::{PluginList, build, ignore_resources};
use super::extender::{self, Extender};
use super::global_options::{GlobalOptions, hard_affinity_arguments, hard_affinity_weight};

use super::reader::{Fault, Faults, Reader};
use super::version::Version;
use crate::object::Text;
use crate::plugin::ExtensionPoint;
use crate::plugin::POINTS;
use crate::plugins::*;
use crate::profile::{MULTI_POINT, PluginSet, Profile};
use holdfast_core::object::yaml;
use holdfast_value::{Value, json};
use std::collections::BTreeMap;

const FIT: &str = node_resources_fit::NAME;

/// The predicate that all custom predicates with `labelsPresence` become, whatever their names.
const LABELS: &str = "CheckNodeLabelPresence";

/// The predicate that all custom predicates with `serviceAffinity` become, whatever their names.
const SERVICES: &str = "CheckServiceAffinity";

/// Each predicate, the filters that replaced it, and whether it was enabled in a Policy without a list of predicates.
/// The rows are in the order in which predicates are evaluated.
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
    (SERVICES, &[service_affinity::NAME], false),
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

/// Each priority, the score that replaced it, and the weight that it has in a Policy without a list of priorities; a
/// weight of 0 means that it was not enabled in such a Policy.
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

/// The node labels that custom predicates and priorities of a Policy name: required, forbidden, preferred and disliked
/// labels; the labels that must have equal values for all pods of a Service; and the labels over whose values the pods
/// of a Service should be spread.
#[derive(Default)]
struct NodeLabels {
    present: Vec<String>,
    absent: Vec<String>,
    present_preferred: Vec<String>,
    absent_preferred: Vec<String>,
    same: Vec<String>,
    different: Vec<String>,
}

/// The plug-ins and arguments to which a Policy is converted, collected item by item.
#[derive(Default)]
struct Conversion {
    filters: Vec<&'static str>,
    scores: Vec<(&'static str, i64)>,
    labels: NodeLabels,
    arguments: Arguments,
    /// For each kind of custom priority, the last declared priority and its weight; all priorities of one kind must
    /// have the same weight.
    declared: BTreeMap<&'static str, (String, i64)>,
}

/// Reads a Policy in JSON or YAML: its profile and its extenders. The options `global_options` apply where the Policy
/// sets no value.
pub fn read(text: &str, global_options: &GlobalOptions) -> Result<(Profile, Vec<Extender>), Vec<Fault>> {
    let fault = |message: String| vec![Fault { path: String::new(), message }];
    let mut document: Value = yaml::read(text).map_err(|error| fault(error.to_string()))?;
    if let Some(extenders) = document.as_object_mut().and_then(|fields| fields.get_mut("extenders")) {
        extender::name_fields(extenders);
    }
    let faults = Faults::default();
    let read = Reader::new(&document, "", &faults).map(|reader| {
        let reader = reader.lenient();
        if reader.text("kind").is_some_and(|kind| kind != "Policy") {
            reader.fault("kind", "Invalid value: must be Policy");
        }
        let mut profile = convert(&reader, global_options);
        let extenders = extender::read_all(&reader);
        let managed = extenders.iter().flat_map(|extender| &extender.managed_resources);
        let ignored: Vec<Text> = managed.filter(|one| one.ignored_by_scheduler).map(|one| one.name.clone()).collect();
        ignore_resources(std::slice::from_mut(&mut profile), &ignored);
        (profile, extenders)
    });
    match (read, faults.into_inner()) {
        (Some(read), faults) if faults.is_empty() => Ok(read),
        (_, faults) => Err(faults),
    }
}

/// The place at which `algorithmSource` says that a Policy is stored.
pub fn source(reader: &Reader<'_>) -> Option<PolicySource> {
    let policy = reader.child("algorithmSource")?.lenient().child("policy")?;
    if let Some(file) = policy.child("file") {
        return file.text("path").map(|path| PolicySource::File(path.into()));
    }
    let map = policy.child("configMap")?;
    let text = |field: &str| map.text(field).unwrap_or("").to_owned();
    Some(PolicySource::ConfigMap { namespace: text("namespace"), name: text("name") })
}

/// The plug-ins at each point of the algorithm provider that `algorithmSource` names.
pub fn provider(reader: &Reader<'_>) -> Option<BTreeMap<ExtensionPoint, PluginList>> {
    let source = reader.child("algorithmSource")?;
    source.get("policy");
    let name = source.text("provider")?;
    let lists = provider_named(name);
    if let Err(message) = &lists {
        source.fault("provider", message);
    }
    lists.ok()
}

/// The plug-ins at each point of the algorithm provider of this name.
pub fn provider_named(name: &str) -> Result<BTreeMap<ExtensionPoint, PluginList>, String> {
    let mut conversion = Conversion::default();
    conversion.default_predicates();
    conversion.default_priorities();
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

fn convert(reader: &Reader<'_>, global_options: &GlobalOptions) -> Profile {
    let mut conversion = Conversion::default();
    match reader.list("predicates") {
        None => conversion.default_predicates(),
        Some(list) => conversion.predicates(&list),
    }
    match reader.list("priorities") {
        None => conversion.default_priorities(),
        Some(list) => list.iter().for_each(|one| conversion.priority(one)),
    }
    if let Some(hard_weight) = hard_affinity_weight(reader).filter(|weight| *weight > 0) {
        conversion.arguments.set_default(inter_pod_affinity::NAME, hard_affinity_arguments(hard_weight));
    }
    global_options.add_defaults(&mut conversion.arguments);
    let mut profile = global_options.finish(conversion.profile());
    profile.check_all = reader.bool("alwaysCheckAllPredicates").unwrap_or(false);
    profile
}

const RATIO_ARGUMENTS: &str = "requestedToCapacityRatioArguments";

/// The arguments of a custom predicate or priority, at the index of their kind in `kinds`. Arguments of exactly one
/// kind must be present.
fn only_child<'a, const N: usize>(
    argument: &Reader<'a>,
    what: &str,
    name: &str,
    kinds: [&str; N],
) -> Option<[Option<Reader<'a>>; N]> {
    let found = kinds.map(|kind| argument.child(kind));
    let count = found.iter().flatten().count();
    if count != 1 {
        argument.fault("", format!("exactly 1 {what} argument is required, numArgs: {count}, {what}: {name}"));
        return None;
    }
    Some(found)
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

    fn default_predicates(&mut self) {
        for (_, plugins, _) in PREDICATES.iter().filter(|row| row.2) {
            plugins.iter().for_each(|plugin| self.filter(plugin));
        }
    }

    fn default_priorities(&mut self) {
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
        // Predicates are evaluated in the order of the table, whatever their order in the Policy is.
        for (_, plugins, _) in PREDICATES.iter().filter(|row| named.contains(&row.0)) {
            plugins.iter().for_each(|plugin| self.filter(plugin));
        }
    }

    /// The name of the predicate that stands for a custom predicate; its arguments are added to the conversion.
    fn custom_predicate(&mut self, name: &str, argument: &Reader<'_>) -> Option<&'static str> {
        let [labels, services] = only_child(argument, "predicate", name, ["labelsPresence", "serviceAffinity"])?;
        let reader = services.as_ref().or(labels.as_ref())?;
        let names = reader.texts("labels").unwrap_or_default().into_iter().map(str::to_owned);
        if services.is_some() {
            self.labels.same.extend(names);
            return Some(SERVICES);
        }
        match reader.bool("presence").unwrap_or(false) {
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
        let kinds = ["labelPreference", "serviceAntiAffinity", RATIO_ARGUMENTS];
        let Some([labels, services, ratio]) = only_child(argument, "priority", name, kinds) else { return };
        if let Some(preference) = labels {
            self.check_equal_weights("LabelPreference", name, weight, argument);
            let label = preference.text("label").unwrap_or("").to_owned();
            match preference.bool("presence").unwrap_or(false) {
                true => self.labels.present_preferred.push(label),
                false => self.labels.absent_preferred.push(label),
            }
            self.score(legacy::NODE_LABEL, weight);
        }
        if let Some(services) = services {
            self.check_equal_weights("ServiceAntiAffinity", name, weight, argument);
            self.labels.different.push(services.text("label").unwrap_or("").to_owned());
            self.score(service_affinity::NAME, weight);
        }
        if let Some(ratio) = ratio {
            let plugin = legacy::REQUESTED_TO_CAPACITY_RATIO;
            if let Some((first, _)) = self.declared.get(plugin) {
                let why = format!("priority \"{name}\" redeclares custom priority \"{plugin}\", from: \"{first}\"");
                argument.fault("", why);
            }
            self.declared.entry(plugin).or_insert_with(|| (name.to_owned(), weight));
            self.arguments.add(plugin, Some(&ratio), argument.get(RATIO_ARGUMENTS));
            self.score(plugin, weight);
        }
    }

    /// Reports custom priorities of one kind that have different weights: all of them become one plug-in, which has one
    /// weight.
    fn check_equal_weights(&mut self, kind: &'static str, name: &str, weight: i64, argument: &Reader<'_>) {
        match self.declared.get(kind) {
            Some((last, own)) if *own != weight => {
                argument.fault("", format!("{kind}  priority \"{name}\" has a different weight with \"{last}\""));
            }
            _ => _ = self.declared.insert(kind, (name.to_owned(), weight)),
        }
    }

    /// The converted plug-ins, at each point.
    fn lists(&self) -> BTreeMap<ExtensionPoint, PluginList> {
        let extends = |plugin: &str, point: ExtensionPoint| find(plugin).is_some_and(|row| row.points.contains(&point));
        let mut points: BTreeMap<ExtensionPoint, PluginList> = BTreeMap::new();
        for plugin in [marker::PRIORITY_SORT, default_preemption::NAME, marker::DEFAULT_BINDER, scheduling_gates::NAME]
        {
            for point in find(plugin).map_or(&[][..], |row| row.points) {
                points.entry(*point).or_default().push((plugin.into(), 0));
            }
        }
        let filter_points =
            [ExtensionPoint::PreFilter, ExtensionPoint::Filter, ExtensionPoint::Reserve, ExtensionPoint::PreBind];
        for plugin in &self.filters {
            for point in filter_points.into_iter().filter(|point| extends(plugin, *point)) {
                points.entry(point).or_default().push(((*plugin).into(), 0));
            }
        }
        for (plugin, weight) in &self.scores {
            for point in
                [ExtensionPoint::PreScore, ExtensionPoint::Score].into_iter().filter(|point| extends(plugin, *point))
            {
                points.entry(point).or_default().push(((*plugin).into(), *weight));
            }
        }
        points
    }

    fn profile(mut self) -> Profile {
        let points = self.lists();
        let NodeLabels { present, absent, present_preferred, absent_preferred, same, different } = self.labels;
        let scored = self.scores.iter().map(|(plugin, _)| plugin);
        let named: Vec<_> = self.filters.iter().chain(scored).copied().collect();
        if named.contains(&legacy::NODE_LABEL) {
            let labels = json!({
                "presentLabels": present,
                "absentLabels": absent,
                "presentLabelsPreference": present_preferred,
                "absentLabelsPreference": absent_preferred,
            });
            self.arguments.set_default(legacy::NODE_LABEL, labels);
        }
        if named.contains(&service_affinity::NAME) {
            let labels = json!({"affinityLabels": same, "antiAffinityLabelsPreference": different});
            self.arguments.set_default(service_affinity::NAME, labels);
        }
        let mut sets: BTreeMap<&'static str, PluginSet> = BTreeMap::new();
        sets.insert(MULTI_POINT, PluginSet { enabled: Vec::new(), disabled: vec!["*".into()] });
        for (point, field, _) in POINTS {
            let enabled = points.get(&point).cloned().unwrap_or_default();
            sets.insert(field, PluginSet { enabled, disabled: Vec::new() });
        }
        build((points, sets), self.arguments, Version::V1Alpha1)
    }
}
