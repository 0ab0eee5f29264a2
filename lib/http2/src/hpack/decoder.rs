//! Decoding: from blocks to fields (RFC 7541, sections 3.2 and 6).

use super::table::{Dynamic, STATIC_FIELDS, static_field};
use super::{Broken, FIELD_BYTES, Field, Name, Value, huffman, integer};
use bytes::Bytes;
use std::borrow::Cow;

/// Receives the fields of a block one by one.
pub trait Sink {
    /// Receives one field. A field from the table is borrowed.
    fn take(&mut self, field: Cow<'_, Field>);
}

/// Decodes the header blocks that one connection receives.
#[derive(Debug)]
pub struct Decoder {
    table: Dynamic,
    /// The maximum size of the table in bytes that this side allows. The peer may use a smaller table.
    bytes_max: usize,
    /// A buffer for decoded Huffman codes.
    text: Vec<u8>,
}

/// A buffer up to this size is kept for the next text.
const KEPT_TEXT_BYTES: usize = 1 << 10;

impl Decoder {
    pub fn new(bytes_max: usize) -> Decoder {
        Decoder { table: Dynamic::new(bytes_max), bytes_max, text: Vec::new() }
    }

    /// The number of bytes in the table of fields.
    #[cfg(test)]
    pub fn table_bytes(&self) -> usize {
        self.table.bytes()
    }

    /// Passes all fields of a block to the sink. After a broken block no more blocks can be decoded.
    pub fn decode(&mut self, mut block: &[u8], sink: &mut impl Sink) -> Result<(), Broken> {
        let mut begun = false;
        while let Some(first) = block.first() {
            match first {
                0x80.. => sink.take(Cow::Borrowed(self.field(integer::read(&mut block, 7)?)?)),
                0x40..0x80 => {
                    let field = self.literal(&mut block, 6)?;
                    sink.take(self.table.add(field).map_or_else(Cow::Owned, Cow::Borrowed));
                }
                0x20..0x40 => {
                    let bytes = integer::read(&mut block, 5)?;
                    if begun || bytes > self.bytes_max {
                        return Err(Broken("the size of the table changes where it may not"));
                    }
                    self.table.resize(bytes);
                    continue;
                }
                0x10..0x20 => {
                    let mut field = self.literal(&mut block, 4)?;
                    if let Value::Header(value) = &mut field.value {
                        value.set_sensitive(true);
                    }
                    sink.take(Cow::Owned(field));
                }
                _ => sink.take(Cow::Owned(self.literal(&mut block, 4)?)),
            }
            begun = true;
        }
        if self.text.capacity() > KEPT_TEXT_BYTES {
            self.text = Vec::new();
        }
        Ok(())
    }

    fn field(&self, index: usize) -> Result<&Field, Broken> {
        let field = match index.checked_sub(STATIC_FIELDS + 1) {
            Some(place) => self.table.get(place),
            None => static_field(index),
        };
        field.ok_or(Broken("an index of no field"))
    }

    /// Reads a literal field, whose name may be an index.
    fn literal(&mut self, block: &mut &[u8], bits: u32) -> Result<Field, Broken> {
        let index = integer::read(block, bits)?;
        let (name, name_bytes) = if index == 0 {
            let text = text(&mut self.text, block)?;
            (Name::read(text), text.len())
        } else {
            let field = self.field(index)?;
            (field.name.clone(), field.name_bytes as usize)
        };
        let text = text(&mut self.text, block)?;
        let bytes = u32::try_from(name_bytes + text.len() + FIELD_BYTES).unwrap_or(u32::MAX);
        let value = Value::read(&name, Bytes::copy_from_slice(text));
        Ok(Field { name, value, bytes, name_bytes: name_bytes as u32 })
    }
}

/// A string, either borrowed from the block or decoded into the buffer.
fn text<'b, 'a: 'b>(buffer: &'b mut Vec<u8>, block: &mut &'a [u8]) -> Result<&'b [u8], Broken> {
    let is_code = block.first().is_some_and(|first| first & 0x80 != 0);
    let length = integer::read(block, 7)?;
    let (text, rest) = block.split_at_checked(length).ok_or(Broken("a string is cut off"))?;
    *block = rest;
    if !is_code {
        return Ok(text);
    }
    buffer.clear();
    huffman::decode(text, buffer)?;
    Ok(buffer)
}
