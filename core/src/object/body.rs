//! The bytes of an object as they are kept: whole, or as what tells them from those of another object like it.
//!
//! Objects of a kind are alike: what a pod does not share with others of its template is some 300 bytes of 5,000. So an
//! object that has not changed for a while is kept as pieces: bytes of its own, and places in a model, which is an
//! object that was kept whole. Reading it back copies the pieces one after the other and costs hardly more than a copy
//! of the whole. Nothing outside can tell which of the two it is.

use bytes::Bytes;
use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// Smaller objects are kept whole: what is kept besides would outweigh the rest.
const BYTES_MIN: usize = 700;
/// Larger ones are kept whole, too: whoever reads one is handed the bytes themselves, and never a copy.
const BYTES_MAX: usize = 32 << 10;
/// An object that has more to itself than this part of its bytes becomes a model.
const OWN_PART: usize = 4;
/// How many objects are remembered that may still change soon.
const YOUNG_MAX: usize = 1024;
/// How many kinds have models, and how many each has.
const FAMILIES_MAX: usize = 32;
const MODELS_MAX: usize = 4;
/// Kinds whose objects are not alike are looked at again after so many objects, at the latest.
const SKIPS_MAX: u32 = 64;
/// Shorter bytes are not looked for in a model.
const WINDOW: usize = 16;
/// At which places of a model they are found.
const STEP: usize = 4;

/// The bytes of one version of an object. A clone shares them.
#[derive(Clone)]
pub struct Body(Arc<Mutex<Form>>);

enum Form {
    Whole(Bytes),
    Pieces(Pieces),
}

struct Pieces {
    model: Bytes,
    /// By turns: how many bytes of its own follow, those, how many of the model come next, and from where.
    own: Box<[u8]>,
    /// Of the whole.
    length: usize,
}

impl Body {
    pub fn new(bytes: Bytes) -> Body {
        Body(Arc::new(Mutex::new(Form::Whole(bytes))))
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

    /// Whether reading it makes a copy that nobody else holds.
    pub fn is_in_pieces(&self) -> bool {
        matches!(&*self.form(), Form::Pieces(_))
    }

    /// Writes a part of the bytes to the end of `out`.
    pub fn append(&self, part: Range<usize>, out: &mut Vec<u8>) {
        match &*self.form() {
            Form::Whole(bytes) => out.extend_from_slice(&bytes[part]),
            Form::Pieces(pieces) => pieces.append(part, out),
        }
    }

    fn form(&self) -> MutexGuard<'_, Form> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
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

/// Keeps bodies in pieces, and has the models for it.
#[derive(Default)]
pub struct Packer {
    /// The latest first.
    families: VecDeque<Family>,
    young: VecDeque<Weak<Mutex<Form>>>,
}

/// Objects that begin alike, which says their kind.
struct Family {
    head: Bytes,
    /// The latest first.
    models: VecDeque<Model>,
    /// How many objects in a row had no model, and how many are to be passed over for it.
    misses: u32,
    skips: u32,
}

impl Packer {
    /// Takes in an object that is new: it is kept in pieces if it is still there when as many others have come as are
    /// remembered.
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

    /// Keeps an object in pieces if one like it is known; else others may be kept by it.
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

/// What stands before the metadata: `{"apiVersion":"v1","kind":"Pod",`.
fn head(bytes: &[u8]) -> &[u8] {
    const METADATA: &[u8] = b"\"metadata\":";
    let start = &bytes[..bytes.len().min(512)];
    let length = start.windows(METADATA.len()).position(|window| window == METADATA).unwrap_or(0);
    &bytes[..length]
}

/// An object that others are told from.
struct Model {
    bytes: Bytes,
    /// By the hash of a window: one more than the step that it begins at, or 0.
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

    /// The pieces of another object; `None` where more than `most` bytes would have to be kept.
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

/// How many bytes from the beginning of both are the same.
fn alike(one: &[u8], other: &[u8]) -> usize {
    let chunks = one.chunks_exact(WINDOW).zip(other.chunks_exact(WINDOW));
    let whole = chunks.take_while(|(one, other)| one == other).count() * WINDOW;
    whole + one[whole..].iter().zip(&other[whole..]).take_while(|(one, other)| one == other).count()
}

/// Where a window is noted in a table with at least so many places.
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

/// Seven bits a byte, the lowest first; the eighth says that more follow.
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
