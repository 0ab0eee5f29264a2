//! Reads the JSON schemas in k8s-openapi's sources, one Kubernetes version at a time.
//!
//! The schemas are in `json_schema!({…})` macros, which this module tokenizes and reads without compiling them.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, bail};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::sources::rust_files;

/// An OpenAPI definition.
#[derive(Debug, Default)]
pub struct Definition {
    pub description: String,
    /// The properties by JSON name.
    pub properties: BTreeMap<String, Property>,
    /// The descriptions of properties by JSON name, for properties that have one.
    pub descriptions: BTreeMap<String, String>,
    pub required: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Property {
    /// A scalar as `type` or `type/format`.
    Plain(String),
    /// The name of the referenced definition.
    Reference(String),
    List(Box<Property>),
    Map(Box<Property>),
}

/// All definitions by name, such as `io.k8s.api.core.v1.Pod`.
pub fn read(folder: &Path) -> anyhow::Result<BTreeMap<String, Definition>> {
    let mut names = BTreeMap::new();
    let mut schemas = Vec::new();
    for (module, path) in rust_files(folder)? {
        let text = fs::read_to_string(&path)?;
        let first = text.lines().next().unwrap_or_default();
        let Some(name) = first.strip_prefix("// Generated from definition ") else { continue };
        let rust = name.rsplit('.').next().unwrap_or(name);
        names.insert(format!("{module}.{rust}"), name.to_string());
        if let Some(start) = text.find("json_schema!(") {
            schemas.push((name.to_string(), literal(&text[start..]).with_context(|| name.to_string())?));
        }
    }
    let mut definitions = BTreeMap::new();
    for (name, schema) in schemas {
        let definition = definition(&schema, &names).with_context(|| name.clone())?;
        definitions.insert(name, definition);
    }
    Ok(definitions)
}

/// A literal in the macro's argument, which has a syntax like JSON.
#[derive(Debug)]
enum Literal {
    Object(Vec<(String, Literal)>),
    List(Vec<Literal>),
    Text(String),
    /// `subschema_for::<path>()`, with dots for colons, and the description passed to it.
    Schema(String, Option<String>),
    Other,
}

impl Literal {
    fn get(&self, key: &str) -> Option<&Literal> {
        match self {
            Literal::Object(pairs) => pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
    }

    fn text(&self) -> Option<&str> {
        match self {
            Literal::Text(text) => Some(text),
            _ => None,
        }
    }

    fn description(&self) -> Option<&str> {
        match self {
            Literal::Schema(_, description) => description.as_deref(),
            _ => self.get("description")?.text(),
        }
    }
}

fn definition(schema: &Literal, names: &BTreeMap<String, String>) -> anyhow::Result<Definition> {
    let mut definition =
        Definition { description: schema.description().unwrap_or_default().to_owned(), ..Definition::default() };
    if let Some(Literal::Object(properties)) = schema.get("properties") {
        for (name, value) in properties {
            definition.properties.insert(name.clone(), property(value, names).with_context(|| name.clone())?);
            if let Some(description) = value.description() {
                definition.descriptions.insert(name.clone(), description.to_owned());
            }
        }
    }
    if let Some(Literal::List(required)) = schema.get("required") {
        definition.required = required.iter().filter_map(|name| name.text().map(str::to_string)).collect();
    }
    Ok(definition)
}

fn property(schema: &Literal, names: &BTreeMap<String, String>) -> anyhow::Result<Property> {
    if let Literal::Schema(path, _) = schema {
        let name = names.get(path).with_context(|| format!("no definition for {path}"))?;
        return Ok(Property::Reference(name.clone()));
    }
    if let Some(items) = schema.get("items") {
        return Ok(Property::List(Box::new(property(items, names)?)));
    }
    if let Some(values) = schema.get("additionalProperties") {
        return Ok(Property::Map(Box::new(property(values, names)?)));
    }
    let ty = schema.get("type").and_then(Literal::text).unwrap_or("any");
    Ok(Property::Plain(match schema.get("format").and_then(Literal::text) {
        Some(format) => format!("{ty}/{format}"),
        None => ty.to_string(),
    }))
}

/// The literal in the first `json_schema!(…)` of `text`.
fn literal(text: &str) -> anyhow::Result<Literal> {
    // The lexer needs balanced brackets, so the macro call is cut out first. The call ends at the first line that
    // closes it.
    let start = text.find('(').context("no bracket")?;
    let end = text.find("\n        })\n").context("no end")? + "\n        })".len();
    let tokens: TokenStream = text[start..end].parse().map_err(|e| anyhow::anyhow!("{e}"))?;
    let Some(TokenTree::Group(group)) = tokens.into_iter().next() else { bail!("no group") };
    value(&group.stream().into_iter().collect::<Vec<_>>())
}

fn value(tokens: &[TokenTree]) -> anyhow::Result<Literal> {
    match tokens {
        [TokenTree::Group(group)] => {
            let inner: Vec<TokenTree> = group.stream().into_iter().collect();
            match group.delimiter() {
                Delimiter::Brace => split(&inner).map(pair).collect::<anyhow::Result<_>>().map(Literal::Object),
                Delimiter::Bracket => split(&inner).map(value).collect::<anyhow::Result<_>>().map(Literal::List),
                _ => subschema(tokens),
            }
        }
        [TokenTree::Literal(literal)] => Ok(unquote(literal).map_or(Literal::Other, Literal::Text)),
        [TokenTree::Ident(_)] => Ok(Literal::Other),
        _ => subschema(tokens),
    }
}

fn pair(tokens: &[TokenTree]) -> anyhow::Result<(String, Literal)> {
    let [TokenTree::Literal(key), TokenTree::Punct(_), rest @ ..] = tokens else { bail!("not a pair") };
    Ok((unquote(key).context("the key is no string")?, value(rest)?))
}

fn subschema(tokens: &[TokenTree]) -> anyhow::Result<Literal> {
    let text: String =
        tokens.iter().map(|token| token.to_string()).collect::<String>().replace(char::is_whitespace, "");
    let (_, rest) = text.split_once("subschema_for::<").context("neither a literal nor a subschema")?;
    let (path, _) = rest.split_once(">()").context("an unfinished subschema")?;
    let path = path.trim_start_matches("crate::").replace("::", ".");
    let mut texts = Vec::new();
    collect_texts(tokens.iter().cloned(), &mut texts);
    let description = match &texts[..] {
        [key, text] if key == "description" => Some(text.clone()),
        [] => None,
        _ => bail!("a subschema with texts that are no description"),
    };
    Ok(Literal::Schema(path, description))
}

/// Collects the string literals among the tokens, including the literals in brackets, in the order of the source.
fn collect_texts(tokens: impl Iterator<Item = TokenTree>, texts: &mut Vec<String>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => collect_texts(group.stream().into_iter(), texts),
            TokenTree::Literal(literal) => texts.extend(unquote(&literal)),
            _ => {}
        }
    }
}

/// The tokens between commas, as one slice for each part.
fn split(tokens: &[TokenTree]) -> impl Iterator<Item = &[TokenTree]> {
    tokens.split(|token| matches!(token, TokenTree::Punct(p) if p.as_char() == ',')).filter(|part| !part.is_empty())
}

fn unquote(literal: &proc_macro2::Literal) -> Option<String> {
    syn::parse_str::<syn::LitStr>(&literal.to_string()).ok().map(|text| text.value())
}
