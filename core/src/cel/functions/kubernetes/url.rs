//! URLs, parsed as Go's `net/url` does.

use super::address::parse_address;
pub(crate) use super::quoted;
use super::{Cost, CustomCost, Overload, no_overload, own, text};
use crate::cel::cost::{CallEstimate, traversal};
use crate::cel::functions::overload;
use crate::cel::value::{EvalError, Key, Opaque, Text, Value};
use std::any::Any;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;

pub static TABLE: &[Overload] = &[
    overload(
        "url(string) -> kubernetes.URL",
        |arguments| {
            let text = text(arguments)?;
            let fail = |error| EvalError::new(format!("URL parse error during conversion from string: {error}"));
            check_request_uri(text).map_err(fail)?;
            Ok(Value::opaque(Url::parse(text).map_err(fail)?))
        },
        Cost::Custom(CustomCost {
            actual: |arguments, _| traversal(arguments[0].size()),
            estimate: |arguments| {
                let size = arguments.size(0);
                CallEstimate { cost: size.traversal(), result: Some(size) }
            },
        }),
    ),
    overload(
        "isURL(string) -> bool",
        |arguments| Ok(Value::Bool(check_request_uri(text(arguments)?).is_ok())),
        Cost::One,
    ),
    overload("<kubernetes.URL>.getScheme() -> string", |arguments| part(arguments, |url| &url.scheme), Cost::One),
    overload("<kubernetes.URL>.getHost() -> string", |arguments| part(arguments, |url| &url.host), Cost::One),
    overload(
        "<kubernetes.URL>.getHostname() -> string",
        |arguments| part(arguments, |url| url.host_and_port().0),
        Cost::One,
    ),
    overload(
        "<kubernetes.URL>.getPort() -> string",
        |arguments| part(arguments, |url| url.host_and_port().1),
        Cost::One,
    ),
    overload(
        "<kubernetes.URL>.getEscapedPath() -> string",
        |arguments| Ok(Value::text(own::<Url>(arguments, 0)?.escaped_path())),
        Cost::One,
    ),
    overload("<kubernetes.URL>.getQuery() -> map(string, list(string))", query, Cost::One),
];

fn part<'a>(arguments: &[Value<'a>], part: fn(&Url) -> &str) -> Result<Value<'a>, EvalError> {
    Ok(Value::text(part(own(arguments, 0)?).to_owned()))
}

fn query<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let mut map: BTreeMap<Key<'a>, Vec<Value<'a>>> = BTreeMap::new();
    let Ok(url) = own::<Url>(arguments, 0) else { return no_overload() };
    for (name, value) in url.query() {
        map.entry(Key::String(Text::from(name))).or_default().push(Value::text(value));
    }
    Ok(Value::Map(Rc::new(map.into_iter().map(|(name, values)| (name, Value::list(values))).collect())))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    pub scheme: String,
    /// The host with its port. An IPv6 address is in brackets.
    pub host: String,
    user: String,
    opaque: String,
    /// The path as it is written in the URL, with its escapes.
    raw_path: String,
    raw_query: String,
    fragment: String,
}

impl Opaque for Url {
    fn type_name(&self) -> &'static str {
        "kubernetes.URL"
    }

    fn equals(&self, other: &dyn Opaque) -> bool {
        other.as_any().downcast_ref::<Url>() == Some(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Parses an absolute URL or an absolute path, as the format `uri` requires. The error has Go's text.
pub(crate) fn check_request_uri(text: &str) -> Result<Url, String> {
    parse(text, true).map_err(|error| format!("parse {}: {error}", quoted(text)))
}

impl Url {
    /// Parses a URL, which may be relative.
    pub fn parse(text: &str) -> Result<Url, String> {
        let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
        let fail = |error: String| format!("parse {}: {error}", quoted(rest));
        let mut url = parse(rest, false).map_err(fail)?;
        url.fragment = unescape(fragment, Part::Path).map_err(fail)?;
        Ok(url)
    }

    fn host_and_port(&self) -> (&str, &str) {
        let (host, port) = match self.host.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (host, port),
            _ => (self.host.as_str(), ""),
        };
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        (inner.unwrap_or(host), port)
    }

    fn escaped_path(&self) -> String {
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~/!$&'()*+,;=:@[]%".contains(&byte);
        if self.raw_path.bytes().all(is_valid) {
            return self.raw_path.clone();
        }
        let plain = unescape_bytes(&self.raw_path, Part::Path).unwrap_or_default();
        let mut escaped = String::with_capacity(plain.len() * 2);
        for byte in plain {
            if byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte) {
                escaped.push(char::from(byte));
            } else {
                escaped.push_str(&format!("%{byte:02X}"));
            }
        }
        escaped
    }

    /// The names and values of the URL's query, in order. Pairs that Go cannot parse are skipped.
    fn query(&self) -> impl Iterator<Item = (String, String)> {
        self.raw_query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')).filter_map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((unescape(name, Part::Query).ok()?, unescape(value, Part::Query).ok()?))
        })
    }
}

fn parse(text: &str, is_request: bool) -> Result<Url, String> {
    if text.bytes().any(|byte| byte.is_ascii_control()) {
        return Err("net/url: invalid control character in URL".into());
    }
    if text.is_empty() && is_request {
        return Err("empty url".into());
    }
    let (scheme, rest) = scheme(text)?;
    let (rest, raw_query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut url = Url {
        scheme: scheme.to_ascii_lowercase(),
        host: String::new(),
        user: String::new(),
        opaque: String::new(),
        raw_path: String::new(),
        raw_query: raw_query.to_owned(),
        fragment: String::new(),
    };
    if text == "*" {
        url.raw_path = "*".into();
        return Ok(url);
    }
    if !rest.starts_with('/') {
        if !scheme.is_empty() {
            url.opaque = rest.to_owned();
            return Ok(url);
        }
        if is_request {
            return Err("invalid URI for request".into());
        }
        if rest.split('/').next().is_some_and(|first| first.contains(':')) {
            return Err("first path segment in URL cannot contain colon".into());
        }
    }
    let mut path = rest;
    if let Some(after) =
        rest.strip_prefix("//").filter(|after| !scheme.is_empty() || (!is_request && !after.starts_with('/')))
    {
        let (authority, behind) = after.split_at(after.find('/').unwrap_or(after.len()));
        (url.user, url.host) = read_authority(authority)?;
        path = behind;
    }
    unescape_bytes(path, Part::Path)?;
    url.raw_path = path.to_owned();
    Ok(url)
}

/// Splits a URL into its scheme, which is empty if there is none, and the text after the scheme's colon.
fn scheme(text: &str) -> Result<(&str, &str), String> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme".into()),
            b':' => return Ok((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn read_authority(authority: &str) -> Result<(String, String), String> {
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let host = read_host(host)?;
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
    if !user.bytes().all(is_valid) {
        return Err("net/url: invalid userinfo".into());
    }
    unescape_bytes(user, Part::Path)?;
    Ok((user.to_owned(), host))
}

/// Checks and unescapes a host with its port. An IPv6 address is in brackets, possibly with a zone.
fn read_host(host: &str) -> Result<String, String> {
    let Some(inner) = host.strip_prefix('[') else {
        if host.contains('[') {
            return Err("invalid IP-literal".into());
        }
        check_port(host.rfind(':').map_or("", |at| &host[at..]))?;
        return unescape(host, Part::Host);
    };
    if inner.contains('[') {
        return Err("invalid IP-literal".into());
    }
    let (address, port) = inner.rsplit_once(']').ok_or("missing ']' in host")?;
    check_port(port)?;
    let (plain, zone) = address.split_at(address.find("%25").unwrap_or(address.len()));
    let address = unescape(plain, Part::Host)? + &unescape(zone, Part::Zone)?;
    match parse_address(&address) {
        Ok((IpAddr::V6(_), _)) => Ok(format!("[{address}]{port}")),
        Ok((IpAddr::V4(_), _)) => Err("invalid IP-literal".into()),
        Err(error) => Err(format!("invalid host: {error}")),
    }
}

/// Checks that the text after a host is empty, or a colon that digits may follow.
fn check_port(text: &str) -> Result<(), String> {
    match text.strip_prefix(':').unwrap_or(if text.is_empty() { "" } else { "x" }) {
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => Ok(()),
        _ => Err(format!("invalid port {} after host", quoted(text))),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Host,
    /// The zone of an IPv6 address in brackets: `eth0` in `[fe80::1%25eth0]`.
    Zone,
    Path,
    Query,
}

fn unescape(text: &str, part: Part) -> Result<String, String> {
    Ok(String::from_utf8_lossy(&unescape_bytes(text, part)?).into_owned())
}

fn unescape_bytes(text: &str, part: Part) -> Result<Vec<u8>, String> {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'%' => {
                let digits = bytes.get(at..at + 2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
                let value = digits
                    .and_then(|digits| std::str::from_utf8(digits).ok())
                    .and_then(|digits| u8::from_str_radix(digits, 16).ok());
                let Some(value) = value else {
                    let shown = String::from_utf8_lossy(&bytes[at - 1..bytes.len().min(at + 2)]);
                    return Err(format!("invalid URL escape {}", quoted(&shown)));
                };
                // In a host, only non-ASCII characters and the percent sign before a zone may be escaped.
                let forbidden = match part {
                    Part::Host => value.is_ascii() && value != b'%',
                    Part::Zone => !matches!(value, b'%' | b' ') && !is_host_byte(value),
                    Part::Path | Part::Query => false,
                };
                if forbidden {
                    return Err(format!("invalid URL escape {}", quoted(&text[at - 1..at + 2])));
                }
                plain.push(value);
                at += 2;
            }
            b'+' if part == Part::Query => plain.push(b' '),
            _ if matches!(part, Part::Host | Part::Zone) && byte.is_ascii() && !is_host_byte(byte) => {
                return Err(format!("invalid character {} in host name", quoted(&char::from(byte).to_string())));
            }
            _ => plain.push(byte),
        }
    }
    Ok(plain)
}

fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::{Url, check_request_uri};

    #[test]
    fn parts() {
        for (text, expected) in [
            ("https://user:pass@example.com:80/path?query=val#fragment", "https|example.com:80|example.com|80|/path"),
            ("/absolute-path", "||||/absolute-path"),
            ("https://[::1]:80/", "https|[::1]:80|::1|80|/"),
            ("HTTPS://[::1]", "https|[::1]|::1||"),
            ("http://[fe80::1%25en%200]:8/", "http|[fe80::1%en 0]:8|fe80::1%en 0|8|/"),
            ("https://example.com/path with spaces/", "https|example.com|example.com||/path%20with%20spaces/"),
            ("https://example.com/a%20b(c)", "https|example.com|example.com||/a%20b(c)"),
            ("mailto:a@b.c", "mailto||||"),
        ] {
            let url = Url::parse(text).expect(text);
            let (host, port) = url.host_and_port();
            let found = [&url.scheme, &url.host, host, port, &url.escaped_path()].join("|");
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn queries() {
        for (text, expected) in [
            ("https://h/?k1=a&k2=b&k2=c", "k1=a,k2=b,k2=c"),
            ("https://h/?key with spaces=value+x%21", "key with spaces=value x!"),
            ("https://h/?", ""),
            ("https://h/?a;b=1&c&%zz=1", "c="),
        ] {
            let url = Url::parse(text).expect(text);
            let found: Vec<String> = url.query().map(|(name, value)| format!("{name}={value}")).collect();
            assert_eq!(found.join(","), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_url() {
        for (text, expected) in [
            ("", "empty url"),
            ("../relative", "invalid URI for request"),
            ("https://a:b:c/", "invalid port \":c\" after host"),
            (":x", "missing protocol scheme"),
            ("https://h/%zz", "invalid URL escape \"%zz\""),
            ("https://[::1", "missing ']' in host"),
            ("https://a[::1]/", "invalid IP-literal"),
            ("https://[1.2.3.4]/", "invalid IP-literal"),
            ("https://[v1.x]/", "invalid host: ParseAddr(\"v1.x\"): unexpected character (at \"v1.x\")"),
            ("https://[fe80::1%25]/", "invalid host: ParseAddr(\"fe80::1%\"): zone must be a non-empty string"),
            ("https://[::1]x/", "invalid port \"x\" after host"),
            ("https://a^@b c/", "invalid character \" \" in host name"),
            ("https://a b/", "invalid character \" \" in host name"),
            ("https://a^@b/", "net/url: invalid userinfo"),
            ("/a\nb", "net/url: invalid control character in URL"),
        ] {
            let error = check_request_uri(text).expect_err(text);
            assert_eq!(error, format!("parse {}: {expected}", super::quoted(text)));
        }
    }
}
