//! Requests over one kept-alive HTTP/1.1 connection.

use crate::wire::HttpClient;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

const ANSWER_MAX: Duration = Duration::from_secs(30);
/// How long to wait for events that may not come.
const EVENTS_MAX: Duration = Duration::from_secs(8);

pub struct ScriptClient {
    wire: HttpClient,
    token: String,
    sender: Option<SendRequest<Full<Bytes>>>,
}

/// The answer to a request; the code is 0 if there was no answer.
#[derive(Clone, Default)]
pub struct Received {
    pub code: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

pub struct Sent<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub headers: &'a BTreeMap<String, Option<String>>,
    /// Headers that a request contains more than once.
    pub more: &'a [(String, String)],
    pub body: Option<Bytes>,
    pub events: Option<usize>,
}

type SendFailure = Box<dyn std::error::Error + Send + Sync>;

impl ScriptClient {
    pub fn new(wire: HttpClient, token: &str) -> ScriptClient {
        ScriptClient { wire: HttpClient { http2: false, ..wire }, token: token.to_owned(), sender: None }
    }

    /// Sends the request, and once more if the connection had ended.
    pub async fn send(&mut self, sent: &Sent<'_>) -> Received {
        for _ in 0..2 {
            match timeout(ANSWER_MAX, self.attempt(sent)).await {
                Ok(Ok(received)) => return received,
                _ => self.sender = None,
            }
        }
        Received::default()
    }

    async fn attempt(&mut self, sent: &Sent<'_>) -> Result<Received, SendFailure> {
        let request = self.request(sent)?;
        let mut sender = match self.sender.take() {
            Some(sender) if !sender.is_closed() => sender,
            _ => {
                let (sender, connection) = handshake(TokioIo::new(self.wire.connect().await?)).await?;
                tokio::spawn(async move { drop(connection.await) });
                sender
            }
        };
        sender.ready().await?;
        let (parts, body) = sender.send_request(request).await?.into_parts();
        let code = parts.status.as_u16();
        let body = match sent.events {
            // The stream may continue, so the connection is dropped.
            Some(count) if code == 200 => events(body, count).await,
            _ => {
                let body = body.collect().await?.to_bytes();
                self.sender = Some(sender);
                body
            }
        };
        Ok(Received { code, headers: parts.headers, body })
    }

    fn request(&self, sent: &Sent<'_>) -> Result<Request<Full<Bytes>>, SendFailure> {
        let mut headers = HeaderMap::new();
        headers.insert("host", self.wire.address.parse()?);
        headers.insert("authorization", format!("Bearer {}", self.token).parse()?);
        headers.insert("user-agent", HeaderValue::from_static("api-diff"));
        headers.insert("accept", HeaderValue::from_static("application/json"));
        for (name, value) in sent.headers {
            let name: HeaderName = name.parse()?;
            match value {
                Some(value) => headers.insert(name, HeaderValue::from_bytes(value.as_bytes())?),
                None => headers.remove(name),
            };
        }
        for (name, value) in sent.more {
            headers.append(name.parse::<HeaderName>()?, HeaderValue::from_bytes(value.as_bytes())?);
        }
        let mut request = Request::new(Full::new(sent.body.clone().unwrap_or_default()));
        *request.method_mut() = Method::from_bytes(sent.method.as_bytes())?;
        *request.uri_mut() = sent.path.parse()?;
        *request.headers_mut() = headers;
        Ok(request)
    }
}

/// The first lines of a stream.
async fn events(mut body: Incoming, count: usize) -> Bytes {
    let end = Instant::now() + EVENTS_MAX;
    let mut lines = Vec::new();
    while lines.iter().filter(|&&byte| byte == b'\n').count() < count {
        match timeout_at(end, body.frame()).await {
            Ok(Some(Ok(frame))) => lines.extend_from_slice(&frame.into_data().unwrap_or_default()),
            _ => break,
        }
    }
    let kept = lines.split_inclusive(|&byte| byte == b'\n').take(count);
    kept.flatten().copied().collect::<Vec<u8>>().into()
}
