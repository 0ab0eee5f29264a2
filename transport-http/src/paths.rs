//! Paths that are no resources: discovery, OpenAPI, version, health, metrics.

use crate::api::Api;
use crate::query::Query;
use crate::respond::{self, Response, Shape};
use bytes::Bytes;
use holdfast_core::Refusal;
use holdfast_core::kinds::{Kind, Registry};
use holdfast_core::object::encode;
use holdfast_core::schema::schema;
use holdfast_core::wire::discovery::{Aggregated, Catalog};
use holdfast_core::wire::openapi::{self, NoCustomSchemas, OpenApi};
use http::header::{ACCEPT, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH};
use http::{HeaderMap, Method};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// The Kubernetes release whose API is served.
pub const API_VERSION: &str = "v1.35.0";

/// Documents that describe the API, each made when it is first asked for.
pub struct Documents {
    registry: Arc<Registry>,
    /// As clients reach the server: `10.0.0.1:6443`.
    server_address: String,
    made: Mutex<HashMap<String, Bytes>>,
}

impl Documents {
    pub fn new(registry: Arc<Registry>, server_address: String) -> Documents {
        Documents { registry, server_address, made: Mutex::new(HashMap::new()) }
    }

    /// The document under this name, made now unless it was before.
    fn get(&self, name: &str, make: impl FnOnce(&Catalog) -> Option<Bytes>) -> Option<Bytes> {
        if let Some(found) = self.lock().get(name) {
            return Some(found.clone());
        }
        let made = make(&Catalog::new(&self.registry))?;
        self.lock().insert(name.to_owned(), made.clone());
        Some(made)
    }

    fn openapi(&self, name: &str, make: impl FnOnce(&OpenApi) -> Option<Bytes>) -> Option<Bytes> {
        self.get(name, |_| {
            let catalog = Catalog::new(&self.registry);
            make(&OpenApi { schema: schema(), catalog: &catalog, custom: &NoCustomSchemas, version: API_VERSION })
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Bytes>> {
        self.made.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Answers a path that is no resource.
pub fn answer(
    api: &Arc<Api>,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    query: &Query,
    shape: Shape,
) -> Response {
    if !matches!(*method, Method::GET | Method::HEAD) {
        let message = "the server does not allow this method on the requested resource".into();
        return respond::refusal(&Refusal::MethodNotAllowed { message }, shape);
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let documents = &api.documents;
    let found = match parts.as_slice() {
        [] => Some(json_answer(root(api).into(), shape)),
        ["version"] => Some(json_answer(version().into(), shape)),
        ["healthz" | "livez" | "readyz", ..] => Some(health(api, &parts, query)),
        ["metrics"] => Some(metrics(api)),
        ["api"] | ["apis"] => Some(groups(documents, headers, parts[0] == "api", shape)),
        ["api", version] => resources(documents, "", version, shape),
        ["apis", group] => documents.get(path, |catalog| catalog.api_group(group)).map(|body| json_answer(body, shape)),
        ["apis", group, version] => resources(documents, group, version, shape),
        ["openapi", "v2"] => openapi_v2(documents, headers, shape),
        ["openapi", "v3"] => {
            documents.openapi("openapi/v3", |openapi| Some(openapi.v3_index())).map(|body| json_answer(body, shape))
        }
        ["openapi", "v3", rest @ ..] => openapi_v3(documents, &rest.join("/"), headers, shape),
        _ => None,
    };
    found.unwrap_or_else(|| respond::refusal(&Refusal::NoSuchPath, shape))
}

fn json_answer(body: Bytes, shape: Shape) -> Response {
    respond::bytes(200, body, shape)
}

fn accepts(headers: &HeaderMap) -> &str {
    headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("")
}

/// The aggregated form of `/api` and `/apis`, for clients that put it before the plain one.
pub(crate) fn aggregated_form(accept: &str) -> Option<Aggregated> {
    for clause in accept.split(',') {
        let clause = clause.replace(' ', "");
        let parameter = |wanted: &str| clause.split(';').any(|part| part == wanted);
        if clause == "application/json" || clause.starts_with("*/*") {
            break;
        }
        if !clause.starts_with("application/json;") || !parameter("as=APIGroupDiscoveryList") {
            continue;
        }
        if parameter("v=v2") {
            return Some(Aggregated::V2);
        }
        if parameter("v=v2beta1") {
            return Some(Aggregated::V2beta1);
        }
    }
    None
}

/// `/api` and `/apis`.
fn groups(documents: &Documents, headers: &HeaderMap, core: bool, shape: Shape) -> Response {
    if let Some(form) = aggregated_form(accepts(headers)) {
        let name = format!("aggregated {core} {}", form.content_type());
        if let Some(body) = documents.get(&name, |catalog| Some(catalog.aggregated(core, form))) {
            return tagged(body, form.content_type(), headers, shape);
        }
    }
    let body = documents.get(if core { "api" } else { "apis" }, |catalog| {
        Some(if core { catalog.api_versions(&documents.server_address) } else { catalog.group_list() })
    });
    json_answer(body.unwrap_or_default(), shape)
}

fn resources(documents: &Documents, group: &str, version: &str, shape: Shape) -> Option<Response> {
    let name = format!("resources {group}/{version}");
    documents.get(&name, |catalog| catalog.resource_list(group, version)).map(|body| json_answer(body, shape))
}

/// Whether a client wants `/openapi/v2` in Protobuf.
pub(crate) fn asks_protobuf(accept: &str) -> bool {
    [openapi::V2_PROTOBUF, openapi::V2_PROTOBUF_ASKED].iter().any(|form| accept.contains(form))
}

fn openapi_v2(documents: &Documents, headers: &HeaderMap, shape: Shape) -> Option<Response> {
    if asks_protobuf(accepts(headers)) {
        let body = documents.openapi("openapi/v2 protobuf", |openapi| Some(openapi.v2_protobuf()))?;
        return Some(tagged(body, openapi::V2_PROTOBUF, headers, shape));
    }
    let body = documents.openapi("openapi/v2", |openapi| Some(openapi.v2_json()))?;
    Some(tagged(body, respond::JSON, headers, shape))
}

fn openapi_v3(documents: &Documents, path: &str, headers: &HeaderMap, shape: Shape) -> Option<Response> {
    let body = documents.openapi(&format!("openapi/v3/{path}"), |openapi| openapi.v3_document(path))?;
    Some(tagged(body, respond::JSON, headers, shape))
}

/// A document with a tag, so that a client need not fetch again what it has.
pub(crate) fn tagged(body: Bytes, content_type: &'static str, headers: &HeaderMap, shape: Shape) -> Response {
    let tag = format!("\"{}\"", openapi::etag(&body));
    let known = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok()) == Some(&tag);
    let mut response = if known {
        respond::content(304, Bytes::new(), content_type, false)
    } else {
        respond::content(200, body, content_type, shape.gzip)
    };
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    response.headers_mut().insert(http::header::VARY, HeaderValue::from_static("Accept"));
    response
}

/// The paths there are.
fn root(api: &Api) -> Vec<u8> {
    let catalog = Catalog::new(&api.documents.registry);
    let mut paths: Vec<String> =
        ["/api", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]
            .map(str::to_owned)
            .into();
    for version in catalog.group_versions() {
        let path = format!("/{}", version.path());
        if let Some((group, _)) = path.rsplit_once('/').filter(|(group, _)| *group != "/api") {
            paths.push(group.to_owned());
        }
        paths.push(path);
    }
    paths.extend(CHECKS.iter().flat_map(|check| ["healthz", "livez", "readyz"].map(|kind| format!("/{kind}/{check}"))));
    paths.sort();
    paths.dedup();
    encoded(json!({ "paths": paths }))
}

/// Kubernetes' version, with Holdfast's own behind the plus sign.
pub fn git_version() -> String {
    format!("{API_VERSION}+holdfast.{}", env!("CARGO_PKG_VERSION"))
}

fn version() -> Vec<u8> {
    let mut numbers = API_VERSION.trim_start_matches('v').split('.');
    encoded(json!({
        "major": numbers.next().unwrap_or_default(),
        "minor": numbers.next().unwrap_or_default(),
        "gitVersion": git_version(),
        "gitCommit": option_env!("HOLDFAST_COMMIT").unwrap_or(""),
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        }),
    }))
}

fn encoded(value: Value) -> Vec<u8> {
    value.as_object().map(encode::document).unwrap_or_default()
}

/// The checks behind each health path; `readyz` has one more, for the server that is stopping.
const CHECKS: &[&str] = &["log", "ping", "poststarthook/bootstrap"];

fn health(api: &Api, parts: &[&str], query: &Query) -> Response {
    let kind = parts[0];
    let excluded: Vec<&str> = query.get("exclude").into_iter().collect();
    let mut checks: Vec<&str> = CHECKS.to_vec();
    if kind == "readyz" {
        checks.push("shutdown");
    }
    if parts.len() > 1 {
        let wanted = parts[1..].join("/");
        return match checks.contains(&wanted.as_str()).then(|| check(api, &wanted)) {
            None => respond::text(404, "404 page not found\n"),
            Some(Ok(())) => respond::text(200, "ok"),
            Some(Err(why)) => respond::text(500, format!("internal server error: {why}\n")),
        };
    }
    let mut lines = String::new();
    let mut failed = false;
    for name in checks {
        if excluded.contains(&name) {
            lines.push_str(&format!("[+]{name} excluded: ok\n"));
            continue;
        }
        match check(api, name) {
            Ok(()) => lines.push_str(&format!("[+]{name} ok\n")),
            Err(why) => {
                failed = true;
                lines.push_str(&format!("[-]{name} failed: {why}\n"));
            }
        }
    }
    match (failed, query.get("verbose").is_some()) {
        (true, _) => respond::text(500, format!("{lines}{kind} check failed\n")),
        (false, true) => respond::text(200, format!("{lines}{kind} check passed\n")),
        (false, false) => respond::text(200, "ok"),
    }
}

fn check(api: &Api, name: &str) -> Result<(), String> {
    match name {
        "ping" => Ok(()),
        "log" => api.engine.log().last().map(|_| ()).map_err(|fault| fault.to_string()),
        "poststarthook/bootstrap" if *api.ready.borrow() => Ok(()),
        "poststarthook/bootstrap" => Err("not finished".into()),
        "shutdown" if *api.stopping.borrow() => Err("the server is stopping".into()),
        _ => Ok(()),
    }
}

fn metrics(api: &Api) -> Response {
    let reading = api.limits.reading.load(Ordering::Relaxed);
    let mutating = api.limits.mutating.load(Ordering::Relaxed);
    let text = api.metrics.render(&api.engine.snapshot(), reading, mutating);
    let mut response = respond::text(200, text);
    let form = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, form);
    response
}

/// The answer of subresources that lead to a node, while no node is connected.
pub fn unreachable_node(kind: &Kind, subresource: &str, object: &Value) -> Refusal {
    let name = object["metadata"]["name"].as_str().unwrap_or("");
    match kind.kind.as_str() {
        "Pod" => match object["spec"]["nodeName"].as_str().unwrap_or("") {
            "" => Refusal::BadRequest(format!("pod {name} does not have a host assigned")),
            node if subresource == "proxy" => {
                Refusal::Unavailable(format!("error trying to reach service: the node {node:?} is not connected"))
            }
            node => Refusal::Internal(format!(
                "error dialing backend: dial tcp: lookup {node}: the node {node:?} cannot be reached for {subresource}"
            )),
        },
        "Service" => Refusal::Unavailable(format!("no endpoints available for service {name:?}")),
        _ => Refusal::Unavailable(format!("error trying to reach service: the node {name:?} is not connected")),
    }
}
