//! What a call goes through, one layer after the other, and in which order.
//!
//! A layer is a small value with one job. It may refuse the call, answer it, or pass it on to the [`Next`] one and do
//! something once the answer is there. To add one is to write a file and to put a line into [`all`].

mod audit;
mod authorization;
mod connect;
mod flow_control;
mod impersonation;
mod moment;
mod mutations;
mod namespace_start;
mod reads;
mod unstored;

pub(crate) use audit::{begun, describe, judge as audited};
pub use flow_control::{FlowControl, Place};
pub(crate) use namespace_start::NamespaceStarts;

use crate::lookup::Found;
use crate::metrics::{Metrics, Record};
use crate::{Asked, Call, Reply, RequestId, Service, Source};
use futures_util::future::BoxFuture;
use holdfast_audit::{Spent, Trail};
use holdfast_core::Refusal;
use holdfast_core::admission::{Annotations, Half, Observation, Told};
use holdfast_core::authz::{ActingAs, User};
use std::sync::Arc;
use std::time::Duration;

/// The layers of the door, the first one outermost.
pub(crate) fn all(
    metrics: &Arc<Metrics>,
    flow: &Arc<FlowControl>,
    constrained_impersonation: bool,
) -> Vec<Box<dyn Layer>> {
    vec![
        // Names the request, counts it, and tells of it, whatever becomes of it.
        Box::new(audit::Audit::new(metrics.clone())),
        // Goes on in another's name, where the user may.
        Box::new(impersonation::Impersonation::new(constrained_impersonation)),
        // Gives it a place among those in progress, or has it wait for one, fairly among users.
        Box::new(flow.clone()),
        // Decides whether the user may ask for this.
        Box::new(authorization::Authorization),
        // Finds the state that it is about, and the kind; what the transport answers itself is granted here.
        Box::new(moment::PastOrPresent::default()),
        // Says where logs, commands in containers and proxies lead, which admission looks at first.
        Box::new(connect::Connect),
        // Answers gets, lists and watches of what is stored.
        Box::new(reads::Reads),
        // Answers questions that are posted and never stored.
        Box::new(unstored::Unstored),
        // Has the engine judge and write everything else.
        Box::new(mutations::Mutations),
    ]
}

/// What a call comes to.
pub type Outcome = Result<Reply, Refusal>;

pub trait Layer: Send + Sync + 'static {
    /// Deals with the call. What needs no waiting is done at once, so that a layer which only looks costs nothing.
    fn call<'a>(&'a self, passage: &'a mut Passage, next: Next<'a>) -> BoxFuture<'a, Outcome>;

    /// What is to be done when the outcome is there, whatever it is. A layer that had to wait for it within [`Self::call`]
    /// would need a future of its own.
    fn ended(&self, _passage: &mut Passage, _outcome: &Outcome) {}
}

/// A call on its way through the layers.
pub struct Passage {
    /// Who asks; from impersonation on, in whose name.
    pub user: Arc<User>,
    pub acting_as: Option<ActingAs>,
    pub own: bool,
    /// There from audit on.
    pub id: Option<RequestId>,
    pub at: Option<String>,
    pub asked: Asked,
    pub flaw: Option<Refusal>,
    pub warnings: Vec<String>,
    /// What authentication and admission say of the call to those who audit it.
    pub annotations: Annotations,
    pub record: Record,
    /// There until audit has taken it.
    pub(crate) source: Option<Box<Source>>,
    /// There from audit on, where the call is told of.
    pub trail: Option<Box<Trail>>,
    /// There from flow control on, unless the call needs none.
    pub place: Option<Place>,
    /// The kind and the state that a call about objects is about: there behind past or present. In a box, because what is
    /// large is moved a few times on its way.
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

    /// What is asked, for the layer that makes something else of it.
    pub(crate) fn take_asked(&mut self) -> Asked {
        std::mem::replace(&mut self.asked, Asked::Path { verb: "", path: String::new() })
    }

    /// Passes on what admission told: to the client, to auditors, to whoever counts.
    pub(crate) fn tell(&mut self, told: Told) {
        self.record.admitted(&told);
        if let Some(trail) = &mut self.trail {
            spend(trail, &told);
        }
        self.annotations.extend(told.annotations);
        self.warnings.extend(told.warnings.into_vec());
    }
}

/// Tells what admission and the log took of a call's time.
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

/// The layers behind one.
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

    /// Passes the call on.
    pub fn call(self, passage: &'a mut Passage) -> BoxFuture<'a, Outcome> {
        match self.rest.split_first() {
            Some((layer, rest)) => layer.call(passage, Next { rest, ..self }),
            None => refused(Refusal::NoSuchPath),
        }
    }
}

/// Ends a call without waiting for anything.
pub(crate) fn refused<'a>(refusal: Refusal) -> BoxFuture<'a, Outcome> {
    at_once(Err(refusal))
}

/// An outcome that is there already.
pub(crate) fn at_once<'a>(outcome: Outcome) -> BoxFuture<'a, Outcome> {
    Box::pin(std::future::ready(outcome))
}
