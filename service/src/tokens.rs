//! Whose a token is, as far as it is asked through the API. Verifying belongs to authentication, which is the
//! transport's.

use futures_util::future::BoxFuture;
use holdfast_core::admission::Told;
use holdfast_core::authz::User;
use holdfast_core::state::State;
use std::sync::Arc;

/// Whoever authenticates requests by tokens.
pub trait Tokens: Send + Sync + 'static {
    /// Whose a token is, for one of these audiences, or for the server's own when none is named; or why it is nobody's.
    /// What the token has to tell the client and the auditor is told.
    fn review<'a>(
        &'a self,
        state: &'a State,
        token: &'a str,
        audiences: &'a [String],
        told: &'a mut Told,
    ) -> BoxFuture<'a, Result<Reviewed, String>>;
}

/// Whoever knows tokens that this server does not know itself.
pub trait Elsewhere: Send + Sync + 'static {
    /// Whose a token is; `None` where it is nobody's that they know, an error where it should be and is not.
    fn review<'a>(&'a self, token: &'a str, audiences: &'a [String])
    -> BoxFuture<'a, Result<Option<Reviewed>, String>>;
}

/// What is told of a token that is nobody's.
pub const UNKNOWN_TOKEN: &str = "invalid bearer token";

/// Whose a token is, and for which of the audiences that were asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reviewed {
    pub user: Arc<User>,
    pub audiences: Vec<String>,
}

/// Knows no token.
pub struct NoTokens;

impl Tokens for NoTokens {
    fn review<'a>(
        &'a self,
        _: &'a State,
        _: &'a str,
        _: &'a [String],
        _: &'a mut Told,
    ) -> BoxFuture<'a, Result<Reviewed, String>> {
        Box::pin(async { Err(UNKNOWN_TOKEN.into()) })
    }
}
