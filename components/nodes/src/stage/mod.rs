//! Stages in KWOK's form: the objects that each Stage selects, the time at which it is played, and its effects.

mod select;
#[cfg(test)]
mod tests;

use crate::behaviour;
use crate::budget::{Budget, Spent};
use crate::jq::Query;
use crate::template::{RenderFailure, Surroundings, Template};
use holdfast_core::kinds::registry;
use holdfast_value::{Map, Value, json};
use holdfast_world::{Resource, Text, Time};
use select::StageSelector;
use serde::Deserialize;
use std::borrow::Cow;

/// The API group of the kind Stage.
pub const GROUP: &str = "kwok.x-k8s.io";
/// The name of the CustomResourceDefinition of Stages.
pub const DEFINITION: &str = "stages.kwok.x-k8s.io";
pub const VERSION: &str = "v1alpha1";

/// A parsed Stage.
#[derive(Debug)]
pub struct Stage {
    pub name: String,
    /// The UID of the Stage object. `version` is its resource version.
    pub uid: Text,
    pub version: Text,
    pub about: About,
    selector: StageSelector,
    weight: i64,
    weight_from: Option<Query>,
    delay: Option<Delay>,
    steps: Vec<StageStep>,
}

/// The kind of the objects that a Stage selects, in the version in which the objects are read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct About {
    pub api_version: Text,
    pub kind: Text,
}

impl About {
    pub fn new(api_version: &str, kind: &str) -> About {
        About { api_version: api_version.into(), kind: kind.into() }
    }

    /// The API group and the version of the kind. The name of the core group is the empty text.
    pub fn group_version(&self) -> (&str, &str) {
        self.api_version.split_once('/').unwrap_or(("", &self.api_version))
    }

    pub fn is_of(&self, resource: &Resource) -> bool {
        *self.kind == *resource.kind() && self.group_version().0 == resource.group()
    }

    /// Whether the kind is built in; all other kinds are custom.
    fn is_built_in(&self) -> bool {
        let (group, version) = self.group_version();
        registry().find_kind(group, version, &self.kind).is_some()
    }
}

#[derive(Debug)]
struct Delay {
    duration: Length,
    jitter: Option<Length>,
}

#[derive(Debug)]
struct Length {
    millis: Option<i64>,
    from: Option<Query>,
}

/// One step of a Stage. A Stage carries out its steps in order.
#[derive(Debug)]
enum StageStep {
    Event {
        warning: bool,
        reason: String,
        message: String,
    },
    Finalizers {
        add: Vec<String>,
        remove: Vec<String>,
        empty: bool,
    },
    Delete,
    Patch {
        subresource: &'static str,
        root: Option<String>,
        form: PatchType,
        template: Template,
    },
    /// Applies another object. The template renders the whole content of this object.
    Apply(Template),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchType {
    Strategic,
    Merge,
    Json,
}

/// An effect of a Stage on an object, as data.
#[derive(Debug, PartialEq)]
pub enum Deed {
    Event {
        warning: bool,
        reason: String,
        message: String,
    },
    /// Replaces the finalizers of the object by these finalizers.
    Finalizers(Vec<String>),
    Delete,
    Patch {
        subresource: &'static str,
        form: PatchType,
        patch: Value,
    },
    Apply(Value),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    resource_ref: ResourceRef,
    selector: Option<select::Spec>,
    #[serde(default)]
    weight: i64,
    weight_from: Option<From>,
    delay: Option<DelaySpec>,
    next: Option<NextSpec>,
    steps: Option<Vec<NextSpec>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceRef {
    #[serde(default = "core_group")]
    api_group: String,
    kind: String,
}

fn core_group() -> String {
    "v1".into()
}

/// A query in the field `expressionFrom`, or in the field `jq.expression` of newer releases of KWOK.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct From {
    expression_from: Option<String>,
    jq: Option<JqExpression>,
}

#[derive(Deserialize)]
struct JqExpression {
    expression: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DelaySpec {
    duration_milliseconds: Option<i64>,
    duration_from: Option<From>,
    jitter_duration_milliseconds: Option<i64>,
    jitter_duration_from: Option<From>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NextSpec {
    event: Option<EventSpec>,
    finalizers: Option<FinalizersSpec>,
    #[serde(default)]
    delete: bool,
    status_template: Option<String>,
    status_subresource: Option<String>,
    status_patch_as: Option<Value>,
    #[serde(default)]
    patches: Vec<PatchSpec>,
    /// A single patch, which newer releases of KWOK have in their steps.
    patch: Option<PatchSpec>,
    apply: Option<ApplySpec>,
    /// Fields of newer releases of KWOK that Holdfast does not know.
    #[serde(flatten)]
    unknown: Map,
}

#[derive(Deserialize)]
struct ApplySpec {
    template: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct EventSpec {
    #[serde(rename = "type")]
    kind: String,
    reason: String,
    message: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct FinalizersSpec {
    add: Vec<Item>,
    remove: Vec<Item>,
    empty: bool,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Item {
    value: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PatchSpec {
    subresource: String,
    root: String,
    template: String,
    #[serde(rename = "type")]
    form: String,
    impersonation: Option<Value>,
}

impl Stage {
    /// Parses a Stage. The error says which part of the Stage is not supported.
    pub fn parse(stage: &Value) -> Result<Stage, String> {
        let spec: Spec = holdfast_value::from_value(stage["spec"].clone()).map_err(|error| format!("spec: {error}"))?;
        let ResourceRef { api_group, kind } = spec.resource_ref;
        let about = About::new(&api_group, &kind);
        let (_, version) = about.group_version();
        if !version.starts_with('v') || version.contains('/') {
            return Err(format!(
                "spec.resourceRef.apiGroup: {api_group:?} is neither a version nor a group with a version"
            ));
        }
        if kind.is_empty() {
            return Err("spec.resourceRef.kind: is empty".into());
        }
        let selector = match spec.selector {
            Some(selector) => StageSelector::parse(selector).map_err(|why| format!("spec.selector: {why}"))?,
            None => StageSelector::Nothing,
        };
        let delay = spec.delay.map(Delay::parse).transpose().map_err(|why| format!("spec.delay: {why}"))?;
        let weight_from = query(spec.weight_from).map_err(|why| format!("spec.weightFrom: {why}"))?;
        let mut steps = Vec::new();
        let nexts = spec.next.into_iter().map(|next| ("next", next));
        for (place, next) in nexts.chain(spec.steps.into_iter().flatten().map(|step| ("steps", step))) {
            steps.extend(parse_next(next, &about).map_err(|why| format!("spec.{place}: {why}"))?);
        }
        let said = |field: &str| stage["metadata"][field].as_str().unwrap_or_default();
        let (name, uid, version) = (said("name").to_owned(), said("uid").into(), said("resourceVersion").into());
        Ok(Stage { name, uid, version, about, selector, weight: spec.weight, weight_from, delay, steps })
    }

    pub fn matches(&self, object: &Value, budget: &Budget) -> Result<bool, Spent> {
        self.selector.matches(object, budget)
    }

    /// Whether the Stage can match the object now or later, according to the parts of the object that only users
    /// change.
    pub fn may_match(&self, object: &Value, budget: &Budget) -> Result<bool, Spent> {
        self.selector.may_match(object, budget)
    }

    /// Whether the Stage's label and annotation selectors match the object.
    pub fn names(&self, object: &Value) -> bool {
        self.selector.names(object)
    }

    /// The weight of the Stage for an object; `None` if the Stage takes the weight from a value of the object that is
    /// not a number.
    pub fn weight(&self, object: &Value, budget: &Budget) -> Option<i64> {
        let Some(query) = &self.weight_from else { return Some(self.weight) };
        match first(query, object, budget).as_deref() {
            None | Some(Value::Null) => Some(self.weight),
            Some(Value::Number(number)) => number.as_i64(),
            Some(Value::String(text)) => text.parse().ok(),
            Some(_) => None,
        }
    }

    /// The time at which the Stage is played if it begins to match the object at `now`.
    pub fn due(&self, object: &Value, now: Time, chance: u64, budget: &Budget) -> Time {
        let Some(delay) = &self.delay else { return now };
        let Some(millis) = delay.duration.of(object, now, budget) else { return now };
        let Some(jitter) = delay.jitter.as_ref().and_then(|jitter| jitter.of(object, now, budget)) else {
            return now.plus_millis(millis.max(0));
        };
        let millis = match jitter.checked_sub(millis).and_then(|span| u64::try_from(span).ok()) {
            None | Some(0) => jitter,
            Some(span) => millis.saturating_add(i64::try_from(chance % span).unwrap_or(0)),
        };
        now.plus_millis(millis.max(0))
    }

    /// The effects that the Stage has on an object.
    pub fn play(&self, object: &Value, surroundings: &dyn Surroundings) -> Result<Vec<Deed>, RenderFailure> {
        let deletes = self.steps.iter().any(|step| matches!(step, StageStep::Delete));
        let mut deeds = Vec::new();
        for step in &self.steps {
            match step {
                StageStep::Event { warning, reason, message } => {
                    deeds.push(Deed::Event { warning: *warning, reason: reason.clone(), message: message.clone() });
                }
                StageStep::Finalizers { add, remove, empty } => {
                    deeds.extend(finalizers(object, add, remove, *empty).map(Deed::Finalizers));
                }
                StageStep::Delete => deeds.push(Deed::Delete),
                // The Stage deletes the object, so the object needs no new status.
                StageStep::Patch { .. } if deletes => {}
                StageStep::Apply(template) => match template.document(object, surroundings)? {
                    Value::Null => {}
                    applied => deeds.push(Deed::Apply(applied)),
                },
                StageStep::Patch { subresource, root, form, template } => {
                    let patch = template.document(object, surroundings)?;
                    if patch.is_null() {
                        continue;
                    }
                    let patch = match root {
                        Some(root) => Value::Object(Map::from_iter([(root.clone(), patch)])),
                        None => patch,
                    };
                    deeds.push(Deed::Patch { subresource, form: *form, patch });
                }
            }
        }
        Ok(deeds)
    }
}

/// Chooses the next of the matching Stages at random, by weight.
pub fn choose<'s>(matching: &[&'s Stage], weighed: impl Fn(&Stage) -> Option<i64>, chance: u64) -> Option<&'s Stage> {
    if matching.len() < 2 {
        return matching.first().copied();
    }
    let total: i64 =
        matching.iter().filter_map(|stage| weighed(stage)).fold(0, |sum, weight| sum.saturating_add(weight.max(0)));
    let Some(total) = u64::try_from(total).ok().filter(|total| *total > 0) else {
        let told: Vec<&Stage> = matching.iter().copied().filter(|stage| weighed(stage).is_some()).collect();
        let among = if told.is_empty() { matching } else { &told };
        return among.get((chance % among.len() as u64) as usize).copied();
    };
    let mut left = i64::try_from(chance % total).unwrap_or(0);
    for stage in matching {
        left -= weighed(stage).unwrap_or(0).max(0);
        if left < 0 {
            return Some(stage);
        }
    }
    matching.last().copied()
}

impl Delay {
    fn parse(spec: DelaySpec) -> Result<Delay, String> {
        let jitter = (spec.jitter_duration_milliseconds, query(spec.jitter_duration_from)?);
        Ok(Delay {
            duration: Length {
                millis: Some(spec.duration_milliseconds.unwrap_or(0)),
                from: query(spec.duration_from)?,
            },
            jitter: match jitter {
                (None, None) => None,
                (millis, from) => Some(Length { millis, from }),
            },
        })
    }
}

impl Length {
    /// The length of the delay in milliseconds. If the query finds a duration in the object, the duration is the
    /// length. If the query finds a time, the length is the time from now until then.
    fn of(&self, object: &Value, now: Time, budget: &Budget) -> Option<i64> {
        let Some(query) = &self.from else { return self.millis };
        match first(query, object, budget).as_deref() {
            None | Some(Value::Null) => self.millis,
            Some(Value::String(text)) => match Time::parse(text) {
                Some(moment) => Some(moment.millis_since(now)),
                None => behaviour::duration(text),
            },
            Some(_) => None,
        }
    }
}

/// The first value that a query gives; `None` if the query gives no value or exceeds the budget.
fn first<'a>(query: &Query, object: &'a Value, budget: &Budget) -> Option<Cow<'a, Value>> {
    query.values(object, budget).ok()?.into_iter().next()
}

fn query(from: Option<From>) -> Result<Option<Query>, String> {
    let text = from.and_then(|from| from.expression_from.or(from.jq.map(|jq| jq.expression)));
    text.map(|text| Query::parse(&text)).transpose()
}

fn parse_next(next: NextSpec, about: &About) -> Result<Vec<StageStep>, String> {
    if let Some(name) = next.unknown.keys().next() {
        return Err(format!("{name} is not supported"));
    }
    let mut steps = Vec::new();
    if let Some(EventSpec { kind, reason, message }) = next.event {
        steps.push(StageStep::Event { warning: kind == "Warning", reason, message });
    }
    if let Some(FinalizersSpec { add, remove, empty }) = next.finalizers {
        let values = |items: Vec<Item>| items.into_iter().map(|item| item.value).collect();
        steps.push(StageStep::Finalizers { add: values(add), remove: values(remove), empty });
    }
    if next.delete {
        steps.push(StageStep::Delete);
    }
    if next.status_patch_as.is_some() {
        return Err("statusPatchAs is not supported".into());
    }
    // Lists in custom resources have no merge strategy, so their patches are merge patches by default.
    let usual = if about.is_built_in() { PatchType::Strategic } else { PatchType::Merge };
    if let Some(text) = next.status_template.filter(|text| !text.is_empty()) {
        let subresource = subresource(next.status_subresource.as_deref().unwrap_or("status"))?;
        let template = Template::parse(&text).map_err(|why| format!("statusTemplate: {why}"))?;
        steps.push(StageStep::Patch { subresource, root: Some("status".into()), form: usual, template });
    }
    if let Some(ApplySpec { template }) = next.apply {
        steps.push(StageStep::Apply(Template::parse(&template).map_err(|why| format!("apply: template: {why}"))?));
    }
    for patch in next.patches.into_iter().chain(next.patch) {
        if patch.impersonation.is_some() {
            return Err("patches: impersonation is not supported".into());
        }
        let form = match patch.form.as_str() {
            "" => usual,
            "strategic" => PatchType::Strategic,
            "merge" => PatchType::Merge,
            "json" => PatchType::Json,
            other => return Err(format!("patches: type {other:?} is not known")),
        };
        let template = Template::parse(&patch.template).map_err(|why| format!("patches: template: {why}"))?;
        let root = (!patch.root.is_empty() && form != PatchType::Json).then_some(patch.root);
        steps.push(StageStep::Patch { subresource: subresource(&patch.subresource)?, root, form, template });
    }
    Ok(steps)
}

fn subresource(name: &str) -> Result<&'static str, String> {
    let known = ["", "status", "resize", "ephemeralcontainers", "scale", "approval"];
    let found = known.into_iter().find(|known| *known == name);
    found.ok_or_else(|| format!("the subresource {name:?} is not known"))
}

/// All finalizers that the object should have; `None` if the object has exactly these finalizers already.
fn finalizers(object: &Value, add: &[String], remove: &[String], empty: bool) -> Option<Vec<String>> {
    let known = object["metadata"]["finalizers"].as_array().into_iter().flatten();
    let known: Vec<String> = known.filter_map(Value::as_str).map(str::to_owned).collect();
    let mut wanted = if empty { Vec::new() } else { known.clone() };
    for finalizer in add {
        if !wanted.contains(finalizer) {
            wanted.push(finalizer.clone());
        }
    }
    wanted.retain(|finalizer| !remove.contains(finalizer));
    (wanted != known).then_some(wanted)
}

/// The CustomResourceDefinition of Stages.
pub fn definition() -> Value {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": DEFINITION},
        "spec": {
            "group": GROUP, "scope": "Cluster",
            "names": {"kind": "Stage", "listKind": "StageList", "plural": "stages", "singular": "stage"},
            "versions": [{
                "name": VERSION, "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "description": "A step in the simulated life of objects of a kind, as KWOK knows it.",
                    "required": ["spec"],
                    "properties": {"spec": open, "status": open},
                }},
            }],
        },
    })
}
