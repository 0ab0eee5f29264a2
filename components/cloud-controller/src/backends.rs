//! The health of the simulated cloud's backends, as a metric that is computed when it is read.

use crate::simulated::InTime;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use std::fmt;
use std::sync::Arc;

#[derive(Clone)]
pub struct BackendCounts(pub Arc<InTime>);

impl fmt::Debug for BackendCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BackendCounts")
    }
}

impl EncodeMetric for BackendCounts {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for backends in self.0.backends() {
            let service = format!("{}/{}", backends.service.namespace, backends.service.name);
            for (health, count) in backends.counts {
                let labels = [("service", service.as_str()), ("health", health.as_str())];
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                encoder.encode_family(&labels)?.encode_gauge(&count)?;
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}
