//! Kinds that the server itself reads or creates, in addition to serving them. Other modules use these constants and do
//! not repeat the names.

/// The names with which a [`Registry`](super::Registry) finds the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Known {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    /// The plural of the kind in lower case: `pods`.
    pub resource: &'static str,
}

const fn core(kind: &'static str, resource: &'static str) -> Known {
    Known { group: "", version: "v1", kind, resource }
}

pub const CONFIG_MAP: Known = core("ConfigMap", "configmaps");
/// The kind Event, by its names in the core group. The group `events.k8s.io` serves the kind as well.
pub const EVENT: Known = core("Event", "events");
pub const LIMIT_RANGE: Known = core("LimitRange", "limitranges");
pub const PERSISTENT_VOLUME: Known = core("PersistentVolume", "persistentvolumes");
pub const PERSISTENT_VOLUME_CLAIM: Known = core("PersistentVolumeClaim", "persistentvolumeclaims");
pub const RESOURCE_QUOTA: Known = core("ResourceQuota", "resourcequotas");
pub const BINDING: Known = core("Binding", "bindings");
pub const IMAGE_REVIEW: Known =
    Known { group: "imagepolicy.k8s.io", version: "v1alpha1", kind: "ImageReview", resource: "imagereviews" };
const POD_ATTACH_OPTIONS: Known = core("PodAttachOptions", "");
const POD_EXEC_OPTIONS: Known = core("PodExecOptions", "");
const POD_PORT_FORWARD_OPTIONS: Known = core("PodPortForwardOptions", "");
const POD_PROXY_OPTIONS: Known = core("PodProxyOptions", "");
const NODE_PROXY_OPTIONS: Known = core("NodeProxyOptions", "");
const SERVICE_PROXY_OPTIONS: Known = core("ServiceProxyOptions", "");

/// The kinds of the options of connect requests. No resource has these kinds.
pub fn options(kind: &str) -> Option<Known> {
    const ALL: [Known; 6] = [
        POD_ATTACH_OPTIONS,
        POD_EXEC_OPTIONS,
        POD_PORT_FORWARD_OPTIONS,
        POD_PROXY_OPTIONS,
        NODE_PROXY_OPTIONS,
        SERVICE_PROXY_OPTIONS,
    ];
    ALL.into_iter().find(|known| known.kind == kind)
}

pub const ENDPOINTS: Known = core("Endpoints", "endpoints");
pub const NAMESPACE: Known = core("Namespace", "namespaces");
pub const NODE: Known = core("Node", "nodes");
pub const POD: Known = core("Pod", "pods");
pub const SECRET: Known = core("Secret", "secrets");
pub const SERVICE: Known = core("Service", "services");
pub const SERVICE_ACCOUNT: Known = core("ServiceAccount", "serviceaccounts");
/// Scale, Eviction and TokenRequest are bodies of subresources. No resource has these kinds.
pub const SCALE: Known = Known { group: super::autoscaling::GROUP, version: "v1", kind: "Scale", resource: "scales" };
pub const EVICTION: Known =
    Known { group: super::policy::GROUP, version: "v1", kind: "Eviction", resource: "evictions" };
pub const TOKEN_REQUEST: Known =
    Known { group: super::authentication::GROUP, version: "v1", kind: "TokenRequest", resource: "tokenrequests" };
pub const API_SERVICE: Known =
    Known { group: super::apiregistration::GROUP, version: "v1", kind: "APIService", resource: "apiservices" };
pub const CLUSTER_ROLE: Known =
    Known { group: super::rbac::GROUP, version: "v1", kind: "ClusterRole", resource: "clusterroles" };
pub const CUSTOM_RESOURCE_DEFINITION: Known = Known {
    group: super::apiextensions::GROUP,
    version: "v1",
    kind: "CustomResourceDefinition",
    resource: "customresourcedefinitions",
};
pub const ENDPOINT_SLICE: Known =
    Known { group: super::discovery::GROUP, version: "v1", kind: "EndpointSlice", resource: "endpointslices" };
pub const CERTIFICATE_SIGNING_REQUEST: Known = Known {
    group: super::certificates::GROUP,
    version: "v1",
    kind: "CertificateSigningRequest",
    resource: "certificatesigningrequests",
};
pub const CLUSTER_TRUST_BUNDLE: Known = Known {
    group: super::certificates::GROUP,
    version: "v1beta1",
    kind: "ClusterTrustBundle",
    resource: "clustertrustbundles",
};
pub const STORAGE_CLASS: Known =
    Known { group: super::storage::GROUP, version: "v1", kind: "StorageClass", resource: "storageclasses" };
pub const VOLUME_ATTRIBUTES_CLASS: Known = Known {
    group: super::storage::GROUP,
    version: "v1",
    kind: "VolumeAttributesClass",
    resource: "volumeattributesclasses",
};
pub const INGRESS: Known =
    Known { group: super::networking::GROUP, version: "v1", kind: "Ingress", resource: "ingresses" };
pub const INGRESS_CLASS: Known =
    Known { group: super::networking::GROUP, version: "v1", kind: "IngressClass", resource: "ingressclasses" };
pub const FLOW_SCHEMA: Known =
    Known { group: super::flowcontrol::GROUP, version: "v1", kind: "FlowSchema", resource: "flowschemas" };
pub const PRIORITY_LEVEL_CONFIGURATION: Known = Known {
    group: super::flowcontrol::GROUP,
    version: "v1",
    kind: "PriorityLevelConfiguration",
    resource: "prioritylevelconfigurations",
};
pub const PRIORITY_CLASS: Known =
    Known { group: super::scheduling::GROUP, version: "v1", kind: "PriorityClass", resource: "priorityclasses" };
pub const RUNTIME_CLASS: Known =
    Known { group: super::node::GROUP, version: "v1", kind: "RuntimeClass", resource: "runtimeclasses" };
pub const LEASE: Known = Known { group: super::coordination::GROUP, version: "v1", kind: "Lease", resource: "leases" };
pub const LEASE_CANDIDATE: Known = Known {
    group: super::coordination::GROUP,
    version: "v1beta1",
    kind: "LeaseCandidate",
    resource: "leasecandidates",
};
pub const CSI_DRIVER: Known =
    Known { group: super::storage::GROUP, version: "v1", kind: "CSIDriver", resource: "csidrivers" };
pub const CSI_NODE: Known =
    Known { group: super::storage::GROUP, version: "v1", kind: "CSINode", resource: "csinodes" };
pub const RESOURCE_SLICE: Known =
    Known { group: super::resource::GROUP, version: "v1", kind: "ResourceSlice", resource: "resourceslices" };
pub const POD_CERTIFICATE_REQUEST: Known = Known {
    group: super::certificates::GROUP,
    version: "v1beta1",
    kind: "PodCertificateRequest",
    resource: "podcertificaterequests",
};
pub const IP_ADDRESS: Known =
    Known { group: super::networking::GROUP, version: "v1", kind: "IPAddress", resource: "ipaddresses" };
pub const SERVICE_CIDR: Known =
    Known { group: super::networking::GROUP, version: "v1", kind: "ServiceCIDR", resource: "servicecidrs" };
pub const POD_DISRUPTION_BUDGET: Known =
    Known { group: super::policy::GROUP, version: "v1", kind: "PodDisruptionBudget", resource: "poddisruptionbudgets" };

impl Known {
    /// The apiVersion in documents: `apps/v1`, or `v1` in the core group.
    pub fn api_version(&self) -> String {
        super::api_version(self.group, self.version)
    }

    /// Whether a document has this apiVersion and kind.
    pub fn is_kind_of(&self, document: &holdfast_value::Value) -> bool {
        document["kind"] == self.kind && document["apiVersion"] == self.api_version().as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::registry;

    #[test]
    fn each_is_served() {
        let all = [
            BINDING,
            CONFIG_MAP,
            ENDPOINTS,
            NAMESPACE,
            NODE,
            POD,
            SECRET,
            SERVICE,
            SERVICE_ACCOUNT,
            API_SERVICE,
            CLUSTER_ROLE,
            CUSTOM_RESOURCE_DEFINITION,
            ENDPOINT_SLICE,
            LEASE,
            POD_DISRUPTION_BUDGET,
            CERTIFICATE_SIGNING_REQUEST,
            CLUSTER_TRUST_BUNDLE,
            EVENT,
            LIMIT_RANGE,
            PERSISTENT_VOLUME,
            PERSISTENT_VOLUME_CLAIM,
            RESOURCE_QUOTA,
            STORAGE_CLASS,
            VOLUME_ATTRIBUTES_CLASS,
            INGRESS,
            INGRESS_CLASS,
            IP_ADDRESS,
            SERVICE_CIDR,
            FLOW_SCHEMA,
            PRIORITY_LEVEL_CONFIGURATION,
            PRIORITY_CLASS,
            RUNTIME_CLASS,
        ];
        for known in all {
            let (id, _) = registry().known(known).unwrap_or_else(|| panic!("{known:?}"));
            assert_eq!(registry().get(id).kind, known.kind);
        }
    }
}
