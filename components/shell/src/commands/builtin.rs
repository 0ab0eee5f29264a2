//! Commands that change the shell itself.

use super::{given, inner, is_known, name_of, wrong};
use crate::files::{Trouble, absolute};
use crate::parse::is_name;
use crate::shell::{Open, Shell, ShellResult, Stop};

/// `sh -c SCRIPT NAME ARGUMENTS`, `sh FILE ARGUMENTS`, or `sh` with a script as its input.
pub async fn shell(shell: &mut Shell, words: &[String]) -> ShellResult<i32> {
    let mut options = shell.options;
    (options.ends_at_error, options.shows_commands, options.needs_values) = (false, false, false);
    let (mut is_command, mut at) = (false, 0);
    while let Some(letters) = words.get(at).and_then(|word| word.strip_prefix('-').or(word.strip_prefix('+'))) {
        at += 1;
        if letters == "-" || letters.is_empty() {
            break;
        }
        if letters == "o" {
            options.whole_pipes |= words.get(at).is_some_and(|option| option == "pipefail");
            options.ends_at_error |= words.get(at).is_some_and(|option| option == "errexit");
            at += 1;
            continue;
        }
        for letter in letters.chars().filter(|_| !letters.starts_with('-')) {
            match letter {
                'c' => is_command = true,
                'e' => options.ends_at_error = true,
                'x' => options.shows_commands = true,
                'u' => options.needs_values = true,
                'o' => {
                    options.whole_pipes |= words.get(at).is_some_and(|option| option == "pipefail");
                    at += 1;
                }
                _ => {}
            }
        }
    }
    let rest = &words[at.min(words.len())..];
    let begin = |shell: &Shell, name: String, arguments: Vec<String>| {
        let mut child = shell.program_shell(name, arguments);
        child.options = options;
        child.depth += 1;
        child
    };
    if is_command {
        let Some((script, rest)) = rest.split_first() else {
            return wrong(shell, "sh", "-c requires an argument").await.map(|_| 2);
        };
        let name = rest.first().cloned().unwrap_or_else(|| "sh".into());
        let mut child = begin(shell, name, rest.get(1..).unwrap_or_default().to_vec());
        let done = child.text(script).await;
        return shell.finish(child, done).await;
    }
    let Some((file, arguments)) = rest.split_first() else {
        let mut child = begin(shell, "sh".into(), Vec::new());
        let done = Box::pin(child.typed()).await;
        return shell.finish(child, done).await;
    };
    let read = shell.shared.lock().files.read(&absolute(&shell.folder, file));
    match read {
        Ok(content) => {
            let mut child = begin(shell, file.clone(), arguments.to_vec());
            let text = String::from_utf8_lossy(&content).into_owned();
            let done = child.text(&text).await;
            shell.finish(child, done).await
        }
        Err(Trouble(_)) => {
            wrong(shell, "sh", format!("can't open '{file}': No such file or directory")).await.map(|_| 2)
        }
    }
}

pub fn leave(shell: &mut Shell, name: &str, words: &[String]) -> ShellResult<i32> {
    let number: Option<i32> = words.first().and_then(|word| word.parse().ok());
    let count = number.and_then(|number| u32::try_from(number).ok()).unwrap_or(1);
    match name {
        "break" => Err(Stop::Break(count)),
        "continue" => Err(Stop::Continue(count)),
        name => {
            shell.status = match (words.is_empty(), number) {
                (true, _) => shell.status,
                (false, Some(number)) => number & 255,
                (false, None) => 2,
            };
            Err(if name == "exit" { Stop::Exit(shell.status) } else { Stop::Return })
        }
    }
}

pub async fn cd(shell: &mut Shell, words: &[String]) -> ShellResult<i32> {
    let home = || shell.value("HOME").unwrap_or("/root").to_owned();
    let wanted = match words.first().map(String::as_str) {
        None => home(),
        Some("-") => shell.value("OLDPWD").unwrap_or("/").to_owned(),
        Some(folder) => folder.to_owned(),
    };
    let folder = absolute(&shell.folder, &wanted);
    if !shell.shared.lock().files.is_folder(&folder) {
        return wrong(shell, "sh: cd", format!("can't cd to {wanted}: No such file or directory")).await;
    }
    let old = std::mem::replace(&mut shell.folder, folder);
    shell.set("OLDPWD", old).await?;
    Ok(0)
}

pub async fn pwd(shell: &mut Shell) -> ShellResult<i32> {
    let text = format!("{}\n", shell.folder);
    shell.print(&text).await?;
    Ok(0)
}

pub async fn declare(shell: &mut Shell, name: &str, words: &[String]) -> ShellResult<i32> {
    if words.is_empty() || words == ["-p"] {
        let exported: Vec<_> = shell.variables.iter().filter(|(_, variable)| variable.is_exported).collect();
        let text: String =
            exported.iter().map(|(name, variable)| format!("export {name}='{}'\n", variable.value)).collect();
        shell.print(&text).await?;
        return Ok(0);
    }
    for word in words.iter().filter(|word| !word.starts_with('-')) {
        let (variable, value) = match word.split_once('=') {
            Some((variable, value)) => (variable, Some(value)),
            None => (word.as_str(), None),
        };
        if !is_name(variable) {
            return wrong(shell, "sh", format!("{name}: {variable}: bad variable name")).await.map(|_| 2);
        }
        if name == "local" && !shell.hide(variable) {
            return wrong(shell, "sh", "local: not in a function").await;
        }
        match value {
            Some(value) => shell.set(variable, value.to_owned()).await?,
            None if name == "local" => shell.unset(variable),
            None if shell.value(variable).is_none() => shell.set(variable, String::new()).await?,
            None => {}
        }
        if name == "export"
            && let Some(known) = shell.variables.get_mut(variable)
        {
            known.is_exported = true;
        }
    }
    Ok(0)
}

pub fn unset(shell: &mut Shell, words: &[String]) -> ShellResult<i32> {
    let functions = words.first().is_some_and(|word| word == "-f");
    for name in words.iter().filter(|word| !word.starts_with('-')) {
        match functions {
            true => shell.unset_function(name),
            false => shell.unset(name),
        }
    }
    Ok(0)
}

pub async fn set(shell: &mut Shell, words: &[String]) -> ShellResult<i32> {
    if words.is_empty() {
        let all = shell.variables.iter().map(|(name, variable)| format!("{name}='{}'\n", variable.value));
        let text: String = all.collect();
        shell.print(&text).await?;
    }
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let is_on = word.starts_with('-');
        let letters = match word.strip_prefix('-').or(word.strip_prefix('+')) {
            Some("-") => {
                shell.arguments = words[at + 1..].to_vec();
                break;
            }
            Some(letters) if !letters.is_empty() => letters,
            _ => {
                shell.arguments = words[at..].to_vec();
                break;
            }
        };
        at += 1;
        for letter in letters.chars() {
            match letter {
                'e' => shell.options.ends_at_error = is_on,
                'u' => shell.options.needs_values = is_on,
                'x' => shell.options.shows_commands = is_on,
                'f' => shell.options.no_patterns = is_on,
                'o' => {
                    match words.get(at).map(String::as_str) {
                        Some("pipefail") => shell.options.whole_pipes = is_on,
                        Some("errexit") => shell.options.ends_at_error = is_on,
                        Some("nounset") => shell.options.needs_values = is_on,
                        Some("xtrace") => shell.options.shows_commands = is_on,
                        _ => {}
                    }
                    at += 1;
                }
                'a' | 'b' | 'C' | 'm' | 'n' | 'v' | 'h' | 'E' => {}
                other => return wrong(shell, "sh", format!("set: illegal option -{other}")).await.map(|_| 2),
            }
        }
    }
    Ok(0)
}

pub fn shift(shell: &mut Shell, words: &[String]) -> ShellResult<i32> {
    let count = words.first().and_then(|word| word.parse().ok()).unwrap_or(1);
    if count > shell.arguments.len() {
        return Ok(1);
    }
    shell.arguments.drain(..count);
    Ok(0)
}

pub async fn read(shell: &mut Shell, words: &[String]) -> ShellResult<i32> {
    let given = given!(shell, "sh: read", words, "r", "tp");
    let input = shell.input();
    let Some(line) = shell.line(&input).await? else {
        for name in &given.rest {
            shell.set(name, String::new()).await?;
        }
        return Ok(1);
    };
    let mut text = String::from_utf8_lossy(&line).into_owned();
    let is_whole = text.ends_with('\n');
    if is_whole {
        text.pop();
    }
    if !given.has('r') {
        text = text.replace('\\', "");
    }
    let separators = shell.value("IFS").unwrap_or(" \t\n").to_owned();
    let is_separator = |c: char| separators.contains(c);
    let names = if given.rest.is_empty() { vec!["REPLY".to_owned()] } else { given.rest.clone() };
    let mut rest = text.trim_matches(|c: char| is_separator(c) && c.is_whitespace());
    for (at, name) in names.iter().enumerate() {
        if !is_name(name) {
            return wrong(shell, "sh: read", format!("{name}: bad variable name")).await.map(|_| 2);
        }
        let value = match rest.find(is_separator) {
            Some(end) if at + 1 < names.len() => {
                let value = &rest[..end];
                let behind = rest[end..].chars().next().map_or(0, char::len_utf8);
                rest = rest[end + behind..].trim_start_matches(|c: char| is_separator(c) && c.is_whitespace());
                value
            }
            _ => std::mem::take(&mut rest),
        };
        shell.set(name, value.to_owned()).await?;
    }
    Ok(i32::from(!is_whole))
}

pub async fn eval(shell: &mut Shell, words: &[String]) -> ShellResult<i32> {
    let text = words.join(" ");
    shell.status = 0;
    shell.text(&text).await?;
    Ok(shell.status)
}

pub async fn source(shell: &mut Shell, words: &[String]) -> ShellResult<i32> {
    let Some(file) = words.first() else { return wrong(shell, "sh: .", "filename argument required").await.map(|_| 2) };
    let read = shell.shared.lock().files.read(&absolute(&shell.folder, file));
    match read {
        Ok(content) => {
            let text = String::from_utf8_lossy(&content).into_owned();
            match shell.text(&text).await {
                Ok(()) | Err(Stop::Return) => Ok(shell.status),
                Err(stop) => Err(stop),
            }
        }
        Err(Trouble(why)) => {
            wrong(shell, "sh: .", format!("can't open '{file}': {why}")).await?;
            Err(Stop::Exit(2))
        }
    }
}

pub async fn exec(shell: &mut Shell, words: &[String]) -> ShellResult<i32> {
    if words.is_empty() {
        return Ok(0);
    }
    shell.traps.clear();
    let status = inner(shell, words).await?;
    Err(Stop::Exit(status))
}

/// `command NAME …` runs the command `NAME`. `command -v NAME`, `type NAME` and `which NAME` describe the command.
pub async fn command(shell: &mut Shell, name: &str, words: &[String]) -> ShellResult<i32> {
    let asks = name != "command" || words.first().is_some_and(|word| word == "-v" || word == "-V");
    if !asks {
        return inner(shell, words).await;
    }
    let mut status = 0;
    for wanted in words.iter().filter(|word| !word.starts_with('-')) {
        let is_file = wanted.contains('/') && matches!(shell.open_to_read(wanted), Ok(Open::Content(_)));
        let known = is_known(name_of(wanted));
        let text = match name {
            "which" if known => format!("/bin/{}\n", name_of(wanted)),
            _ if is_file || known && wanted.starts_with('/') => format!("{wanted}\n"),
            "type" if known || shell.has_function(wanted) => format!("{wanted} is a shell builtin\n"),
            "command" if known || shell.has_function(wanted) => format!("{wanted}\n"),
            _ => {
                status = if name == "command" || name == "type" { 127 } else { 1 };
                if name == "type" {
                    shell.complain(&format!("sh: type: {wanted}: not found")).await?;
                }
                continue;
            }
        };
        shell.print(&text).await?;
    }
    Ok(status)
}
