//! How long a container's command sleeps. All other work of a command is assumed to take no time.

use crate::behaviour::Span;

/// Shells that run a script with `-c`.
const SHELLS: [&str; 5] = ["sh", "ash", "bash", "dash", "zsh"];
/// Words that may precede a command in a script without being part of it.
const PREFIXES: [&str; 7] = ["exec", "do", "then", "else", "{", "(", "!"];
/// The maximum number of words that are read of a command.
const WORDS_MAX: usize = 1000;

/// How long a command sleeps; `None` if the command contains no sleep that is recognized.
pub fn sleeps<'a>(words: impl Iterator<Item = &'a str>) -> Option<Span> {
    let mut words = words.take(WORDS_MAX);
    let program = words.next()?;
    if !SHELLS.contains(&name(program)) {
        return one(program, words);
    }
    let mut options = words.skip_while(|word| word.starts_with('-') && !word.contains('c'));
    options.next().filter(|word| word.starts_with('-'))?;
    script(options.next()?)
}

/// The name of a program without its folder.
fn name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or_default()
}

/// How long one program with these arguments sleeps.
fn one<'a>(program: &str, mut arguments: impl Iterator<Item = &'a str>) -> Option<Span> {
    match name(program) {
        "sleep" => {
            let spans: Option<Vec<Span>> = arguments.map(amount).collect();
            spans?.into_iter().reduce(longer)
        }
        // `tail -f` waits for further lines of the file, for ever.
        "tail" => arguments.any(|word| matches!(word, "-f" | "-F")).then_some(Span::Forever),
        _ => None,
    }
}

/// How long a script sleeps: the sum over its commands. An endless loop lasts forever.
fn script(text: &str) -> Option<Span> {
    let commands = text.split([';', '\n', '&', '|']).map(|command| command.trim_end_matches(['}', ')', ' ']));
    let spans = commands.filter_map(|command| {
        let mut words = command.split_whitespace().take(WORDS_MAX).skip_while(|word| PREFIXES.contains(word));
        match (words.next()?, words) {
            ("while", mut rest) => {
                let is_endless = matches!(rest.next(), Some("true" | ":" | "sleep" | "1"));
                is_endless.then_some(Span::Forever)
            }
            (program, arguments) => one(program, arguments),
        }
    });
    spans.reduce(longer)
}

fn longer(one: Span, then: Span) -> Span {
    match (one, then) {
        (Span::Millis(one), Span::Millis(then)) => Span::Millis(one.saturating_add(then)),
        _ => Span::Forever,
    }
}

/// Parses an argument of `sleep`: `30`, `1.5m`, `infinity`.
fn amount(text: &str) -> Option<Span> {
    Some(holdfast_shell::sleep_millis(text)?.map_or(Span::Forever, Span::Millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_long_commands_sleep() {
        let seconds = |seconds: i64| Some(Span::Millis(seconds * 1000));
        for (words, expected) in [
            (vec![], None),
            (vec!["sleep"], None),
            (vec!["sleep", "5"], seconds(5)),
            (vec!["/bin/sleep", "1.5m"], seconds(90)),
            (vec!["sleep", "1h", "30"], seconds(3630)),
            (vec!["sleep", "1d"], seconds(86_400)),
            (vec!["sleep", "infinity"], Some(Span::Forever)),
            (vec!["sleep", "99999999999999999999"], Some(Span::Forever)),
            (vec!["sleep", "$TIME"], None),
            (vec!["sleep", "-1"], None),
            (vec!["sleep", "é"], None),
            (vec!["sleepy", "5"], None),
            (vec!["tail", "-f", "/dev/null"], Some(Span::Forever)),
            (vec!["sh", "-c", "sleep 5"], seconds(5)),
            (vec!["/bin/sh", "-ec", "echo begun\nsleep 5; sleep 2 && echo done"], seconds(7)),
            (vec!["bash", "-e", "-c", "trap 'exit 0' TERM; exec sleep 3600 & wait"], seconds(3600)),
            (vec!["sh", "-c", "while true; do date; sleep 1; done"], Some(Span::Forever)),
            (vec!["sh", "-c", "while sleep 1; do date; done"], Some(Span::Forever)),
            (vec!["sh", "-c", "(sleep 3)"], None),
            (vec!["sh", "-c", "if true; then sleep 3; fi"], seconds(3)),
            (vec!["sh", "-c", "echo hello"], None),
            (vec!["sh", "-c"], None),
            (vec!["sh", "script", "sleep 5"], None),
        ] {
            assert_eq!(sleeps(words.iter().copied()), expected, "{words:?}");
        }
    }
}
