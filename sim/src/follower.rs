//! A simulated watcher: lists or starts anew, follows at its own pace, resumes after cuts, and notices any gap.

use crate::oracle::Verdict;
use crate::random::Dice;
use crate::shape::{SORTS, Sort};
use crate::twin::Twin;
use crate::workload::{NAMESPACES, NODES, VALUES};
use holdfast_core::event::Offset;
use holdfast_core::list::{Selection, page};
use holdfast_core::request::{Body, Options, Request, Target, Verb};
use holdfast_core::state::State;
use holdfast_engine::{Delivery, Engine, Watch, WatchStart};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

const PHASES: [&str; 3] = ["Pending", "Running", "Succeeded"];

/// What a watcher or a lister looks at, in words of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pick {
    All,
    In(&'static str),
    One(&'static str, &'static str),
    Label(&'static str),
    NotLabel(&'static str),
    AnyOf(&'static str, &'static str),
    Node(&'static str),
    Phase(&'static str),
}

impl Pick {
    pub fn draw(dice: &mut Dice, sort: Sort) -> Pick {
        let namespace = dice.pick(&NAMESPACES);
        let value = dice.pick(&VALUES);
        match dice.below(9) {
            0 | 1 if sort != Sort::Namespace => Pick::In(namespace),
            2 if sort != Sort::Namespace => Pick::One(namespace, dice.pick(&["a", "b"])),
            3 | 4 => Pick::Label(value),
            5 => Pick::NotLabel(value),
            6 => Pick::AnyOf(value, dice.pick(&VALUES)),
            7 if sort == Sort::Pod => Pick::Node(dice.pick(&NODES)),
            8 if sort == Sort::Pod => Pick::Phase(dice.pick(&PHASES)),
            _ => Pick::All,
        }
    }

    pub fn selection(&self, sort: Sort, state: &State) -> Selection {
        let (group, version, resource) = sort.path();
        let (kind, version) =
            state.registry.find(group, version, resource).unwrap_or_else(|| panic!("{resource} is built in"));
        let mut options = Options::default();
        let mut namespace = None;
        match self {
            Pick::All => {}
            Pick::In(name) => namespace = Some((*name).to_owned()),
            Pick::One(place, name) => {
                namespace = Some((*place).to_owned());
                options.field_selector = Some(format!("metadata.name={name}"));
            }
            Pick::Label(value) => options.label_selector = Some(format!("app={value}")),
            Pick::NotLabel(value) => options.label_selector = Some(format!("app!={value}")),
            Pick::AnyOf(one, other) => options.label_selector = Some(format!("app in ({one},{other})")),
            Pick::Node(node) => options.field_selector = Some(format!("spec.nodeName={node}")),
            Pick::Phase(phase) => options.field_selector = Some(format!("status.phase={phase}")),
        }
        let request = Request {
            user: Arc::default(),
            verb: Verb::Watch,
            target: Target { kind, version, namespace, name: None, subresource: None },
            options,
            body: Body::default(),
            id: String::new(),
        };
        Selection::new(state, &request).unwrap_or_else(|refusal| panic!("{self:?} is a good selection: {refusal:?}"))
    }

    /// The naive meaning of the pick.
    pub fn matches(&self, key: &str, object: &Value) -> bool {
        let label = object["metadata"]["labels"]["app"].as_str();
        match self {
            Pick::All => true,
            Pick::In(namespace) => key.split_once('/').is_some_and(|(found, _)| found == *namespace),
            Pick::One(namespace, name) => key == format!("{namespace}/{name}"),
            Pick::Label(value) => label == Some(value),
            Pick::NotLabel(value) => label != Some(value),
            Pick::AnyOf(one, other) => label == Some(one) || label == Some(other),
            Pick::Node(node) => object["spec"]["nodeName"] == **node,
            Pick::Phase(phase) => object["status"]["phase"] == **phase,
        }
    }
}

/// Keys and versions of what is picked, as the twin has them.
pub fn picked(twin: &Twin, sort: Sort, pick: &Pick, offset: u64) -> BTreeMap<String, u64> {
    let here = twin.at(offset).into_iter().filter(|((storage, _), _)| storage == sort.storage());
    here.filter_map(|((_, key), record)| {
        let object: Value = serde_json::from_slice(&record.object).ok()?;
        pick.matches(&key, &object).then_some((key, record.offset))
    })
    .collect()
}

pub struct Follower {
    pub sort: Sort,
    pub pick: Pick,
    watch: Option<Watch>,
    /// First objects that have not been told to be all of them; `None`: they are complete.
    initial: Option<BTreeMap<String, u64>>,
    /// Everything up to this event was seen, or was none of this watcher's business.
    position: u64,
    /// What the watcher believes to be there.
    held: BTreeMap<String, u64>,
}

impl Follower {
    pub fn draw(dice: &mut Dice, engine: &Arc<Engine>) -> Follower {
        let sort = dice.pick(&SORTS);
        let pick = Pick::draw(dice, sort);
        let mut follower = Follower { sort, pick, watch: None, initial: None, position: 0, held: BTreeMap::new() };
        follower.start(dice.chance(40), engine);
        follower
    }

    /// Lists and then watches, or lets the watch itself tell what is there.
    fn start(&mut self, now: bool, engine: &Arc<Engine>) {
        let snapshot = engine.snapshot();
        let selection = self.pick.selection(self.sort, &snapshot);
        self.held.clear();
        self.initial = now.then(BTreeMap::new);
        self.position = snapshot.offset.0;
        let start = if now { WatchStart::Now } else { WatchStart::After(snapshot.offset) };
        if !now {
            for entry in page(&snapshot, &selection, None, None).entries {
                self.held.insert(key_of(&entry.document()), entry.offset.0);
            }
        }
        self.watch = Some(engine.watch(selection, start));
    }

    /// The connection breaks.
    pub fn cut(&mut self) {
        self.watch = None;
    }

    /// Goes on from the last version that it knows.
    pub fn resume(&mut self, engine: &Arc<Engine>) {
        if self.initial.is_some() {
            return self.start(true, engine);
        }
        let selection = self.pick.selection(self.sort, &engine.snapshot());
        self.watch = Some(engine.watch(selection, WatchStart::After(Offset(self.position))));
    }

    pub fn is_cut(&self) -> bool {
        self.watch.is_none()
    }

    /// Reads up to `count` events. True when there was nothing left to read.
    pub fn read(&mut self, twin: &Twin, count: usize) -> Result<bool, String> {
        for _ in 0..count {
            let Some(watch) = &mut self.watch else { return Ok(true) };
            if self.initial.is_some()
                && let Some(end) = watch.initial_events_ended()
            {
                self.begin(twin, end.0)?;
                continue;
            }
            let delivery = watch.next_ready().map_err(|fault| fault.to_string())?;
            if let Some(delivery) = &delivery {
                self.take(twin, delivery).map_err(|why| self.blame(&why))?;
            }
            if delivery.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The first events are all there: they are what was there.
    fn begin(&mut self, twin: &Twin, end: u64) -> Verdict {
        let found = self.initial.take().unwrap_or_default();
        let expected = picked(twin, self.sort, &self.pick, end);
        if found != expected {
            return Err(self.blame(&format!("the first events tell of {found:?} and not {expected:?} at {end}")));
        }
        self.held = found;
        self.position = end;
        Ok(())
    }

    fn take(&mut self, twin: &Twin, delivery: &Delivery) -> Verdict {
        let change = &delivery.event.change;
        let shown = delivery.event.shown(delivery.change_type).document();
        let what = delivery.change_type.as_str();
        let offset = change.offset.0;
        if let Some(initial) = &mut self.initial {
            if what != "ADDED" || initial.insert(change.key.to_string(), offset).is_some() {
                return Err(format!("{what} {} at {offset} among the first events", change.key));
            }
            return Ok(());
        }
        let expected = self.expected(twin, offset);
        let [(at, kind, key, object)] = expected.as_slice() else {
            let list: Vec<_> = expected.iter().map(|(at, kind, key, _)| format!("{at} {kind} {key}")).collect();
            return Err(format!("{what} {} at {offset}, where {list:?} should come", change.key));
        };
        if (*at, *kind, key.as_str()) != (offset, what, &*change.key) {
            return Err(format!("{what} {} at {offset} in place of {kind} {key} at {at}", change.key));
        }
        if shown != *object {
            return Err(format!("{what} {key} at {at} shows\n  {shown}\n  in place of\n  {object}"));
        }
        match what {
            "DELETED" => drop(self.held.remove(key)),
            _ => drop(self.held.insert(key.clone(), offset)),
        }
        self.position = offset;
        Ok(())
    }

    /// What a watcher at its position should be told until `to`: offset, type, key and object.
    fn expected(&self, twin: &Twin, to: u64) -> Vec<(u64, &'static str, String, Value)> {
        let mut events = Vec::new();
        for offset in self.position + 1..=to {
            let Some(record) = twin.record(offset).filter(|record| record.resource == self.sort.storage()) else {
                continue;
            };
            let object: Value = serde_json::from_slice(&record.object).unwrap_or(Value::Null);
            let before = twin.version_at(&(record.resource.clone(), record.key.clone()), offset - 1);
            let was = before.is_some_and(|before| self.pick.matches(&record.key, &before.document));
            let is = !record.is_delete() && self.pick.matches(&record.key, &object);
            let (kind, shown) = match (was, is, before) {
                (false, false, _) => continue,
                (false, true, _) => ("ADDED", object),
                (true, true, _) => ("MODIFIED", object),
                (true, false, Some(before)) if !record.is_delete() => {
                    // It left the selection: its last state there, at the version of the event.
                    let mut last = before.document.clone();
                    last["metadata"]["resourceVersion"] = offset.to_string().into();
                    ("DELETED", last)
                }
                (true, false, _) => ("DELETED", object),
            };
            events.push((offset, kind, record.key.clone(), shown));
        }
        events
    }

    /// Asks for a bookmark, which must not claim more than was seen.
    pub fn bookmark(&mut self, twin: &Twin) -> Verdict {
        if self.initial.is_some() {
            return Ok(());
        }
        let Some(watch) = &mut self.watch else { return Ok(()) };
        let Some(bookmark) = watch.bookmark().map_err(|fault| fault.to_string())? else { return Ok(()) };
        let missing = self.expected(twin, bookmark.0);
        if bookmark.0 < self.position || !missing.is_empty() {
            return Err(self.blame(&format!("bookmark {bookmark} passes over {missing:?}")));
        }
        self.position = bookmark.0;
        Ok(())
    }

    /// Everything has been read: what the watcher believes is what is there.
    pub fn check(&self, twin: &Twin, published: u64) -> Verdict {
        if self.watch.is_none() || self.initial.is_some() {
            return Ok(());
        }
        let missing = self.expected(twin, published);
        if !missing.is_empty() {
            return Err(self.blame(&format!("it was never told of {missing:?}")));
        }
        let expected = picked(twin, self.sort, &self.pick, published);
        if self.held != expected {
            return Err(self.blame(&format!("it believes in {:?} and not {expected:?}", self.held)));
        }
        Ok(())
    }

    fn blame(&self, why: &str) -> String {
        format!("a watcher of {:?} {:?} at {}: {why}", self.sort, self.pick, self.position)
    }
}

pub fn key_of(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str();
    holdfast_core::object::meta::key(text("namespace"), text("name").unwrap_or(""))
}
