//! A server that a kubeconfig names, and what is shown to it: how options and configuration files tell of webhooks.

use crate::connect::Connector;
use crate::identity::Identity;
use crate::trace::Calling;
use crate::{BoxError, OutBody, OutboundError, TlsTrust, WEBHOOK_BYTES_MAX, collect, words};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, USER_AGENT};
use http::{HeaderMap, Method, Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What is posted to one server.
pub struct Posting {
    url: Uri,
    client: Client<Connector, OutBody>,
    headers: HeaderMap,
    /// Read again for each call: whoever keeps it may put another token there.
    token_file: Option<PathBuf>,
}

/// An answer that is a failure, with how long the server wants to be left alone.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct PostFault {
    #[source]
    pub error: OutboundError,
    pub retry_after: Option<Duration>,
}

impl Posting {
    /// Reads what the current context of a kubeconfig names; `path` goes behind its URL.
    pub fn from_file(file: &Path, path: &str) -> Result<Posting, String> {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let document: Value = serde_yaml_ng::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        Posting::of(&document, path, file.parent().unwrap_or(Path::new("")))
            .map_err(|why| format!("{}: {why}", file.display()))
    }

    fn of(document: &Value, path: &str, folder: &Path) -> Result<Posting, String> {
        let current = document["current-context"].as_str().unwrap_or_default();
        if current.is_empty() {
            return Err("invalid configuration: no configuration has been provided: it has no current-context".into());
        }
        let context = named(document, "contexts", "context", current)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let cluster = named(document, "clusters", "cluster", &text(&context["cluster"]))?;
        let user = match text(&context["user"]) {
            none if none.is_empty() => &Value::Null,
            name => named(document, "users", "user", &name)?,
        };
        let server = text(&cluster["server"]);
        let server = if path.is_empty() { server } else { format!("{}{path}", server.trim_end_matches('/')) };
        let url: Uri = server.parse().map_err(|error| format!("the server {server:?} cannot be read: {error}"))?;
        if url.scheme_str() != Some("https") {
            return Err(format!("the server {server:?} must be reached by https"));
        }
        let host = url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let name = Some(text(&cluster["tls-server-name"])).filter(|name| !name.is_empty()).unwrap_or(host);
        let identity = match (pem(user, "client-certificate", folder)?, pem(user, "client-key", folder)?) {
            (Some(certificate), Some(key)) => Some(Identity::from_pem(&certificate, &key)?),
            (None, None) => None,
            _ => return Err("client-certificate and client-key must be given together".into()),
        };
        let trust = TlsTrust {
            authorities: pem(cluster, "certificate-authority", folder)?.unwrap_or_default(),
            insecure: cluster["insecure-skip-tls-verify"] == true,
            identified: identity.is_some(),
        };
        let connector = Connector::direct(&name, &trust, identity.as_ref())?;
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(crate::IDLE_MAX)
            .build(connector);
        let (headers, token_file) = credentials(user, folder)?;
        Ok(Posting { url, client, headers, token_file })
    }

    /// The server's URL with a query.
    pub fn url(&self, query: &str) -> String {
        let url = self.url.to_string();
        let between = if self.url.query().is_some() { '&' } else { '?' };
        format!("{url}{between}{query}")
    }

    /// Posts a JSON document and gives back the body of a successful answer. Redirects are failures like others.
    pub async fn post(&self, query: &str, body: Bytes, timeout: Duration) -> Result<Bytes, PostFault> {
        let url = self.url(query);
        let unsaid = |error: OutboundError| PostFault {
            error: OutboundError::Unanswered(format!("Post {url:?}: {error}")),
            retry_after: None,
        };
        let call = async {
            let mut request = self.request(&url, body).map_err(unsaid)?;
            let mut calling = Calling::begin(&mut request);
            let response = self.client.request(request).await.map_err(words::of_client).map_err(unsaid)?;
            let (parts, body) = response.into_parts();
            crate::followed(&mut calling, parts.status);
            let body = collect(body, WEBHOOK_BYTES_MAX).await.map_err(unsaid)?;
            if parts.status.is_success() {
                return Ok(body);
            }
            let header = |name| parts.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
            let is_text = header(CONTENT_TYPE).is_none_or(|form| form.starts_with("text/"));
            let retry_after = header(http::header::RETRY_AFTER).and_then(|text| text.parse().ok());
            let error = words::of_status(parts.status, is_text, &body);
            Err(PostFault { error, retry_after: retry_after.map(Duration::from_secs) })
        };
        match tokio::time::timeout(timeout, call).await {
            Ok(answer) => answer,
            Err(_) => Err(unsaid(OutboundError::TimedOut)),
        }
    }

    fn request(&self, url: &str, body: Bytes) -> Result<Request<OutBody>, OutboundError> {
        let mut request = Request::new(Full::new(body).map_err(|never| -> BoxError { match never {} }).boxed_unsync());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = url.parse().map_err(|error| OutboundError::Unresolved(format!("{error}")))?;
        *request.headers_mut() = self.headers.clone();
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, */*"));
        headers.insert(USER_AGENT, HeaderValue::from_static("Go-http-client/1.1"));
        if let Some(file) = &self.token_file {
            let token = std::fs::read_to_string(file);
            let token = token.map_err(|error| OutboundError::Unusable(format!("{}: {error}", file.display())))?;
            headers.insert(AUTHORIZATION, bearer(token.trim()).map_err(OutboundError::Unusable)?);
        }
        Ok(request)
    }
}

/// What the user of a kubeconfig shows, beside a certificate.
fn credentials(user: &Value, folder: &Path) -> Result<(HeaderMap, Option<PathBuf>), String> {
    let text = |field: &str| user[field].as_str().filter(|text| !text.is_empty());
    if let Some(field) = ["exec", "auth-provider"].into_iter().find(|field| !user[*field].is_null()) {
        return Err(format!("a user with {field} cannot be used here: give it a token or a certificate"));
    }
    let mut headers = HeaderMap::new();
    if let Some(token) = text("token") {
        headers.insert(AUTHORIZATION, bearer(token)?);
    } else if let Some(name) = text("username") {
        let both = STANDARD.encode(format!("{name}:{}", text("password").unwrap_or_default()));
        headers.insert(AUTHORIZATION, secret(&format!("Basic {both}"))?);
    }
    Ok((headers, text("tokenFile").map(|file| folder.join(file))))
}

fn bearer(token: &str) -> Result<HeaderValue, String> {
    secret(&format!("Bearer {token}"))
}

fn secret(text: &str) -> Result<HeaderValue, String> {
    let mut value =
        HeaderValue::from_str(text).map_err(|_| "the token has characters that no header has".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

/// An entry of one of a kubeconfig's lists.
fn named<'a>(document: &'a Value, list: &str, field: &str, name: &str) -> Result<&'a Value, String> {
    let entries = document[list].as_array().into_iter().flatten();
    let found = entries.filter(|entry| entry["name"] == name).map(|entry| &entry[field]).next();
    found.ok_or_else(|| format!("{field} {name:?} does not exist"))
}

/// What stands in a kubeconfig itself, or in a file that it names beside it.
fn pem(value: &Value, field: &str, folder: &Path) -> Result<Option<Vec<u8>>, String> {
    let text = |field: &str| value[field].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    if let Some(data) = text(&format!("{field}-data")) {
        return STANDARD.decode(data).map(Some).map_err(|error| format!("{field}-data is not base64: {error}"));
    }
    let Some(file) = text(field) else { return Ok(None) };
    let file = folder.join(file);
    std::fs::read(&file).map(Some).map_err(|error| format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_kubeconfig_says_where_and_how() {
        let document = |server: &str, user: Value| {
            json!({
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "h", "user": "u"}}],
                "clusters": [{"name": "h", "cluster": {"server": server, "insecure-skip-tls-verify": true}}],
                "users": [{"name": "u", "user": user}],
            })
        };
        let read = |document: Value| Posting::of(&document, "", Path::new("")).map(|posting| posting.url("timeout=2s"));
        let token = json!({"token": "t"});
        for (server, user, expected) in [
            ("https://a:1/first", &token, Ok("https://a:1/first?timeout=2s")),
            ("https://a/x?y=z", &json!({"username": "a", "password": "b"}), Ok("https://a/x?y=z&timeout=2s")),
            ("http://a/x", &token, Err("the server \"http://a/x\" must be reached by https")),
            ("https://a b", &token, Err("the server \"https://a b\" cannot be read: invalid uri character")),
            ("https://a", &json!({"token": "a\nb"}), Err("the token has characters that no header has")),
            (
                "https://a",
                &json!({"exec": {}}),
                Err("a user with exec cannot be used here: give it a token or a certificate"),
            ),
        ] {
            let found = read(document(server, user.clone()));
            assert_eq!(found, expected.map(str::to_owned).map_err(str::to_owned), "{server}");
        }
        let mut lost = document("https://a", token);
        lost["current-context"] = "d".into();
        assert_eq!(read(lost), Err("context \"d\" does not exist".into()));
    }
}
