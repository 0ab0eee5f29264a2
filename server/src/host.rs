//! The name of the machine on which this process runs.

use holdfast_core::presence;

/// This machine's host name, or an empty text if it has none.
pub fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// The hash of the server's id, which metrics show as a label.
pub fn server_id_hash() -> String {
    presence::server_id_hash(&host_name())
}
