//! Defaults of API services.

use crate::schema::defaults::Rule;

pub fn rules() -> Vec<Rule> {
    vec![
        Rule::in_versions("kube-aggregator.pkg.apis.apiregistration", &["v1", "v1beta1"], "ServiceReference")
            .set("port", 443),
    ]
}

#[cfg(test)]
mod tests {
    use crate::schema::defaults::testing::check;
    use expect_test::expect;
    use holdfast_value::json;

    #[test]
    fn a_service() {
        check(
            "kube-aggregator.pkg.apis.apiregistration.v1.APIService",
            json!({"spec": {"service": {"name": "s", "namespace": "n"}}}),
            expect![[r#"
                spec.groupPriorityMinimum = 0
                spec.service.port = 443
                spec.versionPriority = 0
                status = {}"#]],
        );
    }
}
