//! The API versions in which webhooks receive reviews.

/// The version of a TokenReview or a SubjectAccessReview.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReviewVersion {
    V1,
    V1Beta1,
}

impl ReviewVersion {
    /// `webhook` names the webhook in the error.
    pub fn parse(webhook: &str, text: &str) -> Result<ReviewVersion, String> {
        match text {
            "v1" => Ok(ReviewVersion::V1),
            "v1beta1" => Ok(ReviewVersion::V1Beta1),
            _ => Err(format!("unsupported {webhook} version {text:?}, supported versions are \"v1\", \"v1beta1\"")),
        }
    }

    /// The `apiVersion` of a review of an API group.
    pub fn of_group(self, group: &str) -> String {
        let version = match self {
            ReviewVersion::V1 => "v1",
            ReviewVersion::V1Beta1 => "v1beta1",
        };
        format!("{group}/{version}")
    }
}
