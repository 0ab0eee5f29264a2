//! A server in a kubeconfig with its credentials. Options and configuration files specify webhooks in this form.

use crate::connect::Connector;
use crate::credentials::{Credentials, named, pem};
use crate::egress::Dialer;
use crate::trace::Calling;
use crate::{ANSWER_BYTES_MAX, BoxError, OutBody, OutboundError, TlsTrust, cleaned_url, collect, error_texts};
use bytes::Bytes;
use holdfast_core::object::yaml;
use holdfast_value::Value;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{Method, Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::path::Path;
use std::time::Duration;
use tokio::sync::Semaphore;

/// The maximum number of attempts to send a request to a server that is temporarily unable to answer. Each wait is 1.5
/// times as long as the previous wait.
const TRIES_MAX: u32 = 5;
const WAIT_FACTOR: f64 = 1.5;
const WAIT_JITTER: f64 = 0.2;
/// The maximum number of concurrent calls to one server. Further calls wait for at most the time limit of an answer.
const CALLS_MAX: usize = 256;

/// A server of a kubeconfig to which JSON documents are posted.
pub struct Posting {
    url: Uri,
    client: Client<Connector, OutBody>,
    credentials: Credentials,
    room: Semaphore,
}

/// A failure, with the time for which the server asks the client to wait before the next attempt.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct PostFault {
    #[source]
    pub error: OutboundError,
    pub retry_after: Option<Duration>,
}

impl PostFault {
    /// Whether the failure may be temporary, so that a retry may succeed.
    fn may_pass(&self) -> bool {
        match &self.error {
            OutboundError::Refused { code, .. } => {
                self.retry_after.is_some() || matches!(code.as_u16(), 429 | 500 | 504)
            }
            OutboundError::Unanswered(why) => why.ends_with("connection reset by peer"),
            _ => false,
        }
    }
}

impl Posting {
    /// Reads the server and user of a kubeconfig's current context; `path` is appended to the server's URL.
    pub fn from_file(file: &Path, path: &str, dialer: &Dialer) -> Result<Posting, String> {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let document: Value = yaml::read(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        Posting::of(&document, path, file.parent().unwrap_or(Path::new("")), dialer)
            .map_err(|why| format!("{}: {why}", file.display()))
    }

    fn of(document: &Value, path: &str, folder: &Path, dialer: &Dialer) -> Result<Posting, String> {
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
        let url = cleaned_url(&server)?;
        if !matches!(url.scheme_str(), Some("http" | "https")) {
            return Err(format!("the server {server:?} must be reached by https or http"));
        }
        let host = url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let name = Some(text(&cluster["tls-server-name"])).filter(|name| !name.is_empty()).unwrap_or(host);
        let credentials = Credentials::of(user, folder)?;
        let trust = TlsTrust {
            authorities: pem(cluster, "certificate-authority", folder)?.unwrap_or_default(),
            insecure: cluster["insecure-skip-tls-verify"] == true,
            identified: credentials.identity.is_some(),
        };
        let connector = Connector::direct(&name, &trust, credentials.identity.as_deref())?.through(dialer);
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(crate::IDLE_MAX)
            .build(connector);
        Ok(Posting { url, client, credentials, room: Semaphore::new(CALLS_MAX) })
    }

    /// The server's URL with a query.
    pub fn url(&self, query: &str) -> String {
        let url = self.url.to_string();
        if query.is_empty() { url } else { format!("{url}?{query}") }
    }

    /// Posts a JSON document. Returns the body of a successful answer. Redirects are failures.
    pub async fn post(&self, query: &str, body: Bytes, timeout: Duration) -> Result<Bytes, PostFault> {
        let url = self.url(query);
        let unsaid = |error: OutboundError| PostFault {
            error: OutboundError::Unanswered(format!("Post {url:?}: {error}")),
            retry_after: None,
        };
        let call = async {
            let mut request = self.request(&url, body).map_err(unsaid)?;
            let mut calling = Calling::begin(&mut request);
            let response = self.client.request(request).await.map_err(error_texts::of_client).map_err(unsaid)?;
            let (parts, body) = response.into_parts();
            crate::followed(&mut calling, parts.status);
            let body = collect(body, ANSWER_BYTES_MAX).await.map_err(unsaid)?;
            error_texts::of_answer(&parts, body).map_err(|error| {
                let told = parts.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
                let retry_after = told.and_then(|text| text.parse().ok()).map(Duration::from_secs);
                PostFault { error, retry_after }
            })
        };
        match tokio::time::timeout(timeout, call).await {
            Ok(answer) => answer,
            Err(_) => Err(unsaid(OutboundError::TimedOut)),
        }
    }

    /// Like [`Self::post`], but retries failures that may be temporary. The first wait is `first_wait`; zero means no
    /// retries.
    pub async fn post_again(
        &self,
        query: &str,
        body: &Bytes,
        timeout: Duration,
        first_wait: Duration,
    ) -> Result<Bytes, PostFault> {
        let (mut wait, mut attempt) = (first_wait, 1);
        loop {
            let Ok(Ok(room)) = tokio::time::timeout(timeout, self.room.acquire()).await else {
                let why = format!("Post {:?}: context deadline exceeded", self.url(query));
                return Err(PostFault { error: OutboundError::Unanswered(why), retry_after: None });
            };
            let answer = self.post(query, body.clone(), timeout).await;
            // A call that waits for its next attempt does not count towards the limit of concurrent calls.
            drop(room);
            match answer {
                Err(fault) if attempt < TRIES_MAX && !wait.is_zero() && fault.may_pass() => {
                    let jitter = 1.0 + WAIT_JITTER * rand::random::<f64>();
                    let wanted = fault.retry_after.unwrap_or_default().min(timeout);
                    tokio::time::sleep(wanted.max(wait.mul_f64(jitter))).await;
                    (wait, attempt) = (wait.mul_f64(WAIT_FACTOR), attempt + 1);
                }
                answer => return answer,
            }
        }
    }

    fn request(&self, url: &str, body: Bytes) -> Result<Request<OutBody>, OutboundError> {
        let mut request = Request::new(Full::new(body).map_err(|never| -> BoxError { match never {} }).boxed_unsync());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = url.parse().map_err(|error| OutboundError::Unresolved(format!("{error}")))?;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, */*"));
        headers.insert(USER_AGENT, HeaderValue::from_static("Go-http-client/1.1"));
        self.credentials.show(headers).map_err(OutboundError::Unusable)?;
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

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
        let read = |document: Value| {
            let posting = Posting::of(&document, "", Path::new(""), &Dialer::Direct);
            posting.map(|posting| posting.url("timeout=2s"))
        };
        let token = json!({"token": "t"});
        for (server, user, expected) in [
            ("https://a:1/first", &token, Ok("https://a:1/first?timeout=2s")),
            ("https://a/x?y=z", &json!({"username": "a", "password": "b"}), Ok("https://a/x?timeout=2s")),
            ("https://a//x//y/", &token, Ok("https://a/x/y?timeout=2s")),
            ("http://a/x", &token, Ok("http://a/x?timeout=2s")),
            ("ftp://a/x", &token, Err("the server \"ftp://a/x\" must be reached by https or http")),
            ("https://a b", &token, Err("the URL \"https://a b\" cannot be read: invalid uri character")),
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

    #[tokio::test]
    async fn a_refused_connection_is_not_tried_again() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let server = format!("https://{}", listener.local_addr().expect("an address"));
        drop(listener);
        let kubeconfig = json!({"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "h"}}],
            "clusters": [{"name": "h", "cluster": {"server": server}}]});
        let posting = Posting::of(&kubeconfig, "", Path::new(""), &Dialer::Direct).expect("a kubeconfig");
        let fault = posting.post("", Bytes::new(), Duration::from_secs(10)).await.expect_err("nobody listens");
        assert!(fault.to_string().ends_with("connect: connection refused"), "{fault}");
        assert!(!fault.may_pass());
    }
}
