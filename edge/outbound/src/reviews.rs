//! Servers that answer reviews: TokenReviews and SubjectAccessReviews.

use crate::Dialer;
use crate::kubeconfig::{PostFault, Posting};
use bytes::Bytes;
use holdfast_core::object::duration;
use holdfast_value::{Value, json};
use std::path::Path;
use std::time::Duration;

/// The wait before the first retry of a review.
const WAIT: Duration = Duration::from_millis(500);

/// The version of a TokenReview or a SubjectAccessReview.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReviewVersion {
    V1,
    V1Beta1,
}

impl ReviewVersion {
    /// Parses the version of a review. `webhook` names the webhook in the error.
    pub fn parse(webhook: &str, text: &str) -> Result<ReviewVersion, String> {
        match text {
            "v1" => Ok(ReviewVersion::V1),
            "v1beta1" => Ok(ReviewVersion::V1Beta1),
            _ => Err(format!("unsupported {webhook} version {text:?}, supported versions are \"v1\", \"v1beta1\"")),
        }
    }

    /// The `apiVersion` of a review of an API group.
    fn of_group(self, group: &str) -> String {
        let version = match self {
            ReviewVersion::V1 => "v1",
            ReviewVersion::V1Beta1 => "v1beta1",
        };
        format!("{group}/{version}")
    }
}

/// The server to which reviews of one kind are posted.
pub struct Reviewer {
    kind: &'static str,
    group: &'static str,
    version: ReviewVersion,
    posting: Posting,
    timeout: Duration,
}

impl Reviewer {
    /// Reviews are posted to the server of the kubeconfig's current context; `path` is appended to the server's URL.
    /// `timeout` is the time limit of an answer.
    pub fn new(
        (group, kind): (&'static str, &'static str),
        version: ReviewVersion,
        (kubeconfig, path): (&Path, &str),
        timeout: Duration,
        dialer: &Dialer,
    ) -> Result<Reviewer, String> {
        let posting = Posting::from_file(kubeconfig, path, dialer)?;
        Ok(Reviewer { kind, group, version, posting, timeout })
    }

    pub fn version(&self) -> ReviewVersion {
        self.version
    }

    /// Posts a review, and retries if the server may answer later. `status` is the status before the review.
    pub async fn post(&self, spec: Value, status: Value) -> Result<Bytes, PostFault> {
        let review = json!({
            "kind": self.kind,
            "apiVersion": self.version.of_group(self.group),
            "metadata": {},
            "spec": spec,
            "status": status,
        });
        let query = format!("timeout={}", duration::text_of(self.timeout));
        self.posting.post_again(&query, &review.to_string().into(), self.timeout, WAIT).await
    }
}
