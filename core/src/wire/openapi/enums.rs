//! What the schema table does not know about types: the values of string enums, and the discriminators of unions.

use holdfast_value::{Map, Value, json};

/// The values that a field allows, sorted; `None` if the field is not an enum. `message` is a type's name without its
/// package, because the type has the same values in all versions.
pub(super) fn values(message: &str, field: &str) -> Option<&'static [&'static str]> {
    let at = VALUES.binary_search_by(|row| (row.0, row.1).cmp(&(message, field))).ok()?;
    Some(VALUES[at].2)
}

/// The extension `x-kubernetes-unions` of the definition with this name; `None` if the type is no union.
pub(super) fn unions(definition: &str) -> Option<Value> {
    let (package, bare) = definition.rsplit_once('.')?;
    let group = package.strip_prefix("io.k8s.api.")?.split('.').next()?;
    let (_, _, discriminator, members) = UNIONS.iter().find(|row| (row.0, row.1) == (group, bare))?;
    let members: Map = members.iter().map(|(field, value)| ((*field).to_owned(), json!(value))).collect();
    Some(json!([{"discriminator": discriminator, "fields-to-discriminateBy": members}]))
}

type Values = &'static [&'static str];

const ALLOCATION_MODES: Values = &["All", "ExactCount"];
const ACCESS_MODES: Values = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const EXPRESSION: Values = &["DoesNotExist", "Exists", "In", "NotIn"];
const FAILURE_POLICIES: Values = &["Fail", "Ignore"];
const HONOR_OR_IGNORE: Values = &["Honor", "Ignore"];
const MATCH_POLICIES: Values = &["Equivalent", "Exact"];
const NONE_OR_CLIENT_IP: Values = &["ClientIP", "None"];
const ON_DELETE_OR_ROLLING: Values = &["OnDelete", "RollingUpdate"];
const OPERATIONS: Values = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const PREEMPTION: Values = &["Never", "PreemptLowerPriority"];
const PROFILES: Values = &["Localhost", "RuntimeDefault", "Unconfined"];
const PROTOCOLS: Values = &["SCTP", "TCP", "UDP"];
const PULL_POLICIES: Values = &["Always", "IfNotPresent", "Never"];
const QUOTA_SCOPES: Values = &[
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
    "VolumeAttributesClass",
];
const REINVOCATION: Values = &["IfNeeded", "Never"];
const RULE_SCOPES: Values = &["*", "Cluster", "Namespaced"];
const SIDE_EFFECTS: Values = &["None", "NoneOnDryRun", "Some", "Unknown"];
const TAINT_EFFECTS: Values = &["NoExecute", "NoSchedule", "PreferNoSchedule"];
const TERMINATION_MESSAGES: Values = &["FallbackToLogsOnError", "File"];
const TRAFFIC: Values = &["Cluster", "Local"];
const VOLUME_MODES: Values = &["Block", "Filesystem"];
#[rustfmt::skip]
const SIGNALS: Values = &[
    "SIGABRT", "SIGALRM", "SIGBUS", "SIGCHLD", "SIGCLD", "SIGCONT", "SIGFPE", "SIGHUP", "SIGILL", "SIGINT", "SIGIO",
    "SIGIOT", "SIGKILL", "SIGPIPE", "SIGPOLL", "SIGPROF", "SIGPWR", "SIGQUIT", "SIGRTMAX", "SIGRTMAX-1",
    "SIGRTMAX-10", "SIGRTMAX-11", "SIGRTMAX-12", "SIGRTMAX-13", "SIGRTMAX-14", "SIGRTMAX-2", "SIGRTMAX-3",
    "SIGRTMAX-4", "SIGRTMAX-5", "SIGRTMAX-6", "SIGRTMAX-7", "SIGRTMAX-8", "SIGRTMAX-9", "SIGRTMIN", "SIGRTMIN+1",
    "SIGRTMIN+10", "SIGRTMIN+11", "SIGRTMIN+12", "SIGRTMIN+13", "SIGRTMIN+14", "SIGRTMIN+15", "SIGRTMIN+2",
    "SIGRTMIN+3", "SIGRTMIN+4", "SIGRTMIN+5", "SIGRTMIN+6", "SIGRTMIN+7", "SIGRTMIN+8", "SIGRTMIN+9", "SIGSEGV",
    "SIGSTKFLT", "SIGSTOP", "SIGSYS", "SIGTERM", "SIGTRAP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGUSR1",
    "SIGUSR2", "SIGVTALRM", "SIGWINCH", "SIGXCPU", "SIGXFSZ",
];
#[rustfmt::skip]
const USAGES: Values = &[
    "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment",
    "decipher only", "digital signature", "email protection", "encipher only", "ipsec end system", "ipsec tunnel",
    "ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime",
    "server auth", "signing", "timestamping",
];

/// Each row has a type, a field and the values of the field; the rows are sorted. If the field is a list or map, the
/// values are those that its items may have.
#[rustfmt::skip]
const VALUES: &[(&str, &str, Values)] = &[
    ("AppArmorProfile", "type", PROFILES),
    ("AzureDiskVolumeSource", "cachingMode", &["None", "ReadOnly", "ReadWrite"]),
    ("AzureDiskVolumeSource", "kind", &["Dedicated", "Managed", "Shared"]),
    ("CSIDriverSpec", "fsGroupPolicy", &["File", "None", "ReadWriteOnceWithFSType"]),
    ("CSIDriverSpec", "volumeLifecycleModes", &["Ephemeral", "Persistent"]),
    ("CertificateSigningRequestSpec", "usages", USAGES),
    ("Container", "imagePullPolicy", PULL_POLICIES),
    ("Container", "terminationMessagePolicy", TERMINATION_MESSAGES),
    ("ContainerPort", "protocol", PROTOCOLS),
    ("ContainerStatus", "stopSignal", SIGNALS),
    ("CronJobSpec", "concurrencyPolicy", &["Allow", "Forbid", "Replace"]),
    ("DaemonSetUpdateStrategy", "type", ON_DELETE_OR_ROLLING),
    ("DeploymentStrategy", "type", &["Recreate", "RollingUpdate"]),
    ("DeviceAllocationConfiguration", "source", &["FromClaim", "FromClass"]),
    ("DeviceSubRequest", "allocationMode", ALLOCATION_MODES),
    ("DeviceTaint", "effect", &["NoExecute", "NoSchedule", "None"]),
    ("DeviceToleration", "effect", &["NoExecute", "NoSchedule", "None"]),
    ("DeviceToleration", "operator", &["Equal", "Exists"]),
    ("EndpointPort", "protocol", PROTOCOLS),
    ("EndpointSlice", "addressType", &["FQDN", "IPv4", "IPv6"]),
    ("EphemeralContainer", "imagePullPolicy", PULL_POLICIES),
    ("EphemeralContainer", "terminationMessagePolicy", TERMINATION_MESSAGES),
    ("ExactDeviceRequest", "allocationMode", ALLOCATION_MODES),
    ("HTTPGetAction", "scheme", &["HTTP", "HTTPS"]),
    ("HTTPIngressPath", "pathType", &["Exact", "ImplementationSpecific", "Prefix"]),
    ("HostPathVolumeSource", "type", &["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"]),
    ("ImageVolumeSource", "pullPolicy", PULL_POLICIES),
    ("JobSpec", "completionMode", &["Indexed", "NonIndexed"]),
    ("JobSpec", "podReplacementPolicy", &["Failed", "TerminatingOrFailed"]),
    ("Lifecycle", "stopSignal", SIGNALS),
    ("MatchResources", "matchPolicy", MATCH_POLICIES),
    ("ModifyVolumeStatus", "status", &["InProgress", "Infeasible", "Pending"]),
    ("MutatingAdmissionPolicySpec", "failurePolicy", FAILURE_POLICIES),
    ("MutatingAdmissionPolicySpec", "reinvocationPolicy", REINVOCATION),
    ("MutatingWebhook", "failurePolicy", FAILURE_POLICIES),
    ("MutatingWebhook", "matchPolicy", MATCH_POLICIES),
    ("MutatingWebhook", "reinvocationPolicy", REINVOCATION),
    ("MutatingWebhook", "sideEffects", SIDE_EFFECTS),
    ("Mutation", "patchType", &["ApplyConfiguration", "JSONPatch"]),
    ("NamedRuleWithOperations", "operations", OPERATIONS),
    ("NamedRuleWithOperations", "scope", RULE_SCOPES),
    ("NamespaceStatus", "phase", &["Active", "Terminating"]),
    ("NetworkPolicyPort", "protocol", PROTOCOLS),
    ("NetworkPolicySpec", "policyTypes", &["Egress", "Ingress"]),
    ("NodeSelectorRequirement", "operator", &["DoesNotExist", "Exists", "Gt", "In", "Lt", "NotIn"]),
    ("NodeStatus", "phase", &["Pending", "Running", "Terminated"]),
    ("PersistentVolumeClaimSpec", "accessModes", ACCESS_MODES),
    ("PersistentVolumeClaimSpec", "volumeMode", VOLUME_MODES),
    ("PersistentVolumeClaimStatus", "accessModes", ACCESS_MODES),
    ("PersistentVolumeClaimStatus", "allocatedResourceStatuses", &["ControllerResizeInProgress", "ControllerResizeInfeasible", "NodeResizeInProgress", "NodeResizeInfeasible", "NodeResizePending"]),
    ("PersistentVolumeClaimStatus", "phase", &["Bound", "Lost", "Pending"]),
    ("PersistentVolumeSpec", "accessModes", ACCESS_MODES),
    ("PersistentVolumeSpec", "persistentVolumeReclaimPolicy", &["Delete", "Recycle", "Retain"]),
    ("PersistentVolumeSpec", "volumeMode", VOLUME_MODES),
    ("PersistentVolumeStatus", "phase", &["Available", "Bound", "Failed", "Pending", "Released"]),
    ("PodDisruptionBudgetSpec", "unhealthyPodEvictionPolicy", &["AlwaysAllow", "IfHealthyBudget"]),
    ("PodFailurePolicyOnExitCodesRequirement", "operator", &["In", "NotIn"]),
    ("PodFailurePolicyRule", "action", &["Count", "FailIndex", "FailJob", "Ignore"]),
    ("PodSecurityContext", "fsGroupChangePolicy", &["Always", "OnRootMismatch"]),
    ("PodSecurityContext", "supplementalGroupsPolicy", &["Merge", "Strict"]),
    ("PodSpec", "dnsPolicy", &["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"]),
    ("PodSpec", "preemptionPolicy", PREEMPTION),
    ("PodSpec", "restartPolicy", &["Always", "Never", "OnFailure"]),
    ("PodStatus", "phase", &["Failed", "Pending", "Running", "Succeeded", "Unknown"]),
    ("PodStatus", "qosClass", &["BestEffort", "Burstable", "Guaranteed"]),
    ("PortStatus", "protocol", PROTOCOLS),
    ("PriorityClass", "preemptionPolicy", PREEMPTION),
    ("ResourceQuotaSpec", "scopes", QUOTA_SCOPES),
    ("RuleWithOperations", "operations", OPERATIONS),
    ("RuleWithOperations", "scope", RULE_SCOPES),
    ("ScopedResourceSelectorRequirement", "operator", EXPRESSION),
    ("ScopedResourceSelectorRequirement", "scopeName", QUOTA_SCOPES),
    ("SeccompProfile", "type", PROFILES),
    ("SecurityContext", "procMount", &["Default", "Unmasked"]),
    ("ServicePort", "protocol", PROTOCOLS),
    ("ServiceSpec", "externalTrafficPolicy", TRAFFIC),
    ("ServiceSpec", "internalTrafficPolicy", TRAFFIC),
    ("ServiceSpec", "ipFamilies", &["", "IPv4", "IPv6"]),
    ("ServiceSpec", "ipFamilyPolicy", &["PreferDualStack", "RequireDualStack", "SingleStack"]),
    ("ServiceSpec", "sessionAffinity", NONE_OR_CLIENT_IP),
    ("ServiceSpec", "type", &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]),
    ("StatefulSetSpec", "podManagementPolicy", &["OrderedReady", "Parallel"]),
    ("StatefulSetUpdateStrategy", "type", ON_DELETE_OR_ROLLING),
    ("StorageClass", "reclaimPolicy", &["Delete", "Recycle", "Retain"]),
    ("StorageClass", "volumeBindingMode", &["Immediate", "WaitForFirstConsumer"]),
    ("Taint", "effect", TAINT_EFFECTS),
    ("Toleration", "effect", TAINT_EFFECTS),
    ("Toleration", "operator", &["Equal", "Exists", "Gt", "Lt"]),
    ("TopologySpreadConstraint", "nodeAffinityPolicy", HONOR_OR_IGNORE),
    ("TopologySpreadConstraint", "nodeTaintsPolicy", HONOR_OR_IGNORE),
    ("TopologySpreadConstraint", "whenUnsatisfiable", &["DoNotSchedule", "ScheduleAnyway"]),
    ("ValidatingAdmissionPolicyBindingSpec", "validationActions", &["Audit", "Deny", "Warn"]),
    ("ValidatingAdmissionPolicySpec", "failurePolicy", FAILURE_POLICIES),
    ("ValidatingWebhook", "failurePolicy", FAILURE_POLICIES),
    ("ValidatingWebhook", "matchPolicy", MATCH_POLICIES),
    ("ValidatingWebhook", "sideEffects", SIDE_EFFECTS),
    ("VolumeMount", "mountPropagation", &["Bidirectional", "HostToContainer", "None"]),
];

/// A union: its group, its type, the field that is the discriminator, and for each member the field and the value of
/// the discriminator.
type Union = (&'static str, &'static str, &'static str, &'static [(&'static str, &'static str)]);

#[rustfmt::skip]
const UNIONS: &[Union] = &[
    ("core", "AppArmorProfile", "type", &[("localhostProfile", "LocalhostProfile")]),
    ("core", "SeccompProfile", "type", &[("localhostProfile", "LocalhostProfile")]),
    ("flowcontrol", "LimitResponse", "type", &[("queuing", "Queuing")]),
    ("flowcontrol", "PriorityLevelConfigurationSpec", "type", &[("exempt", "Exempt"), ("limited", "Limited")]),
    ("flowcontrol", "Subject", "kind", &[("group", "Group"), ("serviceAccount", "ServiceAccount"), ("user", "User")]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Message, Type, schema};

    fn named(bare: &str) -> impl Iterator<Item = &'static Message> {
        let end = format!(".{bare}");
        schema().messages.iter().filter(move |message| message.name.ends_with(&end))
    }

    #[test]
    fn rows_are_ordered_and_about_texts_that_exist() {
        assert!(VALUES.is_sorted_by(|a, b| (a.0, a.1) < (b.0, b.1)));
        for (bare, field, values) in VALUES {
            assert!(values.is_sorted_by(|a, b| a < b), "{bare}.{field}");
            let fields: Vec<_> = named(bare).filter_map(|message| message.field(field)).collect();
            assert!(!fields.is_empty(), "{bare}.{field}");
            assert!(fields.iter().all(|field| field.ty == Type::String), "{bare}.{field}");
            assert_eq!(super::values(bare, field), Some(*values));
        }
        assert_eq!(values("PodSpec", "nodeName"), None);
    }

    #[test]
    fn defaults_are_among_the_values() {
        for message in &schema().messages {
            let bare = message.name.rsplit('.').next().unwrap();
            for field in &message.fields {
                let (Some(values), Some(default)) = (values(bare, &field.json), &field.default) else { continue };
                let default: String = serde_json::from_str(default).unwrap();
                assert!(values.contains(&default.as_str()), "{}.{}: {default}", message.name, field.json);
            }
        }
    }

    #[test]
    fn unions_are_about_fields_that_exist() {
        for (group, bare, discriminator, members) in UNIONS {
            let start = format!("io.k8s.api.{group}.");
            let messages: Vec<_> = named(bare).filter(|message| message.name.starts_with(&start)).collect();
            assert!(!messages.is_empty(), "{group} {bare}");
            for message in messages {
                assert!(message.field(discriminator).is_some(), "{}", message.name);
                assert!(unions(&message.name).is_some(), "{}", message.name);
                for (member, _) in *members {
                    assert!(message.field(member).is_some(), "{}.{member}", message.name);
                }
            }
        }
        assert_eq!(unions("io.k8s.api.rbac.v1.Subject"), None);
        let expected =
            json!([{"discriminator": "type", "fields-to-discriminateBy": {"localhostProfile": "LocalhostProfile"}}]);
        assert_eq!(unions("io.k8s.api.core.v1.SeccompProfile"), Some(expected));
    }
}
