//! Writes an object in a given state through the API: the common part of `restore` and `undo`.
//!
//! Every write goes through the API: a PUT with the current version, or a POST if the object no longer exists. The
//! status is written through the subresource `status` if the kind has this subresource. Fields that only the server
//! sets are omitted, and so are references to owners that no longer exist.

use super::{LogView, Report, StoredAt, change_value};
use crate::remote::client::{Client, RequestFailure, escaped};
use anyhow::{Result, anyhow, bail};
use holdfast_core::history::render::{Colour, Paint, unified};
use holdfast_core::history::{Conflict, FieldChange, Shape, difference, settable};
use holdfast_core::kinds::Kind;
use holdfast_core::object::meta::split_key;
use holdfast_core::visible;
use holdfast_value::{Value, json};
use http::Method;

/// The options of `restore` and `undo` for writing.
#[derive(Clone, Copy, clap::Args)]
pub struct WriteOptions {
    /// Make a dry run on the server, show what would change, and write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Overwrite fields that other users have changed since then. If the server refuses to change a field, delete the
    /// object and create it again.
    #[arg(long)]
    pub force: bool,
}

/// One object that is written through a server's API.
pub struct Put<'a> {
    client: &'a Client,
    view: &'a LogView<'a>,
    kind: &'a Kind,
    /// The index of the kind's version that the documents use.
    version: usize,
    place: &'a StoredAt,
    writing: WriteOptions,
    manager: &'static str,
    pub title: String,
}

/// The outcome of a write.
pub struct WriteOutcome {
    pub title: String,
    pub key: String,
    /// What the write did: `changed`, `created`, `deleted`, `recreated`, or `unchanged`.
    pub event: &'static str,
    /// The state that the write restores, in words.
    pub goal: String,
    pub dry_run: bool,
    /// The object's version before the write.
    pub before: Option<u64>,
    /// The object's version after the write.
    pub after: Option<u64>,
    pub changes: Vec<FieldChange>,
    pub notes: Vec<String>,
    pub conflicts: Vec<ExplainedConflict>,
}

/// A conflict, and the event that caused it.
pub struct ExplainedConflict {
    pub conflict: Conflict,
    /// The event that caused the conflict: `version 42, 2026-11-21T10:00:00.000Z, by jane (kubectl)`.
    pub since: Option<String>,
    pub version: Option<u64>,
}

impl<'a> Put<'a> {
    /// `api_version` is the API version in which the documents are read and written.
    pub fn new(
        client: &'a Client,
        view: &'a LogView<'a>,
        place: &'a StoredAt,
        api_version: &str,
        writing: WriteOptions,
        manager: &'static str,
    ) -> Result<Put<'a>> {
        let title = view.title(&place.storage, &place.key);
        let kind = view
            .kind_at(&place.storage)
            .ok_or_else(|| anyhow!("{title}: nothing serves its kind any more; bring its definition back first"))?;
        let version = kind.version_named(api_version).filter(|version| kind.versions[*version].is_served());
        let version = version.ok_or_else(|| {
            anyhow!("{title} was stored as {api_version}, which is no longer served: serve that version again first")
        })?;
        Ok(Put { client, view, kind, version, place, writing, manager, title })
    }

    pub fn shape(&self) -> Shape<'a> {
        Shape::new(self.kind.layout(self.version))
    }

    pub fn has_status(&self) -> bool {
        self.kind.subresource(self.version, "status").is_some()
    }

    /// The object as the server has it. Fails if the object is being deleted, because then the object cannot be
    /// restored.
    pub fn now(&self) -> Result<Option<Value>> {
        let now = match self.get() {
            Ok(now) => now,
            Err(failure) if failure.code() == Some(404) => return Ok(None),
            Err(failure) => return Err(failure.into()),
        };
        if let Some(since) = now["metadata"]["deletionTimestamp"].as_str() {
            let waits = match now["metadata"]["finalizers"].as_array() {
                Some(finalizers) if !finalizers.is_empty() => {
                    let names: Vec<&str> = finalizers.iter().filter_map(Value::as_str).collect();
                    format!("it waits for {}", names.join(", "))
                }
                _ => "it waits for what it holds".to_owned(),
            };
            bail!(
                "{} is being deleted since {since}, which cannot be taken back ({waits}): try again once it is gone, and \
                 it will be created anew",
                self.title
            );
        }
        Ok(Some(now))
    }

    /// Writes the object as `wanted`; `None` deletes it.
    pub fn write(&self, now: Option<&Value>, wanted: Option<Value>, goal: String) -> Result<WriteOutcome> {
        let mut notes = Vec::new();
        let wanted = wanted.map(|wanted| self.without_lost_owners(settable(wanted), now, &mut notes)).transpose()?;
        let nothing = json!({});
        let old = now.cloned().map(settable);
        let (old, new) = (old.as_ref().unwrap_or(&nothing), wanted.as_ref().unwrap_or(&nothing));
        let mut event = "unchanged";
        let mut answer = now.cloned();
        match (now, &wanted) {
            (None, None) => {}
            (Some(now), Some(wanted)) => {
                if old != wanted {
                    (event, answer) = self.change(now, old, wanted)?;
                }
            }
            (None, Some(wanted)) => {
                event = "created";
                answer = Some(self.create(wanted)?);
            }
            (Some(now), None) => {
                event = "deleted";
                answer = self.delete(now, None)?;
            }
        }
        let after = answer.clone().map(settable);
        let after = after.as_ref().unwrap_or(&nothing);
        let kept = if event == "unchanged" { Vec::new() } else { difference(self.shape(), new, after) };
        if answer.is_some() && wanted.is_none() {
            notes.push("the object is deleted when its finalizers are removed".into());
        } else {
            notes.extend(kept.iter().map(|change| format!("the server sets {} itself", change.path)));
        }
        let version = |document: Option<&Value>| document?["metadata"]["resourceVersion"].as_str()?.parse().ok();
        let is_written = event != "unchanged" && !self.writing.dry_run;
        Ok(WriteOutcome {
            title: self.title.clone(),
            key: self.place.key.clone(),
            event,
            goal,
            dry_run: self.writing.dry_run,
            before: version(now),
            after: version(answer.as_ref()).filter(|_| is_written),
            changes: difference(self.shape(), old, after),
            notes,
            conflicts: Vec::new(),
        })
    }

    /// A report of the conflicts that prevent the write.
    pub fn refusal(&self, now: Option<&Value>, goal: String, conflicts: Vec<ExplainedConflict>) -> WriteOutcome {
        let before = now.and_then(|now| now["metadata"]["resourceVersion"].as_str()?.parse().ok());
        WriteOutcome {
            title: self.title.clone(),
            key: self.place.key.clone(),
            event: "unchanged",
            goal,
            dry_run: self.writing.dry_run,
            before,
            after: None,
            changes: Vec::new(),
            notes: Vec::new(),
            conflicts,
        }
    }

    fn change(&self, now: &Value, old: &Value, wanted: &Value) -> Result<(&'static str, Option<Value>)> {
        let without_status = |document: &Value| {
            let mut document = document.clone();
            if let Some(document) = document.as_object_mut().filter(|_| self.has_status()) {
                document.remove("status");
            }
            document
        };
        let mut answer = now.clone();
        if without_status(old) != without_status(wanted) {
            match self.put("", now, wanted) {
                Ok(written) => answer = written,
                Err(RequestFailure::Refused(refused)) if refused.code == 422 && self.writing.force => {
                    return self.replace(now, wanted).map(|answer| ("recreated", Some(answer)));
                }
                Err(RequestFailure::Refused(refused)) if refused.code == 422 => {
                    bail!("{refused}. With --force the object is deleted and created again")
                }
                Err(failure) => return Err(self.explained(failure)),
            }
        }
        // Where the status is a subresource, the server ignores the status in writes of the object.
        if self.has_status() && old["status"] != wanted["status"] {
            let status = self.put("/status", &answer, wanted).map_err(|failure| self.explained(failure))?;
            answer["status"] = status["status"].clone();
            answer["metadata"]["resourceVersion"] = status["metadata"]["resourceVersion"].clone();
        }
        Ok(("changed", Some(answer)))
    }

    /// Deletes the object and creates it again, because the server refuses to change an immutable field.
    fn replace(&self, now: &Value, wanted: &Value) -> Result<Value> {
        if now["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty()) {
            bail!(
                "{} has finalizers, so it cannot be deleted and created again in one step: delete it first",
                self.title
            );
        }
        if self.writing.dry_run {
            return Ok(wanted.clone());
        }
        self.delete(now, Some("Background"))?;
        self.create(wanted)
            .map_err(|error| anyhow!("{} is deleted, and could not be created anew: {error:#}", self.title))
    }

    fn create(&self, wanted: &Value) -> Result<Value> {
        let path = self.path("", true);
        let mut answer =
            self.client.send(Method::POST, &path, Some(wanted)).map_err(|failure| self.explained(failure))?;
        let has_status = self.has_status() && wanted.get("status").is_some_and(|status| status != &json!({}));
        if has_status && answer["status"] != wanted["status"] {
            if self.writing.dry_run {
                // In a dry run the new object does not exist, so its status cannot be written.
                answer["status"] = wanted["status"].clone();
            } else {
                let written = self.put("/status", &answer, wanted).map_err(|failure| self.explained(failure))?;
                answer["status"] = written["status"].clone();
                answer["metadata"]["resourceVersion"] = written["metadata"]["resourceVersion"].clone();
            }
        }
        Ok(answer)
    }

    /// Deletes the object. Returns the object if it still waits for finalizers.
    fn delete(&self, now: &Value, propagation: Option<&str>) -> Result<Option<Value>> {
        let mut options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions":
            {"uid": now["metadata"]["uid"], "resourceVersion": now["metadata"]["resourceVersion"]}});
        if let Some(propagation) = propagation {
            options["propagationPolicy"] = propagation.into();
        }
        self.client
            .send(Method::DELETE, &self.path("", false), Some(&options))
            .map_err(|failure| self.explained(failure))?;
        if self.writing.dry_run {
            return Ok(None);
        }
        match self.get() {
            Ok(left) => Ok(Some(left)),
            Err(failure) if failure.code() == Some(404) => Ok(None),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Writes the object, if its version on the server is still the version of `now`.
    fn put(&self, subresource: &str, now: &Value, wanted: &Value) -> Result<Value, RequestFailure> {
        let mut document = wanted.clone();
        for field in ["uid", "resourceVersion"] {
            document["metadata"][field] = now["metadata"][field].clone();
        }
        self.client.send(Method::PUT, &self.path(subresource, false), Some(&document))
    }

    fn explained(&self, failure: RequestFailure) -> anyhow::Error {
        match failure.code() {
            Some(409) => anyhow!("{:#}. Nothing is written; look again, and try again", anyhow::Error::from(failure)),
            _ => failure.into(),
        }
    }

    /// Removes references to owners that no longer exist, because they would make the garbage collector delete the
    /// object. Owners of the current object stay.
    fn without_lost_owners(&self, mut wanted: Value, now: Option<&Value>, notes: &mut Vec<String>) -> Result<Value> {
        let Some(owners) = wanted["metadata"]["ownerReferences"].as_array().cloned() else { return Ok(wanted) };
        let is_owner_now = |owner: &Value| {
            let owners = now.and_then(|now| now["metadata"]["ownerReferences"].as_array());
            owners.is_some_and(|owners| owners.iter().any(|other| other["uid"] == owner["uid"]))
        };
        let mut left = Vec::new();
        for owner in owners {
            if is_owner_now(&owner) || self.is_there(&owner)? {
                left.push(owner);
            } else {
                let text = |field: &str| owner[field].as_str().unwrap_or("?").to_owned();
                notes.push(format!("its owner {} {} is gone, and left out", text("kind"), text("name")));
            }
        }
        if let Some(metadata) = wanted["metadata"].as_object_mut() {
            match left.is_empty() {
                true => metadata.remove("ownerReferences"),
                false => metadata.insert("ownerReferences", left.into()),
            };
        }
        Ok(wanted)
    }

    fn is_there(&self, owner: &Value) -> Result<bool> {
        let text = |field: &str| owner[field].as_str().unwrap_or("");
        let (group, version) = text("apiVersion").rsplit_once('/').unwrap_or(("", text("apiVersion")));
        let Some((id, version)) = self.view.registry.find_kind(group, version, text("kind")) else { return Ok(false) };
        let kind = self.view.registry.get(id);
        let namespace = split_key(&self.place.key).0.filter(|_| kind.is_namespaced());
        match self.client.get(&path(kind, version, namespace, Some(text("name")))) {
            Ok(found) => Ok(found["metadata"]["uid"] == owner["uid"]),
            Err(failure) if failure.code() == Some(404) => Ok(false),
            Err(failure) => Err(failure.into()),
        }
    }

    fn path(&self, subresource: &str, collection: bool) -> String {
        let (namespace, name) = split_key(&self.place.key);
        let path = path(self.kind, self.version, namespace, (!collection).then_some(name));
        let dry_run = if self.writing.dry_run { "&dryRun=All" } else { "" };
        format!("{path}{subresource}?fieldManager={}{dry_run}", self.manager)
    }

    fn get(&self) -> Result<Value, RequestFailure> {
        let (namespace, name) = split_key(&self.place.key);
        self.client.get(&path(self.kind, self.version, namespace, Some(name)))
    }
}

fn path(kind: &Kind, version: usize, namespace: Option<&str>, name: Option<&str>) -> String {
    let served = &kind.versions[version];
    let root = if served.group.is_empty() { "/api" } else { "/apis" };
    let within = namespace.map(|namespace| format!("/namespaces/{}", escaped(namespace))).unwrap_or_default();
    let name = name.map(|name| format!("/{}", escaped(name))).unwrap_or_default();
    format!("{root}/{}{within}/{}{name}", served.api_version(), kind.resource)
}

impl WriteOutcome {
    /// Fails if the report has conflicts.
    pub fn check(&self) -> Result<()> {
        match self.conflicts.len() {
            0 => Ok(()),
            1 => bail!("nothing is written, because of a conflict; --force overrides it"),
            count => bail!("nothing is written, because of {count} conflicts; --force overrides them"),
        }
    }
}

impl Report for WriteOutcome {
    fn text(&self, paint: Paint) -> String {
        let WriteOutcome { title, goal, .. } = self;
        let mut out = String::new();
        for told in &self.conflicts {
            let Conflict { path, before, after, now } = &told.conflict;
            let shown = |value: &Option<Value>| value.as_ref().map_or("nothing".to_owned(), Value::to_string);
            let since = told.since.as_ref().map(|since| format!(", set at {since}")).unwrap_or_default();
            let (before, after, now) = (shown(before), shown(after), shown(now));
            let line = if path.0.is_empty() {
                format!("{title} is not what the event left{since}")
            } else {
                format!("{title} {path} went from {before} to {after} and is {now} now{since}")
            };
            out.push_str(&paint.paint(Colour::Red, &format!("conflict: {line}")));
            out.push('\n');
        }
        if !self.conflicts.is_empty() {
            return out;
        }
        let would = if self.dry_run { "would be " } else { "" };
        let (colour, line) = match self.event {
            "unchanged" => (Colour::Bold, format!("{title} is already {goal}: nothing is written")),
            event => {
                let at = self.after.map(|version| format!(", at version {version}")).unwrap_or_default();
                (
                    if event == "deleted" { Colour::Red } else { Colour::Green },
                    format!("{title} {would}{event}: {goal}{at}"),
                )
            }
        };
        out.push_str(&paint.paint(colour, &line));
        out.push('\n');
        if !self.changes.is_empty() {
            let name = |version: Option<u64>, other: &str| match version {
                Some(version) => format!("{title} @ {version}"),
                None => other.to_owned(),
            };
            let new = if self.event == "deleted" { "nothing" } else { "as it would be" };
            let titles = (name(self.before, "nothing"), name(self.after, new));
            out.push_str(&unified((&titles.0, &titles.1), &self.changes, paint));
        }
        self.notes.iter().for_each(|note| out.push_str(&format!("note: {}\n", visible::line(note))));
        out
    }

    fn value(&self) -> Value {
        let (namespace, name) = split_key(&self.key);
        let conflict = |told: &ExplainedConflict| {
            let Conflict { path, before, after, now } = &told.conflict;
            json!({"path": path.to_string(), "before": before, "after": after, "now": now, "version": told.version,
                "since": told.since})
        };
        json!({
            "object": self.title,
            "namespace": namespace,
            "name": name,
            "event": self.event,
            "goal": self.goal,
            "dryRun": self.dry_run,
            "before": self.before,
            "after": self.after,
            "changes": self.changes.iter().map(change_value).collect::<Vec<_>>(),
            "notes": self.notes,
            "conflicts": self.conflicts.iter().map(conflict).collect::<Vec<_>>(),
        })
    }
}
