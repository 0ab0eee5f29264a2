//! Conversion of Events. `events.k8s.io` renamed most fields of an Event and changed nothing else.

use crate::kinds::Convert;
use crate::kinds::convert::{Renamed, rename_from_hub, rename_to_hub};

pub const RENAMED: Convert =
    Convert { to_hub: |event| rename_to_hub(event, &NAMES), from_hub: |event| rename_from_hub(event, &NAMES) };

const NAMES: [Renamed; 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::convert::check_both_ways;
    use holdfast_value::json;

    #[test]
    fn an_event_keeps_everything_under_other_names() {
        check_both_ways(
            RENAMED,
            &json!({
                "metadata": { "name": "web.1" },
                "eventTime": "2026-01-02T03:04:05.000006Z",
                "regarding": { "kind": "Pod", "name": "web" },
                "related": { "kind": "Node", "name": "n" },
                "note": "Started container",
                "reason": "Started",
                "action": "Starting",
                "type": "Normal",
                "reportingController": "kubelet",
                "reportingInstance": "n",
                "series": { "count": 2, "lastObservedTime": "2026-01-02T03:04:05.000006Z" },
                "deprecatedSource": { "component": "kubelet" },
                "deprecatedFirstTimestamp": "2026-01-02T03:04:05Z",
                "deprecatedLastTimestamp": "2026-01-02T03:04:06Z",
                "deprecatedCount": 2,
            }),
            &json!({
                "metadata": { "name": "web.1" },
                "eventTime": "2026-01-02T03:04:05.000006Z",
                "involvedObject": { "kind": "Pod", "name": "web" },
                "related": { "kind": "Node", "name": "n" },
                "message": "Started container",
                "reason": "Started",
                "action": "Starting",
                "type": "Normal",
                "reportingComponent": "kubelet",
                "reportingInstance": "n",
                "series": { "count": 2, "lastObservedTime": "2026-01-02T03:04:05.000006Z" },
                "source": { "component": "kubelet" },
                "firstTimestamp": "2026-01-02T03:04:05Z",
                "lastTimestamp": "2026-01-02T03:04:06Z",
                "count": 2,
            }),
        );
    }
}
