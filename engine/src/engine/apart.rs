//! Kinds whose objects are in logs of their own, such as Events in a separate etcd.
//!
//! Each of these logs has an engine of its own, called a part, in addition to the main engine. Objects of these kinds
//! have versions of the part's log, so lists, watches and reads of the past of these kinds use the part. Requests are
//! judged on the objects of all logs: each engine's snapshot has the objects of all engines, and the version of the
//! engine's own log.
//!
//! A decision that writes to several logs writes to the engine's own log last. The versions of objects in other logs
//! are compared just before that write, not in the same transaction.

use super::Engine;
use crate::commit::{Contested, Rejection};
use crate::log::sealing::Sealing;
use crate::log::{Fault, Log};
use holdfast_core::Refusal;
use holdfast_core::event::Actor;
use holdfast_core::kinds::KindId;
use holdfast_core::pipeline::{Expectation, Write};
use holdfast_core::stamp::Stamp;
use holdfast_core::state::{Entry, State};
use std::sync::{Arc, Weak};

/// A log that contains only some kinds.
pub struct Apart {
    pub kinds: Vec<KindId>,
    pub log: Arc<dyn Log>,
    /// Encrypts the log's values; `None` if they are stored unencrypted.
    pub sealing: Option<Arc<dyn Sealing>>,
}

/// A part: an engine for some kinds, owned by the main engine.
pub(super) struct KindsApart {
    kinds: Vec<KindId>,
    pub(super) engine: Arc<Engine>,
}

/// The relation of an engine to the other engines of the server.
pub(super) enum Family {
    Main(Vec<KindsApart>),
    /// A part, with its main engine and one of its kinds.
    Part(Weak<Engine>, KindId),
}

impl Engine {
    /// Opens engines for the objects of some kinds, each over a log of its own. Must be called once, before any write.
    pub fn open_parts(self: &Arc<Self>, logs: Vec<Apart>) -> Result<(), Fault> {
        let mut parts = Vec::with_capacity(logs.len());
        for Apart { kinds, log, sealing } in logs {
            let Some(first) = kinds.first().copied() else { continue };
            let engine = self.open_beside(log, sealing)?;
            // A new engine has no family yet, so this call succeeds.
            let _ = engine.family.set(Family::Part(Arc::downgrade(self), first));
            parts.push(KindsApart { kinds, engine });
        }
        if !parts.is_empty() {
            let _ = self.family.set(Family::Main(parts));
        }
        Ok(())
    }

    pub(super) fn parts(&self) -> &[KindsApart] {
        match self.family.get() {
            Some(Family::Main(parts)) => parts,
            _ => &[],
        }
    }

    /// The engine whose log contains the objects of this kind. `self` must be the main engine.
    pub fn of(self: &Arc<Self>, kind: KindId) -> &Arc<Engine> {
        let part = self.parts().iter().find(|part| part.kinds.contains(&kind));
        part.map_or(self, |part| &part.engine)
    }

    /// The kinds of each part. `self` must be the main engine.
    pub fn apart(&self) -> impl Iterator<Item = &[KindId]> {
        self.parts().iter().map(|part| part.kinds.as_slice())
    }

    /// The main engine and its parts. `self` must be the main engine.
    pub fn all(self: &Arc<Self>) -> impl Iterator<Item = &Arc<Engine>> {
        std::iter::once(self).chain(self.parts().iter().map(|part| &part.engine))
    }

    /// Whether the server's objects are in several logs.
    pub fn is_divided(&self) -> bool {
        self.family.get().is_some()
    }

    /// The newest state: the objects of all logs, at the version of this engine's own log. If there is only one log,
    /// the call costs one pointer clone.
    pub fn snapshot(&self) -> Arc<State> {
        match self.family.get() {
            None => self.own_snapshot(),
            Some(Family::Main(_)) => Arc::new(self.whole()),
            Some(Family::Part(main, kind)) => match main.upgrade() {
                Some(main) => {
                    let mut state = main.whole();
                    state.offset = state.offset_of(*kind);
                    Arc::new(state)
                }
                // The main engine was dropped, because the server is shutting down.
                None => self.own_snapshot(),
            },
        }
    }

    fn whole(&self) -> State {
        let mut state = State::clone(&self.own_snapshot());
        self.parts().iter().for_each(|part| state.join(&part.engine.own_snapshot(), &part.kinds));
        state
    }

    /// Waits until all objects on which a request of this engine is judged are as new as at the time of the call. If
    /// the log of another part does not answer, the request is judged on that part's newest state in this server.
    pub(crate) async fn catch_up_to_judge(&self) -> Result<(), Refusal> {
        self.catch_up().await?;
        let main = match self.family.get() {
            None => return Ok(()),
            Some(Family::Main(_)) => None,
            Some(Family::Part(main, _)) => main.upgrade(),
        };
        if let Some(main) = &main {
            main.catch_up().await?;
        }
        let main = main.as_deref().unwrap_or(self);
        // No decision depends on objects that expire, such as Events.
        let is_read = |part: &&KindsApart| !part.kinds.iter().all(|kind| main.built_in().get(*kind).deletion.expires);
        for part in main.parts().iter().filter(is_read).filter(|part| !std::ptr::eq(&*part.engine, self)) {
            if let Err(refusal) = part.engine.catch_up().await {
                tracing::debug!(?refusal, "a request is judged on what is known of other logs");
            }
        }
        Ok(())
    }

    /// Waits until the objects in all parts are as new as they were at the time of the call.
    pub async fn catch_parts_up(&self) -> Result<(), Refusal> {
        for part in self.parts() {
            part.engine.catch_up().await?;
        }
        Ok(())
    }

    /// Sends writes to the writers of their logs and waits until the writes are durable.
    pub(crate) async fn commit(
        &self,
        writes: Vec<Write>,
        expects: Vec<Expectation>,
        actor: Actor,
        stamp: Stamp,
    ) -> Result<Vec<Arc<Entry>>, Rejection> {
        let main = match self.family.get() {
            None => return self.commit_here(writes, expects, actor, stamp).await,
            Some(Family::Main(_)) => None,
            Some(Family::Part(main, _)) => {
                Some(main.upgrade().ok_or_else(|| Rejection::Poisoned("the server is ending".into()))?)
            }
        };
        let main: &Engine = main.as_deref().unwrap_or(self);
        let others = main.parts().iter().map(|part| &*part.engine).chain([main]);
        let others: Vec<&Engine> = others.filter(|other| !std::ptr::eq(*other, self)).collect();
        let mut rest: Vec<(usize, Write)> = writes.into_iter().enumerate().collect();
        let mut written: Vec<(usize, Arc<Entry>)> = Vec::with_capacity(rest.len());
        let mut expects = expects;
        for other in others {
            let is_its = |kind: KindId| std::ptr::eq(main.owner(kind), other);
            let of_it: Vec<Expectation> = expects.extract_if(.., |expected| is_its(expected.kind)).collect();
            let writes: Vec<(usize, Write)> = rest.extract_if(.., |(_, write)| is_its(write.kind)).collect();
            if writes.is_empty() {
                other.still_holds(&of_it)?;
                continue;
            }
            let (places, writes): (Vec<usize>, Vec<Write>) = writes.into_iter().unzip();
            let entries = other.commit_here(writes, of_it, actor.clone(), stamp).await?;
            written.extend(places.into_iter().zip(entries));
        }
        let (places, own): (Vec<usize>, Vec<Write>) = rest.into_iter().unzip();
        if !own.is_empty() {
            written.extend(places.into_iter().zip(self.commit_here(own, expects, actor, stamp).await?));
        }
        written.sort_by_key(|(place, _)| *place);
        Ok(written.into_iter().map(|(_, entry)| entry).collect())
    }

    /// Like [`Engine::of`], but returns a reference instead of shared ownership.
    fn owner(&self, kind: KindId) -> &Engine {
        let part = self.parts().iter().find(|part| part.kinds.contains(&kind));
        part.map_or(self, |part| &*part.engine)
    }

    /// Checks the versions in this engine's log that a decision for another log expects, against this server's newest
    /// state.
    fn still_holds(&self, expects: &[Expectation]) -> Result<(), Rejection> {
        let state = self.own_snapshot();
        let changed =
            expects.iter().find(|expected| state.version_of(expected.kind, &expected.key) != expected.version);
        match changed {
            Some(Expectation { kind, key, .. }) => {
                Err(Rejection::Stale(Contested::Object { kind: *kind, key: key.clone() }))
            }
            None => Ok(()),
        }
    }
}
