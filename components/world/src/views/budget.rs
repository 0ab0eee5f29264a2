//! Views of PodDisruptionBudgets.

use super::condition::Condition;
use super::workloads::IntOrPercent;
use crate::object::or_default;
use crate::{Selector, Time};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodDisruptionBudget {
    pub spec: BudgetSpec,
    pub status: BudgetStatus,
}

crate::resource!(PodDisruptionBudget, "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", namespaced);

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetSpec {
    pub selector: Selector,
    pub min_available: Option<IntOrPercent>,
    pub max_unavailable: Option<IntOrPercent>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetStatus {
    pub observed_generation: i64,
    #[serde(deserialize_with = "or_default")]
    pub disrupted_pods: BTreeMap<String, Time>,
    pub disruptions_allowed: i64,
    pub current_healthy: i64,
    pub desired_healthy: i64,
    pub expected_pods: i64,
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<Condition>,
}
