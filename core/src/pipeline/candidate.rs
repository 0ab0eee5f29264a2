//! What an object shall be, on its way through the stages.

use super::decision::{Decision, Write};
use super::{Context, Stop};
use crate::object::meta::{self, Document};
use crate::refusal::Refusal;
use crate::schema::spelling;
use crate::state::Entry;
use holdfast_value::Value;
use std::sync::Arc;

/// What an endpoint makes of a request.
pub(super) enum Made {
    Object(Box<Candidate>),
    /// Nothing is written: the answer is all there is.
    Answer(Box<Decision>),
}

/// An object as it shall be, beside the object as it is.
///
/// Documents stay whole values from the first stage to the last: the kinds' rules take them as they are, so that no
/// stage copies one.
pub(super) struct Candidate {
    /// The object's key within its kind; empty until a new object has its name.
    pub key: Arc<str>,
    /// `None`: the object is to be created.
    pub old: Option<Old>,
    /// In the path's version until it has its defaults, then in the working version.
    pub new: Value,
    /// Nothing holds the object back: this write is its last.
    pub removed: bool,
    /// The client fixed the version that it changes.
    pub fixed: bool,
    /// Managed fields are up to date: apply and scale note them while they merge.
    pub tracked: bool,
    /// Admission has judged what the client sent, which is no object of this kind: a Scale, a Binding.
    pub admitted: bool,
    /// Writes of other objects that must happen together with this one: an eviction's budget.
    pub besides: Vec<Write>,
}

/// An object as it is.
pub(super) struct Old {
    pub entry: Arc<Entry>,
    /// In the working version, without its resource version.
    pub document: Value,
}

impl Candidate {
    /// The object as it shall be in place of `old`.
    pub fn replacing(context: &Context, old: Old, new: Value) -> Candidate {
        let key = context.request.key().into();
        Candidate { key, old: Some(old), ..Candidate::creating(new) }
    }

    pub fn creating(new: Value) -> Candidate {
        Candidate {
            key: "".into(),
            old: None,
            new,
            removed: false,
            fixed: false,
            tracked: false,
            admitted: false,
            besides: Vec::new(),
        }
    }

    pub fn fields(&self) -> &Document {
        meta::fields(&self.new)
    }

    pub fn fields_mut(&mut self) -> &mut Document {
        meta::fields_mut(&mut self.new)
    }

    pub fn old(&self) -> Option<&Document> {
        self.old.as_ref().map(Old::fields)
    }

    /// Whether this write is the one that begins the object's deletion.
    pub fn begins_deletion(&self) -> bool {
        self.old().is_some_and(|old| !meta::is_deleting(old)) && meta::is_deleting(self.fields())
    }
}

impl Old {
    pub fn fields(&self) -> &Document {
        meta::fields(&self.document)
    }

    pub fn metadata(&self) -> &Document {
        meta::metadata(self.fields())
    }
}

impl From<Candidate> for Made {
    fn from(candidate: Candidate) -> Made {
        Made::Object(Box::new(candidate))
    }
}

impl Context<'_> {
    /// The object that the path names.
    pub fn existing(&self) -> Result<Old, Stop> {
        match self.find()? {
            Some(old) => Ok(old),
            None => Err(Refusal::NotFound(self.subject(self.request.name())).into()),
        }
    }

    /// The same, where it may not be there yet. It is read once, for all stages.
    pub fn find(&self) -> Result<Option<Old>, Stop> {
        let Some(entry) = self.state.get(self.request.target.kind, &self.request.key()) else { return Ok(None) };
        let document = match self.kind.custom {
            Some(_) => {
                let mut document = self.in_version(entry, self.working_version())?;
                meta::metadata_mut(meta::fields_mut(&mut document)).remove("resourceVersion");
                document
            }
            None => self.state.recent.document(entry),
        };
        Ok(Some(Old { entry: entry.clone(), document }))
    }

    /// The new document with the amounts that it only writes otherwise as the old one writes them; `None` where there
    /// are no such amounts. For comparisons: what is stored is what the client wrote.
    pub fn respelled(&self, new: &Value, old: &Value) -> Option<Value> {
        let message = self.kind.custom.is_none().then(|| self.kind.message(0).ok())??;
        spelling::respelled(message, new, old)
    }

    /// The object as the path's version shows it, with its resource version: what a patch changes.
    pub fn shown(&self, old: &Old) -> Value {
        let mut live = old.document.clone();
        let document = meta::fields_mut(&mut live);
        meta::metadata_mut(document).insert("resourceVersion", old.entry.offset.to_string().into());
        if self.kind.custom.is_none() && self.has_status() {
            // Built-in objects show a status even when nobody has reported one, and patches count on finding it.
            document.entry("status").or_insert_with(|| Value::Object(Document::new()));
        }
        let version = self.request.target.version;
        if version != self.working_version() {
            self.kind.from_hub(version, document);
        }
        live
    }
}
