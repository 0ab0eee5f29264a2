//! Watches the free room on the disk of the log, and keeps a reserve of room for the writes that must succeed on a full
//! disk.
//!
//! The reserve is a file that occupies room, so that no other program gets it. It is made when the log is opened. When
//! the disk is nearly full, writes to the namespaces that fill it are refused; when the disk is full, most writes are
//! refused. Then the file shrinks step by step for the writes that are still allowed: deletes, forgetting history, and
//! opening the log after a crash. The file grows again when there is room.

use holdfast_engine::log::Lack;
use holdfast_files::check;
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const NAME: &str = "reserve";
/// If less room than this mark is free, most writes are refused, because data in memory has yet to be written to
/// tables.
const MARK_BYTES: u64 = 32 << 20;
/// If the free room exceeds the mark by less than the mark divided by this number, writes to the namespaces that fill
/// the disk are refused.
const SOON_PART: u64 = 2;
/// On a small disk the mark is the size of the disk divided by this number.
const MARK_PART: u64 = 8;
/// When the reserve is made, it takes at most the free room divided by this number, or `RESERVE_BYTES_MIN` if that is
/// more.
const RESERVE_PART: u64 = 4;
/// The reserve may take this many bytes even if less room is free at the start, because room may become free later.
const RESERVE_BYTES_MIN: u64 = 8 << 20;
/// The reserve grows and shrinks in multiples of this number of bytes.
const STEP_BYTES: u64 = 1 << 20;
/// The reserve divided by this number is only for opening the log after a crash, because without this room the server
/// cannot start.
const LAST_PART: u64 = 4;
/// The additional room that each write needs for the data of the file system.
const WRITE_BYTES: u64 = 4096;
/// The number of copies of a write: one in the write-ahead log, and later one in a table.
const COPIES: u64 = 2;
/// The disk is checked again after at most this many written bytes.
const LOOK_BYTES: u64 = 64 << 20;
/// The duration of one wait of a write that makes room, during which other work may free room.
const WAIT: Duration = Duration::from_millis(100);
/// The maximum number of waits of one write that makes room.
const WAITS: usize = 30;

/// The size of the reserve that a log is opened with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserve {
    /// The size that an earlier server has left. Writes are refused only when there is no room at all.
    AsItIs,
    Bytes(u64),
}

#[derive(Debug)]
pub struct DiskReserve {
    folder: PathBuf,
    /// The configured size of the reserve. If it is zero, writes are accepted until there is no room at all.
    wanted: u64,
    mark: u64,
    /// The size of the reserve in bytes. A thread that needs both this lock and the lock of the store must take the
    /// lock of the store first.
    reserve: Mutex<u64>,
    is_little: AtomicBool,
    free: AtomicU64,
    /// The number of bytes that may be written before the disk is checked again.
    unlooked: AtomicI64,
    /// Notifies waiting writes that room was freed.
    made: Condvar,
}

/// The state of the disk on which the log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    pub free_bytes: u64,
    pub reserve_bytes: u64,
    /// If less room than this number of bytes is free, most writes are refused.
    pub mark_bytes: u64,
    pub is_little: bool,
    /// Whether writes to the namespaces that fill the disk are refused, because room is or will soon be short.
    pub is_short: bool,
}

impl DiskReserve {
    pub fn open(folder: &Path, reserve: Reserve) -> Result<DiskReserve> {
        check(&folder.join(NAME))?;
        let there = std::fs::symlink_metadata(folder.join(NAME)).map_or(0, |file| file.len());
        let system = statvfs(folder)?;
        let (free, whole) = (system.f_bavail * system.f_frsize, system.f_blocks * system.f_frsize);
        let wanted = match reserve {
            Reserve::AsItIs => 0,
            Reserve::Bytes(bytes) => {
                let part = ((free + there) / RESERVE_PART).max(there).max(RESERVE_BYTES_MIN);
                bytes.min(part).min(whole / RESERVE_PART)
            }
        };
        let room = DiskReserve {
            folder: folder.to_owned(),
            wanted,
            mark: if wanted == 0 { 0 } else { MARK_BYTES.min(whole / MARK_PART) },
            reserve: Mutex::new(there),
            is_little: AtomicBool::new(false),
            free: AtomicU64::new(free),
            unlooked: AtomicI64::new(0),
            made: Condvar::new(),
        };
        if reserve == Reserve::Bytes(0) && there > 0 {
            room.resize(&mut room.reserve(), 0)?;
        }
        Ok(room)
    }

    pub fn standing(&self) -> Standing {
        let free_bytes = self.free_bytes();
        let is_little = self.is_little.load(Ordering::Relaxed);
        let is_short = is_little || self.left_for_others(free_bytes).is_some();
        Standing { free_bytes, reserve_bytes: *self.reserve(), mark_bytes: self.mark, is_little, is_short }
    }

    /// Why an ordinary write of `bytes` bytes does not fit on the disk; `None` if it fits. Must not be called for
    /// writes that free space.
    pub fn lacks(&self, bytes: u64) -> Option<Lack> {
        if self.wanted == 0 {
            return None;
        }
        let cost = bytes.saturating_add(WRITE_BYTES).saturating_mul(COPIES);
        let cost = i64::try_from(cost).unwrap_or(i64::MAX);
        let left = self.unlooked.fetch_sub(cost, Ordering::Relaxed);
        if left >= cost && !self.is_little.load(Ordering::Relaxed) {
            return None;
        }
        self.settle(cost.unsigned_abs());
        let free = self.free.load(Ordering::Relaxed);
        let told = || {
            let (free, mark, kept) = (mebibytes(free), mebibytes(self.mark), mebibytes(*self.reserve()));
            format!(
                "the disk under the log is full but for {free} MiB (most writes are refused below {mark} MiB) and {kept} \
                 MiB that --disk-reserve keeps aside"
            )
        };
        if self.is_little.load(Ordering::Relaxed) {
            let why = "only deletes, other writes that make room and renewals of Leases are accepted while old history \
                       is removed";
            return Some(Lack::Now { why: format!("{}: {why}", told()) });
        }
        self.left_for_others(free).map(|left| Lack::Soon { left, why: told() })
    }

    /// Whether writes to the namespaces that fill the disk are refused, because room is or will soon be short.
    pub fn is_short(&self) -> bool {
        self.settle(0);
        let free = self.free.load(Ordering::Relaxed);
        self.is_little.load(Ordering::Relaxed) || self.left_for_others(free).is_some()
    }

    /// The free room above the mark, in thousandths of the room in which only writes to the namespaces that fill the
    /// disk are refused. Returns `None` if there is more free room, so that no write is refused.
    fn left_for_others(&self, free: u64) -> Option<u64> {
        let part = self.mark / SOON_PART;
        let left = free.saturating_sub(self.mark);
        (left < part).then(|| left * 1000 / part)
    }

    /// Checks whether a write that takes `cost` bytes leaves enough room on the disk. If there is more room than
    /// enough, the reserve grows first.
    pub fn settle(&self, cost: u64) {
        if self.wanted == 0 {
            return;
        }
        let mut reserve = self.reserve();
        let free = self.free_bytes();
        let was_little = self.is_little.load(Ordering::Relaxed);
        // The state of too little room ends only when there is somewhat more room than when it began, so that it does
        // not change with each write.
        let enough = self.mark.saturating_add(self.mark / SOON_PART).saturating_add(cost);
        // Room beyond `enough` is added to the reserve first, because the next start needs the reserve before writes
        // may continue.
        let missing = self.wanted.saturating_sub(*reserve);
        let more = missing.min(free.saturating_sub(enough) / STEP_BYTES * STEP_BYTES);
        let mut is_little = match was_little {
            true => free < enough || *reserve + more < self.wanted / LAST_PART,
            false => free < self.mark.saturating_add(cost),
        };
        if more > 0 {
            let larger = *reserve + more;
            is_little |= self.resize(&mut reserve, larger).is_err_and(|error| is_full(&error));
        }
        drop(reserve);
        self.is_little.store(is_little, Ordering::Relaxed);
        let unlooked = (self.free_bytes().saturating_sub(self.mark + self.mark / SOON_PART) / COPIES).min(LOOK_BYTES);
        self.unlooked.store(i64::try_from(unlooked).unwrap_or(0), Ordering::Relaxed);
    }

    /// Makes room for `bytes` bytes and for the data in memory, from the reserve if necessary. Waits a little for other
    /// work to free room. Returns `false` if there is not enough room after the wait.
    pub fn take(&self, bytes: u64, in_memory: impl Fn() -> u64) -> bool {
        let cost = bytes.saturating_add(WRITE_BYTES).saturating_mul(COPIES);
        for _ in 0..WAITS {
            // The number is computed before the reserve is locked, because a thread that reopens the store holds the
            // lock of the store and then locks the reserve.
            let needed = cost.saturating_add(in_memory());
            let mut reserve = self.reserve();
            if self.give(&mut reserve, needed, self.wanted / LAST_PART) {
                return true;
            }
            drop(self.made.wait_timeout(reserve, WAIT).unwrap_or_else(PoisonError::into_inner));
        }
        false
    }

    /// Whether `bytes` bytes are free in addition to the reserve, with enough room left for other writes.
    pub fn is_there(&self, bytes: u64) -> bool {
        self.free_bytes() >= bytes.saturating_add(self.mark / 4)
    }

    /// The maximum number of bytes that a compaction may write, including room that the reserve can spare.
    pub fn most_to_compact(&self) -> u64 {
        let spare = self.reserve().saturating_sub(self.wanted / LAST_PART);
        self.free_bytes().saturating_add(spare).saturating_sub(self.mark / 4)
    }

    /// Makes room for a compaction that writes `bytes` bytes.
    pub fn take_to_compact(&self, bytes: u64) -> bool {
        self.take_now(bytes.saturating_add(self.mark / 4))
    }

    /// Makes room for `bytes` bytes without waiting, from the reserve if necessary.
    pub fn take_now(&self, bytes: u64) -> bool {
        self.give(&mut self.reserve(), bytes, self.wanted / LAST_PART)
    }

    /// Like [`Self::take_now`], but for opening the log, which may use the whole reserve.
    pub fn take_to_open(&self, bytes: u64) -> bool {
        self.give(&mut self.reserve(), bytes, 0)
    }

    fn give(&self, reserve: &mut u64, cost: u64, last: u64) -> bool {
        // The mark is added to the cost, because the data in memory also need room.
        let wanted = cost.saturating_add(self.mark);
        let free = self.free_bytes();
        if free < wanted && *reserve > last {
            let step = (wanted - free).checked_next_multiple_of(STEP_BYTES).unwrap_or(u64::MAX);
            let smaller = reserve.saturating_sub(step).max(last);
            let _ = self.resize(reserve, smaller);
        }
        self.free_bytes() >= cost
    }

    /// Wakes the writes that wait for room.
    pub fn wake_waiters(&self) {
        self.made.notify_all();
    }

    fn free_bytes(&self) -> u64 {
        let free = statvfs(&self.folder).map_or(u64::MAX, |system| system.f_bavail * system.f_frsize);
        self.free.store(free, Ordering::Relaxed);
        free
    }

    fn resize(&self, reserve: &mut u64, bytes: u64) -> Result<()> {
        let path = self.folder.join(NAME);
        let before = *reserve;
        let resized = if bytes == 0 { std::fs::remove_file(&path) } else { fill(&path, bytes) };
        *reserve = std::fs::symlink_metadata(&path).map_or(0, |file| file.len());
        match resized {
            Err(error) if bytes > 0 => {
                let _ = match before {
                    0 => std::fs::remove_file(&path),
                    _ => OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(before)),
                };
                *reserve = before;
                Err(error)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            resized => resized,
        }
    }

    fn reserve(&self) -> MutexGuard<'_, u64> {
        self.reserve.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes a file that occupies `bytes` bytes on the disk.
fn fill(path: &Path, bytes: u64) -> Result<()> {
    let no_follow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let mut options = OpenOptions::new();
    let mut file = options.create(true).write(true).truncate(false).mode(0o600).custom_flags(no_follow).open(path)?;
    let there = file.metadata()?.len();
    if there > bytes {
        return file.set_len(bytes);
    }
    match fallocate(&file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) => Ok(()),
        Err(error) if is_full(&error.into()) => Err(error.into()),
        // The file system cannot allocate room in advance, so the file is written instead.
        Err(_) => write_over(&mut file, bytes),
    }
}

fn is_full(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
}

fn write_over(file: &mut File, bytes: u64) -> Result<()> {
    let piece = vec![0; 1 << 20];
    for _ in 0..bytes.div_ceil(piece.len() as u64) {
        file.write_all(&piece)?;
    }
    file.sync_data()
}

fn mebibytes(bytes: u64) -> u64 {
    bytes >> 20
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_kept_aside_and_given_up_step_by_step() {
        let folder = tempfile::tempdir().expect("a folder");
        let size = || std::fs::metadata(folder.path().join(NAME)).map_or(0, |file| file.len());
        let room = DiskReserve::open(folder.path(), Reserve::Bytes(8 << 20)).expect("room");
        room.settle(0);
        let standing = room.standing();
        assert_eq!((size(), standing.reserve_bytes, standing.is_little), (8 << 20, 8 << 20, false));
        assert_eq!(room.lacks(1000), None);

        // A write larger than the known free room checks the disk first, and finds too little room.
        let huge = standing.free_bytes;
        let Some(Lack::Now { why }) = room.lacks(huge) else { panic!("too little") };
        assert!(why.contains("--disk-reserve") && why.contains("disk under the log is full"), "{why}");
        assert!(!room.take_now(u64::MAX / 4) && size() == 2 << 20, "the last part is for the next start");
        assert!(!room.take_to_open(u64::MAX / 4) && size() == 0);
        room.settle(0);
        assert_eq!((size(), room.lacks(1000)), (8 << 20, None), "there is room again");

        // A server with `AsItIs` keeps the existing reserve, and a server without a reserve removes it.
        let found = DiskReserve::open(folder.path(), Reserve::AsItIs).expect("room");
        assert_eq!((found.standing().reserve_bytes, found.lacks(huge)), (8 << 20, None));
        let none = DiskReserve::open(folder.path(), Reserve::Bytes(0)).expect("room");
        assert_eq!((size(), none.left_for_others(0)), (0, None));

        let mark = room.mark;
        let left = [mark - 1, mark, mark + mark / 4, mark + mark / 2 - 1, mark + mark / 2];
        assert_eq!(left.map(|free| room.left_for_others(free)), [Some(0), Some(0), Some(500), Some(999), None]);
    }
}
