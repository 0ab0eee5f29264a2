//! What of the cluster's history a request is about: the present, or a moment of the past.
//!
//! A moment is named by the path (`/at/MOMENT/api/v1/pods`: a view of the whole API, in which nothing can be written
//! and nothing happens), by a parameter (`?at=MOMENT`) or by `resourceVersion` with `resourceVersionMatch=Exact`.
//! Who may see it is decided by the roles of today.

use crate::api::Api;
use crate::info::decode;
use crate::query::Query;
use holdfast_core::Refusal;
use holdfast_core::event::Offset;
use holdfast_core::list::{self, Continue, Freshness};
use holdfast_core::refusal::{Cause, Subject};
use holdfast_core::request::{Request, Verb};
use holdfast_core::state::State;
use holdfast_engine::{Engine, View};
use std::sync::Arc;

/// What stands before the moment in a path.
const PREFIX: &str = "/at/";

/// Takes the moment off the path, where it names one.
pub fn take(path: &mut String) -> Option<String> {
    let rest = path.strip_prefix(PREFIX)?;
    let (moment, rest) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let moment = decode(moment);
    *path = if rest.is_empty() { "/".to_owned() } else { rest.to_owned() };
    Some(moment)
}

/// What a request sees.
pub enum Scene {
    Present(Arc<State>),
    /// A moment that stands still.
    Past(View),
    /// The same for a single read, which the parameter or the version names.
    Read(Arc<State>, View),
}

impl Scene {
    /// What the path says.
    pub async fn of(api: &Arc<Api>, present: Arc<State>, moment: Option<&str>) -> Result<Scene, Refusal> {
        match moment {
            None => Ok(Scene::Present(present)),
            Some(moment) => Ok(Scene::Past(api.engine.past(api.engine.moment(moment).await?).await?)),
        }
    }

    /// What the parameter `at` says.
    pub async fn named(&self, api: &Arc<Api>, query: &Query, request: &Request) -> Result<Scene, Refusal> {
        let this = || match self {
            Scene::Present(state) => Scene::Present(state.clone()),
            Scene::Past(view) => Scene::Past(view.clone()),
            Scene::Read(state, view) => Scene::Read(state.clone(), view.clone()),
        };
        let Some(moment) = query.get("at").filter(|moment| !moment.is_empty()) else { return Ok(this()) };
        let options = &request.options;
        let conflict = if !matches!(request.verb, Verb::Get | Verb::List) {
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
            return Err(Refusal::Invalid { subject, causes: vec![Cause::forbidden("at", why)] });
        }
        let view = api.engine.past(api.engine.moment(moment).await?).await?;
        Ok(Scene::Read(self.state().clone(), view))
    }

    /// The state that paths are looked up in; of a view of the past it has the kinds alone.
    pub fn state(&self) -> &Arc<State> {
        match self {
            Scene::Present(state) | Scene::Read(state, _) => state,
            Scene::Past(view) => view.state(),
        }
    }

    pub fn view(&self) -> View {
        match self {
            Scene::Present(state) => View::of(state.clone()),
            Scene::Past(view) | Scene::Read(_, view) => view.clone(),
        }
    }

    /// The whole state, for what looks at more of it than one kind.
    pub async fn whole(&self, api: &Arc<Api>) -> Result<Arc<State>, Refusal> {
        match self {
            Scene::Present(_) | Scene::Read(..) => Ok(api.engine.snapshot()),
            Scene::Past(view) => api.engine.state_at(view.offset()).await,
        }
    }

    /// Refuses what a view of the past cannot do.
    pub fn writable(&self, api: &Api) -> Result<(), Refusal> {
        let Scene::Past(view) = self else { return Ok(()) };
        Err(Refusal::Forbidden {
            subject: Subject::new("", "", ""),
            message: format!(
                "this is a read-only view of the cluster as it was at version {}, of {} now: write to the server itself, \
                 or fork the cluster at that version (holdfast fork)",
                view.offset(),
                api.engine.snapshot().offset
            ),
            causes: Vec::new(),
        })
    }

    /// What a get reads.
    pub async fn read(&self, api: &Arc<Api>, request: &Request) -> Result<View, Refusal> {
        let options = &request.options;
        let version = match options.resource_version.as_deref() {
            None | Some("" | "0") => None,
            Some(version) => Some(list::parse_version(version)?),
        };
        let exact = match options.resource_version_match.as_deref().unwrap_or("") {
            "" | "NotOlderThan" => false,
            "Exact" => true,
            other => {
                let cause = Cause::not_supported("resourceVersionMatch", &other.into(), &["Exact", "NotOlderThan"]);
                let subject = Subject::new("meta.k8s.io", "GetOptions", "");
                return Err(Refusal::Invalid { subject, causes: vec![cause] });
            }
        };
        match version {
            None if exact => {
                let subject = Subject::new("meta.k8s.io", "GetOptions", "");
                let why = "resourceVersionMatch=Exact is forbidden unless resourceVersion names a version";
                Err(Refusal::Invalid { subject, causes: vec![Cause::forbidden("resourceVersionMatch", why)] })
            }
            None => Ok(self.now(&api.engine)),
            Some(version) if exact => self.list(api, Freshness::Exact(version), None).await,
            Some(version) => self.list(api, Freshness::NotOlderThan(version), None).await,
        }
    }

    /// What a list reads.
    pub async fn list(&self, api: &Arc<Api>, freshness: Freshness, from: Option<&Continue>) -> Result<View, Refusal> {
        let engine = &api.engine;
        let view = match self {
            Scene::Present(_) => return engine.view_for(freshness, from).await,
            Scene::Read(_, view) | Scene::Past(view) => view,
        };
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
            _ => engine.past(asked).await,
        }
    }

    fn now(&self, engine: &Engine) -> View {
        match self {
            Scene::Present(_) => View::of(engine.snapshot()),
            Scene::Past(view) | Scene::Read(_, view) => view.clone(),
        }
    }
}

/// In a view of the past nothing newer will ever come.
pub fn too_large(asked: Offset, newest: Offset) -> Refusal {
    Refusal::Timeout {
        message: format!("Too large resource version: {asked}, current: {newest}"),
        retry_after_seconds: 1,
    }
}

#[cfg(test)]
mod tests {
    use super::take;

    #[test]
    fn a_path_may_name_a_moment() {
        for (path, moment, rest) in [
            ("/api/v1/pods", None, "/api/v1/pods"),
            ("/at", None, "/at"),
            ("/attic/7/x", None, "/attic/7/x"),
            ("/at/7", Some("7"), "/"),
            ("/at/7/", Some("7"), "/"),
            ("/at/7/api/v1/pods", Some("7"), "/api/v1/pods"),
            ("/at/-15m/apis", Some("-15m"), "/apis"),
            ("/at/2026-11-21T10%3A00:00Z/at/8/api", Some("2026-11-21T10:00:00Z"), "/at/8/api"),
            ("/at//api", Some(""), "/api"),
        ] {
            let mut taken = path.to_owned();
            assert_eq!(take(&mut taken).as_deref(), moment, "{path}");
            assert_eq!(taken, rest, "{path}");
        }
    }
}
