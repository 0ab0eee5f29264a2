//! The codes and `Status` documents that a transport makes from outcomes, for metrics and audit events.
//!
//! The service decides what an outcome is, and knows no HTTP status codes. The transport, which writes the answers,
//! gives the service these functions in its [`Options`](crate::Options).

use crate::Reply;
use holdfast_core::Refusal;
use holdfast_core::admission::End;
use holdfast_value::Value;
use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};
use std::fmt::{self, Display, Formatter};

/// The functions of a transport. The default is for a service without a transport, whose answers have no codes and are
/// not counted.
#[derive(Clone, Copy)]
pub struct Statuses {
    /// Returns the status code of an answer.
    pub code: fn(Result<&Reply, &Refusal>) -> AnswerCode,
    /// Returns the status code that metrics show for a call of a webhook.
    pub code_of_webhook: fn(End) -> AnswerCode,
    /// Returns the `Status` document of a refusal.
    pub status: fn(&Refusal) -> Value,
}

/// The status code that the transport gives an answer. The service only passes the code on to metrics and audit events.
/// The default, 0, means no answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AnswerCode(pub u16);

impl Default for Statuses {
    fn default() -> Statuses {
        Statuses {
            code: |_| AnswerCode::default(),
            code_of_webhook: |_| AnswerCode::default(),
            status: |_| Value::Null,
        }
    }
}

impl Display for AnswerCode {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(&self.0, f)
    }
}

impl EncodeLabelValue for AnswerCode {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        EncodeLabelValue::encode(&self.0, encoder)
    }
}
