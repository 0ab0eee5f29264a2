//! Makes the head of a request from its fields (RFC 9113, section 8).

use crate::hpack::{Field, Name, Pseudo, Sink, Value};
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use http::{Method, Request, Version};
use std::borrow::Cow;

/// Collects the fields of a request.
#[derive(Debug)]
pub struct Head {
    method: Option<Method>,
    scheme: Option<Scheme>,
    authority: Option<Authority>,
    path: Option<PathAndQuery>,
    headers: HeaderMap,
    /// The length of the body, if the client announced it.
    announced: Option<u64>,
    /// The number of bytes by which the head may still grow; `None` once it is too large.
    room: Option<usize>,
    /// Whether a header other than a pseudo-header has been read.
    has_header: bool,
    has_cookies: bool,
    flaw: Option<&'static str>,
}

/// The result of decoding all fields of one header block.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it is taken apart where it is made")]
pub enum BlockOutcome {
    /// A request, and the length of the request's body if the client announced it.
    Request(Request<()>, Option<u64>),
    /// A CONNECT request for a tunnel.
    Connect,
    /// The head is larger than the driver's limit.
    TooLarge,
    /// The head is no valid request; the text says why.
    Malformed(&'static str),
}

impl Head {
    pub fn new(bytes_max: usize) -> Head {
        Head {
            method: None,
            scheme: None,
            authority: None,
            path: None,
            headers: HeaderMap::with_capacity(12),
            announced: None,
            room: Some(bytes_max),
            has_header: false,
            has_cookies: false,
            flaw: None,
        }
    }

    /// The outcome of the whole block. `is_end` means that no body follows.
    pub fn finish(mut self, is_end: bool) -> BlockOutcome {
        if self.room.is_none() {
            return BlockOutcome::TooLarge;
        }
        if is_end && self.announced.is_some_and(|length| length > 0) {
            self.flaw.get_or_insert("a body was announced, and there is none");
        }
        let method = match (self.method, self.flaw) {
            (_, Some(flaw)) => return BlockOutcome::Malformed(flaw),
            (None, _) => return BlockOutcome::Malformed("there is no :method"),
            (Some(Method::CONNECT), _) => {
                return match (&self.scheme, &self.path, &self.authority) {
                    (None, None, Some(_)) => BlockOutcome::Connect,
                    _ => BlockOutcome::Malformed("CONNECT has an authority, and neither scheme nor path"),
                };
            }
            (Some(method), _) => method,
        };
        let (Some(scheme), Some(path)) = (self.scheme, self.path) else {
            return BlockOutcome::Malformed("there is no :scheme, or no :path");
        };
        if path == "*" && method != Method::OPTIONS {
            return BlockOutcome::Malformed("only OPTIONS may ask about all of a server");
        }
        if self.has_cookies {
            join_cookies(&mut self.headers);
        }
        let mut parts = http::uri::Parts::default();
        parts.scheme = self.authority.is_some().then_some(scheme);
        parts.authority = self.authority;
        parts.path_and_query = Some(path);
        let Ok(uri) = Uri::from_parts(parts) else { return BlockOutcome::Malformed("no URI") };
        let mut request = Request::new(());
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.version_mut() = Version::HTTP_2;
        *request.headers_mut() = self.headers;
        BlockOutcome::Request(request, self.announced)
    }

    fn pseudo(&mut self, name: Pseudo, value: Bytes) -> Result<(), &'static str> {
        if self.has_header {
            return Err("a pseudo header behind a header");
        }
        const TWICE: &str = "a pseudo header that is there twice";
        match name {
            Pseudo::Method => put(&mut self.method, Method::from_bytes(&value).ok(), TWICE),
            Pseudo::Scheme => put(&mut self.scheme, scheme(&value), TWICE),
            Pseudo::Authority => put(&mut self.authority, authority(value), TWICE),
            Pseudo::Path => put(&mut self.path, path(value), TWICE),
            Pseudo::Status => Err("a request with a :status"),
        }
    }

    fn header(&mut self, name: HeaderName, value: HeaderValue) -> Result<(), &'static str> {
        self.has_header = true;
        match name.as_str().as_bytes() {
            b"content-length" => {
                let length = length(value.as_bytes()).ok_or("a content-length that is not a number")?;
                if *self.announced.get_or_insert(length) != length {
                    return Err("two different lengths");
                }
            }
            b"cookie" => self.has_cookies = true,
            b"te" if value != "trailers" => return Err("te has a value that HTTP/2 does not have"),
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
                return Err("a header that speaks of an HTTP/1.1 connection");
            }
            _ => {}
        }
        self.headers.try_append(name, value).map_err(|_| "too many headers")?;
        Ok(())
    }
}

impl Sink for Head {
    fn take(&mut self, field: Cow<'_, Field>) {
        // The fields of a head that is too large or malformed are decoded to keep the table in step, and then dropped.
        let Some(room) = self.room.and_then(|room| room.checked_sub(field.bytes as usize)) else {
            self.room = None;
            self.headers = HeaderMap::new();
            return;
        };
        self.room = Some(room);
        if self.flaw.is_some() {
            return;
        }
        let Field { name, value, .. } = field.into_owned();
        let taken = match (name, value) {
            (Name::Pseudo(name), Value::Plain(value)) => self.pseudo(name, value),
            (Name::Header(name), Value::Header(value)) => self.header(name, value),
            _ => Err("a name or a value that no field may have"),
        };
        self.flaw = taken.err();
    }
}

fn put<T>(place: &mut Option<T>, value: Option<T>, twice: &'static str) -> Result<(), &'static str> {
    let value = value.ok_or("a pseudo header that makes no sense")?;
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(twice),
    }
}

fn scheme(value: &[u8]) -> Option<Scheme> {
    match value {
        b"https" => Some(Scheme::HTTPS),
        b"http" => Some(Scheme::HTTP),
        other => Scheme::try_from(other).ok(),
    }
}

fn authority(value: Bytes) -> Option<Authority> {
    match value.contains(&b'@') {
        true => None,
        false => Authority::from_maybe_shared(value).ok(),
    }
}

fn path(value: Bytes) -> Option<PathAndQuery> {
    match &value[..] {
        b"*" | [b'/', ..] => PathAndQuery::from_maybe_shared(value).ok(),
        _ => None,
    }
}

fn length(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0u64, |length, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        length.checked_mul(10)?.checked_add(digit)
    })
}

/// HTTP/2 allows a field for each cookie; readers of the headers expect all cookies in one field.
fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<&[u8]> = headers.get_all(header::COOKIE).iter().map(|cookie| cookie.as_bytes()).collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_maybe_shared(Bytes::from(cookies.join(&b"; "[..])))
    {
        headers.insert(header::COOKIE, joined);
    }
}

/// Trailers of a request. The server does not use them, and only checks that they are valid.
#[derive(Debug, Default)]
pub struct Trailers {
    pub flaw: Option<&'static str>,
}

impl Sink for Trailers {
    fn take(&mut self, field: Cow<'_, Field>) {
        if !matches!((&field.name, &field.value), (Name::Header(_), Value::Header(_))) {
            self.flaw = Some("a field that may not stand behind a body");
        }
    }
}

/// Ignores the fields of a block that is decoded only to keep the table in step.
pub struct Nobody;

impl Sink for Nobody {
    fn take(&mut self, _: Cow<'_, Field>) {}
}
