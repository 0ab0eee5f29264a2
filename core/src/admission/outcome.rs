//! Results of admission, as data. Callers that store or count the results need no other part of admission.

use crate::event::{ChangedBy, Offset};
use crate::pipeline::decision::Write;
use crate::refusal::{GivenCode, Texts};
use holdfast_value::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The operation of a write for plug-ins and webhooks. It may differ from the request's verb.
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

    /// The operation's label in the metrics of PodSecurity.
    pub fn word(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Connect => "connect",
        }
    }
}

/// Results of admission in addition to the object.
#[derive(Debug, Default, Clone)]
pub struct Admitted {
    pub told: Told,
    /// Writes of other objects that must be made together with this one, such as a quota's usage.
    pub besides: Vec<Write>,
    /// The fields of the object that webhooks and policies set.
    pub changes: Vec<ChangedBy>,
}

/// The webhooks and policies to call again because the object changed after their first call.
#[derive(Debug, Default, Clone)]
pub struct Reinvocation {
    /// The round: 0 for the first run of the plug-ins, 1 for the second.
    pub round: u32,
    pub is_wanted: bool,
    pub webhooks: Asked,
    pub policies: Asked,
}

/// The identifiers of webhooks or policies with the reinvocation policy `IfNeeded`.
#[derive(Debug, Default, Clone)]
pub struct Asked {
    /// The webhooks or policies that were called after the last change.
    before: BTreeSet<String>,
    due: BTreeSet<String>,
    /// The object at the end of the last round of these webhooks or policies.
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

    /// Called when the object has changed: webhooks and policies that were called before must be called again.
    pub fn changed(&mut self) {
        self.due.append(&mut self.before);
    }
}

/// The reports of admission: warnings and annotations, sent whether or not the write is admitted, and measurements for
/// metrics.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Told {
    pub warnings: Texts,
    /// Annotations for the audit events of the request.
    pub annotations: Annotations,
    /// The operation of the write, for metrics.
    pub operation: Option<Operation>,
    pub timings: Vec<Timing>,
    pub observations: Vec<Observation>,
    /// The number of nanoseconds that the log took to make the write durable.
    pub storage_nanos: u64,
}

/// Annotations of audit events, by key.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Annotations(BTreeMap<String, Annotation>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Annotation {
    pub value: String,
    /// Whether the value contains parts of the object. Only audit events that include the request's object may then
    /// contain the annotation; in other events it would leak data that the audit policy omits.
    pub shows_object: bool,
}

impl Annotations {
    /// Adds an annotation. The first value of a key stays.
    pub fn add(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.entry(key.into(), Annotation { value: value.into(), shows_object: false });
    }

    /// Adds an annotation whose value contains parts of an object. The first value of a key stays.
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

/// A clock, in nanoseconds since some moment. Measured times are used only for metrics; no decision depends on them.
pub type Ticks = fn() -> u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    Mutating,
    Validating,
}

/// How long one plug-in, or one half of admission, ran for one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// The index of the plug-in in the table of plug-ins; `None` for the whole half.
    pub plugin: Option<u8>,
    pub half: Half,
    pub is_rejected: bool,
    pub nanos: u64,
}

/// A measurement that only few requests produce.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observation {
    Webhook {
        name: String,
        half: Half,
        end: End,
        nanos: u64,
    },
    /// The match conditions of a webhook or policy were evaluated.
    Conditions {
        name: String,
        of: &'static str,
        half: Half,
        /// The result; `None` if an evaluation failed.
        hold: Option<bool>,
        nanos: u64,
    },
    /// A validating policy gave a result.
    Validated {
        policy: Arc<str>,
        binding: Arc<str>,
        error: &'static str,
        action: &'static str,
        nanos: u64,
    },
    /// A policy's mutation was applied, or failed.
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

/// How the call of a webhook ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Admitted,
    /// The webhook rejected the write, with this code in its `Status`.
    Rejected(GivenCode),
    /// The call failed. The failure policy decides whether the failure is ignored.
    Failed {
        is_ignored: bool,
    },
    /// The webhook answered, but its answer cannot be used.
    Unusable,
}

/// The last pause of a write in each round of mutating webhooks. A judgement without the pauses has the same result,
/// but processes the answers of all earlier webhooks again.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pauses([Option<Box<Pause>>; 2]);

/// The point in a round of mutating webhooks at which judging stopped to call a webhook, with the results of the
/// webhooks before it.
#[derive(Debug, Clone)]
pub struct Pause {
    /// The version of the state at the pause. If judging resumes with another version of the state, the pause is not
    /// used.
    pub(super) version: Offset,
    /// The object at the start of the round. If the round starts with another object, the pause is not used.
    pub(super) begun: Arc<Value>,
    /// The index of the webhook being called.
    pub(super) at: usize,
    pub(super) object: Value,
    pub(super) admitted: Admitted,
    pub(super) reinvocation: Reinvocation,
    pub(super) spent: u64,
}

impl Pauses {
    pub(super) fn of_round(&self, round: u32) -> Option<&Pause> {
        self.0.get(round as usize)?.as_deref()
    }

    pub(crate) fn add(&mut self, pause: Box<Pause>) {
        if let Some(last) = self.0.get_mut(pause.reinvocation.round as usize) {
            *last = Some(pause);
        }
    }
}
