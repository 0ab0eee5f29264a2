//! The layers that a call passes, and their order.
//!
//! A layer is a small value with one purpose. It may refuse the call, answer it, or pass it to the [`Next`] layer, and
//! it may act again after the call is answered. To add a layer, write a file and add a line to [`all`].

mod audit;
mod authorization;
mod connect;
mod flow_control;
mod impersonation;
mod moment;
mod mutations;
mod namespace_start;
mod reads;
pub(crate) mod unread;
mod unread_deletion;
mod unstored;

pub(crate) use audit::{begun, describe, judge as audited};
pub use flow_control::{FlowControl, RequestSlot};

use crate::lookup::Found;
use crate::metrics::{Metrics, Record};
use crate::{Call, CallSubject, Options, Reply, RequestId, Service, Source};
use futures_util::future::BoxFuture;
use holdfast_audit::{Spent, Trail};
use holdfast_core::Refusal;
use holdfast_core::admission::{Annotations, Half, Observation, Told};
use holdfast_core::authz::{ActingAs, User};
use std::sync::Arc;
use std::time::Duration;

/// The layers of the service, the outermost first.
pub(crate) fn all(metrics: &Arc<Metrics>, flow: &Arc<FlowControl>, options: &Options) -> Vec<Box<dyn Layer>> {
    vec![
        // Gives the request an id, counts it and records it, whatever the result is.
        Box::new(audit::Audit::new(metrics.clone())),
        // Lets the user act as another user, if that is allowed.
        Box::new(impersonation::Impersonation::new(options.constrained_impersonation)),
        // Gives the request a place among the requests in progress, or lets it wait for a place, fairly among users.
        Box::new(flow.clone()),
        // Decides whether the user may make this request.
        Box::new(authorization::Authorization),
        // Finds the state and the kind. Grants calls that the transport answers itself.
        Box::new(moment::PastOrPresent::default()),
        // Finds the destinations of logs, commands in containers and proxies, after admission.
        Box::new(connect::Connect { upgrades_need_create: options.upgrades_need_create }),
        // Answers gets, lists and watches of stored objects.
        Box::new(reads::Reads),
        // Answers reviews and requests for other kinds that are never stored.
        Box::new(unstored::Unstored),
        // Passes all other requests to the engine, which judges them and writes.
        Box::new(mutations::Mutations),
    ]
}

/// The result of a call.
pub type Outcome = Result<Reply, Refusal>;

pub trait Layer: Send + Sync + 'static {
    /// Handles the call. Work that does not wait is done before the future is returned, so that a layer which only
    /// checks the call allocates no future of its own.
    fn call<'a>(&'a self, passage: &'a mut Passage, next: Next<'a>) -> BoxFuture<'a, Outcome>;

    /// Called with the result of every call. If a layer waited for the result within [`Self::call`], it would need a
    /// future of its own.
    fn ended(&self, _passage: &mut Passage, _outcome: &Outcome) {}
}

/// A call on its way through the layers.
pub struct Passage {
    /// The authenticated user, or the impersonated user after the impersonation layer.
    pub user: Arc<User>,
    pub acting_as: Option<ActingAs>,
    pub own: bool,
    /// The id of the request, set by the audit layer.
    pub id: Option<RequestId>,
    pub at: Option<String>,
    pub asked: CallSubject,
    pub flaw: Option<Refusal>,
    pub warnings: Vec<String>,
    /// Annotations of authentication and admission for the audit event.
    pub annotations: Annotations,
    pub record: Record,
    /// The origin of the request, which the audit layer takes.
    pub(crate) source: Option<Box<Source>>,
    /// The audit trail, set by the audit layer if the call is recorded.
    pub trail: Option<Box<Trail>>,
    /// The call's place. Flow control sets it, unless the call needs no place.
    pub place: Option<RequestSlot>,
    /// For a call about objects, their kind and the state on which to read or judge. The moment layer sets it. It is
    /// boxed, because it is large and is moved several times.
    pub(crate) found: Option<Box<Found>>,
}

impl Passage {
    pub(crate) fn new(call: Call) -> Passage {
        let Call { user, acting_as, id, at, asked, flaw, source, told, own } = call;
        let Told { warnings, annotations, .. } = told;
        let record = Record::default();
        Passage {
            user,
            acting_as,
            own,
            id,
            at,
            asked,
            flaw,
            warnings: warnings.into_vec(),
            annotations,
            record,
            source,
            trail: None,
            place: None,
            found: None,
        }
    }

    /// Takes the request out of the passage, for the layer that transforms it.
    pub(crate) fn take_asked(&mut self) -> CallSubject {
        std::mem::replace(&mut self.asked, CallSubject::Path { verb: "", path: String::new() })
    }

    /// Passes the reports of admission to the client, to audit and to metrics.
    pub(crate) fn tell(&mut self, told: Told) {
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

/// The layers after the current one.
#[derive(Clone, Copy)]
pub struct Next<'a> {
    service: &'a Arc<Service>,
    rest: &'a [Box<dyn Layer>],
}

impl<'a> Next<'a> {
    pub(crate) fn new(service: &'a Arc<Service>, rest: &'a [Box<dyn Layer>]) -> Next<'a> {
        Next { service, rest }
    }

    pub fn service(&self) -> &'a Arc<Service> {
        self.service
    }

    /// Passes the call to the next layer.
    pub fn call(self, passage: &'a mut Passage) -> BoxFuture<'a, Outcome> {
        match self.rest.split_first() {
            Some((layer, rest)) => layer.call(passage, Next { rest, ..self }),
            None => refused(Refusal::NoSuchPath),
        }
    }
}

/// A refusal as a future that is ready at once.
pub(crate) fn refused<'a>(refusal: Refusal) -> BoxFuture<'a, Outcome> {
    at_once(Err(refusal))
}

/// A result as a future that is ready at once.
pub(crate) fn at_once<'a>(outcome: Outcome) -> BoxFuture<'a, Outcome> {
    Box::pin(std::future::ready(outcome))
}
