//! What those who connect can hold of this server at most, and for how long.
//!
//! The table in docs/SECURITY.md says which test holds which bound.

use std::time::Duration;

/// Bounds of connections. Kubernetes has an option for the streams alone; the others are far above what a cluster uses.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// All of them, from the moment that they are accepted.
    pub connections_max: usize,
    /// So many are kept for those of nobody: whoever has not said yet who it is, the page, and probes.
    pub reserve: usize,
    /// How many of nobody may come from one address; then the newest takes the place of the oldest.
    pub strangers_of_one_max: usize,
    /// How many one user may have.
    pub connections_of_user_max: usize,
    /// Handshakes that are worked on at once; the others wait for their turn, and half of these are one address's at most.
    /// A turn is a step, which what has come from the client suffices for: nobody keeps it by being slow.
    pub handshakes_max: usize,
    /// How long a client may take to say something, and then to shake hands once it is its turn.
    pub handshake: Duration,
    /// How long it may take to send the head of a request, or to begin with HTTP/2.
    pub head: Duration,
    /// How many bytes the head of a request may have.
    pub head_bytes_max: u32,
    /// Requests in progress on one HTTP/2 connection.
    pub streams_max: u32,
    /// How long an HTTP/2 connection may be open without a request.
    pub idle: Duration,
    /// How often an HTTP/2 client is asked whether it is there, and how long it has to say so.
    pub ping_period: Duration,
    pub pong: Duration,
    /// How long a client may leave an answer unread.
    pub unread: Duration,
}

/// An HTTP/2 client may have this many requests in progress on one connection.
pub const STREAMS_MAX: u32 = 250;

/// Handshakes that are worked on at once: so many that no core waits, and so few that others do not wait for them.
pub const HANDSHAKES_MAX: usize = 32;
/// The memory that one connection may take before its first request has said which user it is.
const CONNECTION_BYTES: u64 = 64 << 10;

/// As many connections as the limit of open files leaves, an eighth of which the log and others need, and as a quarter of
/// the memory holds.
pub fn connections_within(files: u64, memory: u64) -> usize {
    let files = files - (files / 8).max(256).min(files);
    let fit = files.min(memory / 4 / CONNECTION_BYTES).max(64);
    usize::try_from(fit).unwrap_or(usize::MAX)
}

impl Bounds {
    /// The bounds that follow from that of all connections.
    pub fn of_connections(connections_max: usize) -> Bounds {
        let half = (connections_max / 2).max(1);
        Bounds {
            connections_max,
            reserve: connections_max / 16,
            strangers_of_one_max: half,
            connections_of_user_max: half,
            ..Bounds::default()
        }
    }
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            connections_max: 10_000,
            reserve: 625,
            strangers_of_one_max: 5_000,
            connections_of_user_max: 5_000,
            handshakes_max: HANDSHAKES_MAX,
            handshake: Duration::from_secs(32),
            head: Duration::from_secs(32),
            head_bytes_max: 256 << 10,
            streams_max: STREAMS_MAX,
            idle: Duration::from_secs(90),
            ping_period: Duration::from_secs(30),
            pong: Duration::from_secs(15),
            unread: Duration::from_secs(60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_follow_from_files_and_memory() {
        for (files, memory, connections) in [
            (20_000, 24 << 30, 17_500),
            (1 << 20, 8 << 30, 32_768),
            (1_024, 8 << 30, 768),
            (0, 0, 64),
            (u64::MAX, u64::MAX, (1 << 46) - 1),
        ] {
            assert_eq!(connections_within(files, memory), connections, "{files} {memory}");
        }
    }
}
