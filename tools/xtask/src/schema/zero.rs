//! Facts about zero values (`tools/xtask/data/zero-values.txt`), which neither k8s-pb nor k8s-openapi contains.

use std::collections::BTreeMap;

use anyhow::{Context, bail};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zero {
    Kept,
    Null,
    Dropped,
    Always,
}

/// Facts by k8s-pb's name of the message, and by the JSON name of the field.
pub type Facts = BTreeMap<(String, String), Zero>;

pub fn read(text: &str) -> anyhow::Result<Facts> {
    let mut facts = Facts::new();
    let mut current = None;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(heading) = line.strip_prefix("## ") {
            let (name, _) = heading.split_once(':').context("a heading without a meaning")?;
            current = Some(match name {
                "number-or-bool-zero-kept"
                | "string-zero-kept"
                | "spec-status-meta-only-when-set"
                | "container-kept-when-empty" => Zero::Kept,
                "pointer-emitted-as-null-when-unset" => Zero::Null,
                "number-or-bool-zero-dropped" => Zero::Dropped,
                "scalar-always-emitted"
                | "list-emitted-when-empty"
                | "struct-always-emitted"
                | "time-emitted-as-null-when-unset"
                | "special-value-emitted-when-zero" => Zero::Always,
                _ => bail!("an unknown heading: {name}"),
            });
        } else if !line.starts_with('#') {
            // An optional third word repeats the field's type.
            let mut words = line.split_whitespace();
            let (message, field) = words.next().zip(words.next()).with_context(|| format!("not a fact: {line}"))?;
            let zero = current.context("a fact before the first heading")?;
            if facts.insert((message.to_string(), field.to_string()), zero).is_some() {
                bail!("told twice: {line}");
            }
        }
    }
    Ok(facts)
}
