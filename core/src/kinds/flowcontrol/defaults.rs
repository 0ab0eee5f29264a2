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

#[cfg(test)]
mod tests {
    use crate::schema::defaults::testing::check;
    use expect_test::expect;
    use holdfast_value::json;

    #[test]
    fn a_schema() {
        check(
            "api.flowcontrol.v1.FlowSchema",
            json!({"spec": {"priorityLevelConfiguration": {"name": "x"}}}),
            expect![[r#"
                spec.matchingPrecedence = 1000
                status = {}"#]],
        );
    }

    #[test]
    fn a_limited_level() {
        check(
            "api.flowcontrol.v1.PriorityLevelConfiguration",
            json!({
                "spec": {
                    "type": "Limited",
                    "limited": {
                        "nominalConcurrencyShares": 0,
                        "limitResponse": {"type": "Queue", "queuing": {"queues": 0}},
                    },
                },
            }),
            expect![[r#"
                spec.limited.lendablePercent = 0
                spec.limited.limitResponse.queuing.handSize = 8
                spec.limited.limitResponse.queuing.queueLengthLimit = 50
                spec.limited.limitResponse.queuing.queues = 64
                status = {}"#]],
        );
    }

    #[test]
    fn an_old_level() {
        check(
            "api.flowcontrol.v1beta1.PriorityLevelConfiguration",
            json!({"spec": {"type": "Limited", "limited": {}}}),
            expect![[r#"
                spec.limited.assuredConcurrencyShares = 30
                spec.limited.lendablePercent = 0
                spec.limited.limitResponse.type = ""
                status = {}"#]],
        );
    }

    #[test]
    fn an_exempt_level() {
        check(
            "api.flowcontrol.v1.PriorityLevelConfiguration",
            json!({"spec": {"type": "Exempt", "exempt": {"lendablePercent": 5}}}),
            expect![[r#"
                spec.exempt.nominalConcurrencyShares = 0
                status = {}"#]],
        );
    }
}
