//! Verifies tokens for reviews made through the API. The transport's authentication implements [`Tokens`].

use futures_util::future::BoxFuture;
use holdfast_core::admission::Told;
use holdfast_core::authz::User;
use holdfast_core::state::State;
use std::sync::Arc;

/// Authenticates users by tokens.
pub trait Tokens: Send + Sync + 'static {
    /// The user of a token that is valid for one of these audiences, or for one of the server's own audiences if none
    /// is given. The error is the reason why there is no user. `told` receives the warnings for the client and the
    /// audit annotations.
    fn review<'a>(
        &'a self,
        state: &'a State,
        token: &'a str,
        audiences: &'a [String],
        told: &'a mut Told,
    ) -> BoxFuture<'a, Result<Reviewed, String>>;
}

/// Verifies tokens that this server cannot verify itself, by asking another server.
pub trait Elsewhere: Send + Sync + 'static {
    /// The user of a token; `None` if the token is unknown, and an error if the token could not be verified.
    fn review<'a>(&'a self, token: &'a str, audiences: &'a [String])
    -> BoxFuture<'a, Result<Option<Reviewed>, String>>;
}

/// The error for a token that no authenticator accepts.
pub const UNKNOWN_TOKEN: &str = "invalid bearer token";

/// The user of a token, and the requested audiences for which the token is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reviewed {
    pub user: Arc<User>,
    pub audiences: Vec<String>,
}

/// An implementation of [`Tokens`] that rejects every token.
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
