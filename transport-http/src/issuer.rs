//! OpenID discovery: the documents that this server publishes about itself as an issuer of tokens.

use crate::respond::{self, Encoding, Response, Shape};
use crate::tokens::Published;
use bytes::Bytes;
use holdfast_core::Refusal;
use http::HeaderMap;
use http::header::{ACCEPT, CACHE_CONTROL, HeaderValue};

/// One of the two documents that an issuer of tokens publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Document {
    Configuration,
    Keys,
}

const KEY_SET: &str = "application/jwk-set+json";
/// The value of the caching header. Verifiers may cache the documents instead of reading them for each token.
const KEPT: &str = "public, max-age=3600";

/// The response with the document; `None` if the server publishes no documents.
pub fn answer(
    published: Option<&Published>,
    document: Document,
    headers: &HeaderMap,
    shape: Shape,
) -> Option<Response> {
    let published = published?;
    let (value, content_type) = match document {
        Document::Configuration if shape.encoding != Encoding::Json => {
            return Some(not_acceptable(respond::JSON, shape));
        }
        Document::Configuration => (&published.issuer, respond::JSON),
        Document::Keys if !takes_key_set(headers) => {
            return Some(not_acceptable(KEY_SET, shape));
        }
        Document::Keys => (&published.keys, KEY_SET),
    };
    let mut response = respond::content(200, Bytes::from(value.to_string()), content_type, false);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static(KEPT));
    Some(response)
}

fn not_acceptable(offered: &'static str, shape: Shape) -> Response {
    respond::refusal(&Refusal::NotAcceptable { offered, is_offered: false }, shape)
}

fn takes_key_set(headers: &HeaderMap) -> bool {
    let Some(accept) = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()) else { return true };
    let types = accept.split(',').filter_map(|one| one.split(';').next()).map(str::trim);
    types.into_iter().any(|one| ["", "*/*", "application/*", KEY_SET].contains(&one))
}
