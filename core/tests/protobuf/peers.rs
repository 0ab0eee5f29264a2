//! Compares the codec with the generated types of the crate k8s-pb. Those types must read the codec's bytes without
//! loss, and the codec must read the bytes that they write.

use holdfast_core::{
    schema::{MessageId, schema},
    wire::protobuf::codec,
};
use holdfast_value::Value;
use k8s_pb::{
    api, apiextensions_apiserver::pkg::apis::apiextensions, apimachinery::pkg::apis::meta,
    kube_aggregator::pkg::apis::apiregistration,
};
use prost::Message;

use crate::generate::{Choices, document};

/// Makes a list of message names, each with the function that decodes and encodes the generated type of the message.
macro_rules! peers {
    ($($name:literal: $ty:ty,)*) => {
        &[$(($name, exchange::<$ty> as fn(&[u8]) -> Vec<u8>),)*]
    };
}

type Exchange = fn(&[u8]) -> Vec<u8>;

const PEERS: &[(&str, Exchange)] = peers! {
    "api.admission.v1.AdmissionReview": api::admission::v1::AdmissionReview,
    "api.admissionregistration.v1.MutatingWebhookConfiguration": api::admissionregistration::v1::MutatingWebhookConfiguration,
    "api.admissionregistration.v1.ValidatingAdmissionPolicy": api::admissionregistration::v1::ValidatingAdmissionPolicy,
    "api.admissionregistration.v1.ValidatingAdmissionPolicyBinding": api::admissionregistration::v1::ValidatingAdmissionPolicyBinding,
    "api.admissionregistration.v1.ValidatingWebhookConfiguration": api::admissionregistration::v1::ValidatingWebhookConfiguration,
    "api.admissionregistration.v1alpha1.MutatingAdmissionPolicy": api::admissionregistration::v1alpha1::MutatingAdmissionPolicy,
    "api.admissionregistration.v1alpha1.MutatingAdmissionPolicyBinding": api::admissionregistration::v1alpha1::MutatingAdmissionPolicyBinding,
    "api.admissionregistration.v1beta1.MutatingAdmissionPolicy": api::admissionregistration::v1beta1::MutatingAdmissionPolicy,
    "api.admissionregistration.v1beta1.MutatingAdmissionPolicyBinding": api::admissionregistration::v1beta1::MutatingAdmissionPolicyBinding,
    "api.apiserverinternal.v1alpha1.StorageVersion": api::apiserverinternal::v1alpha1::StorageVersion,
    "api.apps.v1.ControllerRevision": api::apps::v1::ControllerRevision,
    "api.apps.v1.DaemonSet": api::apps::v1::DaemonSet,
    "api.apps.v1.Deployment": api::apps::v1::Deployment,
    "api.apps.v1.DeploymentList": api::apps::v1::DeploymentList,
    "api.apps.v1.ReplicaSet": api::apps::v1::ReplicaSet,
    "api.apps.v1.StatefulSet": api::apps::v1::StatefulSet,
    "api.apps.v1beta1.Deployment": api::apps::v1beta1::Deployment,
    "api.apps.v1beta2.Scale": api::apps::v1beta2::Scale,
    "api.apps.v1beta2.StatefulSet": api::apps::v1beta2::StatefulSet,
    "api.authentication.v1.SelfSubjectReview": api::authentication::v1::SelfSubjectReview,
    "api.authentication.v1.TokenRequest": api::authentication::v1::TokenRequest,
    "api.authentication.v1.TokenReview": api::authentication::v1::TokenReview,
    "api.authorization.v1.LocalSubjectAccessReview": api::authorization::v1::LocalSubjectAccessReview,
    "api.authorization.v1.SelfSubjectAccessReview": api::authorization::v1::SelfSubjectAccessReview,
    "api.authorization.v1.SelfSubjectRulesReview": api::authorization::v1::SelfSubjectRulesReview,
    "api.authorization.v1.SubjectAccessReview": api::authorization::v1::SubjectAccessReview,
    "api.autoscaling.v1.HorizontalPodAutoscaler": api::autoscaling::v1::HorizontalPodAutoscaler,
    "api.autoscaling.v1.Scale": api::autoscaling::v1::Scale,
    "api.autoscaling.v2.HorizontalPodAutoscaler": api::autoscaling::v2::HorizontalPodAutoscaler,
    "api.autoscaling.v2beta1.HorizontalPodAutoscaler": api::autoscaling::v2beta1::HorizontalPodAutoscaler,
    "api.autoscaling.v2beta2.HorizontalPodAutoscaler": api::autoscaling::v2beta2::HorizontalPodAutoscaler,
    "api.batch.v1.CronJob": api::batch::v1::CronJob,
    "api.batch.v1.Job": api::batch::v1::Job,
    "api.batch.v1beta1.CronJob": api::batch::v1beta1::CronJob,
    "api.certificates.v1.CertificateSigningRequest": api::certificates::v1::CertificateSigningRequest,
    "api.certificates.v1alpha1.ClusterTrustBundle": api::certificates::v1alpha1::ClusterTrustBundle,
    "api.certificates.v1beta1.ClusterTrustBundle": api::certificates::v1beta1::ClusterTrustBundle,
    "api.certificates.v1beta1.PodCertificateRequest": api::certificates::v1beta1::PodCertificateRequest,
    "api.coordination.v1.Lease": api::coordination::v1::Lease,
    "api.coordination.v1alpha2.LeaseCandidate": api::coordination::v1alpha2::LeaseCandidate,
    "api.coordination.v1beta1.LeaseCandidate": api::coordination::v1beta1::LeaseCandidate,
    "api.core.v1.Binding": api::core::v1::Binding,
    "api.core.v1.ComponentStatus": api::core::v1::ComponentStatus,
    "api.core.v1.ConfigMap": api::core::v1::ConfigMap,
    "api.core.v1.ConfigMapList": api::core::v1::ConfigMapList,
    "api.core.v1.Endpoints": api::core::v1::Endpoints,
    "api.core.v1.Event": api::core::v1::Event,
    "api.core.v1.LimitRange": api::core::v1::LimitRange,
    "api.core.v1.Namespace": api::core::v1::Namespace,
    "api.core.v1.Node": api::core::v1::Node,
    "api.core.v1.PersistentVolume": api::core::v1::PersistentVolume,
    "api.core.v1.PersistentVolumeClaim": api::core::v1::PersistentVolumeClaim,
    "api.core.v1.Pod": api::core::v1::Pod,
    "api.core.v1.PodList": api::core::v1::PodList,
    "api.core.v1.PodTemplate": api::core::v1::PodTemplate,
    "api.core.v1.ReplicationController": api::core::v1::ReplicationController,
    "api.core.v1.ResourceQuota": api::core::v1::ResourceQuota,
    "api.core.v1.Secret": api::core::v1::Secret,
    "api.core.v1.Service": api::core::v1::Service,
    "api.core.v1.ServiceAccount": api::core::v1::ServiceAccount,
    "api.discovery.v1.EndpointSlice": api::discovery::v1::EndpointSlice,
    "api.events.v1.Event": api::events::v1::Event,
    "api.extensions.v1beta1.Deployment": api::extensions::v1beta1::Deployment,
    "api.extensions.v1beta1.Ingress": api::extensions::v1beta1::Ingress,
    "api.flowcontrol.v1.FlowSchema": api::flowcontrol::v1::FlowSchema,
    "api.flowcontrol.v1.PriorityLevelConfiguration": api::flowcontrol::v1::PriorityLevelConfiguration,
    "api.flowcontrol.v1beta3.FlowSchema": api::flowcontrol::v1beta3::FlowSchema,
    "api.networking.v1.IPAddress": api::networking::v1::IPAddress,
    "api.networking.v1.Ingress": api::networking::v1::Ingress,
    "api.networking.v1.IngressClass": api::networking::v1::IngressClass,
    "api.networking.v1.NetworkPolicy": api::networking::v1::NetworkPolicy,
    "api.networking.v1.ServiceCIDR": api::networking::v1::ServiceCIDR,
    "api.networking.v1beta1.IPAddress": api::networking::v1beta1::IPAddress,
    "api.networking.v1beta1.Ingress": api::networking::v1beta1::Ingress,
    "api.networking.v1beta1.ServiceCIDR": api::networking::v1beta1::ServiceCIDR,
    "api.node.v1.RuntimeClass": api::node::v1::RuntimeClass,
    "api.policy.v1.Eviction": api::policy::v1::Eviction,
    "api.policy.v1.PodDisruptionBudget": api::policy::v1::PodDisruptionBudget,
    "api.policy.v1beta1.PodDisruptionBudget": api::policy::v1beta1::PodDisruptionBudget,
    "api.rbac.v1.ClusterRole": api::rbac::v1::ClusterRole,
    "api.rbac.v1.ClusterRoleBinding": api::rbac::v1::ClusterRoleBinding,
    "api.rbac.v1.Role": api::rbac::v1::Role,
    "api.rbac.v1.RoleBinding": api::rbac::v1::RoleBinding,
    "api.resource.v1.DeviceClass": api::resource::v1::DeviceClass,
    "api.resource.v1.ResourceClaim": api::resource::v1::ResourceClaim,
    "api.resource.v1.ResourceClaimTemplate": api::resource::v1::ResourceClaimTemplate,
    "api.resource.v1.ResourceSlice": api::resource::v1::ResourceSlice,
    "api.resource.v1alpha3.DeviceTaintRule": api::resource::v1alpha3::DeviceTaintRule,
    "api.resource.v1beta1.DeviceClass": api::resource::v1beta1::DeviceClass,
    "api.resource.v1beta1.ResourceClaim": api::resource::v1beta1::ResourceClaim,
    "api.resource.v1beta1.ResourceClaimTemplate": api::resource::v1beta1::ResourceClaimTemplate,
    "api.resource.v1beta1.ResourceSlice": api::resource::v1beta1::ResourceSlice,
    "api.resource.v1beta2.DeviceClass": api::resource::v1beta2::DeviceClass,
    "api.resource.v1beta2.ResourceClaim": api::resource::v1beta2::ResourceClaim,
    "api.resource.v1beta2.ResourceClaimTemplate": api::resource::v1beta2::ResourceClaimTemplate,
    "api.resource.v1beta2.ResourceSlice": api::resource::v1beta2::ResourceSlice,
    "api.scheduling.v1.PriorityClass": api::scheduling::v1::PriorityClass,
    "api.scheduling.v1alpha1.Workload": api::scheduling::v1alpha1::Workload,
    "api.storage.v1.CSIDriver": api::storage::v1::CSIDriver,
    "api.storage.v1.CSINode": api::storage::v1::CSINode,
    "api.storage.v1.CSIStorageCapacity": api::storage::v1::CSIStorageCapacity,
    "api.storage.v1.StorageClass": api::storage::v1::StorageClass,
    "api.storage.v1.VolumeAttachment": api::storage::v1::VolumeAttachment,
    "api.storage.v1.VolumeAttributesClass": api::storage::v1::VolumeAttributesClass,
    "api.storage.v1beta1.VolumeAttributesClass": api::storage::v1beta1::VolumeAttributesClass,
    "api.storagemigration.v1beta1.StorageVersionMigration": api::storagemigration::v1beta1::StorageVersionMigration,
    "apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition": apiextensions::v1::CustomResourceDefinition,
    "apiextensions-apiserver.pkg.apis.apiextensions.v1beta1.CustomResourceDefinition": apiextensions::v1beta1::CustomResourceDefinition,
    "apimachinery.pkg.apis.meta.v1.CreateOptions": meta::v1::CreateOptions,
    "apimachinery.pkg.apis.meta.v1.DeleteOptions": meta::v1::DeleteOptions,
    "apimachinery.pkg.apis.meta.v1.PartialObjectMetadata": meta::v1::PartialObjectMetadata,
    "apimachinery.pkg.apis.meta.v1.PartialObjectMetadataList": meta::v1::PartialObjectMetadataList,
    "apimachinery.pkg.apis.meta.v1.PatchOptions": meta::v1::PatchOptions,
    "apimachinery.pkg.apis.meta.v1.Status": meta::v1::Status,
    "apimachinery.pkg.apis.meta.v1.UpdateOptions": meta::v1::UpdateOptions,
    "apimachinery.pkg.apis.meta.v1.WatchEvent": meta::v1::WatchEvent,
    "apimachinery.pkg.apis.meta.v1beta1.PartialObjectMetadataList": meta::v1beta1::PartialObjectMetadataList,
    "kube-aggregator.pkg.apis.apiregistration.v1.APIService": apiregistration::v1::APIService,
};

/// Decodes a message into the generated type, and encodes it again.
fn exchange<T: Message + Default>(bytes: &[u8]) -> Vec<u8> {
    let read = T::decode(bytes).expect("the peer reads it");
    assert_eq!(read.encoded_len(), read.encode_to_vec().len());
    read.encode_to_vec()
}

fn compare(id: MessageId, exchange: Exchange, document: &Value) {
    let name = &schema().message(id).name;
    let ours = codec().encode(id, document).unwrap_or_else(|error| panic!("{name}: {error}"));
    let theirs = exchange(&ours);
    let back = codec().decode(id, &theirs).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(back, *document, "{name}");
    // The generated type omits empty keys and values of maps, so the documents have none. Apart from that, it
    // distinguishes set from unset values and drops unknown fields. So equal bytes mean that every number and type is
    // right.
    assert_eq!(ours, theirs, "{name}");
}

#[test]
fn a_peer_reads_and_writes_the_same() {
    for (name, exchange) in PEERS {
        let id = schema().id(&format!("io.k8s.{name}")).unwrap_or_else(|| panic!("{name}"));
        compare(id, *exchange, &document(id, &mut Choices::new(&[]).without_empty_entries()));
        for depth_max in 1..5 {
            for choice in 1..4 {
                compare(
                    id,
                    *exchange,
                    &document(id, &mut Choices::full(&[choice; 65536], depth_max).without_empty_entries()),
                );
            }
        }
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_peer_reads_and_writes_any_document(
        peer in 0..PEERS.len(),
        bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..3000),
    ) {
        let (name, exchange) = PEERS[peer];
        let id = schema().id(&format!("io.k8s.{name}")).expect("a message");
        compare(id, exchange, &document(id, &mut Choices::new(&bytes).without_empty_entries()));
    }
}
