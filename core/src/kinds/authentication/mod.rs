//! `authentication.k8s.io`: the users of tokens and of requests. Objects of this group are not stored.

pub mod columns;
pub mod defaults;

use super::{ApiGroup, Kind, Question};

pub const GROUP: &str = "authentication.k8s.io";
const PACKAGE: &str = "io.k8s.api.authentication";

/// The definition of this group, for the list of all built-in groups.
pub const API_GROUP: ApiGroup = ApiGroup {
    bodies: &[["v1", "TokenRequest", "io.k8s.api.authentication.v1.TokenRequest"]],
    ..ApiGroup::new(GROUP, kinds, defaults::rules).prioritized(17_700, &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)])
};

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::cluster("TokenReview", "tokenreviews")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1"])
            .columns(columns::of("TokenReview"))
            .unstored(Question::TokenReview, ["create"]),
        Kind::cluster("SelfSubjectReview", "selfsubjectreviews")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1", "v1alpha1"])
            .columns(columns::of("SelfSubjectReview"))
            .unstored(Question::SelfSubjectReview, ["create"]),
    ]
}
