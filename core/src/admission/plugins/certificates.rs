//! CertificateApproval, CertificateSigning and ClusterTrustBundleAttest: a user needs permission to approve, sign or
//! attest for a signer. CertificateSubjectRestriction: no client certificate names the privileged group. The kinds
//! implement the checks.

use crate::admission::{Attributes, Operation};
use crate::authz::escalation::Grant;
use crate::kinds::certificates::signers;
use crate::kinds::known::{CERTIFICATE_SIGNING_REQUEST, CLUSTER_TRUST_BUNDLE};
use crate::pipeline::effect::Stop;

pub(super) fn approval(attributes: &mut Attributes) -> Result<(), Stop> {
    request(attributes, Operation::Update, "approval")
}

pub(super) fn signing(attributes: &mut Attributes) -> Result<(), Stop> {
    request(attributes, Operation::Update, "status")
}

pub(super) fn subject(attributes: &mut Attributes) -> Result<(), Stop> {
    request(attributes, Operation::Create, "")
}

fn request(attributes: &Attributes, operation: Operation, subresource: &str) -> Result<(), Stop> {
    let concerns = attributes.operation == operation && attributes.subresource() == subresource;
    if !concerns || !attributes.is_on(CERTIFICATE_SIGNING_REQUEST) {
        return Ok(());
    }
    Ok(signers::request(&grant(attributes))?)
}

pub(super) fn attest(attributes: &mut Attributes) -> Result<(), Stop> {
    let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
    if !writes || !attributes.is_on(CLUSTER_TRUST_BUNDLE) {
        return Ok(());
    }
    Ok(signers::bundle(&grant(attributes))?)
}

fn grant<'a>(attributes: &'a Attributes) -> Grant<'a> {
    Grant {
        elsewhere: attributes.state,
        authorizer: attributes.authorizer,
        user: attributes.user(),
        namespace: attributes.namespace(),
        name: attributes.request.name(),
        subresource: attributes.subresource(),
        subject: attributes.subject(),
        kind: &attributes.kind.kind,
        new: &attributes.object,
        old: (!attributes.old.is_null()).then_some(attributes.old),
    }
}
