//! The kernel's statistics of this process.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use std::fmt::Error;

/// Clock ticks per second in the kernel's statistics. The number is the same on every Linux machine.
const TICKS: f64 = 100.0;

/// Reads the statistics whenever the metrics are requested. Statistics that cannot be read are left out.
#[derive(Debug)]
pub struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), Error> {
        let Some(process) = Process::read() else { return Ok(()) };
        let seconds = ConstCounter::new(process.cpu_seconds);
        let metric = encoder.encode_descriptor(
            "process_cpu_seconds",
            "Time that the process has computed",
            None,
            seconds.metric_type(),
        )?;
        seconds.encode(metric)?;
        for (name, help, value) in [
            ("process_open_fds", "Open files", process.open_files),
            ("process_max_fds", "Files that may be open", process.max_files),
            ("process_virtual_memory_bytes", "Addresses in use", process.virtual_bytes),
            ("process_resident_memory_bytes", "Memory in use", process.resident_bytes),
            ("process_start_time_seconds", "When the process began", process.started),
        ] {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}

struct Process {
    cpu_seconds: f64,
    open_files: f64,
    max_files: f64,
    virtual_bytes: f64,
    resident_bytes: f64,
    /// The time at which the process started, in seconds since 1970.
    started: f64,
}

impl Process {
    fn read() -> Option<Process> {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        // In `/proc/self/stat`, the command's name is in parentheses and may contain any character, so the fields are
        // read from the last parenthesis on.
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let field = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok());
        let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
        let files = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.split_whitespace().next()?.parse::<f64>().ok()? * 1024.0)
        };
        let boot = std::fs::read_to_string("/proc/stat").ok()?;
        let boot: f64 = boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
        Some(Process {
            cpu_seconds: (field(11)? + field(12)?) / TICKS,
            open_files: std::fs::read_dir("/proc/self/fd").ok()?.count() as f64,
            max_files: files.split_whitespace().next()?.parse().unwrap_or(f64::INFINITY),
            virtual_bytes: bytes("VmSize:")?,
            resident_bytes: bytes("VmRSS:")?,
            started: boot + field(19)? / TICKS,
        })
    }
}
