//! The table of plug-ins. A file has one plug-in, or several plug-ins for related objects.
//!
//! A plug-in for certain kinds finds them by [`known`](crate::kinds::known).

mod certificates;
mod configuration;
mod event_rate;
mod image_policy;
mod images;
mod lifecycle;
mod limit_range;
mod network;
mod node_restriction;
mod owners;
mod placement;
mod pod_security;
mod pods;
mod priority;
mod quota;
mod runtime_class;
mod service_account;
mod small;
mod speakers;
mod storage;
mod tolerations;
mod topology;

pub use configuration::Configuration;
pub use event_rate::EventLimit;
pub use image_policy::ImagePolicy;
pub use pod_security::PodSecurity;
pub use quota::Limited;

use super::{Attributes, policies, webhooks};
use crate::object::reader::Reader;
use crate::pipeline::effect::Stop;

/// One admission plug-in.
pub struct Plugin {
    pub name: &'static str,
    /// Whether the plug-in is enabled by default.
    pub is_default: bool,
    /// Whether the plug-in is enabled where no operator configures admission, as in tests and for reads of the past.
    pub is_vital: bool,
    pub(super) mutate: Option<Step>,
    pub(super) validate: Option<Step>,
    pub(super) configure: Option<Configure>,
    /// Whether the plug-in cannot run without a configuration.
    pub(super) needs_configuration: bool,
}

/// One half of a plug-in: may change the object, refuse the write, or add warnings and annotations.
pub(super) type Step = fn(&mut Attributes<'_>) -> Result<(), Stop>;
/// Reads the operator's configuration of a plug-in; faults are recorded in the reader.
pub(super) type Configure = fn(&mut Configuration, &Reader);

impl std::fmt::Debug for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Plugin {
    const fn on(name: &'static str) -> Plugin {
        Plugin {
            name,
            is_default: true,
            is_vital: false,
            mutate: None,
            validate: None,
            configure: None,
            needs_configuration: false,
        }
    }

    const fn off(name: &'static str) -> Plugin {
        Plugin { is_default: false, ..Plugin::on(name) }
    }

    const fn vital(self) -> Plugin {
        Plugin { is_vital: true, ..self }
    }

    const fn mutate(self, step: Step) -> Plugin {
        Plugin { mutate: Some(step), ..self }
    }

    const fn validate(self, step: Step) -> Plugin {
        Plugin { validate: Some(step), ..self }
    }

    const fn in_need(self) -> Plugin {
        Plugin { needs_configuration: true, ..self }
    }

    const fn configured(self, configure: Configure) -> Plugin {
        Plugin { configure: Some(configure), ..self }
    }
}

/// All plug-ins in their order. Plug-ins without a step do nothing; they exist so that configurations may name them.
pub static PLUGINS: &[Plugin] = &[
    Plugin::off("AlwaysAdmit"),
    Plugin::off("NamespaceAutoProvision").mutate(lifecycle::provide),
    Plugin::on("NamespaceLifecycle").vital().mutate(lifecycle::mutate),
    Plugin::off("NamespaceExists").validate(lifecycle::exists),
    Plugin::off("SecurityContextDeny").validate(small::deny_security_context),
    Plugin::off("LimitPodHardAntiAffinityTopology").validate(topology::limit_anti_affinity),
    Plugin::on("LimitRanger").mutate(limit_range::mutate).validate(limit_range::validate),
    Plugin::on("ServiceAccount").mutate(service_account::mutate).validate(service_account::validate),
    Plugin::off("NodeRestriction").mutate(node_restriction::mutate),
    Plugin::on("TaintNodesByCondition").mutate(tolerations::taint_node),
    Plugin::off("AlwaysPullImages").mutate(images::always_pull).validate(images::check_always_pull),
    Plugin::off("ImagePolicyWebhook").validate(image_policy::validate).configured(image_policy::configure).in_need(),
    Plugin::on("PodSecurity").validate(pod_security::validate).configured(pod_security::configure),
    Plugin::off("PodNodeSelector")
        .mutate(placement::select_nodes)
        .validate(placement::check_nodes)
        .configured(placement::configure_node_selectors),
    Plugin::on("Priority").mutate(priority::mutate).validate(priority::validate),
    Plugin::on("DefaultTolerationSeconds").mutate(tolerations::default_seconds),
    Plugin::off("PodTolerationRestriction")
        .mutate(placement::tolerate)
        .validate(placement::check_tolerations)
        .configured(placement::configure_tolerations),
    Plugin::off("EventRateLimit").validate(event_rate::validate).configured(event_rate::configure).in_need(),
    Plugin::off("ExtendedResourceToleration").mutate(topology::extended_resources),
    Plugin::on("DefaultStorageClass").mutate(storage::default_class),
    Plugin::on("StorageObjectInUseProtection").mutate(storage::protect),
    Plugin::on("PodGroupProtection"),
    Plugin::off("OwnerReferencesPermissionEnforcement").validate(owners::validate),
    Plugin::on("PersistentVolumeClaimResize").validate(storage::resize),
    Plugin::on("RuntimeClass").mutate(runtime_class::mutate).validate(runtime_class::validate),
    Plugin::on("CertificateApproval").vital().validate(certificates::approval),
    Plugin::on("CertificateSigning").vital().validate(certificates::signing),
    Plugin::on("ClusterTrustBundleAttest").vital().validate(certificates::attest),
    Plugin::on("CertificateSubjectRestriction").vital().validate(certificates::subject),
    Plugin::on("DefaultIngressClass").mutate(network::default_ingress_class),
    Plugin::off("DenyServiceExternalIPs").validate(network::deny_external_addresses),
    Plugin::on("PodTopologyLabels").mutate(topology::labels),
    Plugin::on("PodGroupWorkloadExists"),
    Plugin::on("NodeDeclaredFeatureValidator"),
    Plugin::on("JobValidation"),
    Plugin::on("PodResizeValidator"),
    Plugin::on("MutatingAdmissionPolicy").mutate(policies::mutate),
    Plugin::on("MutatingAdmissionWebhook").mutate(webhooks::mutate).configured(speakers::configure_mutating),
    Plugin::on("ValidatingAdmissionPolicy").validate(policies::validate),
    Plugin::on("ValidatingAdmissionWebhook").validate(webhooks::validate).configured(speakers::configure_validating),
    Plugin::on("ResourceQuota").validate(quota::validate).configured(quota::configure),
    Plugin::off("AlwaysDeny").mutate(small::deny).validate(small::deny),
];
