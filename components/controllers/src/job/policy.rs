//! The policies of a Job: what a failed pod means for its Job, and which succeeded indexes are enough for the Job's
//! success.

use super::indexes::Indexes;
use holdfast_world::Viewed;
use holdfast_world::views::Pod;
use holdfast_world::views::batch::{FailurePolicy, FailureRule, OnExitCodes, SuccessPolicy};
use holdfast_world::views::pod::ContainerStatus;

/// What a failed pod means for its Job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FailureAction {
    Counts,
    Ignored,
    FailsIndex,
    /// The Job fails with this message.
    FailsJob(String),
}

/// Decides what a failed pod means for its Job. The first matching rule decides; a pod that no rule matches counts as a
/// failure.
pub fn judge(policy: Option<&FailurePolicy>, pod: Viewed<'_, Pod>) -> FailureAction {
    for (index, rule) in policy.iter().flat_map(|policy| &policy.rules).enumerate() {
        let Some(matched) = matching(rule, pod) else { continue };
        return match rule.action.as_str() {
            "Ignore" => FailureAction::Ignored,
            "FailIndex" => FailureAction::FailsIndex,
            "FailJob" => FailureAction::FailsJob(format!("{matched} matching FailJob rule at index {index}")),
            _ => FailureAction::Counts,
        };
    }
    FailureAction::Counts
}

/// The message about a pod that the rule matches; `None` if the rule does not match.
fn matching(rule: &FailureRule, pod: Viewed<'_, Pod>) -> Option<String> {
    let place = format!("{}/{}", pod.meta().namespace, pod.meta().name);
    if let Some(codes) = &rule.on_exit_codes {
        let statuses = pod.view.status.container_statuses.iter().chain(&pod.view.status.init_container_statuses);
        let (container, code) = statuses.filter_map(|status| exit(codes, status)).next()?;
        return Some(format!("Container {container} for pod {place} failed with exit code {code}"));
    }
    let conditions = pod.view.status.conditions.iter();
    let is_meant = |kind: &str, status: &str| {
        rule.on_pod_conditions.iter().any(|pattern| pattern.kind == kind && pattern.status == status)
    };
    let condition = conditions.into_iter().find(|condition| is_meant(&condition.kind, &condition.status))?;
    Some(format!("Pod {place} has condition {}", condition.kind))
}

/// The name of a container and its exit code, if the rule matches the code.
fn exit<'a>(codes: &OnExitCodes, status: &'a ContainerStatus) -> Option<(&'a str, i64)> {
    let code = status.state.terminated.as_ref()?.exit_code;
    let is_named = codes.container_name.as_ref().is_none_or(|name| *name == status.name);
    let is_meant = codes.values.contains(&code) == (codes.operator == "In");
    (code != 0 && is_named && is_meant).then_some((&status.name, code))
}

/// The message of the first rule of a success policy that the succeeded indexes satisfy; `None` if they satisfy no
/// rule.
pub fn success(policy: Option<&SuccessPolicy>, completions: i64, succeeded: &Indexes) -> Option<String> {
    let is_met = |rule: &holdfast_world::views::batch::SuccessRule| match &rule.succeeded_indexes {
        Some(text) => {
            let required = Indexes::parse(text, completions);
            required.count_in(succeeded) >= rule.succeeded_count.unwrap_or(required.count())
        }
        None => rule.succeeded_count.is_some_and(|count| succeeded.count() >= count),
    };
    if succeeded.count() == 0 {
        return None;
    }
    let index = policy?.rules.iter().position(is_met)?;
    Some(format!("Matched rules at index {index}"))
}
