//! The descriptions of the types and fields of the built-in API.
//!
//! This module has only the texts of definitions; their structure comes from the schema table. An old type that
//! Kubernetes 1.35 no longer has, such as a beta version, gets the text of the newest version of the type.

use crate::kinds::compare_versions;
use crate::schema::{Type, schema};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

const TEXT: &str = include_str!("../../../schema/descriptions.txt");
/// The prefix of type names that the file of the descriptions omits.
const PREFIX: &str = "io.k8s.";

/// The description of a type as it is in the file, with escapes.
struct Described {
    text: &'static str,
    /// The lines of the file about the fields of the type.
    fields: &'static str,
}

static TYPES: LazyLock<BTreeMap<&str, Described>> = LazyLock::new(|| read(TEXT));
/// The full names of types in [`TYPES`], by their last part.
static NAMESAKES: LazyLock<BTreeMap<&str, Vec<&str>>> = LazyLock::new(|| {
    let mut namesakes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for name in TYPES.keys() {
        namesakes.entry(split(name).1).or_default().push(name);
    }
    namesakes
});

/// The description of a type; empty if there is none.
pub(super) fn of_type(message: &str) -> Cow<'static, str> {
    find(message).map_or(Cow::Borrowed(""), |described| unescape(described.text))
}

pub(in crate::wire) fn of_field(message: &str, field: &str) -> Cow<'static, str> {
    let fields = find(message).map_or("", |described| described.fields);
    let own = |line: &'static str| line.strip_prefix("  ")?.strip_prefix(field)?.strip_prefix(' ');
    fields.lines().find_map(own).map_or(Cow::Borrowed(""), unescape)
}

/// The description of the field at a dotted path below a message.
pub(in crate::wire) fn at(message: &str, path: &str) -> Cow<'static, str> {
    let (parents, field) = path.rsplit_once('.').unwrap_or(("", path));
    let parents = parents.split('.').filter(|name| !name.is_empty());
    let holder = parents.fold(schema().id(message), |message, name| match schema().message(message?).field(name)?.ty {
        Type::Message(part) => Some(part),
        _ => None,
    });
    holder.map_or(Cow::Borrowed(""), |holder| of_field(&schema().message(holder).name, field))
}

fn find(message: &str) -> Option<&'static Described> {
    let message = message.strip_prefix(PREFIX).unwrap_or(message);
    if let Some(described) = TYPES.get(message) {
        return Some(described);
    }
    let (package, bare) = split(message);
    // Of the types with this last part, a type of the same group is taken first, and of several such types the newest
    // version.
    let newest = NAMESAKES.get(bare)?.iter().min_by(|a, b| {
        let ((a_group, a_version), (b_group, b_version)) = (split(split(a).0), split(split(b).0));
        let group = split(package).0;
        (b_group == group).cmp(&(a_group == group)).then(compare_versions(a_version, b_version))
    });
    newest.and_then(|name| TYPES.get(name))
}

/// Splits the name of a type, `api.apps.v1.Deployment`, into package and name, or a package into group and version.
fn split(name: &str) -> (&str, &str) {
    name.rsplit_once('.').unwrap_or(("", name))
}

fn read(text: &'static str) -> BTreeMap<&'static str, Described> {
    let mut types = BTreeMap::new();
    let mut rest = text;
    while let Some((line, below)) = rest.split_once('\n') {
        let length: usize = below.split_inclusive('\n').take_while(|line| line.starts_with(' ')).map(str::len).sum();
        let (fields, after) = below.split_at(length);
        rest = after;
        if let Some((name, text)) = line.split_once(' ').filter(|_| !line.starts_with('#')) {
            types.insert(name, Described { text, fields });
        }
    }
    types
}

fn unescape(text: &'static str) -> Cow<'static, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if letters.next() == Some('n') => plain.push('\n'),
            letter => plain.push(letter),
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_fields_have_words() {
        assert!(of_type("io.k8s.api.core.v1.ConfigMap").starts_with("ConfigMap holds"));
        assert!(of_field("io.k8s.api.core.v1.ConfigMap", "data").starts_with("Data contains"));
        assert!(!of_field("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "labels").is_empty());
        assert_eq!(of_field("io.k8s.api.core.v1.ConfigMap", "dat"), "");
        assert_eq!(of_type("io.k8s.api.core.v1.NoSuchType"), "");
    }

    #[test]
    fn every_type_has_words_and_no_line_is_lost() {
        let lines = TEXT.lines().filter(|line| !line.starts_with('#')).count();
        let fields: usize = TYPES.values().map(|described| described.fields.lines().count()).sum();
        assert_eq!(TYPES.len() + fields, lines);
        assert!(TYPES.len() > 500, "{}", TYPES.len());
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(unescape(r"a\nb\\n"), "a\nb\\n");
        assert!(of_field("io.k8s.api.core.v1.ServiceSpec", "internalTrafficPolicy").len() > 10);
    }

    #[test]
    fn a_path_leads_to_a_field() {
        let replicas = at("io.k8s.api.apps.v1.Deployment", "spec.replicas");
        assert_eq!(replicas, of_field("io.k8s.api.apps.v1.DeploymentSpec", "replicas"));
        assert!(!replicas.is_empty());
    }

    #[test]
    fn an_old_beta_takes_the_words_of_its_newest_namesake() {
        let newest = of_type("io.k8s.api.apps.v1.DeploymentSpec");
        assert!(!newest.is_empty());
        assert_eq!(of_type("io.k8s.api.extensions.v1beta1.DeploymentSpec"), newest);
    }

    #[test]
    fn a_namesake_of_the_same_group_goes_first() {
        let own = of_field("io.k8s.api.events.v1.Event", "regarding");
        assert!(!own.is_empty());
        assert_eq!(of_field("io.k8s.api.events.v1beta1.Event", "regarding"), own);
    }
}
