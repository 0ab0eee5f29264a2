//! Field paths in CustomResourceDefinitions: `.spec.replicas`, `.data['a.b']`. They are resolved along a schema, so
//! that each step is a property or a map key.

use super::{Additional, Structural};

pub(crate) struct FieldPath<'s> {
    /// The path as causes print it: `spec.replicas`, `data[a.b]`.
    pub text: String,
    pub schema: &'s Structural,
}

const END: &str = "unexpected end of JSON path";
const UNKNOWN: &str = "does not refer to a valid field";

impl<'s> FieldPath<'s> {
    pub fn parse(path: &str, schema: &'s Structural, brackets: bool) -> Result<FieldPath<'s>, String> {
        let mut found = FieldPath { text: String::new(), schema };
        let mut tokens = Tokens(path);
        while let Some(token) = tokens.next() {
            match token {
                "[" if !brackets => return Err("array notation is not allowed".into()),
                "[" => {
                    let token = tokens.next().ok_or(END)?;
                    let inner = token.strip_prefix('\'').and_then(|inner| inner.strip_suffix('\''));
                    let inner = inner.ok_or_else(|| format!("expected single quoted string but got {token}"))?;
                    let name = unescape(inner).map_err(|error| format!("invalid string literal: {error}"))?;
                    found.step(&name)?;
                    let token = tokens.next().ok_or(END)?;
                    if token != "]" {
                        return Err(format!("expected ] but got {token}"));
                    }
                }
                "." => {
                    let name = tokens.next().ok_or(END)?;
                    found.step(name)?;
                }
                token => return Err(format!("expected [ or . but got: {token}")),
            }
        }
        Ok(found)
    }

    fn step(&mut self, name: &str) -> Result<(), String> {
        if self.schema.properties.is_empty()
            && let Some(Additional::Like(schema)) = &self.schema.additional_properties
        {
            self.text.extend(["[", name, "]"]);
            self.schema = schema;
            return Ok(());
        }
        let dot = if self.text.is_empty() { "" } else { "." };
        self.text.extend([dot, name]);
        self.schema = self.schema.properties.get(name).ok_or(UNKNOWN)?;
        Ok(())
    }
}

/// Splits a path into tokens: dots, brackets, and the text between them. A quoted text is one token.
struct Tokens<'a>(&'a str);

impl<'a> Tokens<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let text = self.0;
        let first = text.chars().next()?;
        let end = match first {
            '.' | '[' | ']' => 1,
            '\'' => {
                let mut before = '\'';
                let closing = text.char_indices().skip(1).find(|(_, c)| {
                    let closes = *c == '\'' && before != '\\';
                    before = *c;
                    closes
                });
                closing.map_or(text.len(), |(at, _)| at + 1)
            }
            _ => text.find(['.', '[', ']']).unwrap_or(text.len()),
        };
        let (token, rest) = text.split_at(end);
        self.0 = rest;
        Some(token)
    }
}

fn unescape(text: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        plain.push(match c {
            '\\' => match rest.next() {
                Some('a') => '\x07',
                Some('b') => '\x08',
                Some('f') => '\x0c',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some('v') => '\x0b',
                Some(c @ ('\'' | '\\')) => c,
                Some(c) => return Err(format!("invalid escape char \\{c}")),
                None => '\\',
            },
            c => c,
        });
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::{FieldPath, Structural};
    use holdfast_value::json;

    #[test]
    fn paths() {
        let schema = Structural::parse(&json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {"a.b": {"type": "string"}, "it's": {"type": "string"},
                "map": {"type": "object", "additionalProperties": {"type": "string"}}}}}}))
        .expect("a good schema");
        for (path, expected) in [
            (".spec", "spec"),
            (".spec['a.b']", "spec.a.b"),
            (r".spec['it\'s']", "spec.it's"),
            (".spec.map.key", "spec.map[key]"),
            (".spec['map']['a key']", "spec.map[a key]"),
            ("spec", "error: expected [ or . but got: spec"),
            (".", "error: unexpected end of JSON path"),
            (".other", "error: does not refer to a valid field"),
            (".spec.map.key.more", "error: does not refer to a valid field"),
            (".spec[0]", "error: expected single quoted string but got 0"),
            (".spec['a.b'", "error: unexpected end of JSON path"),
            (".spec['a.b'x]", "error: expected ] but got x"),
            (r".spec['\q']", r"error: invalid string literal: invalid escape char \q"),
        ] {
            let found = match FieldPath::parse(path, &schema, true) {
                Ok(found) => found.text,
                Err(error) => format!("error: {error}"),
            };
            assert_eq!(found, expected, "{path}");
        }
        assert_eq!(
            FieldPath::parse(".a['b']", &schema, false).err().expect("no brackets"),
            "does not refer to a valid field"
        );
    }
}
