//! Simulated readers: long lists page by page while the world goes on, and gets, of now and of past versions.

use crate::coverage::{Mark, saw};
use crate::custom;
use crate::oracle::{History, Verdict, ensure};
use crate::pick::{Pick, kind_of, picked};
use crate::random::Dice;
use crate::shape::{SORTS, Sort};
use crate::twin::{Twin, Version};
use crate::workload::{NAMES, NAMESPACES};
use holdfast_core::Refusal;
use holdfast_core::event::Offset;
use holdfast_core::list::{Continue, Freshness};
use holdfast_core::object::meta;
use holdfast_core::state::Entry;
use holdfast_engine::{Engine, View};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// How long a continue token, or a version to list at, is good for at least, in simulated milliseconds.
const LIFETIME_MS: i64 = 5 * 60 * 1000;

/// What a reader sees of the world.
#[derive(Clone, Copy)]
pub struct Sight<'a> {
    pub engine: &'a Arc<Engine>,
    pub twin: &'a Twin,
    /// The newest version that anybody was told of.
    pub told: u64,
    pub now_ms: i64,
    pub crashes: u64,
}

pub struct Lister {
    sort: Sort,
    pick: Pick,
    limit: u64,
    /// The version to list at, if not the newest.
    exact: Option<u64>,
    /// The version of the first page.
    offset: u64,
    token: String,
    found: BTreeMap<String, u64>,
    pages: u32,
    /// How many crashes there had been when it began.
    crashes: u64,
}

impl Lister {
    pub fn draw(dice: &mut Dice, newest: u64, crashes: u64) -> Lister {
        let sort = dice.pick(&SORTS);
        let pick = Pick::draw(dice, sort);
        let limit = 1 + dice.below(4) as u64;
        let exact = dice.chance(25).then(|| past(dice, newest));
        let (token, found) = (String::new(), BTreeMap::new());
        Lister { sort, pick, limit, exact, offset: 0, token, found, pages: 0, crashes }
    }

    /// Reads one page. True when the list is complete, and was right.
    pub fn turn(&mut self, sight: Sight, history: &mut History) -> Result<bool, String> {
        let Sight { engine, twin, now_ms, .. } = sight;
        let began = history.now();
        let from = match self.token.as_str() {
            "" => None,
            token => {
                let opened = Continue::open(token, engine.token_key());
                Some(opened.map_err(|refusal| self.blame(&format!("{refusal:?}")))?)
            }
        };
        let freshness = self.exact.map_or(Freshness::Newest, |exact| Freshness::Exact(Offset(exact)));
        let view = match at_once(engine.view_for(freshness, from.as_ref())) {
            Ok(view) => view,
            Err(Refusal::Expired { .. }) => {
                let asked = if self.token.is_empty() { self.exact.unwrap_or(0) } else { self.offset };
                let old = asked < twin.forgotten || self.exact.is_none() && is_old(twin, asked, now_ms);
                saw(Mark::ListExpired);
                return if old { Ok(true) } else { Err(self.blame("it expired too soon")) };
            }
            Err(refusal) => return Err(self.blame(&format!("{refusal:?}"))),
        };
        if self.token.is_empty() {
            self.offset = view.offset().0;
            ensure(self.exact.is_none_or(|exact| exact == self.offset), || {
                self.blame("another version was asked for")
            })?;
            if self.exact.is_none() {
                up_to_date(sight, &view).map_err(|why| self.blame(&why))?;
            }
            if view.is_whole() {
                engine.pin(view.state());
            }
        }
        let Some(selection) = self.pick.selection(self.sort, view.state()) else {
            // Its kind was not there then.
            let there = custom::law(twin, view.offset().0).is_some();
            return if there { Err(self.blame("the kind is defined, and not served")) } else { Ok(true) };
        };
        let page = match at_once(view.page(&selection, Some(self.limit), from.as_ref())) {
            Ok(page) => page,
            Err(refusal) => return Err(self.blame(&format!("{refusal:?}"))),
        };
        if page.offset.0 != self.offset || page.entries.len() as u64 > self.limit {
            return Err(self.blame(&format!("a page of {} at {}", page.entries.len(), page.offset)));
        }
        for entry in &page.entries {
            // Which object it is, its bytes say: they must be those of the event.
            let Some(version) = twin.event(entry.offset.0) else {
                return Err(self.blame(&format!("it shows version {}, which there is not", entry.offset)));
            };
            let key = &version.record.key;
            let last = self.found.last_key_value().map(|(key, _)| key);
            if last.is_some_and(|last| last >= key) {
                return Err(self.blame(&format!("{key} comes after {last:?}")));
            }
            check_shown(twin, &view, self.sort, entry, key)?;
            if self.pages == 0 && self.exact.is_none() {
                history.read((self.sort.storage(), key), began, entry)?;
            }
            self.found.insert(key.clone(), entry.offset.0);
        }
        let expected = || picked(twin, self.sort, &self.pick, self.offset);
        if let Some(remaining) = page.remaining {
            let count = expected().count();
            ensure(remaining == count.saturating_sub(self.found.len()) as u64, || {
                self.blame(&format!("{remaining} are said to remain of {count}"))
            })?;
        }
        self.pages += 1;
        if let Some(next) = page.next {
            self.token = next.seal(engine.token_key());
            return Ok(false);
        }
        let same = expected()
            .map(|(key, version)| (key, version.offset))
            .eq(self.found.iter().map(|(key, offset)| (key.as_str(), *offset)));
        if !same {
            let expected: Vec<_> = expected().map(|(key, _)| key).collect();
            return Err(self.blame(&format!("it lists {:?} and not {expected:?}", self.found)));
        }
        self.saw_all(sight);
        Ok(true)
    }

    fn saw_all(&self, sight: Sight) {
        saw(if self.pages > 1 { Mark::ListedInPages } else { Mark::ListedWhole });
        let later = sight.twin.of_storage(self.sort.storage(), self.offset, u64::MAX).next().is_some();
        for (holds, mark) in [
            (self.pages > 1 && self.exact.is_none() && later, Mark::ListedAcrossWrites),
            (self.pages > 1 && sight.crashes > self.crashes, Mark::ListedAcrossCrash),
            (self.exact.is_some(), Mark::ListedPast),
            (!matches!(self.pick, Pick::All | Pick::In(_)) && !self.found.is_empty(), Mark::ListedSelection),
        ] {
            if holds {
                saw(mark);
            }
        }
    }

    fn blame(&self, why: &str) -> String {
        format!("a list of {:?} {:?} at {} by {}: {why}", self.sort, self.pick, self.offset, self.limit)
    }
}

/// Whoever asks for the newest is shown what is durable, and no less than anybody was told of.
fn up_to_date(sight: Sight, view: &View) -> Verdict {
    let (shown, told, durable) = (view.offset().0, sight.told, sight.twin.last());
    ensure((told..=durable).contains(&shown), || {
        format!("version {shown} is shown after {told} was told, and {durable} is durable")
    })
}

/// A version of the past, mostly of the near one.
pub fn past(dice: &mut Dice, newest: u64) -> u64 {
    let back = if dice.chance(70) { dice.below(40) } else { dice.below(newest as usize + 1) };
    newest.saturating_sub(back as u64).max(1)
}

/// Whether a version was replaced so long ago that a list that began at it may have expired.
fn is_old(twin: &Twin, asked: u64, now_ms: i64) -> bool {
    let age = twin.event(asked + 1).map_or(0, |version| now_ms - version.record.time_ms);
    age >= LIFETIME_MS - 1000
}

/// One object, newest or as it was.
pub fn get(dice: &mut Dice, sight: Sight, history: &mut History) -> Verdict {
    let Sight { engine, twin, .. } = sight;
    let began = history.now();
    let sort = dice.pick(&SORTS);
    let namespace = sort.is_namespaced().then(|| dice.pick(&NAMESPACES));
    let name = match sort {
        Sort::Namespace => dice.pick(&NAMESPACES),
        Sort::CustomResourceDefinition => custom::DEFINITION,
        _ => dice.pick(&NAMES),
    };
    let key = meta::key(namespace, name);
    let newest = engine.snapshot();
    let exact = dice.chance(30).then(|| past(dice, newest.offset.0));
    let blame = |why: &str| format!("a get of {sort:?} {key} at {exact:?} of {}: {why}", newest.offset);
    let freshness = exact.map_or(Freshness::Newest, |exact| Freshness::Exact(Offset(exact)));
    let view = match at_once(engine.view_for(freshness, None)) {
        Ok(view) => view,
        Err(Refusal::Expired { .. }) => {
            let forgotten = exact.is_some_and(|exact| exact < twin.forgotten);
            saw(Mark::GotExpired);
            return ensure(forgotten, || blame("it expired"));
        }
        Err(refusal) => return Err(blame(&format!("{refusal:?}"))),
    };
    ensure(exact.is_none_or(|exact| exact == view.offset().0), || blame("another version was asked for"))?;
    if exact.is_none() {
        up_to_date(sight, &view).map_err(|why| blame(&why))?;
    }
    let expected = twin.version_at(sort.storage(), &key, view.offset().0);
    let found = match kind_of(view.state(), sort) {
        Some((kind, _)) => at_once(view.get(kind, &key)).map_err(|refusal| blame(&format!("{refusal:?}")))?,
        None => None,
    };
    let place = (sort.storage(), key.as_str());
    match (&found, exact) {
        (Some(_), Some(_)) => saw(Mark::GotPast),
        (None, Some(_)) => saw(Mark::GotNothing),
        (Some(entry), None) => {
            saw(Mark::GotNewest);
            history.read(place, began, entry)?;
        }
        (None, None) => {
            saw(Mark::GotNothing);
            history.missed(place, began, twin)?;
        }
    }
    match (found, expected) {
        (None, None) => Ok(()),
        (Some(entry), Some(_)) if sort.is_custom() => check_shown(twin, &view, sort, &entry, &key),
        // Built-in kinds are compared by their bytes, and not parsed.
        (Some(entry), Some(_)) => check_bytes(expected, &entry).map_err(|why| blame(&why)),
        (found, expected) => Err(blame(&format!(
            "it finds {:?} and not {:?}",
            found.map(|entry| entry.offset),
            expected.map(|version| version.offset)
        ))),
    }
}

fn check_bytes(expected: Option<&Version>, entry: &Entry) -> Verdict {
    let same = expected.is_some_and(|version| version.offset == entry.offset.0 && version.record.object == entry.json);
    ensure(same, || {
        let shown = String::from_utf8_lossy(&entry.json).into_owned();
        format!("it shows version {}\n  {shown}  in place of {:?}", entry.offset, expected.map(|v| v.offset))
    })
}

/// An object of a list is what was stored; a custom one is what the definition makes of it.
fn check_shown(twin: &Twin, view: &View, sort: Sort, entry: &Entry, key: &str) -> Verdict {
    let state = view.state();
    let expected = twin.version_at(sort.storage(), key, state.offset.0);
    let blame = |why: String| format!("{sort:?} {key} as of {}: {why}", state.offset);
    check_bytes(expected, entry).map_err(blame)?;
    let (Some((kind, _)), Some(version), true) = (kind_of(state, sort), expected, sort.is_custom()) else {
        return Ok(());
    };
    let Some(law) = custom::law(twin, state.offset.0) else {
        return Err(blame("its kind is served, and nothing defines it".into()));
    };
    let kind = state.kind(kind);
    for (at, served) in kind.versions.iter().enumerate() {
        let shown = entry.document_in(kind, at);
        let wanted = custom::shown(law, &version.document, Some(&served.version));
        ensure(shown == wanted, || blame(format!("in {} it is\n  {shown}\n  and not\n  {wanted}", served.version)))?;
    }
    Ok(())
}

/// The outcome of a future that has no reason to wait.
pub fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => panic!("a read of what is there does not wait"),
    }
}
