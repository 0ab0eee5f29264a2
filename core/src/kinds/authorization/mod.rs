//! `authorization.k8s.io`: questions about what a user may do. Nothing here is stored.

pub mod columns;
mod convert;
pub mod defaults;

use super::Kind;

const GROUP: &str = "authorization.k8s.io";
const PACKAGE: &str = "io.k8s.api.authorization";

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        review(Kind::cluster("SubjectAccessReview", "subjectaccessreviews")),
        review(Kind::cluster("SelfSubjectAccessReview", "selfsubjectaccessreviews")),
        review(Kind::cluster("SelfSubjectRulesReview", "selfsubjectrulesreviews")),
        review(Kind::namespaced("LocalSubjectAccessReview", "localsubjectaccessreviews")),
    ]
}

fn review(kind: Kind) -> Kind {
    let columns = columns::of(&kind.kind);
    kind.versions(GROUP, PACKAGE, ["v1"])
        .converted(GROUP, PACKAGE, "v1beta1", convert::GROUPS)
        .columns(columns)
        .unstored(["create"])
}
