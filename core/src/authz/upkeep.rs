//! Writes aggregated rules into ClusterRoles whose aggregation is out of date.

use super::User;
use crate::kinds::known;
use crate::namespace::Step;
use crate::request::{Body, Format, Options, Request, Target, Verb};
use crate::state::State;
use holdfast_value::json;
use std::sync::Arc;

/// The server writes the rules as this service account in kube-system.
const MANAGER: &str = "clusterrole-aggregation-controller";

/// Plans a server-side apply for each aggregated ClusterRole whose rules are out of date.
pub fn plan(state: &State) -> Vec<Step> {
    let Some((kind, version)) = state.registry.known(known::CLUSTER_ROLE) else { return Vec::new() };
    let apply = |name: String| {
        let rules = state.rbac.aggregate(&name)?;
        let role = state.kind(kind);
        let applied = json!({
            "apiVersion": role.versions[version].api_version(), "kind": role.kind, "metadata": {"name": name}, "rules": rules,
        });
        let body = Body { content: applied.to_string().into(), format: Format::ApplyPatch };
        let target = Target { kind, version, namespace: None, name: Some(name), subresource: None };
        let options = Options { field_manager: Some(MANAGER.into()), force: Some(true), ..Options::default() };
        let user = Arc::new(User::service_account("kube-system", MANAGER, ""));
        Some(Step { request: Request { user, verb: Verb::Patch, target, options, body, id: MANAGER.into() } })
    };
    state.rbac.stale_aggregates().into_iter().filter_map(apply).collect()
}
