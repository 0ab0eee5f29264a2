//! Runs the scripts in `testdata`. A script contains commands, and the events and refusals that each of them must
//! result in.
//!
//! A script is a list of paragraphs. A paragraph has a command line, the lines of the body (YAML), `----`, and the
//! expected result, up to an empty line. `UPDATE_EXPECT=1 cargo test -p holdfast-core --test scripts` writes the actual
//! results into the scripts; read the diff before you commit it.
//!
//! With `user=`, a command is sent by that user, who has only the permissions of its roles. Without `user=` everything
//! is allowed. With `privileged=no`, containers must not be privileged. UIDs are shown, and may be written, as `<u1>`,
//! `<u2>`. Times are shown as seconds since the beginning of the script.

#[path = "scripts/render.rs"]
mod render;
#[path = "scripts/words.rs"]
mod words;

use holdfast_core::Refusal;
use holdfast_core::apply::apply;
use holdfast_core::authz::chain::Way;
use holdfast_core::authz::{Chain, User};
use holdfast_core::event::{Operation, Record};
use holdfast_core::kinds::{KindId, registry};
use holdfast_core::list::{self, Continue, Selection};
use holdfast_core::namespace::Emptying;
use holdfast_core::pipeline::{self, Answer, Basis, Decision, Representation, Settings};
use holdfast_core::request::{Body, FieldValidation, Format, Options, Request, Target, Verb};
use holdfast_core::stamp::Stamp;
use holdfast_core::state::{Change, Recent, State};
use holdfast_value::Value;
use jiff::Timestamp;
use render::Renderer;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use words::{Line, paragraphs};

/// The time at which every script begins, in seconds since 1970: 2026-11-21 10:00 UTC.
const START_SECOND: i64 = 1_795_255_200;

#[test]
fn scripts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    assert!(files.len() >= 10, "the scripts are gone from {}", folder.display());
    let update = std::env::var_os("UPDATE_EXPECT").is_some();
    let mut wrong = String::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let mut world = World::new();
        let mut out = String::new();
        for paragraph in paragraphs(&text) {
            out.push_str(&paragraph.comment);
            let Some(line) = &paragraph.line else { continue };
            let found = world.run(line, &paragraph.body);
            let body = &paragraph.body;
            let _ = write!(out, "{}\n{body}----\n{found}\n", line.text);
            if found != paragraph.expected {
                let name = file.file_name().unwrap().to_string_lossy();
                let _ = write!(
                    wrong,
                    "\n{name}: {}\n{body}---- expected\n{}---- found\n{found}",
                    line.text, paragraph.expected
                );
            }
        }
        if update {
            std::fs::write(&file, out.trim_end().to_owned() + "\n").unwrap();
        }
    }
    assert!(update || wrong.is_empty(), "{wrong}\nUPDATE_EXPECT=1 accepts what was found");
}

struct World {
    state: State,
    settings: Settings,
    seconds: i64,
    commands: u64,
    /// The state before every event. The later pages of a list are read from such a state.
    past: Vec<State>,
    continue_token: String,
    renderer: Renderer,
    emptying: Emptying,
}

impl World {
    fn new() -> World {
        let settings = Settings {
            service_ranges: "10.0.0.0/29".parse().unwrap(),
            node_ports: (30000, 30003),
            ..Settings::default()
        };
        let mut world = World {
            state: State::new(Arc::new(registry().clone())),
            settings,
            seconds: 0,
            commands: 0,
            past: Vec::new(),
            continue_token: String::new(),
            renderer: Renderer::default(),
            emptying: Emptying::default(),
        };
        let line = Line::parse("create namespaces");
        let created = world.run(&line, "metadata: {name: default}\n");
        assert!(created.starts_with("1 put namespaces default"), "{created}");
        world
    }

    fn run(&mut self, line: &Line, body: &str) -> String {
        self.commands += 1;
        self.seconds += 1;
        match line.verb() {
            "wait" => {
                self.seconds += line.words[1].parse::<i64>().expect("wait SECONDS") - 1;
                String::new()
            }
            "janitor" => self.tidy(line),
            "list" => self.list(line),
            "get" => {
                let request = self.request(line, body);
                match list::get(&self.state, &request) {
                    Ok(entry) => {
                        let (kind, version) = (self.state.kind(request.target.kind), request.target.version);
                        let mut document = entry.document_in(kind, version);
                        let scale = kind
                            .subresource(version, line.option("sub").unwrap_or(""))
                            .and_then(|sub| sub.scale.clone());
                        if let Some(paths) = scale {
                            document = Value::Object(pipeline::scale_of(&paths, &document));
                        }
                        self.renderer.object(line, &document, None)
                    }
                    Err(refusal) => self.renderer.refusal(&refusal),
                }
            }
            _ => {
                let request = self.request(line, body);
                self.judge(line, &request)
            }
        }
    }

    fn stamp(&self) -> Stamp {
        Stamp { time: Timestamp::from_second(START_SECOND + self.seconds).unwrap(), seed: self.commands }
    }

    /// Judges a request and folds its events into the state.
    fn judge(&mut self, line: &Line, request: &Request) -> String {
        let mut settings = self.settings.clone();
        settings.allow_privileged = line.option("privileged") != Some("no");
        let way = if line.option("user").is_some() { Way::Rbac } else { Way::AlwaysAllow };
        let basis = Basis { state: &self.state, settings: &settings, chain: &Arc::new(Chain::new(vec![way])) };
        let decision = match pipeline::decide(basis, request, self.stamp()) {
            Ok(decision) => decision,
            Err(refusal) => return self.renderer.refusal(&refusal),
        };
        let Decision { writes, expects, answer, fixed, warnings, .. } = decision;
        let mut out = String::new();
        for expectation in expects {
            let version = self.state.version_of(expectation.kind, &expectation.key);
            assert_eq!(version, expectation.version, "a decision expects what it saw");
        }
        let seen = self.state.clone();
        for write in writes {
            if request.options.dry_run {
                out += "dry run\n";
                continue;
            }
            assert_eq!(seen.version_of(write.kind, &write.key), write.expect, "a write replaces what it saw");
            let offset = self.state.offset.next();
            let record = Record {
                offset: offset.0,
                time_ms: self.stamp().time.as_millisecond(),
                resource: self.state.kind(write.kind).storage.path.clone(),
                key: write.key.to_string(),
                replaces: self.state.version_of(write.kind, &write.key).map_or(0, |offset| offset.0),
                operation: if write.delete { Operation::Delete } else { Operation::Put } as i32,
                actor: pipeline::actor(request),
                object: write.draft.seal(offset),
            };
            let read = Record::decode_record(&record.encode_record()).unwrap();
            let change = Change::from_record(&self.state.registry, &read).unwrap();
            assert_eq!(change.entry.index, write.index, "replay indexes as the decision did");
            if let Some(document) = write.document {
                assert_eq!(document, Recent::default().document(&change.entry), "what is kept is what is stored");
                self.state.recent.keep(&change.entry, document);
            }
            out += &self.fold(line, change);
        }
        out + &self.answer(line, &answer, fixed, &warnings)
    }

    fn fold(&mut self, line: &Line, change: Change) -> String {
        let before = self.state.get(change.kind, &change.key).cloned();
        self.past.push(self.state.clone());
        apply(&mut self.state, &change);
        let verb = if change.deleted { "delete" } else { "put" };
        let storage = &self.state.kind(change.kind).storage.path;
        let document = change.entry.document();
        let uid = self.renderer.short_uid(&document);
        let mut out = format!("{} {verb} {storage} {} {uid}\n", change.offset, change.key);
        out += &self.renderer.object(line, &document, before.map(|entry| entry.document()).as_ref());
        out
    }

    fn answer(&mut self, line: &Line, answer: &Answer, fixed: bool, warnings: &[String]) -> String {
        let mut out = String::new();
        match answer {
            Answer::Written { created, representation, .. } => {
                let code = if *created { 201 } else { 200 };
                out += &format!("-> {code}{}", shown(*representation));
            }
            Answer::Entry { representation, entry } => {
                out += &format!("-> 200{}, unchanged at {}", shown(*representation), entry.offset);
            }
            Answer::Document { document } => {
                let document = Value::Object(document.clone());
                out += &format!("-> 201 {}", document["kind"].as_str().unwrap_or("?"));
                if line.has("answer") {
                    out += &format!("\n{}", self.renderer.object(line, &document, None).trim_end());
                }
            }
            Answer::Success => out += "-> 201 done",
            Answer::Deleted { subject, uid } => out += &format!("-> deleted {subject} {}", self.renderer.short(uid)),
        }
        out += if fixed { ", version fixed\n" } else { "\n" };
        for warning in warnings {
            out += &format!("warning: {warning}\n");
        }
        out
    }

    /// Plans background work and carries out the steps until there are no more.
    fn tidy(&mut self, line: &Line) -> String {
        let mut out = String::new();
        for _ in 0..10 {
            let plan = self.emptying.plan(&self.state, self.stamp());
            if plan.steps.is_empty() {
                return out + "nothing left to do\n";
            }
            for step in plan.steps {
                self.commands += 1;
                out += &self.judge(line, &step.request);
            }
        }
        out + "never ends\n"
    }

    fn list(&mut self, line: &Line) -> String {
        let mut request = self.request(line, "");
        request.verb = Verb::List;
        if line.has("continue") {
            request.options.continue_token = Some(self.continue_token.clone());
        }
        let selection = match Selection::new(&self.state, &request) {
            Ok(selection) => selection,
            Err(refusal) => return self.renderer.refusal(&refusal),
        };
        let from = match request
            .options
            .continue_token
            .as_deref()
            .map(|token| Continue::open(token, &self.settings.token_key))
            .transpose()
        {
            Ok(from) => from,
            Err(refusal) => return self.renderer.refusal(&refusal),
        };
        // The later pages of a list are read from the state from which the first page was read.
        let state = match &from {
            Some(token) => self.past.iter().find(|state| state.offset.0 == token.version),
            None => None,
        };
        let page = list::page(state.unwrap_or(&self.state), &selection, request.options.limit, from.as_ref());
        let mut out = format!("at {}:", page.offset);
        for entry in &page.entries {
            let document = entry.document();
            let text = |field: &str| document["metadata"][field].as_str().unwrap_or("").to_owned();
            let key = holdfast_core::object::meta::key(Some(&text("namespace")), &text("name"));
            let _ = write!(out, " {key}@{}", entry.offset);
        }
        if page.next.is_some() {
            let remaining = page.remaining.map_or("unknown".to_owned(), |remaining| remaining.to_string());
            let _ = write!(out, " ... remaining {remaining}");
        }
        self.continue_token = page.next.map(|next| next.seal(&self.settings.token_key)).unwrap_or_default();
        out + "\n"
    }

    fn request(&self, line: &Line, body: &str) -> Request {
        let (kind, version) = self.find(line.words.get(1).expect("a resource"));
        let namespaced = self.state.kind(kind).is_namespaced();
        let place = line.place();
        let (namespace, name) = match (place, namespaced) {
            (None, _) => (None, None),
            (Some(name), false) => (None, Some(name)),
            (Some(place), true) => match place.split_once('/') {
                Some((namespace, name)) => (Some(namespace), Some(name)),
                None => (Some(place), None),
            },
        };
        let (verb, format) = match line.verb() {
            "create" => (Verb::Create, Format::Yaml),
            "update" => (Verb::Update, Format::Yaml),
            "merge" => (Verb::Patch, Format::MergePatch),
            "strategic" => (Verb::Patch, Format::StrategicMergePatch),
            "json" => (Verb::Patch, Format::JsonPatch),
            "apply" => (Verb::Patch, Format::ApplyPatch),
            "delete" => (Verb::Delete, Format::Json),
            "get" => (Verb::Get, Format::Json),
            "list" => (Verb::List, Format::Json),
            other => panic!("no such command: {other}"),
        };
        let body = self.renderer.long(body);
        let bytes = match format {
            Format::Yaml | Format::ApplyPatch | Format::Json => body.into_bytes(),
            _ if line.has("raw") => body.into_bytes(),
            _ => serde_yaml_ng::from_str::<Value>(&body).expect("a patch in YAML").to_string().into_bytes(),
        };
        Request {
            user: Arc::new(User::new(line.option("user").unwrap_or("jane"), &[])),
            verb,
            target: Target {
                kind,
                version,
                namespace: namespace.map(str::to_owned),
                name: name.map(str::to_owned),
                subresource: line.option("sub").map(str::to_owned),
            },
            options: self.options(line),
            body: Body { content: bytes.into(), format: if line.has("as-json") { Format::Json } else { format } },
            id: format!("r{}", self.commands),
        }
    }

    fn options(&self, line: &Line) -> Options {
        let owned = |name: &str| line.option(name).map(|value| self.renderer.long(value));
        let mut options = Options {
            dry_run: line.has("dry"),
            field_manager: owned("manager"),
            field_validation: match line.option("validate") {
                Some("strict") => FieldValidation::Strict,
                Some("ignore") => FieldValidation::Ignore,
                _ => FieldValidation::Warn,
            },
            force: line.option("force").map(|force| force == "true"),
            label_selector: owned("labels"),
            field_selector: owned("fields"),
            limit: line.option("limit").map(|limit| limit.parse().expect("limit=NUMBER")),
            ..Options::default()
        };
        options.delete.grace_period_seconds = line.option("grace").map(|grace| grace.parse().expect("grace=NUMBER"));
        options.delete.orphan_dependents = line.option("orphan").map(|orphan| orphan == "true");
        options.delete.propagation_policy = owned("policy");
        options.delete.precondition_uid = owned("uid");
        options.delete.precondition_resource_version = owned("rv");
        options
    }

    /// Finds a kind and its version by a name such as `deployments` or `deployments.v1beta1.extensions`.
    fn find(&self, resource: &str) -> (KindId, usize) {
        let mut parts = resource.splitn(3, '.');
        let plural = parts.next().unwrap_or("");
        match (parts.next(), parts.next()) {
            (Some(version), group) => {
                let found = self.state.registry.find(group.unwrap_or(""), version, plural);
                found.unwrap_or_else(|| panic!("no such resource: {resource}"))
            }
            _ => {
                let found = self.state.registry.iter().find(|(_, kind)| kind.resource == plural);
                (found.unwrap_or_else(|| panic!("no such resource: {resource}")).0, 0)
            }
        }
    }
}

fn shown(representation: Representation) -> &'static str {
    if representation == Representation::Scale { " Scale" } else { "" }
}

/// Different refusals must have different texts, so that a script can tell them apart.
#[test]
fn refusals_are_told_apart() {
    let renderer = Renderer::default();
    let texts = [
        renderer.refusal(&Refusal::Unauthorized),
        renderer.refusal(&Refusal::NoSuchPath),
        renderer.refusal(&Refusal::BadRequest(holdfast_core::refusal::BadRequest::Undecodable("why".into()))),
    ];
    assert_eq!(texts, ["Unauthorized\n", "NoSuchPath\n", "BadRequest: why\n"]);
}
