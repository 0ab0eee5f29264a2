//! What a kind is told of a request to a subresource that leads into a pod.

use crate::refusal::Refusal;

/// What such a request says beside its path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConnectOptions {
    pub container: Option<String>,
    pub limit_bytes: Option<i64>,
    pub since_seconds: Option<i64>,
    pub since_time: Option<String>,
    pub tail_lines: Option<i64>,
}

/// A rule on these options: `(object's name, subresource, options)`.
pub type CheckConnect = fn(&str, &str, &ConnectOptions) -> Result<(), Refusal>;
