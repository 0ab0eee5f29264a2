//! Whose a token is, as far as it is asked through the API. Verifying belongs to authentication, which is the
//! transport's.

use holdfast_core::authz::User;
use holdfast_core::state::State;
use std::sync::Arc;

/// Whoever authenticates requests by tokens.
pub trait Tokens: Send + Sync + 'static {
    /// Whose a token is, for one of these audiences, or for the server's own when none is named; `None` when it is
    /// nobody's.
    fn review(&self, state: &State, token: &str, audiences: &[String]) -> Option<Reviewed>;
}

/// Whose a token is, and for which of the audiences that were asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reviewed {
    pub user: Arc<User>,
    pub audiences: Vec<String>,
}

/// Knows no token.
pub struct NoTokens;

impl Tokens for NoTokens {
    fn review(&self, _: &State, _: &str, _: &[String]) -> Option<Reviewed> {
        None
    }
}
