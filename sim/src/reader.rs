//! Simulated readers. They read long lists page by page while clients write, and get current and past versions of
//! objects.

use crate::coverage::{Mark, saw};
use crate::custom;
use crate::door;
use crate::oracle::{CheckResult, History, Instant, ensure};
use crate::pick::{NAMES, NAMESPACES, Pick, picked};
use crate::random::Dice;
use crate::rights;
use crate::shape::{SORTS, Sort};
use crate::twin::{ObjectVersion, Twin};
use crate::workload::LET;
use holdfast_core::Refusal;
use holdfast_core::authz::User;
use holdfast_core::kinds::Kind;
use holdfast_core::object::meta;
use holdfast_core::request::{Options, Verb};
use holdfast_core::state::Entry;
use holdfast_engine::Engine;
use holdfast_service::{Call, Listed, Reply, Service, Shown};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How long a continue token or an exact version of a list must be valid at least, in simulated milliseconds.
const LIFETIME_MS: i64 = 5 * 60 * 1000;

/// The parts of the simulated world that readers use.
#[derive(Clone, Copy)]
pub struct Sight<'a> {
    pub engine: &'a Arc<Engine>,
    pub service: &'a Arc<Service>,
    pub twin: &'a Twin,
    /// The newest version that any client has seen in an answer.
    pub told: u64,
    pub now_ms: i64,
    pub crashes: u64,
}

impl Sight<'_> {
    pub fn newest(&self) -> u64 {
        self.engine.snapshot().offset.0
    }
}

/// A read, with everything on which the user's right to it depends.
#[derive(Clone, Copy)]
pub struct Reading<'a> {
    pub user: &'a Arc<User>,
    pub verb: Verb,
    pub sort: Sort,
    /// The namespace in which the right is checked; empty for all namespaces.
    pub namespace: &'a str,
    /// The version that is read; `None` for the newest version.
    pub asked: Option<u64>,
}

impl Reading<'_> {
    fn may(&self, sight: Sight) -> bool {
        rights::may(sight.twin, self.user, self.verb, self.namespace, sight.newest())
    }

    fn is_hidden(&self, sight: Sight) -> bool {
        let newest = sight.newest();
        rights::is_hidden(sight.twin, self.user, self.namespace, self.asked.unwrap_or(newest), newest)
    }

    /// Checks that a user who got an answer had the right to it.
    pub fn check_right(&self, sight: Sight) -> CheckResult {
        ensure(self.may(sight), || format!("it is answered to {}, who has no right to it", self.user.name))
    }

    /// Checks that the answer does not show the user objects of an earlier owner of the namespace.
    pub fn check_shown(&self, sight: Sight) -> CheckResult {
        ensure(!self.is_hidden(sight), || format!("{} is shown what others held before", self.user.name))
    }

    /// Whether the user's rights explain the refusal. Returns an error if the rights demand another refusal.
    pub fn explains(&self, sight: Sight, refusal: &Refusal) -> Result<bool, String> {
        match refusal {
            Refusal::Forbidden { .. } => {
                saw(Mark::Unauthorized);
                ensure(!self.may(sight), || format!("{} may read it, and is refused", self.user.name)).map(|()| true)
            }
            refusal => {
                self.check_right(sight)?;
                let hidden = matches!(refusal, Refusal::Expired { .. }) && self.is_hidden(sight);
                if hidden {
                    saw(Mark::PastHidden);
                }
                Ok(hidden || matches!(refusal, Refusal::NoSuchPath) && self.is_unserved(sight))
            }
        }
    }

    /// Whether the server does not serve the kind, or did not serve it at the version that is read.
    fn is_unserved(&self, sight: Sight) -> bool {
        let newest = sight.newest();
        let served = |offset: u64| sight.twin.law(offset).is_some();
        self.sort.is_custom() && !(served(newest) && served(self.asked.unwrap_or(newest)))
    }
}

pub struct Lister {
    user: Arc<User>,
    sort: Sort,
    pick: Pick,
    limit: u64,
    /// The exact version that is listed; `None` for the newest version.
    exact: Option<u64>,
    /// The version of the list's first page.
    offset: u64,
    token: String,
    found: BTreeMap<String, u64>,
    pages: u32,
    /// How many crashes there had been when the list began.
    crashes: u64,
}

impl Lister {
    pub fn draw(dice: &mut Dice, newest: u64, crashes: u64) -> Lister {
        let user = rights::draw(dice);
        let sort = dice.pick(&SORTS);
        let pick = Pick::draw(dice, sort);
        let limit = 1 + dice.below(4) as u64;
        let exact = dice.chance(25).then(|| past(dice, newest));
        let (token, found) = (String::new(), BTreeMap::new());
        Lister { user, sort, pick, limit, exact, offset: 0, token, found, pages: 0, crashes }
    }

    /// Reads one page of the list. Returns true when the list is complete. An error describes a page that is wrong.
    pub fn turn(&mut self, sight: Sight, history: &mut History) -> Result<bool, String> {
        let began = history.now();
        let (mut options, namespace) = self.pick.terms();
        options.limit = Some(self.limit);
        let asked = if self.token.is_empty() { self.exact } else { Some(self.offset) };
        if !self.token.is_empty() {
            options.continue_token = Some(self.token.clone());
        } else if let Some(exact) = self.exact {
            options.resource_version = Some(exact.to_string());
            options.resource_version_match = Some("Exact".into());
        }
        let namespace = namespace.as_deref();
        let user = self.user.clone();
        let (verb, sort) = (Verb::List, self.sort);
        let reading = Reading { user: &user, verb, sort, namespace: namespace.unwrap_or(""), asked };
        let listed = match door::ask(sight.service, door::read(&user, sort, verb, (namespace, None), options)) {
            Ok(Reply::List(listed)) => listed,
            Ok(other) => return Err(self.blame(&format!("{other:?}"))),
            Err(refusal) if reading.explains(sight, &refusal).map_err(|why| self.blame(&why))? => return Ok(true),
            Err(refusal) => return self.refused(sight, &refusal).map(|()| true),
        };
        reading.check_right(sight).map_err(|why| self.blame(&why))?;
        if !listed.page.entries.is_empty() {
            reading.check_shown(sight).map_err(|why| self.blame(&why))?;
        }
        self.take(sight, &listed, began, history)?;
        self.pages += 1;
        if !listed.continue_token.is_empty() {
            self.token = listed.continue_token;
            return Ok(false);
        }
        let expected = || picked(sight.twin, self.sort, &self.pick, self.offset);
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

    /// Checks a refusal to read a page. A list may be refused if the version of its first page has expired, or if the
    /// requested version was forgotten.
    fn refused(&self, sight: Sight, refusal: &Refusal) -> CheckResult {
        let Refusal::Expired { .. } = refusal else { return Err(self.blame(&format!("{refusal:?}"))) };
        let asked = if self.token.is_empty() { self.exact.unwrap_or(0) } else { self.offset };
        let old = asked < sight.twin.forgotten || self.exact.is_none() && is_old(sight.twin, asked, sight.now_ms);
        saw(Mark::ListExpired);
        ensure(old, || self.blame("it expired too soon"))
    }

    /// Checks one page of the list.
    fn take(&mut self, sight: Sight, listed: &Listed, began: Instant, history: &mut History) -> CheckResult {
        let (page, twin) = (&listed.page, sight.twin);
        if self.token.is_empty() {
            self.offset = page.offset.0;
            ensure(self.exact.is_none_or(|exact| exact == self.offset), || {
                self.blame("another version was asked for")
            })?;
            if self.exact.is_none() {
                up_to_date(sight, self.offset).map_err(|why| self.blame(&why))?;
            }
        }
        if page.offset.0 != self.offset || page.entries.len() as u64 > self.limit {
            return Err(self.blame(&format!("a page of {} at {}", page.entries.len(), page.offset)));
        }
        for entry in &page.entries {
            // The version of an object identifies its event. The bytes of the object must equal the bytes of the event.
            let Some(version) = twin.event(entry.offset.0) else {
                return Err(self.blame(&format!("it shows version {}, which there is not", entry.offset)));
            };
            let key = &version.record.key;
            let last = self.found.last_key_value().map(|(key, _)| key);
            if last.is_some_and(|last| last >= key) {
                return Err(self.blame(&format!("{key} comes after {last:?}")));
            }
            check_shown(twin, (&listed.kind, self.offset), self.sort, entry, key)?;
            if self.pages == 0 && self.exact.is_none() {
                history.read((self.sort.storage(), key), began, entry)?;
            }
            self.found.insert(key.clone(), entry.offset.0);
        }
        if let Some(remaining) = page.remaining {
            let count = picked(twin, self.sort, &self.pick, self.offset).count();
            ensure(remaining == count.saturating_sub(self.found.len()) as u64, || {
                self.blame(&format!("{remaining} are said to remain of {count}"))
            })?;
        }
        Ok(())
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

/// Checks that a read of the newest version shows only durable events, and nothing older than a version that any client
/// knows.
fn up_to_date(sight: Sight, shown: u64) -> CheckResult {
    let (told, durable) = (sight.told, sight.twin.last());
    ensure((told..=durable).contains(&shown), || {
        format!("version {shown} is shown after {told} was told, and {durable} is durable")
    })
}

/// A random past version, usually one of the last forty.
pub fn past(dice: &mut Dice, newest: u64) -> u64 {
    let back = if dice.chance(70) { dice.below(40) } else { dice.below(newest as usize + 1) };
    newest.saturating_sub(back as u64).max(1)
}

/// Whether a version was replaced so long ago that a list at this version may have expired.
fn is_old(twin: &Twin, asked: u64, now_ms: i64) -> bool {
    let age = twin.event(asked + 1).map_or(0, |version| now_ms - version.record.time_ms);
    age >= LIFETIME_MS - 1000
}

/// How a reader names a past version in its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Naming {
    /// By `resourceVersion` together with `resourceVersionMatch=Exact`.
    Exact,
    /// By the parameter `at`.
    Parameter,
    /// By the path of a view that shows the whole API at the version.
    View,
}

/// The object that a reader requests, and the version that it requests.
struct Asking {
    user: Arc<User>,
    sort: Sort,
    namespace: Option<&'static str>,
    name: &'static str,
    exact: Option<u64>,
}

impl Asking {
    fn draw(dice: &mut Dice, newest: u64) -> Asking {
        let (user, sort) = (rights::draw(dice), dice.pick(&SORTS));
        let namespace = sort.is_namespaced().then(|| dice.pick(&NAMESPACES));
        let name = match sort {
            Sort::Namespace => dice.pick(&NAMESPACES),
            Sort::CustomResourceDefinition => custom::DEFINITION,
            _ => dice.pick(&NAMES),
        };
        let exact = dice.chance(30).then(|| past(dice, newest));
        Asking { user, sort, namespace, name, exact }
    }

    /// The request of the present owner of a namespace that had other owners, for a state of the past.
    fn as_new_owner(dice: &mut Dice, newest: u64) -> Asking {
        let sort = dice.pick(&[Sort::ConfigMap, Sort::RoleBinding, Sort::Namespace]);
        let (namespace, name) = if sort == Sort::Namespace { (None, LET) } else { (Some(LET), NAMES[0]) };
        Asking { user: rights::first_owner(), sort, namespace, name, exact: Some(past(dice, newest)) }
    }
}

/// Gets one object, current or past.
pub fn get(dice: &mut Dice, sight: Sight, history: &mut History) -> CheckResult {
    let began = history.now();
    let newest = sight.newest();
    let Asking { user, sort, namespace, name, exact } =
        if dice.chance(6) { Asking::as_new_owner(dice, newest) } else { Asking::draw(dice, newest) };
    let verb = Verb::Get;
    let key = meta::key(namespace, name);
    let naming = dice.pick(&[Naming::Exact, Naming::Exact, Naming::Parameter, Naming::View]);
    let judged_in = namespace.unwrap_or(if sort == Sort::Namespace { name } else { "" });
    let reading = Reading { user: &user, verb, sort, namespace: judged_in, asked: exact };
    let blame = |why: &str| format!("a get of {sort:?} {key} at {exact:?} ({naming:?}) of {newest}: {why}");
    let found = match door::ask(sight.service, call_for(&reading, (namespace, name), naming)) {
        Ok(Reply::Object(shown)) => Some(shown),
        Ok(other) => return Err(blame(&format!("{other:?}"))),
        Err(Refusal::NotFound(_)) => None,
        Err(refusal) if reading.explains(sight, &refusal).map_err(|why| blame(&why))? => return Ok(()),
        Err(Refusal::Expired { .. }) => {
            let forgotten = exact.is_some_and(|exact| exact < sight.twin.forgotten);
            saw(Mark::GotExpired);
            return ensure(forgotten, || blame("it expired"));
        }
        Err(refusal) => return Err(blame(&format!("{refusal:?}"))),
    };
    reading.check_right(sight).map_err(|why| blame(&why))?;
    if found.is_some() {
        reading.check_shown(sight).map_err(|why| blame(&why))?;
    }
    if exact.is_none() {
        up_to_date(sight, newest).map_err(|why| blame(&why))?;
    }
    let place = (sort.storage(), key.as_str());
    match (&found, exact) {
        (Some(_), Some(_)) => saw(Mark::GotPast),
        (None, Some(_)) => saw(Mark::GotNothing),
        (Some(shown), None) => {
            saw(Mark::GotNewest);
            history.read(place, began, &shown.entry)?;
        }
        (None, None) => {
            saw(Mark::GotNothing);
            history.missed(place, began, sight.twin)?;
        }
    }
    check_got(sight.twin, sort, &key, exact.unwrap_or(newest), found).map_err(|why| blame(&why))
}

fn call_for(reading: &Reading, (namespace, name): (Option<&str>, &str), naming: Naming) -> Call {
    let mut options = Options::default();
    if let (Some(asked), Naming::Exact) = (reading.asked, naming) {
        options.resource_version = Some(asked.to_string());
        options.resource_version_match = Some("Exact".into());
    }
    let call = door::read(reading.user, reading.sort, reading.verb, (namespace, Some(name)), options);
    let moment = reading.asked.map(|asked| asked.to_string());
    match (moment, naming) {
        (Some(moment), Naming::Parameter) => door::at(call, moment),
        (moment, Naming::View) => Call { at: moment, ..call },
        _ => call,
    }
}

/// Checks that the answer to a get is the object that was stored at this version.
fn check_got(twin: &Twin, sort: Sort, key: &str, offset: u64, found: Option<Shown>) -> CheckResult {
    let expected = twin.version_at(sort.storage(), key, offset);
    match (found, expected) {
        (None, None) => Ok(()),
        (Some(shown), Some(_)) if sort.is_custom() => check_shown(twin, (&shown.kind, offset), sort, &shown.entry, key),
        // An object of a built-in kind is compared byte by byte, without parsing it.
        (Some(shown), Some(_)) => check_bytes(expected, &shown.entry),
        (found, expected) => Err(format!(
            "it finds {:?} and not {:?}",
            found.map(|shown| shown.entry.offset),
            expected.map(|version| version.offset)
        )),
    }
}

fn check_bytes(expected: Option<&ObjectVersion>, entry: &Entry) -> CheckResult {
    let same =
        expected.is_some_and(|version| version.offset == entry.offset.0 && version.record.object == entry.json());
    ensure(same, || {
        let shown = String::from_utf8_lossy(&entry.json()).into_owned();
        format!("it shows version {}\n  {shown}  in place of {:?}", entry.offset, expected.map(|v| v.offset))
    })
}

/// Checks an object in a list. It must equal the stored object; a custom object is first converted as its definition
/// requires.
fn check_shown(twin: &Twin, (kind, offset): (&Kind, u64), sort: Sort, entry: &Entry, key: &str) -> CheckResult {
    let expected = twin.version_at(sort.storage(), key, offset);
    let blame = |why: String| format!("{sort:?} {key} as of {offset}: {why}");
    check_bytes(expected, entry).map_err(blame)?;
    let (Some(version), true) = (expected, sort.is_custom()) else { return Ok(()) };
    let Some(law) = twin.law(offset) else {
        return Err(blame("its kind is served, and nothing defines it".into()));
    };
    for (at, served) in kind.versions.iter().enumerate() {
        let shown = entry.document_in(kind, at);
        let wanted = custom::shown(law, &version.document, Some(&served.version));
        ensure(shown == wanted, || blame(format!("in {} it is\n  {shown}\n  and not\n  {wanted}", served.version)))?;
    }
    Ok(())
}
