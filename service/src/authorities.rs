//! Who is asked what users may do, beside what the core knows: the webhooks of the chain.

use futures_util::future::BoxFuture;
use holdfast_core::authz::webhook::{Answer, Question};

/// Whoever reaches the authorization webhooks.
pub trait Authorities: Send + Sync + 'static {
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Answer>;

    /// What is counted of them, in Prometheus' form without its end.
    fn metrics(&self) -> String;
}
