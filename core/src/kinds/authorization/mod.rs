//! `authorization.k8s.io`: reviews of a user's permissions, which are not stored.

pub mod columns;
mod convert;
pub mod defaults;

use super::{ApiGroup, Kind, Question};

pub const GROUP: &str = "authorization.k8s.io";
const PACKAGE: &str = "io.k8s.api.authorization";

/// The definition of this group, for the list of all built-in groups.
pub const API_GROUP: ApiGroup =
    ApiGroup::new(GROUP, kinds, defaults::rules).prioritized(17_600, &[("v1", 15), ("v1beta1", 9)]);

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        review(Kind::cluster("SubjectAccessReview", "subjectaccessreviews"), Question::SubjectAccessReview),
        review(Kind::cluster("SelfSubjectAccessReview", "selfsubjectaccessreviews"), Question::SelfSubjectAccessReview),
        review(Kind::cluster("SelfSubjectRulesReview", "selfsubjectrulesreviews"), Question::SelfSubjectRulesReview),
        review(
            Kind::namespaced("LocalSubjectAccessReview", "localsubjectaccessreviews"),
            Question::LocalSubjectAccessReview,
        ),
    ]
}

fn review(kind: Kind, question: Question) -> Kind {
    let columns = columns::of(&kind.kind);
    kind.versions(GROUP, PACKAGE, ["v1"])
        .converted(GROUP, PACKAGE, "v1beta1", convert::GROUPS)
        .columns(columns)
        .unstored(question, ["create"])
}
