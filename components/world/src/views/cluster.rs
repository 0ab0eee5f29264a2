//! Views of Leases, certificate signing requests, service CIDRs, IP addresses, admission policies and storage versions.

use super::condition::Condition;
use crate::Time;
use crate::object::or_default;
use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Lease {
    pub spec: LeaseSpec,
}

crate::resource!(Lease, "coordination.k8s.io", "v1", "leases", "Lease", namespaced);

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaseSpec {
    pub renew_time: Option<Time>,
    pub lease_duration_seconds: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct CertificateSigningRequest {
    pub spec: SigningSpec,
    pub status: SigningStatus,
}

crate::resource!(
    CertificateSigningRequest,
    "certificates.k8s.io",
    "v1",
    "certificatesigningrequests",
    "CertificateSigningRequest",
    cluster
);

/// A request of a pod for a certificate. Controllers read only its metadata.
#[derive(Debug, Default, Deserialize)]
pub struct PodCertificateRequest {}

crate::resource!(
    PodCertificateRequest,
    "certificates.k8s.io",
    "v1beta1",
    "podcertificaterequests",
    "PodCertificateRequest",
    namespaced
);

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SigningSpec {
    /// The certificate signing request: PEM, encoded in base64.
    pub request: String,
    pub signer_name: String,
    pub expiration_seconds: Option<i64>,
    #[serde(deserialize_with = "or_default")]
    pub usages: Vec<String>,
    pub username: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SigningStatus {
    /// The issued certificate: PEM, encoded in base64; empty until the request is signed.
    pub certificate: String,
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<Condition>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ServiceCIDR {
    pub spec: RangeSpec,
    pub status: RangeStatus,
}

crate::resource!(ServiceCIDR, "networking.k8s.io", "v1", "servicecidrs", "ServiceCIDR", cluster);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RangeSpec {
    #[serde(deserialize_with = "or_default")]
    pub cidrs: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RangeStatus {
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<Condition>,
}

/// An IP address that a Service uses. The name of the object is the address.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct IPAddress {}

crate::resource!(IPAddress, "networking.k8s.io", "v1", "ipaddresses", "IPAddress", cluster);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ValidatingAdmissionPolicy {
    pub status: PolicyStatus,
}

crate::resource!(
    ValidatingAdmissionPolicy,
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    cluster
);

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyStatus {
    pub observed_generation: i64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct StorageVersion {
    pub status: StorageVersionStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageVersionStatus {
    #[serde(deserialize_with = "or_default")]
    pub storage_versions: Vec<ServerStorageVersion>,
}

/// The entry of one API server in a StorageVersion. Only the ID of the server is read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ServerStorageVersion {
    #[serde(rename = "apiServerID")]
    pub server: String,
}

crate::resource!(StorageVersion, "internal.apiserver.k8s.io", "v1alpha1", "storageversions", "StorageVersion", cluster);
