//! Calls to a cloud.

use async_trait::async_trait;
use holdfast_world::cloud::{CloudAnswer, CloudCall, Fault, Offers};

/// A provider of machines, load balancers and routes for a cluster.
#[async_trait]
pub trait Cloud: Send + Sync + 'static {
    /// The cloud's name in messages. The ids of its machines begin with this name.
    fn name(&self) -> &str;

    /// The parts that the cloud offers.
    fn offers(&self) -> Offers;

    /// Carries out one call, or returns the reason of its failure. May take long.
    async fn call(&self, call: &CloudCall) -> Result<CloudAnswer, Fault>;
}

/// The cloud for controllers that make no calls to a cloud.
pub(crate) struct NoCloud;

#[async_trait]
impl Cloud for NoCloud {
    fn name(&self) -> &str {
        ""
    }

    fn offers(&self) -> Offers {
        Offers::default()
    }

    async fn call(&self, _: &CloudCall) -> Result<CloudAnswer, Fault> {
        Err(Fault::unavailable("there is no cloud"))
    }
}
