//! Clouds that run in real time, for the pure plans of `holdfast-cloud`.
//!
//! [`external`] calls a provider over gRPC, and [`simulated`] is a simulated cloud in this process. [`measured_cloud`]
//! measures the calls to a provider or to a simulated cloud. [`backends`] shows the health of the nodes behind the
//! balancers of the simulated cloud.

pub mod backends;
pub mod external;
pub mod measured_cloud;
pub mod simulated;

use async_trait::async_trait;
use external::External;
use holdfast_runtime::Cloud;
use holdfast_world::cloud::{CloudAnswer, CloudCall, Fault, Offers};
use simulated::InTime;
use std::sync::Arc;

/// A simulated or an external cloud.
pub enum Provider {
    Simulated(Arc<InTime>),
    External(External),
}

impl Provider {
    fn cloud(&self) -> &dyn Cloud {
        match self {
            Provider::Simulated(cloud) => &**cloud,
            Provider::External(cloud) => cloud,
        }
    }
}

#[async_trait]
impl Cloud for Provider {
    fn name(&self) -> &str {
        self.cloud().name()
    }

    fn offers(&self) -> Offers {
        self.cloud().offers()
    }

    async fn call(&self, call: &CloudCall) -> Result<CloudAnswer, Fault> {
        self.cloud().call(call).await
    }
}
