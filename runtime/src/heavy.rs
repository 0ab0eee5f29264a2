//! Work that takes so long that others must not wait for it.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Does work that may take seconds. The tasks that share its thread go on meanwhile, on another one: requests are
/// answered while controllers come to know a large cluster.
pub fn heavy<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        // There is only this thread.
        _ => work(),
    }
}
