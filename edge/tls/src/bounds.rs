//! Limits on the resources that connections use, and on how long they use them.
//!
//! The table in docs/SECURITY.md lists the test of each bound.

use std::time::Duration;

/// Bounds of connections. Kubernetes has an option only for the number of streams. The other bounds are far above the
/// needs of a cluster.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// The maximum number of connections, counted from their acceptance.
    pub connections_max: usize,
    /// How many connections are reserved for clients without a known user: new clients and probes.
    pub reserve: usize,
    /// The maximum number of connections without a known user from one address. Above this number, the newest
    /// connection replaces the oldest.
    pub strangers_of_one_max: usize,
    /// The maximum number of connections of one user.
    pub connections_of_user_max: usize,
    /// The maximum number of handshakes in progress at once. Other handshakes wait for their turn, and one address has
    /// at most half of the turns. A turn is one step of a handshake for which the client's bytes have already arrived,
    /// so a slow client does not occupy it.
    pub handshakes_max: usize,
    /// How long a client may take to send its first byte, and then to finish the handshake once its turn has begun.
    pub handshake: Duration,
    /// How long a client may take to send the head of a request, or to begin HTTP/2.
    pub head: Duration,
    /// The maximum number of bytes in the head of a request.
    pub head_bytes_max: u32,
    /// The maximum number of requests in progress on one HTTP/2 connection.
    pub streams_max: u32,
    /// How long an HTTP/2 connection may be open without a request.
    pub idle: Duration,
    /// The interval between pings of an HTTP/2 client.
    pub ping_period: Duration,
    /// How long an HTTP/2 client may take to answer a ping.
    pub pong: Duration,
    /// How long a client may leave a response unread.
    pub unread: Duration,
}

/// The default number of requests in progress on one HTTP/2 connection.
pub const STREAMS_MAX: u32 = 250;

/// The maximum number of handshakes in progress. The number is large enough to use all cores, and small enough that
/// other work does not wait for handshakes.
pub const HANDSHAKES_MAX: usize = 32;
/// The maximum memory of one connection before its first request has identified the user.
const CONNECTION_BYTES: u64 = 64 << 10;

/// The number of connections that both the limit of open files and the memory allow. An eighth of the files, at least
/// 256, is reserved for the log and other files; connections may use a quarter of the memory.
pub fn connections_within(files: u64, memory: u64) -> usize {
    let files = files - (files / 8).max(256).min(files);
    let fit = files.min(memory / 4 / CONNECTION_BYTES).max(64);
    usize::try_from(fit).unwrap_or(usize::MAX)
}

impl Bounds {
    /// The bounds for a given number of connections.
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
