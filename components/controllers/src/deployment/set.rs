//! A ReplicaSet of a Deployment, with the fields that the Deployment's plan reads.

use crate::subject;
use holdfast_core::schema::spelling;
use holdfast_value::Value;
use holdfast_world::views::ReplicaSet;
use holdfast_world::{Time, Viewed};
use std::cell::OnceCell;

/// The label that distinguishes the pods of one template from the pods of other templates.
pub const TEMPLATE_HASH: &str = "pod-template-hash";
/// The annotation with the number of replicas that the Deployment had when the set was last scaled.
pub const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
/// The annotation with the number of pods that the Deployment was allowed to have when the set was last scaled, surge
/// included.
pub const MAX: &str = "deployment.kubernetes.io/max-replicas";

pub struct Set<'w> {
    pub seen: Viewed<'w, ReplicaSet>,
    /// The number of replicas that the set has after this plan.
    pub replicas: i64,
    /// The template without the hash label; it is decoded when it is first needed.
    template: OnceCell<Value>,
}

impl<'w> Set<'w> {
    pub fn of(seen: Viewed<'w, ReplicaSet>) -> Set<'w> {
        Set { seen, replicas: seen.spec.replicas.unwrap_or(1), template: OnceCell::new() }
    }

    pub fn name(&self) -> &'w str {
        &self.seen.meta().name
    }

    /// A key by which older sets are sorted first.
    pub fn age(&self) -> (Option<Time>, &'w str) {
        (self.seen.meta().creation_timestamp, self.name())
    }

    pub fn has_template(&self, template: &Value) -> bool {
        spelling::is_same(spelling::pod_template(), &without_hash(template.clone()), self.template())
    }

    /// The template without the hash label, like the Deployment's template.
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

    /// How many of the set's available pods stay: the status of a set that was scaled down may still count pods that
    /// will be deleted.
    pub fn lasting(&self) -> i64 {
        self.available().min(self.replicas)
    }
}

/// Removes the hash label. If the template has no other label, the field `labels` is removed, too.
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
