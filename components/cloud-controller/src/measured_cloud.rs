//! Measures the calls to a cloud: how long each call takes, and how many calls fail, by method.

use crate::Provider;
use crate::backends::BackendCounts;
use async_trait::async_trait;
use holdfast_runtime::Cloud;
use holdfast_runtime::metrics::Register;
use holdfast_world::cloud::{CloudAnswer, CloudCall, Fault, Offers};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use std::sync::Arc;
use std::time::Instant;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabel {
    request: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Failed {
    request: &'static str,
    reason: &'static str,
}

fn buckets() -> Histogram {
    Histogram::new([0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0])
}

/// A cloud whose calls are measured.
pub struct MeasuredCloud {
    cloud: Arc<Provider>,
    took: Family<RequestLabel, Histogram, fn() -> Histogram>,
    failed: Family<Failed, Counter>,
}

impl MeasuredCloud {
    pub fn new(cloud: Arc<Provider>) -> MeasuredCloud {
        let took = Family::new_with_constructor(buckets as fn() -> Histogram);
        MeasuredCloud { cloud, took, failed: Family::default() }
    }

    pub fn register(&self, registry: &mut impl Register) {
        let help = "How long the cloud took to answer";
        registry.register("cloudprovider_api_request_duration_seconds", help, self.took.clone());
        let help = "Requests to the cloud that came to nothing";
        registry.register("cloudprovider_api_request_errors", help, self.failed.clone());
        if let Provider::Simulated(cloud) = &*self.cloud {
            let help = "Nodes behind the balancers of the simulated cloud, by their health";
            registry.register("simulated_cloud_backends", help, BackendCounts(cloud.clone()));
        }
    }
}

#[async_trait]
impl Cloud for MeasuredCloud {
    fn name(&self) -> &str {
        self.cloud.name()
    }

    fn offers(&self) -> Offers {
        self.cloud.offers()
    }

    async fn call(&self, call: &CloudCall) -> Result<CloudAnswer, Fault> {
        let (request, begun) = (call.method(), Instant::now());
        let answer = self.cloud.call(call).await;
        self.took.get_or_create(&RequestLabel { request }).observe(begun.elapsed().as_secs_f64());
        if let Err(fault) = &answer {
            self.failed.get_or_create(&Failed { request, reason: fault.reason.as_str() }).inc();
            tracing::debug!(request, reason = fault.reason.as_str(), %fault, "the cloud refuses");
        }
        answer
    }
}
