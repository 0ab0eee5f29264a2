//! The way of a request through the server: who asks, what for, may they, and then the engine.
//!
//! No rules here: this module turns HTTP into a `core::Request` and hands it over.

use crate::aggregate::{self, Aggregator};
use crate::authenticate::{Authenticator, Peer};
use crate::info::RequestInfo;
use crate::metrics::{Counted, Metrics};
use crate::past::{self, Scene};
use crate::query::Query;
use crate::respond::{self, Form, Head, Response, Shape};
use crate::websocket::{self, Socket};
use crate::{body, forks, log, paths, reviews, status, watch};
use bytes::{Buf, Bytes};
use futures_util::Stream;
use holdfast_core::Refusal;
use holdfast_core::authz::chain::{Authorizer, Mode};
use holdfast_core::authz::{Attributes, ResourceTarget, User, Verdict, forbidden_message};
use holdfast_core::kinds::{Kind, KindId};
use holdfast_core::list::{self, Continue, Selection};
use holdfast_core::object::export::export;
use holdfast_core::object::meta;
use holdfast_core::pipeline::Representation;
use holdfast_core::refusal::Subject;
use holdfast_core::request::{Body, Format, Request, Target, Verb};
use holdfast_core::state::{Entry, State};
use holdfast_engine::{Engine, Reply};
use http::header::{CONTENT_TYPE, HeaderValue, USER_AGENT};
use http::{HeaderMap, Method};
use hyper::upgrade::OnUpgrade;
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;
use tokio::sync::watch as signal;
use tokio_util::task::TaskTracker;

/// Everything that serving needs.
pub struct Api {
    pub engine: Arc<Engine>,
    pub authenticator: Authenticator,
    pub modes: Vec<Mode>,
    pub limits: Limits,
    pub features: Features,
    pub metrics: Metrics,
    /// The parts of the API that other servers answer for.
    pub aggregator: Arc<Aggregator>,
    pub documents: paths::Documents,
    /// Makes forks of the log, where it is on a disk.
    pub forker: Option<Arc<dyn forks::Forker>>,
    /// Turns true when the server stops: watches end.
    pub stopping: signal::Sender<bool>,
    /// What goes on with connections that are no longer HTTP: the server waits for it when it stops.
    pub sockets: TaskTracker,
    /// Turns true when everything that a fresh server makes is there.
    pub ready: signal::Sender<bool>,
}

/// What feature gates turn off.
#[derive(Debug, Clone, Copy)]
pub struct Features {
    pub list_chunking: bool,
    pub response_compression: bool,
    pub dry_run: bool,
    pub remaining_item_count: bool,
    pub server_side_apply: bool,
    /// Objects and lists say in `selfLink` where they are.
    pub self_links: bool,
}

impl Default for Features {
    fn default() -> Self {
        Features {
            list_chunking: true,
            response_compression: true,
            dry_run: true,
            remaining_item_count: true,
            server_side_apply: true,
            self_links: false,
        }
    }
}

/// How many requests may be in progress; zero for no limit. Watches do not count.
#[derive(Debug, Default)]
pub struct Limits {
    pub reading_max: i64,
    pub mutating_max: i64,
    pub reading: AtomicI64,
    pub mutating: AtomicI64,
}

/// One HTTP request, as any transport of HTTP gives it.
pub struct WireRequest<B> {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
    pub peer: Peer,
    /// Where the request comes from, when that is known.
    pub client: Option<SocketAddr>,
    /// The connection, for one who asks to go on with it as something else than HTTP.
    pub upgrade: Option<OnUpgrade>,
    pub body: B,
}

/// A request with its words understood.
pub(crate) struct Call<B> {
    pub wire: WireRequest<B>,
    pub info: RequestInfo,
    pub query: Query,
    pub user: Arc<User>,
    pub shape: Shape,
    pub id: String,
    /// The moment of the past that the request is about, where its path names one.
    pub at: Option<String>,
}

impl Api {
    /// Answers a request; every failure is a `Status`.
    pub async fn handle<B, D, E>(self: Arc<Self>, wire: WireRequest<B>) -> Response
    where
        B: Stream<Item = Result<D, E>> + Send + 'static,
        D: Buf,
        E: std::fmt::Display,
    {
        let began = Instant::now();
        let id = match wire.headers.get("audit-id").and_then(|id| id.to_str().ok()) {
            Some(id) => id.to_owned(),
            None => self.engine.stamp().uid(u64::MAX),
        };
        let query = Query::parse(&wire.query);
        let mut wire = wire;
        let at = past::take(&mut wire.path);
        let info = RequestInfo::new(&wire.method, &wire.path, query.flag("watch"));
        let counted = info.clone();
        let head = wire.method == Method::HEAD;
        let mut response = self.answer(wire, info, query, &id, at).await;
        if let Ok(id) = HeaderValue::from_str(&id) {
            response.headers_mut().insert("audit-id", id);
        }
        if head {
            let (parts, _) = response.into_parts();
            response = Response::from_parts(parts, Bytes::new().into());
        }
        let code = response.status().as_u16();
        // What nobody serves is counted under one name, or strangers could make the table grow.
        let known = code != 404 || !counted.is_resource;
        let counted = Counted {
            verb: counted.verb,
            group: if known { &counted.group } else { "" },
            version: if known { &counted.version } else { "" },
            resource: if known { &counted.resource } else { "" },
            subresource: if known { &counted.subresource } else { "" },
        };
        self.metrics.answered(&counted, code, began.elapsed());
        tracing::debug!(verb = counted.verb, resource = counted.resource, code, request = %id, "answered");
        response
    }

    async fn answer<B, D, E>(
        self: &Arc<Self>,
        mut wire: WireRequest<B>,
        info: RequestInfo,
        query: Query,
        id: &str,
        at: Option<String>,
    ) -> Response
    where
        B: Stream<Item = Result<D, E>> + Send + 'static,
        D: Buf,
        E: std::fmt::Display,
    {
        let negotiated = Shape::negotiate(&wire.headers, query.get("pretty"), query.get("includeObject"));
        let mut shape = *negotiated.as_ref().unwrap_or(&Shape::PLAIN);
        shape.gzip &= self.features.response_compression;
        shape.links = self.features.self_links;
        let state = self.engine.snapshot();
        if let Err(refusal) = websocket::take_token(&mut wire.headers) {
            return respond::refusal(&refusal, shape);
        }
        let user = match self.identify(&state, &wire) {
            Ok(user) => user,
            Err(refusal) => return respond::refusal(&refusal, shape),
        };
        if let Err(refusal) = self.authorize(&state, &user, &info) {
            return respond::refusal(&refusal, shape);
        }
        let call = Call { wire, info, query, user, shape, id: id.to_owned(), at };
        let _slot = match self.limits.take(&call.info) {
            Some(slot) => slot,
            None => {
                self.metrics.rejected();
                let message = "Too many requests, please try again later.".into();
                return respond::refusal(&Refusal::TooManyRequests { message, retry_after_seconds: 1 }, shape);
            }
        };
        // What other servers answered in the past nobody remembers.
        if call.at.is_none() {
            if let Some(server) = self.aggregator.server(&call.info) {
                return aggregate::forward(self, &server, call).await;
            }
            if call.info.path == forks::PATH {
                return forks::answer(self, &call.wire.method, body::read(call.wire.body).await, shape).await;
            }
            if let Some(path) = call.info.path.strip_prefix(log::PATH) {
                return log::answer(self, &call.wire.method, path, &call.query, shape).await;
            }
            if !call.info.is_resource {
                let merged = aggregate::answer(self, &call.wire.method, &call.info.path, &call.wire.headers, shape);
                if let Some(merged) = merged.await {
                    return merged;
                }
            }
        }
        let scene = match Scene::of(self, state, call.at.as_deref()).await {
            Ok(scene) => scene,
            Err(refusal) => return respond::refusal(&refusal, shape),
        };
        if !call.info.is_resource {
            let wire = &call.wire;
            return paths::answer(self, &scene, &wire.method, &call.info.path, &wire.headers, &call.query, shape).await;
        }
        if let Err(refusal) = negotiated {
            return respond::refusal(&refusal, Shape::PLAIN);
        }
        match self.resource(call, &scene).await {
            Ok(response) => response,
            Err(refusal) => respond::refusal(&refusal, shape),
        }
    }

    /// Who asks, or in whose name.
    fn identify<B>(&self, state: &State, wire: &WireRequest<B>) -> Result<Arc<User>, Refusal> {
        let user = self.authenticator.authenticate(state, &wire.peer, &wire.headers)?;
        if !wire.headers.contains_key("impersonate-user") {
            // To go on as the caller would be more than was asked for.
            return match wire.headers.keys().find(|name| name.as_str().starts_with("impersonate-")) {
                None => Ok(user),
                Some(name) => Err(Refusal::Internal(format!("requested {name} without impersonating a user"))),
            };
        }
        reviews::impersonate(self, state, &user, &wire.headers)
    }

    pub(crate) fn authorizer<'a>(&'a self, state: &'a State) -> Authorizer<'a> {
        Authorizer { modes: &self.modes, rbac: &state.rbac }
    }

    fn authorize(&self, state: &State, user: &User, info: &RequestInfo) -> Result<(), Refusal> {
        let attributes = if info.is_resource {
            let target = ResourceTarget {
                group: &info.group,
                version: &info.version,
                resource: &info.resource,
                subresource: &info.subresource,
                namespace: &info.namespace,
                name: &info.name,
            };
            Attributes::resource(info.verb, target)
        } else {
            Attributes::path(info.verb, &info.path)
        };
        match self.authorizer(state).authorize(user, &attributes) {
            Verdict::Allow { .. } => Ok(()),
            verdict @ (Verdict::Deny { .. } | Verdict::NoOpinion { .. }) => Err(Refusal::Forbidden {
                subject: Subject::new(&info.group, &info.resource, &info.name),
                message: forbidden_message(user, &attributes, verdict.reason()),
                causes: Vec::new(),
            }),
        }
    }

    async fn resource<B, D, E>(self: &Arc<Self>, call: Call<B>, scene: &Scene) -> Result<Response, Refusal>
    where
        B: Stream<Item = Result<D, E>> + Send,
        D: Buf,
        E: std::fmt::Display,
    {
        let info = &call.info;
        let state = scene.state();
        let (id, version) =
            state.registry.find(&info.group, &info.version, &info.resource).ok_or(Refusal::NoSuchPath)?;
        let kind = state.registry.share(id);
        let verb = verb(info, &kind)?;
        let warning = kind.versions[version].custom.as_ref().and_then(|custom| custom.warning.clone());
        let shape = call.shape;
        let answer = self.carry_out(call, scene, kind, id, version, verb).await;
        // Who uses an old version is told in any case.
        let Some(warning) = warning else { return answer };
        let mut response = answer.unwrap_or_else(|refusal| respond::refusal(&refusal, shape));
        respond::warn(&mut response, &[warning]);
        Ok(response)
    }

    async fn carry_out<B, D, E>(
        self: &Arc<Self>,
        call: Call<B>,
        scene: &Scene,
        kind: Arc<Kind>,
        id: KindId,
        version: usize,
        verb: Verb,
    ) -> Result<Response, Refusal>
    where
        B: Stream<Item = Result<D, E>> + Send,
        D: Buf,
        E: std::fmt::Display,
    {
        let mut call = call;
        if kind.custom.is_some() && call.shape.form == Form::Object {
            // Nobody knows the numbers of a custom resource's fields.
            match call.shape.without_protobuf(&call.wire.headers) {
                Ok(shape) => call.shape = shape,
                Err(refusal) => return Ok(respond::refusal(&refusal, Shape::PLAIN)),
            }
        }
        let info = &call.info;
        let optional = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let namespace = if kind.is_namespaced() { optional(&info.namespace) } else { None };
        let target = Target {
            kind: id,
            version,
            namespace,
            name: optional(&info.name),
            subresource: optional(&info.subresource),
        };
        let options_kind = match verb {
            Verb::Create => "CreateOptions",
            Verb::Update => "UpdateOptions",
            Verb::Patch => "PatchOptions",
            Verb::Delete | Verb::DeleteCollection => "DeleteOptions",
            Verb::Get => "GetOptions",
            Verb::List | Verb::Watch => "ListOptions",
        };
        let mut options = call.query.options(options_kind)?;
        let format = format_of(&call.wire.headers, verb)?;
        let agent = call.wire.headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or("");
        if options.field_manager.is_none() && format != Format::ApplyPatch && verb.is_mutating() {
            options.field_manager = Some(default_manager(agent));
        }
        let bytes = if verb.is_mutating() { body::read(call.wire.body).await? } else { Bytes::new() };
        let mut request = Request {
            user: call.user.clone(),
            verb,
            target,
            options,
            body: Body { bytes, format },
            id: call.id.clone(),
        };
        if matches!(verb, Verb::Delete | Verb::DeleteCollection) {
            body::delete_options(&mut request)?;
        }
        if verb == Verb::Create && request.target.subresource.as_deref() == Some("eviction") {
            body::eviction(&mut request)?;
        }
        self.gate(&mut request)?;
        let scene = &scene.named(self, &call.query, &request).await?;
        if !kind.stored {
            return self.unstored(scene, &kind, request, call.shape).await;
        }
        if request.target.subresource.is_some() {
            return self.subresource(scene, &kind, request, call.shape).await;
        }
        match verb {
            Verb::Get => self.get(scene, &kind, &request, &call.query, call.shape).await,
            Verb::List => self.list(scene, &kind, &request, call.shape).await,
            Verb::Watch => {
                let socket = Socket::asked(&call.wire.headers, call.wire.upgrade)?;
                watch::watch(self, scene, &kind, &request, call.shape, socket).await
            }
            Verb::DeleteCollection => {
                scene.writable(self)?;
                self.engine.delete_collection(&request).await?;
                Ok(success(200, call.shape))
            }
            Verb::Create | Verb::Update | Verb::Patch | Verb::Delete => self.mutate(scene, &request, call.shape).await,
        }
    }

    async fn get(
        self: &Arc<Self>,
        scene: &Scene,
        kind: &Arc<Kind>,
        request: &Request,
        query: &Query,
        shape: Shape,
    ) -> Result<Response, Refusal> {
        let view = scene.read(self, request).await?;
        let request = request.retarget(&view.state().registry, kind)?;
        let (kind, version) = (view.state().registry.share(request.target.kind), request.target.version);
        let entry = view.find(&request).await?;
        self.engine.prepare(&kind, version, std::slice::from_ref(&entry)).await?;
        if query.flag("export") {
            let Value::Object(mut document) = entry.document_in(&kind, version) else {
                return Err(Refusal::Internal("a stored object is no document".into()));
            };
            export(&kind.kind, &mut document, query.flag("exact"));
            return Ok(respond::document(200, &document, Shape { form: Form::Object, ..shape }));
        }
        Ok(respond::object(&kind, version, &entry, 200, shape, self.engine.stamp().seconds()))
    }

    /// Refuses, or goes without, what feature gates turn off.
    fn gate(&self, request: &mut Request) -> Result<(), Refusal> {
        if request.options.dry_run && !self.features.dry_run {
            return Err(Refusal::BadRequest("the dryRun feature is disabled".into()));
        }
        if request.body.format == Format::ApplyPatch && !self.features.server_side_apply {
            return Err(Refusal::UnsupportedMediaType {
                message: "the body of the request was in an unknown format - accepted media types include: \
                          application/json-patch+json, application/merge-patch+json, \
                          application/strategic-merge-patch+json"
                    .into(),
            });
        }
        if !self.features.list_chunking && matches!(request.verb, Verb::List | Verb::DeleteCollection) {
            request.options.limit = None;
            request.options.continue_token = None;
        }
        Ok(())
    }

    async fn list(
        self: &Arc<Self>,
        scene: &Scene,
        kind: &Arc<Kind>,
        request: &Request,
        shape: Shape,
    ) -> Result<Response, Refusal> {
        let options = &request.options;
        let freshness = list::freshness(options)?;
        let token = options
            .continue_token
            .as_deref()
            .map(|token| Continue::open(token, self.engine.token_key()))
            .transpose()?;
        if token.is_some() && options.resource_version.as_deref().is_some_and(|version| version != "0") {
            let message = "specifying resource version is not allowed when using continue".into();
            return Err(Refusal::BadRequest(message));
        }
        let view = match scene.list(self, freshness, token.as_ref()).await {
            Err(Refusal::Expired { .. }) if token.as_ref().is_some_and(|token| !token.past) => {
                // The rest of the list can still be had, of the newest state.
                let after = token.map(|token| token.after).unwrap_or_default();
                return Err(Refusal::Expired {
                    message: "The provided continue parameter is too old to display a consistent list result. You can \
                              start a new list without the continue parameter, or use the continue token in this \
                              response to retrieve the remainder of the results. Continuing with the provided token \
                              results in an inconsistent list - objects that were created, modified, or deleted \
                              between the time the first chunk was returned and now may show up in the list."
                        .into(),
                    continue_token: Some(
                        Continue::fresh(self.engine.snapshot().offset, after).seal(self.engine.token_key()),
                    ),
                });
            }
            other => other?,
        };
        let state = view.state();
        let request = &*request.retarget(&state.registry, kind)?;
        let kind = &state.registry.share(request.target.kind);
        let selection = Selection::new(state, request)?;
        let mut page = view.page(&selection, options.limit, token.as_ref()).await?;
        page.remaining = page.remaining.filter(|_| self.features.remaining_item_count);
        self.engine.prepare(kind, request.target.version, &page.entries).await?;
        if page.next.is_some() && view.is_whole() {
            self.engine.pin(state);
        }
        let head = Head {
            continue_token: page.next.as_ref().map(|next| next.seal(self.engine.token_key())).unwrap_or_default(),
            self_link: match shape.links {
                true => respond::self_link(kind, request.target.version, request.namespace().unwrap_or("")),
                false => String::new(),
            },
        };
        Ok(respond::list(kind, request.target.version, page, &head, shape, self.engine.stamp().seconds()))
    }

    /// Kinds that are only posted. A Binding is the old way to `pods/NAME/binding`.
    async fn unstored(
        self: &Arc<Self>,
        scene: &Scene,
        kind: &Kind,
        request: Request,
        shape: Shape,
    ) -> Result<Response, Refusal> {
        if kind.kind != "Binding" {
            let state = scene.whole(self).await?;
            return reviews::answer(self, &state, kind, &request, shape).await;
        }
        let binding = holdfast_core::pipeline::decode_body(scene.state(), &request)?;
        let (pods, version) = scene.state().registry.find("", "v1", "pods").ok_or(Refusal::NoSuchPath)?;
        let mut bind = request;
        bind.target.kind = pods;
        bind.target.version = version;
        bind.target.name = Some(holdfast_core::object::meta::name(&binding).to_owned());
        bind.target.subresource = Some("binding".into());
        self.mutate(scene, &bind, shape).await
    }

    async fn mutate(self: &Arc<Self>, scene: &Scene, request: &Request, shape: Shape) -> Result<Response, Refusal> {
        if let Scene::Past(_) = scene {
            if !request.options.dry_run {
                scene.writable(self)?;
            }
            let reply = self.engine.rehearse(&*scene.whole(self).await?, request).await?;
            return self.render(reply, shape).await;
        }
        self.render(self.engine.mutate(request).await?, shape).await
    }

    async fn render(&self, reply: Reply, shape: Shape) -> Result<Response, Refusal> {
        let (mut response, warnings) = match reply {
            Reply::Object { entry, kind, version, code, representation, warnings } => {
                self.engine.prepare(&kind, version, std::slice::from_ref(&entry)).await?;
                let now = self.engine.stamp().seconds();
                let response = match representation {
                    Representation::Object => respond::object(&kind, version, &entry, code, shape, now),
                    Representation::Scale => scale(&kind, version, &scaled(&kind, version, &entry), code, shape)?,
                };
                (response, warnings)
            }
            Reply::Rehearsed { document, kind, version, code, warnings } => {
                let document = self.engine.prepare_document(&kind, version, document).await?;
                (respond::document(code, &document, shape), warnings)
            }
            Reply::Document { document, code, warnings } => {
                (respond::document(code, &document, Shape { form: Form::Object, ..shape }), warnings)
            }
            Reply::Success { code, warnings } => (success(code, shape), warnings),
            Reply::Deleted { subject, uid, warnings } => {
                let status = status::deleted(&subject, &uid);
                let document = status.as_object().cloned().unwrap_or_default();
                (respond::document(200, &document, shape), warnings)
            }
        };
        respond::warn(&mut response, &warnings);
        Ok(response)
    }

    async fn subresource(
        self: &Arc<Self>,
        scene: &Scene,
        kind: &Arc<Kind>,
        request: Request,
        shape: Shape,
    ) -> Result<Response, Refusal> {
        let name = request.target.subresource.clone().unwrap_or_default();
        let first = name.split('/').next().unwrap_or("");
        let served = kind.subresource(request.target.version, first).ok_or(Refusal::NoSuchPath)?;
        let subject = Subject::new(&kind.versions[request.target.version].group, &kind.resource, request.name());
        match (first, request.verb) {
            ("log" | "exec" | "attach" | "portforward" | "proxy", _) => {
                let object = scene.view().find(&request).await?.document();
                Err(paths::unreachable_node(kind, first, &object))
            }
            ("token", Verb::Create) => {
                scene.writable(self)?;
                self.mutate(scene, &request, shape).await
            }
            (_, Verb::Get) if served.verbs.contains(&"get") => {
                let view = scene.read(self, &request).await?;
                let request = request.retarget(&view.state().registry, kind)?;
                let kind = &view.state().registry.share(request.target.kind);
                let entry = view.find(&request).await?;
                self.engine.prepare(kind, request.target.version, std::slice::from_ref(&entry)).await?;
                if first == "scale" {
                    let version = request.target.version;
                    return scale(kind, version, &scaled(kind, version, &entry), 200, shape);
                }
                Ok(respond::object(kind, request.target.version, &entry, 200, shape, self.engine.stamp().seconds()))
            }
            (_, verb) if served.verbs.contains(&verb.as_str()) => self.mutate(scene, &request, shape).await,
            _ => Err(Refusal::MethodNotAllowed {
                message: format!(
                    "{} is not supported on resources of kind \"{}/{first}\"",
                    request.verb.as_str(),
                    subject.qualified()
                ),
            }),
        }
    }
}

impl Limits {
    fn take(&self, info: &RequestInfo) -> Option<Slot<'_>> {
        let long_running = info.verb == "watch"
            || matches!(info.subresource.as_str(), "log" | "exec" | "attach" | "portforward" | "proxy");
        let mutating = !matches!(info.verb, "get" | "list" | "watch" | "options");
        let (count, max) =
            if mutating { (&self.mutating, self.mutating_max) } else { (&self.reading, self.reading_max) };
        if long_running || max == 0 {
            return Some(Slot(None));
        }
        if count.fetch_add(1, Ordering::AcqRel) >= max {
            count.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        Some(Slot(Some(count)))
    }
}

/// A place among the requests in progress.
struct Slot<'a>(Option<&'a AtomicI64>);

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        if let Some(count) = self.0 {
            count.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// The verb on this kind, where path and kind allow it.
fn verb(info: &RequestInfo, kind: &Kind) -> Result<Verb, Refusal> {
    let not_allowed = || Refusal::MethodNotAllowed {
        message: "the server does not allow this method on the requested resource".into(),
    };
    let in_namespace = !info.namespace.is_empty();
    if !kind.is_namespaced() && in_namespace && info.resource != "namespaces" {
        return Err(Refusal::NoSuchPath);
    }
    let verb = match info.verb {
        "get" => Verb::Get,
        "list" => Verb::List,
        "watch" => Verb::Watch,
        "create" => Verb::Create,
        "update" => Verb::Update,
        "patch" => Verb::Patch,
        "delete" => Verb::Delete,
        "deletecollection" => Verb::DeleteCollection,
        _ => return Err(not_allowed()),
    };
    if info.subresource.is_empty() {
        if !kind.verbs.contains(&verb.as_str()) {
            return Err(not_allowed());
        }
        let on_collection = matches!(verb, Verb::Create | Verb::List | Verb::DeleteCollection);
        if on_collection != info.name.is_empty() && verb != Verb::Watch {
            return Err(not_allowed());
        }
    }
    let anywhere = matches!(verb, Verb::List | Verb::Watch);
    if kind.is_namespaced() && !in_namespace && !anywhere {
        let cluster_wide_review = !kind.stored && !kind.is_namespaced();
        if !cluster_wide_review {
            return Err(if info.name.is_empty() { not_allowed() } else { Refusal::NoSuchPath });
        }
    }
    Ok(verb)
}

/// How the body is written, by its content type.
fn format_of(headers: &HeaderMap, verb: Verb) -> Result<Format, Refusal> {
    let media = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let media = media.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    let accepted: &str = match (verb, media.as_str()) {
        (Verb::Patch, "application/json-patch+json") => return Ok(Format::JsonPatch),
        (Verb::Patch, "application/merge-patch+json") => return Ok(Format::MergePatch),
        (Verb::Patch, "application/strategic-merge-patch+json") => return Ok(Format::StrategicMergePatch),
        (Verb::Patch, "application/apply-patch+yaml" | "application/apply-patch") => return Ok(Format::ApplyPatch),
        (Verb::Patch, _) => {
            "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, \
             application/apply-patch+yaml"
        }
        (_, "" | "application/json" | "*/*") => return Ok(Format::Json),
        (_, "application/yaml" | "application/x-yaml") => return Ok(Format::Yaml),
        (_, respond::PROTOBUF) => return Ok(Format::Protobuf),
        (Verb::Get | Verb::List | Verb::Watch, _) => return Ok(Format::Json),
        _ => "application/json, application/yaml, application/vnd.kubernetes.protobuf",
    };
    Err(Refusal::UnsupportedMediaType {
        message: format!("the body of the request was in an unknown format - accepted media types include: {accepted}"),
    })
}

/// The name that fields are written under when the client gives none: its own.
fn default_manager(agent: &str) -> String {
    let name: String = agent.split('/').next().unwrap_or("").chars().filter(|c| !c.is_control()).take(128).collect();
    if name.is_empty() { "unknown".into() } else { name }
}

/// The document that holds an object's scale.
fn scaled(kind: &Kind, version: usize, entry: &Entry) -> Value {
    if kind.custom.is_some() { entry.document_in(kind, version) } else { entry.document() }
}

fn scale(kind: &Kind, version: usize, document: &Value, code: u16, shape: Shape) -> Result<Response, Refusal> {
    let paths = kind.subresource(version, "scale").and_then(|scale| scale.scale.as_ref());
    let paths = paths.ok_or(Refusal::NoSuchPath)?;
    if kind.custom.is_some() && meta::path(document, &paths.spec_replicas).is_none() {
        let path = &paths.spec_replicas;
        return Err(Refusal::Internal(format!("the spec replicas field \".{path}\" does not exist")));
    }
    let document = holdfast_core::pipeline::scale_of(paths, document);
    Ok(respond::document(code, &document, Shape { form: Form::Object, ..shape }))
}

fn success(code: u16, shape: Shape) -> Response {
    let status =
        serde_json::json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code});
    respond::document(code, status.as_object().unwrap_or(&Default::default()), shape)
}
