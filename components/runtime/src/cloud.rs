//! Asking a cloud.

use async_trait::async_trait;
use holdfast_world::cloud::{Answer, Call, Fault, Offers};

/// A provider of machines, load balancers and routes for a cluster.
#[async_trait]
pub trait Cloud: Send + Sync + 'static {
    /// The cloud's name in messages. Its machines' ids begin with it.
    fn name(&self) -> &str;

    /// Which parts it has.
    fn offers(&self) -> Offers;

    /// Does one thing, or says why not. It answers in some time of its own.
    async fn ask(&self, call: &Call) -> Result<Answer, Fault>;
}

/// For controllers that ask none.
pub(crate) struct NoCloud;

#[async_trait]
impl Cloud for NoCloud {
    fn name(&self) -> &str {
        ""
    }

    fn offers(&self) -> Offers {
        Offers::default()
    }

    async fn ask(&self, _: &Call) -> Result<Answer, Fault> {
        Err(Fault::unavailable("there is no cloud"))
    }
}
