//! Prints objects and refusals for scripts: one line for each field, and of a changed object only the fields that
//! changed.

use super::words::Line;
use holdfast_core::{Cause, Refusal};
use holdfast_value::Value;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Replaces UIDs in the output by short names.
#[derive(Default)]
pub struct Renderer {
    uids: RefCell<Vec<String>>,
}

/// The fields that are left out of the output, because they would be the same after every command.
const NOISE: [&str; 7] = [
    "apiVersion",
    "kind",
    "metadata.name",
    "metadata.namespace",
    "metadata.resourceVersion",
    "metadata.creationTimestamp",
    "metadata.uid",
];

impl Renderer {
    pub fn short_uid(&self, document: &Value) -> String {
        self.short(document["metadata"]["uid"].as_str().unwrap_or(""))
    }

    /// The short name of a UID: `<u1>` for the first UID that is printed.
    pub fn short(&self, uid: &str) -> String {
        let mut uids = self.uids.borrow_mut();
        let at = uids.iter().position(|known| known == uid).unwrap_or_else(|| {
            uids.push(uid.to_owned());
            uids.len() - 1
        });
        // `<u0>` is the short name of the UID of the namespace `default`.
        format!("<u{at}>")
    }

    /// The text of a script, in which short names are replaced by the UIDs for which they stand.
    pub fn long(&self, text: &str) -> String {
        let uids = self.uids.borrow();
        uids.iter().enumerate().fold(text.to_owned(), |text, (at, uid)| text.replace(&format!("<u{at}>"), uid))
    }

    /// A text in which UIDs are replaced by their short names.
    fn shorten(&self, text: &str) -> String {
        let uids = self.uids.borrow();
        uids.iter().enumerate().fold(text.to_owned(), |text, (at, uid)| text.replace(uid, &format!("<u{at}>")))
    }

    /// Prints an object, or only how it differs from `before`.
    pub fn object(&self, line: &Line, document: &Value, before: Option<&Value>) -> String {
        if line.has("brief") {
            return String::new();
        }
        let fields = |document: &Value| {
            let mut fields = BTreeMap::new();
            flatten(String::new(), document, &mut fields);
            fields.retain(|path, _| wanted(line, path));
            fields
        };
        let new = fields(document);
        let old = before.map(fields).unwrap_or_default();
        let mut out = String::new();
        for (path, value) in &new {
            match old.get(path) {
                None => out += &format!("  {path}: {value}\n"),
                Some(before) if before != value => out += &format!("  {path}: {before} -> {value}\n"),
                Some(_) => {}
            }
        }
        for (path, value) in old.iter().filter(|(path, _)| !new.contains_key(*path)) {
            out += &format!("  {path}: {value} -> nothing\n");
        }
        if line.has("managed") {
            out += &managed(document);
        }
        self.shorten(&out)
    }

    pub fn refusal(&self, refusal: &Refusal) -> String {
        let mut out = match refusal {
            Refusal::BadRequest(why) => format!("BadRequest: {why}\n"),
            Refusal::Unauthorized => "Unauthorized\n".into(),
            Refusal::Forbidden { subject, why } => format!("Forbidden {subject}: {why}\n"),
            Refusal::NotFound(subject) => format!("NotFound {subject}\n"),
            Refusal::NoSuchPath => "NoSuchPath\n".into(),
            Refusal::DisruptionBudget { retry_after_seconds, .. } => {
                let told: String = refusal.causes().into_iter().map(|cause| cause.message).collect();
                return format!("DisruptionBudget, again in {retry_after_seconds} s: {told}\n");
            }
            Refusal::Ruled(ruling) => format!("{:?}, {}: {}\n", ruling.kind, ruling.reason, ruling.message),
            Refusal::StoreRead { .. } => format!("{}: {}\n", refusal.reason(), refusal.message()),
            Refusal::MethodNotAllowed(why) => format!("MethodNotAllowed: {why}\n"),
            Refusal::NotAcceptable { .. } => format!("NotAcceptable: {}\n", refusal.message()),
            Refusal::AlreadyExists { subject, .. } => format!("AlreadyExists {subject}\n"),
            Refusal::Conflict { subject, why } => format!("Conflict {subject}: {}\n", why.words(&subject.name)),
            Refusal::ApplyConflict(_) => format!("ApplyConflict: {}\n", refusal.message()),
            Refusal::Expired(why) => format!("Expired: {why}\n"),
            Refusal::TooLarge(why) => format!("TooLarge: {why}\n"),
            Refusal::UnsupportedMediaType { .. } => format!("UnsupportedMediaType: {}\n", refusal.message()),
            Refusal::Invalid { subject, .. } => format!("Invalid {subject}\n"),
            Refusal::Unprocessable => format!("Unprocessable: {}\n", refusal.message()),
            Refusal::TooManyRequests { what, .. } => format!("TooManyRequests: {what}\n"),
            Refusal::Internal(why) => format!("Internal: {why}\n"),
            Refusal::Unreasoned(why) => format!("Unreasoned: {why}\n"),
            Refusal::Unavailable(why) => format!("Unavailable: {why}\n"),
            Refusal::Timeout(why) => format!("Timeout: {why}\n"),
            Refusal::InsufficientStorage(why) => format!("InsufficientStorage: {why}\n"),
        };
        for Cause { reason, field, message, .. } in &refusal.causes() {
            out += &format!("  {}: {field}: {}\n", reason.as_str(), shortened(message));
        }
        // The output must not contain an empty line, because that would end the paragraph.
        self.shorten(&out.replace("\n\n", "\n"))
    }
}

/// Shortens a long message to its start and its end. The refusal of a patch, for example, shows the whole document.
fn shortened(message: &str) -> String {
    const ENDS: (usize, usize) = (60, 140);
    let characters: Vec<char> = message.chars().collect();
    if characters.len() <= ENDS.0 + ENDS.1 + 100 {
        return message.to_owned();
    }
    let (head, tail) = (&characters[..ENDS.0], &characters[characters.len() - ENDS.1..]);
    format!("{} ... {}", String::from_iter(head), String::from_iter(tail))
}

fn wanted(line: &Line, path: &str) -> bool {
    if path.starts_with("metadata.managedFields") {
        return false;
    }
    match line.option("show") {
        Some(prefixes) => prefixes.split(',').any(|prefix| path.starts_with(prefix)),
        None => !NOISE.contains(&path),
    }
}

/// Collects the leaves of a document by their paths. An empty object or list is a leaf, too.
fn flatten(path: String, value: &Value, out: &mut BTreeMap<String, String>) {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (name, value) in map {
                flatten(below(name), value, out);
            }
        }
        Value::Array(list) if !list.is_empty() && list.iter().any(|item| item.is_object()) => {
            for (at, value) in list.iter().enumerate() {
                flatten(format!("{path}[{at}]"), value, out);
            }
        }
        Value::String(text) => {
            let shown = match text.parse::<jiff::Timestamp>() {
                Ok(time) => format!("<+{}s>", time.as_second() - super::START_SECOND),
                Err(_) => text.replace('\n', "\\n"),
            };
            out.insert(path, shown);
        }
        other => {
            out.insert(path, other.to_string());
        }
    }
}

/// The fields that managers own, with one line for each manager.
fn managed(document: &Value) -> String {
    let mut out = String::new();
    for entry in document["metadata"]["managedFields"].as_array().into_iter().flatten() {
        let text = |field: &str| entry[field].as_str().unwrap_or("").to_owned();
        let mut paths = Vec::new();
        leaves(String::new(), &entry["fieldsV1"], &mut paths);
        let subresource = text("subresource");
        let slash = if subresource.is_empty() { "" } else { "/" };
        let owner = format!("{} {}{slash}{subresource}", text("manager"), text("operation"));
        out += &format!("  {owner}: {}\n", paths.join(" "));
    }
    out
}

fn leaves(path: String, fields: &Value, out: &mut Vec<String>) {
    match fields.as_object().filter(|map| !map.is_empty()) {
        Some(map) => {
            for (name, below) in map {
                let name = name.strip_prefix("f:").unwrap_or(name);
                let dot = if path.is_empty() { "" } else { "." };
                leaves(if name == "." { path.clone() } else { format!("{path}{dot}{name}") }, below, out);
            }
        }
        None => out.push(path),
    }
}
