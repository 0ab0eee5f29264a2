//! Tests that the messages of the code have the names, fields and numbers of `proto/cloud.proto`.

use std::collections::{BTreeMap, BTreeSet};

type Messages = BTreeMap<String, BTreeSet<(String, String)>>;

/// The messages in the proto file. Each field is on one line: `TYPE NAME = NUMBER;`.
fn declared() -> Messages {
    let mut messages = Messages::new();
    let mut current = None;
    for line in include_str!("../proto/cloud.proto").lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("message ") {
            let name = rest.split([' ', '{']).next().unwrap_or_default().to_owned();
            messages.entry(name.clone()).or_default();
            current = (!rest.ends_with("{}")).then_some(name);
        } else if line == "}" {
            current = None;
        } else if let (Some(name), Some((field, number))) = (&current, line.split_once(" = "))
            && !line.starts_with("//")
        {
            let field = field.rsplit(' ').next().unwrap_or_default().to_owned();
            let number = number.trim_end_matches(';').to_owned();
            messages.entry(name.clone()).or_default().insert((field, number));
        }
    }
    messages
}

/// The messages in the code. Each field is on two lines: `tag = "NUMBER"` is on one line, and `pub NAME:` is on the
/// next.
fn written() -> Messages {
    let mut messages = Messages::new();
    let (mut current, mut tag) = (String::new(), None);
    for line in include_str!("../src/external/wire.rs").lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("pub struct ")
            && !rest.contains('(')
        {
            current = rest.split([' ', '{']).next().unwrap_or_default().to_owned();
            messages.entry(current.clone()).or_default();
        } else if let Some((_, rest)) = line.split_once("tag = \"") {
            tag = rest.split('"').next().map(str::to_owned);
        } else if let (Some(number), Some(rest)) = (tag.take(), line.strip_prefix("pub ")) {
            let field = rest.split(':').next().unwrap_or_default().trim_start_matches("r#").to_owned();
            messages.entry(current.clone()).or_default().insert((field, number));
        }
    }
    messages
}

#[test]
fn messages_are_those_of_the_file() {
    let declared = declared();
    assert!(declared.len() > 15 && declared["BalancerRequest"].len() == 13, "{declared:?}");
    assert_eq!(written(), declared);
}
