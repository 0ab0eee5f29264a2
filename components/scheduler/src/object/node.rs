//! The fields of nodes that the scheduler reads.

use super::labels::Labels;
use super::resources::Resources;
use super::terms::Taint;
use super::{StringPool, Text, items, text};
use holdfast_value::Value;
use std::collections::HashSet;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub name: Text,
    pub labels: Labels,
    pub taints: Vec<Taint>,
    pub unschedulable: bool,
    pub allocatable: Resources,
    /// All names of all images on the node, each name once, with the image's size in bytes.
    pub images: Vec<(Text, i64)>,
    /// The type of each condition, and its status.
    pub conditions: Vec<(Text, Text)>,
    /// The owners whose pods should avoid the node, from the annotation `preferAvoidPods`: the kind and uid of each.
    pub avoided: Vec<(Text, Text)>,
}

const AVOIDED: &str = "scheduler.alpha.kubernetes.io/preferAvoidPods";

impl Node {
    pub fn decode(pool: &mut StringPool, name: Text, node: &Value) -> Self {
        let status = &node["status"];
        let (mut images, mut known) = (Vec::new(), HashSet::new());
        for image in items(&status["images"]) {
            let size = image["sizeBytes"].as_i64().unwrap_or(0);
            let names = items(&image["names"]).filter_map(Value::as_str).filter(|name| known.insert(*name));
            images.extend(names.map(|name| (pool.text(name), size)));
        }
        Node {
            name,
            labels: Labels::decode(pool, &node["metadata"]["labels"]),
            taints: Taint::decode_all(pool, &node["spec"]["taints"]),
            unschedulable: node["spec"]["unschedulable"] == true,
            allocatable: Resources::decode(pool, &status["allocatable"]),
            images,
            conditions: items(&status["conditions"])
                .map(|one| (pool.field(&one["type"]), pool.field(&one["status"])))
                .collect(),
            avoided: avoided(pool, &node["metadata"]["annotations"][AVOIDED]),
        }
    }
}

fn avoided(pool: &mut StringPool, annotation: &Value) -> Vec<(Text, Text)> {
    let list: Value = serde_json::from_str(text(annotation)).unwrap_or_default();
    let owners = items(&list["preferAvoidPods"]).map(|one| &one["podSignature"]["podController"]);
    owners.map(|owner| (pool.field(&owner["kind"]), pool.field(&owner["uid"]))).collect()
}
