//! Objects that others select by their labels.

use crate::{Meta, Object, Seen, Text, View, World};
use holdfast_core::select::{LabelSelector, Operator};
use holdfast_value::{Map, Value};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeSet;

/// The index of [`World::select`]: `namespace/label=value` of every label that an object has.
const LABELS: &str = "labels";

/// Where all of a namespace are, whatever their labels.
fn everywhere(namespace: &str) -> Text {
    place(namespace, "", "")
}

/// A label selector of an object; what cannot be read as one selects nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    selector: LabelSelector,
    /// Why it cannot be read.
    pub fault: Option<String>,
}

impl Selector {
    pub fn nothing() -> Selector {
        Selector { selector: LabelSelector::nothing(), fault: None }
    }

    /// Of `{matchLabels, matchExpressions}`.
    pub fn of(object: &Value) -> Selector {
        Selector::from(LabelSelector::from_object(object))
    }

    /// Of the text that `labelSelector` parameters have.
    pub fn parse(text: &str) -> Selector {
        Selector::from(LabelSelector::parse(text))
    }

    /// Every one of these labels.
    pub fn all_of<'a>(labels: impl IntoIterator<Item = (&'a String, &'a String)>) -> Selector {
        let labels: Map = labels.into_iter().map(|(k, v)| (k.clone(), v.as_str().into())).collect();
        Selector { selector: LabelSelector::from_labels(&labels), fault: None }
    }

    fn from(read: Result<LabelSelector, String>) -> Selector {
        match read {
            Ok(selector) => Selector { selector, fault: None },
            Err(fault) => Selector { selector: LabelSelector::nothing(), fault: Some(fault) },
        }
    }

    pub fn is_everything(&self) -> bool {
        self.selector.is_everything()
    }

    pub fn matches(&self, meta: &Meta) -> bool {
        self.selector.matches_by(|label| meta.label(label))
    }

    /// A label and its values, one of which all selected objects have, if there is such a label.
    fn pinned(&self) -> Option<(&str, &[String])> {
        let pins = |operator| matches!(operator, Operator::Equals | Operator::In);
        let pinned = self.selector.requirements().iter().find(|requirement| pins(requirement.operator))?;
        Some((&pinned.key, &pinned.values))
    }

    fn is_nothing(&self) -> bool {
        self.fault.is_some() || *self == Selector::nothing()
    }

    /// Where [`LABELS`] holds what it may select, if it does not have to be looked for everywhere.
    fn places(&self, namespace: &str) -> Option<BTreeSet<Text>> {
        let (label, values) = self.pinned()?;
        Some(values.iter().map(|value| place(namespace, label, value)).collect())
    }
}

impl Default for Selector {
    fn default() -> Selector {
        Selector::nothing()
    }
}

impl std::fmt::Display for Selector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.selector.fmt(f)
    }
}

impl<'de> Deserialize<'de> for Selector {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Selector, D::Error> {
        Ok(Selector::of(&Value::deserialize(deserializer)?))
    }
}

fn place(namespace: &str, label: &str, value: &str) -> Text {
    // Each object has one for each of its labels: a tenth of the work that `format!` makes of it.
    [namespace, "/", label, "=", value].concat().into()
}

fn places_of_labels(object: &Object) -> Vec<Text> {
    let labels = object.meta.labels.iter();
    labels.map(|(label, value)| place(&object.meta.namespace, label, value)).collect()
}

impl World {
    /// Keeps objects of a kind by their labels, so that [`World::select`] looks only at those that may be selected.
    pub fn index_labels<V: View>(&mut self) {
        self.index::<V>(LABELS, places_of_labels);
    }

    /// The objects of a namespace that a selector selects, by name.
    pub fn select<'a, V: View>(&'a self, namespace: &str, selector: &Selector) -> Vec<Seen<'a, V>> {
        if selector.fault.is_some() {
            return Vec::new();
        }
        let selected = |seen: &Seen<'a, V>| selector.matches(seen.meta());
        match selector.places(namespace) {
            Some(places) => {
                let found = places.iter().flat_map(|place| self.indexed::<V>(LABELS, place));
                let mut found: Vec<_> = found.filter(selected).collect();
                found.sort_by(|a, b| a.meta().name.cmp(&b.meta().name));
                found
            }
            None => self.in_namespace(namespace).filter(selected).collect(),
        }
    }

    /// The objects of a kind whose selectors may select what has these labels: see [`selected_places`].
    pub fn selecting<'a, V: View>(&'a self, index: &'static str, meta: &Meta) -> Vec<Seen<'a, V>> {
        if self.finds_nothing::<V>(index) {
            return Vec::new();
        }
        let places = labelled_places(meta).into_iter();
        places.flat_map(|place| self.indexed::<V>(index, &place)).collect()
    }

    /// The objects of a kind that a selector may select, of those that an index holds under their [`labelled_places`].
    pub fn selectable<'a, V: View>(
        &'a self,
        index: &'static str,
        namespace: &str,
        selector: &Selector,
    ) -> impl Iterator<Item = Seen<'a, V>> + use<'a, V> {
        let places = if self.finds_nothing::<V>(index) { Vec::new() } else { selected_places(namespace, selector) };
        places.into_iter().flat_map(move |place| self.indexed::<V>(index, &place))
    }
}

/// The places where selectors look for an object: one for each of its labels, and one for all of its namespace.
pub fn labelled_places(meta: &Meta) -> Vec<Text> {
    let labels = meta.labels.iter().map(|(label, value)| place(&meta.namespace, label, value));
    labels.chain([everywhere(&meta.namespace)]).collect()
}

/// The places of an object in an index of selectors: those of the labels that it pins, or one for all that pin none.
pub fn selected_places(namespace: &str, selector: &Selector) -> Vec<Text> {
    if selector.is_nothing() {
        return Vec::new();
    }
    match selector.places(namespace) {
        Some(places) => places.into_iter().collect(),
        None => vec![everywhere(namespace)],
    }
}
