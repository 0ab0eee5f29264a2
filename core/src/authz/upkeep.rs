//! What is left to do for cluster roles that gather others' rules: the gathered rules are written into them.

use super::User;
use crate::kinds::known;
use crate::namespace::Step;
use crate::object::encode;
use crate::request::{Body, Format, Options, Request, Target, Verb};
use crate::state::State;
use serde_json::Value;
use std::sync::Arc;

/// In whose name gathered rules are written: this account in kube-system.
const MANAGER: &str = "clusterrole-aggregation-controller";

/// One update for each role whose rules are not those that it gathers.
pub fn plan(state: &State) -> Vec<Step> {
    let Some((kind, version)) = state.registry.known(known::CLUSTER_ROLE) else { return Vec::new() };
    let update = |name: String| {
        let rules = state.rbac.aggregate(&name)?;
        let Value::Object(mut role) = state.get(kind, &name)?.document() else { return None };
        role.insert("rules".into(), rules);
        let body = Body { bytes: encode::document(&role).into(), format: Format::Json };
        let target = Target { kind, version, namespace: None, name: Some(name), subresource: None };
        let options = Options { field_manager: Some(MANAGER.into()), ..Options::default() };
        let user = Arc::new(User::service_account("kube-system", MANAGER, ""));
        Some(Step { request: Request { user, verb: Verb::Update, target, options, body, id: MANAGER.into() } })
    };
    state.rbac.stale_aggregates().into_iter().filter_map(update).collect()
}
