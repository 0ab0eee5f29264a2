//! Defaults of endpoint slices.

use crate::schema::defaults::Rule;

pub fn rules() -> Vec<Rule> {
    vec![Rule::in_versions("api.discovery", &["v1", "v1beta1"], "EndpointPort").set("name", "").set("protocol", "TCP")]
}
