//! What this server tells about itself as an issuer of tokens, for those who verify them.

use crate::respond::{self, Response};
use crate::tokens::Published;
use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, HeaderValue};
use http::{HeaderMap, StatusCode};

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
pub fn answer(published: Option<&Published>, document: Document, headers: &HeaderMap) -> Option<Response> {
    let published = published?;
    let (value, content_type) = match document {
        Document::Configuration => (&published.issuer, "application/json"),
        Document::Keys if !takes_key_set(headers) => {
            let code = StatusCode::NOT_ACCEPTABLE.as_u16();
            let text = format!("406: Not Acceptable\n\nAvailable representations: {KEY_SET}");
            return Some(respond::content(code, text.into(), "application/json", false));
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
