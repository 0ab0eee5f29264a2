//! Defaults of priority classes.

use crate::schema::defaults::Rule;

pub fn rules() -> Vec<Rule> {
    vec![
        Rule::in_versions("api.scheduling", &["v1", "v1beta1", "v1alpha1"], "PriorityClass")
            .set("preemptionPolicy", "PreemptLowerPriority"),
    ]
}

#[cfg(test)]
mod tests {
    use crate::schema::defaults::testing::check;
    use expect_test::expect;
    use holdfast_value::json;

    #[test]
    fn a_class() {
        check(
            "api.scheduling.v1.PriorityClass",
            json!({"value": 0}),
            expect![[r#"preemptionPolicy = "PreemptLowerPriority""#]],
        );
    }
}
