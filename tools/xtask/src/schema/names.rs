//! Restores the names that prost changes: `pod_cid_rs` is `podCIDRs`, `JsonSchemaProps` is `JSONSchemaProps`.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    openapi::{Definition, Property},
    protobuf,
};

/// Names that no rule restores: message, prost's name, JSON name.
const EXCEPTIONS: [(&str, &str, &str); 3] = [
    ("io.k8s.api.core.v1.DaemonEndpoint", "port", "Port"),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1beta1.CustomResourceColumnDefinition",
        "json_path",
        "JSONPath",
    ),
    ("io.k8s.apimachinery.pkg.apis.testapigroup.v1.CarpStatus", "carp_ip", "carpIP"),
];

/// The definitions of all versions, for lookups that ignore case.
pub struct Definitions<'a> {
    current: &'a BTreeMap<String, Definition>,
    /// The definitions by name. If several versions define a name, the definition of the current version is used, if
    /// this version defines the name.
    all: BTreeMap<&'a str, &'a Definition>,
    /// The definitions by type name without package. The definition of the current version is last.
    by_type: BTreeMap<&'a str, Vec<&'a Definition>>,
    by_folded_name: BTreeMap<String, &'a str>,
    types_by_folded_name: BTreeMap<String, BTreeSet<&'a str>>,
    /// The property names of all definitions, by their folded form.
    dictionary: BTreeMap<String, BTreeSet<&'a str>>,
}

impl<'a> Definitions<'a> {
    pub fn new(versions: &'a [(&'static str, BTreeMap<String, Definition>)], current: &str) -> Self {
        let current_definitions =
            versions.iter().find(|(version, _)| *version == current).map(|(_, d)| d).expect("the version is listed");
        let mut all = BTreeMap::new();
        let mut by_type: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let mut by_folded_name = BTreeMap::new();
        let mut types_by_folded_name: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        let mut dictionary: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for (name, definition) in versions.iter().flat_map(|(_, definitions)| definitions).chain(current_definitions) {
            let bare = bare(name);
            all.insert(name.as_str(), definition);
            by_type.entry(bare).or_default().push(definition);
            by_folded_name.insert(fold(name), name.as_str());
            types_by_folded_name.entry(fold(bare)).or_default().insert(bare);
            for property in definition.properties.keys() {
                dictionary.entry(fold(property)).or_default().insert(property.as_str());
            }
        }
        Self { current: current_definitions, all, by_type, by_folded_name, types_by_folded_name, dictionary }
    }

    pub fn current(&self) -> &'a BTreeMap<String, Definition> {
        self.current
    }

    /// The definition with the message's own name, in the current version or another.
    pub fn own(&self, message: &str) -> Option<&'a Definition> {
        self.all.get(message).copied().filter(|definition| !definition.properties.is_empty())
    }

    /// The definition with the message's own name, or else the definition of the same type in another group or version.
    pub fn own_or_sibling(&self, message: &str) -> Option<&'a Definition> {
        self.own(message).or_else(|| self.by_type.get(bare(message))?.last().copied())
    }

    pub fn message_name(&self, message: &protobuf::Message) -> String {
        let module = message.module.replacen("apiextensions_apiserver", "apiextensions-apiserver", 1).replacen(
            "kube_aggregator",
            "kube-aggregator",
            1,
        );
        let plain = format!("io.k8s.{module}.{}", message.rust);
        if let Some(name) = self.by_folded_name.get(&fold(&plain)) {
            return name.to_string();
        }
        // Comments of Go types begin with the type's name.
        if let Some(word) = first_word(&message.comment).filter(|word| fold(word) == fold(&message.rust)) {
            return format!("io.k8s.{module}.{word}");
        }
        match self.types_by_folded_name.get(&fold(&message.rust)).map(|types| types.iter().collect::<Vec<_>>()) {
            Some(types) if types.len() == 1 => format!("io.k8s.{module}.{}", types[0]),
            _ => plain,
        }
    }

    pub fn field_name(&self, message: &str, field: &protobuf::Field) -> String {
        let exception = |(owner, rust, _): &&(&str, &str, &str)| *owner == message && *rust == field.rust;
        if let Some((_, _, json)) = EXCEPTIONS.iter().find(exception) {
            return json.to_string();
        }
        let folded = fold(&field.rust);
        let find = |definition: &&'a Definition| definition.properties.keys().find(|name| fold(name) == folded);
        if let Some(name) = self.own(message).as_ref().and_then(find) {
            return name.clone();
        }
        if let Some(name) = self.by_type.get(bare(message)).and_then(|all| all.iter().rev().find_map(find)) {
            return name.clone();
        }
        if let Some(word) = first_word(&field.comment)
            .filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase()) && snake_case(word) == field.rust)
        {
            return word;
        }
        let known = self.dictionary.get(&folded).into_iter().flatten();
        let mut fitting = known.filter(|name| fits(name, &field.rust));
        match (fitting.next(), fitting.next()) {
            (Some(only), None) => only.to_string(),
            _ => camel_case(&field.rust),
        }
    }

    /// Whether the JSON form of the message shows `apiVersion` and `kind`, which its Protobuf form lacks.
    pub fn shows_type(&self, message: &str) -> Option<bool> {
        let text = Property::Plain("string".to_string());
        let definition = self.own_or_sibling(message)?;
        Some(["apiVersion", "kind"].iter().all(|name| definition.properties.get(*name) == Some(&text)))
    }
}

/// The last part of a definition's name.
pub fn bare(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// The lower-case letters and digits of a name, which are the same for all spellings of the name.
fn fold(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

fn first_word(comment: &[String]) -> Option<String> {
    let line = comment.iter().find(|line| !line.trim().is_empty())?;
    line.trim().split(|c: char| !c.is_ascii_alphanumeric()).next().map(str::to_string)
}

/// Whether a JSON name can be the origin of prost's name: each underscore must stand for a capital letter.
fn fits(name: &str, rust: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric())
        && name.chars().filter(char::is_ascii_uppercase).count() >= rust.matches('_').count()
}

fn camel_case(rust: &str) -> String {
    let mut words = rust.split('_');
    let mut name = words.next().unwrap_or_default().to_string();
    for word in words {
        let (first, rest) = word.split_at(word.len().min(1));
        name.push_str(&first.to_ascii_uppercase());
        name.push_str(rest);
    }
    name
}

/// Converts to snake case like prost-build: consecutive capitals are one word.
fn snake_case(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut snake = String::new();
    for (i, letter) in letters.iter().enumerate() {
        let follows_small = i > 0 && !letters[i - 1].is_ascii_uppercase();
        let starts_word = letters.get(i + 1).is_some_and(char::is_ascii_lowercase);
        if i > 0 && letter.is_ascii_uppercase() && (follows_small || starts_word) {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}
