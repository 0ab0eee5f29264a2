//! Defaults of token requests.

use crate::schema::defaults::Rule;

pub fn rules() -> Vec<Rule> {
    vec![Rule::of("api.authentication.v1.TokenRequestSpec").set("expirationSeconds", 3600)]
}

#[cfg(test)]
mod tests {
    use crate::schema::defaults::testing::check;
    use expect_test::expect;
    use holdfast_value::json;

    #[test]
    fn a_token_request() {
        check(
            "api.authentication.v1.TokenRequest",
            json!({"spec": {"audiences": []}}),
            expect![[r#"
                spec.boundObjectRef = null
                spec.expirationSeconds = 3600
                status.expirationTimestamp = null
                status.token = """#]],
        );
    }
}
