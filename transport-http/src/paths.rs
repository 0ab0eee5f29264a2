//! Paths that are no resources: discovery, OpenAPI, version, health, metrics.

pub use crate::documents::{API_VERSION, git_version};

use crate::documents::Described;
use crate::health::{self, Checks, PATHS};
use crate::query::Query;
use crate::respond::{self, Encoding, Response, Shape};
use crate::route::{Discovery, Route};
use crate::transport::Transport;
use bytes::Bytes;
use holdfast_core::Refusal;
use holdfast_core::kinds::{Registry, registry as built_in};
use holdfast_core::object::encode;
use holdfast_core::refusal::MethodNotAllowed;
use holdfast_core::schema::schema;
use holdfast_core::wire::discovery::{self, Aggregated, Catalog};
use holdfast_core::wire::openapi::{self, v2};
use holdfast_core::wire::protobuf;
use holdfast_service::Granted;
use holdfast_value::{Value, json};
use http::header::{ACCEPT, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH};
use http::{HeaderMap, Method};

/// Answers a path that is no resource.
pub async fn answer(
    transport: &Transport,
    Granted { user, scene }: &Granted,
    (method, route): (&Method, &Route),
    headers: &HeaderMap,
    query: &Query,
    shape: Shape,
) -> Response {
    let any_method = matches!(
        route,
        Route::Unknown
            | Route::FlowControl(_)
            | Route::Health { .. }
            | Route::Discovery(Discovery::Groups | Discovery::Group(_))
    );
    if !any_method && !matches!(*method, Method::GET | Method::HEAD) {
        return respond::refusal(&Refusal::MethodNotAllowed(MethodNotAllowed::OnResource), shape);
    }
    let state = scene.state();
    let documents = transport.server_info.documents(scene, transport.engine().reads().memory(), user);
    let described = Described { documents: &documents, registry: &state.registry };
    let found = match route {
        Route::Root => Some(json_answer(root(transport, &state.registry).into(), shape)),
        Route::Issuer(document) => transport.server_info.issuer(*document, headers, shape),
        Route::Version if !takes_json(accepts(headers)) => {
            Some(respond::refusal(&Refusal::NotAcceptable { offered: respond::JSON, is_offered: false }, shape))
        }
        Route::Version => {
            let shape = Shape { encoding: Encoding::Json, ..shape };
            Some(json_answer(transport.server_info.version(), shape))
        }
        Route::Health { kind, check } => Some(respond::unsniffed(health::answer(transport, kind, check, query).await)),
        Route::Metrics => Some(metrics(transport).await),
        Route::HealthMetrics => Some(open_metrics(health::metrics(transport).await)),
        Route::Discovery(Discovery::Core) => Some(groups(&described, headers, true, shape)),
        Route::Discovery(Discovery::Groups) => Some(groups(&described, headers, false, shape)),
        Route::Discovery(Discovery::Group(group)) => described
            .of_group(&format!("group {group}"), group, |catalog| catalog.api_group(group))
            .map(|body| json_answer(body, shape)),
        Route::Discovery(Discovery::Resources { group, version }) => resources(&described, group, version, shape),
        Route::OpenApiV2 | Route::OpenApiV3(_) => {
            let (registry, route, headers) = (state.registry.clone(), route.clone(), headers.clone());
            let answer = move || {
                let described = Described { documents: &documents, registry: &registry };
                openapi(&described, &route, &headers, shape)
            };
            transport.answers.aside(user, answer).await
        }
        Route::FlowControl(table) => {
            // The users of a fork must not see the requests of the original cluster.
            let fairness = transport.service.fairness().filter(|_| !transport.forks.is_fork());
            fairness.and_then(|fairness| crate::flow_control::answer(fairness, table, query))
        }
        Route::Resource { .. } | Route::Log(_) | Route::Forks(_) | Route::Page(_) | Route::Unknown => None,
    };
    found.unwrap_or_else(|| match route {
        // Built-in groups answer for all of their versions, so for an unknown version the resource is not found.
        Route::Discovery(Discovery::Resources { group, .. })
            if group.is_empty() || built_in().group(group).is_some() =>
        {
            respond::refusal(&Refusal::NoSuchPath, shape)
        }
        Route::Unknown | Route::Discovery(_) | Route::Issuer(_) | Route::Page(_) | Route::FlowControl(_) => {
            respond::plain_error(404, "404 page not found")
        }
        _ => respond::refusal(&Refusal::NoSuchPath, shape),
    })
}

/// The response with a discovery document, which is given as JSON.
fn json_answer(body: Bytes, shape: Shape) -> Response {
    if shape.encoding == Encoding::Protobuf
        && let Some(message) = protobuf_of(&body)
    {
        return respond::content(200, message.into(), respond::PROTOBUF, shape.gzip);
    }
    respond::bytes(200, body, shape)
}

/// Converts a document to Protobuf; `None` if the document has no kind with a Protobuf form.
fn protobuf_of(body: &[u8]) -> Option<Vec<u8>> {
    let document: Value = serde_json::from_slice(body).ok()?;
    let kind = document["kind"].as_str()?;
    let message = schema().id(&format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}"))?;
    Some(protobuf::wrap("v1", kind, &protobuf::codec().encode(message, &document).ok()?))
}

/// Whether a client accepts JSON. JSON is the only form of the document, so the weights in `accept` do not matter.
fn takes_json(accept: &str) -> bool {
    let media = |clause: &str| clause.split(';').next().unwrap_or("").trim().to_owned();
    accept.is_empty() || accept.split(',').any(|clause| matches!(media(clause).as_str(), "*/*" | respond::JSON))
}

fn accepts(headers: &HeaderMap) -> &str {
    headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("")
}

/// The aggregated form of `/api` and `/apis`, for clients that prefer it to the plain form.
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

/// The refusal of a discovery request whose client accepts no media type of discovery documents, or only
/// `application/*`.
pub(crate) fn flaw(
    route: &Route,
    headers: &HeaderMap,
    shape: Shape,
    negotiated: &Result<(), Refusal>,
) -> Option<Refusal> {
    let aggregated = matches!(route, Route::Discovery(Discovery::Core | Discovery::Groups))
        && aggregated_form(accepts(headers)).is_some();
    match route {
        Route::Discovery(_) if !aggregated => negotiated.clone().and_then(|()| shape.refuse_wild()).err(),
        _ => None,
    }
}

/// The response to `/api` or `/apis`, which lists versions and groups.
fn groups(described: &Described, headers: &HeaderMap, core: bool, shape: Shape) -> Response {
    if let Some(form) = aggregated_form(accepts(headers)) {
        let items = described.each_group("aggregated", core, |catalog, group| catalog.aggregated_item(group));
        let body = discovery::aggregated(form, items.iter().map(Bytes::as_ref));
        return tagged(body, form.content_type(), headers, shape);
    }
    if core {
        let address = &described.documents.server_address;
        let body = described.of_group("api", "", |catalog| Some(catalog.api_versions(address)));
        return json_answer(body.unwrap_or_default(), shape);
    }
    let items = described.each_group("summary", false, |catalog, group| catalog.group_item(group));
    json_answer(discovery::group_list(items.iter().map(Bytes::as_ref)), shape)
}

fn resources(described: &Described, group: &str, version: &str, shape: Shape) -> Option<Response> {
    let name = format!("resources {group}/{version}");
    let body = described.of_group(&name, group, |catalog| catalog.resource_list(group, version))?;
    Some(json_answer(body, shape))
}

/// Whether a client wants `/openapi/v2` in Protobuf.
pub(crate) fn asks_protobuf(accept: &str) -> bool {
    [openapi::V2_PROTOBUF, openapi::V2_PROTOBUF_ASKED].iter().any(|form| accept.contains(form))
}

/// The responses with OpenAPI documents, which take long to make.
fn openapi(described: &Described, route: &Route, headers: &HeaderMap, shape: Shape) -> Option<Response> {
    let registry = described.registry;
    match route {
        Route::OpenApiV2 => Some(openapi_v2(described, headers, shape)),
        Route::OpenApiV3(path) if path.is_empty() => {
            let index = || Some(described.openapi(&registry.groups(), |openapi| openapi.v3_index()));
            described.get("openapi/v3", registry.revision(), index).map(|body| json_answer(body, shape))
        }
        Route::OpenApiV3(path) => openapi_v3(described, path, headers, shape),
        _ => None,
    }
}

fn openapi_v2(described: &Described, headers: &HeaderMap, shape: Shape) -> Response {
    let (encoding, content_type) = match asks_protobuf(accepts(headers)) {
        true => (v2::Encoding::Protobuf, openapi::V2_PROTOBUF),
        false => (v2::Encoding::Json, respond::JSON),
    };
    let (pieces, tag) = described.openapi_v2(encoding);
    with_tag(&tag, headers, |known| match known {
        true => respond::content(304, Bytes::new(), content_type, false),
        false => respond::pieces(pieces, content_type, shape.gzip, described.documents.charge.is_some()),
    })
}

fn openapi_v3(described: &Described, path: &str, headers: &HeaderMap, shape: Shape) -> Option<Response> {
    Some(tagged(described.openapi_v3(path)?, respond::JSON, headers, shape))
}

/// A document with an ETag, so that a client need not fetch the same document again.
pub(crate) fn tagged(body: Bytes, content_type: &'static str, headers: &HeaderMap, shape: Shape) -> Response {
    let tag = openapi::etag(&body);
    with_tag(&tag, headers, |known| match known {
        true => respond::content(304, Bytes::new(), content_type, false),
        false => respond::content(200, body, content_type, shape.gzip),
    })
}

/// A response with an ETag. The argument of `answer` is whether the client already has the document.
fn with_tag(tag: &str, headers: &HeaderMap, answer: impl FnOnce(bool) -> Response) -> Response {
    let tag = format!("\"{tag}\"");
    let known = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok()) == Some(&tag);
    let mut response = answer(known);
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    response.headers_mut().insert(http::header::VARY, HeaderValue::from_static("Accept"));
    response
}

/// The document of `/`, which lists all paths.
fn root(transport: &Transport, registry: &Registry) -> Vec<u8> {
    let catalog = Catalog::new(registry);
    let mut paths: Vec<String> = [
        "/.well-known/openid-configuration",
        "/api",
        "/apis",
        "/healthz",
        "/livez",
        "/metrics",
        "/metrics/slis",
        "/openapi/v2",
        "/openapi/v3",
        "/openid/v1/jwks",
        "/readyz",
        "/version",
    ]
    .map(str::to_owned)
    .into();
    for version in catalog.group_versions() {
        let path = format!("/{}", version.path());
        if let Some((group, _)) = path.rsplit_once('/').filter(|(group, _)| *group != "/api") {
            paths.push(group.to_owned());
        }
        paths.push(path);
    }
    let checks = Checks::of(transport);
    paths.extend(PATHS.iter().flat_map(|kind| checks.names(kind).map(move |check| format!("/{kind}/{check}"))));
    if transport.server_info.has_pages() {
        paths.extend(["/configz", "/flagz", "/statusz"].map(str::to_owned));
    }
    paths.sort();
    paths.dedup();
    encoded(json!({ "paths": paths }))
}

fn encoded(value: Value) -> Vec<u8> {
    value.as_object().map(encode::document).unwrap_or_default()
}

async fn metrics(transport: &Transport) -> Response {
    let text = transport.service.metrics().await;
    open_metrics(transport.server_info.shown_metrics(text))
}

fn open_metrics(text: String) -> Response {
    let mut response = respond::text(200, text);
    let form = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, form);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::{Library, PAST_MAX};
    use holdfast_core::authz::User;
    use holdfast_engine::{ReadMemory, Reader};
    use std::sync::Arc;

    #[test]
    fn the_version_is_json_for_whoever_takes_it_at_all() {
        for (accept, takes) in [
            ("", true),
            ("*/*", true),
            ("application/vnd.kubernetes.protobuf, */*", true),
            ("application/vnd.kubernetes.protobuf,application/json", true),
            ("application/yaml;q=0.9, application/json;q=0.1", true),
            ("application/vnd.kubernetes.protobuf", false),
            ("application/yaml", false),
        ] {
            assert_eq!(takes_json(accept), takes, "{accept}");
        }
    }

    #[test]
    fn documents_of_the_past_are_made_once_and_counted() {
        let library = Library::new("a".into());
        let registries: Vec<_> = (0..=PAST_MAX).map(|_| Arc::new(built_in().clone())).collect();
        let memory = ReadMemory::new(512 << 20);
        let index = |registry: &Arc<Registry>| {
            let documents = library.of_past(registry, || memory.nothing(&Reader::of(&User::new("a", &[]))));
            let described = Described { documents: &documents, registry };
            let document = described.openapi_v3("apis/apps/v1").expect("a document");
            let answer = openapi_v2(&described, &HeaderMap::new(), Shape::PLAIN);
            assert!(answer.extensions().get::<crate::held::Held>().is_some());
            document.as_ptr()
        };
        let first = index(&registries[0]);
        assert_eq!(index(&registries[0]), first);
        registries.iter().for_each(|registry| _ = index(registry));
        assert_eq!(library.past.lock().unwrap().len(), PAST_MAX);
        // If another reader needs the memory, the documents are dropped.
        let held = memory.told().bytes;
        assert!(held > 1 << 20, "{held}");
        let other = memory.take(&Reader::of(&User::new("b", &[])), (512 << 20) - held / 2);
        assert!(other.is_ok() && memory.told().bytes <= 512 << 20);
        assert!(library.past.lock().unwrap().len() < PAST_MAX);
    }
}
