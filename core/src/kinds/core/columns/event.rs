//! Columns of Events.

use crate::kinds::Column;
use crate::kinds::cells::{UNKNOWN, at, column, field, name, number, of_field, show, since, text};
use holdfast_value::Value;

pub fn columns() -> Vec<Column> {
    vec![
        column("Last Seen", "string", 0, field("lastTimestamp"), |event, now| last_seen(event, now).into()),
        of_field("Type", "string", 0, "type", show::text),
        of_field("Reason", "string", 0, "reason", show::text),
        column("Object", "string", 0, field("involvedObject"), |event, _| object(event).into()),
        of_field("Subobject", "string", 1, "involvedObject.fieldPath", show::text),
        column("Source", "string", 1, field("source"), |event, _| source(event).into()),
        column("Message", "string", 0, field("message"), |event, _| text(event, "message").trim().into()),
        column("First Seen", "string", 1, field("firstTimestamp"), |event, now| first_seen(event, now).into()),
        column("Count", "string", 1, field("count"), |event, _| times_seen(event).into()),
        Column { priority: 1, ..name() },
    ]
}

fn first_seen(event: &Value, now: i64) -> String {
    match since(text(event, "firstTimestamp"), now) {
        unknown if unknown == UNKNOWN => since(text(event, "eventTime"), now),
        known => known,
    }
}

fn last_seen(event: &Value, now: i64) -> String {
    if at(event, "series").is_some() {
        return since(text(event, "series.lastObservedTime"), now);
    }
    match since(text(event, "lastTimestamp"), now) {
        unknown if unknown == UNKNOWN => first_seen(event, now),
        known => known,
    }
}

fn times_seen(event: &Value) -> i64 {
    match at(event, "series") {
        Some(series) => number(series, "count"),
        // An event without a series may have no count, and counts once.
        None => number(event, "count").max(1),
    }
}

fn object(event: &Value) -> String {
    let kind = text(event, "involvedObject.kind").to_lowercase();
    let name = text(event, "involvedObject.name");
    if name.is_empty() { kind } else { format!("{kind}/{name}") }
}

fn source(event: &Value) -> String {
    let first = |older, newer| Some(text(event, older)).filter(|text| !text.is_empty()).unwrap_or(text(event, newer));
    let component = first("source.component", "reportingComponent");
    let instance = first("source.host", "reportingInstance");
    if instance.is_empty() { component.into() } else { format!("{component}, {instance}") }
}

#[cfg(test)]
mod tests {
    use super::columns;
    use crate::kinds::cells::shown;
    use holdfast_value::json;

    #[test]
    fn events() {
        let cases = [
            (
                json!({
                    "metadata": {"name": "web.1"}, "type": "Warning", "reason": "BackOff",
                    "involvedObject": {"kind": "Pod", "name": "web", "fieldPath": "spec.containers{app}"},
                    "source": {"component": "kubelet", "host": "n1"}, "message": " Back-off restarting \n", "count": 7,
                    "firstTimestamp": "2026-01-09T22:00:00Z", "lastTimestamp": "2026-01-09T23:59:00Z",
                }),
                "60s | Warning | BackOff | pod/web | spec.containers{app} | kubelet, n1 | Back-off restarting | 120m | \
                 7 | web.1",
            ),
            (
                json!({
                    "metadata": {"name": "web.2"}, "type": "Normal", "reason": "Scheduled",
                    "involvedObject": {"kind": "Pod", "name": "web"}, "message": "Assigned",
                    "firstTimestamp": null, "lastTimestamp": null, "eventTime": "2026-01-09T23:57:00.000001Z",
                    "reportingComponent": "default-scheduler", "reportingInstance": "s-1", "source": {},
                }),
                "3m | Normal | Scheduled | pod/web |  | default-scheduler, s-1 | Assigned | 3m | 1 | web.2",
            ),
            (
                json!({
                    "metadata": {"name": "n.3"}, "involvedObject": {"kind": "Node"},
                    "eventTime": "2026-01-09T20:00:00.000000Z",
                    "series": {"count": 4, "lastObservedTime": "2026-01-09T23:59:50.000000Z"},
                    "source": {"component": "kubelet"},
                }),
                "10s |  |  | node |  | kubelet |  | 4h | 4 | n.3",
            ),
        ];
        for (event, expected) in cases {
            assert_eq!(shown(&columns(), &event), expected);
        }
    }
}
