//! The Huffman code of RFC 7541, appendix B.
//!
//! The code is canonical: codes of one length are consecutive, in the order of their symbols, and shorter codes come
//! first. So the lengths determine the codes.

use super::Broken;

/// The lengths in bits of the codes of all bytes.
#[rustfmt::skip]
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12,
    10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5,
    6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22,
    23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22,
    22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26,
    26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27,
    27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27,
    27, 27, 27, 27, 26,
];
const LENGTH_MAX: usize = 30;
/// Codes up to this length are found by one table look-up; most text has only such codes.
const SHORT_BITS: usize = 8;
/// The maximum expansion by decoding, as symbols and code bytes: 8 symbols in 5 bytes, because the shortest code has
/// five bits.
pub const EXPANSION: (usize, usize) = (8, 5);

struct Tables {
    /// The symbol and the length of its code, by the next bits of the input. The length is 0 if the code is longer than
    /// the index.
    short: [(u8, u8); 1 << SHORT_BITS],
    /// By length: the first code, the number of codes, and the index of the first code's symbol.
    first: [u32; LENGTH_MAX + 1],
    count: [u32; LENGTH_MAX + 1],
    start: [u32; LENGTH_MAX + 1],
    /// All symbols in the order of their codes.
    symbols: [u8; 256],
}

static TABLES: Tables = tables();

const fn tables() -> Tables {
    let mut tables = Tables {
        short: [(0, 0); 1 << SHORT_BITS],
        first: [0; LENGTH_MAX + 1],
        count: [0; LENGTH_MAX + 1],
        start: [0; LENGTH_MAX + 1],
        symbols: [0; 256],
    };
    let (mut code, mut place) = (0u32, 0);
    let mut length = 1;
    while length <= LENGTH_MAX {
        code <<= 1;
        tables.first[length] = code;
        tables.start[length] = place as u32;
        let mut symbol = 0;
        while symbol < 256 {
            if LENGTHS[symbol] as usize == length {
                tables.symbols[place] = symbol as u8;
                if length <= SHORT_BITS {
                    let (mut at, end) = (code << (SHORT_BITS - length), (code + 1) << (SHORT_BITS - length));
                    while at < end {
                        tables.short[at as usize] = (symbol as u8, length as u8);
                        at += 1;
                    }
                }
                code += 1;
                place += 1;
            }
            symbol += 1;
        }
        tables.count[length] = code - tables.first[length];
        length += 1;
    }
    tables
}

/// Appends the decoded text.
pub fn decode(code: &[u8], out: &mut Vec<u8>) -> Result<(), Broken> {
    out.reserve(code.len() * EXPANSION.0 / EXPANSION.1 + 1);
    // The highest bits of `bits` are decoded next.
    let (mut bits, mut left) = (0u64, 0usize);
    let mut rest = code;
    loop {
        while left <= 56
            && let Some((byte, after)) = rest.split_first()
        {
            bits |= u64::from(*byte) << (56 - left);
            left += 8;
            rest = after;
        }
        let (symbol, length) = match TABLES.short[(bits >> (64 - SHORT_BITS)) as usize] {
            (_, 0) => long(bits),
            (symbol, length) => (symbol, usize::from(length)),
        };
        if length == 0 || length > left {
            break;
        }
        out.push(symbol);
        bits <<= length;
        left -= length;
    }
    // The padding to a full byte is less than a byte of ones: the beginning of the end-of-string code.
    if left >= 8 || bits != !(u64::MAX >> left) {
        return Err(Broken("a Huffman code that means nothing"));
    }
    Ok(())
}

/// The symbol of the long code at the beginning of `bits`, and the code's length; the length is 0 if there is no such
/// code.
fn long(bits: u64) -> (u8, usize) {
    for length in SHORT_BITS + 1..=LENGTH_MAX {
        let code = (bits >> (64 - length)) as u32;
        let place = code.wrapping_sub(TABLES.first[length]);
        if place < TABLES.count[length] {
            return (TABLES.symbols[(TABLES.start[length] + place) as usize], length);
        }
    }
    (0, 0)
}

/// Appends the code of a text. Only tests use this function, since responses are written without Huffman codes.
#[cfg(test)]
pub fn encode(text: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut held) = (0u64, 0);
    for symbol in text {
        let length = usize::from(LENGTHS[usize::from(*symbol)]);
        let start = TABLES.start[length] as usize;
        let place = TABLES.symbols[start..].iter().position(|other| other == symbol).unwrap();
        bits = bits << length | u64::from(TABLES.first[length] + place as u32);
        held += length;
        while held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
        }
    }
    if held > 0 {
        out.push((bits << (8 - held)) as u8 | (0xff >> held));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decoded(code: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        decode(code, &mut out).ok().map(|()| out)
    }

    #[test]
    fn codes_of_appendix_b() {
        // Some codes of each length from the appendix.
        for (symbol, length, code) in [
            (b'0', 5, 0x0),
            (b't', 5, 0x9),
            (b' ', 6, 0x14),
            (b':', 7, 0x5c),
            (b'z', 7, 0x7b),
            (b'&', 8, 0xf8),
            (b'Z', 8, 0xfd),
            (b'!', 10, 0x3f8),
            (b'|', 11, 0x7fc),
            (b'#', 12, 0xffa),
            (0, 13, 0x1ff8),
            (b'~', 13, 0x1ffd),
            (b'^', 14, 0x3ffc),
            (b'<', 15, 0x7ffc),
            (b'\\', 19, 0x7fff0),
            (128, 20, 0xfffe6),
            (153, 21, 0x1fffdc),
            (129, 22, 0x3fffd2),
            (1, 23, 0x7fffd8),
            (9, 24, 0xffffea),
            (199, 25, 0x1ffffec),
            (192, 26, 0x3ffffe0),
            (203, 27, 0x7ffffde),
            (127, 28, 0xffffffc),
            (22, 30, 0x3ffffffe),
        ] {
            assert_eq!(usize::from(LENGTHS[usize::from(symbol)]), length, "{symbol}");
            let padded = (u64::from(code as u32) << (64 - length) | (u64::MAX >> length)).to_be_bytes();
            assert_eq!(decoded(&padded[..length.div_ceil(8)]), Some(vec![symbol]), "{symbol}");
        }
    }

    #[test]
    fn examples_of_rfc_7541() {
        for (code, text) in [
            (&b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"[..], "www.example.com"),
            (b"\xa8\xeb\x10\x64\x9c\xbf", "no-cache"),
            (b"\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f", "custom-key"),
            (b"\x9d\x29\xad\x17\x18\x63\xc7\x8f\x0b\x97\xc8\xe9\xae\x82\xae\x43\xd3", "https://www.example.com"),
        ] {
            assert_eq!(decoded(code).unwrap(), text.as_bytes());
        }
    }

    #[test]
    fn padding_is_short_and_of_ones() {
        assert_eq!(decoded(b""), Some(vec![]));
        assert_eq!(decoded(b"\x07"), Some(b"0".to_vec()), "three ones");
        assert_eq!(decoded(b"\x06"), None, "another bit");
        assert_eq!(decoded(b"\x00"), None, "zeros");
        assert_eq!(decoded(b"\x07\xff"), None, "a byte and more");
        assert_eq!(decoded(b"\xff\xff\xff\xff"), None, "the end of text is not a symbol");
        assert_eq!(decoded(b"\xff\xff\xff\xfc\x07"), None);
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut code = Vec::new();
            encode(&text, &mut code);
            prop_assert_eq!(decoded(&code), Some(text));
        }

        #[test]
        fn noise_is_decoded_or_refused(code in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(text) = decoded(&code) {
                let mut again = Vec::new();
                encode(&text, &mut again);
                prop_assert_eq!(again, code, "there is one way to write a text");
            }
        }
    }
}
