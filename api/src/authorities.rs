//! The authorization webhooks, which the service asks in addition to the authorizers in the core.

use futures_util::future::BoxFuture;
use holdfast_core::authz::webhook::{Answer, Question};

/// Calls the authorization webhooks.
pub trait Authorities: Send + Sync + 'static {
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Answer>;

    /// The webhooks' metrics in Prometheus' text format, without the final line `# EOF`.
    fn metrics(&self) -> String;
}
