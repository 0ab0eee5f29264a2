//! Sends spans to a collector: OTLP over gRPC, without TLS, like Kubernetes' API server.
//!
//! Spans wait in a bounded queue. Spans that do not fit are dropped and counted; no request waits for a collector.

use crate::tracing_config::TracingConfig;
use anyhow::{Context, Result, anyhow, ensure};
use holdfast_transport_http::spans::{Side, Span, Tracer};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{Receiver, channel};

const QUEUE_MAX: usize = 2048;
const BATCH_MAX: usize = 512;
/// How long spans are gathered before they are sent.
const PERIOD: Duration = Duration::from_secs(1);
/// The timeout of one request to the collector.
const SEND_MAX: Duration = Duration::from_secs(10);
const METHOD: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// Makes a tracer, and starts the task that sends its spans. The task ends when the tracer is dropped.
pub fn tracer(config: &TracingConfig) -> Tracer {
    let (sender, receiver) = channel(QUEUE_MAX);
    let lost = Arc::new(AtomicU64::new(0));
    tokio::spawn(send(receiver, config.endpoint.clone(), lost.clone()));
    let take = move |span| {
        if sender.try_send(span).is_err() {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    };
    Tracer { per_million: config.per_million, take: Arc::new(take) }
}

async fn send(mut spans: Receiver<Span>, endpoint: String, lost: Arc<AtomicU64>) {
    let mut connection: Option<SendRequest<Full<Bytes>>> = None;
    let mut batch = Vec::new();
    while spans.recv_many(&mut batch, BATCH_MAX).await > 0 {
        if batch.len() < BATCH_MAX {
            tokio::time::sleep(PERIOD).await;
            while batch.len() < BATCH_MAX
                && let Ok(span) = spans.try_recv()
            {
                batch.push(span);
            }
        }
        let sent = tokio::time::timeout(SEND_MAX, export(&mut connection, &endpoint, &batch)).await;
        if let Err(error) = sent.unwrap_or_else(|_| Err(anyhow!("it took too long"))) {
            connection = None;
            lost.fetch_add(batch.len() as u64, Ordering::Relaxed);
            let lost = lost.load(Ordering::Relaxed);
            tracing::warn!(endpoint, lost, "spans could not be sent: {error:#}");
        }
        batch.clear();
    }
}

async fn export(connection: &mut Option<SendRequest<Full<Bytes>>>, endpoint: &str, batch: &[Span]) -> Result<()> {
    if connection.as_ref().is_none_or(SendRequest::is_closed) {
        let stream = TcpStream::connect(endpoint).await.context("connect")?;
        let (sender, task) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        tokio::spawn(async move { drop(task.await) });
        *connection = Some(sender);
    }
    let sender = connection.as_mut().context("there is no connection")?;
    let message = request(batch);
    let mut body = vec![0];
    body.extend(u32::try_from(message.len())?.to_be_bytes());
    body.extend(message);
    let request = http::Request::post(format!("http://{endpoint}{METHOD}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(body.into()))?;
    let response = sender.send_request(request).await?;
    ensure!(response.status() == 200, "the collector answered {}", response.status());
    let told = response.headers().get("grpc-status").cloned();
    let trailers = response.into_body().collect().await?.trailers().cloned().unwrap_or_default();
    let status = told.or_else(|| trailers.get("grpc-status").cloned());
    let message = trailers.get("grpc-message").and_then(|text| text.to_str().ok()).unwrap_or("");
    ensure!(status.as_ref().is_none_or(|status| status == "0"), "the collector answered {status:?}: {message}");
    Ok(())
}

/// Encodes spans as an ExportTraceServiceRequest.
fn request(batch: &[Span]) -> Vec<u8> {
    let mut resource = Message::default();
    resource.message(1, attribute("service.name", "apiserver"));
    resource.message(1, attribute("service.version", env!("CARGO_PKG_VERSION")));
    let mut scope = Message::default();
    scope.text(1, "holdfast");
    let mut spans = Message::default();
    spans.message(1, scope);
    for one in batch {
        spans.message(2, span(one));
    }
    let mut of_resource = Message::default();
    of_resource.message(1, resource);
    of_resource.message(2, spans);
    let mut request = Message::default();
    request.message(1, of_resource);
    request.0
}

fn span(span: &Span) -> Message {
    const ERROR: u64 = 2;
    let mut message = Message::default();
    message.bytes(1, &span.trace.to_be_bytes());
    message.bytes(2, &span.id.to_be_bytes());
    if span.parent != 0 {
        message.bytes(4, &span.parent.to_be_bytes());
    }
    message.text(5, &span.name);
    message.number(
        6,
        match span.side {
            Side::Server => 2,
            Side::Client => 3,
        },
    );
    message.fixed(7, nanos(span.began));
    message.fixed(8, nanos(span.ended));
    for (key, value) in span.attributes.iter().filter(|(_, value)| !value.is_empty()) {
        message.message(9, attribute(key, value));
    }
    if span.code != 0 {
        let mut code = Message::default();
        code.number(3, u64::from(span.code));
        let mut attribute = Message::default();
        attribute.text(1, "http.response.status_code");
        attribute.message(2, code);
        message.message(9, attribute);
    }
    if span.failed() {
        let mut status = Message::default();
        status.number(3, ERROR);
        message.message(15, status);
    }
    message
}

fn attribute(key: &str, value: &str) -> Message {
    let mut text = Message::default();
    text.text(1, value);
    let mut attribute = Message::default();
    attribute.text(1, key);
    attribute.message(2, text);
    attribute
}

fn nanos(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).ok().and_then(|since| u64::try_from(since.as_nanos()).ok()).unwrap_or_default()
}

/// A Protobuf message, written field by field.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    fn fixed(&mut self, field: u64, value: u64) {
        self.varint(field << 3 | 1);
        self.0.extend(value.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, value: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend(value);
    }

    fn text(&mut self, field: u64, value: &str) {
        self.bytes(field, value.as_bytes());
    }

    fn message(&mut self, field: u64, value: Message) {
        self.bytes(field, &value.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_written_as_protobuf_has_them() {
        let mut message = Message::default();
        message.number(1, 150);
        message.text(2, "testing");
        message.fixed(3, 1);
        let expected = b"\x08\x96\x01\x12\x07testing\x19\x01\0\0\0\0\0\0\0";
        assert_eq!(message.0, expected);
    }
}
