//! Converts a moment (a version or a time) to a version of a log.

use crate::log::{Fault, LogRead};
use holdfast_core::event::Offset;
use holdfast_core::history::moment::{Moment, version_at};

/// The reason why a log has no version for a moment.
#[derive(Debug, thiserror::Error)]
pub enum Unknown {
    #[error("version {asked} is in the future: the newest one is {newest}")]
    Future { asked: Offset, newest: Offset },
    #[error("version {asked} is no longer in the history: the oldest one is {oldest}; name that or a later one")]
    LetGo { asked: Offset, oldest: Offset },
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// Returns the version that the log had at a moment.
pub fn resolve(log: &dyn LogRead, moment: Moment) -> Result<Offset, Unknown> {
    let (newest, oldest) = (log.last()?, log.oldest()?);
    let asked = match moment {
        Moment::Version(asked) if asked > newest => return Err(Unknown::Future { asked, newest }),
        Moment::Version(asked) => asked,
        Moment::Time(time) => at_time(log, time.as_millisecond(), newest)?,
    };
    if asked < oldest {
        return Err(Unknown::LetGo { asked, oldest });
    }
    Ok(asked)
}

/// The version just before the first event later than `time_ms`.
pub fn at_time(log: &dyn LogRead, time_ms: i64, newest: Offset) -> Result<Offset, Fault> {
    version_at(time_ms, newest, |offset| log.next_time(Offset(offset.0.saturating_sub(1))))
}
