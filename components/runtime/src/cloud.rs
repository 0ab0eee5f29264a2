//! Calls to a cloud.

use async_trait::async_trait;
use holdfast_world::cloud::{CloudAnswer, CloudCall, Fault, Offers};

/// A provider of machines, load balancers and routes for a cluster.
#[async_trait]
pub trait Cloud: Send + Sync + 'static {
    /// The name of the cloud in messages. The provider IDs of its machines begin with this name.
    fn name(&self) -> &str;

    /// The parts that the cloud offers.
    fn offers(&self) -> Offers;

    /// Carries out one call, or returns why the call failed. A call may take long.
    async fn call(&self, call: &CloudCall) -> Result<CloudAnswer, Fault>;
}

/// A cloud that offers nothing, for controllers that make no calls to a cloud.
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
