//! The Protobuf wire format. The reader reads keys and values. The writer writes a message from its end to its start.

use super::DecodeError;

/// The wire types, which say how a value is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    Varint,
    Fixed64,
    Delimited,
    GroupStart,
    GroupEnd,
    Fixed32,
}

impl Wire {
    pub(super) fn number(self) -> u8 {
        match self {
            Wire::Varint => 0,
            Wire::Fixed64 => 1,
            Wire::Delimited => 2,
            Wire::GroupStart => 3,
            Wire::GroupEnd => 4,
            Wire::Fixed32 => 5,
        }
    }
}

/// The maximum number of groups inside each other in an unknown field.
const GROUP_DEPTH_MAX: u32 = 100;
const FIELD_NUMBER_MAX: u64 = (1 << 29) - 1;

#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Reads the number and the wire type of the next field; `None` at the end of the message.
    #[inline]
    pub(super) fn key(&mut self) -> Result<Option<(u32, Wire)>, DecodeError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let number = key >> 3;
        if number == 0 || number > FIELD_NUMBER_MAX {
            return Err(DecodeError::malformed(format!("illegal tag {number} (wire type {})", key & 7)));
        }
        let wire = match key & 7 {
            0 => Wire::Varint,
            1 => Wire::Fixed64,
            2 => Wire::Delimited,
            3 => Wire::GroupStart,
            4 => Wire::GroupEnd,
            5 => Wire::Fixed32,
            other => return Err(DecodeError::malformed(format!("illegal wireType {other}"))),
        };
        Ok(Some((number as u32, wire)))
    }

    #[inline]
    pub(super) fn varint(&mut self) -> Result<u64, DecodeError> {
        match self.rest {
            [byte, rest @ ..] if *byte < 0x80 => {
                self.rest = rest;
                Ok(u64::from(*byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0;
        for (index, byte) in self.rest.iter().take(10).enumerate() {
            // The tenth byte of a varint has only one bit that fits 64 bits. As in Go, the other bits are dropped.
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        Err(if self.rest.len() < 10 {
            DecodeError::cut_off()
        } else {
            DecodeError::malformed("integer overflow".into())
        })
    }

    /// Reads the content of a value with a length: a string, bytes or a message.
    #[inline]
    pub(super) fn delimited(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = usize::try_from(self.varint()?).map_err(|_| DecodeError::cut_off())?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or_else(DecodeError::cut_off)?;
        self.rest = rest;
        Ok(bytes)
    }

    pub(super) fn double(&mut self) -> Result<f64, DecodeError> {
        let (bytes, rest) = self.rest.split_first_chunk::<8>().ok_or_else(DecodeError::cut_off)?;
        self.rest = rest;
        Ok(f64::from_le_bytes(*bytes))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Skips the value of an unknown field.
    pub(super) fn skip(&mut self, wire: Wire) -> Result<(), DecodeError> {
        let mut groups = 0;
        let mut wire = wire;
        loop {
            match wire {
                Wire::Varint => drop(self.varint()?),
                Wire::Fixed64 => drop(self.double()?),
                Wire::Delimited => drop(self.delimited()?),
                Wire::Fixed32 => self.rest = self.rest.get(4..).ok_or_else(DecodeError::cut_off)?,
                Wire::GroupStart if groups < GROUP_DEPTH_MAX => groups += 1,
                Wire::GroupStart => return Err(DecodeError::too_deep()),
                Wire::GroupEnd if groups > 0 => groups -= 1,
                Wire::GroupEnd => return Err(DecodeError::malformed("unexpected end of group".into())),
            }
            if groups == 0 {
                return Ok(());
            }
            wire = self.key()?.ok_or_else(DecodeError::cut_off)?.1;
        }
    }
}

/// Writes a message from its end to its start. So the length of a content is known when it must be written before the
/// content.
#[derive(Debug)]
pub(super) struct Backward {
    buffer: Vec<u8>,
    start: usize,
}

impl Backward {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self { buffer: vec![0; capacity], start: capacity }
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.buffer.drain(..self.start);
        self.buffer
    }

    pub(super) fn len(&self) -> usize {
        self.buffer.len() - self.start
    }

    #[inline]
    pub(super) fn put(&mut self, bytes: &[u8]) {
        if self.start < bytes.len() {
            self.grow(bytes.len());
        }
        let end = self.start;
        self.start -= bytes.len();
        self.buffer[self.start..end].copy_from_slice(bytes);
    }

    #[inline]
    pub(super) fn varint(&mut self, mut value: u64) {
        if value < 0x80 {
            return self.put(&[value as u8]);
        }
        let mut bytes = [0; 10];
        let mut length = 0;
        while value >= 0x80 {
            bytes[length] = value as u8 | 0x80;
            value >>= 7;
            length += 1;
        }
        bytes[length] = value as u8;
        self.put(&bytes[..=length]);
    }

    #[inline]
    pub(super) fn key(&mut self, number: u32, wire: Wire) {
        self.varint(u64::from(number) << 3 | u64::from(wire.number()));
    }

    /// Writes a field whose value is a varint.
    #[inline]
    pub(super) fn number(&mut self, number: u32, value: u64) {
        self.varint(value);
        self.key(number, Wire::Varint);
    }

    /// Writes a field whose value is a string or bytes.
    #[inline]
    pub(super) fn bytes(&mut self, number: u32, bytes: &[u8]) {
        self.put(bytes);
        self.varint(bytes.len() as u64);
        self.key(number, Wire::Delimited);
    }

    /// Writes the length and the key of a field whose content was just written. `end` is what [`Self::len`] returned
    /// before the content.
    #[inline]
    pub(super) fn close(&mut self, number: u32, end: usize) {
        self.varint((self.len() - end) as u64);
        self.key(number, Wire::Delimited);
    }

    #[cold]
    fn grow(&mut self, more: usize) {
        let used = self.len();
        let capacity = (self.buffer.len() * 2).max(used + more).max(64);
        let mut buffer = vec![0; capacity];
        buffer[capacity - used..].copy_from_slice(&self.buffer[self.start..]);
        self.start = capacity - used;
        self.buffer = buffer;
    }
}

/// The number of bytes that a number takes as a varint.
pub(super) fn varint_length(value: usize) -> usize {
    let bits = usize::BITS - value.leading_zeros();
    bits.div_ceil(7).max(1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_written() {
        for value in [0, 1, 127, 128, 300, 16_383, 16_384, u64::from(u32::MAX), u64::MAX] {
            let mut out = Backward::with_capacity(0);
            out.varint(value);
            let bytes = out.finish();
            assert_eq!(Reader::new(&bytes).varint(), Ok(value));
            assert_eq!(varint_length(value as usize), bytes.len());
            assert_eq!(Reader::new(&bytes[..bytes.len() - 1]).varint(), Err(DecodeError::cut_off()));
        }
        assert!(Reader::new(&[0xff; 11]).varint().is_err());
    }

    #[test]
    fn unknown_values_are_skipped_whole() {
        // In each case another field follows the skipped field, and is read to show that the skipping ended at the
        // right byte.
        let cases: [&[u8]; 5] = [
            &[0x08, 0x96, 0x01],
            &[0x09, 1, 2, 3, 4, 5, 6, 7, 8],
            &[0x0a, 2, 9, 9],
            &[0x0b, 0x0b, 0x10, 1, 0x0c, 0x12, 1, 0, 0x0c],
            &[0x0d, 1, 2, 3, 4],
        ];
        for case in cases {
            let bytes = [case, &[0x10, 5]].concat();
            let mut reader = Reader::new(&bytes);
            let (number, wire) = reader.key().expect("a key").expect("a field");
            assert_eq!(number, 1);
            reader.skip(wire).expect("a known form");
            assert_eq!(reader.key(), Ok(Some((2, Wire::Varint))), "{case:?}");
            let mut cut = Reader::new(&case[..case.len() - 1]);
            let (_, wire) = cut.key().expect("a key").expect("a field");
            assert!(cut.skip(wire).is_err(), "{case:?}");
        }
        for bad in [&[0x0c_u8][..], &[0x0f, 0], &[0x00, 0], &[0x0b; 300]] {
            let mut reader = Reader::new(bad);
            let result = reader.key().and_then(|key| reader.skip(key.expect("not the end").1));
            assert!(result.is_err(), "{bad:?}");
        }
    }
}
