//! Counts of the uses of service account tokens, by their sort, under Kubernetes' names.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// The sort of token that was used in a request, by which uses are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Valid,
    /// The token is valid for longer than the expiration that its client got, and this expiration has passed.
    Stale,
    /// A token in a Secret, which does not expire, or a token without audiences.
    Legacy,
    /// A token in a Secret that a user has created.
    LegacyManual,
    /// A token in a Secret that the cluster made automatically, as it once did for every account.
    LegacyAuto,
    /// A token that the cluster made automatically and that is marked as invalid.
    InvalidLegacyAuto,
}

/// The names and the help texts of the metrics, in the order of the variants of `Use`.
const METRICS: [(&str, &str); 6] = [
    ("valid_tokens", "Cumulative valid projected service account tokens used"),
    ("stale_tokens", "Cumulative stale projected service account tokens used"),
    ("legacy_tokens", "Cumulative legacy service account tokens used"),
    ("legacy_manual_token_uses", "Cumulative manually created legacy tokens used"),
    ("legacy_auto_token_uses", "Cumulative auto-generated legacy tokens used"),
    ("invalid_legacy_auto_token_uses", "Cumulative invalid auto-generated legacy tokens used"),
];

#[derive(Default)]
pub struct Uses([AtomicU64; METRICS.len()]);

impl Uses {
    pub(super) fn count(&self, one: Use) {
        self.0[one as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The counts of all sorts, in Prometheus' text format.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for ((name, help), count) in METRICS.iter().zip(&self.0) {
            let (name, count) = (format!("serviceaccount_{name}_total"), count.load(Ordering::Relaxed));
            // Writing to a String cannot fail.
            let _ = writeln!(text, "# HELP {name} {help}.\n# TYPE {name} counter\n{name} {count}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_use_has_its_line() {
        let uses = Uses::default();
        uses.count(Use::Stale);
        uses.count(Use::InvalidLegacyAuto);
        uses.count(Use::InvalidLegacyAuto);
        let text = uses.text();
        for line in [
            "serviceaccount_valid_tokens_total 0",
            "serviceaccount_stale_tokens_total 1",
            "# TYPE serviceaccount_legacy_tokens_total counter",
            "serviceaccount_invalid_legacy_auto_token_uses_total 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }
}
