//! A cluster in memory, to which tests send requests by path. At the end of a test, every event is replayed and undone.

use holdfast_core::apply::apply;
use holdfast_core::authz::{Chain, User};
use holdfast_core::event::{Operation, Record};
use holdfast_core::kinds::custom::Conversion;
use holdfast_core::kinds::registry;
use holdfast_core::list::{self, Selection};
use holdfast_core::object::Packer;
use holdfast_core::pipeline::{
    Answer, Answers, Basis, Clearing, Decision, Effect, Judgement, Representation, Settings, actor, judge, scale_of,
};
use holdfast_core::refusal::Refusal;
use holdfast_core::request::{Body, FieldValidation, Format, Options, Request, Target, Verb};
use holdfast_core::stamp::Stamp;
use holdfast_core::state::{Change, Entry, State};
use holdfast_value::{Value, json};
use std::fmt::Write as _;
use std::sync::Arc;

/// The time at which every test begins, in seconds since 1970: 2026-11-21 10:00 UTC.
const START_SECOND: i64 = 1_795_255_200;
pub const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub const OLD_DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1beta1/customresourcedefinitions";

#[derive(Clone)]
pub struct World {
    pub state: State,
    pub settings: Settings,
    /// The authorizers that judge the requests.
    pub chain: Arc<Chain>,
    /// The user who sends the requests.
    pub user: Arc<User>,
    seconds: i64,
    /// The warnings that the last request got.
    pub warnings: Vec<String>,
    /// The number of events that the last request added to the log.
    pub events: usize,
    /// Makes the answer of every conversion webhook.
    pub webhook: fn(&Conversion) -> Value,
    /// Every event so far, with the state before it.
    log: Vec<(Record, State)>,
    first: State,
}

impl World {
    pub fn new() -> World {
        let state = State::new(Arc::new(registry().clone()));
        let mut world = World {
            first: state.clone(),
            state,
            settings: Settings::default(),
            chain: Chain::always_allow().clone(),
            user: Arc::new(User::new("jane", &["system:authenticated"])),
            seconds: 0,
            warnings: Vec::new(),
            events: 0,
            webhook: |conversion| panic!("nothing is converted by webhook here: {conversion:?}"),
            log: Vec::new(),
        };
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
        world.create("/api/v1/namespaces", &namespace).expect("a namespace");
        world
    }

    /// Resolves a path as a transport does; `None` if nothing is served at the path.
    pub fn target(&self, path: &str) -> Option<Target> {
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let (group, rest) = if parts[0] == "api" { ("", &parts[1..]) } else { (parts[1], &parts[2..]) };
        let (namespace, rest) = match rest {
            [version, "namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), (*version, rest)),
            [version, rest @ ..] => (None, (*version, rest)),
            [] => panic!("no path: {path}"),
        };
        let (version, rest) = rest;
        let (kind, version) = self.state.registry.find(group, version, rest[0])?;
        let subresource = rest.get(2).map(|name| (*name).to_owned());
        if let Some(name) = &subresource {
            self.state.kind(kind).subresource(version, name)?;
        }
        let name = rest.get(1).map(|name| (*name).to_owned());
        Some(Target { kind, version, namespace: namespace.map(str::to_owned), name, subresource })
    }

    pub fn request(&self, verb: Verb, path: &str, format: Format, body: Vec<u8>) -> Result<Request, Refusal> {
        let target = self.target(path).ok_or(Refusal::NoSuchPath)?;
        Ok(Request {
            user: self.user.clone(),
            verb,
            target,
            options: Options {
                field_manager: Some("test".into()),
                field_validation: FieldValidation::Warn,
                ..Options::default()
            },
            body: Body { content: body.into(), format },
            id: format!("r{}", self.log.len()),
        })
    }

    pub fn create(&mut self, path: &str, body: &Value) -> Result<Value, Refusal> {
        self.send(Verb::Create, path, Format::Json, body.to_string().into_bytes())
    }

    pub fn update(&mut self, path: &str, body: &Value) -> Result<Value, Refusal> {
        self.send(Verb::Update, path, Format::Json, body.to_string().into_bytes())
    }

    pub fn merge(&mut self, path: &str, body: &Value) -> Result<Value, Refusal> {
        self.send(Verb::Patch, path, Format::MergePatch, body.to_string().into_bytes())
    }

    pub fn delete(&mut self, path: &str) -> Result<(), Refusal> {
        self.send(Verb::Delete, path, Format::Json, Vec::new()).map(drop)
    }

    pub fn apply(&mut self, path: &str, body: &Value, manager: &str) -> Result<Value, Refusal> {
        let mut request = self.request(Verb::Patch, path, Format::ApplyPatch, body.to_string().into_bytes())?;
        request.options.field_manager = Some(manager.into());
        self.submit(&request)
    }

    pub fn send(&mut self, verb: Verb, path: &str, format: Format, body: Vec<u8>) -> Result<Value, Refusal> {
        let request = self.request(verb, path, format, body)?;
        self.submit(&request)
    }

    pub fn get(&self, path: &str) -> Result<Value, Refusal> {
        let request = self.request(Verb::Get, path, Format::Json, Vec::new())?;
        Ok(self.shown(&request, list::get(&self.state, &request)?))
    }

    /// Lists the objects at a path that match a field selector, and returns their names.
    pub fn list(&self, path: &str, fields: &str) -> Result<Vec<String>, Refusal> {
        let mut request = self.request(Verb::List, path, Format::Json, Vec::new())?;
        request.options.field_selector = Some(fields.into());
        let page = list::page(&self.state, &Selection::new(&self.state, &request)?, None, None);
        let name = |entry: &Arc<Entry>| entry.document()["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        Ok(page.entries.iter().map(name).collect())
    }

    /// The stored object, in the version that the path of the request names.
    fn shown(&self, request: &Request, entry: &Entry) -> Value {
        let (kind, version) = (self.state.kind(request.target.kind), request.target.version);
        if let Some(conversion) = entry.awaits(kind, version) {
            let converted = (self.webhook)(&conversion);
            entry.keep(kind, version, converted.as_object().expect("a converted object"));
        }
        let document = entry.document_in(kind, version);
        let scale =
            request.target.subresource.as_deref().and_then(|name| kind.subresource(version, name)?.scale.clone());
        match scale {
            Some(paths) => Value::Object(scale_of(&paths, &document)),
            None => document,
        }
    }

    fn stamp(&self) -> Stamp {
        let time = jiff::Timestamp::from_second(START_SECOND + self.seconds).expect("within range");
        Stamp { time, seed: self.seconds.unsigned_abs() }
    }

    /// Judges a request, answers the webhooks that it needs, and folds its events into the state.
    pub fn submit(&mut self, request: &Request) -> Result<Value, Refusal> {
        self.seconds += 1;
        let mut answers = Answers::default();
        let decision = loop {
            let basis = Basis { state: &self.state, settings: &self.settings, chain: &self.chain };
            match judge(basis, request, self.stamp(), &answers) {
                Judgement::Need(Effect::Convert(conversion)) => {
                    let converted = (self.webhook)(&conversion);
                    answers.converted(*conversion, Ok(converted.as_object().expect("a converted object").clone()));
                }
                Judgement::Need(effect) => panic!("this test cannot {}", effect.what()),
                Judgement::Done(decided, _) => break decided?,
            }
        };
        let Decision { writes, expects, answer, warnings, .. } = decision;
        self.warnings = warnings.into_vec();
        self.events = writes.len();
        for expected in expects {
            assert_eq!(self.state.version_of(expected.kind, &expected.key), expected.version);
        }
        let mut entries = Vec::new();
        let seen = self.state.clone();
        for write in writes {
            assert_eq!(seen.version_of(write.kind, &write.key), write.expect, "a write replaces what it saw");
            let offset = self.state.offset.next();
            let record = Record {
                offset: offset.0,
                time_ms: self.stamp().time.as_millisecond(),
                resource: self.state.kind(write.kind).storage.path.clone(),
                key: write.key.to_string(),
                replaces: self.state.version_of(write.kind, &write.key).map_or(0, |offset| offset.0),
                operation: if write.delete { Operation::Delete } else { Operation::Put } as i32,
                actor: actor(request),
                object: write.draft.seal(offset),
            };
            let record = Record::decode_record(&record.encode_record()).expect("a record reads back");
            let change = Change::from_record(&self.state.registry, &record).expect("a known kind");
            assert_eq!(change.entry.index, write.index, "replay indexes as the decision did");
            entries.push(change.entry.clone());
            self.log.push((record, self.state.clone()));
            apply(&mut self.state, &change);
        }
        Ok(match answer {
            Answer::Written { index, representation, .. } => self.answered(request, &entries[index], representation),
            Answer::Entry { entry, representation, .. } => self.answered(request, &entry, representation),
            Answer::Document { document, .. } => Value::Object(document),
            Answer::Success | Answer::Deleted { .. } => Value::Null,
        })
    }

    fn answered(&self, request: &Request, entry: &Entry, representation: Representation) -> Value {
        // A written definition replaces its kind in the registry, so the target of the request no longer exists there.
        let document = self.shown(request, entry);
        let is_shown = representation == Representation::Object || document["kind"] == "Scale";
        assert!(is_shown, "a scale is shown as one: {document}");
        document
    }

    /// Carries out the background work for definitions until no work is left.
    pub fn settle(&mut self) {
        for _ in 0..20 {
            let steps = Clearing::default().plan(&self.state, self.stamp()).steps;
            if steps.is_empty() {
                return;
            }
            let before = self.state.offset;
            for step in steps {
                // A step may conflict with an earlier step of the same plan. The next plan then repeats the step.
                let _ = self.submit(&step.request);
            }
            if self.state.offset == before {
                return;
            }
        }
        panic!("definitions are never settled");
    }

    /// Folds all events into a new state, in which nothing is cached.
    pub fn empty_caches(&mut self) {
        let mut state = State::new(Arc::new(registry().clone()));
        for (record, _) in &self.log {
            let change = Change::from_record(&state.registry, record).expect("a known kind");
            apply(&mut state, &change);
        }
        self.state = state;
    }

    /// Computes everything about the objects that can be cached, so that the caches are full.
    pub fn fill_caches(&mut self) {
        for (id, kind) in self.state.registry.iter() {
            let mut packer = Packer::default();
            for (_, entry) in self.state.scan(id, "", None) {
                self.state.recent.keep(entry, entry.document());
                (0..kind.versions.len()).for_each(|version| drop(entry.json_in(kind, version)));
                // The first object of a kind becomes the model against which the following ones are packed.
                packer.pack(entry.body());
            }
        }
    }

    /// All events so far, and the observable content of the state that results from them.
    pub fn outcome(&self) -> (Vec<Vec<u8>>, String) {
        (self.log.iter().map(|(record, _)| record.encode_record()).collect(), fingerprint(&self.state))
    }

    /// Checks that replaying the log gives this state, and that undoing each event gives the state before it.
    pub fn check_history(&self) {
        let mut replayed = self.first.clone();
        for (record, before) in &self.log {
            assert_same(&replayed, before, &format!("replay before event {}", record.offset));
            let change = Change::from_record(&replayed.registry, record).expect("a known kind");
            apply(&mut replayed, &change);
        }
        assert_same(&replayed, &self.state, "replay");
    }
}

fn assert_same(state: &State, other: &State, when: &str) {
    let (state, other) = (fingerprint(state), fingerprint(other));
    if state != other {
        let lines = state.lines().zip(other.lines()).find(|(one, other)| one != other);
        panic!("{when}: {lines:?}, of {} and {} lines", state.lines().count(), other.lines().count());
    }
}

/// What can be observed about a state, as text. The numbers of kinds are left out, because they may differ.
fn fingerprint(state: &State) -> String {
    let mut out = format!("{} {:?}\n", state.offset, state.definitions.unsettled);
    let mut kinds: Vec<_> =
        state.registry.iter().filter(|(id, _)| state.count(*id) > 0 || is_custom(state, *id)).collect();
    kinds.sort_by_key(|(_, kind)| kind.storage.path.clone());
    for (id, kind) in kinds {
        let fields: Vec<&str> = kind.selectors.fields.iter().map(|field| field.field.as_str()).collect();
        let versions: Vec<String> = kind.versions.iter().map(|version| version.api_version()).collect();
        // The offset `since` may be higher than necessary: then readers only check once more than needed, so it is left
        // out.
        let custom = kind.custom.as_ref().map(|custom| (custom.identity(), custom.webhook.clone()));
        let _ = writeln!(
            out,
            "{} {} {} {:?} {:?} {versions:?} {fields:?} {custom:?}",
            kind.storage.path, kind.kind, kind.resource, kind.short_names, kind.categories
        );
        for (key, entry) in state.scan(id, "", None) {
            let _ = writeln!(out, "{key} {} {:?} {}", entry.offset, entry.index, entry.size());
            for claim in entry.index.claims.iter() {
                let _ = writeln!(out, "{claim} {:?}", state.claimant(claim));
            }
        }
    }
    for group in state.registry.groups() {
        let _ = writeln!(out, "{} {:?}", group.group, group.versions);
    }
    out
}

fn is_custom(state: &State, id: holdfast_core::kinds::KindId) -> bool {
    state.kind(id).custom.is_some()
}

/// The text by which a refusal is compared: `field: message` of each cause, or the message if there are no causes.
pub fn words(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Invalid { .. } | Refusal::ApplyConflict(_) | Refusal::Forbidden { .. } => {
            refusal.causes().iter().map(|cause| format!("{cause}\n")).collect()
        }
        Refusal::BadRequest(why) => why.to_string(),
        other => format!("{other:?}"),
    }
}

/// The status, reason and message of a definition's condition.
pub fn condition(definition: &Value, name: &str) -> Option<(String, String, String)> {
    let conditions = definition["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|condition| condition["type"] == name)?;
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("reason"), text("message")))
}
