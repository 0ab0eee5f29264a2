//! The API server's pages for operators, `/flagz`, `/statusz`, `/configz` and `/debug`, which every component has.

use crate::offered::Releases;
use anyhow::{Context, Result, anyhow};
use holdfast_component::files::private_socket;
use holdfast_component::gates::Gates;
use holdfast_component::metrics::{Metrics, ShownMetrics, describe};
use holdfast_component::serving::paths::{self, Paths, Zpages};
use holdfast_service::Service;
use holdfast_transport_http::pages::{Page, PageRequest, Pages};
use holdfast_transport_http::paths::API_VERSION;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::path::Path;
use std::sync::{Arc, RwLock};
use tokio::net::UnixListener;

/// The largest request body that is read: clients send a log level, a single number.
const BODY_BYTES_MAX: usize = 1 << 10;

/// The pages of a server with these options; `profiling` turns on the pages below `/debug`.
pub fn pages(flags: Vec<(String, String)>, releases: Releases, profiling: bool, shown: Zpages) -> Pages {
    let paths = Paths {
        name: "kube-apiserver",
        version: API_VERSION.into(),
        emulated: Some(format!("1.{}", releases.emulated)),
        started: jiff::Timestamp::now(),
        health: Arc::default(),
        metrics: Arc::new(Metrics::new(ShownMetrics::default())),
        profiling,
        shown,
        flags,
        configz: RwLock::default(),
        pages: RwLock::default(),
    };
    Arc::new(move |asked: &PageRequest<'_>| {
        let PageRequest { method, path, query, accept, body } = *asked;
        let answer = paths.answer(&paths::PageRequest { method, path, query, accept, body });
        Page { code: answer.code.as_u16(), content_type: answer.content_type, text: answer.text }
    })
}

/// Registers the metrics that every process has.
pub fn describe_process(service: &Service, gates: &Gates, version: Option<String>) {
    let tasks = Tasks(tokio::runtime::Handle::current().metrics());
    service.counters().with_registry(|registry| {
        describe(registry, version.as_deref().unwrap_or(API_VERSION), gates);
        registry.register_collector(Box::new(tasks));
    });
}

/// Counts the tasks of the tokio runtime.
#[derive(Debug)]
struct Tasks(tokio::runtime::RuntimeMetrics);

impl prometheus_client::collector::Collector for Tasks {
    fn encode(&self, mut encoder: prometheus_client::encoding::DescriptorEncoder) -> std::fmt::Result {
        use prometheus_client::encoding::EncodeMetric;
        let tasks = i64::try_from(self.0.num_alive_tasks()).unwrap_or(i64::MAX);
        let gauge = prometheus_client::metrics::gauge::ConstGauge::new(tasks);
        let help = "Tasks of the process, under the name that dashboards have for them";
        gauge.encode(encoder.encode_descriptor("go_goroutines", help, None, gauge.metric_type())?)
    }
}

/// Serves the pages below `/debug` on a Unix socket that only its owner can open.
pub fn serve_socket(path: &Path, pages: Pages) -> Result<()> {
    let listener = private_socket(path).and_then(|listener| {
        listener.set_nonblocking(true)?;
        UnixListener::from_std(listener)
    });
    let listener = listener.with_context(|| format!("--debug-socket-path={}", path.display()))?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let pages = pages.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| answer(request, pages.clone()));
                let served =
                    http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
                if let Err(error) = served.await {
                    tracing::debug!(%error, "a connection to the socket for debugging ended");
                }
            });
        }
    });
    Ok(())
}

async fn answer(request: Request<Incoming>, pages: Pages) -> Result<Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, BODY_BYTES_MAX).collect().await.map_err(|error| anyhow!(error))?.to_bytes();
    let path = head.uri.path();
    let accept = head.headers.get(http::header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    let page = match path.starts_with("/debug/") {
        true => pages(&PageRequest {
            method: &head.method,
            path,
            query: head.uri.query().unwrap_or(""),
            accept,
            body: &body,
        }),
        false => Page { code: 404, content_type: "text/plain; charset=utf-8", text: "404 page not found\n".into() },
    };
    Ok(Response::builder()
        .status(page.code)
        .header(http::header::CONTENT_TYPE, page.content_type)
        .body(Full::new(page.text.into()))?)
}
