//! Integers with a prefix of a few bits (RFC 7541, section 5.1).

use super::Broken;

/// The maximum number of bytes after the first byte. Five bytes are enough for any sensible length or index.
const BYTES_MAX: u32 = 5;

/// Reads an integer whose prefix is the lowest `bits` bits of the first byte.
pub fn read(bytes: &mut &[u8], bits: u32) -> Result<usize, Broken> {
    const CUT: Broken = Broken("an integer is cut off");
    let (first, rest) = bytes.split_first().ok_or(CUT)?;
    let full = (1u64 << bits) - 1;
    let mut value = u64::from(*first) & full;
    *bytes = rest;
    if value == full {
        for position in 0..=BYTES_MAX {
            let (byte, rest) = bytes.split_first().ok_or(CUT)?;
            *bytes = rest;
            if position == BYTES_MAX {
                return Err(Broken("an integer is too large"));
            }
            value += u64::from(byte & 0x7f) << (7 * position);
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    usize::try_from(value).map_err(|_| Broken("an integer is too large"))
}

/// Appends an integer with a prefix of `bits` bits; `others` contains the other bits of the first byte.
pub fn write(out: &mut Vec<u8>, others: u8, bits: u32, value: usize) {
    let full = (1usize << bits) - 1;
    if value < full {
        out.push(others | value as u8);
        return;
    }
    out.push(others | full as u8);
    let mut rest = value - full;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_of_rfc_7541() {
        for (bytes, bits, value) in [(&b"\x0a"[..], 5, 10), (b"\x1f\x9a\x0a", 5, 1337), (b"\x2a", 8, 42)] {
            let mut rest = bytes;
            assert_eq!(read(&mut rest, bits), Ok(value));
            assert!(rest.is_empty());
            let mut out = Vec::new();
            write(&mut out, 0, bits, value);
            assert_eq!(out, bytes);
        }
    }

    #[test]
    fn the_largest_end_and_what_is_cut_off_is_told() {
        let cases: [(&[u8], Result<usize, ()>); 6] = [
            (b"", Err(())),
            (b"\x7f", Err(())),
            (b"\x7f\x80", Err(())),
            (b"\x7f\xff\xff\xff\xff\x0f", Ok(127 + 0xffff_ffff)),
            (b"\x7f\x80\x80\x80\x80\x00", Ok(127)),
            (b"\x7f\xff\xff\xff\xff\xff\x00", Err(())),
        ];
        for (bytes, expected) in cases {
            assert_eq!(read(&mut &bytes[..], 7).map_err(|_| ()), expected, "{bytes:?}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for bits in 1..=8 {
            for value in (0..600).chain([65_535, 1 << 20, (1 << 32) - 1]) {
                let mut out = Vec::new();
                write(&mut out, 0, bits, value);
                assert_eq!(read(&mut &out[..], bits), Ok(value));
            }
        }
    }
}
