//! Defaults of token requests.

use crate::schema::defaults::Rule;

pub fn rules() -> Vec<Rule> {
    vec![Rule::of("api.authentication.v1.TokenRequestSpec").set("expirationSeconds", 3600)]
}
