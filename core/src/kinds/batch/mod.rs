//! `batch`: workloads that complete.

pub mod columns;
pub mod defaults;
mod indexes;
mod job;
mod policies;
mod status;
mod validate;

use super::core::warnings;
use super::{ApiGroup, Gated, GatedRule, Kind};

pub const GROUP: &str = "batch";
const PACKAGE: &str = "io.k8s.api.batch";

/// The definition of this group, for the list of all built-in groups.
pub const API_GROUP: ApiGroup =
    ApiGroup::new(GROUP, kinds, defaults::rules).prioritized(17_400, &[("v1", 15), ("v1beta1", 9), ("v2alpha1", 9)]);

/// The rule about fields that may change while a job is suspended.
const SUSPENDED: &[GatedRule] = &[GatedRule {
    gates: &["MutablePodResourcesForSuspendedJobs", "MutableSchedulingDirectivesForSuspendedJobs"],
    judge: validate::suspended,
}];

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::namespaced("CronJob", "cronjobs")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1", "v2alpha1"])
            .short(["cj"])
            .category("all")
            .columns(columns::of("CronJob"))
            .pods_at("/spec/jobTemplate/spec/template/spec")
            .orphan_dependents(["batch/v1beta1", "batch/v2alpha1"])
            .gated(const { &[Gated::fields("TTLAfterFinished", &["spec.jobTemplate.spec.ttlSecondsAfterFinished"])] })
            .validate(validate::cron_job)
            .warnings(|_, object, old| {
                warnings::job(object, old, "spec.jobTemplate.spec", "spec.jobTemplate.spec.template")
            })
            .status()
            .generation(),
        Kind::namespaced("Job", "jobs")
            .versions(GROUP, PACKAGE, ["v1"])
            .category("all")
            .columns(columns::of("Job"))
            .pods_at("/spec/template/spec")
            .orphan_dependents(["batch/v1"])
            .warn_of_orphans(
                "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove \
                 them or set propagationPolicy=Orphan to suppress this warning",
            )
            .gated(const { &[Gated::fields("TTLAfterFinished", &["spec.ttlSecondsAfterFinished"])] })
            .gated_rules(SUSPENDED)
            .validate(validate::job)
            .warnings(|_, object, old| warnings::job(object, old, "spec", "spec.template"))
            .status()
            .validate_part("status", status::job)
            .prepare_create(job::prepare_create)
            .generation()
            .select_or("status.successful", "status.succeeded", "0")
            .named_in_selectors(),
    ]
}
