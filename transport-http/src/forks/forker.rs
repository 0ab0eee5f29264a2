//! Makes forks on the disk. The program that opened the log implements [`Forker`].

use holdfast_core::Refusal;
use holdfast_core::event::Offset;
use holdfast_core::history::moment::Moment;
use holdfast_core::refusal::{BadRequest, Expired, ForkFault, Internal};
use holdfast_engine::moment::Unknown;
use std::path::Path;

/// Makes forks of the engine's log on the disk. The call blocks the thread while it links the log's files.
pub trait Forker: Send + Sync + 'static {
    /// Makes a fork in a folder that is new or empty. If `at` is `None`, the fork begins with the newest version.
    fn fork(&self, at: Option<Moment>, folder: &Path) -> Result<Forked, Unmade>;
}

/// The identity of a fork that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forked {
    /// The name of the new log.
    pub id: String,
    /// The last event that the original log and the new log share.
    pub version: Offset,
}

/// The reason why no fork was made. The files of the unfinished fork are removed.
#[derive(Debug)]
pub enum Unmade {
    Moment(Unknown),
    /// An error that the caller can correct.
    Folder(String),
    Failed(String),
}

impl From<Unmade> for Refusal {
    fn from(unmade: Unmade) -> Refusal {
        match unmade {
            Unmade::Moment(unknown @ Unknown::LetGo { .. }) => {
                Refusal::Expired(Expired::Forgotten(unknown.to_string()))
            }
            Unmade::Moment(Unknown::Fault(fault)) => Refusal::fault(fault),
            Unmade::Moment(unknown @ Unknown::Future { .. }) => {
                Refusal::BadRequest(BadRequest::Undecodable(unknown.to_string()))
            }
            Unmade::Folder(why) => Refusal::BadRequest(BadRequest::Fork(ForkFault::Folder(why))),
            Unmade::Failed(why) => Refusal::Internal(Internal::Fault(why)),
        }
    }
}
