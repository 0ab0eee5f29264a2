//! Approves kubelets' certificate signing requests, signs approved requests, and deletes old requests.

pub mod approve;
pub mod clean;
pub mod clean_pods;
mod request;
pub mod sign;

#[cfg(test)]
mod tests;

use holdfast_world::Time;
use holdfast_world::views::CertificateSigningRequest;
use holdfast_world::views::Condition;
use std::fmt::Debug;

pub const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
pub const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
pub const API_CLIENT: &str = "kubernetes.io/kube-apiserver-client";
pub const LEGACY_UNKNOWN: &str = "kubernetes.io/legacy-unknown";

const APPROVED: &str = "Approved";
const DENIED: &str = "Denied";
const FAILED: &str = "Failed";

/// A certificate authority with its key. Signing the same request with the same terms again may give a different
/// certificate.
pub trait Signer: Debug + Send + Sync {
    /// Returns the PEM certificate for a request in DER (PKCS #10) whose signature was not verified yet.
    fn sign(&self, request: &[u8], terms: &Terms) -> Result<String, String>;

    /// The time at which the authority's own certificate expires.
    fn end(&self) -> Time;
}

/// The content of a certificate, except for the subject and the names, which come from the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    pub not_before: Time,
    pub not_after: Time,
    /// The usages, in the words that CertificateSigningRequests use: `client auth`, `digital signature`.
    pub usages: Vec<String>,
    /// A number that is different for every plan, from which the serial number is made.
    pub seed: u64,
}

fn is(request: &CertificateSigningRequest, kind: &str) -> bool {
    Condition::is_true(&request.status.conditions, kind)
}

/// A request that is both approved and denied counts as denied.
fn is_approved(request: &CertificateSigningRequest) -> bool {
    is(request, APPROVED) && !is(request, DENIED)
}
