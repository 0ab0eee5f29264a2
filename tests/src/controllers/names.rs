//! Replaces values that a server is free to choose by placeholders, and removes irrelevant parts of objects.

use super::cluster::{Cluster, ObjectPath, SeenChange, name_of, place};
use super::life::changes;
use super::path::sorted;
use super::reduce::reduce;
use super::resources::ResourceInfo;
use super::{Scenario, text};
use regex::Regex;
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

static TIME: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| ?[+-]\d\d:?\d\d( UTC)?)?"));
static LONG_TIME: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z]{2} \d{4} [\d:]+ [+-]\d{4}"));
static UUID: LazyLock<Regex> =
    LazyLock::new(|| pattern("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
static DOTTED: LazyLock<Regex> = LazyLock::new(|| pattern(r"[0-9.]+"));
static IP: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\d{1,3}(?:\.\d{1,3}){3}$"));
static POD: LazyLock<Regex> = LazyLock::new(|| pattern(r#"pods "([^"]*-)[bcdfghjklmnpqrstvwxz2456789]{5}""#));
static ACCESS: LazyLock<Regex> = LazyLock::new(|| pattern(r"kube-api-access-[a-z0-9]{5}\b"));
static SCHEDULED: LazyLock<Regex> = LazyLock::new(|| pattern(r"^(.*)-(\d{7,})$"));

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a pattern")
}

/// A pattern that matches any of the words, longer ones first; `None` if there are none.
fn any_of<'w>(words: impl Iterator<Item = &'w String>) -> Option<Regex> {
    let mut words: Vec<&String> = words.filter(|word| !word.is_empty()).collect();
    words.sort_by(|one, other| other.len().cmp(&one.len()).then(one.cmp(other)));
    let escaped: Vec<String> = words.into_iter().map(|word| regex::escape(word)).collect();
    (!escaped.is_empty()).then(|| pattern(&escaped.join("|")))
}

/// Components that write Events and are not controllers.
const NOT_CONTROLLERS: &[&str] = &["kubelet", "default-scheduler", "kubemark", "kube-proxy", "hollow"];

/// The path and kind of an object.
type ObjectIdentity = (ObjectPath, String);

pub struct Names<'a> {
    scenario: &'a Scenario,
    /// The text of the steps, in which values are not replaced.
    literals: String,
    history: Vec<SeenChange>,
    objects: BTreeMap<ObjectIdentity, Arc<Value>>,
    uids: HashMap<String, (String, String)>,
    /// For each generated name, the prefix from which it was generated.
    generated: BTreeMap<String, String>,
    known: BTreeMap<String, String>,
    index: HashMap<String, String>,
    known_pattern: Option<Regex>,
    names: BTreeMap<String, String>,
    names_pattern: Option<Regex>,
    /// Addresses by their first appearance; they are numbered only after all objects have their names.
    addresses: RefCell<Option<HashMap<String, String>>>,
}

impl<'a> Names<'a> {
    pub fn new(
        scenario: &'a Scenario,
        namespace: &str,
        cluster: &Cluster,
        history: Vec<SeenChange>,
        objects: BTreeMap<ObjectIdentity, Arc<Value>>,
    ) -> Names<'a> {
        let mut names = Names {
            scenario,
            literals: Value::from(scenario.steps.clone()).to_string(),
            history,
            objects,
            uids: HashMap::new(),
            generated: BTreeMap::new(),
            known: BTreeMap::new(),
            index: HashMap::new(),
            known_pattern: None,
            names: BTreeMap::new(),
            names_pattern: None,
            addresses: RefCell::new(None),
        };
        names.learn();
        names.known.insert(namespace.to_owned(), "<ns>".into());
        for node in cluster.real_nodes() {
            if !name_of(&node).contains(namespace) {
                names.known.insert(name_of(&node).to_owned(), "<node>".into());
            }
        }
        names.compile();
        names
    }

    /// Collects names, hashes and UIDs, in the order in which the objects were first seen.
    fn learn(&mut self) {
        let mut first: Vec<(String, Arc<Value>)> = Vec::new();
        let mut met: HashMap<(String, ObjectPath), ()> = HashMap::new();
        for seen in &self.history {
            let kind = seen.resource.kind.to_owned();
            self.uids.insert(text(&seen.object["metadata"]["uid"]), (kind.clone(), name_of(&seen.object).to_owned()));
            if met.insert((kind.clone(), seen.place.clone()), ()).is_none() {
                first.push((kind, seen.object.clone()));
            }
        }
        for ((at, kind), object) in &self.objects {
            self.uids.insert(text(&object["metadata"]["uid"]), (kind.clone(), at.1.clone()));
            if met.insert((kind.clone(), at.clone()), ()).is_none() {
                first.push((kind.clone(), object.clone()));
            }
        }
        let (mut hashes, mut minutes) = (0, 0);
        let known = &mut self.known;
        let mut note = |hash: &str, count: &mut usize, word: &str| {
            if !known.contains_key(hash) {
                *count += 1;
                known.insert(hash.to_owned(), format!("<{word}{count}>"));
            }
        };
        for (kind, object) in first {
            let (meta, name) = (&object["metadata"], name_of(&object));
            let revision = kind == "ControllerRevision";
            for label in ["pod-template-hash", "controller.kubernetes.io/hash", "controller-revision-hash"] {
                let hash = meta["labels"][label].as_str().unwrap_or_default();
                if hash.len() > 4 && (revision || label != "controller-revision-hash") {
                    note(hash, &mut hashes, "hash");
                }
            }
            if revision {
                note(name.rsplit('-').next().unwrap_or_default(), &mut hashes, "hash");
            }
            if let Some(found) = (kind == "Job").then(|| SCHEDULED.captures(name)).flatten() {
                note(&found[2], &mut minutes, "minute");
            }
            let prefix = meta["generateName"].as_str().unwrap_or_default();
            let shortened: String = prefix.chars().take(58).collect();
            if !prefix.is_empty() && name.starts_with(&shortened) {
                let rest = name.get(prefix.len()..).unwrap_or_default();
                // The ordinals of a StatefulSet's pods are kept.
                if rest.is_empty() || rest.len() > 3 || !rest.bytes().all(|byte| byte.is_ascii_digit()) {
                    self.generated.insert(name.to_owned(), prefix.to_owned());
                }
            }
        }
    }

    fn compile(&mut self) {
        self.known_pattern = any_of(self.known.keys());
        let star = "*".to_owned();
        let named = |(name, prefix): (&String, &String)| {
            let base = self.replaced(prefix);
            (name.clone(), base + self.index.get(name).unwrap_or(&star))
        };
        self.names = self.generated.iter().map(named).collect();
        self.names_pattern = any_of(self.names.keys());
    }

    /// Replaces known values in a text.
    fn replaced(&self, text: &str) -> String {
        replace(&self.known_pattern, text, &self.known)
    }

    fn text(&self, text: &str) -> String {
        let text = replace(&self.names_pattern, text, &self.names);
        let text = POD.replace_all(&text, "pods \"$1*\"");
        let text = TIME.replace_all(&text, "<time>");
        let text = UUID.replace_all(&text, |found: &regex::Captures<'_>| self.uid(&found[0]));
        let text = self.replaced(&text);
        let text = ACCESS.replace_all(&text, "kube-api-access-<rand>");
        let text = LONG_TIME.replace_all(&text, "<time>");
        if text.starts_with("-----BEGIN CERT") || text.starts_with("LS0tLS1CRUdJTiBDRVJU") {
            return "<certificate>".into();
        }
        if text.starts_with("ZXlKa") && text.len() > 200 {
            return "<token>".into();
        }
        DOTTED.replace_all(&text, |found: &regex::Captures<'_>| self.address(&found[0])).into_owned()
    }

    fn uid(&self, uid: &str) -> String {
        match self.uids.get(uid) {
            Some((kind, name)) => {
                let name = replace(&self.names_pattern, name, &self.names);
                format!("<uid:{kind}/{}>", self.replaced(&name))
            }
            None if self.literals.contains(uid) => uid.to_owned(),
            None => "<uid>".into(),
        }
    }

    fn address(&self, found: &str) -> String {
        let own = ["10.9.0.", "0.", "127."].iter().any(|start| found.starts_with(start));
        if !IP.is_match(found) || own || self.literals.contains(found) {
            return found.to_owned();
        }
        match self.addresses.borrow_mut().as_mut() {
            None => "<ip>".into(),
            Some(known) => {
                let next = known.len() + 1;
                known.entry(found.to_owned()).or_insert_with(|| format!("<ip{next}>")).clone()
            }
        }
    }

    fn walk(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.text(text).into(),
            Value::Array(items) => items.iter().map(|item| self.walk(item)).collect(),
            Value::Object(fields) => {
                let mut names: Vec<&String> = fields.keys().collect();
                names.sort();
                names.into_iter().map(|name| (self.text(name), self.walk(&fields[name]))).collect::<Map<_, _>>().into()
            }
            scalar => scalar.clone(),
        }
    }

    /// The results of the scenario: objects, Events, sequence and lives.
    pub fn result(mut self, events: &[Arc<Value>]) -> Value {
        let reduced = self.reduced();
        let mut groups: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
        for ((at, _), object) in &reduced {
            if let Some(prefix) = self.generated.get(&at.1) {
                groups.entry(self.text(prefix)).or_default().push((sorted(&self.walk(object)), at.1.clone()));
            }
        }
        let (events, lives, sequence) = (self.events(events), self.lives(), self.sequence());
        for mut members in groups.into_values() {
            members.sort();
            for (number, (_, name)) in members.into_iter().enumerate() {
                self.index.insert(name, format!("<{}>", number + 1));
            }
        }
        for name in self.generated.keys() {
            self.index.entry(name.clone()).or_insert_with(|| "<gone>".into());
        }
        self.compile();
        let mut objects: Vec<(String, String, Value)> = self
            .reduced()
            .into_iter()
            .map(|((at, _), object)| (text(&object["kind"]), self.text(&at.1), object))
            .collect();
        objects.sort_by(|one, other| (&one.0, &one.1).cmp(&(&other.0, &other.1)));
        self.addresses = RefCell::new(Some(HashMap::new()));
        let objects: Vec<Value> = objects.iter().map(|(_, _, object)| self.walk(object)).collect();
        json!({"objects": objects, "events": events, "sequence": sequence, "lives": lives})
    }

    fn events(&self, events: &[Arc<Value>]) -> Vec<Value> {
        let mut counts: BTreeMap<[String; 6], i64> = BTreeMap::new();
        for event in events {
            let reporter = text(&event["reportingComponent"]);
            let component = if reporter.is_empty() { text(&event["source"]["component"]) } else { reporter };
            if NOT_CONTROLLERS.iter().any(|other| component.starts_with(other)) {
                continue;
            }
            let involved = &event["involvedObject"];
            let name = self.text(&text(&involved["name"]));
            let message = self.text(&text(&event["message"])).replace("(combined from similar events): ", "");
            // The message may contain names of pods that were never created.
            let made = pattern(&format!(r"({}-)[bcdfghjklmnpqrstvwxz2456789]{{5}}\b", regex::escape(&name)));
            let message = made.replace_all(&message, "$1*").into_owned();
            let key = [text(&involved["kind"]), name, text(&event["type"]), text(&event["reason"]), message, component];
            let count = [&event["series"]["count"], &event["count"]]
                .into_iter()
                .find_map(|count| count.as_i64().filter(|count| *count > 0));
            *counts.entry(key).or_default() += count.unwrap_or(1);
        }
        counts.into_iter().map(|([kind, name, of, reason, message, component], count)| {
            json!({"kind": kind, "name": name, "type": of, "reason": reason, "message": message, "component": component, "count": count})
        }).collect()
    }

    /// The relevant changes, each with the words that describe it.
    fn told(&self) -> impl Iterator<Item = (&SeenChange, Vec<String>)> {
        let counts = |seen: &&SeenChange| {
            let made = matches!(seen.place.1.as_str(), "default" | "kube-root-ca.crt");
            match seen.resource.plural {
                "configmaps" | "serviceaccounts" if made => self.scenario.defaults,
                "namespaces" => self.scenario.defaults,
                "events" => false,
                _ => true,
            }
        };
        self.history
            .iter()
            .filter(counts)
            .map(|seen| (seen, changes(seen).iter().map(|word| self.text(word)).collect()))
    }

    fn sequence(&self) -> Value {
        let Some(wanted) = self.scenario.sequence.as_ref().filter(|wanted| !wanted.is_empty()) else {
            return Value::Null;
        };
        let mut sequence = Vec::new();
        for (seen, words) in self.told() {
            let Some(kinds) = wanted.get(seen.resource.plural) else { continue };
            let first = |word: &str| word.split(' ').next().unwrap_or_default().to_owned();
            let of_those = words.into_iter().filter(|word| kinds.is_empty() || kinds.contains(&first(word)));
            sequence.extend(of_those.map(|word| json!([seen.resource.kind, self.text(&seen.place.1), word])));
        }
        sequence.into()
    }

    fn lives(&self) -> Vec<Value> {
        let mut lives: BTreeMap<(&str, String, String), Vec<String>> = BTreeMap::new();
        for (seen, words) in self.told() {
            let key = (seen.resource.kind, seen.place.1.clone(), text(&seen.object["metadata"]["uid"]));
            lives.entry(key).or_default().extend(words);
        }
        let mut counts: BTreeMap<(&str, String, Vec<String>), usize> = BTreeMap::new();
        for ((kind, name, _), words) in lives.into_iter().filter(|(_, words)| !words.is_empty()) {
            *counts.entry((kind, self.text(&name), words)).or_default() += 1;
        }
        let life =
            |((kind, name, words), count)| json!({"kind": kind, "name": name, "changes": words, "objects": count});
        counts.into_iter().map(life).collect()
    }

    fn reduced(&self) -> BTreeMap<ObjectIdentity, Value> {
        self.objects.iter().map(|(held, object)| (held.clone(), reduce(object, &|value| self.walk(value)))).collect()
    }
}

fn replace(pattern: &Option<Regex>, text: &str, words: &BTreeMap<String, String>) -> String {
    match pattern {
        None => text.to_owned(),
        Some(pattern) => pattern.replace_all(text, |found: &regex::Captures<'_>| words[&found[0]].clone()).into_owned(),
    }
}

/// All compared objects of a scenario, by path and kind.
pub fn observed(scenario: &Scenario, cluster: &Cluster, namespace: &str) -> BTreeMap<ObjectIdentity, Arc<Value>> {
    let mut objects = BTreeMap::new();
    for resource in super::resources::RESOURCES {
        if matches!(resource.plural, "events" | "limitranges")
            || (resource.plural == "namespaces" && !scenario.defaults)
        {
            continue;
        }
        for object in cluster.objects(*resource, namespace) {
            let name = name_of(&object);
            let made =
                matches!((resource.plural, name), ("serviceaccounts", "default") | ("configmaps", "kube-root-ca.crt"));
            if made && !scenario.defaults {
                continue;
            }
            objects.insert((place(&object), resource.kind.to_owned()), typed(*resource, &object));
        }
    }
    objects
}

/// The object with its kind, which items of lists lack.
fn typed(resource: ResourceInfo, object: &Value) -> Arc<Value> {
    let mut object = object.clone();
    for (field, value) in [("kind", resource.kind), ("apiVersion", resource.api_version)] {
        if object[field].is_null() {
            object[field] = value.into();
        }
    }
    object.into()
}
