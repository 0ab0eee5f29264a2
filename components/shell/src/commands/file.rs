//! Commands that read and change files.

use super::{ParsedOptions, given, wrong};
use crate::files::{self, TreeEntry, Trouble, absolute};
use crate::shell::{Shell, ShellResult};
use crate::time::format;

/// The mode of a file or folder as `ls -l` prints it, such as `drwxr-xr-x`.
fn rights(entry: &TreeEntry) -> String {
    let kind = if entry.content.is_none() { 'd' } else { '-' };
    let bits = (0..9).map(|at| if entry.mode >> (8 - at) & 1 == 1 { [b'r', b'w', b'x'][at % 3] as char } else { '-' });
    let mut text: String = std::iter::once(kind).chain(bits).collect();
    if entry.mode & 0o1000 != 0 {
        text.replace_range(9..10, "t");
    }
    text
}

fn size(entry: &TreeEntry) -> usize {
    entry.content.as_ref().map_or(4096, |content| content.len())
}

pub async fn list(shell: &mut Shell, words: &[String]) -> ShellResult<i32> {
    let given = given!(shell, "ls", words, "laAh1RdtSrFin", "");
    let wanted = if given.rest.is_empty() { vec![".".to_owned()] } else { given.rest.clone() };
    let (mut status, mut first) = (0, true);
    for name in &wanted {
        shell.step(1).await?;
        let path = absolute(&shell.folder, name);
        let text = {
            let system = shell.shared.lock();
            let line = |name: &str, entry: &TreeEntry| match given.has('l') {
                true => {
                    let when = format(entry.changed_ms, "%b %e %H:%M");
                    format!("{}    1 root     root     {:9} {when} {name}\n", rights(entry), size(entry))
                }
                false => format!("{name}\n"),
            };
            match system.files.entry(&path) {
                None => None,
                Some(entry) if entry.content.is_some() || given.has('d') => Some(line(name, &entry)),
                Some(_) => {
                    let mut text = String::new();
                    if wanted.len() > 1 {
                        text.push_str(&format!("{}{name}:\n", if first { "" } else { "\n" }));
                    }
                    if given.has('l') {
                        text.push_str("total 0\n");
                    }
                    if given.has('a') {
                        for (shown, path) in [(".", path.clone()), ("..", absolute(&path, ".."))] {
                            text.extend(system.files.entry(&path).map(|entry| line(shown, &entry)));
                        }
                    }
                    let prefix = if path == "/" { "" } else { path.as_str() };
                    let all = given.has('a') || given.has('A');
                    for name in system.files.names(&path).iter().filter(|name| all || !name.starts_with('.')) {
                        text.extend(system.files.entry(&format!("{prefix}/{name}")).map(|entry| line(name, &entry)));
                    }
                    Some(text)
                }
            }
        };
        first = false;
        match text {
            Some(text) => shell.print(&text).await?,
            None => {
                wrong(shell, "ls", format!("{name}: No such file or directory")).await?;
                status = 1;
            }
        }
    }
    Ok(status)
}

pub async fn find(shell: &mut Shell, words: &[String]) -> ShellResult<i32> {
    let begin = words.iter().take_while(|word| !word.starts_with('-')).count();
    let folders = if begin == 0 { vec![".".to_owned()] } else { words[..begin].to_vec() };
    let (mut kind, mut pattern) = (None, None);
    let mut options = words[begin..].iter();
    while let Some(option) = options.next() {
        match option.as_str() {
            "-type" => kind = options.next().cloned(),
            "-name" => pattern = options.next().cloned(),
            "-print" => {}
            other => return wrong(shell, "find", format!("unrecognized: {other}")).await,
        }
    }
    let mut status = 0;
    for folder in folders {
        let path = absolute(&shell.folder, &folder);
        let found: Option<Vec<(String, bool)>> = {
            let system = shell.shared.lock();
            let is_file = |path: &str| system.files.entry(path).is_some_and(|entry| entry.content.is_some());
            system.files.entry(&path).map(|_| {
                let inside = system.files.below(&path).into_iter();
                std::iter::once(path.clone()).chain(inside).map(|path| (path.clone(), is_file(&path))).collect()
            })
        };
        let Some(found) = found else {
            status = wrong(shell, "find", format!("{folder}: No such file or directory")).await?;
            continue;
        };
        for (file, is_file) in found {
            let right_kind = kind.as_deref().is_none_or(|kind| (kind == "f") == is_file);
            let right_name =
                pattern.as_ref().is_none_or(|pattern| crate::pattern::matches(pattern, files::name(&file)));
            if right_kind && right_name {
                let shown =
                    format!("{}{}\n", folder.trim_end_matches('/'), &file[if path == "/" { 0 } else { path.len() }..]);
                shell.print(&shown).await?;
            }
        }
    }
    Ok(status)
}

/// The commands `stat -c FORMAT` and `readlink -f`.
pub async fn stat(shell: &mut Shell, name: &str, words: &[String]) -> ShellResult<i32> {
    let given = given!(shell, name, words, "fLetnm", "c");
    let mut status = 0;
    for file in &given.rest {
        let path = absolute(&shell.folder, file);
        let entry = shell.shared.lock().files.entry(&path);
        let Some(entry) = entry else {
            status = wrong(shell, name, format!("can't stat '{file}': No such file or directory")).await?;
            continue;
        };
        if name == "readlink" {
            shell.print(&format!("{path}\n")).await?;
            continue;
        }
        let kind = if entry.content.is_some() { "regular file" } else { "directory" };
        let text = match given.value('c') {
            Some(pattern) => {
                let mode = format!("{:o}", entry.mode);
                let mut text = pattern.to_owned();
                for (sign, value) in [
                    ("%a", mode),
                    ("%A", rights(&entry)),
                    ("%s", size(&entry).to_string()),
                    ("%n", file.clone()),
                    ("%F", kind.to_owned()),
                    ("%Y", (entry.changed_ms / 1000).to_string()),
                    ("%u", "0".to_owned()),
                    ("%g", "0".to_owned()),
                    ("%U", "root".to_owned()),
                    ("%G", "root".to_owned()),
                ] {
                    text = text.replace(sign, &value);
                }
                text.truncate(4096);
                text
            }
            None => format!(
                "  File: {file}\n  Size: {}\t{kind}\nAccess: ({:04o}/{})",
                size(&entry),
                entry.mode,
                rights(&entry)
            ),
        };
        shell.print(&format!("{text}\n")).await?;
    }
    Ok(status)
}

/// Parses a mode: octal digits, or a change such as `+x`, which is applied to the old mode.
fn mode(text: &str, old: u32) -> Option<u32> {
    if let Ok(mode) = u32::from_str_radix(text, 8) {
        return (mode <= 0o7777).then_some(mode);
    }
    let sign = text.find(['+', '-'])?;
    let (who, what) = (&text[..sign], &text[sign + 1..]);
    let bits: u32 = what
        .chars()
        .map(|c| match c {
            'r' => 4,
            'w' => 2,
            'x' => 1,
            _ => 0,
        })
        .sum();
    let all = who.is_empty() || who.contains('a');
    let shifts = [('u', 6), ('g', 3), ('o', 0)];
    let mask =
        shifts.iter().filter(|(letter, _)| all || who.contains(*letter)).fold(0, |mask, (_, by)| mask | bits << by);
    Some(if text[sign..].starts_with('+') { old | mask } else { old & !mask })
}

pub async fn change(shell: &mut Shell, name: &str, words: &[String]) -> ShellResult<i32> {
    let with_value = match name {
        "mkdir" => "m",
        "touch" => "dtr",
        _ => "",
    };
    let words: Vec<String> = match name {
        // For `chmod`, a word such as `-x` is a mode and not an option.
        "chmod" => words.iter().filter(|word| *word != "-R").cloned().collect(),
        _ => words.to_vec(),
    };
    let given = match name {
        "chmod" => ParsedOptions { letters: Vec::new(), rest: words },
        _ => given!(shell, name, &words, "prRfvinadLtcu", with_value),
    };
    let mut rest = given.rest.clone();
    let mut status = 0;
    let first = if name == "chmod" && !rest.is_empty() { Some(rest.remove(0)) } else { None };
    let target = if matches!(name, "cp" | "mv") && rest.len() > 1 { rest.pop() } else { None };
    if name == "mktemp" {
        return make_temporary(shell, &given).await;
    }
    if rest.is_empty() {
        return if given.has('f') { Ok(0) } else { wrong(shell, name, "missing operand").await };
    }
    for file in &rest {
        shell.step(1).await?;
        let path = absolute(&shell.folder, file);
        let done = {
            let mut system = shell.shared.lock();
            let now_ms = system.now_ms;
            let files = &mut system.files;
            match name {
                "touch" => match files.entry(&path) {
                    Some(TreeEntry { content: Some(content), .. }) => files.write(&path, content.to_vec(), now_ms),
                    Some(_) => Ok(()),
                    None => files.write(&path, Vec::new(), now_ms),
                },
                "mkdir" if given.has('p') => files.make_folders(&path, now_ms),
                "mkdir" => files.make_folder(&path, now_ms),
                "rmdir" => files.remove_folder(&path),
                "rm" => match files.remove(&path, given.has('r') || given.has('R')) {
                    Err(files::MISSING) if given.has('f') => Ok(()),
                    done => done,
                },
                "chmod" => {
                    let old = files.entry(&path).map_or(0, |entry| entry.mode);
                    match first.as_deref().and_then(|text| mode(text, old)) {
                        Some(mode) => files.set_mode(&path, mode),
                        None => Err(Trouble("invalid mode")),
                    }
                }
                _ => match &target {
                    Some(target) => {
                        let folders = given.has('r') || given.has('R') || given.has('a') || name == "mv";
                        copy(files, &path, &absolute(&shell.folder, target), folders, now_ms)
                            .and_then(|()| if name == "mv" { files.remove(&path, true) } else { Ok(()) })
                    }
                    None => Err(Trouble("missing destination")),
                },
            }
        };
        if let Err(Trouble(why)) = done {
            let text = match name {
                "mkdir" => format!("can't create directory '{file}': {why}"),
                "rm" => format!("can't remove '{file}': {why}"),
                _ => format!("{file}: {why}"),
            };
            status = wrong(shell, name, text).await?;
        }
    }
    Ok(status)
}

fn copy(files: &mut files::FileSystem, from: &str, to: &str, folders: bool, now_ms: i64) -> Result<(), Trouble> {
    let to = match files.is_folder(to) {
        true => absolute(to, files::name(from)),
        false => to.to_owned(),
    };
    let entry = files.entry(from).ok_or(files::MISSING)?;
    if to == from || to.starts_with(&format!("{from}/")) {
        return Err(Trouble("it is the same file, or in it"));
    }
    let Some(content) = entry.content else {
        if !folders {
            return Err(files::IS_FOLDER);
        }
        files.make_folders(&to, now_ms)?;
        for inside in files.below(from) {
            let target = format!("{to}{}", &inside[from.len()..]);
            match files.entry(&inside) {
                Some(TreeEntry { content: Some(content), mode, .. }) => {
                    files.write(&target, content.to_vec(), now_ms)?;
                    files.set_mode(&target, mode)?;
                }
                _ => files.make_folders(&target, now_ms)?,
            }
        }
        return Ok(());
    };
    files.write(&to, content.to_vec(), now_ms)?;
    files.set_mode(&to, entry.mode)
}

async fn make_temporary(shell: &mut Shell, given: &ParsedOptions) -> ShellResult<i32> {
    let path = {
        let mut system = shell.shared.lock();
        let now_ms = system.now_ms;
        // The names of temporary files are numbered, so that the same script always gets the same names.
        let free = (0..10_000u32).map(|n| format!("/tmp/tmp.{n:06}")).find(|path| system.files.entry(path).is_none());
        let path = free.unwrap_or_else(|| "/tmp/tmp".into());
        let made = match given.has('d') {
            true => system.files.make_folder(&path, now_ms),
            false => system.files.write(&path, Vec::new(), now_ms),
        };
        made.map(|()| path)
    };
    match path {
        Ok(path) => shell.print(&format!("{path}\n")).await.map(|()| 0),
        Err(Trouble(why)) => wrong(shell, "mktemp", why).await,
    }
}

pub async fn name(shell: &mut Shell, name: &str, words: &[String]) -> ShellResult<i32> {
    let Some(path) = words.first() else { return wrong(shell, name, "missing operand").await };
    let path = match path.trim_end_matches('/') {
        "" if path.is_empty() => "",
        "" => "/",
        path => path,
    };
    let text = match (name, path.rfind('/')) {
        ("basename", _) if path == "/" => "/",
        ("basename", at) => {
            let base = at.map_or(path, |at| &path[at + 1..]);
            let suffix = words.get(1).map_or("", String::as_str);
            base.strip_suffix(suffix).filter(|rest| !rest.is_empty()).unwrap_or(base)
        }
        (_, None) => ".",
        (_, Some(0)) => "/",
        (_, Some(at)) => &path[..at],
    };
    let text = format!("{text}\n");
    shell.print(&text).await?;
    Ok(0)
}
