//! Reports the free room on the log's disk in metrics, and fails the readiness check before writes are refused.

use futures_util::future::{BoxFuture, FutureExt};
use holdfast_component::values::parse_bytes;
use holdfast_service::Meter;
use holdfast_storage_rocks::{RocksLog, Standing};
use holdfast_transport_http::HealthCheck;
use std::sync::Arc;

/// The server is not ready if the free room is less than this many times the room at which most writes are refused.
const MARKS: u64 = 2;

#[derive(clap::Args, Debug, Clone)]
#[group(skip)]
pub struct DiskArgs {
    /// Size of a file that reserves disk space in the data folder, so that the server can start and delete objects when
    /// the disk is full. The file takes at most a quarter of the free space; 0 turns it off. With the file, most writes
    /// are refused and the oldest history is removed while less than 32 MiB (on a small disk: an eighth of the disk)
    /// are free.
    #[arg(long, default_value = "64Mi", value_parser = parse_bytes, value_name = "SIZE")]
    pub disk_reserve: u64,
}

struct Room(Arc<RocksLog>);

impl HealthCheck for Room {
    fn name(&self) -> &str {
        "disk-room"
    }

    fn check(&self) -> BoxFuture<'_, Result<(), String>> {
        let log = self.0.clone();
        async move {
            // The disk may be slow to answer, so its free room is read on a blocking thread.
            tokio::task::spawn_blocking(move || judge(log.standing())).await.unwrap_or(Ok(()))
        }
        .boxed()
    }
}

fn judge(standing: Standing) -> Result<(), String> {
    let Standing { free_bytes, mark_bytes, is_little, .. } = standing;
    let (free, mark) = (free_bytes >> 20, mark_bytes >> 20);
    match (is_little, free_bytes < MARKS * mark_bytes) {
        (true, _) => Err(format!("the disk under the log is full but for {free} MiB: most writes are refused")),
        (_, true) => {
            Err(format!("the disk under the log has {free} MiB left; below {mark} MiB most writes are refused"))
        }
        _ => Ok(()),
    }
}

pub fn check(log: &Arc<RocksLog>) -> Arc<dyn HealthCheck> {
    Arc::new(Room(log.clone()))
}

pub fn meter(log: &Arc<RocksLog>) -> Meter {
    let log = log.clone();
    Arc::new(move || metrics(log.standing()))
}

fn metrics(standing: Standing) -> String {
    let Standing { free_bytes, reserve_bytes, mark_bytes, is_short, .. } = standing;
    let mut text = String::new();
    for (name, help, value) in [
        ("free_bytes", "Room on the disk under the log", free_bytes),
        ("reserve_bytes", "Room that is kept aside for deletes and for the next start", reserve_bytes),
        ("mark_bytes", "Most writes are refused when less room is left", mark_bytes),
        ("writes_refused", "1 while the disk is so full that writes are refused", u64::from(is_short)),
    ] {
        let name = format!("holdfast_disk_{name}");
        text += &format!("# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_becomes_full_is_told_of_before() {
        let standing = |free_mib: u64, is_little| Standing {
            free_bytes: free_mib << 20,
            reserve_bytes: 64 << 20,
            mark_bytes: 32 << 20,
            is_little,
            is_short: is_little,
        };
        for (free, is_little, expected) in
            [(64, false, ""), (63, false, "has 63 MiB left; below 32 MiB"), (31, true, "full but for 31 MiB")]
        {
            let told = judge(standing(free, is_little)).err().unwrap_or_default();
            assert!(told.contains(expected) && told.is_empty() == expected.is_empty(), "{free}: {told}");
        }
        let text = metrics(standing(31, true));
        assert!(text.contains("\nholdfast_disk_free_bytes 32505856\n"), "{text}");
        assert!(text.ends_with("holdfast_disk_writes_refused 1\n"), "{text}");
    }
}
