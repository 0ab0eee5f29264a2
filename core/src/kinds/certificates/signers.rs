//! Checks the permissions of users on signers: to request, approve, sign and attest.

use super::{GROUP, pem};
use crate::authz::escalation::Grant;
use crate::authz::{PRIVILEGED_GROUP, quoted};
use crate::refusal::Refusal;
use holdfast_value::Value;

/// The signer of client certificates for the API.
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// Checks a CertificateSigningRequest that is created, approved or signed.
pub fn request(grant: &Grant<'_>) -> Result<(), Refusal> {
    match (grant.subresource, grant.old) {
        ("", None) => subject(grant),
        ("approval", Some(old)) => {
            let signer = signer_name(old);
            let message = || format!("user not permitted to approve requests with signerName {}", quoted(signer));
            if may(grant, "approve", signer) { Ok(()) } else { Err(grant.forbidden(message())) }
        }
        ("status", Some(old)) => {
            let told = |field: &str| (&old["status"][field], &grant.new["status"][field]);
            let is_signing = ["certificate", "conditions"].into_iter().map(told).any(|(old, new)| old != new);
            let signer = signer_name(old);
            let message = || format!("user not permitted to sign requests with signerName {}", quoted(signer));
            if !is_signing || may(grant, "sign", signer) { Ok(()) } else { Err(grant.forbidden(message())) }
        }
        _ => Ok(()),
    }
}

/// The common name in a request (base64 as in the object); `None` if it cannot be parsed. As in Go, the last of several
/// common names counts.
pub fn common_name(request: &str) -> Option<String> {
    let block = pem::blocks(&pem::decoded(request)).into_iter().next()?;
    Some(pem::common_names(&block.bytes)?.pop().unwrap_or_default())
}

/// Refuses client certificates for the privileged group: their permissions could be revoked only by replacing the CA.
fn subject(grant: &Grant<'_>) -> Result<(), Refusal> {
    if signer_name(grant.new) != CLIENT_SIGNER {
        return Ok(());
    }
    let request = grant.new.pointer("/spec/request").and_then(Value::as_str).unwrap_or_default();
    let request = pem::decoded(request);
    // PEM parsers skip different parts of a text, so with two blocks it is unknown which of them a signer would sign.
    if request.matches(pem::BEGIN).count() > 1 {
        return Err(grant.forbidden("failed to parse CSR: more than one PEM block"));
    }
    // Validation refuses other content with better messages.
    let Some(block) = pem::blocks(&request).into_iter().next().filter(|block| pem::is_signed(&block.bytes)) else {
        return Ok(());
    };
    let Some(organizations) = pem::organizations(&block.bytes) else {
        return Err(grant.forbidden("failed to parse CSR: asn1: structure error"));
    };
    if organizations.iter().any(|group| group == PRIVILEGED_GROUP) {
        let message = format!("use of {CLIENT_SIGNER} signer with {PRIVILEGED_GROUP} group is not allowed");
        return Err(grant.forbidden(message));
    }
    Ok(())
}

/// Checks a ClusterTrustBundle: a bundle of a signer needs the permission `attest` on the signer.
pub fn bundle(grant: &Grant<'_>) -> Result<(), Refusal> {
    let signer = signer_name(grant.new);
    if signer.is_empty() || grant.only_lets_go() || may(grant, "attest", signer) {
        return Ok(());
    }
    Err(grant.forbidden(format!("user not permitted to attest for signerName {}", quoted(signer))))
}

/// Checks a status write of a PodCertificateRequest. As in Kubernetes, a write without permission is refused as
/// invalid.
pub fn pod_request(grant: &Grant<'_>) -> Result<(), Refusal> {
    let Some(old) = grant.old.filter(|old| grant.subresource == "status" && old["status"] != grant.new["status"])
    else {
        return Ok(());
    };
    let signer = signer_name(old);
    if may(grant, "sign", signer) {
        return Ok(());
    }
    let message =
        format!("User {} is not permitted to \"sign\" for signer {}", quoted(&grant.user.name), quoted(signer));
    Err(grant.invalid("spec.signerName", &message))
}

fn signer_name(document: &Value) -> &str {
    document.pointer("/spec/signerName").and_then(Value::as_str).unwrap_or_default()
}

/// Whether the user has the permission `verb` on the signer, or on all signers of the signer's domain:
/// `kubernetes.io/*`.
fn may(grant: &Grant<'_>, verb: &str, signer: &str) -> bool {
    let domain = signer.split('/').next().unwrap_or_default();
    let allows = |name: &str| grant.allows(verb, GROUP, "signers", name);
    allows(signer) || allows(&format!("{domain}/*"))
}
