//! The fields of an object, in the order of their names.

use crate::{CompactString, Value};
use std::borrow::Borrow;
use std::collections::{BTreeMap, btree_map};
use std::fmt;
use std::ops;
use std::slice;
use std::sync::Arc;
use std::vec;

/// The fields of an object, sorted by name. A clone shares them with the original until one of the two changes.
#[derive(Clone, Default)]
pub struct Map {
    /// `None` if there are no fields.
    fields: Option<Arc<Fields>>,
}

/// Up to this number of fields are stored in a sorted list. An insertion shifts the fields after its position.
const FEW: usize = 64;

/// A list of at most this many fields is searched from its beginning.
const A_HANDFUL: usize = 8;

#[derive(Clone)]
enum Fields {
    Few(Vec<(CompactString, Value)>),
    /// A tree, because an insertion must not shift thousands of fields; clients choose the number of fields.
    Many(BTreeMap<CompactString, Value>),
}

/// The position of a field in the list, or the error with the position at which to insert it.
fn place(few: &[(CompactString, Value)], name: &str) -> Result<usize, usize> {
    match few.last() {
        // Most objects are built in the order of their field names.
        Some((last, _)) if last.as_str() < name => Err(few.len()),
        None => Err(0),
        _ => few.binary_search_by(|(other, _)| other.as_str().cmp(name)),
    }
}

fn find(few: &[(CompactString, Value)], name: &str) -> Option<usize> {
    if few.len() <= A_HANDFUL {
        return few.iter().position(|(other, _)| other == name);
    }
    few.binary_search_by(|(other, _)| other.as_str().cmp(name)).ok()
}

/// The place of a field: its position in a list, or its name in a tree.
enum Spot<'n> {
    At(usize),
    Named(&'n str),
}

impl Fields {
    fn get(&self, name: &str) -> Option<(&CompactString, &Value)> {
        match self {
            Fields::Few(few) => find(few, name).map(|at| (&few[at].0, &few[at].1)),
            Fields::Many(many) => many.get_key_value(name),
        }
    }

    fn spot<'n>(&self, name: &'n str) -> Option<Spot<'n>> {
        match self {
            Fields::Few(few) => find(few, name).map(Spot::At),
            Fields::Many(many) => many.contains_key(name).then_some(Spot::Named(name)),
        }
    }

    fn at_mut(&mut self, spot: Spot<'_>) -> Option<&mut Value> {
        match (self, spot) {
            (Fields::Few(few), Spot::At(at)) => few.get_mut(at).map(|(_, value)| value),
            (Fields::Many(many), Spot::Named(name)) => many.get_mut(name),
            _ => None,
        }
    }

    fn remove(&mut self, spot: Spot<'_>) -> Option<(CompactString, Value)> {
        match (self, spot) {
            (Fields::Few(few), Spot::At(at)) => Some(few.remove(at)),
            (Fields::Many(many), Spot::Named(name)) => many.remove_entry(name),
            _ => None,
        }
    }

    fn insert(&mut self, name: CompactString, value: Value) -> Option<Value> {
        let few = match self {
            Fields::Few(few) => few,
            Fields::Many(many) => return many.insert(name, value),
        };
        match place(few, &name) {
            Ok(at) => return Some(std::mem::replace(&mut few[at].1, value)),
            Err(at) => _ = self.insert_at(at, name, value),
        }
        None
    }

    /// Inserts an absent field, whose position in the list is known.
    fn insert_at(&mut self, at: usize, name: CompactString, value: Value) -> &mut Value {
        if let Fields::Few(few) = self
            && few.len() >= FEW
        {
            *self = Fields::Many(std::mem::take(few).into_iter().collect());
        }
        match self {
            Fields::Few(few) => {
                few.insert(at, (name, value));
                &mut few[at].1
            }
            Fields::Many(many) => many.entry(name).or_insert(value),
        }
    }

    fn len(&self) -> usize {
        match self {
            Fields::Few(few) => few.len(),
            Fields::Many(many) => many.len(),
        }
    }
}

impl Map {
    pub const fn new() -> Map {
        Map { fields: None }
    }

    pub fn with_capacity(capacity: usize) -> Map {
        let capacity = capacity.min(FEW);
        Map { fields: (capacity > 0).then(|| Arc::new(Fields::Few(Vec::with_capacity(capacity)))) }
    }

    pub fn len(&self) -> usize {
        self.fields.as_ref().map_or(0, |fields| fields.len())
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get<N: Borrow<str> + ?Sized>(&self, name: &N) -> Option<&Value> {
        self.get_key_value(name).map(|(_, value)| value)
    }

    pub fn get_key_value<N: Borrow<str> + ?Sized>(&self, name: &N) -> Option<(&CompactString, &Value)> {
        self.fields.as_ref()?.get(name.borrow())
    }

    pub fn contains_key<N: Borrow<str> + ?Sized>(&self, name: &N) -> bool {
        self.get(name).is_some()
    }

    /// If the field exists, this object stops sharing its own fields with clones.
    pub fn get_mut<N: Borrow<str> + ?Sized>(&mut self, name: &N) -> Option<&mut Value> {
        let fields = self.fields.as_mut()?;
        let spot = fields.spot(name.borrow())?;
        Arc::make_mut(fields).at_mut(spot)
    }

    /// Inserts or replaces a field. Returns the field's previous value.
    pub fn insert(&mut self, name: impl Into<CompactString>, value: Value) -> Option<Value> {
        self.own().insert(name.into(), value)
    }

    pub fn remove<N: Borrow<str> + ?Sized>(&mut self, name: &N) -> Option<Value> {
        self.remove_entry(name).map(|(_, value)| value)
    }

    pub fn remove_entry<N: Borrow<str> + ?Sized>(&mut self, name: &N) -> Option<(CompactString, Value)> {
        let fields = self.fields.as_mut()?;
        let spot = fields.spot(name.borrow())?;
        Arc::make_mut(fields).remove(spot)
    }

    pub fn clear(&mut self) {
        self.fields = None;
    }

    pub fn entry(&mut self, name: impl Into<CompactString>) -> Entry<'_> {
        let name = name.into();
        let place = match self.fields.as_deref() {
            None => Err(0),
            Some(Fields::Few(few)) => place(few, &name),
            // An insertion into a tree needs no position.
            Some(Fields::Many(many)) => {
                if many.contains_key(&name) {
                    Ok(0)
                } else {
                    Err(0)
                }
            }
        };
        match place {
            Ok(_) => Entry::Occupied(OccupiedEntry { map: self, name }),
            Err(at) => Entry::Vacant(VacantEntry { map: self, name, at }),
        }
    }

    /// Moves all fields out of `other`.
    pub fn append(&mut self, other: &mut Map) {
        self.extend(std::mem::take(other));
    }

    pub fn retain(&mut self, mut keep: impl FnMut(&CompactString, &mut Value) -> bool) {
        let Some(fields) = &mut self.fields else { return };
        match Arc::make_mut(fields) {
            Fields::Few(few) => few.retain_mut(|(name, value)| keep(name, value)),
            Fields::Many(many) => many.retain(keep),
        }
    }

    pub fn iter(&self) -> Iter<'_> {
        match self.fields.as_deref() {
            None => Iter::Few([].iter()),
            Some(Fields::Few(few)) => Iter::Few(few.iter()),
            Some(Fields::Many(many)) => Iter::Many(many.iter()),
        }
    }

    pub fn iter_mut(&mut self) -> IterMut<'_> {
        match self.fields.as_mut().map(Arc::make_mut) {
            None => IterMut::Few([].iter_mut()),
            Some(Fields::Few(few)) => IterMut::Few(few.iter_mut()),
            Some(Fields::Many(many)) => IterMut::Many(many.iter_mut()),
        }
    }

    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &CompactString> + ExactSizeIterator + Clone {
        self.iter().map(|(name, _)| name)
    }

    pub fn values(&self) -> impl DoubleEndedIterator<Item = &Value> + ExactSizeIterator + Clone {
        self.iter().map(|(_, value)| value)
    }

    pub fn values_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut Value> + ExactSizeIterator {
        self.iter_mut().map(|(_, value)| value)
    }

    pub fn into_values(self) -> impl DoubleEndedIterator<Item = Value> + ExactSizeIterator {
        self.into_iter().map(|(_, value)| value)
    }

    /// Whether both maps share their fields, so that they are equal without a comparison.
    pub fn is_same(&self, other: &Map) -> bool {
        match (&self.fields, &other.fields) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        }
    }

    /// The memory in bytes in addition to the map itself, including memory that clones share.
    pub fn footprint(&self) -> usize {
        let Some(fields) = &self.fields else { return 0 };
        let places = match &**fields {
            Fields::Few(few) => few.capacity(),
            // The nodes of a tree are at least nearly half full.
            Fields::Many(many) => 3 * many.len(),
        };
        let names = self.keys().filter(|name| name.is_heap_allocated()).map(|name| name.capacity()).sum::<usize>();
        size_of::<Fields>()
            + places * size_of::<(CompactString, Value)>()
            + names
            + self.values().map(Value::footprint).sum::<usize>()
    }

    /// The fields for a change; this map no longer shares them with clones.
    fn own(&mut self) -> &mut Fields {
        Arc::make_mut(self.fields.get_or_insert_with(|| Arc::new(Fields::Few(Vec::new()))))
    }
}

/// If several fields have the same name, the last one counts.
impl From<Vec<(CompactString, Value)>> for Map {
    fn from(mut fields: Vec<(CompactString, Value)>) -> Map {
        if fields.is_empty() {
            return Map::new();
        }
        if !fields.is_sorted_by(|(one, _), (next, _)| one < next) {
            fields.sort_by(|(one, _), (other, _)| one.cmp(other));
            fields.dedup_by(|later, kept| {
                let same = later.0 == kept.0;
                if same {
                    std::mem::swap(&mut later.1, &mut kept.1);
                }
                same
            });
        }
        let fields = if fields.len() <= FEW { Fields::Few(fields) } else { Fields::Many(fields.into_iter().collect()) };
        Map { fields: Some(Arc::new(fields)) }
    }
}

impl<N: Into<CompactString>> FromIterator<(N, Value)> for Map {
    fn from_iter<T: IntoIterator<Item = (N, Value)>>(fields: T) -> Map {
        fields.into_iter().map(|(name, value)| (name.into(), value)).collect::<Vec<_>>().into()
    }
}

impl<N: Into<CompactString>, const COUNT: usize> From<[(N, Value); COUNT]> for Map {
    fn from(fields: [(N, Value); COUNT]) -> Map {
        fields.into_iter().collect()
    }
}

impl<N: Into<CompactString>> Extend<(N, Value)> for Map {
    fn extend<T: IntoIterator<Item = (N, Value)>>(&mut self, fields: T) {
        let mut fields = fields.into_iter().peekable();
        if fields.peek().is_none() {
            return;
        }
        let own = self.own();
        fields.for_each(|(name, value)| _ = own.insert(name.into(), value));
    }
}

impl PartialEq for Map {
    fn eq(&self, other: &Map) -> bool {
        self.is_same(other) || self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl Eq for Map {}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

impl<N: Borrow<str> + ?Sized> ops::Index<&N> for Map {
    type Output = Value;

    fn index(&self, name: &N) -> &Value {
        self.get(name).unwrap_or_else(|| panic!("no field {}", name.borrow()))
    }
}

impl<N: Borrow<str> + ?Sized> ops::IndexMut<&N> for Map {
    fn index_mut(&mut self, name: &N) -> &mut Value {
        self.get_mut(name).unwrap_or_else(|| panic!("no field {}", name.borrow()))
    }
}

/// The place of a field in an object, which is present or absent.
pub enum Entry<'a> {
    Vacant(VacantEntry<'a>),
    Occupied(OccupiedEntry<'a>),
}

pub struct VacantEntry<'a> {
    map: &'a mut Map,
    name: CompactString,
    /// The position at which the field would be inserted, if the fields are a list.
    at: usize,
}

pub struct OccupiedEntry<'a> {
    map: &'a mut Map,
    name: CompactString,
}

impl<'a> Entry<'a> {
    pub fn or_insert(self, value: Value) -> &'a mut Value {
        self.or_insert_with(|| value)
    }

    pub fn or_insert_with(self, value: impl FnOnce() -> Value) -> &'a mut Value {
        match self {
            Entry::Vacant(entry) => entry.insert(value()),
            Entry::Occupied(entry) => entry.into_mut(),
        }
    }

    pub fn and_modify(mut self, change: impl FnOnce(&mut Value)) -> Entry<'a> {
        if let Entry::Occupied(entry) = &mut self {
            change(entry.get_mut());
        }
        self
    }

    pub fn key(&self) -> &CompactString {
        match self {
            Entry::Vacant(entry) => &entry.name,
            Entry::Occupied(entry) => &entry.name,
        }
    }
}

impl<'a> VacantEntry<'a> {
    pub fn key(&self) -> &CompactString {
        &self.name
    }

    pub fn insert(self, value: Value) -> &'a mut Value {
        self.map.own().insert_at(self.at, self.name, value)
    }
}

impl<'a> OccupiedEntry<'a> {
    pub fn key(&self) -> &CompactString {
        &self.name
    }

    pub fn get(&self) -> &Value {
        &self.map[&self.name]
    }

    pub fn get_mut(&mut self) -> &mut Value {
        &mut self.map[&self.name]
    }

    pub fn into_mut(self) -> &'a mut Value {
        &mut self.map[&self.name]
    }

    /// Replaces the field's value. Returns the previous value.
    pub fn insert(&mut self, value: Value) -> Value {
        std::mem::replace(self.get_mut(), value)
    }

    pub fn remove(self) -> Value {
        self.map.remove(&self.name).unwrap_or_default()
    }
}

#[derive(Clone)]
pub enum Iter<'a> {
    Few(slice::Iter<'a, (CompactString, Value)>),
    Many(btree_map::Iter<'a, CompactString, Value>),
}

pub enum IterMut<'a> {
    Few(slice::IterMut<'a, (CompactString, Value)>),
    Many(btree_map::IterMut<'a, CompactString, Value>),
}

pub enum IntoIter {
    Few(vec::IntoIter<(CompactString, Value)>),
    Many(btree_map::IntoIter<CompactString, Value>),
}

/// Implements one of the three iterators, which differ only in the part of a pair that they return.
macro_rules! iterator {
    ($iterator:ty, $item:ty, $few:expr) => {
        impl<'a> Iterator for $iterator {
            type Item = $item;

            fn next(&mut self) -> Option<$item> {
                match self {
                    Self::Few(few) => few.next().map($few),
                    Self::Many(many) => many.next(),
                }
            }

            fn size_hint(&self) -> (usize, Option<usize>) {
                match self {
                    Self::Few(few) => few.size_hint(),
                    Self::Many(many) => many.size_hint(),
                }
            }
        }

        impl<'a> DoubleEndedIterator for $iterator {
            fn next_back(&mut self) -> Option<$item> {
                match self {
                    Self::Few(few) => few.next_back().map($few),
                    Self::Many(many) => many.next_back(),
                }
            }
        }

        impl<'a> ExactSizeIterator for $iterator {}
    };
}

iterator!(Iter<'a>, (&'a CompactString, &'a Value), |(name, value)| (name, value));
iterator!(IterMut<'a>, (&'a CompactString, &'a mut Value), |(name, value)| (&*name, value));

impl Iterator for IntoIter {
    type Item = (CompactString, Value);

    fn next(&mut self) -> Option<(CompactString, Value)> {
        match self {
            IntoIter::Few(few) => few.next(),
            IntoIter::Many(many) => many.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            IntoIter::Few(few) => few.size_hint(),
            IntoIter::Many(many) => many.size_hint(),
        }
    }
}

impl DoubleEndedIterator for IntoIter {
    fn next_back(&mut self) -> Option<(CompactString, Value)> {
        match self {
            IntoIter::Few(few) => few.next_back(),
            IntoIter::Many(many) => many.next_back(),
        }
    }
}

impl ExactSizeIterator for IntoIter {}

impl<'a> IntoIterator for &'a Map {
    type Item = (&'a CompactString, &'a Value);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl<'a> IntoIterator for &'a mut Map {
    type Item = (&'a CompactString, &'a mut Value);
    type IntoIter = IterMut<'a>;

    fn into_iter(self) -> IterMut<'a> {
        self.iter_mut()
    }
}

impl IntoIterator for Map {
    type Item = (CompactString, Value);
    type IntoIter = IntoIter;

    fn into_iter(self) -> IntoIter {
        match self.fields.map(Arc::unwrap_or_clone) {
            None => IntoIter::Few(Vec::new().into_iter()),
            Some(Fields::Few(few)) => IntoIter::Few(few.into_iter()),
            Some(Fields::Many(many)) => IntoIter::Many(many.into_iter()),
        }
    }
}
