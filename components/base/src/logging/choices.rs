//! The values of logging options: severities, places in the source, levels of single files.

use std::str::FromStr;
use tracing::Level;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    Text,
    Json,
}

/// The severities in ascending order. A line is also written to the files of lower severities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Info,
    Warning,
    Error,
    /// No line has this severity, because no part of Holdfast ends the process on its own. But an option may set it as
    /// the threshold.
    Fatal,
}

impl Severity {
    pub const ALL: [Severity; 4] = [Severity::Info, Severity::Warning, Severity::Error, Severity::Fatal];

    pub fn of(level: Level) -> Severity {
        match level {
            Level::ERROR => Severity::Error,
            Level::WARN => Severity::Warning,
            _ => Severity::Info,
        }
    }

    pub fn name(self) -> &'static str {
        ["INFO", "WARNING", "ERROR", "FATAL"][self as usize]
    }
}

impl FromStr for Severity {
    type Err = String;

    fn from_str(text: &str) -> Result<Severity, String> {
        let named = |severity: &Severity| severity.name().eq_ignore_ascii_case(text);
        let numbered = text.parse().ok().and_then(|number: usize| Severity::ALL.get(number).copied());
        Severity::ALL
            .into_iter()
            .find(named)
            .or(numbered)
            .ok_or_else(|| format!("{text:?} is not a severity: expect 0 to 3, INFO, WARNING, ERROR or FATAL"))
    }
}

/// A line in a source file, by the file's name and the line's number; `None` if the option names no line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLine(Option<(String, u32)>);

impl SourceLine {
    pub fn is(&self, path: &str, line: u32) -> bool {
        self.0.as_ref().is_some_and(|(file, number)| *number == line && file == base_name(path))
    }
}

impl FromStr for SourceLine {
    type Err = String;

    fn from_str(text: &str) -> Result<SourceLine, String> {
        if text.is_empty() || text == ":0" {
            return Ok(SourceLine(None));
        }
        let expect = || "syntax error: expect file.rs:234".to_owned();
        let (file, line) = text.split_once(':').filter(|(file, _)| file.contains('.')).ok_or_else(expect)?;
        match line.parse::<i64>().map_err(|_| expect())? {
            ..=0 => Err("negative or zero value for level".into()),
            line => Ok(SourceLine(Some((file.into(), u32::try_from(line).map_err(|_| expect())?)))),
        }
    }
}

/// The verbosity of single source files. If several patterns match a file's name, the first pattern counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Modules(Vec<(String, i32)>);

impl Modules {
    pub fn level(&self, path: &str) -> Option<i32> {
        if self.0.is_empty() {
            return None;
        }
        let file = base_name(path);
        let stem = file.strip_suffix("/mod.rs").or(file.strip_suffix(".rs")).unwrap_or(file);
        let fits = |(pattern, _): &&(String, i32)| matches(pattern, stem);
        self.0.iter().find(fits).map(|(_, level)| *level)
    }

    pub fn highest(&self) -> i32 {
        self.0.iter().map(|(_, level)| *level).max().unwrap_or(0)
    }
}

impl FromStr for Modules {
    type Err = String;

    fn from_str(text: &str) -> Result<Modules, String> {
        let expect = || "syntax error: expect comma-separated list of filename=N".to_owned();
        let mut modules = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (pattern, level) = part.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(expect)?;
            match level.parse::<i32>().map_err(|_| expect())? {
                ..0 => return Err("negative value for vmodule level".into()),
                0 => (),
                level => modules.push((pattern.to_owned(), level)),
            }
        }
        Ok(Modules(modules))
    }
}

/// The name of a source file. Many files are called `mod.rs`, so their names include the folder.
pub fn base_name(path: &str) -> &str {
    let folder = path.strip_suffix("/mod.rs").unwrap_or(path);
    folder.rfind('/').map_or(path, |at| &path[at + 1..])
}

/// Whether a file name matches a pattern of shell wildcards: `*`, `?`, `[a-z]`, `[^x]`, and `\` before a literal
/// character. A malformed pattern matches no name.
fn matches(pattern: &str, name: &str) -> bool {
    let mut rest = pattern.chars();
    let mut left = name.chars();
    match rest.next() {
        None => name.is_empty(),
        Some('*') => {
            let ends = name.char_indices().map(|(at, _)| at).chain([name.len()]);
            ends.into_iter().any(|at| matches(rest.as_str(), &name[at..]))
        }
        Some('?') => left.next().is_some() && matches(rest.as_str(), left.as_str()),
        Some('[') => match left.next().and_then(|c| in_class(rest.as_str(), c)) {
            Some((true, rest)) => matches(rest, left.as_str()),
            _ => false,
        },
        Some('\\') => rest.next().is_some_and(|c| left.next() == Some(c)) && matches(rest.as_str(), left.as_str()),
        Some(literal) => left.next() == Some(literal) && matches(rest.as_str(), left.as_str()),
    }
}

/// Whether `c` is in the class at the beginning of `pattern`, and the text after the class.
fn in_class(pattern: &str, c: char) -> Option<(bool, &str)> {
    let negated = pattern.starts_with('^');
    let mut rest = pattern[usize::from(negated)..].chars();
    let literal = |rest: &mut std::str::Chars| match rest.next()? {
        '\\' => rest.next(),
        c => Some(c),
    };
    let mut found = false;
    let mut empty = true;
    loop {
        if rest.as_str().starts_with(']') && !empty {
            return Some((found != negated, &rest.as_str()[1..]));
        }
        empty = false;
        let low = literal(&mut rest)?;
        let high = match rest.as_str().starts_with('-') {
            true => {
                rest.next();
                literal(&mut rest)?
            }
            false => low,
        };
        found |= (low..=high).contains(&c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn severities_have_numbers_and_names() {
        for (text, expected) in [
            ("0", Severity::Info),
            ("1", Severity::Warning),
            ("2", Severity::Error),
            ("3", Severity::Fatal),
            ("INFO", Severity::Info),
            ("warning", Severity::Warning),
            ("Error", Severity::Error),
            ("FATAL", Severity::Fatal),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        for text in ["", "4", "-1", "WARN"] {
            assert!(text.parse::<Severity>().is_err(), "{text}");
        }
    }

    #[test]
    fn places_are_a_file_name_and_a_line() {
        let place: SourceLine = "engine.rs:42".parse().unwrap();
        assert!(place.is("engine/src/engine.rs", 42));
        assert!(!place.is("engine/src/engine.rs", 41));
        assert!(!place.is("engine/src/other.rs", 42));
        let place: SourceLine = "engine/mod.rs:42".parse().unwrap();
        assert!(place.is("engine/src/engine/mod.rs", 42));
        assert!(!place.is("engine/src/hub/mod.rs", 42));
        assert_eq!(":0".parse(), Ok(SourceLine(None)));
        assert_eq!("".parse(), Ok(SourceLine(None)));
        for (text, expected) in [
            ("engine.rs", "syntax error: expect file.rs:234"),
            ("engine:42", "syntax error: expect file.rs:234"),
            ("engine.rs:x", "syntax error: expect file.rs:234"),
            ("engine.rs:1:2", "syntax error: expect file.rs:234"),
            ("engine.rs:0", "negative or zero value for level"),
            ("engine.rs:-1", "negative or zero value for level"),
        ] {
            assert_eq!(text.parse::<SourceLine>(), Err(expected.into()), "{text}");
        }
    }

    #[test]
    fn the_first_pattern_that_fits_gives_the_level() {
        let modules: Modules = "engine=4,wat*=6,w*=7,off=0,".parse().unwrap();
        for (path, expected) in [
            ("engine/src/engine.rs", Some(4)),
            ("watch.rs", Some(6)),
            ("src/writer.rs", Some(7)),
            ("src/off.rs", None),
            ("engine/src/engine/mod.rs", Some(4)),
            ("engine/src/hub.rs", None),
            ("engine/src/hub/mod.rs", None),
        ] {
            assert_eq!(modules.level(path), expected, "{path}");
        }
        assert_eq!(modules.highest(), 7);
        for (text, expected) in [
            ("engine", "syntax error: expect comma-separated list of filename=N"),
            ("=4", "syntax error: expect comma-separated list of filename=N"),
            ("engine=", "syntax error: expect comma-separated list of filename=N"),
            ("engine=4=5", "syntax error: expect comma-separated list of filename=N"),
            ("engine=-1", "negative value for vmodule level"),
        ] {
            assert_eq!(text.parse::<Modules>(), Err(expected.into()), "{text}");
        }
    }

    #[test]
    fn wildcards_are_those_of_file_names() {
        for (pattern, name, expected) in [
            ("watch", "watch", true),
            ("watch", "watcher", false),
            ("*", "", true),
            ("*tch", "watch", true),
            ("w*t*h", "watch", true),
            ("w?tch", "watch", true),
            ("w?tch", "wtch", false),
            ("[a-f]pi", "api", true),
            ("[^a-f]pi", "api", false),
            ("[^b-f]pi", "api", true),
            ("[b\\-z]", "-", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("[a", "a", false),
            ("[]", "a", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} on {name}");
        }
    }
}
