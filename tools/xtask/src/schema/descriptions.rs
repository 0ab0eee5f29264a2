//! Writes the descriptions of types and fields. `core/src/wire/openapi/descriptions.rs` reads them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::openapi::Definition;
use super::text::PREFIX;

const HEADER: &str = "\
# What the built-in API's types and fields are for. Written by `cargo xtask schema`: do not edit.
#
# NAME TEXT
#     A type, by its OpenAPI name without `io.k8s.`. Backslashes and line ends in texts stand as `\\\\` and `\\n`.
#   JSON-NAME TEXT
#     A field of the type above it.
";

pub fn write(definitions: &BTreeMap<String, Definition>) -> String {
    let mut text = HEADER.to_string();
    for (name, definition) in definitions {
        let name = name.strip_prefix(PREFIX).unwrap_or(name);
        line(&mut text, name, &definition.description);
        for (field, description) in &definition.descriptions {
            text.push_str("  ");
            line(&mut text, field, description);
        }
    }
    text
}

fn line(text: &mut String, name: &str, description: &str) {
    let escaped = description.replace('\\', "\\\\").replace('\n', "\\n");
    writeln!(text, "{name} {escaped}").expect("writing to a string cannot fail");
}
