//! The text of a failed call, as Go's library of gRPC writes it.

use std::error::Error;
use std::fmt;
use tonic::{Code, Status};

/// How the message of `tonic` begins for an answer whose HTTP status is not a success.
const OTHER_HTTP_STATUS: &str = "grpc-status header missing, mapped from HTTP status code ";
/// How the message of `tonic` begins for an answer that is too long.
const TOO_LONG: &str = "Error, decoded message length too large: ";

/// Why a call over gRPC failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub code: Code,
    pub message: String,
}

impl Failure {
    pub fn new(code: Code, message: impl fmt::Display) -> Failure {
        Failure { code, message: message.to_string() }
    }

    /// The failure of a call for which no connection to the server could be opened.
    pub fn dialing(why: impl fmt::Display) -> Failure {
        let why = format!("connection error: desc = \"transport: Error while dialing: {why}\"");
        Failure::new(Code::Unavailable, why)
    }

    /// The failure that a status describes. A status has a source if its connection failed. Then the code is
    /// `Unavailable`, and the message is the message of the deepest source. `too_long` is the message for an answer
    /// that is longer than allowed.
    pub fn of(status: &Status, too_long: &str) -> Failure {
        if let Some(cause) = status.source() {
            return Failure::new(Code::Unavailable, innermost(cause));
        }
        let message = status.message();
        if let Some(number) = message.strip_prefix(OTHER_HTTP_STATUS) {
            let message = format!("unexpected HTTP status code received from server: {number}");
            return Failure::new(status.code(), message);
        }
        if message.starts_with(TOO_LONG) {
            return Failure::new(Code::ResourceExhausted, too_long);
        }
        Failure::new(status.code(), message)
    }

    /// The text of the failure, with the name of the method that was called.
    pub fn of_method(&self, method: &str) -> String {
        format!("rpc error: {method}: {}", self.reason())
    }

    fn reason(&self) -> String {
        format!("code = {} desc = {}", code_name(self.code), self.message)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rpc error: {}", self.reason())
    }
}

/// The name of a code in Go. Only `Canceled` differs from the name in Rust, which has one more letter.
pub fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

/// The deepest source of an error, whose text is the most specific.
fn innermost<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest
}

/// An error's text, followed by the texts of its sources.
pub fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        text = format!("{text}: {deeper}");
        cause = deeper.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_call_is_told_as_in_go() {
        let lost = Status::from_error(Box::new(std::io::Error::other("broken pipe")));
        for (status, expected) in [
            (Status::not_found("no key"), "code = NotFound desc = no key"),
            (Status::cancelled(""), "code = Canceled desc = "),
            (lost, "code = Unavailable desc = broken pipe"),
            (
                Status::unavailable(format!("{OTHER_HTTP_STATUS}503")),
                "code = Unavailable desc = unexpected HTTP status code received from server: 503",
            ),
            (Status::out_of_range(format!("{TOO_LONG}found 9")), "code = ResourceExhausted desc = long"),
        ] {
            assert_eq!(Failure::of(&status, "long").to_string(), format!("rpc error: {expected}"));
        }
        let why = "code = Unavailable desc = connection error: desc = \"transport: Error while dialing: no\"";
        assert_eq!(Failure::dialing("no").to_string(), format!("rpc error: {why}"));
    }
}
