//! The controllers of a cluster. Each controller makes plans from a world, for one key at a time, without input or
//! output.
//!
//! Each controller has a folder or file; [`all`] lists them. Shared parts: [`claim`] decides ownership, [`pods`]
//! creates and deletes pods, [`back_off`] delays the replacement of failed pods, [`revisions`] keeps old templates,
//! [`subject`] writes statuses and Events, [`conditions`] edits conditions that other writers share.

pub mod account_tokens;
pub mod addresses;
pub mod autoscaler;
pub mod back_off;
pub mod bootstrap;
pub mod certificates;
pub mod claim;
pub mod conditions;
#[cfg(test)]
mod costs;
pub mod cron_job;
pub mod daemon_set;
pub mod deployment;
pub mod device_taints;
pub mod disruption;
pub mod encoded;
pub mod endpoint_slice;
pub mod endpoints;
#[cfg(test)]
mod extremes;
pub mod garbage;
pub mod get_answers;
pub mod hash;
pub mod job;
pub mod names;
pub mod node_ipam;
pub mod node_lifecycle;
pub mod node_ttl;
pub mod pace;
pub mod planted;
pub mod pod_gc;
pub mod pods;
pub mod policy_status;
pub mod quota;
pub mod replicas;
pub mod resource_claim;
pub mod revisions;
pub mod root_ca;
pub mod service_account;
pub mod service_cidr;
pub mod services;
pub mod settings;
pub mod stateful_set;
pub mod storage_versions;
pub mod subject;
pub mod taint_eviction;
#[cfg(test)]
mod testing;
pub mod ttl_after_finished;
pub mod volumes;

use holdfast_world::Controller;
use holdfast_world::views::{ReplicaSet, ReplicationController};
pub use settings::Settings;

/// All controllers that these settings enable.
pub fn all(settings: &Settings) -> Vec<Box<dyn Controller>> {
    let mut all = workloads(settings);
    all.extend(keepers(settings));
    all
}

/// The controllers of workloads and their networking.
fn workloads(settings: &Settings) -> Vec<Box<dyn Controller>> {
    vec![
        Box::new(autoscaler::Autoscalers::new(settings)),
        Box::new(cron_job::CronJobs),
        Box::new(daemon_set::DaemonSets::default()),
        Box::new(deployment::Deployments::default()),
        Box::new(disruption::Disruption::default()),
        Box::new(endpoint_slice::EndpointSlices::new(settings)),
        Box::new(endpoint_slice::mirroring::Mirroring::new(settings)),
        Box::new(endpoints::EndpointsController::new(settings)),
        Box::new(garbage::GarbageCollector),
        Box::new(job::Jobs::default()),
        Box::new(replicas::Replicas::<ReplicaSet>::default()),
        Box::new(replicas::Replicas::<ReplicationController>::default()),
        Box::new(stateful_set::StatefulSets::default()),
        Box::new(ttl_after_finished::TtlAfterFinished),
    ]
}

/// The controllers that `workloads` does not return: of nodes, service accounts, certificates, quotas, volumes and
/// more.
fn keepers(settings: &Settings) -> Vec<Box<dyn Controller>> {
    let mut keepers: Vec<Box<dyn Controller>> = vec![
        Box::new(account_tokens::clean::TokenCleaner::new(settings)),
        Box::new(account_tokens::fill::TokenSecrets::new(settings)),
        Box::new(bootstrap::BootstrapCleaner),
        Box::new(bootstrap::BootstrapSigner),
        Box::new(certificates::approve::Approver::default()),
        Box::new(certificates::clean::Cleaner),
        Box::new(certificates::sign::Signing::new(settings)),
        Box::new(node_lifecycle::NodeLifecycle::new(settings)),
        Box::new(node_ttl::NodeTtl::default()),
        Box::new(pod_gc::PodCollector::new(settings)),
        Box::new(policy_status::PolicyStatus),
        Box::new(quota::ResourceQuotas::default()),
        Box::new(resource_claim::ResourceClaims::default()),
        Box::new(root_ca::RootCa::new(settings)),
        Box::new(service_account::DefaultAccounts),
        Box::new(service_cidr::ServiceRanges),
        Box::new(storage_versions::StorageVersions::default()),
        Box::new(taint_eviction::TaintEviction::default()),
        Box::new(volumes::attach::Attacher::new(settings)),
        Box::new(volumes::binder::Binder::new(settings)),
        Box::new(volumes::expand::Expander::default()),
        Box::new(volumes::ephemeral::EphemeralVolumes),
        Box::new(volumes::protection::AttributesClassProtection),
        Box::new(volumes::protection::ClaimProtection::default()),
        Box::new(volumes::protection::VolumeProtection),
        Box::new(volumes::selinux::SelinuxWarnings),
    ];
    if settings.pod_certificates {
        keepers.push(Box::new(certificates::clean_pods::PodRequestCleaner));
    }
    if settings.device_taints {
        keepers.push(Box::new(device_taints::DeviceTaintEviction::default()));
    }
    // Invalid settings are refused where options are parsed, so `new` cannot fail here.
    if let Ok(Some(ranges)) = node_ipam::NodeRanges::new(settings) {
        keepers.push(Box::new(ranges));
    }
    keepers
}
