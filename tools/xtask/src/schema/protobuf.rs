//! Reads k8s-pb's prost structs: numbers, types, and the marker comments of the original Go types.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, anyhow, bail};
use syn::{Attribute, Expr, ExprLit, Fields, GenericArgument, ImplItem, Item, Lit, Meta, PathArguments};

use super::sources::rust_files;

/// A struct that prost has generated for a Protobuf message.
#[derive(Debug)]
pub struct Message {
    /// The module, for example `api.core.v1`.
    pub module: String,
    /// The struct's name, with prost's capitals.
    pub rust: String,
    pub comment: Vec<String>,
    pub fields: Vec<Field>,
    pub resource: Option<ServedMessage>,
}

#[derive(Debug)]
pub struct Field {
    pub rust: String,
    pub number: u32,
    pub ty: Type,
    pub shape: FieldShape,
    pub comment: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Type {
    String,
    Bool,
    Int32,
    Int64,
    Double,
    Bytes,
    /// The key of the message in the map that [`read`] returns.
    Message(String),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FieldShape {
    Single,
    List,
    Map,
}

#[derive(Debug, Clone, Default)]
pub struct ServedMessage {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub plural: String,
    pub namespaced: bool,
}

/// All messages by `module.Struct`.
pub fn read(folder: &Path) -> anyhow::Result<BTreeMap<String, Message>> {
    let mut messages = BTreeMap::new();
    let mut resources = Vec::new();
    for (module, path) in rust_files(folder)? {
        let context = || format!("in {}", path.display());
        let file = syn::parse_file(&fs::read_to_string(&path)?).with_context(context)?;
        for item in file.items {
            match item {
                Item::Struct(item) if derives_message(&item.attrs) => {
                    let message = message(&module, item).with_context(context)?;
                    messages.insert(format!("{module}.{}", message.rust), message);
                }
                Item::Impl(item) => resources.extend(resource(&module, &item).with_context(context)?),
                Item::Enum(item) => bail!("an enum is not expected: {} in {}", item.ident, path.display()),
                _ => {}
            }
        }
    }
    for (name, resource) in resources {
        messages.get_mut(&name).with_context(|| format!("no message for resource {name}"))?.resource = Some(resource);
    }
    Ok(messages)
}

/// The markers in a comment: `+listType=map` gives `listType` → [`map`].
pub fn markers(comment: &[String]) -> BTreeMap<String, Vec<String>> {
    let mut markers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in comment {
        let Some(marker) = line.trim().strip_prefix('+').filter(|m| m.starts_with(|c: char| c.is_ascii_alphabetic()))
        else {
            continue;
        };
        let (key, value) = marker.split_once('=').unwrap_or((marker, ""));
        // prost-build escapes brackets in comments for rustdoc.
        let value = value.trim().replace("\\[", "[").replace("\\]", "]");
        markers.entry(key.trim().to_string()).or_default().push(value);
    }
    markers
}

fn message(module: &str, item: syn::ItemStruct) -> anyhow::Result<Message> {
    let rust = item.ident.to_string();
    let Fields::Named(named) = &item.fields else { bail!("{rust} has no named fields") };
    let fields =
        named.named.iter().map(|f| field(module, f).with_context(|| rust.clone())).collect::<anyhow::Result<_>>()?;
    Ok(Message { module: module.to_string(), rust, comment: comment(&item.attrs), fields, resource: None })
}

fn field(module: &str, field: &syn::Field) -> anyhow::Result<Field> {
    let attribute = field.attrs.iter().find(|a| a.path().is_ident("prost")).context("no prost attribute")?;
    let (mut ty, mut shape, mut number) = (None, FieldShape::Single, None);
    attribute.parse_nested_meta(|meta| {
        let key = meta.path.require_ident()?.to_string();
        let value = if meta.input.peek(syn::Token![=]) {
            Some(string(&meta.value()?.parse::<Expr>()?).ok_or_else(|| meta.error("not a string"))?)
        } else {
            None
        };
        match (key.as_str(), value.as_deref()) {
            ("tag", Some(value)) => number = value.parse::<u32>().ok(),
            ("btree_map", Some(value)) => {
                let (key, value) = value.split_once(", ").ok_or_else(|| meta.error("not a pair"))?;
                if key != "string" {
                    return Err(meta.error("keys of maps are strings"));
                }
                shape = FieldShape::Map;
                ty = Some(value.to_string());
            }
            ("bytes", Some(_)) => ty = Some("bytes".to_string()),
            ("repeated", None) => shape = FieldShape::List,
            ("packed", Some(_)) | ("optional" | "boxed", None) => {}
            (_, None) => ty = Some(key),
            _ => return Err(meta.error("unknown")),
        }
        Ok(())
    })?;
    let ty = match ty.as_deref().context("no type")? {
        "string" => Type::String,
        "bool" => Type::Bool,
        "int32" => Type::Int32,
        "int64" => Type::Int64,
        "double" => Type::Double,
        "bytes" => Type::Bytes,
        "message" => Type::Message(resolve(module, &field.ty)?),
        other => bail!("unknown type {other}"),
    };
    let rust = field.ident.as_ref().context("no name")?.to_string();
    Ok(Field {
        rust: rust.trim_start_matches("r#").to_string(),
        number: number.context("no number")?,
        ty,
        shape,
        comment: comment(&field.attrs),
    })
}

fn resource(module: &str, item: &syn::ItemImpl) -> anyhow::Result<Option<(String, ServedMessage)>> {
    let Some((_, path, _)) = &item.trait_ else { return Ok(None) };
    if path.segments.last().is_none_or(|segment| segment.ident != "Resource") {
        return Ok(None);
    }
    let mut resource = ServedMessage::default();
    for item in &item.items {
        match item {
            ImplItem::Const(constant) => {
                let value = string(&constant.expr).with_context(|| format!("{} is no string", constant.ident))?;
                match constant.ident.to_string().as_str() {
                    "GROUP" => resource.group = value,
                    "VERSION" => resource.version = value,
                    "KIND" => resource.kind = value,
                    "URL_PATH_SEGMENT" => resource.plural = value,
                    _ => {}
                }
            }
            ImplItem::Type(scope) => {
                let syn::Type::Path(path) = &scope.ty else { bail!("the scope is no path") };
                resource.namespaced = path.path.segments.last().is_some_and(|s| s.ident == "NamespaceResourceScope");
            }
            _ => {}
        }
    }
    Ok(Some((resolve(module, &item.self_ty)?, resource)))
}

fn derives_message(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("derive")
            && matches!(&attribute.meta, Meta::List(list) if list.tokens.to_string().contains("Message"))
    })
}

fn comment(attributes: &[Attribute]) -> Vec<String> {
    let text = |attribute: &Attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => string(&pair.value),
        _ => None,
    };
    attributes.iter().filter_map(text).collect()
}

fn string(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}

/// The message of a field's Rust type, inside any `Option`, `Vec`, `Box` and map.
fn resolve(module: &str, ty: &syn::Type) -> anyhow::Result<String> {
    let syn::Type::Path(path) = ty else { bail!("the type is no path") };
    let last = path.path.segments.last().context("an empty path")?;
    if let PathArguments::AngleBracketed(arguments) = &last.arguments {
        return match arguments.args.last() {
            Some(GenericArgument::Type(inner)) => resolve(module, inner),
            _ => Err(anyhow!("{} has no type argument", last.ident)),
        };
    }
    let mut current: Vec<String> = module.split('.').map(str::to_string).collect();
    for segment in path.path.segments.iter() {
        match segment.ident.to_string().trim_start_matches("r#") {
            "super" => drop(current.pop()),
            "crate" => current.clear(),
            "self" => {}
            name => current.push(name.to_string()),
        }
    }
    Ok(current.join("."))
}
