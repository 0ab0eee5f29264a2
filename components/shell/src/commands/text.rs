//! Commands that read text and print parts of it.

use super::{given, wrong};
use crate::files::Trouble;
use crate::shell::{Open, Shell, ShellResult, WHOLE_BYTES_MAX};
use regex::bytes::RegexBuilder;
use std::collections::VecDeque;

/// The maximum size of a compiled pattern of `grep`, in bytes.
const PATTERN_BYTES_MAX: usize = 256 << 10;

/// Opens the files with these names, or the input if there are no names. Prints a message for each file that cannot be
/// opened.
async fn opened(shell: &mut Shell, name: &str, files: &[String]) -> ShellResult<(Vec<(String, Open)>, i32)> {
    if files.is_empty() {
        return Ok((vec![("-".into(), shell.input())], 0));
    }
    let (mut found, mut status) = (Vec::new(), 0);
    for file in files {
        match shell.open_to_read(file) {
            Ok(open) => found.push((file.clone(), open)),
            Err(Trouble(why)) => {
                shell.complain(&format!("{name}: can't open '{file}': {why}")).await?;
                status = 1;
            }
        }
    }
    Ok((found, status))
}

/// The commands `cat` and `tee`.
pub async fn copy(shell: &mut Shell, name: &str, words: &[String]) -> ShellResult<i32> {
    let given = given!(shell, name, words, "aunvetAE", "");
    if name == "tee" {
        let mut outputs = Vec::new();
        let mut status = 0;
        for file in &given.rest {
            match shell.open_to_write(file, given.has('a')) {
                Ok(open) => outputs.push(open),
                Err(Trouble(why)) => status = wrong(shell, "tee", format!("{file}: {why}")).await?,
            }
        }
        let input = shell.input();
        while let Some(chunk) = shell.take(&input, false).await? {
            shell.put(1, &chunk).await?;
            for output in &outputs {
                shell.open.insert(9, output.clone());
                shell.put(9, &chunk).await?;
            }
        }
        shell.open.remove(&9);
        return Ok(status);
    }
    let (files, status) = opened(shell, "cat", &given.rest).await?;
    let mut number = 0u64;
    for (_, file) in files {
        let numbered = given.has('n');
        while let Some(chunk) = shell.take(&file, numbered).await? {
            if numbered {
                number += 1;
                shell.print(&format!("{number:6}\t")).await?;
            }
            shell.put(1, &chunk).await?;
        }
    }
    Ok(status)
}

/// The commands `head` and `tail`.
pub async fn ends(shell: &mut Shell, name: &str, words: &[String]) -> ShellResult<i32> {
    // The word `-5` is an old form of `-n 5`.
    let words: Vec<String> = words
        .iter()
        .map(|word| match word.strip_prefix('-') {
            Some(digits) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                format!("-n{digits}")
            }
            _ => word.clone(),
        })
        .collect();
    let given = given!(shell, name, &words, "qvfF", "ncs");
    let in_bytes = given.value('c').is_some();
    let text = given.value('c').or(given.value('n')).unwrap_or("10").to_owned();
    let from_begin = text.starts_with('+');
    let but = text.starts_with('-') && name == "head";
    let Ok(count) = text.trim_start_matches(['+', '-']).parse::<usize>() else {
        return wrong(shell, name, format!("invalid number '{text}'")).await;
    };
    let (files, status) = opened(shell, name, &given.rest).await?;
    let follows = name == "tail" && (given.has('f') || given.has('F'));
    let many = files.len() > 1 && !given.has('q');
    for (at, (file, open)) in files.iter().enumerate() {
        if many {
            let begin = if at == 0 { "" } else { "\n" };
            shell.print(&format!("{begin}==> {file} <==\n")).await?;
        }
        match (name, from_begin) {
            ("tail", true) => skip(shell, open, count.saturating_sub(1), in_bytes).await?,
            ("tail", false) => last(shell, open, count, in_bytes).await?,
            _ if but => {
                let whole = shell.whole(open).await?;
                let kept = match in_bytes {
                    true => whole.len().saturating_sub(count),
                    false => {
                        let lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
                        lines[..lines.len().saturating_sub(count)].iter().map(|line| line.len()).sum()
                    }
                };
                shell.put(1, &whole[..kept]).await?;
            }
            _ => first(shell, open, count, in_bytes).await?,
        }
    }
    if follows {
        return follow(shell, &given.rest, &files).await;
    }
    Ok(status)
}

async fn first(shell: &mut Shell, open: &Open, count: usize, in_bytes: bool) -> ShellResult<()> {
    let mut left = count;
    while left > 0 {
        let Some(chunk) = shell.take(open, !in_bytes).await? else { return Ok(()) };
        let taken = if in_bytes { chunk.len().min(left) } else { chunk.len() };
        shell.put(1, &chunk[..taken]).await?;
        if in_bytes {
            left -= taken;
        } else if chunk.last() == Some(&b'\n') {
            left -= 1;
        }
    }
    Ok(())
}

async fn skip(shell: &mut Shell, open: &Open, count: usize, in_bytes: bool) -> ShellResult<()> {
    let mut left = count;
    while let Some(chunk) = shell.take(open, !in_bytes && left > 0).await? {
        if left == 0 {
            shell.put(1, &chunk).await?;
        } else if in_bytes {
            let skipped = chunk.len().min(left);
            left -= skipped;
            shell.put(1, &chunk[skipped..]).await?;
        } else if chunk.last() == Some(&b'\n') {
            left -= 1;
        }
    }
    Ok(())
}

async fn last(shell: &mut Shell, open: &Open, count: usize, in_bytes: bool) -> ShellResult<()> {
    let (mut lines, mut bytes) = (VecDeque::<Vec<u8>>::new(), 0);
    let mut is_open = false;
    while let Some(chunk) = shell.take(open, true).await? {
        bytes += chunk.len();
        match lines.back_mut().filter(|_| is_open) {
            Some(line) => line.extend(&chunk),
            None => lines.push_back(chunk.clone()),
        }
        is_open = chunk.last() != Some(&b'\n');
        while bytes > WHOLE_BYTES_MAX || !in_bytes && lines.len() > count {
            bytes -= lines.pop_front().map_or(bytes, |line| line.len());
        }
    }
    let all: Vec<u8> = lines.into_iter().flatten().collect();
    let begin = if in_bytes { all.len().saturating_sub(count) } else { 0 };
    shell.put(1, &all[begin..]).await
}

/// Prints what is appended to the files, for ever.
async fn follow(shell: &mut Shell, names: &[String], files: &[(String, Open)]) -> ShellResult<i32> {
    let mut seen: Vec<(String, usize)> = Vec::new();
    for name in names {
        let length = shell.open_to_read(name).ok().map(|open| length(&open));
        seen.extend(length.map(|length| (name.clone(), length)));
    }
    if files.is_empty() {
        return Ok(1);
    }
    loop {
        let names = seen.clone();
        let more = shell.wait_for(move |shell| {
            names.iter().enumerate().find_map(|(at, (name, length))| {
                let Ok(Open::Content(content)) = shell.open_to_read(name) else { return None };
                let content = content.lock().unwrap_or_else(std::sync::PoisonError::into_inner).0.clone();
                (content.len() != *length).then_some((at, content))
            })
        });
        let Some((at, content)) = more.await? else { return Ok(143) };
        let begin = if content.len() < seen[at].1 { 0 } else { seen[at].1 };
        seen[at].1 = content.len();
        shell.put(1, &content[begin..]).await?;
    }
}

fn length(open: &Open) -> usize {
    match open {
        Open::Content(content) => content.lock().unwrap_or_else(std::sync::PoisonError::into_inner).0.len(),
        _ => 0,
    }
}

pub async fn count(shell: &mut Shell, words: &[String]) -> ShellResult<i32> {
    let given = given!(shell, "wc", words, "lwcm", "");
    let (files, status) = opened(shell, "wc", &given.rest).await?;
    let shows = |letter: char| given.letters.is_empty() || given.has(letter);
    let alone = given.letters.len() == 1;
    let mut total = [0u64; 3];
    let several = files.len() > 1;
    let line = |counts: [u64; 3], name: &str| {
        let shown = [shows('l'), shows('w'), shows('c') || given.has('m')];
        let counts: Vec<String> = counts
            .iter()
            .zip(shown)
            .filter(|(_, is_shown)| *is_shown)
            .map(|(count, _)| if alone { count.to_string() } else { format!("{count:7}") })
            .collect();
        let name = if name == "-" { String::new() } else { format!(" {name}") };
        format!("{}{name}\n", counts.join(" "))
    };
    for (name, open) in files {
        let (mut counts, mut in_word) = ([0u64; 3], false);
        while let Some(chunk) = shell.take(&open, false).await? {
            counts[2] += chunk.len() as u64;
            for byte in &chunk {
                counts[0] += u64::from(*byte == b'\n');
                let is_blank = byte.is_ascii_whitespace();
                counts[1] += u64::from(!is_blank && !in_word);
                in_word = !is_blank;
            }
        }
        (0..3).for_each(|at| total[at] += counts[at]);
        shell.print(&line(counts, &name)).await?;
    }
    if several {
        shell.print(&line(total, "total")).await?;
    }
    Ok(status)
}

/// Translates a pattern of `grep` to the syntax of the crate `regex`. Without `-E`, signs such as `+` are operators
/// only after a `\`.
fn translated(pattern: &str, extended: bool) -> String {
    if extended {
        return pattern.to_owned();
    }
    let (mut out, mut chars) = (String::new(), pattern.chars());
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(next @ ('+' | '?' | '|' | '(' | ')' | '{' | '}')) => out.push(next),
                Some(next) => out.extend(['\\', next]),
                None => out.push_str("\\\\"),
            },
            '+' | '?' | '|' | '(' | ')' | '{' | '}' => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out
}

pub async fn grep(shell: &mut Shell, words: &[String]) -> ShellResult<i32> {
    let given = given!(shell, "grep", words, "EFGivqncowxhHslr", "emABC");
    let (pattern, files) = match (given.value('e'), given.rest.split_first()) {
        (Some(pattern), _) => (pattern.to_owned(), &given.rest[..]),
        (None, Some((pattern, files))) => (pattern.clone(), files),
        (None, None) => return wrong(shell, "grep", "missing pattern").await.map(|_| 2),
    };
    let mut pattern = if given.has('F') { regex::escape(&pattern) } else { translated(&pattern, given.has('E')) };
    if given.has('w') {
        pattern = format!(r"\b(?:{pattern})\b");
    }
    if given.has('x') {
        pattern = format!("^(?:{pattern})$");
    }
    let built = RegexBuilder::new(&pattern).case_insensitive(given.has('i')).size_limit(PATTERN_BYTES_MAX).build();
    let Ok(regex) = built else { return wrong(shell, "grep", "bad regex").await.map(|_| 2) };
    let (files, status) = opened(shell, "grep", files).await?;
    let most = given.value('m').and_then(|most| most.parse().ok()).unwrap_or(u64::MAX);
    let names = files.len() > 1 && !given.has('h') || given.has('H');
    let mut any = false;
    for (name, open) in files {
        let (mut number, mut found) = (0u64, 0u64);
        while let Some(line) = shell.line(&open).await? {
            number += 1;
            let text = line.strip_suffix(b"\n").unwrap_or(&line);
            shell.step(1 + text.len() as u64 / 64).await?;
            if regex.is_match(text) == given.has('v') {
                continue;
            }
            (any, found) = (true, found + 1);
            if given.has('q') {
                return Ok(0);
            }
            if given.has('l') {
                shell.print(&format!("{name}\n")).await?;
                break;
            }
            if !given.has('c') {
                let mut out = Vec::new();
                if names {
                    out.extend(format!("{name}:").bytes());
                }
                if given.has('n') {
                    out.extend(format!("{number}:").bytes());
                }
                if given.has('o') && !given.has('v') {
                    for part in regex.find_iter(text) {
                        out.extend(part.as_bytes());
                        out.push(b'\n');
                    }
                } else {
                    out.extend(text);
                    out.push(b'\n');
                }
                shell.put(1, &out).await?;
            }
            if found >= most {
                break;
            }
        }
        if given.has('c') {
            let begin = if names { format!("{name}:") } else { String::new() };
            shell.print(&format!("{begin}{found}\n")).await?;
        }
    }
    Ok(if status != 0 { 2 } else { i32::from(!any) })
}

/// The commands `sort` and `uniq`.
pub async fn sort(shell: &mut Shell, name: &str, words: &[String]) -> ShellResult<i32> {
    let given = given!(shell, name, words, "runcdfsb", "kt");
    let (files, status) = opened(shell, name, &given.rest).await?;
    let mut lines: Vec<Vec<u8>> = Vec::new();
    for (_, open) in files {
        let whole = shell.whole(&open).await?;
        lines.extend(
            whole.split_inclusive(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\n").unwrap_or(line).to_vec()),
        );
    }
    shell.step(1 + lines.len() as u64).await?;
    let mut counted: Vec<(usize, Vec<u8>)> = Vec::new();
    if name == "sort" {
        let number = |line: &[u8]| -> f64 {
            let text = String::from_utf8_lossy(line);
            let text = text.trim_start();
            let end = text.find(|c: char| !(c.is_ascii_digit() || "+-.".contains(c))).unwrap_or(text.len());
            text[..end].parse().unwrap_or(0.0)
        };
        match given.has('n') {
            true => lines.sort_by(|one, other| number(one).total_cmp(&number(other)).then_with(|| one.cmp(other))),
            false => lines.sort(),
        }
        if given.has('u') {
            lines.dedup();
        }
        if given.has('r') {
            lines.reverse();
        }
        counted.extend(lines.into_iter().map(|line| (1, line)));
    } else {
        for line in lines {
            match counted.last_mut() {
                Some((count, last)) if *last == line => *count += 1,
                _ => counted.push((1, line)),
            }
        }
    }
    for (count, line) in counted {
        if name == "uniq" && (given.has('d') && count == 1 || given.has('u') && count > 1) {
            continue;
        }
        let mut out = if name == "uniq" && given.has('c') { format!("{count:7} ").into_bytes() } else { Vec::new() };
        out.extend(line);
        out.push(b'\n');
        shell.put(1, &out).await?;
    }
    Ok(status)
}

/// Whether a list of field numbers such as `1,3-5` contains a number.
fn is_in(list: &str, number: usize) -> bool {
    list.split(',').any(|part| match part.split_once('-') {
        None => part.parse() == Ok(number),
        Some((first, last)) => first.parse().unwrap_or(1) <= number && number <= last.parse().unwrap_or(usize::MAX),
    })
}

pub async fn cut(shell: &mut Shell, words: &[String]) -> ShellResult<i32> {
    let given = given!(shell, "cut", words, "s", "dfcb");
    let (files, status) = opened(shell, "cut", &given.rest).await?;
    let separator = given.value('d').unwrap_or("\t").to_owned();
    for (_, open) in files {
        while let Some(line) = shell.line(&open).await? {
            let text = String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned();
            shell.step(1 + text.len() as u64 / 64).await?;
            let kept = match (given.value('f'), given.value('c').or(given.value('b'))) {
                (Some(_), _) if separator.is_empty() || !text.contains(&separator) => text,
                (Some(list), _) => {
                    let fields = text.split(&separator).enumerate().filter(|(at, _)| is_in(list, at + 1));
                    fields.map(|(_, field)| field).collect::<Vec<_>>().join(&separator)
                }
                (None, Some(list)) => {
                    text.chars().enumerate().filter(|(at, _)| is_in(list, at + 1)).map(|(_, c)| c).collect()
                }
                (None, None) => return wrong(shell, "cut", "expected a list of bytes, characters, or fields").await,
            };
            shell.print(&format!("{kept}\n")).await?;
        }
    }
    Ok(status)
}

/// The characters of a set of `tr`, such as `a-z`.
fn set(text: &str) -> Vec<u8> {
    let text = text
        .replace("[:upper:]", "A-Z")
        .replace("[:lower:]", "a-z")
        .replace("[:digit:]", "0-9")
        .replace("[:alpha:]", "A-Za-z")
        .replace("[:alnum:]", "0-9A-Za-z")
        .replace("[:space:]", " \t\n\r")
        .replace("\\n", "\n")
        .replace("\\t", "\t")
        .replace("\\r", "\r")
        .replace("\\0", "\0");
    let bytes = text.as_bytes();
    let (mut set, mut at) = (Vec::new(), 0);
    while at < bytes.len() && set.len() < 1024 {
        if bytes.get(at + 1) == Some(&b'-') && at + 2 < bytes.len() {
            set.extend(bytes[at]..=bytes[at + 2]);
            at += 3;
        } else {
            set.push(bytes[at]);
            at += 1;
        }
    }
    set
}

pub async fn translate(shell: &mut Shell, words: &[String]) -> ShellResult<i32> {
    let given = given!(shell, "tr", words, "dsc", "");
    let Some(from) = given.rest.first().map(|text| set(text)) else {
        return wrong(shell, "tr", "missing operand").await;
    };
    let to = given.rest.get(1).map(|text| set(text)).unwrap_or_default();
    let mut table: Vec<Option<u8>> = (0..=255).map(Some).collect();
    for byte in 0..=255u8 {
        let place = from.iter().position(|known| *known == byte);
        let place = if given.has('c') { place.is_none().then_some(0) } else { place };
        let Some(place) = place else { continue };
        table[usize::from(byte)] = match given.has('d') {
            true => None,
            false => to.get(place).or(to.last()).copied().or(Some(byte)),
        };
    }
    let squeezed = if to.is_empty() { from } else { to };
    let input = shell.input();
    let mut last = None;
    while let Some(chunk) = shell.take(&input, false).await? {
        let mut out = Vec::with_capacity(chunk.len());
        for byte in chunk.into_iter().filter_map(|byte| table[usize::from(byte)]) {
            if !(given.has('s') && last == Some(byte) && squeezed.contains(&byte)) {
                out.push(byte);
            }
            last = Some(byte);
        }
        shell.put(1, &out).await?;
    }
    Ok(0)
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub async fn base64(shell: &mut Shell, words: &[String]) -> ShellResult<i32> {
    let given = given!(shell, "base64", words, "dDi", "w");
    let (files, status) = opened(shell, "base64", &given.rest).await?;
    let Some((_, open)) = files.first() else { return Ok(status) };
    let whole = shell.whole(open).await?;
    if given.has('d') || given.has('D') {
        let (mut out, mut bits, mut held) = (Vec::new(), 0u32, 0);
        for byte in whole.iter().filter(|byte| !byte.is_ascii_whitespace() && **byte != b'=') {
            let Some(value) = DIGITS.iter().position(|digit| digit == byte) else {
                return wrong(shell, "base64", "truncated input").await;
            };
            (bits, held) = (bits << 6 | value as u32, held + 6);
            if held >= 8 {
                held -= 8;
                out.push((bits >> held) as u8);
                bits &= (1 << held) - 1;
            }
        }
        shell.put(1, &out).await?;
        return Ok(0);
    }
    let mut out = String::new();
    for (at, three) in whole.chunks(3).enumerate() {
        let bits = three.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place)) as usize & 63];
            out.push(if place <= three.len() { digit as char } else { '=' });
        }
        if at % 19 == 18 && given.value('w') != Some("0") {
            out.push('\n');
        }
    }
    if !out.ends_with('\n') && !out.is_empty() && given.value('w') != Some("0") {
        out.push('\n');
    }
    shell.print(&out).await?;
    Ok(0)
}
