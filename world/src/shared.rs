//! Values that many objects say alike, held once: the containers of a template's pods, their labels, their owner.
//!
//! A hundred thousand pods come of a hundred templates, so what is not their own is kept for the template and not for
//! each of them. Sharing is never certain and never shows: equal values may be held twice.

use crate::Text;
use foldhash::quality::FixedState;
use serde::{Deserialize, Deserializer};
use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

/// A value that others may hold, too. It is read as the value itself.
pub struct Shared<T>(Arc<T>);

/// A list that others may hold, too.
pub type List<T> = Shared<Box<[T]>>;

/// How many values a thread remembers for the next object that has them. One that comes later takes the place of one
/// that was there, so however many different values come, no more are kept for nobody's sake.
const PLACES: usize = 1 << 12;

type Held = Option<Arc<dyn Any + Send + Sync>>;

thread_local! {
    static HELD: RefCell<Box<[Held]>> = RefCell::new(vec![None; PLACES].into());
}

impl<T: Hash + Eq + Any + Send + Sync> Shared<T> {
    pub fn new(value: T) -> Shared<T> {
        // Whoever makes values that have one place keeps only their own from being shared.
        let place = FixedState::default().hash_one(&value) as usize % PLACES;
        HELD.with_borrow_mut(|held| {
            let known = held[place].as_ref().and_then(|known| known.clone().downcast::<T>().ok());
            Shared(known.filter(|known| **known == value).unwrap_or_else(|| {
                let new = Arc::new(value);
                held[place] = Some(new.clone());
                new
            }))
        })
    }
}

impl<T> Shared<T> {
    /// Whether both are held in one place.
    pub fn is_same(&self, other: &Shared<T>) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Text that many objects have: the name of a namespace, or none.
pub fn text(text: &str) -> Text {
    static NONE: LazyLock<Text> = LazyLock::new(Text::default);
    if text.is_empty() {
        return NONE.clone();
    }
    Shared::<Text>::new(text.into()).0.as_ref().clone()
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared(self.0.clone())
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other) || self.0 == other.0
    }
}

impl<T: Eq> Eq for Shared<T> {}

impl<T: Hash> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: Default + Hash + Eq + Any + Send + Sync> Default for Shared<T> {
    fn default() -> Self {
        Shared::new(T::default())
    }
}

impl<'de, T: Deserialize<'de> + Hash + Eq + Any + Send + Sync> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Shared::new)
    }
}

impl<'a, T> IntoIterator for &'a Shared<T>
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
    use serde_json::json;

    #[test]
    fn equal_values_are_held_once_and_others_are_not() {
        let list = |name: &str| List::<String>::new(Box::new([name.to_owned()]));
        assert!(list("a").is_same(&list("a")));
        assert!(!list("a").is_same(&list("b")));
        assert_ne!(list("a"), list("b"));
        let a = list("a");
        for number in 0..4 * PLACES {
            list(&number.to_string());
        }
        assert_eq!(a, list("a"), "whether or not it is still known");
    }

    #[test]
    fn values_of_different_types_are_kept_apart() {
        let (text, list) = (Shared::new(String::new()), List::<u8>::new(Box::new([])));
        assert!(text.is_empty() && list.is_empty());
        assert!(Shared::new(String::new()).is_same(&Shared::new(String::new())));
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
                #[serde(flatten)]
                pod: Pod,
            }
            let Whole { metadata, pod } = serde_json::from_str(&bytes).expect("a pod");
            (metadata, pod)
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
