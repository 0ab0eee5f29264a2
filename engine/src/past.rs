//! Reads the cluster at any past version that the log still has.
//!
//! The cost depends on the objects that are read, but neither on the number of later events nor on the size of the
//! cluster. The log's index of versions gives the newest event of each object at the version. For most objects this is
//! still the newest event, so the object is in the newest state. Other objects are read from the log and cached for a
//! while. Reads of the log run where the engine runs [its reads](crate::reads), never on an async worker.

use crate::engine::Engine;
use crate::log::{AsOf, Changes, Fault};
use crate::moment::{self, Unknown, at_time};
use crate::pins::LIFETIME;
use crate::planted::{Bug, planted};
use crate::read_memory::{Charge, Reader};
use crate::reads::Length;
use holdfast_core::Refusal;
use holdfast_core::apply::hold;
use holdfast_core::authz::Mode;
use holdfast_core::event::{Offset, Record};
use holdfast_core::history::moment::parse;
use holdfast_core::kinds::{Kind, KindId, Registry};
use holdfast_core::list::{self, Continue, Freshness, Page, Selection};
use holdfast_core::refusal::{BadRequest, Expired};
use holdfast_core::request::Request;
use holdfast_core::state::{Change, Entry, State};
use std::ops::ControlFlow;
use std::sync::Arc;

/// The number of objects of a list that are looked up at a time.
const PIECE: usize = 1024;
/// The approximate number of bytes that an object takes in a state in addition to its own bytes.
const PLACE_BYTES: usize = 256;

/// The cluster at one version, as reads see it.
#[derive(Clone)]
pub struct View {
    /// The whole state; for a past version only the kinds.
    state: Arc<State>,
    past: Option<Past>,
    /// Whether the client named this version. If so, further pages can be read for as long as the log has the version.
    named: bool,
    /// The user on whose behalf the view is read.
    reader: Reader,
}

#[derive(Clone)]
struct Past {
    engine: Arc<Engine>,
    /// The newest state. It has the objects that have not changed after the past version.
    newest: Arc<State>,
}

impl View {
    /// A view of a state with all objects.
    pub fn of(state: Arc<State>) -> View {
        View { state, past: None, named: false, reader: Reader::SERVER }
    }

    /// This view for another reader: its reads use the turns and the memory of `reader`.
    pub fn read_by(self, reader: &Reader) -> View {
        View { reader: reader.clone(), ..self }
    }

    /// This view with `named`, which is true if the client named the version.
    pub(crate) fn named(self, named: bool) -> View {
        View { named, ..self }
    }

    pub fn offset(&self) -> Offset {
        self.state.offset
    }

    /// The state, which is used for its kinds. It contains the objects only if the view [is whole](Self::is_whole).
    pub fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// Whether the state has all objects, so that the log need not be read.
    pub fn is_whole(&self) -> bool {
        self.past.is_none()
    }

    /// Whether the view's kinds are the current kinds. A whole state had the current kinds when it was taken.
    pub fn has_kinds_of_now(&self) -> bool {
        self.past.as_ref().is_none_or(|past| Arc::ptr_eq(&self.state.registry, &past.newest.registry))
    }

    /// Returns the object that the request's path names, or the refusal that there is no such object.
    pub async fn find(&self, request: &Request) -> Result<Arc<Entry>, Refusal> {
        let found = self.get(request.target.kind, &request.key()).await?;
        found.ok_or_else(|| list::missing(&self.state, request))
    }

    pub async fn get(&self, kind: KindId, key: &str) -> Result<Option<Arc<Entry>>, Refusal> {
        let Some(past) = &self.past else { return Ok(self.state.get(kind, key).cloned()) };
        let (view, key) = (self.clone(), key.to_owned());
        past.engine.reads().run_for(&self.reader, Length::Short, move || view.read(kind, &key)).await
    }

    /// One page of the selected objects; see [`list::page`]. For a past version the remaining objects are not counted.
    pub async fn page(
        &self,
        selection: &Selection,
        limit: Option<u64>,
        from: Option<&Continue>,
    ) -> Result<Page, Refusal> {
        Ok(self.counted_page(selection, limit, from).await?.0)
    }

    /// Like [`Self::page`], but also returns the charge for the objects that the newest state does not have.
    pub async fn counted_page(
        &self,
        selection: &Selection,
        limit: Option<u64>,
        from: Option<&Continue>,
    ) -> Result<(Page, Option<Charge>), Refusal> {
        let (mut page, charge) = match &self.past {
            None => (list::page(&self.state, selection, limit, from), None),
            Some(past) => {
                let (view, selection, from) = (self.clone(), selection.clone(), from.cloned());
                let read = move || view.read_page(&selection, limit, from.as_ref());
                past.engine.reads().run_for(&self.reader, Length::Long, read).await?
            }
        };
        if planted(Bug::PageSkips) && page.next.is_some() {
            page.entries.pop();
        }
        if let Some(next) = &mut page.next {
            next.past = self.named;
        }
        Ok((page, charge))
    }

    fn read(&self, kind: KindId, key: &str) -> Result<Option<Arc<Entry>>, Refusal> {
        let Some(past) = &self.past else { return Ok(self.state.get(kind, key).cloned()) };
        let at = if planted(Bug::PastOffByOne) { self.state.offset.next() } else { self.state.offset };
        let kind = self.state.kind(kind);
        let present = past.present(kind);
        if let Some(entry) = present.and_then(|present| past.newest.get(present, key))
            && entry.offset <= at
        {
            return Ok(Some(entry.clone()));
        }
        let found = match past.engine.log().version_at(&kind.storage.path, key, at).map_err(Refusal::fault)? {
            Some(offset) => Some(self.entry(past, kind, present, key, offset, None)?),
            None => None,
        };
        past.remembers(at)?;
        Ok(found)
    }

    fn read_page(
        &self,
        selection: &Selection,
        limit: Option<u64>,
        from: Option<&Continue>,
    ) -> Result<(Page, Option<Charge>), Refusal> {
        let Some(past) = &self.past else { return Ok((list::page(&self.state, selection, limit, from), None)) };
        let mut charge = past.engine.reads().memory().nothing(&self.reader);
        let page = self.past_page(past, selection, (limit, from), &mut charge)?;
        past.remembers(self.state.offset)?;
        Ok((page, Some(charge).filter(|charge| charge.bytes() > 0)))
    }

    fn past_page(
        &self,
        past: &Past,
        selection: &Selection,
        (limit, from): (Option<u64>, Option<&Continue>),
        charge: &mut Charge,
    ) -> Result<Page, Refusal> {
        let kind = self.state.kind(selection.kind);
        let at = self.state.offset;
        let mut page = Page { offset: at, entries: Vec::new(), next: None, remaining: None };
        if let Some(key) = &selection.key {
            let found = self.read(selection.kind, key)?;
            page.entries.extend(found.filter(|entry| selection.matches(kind, key, entry)));
            return Ok(page);
        }
        let present = past.present(kind);
        let limit = limit.filter(|limit| *limit > 0).map_or(usize::MAX, |limit| limit as usize);
        let mut after = from.map(|token| token.after.clone());
        loop {
            let room = PIECE.min(limit - page.entries.len());
            // Collects one object more than the page has room for. If there is such an object, the list has a further
            // page.
            let mut found = Vec::with_capacity(room.min(64) + 1);
            let mut gather = |key: &str, offset| {
                found.push((key.to_owned(), offset));
                if found.len() > room { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let log = past.engine.log();
            let asked = AsOf { resource: &kind.storage.path, prefix: &selection.prefix, after: after.as_deref(), at };
            log.as_of(&asked, &mut gather).map_err(Refusal::fault)?;
            let goes_on = found.len() > room;
            found.truncate(room);
            for (key, offset) in &found {
                let entry = self.entry(past, kind, present, key, *offset, Some(&mut *charge))?;
                if selection.matches(kind, key, &entry) {
                    page.entries.push(entry);
                }
            }
            if !goes_on {
                return Ok(page);
            }
            after = found.pop().map(|(key, _)| key).or(after);
            if page.entries.len() == limit {
                let after = after.unwrap_or_default();
                let next = match from {
                    Some(from) => from.next(after, page.entries.len() as u64),
                    None => Continue::fresh(at, after),
                };
                page.remaining = next.left();
                page.next = Some(next);
                return Ok(page);
            }
        }
    }

    /// The object that this event wrote. The event is the object's newest event up to this version. Objects that only
    /// this read keeps in memory are counted.
    fn entry(
        &self,
        past: &Past,
        kind: &Kind,
        present: Option<KindId>,
        key: &str,
        offset: Offset,
        charge: Option<&mut Charge>,
    ) -> Result<Arc<Entry>, Refusal> {
        if let Some(entry) = present.and_then(|present| past.newest.get(present, key))
            && entry.offset == offset
        {
            return Ok(entry.clone());
        }
        let cache = past.engine.past_cache();
        let name = (offset, kind.since());
        let entry = match cache.entry(name) {
            Some(entry) => entry,
            None => {
                let record = past.engine.log().read(offset).map_err(Refusal::fault)?;
                let record = record.ok_or_else(|| let_go(self.state.offset, past.engine.log().oldest()))?;
                let entry = change(&self.state.registry, &record)?.entry;
                cache.keep_entry(name, entry.clone());
                entry
            }
        };
        if let Some(charge) = charge {
            charge.grow((entry.size() + size_of::<Entry>()) as u64)?;
        }
        Ok(entry)
    }

    /// A state with all wanted objects at the view's version, and the charge for the objects that the newest state does
    /// not have.
    fn part(&self, wanted: &Wanted) -> Result<(Arc<State>, Charge), Refusal> {
        let Some(past) = &self.past else {
            return Err(Refusal::fault("a state that is there as a whole is not read in parts"));
        };
        let at = self.state.offset;
        let mut charge = past.engine.reads().memory().nothing(&self.reader);
        let mut state = State::clone(&self.state);
        for (id, kind) in self.state.registry.iter().filter(|(_, kind)| kind.stored) {
            let Some(prefix) = wanted.prefix(&self.state, id) else { continue };
            let mut found = Vec::new();
            let mut gather = |key: &str, offset| {
                found.push((key.to_owned(), offset));
                ControlFlow::Continue(())
            };
            let asked = AsOf { prefix: &prefix, ..AsOf::all(&kind.storage.path, at) };
            past.engine.log().as_of(&asked, &mut gather).map_err(Refusal::fault)?;
            let present = past.present(kind);
            for piece in found.chunks(PIECE) {
                // The new state has its own tree of the objects, whose memory also counts.
                charge.grow((piece.len() * PLACE_BYTES) as u64)?;
                for (key, offset) in piece {
                    let entry = self.entry(past, kind, present, key, *offset, Some(&mut charge))?;
                    let (offset, key) = (*offset, key.as_str().into());
                    hold(&mut state, &Change { offset, kind: id, key, entry, deleted: false });
                }
            }
        }
        state.offset = at;
        past.remembers(at)?;
        Ok((Arc::new(state), charge))
    }

    /// Whether no wanted object has changed since the past version.
    fn is_as_now(&self, past: &Past, wanted: &Wanted) -> Result<bool, Refusal> {
        for (id, kind) in past.newest.registry.iter().filter(|(_, kind)| kind.stored) {
            let Some(prefix) = wanted.prefix(&past.newest, id) else { continue };
            let (after, until) = (self.state.offset, past.newest.offset);
            let asked = Changes { resource: &kind.storage.path, prefix: &prefix, after, until };
            if asked.first(past.engine.log().as_ref()).map_err(Refusal::fault)?.is_some() {
                return Ok(false);
            }
        }
        past.remembers(self.state.offset)?;
        Ok(true)
    }
}

/// The part of a past state that a read needs.
pub enum Wanted {
    All,
    /// The objects that determine access in one namespace: the roles and role bindings of the namespace, and all
    /// cluster roles and cluster role bindings.
    Roles {
        namespace: String,
    },
    /// The objects that admission reads for a request that writes nothing: webhook configurations, policies, the
    /// namespace, and the request's object (the storage path of its kind, and its key).
    Admission {
        namespace: String,
        object: Option<(String, String)>,
    },
}

impl Wanted {
    /// The prefix of the keys of the wanted objects of a kind; `None` if no object of the kind is wanted.
    fn prefix(&self, state: &State, id: KindId) -> Option<String> {
        let kind = state.kind(id);
        match self {
            Wanted::All => Some(String::new()),
            Wanted::Roles { namespace } => match (kind.influence.role.is_some(), kind.is_namespaced()) {
                (true, false) => Some(String::new()),
                (true, true) if !namespace.is_empty() => Some(format!("{namespace}/")),
                _ => None,
            },
            Wanted::Admission { namespace, .. } if id == state.registry.namespaces() => Some(namespace.clone()),
            Wanted::Admission { object: Some((storage, key)), .. } if *storage == kind.storage.path => {
                Some(key.clone())
            }
            Wanted::Admission { .. } => kind.influence.registers.is_some().then(String::new),
        }
    }
}

impl Past {
    /// Fails if the log no longer has the version. Callers call this after a read, because events may be removed from
    /// the log during the read.
    fn remembers(&self, at: Offset) -> Result<(), Refusal> {
        let oldest = self.engine.log().oldest();
        if oldest.as_ref().is_ok_and(|oldest| at >= *oldest) { Ok(()) } else { Err(let_go(at, oldest)) }
    }

    /// The kind's number in the newest state, if the kind's definition has not changed since the past version.
    fn present(&self, kind: &Kind) -> Option<KindId> {
        let id = self.newest.registry.by_storage(&kind.storage.path)?;
        (self.newest.kind(id).since() == kind.since()).then_some(id)
    }
}

impl Engine {
    /// The version for a moment (a version, a time, or a duration before now). The log must still have the version.
    pub async fn moment(&self, text: &str) -> Result<Offset, Refusal> {
        self.moment_for(text, &Reader::SERVER).await
    }

    /// Like [`Self::moment`], but the look-up in the log waits for the reader's turn.
    pub async fn moment_for(&self, text: &str, reader: &Reader) -> Result<Offset, Refusal> {
        let now = self.stamp().time;
        let moment = parse(text, now).map_err(|unclear| undecodable(&unclear))?;
        // Events that are durable but not yet published count as future events, so the newest version is the version of
        // the published state.
        let newest = self.own_snapshot().offset;
        let log = self.log().clone();
        let resolved = move || moment::resolve(log.as_ref(), moment);
        match self.reads().run_for(reader, Length::Short, resolved).await {
            Ok(version) if version <= newest => Ok(version),
            Ok(version) => Err(undecodable(&Unknown::Future { asked: version, newest })),
            Err(Unknown::LetGo { asked, oldest }) => Err(let_go(asked, Ok(oldest))),
            Err(Unknown::Fault(why)) => Err(Refusal::fault(why)),
            Err(future @ Unknown::Future { .. }) => Err(undecodable(&future)),
        }
    }

    /// The version that this engine's log had when the log of `other` reached `version`. The times of both logs' events
    /// are compared.
    pub async fn same_time(&self, other: &Engine, version: Offset, reader: &Reader) -> Result<Offset, Refusal> {
        let (log, other) = (self.log().clone(), other.log().clone());
        let found = move || {
            let at = other.next_time(Offset(version.0.saturating_sub(1)))?;
            let newest = log.last()?;
            at.map_or(Ok(newest), |(_, time_ms)| at_time(log.as_ref(), time_ms, newest))
        };
        self.reads().run_for(reader, Length::Short, found).await.map_err(Refusal::fault)
    }

    /// The view that a list reads. `from` is the continue token of the previous page.
    pub async fn view_for(self: &Arc<Self>, freshness: Freshness, from: Option<&Continue>) -> Result<View, Refusal> {
        self.view_by(&Reader::SERVER, freshness, from).await
    }

    /// Like [`Engine::view_for`], but reads of the past wait for the reader's turn and count against the reader's
    /// memory.
    pub async fn view_by(
        self: &Arc<Self>,
        reader: &Reader,
        freshness: Freshness,
        from: Option<&Continue>,
    ) -> Result<View, Refusal> {
        match (from, freshness) {
            (Some(token), _) => self.view_of(token, reader).await,
            (None, Freshness::Newest) if planted(Bug::StaleRead) && self.own_snapshot().offset.0 % 7 == 6 => {
                self.past(Offset(self.own_snapshot().offset.0 - 1)).await
            }
            (None, Freshness::Newest) => {
                if !planted(Bug::OthersUnread) {
                    self.catch_up().await?;
                }
                Ok(View::of(self.own_snapshot()))
            }
            (None, Freshness::NotOlderThan(offset)) => {
                self.reach(offset).await?;
                Ok(View::of(self.own_snapshot()))
            }
            (None, Freshness::Exact(offset)) => {
                self.reach(offset).await?;
                match self.kept(offset) {
                    Some(state) => Ok(View::of(state).named(true)),
                    None => self.past_for(offset, reader).await,
                }
            }
        }
    }

    /// The view for the next page of a continue token. A list that began with the newest state must continue within the
    /// token's lifetime, even if the log has the version for longer.
    async fn view_of(self: &Arc<Self>, token: &Continue, reader: &Reader) -> Result<View, Refusal> {
        let offset = Offset(token.version);
        if planted(Bug::TokenOfNewest) {
            return Ok(View::of(self.own_snapshot()).named(token.past));
        }
        if let Some(state) = self.kept(offset) {
            return Ok(View::of(state).named(token.past));
        }
        let expired = || Refusal::Expired(Expired::List(offset));
        if offset > self.own_snapshot().offset {
            return Err(expired());
        }
        if !token.past {
            let log = self.log().clone();
            let since = self.reads().run_for(reader, Length::Short, move || log.next_time(offset)).await;
            let since = since.map_err(Refusal::fault)?;
            let limit_ms = self.stamp().time.as_millisecond() - LIFETIME.as_millis() as i64;
            if since.is_some_and(|(_, time_ms)| time_ms < limit_ms) {
                return Err(expired());
            }
        }
        Ok(self.past_for(offset, reader).await?.named(token.past))
    }

    /// The view of the cluster at a version that the log still has.
    pub async fn past(self: &Arc<Self>, at: Offset) -> Result<View, Refusal> {
        self.past_for(at, &Reader::SERVER).await
    }

    /// Like [`Self::past`], but its reads use the reader's turns and memory.
    pub async fn past_for(self: &Arc<Self>, at: Offset, reader: &Reader) -> Result<View, Refusal> {
        let engine = self.clone();
        let view = self.reads().run_for(reader, Length::Long, move || engine.read_past(at)).await?;
        Ok(view.read_by(reader))
    }

    pub(crate) fn read_past(self: &Arc<Self>, at: Offset) -> Result<View, Refusal> {
        let newest = self.own_snapshot();
        if newest.offset == at {
            return Ok(View::of(newest).named(true));
        }
        let oldest = self.log().oldest();
        if !oldest.as_ref().is_ok_and(|oldest| at >= *oldest) {
            return Err(let_go(at, oldest));
        }
        let state = match self.past_cache().version(at) {
            Some(state) => state,
            None => {
                let mut state = State::new(self.kinds_at(&newest, at)?);
                state.offset = at;
                let state = Arc::new(state);
                self.past_cache().keep_version(state.clone());
                state
            }
        };
        Ok(View { state, past: Some(Past { engine: self.clone(), newest }), named: true, reader: Reader::SERVER })
    }

    /// The whole state at a version, for reads that cannot tell in advance which objects they need.
    pub async fn state_at(self: &Arc<Self>, at: Offset) -> Result<Arc<State>, Refusal> {
        self.state_for(at, &Reader::SERVER).await
    }

    /// Like [`Self::state_at`], but counted as the reader's memory. The state stays pinned for further requests while
    /// there is room.
    pub async fn state_for(self: &Arc<Self>, at: Offset, reader: &Reader) -> Result<Arc<State>, Refusal> {
        if let Some(state) = self.kept(at) {
            return Ok(state);
        }
        let (engine, of) = (self.clone(), reader.clone());
        let whole = move || {
            let view = engine.read_past(at)?.read_by(&of);
            if view.is_whole() {
                return Ok((view.state, None));
            }
            let (mut state, charge) = view.part(&Wanted::All)?;
            if state.nodes.is_none() && engine.authorizers().has(Mode::Node) {
                Arc::make_mut(&mut state).follow_nodes();
            }
            Ok::<_, Refusal>((state, Some(charge)))
        };
        let (state, charge) = self.reads().run_for(reader, Length::Long, whole).await?;
        if let Some(charge) = charge {
            self.pins().pin_counted(&state, reader, charge);
        }
        Ok(state)
    }

    /// A state with the wanted objects at a version. The state may also have other objects, at other versions.
    pub async fn part_at(self: &Arc<Self>, at: Offset, wanted: Wanted, reader: &Reader) -> Result<Arc<State>, Refusal> {
        if let Some(state) = self.kept(at) {
            return Ok(state);
        }
        let (engine, of) = (self.clone(), reader.clone());
        let read = move || {
            let view = engine.read_past(at)?.read_by(&of);
            match &view.past {
                None => Ok(view.state.clone()),
                // In most calls no wanted object has changed, because roles and configurations of admission rarely
                // change. Then the newest state is returned.
                Some(past) if view.has_kinds_of_now() && view.is_as_now(past, &wanted)? => Ok(past.newest.clone()),
                Some(_) => Ok(view.part(&wanted)?.0),
            }
        };
        self.reads().run_for(reader, Length::Long, read).await
    }

    /// The kinds at a version. These are the current kinds, unless a definition has changed since.
    fn kinds_at(self: &Arc<Self>, newest: &Arc<State>, at: Offset) -> Result<Arc<Registry>, Refusal> {
        let Some(definitions) = newest.registry.definitions() else { return Ok(newest.registry.clone()) };
        if planted(Bug::PastKindsOfNow) {
            return Ok(newest.registry.clone());
        }
        let storage = &newest.kind(definitions).storage.path;
        let asked = Changes { resource: storage, prefix: "", after: at, until: newest.offset };
        let Some(ended) = asked.first(self.log().as_ref()).map_err(Refusal::fault)? else {
            return Ok(newest.registry.clone());
        };
        if let Some(registry) = self.past_cache().registry(ended) {
            return Ok(registry);
        }
        let mut offsets = Vec::new();
        let mut gather = |_: &str, offset| {
            offsets.push(offset);
            ControlFlow::Continue(())
        };
        self.log().as_of(&AsOf::all(storage, at), &mut gather).map_err(Refusal::fault)?;
        offsets.sort_unstable();
        let mut state = State::new(self.built_in().clone());
        for offset in offsets {
            let record = self.log().read(offset).map_err(Refusal::fault)?;
            let record = record.ok_or_else(|| let_go(at, self.log().oldest()))?;
            let change = change(&state.registry, &record)?;
            hold(&mut state, &change);
        }
        self.past_cache().keep_registry(ended, state.registry.clone());
        Ok(state.registry)
    }
}

fn change(registry: &Registry, record: &Record) -> Result<Change, Refusal> {
    Change::from_record(registry, record).map_err(Refusal::fault)
}

/// The refusal of a moment that cannot be parsed.
fn undecodable(fault: &dyn std::fmt::Display) -> Refusal {
    Refusal::BadRequest(BadRequest::Undecodable(fault.to_string()))
}

/// The refusal of a version whose events the log has removed.
fn let_go(asked: Offset, oldest: Result<Offset, Fault>) -> Refusal {
    match oldest {
        Ok(oldest) => Refusal::Expired(Expired::LetGo { asked, oldest }),
        Err(why) => Refusal::fault(why),
    }
}
