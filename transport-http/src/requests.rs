//! The steps of a request over HTTP: it is parsed, the service decides, and the response is written.
//!
//! There are no rules here: [`Transport::handle`] turns HTTP into a [`Call`], and a [`Reply`](holdfast_service::Reply)
//! into HTTP.

use crate::body::{self, Unread};
use crate::listener::Guest;
use crate::log::Waiter;
use crate::manners::{self, Farewell, Manners};
use crate::query::Query;
use crate::respond::{self, Response, Shape};
use crate::route::{Route, decode, method_verb, take_moment};
use crate::spans::Following;
use crate::sparing::Sparing;
use crate::status;
use crate::transport::Transport;
use crate::understood::{Head, Kept, Understood};
use crate::warnings::warn;
use crate::{aggregate, audit, connect, flow_control, forks, log, parse, paths, render, websocket};
use bytes::{Buf, Bytes};
use futures_util::{FutureExt, Stream};
use holdfast_audit::RequestEnd;
use holdfast_core::Refusal;
use holdfast_core::admission::Told;
use holdfast_core::authz::{ActingAs, User};
use holdfast_core::kinds::leads_away;
use holdfast_core::refusal::{Internal, MethodNotAllowed, Plenty, Timeout};
use holdfast_outbound::{deadline, trace};
use holdfast_service::{Answer, AnswerCode, Call, CallSubject, Granted, Record, Reply, RequestId, RequestSlot, Source};
use holdfast_tls::bearer::{Bearer, MISPLACED};
use holdfast_tls::guests::Full;
use holdfast_tls::peer::Peer;
use http::header::{AUTHORIZATION, HeaderValue};
use http::{HeaderMap, Method};
use hyper::upgrade::OnUpgrade;
use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Limits log lines about invalid credentials, because any client can send many credentials of any length.
static UNKNOWN: Sparing = Sparing::new();
/// The maximum number of bytes of the reason in a log line about an invalid credential.
const WHY_BYTES_MAX: usize = 1 << 10;

/// The name of the user of requests without credentials.
const ANONYMOUS: &str = "system:anonymous";

/// One HTTP request, in a form that does not depend on the HTTP library.
pub struct WireRequest<B> {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
    pub peer: Peer,
    /// The connection's client, if it is known.
    pub guest: Option<Guest>,
    /// The connection; `None` unless the client asks to upgrade it.
    pub upgrade: Option<OnUpgrade>,
    pub body: B,
}

impl Transport {
    /// Answers a request, or passes it to the fork that its path names. A fault of the server ends only this request,
    /// not other requests on the same connection.
    pub fn handle<B, D, E>(self: Arc<Self>, mut wire: WireRequest<B>) -> impl Future<Output = Response> + use<B, D, E>
    where
        B: Stream<Item = Result<D, E>> + Send + 'static,
        D: Buf,
        E: std::fmt::Display,
    {
        let server = self.forks.find(&mut wire.path).unwrap_or(self);
        guarded(server.serve(wire))
    }

    async fn serve<B, D, E>(self: Arc<Self>, wire: WireRequest<B>) -> Response
    where
        B: Stream<Item = Result<D, E>> + Send + 'static,
        D: Buf,
        E: std::fmt::Display,
    {
        if self.lifecycle.refuses_requests()
            && let Some(response) = manners::going(&wire.path)
        {
            return response;
        }
        let origin = self.manners.origin(&wire.headers);
        let mut response = match Manners::preflight(&wire.method, origin.as_ref()) {
            Some(response) => response,
            None => self.serve_request(wire).await,
        };
        if !response.headers().contains_key(AUDIT_ID) {
            name(&mut response, self.service.new_id().as_str());
        }
        self.manners.mark(&mut response, origin, || self.engine().stamp().seed);
        response
    }

    async fn serve_request<B, D, E>(self: &Arc<Self>, wire: WireRequest<B>) -> Response
    where
        B: Stream<Item = Result<D, E>> + Send + 'static,
        D: Buf,
        E: std::fmt::Display,
    {
        let WireRequest { method, path, query, headers, peer, guest, upgrade, body } = wire;
        let client = guest.as_ref().map(|guest| guest.address);
        let (body, progress) = body::followed(&headers, body);
        let mut source = self.service.is_audited().then(|| Box::new(audit::source(&path, &query, &headers, client)));
        let mut head = Head { method, path, query, headers, client, upgrade };
        let understood = self.understand(&mut head);
        let without_body = head.method == Method::HEAD;
        // A user with a client certificate needs no token.
        let by_token = matches!(peer, Peer::Unknown | Peer::Untrusted(_)) && head.headers.contains_key(AUTHORIZATION);
        let misplaced = by_token && Bearer::of(&head.headers) == Bearer::Misplaced;
        let shape = understood.shape;
        let id = parse::request_id(&head.headers).unwrap_or_else(|| self.service.new_id());
        let (patience, flaw) = match self.manners.patience(&understood.route, &understood.query) {
            Ok(patience) => (patience, None),
            Err(refusal) => (None, Some(refusal)),
        };
        let _waited_for = (!manners::lasts(&understood.route)).then(|| self.lifecycle.track_request());
        let (mut following, mut is_stranger, mut has_no_place) = (None, true, false);
        let mut told = Told::default();
        let began = Instant::now();
        let identified = match flaw {
            Some(flaw) => Err(flaw),
            None => self.identify(&mut head, &peer, guest.as_ref(), &mut told).await,
        };
        if let Some(source) = &mut source {
            source.authentication = began.elapsed();
            source.deadline = patience.map(audit::deadline);
        }
        let (mut response, mut record) = match identified {
            Ok((user, acting_as)) => {
                following = self.follow(&head, &understood.route, &user);
                is_stranger = user.name == ANONYMOUS;
                // The answer is boxed, because each future around it would contain it twice and move it.
                let answer = Box::pin(self.answer(head, understood, (user, acting_as, told), &id, source, body));
                let answer = trace::within(following.as_ref().map(Following::context), answer);
                // The service catches panics in its layers; this call of `caught` catches panics in parsing and
                // rendering.
                match within(patience, holdfast_service::caught(answer)).await.and_then(|answered| answered) {
                    Ok(answered) => answered,
                    Err(refusal) => {
                        self.service.cut_off(&refusal);
                        if let Some(following) = following {
                            following.end(status::code(Err(&refusal)), id.as_str());
                        }
                        let mut response = respond::refusal(&refusal, shape);
                        name(&mut response, id.as_str());
                        return response;
                    }
                }
            }
            Err(refusal) => {
                has_no_place = lacks_place(&refusal);
                let refused = self.turned_away((&head, &understood), &id, source, &refusal, told);
                let Answer { record, .. } = Box::pin(refused).await;
                Box::pin(body::pass_over(body)).await;
                (respond::refusal(&refusal, shape), record)
            }
        };
        if misplaced {
            warn(&mut response, &[MISPLACED.to_owned()]);
        }
        name(&mut response, id.as_str());
        if is_stranger && self.features.unauthenticated_http2_dos_mitigation {
            response.extensions_mut().insert(Farewell::OverHttp2);
        }
        if has_no_place {
            response.extensions_mut().insert(Farewell::Always);
        }
        record.code(AnswerCode(response.status().as_u16()));
        if let Some(following) = following {
            following.end(response.status().as_u16(), id.as_str());
        }
        if progress.is_unread() {
            response.extensions_mut().insert(Unread);
        }
        if without_body {
            let (parts, _) = response.into_parts();
            response = Response::from_parts(parts, Bytes::new().into());
        }
        response
    }

    /// Begins the span of a request, if the request is sampled for a trace.
    fn follow(&self, head: &Head, route: &Route, user: &User) -> Option<Following> {
        let tracer = self.tracer.as_ref()?;
        tracer.begin((&head.method, &head.path, route), &head.headers, user, || self.engine().stamp().seed)
    }

    fn parser(&self) -> parse::CallParser<'_> {
        parse::CallParser { engine: self.engine(), bodies: &self.bodies, features: self.features }
    }

    /// Parses the request line and the headers of a request.
    fn understand(&self, head: &mut Head) -> Understood {
        let query = Query::parse(&head.query);
        let at = take_moment(&mut head.path);
        let route = Route::new(&head.method, &head.path, query.flag("watch"));
        let negotiated = Shape::negotiate(&head.headers, query.get("pretty"), query.get("includeObject"));
        let mut shape = *negotiated.as_ref().unwrap_or(&Shape::PLAIN);
        shape.gzip &= self.features.response_compression;
        shape.links = self.features.self_links;
        // This server does not have the past of other servers' resources.
        let server = if at.is_none() { self.aggregator().server(&route) } else { None };
        Understood { route, at, query, shape, negotiated: negotiated.map(|_| ()), server }
    }

    /// Finds the user of the request, and the user as whom the request is to act.
    async fn identify(
        &self,
        head: &mut Head,
        peer: &Peer,
        guest: Option<&Guest>,
        told: &mut Told,
    ) -> Result<(Arc<User>, Option<ActingAs>), Refusal> {
        websocket::take_token(&mut head.headers)?;
        let began = Instant::now();
        let state = self.engine().snapshot();
        let found = self.authenticator.authenticate(&state, peer, &head.headers, &head.path, told).await;
        self.service.count_authentication(&found, began.elapsed());
        let user = found.unwrap_or_else(|why| {
            if let Some(left_out) = UNKNOWN.line() {
                let why = why.get(..why.floor_char_boundary(WHY_BYTES_MAX)).unwrap_or_default();
                match left_out {
                    0 => tracing::warn!(why, "unable to authenticate the request"),
                    _ => tracing::warn!(why, left_out, "unable to authenticate the request"),
                }
            }
            None
        });
        let user = user.ok_or(Refusal::Unauthorized)?;
        if let Some(guest) = guest.filter(|_| user.name != ANONYMOUS) {
            guest.place.belongs_to(&user).map_err(|full| {
                let what = match full {
                    Full::User { most } => Plenty::OwnConnections { most },
                    Full::All { most } => Plenty::Connections { most },
                };
                Refusal::TooManyRequests { what, retry_after_seconds: 1 }
            })?;
        }
        Ok((user, parse::acting_as(&head.headers, self.features.constrained_impersonation)?))
    }

    async fn turned_away(
        &self,
        (head, understood): (&Head, &Understood),
        id: &RequestId,
        source: Option<Box<Source>>,
        refusal: &Refusal,
        told: Told,
    ) -> Answer {
        let asked = match &understood.route {
            Route::Resource { verb: Some(verb), path } if understood.server.is_none() => {
                CallSubject::Named(Box::new(parse::named(*verb, path.clone(), &understood.query)))
            }
            _ => CallSubject::Path { verb: method_verb(&head.method), path: canonical(&head.path) },
        };
        self.service.turned_away(&asked, Some(id.clone()), source, refusal.clone(), told).await
    }

    async fn answer<B, D, E>(
        self: &Arc<Self>,
        mut head: Head,
        mut understood: Understood,
        (user, acting_as, told): (Arc<User>, Option<ActingAs>, Told),
        id: &RequestId,
        source: Option<Box<Source>>,
        body: B,
    ) -> (Response, Record)
    where
        B: Stream<Item = Result<D, E>> + Send + 'static,
        D: Buf,
        E: std::fmt::Display,
    {
        let mut kept = Kept::default();
        let mut body = Some(body);
        let (asked, flaw) = match (&understood.route, &understood.server) {
            (Route::Resource { verb, path }, Some(_)) => {
                let verb = verb.map_or_else(|| method_verb(&head.method), |verb| verb.as_str());
                (CallSubject::Elsewhere { verb, path: path.clone() }, None)
            }
            (Route::Resource { verb: Some(verb), path }, None) if leads_away(&path.subresource) => {
                let mut named = parse::named(*verb, path.clone(), &understood.query);
                let flaw = parse::fill_connect(&mut named, &understood).err();
                (CallSubject::Named(Box::new(named)), flaw)
            }
            (Route::Resource { verb: Some(verb), path }, None) => {
                let mut named = parse::named(*verb, path.clone(), &understood.query);
                let filled =
                    self.parser().fill(&mut named, &mut head, &mut understood, &mut kept, &user, body.take()).await;
                (CallSubject::Named(Box::new(named)), filled.err())
            }
            (Route::Log(_) | Route::Forks(_), _) if understood.at.is_none() => {
                let flaw = match (&understood.route, body.take()) {
                    (Route::Forks(_), Some(body)) => match Box::pin(self.bodies.read(&user, body)).await {
                        Ok(received) => {
                            kept.body = received;
                            None
                        }
                        Err(refusal) => Some(refusal),
                    },
                    _ => None,
                };
                (CallSubject::Everything { verb: method_verb(&head.method), path: canonical(&head.path) }, flaw)
            }
            (Route::Page(_), _) if head.method != Method::GET => {
                let flaw = match body.take() {
                    Some(body) => {
                        let read = Box::pin(self.bodies.read(&user, body)).await;
                        read.map(|received| kept.body = received).err()
                    }
                    None => None,
                };
                (CallSubject::Path { verb: method_verb(&head.method), path: canonical(&head.path) }, flaw)
            }
            _ => {
                let flaw = paths::flaw(&understood.route, &head.headers, understood.shape, &understood.negotiated);
                (CallSubject::Path { verb: method_verb(&head.method), path: canonical(&head.path) }, flaw)
            }
        };
        let reader = user.clone();
        let (at, named) = (understood.at.take(), Some(id.clone()));
        let call = Call { user, acting_as, id: named, at, asked, flaw, source, told, own: false };
        let Answer { mut reply, warnings, record, trail, place, .. } = self.service.call(call).await;
        let shape = understood.shape;
        if reply.is_ok()
            && let Some(refusal) = shape.unknown_include(understood.query.get("includeObject"))
        {
            reply = Err(refusal);
        }
        // The future is boxed, so that requests without audit do not move it.
        let trail = match trail {
            Some(trail) => Box::pin(audit::tell(self, trail, &mut reply, &understood)).await,
            None => None,
        };
        let counted = match &mut reply {
            Ok(Reply::List(listed)) => listed.charge.take(),
            _ => None,
        };
        let mut response = match reply {
            Ok(Reply::Granted(granted)) => {
                let granted = Permitted { granted, id: id.as_str(), place };
                // The future is boxed, because few requests need it, and otherwise all requests would move it.
                Box::pin(self.granted(head, &understood, kept, granted, body)).await
            }
            Ok(Reply::Connect(way)) => Box::pin(connect::answer(self, head, shape, way, id.as_str(), body)).await,
            Ok(reply) => render::reply(self, reply, &understood, reader.clone(), kept.socket, place).await,
            Err(Refusal::Internal(Internal::NotAuthorizable { why })) => {
                respond::unauthorizable(&head.path, &head.query, &why)
            }
            Err(refusal) => respond::refusal(&refusal, shape),
        };
        if let Some(trail) = trail {
            trail.end(RequestEnd { code: response.status().as_u16(), ..RequestEnd::default() }).await;
        }
        response =
            self.answers.hold(&reader, response, (counted, shape), |reader, cut| self.engine().keep(reader, cut));
        warn(&mut response, &warnings);
        if let Some(flow) = record.flow() {
            flow_control::tell(&mut response, flow);
        }
        (response, record)
    }

    /// Answers a request that the service has granted and leaves to the transport.
    async fn granted<B, D, E>(
        self: &Arc<Self>,
        head: Head,
        understood: &Understood,
        kept: Kept,
        permitted: Permitted<'_>,
        body: Option<B>,
    ) -> Response
    where
        B: Stream<Item = Result<D, E>> + Send + 'static,
        D: Buf,
        E: std::fmt::Display,
    {
        let Understood { route, query, shape, server, .. } = understood;
        let Permitted { granted, id, place } = permitted;
        match (route, server) {
            (_, Some(server)) => aggregate::forward(self, server, route, head, &granted.user, id, body).await,
            (Route::Forks(name), _) => {
                forks::answer(self, &granted.user, (&head.method, name), kept.body.bytes, *shape).await
            }
            (Route::Log(path), _) if !granted.scene.is_past() => {
                log::answer(self, &head.method, path, query, *shape, Waiter { user: &granted.user, place }).await
            }
            (Route::Page(path), _) if !granted.scene.is_past() => self.server_info.page(&head, path, &kept.body.bytes),
            (Route::Resource { .. }, _) => {
                respond::refusal(&Refusal::MethodNotAllowed(MethodNotAllowed::OnResource), *shape)
            }
            _ => {
                if !granted.scene.is_past()
                    && let Some(merged) = aggregate::answer(self, &granted.user, &head, route, *shape).await
                {
                    return merged;
                }
                paths::answer(self, &granted, (&head.method, route), &head.headers, query, *shape).await
            }
        }
    }
}

/// The header with the id of the request.
const AUDIT_ID: &str = "audit-id";

fn name(response: &mut Response, id: &str) {
    let Ok(mut value) = HeaderValue::from_str(id) else { return };
    // No two responses have the same id. In the compression table each id would displace a field that repeats, and
    // would be compared with all fields in the table.
    value.set_sensitive(true);
    response.headers_mut().insert(AUDIT_ID, value);
}

/// Turns a panic of `answer` into a response with the code 500.
fn guarded(answer: impl Future<Output = Response>) -> impl Future<Output = Response> {
    AssertUnwindSafe(answer).catch_unwind().map(|answered| {
        answered.unwrap_or_else(|panic| respond::refusal(&holdfast_service::panicked(panic.as_ref()), Shape::PLAIN))
    })
}

/// Whether a request is refused because its user, or all users together, have too many connections.
fn lacks_place(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::TooManyRequests { what: Plenty::OwnConnections { .. } | Plenty::Connections { .. }, .. })
}

/// Runs the work of one request. If `patience` is set and ends first, returns a refusal.
async fn within<T>(patience: Option<Duration>, work: impl Future<Output = T>) -> Result<T, Refusal> {
    match patience {
        Some(patience) => deadline::within(patience, work).await.map_err(|_| Refusal::Timeout(Timeout::Backend)),
        None => Ok(work.await),
    }
}

/// A granted request, and the values that it needs until it is answered.
struct Permitted<'a> {
    granted: Granted,
    id: &'a str,
    place: Option<RequestSlot>,
}

/// The path in the form that authorization judges: one form for all spellings of the same path.
fn canonical(path: &str) -> String {
    let parts: Vec<Cow<'_, str>> = path.split('/').filter(|part| !part.is_empty()).map(decode).collect();
    // Permission for a path is not permission for the path with a trailing slash.
    let end = if path.ends_with('/') && !parts.is_empty() { "/" } else { "" };
    format!("/{}{end}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_fault_of_ours_is_an_answer() {
        assert_eq!(guarded(async { panic!("a planted one") }).await.status(), 500);
        assert_eq!(guarded(async { respond::text(200, "fine") }).await.status(), 200);
    }
}
