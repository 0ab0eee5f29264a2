//! Profiles: determines the plug-ins that are enabled at each point, from the defaults and a document.

use super::PolicySource;
use super::arguments::Arguments;
use super::build::{PluginList, PointSets, build};
use super::global_options::GlobalOptions;
use super::policy;
use super::reader::Reader;
use super::version::Version;
use crate::object::Text;
use crate::object::pod::DEFAULT_SCHEDULER;
use crate::plugin::{ExtensionPoint, POINTS};
use crate::plugins::{self, PLUGINS};
use crate::profile::{MULTI_POINT, PluginSet, Profile, default_plugins};
use std::collections::{BTreeMap, BTreeSet};

/// Reads the profiles, and the place of the Policy that replaces the only profile.
pub fn read_all(
    reader: &Reader<'_>,
    version: Version,
    global_options: &GlobalOptions,
) -> (Vec<Profile>, Option<PolicySource>) {
    if version == Version::V1Alpha1 {
        let policy = policy::source(reader);
        return (vec![read(reader, version, true, global_options)], policy);
    }
    let list = reader.list("profiles").unwrap_or_default();
    let profiles: Vec<_> = list.iter().map(|one| read(one, version, list.len() == 1, global_options)).collect();
    check_profile_names(reader, &profiles);
    if profiles.is_empty() { (vec![default_profile(version, global_options)], None) } else { (profiles, None) }
}

/// The profile that applies if a document lists no profile.
fn default_profile(version: Version, global_options: &GlobalOptions) -> Profile {
    let mut arguments = Arguments::default();
    global_options.add_defaults(&mut arguments);
    let points = points_of(None, version, &|point| default_list(point, version));
    global_options.finish(build(points, arguments, version))
}

/// The profile of an algorithm provider. `lists` replaces the default plug-ins at each point.
pub fn from_provider(
    lists: &BTreeMap<ExtensionPoint, PluginList>,
    mut arguments: Arguments,
    global_options: &GlobalOptions,
) -> Profile {
    global_options.add_defaults(&mut arguments);
    let defaults = |point: ExtensionPoint| lists.get(&point).cloned().unwrap_or_default();
    global_options.finish(build(points_of(None, Version::V1Alpha1, &defaults), arguments, Version::V1Alpha1))
}

fn default_list(point: ExtensionPoint, version: Version) -> PluginList {
    let enabled = PLUGINS.iter().filter(|row| row.by_default && row.points.contains(&point));
    let weighted = |row: &plugins::PluginEntry| {
        (version.default_plugin(row.name, point).to_owned(), version.default_weight(row.name, row.weight))
    };
    let mut list: PluginList = enabled.map(weighted).collect();
    if point == ExtensionPoint::Score {
        list.extend(version.former_defaults().iter().map(|(name, weight)| ((*name).to_owned(), *weight)));
    }
    list
}

fn read(reader: &Reader<'_>, version: Version, only: bool, global_options: &GlobalOptions) -> Profile {
    let name = reader.text("schedulerName").or(only.then_some(DEFAULT_SCHEDULER)).unwrap_or("");
    if name.is_empty() {
        reader.required("schedulerName", "");
    }
    let mut arguments = read_arguments(reader, version);
    let sets = reader.child("plugins");
    let given = [("Plugins", sets.is_some()), ("PluginConfig", !arguments.documents.is_empty())];
    global_options.add_defaults(&mut arguments);
    let from_provider = if version == Version::V1Alpha1 { policy::provider(reader) } else { None };
    let defaults = |point: ExtensionPoint| match &from_provider {
        Some(lists) => lists.get(&point).cloned().unwrap_or_default(),
        None => default_list(point, version),
    };
    let mut profile = global_options.finish(build(points_of(sets.as_ref(), version, &defaults), arguments, version));
    profile.document.named = given.into_iter().filter(|(_, given)| *given).map(|(what, _)| what).collect();
    profile.scheduler_name = name.into();
    if version > Version::V1Beta2 {
        profile.percentage_of_nodes_to_score = super::percentage_of_nodes(reader);
    }
    check_points(reader, &profile, name);
    profile
}

/// Reports a plug-in that only earlier versions had. The message names version `v1`, as Kubernetes' message does,
/// because Kubernetes looks the version up among the versions of the core group.
fn report_removed(one: &Reader<'_>, name: &str) {
    let why =
        "was invalid in version \"v1\" (KubeSchedulerConfiguration is version \"kubescheduler.config.k8s.io/v1\")";
    one.invalid("", format!("\"{name}\""), why);
}

fn read_arguments(reader: &Reader<'_>, version: Version) -> Arguments {
    let mut arguments = Arguments { spreads_by_list: !version.has_spread_defaults(), ..Arguments::default() };
    for one in &reader.list("pluginConfig").unwrap_or_default() {
        let name = one.text("name").unwrap_or("").to_owned();
        let known = plugins::find(&name).is_some();
        let args = if known { one.child("args") } else { one.child("args").map(Reader::lenient) };
        if arguments.has(&name) {
            one.fault("", format!("Duplicate value: \"{name}\""));
        }
        if name.is_empty() {
            one.required("name", "");
        }
        if version.is_removed(&name) {
            report_removed(one, &name);
        }
        let kind = args.as_ref().and_then(|args| args.text("kind"));
        if known && kind.is_some_and(|kind| kind != format!("{name}Args")) {
            one.invalid("args.kind", kind.unwrap_or(""), &format!("must be {name}Args"));
        }
        arguments.add(&name, args.as_ref(), one.get("args"));
    }
    arguments
}

/// The plug-ins that are enabled at each point, from the defaults and a document's sets.
fn points_of(
    sets: Option<&Reader<'_>>,
    version: Version,
    defaults: &dyn Fn(ExtensionPoint) -> PluginList,
) -> PointSets {
    let mut documented = BTreeMap::new();
    let everywhere = version.has_multi_point().then(|| {
        let (enabled, disabled) = read_set(sets, MULTI_POINT, EVERYWHERE, version);
        let merged = merge(default_plugins(), &enabled, &disabled);
        documented.insert(MULTI_POINT, PluginSet { enabled: merged.clone(), disabled: disabled.into_iter().collect() });
        merged
    });
    if everywhere.is_none() {
        // A version without `multiPoint` lists all plug-ins at each point, so the document of version v1 must disable
        // all defaults.
        documented.insert(MULTI_POINT, PluginSet { enabled: Vec::new(), disabled: vec!["*".into()] });
    }
    if let (Version::V1Alpha1 | Version::V1Alpha2, Some(sets)) = (version, sets) {
        // Version v1alpha1 and v1alpha2 had separate plug-ins for `unreserve`; today one plug-in reserves and
        // unreserves. The set is read only to report its errors.
        read_set(Some(sets), "unreserve", "UnreservePlugin", version);
    }
    let mut points = BTreeMap::new();
    for (point, field, kind) in POINTS {
        let own = version.set_name(point, field);
        let (enabled, disabled) = own.map_or_else(Default::default, |own| read_set(sets, own, kind, version));
        for (name, _) in &enabled {
            if let Some(row) = plugins::find(name)
                && !row.points.contains(&point)
                && let Some(sets) = sets
            {
                sets.fault(own.unwrap_or(field), format!("plugin \"{name}\" does not extend {kind} plugin"));
            }
        }
        let list = match &everywhere {
            Some(everywhere) => expand(point, everywhere, &enabled, &disabled),
            None => merge(defaults(point), &enabled, &disabled),
        };
        let set = match &everywhere {
            Some(_) => PluginSet { enabled, disabled: disabled.into_iter().collect() },
            // In the versions without `multiPoint` a weight of 0 means 1.
            None => PluginSet {
                enabled: list.iter().map(|(name, weight)| (name.clone(), score(point, *weight))).collect(),
                disabled: Vec::new(),
            },
        };
        documented.insert(field, set);
        points.insert(point, list);
    }
    (points, documented)
}

/// The weight that a plug-in has in a version without `multiPoint`.
fn score(point: ExtensionPoint, weight: i64) -> i64 {
    if point == ExtensionPoint::Score { weight.max(1) } else { weight }
}

/// The kind of plug-in that messages about the set `multiPoint` name: Kubernetes looks a plug-in up at one point after
/// another, and its message names the first of these points.
const EVERYWHERE: &str = "PreFilterPlugin";

/// The plug-ins that a set enables, and the names of the plug-ins that it disables.
fn read_set(sets: Option<&Reader<'_>>, field: &str, kind: &str, version: Version) -> (PluginList, BTreeSet<String>) {
    let Some(set) = sets.and_then(|sets| sets.child(field)) else { return Default::default() };
    let (mut enabled, mut given): (PluginList, BTreeSet<&str>) = (Vec::new(), BTreeSet::new());
    for one in set.list("enabled").unwrap_or_default() {
        let written = one.text("name").unwrap_or("");
        let weight = one.int_within("weight", 0, i64::MAX / 100).unwrap_or(0);
        let name = version.current_name(written);
        if version.is_removed(written) && field != MULTI_POINT {
            report_removed(&one, written);
        } else if plugins::find(name).is_none() {
            one.fault("name", format!("{kind} \"{written}\" does not exist"));
        } else if !given.insert(written) {
            one.fault("name", format!("plugin \"{written}\" already registered as \"{kind}\""));
        } else if !enabled.iter().any(|(own, _)| own == name) {
            // Several plug-ins of an earlier version may be parts of one plug-in today. The first of them in the list
            // decides its weight.
            enabled.push((name.to_owned(), weight));
        }
    }
    let disabled = set.list("disabled").unwrap_or_default();
    let disabled = disabled.iter().filter_map(|one| {
        one.int("weight");
        one.text("name")
    });
    // A former plug-in that is only a part of a plug-in today is disabled without effect: the other parts must stay
    // enabled.
    let disabled =
        disabled.filter(|name| !version.is_merged_plugin(name)).map(|name| version.current_name(name).to_owned());
    (enabled, disabled.collect())
}

/// The default plug-ins without the disabled plug-ins. If a default plug-in is enabled explicitly, it keeps its
/// position among the defaults; any other enabled plug-in is appended.
fn merge(defaults: PluginList, enabled: &PluginList, disabled: &BTreeSet<String>) -> PluginList {
    let all = disabled.contains("*");
    let mut merged: PluginList = defaults.into_iter().filter(|(name, _)| !all && !disabled.contains(name)).collect();
    for (name, weight) in enabled {
        match merged.iter_mut().find(|(own, _)| own == name) {
            Some((_, own)) => *own = *weight,
            None => merged.push((name.clone(), *weight)),
        }
    }
    merged
}

/// The plug-ins that a point's own set and the set `multiPoint` enable at the point.
fn expand(
    point: ExtensionPoint,
    everywhere: &PluginList,
    enabled: &PluginList,
    disabled: &BTreeSet<String>,
) -> PluginList {
    let extends = |name: &str| plugins::find(name).is_some_and(|row| row.points.contains(&point));
    let from_everywhere: Vec<_> = everywhere.iter().filter(|(name, _)| extends(name)).collect();
    let own = |name: &String| enabled.iter().any(|(own, _)| own == name);
    let allowed = |name: &String| !disabled.contains("*") && !disabled.contains(name);
    // A plug-in that the point's own set both disables and enables loses the position that `multiPoint` gives it.
    let overridden = |name: &String| allowed(name) && from_everywhere.iter().any(|(own, _)| own == name);
    let first = enabled.iter().filter(|(name, _)| overridden(name));
    let then = from_everywhere.iter().copied().filter(|(name, _)| !own(name) && allowed(name));
    let last = enabled.iter().filter(|(name, _)| !overridden(name));
    first.chain(then).chain(last).cloned().collect()
}

fn check_points(reader: &Reader<'_>, profile: &Profile, name: &str) {
    let sorts = profile.at(ExtensionPoint::QueueSort).len();
    if sorts != 1 {
        let message =
            format!("only one queue sort plugin required for profile with scheduler name \"{name}\", but got {sorts}");
        reader.fault("plugins.queueSort", message);
    }
    if profile.at(ExtensionPoint::Bind).is_empty() {
        let message = format!("at least one bind plugin is needed for profile with scheduler name \"{name}\"");
        reader.fault("plugins.bind", message);
    }
    let sum = profile
        .at(ExtensionPoint::Score)
        .iter()
        .try_fold(0i64, |sum, one| sum.checked_add(one.weight.checked_mul(100)?));
    if sum.is_none() {
        reader.fault("plugins.score", "total score of Score plugins could overflow");
    }
}

fn check_profile_names(reader: &Reader<'_>, profiles: &[Profile]) {
    let mut names: BTreeSet<&Text> = BTreeSet::new();
    for (at, profile) in profiles.iter().enumerate() {
        let name = &profile.scheduler_name;
        if !names.insert(name) && !name.is_empty() {
            reader.fault(&format!("profiles[{at}].schedulerName"), format!("Duplicate value: \"{name}\""));
        }
    }
}
