//! Label selectors, and indexes to find the objects that they select.

use crate::{Meta, Object, Text, View, Viewed, World};
use foldhash::quality::FixedState;
use holdfast_core::object::stored::Raw;
use holdfast_core::select::{LabelSelector, Operator, Requirement};
use holdfast_value::{Map, Value};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::hash::BuildHasher;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

/// The name of the index that [`World::select`] uses. It has the value `namespace/label=value` for every label of an
/// object.
const LABELS: &str = "labels";

/// The index value under which all objects of a namespace are found, whatever their labels are.
fn everywhere(namespace: &str) -> Text {
    index_value(namespace, "", "")
}

/// The maximum number of values of a label that are looked up in the index. If a selector allows more values, reading
/// all objects of the namespace is not slower.
const PINNED_VALUES_MAX: usize = 64;

/// A selector with more requirements than this is compiled to one test for each label.
const TESTED_ONE_BY_ONE: usize = 8;

/// A label selector. If it cannot be parsed, it selects nothing. Copies of a selector share their content. Selectors
/// that were parsed from equal texts share it, too, if they exist at the same time.
#[derive(Clone)]
pub struct Selector(Arc<Compiled>);

/// A parsed selector in a form that is fast to test.
struct Compiled {
    selector: LabelSelector,
    /// Why the selector cannot be parsed; `None` if it was parsed.
    fault: Option<String>,
    /// The tests of a long selector, by label. A short selector has no tests, because its requirements are tested
    /// directly.
    tests: Vec<LabelTest>,
    /// How many of the tests succeed only if the object has the label.
    needed: usize,
    /// The form and the text from which the selector was parsed; `None` if it was not parsed from JSON.
    written: Option<(SelectorForm, Box<str>)>,
}

/// All requirements of one label together.
#[derive(Default)]
struct LabelTest {
    label: Text,
    must_be_there: bool,
    must_be_absent: bool,
    /// The values that the label may have, sorted; `None` means that it may have any value. `not_among` has the values
    /// that the label may not have, sorted.
    among: Option<Vec<Text>>,
    not_among: Vec<Text>,
    above: Option<i64>,
    below: Option<i64>,
}

impl LabelTest {
    /// The test that replaces several requirements of one label.
    fn of(requirements: &[Requirement]) -> LabelTest {
        let mut test = LabelTest { label: requirements[0].key.as_str().into(), ..LabelTest::default() };
        for requirement in requirements {
            let values = || requirement.values.iter().map(|value| Text::from(value.as_str()));
            let number = || requirement.values.first().and_then(|value| value.parse::<i64>().ok());
            match requirement.operator {
                Operator::Equals | Operator::In => test.narrow(values().collect()),
                Operator::NotEquals | Operator::NotIn => test.not_among.extend(values()),
                Operator::Exists => {}
                Operator::DoesNotExist => test.must_be_absent = true,
                Operator::GreaterThan | Operator::LessThan if number().is_none() => test.narrow(Vec::new()),
                Operator::GreaterThan => test.above = test.above.max(number()),
                Operator::LessThan => test.below = [test.below, number()].into_iter().flatten().min(),
            }
            test.must_be_there |=
                !matches!(requirement.operator, Operator::NotEquals | Operator::NotIn | Operator::DoesNotExist);
        }
        test.not_among.sort();
        test
    }

    /// Restricts the values that the label may have to these values, which must be sorted.
    fn narrow(&mut self, values: Vec<Text>) {
        self.among = Some(match self.among.take() {
            Some(known) => known.into_iter().filter(|value| values.binary_search(value).is_ok()).collect(),
            None => values,
        });
    }

    fn passes(&self, value: Option<&str>) -> bool {
        let Some(value) = value else { return !self.must_be_there };
        let is_in = |values: &[Text]| values.binary_search_by(|known| (**known).cmp(value)).is_ok();
        let is_number = |passes: &dyn Fn(i64) -> bool| value.parse::<i64>().is_ok_and(passes);
        !self.must_be_absent
            && self.among.as_deref().is_none_or(is_in)
            && !is_in(&self.not_among)
            && self.above.is_none_or(|limit| is_number(&|number| number > limit))
            && self.below.is_none_or(|limit| is_number(&|number| number < limit))
    }
}

impl Compiled {
    fn of(read: Result<LabelSelector, String>) -> Compiled {
        let (selector, fault) = match read {
            Ok(selector) => (selector, None),
            Err(fault) => (LabelSelector::nothing(), Some(fault)),
        };
        let requirements = selector.requirements();
        let is_long = requirements.len() > TESTED_ONE_BY_ONE;
        let by_label = requirements.chunk_by(|one, other| one.key == other.key).filter(|_| is_long);
        let tests: Vec<LabelTest> = by_label.map(LabelTest::of).collect();
        let needed = tests.iter().filter(|test| test.must_be_there).count();
        Compiled { selector, fault, tests, needed, written: None }
    }

    /// Whether the labels match the selector. The time that this takes is proportional to the number of requirements or
    /// to the number of labels, whichever is smaller.
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        if self.tests.is_empty() {
            return self.selector.matches_by(|label| labels.get(label).map(String::as_str));
        }
        if self.tests.len() <= labels.len() {
            return self.tests.iter().all(|test| test.passes(labels.get(&*test.label).map(String::as_str)));
        }
        let mut met = 0;
        for (label, value) in labels {
            if let Ok(place) = self.tests.binary_search_by(|test| (*test.label).cmp(label)) {
                if !self.tests[place].passes(Some(value)) {
                    return false;
                }
                met += usize::from(self.tests[place].must_be_there);
            }
        }
        met == self.needed
    }
}

/// The form in which an object contains a selector.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum SelectorForm {
    /// The form `{matchLabels, matchExpressions}`. The value null selects nothing.
    Object,
    /// Labels without expressions. An object must have all of them. An empty map selects nothing.
    Labels,
}

/// The selectors that exist, by the hash of their text, so that equal selectors are parsed and stored once.
#[derive(Default)]
struct CompiledSelectors {
    selectors: HashMap<u64, Weak<Compiled>>,
    /// If there are this many entries, the entries of selectors that do not exist any more are dropped.
    most: usize,
}

static COMPILED: LazyLock<Mutex<CompiledSelectors>> = LazyLock::new(Mutex::default);

impl CompiledSelectors {
    fn find(&self, place: u64, form: SelectorForm, text: &str) -> Option<Arc<Compiled>> {
        let known = self.selectors.get(&place)?.upgrade()?;
        known.written.as_ref().is_some_and(|(of, written)| *of == form && **written == *text).then_some(known)
    }

    fn keep(&mut self, place: u64, selector: &Arc<Compiled>) {
        if self.selectors.len() >= self.most {
            self.selectors.retain(|_, known| known.strong_count() > 0);
            self.most = 2 * self.selectors.len() + 64;
        }
        self.selectors.insert(place, Arc::downgrade(selector));
    }
}

/// Parses a selector from JSON.
fn read<'de, D: Deserializer<'de>>(deserializer: D, form: SelectorForm) -> Result<Selector, D::Error> {
    let Raw(text) = Raw::deserialize(deserializer)?;
    let place = FixedState::default().hash_one((form, text));
    let held = || COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = held().find(place, form, text) {
        return Ok(Selector(known));
    }
    let value: Value = serde_json::from_str(text).map_err(D::Error::custom)?;
    let selector = match form {
        SelectorForm::Object => LabelSelector::from_object(&value),
        SelectorForm::Labels => {
            let labels = value.as_object().filter(|labels| !labels.is_empty());
            Ok(labels.map_or_else(LabelSelector::nothing, LabelSelector::from_labels))
        }
    };
    let compiled = Arc::new(Compiled { written: Some((form, text.into())), ..Compiled::of(selector) });
    held().keep(place, &compiled);
    Ok(Selector(compiled))
}

impl Selector {
    pub fn nothing() -> Selector {
        static NOTHING: LazyLock<Selector> = LazyLock::new(|| Selector::from(Ok(LabelSelector::nothing())));
        NOTHING.clone()
    }

    /// The selector in a document of the form `{matchLabels, matchExpressions}`.
    pub fn of(object: &Value) -> Selector {
        Selector::from(LabelSelector::from_object(object))
    }

    /// The selector in the text of a `labelSelector` parameter.
    pub fn parse(text: &str) -> Selector {
        Selector::from(LabelSelector::parse(text))
    }

    /// A selector for the objects that have all of these labels.
    pub fn all_of<'a>(labels: impl IntoIterator<Item = (&'a String, &'a String)>) -> Selector {
        let labels: Map = labels.into_iter().map(|(k, v)| (k.clone(), v.as_str().into())).collect();
        Selector::from(Ok(LabelSelector::from_labels(&labels)))
    }

    fn from(read: Result<LabelSelector, String>) -> Selector {
        Selector(Arc::new(Compiled::of(read)))
    }

    /// Why the selector cannot be parsed; `None` if it was parsed.
    pub fn fault(&self) -> Option<&str> {
        self.0.fault.as_deref()
    }

    pub fn is_everything(&self) -> bool {
        self.0.selector.is_everything()
    }

    pub fn matches(&self, meta: &Meta) -> bool {
        self.0.matches(&meta.labels)
    }

    /// The label with the fewest allowed values, among the labels that every selected object must have; `None` if there
    /// is no such label, or if it has too many values.
    fn pinned(&self) -> Option<(&str, &[String])> {
        let pins = |operator| matches!(operator, Operator::Equals | Operator::In);
        let requirements = self.0.selector.requirements().iter().filter(|requirement| pins(requirement.operator));
        let pinned = requirements.min_by_key(|requirement| requirement.values.len())?;
        (pinned.values.len() <= PINNED_VALUES_MAX).then_some((&pinned.key, &pinned.values))
    }

    pub fn is_nothing(&self) -> bool {
        self.0.fault.is_some() || self.0.selector == LabelSelector::nothing()
    }

    /// The values in the index [`LABELS`] under which the selected objects are found; `None` if the selector may select
    /// any object of the namespace.
    fn index_values(&self, namespace: &str) -> Option<BTreeSet<Text>> {
        let (label, values) = self.pinned()?;
        Some(values.iter().map(|value| index_value(namespace, label, value)).collect())
    }
}

impl PartialEq for Selector {
    fn eq(&self, other: &Selector) -> bool {
        let is_equal = || (&self.0.selector, &self.0.fault) == (&other.0.selector, &other.0.fault);
        Arc::ptr_eq(&self.0, &other.0) || is_equal()
    }
}

impl Eq for Selector {}

impl Default for Selector {
    fn default() -> Selector {
        Selector::nothing()
    }
}

impl fmt::Debug for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Selector({:?})", self.0.selector)
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.selector.fmt(f)
    }
}

impl<'de> Deserialize<'de> for Selector {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Selector, D::Error> {
        read(deserializer, SelectorForm::Object)
    }
}

/// Deserializes a selector that is written as labels without expressions, as in Services.
pub fn of_labels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Selector, D::Error> {
    read(deserializer, SelectorForm::Labels)
}

fn index_value(namespace: &str, label: &str, value: &str) -> Text {
    // This function is called for each label of each object. `concat` takes a tenth of the time of `format!`.
    [namespace, "/", label, "=", value].concat().into()
}

fn index_values_of_labels(object: &Object) -> Vec<Text> {
    let labels = object.meta.labels.iter();
    labels.map(|(label, value)| index_value(&object.meta.namespace, label, value)).collect()
}

impl World {
    /// Indexes the objects of a kind by their labels, so that [`World::select`] reads only the objects that may be
    /// selected.
    pub fn index_labels<V: View>(&mut self) {
        self.index::<V>(LABELS, index_values_of_labels);
    }

    /// The objects of a namespace that a selector selects, sorted by name. If consecutive objects share their labels,
    /// as pods of one template do, the labels are tested once.
    pub fn select<'a, V: View>(&'a self, namespace: &str, selector: &Selector) -> Vec<Viewed<'a, V>> {
        if selector.is_nothing() {
            return Vec::new();
        }
        let mut last: Option<(&Meta, bool)> = None;
        let mut selected = |seen: &Viewed<'a, V>| {
            let meta = seen.meta();
            let known = last.filter(|(last, _)| last.labels.is_same(&meta.labels)).map(|(_, selected)| selected);
            let is_selected = known.unwrap_or_else(|| selector.matches(meta));
            last = Some((meta, is_selected));
            is_selected
        };
        match selector.index_values(namespace) {
            Some(places) => {
                let found = places.iter().flat_map(|place| self.indexed::<V>(LABELS, place));
                let mut found: Vec<_> = found.filter(|seen| selected(seen)).collect();
                found.sort_by(|a, b| a.meta().name.cmp(&b.meta().name));
                found
            }
            None => self.in_namespace(namespace).filter(|seen| selected(seen)).collect(),
        }
    }

    /// The objects of a kind whose own selectors select these labels. `index` must index the objects by
    /// [`selected_places`]. If several objects share a selector, the selector is tested once.
    pub fn selecting<'a, V: View>(
        &'a self,
        index: &'static str,
        meta: &Meta,
        selector: impl Fn(&'a V) -> &'a Selector,
    ) -> Vec<Viewed<'a, V>> {
        if self.index_is_empty::<V>(index) {
            return Vec::new();
        }
        let mut tested: HashMap<*const Compiled, bool> = HashMap::new();
        let mut selects = |seen: &Viewed<'a, V>| {
            let selector = selector(seen.view);
            *tested.entry(Arc::as_ptr(&selector.0)).or_insert_with(|| selector.matches(meta))
        };
        let places = labelled_places(meta).into_iter();
        places.flat_map(|place| self.indexed::<V>(index, &place)).filter(|seen| selects(seen)).collect()
    }

    /// The objects of a kind that a selector may select. `index` must index the objects by [`labelled_places`].
    pub fn selectable<'a, V: View>(
        &'a self,
        index: &'static str,
        namespace: &str,
        selector: &Selector,
    ) -> impl Iterator<Item = Viewed<'a, V>> + use<'a, V> {
        let places = if self.index_is_empty::<V>(index) { Vec::new() } else { selected_places(namespace, selector) };
        places.into_iter().flat_map(move |place| self.indexed::<V>(index, &place))
    }
}

/// The index values under which a selector finds an object: one value for each label of the object, and one value for
/// its whole namespace.
pub fn labelled_places(meta: &Meta) -> Vec<Text> {
    let labels = meta.labels.iter().map(|(label, value)| index_value(&meta.namespace, label, value));
    labels.chain([everywhere(&meta.namespace)]).collect()
}

/// The index values of an object that contains this selector: one value for each allowed value of the label that
/// `Selector::pinned` returns, or the value of the whole namespace.
pub fn selected_places(namespace: &str, selector: &Selector) -> Vec<Text> {
    if selector.is_nothing() {
        return Vec::new();
    }
    match selector.index_values(namespace) {
        Some(places) => places.into_iter().collect(),
        None => vec![everywhere(namespace)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::{Pod, Service};
    use crate::{Key, Time};
    use holdfast_value::json;

    fn meta(labels: &[(&str, &str)]) -> Meta {
        let labels: Map = labels.iter().map(|(label, value)| ((*label).to_owned(), Value::from(*value))).collect();
        serde_json::from_str(&json!({"name": "a", "namespace": "n", "labels": labels}).to_string()).expect("metadata")
    }

    /// Tests that long and short selectors select equal objects, for all combinations of a few labels, values and
    /// requirements.
    #[test]
    fn long_selectors_select_as_short_ones_do() {
        let (labels, values) = (["a", "b", "c"], ["1", "2", "x"]);
        let mut requirements = Vec::new();
        for label in labels {
            requirements.extend([label.to_owned(), format!("!{label}")]);
            for value in values {
                for other in values {
                    requirements
                        .extend([format!("{label} in ({value},{other})"), format!("{label} notin ({value},{other})")]);
                }
                requirements.extend([format!("{label}={value}"), format!("{label}!={value}")]);
            }
            requirements.extend([
                format!("{label}>1"),
                format!("{label}<2"),
                format!("{label}>0"),
                format!("{label}<3"),
            ]);
        }
        let mut metas = vec![meta(&[])];
        for first in values {
            metas.push(meta(&[("a", first)]));
            for second in values {
                metas.push(meta(&[("a", first), ("b", second), ("z", "1")]));
                metas.push(meta(&[("a", first), ("b", second), ("c", first)]));
            }
        }
        // Requirements about labels that no object has make the selector long without changing what it selects.
        let long = (0..20).map(|number| format!("!none-{number}")).collect::<Vec<_>>().join(",");
        let mut selected = 0;
        for one in &requirements {
            for other in &requirements {
                let short = Selector::parse(&format!("{one},{other}"));
                let long = Selector::parse(&format!("{one},{other},{long}"));
                assert!(short.0.tests.is_empty() && long.0.tests.len() > 20);
                for meta in &metas {
                    assert_eq!(short.matches(meta), long.matches(meta), "{one},{other} of {:?}", *meta.labels);
                    selected += usize::from(long.matches(meta));
                }
            }
        }
        assert!(selected > 1000);
    }

    #[test]
    fn what_is_required_of_one_label_is_one_test() {
        let terms: Vec<String> = (0..40_000).map(|number| format!("a notin (v{number})")).collect();
        let selector = Selector::parse(&terms.join(","));
        assert_eq!((selector.0.tests.len(), selector.0.needed), (1, 0));
        assert!(selector.matches(&meta(&[])) && selector.matches(&meta(&[("a", "x")])));
        assert!(!selector.matches(&meta(&[("a", "v39999")])));
    }

    #[test]
    fn selectors_of_one_text_are_held_once() {
        let read = |text: &str| serde_json::from_str::<Selector>(text).expect("JSON");
        let text = r#"{"matchLabels": {"held": "once"}}"#;
        let (one, other) = (read(text), read(text));
        assert!(Arc::ptr_eq(&one.0, &other.0));
        let services = |text: &str| serde_json::from_str::<Service>(text).expect("JSON").spec.selector;
        let plain = services(r#"{"spec": {"selector": {"matchLabels": "x"}}}"#);
        assert!(plain.matches(&meta(&[("matchLabels", "x")])));
        assert!(read("null").is_nothing() && read("{}").is_everything());
        assert!(services("{}").is_nothing() && services(r#"{"spec": {"selector": {}}}"#).is_nothing());
        assert!(services(r#"{"spec": {"selector": null}}"#).is_nothing());
        for number in 0..10_000 {
            read(&format!(r#"{{"matchLabels": {{"a": "{number}"}}}}"#));
        }
        assert!(COMPILED.lock().expect("nobody panics").selectors.len() < 5_000, "nobody holds them");
    }

    #[test]
    fn equal_selectors_are_found_by_what_they_select() {
        let mut world = World::default();
        world.track::<Pod>();
        world.track::<Service>();
        world.index_labels::<Pod>();
        world.index::<Service>("selectors", |object| match object.view::<Service>() {
            Some(service) => selected_places(&object.meta.namespace, &service.spec.selector),
            None => Vec::new(),
        });
        for number in 0..100 {
            let app = if number % 2 == 0 { "even" } else { "odd" };
            for (resource, more) in
                [(Pod::resource(), json!({"labels": {"app": app}})), (Service::resource(), json!({}))]
            {
                let mut metadata =
                    json!({"name": format!("o{number:02}"), "namespace": "n", "uid": number.to_string()});
                metadata.as_object_mut().expect("fields").extend(more.as_object().expect("fields").clone());
                let text = json!({"metadata": metadata, "spec": {"selector": {"app": app}}}).to_string();
                let key = Key::new("n", &format!("o{number:02}"));
                world.apply(resource, key, Some(text.into()), 1, Time::from_second(0));
            }
        }
        let service = world.get::<Service>(&Key::new("n", "o01")).expect("a service");
        let pods = world.select::<Pod>("n", &service.spec.selector);
        assert_eq!(pods.iter().map(|pod| pod.meta().name.as_str()).take(3).collect::<Vec<_>>(), ["o01", "o03", "o05"]);
        assert_eq!(pods.len(), 50);
        let selecting = world.selecting::<Service>("selectors", pods[0].meta(), |service| &service.spec.selector);
        assert_eq!(selecting.len(), 50);
        // If the label has very many allowed values, the index is not used, and all objects of the namespace are read.
        let values: Vec<String> = (0..1000).map(|number| format!("v{number}")).collect();
        let wide = Selector::parse(&format!("app in (odd,{})", values.join(",")));
        assert_eq!(selected_places("n", &wide).len(), 1);
        assert_eq!(world.select::<Pod>("n", &wide).len(), 50);
    }
}
