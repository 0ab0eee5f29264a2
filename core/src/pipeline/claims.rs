//! The claims of a service account token, before it is signed.

/// The claims of a token. The signer adds the issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenClaims {
    pub id: String,
    /// `system:serviceaccount:default:builder`.
    pub subject: String,
    /// The audiences; empty for the signer's own audiences.
    pub audiences: Vec<String>,
    /// The time of issue, in seconds since 1970 like all times here.
    pub issued: i64,
    pub expires: i64,
    /// Whether the signer may extend the lifetime. The signer does so only if all audiences are audiences
    /// of the server itself.
    pub extends: bool,
    pub namespace: String,
    pub account: BoundTo,
    pub pod: Option<BoundTo>,
    pub secret: Option<BoundTo>,
    pub node: Option<BoundTo>,
}

/// An object that bounds the token's lifetime: when the object no longer exists, the token is invalid.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BoundTo {
    pub name: String,
    pub uid: String,
}
