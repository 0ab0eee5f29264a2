//! The errors of calls, in the wording of Go's client.

use crate::OutboundError;
use bytes::Bytes;
use holdfast_core::refusal::quoted;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use http::response::Parts;
use rustls::CertificateError;
use std::error::Error;
use std::io;

/// Why a connection could not be made, in the wording of Go's client.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct DialError(pub String);

/// The error of a call through the pool.
pub fn of_client(error: hyper_util::client::legacy::Error) -> OutboundError {
    let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
    while let Some(found) = cause {
        if let Some(dial) = found.downcast_ref::<DialError>() {
            return OutboundError::Unanswered(dial.0.clone());
        }
        if let Some(hyper) = found.downcast_ref::<hyper::Error>() {
            return OutboundError::Unanswered(of_hyper(hyper));
        }
        cause = found.source();
    }
    OutboundError::Unanswered(error.to_string())
}

/// The error when the body of an answer ends early.
pub fn of_body(error: OutboundError) -> OutboundError {
    let cause = match error.to_string() {
        // An EOF within a body is unexpected.
        end if end == "EOF" => "unexpected EOF".to_owned(),
        other => other,
    };
    let why = format!("unexpected error when reading response body. Please retry. Original error: {cause}");
    OutboundError::Unanswered(why)
}

pub fn of_hyper(error: &hyper::Error) -> String {
    if error.is_incomplete_message() || error.is_canceled() {
        return "EOF".into();
    }
    let mut last: &(dyn Error + 'static) = error;
    while let Some(source) = last.source() {
        if let Some(io) = source.downcast_ref::<io::Error>() {
            return of_handshake(io);
        }
        last = source;
    }
    if error.is_parse() {
        return format!("net/http: HTTP/1.x transport connection broken: {last}");
    }
    of_text(last.to_string())
}

pub fn of_connect(error: &io::Error) -> String {
    let what = match error.kind() {
        io::ErrorKind::NotFound => "no such file or directory",
        io::ErrorKind::PermissionDenied if error.raw_os_error().is_some() => "permission denied",
        io::ErrorKind::ConnectionRefused => "connection refused",
        io::ErrorKind::ConnectionReset => "connection reset by peer",
        io::ErrorKind::TimedOut => "connection timed out",
        io::ErrorKind::HostUnreachable => "no route to host",
        io::ErrorKind::NetworkUnreachable => "network is unreachable",
        io::ErrorKind::AddrNotAvailable => "cannot assign requested address",
        _ => return format!("connect: {error}"),
    };
    format!("connect: {what}")
}

/// The error of a failed TLS handshake, or of a broken connection.
pub fn of_handshake(error: &io::Error) -> String {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(error) => of_tls(error),
        None => match error.kind() {
            io::ErrorKind::UnexpectedEof => "EOF".into(),
            io::ErrorKind::ConnectionReset => "read: connection reset by peer".into(),
            io::ErrorKind::BrokenPipe => "write: broken pipe".into(),
            _ => of_text(error.to_string()),
        },
    }
}

fn of_tls(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(error) => {
            format!("tls: failed to verify certificate: x509: {}", of_certificate(error))
        }
        rustls::Error::AlertReceived(alert) => of_alert(&format!("{alert:?}")),
        rustls::Error::InvalidMessage(_) => "tls: first record does not look like a TLS handshake".into(),
        other => format!("tls: {other}"),
    }
}

fn of_certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "certificate signed by unknown authority".into()
        }
        CertificateError::Expired
        | CertificateError::NotValidYet
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYetContext { .. } => "certificate has expired or is not yet valid".into(),
        CertificateError::NotValidForNameContext { expected, presented } if presented.is_empty() => {
            format!("certificate is not valid for any names, but wanted to match {}", expected.to_str())
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            // rustls shows the names as `DnsName("a.b")` and `IpAddress(10.0.0.1)`; Go shows only names of the kind
            // that was searched for.
            let address = |name: &'_ str| name.strip_prefix("IpAddress(")?.strip_suffix(')').map(str::to_owned);
            let wants_address = expected.to_str().parse::<std::net::IpAddr>().is_ok();
            let shown = presented.iter().filter_map(|name| match (address(name), wants_address) {
                (Some(address), true) => Some(address),
                (None, false) => Some(name.split('"').nth(1).unwrap_or(name).to_owned()),
                _ => None,
            });
            let names: Vec<String> = shown.collect();
            if names.is_empty() {
                let expected = expected.to_str();
                return format!("cannot validate certificate for {expected} because it doesn't contain any IP SANs");
            }
            format!("certificate is valid for {}, not {}", names.join(", "), expected.to_str())
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "certificate specifies an incompatible key usage".into()
        }
        // The certificate is the certificate of an authority, and the caller does not trust that authority.
        CertificateError::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            "certificate signed by unknown authority".into()
        }
        other => format!("{other:?}"),
    }
}

/// The text of a TLS alert that the peer sent, from its name.
fn of_alert(name: &str) -> String {
    let text = match name {
        "BadCertificate" => "bad certificate",
        "CertificateRequired" => "certificate required",
        "CertificateUnknown" => "unknown certificate",
        "CertificateExpired" => "expired certificate",
        "UnknownCA" => "unknown certificate authority",
        "HandshakeFailure" => "handshake failure",
        "ProtocolVersion" => "protocol version not supported",
        "UnrecognisedName" => "unrecognized name",
        "InternalError" => "internal error",
        "AccessDenied" => "access denied",
        other => other,
    };
    format!("remote error: tls: {text}")
}

/// The text of an error that HTTP/2 passes on as text.
fn of_text(text: String) -> String {
    match text.rsplit_once("received fatal alert: ") {
        Some((_, name)) => of_alert(name),
        None => text,
    }
}

/// The maximum number of bytes of a text body in an error.
const TEXT_BYTES_MAX: usize = 2048;

/// Returns the body of an answer with a success code, or the error that another answer means.
pub fn of_answer(parts: &Parts, body: Bytes) -> Result<Bytes, OutboundError> {
    let form = parts.headers.get(CONTENT_TYPE).map(|form| String::from_utf8_lossy(form.as_bytes()));
    let (code, form) = (parts.status, form.as_deref().unwrap_or(""));
    if !(StatusCode::OK..=StatusCode::PARTIAL_CONTENT).contains(&code) {
        let is_text = form.is_empty() || form.trim_start().to_ascii_lowercase().starts_with("text/");
        return Err(of_status(code, is_text, &body));
    }
    if body.is_empty() {
        let form = if form.is_empty() { "application/json" } else { form };
        let why = format!("0-length response with status code: {} and content type: {form}", code.as_u16());
        return Err(OutboundError::Unanswered(why));
    }
    Ok(body)
}

/// The error for an answer without success, in the wording of Kubernetes' client. The error contains the message of a
/// `Status`, or a text body.
fn of_status(code: StatusCode, is_text: bool, body: &[u8]) -> OutboundError {
    let status: holdfast_value::Value = serde_json::from_slice(body).unwrap_or_default();
    // A document without kind and version counts as a `Status`.
    let is = |field: &str, wanted: &str| matches!(status[field].as_str(), None | Some("")) || status[field] == wanted;
    if status["status"] == "Failure" && is("kind", "Status") && is("apiVersion", "v1") {
        return OutboundError::Refused { code, message: status["message"].as_str().unwrap_or("").to_owned() };
    }
    let text = String::from_utf8_lossy(&body[..body.len().min(TEXT_BYTES_MAX)]);
    let text = if is_text { text.trim() } else { "unknown" };
    let message = match code.as_u16() {
        400 => "the server rejected our request for an unknown reason".into(),
        401 => "the server has asked for the client to provide credentials".into(),
        403 | 415 => text.to_owned(),
        404 => "the server could not find the requested resource".into(),
        405 => "the server does not allow this method on the requested resource".into(),
        406 if text.is_empty() || text == "unknown" => {
            "the server was unable to respond with a content type that the client supports".into()
        }
        406 => text.to_owned(),
        409 => "the server reported a conflict".into(),
        422 => "the server rejected our request due to an error in our request".into(),
        429 => "the server has received too many requests and has asked us to try again later".into(),
        503 => "the server is currently unable to handle the request".into(),
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .into()
        }
        number if number >= 500 => {
            format!("an error on the server ({}) has prevented the request from succeeding", quoted(text))
        }
        number => format!("the server responded with the status code {number} but did not return more information"),
    };
    OutboundError::Refused { code, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_breaks_off_is_told_as_one_that_had_begun() {
        for (why, expected) in [
            (OutboundError::Unanswered("EOF".into()), "unexpected EOF"),
            (OutboundError::TimedOut, "context deadline exceeded"),
        ] {
            let told = of_body(why).to_string();
            let begins = "unexpected error when reading response body. Please retry. Original error: ";
            assert_eq!(told.strip_prefix(begins), Some(expected));
        }
    }

    #[test]
    fn answers_that_are_no_success_are_told_as_kubernetes_tells_them() {
        let told = |code: u16, form: &str, body: &str| {
            let mut answer = http::Response::builder().status(code);
            if !form.is_empty() {
                answer = answer.header(CONTENT_TYPE, form);
            }
            let (parts, body) = answer.body(Bytes::from(body.to_owned())).unwrap().into_parts();
            of_answer(&parts, body).map(|body| body.len()).map_err(|error| error.to_string())
        };
        let none = |code: u16| {
            Err(format!("the server responded with the status code {code} but did not return more information"))
        };
        let long = "x".repeat(3000);
        for (code, form, body, expected) in [
            (200, "application/json", "{}", Ok(2)),
            (
                200,
                "application/json; charset=utf-8",
                "",
                Err("0-length response with status code: 200 and content type: application/json; charset=utf-8".into()),
            ),
            (204, "", "", Err("0-length response with status code: 204 and content type: application/json".into())),
            (207, "application/json", "{}", none(207)),
            (403, "text/plain", " why \n", Err("why".into())),
            (403, "", &long, Err(long[..2048].to_owned())),
            (403, "Text/HTML", "why", Err("why".into())),
            (403, "application/json", "why", Err("unknown".into())),
            (406, "text/plain", "only XML", Err("only XML".into())),
            (
                406,
                "application/xml",
                "<a/>",
                Err("the server was unable to respond with a content type that the client supports".into()),
            ),
            (415, "text/plain", "no JSON", Err("no JSON".into())),
            (418, "text/plain", "tea", none(418)),
            (422, "", "", Err("the server rejected our request due to an error in our request".into())),
            (
                500,
                "text/plain",
                "a \"b\"",
                Err("an error on the server (\"a \\\"b\\\"\") has prevented the request from succeeding".into()),
            ),
            (404, "application/json", r#"{"status": "Failure", "message": "nf"}"#, Err("nf".into())),
            (
                404,
                "application/json",
                r#"{"kind": "Status", "apiVersion": "v1", "message": "nf"}"#,
                Err("the server could not find the requested resource".into()),
            ),
        ] {
            assert_eq!(told(code, form, body), expected, "{code} {form} {body}");
        }
    }
}
