//! What a token of a service account says, before it is signed.

/// What a token shall say. The issuer is the signer's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenClaims {
    pub id: String,
    /// `system:serviceaccount:default:builder`.
    pub subject: String,
    /// Empty: the signer's own.
    pub audiences: Vec<String>,
    /// In seconds since 1970, as all times here.
    pub issued: i64,
    pub expires: i64,
    /// Whether it may be good for longer, if only this server takes it.
    pub extends: bool,
    pub namespace: String,
    pub account: BoundTo,
    pub pod: Option<BoundTo>,
    pub secret: Option<BoundTo>,
    pub node: Option<BoundTo>,
}

/// An object that a token is good as long as.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BoundTo {
    pub name: String,
    pub uid: String,
}
