//! Tokens, as far as they are asked about through the API: whose one is, and a new one for a service account.
//!
//! Signing and verifying belong to authentication, which is the transport's.

use holdfast_core::authz::User;
use holdfast_core::state::State;
use serde_json::Value;
use std::sync::Arc;

/// Whoever authenticates requests by tokens.
pub trait Tokens: Send + Sync + 'static {
    /// Whose a token is, for one of these audiences, or for the server's own when none is named; `None` when it is
    /// nobody's.
    fn review(&self, state: &State, token: &str, audiences: &[String]) -> Option<Reviewed>;

    /// The audiences of tokens whose request names none.
    fn audiences(&self) -> &[String];

    /// Who signs; `None` where nobody does.
    fn issuer(&self) -> Option<&str>;

    /// Signs the claims of a token.
    fn sign(&self, claims: &Value) -> Result<String, String>;
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

    fn audiences(&self) -> &[String] {
        &[]
    }

    fn issuer(&self) -> Option<&str> {
        None
    }

    fn sign(&self, _: &Value) -> Result<String, String> {
        Err("the server has no key to sign tokens with".into())
    }
}
