//! Finds the ends of strings, lists and objects in JSON, many bytes at a time.
//!
//! Readers skip most of a stored object: a reader of a pod, for example, needs a tenth of it. So bytes are not examined
//! one by one. Each block of bytes becomes a 64-bit mask for each kind of structural byte.

use wide::i8x16;

const LANES: usize = 16;
const BLOCK: usize = 4 * LANES;

/// The positions of the structural bytes in a block. Each kind of byte has a mask with one bit for each position.
#[derive(Default)]
struct Marks {
    quotes: u64,
    escapes: u64,
    opens: u64,
    closes: u64,
}

/// What the scan of one block passes to the scan of the next block.
#[derive(Default)]
struct Carried {
    /// All ones if the block begins inside a string, otherwise zero.
    text: u64,
    /// Whether the block's first byte is escaped.
    escaped: bool,
}

/// The position after the closing bracket of a list or object whose opening bracket is before `rest`.
pub fn nested_end(rest: &[u8]) -> Option<usize> {
    let (mut depth, mut carried) = (1, Carried::default());
    for (number, block) in rest.chunks(BLOCK).enumerate() {
        let Marks { opens, closes, .. } = structure(block, &mut carried);
        if closes.count_ones() < depth {
            depth = depth + opens.count_ones() - closes.count_ones();
            continue;
        }
        let mut brackets = opens | closes;
        while brackets != 0 {
            let at = brackets.trailing_zeros() as usize;
            depth = if opens >> at & 1 == 1 { depth + 1 } else { depth - 1 };
            if depth == 0 {
                return Some(number * BLOCK + at + 1);
            }
            brackets &= brackets - 1;
        }
    }
    None
}

/// The length of the string at the beginning of `rest`, up to its closing quote, and whether it contains escapes.
pub fn text_end(rest: &[u8]) -> Option<(usize, bool)> {
    let (mut at, mut has_escapes) = (0, false);
    while let Some(lanes) = rest[at..].first_chunk() {
        let lanes = load(lanes);
        let found = of(lanes, b'"') | of(lanes, b'\\');
        if found != 0 {
            at += found.trailing_zeros() as usize;
            if rest[at] == b'"' {
                return Some((at, has_escapes));
            }
            // The escaped byte is skipped, because it has no structural meaning.
            has_escapes = true;
            at = (at + 2).min(rest.len());
        } else {
            at += LANES;
        }
    }
    while let Some(byte) = rest.get(at) {
        match byte {
            b'"' => return Some((at, has_escapes)),
            b'\\' => (at, has_escapes) = (at + 2, true),
            _ => at += 1,
        }
    }
    None
}

/// The positions of those structural bytes in a block that are not inside strings.
fn structure(block: &[u8], carried: &mut Carried) -> Marks {
    let Marks { quotes, escapes, opens, closes } = match block.first_chunk() {
        Some(block) => marks(block),
        // The last block of a text is filled up with zero bytes, which are not structural.
        None => {
            let mut filled = [0; BLOCK];
            filled[..block.len()].copy_from_slice(block);
            marks(&filled)
        }
    };
    let quotes = quotes & !escaped(escapes, &mut carried.escaped);
    let text = within(quotes) ^ carried.text;
    carried.text = 0u64.wrapping_sub(text >> (u64::BITS - 1));
    Marks { quotes, escapes, opens: opens & !text, closes: closes & !text }
}

fn marks(block: &[u8; BLOCK]) -> Marks {
    let mut marks = Marks::default();
    for (number, lanes) in block.as_chunks::<LANES>().0.iter().enumerate() {
        let (lanes, shift) = (load(lanes), number * LANES);
        // In ASCII, `[` and `]` differ from `{` and `}` only in this bit, and no other printable character becomes a
        // brace when this bit is set.
        let folded = lanes | i8x16::splat(0x20);
        marks.quotes |= of(lanes, b'"') << shift;
        marks.escapes |= of(lanes, b'\\') << shift;
        marks.opens |= of(folded, b'{') << shift;
        marks.closes |= of(folded, b'}') << shift;
    }
    marks
}

fn load(lanes: &[u8; LANES]) -> i8x16 {
    i8x16::new(lanes.map(|byte| byte as i8))
}

/// A mask with a bit for each byte that equals `byte`.
fn of(lanes: i8x16, byte: u8) -> u64 {
    use wide::CmpEq;
    lanes.cmp_eq(i8x16::splat(byte as i8)).move_mask() as u64
}

/// A mask of the bytes that are escaped. `escapes` is the mask of the backslashes.
fn escaped(escapes: u64, carried: &mut bool) -> u64 {
    let mut escaped = u64::from(std::mem::take(carried));
    let mut rest = escapes & !escaped;
    while rest != 0 {
        let next = rest.trailing_zeros() + 1;
        if next == u64::BITS {
            *carried = true;
            break;
        }
        escaped |= 1 << next;
        // A backslash that is itself escaped does not escape the next byte.
        rest &= !(0b11 << (next - 1));
    }
    escaped
}

/// A mask of the bytes from each opening quote up to, but without, the closing quote. `quotes` is the mask of the
/// quotes.
fn within(quotes: u64) -> u64 {
    [1, 2, 4, 8, 16, 32].into_iter().fold(quotes, |bits, by| bits ^ bits << by)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use holdfast_value::Value;
    use proptest::prelude::*;

    /// A simple implementation that goes byte by byte, with which the tests compare [`nested_end`].
    fn nested_end_by_bytes(rest: &[u8]) -> Option<usize> {
        let (mut depth, mut text, mut at) = (1, false, 0);
        while let Some(byte) = rest.get(at) {
            match byte {
                // Only escapes of quotes and backslashes are skipped here, because brackets are never escaped.
                b'\\' if matches!(rest.get(at + 1), Some(b'"' | b'\\')) => at += 1,
                b'"' => text = !text,
                b'{' | b'[' if !text => depth += 1,
                b'}' | b']' if !text => depth -= 1,
                _ => {}
            }
            at += 1;
            if depth == 0 {
                return Some(at);
            }
        }
        None
    }

    fn text_end_by_bytes(rest: &[u8]) -> Option<(usize, bool)> {
        let mut at = 0;
        loop {
            match rest.get(at)? {
                b'"' => return Some((at, rest[..at].contains(&b'\\'))),
                b'\\' => at += 2,
                _ => at += 1,
            }
        }
    }

    #[test]
    fn ends_are_found_wherever_they_stand_in_a_block() {
        for before in 0..3 * BLOCK {
            let fill = "x".repeat(before);
            for (rest, length) in [("\"]", 1), ("\\\"\\\\\"]", 5), ("\\\\\\\"]}\"]", 7)] {
                assert_eq!(nested_end(format!("\"{fill}{rest}").as_bytes()), Some(before + 1 + length + 1));
                assert_eq!(text_end(format!("{fill}{rest}").as_bytes()), Some((before + length - 1, length > 1)));
            }
            let deep = format!("{}{fill}{}", "[".repeat(before), "}".repeat(before + 2));
            assert_eq!(nested_end(deep.as_bytes()), Some(deep.len() - 1));
            assert_eq!(nested_end(format!("\"{fill}]").as_bytes()), None);
            assert_eq!(text_end(fill.as_bytes()), None);
            assert_eq!(text_end(format!("{fill}\\").as_bytes()), None);
        }
    }

    pub fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-1e9..1e9).prop_map(Value::from),
            ".{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(".{0,6}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn ends_are_where_reading_byte_by_byte_finds_them(text in "([\\[\\]{}\"\\\\a]|\\\\{1,5}|[a ]{0,40}|é){0,120}") {
            let text = text.as_bytes();
            prop_assert_eq!(nested_end(text), nested_end_by_bytes(text));
            prop_assert_eq!(text_end(text), text_end_by_bytes(text));
        }
    }
}
