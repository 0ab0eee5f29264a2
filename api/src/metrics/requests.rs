//! Counts requests, their answers by code, and their durations. The names and labels of the metrics are the names and
//! labels that dashboards and alerts for API servers query.
//!
//! When a request arrives, its row is found by a key of numbers, without text. The answer of the request is counted
//! once, in that row. All metric families are computed from the rows.

use super::Histogram;
use crate::AnswerCode;
use foldhash::fast::RandomState;
use holdfast_core::kinds::KindId;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use std::collections::HashMap;
use std::fmt::{self, Debug, Formatter};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

/// The upper bounds of the buckets for the duration of requests, in seconds. Recording rules query the buckets of 1, 5
/// and 30 seconds.
const BUCKETS: [f64; 25] = [
    0.0005, 0.001, 0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0,
    15.0, 20.0, 30.0, 45.0, 60.0,
];
const COMPONENT: &str = "apiserver";

/// The labels of a row, by which metrics show the requests that the row counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct RequestLabels {
    pub verb: &'static str,
    pub group: String,
    pub version: String,
    pub resource: String,
    pub subresource: String,
    /// `resource` for one object, `namespace` or `cluster` for many objects; empty for a path that is not a resource.
    pub scope: &'static str,
    pub dry_run: bool,
}

/// The key of a row, which contains no text except constants. Several keys may have the same labels, because a kind
/// that is redefined gets a new number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RowKey {
    pub verb: &'static str,
    pub kind: KindId,
    pub version: usize,
    /// The index of the requested subresource among the kind's subresources; `None` if no subresource is requested.
    pub subresource: Option<usize>,
    pub scope: &'static str,
    pub dry_run: bool,
}

/// The maximum number of stored keys. A kind gets new keys each time it is redefined.
const KEYS_MAX: usize = 1 << 16;

#[derive(Clone, Default)]
pub struct Requests {
    rows: Arc<RwLock<HashMap<RequestLabels, Arc<Row>>>>,
    by_key: Arc<RwLock<HashMap<RowKey, Arc<Row>, RandomState>>>,
}

/// The counters of the requests that have the same labels.
pub struct Row {
    pub labels: RequestLabels,
    took: Histogram,
    /// Whether the requests are timed. Long-running requests are not timed.
    timed: bool,
    /// The first status codes of the row's answers, each with the number of answers. Nearly all answers have one of
    /// these codes, and are counted without a lock.
    usual: [(OnceLock<AnswerCode>, AtomicU64); USUAL_MAX],
    by_code: Mutex<Codes>,
}

/// The maximum number of codes of a row that are counted without a lock.
const USUAL_MAX: usize = 4;

impl Row {
    pub fn count(&self, code: AnswerCode, took: Duration) {
        if self.timed {
            self.took.took(took);
        }
        if let Some((_, count)) = self.usual.iter().find(|(usual, _)| *usual.get_or_init(|| code) == code) {
            count.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let mut by_code = self.by_code.lock().unwrap_or_else(PoisonError::into_inner);
        match by_code.iter_mut().find(|(known, _)| *known == code) {
            Some((_, count)) => *count += 1,
            None => by_code.push((code, 1)),
        }
    }

    /// The number of answers by code, in the order of the codes.
    fn by_code(&self) -> Codes {
        let usual = self.usual.iter().filter_map(|(code, count)| Some((*code.get()?, count.load(Ordering::Relaxed))));
        let mut by_code: Codes = usual.filter(|(_, count)| *count > 0).collect();
        by_code.extend(self.by_code.lock().unwrap_or_else(PoisonError::into_inner).iter());
        by_code.sort_unstable();
        by_code
    }
}

/// Pairs of a status code and the number of answers with this code.
type Codes = Vec<(AnswerCode, u64)>;

impl Requests {
    /// The row of a served kind. `labels` is called only for a new row.
    pub fn row(&self, key: RowKey, labels: impl FnOnce() -> RequestLabels) -> Arc<Row> {
        if let Some(row) = self.by_key.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return row.clone();
        }
        let row = self.row_of(&labels());
        let mut by_key = self.by_key.write().unwrap_or_else(PoisonError::into_inner);
        if by_key.len() >= KEYS_MAX {
            by_key.clear();
        }
        by_key.insert(key, row.clone());
        row
    }

    pub fn row_of(&self, labels: &RequestLabels) -> Arc<Row> {
        if let Some(row) = self.rows.read().unwrap_or_else(PoisonError::into_inner).get(labels) {
            return row.clone();
        }
        let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
        let row = || Row {
            labels: labels.clone(),
            took: Histogram::of_times(&BUCKETS),
            timed: !matches!(labels.verb, "WATCH" | "CONNECT"),
            usual: Default::default(),
            by_code: Mutex::default(),
        };
        rows.entry(labels.clone()).or_insert_with(|| Arc::new(row())).clone()
    }

    /// The rows that have counted at least one answer, each with the number of answers by code.
    fn rows(&self) -> Vec<(Arc<Row>, Codes)> {
        let rows = self.rows.read().unwrap_or_else(PoisonError::into_inner);
        let told = rows.values().map(|row| (row.clone(), row.by_code()));
        told.filter(|(_, by_code)| !by_code.is_empty()).collect()
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
        for (row, by_code) in &rows {
            for (code, count) in by_code {
                let code = code.to_string();
                let pairs = row.labels.pairs().into_iter();
                let labels: Vec<(&str, &str)> = pairs.chain([("code", code.as_str())]).collect();
                ConstCounter::new(*count).encode(family.encode_family(&labels)?)?;
            }
        }
        for (name, help) in [
            ("apiserver_request_duration_seconds", "Time until the answer began"),
            ("apiserver_request_sli_duration_seconds", "Time until the answer began, as objectives count it"),
        ] {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
            for (row, _) in rows.iter().filter(|(row, _)| row.timed) {
                row.took.encode(family.encode_family(&row.labels.pairs())?)?;
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
        let key = |version| RowKey {
            verb: "LIST",
            kind: KindId(7),
            version,
            subresource: None,
            scope: "cluster",
            dry_run: false,
        };
        requests.row(key(0), || labels.clone()).count(AnswerCode(200), Duration::from_millis(300));
        // `key(1)` is the key of the kind after a redefinition. The GET request has no answer, so it is not counted.
        requests.row(key(1), || labels.clone()).count(AnswerCode(200), Duration::from_secs(3));
        requests.row_of(&labels).count(AnswerCode(429), Duration::from_millis(1));
        requests.row_of(&RequestLabels { verb: "GET", ..labels.clone() });
        requests.row_of(&RequestLabels { verb: "WATCH", ..labels }).count(AnswerCode(200), Duration::from_secs(9));
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
        assert!(!text.contains("verb=\"GET\""), "{text}");
    }
}
