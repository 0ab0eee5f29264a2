//! Dumps of the current priority levels, queues and requests, as tables of text.

use super::{Caller, Fairness, Level, QueuedRequest, Wanted};
use holdfast_core::flowcontrol::queues::Request;
use holdfast_core::flowcontrol::{Distinguisher, Moment};
use std::fmt::Write;
use std::sync::Arc;

/// The table that a dump shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dump {
    PriorityLevels,
    Queues,
    Requests { details: bool },
}

/// A dump also shows the unused queues of a level whose index is below this number.
const QUEUES_MAX: u32 = 1024;
/// The start time that the dump shows for a request that has not started.
const NEVER: &str = "0001-01-01T00:00:00Z";

const LEVELS: [&str; 10] = [
    "PriorityLevelName",
    "ActiveQueues",
    "IsIdle",
    "IsQuiescing",
    "WaitingRequests",
    "ExecutingRequests",
    "DispatchedRequests",
    "RejectedRequests",
    "TimedoutRequests",
    "CancelledRequests",
];
const QUEUES: [&str; 9] = [
    "PriorityLevelName",
    "Index",
    "PendingRequests",
    "ExecutingRequests",
    "SeatsInUse",
    "NextDispatchR",
    "InitialSeatsSum",
    "MaxSeatsSum",
    "TotalWorkSum",
];
/// The columns of the table of requests. The name of the fifth column is spelt as in Kubernetes.
const REQUESTS: [&str; 10] = [
    "PriorityLevelName",
    "FlowSchemaName",
    "QueueIndex",
    "RequestIndexInQueue",
    "FlowDistingsher",
    "ArriveTime",
    "InitialSeats",
    "FinalSeats",
    "AdditionalLatency",
    "StartTime",
];
const DETAILS: [&str; 8] =
    ["UserName", "Verb", "APIPath", "Namespace", "Name", "APIVersion", "Resource", "SubResource"];

type Row = Vec<String>;

impl Fairness {
    pub fn dump(&self, what: Dump) -> String {
        let configured = self.configured();
        let levels = configured.levels.values();
        match what {
            Dump::PriorityLevels => table(&[&LEVELS], levels.map(|level| level.row())),
            Dump::Queues => table(&[&QUEUES], levels.flat_map(|level| level.queue_rows())),
            Dump::Requests { details: false } => {
                table(&[&REQUESTS], levels.flat_map(|level| self.request_rows(level, false)))
            }
            Dump::Requests { details: true } => {
                table(&[&REQUESTS, &DETAILS], levels.flat_map(|level| self.request_rows(level, true)))
            }
        }
    }

    fn request_rows(&self, level: &Arc<Level>, details: bool) -> Vec<Row> {
        let inside = level.lock();
        let row =
            |queue: i64, place: i64, request: &Request<QueuedRequest>| self.request_row(queue, place, request, details);
        let mut rows: Vec<Row> = inside.queues.unqueued().map(|request| row(-1, -1, request)).collect();
        for (index, queue) in inside.queues.in_use() {
            rows.extend(queue.waiting().zip(0..).map(|(request, place)| row(index.into(), place, request)));
            rows.extend(queue.executing().map(|request| row(index.into(), -1, request)));
        }
        rows
    }

    fn request_row(&self, queue: i64, place: i64, request: &Request<QueuedRequest>, details: bool) -> Row {
        let Request { work, came, began, about, .. } = request;
        let start = if about.wake.is_some() { NEVER.to_owned() } else { self.time(*began).to_string() };
        let mut row = vec![
            about.flow.level.name.clone(),
            about.flow.schema.clone(),
            queue.to_string(),
            place.to_string(),
            about.distinguisher().to_owned(),
            self.time(*came).to_string(),
            work.initial_seats.to_string(),
            work.final_seats.to_string(),
            milliseconds(work.lingering),
            start,
        ];
        if details {
            row.extend(about.caller.row());
        }
        row
    }
}

impl QueuedRequest {
    fn distinguisher(&self) -> &str {
        match (self.flow.distinguisher, &self.caller.asked) {
            (Distinguisher::User, _) => &self.caller.user.name,
            (Distinguisher::Namespace, Wanted::Resource(path)) => &path.namespace,
            (Distinguisher::Namespace, Wanted::Path(_)) | (Distinguisher::None, _) => "",
        }
    }
}

impl Caller {
    fn row(&self) -> Row {
        let empty = crate::ResourcePath::default();
        let (path, of) = match &self.asked {
            Wanted::Path(path) => (path.clone(), &empty),
            Wanted::Resource(of) => (written(of), &**of),
        };
        let api_version = if of.group.is_empty() { of.version.clone() } else { format!("{}/{}", of.group, of.version) };
        vec![
            self.user.name.clone(),
            self.verb.to_owned(),
            path,
            of.namespace.clone(),
            of.name.clone(),
            api_version,
            of.resource.clone(),
            of.subresource.clone(),
        ]
    }
}

/// The path of a resource as text, as a client would send it.
fn written(path: &crate::ResourcePath) -> String {
    let mut text = if path.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", path.group) };
    let within = if path.within { ["namespaces", &path.namespace] } else { ["", ""] };
    let parts = [&path.version, within[0], within[1], &path.resource, &path.name, &path.subresource, &path.rest];
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        let _ = write!(text, "/{part}");
    }
    text
}

impl Level {
    fn row(&self) -> Row {
        let inside = self.lock();
        let queues = &inside.queues;
        let counts = queues.counts();
        let active = queues.in_use().filter(|(_, queue)| queue.waiting().len() > 0).count();
        vec![
            self.name.clone(),
            active.to_string(),
            queues.is_idle().to_string(),
            inside.quiescing.to_string(),
            queues.waiting().to_string(),
            queues.executing().to_string(),
            counts.dispatched.to_string(),
            counts.rejected.to_string(),
            counts.timed_out.to_string(),
            counts.cancelled.to_string(),
        ]
    }

    fn queue_rows(&self) -> Vec<Row> {
        let inside = self.lock();
        let count = inside.queues.shape().queuing.map_or(0, |queuing| queuing.queues.min(QUEUES_MAX));
        let row = |index: u32, numbers: [u64; 5], next_start: f64, work: f64| {
            let [pending, executing, seats, initial, most] = numbers.map(|number| number.to_string());
            let (next_start, work) = (seat_seconds(next_start), seat_seconds(work));
            vec![self.name.clone(), index.to_string(), pending, executing, seats, next_start, initial, most, work]
        };
        let mut rows = Vec::new();
        let mut shown = 0;
        for (index, queue) in inside.queues.in_use() {
            rows.extend((shown..index.min(count)).map(|index| row(index, [0; 5], 0.0, 0.0)));
            let sum = |seats: fn(&Request<QueuedRequest>) -> u32| {
                queue.waiting().map(|request| u64::from(seats(request))).sum()
            };
            let numbers = [
                queue.waiting().len() as u64,
                queue.executing().count() as u64,
                queue.seats(),
                sum(|request| request.work.initial_seats),
                sum(|request| request.work.seats()),
            ];
            rows.push(row(index, numbers, queue.next_start(), queue.work()));
            shown = index + 1;
        }
        rows.extend((shown..count).map(|index| row(index, [0; 5], 0.0, 0.0)));
        rows
    }
}

fn seat_seconds(seconds: f64) -> String {
    format!("{seconds:.8}ss")
}

/// A duration in Go's format, always in milliseconds.
fn milliseconds(time: Moment) -> String {
    match time {
        0 => "0s".to_owned(),
        time => format!("{}ms", time as f64 / 1e6),
    }
}

/// A table with column names. Each column is as wide as its widest cell.
fn table(names: &[&[&str]], rows: impl Iterator<Item = Row>) -> String {
    const WIDTH_MIN: usize = 8;
    let names: Row = names.concat().into_iter().map(str::to_owned).collect();
    let rows: Vec<Row> = std::iter::once(names).chain(rows).collect();
    // Each cell is followed by a comma and at least one space.
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count() + 2).max().unwrap_or(0).max(WIDTH_MIN);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        for (place, (cell, width)) in row.iter().zip(&widths).enumerate() {
            if place + 1 < row.len() {
                let _ = write!(text, "{:<width$}", format!("{cell},"));
            } else {
                let _ = writeln!(text, "{cell}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let text =
            table(&[&["Name", "ActiveQueues"], &["X"]], [row(["catch-all", "0", ""]), row(["x", "", "y"])].into_iter());
        assert_eq!(text, "Name,      ActiveQueues, X\ncatch-all, 0,            \nx,         ,             y\n");
    }

    #[test]
    fn paths_and_times() {
        let path = crate::ResourcePath {
            group: "apps".into(),
            version: "v1".into(),
            namespace: "a".into(),
            within: true,
            resource: "deployments".into(),
            name: "web".into(),
            subresource: "scale".into(),
            ..Default::default()
        };
        assert_eq!(written(&path), "/apis/apps/v1/namespaces/a/deployments/web/scale");
        let namespace = crate::ResourcePath {
            version: "v1".into(),
            namespace: "a".into(),
            resource: "namespaces".into(),
            name: "a".into(),
            ..Default::default()
        };
        assert_eq!(written(&namespace), "/api/v1/namespaces/a");
        assert_eq!(
            (milliseconds(0), milliseconds(5_000_000), milliseconds(7_500_000)),
            ("0s".into(), "5ms".into(), "7.5ms".into())
        );
        assert_eq!(seat_seconds(0.003), "0.00300000ss");
    }
}
