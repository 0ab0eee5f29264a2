//! `certificates.k8s.io`: requests for certificates, and bundles of trust.

pub mod columns;
pub mod defaults;
mod pem;
mod pod_requests;
mod validate;

use super::Kind;
use super::build::{keep_old, text};

const GROUP: &str = "certificates.k8s.io";
const PACKAGE: &str = "io.k8s.api.certificates";

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::cluster("CertificateSigningRequest", "certificatesigningrequests")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1"])
            .short(["csr"])
            .columns(columns::of("CertificateSigningRequest"))
            .validate(validate::request)
            .view("approval")
            .validate_part("approval", validate::approval)
            .status()
            .validate_part("status", validate::status)
            .select("spec.signerName", |object| text(object, "/spec/signerName"))
            // What was asked for never changes: approval and certificate have their own subresources.
            .prepare_update(|new, old| {
                keep_old(new, old, "spec");
                keep_old(new, old, "status");
            }),
        Kind::cluster("ClusterTrustBundle", "clustertrustbundles")
            .versions(GROUP, PACKAGE, ["v1beta1", "v1alpha1"])
            .columns(columns::of("ClusterTrustBundle"))
            .validate(validate::bundle)
            .conditional_update()
            .select("spec.signerName", |object| text(object, "/spec/signerName")),
        Kind::namespaced("PodCertificateRequest", "podcertificaterequests")
            .versions(GROUP, PACKAGE, ["v1beta1"])
            .columns(columns::of("PodCertificateRequest"))
            .validate(pod_requests::request)
            .conditional_update()
            .status()
            .validate_part("status", pod_requests::status)
            .select("spec.signerName", |object| text(object, "/spec/signerName")),
    ]
}
