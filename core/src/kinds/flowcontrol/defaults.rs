//! Defaults of flow schemas and priority levels.

use crate::schema::defaults::Rule;

const VERSIONS: &[&str] = &["v1", "v1beta3", "v1beta2", "v1beta1"];
const SHARES: i64 = 30;

pub fn rules() -> Vec<Rule> {
    vec![
        Rule::in_versions("api.flowcontrol", VERSIONS, "FlowSchemaSpec").set("matchingPrecedence", 1000),
        Rule::in_versions("api.flowcontrol", VERSIONS, "LimitedPriorityLevelConfiguration").set("lendablePercent", 0),
        Rule::in_versions("api.flowcontrol", &["v1", "v1beta3"], "LimitedPriorityLevelConfiguration")
            .set("nominalConcurrencyShares", SHARES),
        Rule::in_versions("api.flowcontrol", &["v1beta2", "v1beta1"], "LimitedPriorityLevelConfiguration")
            .set("assuredConcurrencyShares", SHARES),
        Rule::in_versions("api.flowcontrol", VERSIONS, "ExemptPriorityLevelConfiguration")
            .set("nominalConcurrencyShares", 0)
            .set("lendablePercent", 0),
        Rule::in_versions("api.flowcontrol", VERSIONS, "QueuingConfiguration")
            .set("queues", 64)
            .set("handSize", 8)
            .set("queueLengthLimit", 50),
    ]
}
