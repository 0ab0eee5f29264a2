//! Paths that are no resources: discovery, OpenAPI, version, health, metrics.

use crate::health::{self, PATHS};
use crate::query::Query;
use crate::respond::{self, Encoding, Response, Shape};
use crate::route::{Discovery, Route};
use crate::transport::Transport;
use bytes::Bytes;
use holdfast_core::Refusal;
use holdfast_core::authz::User;
use holdfast_core::kinds::{GroupVersions, Registry, registry as built_in};
use holdfast_core::object::encode;
use holdfast_core::refusal::MethodNotAllowed;
use holdfast_core::schema::schema;
use holdfast_core::wire::discovery::documents::{VersionInfo, indented};
use holdfast_core::wire::discovery::{self, Aggregated, Catalog};
use holdfast_core::wire::openapi::{self, OpenApi, v2};
use holdfast_core::wire::protobuf;
use holdfast_engine::{Charge, Loss, ReadMemory, Reader};
use holdfast_service::{Granted, Scene};
use holdfast_value::{Value, json};
use http::header::{ACCEPT, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH};
use http::{HeaderMap, Method};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

/// The Kubernetes release whose API is served.
pub const API_VERSION: &str = "v1.35.0";

/// How many documents are kept: several times as many as a thousand groups have.
const DOCUMENTS_MAX: usize = 8192;

/// The number of past APIs whose documents are kept.
const PAST_MAX: usize = 4;

/// The documents of the current API, and of the past ones that were read last.
pub struct Library {
    present: Arc<Documents>,
    past: Arc<Past>,
}

/// Documents with the kinds that they describe, the most recently used last.
type Past = Mutex<VecDeque<(Arc<Registry>, Arc<Documents>)>>;

impl Library {
    pub fn new(server_address: String) -> Library {
        Library { present: Arc::new(Documents::new(server_address)), past: Arc::default() }
    }

    /// The library of a fork, whose API is the same up to this revision.
    pub fn beside(&self, revision: u64) -> Library {
        let fresh = Documents::new(self.present.server_address.clone());
        let present = Documents { shared: Some((self.present.clone(), revision)), ..fresh };
        Library { present: Arc::new(present), past: Arc::default() }
    }

    /// The documents of the kinds in the scene. The memory of past ones is counted as their reader's.
    fn of(&self, scene: &Scene, memory: &ReadMemory, user: &User) -> Arc<Documents> {
        match scene.has_kinds_of_now() {
            true => self.present.clone(),
            false => self.of_past(&scene.state().registry, || memory.nothing(&Reader::of(user))),
        }
    }

    fn of_past(&self, registry: &Arc<Registry>, charge: impl FnOnce() -> Charge) -> Arc<Documents> {
        let mut past = lock(&self.past);
        let known = past.iter().position(|(kinds, _)| Arc::ptr_eq(kinds, registry));
        let found = known.and_then(|place| past.remove(place));
        let (kinds, documents) = found.unwrap_or_else(|| {
            let mut charge = charge();
            let (kept, kinds) = (Arc::downgrade(&self.past), Arc::downgrade(registry));
            charge.give_way_by(Loss::Time, move || {
                let Some(kept) = kept.upgrade() else { return };
                let mut past = lock(&kept);
                let place = past.iter().position(|(of, _)| Arc::as_ptr(of) == kinds.as_ptr());
                let gone = place.and_then(|place| past.remove(place));
                drop(past);
                drop(gone);
            });
            let address = self.present.server_address.clone();
            let documents = Documents { charge: Some(Mutex::new(charge)), ..Documents::new(address) };
            (registry.clone(), Arc::new(documents))
        });
        past.push_back((kinds, documents.clone()));
        let gone = if past.len() > PAST_MAX { past.pop_front() } else { None };
        drop(past);
        drop(gone);
        documents
    }
}

fn lock(past: &Past) -> std::sync::MutexGuard<'_, VecDeque<(Arc<Registry>, Arc<Documents>)>> {
    past.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Documents that describe the API. Each is made at its first request, and made again only when the part of the API
/// that it describes has changed.
pub struct Documents {
    /// The address by which clients reach the server: `10.0.0.1:6443`.
    server_address: String,
    /// By name, with the revision of the kinds that they were made from.
    made: Mutex<HashMap<String, (u64, Bytes)>>,
    /// For a fork: the documents of the server that was forked, and the revision up to which both have the same.
    shared: Option<(Arc<Documents>, u64)>,
    /// For past kinds: counts the documents. They may be dropped while a request reads them.
    charge: Option<Mutex<Charge>>,
}

/// The documents of one state's API.
struct Described<'a> {
    documents: &'a Documents,
    registry: &'a Registry,
}

impl Documents {
    pub fn new(server_address: String) -> Documents {
        Documents { server_address, made: Mutex::default(), shared: None, charge: None }
    }

    fn find(&self, name: &str, revision: u64) -> Option<Bytes> {
        match &self.shared {
            Some((shared, until)) if revision <= *until => shared.find(name, revision),
            _ => self.lock().get(name).filter(|made| made.0 == revision).map(|made| made.1.clone()),
        }
    }

    fn keep(&self, name: String, revision: u64, made: Bytes) {
        if let Some((shared, until)) = &self.shared
            && revision <= *until
        {
            return shared.keep(name, revision, made);
        }
        if let Some(charge) = &self.charge {
            let mut charge = charge.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            if charge.grow(made.len() as u64).is_err() {
                return;
            }
        }
        let mut kept = self.lock();
        // A fork may ask for a document of an older revision; the newer one is needed more often.
        if kept.get(&name).is_some_and(|(newer, _)| *newer > revision) {
            return;
        }
        // Documents of groups that are gone are not removed one by one.
        if kept.len() >= DOCUMENTS_MAX {
            kept.clear();
        }
        kept.insert(name, (revision, made));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, (u64, Bytes)>> {
        self.made.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Described<'_> {
    /// The document with this name.
    fn get(&self, name: &str, revision: u64, make: impl FnOnce() -> Option<Bytes>) -> Option<Bytes> {
        if let Some(found) = self.documents.find(name, revision) {
            return Some(found);
        }
        let made = make()?;
        self.documents.keep(name.to_owned(), revision, made.clone());
        Some(made)
    }

    /// A document about one group.
    fn of_group(&self, name: &str, group: &str, make: impl FnOnce(&Catalog) -> Option<Bytes>) -> Option<Bytes> {
        let group = self.registry.group(group)?;
        self.get(name, group.revision, || make(&Catalog::of(self.registry, std::slice::from_ref(&group))))
    }

    /// The same for every group, in discovery's order; `core` picks the group without a name, otherwise all others.
    fn each_group(&self, name: &str, core: bool, make: fn(&Catalog, &str) -> Option<Bytes>) -> Vec<Bytes> {
        let groups = self.registry.groups().into_iter().filter(|group| group.group.is_empty() == core);
        let each = groups.filter_map(|group| {
            let name = format!("{name} {}", group.group);
            self.get(&name, group.revision, || {
                make(&Catalog::of(self.registry, std::slice::from_ref(&group)), &group.group)
            })
        });
        each.collect()
    }

    fn openapi<T>(&self, groups: &[GroupVersions], make: impl FnOnce(&OpenApi) -> T) -> T {
        let catalog = Catalog::of(self.registry, groups);
        make(&OpenApi { schema: schema(), catalog: &catalog, version: API_VERSION })
    }

    /// The groups with built-in kinds, and those without.
    fn by_origin(&self) -> (Vec<GroupVersions>, Vec<GroupVersions>) {
        let built_in = built_in();
        self.registry.groups().into_iter().partition(|group| built_in.group(&group.group).is_some())
    }

    fn openapi_v3(&self, path: &str) -> Option<Bytes> {
        let (built_in, custom) = self.by_origin();
        let group = path.strip_prefix("apis/").map(|rest| rest.split('/').next().unwrap_or(rest));
        let own: Vec<GroupVersions> =
            custom.into_iter().filter(|custom| Some(custom.group.as_str()) == group).collect();
        let revision = own.first().map_or_else(|| newest(&built_in), |own| own.revision);
        // Every document includes the built-in groups, because all kinds share options and metadata with them.
        let groups = [built_in, own].concat();
        self.get(&format!("openapi/v3/{path}"), revision, || self.openapi(&groups, |openapi| openapi.v3_document(path)))
    }

    /// The pieces of the document, and its ETag.
    fn openapi_v2(&self, encoding: v2::Encoding) -> (Vec<Bytes>, String) {
        let (built_in, custom) = self.by_origin();
        let revision = newest(&built_in);
        let one = |name: &str, revision, groups: &[GroupVersions], is_built_in| {
            let part = |of: &str| format!("openapi/v2 {encoding:?} {of} {name}");
            let known = |of: &str| self.documents.find(&part(of), revision);
            if let (Some(paths), Some(definitions)) = (known("paths"), known("definitions")) {
                return v2::Part { paths, definitions };
            }
            let made = self.openapi(groups, |openapi| openapi.v2_part(encoding, is_built_in));
            self.documents.keep(part("paths"), revision, made.paths.clone());
            self.documents.keep(part("definitions"), revision, made.definitions.clone());
            made
        };
        let mut parts = vec![one("", revision, &built_in, true)];
        for group in &custom {
            parts.push(one(&group.group, group.revision, std::slice::from_ref(group), false));
        }
        let tag = self.openapi(&self.registry.groups(), |openapi| openapi.v2_hash());
        (self.openapi(&[], |openapi| openapi.v2_document(encoding, &parts)), tag)
    }
}

fn newest(groups: &[GroupVersions]) -> u64 {
    groups.iter().map(|group| group.revision).max().unwrap_or(0)
}

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
    let documents = transport.documents.of(scene, transport.engine().reads().memory(), user);
    let described = Described { documents: &documents, registry: &state.registry };
    let found = match route {
        Route::Root => Some(json_answer(root(transport, &state.registry).into(), shape)),
        Route::Issuer(document) => crate::issuer::answer(transport.issuer.as_deref(), *document, headers, shape),
        Route::Version if !takes_json(accepts(headers)) => {
            Some(respond::refusal(&Refusal::NotAcceptable { offered: respond::JSON, is_offered: false }, shape))
        }
        Route::Version => {
            let shape = Shape { encoding: Encoding::Json, ..shape };
            Some(json_answer(version(transport.releases, &transport.git_version), shape))
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
        Route::FlowControl(table) => crate::flow_control::answer(transport, table, query),
        Route::Resource { .. } | Route::Log(_) | Route::Forks(_) | Route::Page(_) | Route::Unknown => None,
    };
    found.unwrap_or_else(|| match route {
        // Built-in groups answer for all of their versions, so an unknown one is a resource that is not found.
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

/// The response with a description whose document is JSON.
fn json_answer(body: Bytes, shape: Shape) -> Response {
    if shape.encoding == Encoding::Protobuf
        && let Some(message) = protobuf_of(&body)
    {
        return respond::content(200, message.into(), respond::PROTOBUF, shape.gzip);
    }
    respond::bytes(200, body, shape)
}

/// The document in Protobuf, if it has a kind.
fn protobuf_of(body: &[u8]) -> Option<Vec<u8>> {
    let document: Value = serde_json::from_slice(body).ok()?;
    let kind = document["kind"].as_str()?;
    let message = schema().id(&format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}"))?;
    Some(protobuf::wrap("v1", kind, &protobuf::codec().encode(message, &document).ok()?))
}

/// Whether a client accepts JSON. There is no other form, so weights do not matter.
fn takes_json(accept: &str) -> bool {
    let media = |clause: &str| clause.split(';').next().unwrap_or("").trim().to_owned();
    accept.is_empty() || accept.split(',').any(|clause| matches!(media(clause).as_str(), "*/*" | respond::JSON))
}

fn accepts(headers: &HeaderMap) -> &str {
    headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("")
}

/// The aggregated form of `/api` and `/apis`, for clients that prefer it to the plain one.
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

/// The refusal of a request for a description in a form that does not exist.
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

/// `/api` and `/apis`.
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

/// The OpenAPI documents, which take long to make.
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

/// A document with an ETag, so that a client need not fetch again what it has.
pub(crate) fn tagged(body: Bytes, content_type: &'static str, headers: &HeaderMap, shape: Shape) -> Response {
    let tag = openapi::etag(&body);
    with_tag(&tag, headers, |known| match known {
        true => respond::content(304, Bytes::new(), content_type, false),
        false => respond::content(200, body, content_type, shape.gzip),
    })
}

/// A response with an ETag; `answer` is told whether the client has the document already.
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

/// The list of paths.
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
    paths
        .extend(PATHS.iter().flat_map(|kind| transport.check_names(kind).map(move |check| format!("/{kind}/{check}"))));
    if transport.pages.is_some() {
        paths.extend(["/configz", "/flagz", "/statusz"].map(str::to_owned));
    }
    paths.sort();
    paths.dedup();
    encoded(json!({ "paths": paths }))
}

/// Kubernetes' version, with Holdfast's own after the plus sign.
pub fn git_version() -> String {
    format!("{API_VERSION}+holdfast.{}", env!("CARGO_PKG_VERSION"))
}

fn version((emulated, oldest): (u32, u32), git_version: &str) -> Bytes {
    let mut numbers = API_VERSION.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let (emulated, oldest) = (emulated.to_string(), oldest.to_string());
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    indented(&VersionInfo {
        major,
        minor,
        emulation_major: major,
        emulation_minor: &emulated,
        min_compatibility_major: major,
        min_compatibility_minor: &oldest,
        git_version,
        git_commit: option_env!("HOLDFAST_COMMIT").unwrap_or(""),
        git_tree_state: "",
        build_date: "1970-01-01T00:00:00Z",
        go_version: "",
        compiler: "rustc",
        platform: &format!("{}/{architecture}", std::env::consts::OS),
    })
}

fn encoded(value: Value) -> Vec<u8> {
    value.as_object().map(encode::document).unwrap_or_default()
}

async fn metrics(transport: &Transport) -> Response {
    let text = transport.service.metrics().await;
    open_metrics(match &transport.shown_metrics {
        Some(shown) => shown(text),
        None => text,
    })
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
        // A reader that needs the memory gets it.
        let held = memory.told().bytes;
        assert!(held > 1 << 20, "{held}");
        let other = memory.take(&Reader::of(&User::new("b", &[])), (512 << 20) - held / 2);
        assert!(other.is_ok() && memory.told().bytes <= 512 << 20);
        assert!(library.past.lock().unwrap().len() < PAST_MAX);
    }
}
