//! The smallest plug-ins.

use super::pods::list;
use crate::admission::{Attributes, Operation};
use crate::kinds::known::POD;
use crate::pipeline::effect::Stop;

/// AlwaysDeny: refuses every request that admission judges.
pub(super) fn deny(attributes: &mut Attributes) -> Result<(), Stop> {
    Err(attributes.forbidden("admission control is denying all modifications"))
}

/// SecurityContextDeny: pods must not set their user, group or SELinux options.
pub(super) fn deny_security_context(attributes: &mut Attributes) -> Result<(), Stop> {
    let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
    if !writes || !attributes.is_of(POD) {
        return Ok(());
    }
    let spec = &attributes.object["spec"];
    for (field, called) in [
        ("supplementalGroups", "pod.Spec.SecurityContext.SupplementalGroups"),
        ("seLinuxOptions", "pod.Spec.SecurityContext.SELinuxOptions"),
        ("runAsUser", "pod.Spec.SecurityContext.RunAsUser"),
        ("fsGroup", "pod.Spec.SecurityContext.FSGroup"),
    ] {
        if !spec["securityContext"][field].is_null() {
            return Err(attributes.forbidden(format!("{called} is forbidden")));
        }
    }
    for container in ["initContainers", "containers"].iter().flat_map(|field| list(&spec[*field])) {
        for (field, called) in [("seLinuxOptions", "SELinuxOptions"), ("runAsUser", "RunAsUser")] {
            if !container["securityContext"][field].is_null() {
                return Err(attributes.forbidden(format!("SecurityContext.{called} is forbidden")));
            }
        }
    }
    Ok(())
}
