//! Shares equal values between many objects: the containers of the pods of one template, their labels, their owner.
//!
//! A hundred thousand pods come from perhaps a hundred templates, so the fields that are equal in the pods of one
//! template are stored once. Sharing is not guaranteed, and has no visible effect: equal values may be stored twice.

use crate::Text;
use foldhash::quality::FixedState;
use holdfast_core::object::stored::Raw;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

/// A value that may be shared. It dereferences to the value.
pub struct Interned<T>(Arc<T>);

/// A list that may be shared.
pub type InternedList<T> = Interned<Box<[T]>>;

/// The number of values that the table of each thread keeps for later objects. A new value replaces the value that has
/// the same index, so the table never has more values than this.
const SLOTS: usize = 1 << 12;

/// The maximum length of a text that is remembered, in bytes. A longer text is parsed again each time.
const TEXT_BYTES_MAX: usize = 2 << 10;

type Slot = Option<Arc<dyn Any + Send + Sync>>;

thread_local! {
    static VALUES: RefCell<Box<[Slot]>> = RefCell::new(vec![None; SLOTS].into());
    /// The texts from which values were parsed, each with its value, so that equal texts are parsed once.
    static PARSED: RefCell<Box<[Option<ParsedText>]>> = RefCell::new(std::iter::repeat_with(|| None).take(SLOTS).collect());
}

struct ParsedText {
    text: Box<str>,
    value: Arc<dyn Any + Send + Sync>,
}

impl<T: Hash + Eq + Any + Send + Sync> Interned<T> {
    pub fn new(value: T) -> Interned<T> {
        let place = slot_of(&value);
        VALUES.with_borrow_mut(|held| {
            let known = held[place].as_ref().and_then(|known| known.clone().downcast::<T>().ok());
            Interned(known.filter(|known| **known == value).unwrap_or_else(|| {
                let new = Arc::new(value);
                held[place] = Some(new.clone());
                new
            }))
        })
    }
}

/// The index of a value in the table. The hash has no secret key: a user who makes values with equal indexes only
/// prevents the sharing of these values.
fn slot_of<H: Hash + ?Sized>(value: &H) -> usize {
    FixedState::default().hash_one(value) as usize % SLOTS
}

impl<T: DeserializeOwned + Hash + Eq + Any + Send + Sync> Interned<T> {
    /// Parses a value, or finds the value that was parsed from the same text.
    fn read(text: &str) -> serde_json::Result<Interned<T>> {
        if text.len() > TEXT_BYTES_MAX {
            return serde_json::from_str(text).map(Interned::new);
        }
        let place = slot_of(&(TypeId::of::<T>(), text));
        let known = PARSED.with_borrow(|read| {
            let known = read[place].as_ref().filter(|known| *known.text == *text)?;
            known.value.clone().downcast::<T>().ok()
        });
        if let Some(known) = known {
            return Ok(Interned(known));
        }
        let Interned(value) = serde_json::from_str(text).map(Interned::<T>::new)?;
        PARSED.with_borrow_mut(|read| read[place] = Some(ParsedText { text: text.into(), value: value.clone() }));
        Ok(Interned(value))
    }
}

impl<T> Interned<T> {
    /// Whether this value and `other` are shared, so that they are stored at the same place.
    pub fn is_same(&self, other: &Interned<T>) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Returns a string that is shared between many objects, such as a namespace's name. The empty string is shared, too.
pub fn text(text: &str) -> Text {
    static NONE: LazyLock<Text> = LazyLock::new(Text::default);
    if text.is_empty() {
        return NONE.clone();
    }
    Interned::<Text>::new(text.into()).0.as_ref().clone()
}

impl<T> Deref for Interned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Clone for Interned<T> {
    fn clone(&self) -> Self {
        Interned(self.0.clone())
    }
}

impl<T: PartialEq> PartialEq for Interned<T> {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other) || self.0 == other.0
    }
}

impl<T: Eq> Eq for Interned<T> {}

impl<T: Hash> Hash for Interned<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl<T: fmt::Debug> fmt::Debug for Interned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: Default + Hash + Eq + Any + Send + Sync> Default for Interned<T> {
    fn default() -> Self {
        Interned::new(T::default())
    }
}

impl<'de, T: Deserialize<'de> + Hash + Eq + Any + Send + Sync> Deserialize<'de> for Interned<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Interned::new)
    }
}

/// Deserializes a field whose text is equal in many objects. It works only with JSON, and null gives the default.
pub fn deserialize_interned<'de, D: Deserializer<'de>, T>(deserializer: D) -> Result<Interned<T>, D::Error>
where
    T: DeserializeOwned + Default + Hash + Eq + Any + Send + Sync,
{
    let Raw(text) = Raw::deserialize(deserializer)?;
    if text == "null" { Ok(Interned::default()) } else { Interned::read(text).map_err(D::Error::custom) }
}

impl<'a, T> IntoIterator for &'a Interned<T>
where
    &'a T: IntoIterator,
{
    type Item = <&'a T as IntoIterator>::Item;
    type IntoIter = <&'a T as IntoIterator>::IntoIter;

    fn into_iter(self) -> Self::IntoIter {
        self.0.as_ref().into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::Pod;
    use crate::{Key, Meta};
    use holdfast_value::json;

    #[test]
    fn equal_values_are_held_once_and_others_are_not() {
        let list = |name: &str| InternedList::<String>::new(Box::new([name.to_owned()]));
        assert!(list("a").is_same(&list("a")));
        assert!(!list("a").is_same(&list("b")));
        assert_ne!(list("a"), list("b"));
        let a = list("a");
        for number in 0..4 * SLOTS {
            list(&number.to_string());
        }
        assert_eq!(a, list("a"), "whether or not it is still known");
    }

    #[test]
    fn what_is_written_alike_is_read_once_and_as_what_it_is() {
        thread_local! {
            static READS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
        }
        #[derive(Debug, PartialEq, Eq, Hash)]
        struct Counted(u64);
        impl<'de> Deserialize<'de> for Counted {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                READS.set(READS.get() + 1);
                u64::deserialize(deserializer).map(Counted)
            }
        }
        fn read<T: DeserializeOwned + Hash + Eq + Any + Send + Sync>(
            text: &str,
        ) -> serde_json::Result<InternedList<T>> {
            deserialize_interned(&mut serde_json::Deserializer::from_str(text))
        }
        let list = read::<Counted>("[1, 2]").expect("a list");
        assert_eq!(**list, [Counted(1), Counted(2)]);
        assert!(list.is_same(&read(" [1, 2]").expect("the same")) && READS.get() == 2);
        assert!(list.is_same(&read("[1,2]").expect("equal")) && READS.get() == 4, "written otherwise, and as much");
        assert_eq!(**read::<u64>("[1, 2]").expect("of another type"), [1, 2]);
        assert!(read::<Counted>("null").expect("nothing").is_empty());
        let long = serde_json::to_string(&vec![7; TEXT_BYTES_MAX]).expect("JSON");
        assert_eq!(read::<Counted>(&long).expect("a long one").len(), TEXT_BYTES_MAX);
        for faulty in ["[1, -2]", "{}", "[1"] {
            assert!((0..2).all(|_| read::<Counted>(faulty).is_err()), "{faulty}");
        }
    }

    #[test]
    fn values_of_different_types_are_kept_apart() {
        let (text, list) = (Interned::new(String::new()), InternedList::<u8>::new(Box::new([])));
        assert!(text.is_empty() && list.is_empty());
        assert!(Interned::new(String::new()).is_same(&Interned::new(String::new())));
    }

    #[test]
    fn pods_of_one_template_share_what_is_not_their_own() {
        let pod = |name: &str| {
            let bytes = json!({
                "metadata": {"name": name, "labels": {"app": "a"}, "ownerReferences": [{"kind": "ReplicaSet", "uid": "u"}]},
                "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
                    "volumes": [{"name": format!("{name}-token")}], "tolerations": [{"key": "k"}]},
                "status": {"conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [{"name": "c"}]},
            })
            .to_string();
            #[derive(Deserialize)]
            struct Whole {
                metadata: Meta,
            }
            let Whole { metadata } = serde_json::from_str(&bytes).expect("metadata");
            (metadata, serde_json::from_str::<Pod>(&bytes).expect("a pod"))
        };
        let ((meta_a, a), (meta_b, b)) = (pod("a"), pod("b"));
        assert!(meta_a.labels.is_same(&meta_b.labels) && meta_a.owner_references.is_same(&meta_b.owner_references));
        assert!(a.spec.containers.is_same(&b.spec.containers) && a.spec.tolerations.is_same(&b.spec.tolerations));
        assert!(a.status.conditions.is_same(&b.status.conditions));
        assert!(a.status.container_statuses.is_same(&b.status.container_statuses));
        assert_eq!((&*a.spec.volumes[0].name, &*b.spec.volumes[0].name), ("a-token", "b-token"));
        assert!(Arc::ptr_eq(&Key::new("default", "a").namespace, &Key::new("default", "b").namespace));
    }
}
