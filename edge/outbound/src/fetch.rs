//! Fetches one document from one server.

use crate::connect::Connector;
use crate::{BoxError, Dialer, OutboundError, TlsTrust, collect, error_texts};
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, HeaderValue, USER_AGENT};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use std::time::Duration;

/// The maximum size of a fetched document, in bytes.
const BYTES_MAX: usize = 4 << 20;

/// Gets the document at an `https` URL, with any status code. `token` is sent as a bearer token.
pub async fn fetch(
    url: &str,
    trust: &TlsTrust,
    dialer: &Dialer,
    token: Option<&str>,
    timeout: Duration,
) -> Result<(StatusCode, Bytes), OutboundError> {
    let call = async {
        let unusable = |why: String| OutboundError::Unusable(why);
        let uri: Uri = url.parse().map_err(|error| unusable(format!("{url:?} is not a URL: {error}")))?;
        if uri.scheme() != Some(&http::uri::Scheme::HTTPS) {
            return Err(unusable(format!("{url}: only https is asked")));
        }
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let connector = Connector::direct(&host, trust, None).map_err(unusable)?.through(dialer);
        let body = Empty::<Bytes>::new().map_err(|never| -> BoxError { match never {} }).boxed_unsync();
        let mut request = Request::get(uri)
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, "Go-http-client/2.0")
            .body(body)
            .map_err(|error| unusable(error.to_string()))?;
        if let Some(token) = token {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
                .map_err(|_| unusable("the token has characters that no header has".into()))?;
            value.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        let client = Client::builder(TokioExecutor::new()).build(connector);
        let (parts, body) = client.request(request).await.map_err(error_texts::of_client)?.into_parts();
        Ok((parts.status, collect(body, BYTES_MAX).await?))
    };
    tokio::time::timeout(timeout, call).await.unwrap_or(Err(OutboundError::TimedOut))
}
