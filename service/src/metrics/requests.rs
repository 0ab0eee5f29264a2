//! Requests as they are counted: how many, with which answers, and how long these took. The names and labels are those
//! that dashboards and alerts for API servers ask for.
//!
//! One look into one table counts a request, whatever number of families is shown of it.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::histogram::Histogram;
use std::collections::HashMap;
use std::fmt::{self, Debug, Formatter};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// Seconds. Recording rules ask for those of 1, 5 and 30.
const BUCKETS: [f64; 25] = [
    0.0005, 0.001, 0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0,
    15.0, 20.0, 30.0, 45.0, 60.0,
];
const COMPONENT: &str = "apiserver";

/// What tells one row from another.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct RequestLabels {
    pub verb: &'static str,
    pub group: String,
    pub version: String,
    pub resource: String,
    pub subresource: String,
    /// `resource` of one object, `namespace` or `cluster` of many; nothing of a path that is no resource.
    pub scope: &'static str,
    pub dry_run: bool,
}

#[derive(Clone, Default)]
pub struct Requests(Arc<RwLock<HashMap<RequestLabels, Arc<Row>>>>);

struct Row {
    took: Histogram,
    /// Requests that last by their nature are not timed.
    timed: bool,
    by_code: Mutex<Vec<(u16, u64)>>,
}

impl Requests {
    pub fn count(&self, labels: &RequestLabels, code: u16, took: Duration) {
        let row = self.row(labels);
        if row.timed {
            row.took.observe(took.as_secs_f64());
        }
        let mut by_code = row.by_code.lock().unwrap_or_else(PoisonError::into_inner);
        match by_code.iter_mut().find(|(known, _)| *known == code) {
            Some((_, count)) => *count += 1,
            None => by_code.push((code, 1)),
        }
    }

    fn row(&self, labels: &RequestLabels) -> Arc<Row> {
        if let Some(row) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(labels) {
            return row.clone();
        }
        let mut rows = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let row = || Row {
            took: Histogram::new(BUCKETS),
            timed: !matches!(labels.verb, "WATCH" | "CONNECT"),
            by_code: Mutex::default(),
        };
        rows.entry(labels.clone()).or_insert_with(|| Arc::new(row())).clone()
    }

    fn rows(&self) -> Vec<(RequestLabels, Arc<Row>)> {
        let rows = self.0.read().unwrap_or_else(PoisonError::into_inner);
        rows.iter().map(|(labels, row)| (labels.clone(), row.clone())).collect()
    }
}

impl RequestLabels {
    fn pairs(&self) -> [(&'static str, &str); 8] {
        [
            ("verb", self.verb),
            ("group", &self.group),
            ("version", &self.version),
            ("resource", &self.resource),
            ("subresource", &self.subresource),
            ("scope", self.scope),
            ("component", COMPONENT),
            ("dry_run", if self.dry_run { "All" } else { "" }),
        ]
    }
}

impl Debug for Requests {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Requests")
    }
}

impl Collector for Requests {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let rows = self.rows();
        let mut family =
            encoder.encode_descriptor("apiserver_request", "Requests answered", None, MetricType::Counter)?;
        for (labels, row) in &rows {
            let by_code = row.by_code.lock().unwrap_or_else(PoisonError::into_inner).clone();
            for (code, count) in by_code {
                let code = code.to_string();
                let labels: Vec<(&str, &str)> = labels.pairs().into_iter().chain([("code", code.as_str())]).collect();
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        for (name, help) in [
            ("apiserver_request_duration_seconds", "Time until the answer began"),
            ("apiserver_request_sli_duration_seconds", "Time until the answer began, as objectives count it"),
        ] {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
            for (labels, row) in rows.iter().filter(|(_, row)| row.timed) {
                row.took.encode(family.encode_family(&labels.pairs())?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::registry::Registry;

    #[test]
    fn requests_are_shown_under_the_names_that_rules_ask_for() {
        let requests = Requests::default();
        let labels = RequestLabels {
            verb: "LIST",
            version: "v1".into(),
            resource: "pods".into(),
            scope: "cluster",
            ..RequestLabels::default()
        };
        requests.count(&labels, 200, Duration::from_millis(300));
        requests.count(&labels, 200, Duration::from_secs(3));
        requests.count(&labels, 429, Duration::from_millis(1));
        requests.count(&RequestLabels { verb: "WATCH", ..labels }, 200, Duration::from_secs(9));
        let mut registry = Registry::default();
        registry.register_collector(Box::new(requests));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let about = |verb: &str| {
            format!(
                "verb=\"{verb}\",group=\"\",version=\"v1\",resource=\"pods\",subresource=\"\",scope=\"cluster\",\
                 component=\"apiserver\",dry_run=\"\""
            )
        };
        let (list, watch) = (about("LIST"), about("WATCH"));
        for line in [
            format!("apiserver_request_total{{{list},code=\"200\"}} 2"),
            format!("apiserver_request_total{{{list},code=\"429\"}} 1"),
            format!("apiserver_request_total{{{watch},code=\"200\"}} 1"),
            format!("apiserver_request_sli_duration_seconds_bucket{{le=\"1.0\",{list}}} 2"),
            format!("apiserver_request_duration_seconds_count{{{list}}} 3"),
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} in {text}");
        }
        assert!(!text.contains(&format!("apiserver_request_duration_seconds_count{{{watch}}}")), "{text}");
    }
}
