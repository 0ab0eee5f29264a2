//! Parses the outermost layer of DER: the end of an element, and its content.

pub const INTEGER: u8 = 0x02;
pub const OCTET_STRING: u8 = 0x04;
pub const OBJECT_IDENTIFIER: u8 = 0x06;
pub const BIT_STRING: u8 = 0x03;
pub const SEQUENCE: u8 = 0x30;
/// The tag of the context-specific element with the number 0.
pub const CONTEXT_0: u8 = 0xa0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Element<'a> {
    pub tag: u8,
    pub content: &'a [u8],
    /// The element including its tag and length.
    pub whole: &'a [u8],
}

/// Returns the elements in the bytes one after another, up to the first malformed element.
pub fn elements(mut rest: &[u8]) -> impl Iterator<Item = Element<'_>> {
    std::iter::from_fn(move || {
        let (element, behind) = split(rest)?;
        rest = behind;
        Some(element)
    })
}

/// The content of a sequence that is the whole input.
pub fn sequence(bytes: &[u8]) -> Option<&[u8]> {
    match split(bytes)? {
        (Element { tag: SEQUENCE, content, .. }, []) => Some(content),
        _ => None,
    }
}

fn split(bytes: &[u8]) -> Option<(Element<'_>, &[u8])> {
    let (&[tag, first], after) = bytes.split_first_chunk::<2>()?;
    let (length, after) = match first {
        ..=0x7f => (usize::from(first), after),
        0x81..=0x84 => {
            let (digits, after) = after.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), after)
        }
        _ => return None,
    };
    let (content, rest) = after.split_at_checked(length)?;
    Some((Element { tag, content, whole: &bytes[..bytes.len() - rest.len()] }, rest))
}

/// Encodes an element with this tag. Its content is the parts, one after another.
pub fn encode(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let digits = length.to_be_bytes();
    let digits = &digits[digits.iter().take_while(|digit| **digit == 0).count()..];
    let mut made = vec![tag];
    match length {
        0..0x80 => made.push(length as u8),
        _ => {
            made.push(0x80 | digits.len() as u8);
            made.extend_from_slice(digits);
        }
    }
    parts.iter().for_each(|part| made.extend_from_slice(part));
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_is_read_back() {
        for length in [0, 1, 0x7f, 0x80, 0xff, 0x100, 0x1_0000] {
            let content = vec![7; length];
            let whole = encode(OCTET_STRING, &[&content]);
            let twice = [whole.as_slice(), &whole].concat();
            let found: Vec<Element> = elements(&twice).collect();
            assert_eq!(found.len(), 2, "{length}");
            assert!(found.iter().all(|found| found.content == content && found.whole == whole));
        }
        assert_eq!(sequence(&encode(SEQUENCE, &[b"a", b"b"])), Some(&b"ab"[..]));
    }

    #[test]
    fn what_is_broken_is_nothing() {
        let bytes: [&[u8]; 7] = [
            &[],
            &[0x30],
            &[0x30, 1],
            &[0x30, 0x80, 0, 0],
            &[0x30, 0x85, 0, 0, 0, 0, 0],
            &[0x30, 0x84, 255, 255, 255, 255, 0],
            &[0x30, 0, 0],
        ];
        for bytes in bytes {
            assert_eq!(sequence(bytes), None, "{bytes:?}");
        }
    }
}
