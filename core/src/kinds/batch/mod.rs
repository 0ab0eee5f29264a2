//! `batch`: work that ends.

pub mod columns;
pub mod defaults;
mod indexes;
mod job;
mod policies;
mod schedule;
mod status;
mod validate;

use super::Kind;

const GROUP: &str = "batch";
const PACKAGE: &str = "io.k8s.api.batch";

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::namespaced("CronJob", "cronjobs")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1", "v2alpha1"])
            .short(["cj"])
            .category("all")
            .columns(columns::of("CronJob"))
            .glance(&[
                "spec.schedule",
                "spec.timeZone",
                "spec.suspend",
                "spec.jobTemplate.spec.selector",
                "spec.jobTemplate.spec.template.spec.containers.name",
                "spec.jobTemplate.spec.template.spec.containers.image",
                "status",
            ])
            .validate(validate::cron_job)
            .status()
            .generation(),
        Kind::namespaced("Job", "jobs")
            .versions(GROUP, PACKAGE, ["v1"])
            .category("all")
            .columns(columns::of("Job"))
            .glance_with_template(&["spec.completions", "spec.parallelism", "spec.selector", "status"])
            .validate(validate::job)
            .status()
            .validate_part("status", status::job)
            .prepare_create(job::prepare_create)
            .generation()
            .select_or("status.successful", "status.succeeded", "0"),
    ]
}
