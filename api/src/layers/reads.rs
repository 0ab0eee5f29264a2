//! Gets, lists and watches of stored objects, now or in the past.

use super::stages::Resolved;
use super::{Layer, Next, Outcome, RequestContext, at_once, unread};
use crate::lookup::Found;
use crate::reply::{Listed, Shown, Watched};
use crate::scene::{Scene, too_large};
use crate::{Reply, Service};
use futures_util::future::BoxFuture;
use holdfast_core::Refusal;
use holdfast_core::event::Offset;
use holdfast_core::kinds::Kind;
use holdfast_core::list::{self, Continue, Freshness, Selection, parse_version};
use holdfast_core::refusal::{BadRequest, Expired, Internal, MethodNotAllowed};
use holdfast_core::request::{Request, Verb};
use holdfast_core::state::Entry;
use holdfast_engine::planted::{Bug, planted};
use holdfast_engine::{Engine, Reader, WatchStart};
use std::sync::Arc;
use std::time::Duration;

pub struct Reads;

impl Layer for Reads {
    type Takes = Resolved;
    type Gives = Resolved;

    fn call<'a>(
        &'a self,
        context: &'a mut RequestContext,
        found: Resolved,
        next: Next<'a, Resolved>,
    ) -> BoxFuture<'a, Outcome> {
        if !found.kind.stored || found.request.verb.is_mutating() {
            return next.call(context, found);
        }
        let read = Read { service: next.service(), found, context };
        match read.found.request.verb {
            Verb::List => Box::pin(read.list()),
            Verb::Watch => Box::pin(read.watch()),
            _ => match read.newest() {
                Some(outcome) => at_once(outcome),
                None => Box::pin(read.get()),
            },
        }
    }
}

/// One get, list or watch in progress.
struct Read<'a> {
    service: &'a Arc<Service>,
    found: Box<Found>,
    context: &'a mut RequestContext,
}

impl<'a> Read<'a> {
    /// The engine whose log has the objects of the requested kind.
    fn engine(&self) -> &'a Arc<Engine> {
        self.service.engine().of(self.found.request.target.kind)
    }

    /// The answer of a get that need not wait; `None` for other gets. If other servers write to the same log, a get of
    /// the newest state waits for their writes, but a get of any version (`resourceVersion=0`) need not wait.
    fn newest(&self) -> Option<Outcome> {
        let Found { scene, request, kind, .. } = &*self.found;
        let is_whole = request.target.subresource.is_none();
        let is_here = match Scene::freshness(request) {
            Ok(Freshness::Newest) => !self.engine().is_shared(),
            Ok(Freshness::NotOlderThan(Offset::ZERO)) => true,
            _ => false,
        };
        if !is_here || !is_whole || !matches!(scene, Scene::Present(_)) || planted(Bug::StaleRead) {
            return None;
        }
        let state = self.engine().own_snapshot();
        let request = match request.retarget(&state.registry, kind) {
            Ok(request) => request,
            Err(refusal) => return Some(Err(refusal)),
        };
        let (kind, version) = (state.registry.share(request.target.kind), request.target.version);
        if kind.converts_elsewhere() {
            return None;
        }
        if let Err(refusal) = unread::object(self.engine(), &kind, &request.key(), None) {
            return Some(Err(refusal));
        }
        let entry = state.get(request.target.kind, &request.key()).cloned();
        let entry = entry.ok_or_else(|| list::missing(&state, &request));
        Some(entry.map(|entry| Reply::Object(Shown { kind, version, entry, created: false })))
    }

    async fn get(mut self) -> Outcome {
        let is_scale = self.found.subresource().await? == "scale";
        let freshness = Scene::freshness(&self.found.request)?;
        self.await_version(freshness).await?;
        let view = self.found.scene.read(self.engine(), &self.found.request.user, freshness, None).await?;
        if matches!(freshness, Freshness::Exact(_)) {
            self.found.visible(self.service, view.offset()).await?;
        }
        let request = self.found.request.retarget(&view.state().registry, &self.found.kind)?;
        let (kind, version) = (view.state().registry.share(request.target.kind), request.target.version);
        let until = self.past_version(freshness, view.offset());
        unread::object(self.engine(), &kind, &request.key(), until)?;
        let mut entry = view.find(&request).await?;
        if kind.converts_elsewhere() {
            // As in Kubernetes, a get calls the conversion webhook each time. Only lists and watches reuse converted
            // objects.
            entry = Arc::new(entry.at_version(entry.offset));
        }
        self.service.prepare(&kind, version, &entry).await?;
        if is_scale {
            return Ok(Reply::Document { document: scale(&kind, version, &entry)?, created: false });
        }
        Ok(Reply::Object(Shown { kind, version, entry, created: false }))
    }

    async fn list(mut self) -> Outcome {
        let engine = self.engine();
        let options = &self.found.request.options;
        let freshness = list::freshness(options)?;
        let token = options.continue_token.as_deref().filter(|token| !token.is_empty());
        let token = token.map(|token| Continue::open(token, engine.token_key())).transpose()?;
        if token.is_some() && options.resource_version.as_deref().is_some_and(|version| version != "0") {
            return Err(Refusal::BadRequest(BadRequest::VersionWithContinue));
        }
        if token.is_none() {
            self.await_version(freshness).await?;
        }
        let view = match self.found.scene.read(engine, &self.found.request.user, freshness, token.as_ref()).await {
            Err(Refusal::Expired { .. }) if token.as_ref().is_some_and(|token| !token.past) => {
                let after = token.map(|token| token.after).unwrap_or_default();
                return Err(self.inconsistent(after));
            }
            other => other?,
        };
        if token.is_some() || matches!(freshness, Freshness::Exact(_)) {
            self.found.visible(self.service, view.offset()).await?;
        }
        let state = view.state();
        let request = &*self.found.request.retarget(&state.registry, &self.found.kind)?;
        let (kind, version) = (state.registry.share(request.target.kind), request.target.version);
        let selection = Selection::new(state, request)?;
        let (page, charge) = view.counted_page(&selection, request.options.limit, token.as_ref()).await?;
        // A page covers the keys after the end of the previous page, up to the end of this page.
        let after = token.as_ref().map(|token| token.after.as_str());
        let end = page.next.as_ref().map(|next| next.after.as_str());
        let includes = |key: &str| after.is_none_or(|after| key > after) && end.is_none_or(|end| key <= end);
        let until = if token.is_some() { Some(view.offset()) } else { self.past_version(freshness, view.offset()) };
        unread::selection(engine, &kind, &selection, until, includes)?;
        engine.prepare(&kind, version, &page.entries).await?;
        if page.next.is_some() && view.is_whole() {
            engine.pin(state, &Reader::of(&request.user));
        }
        let continue_token = page.next.as_ref().map(|next| next.seal(engine.token_key())).unwrap_or_default();
        let namespace = request.namespace().unwrap_or("").to_owned();
        Ok(Reply::List(Listed { kind, version, page, continue_token, namespace, charge }))
    }

    /// The refusal of a list whose snapshot is no longer available. Its continue token allows clients to read the rest
    /// of the list from the newest state.
    fn inconsistent(&self, after: String) -> Refusal {
        let engine = self.engine();
        let token = Continue::fresh(engine.own_snapshot().offset, after).seal(engine.token_key());
        Refusal::Expired(Expired::Inconsistent { continue_token: token })
    }

    async fn watch(mut self) -> Outcome {
        let engine = self.engine();
        let snapshot = match &self.found.scene {
            Scene::Past(view) => view.state().clone(),
            Scene::Present(_) | Scene::Read(..) => engine.own_snapshot(),
        };
        let request = self.found.request.retarget(&snapshot.registry, &self.found.kind)?.into_owned();
        let selection = Selection::new(&snapshot, &request)?;
        let options = &request.options;
        list::check_options(options, true)?;
        let initial = list::initial_events(options);
        let mut flaw = None;
        let start = match options.resource_version.as_deref().unwrap_or("") {
            "" | "0" if initial == Some(false) => WatchStart::After(snapshot.offset),
            "" | "0" => WatchStart::Now,
            version if initial == Some(true) => {
                flaw = self.reach(parse_version(version)?).await.err();
                WatchStart::Now
            }
            version => {
                // The watch, not this function, waits if the version is not written yet.
                let version = parse_version(version)?;
                self.may_come(version)?;
                self.found.visible(self.service, version).await?;
                WatchStart::After(version)
            }
        };
        if let Scene::Present(_) = &self.found.scene {
            unread::selection(engine, snapshot.kind(request.target.kind), &selection, None, |_| true)?;
        }
        let watch = match &self.found.scene {
            Scene::Past(view) => engine.watch_past(view.clone(), selection, start).await?,
            Scene::Present(_) | Scene::Read(..) => engine.watch(selection, start),
        };
        let watch = watch.of_user(&request.user)?;
        Ok(Reply::Watch(Box::new(Watched {
            trail: None,
            kind: snapshot.registry.share(request.target.kind),
            version: request.target.version,
            watch,
            timeout: timeout(request.options.timeout_seconds, self.service),
            bookmarks: options.allow_watch_bookmarks,
            mark_initial_end: options.allow_watch_bookmarks && initial == Some(true),
            flaw,
        })))
    }

    /// The past version that a read is about; `None` if the read is about the newest version.
    fn past_version(&self, freshness: Freshness, version: Offset) -> Option<Offset> {
        let is_past = self.found.scene.past().is_some() || matches!(freshness, Freshness::Exact(_));
        is_past.then_some(version)
    }

    /// Waits for the version that the first objects of a watch must have.
    async fn reach(&mut self, version: Offset) -> Result<(), Refusal> {
        self.may_come(version)?;
        self.await_version(Freshness::NotOlderThan(version)).await
    }

    /// Refuses a version later than a view of the past, because the view never gets newer versions.
    fn may_come(&self, version: Offset) -> Result<(), Refusal> {
        match self.found.scene.past() {
            Some(view) if version > view.offset() => Err(too_large(version, view.offset())),
            _ => Ok(()),
        }
    }

    /// Waits for a version that is not written yet, for a limited time. Meanwhile the request releases its place among
    /// the requests in progress.
    async fn await_version(&mut self, freshness: Freshness) -> Result<(), Refusal> {
        let (Freshness::NotOlderThan(version) | Freshness::Exact(version)) = freshness else { return Ok(()) };
        let engine = self.engine();
        if self.found.scene.past().is_some() || engine.own_snapshot().offset >= version {
            return Ok(());
        }
        self.context.place = None;
        let _waiting = self.service.wait(&self.found.request.user)?;
        engine.reach(version).await
    }
}

fn timeout(seconds: Option<u64>, service: &Service) -> Duration {
    /// A limit for the duration of a watch. It is longer than any watch lasts, and short enough to be added to any
    /// time.
    const SECONDS_MAX: u64 = 365 * 24 * 3600;
    match seconds {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds.min(SECONDS_MAX)),
        _ => service.watch_time(),
    }
}

/// The object in the form of its subresource `scale`, a Scale.
pub(super) fn scale(
    kind: &Kind,
    version: usize,
    entry: &Entry,
) -> Result<holdfast_core::object::meta::Document, Refusal> {
    let document = if kind.custom.is_some() { entry.document_in(kind, version) } else { entry.document() };
    let paths = kind.subresource(version, "scale").and_then(|scale| scale.scale.as_ref());
    let paths = paths.ok_or(Refusal::NoSuchPath)?;
    if kind.custom.is_some() && holdfast_core::object::meta::path(&document, &paths.spec_replicas).is_none() {
        let path = &paths.spec_replicas;
        return Err(Refusal::Internal(Internal::NoReplicas { path: path.to_string() }));
    }
    Ok(holdfast_core::pipeline::scale_of(paths, &document))
}

impl Found {
    /// The requested subresource, if the kind has it with this verb; empty if no subresource is requested.
    pub(super) async fn subresource(&self) -> Result<&str, Refusal> {
        let Request { target, verb, .. } = &self.request;
        let Some(name) = target.subresource.as_deref() else { return Ok("") };
        let (first, rest) = name.split_once('/').unwrap_or((name, ""));
        let served = self.kind.subresource(target.version, first).ok_or(Refusal::NoSuchPath)?;
        if !rest.is_empty() {
            return Err(Refusal::NoSuchPath);
        }
        if !served.verbs.contains(&verb.as_str()) {
            return Err(Refusal::MethodNotAllowed(MethodNotAllowed::OnResource));
        }
        Ok(first)
    }
}
