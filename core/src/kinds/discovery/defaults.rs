//! Defaults of endpoint slices.

use crate::schema::defaults::Rule;

pub fn rules() -> Vec<Rule> {
    vec![Rule::in_versions("api.discovery", &["v1", "v1beta1"], "EndpointPort").set("name", "").set("protocol", "TCP")]
}

#[cfg(test)]
mod tests {
    use crate::schema::defaults::testing::check;
    use expect_test::expect;
    use holdfast_value::json;

    #[test]
    fn a_slice() {
        check(
            "api.discovery.v1.EndpointSlice",
            json!({"ports": [{"port": 80}, {"port": 53, "protocol": "UDP", "name": "dns"}]}),
            expect![[r#"
                addressType = ""
                endpoints = null
                ports[0].name = ""
                ports[0].protocol = "TCP""#]],
        );
    }
}
