//! PEM blocks, and enough DER to recognize certificates and certificate requests. Signatures are not verified here; the
//! signer verifies them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

pub(super) struct Block {
    pub ty: String,
    pub has_headers: bool,
    pub bytes: Vec<u8>,
}

/// The first characters of a line that begins a block.
pub(super) const BEGIN: &str = "-----BEGIN ";

/// The text that a base64 field of an object encodes; empty if the base64 is invalid.
pub(super) fn decoded(base64: &str) -> String {
    let compact: String = base64.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    STANDARD.decode(compact).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// The blocks of a text. Text between blocks and incomplete blocks are skipped.
pub(super) fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(ty) = line.trim_end().strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix("-----")) else {
            continue;
        };
        let end = format!("-----END {ty}-----");
        let (mut body, mut has_headers, mut whole) = (String::new(), false, false);
        // A block whose end is missing ends before the next block begins.
        while let Some(line) = lines.next_if(|line| !line.starts_with(BEGIN)) {
            if line.trim_end() == end {
                whole = true;
                break;
            }
            if line.contains(':') {
                has_headers = true;
            } else {
                body.extend(line.chars().filter(|c| !c.is_ascii_whitespace()));
            }
        }
        if let Some(bytes) = STANDARD.decode(&body).ok().filter(|_| whole) {
            blocks.push(Block { ty: ty.to_owned(), has_headers, bytes });
        }
    }
    blocks
}

/// The reason why a base64 CA bundle is invalid; `None` if it is valid. As in Go, blocks that are not certificates are
/// skipped, and one unreadable certificate makes the bundle invalid.
pub fn pool_fault(base64: &str) -> Option<&'static str> {
    let blocks = blocks(&decoded(base64));
    let mut certificates = blocks.iter().filter(|block| block.ty == "CERTIFICATE" && !block.has_headers).peekable();
    if certificates.peek().is_none() {
        return Some("data does not contain any valid RSA or ECDSA certificates");
    }
    certificates.any(|block| !is_signed(&block.bytes)).then_some("x509: malformed certificate")
}

const INTEGER: u8 = 0x02;
const SEQUENCE: u8 = 0x30;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const BOOLEAN: u8 = 0x01;
const OBJECT: u8 = 0x06;
/// The DER tag of a certificate's extensions.
const EXTENSIONS: u8 = 0xa3;
/// The DER form of 2.5.29.19, the identifier of the extension "basic constraints".
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];

/// Whether the bytes are a sequence of body, algorithm and signature: the form of certificates and certificate
/// requests.
pub(super) fn is_signed(der: &[u8]) -> bool {
    body(der).is_some()
}

/// Whether a certificate belongs to a CA.
pub(super) fn is_authority(der: &[u8]) -> bool {
    let extensions = body(der).and_then(|body| elements(body).into_iter().flatten().find(|e| e.0 == EXTENSIONS));
    let list = extensions.and_then(|(_, wrapped)| elements(wrapped)).and_then(|inner| inner.first().copied());
    list.and_then(|(_, list)| elements(list)).into_iter().flatten().any(|(_, extension)| says_authority(extension))
}

fn says_authority(extension: &[u8]) -> bool {
    let Some(parts) = elements(extension) else { return false };
    if parts.first() != Some(&(OBJECT, BASIC_CONSTRAINTS)) {
        return false;
    }
    let Some((OCTET_STRING, value)) = parts.last().copied() else { return false };
    let inner = elements(value).and_then(|outer| outer.first().copied()).and_then(|(_, inner)| elements(inner));
    inner.is_some_and(|fields| fields.first().is_some_and(|(tag, value)| *tag == BOOLEAN && *value != [0]))
}

/// The DER form of 2.5.4.10, the identifier of the organization, which Kubernetes reads as a group.
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
/// The DER form of 2.5.4.3, the identifier of the common name, which Kubernetes reads as the user's name.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const SET: u8 = 0x31;
const UTF8_STRING: u8 = 0x0c;
const NUMERIC_STRING: u8 = 0x12;
const PRINTABLE_STRING: u8 = 0x13;
const T61_STRING: u8 = 0x14;
const IA5_STRING: u8 = 0x16;
const BMP_STRING: u8 = 0x1e;

/// The organizations in a certificate request; `None` if it cannot be parsed.
pub(super) fn organizations(request: &[u8]) -> Option<Vec<String>> {
    subject_parts(request, ORGANIZATION)
}

/// The common names in a certificate request; `None` if it cannot be parsed.
pub(super) fn common_names(request: &[u8]) -> Option<Vec<String>> {
    subject_parts(request, COMMON_NAME)
}

fn subject_parts(request: &[u8], wanted: &[u8]) -> Option<Vec<String>> {
    let [(INTEGER, _), (SEQUENCE, subject), ..] = elements(body(request)?)?[..] else { return None };
    let mut found = Vec::new();
    for (tag, set) in elements(subject)? {
        for (inner, attribute) in elements(set).filter(|_| tag == SET)? {
            let [(OBJECT, name), (ty, value)] = elements(attribute).filter(|_| inner == SEQUENCE)?[..] else {
                return None;
            };
            if name == wanted {
                found.push(string(ty, value)?);
            }
        }
    }
    Some(found)
}

fn string(ty: u8, bytes: &[u8]) -> Option<String> {
    match ty {
        UTF8_STRING | NUMERIC_STRING | PRINTABLE_STRING | T61_STRING | IA5_STRING => {
            String::from_utf8(bytes.to_vec()).ok()
        }
        BMP_STRING => {
            let (pairs, rest) = bytes.as_chunks::<2>();
            let units: Vec<u16> = pairs.iter().map(|pair| u16::from_be_bytes(*pair)).collect();
            String::from_utf16(&units).ok().filter(|_| rest.is_empty())
        }
        _ => None,
    }
}

fn body(der: &[u8]) -> Option<&[u8]> {
    let [(SEQUENCE, whole)] = elements(der)?[..] else { return None };
    match elements(whole)?[..] {
        [(SEQUENCE, body), (SEQUENCE, _), (BIT_STRING, _)] => Some(body),
        _ => None,
    }
}

/// The elements of a sequence, as tags and contents; `None` if the bytes end too early.
fn elements(mut der: &[u8]) -> Option<Vec<(u8, &[u8])>> {
    let mut found = Vec::new();
    while let [tag, first, rest @ ..] = der {
        let (length, rest) = match first {
            0..0x80 => (usize::from(*first), rest),
            _ => {
                let bytes = usize::from(first & 0x7f);
                let number = rest.get(..bytes).filter(|_| (1..=4).contains(&bytes))?;
                (number.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), &rest[bytes..])
            }
        };
        found.push((*tag, rest.get(..length)?));
        der = &rest[length..];
    }
    der.is_empty().then_some(found)
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag, 0x82];
        bytes.extend(u16::try_from(content.len()).expect("a short element").to_be_bytes());
        bytes.extend(content);
        bytes
    }

    /// Bytes that have the form of a certificate for tests. `serial` makes the bytes of two certificates differ.
    pub fn certificate(authority: bool, serial: u8) -> Vec<u8> {
        let flag = if authority { element(BOOLEAN, &[0xff]) } else { Vec::new() };
        let value = element(OCTET_STRING, &element(SEQUENCE, &flag));
        let extension = element(SEQUENCE, &[element(OBJECT, BASIC_CONSTRAINTS), value].concat());
        let extensions = element(EXTENSIONS, &element(SEQUENCE, &extension));
        signed(&[element(0x02, &[serial]), extensions].concat())
    }

    /// Bytes in the form of a certificate request for one organization.
    pub fn request(string: u8, organization: &[u8]) -> Vec<u8> {
        let attribute = element(SEQUENCE, &[element(OBJECT, ORGANIZATION), element(string, organization)].concat());
        let subject = element(SEQUENCE, &element(SET, &attribute));
        signed(&[element(INTEGER, &[0]), subject, element(SEQUENCE, &[])].concat())
    }

    pub fn signed(body: &[u8]) -> Vec<u8> {
        let parts = [element(SEQUENCE, body), element(SEQUENCE, &[]), element(BIT_STRING, &[0, 1])];
        element(SEQUENCE, &parts.concat())
    }

    pub fn pem(ty: &str, der: &[u8]) -> String {
        format!("-----BEGIN {ty}-----\n{}\n-----END {ty}-----\n", STANDARD.encode(der))
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{certificate, pem, request, signed};
    use super::*;

    #[test]
    fn blocks_are_found_among_other_text() {
        let text = format!("hello\n{}between\n{}", pem("A", b"one"), pem("B C", b"two"));
        let found: Vec<(String, Vec<u8>)> = blocks(&text).into_iter().map(|block| (block.ty, block.bytes)).collect();
        assert_eq!(found, [("A".into(), b"one".to_vec()), ("B C".into(), b"two".to_vec())]);
        assert!(blocks("-----BEGIN A-----\nAAAA\n").is_empty());
        assert!(blocks("-----BEGIN A-----\n!\n-----END A-----\n").is_empty());
        let cut = format!("-----BEGIN A-----\nAAAA\n{}", pem("B", b"two"));
        assert_eq!(blocks(&cut).len(), 1);
        assert!(blocks("-----BEGIN A-----\nK: v\n\nAAAA\n-----END A-----\n")[0].has_headers);
    }

    #[test]
    fn a_pool_needs_a_certificate_and_no_broken_one() {
        let none = Some("data does not contain any valid RSA or ECDSA certificates");
        let good = pem("CERTIFICATE", &certificate(true, 1));
        let rows = [
            ("\n".to_owned(), none),
            (pem("PRIVATE KEY", &certificate(true, 1)), none),
            (good.clone(), None),
            (format!("of us:\n{good}{}", pem("PRIVATE KEY", b"none")), None),
            (format!("{good}{}", pem("CERTIFICATE", b"none")), Some("x509: malformed certificate")),
        ];
        for (text, fault) in rows {
            assert_eq!(pool_fault(&STANDARD.encode(&text)), fault, "{text}");
        }
        assert_eq!(pool_fault("no base64"), none);
    }

    #[test]
    fn organizations_are_read_in_every_sort_of_string() {
        let rows: [(u8, &[u8], Option<&str>); 6] = [
            (UTF8_STRING, b"dev", Some("dev")),
            (PRINTABLE_STRING, b"dev", Some("dev")),
            (BMP_STRING, b"\0d\0e\0v", Some("dev")),
            (BMP_STRING, b"\0d\0", None),
            (UTF8_STRING, b"\xff", None),
            (0x1c, b"\0\0\0d", None),
        ];
        for (ty, bytes, expected) in rows {
            let expected = expected.map(|text| vec![text.to_owned()]);
            assert_eq!(organizations(&request(ty, bytes)), expected, "{ty:x} {bytes:?}");
        }
        assert_eq!(organizations(&signed(&[])), None);
        assert_eq!(organizations(b"0"), None);
    }

    #[test]
    fn certificates_are_told_apart() {
        assert!(is_signed(&signed(&[])));
        assert!(is_authority(&certificate(true, 1)));
        assert!(!is_authority(&certificate(false, 1)));
        for wrong in [&b""[..], b"0", b"0\x05", b"hello", &certificate(true, 1)[1..], &[0x30, 0x88, 1, 1, 1, 1]] {
            assert!(!is_signed(wrong), "{wrong:?}");
        }
    }
}
