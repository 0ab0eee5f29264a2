//! The layers that a call passes, and their order.
//!
//! A layer is a small value with one purpose. It may refuse the call, answer it, or pass it to the [`Next`] layer at
//! the next of the [`stages`]. To add a layer, write a file and add a line to [`all`].

mod audit;
mod authorization;
mod connect;
mod context;
mod flow_control;
mod impersonation;
mod moment;
mod mutations;
mod namespace_start;
mod reads;
mod stages;
pub(crate) mod unread;
mod unread_deletion;
mod unstored;

pub(crate) use audit::{begun, describe, ended, judge as audited};
pub(crate) use context::RequestContext;
pub use flow_control::{FlowControl, RequestSlot};
pub(crate) use stages::{CallParts, Received};

use crate::{Options, Reply, Service};
use futures_util::future::BoxFuture;
use holdfast_core::Refusal;
use std::convert::Infallible;
use std::sync::Arc;

/// Puts layers into a chain. A chain compiles only if each layer takes a call at the stage at which the layer before it
/// passes the call on.
macro_rules! chain {
    () => { End };
    ($layer:expr, $($rest:tt)*) => { Chain { layer: $layer, rest: chain![$($rest)*] } };
}

/// The layers of the service, the outermost first.
pub(crate) fn all(flow: &Arc<FlowControl>, options: &Options) -> Box<dyn Layers<Received>> {
    Box::new(chain![
        // Describes the request for metrics and records it, whatever the result is.
        audit::Audit,
        // Lets the user act as another user, if that is allowed.
        impersonation::Impersonation::new(options.constrained_impersonation),
        // Gives the request a place among the requests in progress, or lets it wait for a place, fairly among users.
        flow.clone(),
        // Decides whether the user may make this request.
        authorization::Authorization,
        // Finds the state and the kind. Grants calls that the transport answers itself.
        moment::PastOrPresent::default(),
        // Finds the destinations of logs, commands in containers and proxies, after admission.
        connect::Connect { upgrades_need_create: options.upgrades_need_create },
        // Answers gets, lists and watches of stored objects.
        reads::Reads,
        // Answers reviews and requests for other kinds that are never stored.
        unstored::Unstored,
        // Passes all other requests to the engine, which judges them and writes.
        mutations::Mutations,
    ])
}

/// The result of a call: the reply, or the refusal.
pub type Outcome = Result<Reply, Refusal>;

pub(crate) trait Layer: Send + Sync + 'static {
    /// The stage at which the layer takes a call.
    type Takes;
    /// The stage at which the layer passes a call on.
    type Gives;

    /// Handles the call. Work that does not wait is done before the future is returned, so that a layer which only
    /// checks the call allocates no future of its own.
    fn call<'a>(
        &'a self,
        context: &'a mut RequestContext,
        call: Self::Takes,
        next: Next<'a, Self::Gives>,
    ) -> BoxFuture<'a, Outcome>;
}

/// A chain of layers. Its first layer takes a call at this stage.
pub(crate) trait Layers<Stage>: Send + Sync {
    fn call<'a>(
        &'a self,
        service: &'a Arc<Service>,
        context: &'a mut RequestContext,
        call: Stage,
    ) -> BoxFuture<'a, Outcome>;
}

/// A layer, and the layers after it.
struct Chain<First, Rest> {
    layer: First,
    rest: Rest,
}

impl<First: Layer, Rest: Layers<First::Gives>> Layers<First::Takes> for Chain<First, Rest> {
    fn call<'a>(
        &'a self,
        service: &'a Arc<Service>,
        context: &'a mut RequestContext,
        call: First::Takes,
    ) -> BoxFuture<'a, Outcome> {
        self.layer.call(context, call, Next { service, rest: &self.rest })
    }
}

/// The end of the layers. The last layer answers every call, so no call reaches this end.
struct End;

impl Layers<Infallible> for End {
    fn call<'a>(
        &'a self,
        _service: &'a Arc<Service>,
        _context: &'a mut RequestContext,
        call: Infallible,
    ) -> BoxFuture<'a, Outcome> {
        match call {}
    }
}

/// The layers after the current layer.
pub(crate) struct Next<'a, Stage> {
    service: &'a Arc<Service>,
    rest: &'a dyn Layers<Stage>,
}

impl<'a, Stage> Next<'a, Stage> {
    pub fn service(&self) -> &'a Arc<Service> {
        self.service
    }

    /// Passes the call to the next layer.
    pub fn call(self, context: &'a mut RequestContext, call: Stage) -> BoxFuture<'a, Outcome> {
        self.rest.call(self.service, context, call)
    }
}

/// Returns a refusal as a future that is ready at once.
pub(crate) fn refused<'a>(refusal: Refusal) -> BoxFuture<'a, Outcome> {
    at_once(Err(refusal))
}

/// Returns a result as a future that is ready at once.
pub(crate) fn at_once<'a>(outcome: Outcome) -> BoxFuture<'a, Outcome> {
    Box::pin(std::future::ready(outcome))
}
