//! Requests for certificates: those of kubelets are approved, approved ones are signed, old ones are deleted.

pub mod approve;
pub mod clean;
mod request;
pub mod sign;

#[cfg(test)]
mod tests;

use holdfast_world::Time;
use holdfast_world::views::CertificateSigningRequest;
use holdfast_world::views::pod::Condition;
use std::fmt::Debug;

pub const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
pub const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
pub const API_CLIENT: &str = "kubernetes.io/kube-apiserver-client";
pub const LEGACY_UNKNOWN: &str = "kubernetes.io/legacy-unknown";

const APPROVED: &str = "Approved";
const DENIED: &str = "Denied";
const FAILED: &str = "Failed";

/// A certificate authority, with its key. The same request under the same terms may give another certificate.
pub trait Signer: Debug + Send + Sync {
    /// Answers a certificate as PEM for a request in DER (PKCS #10) of which the signature was not checked yet.
    fn sign(&self, request: &[u8], terms: &Terms) -> Result<String, String>;

    /// When the authority's own certificate ends.
    fn end(&self) -> Time;
}

/// What a certificate says beside what was requested: subject and names come from the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    pub not_before: Time,
    pub not_after: Time,
    /// As requests name them: `client auth`, `digital signature`.
    pub usages: Vec<String>,
    /// Different for every plan.
    pub seed: u64,
}

fn is(request: &CertificateSigningRequest, kind: &str) -> bool {
    Condition::is_true(&request.status.conditions, kind)
}

/// Approved and denied at once is denied.
fn is_approved(request: &CertificateSigningRequest) -> bool {
    is(request, APPROVED) && !is(request, DENIED)
}
