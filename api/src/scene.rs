//! The point in the cluster's history that a call is about: the present, or a moment of the past.
//!
//! A moment is named by the call (a read-only view of the whole API), by the parameter `at` of one read, or by
//! `resourceVersion` with `resourceVersionMatch=Exact`.

use holdfast_core::Refusal;
use holdfast_core::authz::User;
use holdfast_core::event::Offset;
use holdfast_core::list::{self, Continue, Freshness};
use holdfast_core::refusal::{Cause, Forbidden, Subject, Timeout};
use holdfast_core::request::{Options, Request, Verb};
use holdfast_core::state::State;
use holdfast_engine::{Engine, Reader, View, Wanted};
use std::sync::Arc;

/// The state that a call reads: the present, or a moment of the past.
#[derive(Clone)]
pub enum Scene {
    Present(Arc<State>),
    /// A moment of the past. The whole call is about this moment.
    Past(View),
    /// A moment of the past, which a parameter of a single read names. The rest of the call is about the present.
    Read(Arc<State>, View),
}

impl Scene {
    /// The scene for the moment that the call names.
    pub(crate) async fn of(engine: &Arc<Engine>, moment: Option<&str>, reader: &Reader) -> Result<Scene, Refusal> {
        match moment {
            None => Ok(Scene::Present(engine.snapshot())),
            Some(moment) => Ok(Scene::Past(view_at(engine, moment, reader).await?)),
        }
    }

    /// The scene of this moment in another log, for a kind whose objects are in that log.
    pub(crate) async fn in_part(
        self,
        main: &Arc<Engine>,
        part: &Arc<Engine>,
        reader: &Reader,
    ) -> Result<Scene, Refusal> {
        let Scene::Past(view) = &self else { return Ok(self) };
        let version = part.same_time(main, view.offset(), reader).await?;
        Ok(Scene::Past(part.past_for(version, reader).await?))
    }

    /// The scene for the moment that the parameter `at` names.
    pub(crate) async fn named(
        self,
        engine: &Arc<Engine>,
        reader: &Reader,
        at: Option<&str>,
        verb: Verb,
        options: &Options,
    ) -> Result<Scene, Refusal> {
        let Some(moment) = at.filter(|moment| !moment.is_empty()) else { return Ok(self) };
        let conflict = if !matches!(verb, Verb::Get | Verb::List) {
            Some("at is only for get and list")
        } else if options.resource_version.as_deref().is_some_and(|version| !version.is_empty()) {
            Some("at is forbidden together with resourceVersion: both name a version")
        } else if options.continue_token.as_deref().is_some_and(|token| !token.is_empty()) {
            Some("at is forbidden together with continue, which goes on at the version of the first page")
        } else if matches!(self, Scene::Past(_)) {
            Some("at is forbidden in a view of the past, which has its version already")
        } else {
            None
        };
        if let Some(why) = conflict {
            let subject = Subject::new("meta.k8s.io", "ListOptions", "");
            return Err(Refusal::Invalid { subject, causes: Cause::forbidden("at", why).into() });
        }
        let view = view_at(engine, moment, reader).await?;
        Ok(Scene::Read(self.state().clone(), view))
    }

    /// The state in which paths are looked up. For a view of the past it contains only the kinds.
    pub fn state(&self) -> &Arc<State> {
        match self {
            Scene::Present(state) | Scene::Read(state, _) => state,
            Scene::Past(view) => view.state(),
        }
    }

    pub fn is_past(&self) -> bool {
        matches!(self, Scene::Past(_))
    }

    /// Whether the scene has the current kinds, which may differ from the kinds of a moment of the past.
    pub fn has_kinds_of_now(&self) -> bool {
        match self {
            Scene::Past(view) => view.has_kinds_of_now(),
            Scene::Present(_) | Scene::Read(..) => true,
        }
    }

    /// The view of the past; `None` for the present.
    pub(crate) fn past(&self) -> Option<&View> {
        match self {
            Scene::Present(_) => None,
            Scene::Past(view) | Scene::Read(_, view) => Some(view),
        }
    }

    /// The whole state, for callers that read more than one kind.
    pub(crate) async fn whole(&self, engine: &Arc<Engine>, reader: &Reader) -> Result<Arc<State>, Refusal> {
        match self {
            Scene::Present(_) | Scene::Read(..) => Ok(engine.snapshot()),
            Scene::Past(view) => engine.state_for(view.offset(), reader).await,
        }
    }

    /// A state with at least the wanted objects. A state of the past contains no other objects.
    pub(crate) async fn part(
        &self,
        engine: &Arc<Engine>,
        wanted: Wanted,
        reader: &Reader,
    ) -> Result<Arc<State>, Refusal> {
        match self {
            Scene::Present(_) | Scene::Read(..) => Ok(engine.snapshot()),
            Scene::Past(view) => engine.part_at(view.offset(), wanted, reader).await,
        }
    }

    /// Refuses a write if the call is about a view of the past.
    pub(crate) fn writable(&self, engine: &Engine) -> Result<(), Refusal> {
        let Scene::Past(view) = self else { return Ok(()) };
        Err(Refusal::Forbidden {
            subject: Subject::default(),
            why: Forbidden::Past { at: view.offset(), newest: engine.snapshot().offset },
        })
    }

    /// Returns how new the object of a get must be, by the version options of the get.
    pub(crate) fn freshness(request: &Request) -> Result<Freshness, Refusal> {
        let options = &request.options;
        let version = match options.resource_version.as_deref() {
            None | Some("") => None,
            Some("0") => Some(Offset::ZERO),
            Some(version) => Some(list::parse_version(version)?),
        };
        let exact = match options.resource_version_match.as_deref().unwrap_or("") {
            "" | "NotOlderThan" => false,
            "Exact" => true,
            other => {
                let cause = Cause::not_supported("resourceVersionMatch", &other.into(), &["Exact", "NotOlderThan"]);
                let subject = Subject::new("meta.k8s.io", "GetOptions", "");
                return Err(Refusal::Invalid { subject, causes: cause.into() });
            }
        };
        match version {
            None | Some(Offset::ZERO) if exact => {
                let subject = Subject::new("meta.k8s.io", "GetOptions", "");
                let why = "resourceVersionMatch=Exact is forbidden unless resourceVersion names a version";
                Err(Refusal::Invalid { subject, causes: Cause::forbidden("resourceVersionMatch", why).into() })
            }
            None => Ok(Freshness::Newest),
            Some(version) if exact => Ok(Freshness::Exact(version)),
            Some(version) => Ok(Freshness::NotOlderThan(version)),
        }
    }

    /// The view that a read uses. If the read waits for a version, call this function after the wait.
    pub(crate) async fn read(
        &self,
        engine: &Arc<Engine>,
        user: &User,
        freshness: Freshness,
        from: Option<&Continue>,
    ) -> Result<View, Refusal> {
        let reader = match (from, freshness) {
            (None, Freshness::Newest | Freshness::NotOlderThan(_)) => Reader::SERVER,
            _ => Reader::of(user),
        };
        let Some(view) = self.past() else { return engine.view_by(&reader, freshness, from).await };
        let newest = view.offset();
        let asked = match (from, freshness) {
            (Some(token), _) => Offset(token.version),
            (None, Freshness::Newest) => return Ok(view.clone()),
            (None, Freshness::NotOlderThan(version)) => version,
            (None, Freshness::Exact(version)) => version,
        };
        if asked > newest {
            return Err(too_large(asked, newest));
        }
        match (from, freshness) {
            (None, Freshness::NotOlderThan(_)) => Ok(view.clone()),
            _ => engine.past_for(asked, &reader).await,
        }
    }
}

/// The view of the cluster at a moment, read on behalf of `reader`.
async fn view_at(engine: &Arc<Engine>, moment: &str, reader: &Reader) -> Result<View, Refusal> {
    engine.past_for(engine.moment_for(moment, reader).await?, reader).await
}

/// The refusal of a version later than a view of the past, because the view never gets newer versions.
pub(crate) fn too_large(asked: Offset, newest: Offset) -> Refusal {
    Refusal::Timeout(Timeout::Version { asked, newest })
}
