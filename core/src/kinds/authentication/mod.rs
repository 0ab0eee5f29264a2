//! `authentication.k8s.io`: who a token or a request belongs to. Nothing here is stored.

pub mod columns;
pub mod defaults;

use super::Kind;

const GROUP: &str = "authentication.k8s.io";
const PACKAGE: &str = "io.k8s.api.authentication";

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::cluster("TokenReview", "tokenreviews")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1"])
            .columns(columns::of("TokenReview"))
            .unstored(["create"]),
        Kind::cluster("SelfSubjectReview", "selfsubjectreviews")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1", "v1alpha1"])
            .columns(columns::of("SelfSubjectReview"))
            .unstored(["create"]),
    ]
}
