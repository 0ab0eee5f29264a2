//! The bytes of a stored object: either whole, or packed as differences from a similar object.
//!
//! Objects of a kind are similar: about 300 of a pod's 5,000 bytes differ from other pods of the same template. So an
//! object that has not changed for a while is packed into pieces. The pieces are the object's own bytes and references
//! into a model, which is another object that is stored whole. Unpacking copies the pieces in order, and costs hardly
//! more than copying the whole object. Callers cannot see in which form an object is stored.

use crate::cached::Cached;
use bytes::Bytes;
use std::collections::VecDeque;
use std::fmt;
use std::ops::{DerefMut, Range};
use std::sync::{Arc, Weak};

/// The minimum number of bytes of a packed object. Smaller objects are not packed, because the overhead would outweigh
/// the savings.
const BYTES_MIN: usize = 700;
/// The maximum number of bytes of a packed object. Larger objects are not packed, so that readers get the stored bytes
/// and never a copy.
const BYTES_MAX: usize = 32 << 10;
/// If more than 1/`OWN_PART` of an object's bytes are its own, the object is not packed and becomes a model.
const OWN_PART: usize = 4;
/// The number of the newest objects that stay whole, because they may change soon.
const YOUNG_MAX: usize = 1024;
/// The maximum number of kinds that have models.
const FAMILIES_MAX: usize = 32;
/// The maximum number of models of a kind.
const MODELS_MAX: usize = 4;
/// The maximum number of objects of a kind that are skipped after several objects in a row matched no model. Then the
/// next object is compared with the models.
const SKIPS_MAX: u32 = 64;
/// The number of bytes of the shortest match with a model.
const WINDOW: usize = 16;
/// In a model, a match begins at an index that is a multiple of this number of bytes.
const STEP: usize = 4;

/// The bytes of one version of an object. Clones share the bytes. Readers see no difference between whole and packed
/// bytes.
#[derive(Clone)]
pub struct Body(Arc<Cached<Form>>);

enum Form {
    Whole(Bytes),
    Pieces(Pieces),
}

struct Pieces {
    model: Bytes,
    /// The pieces, each as four parts: the number of own bytes, these bytes, the number of bytes from the model, and
    /// their offset in the model.
    own: Box<[u8]>,
    /// The number of bytes of the unpacked object.
    length: usize,
}

impl Body {
    pub fn new(bytes: Bytes) -> Body {
        Body(Arc::new(Cached::new(Form::Whole(bytes))))
    }

    pub fn bytes(&self) -> Bytes {
        match &*self.form() {
            Form::Whole(bytes) => bytes.clone(),
            Form::Pieces(pieces) => {
                let mut out = Vec::with_capacity(pieces.length);
                pieces.append(0..pieces.length, &mut out);
                out.into()
            }
        }
    }

    pub fn len(&self) -> usize {
        match &*self.form() {
            Form::Whole(bytes) => bytes.len(),
            Form::Pieces(pieces) => pieces.length,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the object is packed, so that reading it copies the bytes.
    pub fn is_in_pieces(&self) -> bool {
        matches!(&*self.form(), Form::Pieces(_))
    }

    /// Appends the bytes of the range `part` to `out`.
    pub fn append(&self, part: Range<usize>, out: &mut Vec<u8>) {
        match &*self.form() {
            Form::Whole(bytes) => out.extend_from_slice(&bytes[part]),
            Form::Pieces(pieces) => pieces.append(part, out),
        }
    }

    fn form(&self) -> impl DerefMut<Target = Form> + '_ {
        self.0.lock()
    }
}

impl<B: Into<Bytes>> From<B> for Body {
    fn from(bytes: B) -> Body {
        Body::new(bytes.into())
    }
}

impl PartialEq for Body {
    fn eq(&self, other: &Body) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.bytes() == other.bytes()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes().fmt(f)
    }
}

impl Pieces {
    fn append(&self, part: Range<usize>, out: &mut Vec<u8>) {
        let (mut skip, mut left) = (part.start, part.len());
        let mut put = |bytes: &[u8]| {
            let skipped = skip.min(bytes.len());
            skip -= skipped;
            let bytes = &bytes[skipped..];
            let bytes = &bytes[..left.min(bytes.len())];
            left -= bytes.len();
            out.extend_from_slice(bytes);
        };
        let mut rest = &*self.own;
        while !rest.is_empty() {
            let own = number(&mut rest);
            let (bytes, behind) = rest.split_at(own);
            rest = behind;
            put(bytes);
            let (length, place) = (number(&mut rest), number(&mut rest));
            put(&self.model[place..place + length]);
        }
    }
}

/// Packs the bodies of objects. It stores the models against which they are packed.
#[derive(Default)]
pub struct Packer {
    /// The families of objects, the most recently used one first.
    families: VecDeque<Family>,
    young: VecDeque<Weak<Cached<Form>>>,
}

/// The objects of one apiVersion and kind, which all begin with the same bytes.
struct Family {
    head: Bytes,
    /// The models of this family, the most recently used one first.
    models: VecDeque<Model>,
    /// The number of objects in a row that matched no model.
    misses: u32,
    /// The number of objects that are still to be skipped.
    skips: u32,
}

impl Packer {
    /// Adds the body of a new object. It is packed after `YOUNG_MAX` further bodies have been added, unless the object
    /// is gone by then.
    pub fn note(&mut self, body: &Body) {
        if !(BYTES_MIN..=BYTES_MAX).contains(&body.len()) {
            return;
        }
        self.young.push_back(Arc::downgrade(&body.0));
        if self.young.len() > YOUNG_MAX
            && let Some(old) = self.young.pop_front().and_then(|old| old.upgrade())
        {
            self.pack(&Body(old));
        }
    }

    /// Packs a body if it matches a model of its family. Otherwise the body becomes a model, unless the family skips
    /// it.
    pub fn pack(&mut self, body: &Body) {
        if !(BYTES_MIN..=BYTES_MAX).contains(&body.len()) || body.is_in_pieces() {
            return;
        }
        let bytes = body.bytes();
        if let Some(pieces) = self.family(&bytes).pieces(&bytes) {
            *body.form() = Form::Pieces(pieces);
        }
    }

    fn family(&mut self, bytes: &Bytes) -> &mut Family {
        let head = head(bytes);
        let known = self.families.iter().position(|family| family.head == head);
        let family = known.and_then(|place| self.families.remove(place)).unwrap_or_else(|| Family::new(head));
        self.families.truncate(FAMILIES_MAX - 1);
        self.families.push_front(family);
        &mut self.families[0]
    }
}

impl Family {
    fn new(head: &[u8]) -> Family {
        Family { head: Bytes::copy_from_slice(head), models: VecDeque::new(), misses: 0, skips: 0 }
    }

    fn pieces(&mut self, bytes: &Bytes) -> Option<Pieces> {
        if self.skips > 0 {
            self.skips -= 1;
            return None;
        }
        for place in 0..self.models.len() {
            if let Some(own) = self.models[place].differ(bytes, bytes.len() / OWN_PART) {
                let model = self.models.remove(place)?;
                let pieces = Pieces { model: model.bytes.clone(), own, length: bytes.len() };
                self.models.push_front(model);
                self.misses = 0;
                return Some(pieces);
            }
        }
        self.misses = self.misses.saturating_add(1);
        if self.misses as usize > MODELS_MAX {
            self.skips = (self.misses - MODELS_MAX as u32).min(SKIPS_MAX);
        }
        self.models.truncate(MODELS_MAX - 1);
        self.models.push_front(Model::new(bytes.clone()));
        None
    }
}

/// The bytes of an object before its metadata: `{"apiVersion":"v1","kind":"Pod",`.
fn head(bytes: &[u8]) -> &[u8] {
    const METADATA: &[u8] = b"\"metadata\":";
    let start = &bytes[..bytes.len().min(512)];
    let length = start.windows(METADATA.len()).position(|window| window == METADATA).unwrap_or(0);
    &bytes[..length]
}

/// An object against which other objects are packed.
struct Model {
    bytes: Bytes,
    /// For each hash of a window of [`WINDOW`] bytes, the number of the step at which such a window begins, plus one.
    /// Zero if no window has the hash.
    steps: Box<[u16]>,
}

impl Model {
    fn new(bytes: Bytes) -> Model {
        let mut steps = vec![0; (bytes.len() / STEP * 2).next_power_of_two()].into_boxed_slice();
        for (step, window) in (0..).zip(bytes.windows(WINDOW).step_by(STEP)) {
            let slot = &mut steps[slot(window, bytes.len() / STEP * 2)];
            if *slot == 0 {
                *slot = step + 1;
            }
        }
        Model { bytes, steps }
    }

    /// Packs another object against the model; `None` if the pieces would take more than `most` bytes.
    fn differ(&self, bytes: &[u8], most: usize) -> Option<Box<[u8]>> {
        let mut out = Vec::with_capacity(most);
        let (mut at, mut begin) = (0, 0);
        while at + WINDOW <= bytes.len() {
            if out.len() + at - begin > most {
                return None;
            }
            let Some(mut place) = self.find(&bytes[at..at + WINDOW]) else {
                at += 1;
                continue;
            };
            let end = at + alike(&bytes[at..], &self.bytes[place..]);
            let mut before = bytes[begin..at].iter().rev().zip(self.bytes[..place].iter().rev());
            let before = before.position(|(own, other)| own != other).unwrap_or(place.min(at - begin));
            (at, place) = (at - before, place - before);
            piece(&mut out, &bytes[begin..at], end - at, place);
            (at, begin) = (end, end);
        }
        if begin < bytes.len() {
            piece(&mut out, &bytes[begin..], 0, 0);
        }
        (out.len() <= most).then(|| out.into())
    }

    fn find(&self, window: &[u8]) -> Option<usize> {
        let step = usize::from(self.steps[slot(window, self.bytes.len() / STEP * 2)]).checked_sub(1)?;
        let place = step * STEP;
        (&self.bytes[place..place + WINDOW] == window).then_some(place)
    }
}

/// The length of the common beginning of two texts.
fn alike(one: &[u8], other: &[u8]) -> usize {
    let chunks = one.chunks_exact(WINDOW).zip(other.chunks_exact(WINDOW));
    let whole = chunks.take_while(|(one, other)| one == other).count() * WINDOW;
    whole + one[whole..].iter().zip(&other[whole..]).take_while(|(one, other)| one == other).count()
}

/// The index for a window of bytes in a hash table that has at least `places` entries.
fn slot(window: &[u8], places: usize) -> usize {
    let word = |at: usize| window[at..at + 8].iter().fold(0, |word: u64, byte| word << 8 | u64::from(*byte));
    let hash = (word(0) ^ word(8).rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> 40) as usize & (places.next_power_of_two() - 1)
}

fn piece(out: &mut Vec<u8>, own: &[u8], length: usize, place: usize) {
    put_number(out, own.len());
    out.extend_from_slice(own);
    put_number(out, length);
    put_number(out, place);
}

/// Writes a number with seven bits in each byte, the lowest bits first. A set high bit of a byte means that more bytes
/// follow.
fn put_number(out: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn number(rest: &mut &[u8]) -> usize {
    let (mut number, mut shift) = (0, 0);
    while let Some((byte, behind)) = rest.split_first() {
        *rest = behind;
        number |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
        shift += 7;
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pod(number: usize) -> String {
        let own = format!("web-{number}-{:x}", number.wrapping_mul(0x9e37_79b9));
        let same =
            r#""containers":[{"image":"registry.example/app:1","name":"c","resources":{"requests":{"cpu":"100m"}}}],"#;
        format!(
            r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{own}"}},"spec":{{{}"nodeName":"node-{number}"}}}}"#,
            same.repeat(12)
        )
    }

    fn kept(body: &Body) -> usize {
        match &*body.form() {
            Form::Whole(bytes) => bytes.len(),
            Form::Pieces(pieces) => pieces.own.len(),
        }
    }

    #[test]
    fn what_is_like_another_is_kept_in_few_bytes_and_read_as_it_was() {
        let mut packer = Packer::default();
        let bodies: Vec<Body> = (0..10).map(|number| Body::from(pod(number))).collect();
        bodies.iter().for_each(|body| packer.pack(body));
        assert!(!bodies[0].is_in_pieces(), "the first is the model");
        for (number, body) in bodies.iter().enumerate() {
            assert_eq!(body.bytes(), pod(number), "{number}");
            assert_eq!(body.len(), pod(number).len());
            assert!(number == 0 || kept(body) < 80, "{number}: {}", kept(body));
        }
    }

    #[test]
    fn any_part_is_read_alike_from_the_whole_and_from_pieces() {
        let mut packer = Packer::default();
        let (model, body) = (Body::from(pod(1)), Body::from(pod(22)));
        for body in [&model, &body] {
            packer.pack(body);
        }
        assert!(body.is_in_pieces());
        let whole = pod(22);
        for start in (0..whole.len()).step_by(7) {
            for end in (start..=whole.len()).step_by(11) {
                let mut out = b"before".to_vec();
                body.append(start..end, &mut out);
                assert_eq!(&out[6..], &whole.as_bytes()[start..end], "{start}..{end}");
            }
        }
    }

    #[test]
    fn the_young_stay_whole_and_those_that_are_gone_are_passed_over() {
        let mut packer = Packer::default();
        let stays: Vec<Body> = (0..2).map(|number| Body::from(pod(number))).collect();
        stays.iter().for_each(|body| packer.note(body));
        for number in 0..YOUNG_MAX {
            assert!(!stays[1].is_in_pieces());
            packer.note(&Body::from(pod(number)));
        }
        assert_eq!((stays[0].is_in_pieces(), stays[1].is_in_pieces()), (false, true));
        for number in 0..YOUNG_MAX {
            packer.note(&Body::from(pod(number)));
        }
        assert!(packer.young.len() <= YOUNG_MAX);
        assert_eq!(packer.families.len(), 1);
    }

    #[test]
    fn a_model_goes_with_the_last_that_needs_it() {
        let mut packer = Packer::default();
        let bytes = Bytes::from(pod(0));
        let first = Body::new(bytes.clone());
        packer.pack(&first);
        let second = Body::from(pod(1));
        packer.pack(&second);
        drop((packer, first));
        assert!(!bytes.is_unique(), "the second is told from it");
        assert_eq!(second.bytes(), pod(1));
        drop(second);
        assert!(bytes.is_unique());
    }

    #[test]
    fn objects_that_are_not_alike_cost_little_and_kinds_are_bounded() {
        let mut packer = Packer::default();
        let mut noise = 1u64;
        let mut text = |kind: usize| {
            let mut random = || {
                noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                format!("{noise:x}")
            };
            let data: String = (0..100).map(|_| random()).collect();
            Body::from(format!(r#"{{"apiVersion":"v1","kind":"K{kind}","metadata":{{}},"data":"{data}"}}"#))
        };
        for _ in 0..200 {
            packer.pack(&text(0));
        }
        assert_eq!(packer.families[0].models.len(), MODELS_MAX);
        assert!(packer.families[0].skips > 0 || packer.families[0].misses < 60);
        for kind in 0..2 * FAMILIES_MAX {
            packer.pack(&text(kind));
        }
        assert_eq!(packer.families.len(), FAMILIES_MAX);
    }

    #[test]
    fn small_and_large_objects_are_kept_whole() {
        let mut packer = Packer::default();
        for text in ["x".repeat(BYTES_MIN - 1), "x".repeat(BYTES_MAX + 1)] {
            let bodies = [Body::from(text.clone()), Body::from(text)];
            bodies.iter().for_each(|body| packer.pack(body));
            assert!(bodies.iter().all(|body| !body.is_in_pieces()));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_as_they_were(
            model in proptest::collection::vec(0u8..4, BYTES_MIN..2000),
            cuts in proptest::collection::vec((0usize..2000, 0usize..300), 0..20),
            own in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut bytes = model.clone();
            for (place, length) in cuts {
                let place = place % bytes.len();
                let piece: Vec<u8> = own.iter().copied().take(length % 9).collect();
                bytes.splice(place..(place + length % 5).min(bytes.len()), piece);
            }
            let built = Model::new(model.clone().into());
            for target in [&bytes, &model, &own] {
                let pieces = built.differ(target, 2 * target.len() + 16).expect("as many as there are");
                let pieces = Pieces { model: model.clone().into(), own: pieces, length: target.len() };
                let mut out = Vec::new();
                pieces.append(0..target.len(), &mut out);
                prop_assert_eq!(&out, target);
            }
        }
    }
}
