//! What has come of admission so far, as data: whoever keeps it or counts it needs nothing of the chain.

use crate::event::{ChangedBy, Offset};
use crate::pipeline::decision::Write;
use crate::refusal::Texts;
use holdfast_value::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a write does, as plug-ins and webhooks tell writes apart: whatever the verb of the request was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

impl Operation {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }

    /// As the metrics of pod security spell it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Connect => "connect",
        }
    }
}

/// What came of admission beside the object.
#[derive(Debug, Default, Clone)]
pub struct Admitted {
    pub told: Told,
    /// Writes of other objects that must happen together with this one: a quota's usage.
    pub besides: Vec<Write>,
    /// What others than the client and the server have changed.
    pub changes: Vec<ChangedBy>,
}

/// Who is asked again, when what they saw is no longer what there is.
#[derive(Debug, Default, Clone)]
pub struct Reinvocation {
    /// 0, and 1 when all are run once more.
    pub round: u32,
    pub is_wanted: bool,
    pub webhooks: Asked,
    pub policies: Asked,
}

/// Those of one sort who want to be asked again, by whatever tells them apart.
#[derive(Debug, Default, Clone)]
pub struct Asked {
    /// Asked since the last change.
    before: BTreeSet<String>,
    due: BTreeSet<String>,
    /// The object as the last of them left it.
    left: Option<Value>,
}

impl Asked {
    pub fn begin(&mut self, object: &Value, round: u32) {
        if round > 0 && self.left.as_ref() != Some(object) {
            self.changed();
        }
    }

    pub fn end(&mut self, object: &Value) {
        self.left = Some(object.clone());
    }

    pub fn is_due(&self, id: &str) -> bool {
        self.due.contains(id)
    }

    pub fn asked(&mut self, id: String) {
        self.before.insert(id);
    }

    /// The object is another by now: who saw it before is to see it again.
    pub fn changed(&mut self) {
        self.due.append(&mut self.before);
    }
}

/// What the client and the auditor are told, whether the write is admitted or not.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Told {
    pub warnings: Texts,
    /// For the request's audit events.
    pub annotations: Annotations,
    /// For whoever counts.
    pub operation: Option<Operation>,
    pub timings: Vec<Timing>,
    pub observations: Vec<Observation>,
    /// How long it took until what came of the write was durable.
    pub storage_nanos: u64,
}

/// What audit events say of a request beside its fields, by key.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Annotations(BTreeMap<String, Annotation>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Annotation {
    pub value: String,
    /// It repeats parts of an object: only events that hold the object that was sent may have it, or what a policy keeps
    /// out of the audit log would come in by here.
    pub shows_object: bool,
}

impl Annotations {
    /// Says something, unless the key has been used: what was said first stays.
    pub fn add(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.entry(key.into(), Annotation { value: value.into(), shows_object: false });
    }

    /// The same of what repeats parts of an object.
    pub fn add_of_object(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.entry(key.into(), Annotation { value: value.into(), shows_object: true });
    }

    pub fn extend(&mut self, more: Annotations) {
        for (key, annotation) in more.0 {
            self.entry(key, annotation);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Annotation)> {
        self.0.iter().map(|(key, annotation)| (key.as_str(), annotation))
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(|annotation| annotation.value.as_str())
    }

    fn entry(&mut self, key: String, annotation: Annotation) {
        self.0.entry(key).or_insert(annotation);
    }
}

impl Admitted {
    pub fn extend(&mut self, more: Admitted) {
        self.told.warnings.append(more.told.warnings);
        self.told.annotations.extend(more.told.annotations);
        self.told.operation = more.told.operation.or(self.told.operation);
        self.told.timings.extend(more.told.timings);
        self.told.observations.extend(more.told.observations);
        self.besides.extend(more.besides);
        self.changes.extend(more.changes);
    }
}

/// Nanoseconds since some moment, of whoever has a clock. What is measured with them is told, and decides nothing.
pub type Ticks = fn() -> u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    Mutating,
    Validating,
}

/// One plug-in at work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Its number in the table; none for the whole half.
    pub plugin: Option<u8>,
    pub half: Half,
    pub is_rejected: bool,
    pub nanos: u64,
}

/// Something that happens to few requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observation {
    Webhook {
        name: String,
        half: Half,
        end: End,
        nanos: u64,
    },
    /// The conditions of a webhook or a policy were looked at.
    Conditions {
        name: String,
        of: &'static str,
        half: Half,
        /// Whether they hold; none where that cannot be told.
        hold: Option<bool>,
        nanos: u64,
    },
    /// A policy that judges has said something.
    Validated {
        policy: Arc<str>,
        binding: Arc<str>,
        error: &'static str,
        action: &'static str,
        nanos: u64,
    },
    /// A mutation of a policy was carried out, or could not be.
    Mutated {
        policy: Arc<str>,
        binding: Arc<str>,
        error: &'static str,
        nanos: u64,
    },
    PodSecurity {
        is_allowed: bool,
        mode: &'static str,
        level: String,
        version: String,
    },
    PodSecurityExemption,
    PodSecurityError {
        is_fatal: bool,
    },
}

/// How the question to a webhook ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Admitted,
    /// With this code.
    Rejected(u16),
    /// It could not be called, which its configuration forgives or not.
    Failed {
        is_ignored: bool,
    },
    /// What it wants cannot be done.
    Unusable,
}

/// One for each round of webhooks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pauses(Arc<Mutex<[Option<Pause>; 2]>>);

/// Where webhooks that change an object were left, when one of them had to be asked: what had come of those before it.
#[derive(Debug, Clone)]
pub(super) struct Pause {
    /// The state that it was judged on, and the object as the first webhook would see it: where either is another, what
    /// came of it is as well.
    pub(super) version: Offset,
    pub(super) begun: Arc<Value>,
    /// The number of the webhook that is asked.
    pub(super) at: usize,
    pub(super) object: Value,
    pub(super) admitted: Admitted,
    pub(super) reinvocation: Reinvocation,
    pub(super) spent: u64,
}

impl Pauses {
    pub(super) fn lock(&self) -> MutexGuard<'_, [Option<Pause>; 2]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
