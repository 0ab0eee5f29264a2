//! The CPU time and memory of a process, from `/proc`.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;

/// The server's processes; if the user named none, no usage is shown.
pub struct Processes {
    folders: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessUsage {
    pub processor_time: Duration,
    pub resident_bytes: u64,
    pub resident_bytes_max: u64,
}

/// The unit of process times in `/proc`: a hundredth of a second on every architecture of Linux.
const MILLISECONDS_PER_TICK: u64 = 10;

impl Processes {
    pub fn open(pids: &[u32]) -> anyhow::Result<Self> {
        let processes = Self { folders: pids.iter().map(|pid| PathBuf::from(format!("/proc/{pid}"))).collect() };
        processes.usage()?;
        Ok(processes)
    }

    /// The sum over all processes, or `None` if there are none.
    pub fn usage(&self) -> anyhow::Result<Option<ProcessUsage>> {
        let mut sum = ProcessUsage::default();
        for folder in &self.folders {
            let read = |name: &str| {
                let path = folder.join(name);
                fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
            };
            sum.processor_time += processor_time(&read("stat")?).context("unknown form of /proc/PID/stat")?;
            let status = read("status")?;
            sum.resident_bytes += memory_bytes(&status, "VmRSS:").context("no VmRSS in /proc/PID/status")?;
            sum.resident_bytes_max += memory_bytes(&status, "VmHWM:").context("no VmHWM in /proc/PID/status")?;
        }
        Ok((!self.folders.is_empty()).then_some(sum))
    }

    /// The CPU time since `before`, and the current memory.
    pub fn since(&self, before: Option<ProcessUsage>) -> anyhow::Result<Option<ProcessUsage>> {
        let (Some(before), Some(now)) = (before, self.usage()?) else { return Ok(None) };
        Ok(Some(ProcessUsage { processor_time: now.processor_time.saturating_sub(before.processor_time), ..now }))
    }
}

/// The sum of user and system time, fields 14 and 15. The command name before them may contain spaces and parentheses.
fn processor_time(stat: &str) -> Option<Duration> {
    let after_name = &stat[stat.rfind(')')? + 1..];
    let mut fields = after_name.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Duration::from_millis((user + system) * MILLISECONDS_PER_TICK))
}

fn memory_bytes(status: &str, label: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(label))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_found_behind_an_awkward_name() {
        let stat = "42 (a) b (c)) S 1 42 42 0 -1 4194560 100 0 0 0 250 150 9 9 20 0 5 0 100 0 0";
        assert_eq!(processor_time(stat), Some(Duration::from_millis(4_000)));
        assert_eq!(processor_time("42 (short) S 1"), None);
    }

    #[test]
    fn memory_lines() {
        let status = "Name:\tx\nVmHWM:\t   2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!(memory_bytes(status, "VmRSS:"), Some(1 << 20));
        assert_eq!(memory_bytes(status, "VmHWM:"), Some(2 << 20));
        assert_eq!(memory_bytes(status, "VmSwap:"), None);
    }

    #[test]
    fn several_processes_add_up() {
        let me = std::process::id();
        let one = Processes::open(&[me]).unwrap().usage().unwrap().unwrap();
        let two = Processes::open(&[me, me]).unwrap().usage().unwrap().unwrap();
        assert!(one.resident_bytes > 0);
        assert!(two.resident_bytes > one.resident_bytes);
        assert_eq!(Processes::open(&[]).unwrap().usage().unwrap(), None);
        assert!(Processes::open(&[u32::MAX]).is_err());
    }
}
