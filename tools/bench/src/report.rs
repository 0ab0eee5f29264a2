//! The results as rows: a table for people, JSON for programs.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use crate::load::Tally;
use crate::process::ProcessUsage;

#[derive(Debug, Serialize)]
pub struct Report {
    pub server: String,
    pub rows: Vec<ReportRow>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportRow {
    pub operation: &'static str,
    pub count: u64,
    pub errors: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub errors_text: String,
    pub elapsed_seconds: f64,
    pub rate_per_second: f64,
    pub p50_milliseconds: f64,
    pub p99_milliseconds: f64,
    pub body_megabytes: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerCost>,
    /// Whether to show the cost per megabyte rather than per operation.
    #[serde(skip)]
    pub show_cost_per_megabyte: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerCost {
    pub processor_milliseconds: f64,
    pub processor_milliseconds_per_operation: f64,
    pub processor_milliseconds_per_megabyte: f64,
    pub resident_mebibytes: f64,
    pub resident_mebibytes_max: f64,
}

impl ReportRow {
    pub fn new(operation: &'static str, tally: &Tally, usage: Option<ProcessUsage>) -> Self {
        let quantile = |quantile| tally.latencies.value_at_quantile(quantile) as f64 / 1_000.0;
        let body_megabytes = tally.body_bytes as f64 / 1e6;
        Self {
            operation,
            count: tally.count(),
            errors: tally.errors(),
            errors_text: tally.errors_text(),
            elapsed_seconds: tally.elapsed.as_secs_f64(),
            rate_per_second: ratio(tally.count() as f64, tally.elapsed.as_secs_f64()),
            p50_milliseconds: quantile(0.5),
            p99_milliseconds: quantile(0.99),
            body_megabytes,
            server: usage.map(|usage| ServerCost::new(&usage, tally.count(), body_megabytes)),
            show_cost_per_megabyte: false,
        }
    }
}

impl ServerCost {
    fn new(usage: &ProcessUsage, count: u64, body_megabytes: f64) -> Self {
        let milliseconds = usage.processor_time.as_nanos() as f64 / Duration::from_millis(1).as_nanos() as f64;
        let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        Self {
            processor_milliseconds: milliseconds,
            processor_milliseconds_per_operation: ratio(milliseconds, count as f64),
            processor_milliseconds_per_megabyte: ratio(milliseconds, body_megabytes),
            resident_mebibytes: mebibytes(usage.resident_bytes),
            resident_mebibytes_max: mebibytes(usage.resident_bytes_max),
        }
    }
}

fn ratio(dividend: f64, divisor: f64) -> f64 {
    if divisor > 0.0 { dividend / divisor } else { 0.0 }
}

const HEADINGS: [&str; 10] =
    ["operation", "count", "errors", "rate/s", "p50 ms", "p99 ms", "CPU ms/op", "CPU ms/MB", "RSS MiB", "peak MiB"];

impl Report {
    pub fn json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("rows hold only plain values");
        text.push('\n');
        text
    }

    pub fn table(&self) -> String {
        let with_server = self.rows.iter().any(|row| row.server.is_some());
        let columns = if with_server { HEADINGS.len() } else { 6 };
        let mut lines: Vec<Vec<String>> =
            vec![HEADINGS.iter().take(columns).map(|heading| heading.to_string()).collect()];
        lines.extend(self.rows.iter().map(|row| row.cells(columns)));
        let widths: Vec<usize> = (0..columns)
            .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default())
            .collect();
        let mut text = format!("{}\n", self.server);
        for line in &lines {
            let mut padded = format!("{:<width$}", line[0], width = widths[0]);
            for (cell, width) in line.iter().zip(&widths).skip(1) {
                let _ = write!(padded, "  {cell:>width$}");
            }
            text.push_str(padded.trim_end());
            text.push('\n');
        }
        for row in self.rows.iter().filter(|row| row.errors > 0) {
            // A server's error text may contain anything.
            let _ = writeln!(text, "{}: {}", row.operation, row.errors_text.escape_debug());
        }
        text
    }
}

impl ReportRow {
    fn cells(&self, columns: usize) -> Vec<String> {
        let mut cells = vec![
            self.operation.to_owned(),
            self.count.to_string(),
            self.errors.to_string(),
            format!("{:.0}", self.rate_per_second),
            format!("{:.2}", self.p50_milliseconds),
            format!("{:.2}", self.p99_milliseconds),
        ];
        if let Some(cost) = &self.server {
            cells.push(format!("{:.4}", cost.processor_milliseconds_per_operation));
            let per_megabyte = format!("{:.3}", cost.processor_milliseconds_per_megabyte);
            cells.push(if self.show_cost_per_megabyte { per_megabyte } else { String::new() });
            cells.push(format!("{:.1}", cost.resident_mebibytes));
            cells.push(format!("{:.1}", cost.resident_mebibytes_max));
        }
        cells.resize(columns, String::new());
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(count: u64, bytes_each: u64) -> Tally {
        let mut tally = Tally { elapsed: Duration::from_secs(2), ..Tally::default() };
        (0..count).for_each(|_| tally.succeeded(Duration::from_millis(4), bytes_each));
        tally
    }

    fn usage(milliseconds: u64) -> ProcessUsage {
        let processor_time = Duration::from_millis(milliseconds);
        ProcessUsage { processor_time, resident_bytes: 3 << 20, resident_bytes_max: 5 << 20 }
    }

    #[test]
    fn costs_are_per_operation_and_per_megabyte() {
        let row = ReportRow::new("list", &tally(10, 500_000), Some(usage(40)));
        assert_eq!(row.rate_per_second, 5.0);
        let cost = row.server.unwrap();
        assert_eq!(cost.processor_milliseconds_per_operation, 4.0);
        assert_eq!(cost.processor_milliseconds_per_megabyte, 8.0);
        assert_eq!((cost.resident_mebibytes, cost.resident_mebibytes_max), (3.0, 5.0));
    }

    #[test]
    fn nothing_done_divides_nothing_by_zero() {
        let row = ReportRow::new("get", &Tally::default(), Some(usage(10)));
        assert_eq!(row.rate_per_second, 0.0);
        assert_eq!(row.server.unwrap().processor_milliseconds_per_operation, 0.0);
    }

    #[test]
    fn the_table_lines_up_and_tells_errors() {
        let mut failing = tally(3, 100);
        failing.failures.insert("HTTP 409 Conflict".into(), 2);
        let mut list = ReportRow::new("list", &tally(10, 500_000), Some(usage(40)));
        list.show_cost_per_megabyte = true;
        let report = Report {
            server: "https://h:1".into(),
            rows: vec![ReportRow::new("merge-patch", &failing, Some(usage(3))), list],
        };
        let expected = "\
https://h:1
operation    count  errors  rate/s  p50 ms  p99 ms  CPU ms/op  CPU ms/MB  RSS MiB  peak MiB
merge-patch      3       2       2    4.00    4.00     1.0000                 3.0       5.0
list            10       0       5    4.00    4.00     4.0000      8.000      3.0       5.0
merge-patch: 2 × HTTP 409 Conflict
";
        assert_eq!(report.table(), expected);
        let json: holdfast_value::Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(json["rows"][0]["errors"], 2);
        assert_eq!(json["rows"][1]["server"]["processorMillisecondsPerMegabyte"], 8.0);
    }
}
