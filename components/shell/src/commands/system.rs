//! Commands about time, processes and the environment.

use super::{given, inner, wrong};
use crate::shell::{Shell, ShellResult, Stop};
use crate::system::Signal;
use crate::time::format;
use std::sync::Arc;

/// The number of milliseconds that an argument of `sleep` means, such as `30` or `1.5m`. `Some(None)` stands for
/// `infinity` and for more than a hundred years. `None` means that the argument is not a duration.
pub fn sleep_millis(text: &str) -> Option<Option<i64>> {
    if matches!(text, "infinity" | "inf") {
        return Some(None);
    }
    let (number, unit_ms) = match text.char_indices().next_back()? {
        (at, 's') => (&text[..at], 1_000.0),
        (at, 'm') => (&text[..at], 60_000.0),
        (at, 'h') => (&text[..at], 3_600_000.0),
        (at, 'd') => (&text[..at], 86_400_000.0),
        _ => (text, 1_000.0),
    };
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let value = number.parse::<f64>().ok().filter(|_| is_number)? * unit_ms;
    Some((value < LONGEST_MS).then_some(value.ceil() as i64))
}

/// A hundred years in milliseconds.
const LONGEST_MS: f64 = 100.0 * 366.0 * 86_400_000.0;

pub async fn sleep(shell: &mut Shell, name: &str, words: &[String]) -> ShellResult<i32> {
    let mut total = Some(0i64);
    for word in words {
        match sleep_millis(word) {
            Some(span) => total = total.zip(span).map(|(total, span)| total.saturating_add(span)),
            None => return wrong(shell, name, format!("invalid number '{word}'")).await,
        }
    }
    if words.is_empty() {
        return wrong(shell, name, "missing operand").await;
    }
    let woken = match total {
        Some(total) => {
            let total = if name == "usleep" { total / 1_000_000 } else { total };
            let until = shell.now_ms().saturating_add(total);
            shell.sleep_until(until).await?
        }
        None => shell.wait_for(|_| None::<()>).await?.is_some(),
    };
    Ok(if woken { 0 } else { 143 })
}

pub async fn timeout(shell: &mut Shell, words: &[String]) -> ShellResult<i32> {
    let mut signal = Signal::Term;
    let mut words = words;
    while let [option, value, rest @ ..] = words {
        match (option.as_str(), Signal::parse(value)) {
            ("-s", Some(named)) => (signal, words) = (named, rest),
            ("-k", _) => words = rest,
            _ => break,
        }
    }
    let Some((span, command)) = words.split_first() else { return wrong(shell, "timeout", "missing operand").await };
    let Some(span) = sleep_millis(span) else {
        return wrong(shell, "timeout", format!("invalid number '{span}'")).await;
    };
    let deadline = span.map(|span| shell.now_ms().saturating_add(span));
    let (child, command) = (shell.child(), command.to_vec());
    let begun = shell.spawn("timeout", child, move |mut child| {
        Box::pin(async move {
            let done = child.program(command).await;
            child.ended(done).await
        })
    });
    let Some(pid) = begun.await? else { return Ok(2) };
    let mut is_late = false;
    loop {
        let code = shell.wait_for(|shell| {
            if let Some(code) = shell.shared.reap(pid) {
                return Some(Some(code));
            }
            let deadline = deadline.filter(|_| !is_late)?;
            if shell.now_ms() >= deadline {
                return Some(None);
            }
            shell.shared.wakes_at(deadline);
            None
        });
        match code.await? {
            Some(Some(code)) => return Ok(if is_late && code == 128 + signal as i32 { 124 } else { code }),
            Some(None) => {
                is_late = true;
                if let Some(process) = shell.shared.lock().processes.get_mut(&pid) {
                    process.signals.push(signal);
                }
            }
            None => return Ok(143),
        }
    }
}

pub async fn wait(shell: &mut Shell, words: &[String]) -> ShellResult<i32> {
    let mut wanted: Vec<u32> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let all = words.is_empty();
    if all {
        wanted = std::mem::take(&mut shell.background);
    }
    let mut status = 0;
    for pid in wanted {
        if shell.shared.lock().processes.get(&pid).is_none_or(|process| process.parent != shell.pid) {
            status = 127;
            continue;
        }
        status = shell.wait_child(pid).await?;
        shell.background.retain(|known| *known != pid);
    }
    Ok(if all { 0 } else { status })
}

pub async fn kill(shell: &mut Shell, words: &[String]) -> ShellResult<i32> {
    let mut signal = Signal::Term;
    let mut words = words;
    if words.first().is_some_and(|word| word == "-l") {
        return shell.print("HUP INT QUIT KILL USR1 USR2 PIPE ALRM TERM\n").await.map(|()| 0);
    }
    let mut only_asks = false;
    if let Some((name, rest)) = words.split_first().filter(|(first, _)| first.starts_with('-') && first.len() > 1) {
        let (name, rest) = match (name.as_str(), rest.split_first()) {
            ("-s", Some((name, rest))) => (name.as_str(), rest),
            (name, _) => (&name[1..], rest),
        };
        only_asks = name == "0";
        match Signal::parse(name) {
            Some(named) => signal = named,
            None if only_asks => {}
            None => return wrong(shell, "sh: kill", format!("bad signal name '{name}'")).await,
        }
        words = rest;
    }
    let mut status = 0;
    for word in words {
        let pid: Option<u32> = word.parse().ok();
        let found = {
            let mut system = shell.shared.lock();
            let process =
                pid.and_then(|pid| system.processes.get_mut(&pid)).filter(|process| process.exit_code.is_none());
            let is_found = process.is_some();
            if let Some(process) = process.filter(|_| !only_asks) {
                process.signals.push(signal);
            }
            is_found
        };
        if !found {
            shell.complain(&format!("sh: can't kill pid {word}: No such process")).await?;
            status = 1;
        }
    }
    // If the shell has sent the signal to itself, the signal takes effect at once.
    shell.step(1).await?;
    Ok(status)
}

pub async fn trap(shell: &mut Shell, words: &[String]) -> ShellResult<i32> {
    let words = if words.first().is_some_and(|word| word == "--") { &words[1..] } else { words };
    let Some((action, signals)) = words.split_first() else {
        let text: String = shell.traps.iter().map(|(name, action)| format!("trap -- '{action}' {name}\n")).collect();
        shell.print(&text).await?;
        return Ok(0);
    };
    // A single word is the name or the number of a signal whose trap is reset, as if `-` preceded the word.
    let resets = action == "-" || signals.is_empty();
    for word in if signals.is_empty() { words } else { signals } {
        let name = match (word.as_str(), Signal::parse(word)) {
            ("EXIT" | "0", _) => "EXIT",
            (_, Some(signal)) => signal.name(),
            ("-", None) => continue,
            _ => return wrong(shell, "sh: trap", format!("{word}: invalid signal specification")).await,
        };
        match resets {
            true => _ = shell.traps.remove(name),
            false => _ = shell.traps.insert(name.to_owned(), action.clone()),
        }
    }
    Ok(0)
}

pub async fn date(shell: &mut Shell, words: &[String]) -> ShellResult<i32> {
    let mut pattern = "%a %b %e %H:%M:%S UTC %Y".to_owned();
    let mut time_ms = shell.now_ms();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-u" | "--utc" => {}
            "-R" => pattern = "%a, %d %b %Y %H:%M:%S %z".into(),
            "-d" | "--date" | "-r" => {
                let text = words.next().cloned().unwrap_or_default();
                match text.strip_prefix('@').and_then(|text| text.parse::<i64>().ok()) {
                    Some(seconds) => time_ms = seconds.saturating_mul(1000),
                    None if text == "now" => {}
                    None => return wrong(shell, "date", format!("invalid date '{text}'")).await,
                }
            }
            word if word.starts_with("-I") || word.starts_with("--iso") => {
                pattern = if word.ends_with('s') || word.ends_with("seconds") { "%FT%T+00:00" } else { "%F" }.into();
            }
            word => match word.strip_prefix('+') {
                Some(wanted) => pattern = wanted.to_owned(),
                None => return wrong(shell, "date", format!("invalid date '{word}'")).await,
            },
        }
    }
    shell.print(&format!("{}\n", format(time_ms, &pattern))).await?;
    Ok(0)
}

pub async fn id(shell: &mut Shell, name: &str, words: &[String]) -> ShellResult<i32> {
    let named = |number: u32| if number == 0 { "root".to_owned() } else { number.to_string() };
    let (user, group) = (shell.user, shell.group);
    let with_name = |number: u32| if number == 0 { "0(root)".to_owned() } else { number.to_string() };
    let letters: String = words.iter().filter_map(|word| word.strip_prefix('-')).collect();
    let text = match name {
        "whoami" => named(user),
        _ if letters.contains('n') && letters.contains('u') => named(user),
        _ if letters.contains('n') => named(group),
        _ if letters.contains('u') => user.to_string(),
        _ if letters.contains('g') || letters.contains('G') => group.to_string(),
        _ => format!("uid={} gid={} groups={}", with_name(user), with_name(group), with_name(group)),
    };
    shell.print(&format!("{text}\n")).await?;
    Ok(0)
}

pub async fn uname(shell: &mut Shell, words: &[String]) -> ShellResult<i32> {
    let letters: String = words.iter().filter_map(|word| word.strip_prefix('-')).collect();
    let host = shell.hostname.to_string();
    let all = letters.contains('a');
    let parts = [('s', "Linux"), ('n', host.as_str()), ('r', "simulated"), ('v', "no-container-runs"), ('m', "x86_64")];
    let asked = |letter: char| all || letters.contains(letter) || letters.is_empty() && letter == 's';
    let told: Vec<&str> = parts.iter().filter(|(letter, _)| asked(*letter)).map(|(_, text)| *text).collect();
    shell.print(&format!("{}\n", told.join(" "))).await?;
    Ok(0)
}

pub async fn env(shell: &mut Shell, name: &str, words: &[String]) -> ShellResult<i32> {
    if name == "printenv" && !words.is_empty() {
        let mut status = 0;
        for word in words {
            match shell
                .variables
                .get(word)
                .filter(|variable| variable.is_exported)
                .map(|variable| variable.value.clone())
            {
                Some(value) => shell.print(&format!("{value}\n")).await?,
                None => status = 1,
            }
        }
        return Ok(status);
    }
    let mut changed = Vec::new();
    let mut at = 0;
    let mut is_empty = false;
    while let Some(word) = words.get(at) {
        match word.as_str() {
            "-i" | "-" => is_empty = true,
            "-u" => {
                at += 1;
                changed.extend(words.get(at).map(|name| (name.clone(), None)));
            }
            word => match word.split_once('=') {
                Some((name, value)) => changed.push((name.to_owned(), Some(value.to_owned()))),
                None => break,
            },
        }
        at += 1;
    }
    let before = shell.variables.clone();
    if is_empty {
        shell.variables.clear();
    }
    for (name, value) in changed {
        match value {
            Some(value) => {
                shell.set(&name, value).await?;
                if let Some(variable) = shell.variables.get_mut(&name) {
                    variable.is_exported = true;
                }
            }
            None => shell.unset(&name),
        }
    }
    let status = match words.get(at..).filter(|rest| !rest.is_empty()) {
        Some(command) => inner(shell, command).await,
        None => {
            let exported = shell.variables.iter().filter(|(_, variable)| variable.is_exported);
            let text: String = exported.map(|(name, variable)| format!("{name}={}\n", variable.value)).collect();
            shell.print(&text).await.map(|()| 0)
        }
    };
    shell.variables = before;
    status
}

/// Runs a command whose arguments are the words of the input.
pub async fn xargs(shell: &mut Shell, words: &[String]) -> ShellResult<i32> {
    let mut words = words;
    let mut each = None;
    let mut in_place: Option<String> = None;
    while let Some((first, rest)) = words.split_first().filter(|(first, _)| first.starts_with('-')) {
        match (first.as_str(), rest.split_first()) {
            ("-n", Some((count, rest))) => (each, words) = (count.parse::<usize>().ok(), rest),
            ("-I", Some((mark, rest))) => (in_place, words) = (Some(mark.clone()), rest),
            ("-0" | "-r" | "-t", _) => words = rest,
            (option, _) => {
                let given = given!(shell, "xargs", &[option.to_owned()], "", "");
                words = if given.rest.is_empty() { rest } else { words };
            }
        }
    }
    let command: Vec<String> = if words.is_empty() { vec!["echo".into()] } else { words.to_vec() };
    let input = shell.input();
    let text = shell.whole(&input).await?;
    let text: Arc<str> = String::from_utf8_lossy(&text).into();
    let mut status = 0;
    if let Some(mark) = in_place {
        for line in text.lines() {
            let filled = command.iter().map(|word| word.replace(&mark, line)).collect::<Vec<_>>();
            if inner(shell, &filled).await? != 0 {
                status = 123;
            }
        }
        return Ok(status);
    }
    let all: Vec<&str> = text.split(|c: char| c.is_whitespace() || c == '\0').filter(|word| !word.is_empty()).collect();
    for some in all.chunks(each.unwrap_or(5000).max(1)) {
        let filled: Vec<String> = command.iter().cloned().chain(some.iter().map(|word| (*word).to_owned())).collect();
        if let Err(stop) = inner(shell, &filled).await {
            match stop {
                Stop::Exit(code) => status = code,
                other => return Err(other),
            }
        } else if shell.status != 0 {
            status = 123;
        }
    }
    Ok(status)
}
