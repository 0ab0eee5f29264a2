//! Defaults of API services.

use crate::schema::defaults::Rule;

pub fn rules() -> Vec<Rule> {
    vec![
        Rule::in_versions("kube-aggregator.pkg.apis.apiregistration", &["v1", "v1beta1"], "ServiceReference")
            .set("port", 443),
    ]
}
