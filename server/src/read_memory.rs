//! The limit on the memory that reads may use.

use holdfast_engine::read_memory::{BYTES_DEFAULT, BYTES_MIN};

/// By default reads may use the machine's memory divided by this number, but at most [`BYTES_DEFAULT`].
const PART: u64 = 8;

/// Why a value of `--read-memory` is refused.
pub fn fault(bytes: u64) -> Option<String> {
    (bytes < BYTES_MIN).then(|| {
        format!("--read-memory: {bytes} bytes are too few to read large objects: give {}Mi or more", BYTES_MIN >> 20)
    })
}

/// The default limit on this machine, in bytes.
pub fn of_machine() -> u64 {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    part_of(&read("/proc/meminfo"), &read("/sys/fs/cgroup/memory.max"))
}

/// The default limit, from the machine's memory or from the limit of the server's control group, whichever is less.
fn part_of(machine: &str, group: &str) -> u64 {
    let total = machine.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
    let total = total.and_then(|kib| kib.parse::<u64>().ok()).map(|kib| kib.saturating_mul(1024));
    let limit = group.trim().parse().ok();
    match total.into_iter().chain(limit).min() {
        Some(bytes) => (bytes / PART).clamp(BYTES_MIN, BYTES_DEFAULT),
        None => BYTES_DEFAULT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_what_there_is() {
        for (machine, group, expected) in [
            ("", "", 512),
            ("MemTotal:       65536000 kB\n", "max\n", 512),
            ("MemTotal:        2097152 kB\nMemFree: 1 kB\n", "max", 256),
            ("MemTotal:        2097152 kB\n", "1073741824\n", 128),
            ("MemTotal:        131072 kB\n", "", 64),
        ] {
            assert_eq!(part_of(machine, group) >> 20, expected, "{machine} {group}");
        }
    }

    #[test]
    fn too_little_is_refused() {
        assert_eq!(fault(64 << 20), None);
        assert!(fault(1 << 20).is_some_and(|why| why.contains("64Mi")));
    }
}
