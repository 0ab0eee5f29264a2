//! Defaults of signing requests, which only the first version has.

use crate::schema::defaults::Rule;
use serde_json::json;

pub fn rules() -> Vec<Rule> {
    vec![
        // Kubelets name their signer, so that a request without one is of the kind that no controller signs.
        Rule::of("api.certificates.v1beta1.CertificateSigningRequestSpec")
            .set("signerName", "kubernetes.io/legacy-unknown")
            .set("usages", json!(["digital signature", "key encipherment"])),
    ]
}
