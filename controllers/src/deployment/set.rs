//! A ReplicaSet as a Deployment looks at it.

use crate::subject;
use holdfast_core::schema::spelling;
use holdfast_value::Value;
use holdfast_world::views::ReplicaSet;
use holdfast_world::{Seen, Time};
use std::cell::OnceCell;

/// The label that tells the pods of one template from those of another.
pub const TEMPLATE_HASH: &str = "pod-template-hash";
/// The Deployment's replicas when the set was last scaled.
pub const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
/// How many pods the Deployment might have had then.
pub const MAX: &str = "deployment.kubernetes.io/max-replicas";

pub struct Set<'w> {
    pub seen: Seen<'w, ReplicaSet>,
    /// As the plan leaves it.
    pub replicas: i64,
    /// Without the label of its hash; read where it is looked at.
    template: OnceCell<Value>,
}

impl<'w> Set<'w> {
    pub fn of(seen: Seen<'w, ReplicaSet>) -> Set<'w> {
        Set { seen, replicas: seen.spec.replicas.unwrap_or(1), template: OnceCell::new() }
    }

    pub fn name(&self) -> &'w str {
        &self.seen.meta().name
    }

    /// Older sets have smaller ones.
    pub fn age(&self) -> (Option<Time>, &'w str) {
        (self.seen.meta().creation_timestamp, self.name())
    }

    pub fn has_template(&self, template: &Value) -> bool {
        spelling::is_same(spelling::pod_template(), &without_hash(template.clone()), self.template())
    }

    /// The template as a Deployment has it.
    pub fn template(&self) -> &Value {
        self.template.get_or_init(|| without_hash(subject::part(self.seen.object, &["spec", "template"])))
    }

    pub fn annotation(&self, name: &str) -> Option<i64> {
        self.seen.meta().annotation(name)?.parse().ok()
    }

    pub fn revision(&self) -> i64 {
        self.annotation(super::REVISION).unwrap_or(0)
    }

    pub fn is_active(&self) -> bool {
        self.replicas > 0
    }

    pub fn available(&self) -> i64 {
        self.seen.status.available_replicas
    }

    /// How many of its available pods stay: a set that was made smaller may still tell of pods that it is to delete.
    pub fn lasting(&self) -> i64 {
        self.available().min(self.replicas)
    }
}

/// A template that has only the label of its hash has no labels at all without it.
fn without_hash(mut template: Value) -> Value {
    if let Some(metadata) = template["metadata"].as_object_mut()
        && let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut)
    {
        labels.remove(TEMPLATE_HASH);
        if labels.is_empty() {
            metadata.remove("labels");
        }
    }
    template
}
