//! How Go's decoder names types and fields, where the schema table does not tell: the names of texts that are types of
//! their own, and of structs that stand in others without a name in JSON.
//!
//! Only complaints need these, so a lookup may take its time.

use super::{Field, Message};

/// What a row says of a field.
#[derive(Clone, Copy)]
enum Named {
    /// The type of the value, or of each item.
    Item(&'static str),
    /// The type of the keys of a map.
    Key(&'static str),
    /// The type of a list or a map as a whole.
    Whole(&'static str),
}

use Named::{Item, Key, Whole};

/// The field's value, or each of its items, where its type has a name of its own: `v1.Protocol`.
pub(super) fn item(message: &Message, field: &str) -> Option<String> {
    find(message, field, |named| if let Item(name) = named { Some(name) } else { None })
}

/// The keys of a map.
pub(super) fn key(message: &Message, field: &str) -> Option<String> {
    find(message, field, |named| if let Key(name) = named { Some(name) } else { None })
}

/// A list or map that is a type of its own.
pub(super) fn whole(message: &Message, field: &str) -> Option<String> {
    find(message, field, |named| if let Whole(name) = named { Some(name) } else { None })
}

fn find(message: &Message, field: &str, want: fn(Named) -> Option<&'static str>) -> Option<String> {
    let (package, bare) = message.name.rsplit_once('.')?;
    let rows = TYPES.iter().filter(|(messages, fields, _)| lists(messages, bare) && lists(fields, field));
    let name = rows.filter_map(|(_, _, named)| want(*named)).next()?;
    let own = package.rsplit('.').next().unwrap_or_default();
    Some(if name.contains('.') { name.to_owned() } else { format!("{own}.{name}") })
}

fn lists(names: &str, name: &str) -> bool {
    names.split(' ').any(|found| found == name)
}

/// Whether a type that has a name of its own is a text.
pub fn is_text(name: &str) -> bool {
    let bare = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    TYPES.iter().any(|(.., named)| matches!(named, Item(known) if bare(known) == bare(name)))
}

/// The structs that a field of this message stands in, in Go: `VolumeSource`. None where it is the message's own.
pub(super) fn embedded(message: &Message, field: &Field) -> Vec<&'static str> {
    let mut names = Vec::new();
    let mut within = message.name.rsplit('.').next().unwrap_or_default();
    for number in &field.inline {
        let Some((_, _, name)) = EMBEDDED.iter().find(|(outer, of, _)| lists(outer, within) && of == number) else {
            break;
        };
        names.push(*name);
        within = name;
    }
    names
}

/// Messages, the number of the field, and the struct that stands there.
#[rustfmt::skip]
const EMBEDDED: &[(&str, u32, &str)] = &[
    ("NamedRuleWithOperations", 2, "RuleWithOperations"),
    ("RuleWithOperations", 2, "Rule"),
    ("Volume", 2, "VolumeSource"),
    ("PersistentVolumeSpec", 2, "PersistentVolumeSource"),
    ("EphemeralContainer", 1, "EphemeralContainerCommon"),
    ("Probe", 1, "ProbeHandler"),
    ("IngressRule", 2, "IngressRuleValue"),
    ("DeviceClassConfiguration", 1, "DeviceConfiguration"),
    ("DeviceClaimConfiguration", 2, "DeviceConfiguration"),
    ("DeviceAllocationConfiguration", 3, "DeviceConfiguration"),
    ("ConfigMapEnvSource ConfigMapKeySelector ConfigMapProjection ConfigMapVolumeSource", 1, "LocalObjectReference"),
    ("SecretEnvSource SecretKeySelector SecretProjection", 1, "LocalObjectReference"),
];

/// Messages and fields by their bare names, for in these the versions agree. A type without a package is of the
/// message's own.
#[rustfmt::skip]
const TYPES: &[(&str, &str, Named)] = &[
    // admissionregistration
    ("MatchResources MutatingWebhook ValidatingWebhook", "matchPolicy", Item("MatchPolicyType")),
    ("MutatingWebhook ValidatingWebhook ValidatingAdmissionPolicySpec MutatingAdmissionPolicySpec", "failurePolicy", Item("FailurePolicyType")),
    ("MutatingWebhook MutatingAdmissionPolicySpec", "reinvocationPolicy", Item("ReinvocationPolicyType")),
    ("MutatingWebhook ValidatingWebhook", "sideEffects", Item("SideEffectClass")),
    ("NamedRuleWithOperations RuleWithOperations", "operations", Item("OperationType")),
    ("NamedRuleWithOperations RuleWithOperations Rule", "scope", Item("ScopeType")),
    ("ParamRef", "parameterNotFoundAction", Item("ParameterNotFoundActionType")),
    ("ValidatingAdmissionPolicyBindingSpec", "validationActions", Item("ValidationAction")),
    ("Validation", "reason", Item("v1.StatusReason")),
    ("Mutation", "patchType", Item("PatchType")),
    // apiextensions, apiregistration and the machinery
    ("CustomResourceConversion", "strategy", Item("ConversionStrategyType")),
    ("CustomResourceDefinitionSpec", "scope", Item("ResourceScope")),
    ("CustomResourceDefinitionCondition", "type", Item("CustomResourceDefinitionConditionType")),
    ("JSONSchemaProps", "$schema", Item("JSONSchemaURL")),
    ("JSONSchemaProps", "definitions", Whole("JSONSchemaDefinitions")),
    ("JSONSchemaProps", "dependencies", Whole("JSONSchemaDependencies")),
    ("JSONSchemaProps", "x-kubernetes-validations", Whole("ValidationRules")),
    ("ValidationRule", "reason", Item("FieldValueErrorReason")),
    ("APIServiceCondition", "type", Item("APIServiceConditionType")),
    ("CustomResourceDefinitionCondition APIServiceCondition FlowSchemaCondition PriorityLevelConfigurationCondition Condition", "status", Item("ConditionStatus")),
    ("ObjectMeta OwnerReference ObjectReference Preconditions BoundObjectReference ResourceClaimConsumerReference StatusDetails PodReference", "uid", Item("types.UID")),
    ("ManagedFieldsEntry", "operation", Item("ManagedFieldsOperationType")),
    ("DeleteOptions", "propagationPolicy", Item("DeletionPropagation")),
    ("LabelSelectorRequirement", "operator", Item("LabelSelectorOperator")),
    ("FieldSelectorRequirement", "operator", Item("FieldSelectorOperator")),
    ("ListOptions", "resourceVersionMatch", Item("ResourceVersionMatch")),
    ("Status", "reason", Item("StatusReason")),
    ("StatusCause", "reason", Item("CauseType")),
    // apps and batch
    ("DaemonSetUpdateStrategy", "type", Item("DaemonSetUpdateStrategyType")),
    ("DeploymentStrategy", "type", Item("DeploymentStrategyType")),
    ("StatefulSetUpdateStrategy", "type", Item("StatefulSetUpdateStrategyType")),
    ("StatefulSetPersistentVolumeClaimRetentionPolicy", "whenDeleted whenScaled", Item("PersistentVolumeClaimRetentionPolicyType")),
    ("StatefulSetSpec", "podManagementPolicy", Item("PodManagementPolicyType")),
    ("DaemonSetCondition", "type", Item("DaemonSetConditionType")),
    ("DeploymentCondition", "type", Item("DeploymentConditionType")),
    ("ReplicaSetCondition", "type", Item("ReplicaSetConditionType")),
    ("StatefulSetCondition", "type", Item("StatefulSetConditionType")),
    ("CronJobSpec", "concurrencyPolicy", Item("ConcurrencyPolicy")),
    ("JobCondition", "type", Item("JobConditionType")),
    ("JobSpec", "completionMode", Item("CompletionMode")),
    ("JobSpec", "podReplacementPolicy", Item("PodReplacementPolicy")),
    ("PodFailurePolicyOnExitCodesRequirement", "operator", Item("PodFailurePolicyOnExitCodesOperator")),
    ("PodFailurePolicyOnPodConditionsPattern", "type", Item("v1.PodConditionType")),
    ("PodFailurePolicyRule", "action", Item("PodFailurePolicyAction")),
    ("UncountedTerminatedPods", "failed succeeded", Item("types.UID")),
    ("DaemonSetCondition DeploymentCondition ReplicaSetCondition StatefulSetCondition JobCondition HorizontalPodAutoscalerCondition CertificateSigningRequestCondition ComponentCondition NamespaceCondition NodeCondition PersistentVolumeClaimCondition PodCondition ReplicationControllerCondition PodFailurePolicyOnPodConditionsPattern", "status", Item("v1.ConditionStatus")),
    // authentication and authorization
    ("UserInfo CertificateSigningRequestSpec SubjectAccessReviewSpec", "extra", Item("ExtraValue")),
    // autoscaling
    ("HPAScalingPolicy", "type", Item("HPAScalingPolicyType")),
    ("HPAScalingRules", "selectPolicy", Item("ScalingPolicySelect")),
    ("HorizontalPodAutoscalerCondition", "type", Item("HorizontalPodAutoscalerConditionType")),
    ("MetricSpec MetricStatus", "type", Item("MetricSourceType")),
    ("MetricTarget", "type", Item("MetricTargetType")),
    ("ResourceMetricSource ResourceMetricStatus ContainerResourceMetricSource ContainerResourceMetricStatus", "name", Item("v1.ResourceName")),
    // certificates and coordination
    ("CertificateSigningRequestCondition", "type", Item("RequestConditionType")),
    ("CertificateSigningRequestSpec", "usages", Item("KeyUsage")),
    ("LeaseSpec LeaseCandidateSpec", "strategy", Item("CoordinatedLeaseStrategy")),
    // core: volumes
    ("AzureDiskVolumeSource", "cachingMode", Item("AzureDataDiskCachingMode")),
    ("AzureDiskVolumeSource", "kind", Item("AzureDataDiskKind")),
    ("EmptyDirVolumeSource", "medium", Item("StorageMedium")),
    ("HostPathVolumeSource", "type", Item("HostPathType")),
    ("ImageVolumeSource", "pullPolicy", Item("PullPolicy")),
    ("PersistentVolumeClaimSpec PersistentVolumeClaimStatus PersistentVolumeSpec", "accessModes", Item("PersistentVolumeAccessMode")),
    ("PersistentVolumeClaimSpec PersistentVolumeSpec", "volumeMode", Item("PersistentVolumeMode")),
    ("PersistentVolumeClaimStatus", "phase", Item("PersistentVolumeClaimPhase")),
    ("PersistentVolumeClaimStatus", "allocatedResourceStatuses", Key("ResourceName")),
    ("PersistentVolumeClaimStatus", "allocatedResourceStatuses", Item("ClaimResourceStatus")),
    ("PersistentVolumeClaimCondition", "type", Item("PersistentVolumeClaimConditionType")),
    ("PersistentVolumeSpec", "persistentVolumeReclaimPolicy", Item("PersistentVolumeReclaimPolicy")),
    ("PersistentVolumeStatus", "phase", Item("PersistentVolumePhase")),
    ("ModifyVolumeStatus", "status", Item("PersistentVolumeClaimModifyVolumeStatus")),
    ("VolumeMount", "mountPropagation", Item("MountPropagationMode")),
    ("VolumeMount VolumeMountStatus", "recursiveReadOnly", Item("RecursiveReadOnlyMode")),
    // core: pods
    ("AppArmorProfile", "type", Item("AppArmorProfileType")),
    ("SeccompProfile", "type", Item("SeccompProfileType")),
    ("Capabilities", "add drop", Item("Capability")),
    ("Container EphemeralContainer EphemeralContainerCommon", "imagePullPolicy", Item("PullPolicy")),
    ("Container EphemeralContainer EphemeralContainerCommon", "restartPolicy", Item("ContainerRestartPolicy")),
    ("Container EphemeralContainer EphemeralContainerCommon", "terminationMessagePolicy", Item("TerminationMessagePolicy")),
    ("ContainerPort EndpointPort ServicePort PortStatus", "protocol", Item("v1.Protocol")),
    ("NetworkPolicyPort IngressPortStatus", "protocol", Item("v1.Protocol")),
    ("ContainerResizePolicy", "resourceName", Item("ResourceName")),
    ("ContainerResizePolicy", "restartPolicy", Item("ResourceResizeRestartPolicy")),
    ("ContainerRestartRule", "action", Item("ContainerRestartRuleAction")),
    ("ContainerRestartRuleOnExitCodes", "operator", Item("ContainerRestartRuleOnExitCodesOperator")),
    ("ContainerStatus Lifecycle", "stopSignal", Item("Signal")),
    ("HTTPGetAction", "scheme", Item("URIScheme")),
    ("PodCondition", "type", Item("PodConditionType")),
    ("PodReadinessGate", "conditionType", Item("PodConditionType")),
    ("PodSecurityContext", "fsGroupChangePolicy", Item("PodFSGroupChangePolicy")),
    ("PodSecurityContext", "seLinuxChangePolicy", Item("PodSELinuxChangePolicy")),
    ("PodSecurityContext", "supplementalGroupsPolicy", Item("SupplementalGroupsPolicy")),
    ("PodSpec", "dnsPolicy", Item("DNSPolicy")),
    ("PodSpec", "preemptionPolicy", Item("PreemptionPolicy")),
    ("PriorityClass", "preemptionPolicy", Item("v1.PreemptionPolicy")),
    ("PodSpec", "restartPolicy", Item("RestartPolicy")),
    ("PodOS", "name", Item("OSName")),
    ("PodStatus", "phase", Item("PodPhase")),
    ("PodStatus", "qosClass", Item("PodQOSClass")),
    ("PodStatus", "resize", Item("PodResizeStatus")),
    ("ResourceHealth", "health", Item("ResourceHealthStatus")),
    ("ResourceHealth", "resourceID", Item("ResourceID")),
    ("ResourceStatus", "name", Item("ResourceName")),
    ("SecurityContext", "procMount", Item("ProcMountType")),
    ("Toleration", "effect", Item("TaintEffect")),
    ("Toleration", "operator", Item("TolerationOperator")),
    ("TopologySpreadConstraint", "nodeAffinityPolicy nodeTaintsPolicy", Item("NodeInclusionPolicy")),
    ("TopologySpreadConstraint", "whenUnsatisfiable", Item("UnsatisfiableConstraintAction")),
    // core: the rest
    ("AttachedVolume", "name", Item("UniqueVolumeName")),
    ("ComponentCondition", "type", Item("ComponentConditionType")),
    ("LimitRangeItem", "type", Item("LimitType")),
    ("LoadBalancerIngress", "ipMode", Item("LoadBalancerIPMode")),
    ("NamespaceCondition", "type", Item("NamespaceConditionType")),
    ("NamespaceSpec", "finalizers", Item("FinalizerName")),
    ("NamespaceStatus", "phase", Item("NamespacePhase")),
    ("NodeAddress", "type", Item("NodeAddressType")),
    ("NodeCondition", "type", Item("NodeConditionType")),
    ("NodeSelectorRequirement", "operator", Item("NodeSelectorOperator")),
    ("NodeStatus", "phase", Item("NodePhase")),
    ("NodeStatus", "volumesInUse", Item("UniqueVolumeName")),
    ("ReplicationControllerCondition", "type", Item("ReplicationControllerConditionType")),
    ("ResourceQuotaSpec", "scopes", Item("ResourceQuotaScope")),
    ("ScopedResourceSelectorRequirement", "operator", Item("ScopeSelectorOperator")),
    ("ScopedResourceSelectorRequirement", "scopeName", Item("ResourceQuotaScope")),
    ("Secret", "type", Item("SecretType")),
    ("ServiceSpec", "externalTrafficPolicy", Item("ServiceExternalTrafficPolicy")),
    ("ServiceSpec", "internalTrafficPolicy", Item("ServiceInternalTrafficPolicy")),
    ("ServiceSpec", "ipFamilies", Item("IPFamily")),
    ("ServiceSpec", "ipFamilyPolicy", Item("IPFamilyPolicy")),
    ("ServiceSpec", "sessionAffinity", Item("ServiceAffinity")),
    ("ServiceSpec", "type", Item("ServiceType")),
    ("Taint", "effect", Item("TaintEffect")),
    // discovery, flowcontrol, networking, node, policy
    ("EndpointSlice", "addressType", Item("AddressType")),
    ("FlowDistinguisherMethod", "type", Item("FlowDistinguisherMethodType")),
    ("FlowSchemaCondition", "type", Item("FlowSchemaConditionType")),
    ("LimitResponse", "type", Item("LimitResponseType")),
    ("PriorityLevelConfigurationCondition", "type", Item("PriorityLevelConfigurationConditionType")),
    ("PriorityLevelConfigurationSpec", "type", Item("PriorityLevelEnablement")),
    ("HTTPIngressPath", "pathType", Item("PathType")),
    ("NetworkPolicySpec", "policyTypes", Item("PolicyType")),
    ("Overhead", "podFixed", Whole("v1.ResourceList")),
    ("PodDisruptionBudgetSpec", "unhealthyPodEvictionPolicy", Item("UnhealthyPodEvictionPolicyType")),
    // resource
    ("CapacityRequirements", "requests", Key("QualifiedName")),
    ("DeviceRequestAllocationResult", "consumedCapacity", Key("QualifiedName")),
    ("Device BasicDevice", "attributes capacity", Key("QualifiedName")),
    ("DeviceAllocationConfiguration", "source", Item("AllocationConfigSource")),
    ("DeviceConstraint", "distinctAttribute matchAttribute", Item("FullyQualifiedName")),
    ("DeviceRequestAllocationResult", "shareID", Item("types.UID")),
    ("DeviceRequest DeviceSubRequest ExactDeviceRequest", "allocationMode", Item("DeviceAllocationMode")),
    ("DeviceTaint DeviceToleration", "effect", Item("DeviceTaintEffect")),
    ("DeviceToleration", "operator", Item("DeviceTolerationOperator")),
    // storage
    ("CSIDriverSpec", "fsGroupPolicy", Item("FSGroupPolicy")),
    ("CSIDriverSpec", "volumeLifecycleModes", Item("VolumeLifecycleMode")),
    ("StorageClass", "reclaimPolicy", Item("v1.PersistentVolumeReclaimPolicy")),
    ("StorageClass", "volumeBindingMode", Item("VolumeBindingMode")),
];
