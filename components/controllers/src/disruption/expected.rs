//! The number of pods that should exist for a disruption budget.

use crate::claim::names_kind;
use crate::get_answers::{NeedsGet, PlanInput, scale_path};
use holdfast_value::Value;
use holdfast_world::views::workloads::IntOrPercent;
use holdfast_world::views::{Deployment, Pod, PodDisruptionBudget, ReplicaSet, ReplicationController, StatefulSet};
use holdfast_world::{Key, OwnerReference, View, Viewed, World};
use std::collections::BTreeMap;

#[derive(Debug, PartialEq, Eq)]
pub enum ExpectedPods {
    Counted {
        expected: i64,
        desired: i64,
        unmanaged: bool,
    },
    /// The number is unknown, for this reason.
    Unknown(String),
}

/// The uid of a controller of pods, and its number of replicas.
type Scale = (String, i64);

pub fn expected(
    world: &World,
    budget: Viewed<'_, PodDisruptionBudget>,
    pods: &[Viewed<'_, Pod>],
    read: PlanInput<'_>,
) -> Result<ExpectedPods, NeedsGet> {
    let spec = &budget.view.spec;
    let counted = |expected, desired| Ok(ExpectedPods::Counted { expected, desired, unmanaged: false });
    match (spec.max_unavailable, spec.min_available) {
        // A budget without limits expects no pods, so it allows no eviction.
        (None, None) => return counted(0, 0),
        (None, Some(IntOrPercent::Number(number))) => return counted(pods.len() as i64, number),
        _ => {}
    }
    let (expected, unmanaged) = match scales(world, pods, read)? {
        Ok((scales, unmanaged)) => (scales.values().copied().fold(0, i64::saturating_add), unmanaged),
        Err(why) => return Ok(ExpectedPods::Unknown(why)),
    };
    let desired = match spec.max_unavailable {
        Some(unavailable) => expected.saturating_sub(unavailable.of(expected, true)).max(0),
        None => spec.min_available.map_or(0, |available| available.of(expected, true)),
    };
    Ok(ExpectedPods::Counted { expected, desired, unmanaged })
}

/// The replicas of each controller of these pods, and whether some pods have no controller.
#[allow(clippy::type_complexity)]
fn scales(
    world: &World,
    pods: &[Viewed<'_, Pod>],
    read: PlanInput<'_>,
) -> Result<Result<(BTreeMap<String, i64>, bool), String>, NeedsGet> {
    let (mut scales, mut unmanaged) = (BTreeMap::new(), false);
    let mut known = std::collections::BTreeSet::new();
    for pod in pods {
        let meta = pod.meta();
        let Some(owner) = meta.controller() else {
            unmanaged = true;
            continue;
        };
        if !known.insert(owner.uid.as_str()) {
            continue;
        }
        match scale(world, &meta.namespace, owner, read)? {
            Ok(Some((uid, replicas))) => _ = scales.insert(uid, replicas),
            Ok(None) => return Ok(Err(format!("found no controllers for pod {}", Value::from(meta.name.as_str())))),
            Err(why) => return Ok(Err(why)),
        }
    }
    Ok(Ok((scales, unmanaged)))
}

fn scale(
    world: &World,
    namespace: &str,
    owner: &OwnerReference,
    read: PlanInput<'_>,
) -> Result<Result<Option<Scale>, String>, NeedsGet> {
    if names_kind::<ReplicaSet>(owner) {
        let Some(set) = of_kind::<ReplicaSet>(world, namespace, owner) else { return Ok(Ok(None)) };
        // A ReplicaSet whose Deployment was deleted counts with its own replicas.
        let deployment = set.meta().controller().filter(|owner| names_kind::<Deployment>(owner));
        let scale = deployment.and_then(|owner| {
            of_kind::<Deployment>(world, namespace, owner).map(|found| pair(owner, found.spec.replicas))
        });
        return Ok(Ok(Some(scale.unwrap_or_else(|| pair(owner, set.spec.replicas)))));
    }
    if names_kind::<StatefulSet>(owner) {
        let found = of_kind::<StatefulSet>(world, namespace, owner);
        return Ok(Ok(found.map(|found| pair(owner, found.spec.replicas))));
    }
    if names_kind::<ReplicationController>(owner) {
        let found = of_kind::<ReplicationController>(world, namespace, owner);
        return Ok(Ok(found.map(|found| pair(owner, found.spec.replicas))));
    }
    read_scale(namespace, owner, read)
}

fn of_kind<'w, V: View>(world: &'w World, namespace: &str, owner: &OwnerReference) -> Option<Viewed<'w, V>> {
    world.get::<V>(&Key::new(namespace, &owner.name)).filter(|found| found.meta().uid == owner.uid)
}

fn pair(owner: &OwnerReference, replicas: Option<i64>) -> Scale {
    (owner.uid.clone(), replicas.unwrap_or(1))
}

/// The replicas of a controller of any other kind, read from its scale.
fn read_scale(
    namespace: &str,
    owner: &OwnerReference,
    read: PlanInput<'_>,
) -> Result<Result<Option<Scale>, String>, NeedsGet> {
    let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
    let Some(kind) = read.scalable(&owner.api_version, &owner.kind)? else {
        let kind = Value::from(owner.kind.as_str());
        let place = Value::from(format!("{group}/{version}").trim_start_matches('/'));
        return Ok(Err(format!("no matches for kind {kind} in version {place}")));
    };
    if !kind.has_scale {
        let dot = if group.is_empty() { "" } else { "." };
        return Ok(Err(format!("{}{dot}{group} does not implement the scale subresource", kind.plural)));
    }
    Ok(match read.get(&scale_path(&owner.api_version, namespace, &kind.plural, &owner.name))? {
        Ok(scale) if scale["metadata"]["uid"] == owner.uid.as_str() => {
            Ok(Some(pair(owner, Some(scale["spec"]["replicas"].as_i64().unwrap_or(0)))))
        }
        Ok(_) => Ok(None),
        Err(refusal) if refusal.is_not_found() => Ok(None),
        Err(refusal) => Err(refusal.message.clone()),
    })
}

/// A selector in the form in which Events show it.
pub fn selector_text(selector: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let labels: BTreeMap<&str, String> = labels.map(|(key, value)| (key.as_str(), text(value))).collect();
    let labels: String = labels.iter().map(|(key, value)| format!("{key}: {value},")).collect();
    let requirement = |requirement: &Value| {
        let values = requirement["values"].as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join(" ");
        let (key, operator) = (text(&requirement["key"]), text(&requirement["operator"]));
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
    };
    let expressions: String = selector["matchExpressions"].as_array().into_iter().flatten().map(requirement).collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}
