//! Proves that files do not import each other in circles, so that a reader of a file must know only the files below it.
//!
//! A file and the modules in its folder may import each other: they have one subject, and count as one file.

use super::imports::{self, Source};
use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;

pub fn check() -> anyhow::Result<()> {
    let mut faults = Vec::new();
    for folder in super::members()? {
        let sources = imports::read(&crate::root().join(&folder).join("src"))?;
        faults.extend(circles(&sources).into_iter().map(|circle| {
            format!("{folder}: {} files import each other in a circle: {}", circle.len(), circle.join(", "))
        }));
    }
    if !faults.is_empty() {
        bail!("circles of files (tools/xtask/src/ci/circles.rs):\n{}", faults.join("\n"));
    }
    Ok(())
}

/// The circles of files that import each other, each sorted.
fn circles(sources: &[Source]) -> Vec<Vec<String>> {
    let modules: BTreeMap<&str, usize> =
        sources.iter().enumerate().map(|(at, source)| (source.module.as_str(), at)).collect();
    let arrows: Vec<BTreeSet<usize>> = sources
        .iter()
        .enumerate()
        .map(|(own, source)| {
            let used = source.uses.iter().filter_map(|used| file_of(used, &modules));
            used.filter(|other| *other != own && !are_kin(&source.module, &sources[*other].module)).collect()
        })
        .collect();
    let mut found: Vec<Vec<String>> = components(&arrows)
        .into_iter()
        .filter(|files| files.len() > 1)
        .map(|files| {
            let mut names: Vec<String> = files.into_iter().map(|at| sources[at].module.clone()).collect();
            names.sort();
            names
        })
        .collect();
    found.sort();
    found
}

/// The file to which a path leads: the file of the longest module with which the path begins.
fn file_of(path: &str, modules: &BTreeMap<&str, usize>) -> Option<usize> {
    let mut rest = path;
    loop {
        if let Some(found) = modules.get(rest) {
            return Some(*found);
        }
        match rest.rsplit_once('/') {
            Some((before, _)) => rest = before,
            None => return modules.get("lib").or_else(|| modules.get("main")).copied(),
        }
    }
}

/// Whether one module contains the other.
fn are_kin(one: &str, other: &str) -> bool {
    let within = |inner: &str, outer: &str| inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'));
    within(one, other) || within(other, one) || matches!(one, "lib" | "main") || matches!(other, "lib" | "main")
}

/// Returns the strongly connected components of a graph, by Tarjan's algorithm without recursion.
fn components(arrows: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
    let unseen = usize::MAX;
    let (mut index, mut low) = (vec![unseen; arrows.len()], vec![0; arrows.len()]);
    let (mut stack, mut is_on_stack) = (Vec::new(), vec![false; arrows.len()]);
    let (mut next, mut found) = (0, Vec::new());
    for start in 0..arrows.len() {
        if index[start] != unseen {
            continue;
        }
        let mut calls = vec![(start, arrows[start].iter())];
        index[start] = next;
        low[start] = next;
        next += 1;
        stack.push(start);
        is_on_stack[start] = true;
        while let Some((at, rest)) = calls.last_mut() {
            let at = *at;
            match rest.next() {
                Some(to) if index[*to] == unseen => {
                    index[*to] = next;
                    low[*to] = next;
                    next += 1;
                    stack.push(*to);
                    is_on_stack[*to] = true;
                    calls.push((*to, arrows[*to].iter()));
                }
                Some(to) if is_on_stack[*to] => low[at] = low[at].min(index[*to]),
                Some(_) => {}
                None => {
                    calls.pop();
                    if let Some((before, _)) = calls.last() {
                        low[*before] = low[*before].min(low[at]);
                    }
                    if low[at] == index[at] {
                        let from = stack.iter().rposition(|file| *file == at).unwrap_or(0);
                        let files = stack.split_off(from);
                        files.iter().for_each(|file| is_on_stack[*file] = false);
                        found.push(files);
                    }
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(module: &str, text: &str) -> Source {
        Source { module: module.to_owned(), uses: imports::uses(module, text).expect("Rust") }
    }

    #[test]
    fn a_circle_is_found_and_a_line_is_none() {
        let line = [
            source("lib", "mod a; mod b; mod c;"),
            source("a", "use crate::b::B;"),
            source("b", "use crate::c::C;"),
            source("c", ""),
        ];
        assert!(circles(&line).is_empty());
        let circle =
            [source("a", "use crate::b::B;"), source("b", "use super::c::C;"), source("c", "fn f() { crate::a::f() }")];
        assert_eq!(circles(&circle), [["a", "b", "c"]]);
    }

    #[test]
    fn a_module_and_its_parts_are_one_subject() {
        let parts = [source("a", "mod b; use b::B;"), source("a/b", "use super::A;"), source("c", "")];
        assert!(circles(&parts).is_empty());
    }

    #[test]
    fn the_circles_of_this_checkout_are_known() {
        check().expect("the sources of this checkout");
    }
}
