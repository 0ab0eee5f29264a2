//! Traces in the terms of OpenTelemetry and of W3C's `traceparent`: spans of traced requests, and of the calls that
//! these requests make.
//!
//! All work in the task of a request can read the span of the request ([`within`]). Calls to other servers become child
//! spans, and pass their ids to these servers.

use http::{HeaderName, HeaderValue, Request, StatusCode};
use std::pin::pin;
use std::sync::Arc;
use std::time::SystemTime;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// A request or a call, from its beginning to its answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    pub side: Side,
    pub trace: u128,
    pub id: u64,
    /// The id of the parent span; 0 for none.
    pub parent: u64,
    pub name: String,
    pub began: SystemTime,
    pub ended: SystemTime,
    /// The status code; 0 without an answer.
    pub code: u16,
    pub attributes: Vec<(&'static str, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Server,
    Client,
}

impl Span {
    /// Whether the span is an error, either of the server or of the called server.
    pub fn failed(&self) -> bool {
        match self.side {
            Side::Server => self.code >= 500,
            Side::Client => !(1..400).contains(&self.code),
        }
    }
}

/// A function that receives each span after its end. The function must not block.
pub type Take = Arc<dyn Fn(Span) + Send + Sync>;

/// The span of the current request, which is the parent of the spans of the request's calls.
#[derive(Clone)]
pub struct Context {
    pub trace: u128,
    pub id: u64,
    pub take: Take,
}

tokio::task_local! {
    static CONTEXT: Context;
}

/// Runs work. If there is a span, the calls of the work become its children.
pub async fn within<F: Future>(context: Option<Context>, work: F) -> F::Output {
    let work = pin!(work);
    match context {
        Some(context) => CONTEXT.scope(context, work).await,
        None => work.await,
    }
}

/// A traced call. Its span is delivered on drop; if the call was abandoned, the span has no answer.
pub(crate) struct Calling {
    span: Option<Span>,
    take: Take,
}

impl Calling {
    /// Begins the span of a call, and adds the `traceparent` header, if the call belongs to a traced request.
    pub fn begin<B>(request: &mut Request<B>) -> Option<Calling> {
        let context = CONTEXT.try_with(Context::clone).ok()?;
        let id = random()?;
        let header = format!("00-{:032x}-{id:016x}-01", context.trace);
        request.headers_mut().insert(TRACEPARENT, HeaderValue::from_str(&header).ok()?);
        let now = SystemTime::now();
        let (method, url) = (request.method(), request.uri());
        let span = Span {
            side: Side::Client,
            trace: context.trace,
            id,
            parent: context.id,
            name: format!("HTTP {method}"),
            began: now,
            ended: now,
            code: 0,
            attributes: vec![
                ("http.request.method", method.to_string()),
                ("server.address", url.host().unwrap_or_default().to_owned()),
                ("url.full", url.to_string()),
            ],
        };
        Some(Calling { span: Some(span), take: context.take })
    }

    pub fn answered(&mut self, status: StatusCode) {
        if let Some(span) = &mut self.span {
            span.code = status.as_u16();
        }
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        if let Some(mut span) = self.span.take() {
            span.ended = SystemTime::now();
            (self.take)(span);
        }
    }
}

/// A random span id, which is never 0.
fn random() -> Option<u64> {
    let mut bytes = [0; 8];
    rustls::crypto::ring::default_provider().secure_random.fill(&mut bytes).ok()?;
    Some(u64::from_be_bytes(bytes).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    fn context() -> (Context, Arc<Mutex<Vec<Span>>>) {
        let taken: Arc<Mutex<Vec<Span>>> = Arc::default();
        let kept = taken.clone();
        (Context { trace: 7, id: 8, take: Arc::new(move |span| kept.lock().unwrap().push(span)) }, taken)
    }

    #[tokio::test]
    async fn calls_tell_what_they_are_a_part_of() {
        let (context, taken) = context();
        let call = async {
            let mut request = Request::post("https://a.example/x?y=z").body(()).unwrap();
            let calling = Calling::begin(&mut request);
            (calling, request.headers().get(TRACEPARENT).map(|value| value.to_str().unwrap().to_owned()))
        };
        let (calling, header) = within(Some(context.clone()), call).await;
        calling.expect("it is followed").answered(StatusCode::NOT_FOUND);
        let span = taken.lock().unwrap().pop().expect("a span");
        assert_eq!(header, Some(format!("00-{:032x}-{:016x}-01", 7, span.id)));
        assert_eq!((span.trace, span.parent, span.code, span.failed()), (7, 8, 404, true));
        let mut request = Request::get("https://a.example").body(()).unwrap();
        assert!(within(None, async { Calling::begin(&mut request) }).await.is_none());
        assert!(request.headers().is_empty());
    }

    #[tokio::test]
    async fn a_call_that_is_given_up_is_told_without_an_answer() {
        let (context, taken) = context();
        let mut request = Request::get("https://a.example").body(()).unwrap();
        drop(within(Some(context), async { Calling::begin(&mut request) }).await);
        let span = taken.lock().unwrap().pop().expect("a span");
        assert!(span.code == 0 && span.failed());
    }
}
