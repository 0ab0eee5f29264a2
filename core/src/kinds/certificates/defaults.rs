//! Defaults of signing requests; only `v1beta1` has any.

use crate::schema::defaults::Rule;
use holdfast_value::json;

pub fn rules() -> Vec<Rule> {
    vec![
        // Kubelets set the signer. A request without a signer gets a signer name for which no controller signs.
        Rule::of("api.certificates.v1beta1.CertificateSigningRequestSpec")
            .set("signerName", "kubernetes.io/legacy-unknown")
            .set("usages", json!(["digital signature", "key encipherment"])),
    ]
}

#[cfg(test)]
mod tests {
    use crate::schema::defaults::testing::check;
    use expect_test::expect;
    use holdfast_value::json;

    #[test]
    fn an_old_request() {
        check(
            "api.certificates.v1beta1.CertificateSigningRequest",
            json!({"spec": {"request": ""}}),
            expect![[r#"
            spec.signerName = "kubernetes.io/legacy-unknown"
            spec.usages = ["digital signature","key encipherment"]
            status = {}"#]],
        );
    }
}
