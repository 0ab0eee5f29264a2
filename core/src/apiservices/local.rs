//! The APIServices of the group versions that this server itself serves: built-in group versions, and group versions of
//! CustomResourceDefinitions.
//!
//! When the server starts, all APIServices are compared with the group versions that the server serves. Later each
//! event affects only the group versions that it changes, so that the cost of a definition does not depend on the
//! number of other definitions.

use super::{GROUP, GroupVersion, kind, write};
use crate::kinds::{self, known, registry};
use crate::namespace::Step;
use crate::object::meta::Document;
use crate::request::{Target, Verb};
use crate::state::State;
use holdfast_value::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The label of an APIService that the server manages. With the value `onstart`, the server corrects the APIService
/// only when the server starts; with `true`, always.
pub const LABEL: &str = "kube-aggregator.kubernetes.io/automanaged";
const ON_START: &str = "onstart";
const ALWAYS: &str = "true";
/// The group priority and the version priority of custom resource groups. These priorities sort the custom groups
/// behind the built-in groups.
const CUSTOM_PRIORITIES: (i64, i64) = (1000, 100);
/// The group priority and the version priority of the aggregator's own group, which is always first and has no
/// APIService.
pub const OWN_PRIORITIES: (i64, i64) = (20_000, 10);

/// The group versions that CustomResourceDefinitions serve. Events keep this index up to date.
#[derive(Debug, Default)]
pub struct Custom {
    /// The group versions that each definition serves.
    served: BTreeMap<String, BTreeSet<GroupVersion>>,
    /// The number of definitions that serve each group version.
    serving: BTreeMap<GroupVersion, usize>,
}

impl Custom {
    /// Updates the index for the newest state of a definition; `None` if the definition was deleted. Returns the group
    /// versions for which to plan.
    pub fn note(&mut self, name: &str, definition: Option<&Value>) -> Vec<GroupVersion> {
        let now = definition.map(served_by).unwrap_or_default();
        let before = match now.is_empty() {
            true => self.served.remove(name),
            false => self.served.insert(name.to_owned(), now.clone()),
        };
        let before = before.unwrap_or_default();
        for gone in before.difference(&now) {
            if let Some(count) = self.serving.get_mut(gone) {
                *count -= 1;
                if *count == 0 {
                    self.serving.remove(gone);
                }
            }
        }
        for new in now.difference(&before) {
            *self.serving.entry(new.clone()).or_default() += 1;
        }
        before.symmetric_difference(&now).cloned().collect()
    }

    pub fn serves(&self, served: &GroupVersion) -> bool {
        self.serving.contains_key(served)
    }
}

/// The group versions that a CustomResourceDefinition serves.
fn served_by(definition: &Value) -> BTreeSet<GroupVersion> {
    let group = definition.pointer("/spec/group").and_then(Value::as_str).unwrap_or_default();
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
    let served = versions.into_iter().flatten().filter(|version| version["served"] == true);
    served.filter_map(|version| version["name"].as_str()).map(|name| GroupVersion::new(group, name)).collect()
}

/// The group priority and the version priority of a built-in group version; `None` for other group versions.
pub fn built_in(served: &GroupVersion) -> Option<(i64, i64)> {
    kinds::priorities(&served.group, &served.version)
}

/// The group priority and the version priority of a group version, unless its APIService sets other priorities.
pub fn priorities(served: &GroupVersion) -> (i64, i64) {
    if served.group == GROUP {
        return OWN_PRIORITIES;
    }
    built_in(served).unwrap_or(CUSTOM_PRIORITIES)
}

/// The built-in group versions that have an APIService.
pub fn built_in_versions() -> impl Iterator<Item = GroupVersion> {
    let all = registry().groups().into_iter().flat_map(|group| {
        let name = group.group;
        group.versions.into_iter().map(move |version| GroupVersion::new(name.as_str(), version.as_str()))
    });
    all.filter(|served| built_in(served).is_some())
}

/// Whether discovery offers any resource of a group version.
fn is_offered(state: &State, served: &GroupVersion) -> bool {
    state.registry.group(&served.group).is_some_and(|group| group.versions.contains(&served.version))
}

/// The steps for all group versions that the server serves or served before.
pub fn plan_all(state: &State, custom: &Custom) -> Vec<Step> {
    all(state, custom).iter().filter_map(|served| plan(state, custom, served, true)).collect()
}

/// All group versions that the server serves, or that have an APIService.
pub fn all(state: &State, custom: &Custom) -> Vec<GroupVersion> {
    let mut names: BTreeSet<GroupVersion> = built_in_versions().filter(|served| is_offered(state, served)).collect();
    names.extend(custom.serving.keys().cloned());
    if let Some((kind, _)) = kind(state) {
        names.extend(state.scan(kind, "", None).filter_map(|(name, _)| GroupVersion::of_name(name)));
    }
    names.into_iter().collect()
}

/// The step for one group version, if any. Changes to a built-in APIService are undone only when the server starts
/// (`starting`). A deleted APIService is created again at once.
pub fn plan(state: &State, custom: &Custom, served: &GroupVersion, starting: bool) -> Option<Step> {
    let (kind, version) = kind(state)?;
    let name = served.name();
    let wanted = wanted(custom, served).filter(|_| built_in(served).is_none() || is_offered(state, served));
    let target = |name: Option<String>| Target { kind, version, namespace: None, name, subresource: None };
    let Some(entry) = state.get(kind, &name) else {
        return wanted.map(|document| write(target(None), Verb::Create, Some(&document)));
    };
    let Value::Object(mut current) = entry.document() else { return None };
    let kept = current.get("metadata").and_then(|meta| meta["labels"][LABEL].as_str()).unwrap_or_default();
    if kept != ALWAYS && !(kept == ON_START && starting) {
        return None;
    }
    let Some(mut wanted) = wanted else {
        return Some(write(target(Some(name)), Verb::Delete, None));
    };
    if current.get("spec") == wanted.get("spec") {
        return None;
    }
    current.insert("spec", wanted.remove("spec")?);
    Some(write(target(Some(name)), Verb::Update, Some(&current)))
}

fn wanted(custom: &Custom, served: &GroupVersion) -> Option<Document> {
    let (kept, (group, version)) = match built_in(served) {
        Some(priorities) => (ON_START, priorities),
        None if custom.serves(served) => (ALWAYS, CUSTOM_PRIORITIES),
        None => return None,
    };
    let mut spec = json!({
        "version": served.version,
        "groupPriorityMinimum": group,
        "versionPriority": version,
    });
    // The core group has an empty name, which is stored as an absent field.
    if !served.group.is_empty() {
        spec["group"] = served.group.as_str().into();
    }
    let document = json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": known::API_SERVICE.kind,
        "metadata": {"name": served.name(), "labels": {LABEL: kept}},
        "spec": spec,
    });
    match document {
        Value::Object(document) => Some(document),
        _ => None,
    }
}
