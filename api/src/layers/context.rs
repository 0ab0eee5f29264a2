//! The data that the layers collect about a call. The data are kept even if a layer panics.

use super::RequestSlot;
use crate::RequestId;
use crate::metrics::Record;
use holdfast_audit::{Spent, Trail};
use holdfast_core::admission::{Annotations, Half, Observation, Told};
use std::time::Duration;

pub(crate) struct RequestContext {
    pub id: RequestId,
    pub record: Record,
    pub warnings: Vec<String>,
    /// Annotations of authentication and admission for the audit event.
    pub annotations: Annotations,
    /// The audit trail; `None` if the call is not recorded.
    pub trail: Option<Box<Trail>>,
    /// The call's place among the requests in progress; `None` before it gets a place, and for a call that needs none.
    pub place: Option<RequestSlot>,
}

impl RequestContext {
    pub fn new(id: RequestId, record: Record, authentication: Told) -> RequestContext {
        let Told { warnings, annotations, .. } = authentication;
        RequestContext { id, record, warnings: warnings.into_vec(), annotations, trail: None, place: None }
    }

    /// Passes the reports of admission to the client, to audit and to metrics.
    pub fn tell(&mut self, told: Told) {
        self.record.admitted(&told);
        if let Some(trail) = &mut self.trail {
            spend(trail, &told);
        }
        self.annotations.extend(told.annotations);
        self.warnings.extend(told.warnings.into_vec());
    }
}

/// Records how much of a call's time admission and the log took.
fn spend(trail: &mut Trail, told: &Told) {
    let (mut mutating, mut validating) = (0, 0);
    for observation in &told.observations {
        match observation {
            Observation::Webhook { half: Half::Mutating, nanos, .. } => mutating += nanos,
            Observation::Webhook { half: Half::Validating, nanos, .. } => validating = validating.max(*nanos),
            _ => {}
        }
    }
    for (on, nanos) in [
        (Spent::MutatingWebhooks, mutating),
        (Spent::ValidatingWebhooks, validating),
        (Spent::Storage, told.storage_nanos),
    ] {
        trail.spent(on, Duration::from_nanos(nanos));
    }
}
