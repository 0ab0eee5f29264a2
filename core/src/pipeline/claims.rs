//! The claims of a service account token, before it is signed.

/// The claims of a token. The signer adds the issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenClaims {
    pub id: String,
    /// The name of the account's user, such as `system:serviceaccount:default:builder`.
    pub subject: String,
    /// The audiences of the token. If the list is empty, the signer uses its own audiences.
    pub audiences: Vec<String>,
    /// The time at which the token is issued, in seconds since 1970.
    pub issued: i64,
    /// The time until which the token is valid, in seconds since 1970.
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
