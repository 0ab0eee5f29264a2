//! The sources that checks read: production code, line by line.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// The lines of a file that are neither comments nor in the test module at its end.
pub fn production(text: &str) -> Vec<(usize, &str)> {
    let lines: Vec<&str> = text.lines().collect();
    let is_tests = |at: &usize| {
        lines[*at].trim() == "#[cfg(test)]"
            && lines.get(at + 1).is_some_and(|next| next.contains("mod ") && next.ends_with('{'))
    };
    let end = (0..lines.len()).find(is_tests).unwrap_or(lines.len());
    let code = lines[..end].iter().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    code.map(|(at, line)| (at + 1, *line)).collect()
}

/// Collects the Rust sources below a folder, without tests. A missing folder has no files.
pub fn sources(folder: &Path, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    for entry in std::fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if name == "tests" || name == "testing" || name.ends_with("_tests") {
            continue;
        }
        if path.is_dir() {
            sources(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}
