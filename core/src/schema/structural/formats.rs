//! The string formats that Kubernetes validates. Unknown formats are ignored.

use crate::object::address::{address, network};
use crate::object::names;
use crate::schema::{check_duration, quantity};
use std::net::{IpAddr, Ipv6Addr};

#[derive(Debug, Clone)]
pub(crate) struct Format {
    /// The name of the format as it is written in the schema.
    pub name: Box<str>,
    /// Checks a text; `None` for a format of numbers, which restricts only the type.
    check: Option<Check>,
}

type Check = fn(&str) -> bool;

impl Format {
    /// The format with this name, if it exists and applies to values of this type.
    pub fn of(ty: &str, name: &str) -> Option<Format> {
        let check = match ty {
            "" | "string" => {
                let plain = name.replace('-', "");
                Some(FORMATS.iter().find(|(known, _)| *known == plain)?.1)
            }
            "integer" => ["int32", "int64"].contains(&name).then_some(None)?,
            "number" => ["float", "double"].contains(&name).then_some(None)?,
            _ => return None,
        };
        Some(Format { name: name.into(), check })
    }

    pub fn accepts(&self, text: &str) -> bool {
        self.check.is_none_or(|check| check(text))
    }
}

/// The formats of strings, by their names without dashes, and their checks.
const FORMATS: &[(&str, Check)] = &[
    ("bsonobjectid", |text| text.len() == 24 && all(text, |byte| byte.is_ascii_hexdigit())),
    ("byte", is_base64),
    ("cidr", |text| network(text).is_some()),
    ("creditcard", is_credit_card),
    ("date", is_date),
    ("datetime", is_date_time),
    ("duration", is_duration),
    ("email", is_email),
    ("hexcolor", is_hex_color),
    ("hostname", is_hostname),
    ("ipv4", |text| text.contains('.') && address(text).is_some()),
    ("ipv6", |text| text.contains(':') && address(text).is_some()),
    ("isbn", |text| is_isbn(text, 10) || is_isbn(text, 13)),
    ("isbn10", |text| is_isbn(text, 10)),
    ("isbn13", |text| is_isbn(text, 13)),
    ("k8slongname", |text| names::subdomain(text).is_empty()),
    ("k8sshortname", |text| names::label(text).is_empty()),
    ("mac", is_mac),
    ("password", |_| true),
    ("quantity", |text| quantity::check(text).is_ok()),
    ("rgbcolor", is_rgb_color),
    ("ssn", is_social_security_number),
    ("uri", is_uri),
    ("uuid", |text| is_uuid(text, None)),
    ("uuid3", |text| is_uuid(text, Some(b'3'))),
    ("uuid4", |text| is_uuid(text, Some(b'4'))),
    ("uuid5", |text| is_uuid(text, Some(b'5'))),
];

fn all(text: &str, test: impl Fn(u8) -> bool) -> bool {
    text.bytes().all(test)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && all(text, |byte| byte.is_ascii_digit())
}

fn is_base64(text: &str) -> bool {
    let letters = text.trim_end_matches('=');
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    !letters.is_empty() && text.len().is_multiple_of(4) && text.len() - letters.len() <= 2 && all(letters, is_letter)
}

/// Whether the number is the number of a credit card: its issuer is known and its Luhn checksum is right. For the
/// checksum, every second digit from the end is doubled.
fn is_credit_card(text: &str) -> bool {
    let digits: Vec<u32> = text.bytes().filter(u8::is_ascii_digit).map(|digit| u32::from(digit - b'0')).collect();
    let start = |count: usize| digits.iter().take(count).fold(0, |sum, digit| sum * 10 + digit);
    let issuer = match digits.len() {
        13 => start(1) == 4,
        14 => matches!(start(3), 300..=305 | 360..=369 | 380..=389),
        15 => matches!(start(2), 34 | 37) || matches!(start(4), 2131 | 1800),
        16 => start(1) == 4 || matches!(start(2), 51..=55 | 35 | 65) || start(4) == 6011,
        _ => false,
    };
    let doubled = |digit: u32| if digit > 4 { digit * 2 - 9 } else { digit * 2 };
    let value = |(at, digit): (usize, &u32)| if at % 2 == 1 { doubled(*digit) } else { *digit };
    issuer && digits.iter().rev().enumerate().map(value).sum::<u32>() % 10 == 0
}

fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() == 10
        && bytes
            .iter()
            .enumerate()
            .all(|(at, byte)| if at == 4 || at == 7 { *byte == b'-' } else { byte.is_ascii_digit() })
        && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let Some((date, time)) = lower.split_once('t') else { return false };
    let Some((clock, rest)) = time.split_at_checked(8) else { return false };
    let clock: Vec<&str> = clock.split(':').collect();
    let limits = ["23", "59", "59"];
    let in_range = |(part, limit): (&&str, &str)| part.len() == 2 && is_digits(part) && *part <= limit;
    let zone = match rest.strip_prefix('.') {
        Some(fraction) => {
            let zone = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
            if zone.len() == fraction.len() {
                return false;
            }
            zone
        }
        None => rest,
    };
    let is_zone = zone == "z"
        || (zone.len() == 6
            && zone.starts_with(['+', '-'])
            && zone[1..].split_once(':').is_some_and(|(hours, minutes)| {
                hours.len() == 2 && is_digits(hours) && minutes.len() == 2 && is_digits(minutes)
            }));
    is_date(date) && clock.len() == 3 && clock.iter().zip(limits).all(in_range) && is_zone
}

/// Whether the text is a Go duration, or numbers with named units: `3 weeks`.
fn is_duration(text: &str) -> bool {
    check_duration(text).is_ok() || worded_duration(text).is_some()
}

const SECOND: i64 = 1_000_000_000;
const HOUR: i64 = 3_600 * SECOND;
/// The units of time. Each has its exact spellings, the beginning of its longer spellings, and the number of
/// nanoseconds.
const UNITS: &[(&[&str], &str, i64)] = &[
    (&["ns"], "nano", 1),
    (&["us", "µs"], "micro", 1_000),
    (&["ms"], "milli", 1_000_000),
    (&["s"], "sec", SECOND),
    (&["m"], "min", 60 * SECOND),
    (&["h", "hr"], "hour", HOUR),
    (&["d"], "day", 24 * HOUR),
    (&["w", "wk"], "week", 7 * 24 * HOUR),
];

/// The number of nanoseconds in a duration in words, such as `2 days 3hours`. Numbers with units count anywhere in the
/// text, as in `PT1H`. If the text has any known unit, unknown units are ignored.
pub(crate) fn worded_duration(text: &str) -> Option<i64> {
    let mut nanos: Option<i64> = None;
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        rest = &rest[start..];
        let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let number = &rest[..rest.len() - after.len()];
        let after = after.trim_start_matches(|c: char| c.is_ascii_whitespace());
        let behind = after.trim_start_matches(|c: char| c.is_ascii_alphabetic() || c == 'µ');
        let unit = after[..after.len() - behind.len()].to_lowercase();
        rest = behind;
        if unit.is_empty() {
            continue;
        }
        let number: i64 = number.parse().ok()?;
        let known = UNITS.iter().find(|(short, word, _)| short.contains(&unit.as_str()) || unit.starts_with(word));
        if let Some((_, _, size)) = known {
            // If the sum is too large, it wraps as in Go.
            nanos = Some(nanos.unwrap_or(0).wrapping_add(number.wrapping_mul(*size)));
        }
    }
    nanos
}

/// Whether the text is an email address: `a@b`, or with a name: `Jo <a@b>`.
fn is_email(text: &str) -> bool {
    let text = text.trim_matches([' ', '\t']);
    let address = match text.strip_suffix('>').and_then(|text| text.rsplit_once('<')) {
        Some((name, address)) if is_phrase(name.trim_matches([' ', '\t'])) => address,
        Some(_) => return false,
        None => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let literal = domain.strip_prefix('[').and_then(|domain| domain.strip_suffix(']'));
    let is_domain = match literal {
        Some(literal) => literal.strip_prefix("IPv6:").unwrap_or(literal).parse::<IpAddr>().is_ok(),
        None => is_dot_atom(domain),
    };
    (is_dot_atom(local) || is_quoted(local)) && is_domain
}

fn is_atom(text: &str) -> bool {
    const PUNCTUATION: &[u8] = b"!#$%&'*+-/=?^_`{|}~";
    !text.is_empty() && all(text, |byte| byte.is_ascii_alphanumeric() || byte >= 0x80 || PUNCTUATION.contains(&byte))
}

fn is_dot_atom(text: &str) -> bool {
    text.split('.').all(is_atom)
}

fn is_quoted(text: &str) -> bool {
    let Some(inner) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) else { return false };
    let mut escaped = false;
    for byte in inner.bytes() {
        if byte < b' ' && byte != b'\t' || (byte == b'"' && !escaped) {
            return false;
        }
        escaped = byte == b'\\' && !escaped;
    }
    !escaped
}

fn is_phrase(text: &str) -> bool {
    text.is_empty() || is_quoted(text) || text.split([' ', '\t', '.']).all(|word| word.is_empty() || is_atom(word))
}

fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && all(digits, |byte| byte.is_ascii_hexdigit())
}

/// Whether the text is a host name: labels of letters, digits, symbols and inner dashes. If there are several labels,
/// the last has at least two characters.
fn is_hostname(text: &str) -> bool {
    let labels: Vec<&str> = text.split('.').collect();
    let is_letter = |c: char| c.is_ascii_alphanumeric() || (!c.is_ascii() && !c.is_numeric() && !c.is_whitespace());
    let is_label = |label: &&str| {
        label.len() <= 63
            && label.starts_with(is_letter)
            && label.ends_with(is_letter)
            && label.chars().all(|c| is_letter(c) || c == '-')
    };
    let last = labels.last().copied().unwrap_or_default();
    let several = labels.len() > 1;
    text.len() <= 255 && labels.iter().all(is_label) && (!several || (last.chars().count() > 1 && !last.contains("--")))
}

fn is_isbn(text: &str, digits: usize) -> bool {
    let mut body: String = text.chars().filter(|c| !matches!(c, ' ' | '-')).collect();
    let check = match body.pop() {
        Some('X') if digits == 10 => 10,
        last => match last.and_then(|last| last.to_digit(10)) {
            Some(digit) => digit as usize,
            None => return false,
        },
    };
    if body.len() + 1 != digits || !is_digits(&body) {
        return false;
    }
    let values = body.bytes().map(|byte| usize::from(byte - b'0')).enumerate();
    if digits == 10 {
        (values.map(|(at, digit)| (at + 1) * digit).sum::<usize>() + 10 * check) % 11 == 0
    } else {
        let sum: usize = values.map(|(at, digit)| if at % 2 == 0 { digit } else { 3 * digit }).sum();
        (10 - sum % 10) % 10 == check
    }
}

/// Whether the text is a MAC address: groups of two or four hexadecimal digits, for 6, 8 or 20 bytes.
fn is_mac(text: &str) -> bool {
    let groups = |separator: char, digits: usize, counts: [usize; 3]| {
        let mut count = 0;
        let good = text.split(separator).all(|group| {
            count += 1;
            group.len() == digits && all(group, |byte| byte.is_ascii_hexdigit())
        });
        good && counts.contains(&count)
    };
    groups(':', 2, [6, 8, 20]) || groups('-', 2, [6, 8, 20]) || groups('.', 4, [3, 4, 10])
}

fn is_rgb_color(text: &str) -> bool {
    let Some(inner) = text.strip_prefix("rgb(").and_then(|text| text.strip_suffix(')')) else { return false };
    let is_part = |part: &str| {
        let part = part.trim_matches([' ', '\t', '\n', '\r', '\x0c']);
        is_digits(part) && !(part.len() > 1 && part.starts_with('0')) && part.parse::<u8>().is_ok()
    };
    let parts: Vec<&str> = inner.split(',').collect();
    parts.len() == 3 && parts.into_iter().all(is_part)
}

fn is_social_security_number(text: &str) -> bool {
    let bytes = text.as_bytes();
    let digits = bytes.iter().filter(|byte| byte.is_ascii_digit()).count();
    let separators: Vec<usize> = (0..bytes.len()).filter(|at| !bytes[*at].is_ascii_digit()).collect();
    digits == 9
        && separators.iter().all(|at| matches!(bytes[*at], b'-' | b' '))
        && matches!(separators.as_slice(), [] | [3] | [5] | [3, 6])
}

/// Whether Go parses the text as a request URI: a path, or a scheme and what follows it.
fn is_uri(text: &str) -> bool {
    if text.is_empty() || !all(text, |byte| byte >= b' ' && byte != 0x7f) {
        return false;
    }
    let rest = match text.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '+' | '-' | '.')) {
        Some(at) if text[at..].starts_with(':') && text.starts_with(|c: char| c.is_ascii_alphabetic()) => {
            &text[at + 1..]
        }
        _ if text.starts_with('/') || text == "*" => text,
        _ => return false,
    };
    let rest = rest.split('?').next().unwrap_or_default();
    let has_scheme = rest.len() < text.len() && !text.starts_with('/');
    if has_scheme && !rest.starts_with('/') {
        return true;
    }
    let (authority, path) = match rest.strip_prefix("//").filter(|_| has_scheme || !rest.starts_with("///")) {
        Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        None => ("", rest),
    };
    is_authority(authority) && has_good_escapes(path)
}

fn is_authority(authority: &str) -> bool {
    let host = match authority.rsplit_once('@') {
        Some((user, host)) => {
            let is_user = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
            if !all(user, is_user) || !has_good_escapes(user) {
                return false;
            }
            host
        }
        None => authority,
    };
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, port)) => {
                let address = address.split("%25").next().unwrap_or_default();
                if address.parse::<Ipv6Addr>().is_err() {
                    return false;
                }
                ("", port)
            }
            None => return false,
        },
        None => host.split_at(host.rfind(':').unwrap_or(host.len())),
    };
    let is_name = |byte: u8| byte >= 0x80 || byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"%".contains(&byte);
    let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(|port| all(port, |byte| byte.is_ascii_digit()));
    all(name, is_name) && has_good_escapes(name) && is_port
}

fn has_good_escapes(text: &str) -> bool {
    text.split('%').skip(1).all(|part| part.len() >= 2 && part.bytes().take(2).all(|byte| byte.is_ascii_hexdigit()))
}

/// Whether the text is a UUID. Each of its dashes may be missing.
fn is_uuid(text: &str, version: Option<u8>) -> bool {
    let mut plain = Vec::with_capacity(32);
    let mut dashed = false;
    for byte in text.bytes() {
        match byte {
            b'-' if !dashed && matches!(plain.len(), 8 | 12 | 16 | 20) => dashed = true,
            _ if byte.is_ascii_hexdigit() => {
                plain.push(byte.to_ascii_lowercase());
                dashed = false;
            }
            _ => return false,
        }
    }
    let variant = |byte: u8| !matches!(version, Some(b'4' | b'5')) || b"89ab".contains(&byte);
    plain.len() == 32 && version.is_none_or(|version| plain[12] == version) && variant(plain[16])
}

#[cfg(test)]
mod tests {
    use super::Format;

    #[test]
    fn formats() {
        let cases: &[(&str, &[&str], &[&str])] = &[
            ("bsonobjectid", &["507f1f77bcf86cd799439011"], &["507f", ""]),
            ("byte", &["YQ==", "YWI=", "YWJj"], &["", "YQ", "Y===", "Y Q="]),
            ("cidr", &["10.0.0.0/8", "010.0.0.0/8", "::/0"], &["10.0.0.0", "10.0.0.0/33", "a/8", "10.0.0.0/+8"]),
            ("creditcard", &["4111-1111-1111-1111"], &["4111-1111-1111-1112", ""]),
            ("date", &["2024-02-29"], &["2023-02-29", "2024-2-29", "2024-02-29T", "é024-02-2"]),
            (
                "date-time",
                &["2014-12-15T19:30:20.000Z", "2014-12-15t19:30:20+01:00"],
                &["2014-12-15", "2014-12-15T25:00:00Z", "2014-12-15T19:30:20", ""],
            ),
            (
                "duration",
                &["1h30m", "22 ns", "3 weeks", "1 day 2 hours", "PT1H", "a 1s", "P1D, 5"],
                &["", "x", "5", "1 fortnight", "PT"],
            ),
            (
                "email",
                &["a@b", "a.b@example.com", "Jo Doe <a@b>", "\"a b\"@c"],
                &["", "a", "a@", "@b", "a b@c", "a@b>"],
            ),
            ("hexcolor", &["#FFF", "abcdef"], &["#FFFF", ""]),
            ("hostname", &["localhost", "example.com", "1.example.org"], &["", "-a", "a..b", "a.c", "a_b"]),
            ("ipv4", &["1.2.3.4", "01.2.3.4", "::ffff:01.2.3.4"], &["::1", "1.2.3", "1.2.3.256", "1.2.3.x", "1.2..4"]),
            ("ipv6", &["::1"], &["1.2.3.4", "::g"]),
            ("isbn", &["0321751043", "978-0321751041"], &["0321751044", "", "é"]),
            ("isbn10", &["0321751043"], &["978-0321751041"]),
            ("mac", &["00:00:5e:00:53:01", "0000.5e00.5301"], &["00:00:5e", ""]),
            ("password", &[""], &[]),
            ("k8s-short-name", &["my-name"], &["My", "a.b", ""]),
            ("k8s-long-name", &["a.b"], &["a..b"]),
            ("quantity", &["10Gi"], &["x"]),
            ("rgbcolor", &["rgb(255, 255,0)"], &["rgb(256,0,0)", "rgb(1,2)"]),
            ("ssn", &["111-11-1111", "111111111"], &["11-111-1111", ""]),
            (
                "uri",
                &["http://a.b/c?d", "/path", "mailto:a@b", "https://u:p@h:80/", "http://[::1]:80/x"],
                &["", "a", "a b", "http://a b/", "http://a:b/", "/%zz", "://a"],
            ),
            ("uuid", &["7C9E6679-7425-40de-944b-e07fc1f90ae7", "7c9e6679742540de944be07fc1f90ae7"], &["7c9e6679", ""]),
            ("uuid4", &["7c9e6679-7425-40de-944b-e07fc1f90ae7"], &["7c9e6679-7425-10de-944b-e07fc1f90ae7"]),
        ];
        for (name, good, bad) in cases {
            let format = Format::of("string", name).expect(name);
            for text in *good {
                assert!(format.accepts(text), "{name} {text}");
            }
            for text in *bad {
                assert!(!format.accepts(text), "{name} {text}");
            }
        }
    }

    #[test]
    fn formats_belong_to_types() {
        for (ty, name, known) in [
            ("integer", "int32", true),
            ("integer", "date", false),
            ("number", "double", true),
            ("string", "int32", false),
            ("string", "made-up", false),
            ("object", "date", false),
            ("", "date", true),
        ] {
            assert_eq!(Format::of(ty, name).is_some(), known, "{ty} {name}");
        }
    }
}
