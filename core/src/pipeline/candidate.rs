//! The candidate: the new form of an object, which the stages complete and check.

use super::decision::{Decision, Write};
use super::{Context, Stop};
use crate::object::meta::{self, Document};
use crate::refusal::Refusal;
use crate::schema::spelling;
use crate::state::Entry;
use holdfast_value::Value;
use std::sync::Arc;

/// What the first stage of a mutation makes: the function `candidate` of an endpoint.
pub(super) enum Made {
    Object(Box<Candidate>),
    /// Nothing has to be written: this decision is the answer to the request.
    Answer(Box<Decision>),
}

/// The new and the old form of an object that a request changes.
///
/// Documents stay trees of values in all stages. The kinds' rules read them directly, so that no stage copies a
/// document.
pub(super) struct Candidate {
    /// The object's key within its kind; empty until a new object has its name.
    pub key: Arc<str>,
    /// The stored form of the object; `None` if the request creates it.
    pub old: Option<Old>,
    /// The new document: in the path's version until defaults are set, then in the working version.
    pub new: Value,
    /// Whether this write removes the object, because no finalizer or grace period is left.
    pub removed: bool,
    /// Whether the client named the resourceVersion of the object that it changes.
    pub fixed: bool,
    /// Whether managed fields are already up to date: apply and scale set them while they merge.
    pub tracked: bool,
    /// Whether admission has already run, on a body that is not an object of this kind: a Scale, a Binding.
    pub admitted: bool,
    /// Writes of other objects that must be made together with this one, such as the PodDisruptionBudget of an
    /// eviction.
    pub besides: Vec<Write>,
}

/// The object as it is stored before the write.
pub(super) struct Old {
    pub entry: Arc<Entry>,
    /// The old document in the working version, without its resourceVersion.
    pub document: Value,
}

impl Candidate {
    /// The candidate that replaces `old` by `new`.
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

    /// Whether this write sets the deletion timestamp.
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
    /// The stored object that the path names. If it does not exist, the request is refused with NotFound.
    pub fn existing(&self) -> Result<Old, Stop> {
        match self.find()? {
            Some(old) => Ok(old),
            None => Err(Refusal::NotFound(self.subject(self.request.name())).into()),
        }
    }

    /// Finds the stored object that the path names; `None` if there is none. The object is read once, and all stages
    /// use this result.
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

    /// `new`, in which each quantity that equals its old value is spelled as in `old`; `None` if no spelling differs.
    /// The result is used only for comparisons; the client's spelling is stored.
    pub fn respelled(&self, new: &Value, old: &Value) -> Option<Value> {
        let message = self.kind.custom.is_none().then(|| self.kind.message(0).ok())??;
        spelling::respelled(message, new, old)
    }

    /// The object in the version of the request's path, with its resourceVersion. Patches are applied to this document.
    pub fn shown(&self, old: &Old) -> Value {
        let mut live = old.document.clone();
        let document = meta::fields_mut(&mut live);
        meta::metadata_mut(document).insert("resourceVersion", old.entry.offset.to_string().into());
        if self.kind.custom.is_none() && self.has_status() {
            // A built-in object is shown with a status even if the status was never set, and patches rely on the
            // status.
            document.entry("status").or_insert_with(|| Value::Object(Document::new()));
        }
        let version = self.request.target.version;
        if version != self.working_version() {
            self.kind.from_hub(version, document);
        }
        live
    }
}
