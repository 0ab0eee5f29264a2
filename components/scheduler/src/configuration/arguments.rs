//! The arguments of plug-ins: this module reads and validates them, fills in defaults, and makes the plug-ins from
//! them.

use super::reader::{Faults, Reader};
use super::{checked_int, quoted};
use crate::object::selector::{Operator, Requirement};
use crate::object::terms::{NodeSelector, PreferredNodeTerm, SpreadConstraint};
use crate::object::{StringPool, Text};
use crate::plugin::Plugin;
use crate::plugins::allocation::{ResourceWeight, Strategy, default_resources};
use crate::plugins::balanced_allocation::{self, BalancedAllocation};
use crate::plugins::default_preemption::{self, DefaultPreemption};
use crate::plugins::inter_pod_affinity::{self, InterPodAffinity};
use crate::plugins::node_affinity::{self, NodeAffinity};
use crate::plugins::node_resources_fit::{self, IgnoredResources, NodeResourcesFit};
use crate::plugins::pod_topology_spread::{self, PodTopologySpread, default_constraint};
use crate::plugins::service_affinity::{self, ServiceAffinity};
use crate::plugins::volume_binding::{self, VolumeBinding};
use crate::plugins::{dynamic_resources, legacy};
use holdfast_core::object::names;
use holdfast_value::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The result of reading one plug-in's arguments.
pub enum ConfiguredPlugin {
    Plugin(Arc<dyn Plugin>),
    Preemption(DefaultPreemption),
    /// The arguments are for a plug-in that Kubernetes does not have.
    Foreign,
}

/// The arguments of the plug-ins of one profile, both as made into plug-ins and as written in the document.
#[derive(Default)]
pub struct Arguments {
    pub plugins: BTreeMap<String, ConfiguredPlugin>,
    pub documents: Vec<(String, Value)>,
    /// Whether PodTopologySpread uses `defaultingType: List` by default, as in versions that have no system defaults.
    pub spreads_by_list: bool,
}

impl Arguments {
    pub fn has(&self, name: &str) -> bool {
        self.plugins.contains_key(name)
    }

    /// Adds the arguments that a document gives for a plug-in.
    pub fn add(&mut self, name: &str, args: Option<&Reader<'_>>, document: Option<&Value>) {
        self.plugins.insert(name.to_owned(), read(name, args, self.spreads_by_list));
        let Some(mut document) = document.cloned() else { return };
        if let Some(fields) = document.as_object_mut()
            && self.spreads_by_list
            && name == pod_topology_spread::NAME
            && fields.get("defaultingType").is_none_or(Value::is_null)
        {
            fields.insert("defaultingType", "List".into());
        }
        self.documents.push((name.to_owned(), document));
    }

    /// Adds arguments for a plug-in if it has none yet. The arguments must be valid.
    pub fn set_default(&mut self, name: &str, document: Value) {
        if self.has(name) {
            return;
        }
        let faults = Faults::default();
        let reader = Reader::new(&document, "", &faults);
        self.add(name, reader.as_ref(), Some(&document));
    }
}

/// Reads the arguments of a plug-in, and makes the plug-in.
fn read(name: &str, args: Option<&Reader<'_>>, spreads_by_list: bool) -> ConfiguredPlugin {
    fn plugin(plugin: impl Plugin + 'static) -> ConfiguredPlugin {
        ConfiguredPlugin::Plugin(Arc::new(plugin))
    }
    let Some(args) = args else { return ConfiguredPlugin::Foreign };
    for field in ["apiVersion", "kind"] {
        args.text(field);
    }
    match name {
        node_resources_fit::NAME => plugin(fit(args)),
        balanced_allocation::NAME => plugin(balanced(args)),
        node_affinity::NAME => plugin(node_affinity(args)),
        inter_pod_affinity::NAME => plugin(inter_pod_affinity(args)),
        pod_topology_spread::NAME => plugin(spread(args, spreads_by_list)),
        volume_binding::NAME => plugin(volume_binding(args)),
        dynamic_resources::NAME => {
            let filter = args.seconds("filterTimeout");
            if let Some(seconds) = filter.filter(|seconds| *seconds < 0.0) {
                args.invalid("filterTimeout", quoted(seconds), "must be zero or positive");
            }
            let binding = args.seconds("bindingTimeout");
            if let Some(seconds) = binding.filter(|seconds| *seconds < 1.0) {
                args.invalid("bindingTimeout", quoted(seconds), "must be at least 1 second");
            }
            let defaults = dynamic_resources::DynamicResources::default();
            let binding_timeout_seconds = binding.map_or(defaults.binding_timeout_seconds, |seconds| seconds as i64);
            let given = filter.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            let filter_timeout = given.unwrap_or(defaults.filter_timeout);
            plugin(dynamic_resources::DynamicResources { binding_timeout_seconds, filter_timeout })
        }
        default_preemption::NAME => ConfiguredPlugin::Preemption(preemption(args)),
        legacy::NODE_LABEL => plugin(node_label(args)),
        service_affinity::NAME => plugin(ServiceAffinity {
            same: texts(args, "affinityLabels").into(),
            different: texts(args, "antiAffinityLabelsPreference").into(),
        }),
        legacy::LEAST_ALLOCATED | legacy::MOST_ALLOCATED => {
            let resources = resources(args, Some(100)).unwrap_or_else(default_resources);
            let is_least = name == legacy::LEAST_ALLOCATED;
            let strategy = if is_least { Strategy::LeastAllocated } else { Strategy::MostAllocated };
            let name = if is_least { legacy::LEAST_ALLOCATED } else { legacy::MOST_ALLOCATED };
            plugin(legacy::AllocationPlugin { name, strategy, resources })
        }
        legacy::REQUESTED_TO_CAPACITY_RATIO => plugin(legacy::AllocationPlugin {
            name: legacy::REQUESTED_TO_CAPACITY_RATIO,
            strategy: Strategy::RequestedToCapacityRatio(shape(args)),
            resources: resources(args, Some(100)).unwrap_or_else(default_resources),
        }),
        _ => ConfiguredPlugin::Foreign,
    }
}

/// The resources by which nodes are scored, with their weights. `most` is the largest weight allowed; with `None` every
/// weight must be 1, and no resource may be listed twice.
fn resources(args: &Reader<'_>, most: Option<i64>) -> Option<Vec<ResourceWeight>> {
    let mut all: Vec<ResourceWeight> = Vec::new();
    for one in args.list("resources")? {
        let name = one.text("name").unwrap_or("");
        let weight = one.int("weight").filter(|weight| *weight != 0).unwrap_or(1);
        if most.is_none() && all.iter().any(|other| &*other.name == name) {
            one.fault("name", format!("Duplicate value: \"{name}\""));
        }
        match most {
            Some(most) if !(1..=most).contains(&weight) => {
                one.invalid("weight", weight, &format!("resource weight of {name} not in valid range (0, {most}]"));
            }
            None if weight != 1 => one.invalid("weight", weight, "must be 1"),
            _ => {}
        }
        all.push(ResourceWeight { name: name.into(), weight });
    }
    (!all.is_empty()).then_some(all)
}

/// The points of the field `shape`, in ascending order: a utilization from 0 to 100 percent, and the score at that
/// utilization from 0 to 100.
fn shape(args: &Reader<'_>) -> Vec<(i64, i64)> {
    let mut line: Vec<(i64, i64)> = Vec::new();
    for point in args.list("shape").unwrap_or_default() {
        let utilization = point.int_within("utilization", 0, 100).unwrap_or(0);
        if line.last().is_some_and(|(before, _)| *before >= utilization) {
            point.invalid("utilization", utilization, "values must be sorted in increasing order");
        }
        // Documents give scores from 0 to 10, and the plug-in has scores from 0 to 100.
        line.push((utilization, point.int_within("score", 0, 10).unwrap_or(0).saturating_mul(10)));
    }
    if line.is_empty() {
        args.required("shape", "at least one point must be specified");
    }
    line
}

fn fit(args: &Reader<'_>) -> NodeResourcesFit {
    let texts =
        |field: &str| -> Vec<Text> { args.texts(field).unwrap_or_default().into_iter().map(Into::into).collect() };
    let ignored = IgnoredResources { resources: texts("ignoredResources"), groups: texts("ignoredResourceGroups") };
    for (at, name) in ignored.resources.iter().enumerate() {
        check_name(args, &format!("ignoredResources[{at}]"), name);
    }
    for (at, group) in ignored.groups.iter().enumerate() {
        let field = format!("ignoredResourceGroups[{at}]");
        if group.contains('/') {
            args.invalid(&field, format!("\"{group}\""), "resource group name can't contain '/'");
        }
        check_name(args, &field, group);
    }
    let mut fit = NodeResourcesFit { ignored: Arc::new(ignored), ..NodeResourcesFit::default() };
    if let Some(strategy) = args.child("scoringStrategy") {
        fit.resources = resources(&strategy, Some(100)).unwrap_or_else(default_resources);
        let ratio = strategy.child("requestedToCapacityRatio");
        let kind = strategy.text("type").unwrap_or("LeastAllocated");
        fit.strategy = match (kind, &ratio) {
            ("LeastAllocated", None) => Strategy::LeastAllocated,
            ("MostAllocated", None) => Strategy::MostAllocated,
            ("RequestedToCapacityRatio", Some(ratio)) => Strategy::RequestedToCapacityRatio(shape(ratio)),
            ("RequestedToCapacityRatio", None) => {
                let why = "must be specified when type is RequestedToCapacityRatio";
                strategy.required("requestedToCapacityRatio", why);
                Strategy::LeastAllocated
            }
            ("LeastAllocated" | "MostAllocated", Some(ratio)) => {
                ratio.get("shape");
                let why = "Forbidden: must be nil when type is not RequestedToCapacityRatio";
                strategy.fault("requestedToCapacityRatio", why);
                Strategy::LeastAllocated
            }
            _ => {
                let known = ["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"];
                unsupported(&strategy, "type", kind, &known);
                Strategy::LeastAllocated
            }
        };
    }
    fit
}

/// Whether a name is a valid name of a resource or label. If it is not, the reason is reported as an error of `field`.
pub fn check_name(reader: &Reader<'_>, field: &str, name: &str) -> bool {
    let faults = names::qualified_name(name);
    faults.iter().for_each(|why| reader.invalid(field, Value::from(name), why));
    faults.is_empty()
}

fn balanced(args: &Reader<'_>) -> BalancedAllocation {
    BalancedAllocation { resources: resources(args, None).unwrap_or_else(default_resources) }
}

fn node_affinity(args: &Reader<'_>) -> NodeAffinity {
    let (mut pool, mut affinity) = (StringPool::default(), NodeAffinity::default());
    let Some(added) = args.child("addedAffinity") else { return affinity };
    let (must, may) =
        ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution");
    if let Some(required) = added.child(must) {
        let terms = required.list("nodeSelectorTerms").unwrap_or_default();
        if terms.is_empty() {
            required.required("nodeSelectorTerms", "must have at least one node selector term");
        }
        terms.iter().for_each(check_node_term);
        affinity.required = added.get(must).and_then(|value| NodeSelector::decode(&mut pool, value)).map(Arc::new);
    }
    for preferred in added.list(may).unwrap_or_default() {
        let weight = preferred.int("weight").unwrap_or(0);
        if !(1..=100).contains(&weight) {
            preferred.invalid("weight", weight, "must be in the range 1-100");
        }
        match preferred.child("preference") {
            Some(term) => check_node_term(&term),
            None => preferred.required("preference", ""),
        }
    }
    if let Some(preferred) = added.get(may) {
        affinity.preferred = PreferredNodeTerm::decode_all(&mut pool, preferred);
    }
    affinity
}

/// Reports the faults of a node selector term.
fn check_node_term(term: &Reader<'_>) {
    term.list("matchExpressions").unwrap_or_default().iter().for_each(check_label);
    for one in term.list("matchFields").unwrap_or_default() {
        let (key, operator) = (one.text("key").unwrap_or(""), one.text("operator").unwrap_or(""));
        let values = one.texts("values").unwrap_or_default();
        if key != "metadata.name" {
            one.invalid("key", Value::from(key), "not a valid field selector key");
        }
        match operator {
            "In" | "NotIn" if values.len() == 1 => {}
            "In" | "NotIn" => one.invalid("values", value_text(&one, "values"), "must have one element"),
            other => unsupported(&one, "operator", other, &["In", "NotIn"]),
        }
    }
}

/// Reports the faults of a label requirement, by the rules of all selectors.
fn check_label(one: &Reader<'_>) {
    let (key, name) = (one.text("key").unwrap_or(""), one.text("operator").unwrap_or(""));
    let values: Vec<Text> = one.texts("values").unwrap_or_default().into_iter().map(Into::into).collect();
    let operator = Operator::named(name);
    let miscounted = match operator {
        Operator::Unknown => {
            return unsupported(one, "operator", name, &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]);
        }
        Operator::In | Operator::NotIn => {
            values.is_empty().then_some("for 'in', 'notin' operators, values set can't be empty")
        }
        Operator::Exists | Operator::DoesNotExist => {
            (!values.is_empty()).then_some("values set must be empty for exists and does not exist")
        }
        Operator::Gt | Operator::Lt => {
            (values.len() != 1).then_some("for 'Gt', 'Lt' operators, exactly one value is required")
        }
    };
    let why = names::qualified_name(key);
    if !why.is_empty() {
        one.invalid("key", Value::from(key), &why.join("; "));
    }
    if let Some(why) = miscounted {
        one.invalid("values", value_text(one, "values"), why);
    }
    for (place, why) in (Requirement { key: key.into(), operator, values }).faults() {
        one.fault(&place, why);
    }
}

/// The value of a field as the document gives it, for error messages.
fn value_text(reader: &Reader<'_>, field: &str) -> String {
    reader.get(field).map_or_else(|| "null".to_owned(), ToString::to_string)
}

fn unsupported(reader: &Reader<'_>, field: &str, value: &str, known: &[&str]) {
    let known: Vec<String> = known.iter().map(|one| format!("\"{one}\"")).collect();
    reader.fault(field, format!("Unsupported value: \"{value}\": supported values: {}", known.join(", ")));
}

fn inter_pod_affinity(args: &Reader<'_>) -> InterPodAffinity {
    InterPodAffinity {
        hard_weight: args.int_within("hardPodAffinityWeight", 0, 100).unwrap_or(1),
        own_preferences_only: args.bool("ignorePreferredTermsOfExistingPods").unwrap_or(false),
    }
}

fn spread(args: &Reader<'_>, by_list: bool) -> PodTopologySpread {
    let system = match args.text("defaultingType") {
        None => !by_list,
        Some("System") => true,
        Some("List") => false,
        Some(other) => {
            unsupported(args, "defaultingType", other, &["System", "List"]);
            true
        }
    };
    let constraints = args.list("defaultConstraints").unwrap_or_default();
    if system {
        if !constraints.is_empty() {
            args.invalid("defaultingType", "\"System\"", "when .defaultConstraints are not empty");
            constraints.into_iter().for_each(|one| drop(one.lenient()));
        }
        return PodTopologySpread::default();
    }
    let mut defaults: Vec<SpreadConstraint> = Vec::new();
    for one in constraints {
        let constraint = constraint(&one);
        let same =
            |other: &SpreadConstraint| (&other.topology_key, other.hard) == (&constraint.topology_key, constraint.hard);
        if defaults.iter().any(same) {
            let key = &constraint.topology_key;
            one.fault("", format!("Duplicate value: \"{{{key}, {}}}\"", one.text("whenUnsatisfiable").unwrap_or("")));
        }
        defaults.push(constraint);
    }
    PodTopologySpread { defaults, system }
}

fn constraint(one: &Reader<'_>) -> SpreadConstraint {
    let skew = one.int("maxSkew").unwrap_or(0);
    if skew <= 0 {
        one.invalid("maxSkew", skew, "not in valid range (0, inf)");
    }
    let key = one.text("topologyKey").unwrap_or("");
    if key.is_empty() {
        one.required("topologyKey", "can not be empty");
    } else {
        check_name(one, "topologyKey", key);
    }
    let action = one.text("whenUnsatisfiable").unwrap_or("");
    if action.is_empty() {
        one.required("whenUnsatisfiable", "can not be empty");
    } else if !matches!(action, "DoNotSchedule" | "ScheduleAnyway") {
        unsupported(one, "whenUnsatisfiable", action, &["DoNotSchedule", "ScheduleAnyway"]);
    }
    if one.get("labelSelector").is_some() {
        let why = "constraint must not define a selector, as they deduced for each pod";
        one.fault("labelSelector", format!("Forbidden: {why}"));
    }
    let mut spread = default_constraint(key.into(), skew, action == "DoNotSchedule");
    spread.min_domains = one.int_within("minDomains", 1, i64::MAX).unwrap_or(1);
    let honors = |field: &str, defaults: bool| match one.text(field) {
        None => defaults,
        Some("Honor") => true,
        Some("Ignore") => false,
        Some(other) => {
            unsupported(one, field, other, &["Honor", "Ignore"]);
            defaults
        }
    };
    spread.honor_affinity = honors("nodeAffinityPolicy", true);
    spread.honor_taints = honors("nodeTaintsPolicy", false);
    spread
}

fn volume_binding(args: &Reader<'_>) -> VolumeBinding {
    if args.get("shape").is_some() {
        let why = "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring";
        args.fault("shape", format!("Invalid value: {why}"));
    }
    let why = "invalid BindTimeoutSeconds, should not be a negative value";
    VolumeBinding { bind_timeout_seconds: checked_int(args, "bindTimeoutSeconds", why, |one| one >= 0).unwrap_or(600) }
}

fn preemption(args: &Reader<'_>) -> DefaultPreemption {
    let percentage = args.int_within("minCandidateNodesPercentage", 0, 100);
    let absolute = checked_int(args, "minCandidateNodesAbsolute", "not in valid range [0, inf)", |one| one >= 0);
    if (percentage, absolute) == (Some(0), Some(0)) {
        let (one, other) = ("minCandidateNodesPercentage", "minCandidateNodesAbsolute");
        for (field, other) in [(one, other), (other, one)] {
            args.invalid(field, 0, &format!("cannot be zero at the same time as {other}"));
        }
    }
    let defaults = DefaultPreemption::default();
    DefaultPreemption {
        min_candidate_nodes_percentage: percentage.unwrap_or(defaults.min_candidate_nodes_percentage),
        min_candidate_nodes_absolute: absolute.unwrap_or(defaults.min_candidate_nodes_absolute),
    }
}

fn node_label(args: &Reader<'_>) -> legacy::NodeLabel {
    legacy::NodeLabel {
        present: texts(args, "presentLabels"),
        absent: texts(args, "absentLabels"),
        present_preferred: texts(args, "presentLabelsPreference"),
        absent_preferred: texts(args, "absentLabelsPreference"),
    }
}

fn texts(args: &Reader<'_>, field: &str) -> Vec<Text> {
    args.texts(field).unwrap_or_default().into_iter().map(Into::into).collect()
}
