//! Expands words: variables, command substitutions and file name patterns.

use crate::arithmetic;
use crate::files::absolute;
use crate::pattern::{is_pattern, literal, matches, plain};
use crate::shell::{Shell, ShellFuture, ShellResult, Stop, WHOLE_BYTES_MAX};
use crate::syntax::{Change, Word, WordPart};

/// The maximum number of words of a command after the expansion.
const WORDS_MAX: usize = 20_000;
/// The longest value from which a prefix or a suffix can be cut, in bytes.
const CUT_BYTES_MAX: usize = 4096;

/// The form of the result when a word is expanded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expansion {
    /// The expansion may result in several words, because values are split.
    Split,
    Whole,
    Pattern,
}

/// The words that result from the expansion. Each is kept as a pattern in which quoted characters are escaped.
struct ExpandedFields {
    mode: Expansion,
    words: Vec<String>,
    current: Option<String>,
    bytes: usize,
}

impl ExpandedFields {
    fn new(mode: Expansion) -> ExpandedFields {
        ExpandedFields { mode, words: Vec::new(), current: None, bytes: 0 }
    }

    fn push(&mut self, pattern: &str) {
        self.bytes += pattern.len();
        self.current.get_or_insert_default().push_str(pattern);
    }

    fn quoted(&mut self, text: &str) {
        self.push(&literal(text));
    }

    fn cut(&mut self) {
        self.words.extend(self.current.take());
    }

    /// Adds the value of a variable or the output of a command that is not quoted.
    fn bare(&mut self, text: &str, separators: &str) {
        match self.mode {
            Expansion::Whole => self.quoted(text),
            Expansion::Pattern => self.push(&text.replace('\\', "\\\\")),
            Expansion::Split => {
                let is_separator = |c: char| separators.contains(c);
                let mut word = String::new();
                for c in text.chars() {
                    match c {
                        c if is_separator(c) => {
                            if !word.is_empty() {
                                self.push(&std::mem::take(&mut word));
                            }
                            // A separator that is not blank ends a word even if the word is empty. So there are empty
                            // words between two such separators.
                            if self.current.is_some() || !c.is_whitespace() {
                                self.current.get_or_insert_default();
                                self.cut();
                            }
                        }
                        '\\' => word.push_str("\\\\"),
                        c => word.push(c),
                    }
                }
                if !word.is_empty() {
                    self.push(&word);
                }
            }
        }
    }

    fn is_too_much(&self) -> bool {
        self.bytes > WHOLE_BYTES_MAX || self.words.len() > WORDS_MAX
    }
}

impl Shell {
    /// Expands the words of a command.
    pub async fn words(&mut self, words: &[Word]) -> ShellResult<Vec<String>> {
        let mut fields = ExpandedFields::new(Expansion::Split);
        for word in words {
            self.expand(word, &mut fields).await?;
            fields.cut();
        }
        let mut found = Vec::with_capacity(fields.words.len());
        for pattern in fields.words {
            if !self.options.no_patterns && is_pattern(&pattern) {
                self.step(10).await?;
                let files = self.files_like(&pattern);
                if !files.is_empty() {
                    found.extend(files);
                    continue;
                }
            }
            found.push(plain(&pattern));
        }
        Ok(found)
    }

    /// Expands a word to a single text.
    pub async fn single(&mut self, word: &Word) -> ShellResult<String> {
        let mut fields = ExpandedFields::new(Expansion::Whole);
        self.expand(word, &mut fields).await?;
        Ok(plain(&fields.current.unwrap_or_default()))
    }

    /// Expands a word to a pattern in which quoted characters are literal.
    pub async fn pattern(&mut self, word: &Word) -> ShellResult<String> {
        let mut fields = ExpandedFields::new(Expansion::Pattern);
        self.expand(word, &mut fields).await?;
        Ok(fields.current.unwrap_or_default())
    }

    fn separators(&self) -> String {
        self.value("IFS").unwrap_or(" \t\n").to_owned()
    }

    fn expand<'a>(&'a mut self, word: &'a [WordPart], fields: &'a mut ExpandedFields) -> ShellFuture<'a, ()> {
        Box::pin(async move {
            for part in word {
                match part {
                    WordPart::Text(text) => fields.push(text),
                    WordPart::Quoted(text) => fields.quoted(text),
                    WordPart::Tilde => {
                        let home = self.value("HOME").unwrap_or("/root").to_owned();
                        fields.quoted(&home);
                    }
                    WordPart::Output { script, is_quoted } => {
                        let text = self.output_of(script).await?;
                        self.add(fields, &text, *is_quoted);
                    }
                    WordPart::Number { expression, is_quoted } => {
                        let expression = self.single(expression).await?;
                        let look_up = |name: &str| self.value(name).unwrap_or_default().to_owned();
                        match arithmetic::evaluate(&expression, &look_up) {
                            Ok(number) => self.add(fields, &number.to_string(), *is_quoted),
                            Err(why) => return self.fails(&format!("sh: {why}")).await,
                        }
                    }
                    WordPart::Variable { name, change, is_quoted } => {
                        self.variable(name, change, *is_quoted, fields).await?;
                    }
                }
                if fields.is_too_much() {
                    return self.fails("sh: argument list too long").await;
                }
            }
            Ok(())
        })
    }

    async fn fails(&mut self, why: &str) -> ShellResult<()> {
        self.complain(why).await?;
        self.status = 2;
        Err(Stop::Exit(2))
    }

    fn add(&self, fields: &mut ExpandedFields, text: &str, is_quoted: bool) {
        if is_quoted {
            fields.quoted(text);
        } else {
            fields.bare(text, &self.separators());
        }
    }

    /// The value of a variable or of a special parameter; `None` if it has no value.
    fn looked_up(&self, name: &str) -> Option<String> {
        match name {
            "?" => Some(self.status.to_string()),
            "#" => Some(self.arguments.len().to_string()),
            "$" => Some(self.pid.to_string()),
            "!" => (self.last_background > 0).then(|| self.last_background.to_string()),
            "-" => Some(if self.options.ends_at_error { "e".into() } else { String::new() }),
            "@" | "*" => (!self.arguments.is_empty()).then(|| self.arguments.join(" ")),
            "0" => Some(self.name.clone()),
            "PWD" => Some(self.folder.clone()),
            "HOSTNAME" if self.value(name).is_none() => Some(self.hostname.to_string()),
            digits if digits.starts_with(|c: char| c.is_ascii_digit()) => {
                let number: usize = digits.parse().ok()?;
                self.arguments.get(number.checked_sub(1)?).cloned()
            }
            name => self.value(name).map(str::to_owned),
        }
    }

    async fn variable(
        &mut self,
        name: &str,
        change: &Change,
        is_quoted: bool,
        fields: &mut ExpandedFields,
    ) -> ShellResult<()> {
        if name == "@" && *change == Change::None && fields.mode == Expansion::Split {
            let arguments = self.arguments.clone();
            for (at, argument) in arguments.iter().enumerate() {
                if at > 0 {
                    fields.cut();
                }
                self.add(fields, argument, is_quoted);
            }
            if arguments.is_empty() && is_quoted && fields.current.as_deref() == Some("") {
                // In contrast to other quoted words, `"$@"` gives no word if there are no arguments.
                fields.current = None;
            }
            return Ok(());
        }
        let value = self.looked_up(name);
        let value = match change {
            Change::None => value,
            Change::Length => Some(value.unwrap_or_default().chars().count().to_string()),
            Change::Default { sign, or_empty, word } => {
                let is_there = value.as_ref().is_some_and(|value| !(*or_empty && value.is_empty()));
                match (sign, is_there) {
                    ('-' | '=' | '?', true) => value,
                    ('+', false) => return Ok(()),
                    ('-' | '+', _) => return self.instead(word, is_quoted, fields).await,
                    ('=', _) => {
                        let text = self.single(word).await?;
                        self.set(name, text.clone()).await?;
                        Some(text)
                    }
                    _ => {
                        let text = self.single(word).await?;
                        let text = if text.is_empty() { "parameter not set".to_owned() } else { text };
                        return self.fails(&format!("sh: {name}: {text}")).await;
                    }
                }
            }
            Change::Cut { sign, is_long, pattern } => {
                let value = value.unwrap_or_default();
                let pattern = self.pattern(pattern).await?;
                if value.len() > CUT_BYTES_MAX {
                    return self.fails(&format!("sh: {name}: too long to cut")).await;
                }
                self.step(1 + value.len() as u64 / 8).await?;
                Some(cut(&value, *sign, *is_long, &pattern).to_owned())
            }
        };
        match value {
            Some(value) => self.add(fields, &value, is_quoted),
            None if self.options.needs_values && !matches!(name, "@" | "*") => {
                return self.fails(&format!("sh: {name}: parameter not set")).await;
            }
            None => {}
        }
        Ok(())
    }

    async fn instead(&mut self, word: &Word, is_quoted: bool, fields: &mut ExpandedFields) -> ShellResult<()> {
        if is_quoted {
            let text = self.single(word).await?;
            fields.quoted(&text);
            return Ok(());
        }
        for part in word {
            match part {
                // The text after the sign in `${NAME:-text}` is split like the value of a variable.
                WordPart::Text(text) => self.add(fields, text, false),
                other => self.expand(std::slice::from_ref(other), fields).await?,
            }
        }
        Ok(())
    }

    /// The paths of the files and folders that match a pattern.
    fn files_like(&self, pattern: &str) -> Vec<String> {
        let system = self.shared.lock();
        let mut found = vec![String::from(if pattern.starts_with('/') { "/" } else { "" })];
        for (at, part) in pattern.split('/').enumerate() {
            if part.is_empty() {
                continue;
            }
            let mut next = Vec::new();
            for before in &found {
                let begin = if at > 0 && !before.is_empty() && !before.ends_with('/') { "/" } else { "" };
                if !is_pattern(part) {
                    let path = format!("{before}{begin}{}", plain(part));
                    if system.files.entry(&absolute(&self.folder, &path)).is_some() {
                        next.push(path);
                    }
                    continue;
                }
                let folder = absolute(&self.folder, before);
                let names = system
                    .files
                    .names(&folder)
                    .into_iter()
                    .filter(|name| !name.starts_with('.') || part.starts_with('.'));
                next.extend(
                    names.filter(|name| matches(part, name.as_str())).map(|name| format!("{before}{begin}{name}")),
                );
                if next.len() > WORDS_MAX {
                    return Vec::new();
                }
            }
            found = next;
        }
        found
    }
}

/// Removes from a value a prefix or a suffix that matches a pattern.
fn cut<'v>(value: &'v str, sign: char, is_long: bool, pattern: &str) -> &'v str {
    let mut places: Vec<usize> = value.char_indices().map(|(at, _)| at).chain([value.len()]).collect();
    // The places at which the value could be cut are tried from the shortest part to the longest, or with `is_long`
    // from the longest to the shortest.
    if (sign == '%') != is_long {
        places.reverse();
    }
    let found = places.into_iter().find(|at| match sign {
        '#' => matches(pattern, &value[..*at]),
        _ => matches(pattern, &value[*at..]),
    });
    match (found, sign) {
        (Some(at), '#') => &value[at..],
        (Some(at), _) => &value[..at],
        (None, _) => value,
    }
}
