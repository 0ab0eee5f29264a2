//! Defaults of priority classes.

use crate::schema::defaults::Rule;

pub fn rules() -> Vec<Rule> {
    vec![
        Rule::in_versions("api.scheduling", &["v1", "v1beta1", "v1alpha1"], "PriorityClass")
            .set("preemptionPolicy", "PreemptLowerPriority"),
    ]
}
