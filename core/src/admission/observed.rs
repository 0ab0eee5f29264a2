//! What admission did, for whoever counts. Nothing is decided by it.

use super::{Attributes, Operation};
use crate::pipeline::effect::Stop;
use std::sync::Arc;

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

/// As people are told why an expression failed.
pub fn error_type(why: &str) -> &'static str {
    if why.starts_with("compilation") {
        "compile_error"
    } else if why.starts_with("validation failed due to running out of cost budget") {
        "out_of_budget"
    } else {
        "invalid_error"
    }
}

impl Attributes<'_> {
    pub(super) fn half(&self) -> Half {
        if self.is_validating { Half::Validating } else { Half::Mutating }
    }

    pub(crate) fn observe(&mut self, observation: Observation) {
        self.admitted.told.observations.push(observation);
    }

    /// Has one plug-in do its work, or all of them, and says when it ended: the next one begins then, so that a chain
    /// of thirty reads the clock once for each.
    pub(super) fn timed(
        &mut self,
        plugin: Option<u8>,
        began: u64,
        work: impl FnOnce(&mut Self) -> Result<(), Stop>,
    ) -> Result<u64, Stop> {
        let outcome = work(self);
        let ended = (self.ticks)();
        let nanos = ended.saturating_sub(began);
        let timing = Timing { plugin, half: self.half(), is_rejected: outcome.is_err(), nanos };
        self.admitted.told.operation = Some(self.operation);
        self.admitted.told.timings.push(timing);
        outcome.map(|()| ended)
    }
}

impl Operation {
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
