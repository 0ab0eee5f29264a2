//! The names that Go has for types and fields in decoder errors, as far as the schema table lacks them: named string
//! types, and structs that are embedded without a JSON name.
//!
//! Only error messages need these names, so a look-up may be slow.

use super::{Field, Message};
use std::sync::LazyLock;

/// What a name in `core/data/go-names.txt` stands for. The first word of each row gives it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Named {
    /// The struct that contains an inlined field.
    Embedded,
    /// The type of the field's value, or of each item if it is a list or map.
    Item,
    /// The type of a map's keys.
    Key,
    /// The type of the list or map itself.
    Whole,
}

/// A row of `core/data/go-names.txt`. The head of that file explains the format.
struct Row {
    named: Named,
    messages: Vec<&'static str>,
    fields: Vec<&'static str>,
    name: &'static str,
}

static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| lines().filter_map(row).collect());

fn lines() -> impl Iterator<Item = &'static str> {
    include_str!("../../data/go-names.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn row(line: &'static str) -> Option<Row> {
    let mut words = line.split(' ');
    let named = match words.next()? {
        "embedded" => Named::Embedded,
        "item" => Named::Item,
        "key" => Named::Key,
        "whole" => Named::Whole,
        _ => return None,
    };
    let mut names = || Some(words.next()?.split(',').collect());
    let (messages, fields) = (names()?, names()?);
    let name = words.next()?;
    words.next().is_none().then_some(Row { named, messages, fields, name })
}

/// The type of the field's value or items, if it has its own name: `v1.Protocol`.
pub(super) fn item(message: &Message, field: &str) -> Option<String> {
    qualified(Named::Item, message, field)
}

/// The type of a map's keys, if it has its own name.
pub(super) fn key(message: &Message, field: &str) -> Option<String> {
    qualified(Named::Key, message, field)
}

/// The type of a list or map, if it has its own name.
pub(super) fn whole(message: &Message, field: &str) -> Option<String> {
    qualified(Named::Whole, message, field)
}

fn qualified(named: Named, message: &Message, field: &str) -> Option<String> {
    let (package, bare) = message.name.rsplit_once('.')?;
    let name = find(named, bare, field)?;
    let own = package.rsplit('.').next().unwrap_or_default();
    Some(if name.contains('.') { name.to_owned() } else { format!("{own}.{name}") })
}

fn find(named: Named, message: &str, field: &str) -> Option<&'static str> {
    let row =
        ROWS.iter().find(|row| row.named == named && row.messages.contains(&message) && row.fields.contains(&field));
    row.map(|row| row.name)
}

/// Whether the Go type with this name is a string.
pub fn is_text(name: &str) -> bool {
    let bare = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    ROWS.iter().any(|row| row.named == Named::Item && bare(row.name) == bare(name))
}

/// The names of the Go structs through which a message embeds the field, such as `VolumeSource`; empty for the
/// message's own fields.
pub(super) fn embedded(message: &Message, field: &Field) -> Vec<&'static str> {
    let mut names = Vec::new();
    let mut within = message.name.rsplit('.').next().unwrap_or_default();
    for number in &field.inline {
        let Some(name) = find(Named::Embedded, within, &number.to_string()) else { break };
        names.push(name);
        within = name;
    }
    names
}

#[cfg(test)]
mod tests {
    use super::{lines, row};

    #[test]
    fn every_line_is_a_row() {
        let wrong: Vec<_> = lines().filter(|line| row(line).is_none()).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}
