//! Errors that a client makes, each with the part of the connection that cannot continue.

use crate::reason::Reason;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The connection cannot continue.
    Connection { reason: Reason, why: &'static str },
    /// The stream cannot continue; other streams can.
    Stream { number: u32, reason: Reason, why: &'static str },
}

impl Fault {
    pub fn connection(reason: Reason, why: &'static str) -> Fault {
        Fault::Connection { reason, why }
    }

    pub fn stream(number: u32, reason: Reason, why: &'static str) -> Fault {
        Fault::Stream { number, reason, why }
    }

    #[cfg(test)]
    pub fn reason(self) -> Reason {
        match self {
            Fault::Connection { reason, .. } | Fault::Stream { reason, .. } => reason,
        }
    }
}
