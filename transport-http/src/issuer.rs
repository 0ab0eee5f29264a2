//! What this server tells about itself as an issuer of tokens, for those who verify them.

use crate::respond::{self, Response, Shape};
use crate::tokens::Published;
use bytes::Bytes;
use holdfast_core::Refusal;
use holdfast_core::refusal::Ruling;
use http::HeaderMap;
use http::header::{ACCEPT, CACHE_CONTROL, HeaderValue};
use serde_json::Value;

/// A document about the issuer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Document {
    Configuration,
    Keys,
}

const KEY_SET: &str = "application/jwk-set+json";
/// Who verifies tokens need not ask for each of them.
const KEPT: &str = "public, max-age=3600";

/// The document itself; none where the issuer is no URL that anybody could ask.
pub fn answer(
    published: Option<&Published>,
    document: Document,
    headers: &HeaderMap,
    shape: Shape,
) -> Option<Response> {
    let published = published?;
    let (value, content_type) = match document {
        Document::Configuration => (&published.issuer, "application/json"),
        Document::Keys if !takes_key_set(headers) => {
            let message = format!("406: Not Acceptable\n\nAvailable representations: {KEY_SET}");
            let ruling = Ruling { code: 406, reason: "NotAcceptable".into(), message, details: Value::Null };
            return Some(respond::refusal(&Refusal::Ruled(Box::new(ruling)), shape));
        }
        Document::Keys => (&published.keys, KEY_SET),
    };
    let mut response = respond::content(200, Bytes::from(value.to_string()), content_type, false);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static(KEPT));
    Some(response)
}

fn takes_key_set(headers: &HeaderMap) -> bool {
    let Some(accept) = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()) else { return true };
    let types = accept.split(',').filter_map(|one| one.split(';').next()).map(str::trim);
    types.into_iter().any(|one| ["", "*/*", "application/*", KEY_SET].contains(&one))
}
