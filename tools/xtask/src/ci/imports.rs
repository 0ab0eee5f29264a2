//! Finds the imports between the files of a crate: `use` trees, and paths that begin with `crate`, `super`, `self` or
//! the name of a child module. Tests are not read.

use super::sources::sources;
use proc_macro2::{TokenStream, TokenTree};
use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context;
use syn::visit::{self, Visit};

/// A file of production code.
pub struct Source {
    /// The file's module: `kinds/core/pod` for `kinds/core/pod.rs`, `kinds/core` for `kinds/core/mod.rs`; `lib` and
    /// `main` for the crate's root.
    pub module: String,
    /// The paths in the same crate that the file uses, from the root, with `/` between names.
    pub uses: Vec<String>,
}

/// The files of the crate in a folder.
pub fn read(folder: &Path) -> anyhow::Result<Vec<Source>> {
    let mut files = Vec::new();
    sources(folder, &mut files)?;
    files.sort();
    files
        .iter()
        .map(|file| {
            let text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
            let module = module(file.strip_prefix(folder).unwrap_or(file));
            let uses = uses(&module, &text).with_context(|| format!("parse {}", file.display()))?;
            Ok(Source { module, uses })
        })
        .collect()
}

/// The paths in its own crate that a file uses.
pub fn uses(module: &str, text: &str) -> anyhow::Result<Vec<String>> {
    let file = syn::parse_file(text)?;
    let path: Vec<String> = match module {
        "lib" | "main" => Vec::new(),
        module => module.split('/').map(str::to_owned).collect(),
    };
    let mut reader = ImportReader { module: path, children: BTreeSet::new(), found: Vec::new() };
    reader.visit_file(&file);
    Ok(reader.found)
}

fn module(file: &Path) -> String {
    let path = file.with_extension("").display().to_string();
    path.strip_suffix("/mod").map(str::to_owned).unwrap_or(path)
}

struct ImportReader {
    /// The current module: the module of the file, or a module that the file declares.
    module: Vec<String>,
    /// The child modules declared here, with which a path may begin.
    children: BTreeSet<String>,
    found: Vec<String>,
}

impl ImportReader {
    /// Records a path if it leads into this crate.
    fn note(&mut self, names: &[String]) {
        let Some(path) = self.resolve(names) else { return };
        self.found.push(path.join("/"));
    }

    fn resolve(&self, names: &[String]) -> Option<Vec<String>> {
        let mut at = self.module.clone();
        let mut rest = names;
        match rest.first()?.as_str() {
            "crate" => at.clear(),
            "self" | "super" => {
                while let Some(name) = rest.first() {
                    match name.as_str() {
                        "super" => drop(at.pop()?),
                        "self" => {}
                        _ => break,
                    }
                    rest = &rest[1..];
                }
                at.extend(rest.iter().cloned());
                return Some(at);
            }
            first if self.children.contains(first) => {
                at.extend(rest.iter().cloned());
                return Some(at);
            }
            _ => return None,
        }
        at.extend(rest[1..].iter().cloned());
        Some(at)
    }

    fn tree(&mut self, tree: &syn::UseTree, before: &mut Vec<String>) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.tree(&path.tree, before);
                before.pop();
            }
            syn::UseTree::Name(name) => self.leaf(&name.ident, before),
            syn::UseTree::Rename(rename) => self.leaf(&rename.ident, before),
            syn::UseTree::Glob(_) => self.note(before),
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.tree(item, before)),
        }
    }

    fn leaf(&mut self, name: &syn::Ident, before: &[String]) {
        let mut names = before.to_vec();
        if name != "self" || names.is_empty() {
            names.push(name.to_string());
        }
        self.note(&names);
    }

    /// Macros contain tokens instead of a syntax tree, so names and colons identify paths in them.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Ident(first) => {
                    let mut names = vec![first.to_string()];
                    while let [TokenTree::Punct(one), TokenTree::Punct(two), TokenTree::Ident(next), ..] =
                        &tokens[at + 1..]
                    {
                        if one.as_char() != ':' || two.as_char() != ':' {
                            break;
                        }
                        names.push(next.to_string());
                        at += 3;
                    }
                    self.note_path(&names);
                }
                _ => {}
            }
            at += 1;
        }
    }

    /// Records a path outside of `use`. A single name is a variable, a field or an import, and is not recorded.
    fn note_path(&mut self, names: &[String]) {
        if names.len() > 1 {
            self.note(names);
        }
    }
}

/// Whether an item is compiled for tests only.
pub fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            let said = list.tokens.to_string();
            said == "test" || said.starts_with("any (test") || said.starts_with("any(test")
        }
        meta => meta.path().is_ident("test"),
    })
}

impl<'ast> Visit<'ast> for ImportReader {
    fn visit_file(&mut self, file: &'ast syn::File) {
        self.children = declared(&file.items);
        visit::visit_file(self, file);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if is_test(&item.attrs) {
            return;
        }
        let Some((_, items)) = &item.content else { return };
        let outside = std::mem::replace(&mut self.children, declared(items));
        self.module.push(item.ident.to_string());
        items.iter().for_each(|item| self.visit_item(item));
        self.module.pop();
        self.children = outside;
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_test(&item.attrs) {
            self.tree(&item.tree, &mut Vec::new());
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if !is_test(&item.attrs) {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if path.leading_colon.is_none() {
            self.note_path(&names);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        visit::visit_macro(self, called);
        self.tokens(called.tokens.clone());
    }
}

fn declared(items: &[syn::Item]) -> BTreeSet<String> {
    let modules = items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) if !is_test(&module.attrs) => Some(module.ident.to_string()),
        _ => None,
    });
    modules.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(module: &str, text: &str) -> Vec<String> {
        uses(module, text).expect("Rust")
    }

    #[test]
    fn every_way_to_name_a_module_is_seen() {
        let text = "
            mod below;
            use crate::kinds::{Kind, known, core::pod as p};
            use super::{sibling::Thing, *};
            use self::below::Low;
            pub use below::High;
            use std::fmt;
            fn f() -> super::super::Top { crate::a::b(below::c()); vec![super::d::E, x::y] }
            #[cfg(test)]
            mod tests { use crate::never; }
        ";
        let mut found = read("one/two", text);
        found.sort();
        let expected = [
            "Top",
            "a/b",
            "kinds/Kind",
            "kinds/core/pod",
            "kinds/known",
            "one",
            "one/d/E",
            "one/sibling/Thing",
            "one/two/below/High",
            "one/two/below/Low",
            "one/two/below/c",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_module_within_a_file_is_a_level_of_its_own() {
        assert_eq!(read("one", "mod inner { use super::a::B; use super::super::c::D; }"), ["one/a/B", "c/D"]);
    }
}
