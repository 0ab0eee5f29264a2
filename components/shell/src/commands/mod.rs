//! The commands that the shell can run by name.

mod archive;
mod builtin;
mod condition;
mod file;
mod print;
mod system;
mod text;

pub use system::sleep_millis;

use crate::shell::{Shell, ShellFuture, ShellResult};
use std::fmt::Display;

/// The names of all commands, sorted.
const KNOWN: [&str; 81] = [
    ".", ":", "[", "ash", "base64", "basename", "bash", "break", "busybox", "cat", "cd", "chmod", "chown", "command",
    "continue", "cp", "cut", "dash", "date", "dirname", "echo", "env", "eval", "exec", "exit", "export", "expr",
    "false", "find", "grep", "head", "hostname", "id", "kill", "local", "ls", "mkdir", "mktemp", "mv", "nproc",
    "printenv", "printf", "pwd", "read", "readlink", "readonly", "return", "rm", "rmdir", "seq", "set", "sh", "shift",
    "sleep", "sort", "source", "stat", "sync", "tail", "tar", "tee", "test", "time", "timeout", "touch", "tr", "trap",
    "true", "tty", "type", "umask", "uname", "uniq", "unset", "usleep", "wait", "wc", "which", "whoami", "xargs",
    "yes",
];

/// The folders in which the commands seem to exist as programs.
const PROGRAMS: [&str; 6] = ["/bin/", "/usr/bin/", "/sbin/", "/usr/sbin/", "/usr/local/bin/", "/usr/local/sbin/"];

pub fn is_known(name: &str) -> bool {
    KNOWN.binary_search(&name).is_ok()
}

/// The name of a command that is called by a path, such as `/bin/ls`.
pub fn name_of(program: &str) -> &str {
    let inside = PROGRAMS.iter().find_map(|folder| program.strip_prefix(folder));
    inside.filter(|name| !name.contains('/')).unwrap_or(program)
}

/// The names of all commands, for help texts.
pub fn all() -> impl Iterator<Item = &'static str> {
    KNOWN.into_iter()
}

/// Runs a known command, and returns its exit status.
pub fn run<'a>(shell: &'a mut Shell, name: &'a str, words: &'a [String]) -> ShellFuture<'a, i32> {
    let given = &words[1..];
    Box::pin(async move {
        match name {
            ":" | "true" | "umask" | "sync" | "chown" => Ok(0),
            "false" => Ok(1),
            "sh" | "bash" | "ash" | "dash" => builtin::shell(shell, given).await,
            "busybox" => inner(shell, given).await,
            "exit" | "return" | "break" | "continue" => builtin::leave(shell, name, given),
            "cd" => builtin::cd(shell, given).await,
            "pwd" => builtin::pwd(shell).await,
            "export" | "readonly" | "local" => builtin::declare(shell, name, given).await,
            "unset" => builtin::unset(shell, given),
            "set" => builtin::set(shell, given).await,
            "shift" => builtin::shift(shell, given),
            "read" => builtin::read(shell, given).await,
            "eval" => builtin::eval(shell, given).await,
            "." | "source" => builtin::source(shell, given).await,
            "exec" => builtin::exec(shell, given).await,
            "command" | "type" | "which" => builtin::command(shell, name, given).await,
            "time" => inner(shell, given).await,
            "wait" => system::wait(shell, given).await,
            "kill" => system::kill(shell, given).await,
            "trap" => system::trap(shell, given).await,
            "sleep" | "usleep" => system::sleep(shell, name, given).await,
            "timeout" => system::timeout(shell, given).await,
            "date" => system::date(shell, given).await,
            "hostname" => {
                let text = format!("{}\n", shell.hostname);
                shell.print(&text).await.map(|()| 0)
            }
            "id" | "whoami" => system::id(shell, name, given).await,
            "uname" => system::uname(shell, given).await,
            "nproc" => shell.print("1\n").await.map(|()| 0),
            "tty" => shell.print("not a tty\n").await.map(|()| 1),
            "env" | "printenv" => system::env(shell, name, given).await,
            "xargs" => system::xargs(shell, given).await,
            "test" | "[" => condition::test(shell, name, given).await,
            "expr" => condition::expr(shell, given).await,
            "echo" => print::echo(shell, given).await,
            "printf" => print::printf(shell, given).await,
            "seq" => print::seq(shell, given).await,
            "yes" => print::yes(shell, given).await,
            "cat" | "tee" => text::copy(shell, name, given).await,
            "head" | "tail" => text::ends(shell, name, given).await,
            "wc" => text::count(shell, given).await,
            "grep" => text::grep(shell, given).await,
            "sort" | "uniq" => text::sort(shell, name, given).await,
            "cut" => text::cut(shell, given).await,
            "tr" => text::translate(shell, given).await,
            "base64" => text::base64(shell, given).await,
            "ls" => file::list(shell, given).await,
            "find" => file::find(shell, given).await,
            "stat" | "readlink" => file::stat(shell, name, given).await,
            "touch" | "mkdir" | "rm" | "rmdir" | "cp" | "mv" | "chmod" | "mktemp" => {
                file::change(shell, name, given).await
            }
            "basename" | "dirname" => file::name(shell, name, given).await,
            "tar" => archive::tar(shell, given).await,
            _ => Ok(127),
        }
    })
}

/// Runs words as a command, even if there is a function of this name.
async fn inner(shell: &mut Shell, words: &[String]) -> ShellResult<i32> {
    Box::pin(shell.program(words.to_vec())).await?;
    Ok(if words.is_empty() { 0 } else { shell.status })
}

/// Prints an error message of a command, and returns the exit status for it.
async fn wrong(shell: &mut Shell, name: &str, why: impl Display) -> ShellResult<i32> {
    shell.complain(&format!("{name}: {why}")).await?;
    Ok(1)
}

/// The options of a command, each with one letter, and the remaining words. The letters in `with_value` have a value.
/// The word `--` ends the options.
pub(crate) struct ParsedOptions {
    pub letters: Vec<(char, String)>,
    pub rest: Vec<String>,
}

impl ParsedOptions {
    fn of(words: &[String], known: &str, with_value: &str) -> Result<ParsedOptions, String> {
        let mut given = ParsedOptions { letters: Vec::new(), rest: Vec::new() };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if word == "--" {
                given.rest.extend(words.cloned());
                break;
            }
            let letters = match word.strip_prefix('-') {
                Some(letters) if !letters.is_empty() => letters,
                _ => {
                    given.rest.push(word.clone());
                    continue;
                }
            };
            if let Some(long) = letters.strip_prefix('-') {
                return Err(format!("unrecognized option: {long}"));
            }
            for (at, letter) in letters.char_indices() {
                if with_value.contains(letter) {
                    let value = match &letters[at + letter.len_utf8()..] {
                        "" => words.next().cloned().ok_or(format!("option requires an argument: {letter}"))?,
                        value => value.to_owned(),
                    };
                    given.letters.push((letter, value));
                    break;
                }
                if !known.contains(letter) {
                    return Err(format!("unrecognized option: {letter}"));
                }
                given.letters.push((letter, String::new()));
            }
        }
        Ok(given)
    }

    fn has(&self, letter: char) -> bool {
        self.letters.iter().any(|(known, _)| *known == letter)
    }

    fn value(&self, letter: char) -> Option<&str> {
        self.letters.iter().rev().find(|(known, _)| *known == letter).map(|(_, value)| value.as_str())
    }
}

/// Parses the options of a command. If an option is invalid, returns from the calling function with a message about it.
macro_rules! given {
    ($shell:expr, $name:expr, $words:expr, $known:expr, $with_value:expr) => {
        match $crate::commands::ParsedOptions::of($words, $known, $with_value) {
            Ok(given) => given,
            Err(why) => return $crate::commands::wrong($shell, $name, why).await,
        }
    };
}
pub(crate) use given;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order() {
        assert!(KNOWN.is_sorted(), "they are found by halves");
        assert_eq!((name_of("/bin/sh"), name_of("/usr/local/bin/tar"), name_of("/opt/sh")), ("sh", "tar", "/opt/sh"));
    }
}
