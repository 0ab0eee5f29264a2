//! The debug pages of the program that runs this server: `/flagz`, `/statusz`, `/configz` and the paths below `/debug`.

use crate::respond::{self, Response};
use crate::understood::Head;
use http::Method;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use std::sync::Arc;

/// An authorized request for a debug page.
pub struct PageRequest<'a> {
    pub method: &'a Method,
    pub path: &'a str,
    pub query: &'a str,
    pub accept: &'a str,
    pub body: &'a [u8],
}

/// The response to a request for a debug page.
pub struct Page {
    pub code: u16,
    pub content_type: &'static str,
    pub text: String,
}

/// Answers a request for any path of the debug pages.
pub type Pages = Arc<dyn Fn(&PageRequest<'_>) -> Page + Send + Sync>;

/// Lets the program answer the request, if the program has debug pages.
pub(crate) fn answer(pages: Option<&Pages>, head: &Head, path: &str, body: &[u8]) -> Response {
    let Some(pages) = pages else { return respond::text(404, "404 page not found\n") };
    let accept = head.headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    let page = pages(&PageRequest { method: &head.method, path, query: &head.query, accept, body });
    let mut response = respond::text(page.code, page.text);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(page.content_type));
    response
}
