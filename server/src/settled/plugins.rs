//! Admission plug-ins by name: which of them this release has.

use Plugin::{AlwaysOn, NotBuilt};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plugin {
    /// What it does is part of the server.
    AlwaysOn,
    NotBuilt,
}

/// Plug-ins to turn on.
pub fn enabled(text: &str) -> Result<(), String> {
    each(text, |name, plugin| match plugin {
        AlwaysOn => Ok(()),
        NotBuilt => Err(format!("the admission plug-in {name} is not built yet")),
    })
}

/// Plug-ins to turn off.
pub fn disabled(text: &str) -> Result<(), String> {
    each(text, |name, plugin| match plugin {
        AlwaysOn => Err(format!("the admission plug-in {name} cannot be turned off")),
        NotBuilt => Ok(()),
    })
}

fn each(text: &str, judge: impl Fn(&str, Plugin) -> Result<(), String>) -> Result<(), String> {
    for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let (_, plugin) = PLUGINS
            .iter()
            .find(|(known, _)| *known == name)
            .ok_or_else(|| format!("the admission plug-in {name:?} is unknown"))?;
        judge(name, *plugin)?;
    }
    Ok(())
}

const PLUGINS: &[(&str, Plugin)] = &[
    ("AlwaysAdmit", NotBuilt),
    ("AlwaysDeny", NotBuilt),
    ("AlwaysPullImages", NotBuilt),
    ("CertificateApproval", AlwaysOn),
    ("CertificateSigning", AlwaysOn),
    ("CertificateSubjectRestriction", NotBuilt),
    ("ClusterTrustBundleAttest", NotBuilt),
    ("DefaultIngressClass", NotBuilt),
    ("DefaultStorageClass", NotBuilt),
    ("DefaultTolerationSeconds", NotBuilt),
    ("DenyServiceExternalIPs", NotBuilt),
    ("EventRateLimit", NotBuilt),
    ("ExtendedResourceToleration", NotBuilt),
    ("ImagePolicyWebhook", NotBuilt),
    ("LimitPodHardAntiAffinityTopology", NotBuilt),
    ("LimitRanger", NotBuilt),
    ("MutatingAdmissionPolicy", NotBuilt),
    ("MutatingAdmissionWebhook", NotBuilt),
    ("NamespaceAutoProvision", NotBuilt),
    ("NamespaceExists", NotBuilt),
    ("NamespaceLifecycle", AlwaysOn),
    ("NodeDeclaredFeatureValidator", NotBuilt),
    ("NodeRestriction", NotBuilt),
    ("OwnerReferencesPermissionEnforcement", NotBuilt),
    ("PersistentVolumeClaimResize", NotBuilt),
    ("PersistentVolumeLabel", NotBuilt),
    ("PodNodeSelector", NotBuilt),
    ("PodSecurity", NotBuilt),
    ("PodSecurityPolicy", NotBuilt),
    ("PodTolerationRestriction", NotBuilt),
    ("PodTopologyLabels", NotBuilt),
    ("Priority", NotBuilt),
    ("ResourceQuota", NotBuilt),
    ("RuntimeClass", NotBuilt),
    ("SecurityContextDeny", NotBuilt),
    ("ServiceAccount", NotBuilt),
    ("StorageObjectInUseProtection", NotBuilt),
    ("TaintNodesByCondition", NotBuilt),
    ("ValidatingAdmissionPolicy", NotBuilt),
    ("ValidatingAdmissionWebhook", NotBuilt),
];
