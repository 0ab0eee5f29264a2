//! Parses scripts to their syntax trees.

use crate::syntax::{
    Chain, Change, Command, CommandKind, List, Pipeline, Redirection, RedirectionTarget, Word, WordPart,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The maximum depth of commands within each other.
const DEPTH_MAX: u32 = 24;
/// The longest script, in bytes.
pub const SCRIPT_BYTES_MAX: usize = 256 << 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The text ends before the command is complete.
    Incomplete,
    Syntax(String),
}

type Parsed<T> = Result<T, Fault>;

/// Parses a whole script.
pub fn script(text: &str) -> Parsed<List> {
    if text.len() > SCRIPT_BYTES_MAX {
        return Err(Fault::Syntax("script is too long".into()));
    }
    let mut parser = Parser { text: text.chars().collect(), at: 0, jumps: BTreeMap::new(), depth: 0 };
    let list = parser.list(&[])?;
    match parser.peek() {
        None => Ok(list),
        Some(_) => Err(parser.unexpected()),
    }
}

/// Parses the text of a here-document whose mark is not quoted, so that variables in the text are expanded.
fn quoted_text(text: String, depth: u32) -> Parsed<Word> {
    let mut parser = Parser { text: text.chars().collect(), at: 0, jumps: BTreeMap::new(), depth };
    let mut word = Word::new();
    parser.quoted(None, &mut word)?;
    Ok(word)
}

const RESERVED: [&str; 15] =
    ["if", "then", "elif", "else", "fi", "for", "while", "until", "do", "done", "case", "esac", "{", "}", "!"];

struct Parser {
    text: Vec<char>,
    at: usize,
    /// The position at which parsing continues after a line with here-documents, by the position of the line's end.
    jumps: BTreeMap<usize, usize>,
    depth: u32,
}

impl Parser {
    fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    fn ahead(&self, by: usize) -> Option<char> {
        self.text.get(self.at + by).copied()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at = match self.jumps.get(&self.at) {
            Some(to) if next == '\n' => *to,
            _ => self.at + 1,
        };
        Some(next)
    }

    fn takes(&mut self, text: &str) -> bool {
        let is_there = text.chars().enumerate().all(|(by, wanted)| self.ahead(by) == Some(wanted));
        if is_there {
            text.chars().for_each(|_| _ = self.next());
        }
        is_there
    }

    fn unexpected(&self) -> Fault {
        match self.peek() {
            None => Fault::Incomplete,
            Some('\n') => Fault::Syntax("syntax error: unexpected newline".into()),
            Some(_) => {
                let rest = &self.text[self.at..];
                let end = rest.iter().position(|c| c.is_whitespace()).unwrap_or(rest.len()).clamp(1, 20);
                Fault::Syntax(format!("syntax error: unexpected \"{}\"", rest[..end].iter().collect::<String>()))
            }
        }
    }

    fn blanks(&mut self) {
        loop {
            match self.peek() {
                Some(' ' | '\t' | '\r') => self.at += 1,
                Some('\\') if self.ahead(1) == Some('\n') => self.at += 2,
                Some('#') => {
                    while self.peek().is_some_and(|c| c != '\n') {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }

    fn lines(&mut self) {
        self.blanks();
        while self.peek() == Some('\n') {
            self.next();
            self.blanks();
        }
    }

    /// The unquoted word that starts at this position. The position does not change.
    fn bare(&self) -> String {
        let rest = self.text[self.at.min(self.text.len())..].iter();
        let word: String =
            rest.take(32).take_while(|c| !c.is_whitespace() && !";&|<>()'\"\\$`".contains(**c)).collect();
        word
    }

    fn takes_word(&mut self, word: &str) -> bool {
        let is_there = self.bare() == word;
        if is_there {
            self.at += word.len();
        }
        is_there
    }

    fn needs_word(&mut self, word: &str) -> Parsed<()> {
        self.lines();
        if self.takes_word(word) { Ok(()) } else { Err(self.unexpected()) }
    }

    fn deeper<T>(&mut self, read: impl FnOnce(&mut Parser) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= DEPTH_MAX {
            return Err(Fault::Syntax("commands are nested too deeply".into()));
        }
        self.depth += 1;
        let got = read(self);
        self.depth -= 1;
        got
    }

    /// Parses commands up to one of the words in `ends`, a bracket, or the end of the text.
    fn list(&mut self, ends: &[&str]) -> Parsed<List> {
        let mut list = Vec::new();
        loop {
            self.lines();
            let ended = match self.peek() {
                None | Some(')') => true,
                Some(';') => self.ahead(1) == Some(';'),
                Some(_) => ends.contains(&self.bare().as_str()),
            };
            if ended {
                return Ok(Arc::new(list));
            }
            let mut chain = self.chain()?;
            self.blanks();
            match self.peek() {
                Some('&') => {
                    self.next();
                    chain.in_background = true;
                }
                Some(';') if self.ahead(1) != Some(';') => _ = self.next(),
                Some('\n' | ')' | ';') | None => {}
                Some(_) => return Err(self.unexpected()),
            }
            list.push(chain);
        }
    }

    /// Like [`Parser::list`], but the list must have at least one command.
    fn body(&mut self, ends: &[&str]) -> Parsed<List> {
        let list = self.deeper(|parser| parser.list(ends))?;
        if list.is_empty() { Err(self.unexpected()) } else { Ok(list) }
    }

    fn chain(&mut self) -> Parsed<Chain> {
        let first = self.pipeline()?;
        let mut rest = Vec::new();
        loop {
            self.blanks();
            let and = match () {
                () if self.takes("&&") => true,
                () if self.takes("||") => false,
                () => return Ok(Chain { first, rest, in_background: false }),
            };
            self.lines();
            rest.push((and, self.pipeline()?));
        }
    }

    fn pipeline(&mut self) -> Parsed<Pipeline> {
        let is_negated = self.takes_word("!");
        let mut commands = Vec::new();
        loop {
            self.lines();
            commands.push(Arc::new(self.command()?));
            self.blanks();
            if self.peek() != Some('|') || self.ahead(1) == Some('|') {
                return Ok(Pipeline { is_negated, commands });
            }
            self.next();
        }
    }

    fn command(&mut self) -> Parsed<Command> {
        self.blanks();
        if self.peek() == Some('(') {
            self.next();
            let list = self.body(&[])?;
            self.lines();
            if !self.takes(")") {
                return Err(self.unexpected());
            }
            return self.with_redirections(CommandKind::Subshell(list));
        }
        let bare = self.bare();
        if !RESERVED.contains(&bare.as_str()) {
            return self.simple();
        }
        self.at += bare.len();
        let what = match bare.as_str() {
            "{" => {
                let list = self.body(&["}"])?;
                self.needs_word("}")?;
                CommandKind::Group(list)
            }
            "if" => self.conditions()?,
            "for" => self.each()?,
            "while" | "until" => {
                let condition = self.body(&["do"])?;
                CommandKind::While { until: bare == "until", condition, body: self.loop_body()? }
            }
            "case" => self.case()?,
            _ => {
                self.at -= bare.len();
                return Err(self.unexpected());
            }
        };
        self.with_redirections(what)
    }

    fn with_redirections(&mut self, what: CommandKind) -> Parsed<Command> {
        let mut redirections = Vec::new();
        loop {
            self.blanks();
            match self.redirection()? {
                Some(redirection) => redirections.push(redirection),
                None => return Ok(Command { kind: what, redirections }),
            }
        }
    }

    fn conditions(&mut self) -> Parsed<CommandKind> {
        let mut conditions = Vec::new();
        loop {
            let condition = self.body(&["then"])?;
            self.needs_word("then")?;
            conditions.push((condition, self.body(&["elif", "else", "fi"])?));
            self.lines();
            if self.takes_word("elif") {
                continue;
            }
            let otherwise = if self.takes_word("else") { Some(self.body(&["fi"])?) } else { None };
            self.needs_word("fi")?;
            return Ok(CommandKind::If(conditions, otherwise));
        }
    }

    fn loop_body(&mut self) -> Parsed<List> {
        self.needs_word("do")?;
        let body = self.body(&["done"])?;
        self.needs_word("done")?;
        Ok(body)
    }

    fn each(&mut self) -> Parsed<CommandKind> {
        self.blanks();
        let name = self.bare();
        if !is_name(&name) {
            return Err(self.unexpected());
        }
        self.at += name.len();
        self.lines();
        let mut words = None;
        if self.takes_word("in") {
            let mut found = Vec::new();
            loop {
                self.blanks();
                match self.peek() {
                    Some(';' | '\n') | None => break,
                    _ => found.push(self.word()?),
                }
            }
            words = Some(found);
        }
        self.blanks();
        self.takes(";");
        Ok(CommandKind::For { name, words, body: self.loop_body()? })
    }

    fn case(&mut self) -> Parsed<CommandKind> {
        self.blanks();
        let word = self.word()?;
        self.needs_word("in")?;
        let mut arms = Vec::new();
        loop {
            self.lines();
            if self.takes_word("esac") {
                return Ok(CommandKind::Case { word, arms });
            }
            self.takes("(");
            let mut patterns = Vec::new();
            loop {
                self.blanks();
                patterns.push(self.word()?);
                self.blanks();
                if self.takes("|") {
                    continue;
                }
                if self.takes(")") {
                    break;
                }
                return Err(self.unexpected());
            }
            let body = self.deeper(|parser| parser.list(&["esac"]))?;
            self.lines();
            if !self.takes(";;") && self.bare() != "esac" {
                return Err(self.unexpected());
            }
            arms.push((patterns, body));
        }
    }

    fn simple(&mut self) -> Parsed<Command> {
        let (mut assignments, mut words, mut redirections) = (Vec::new(), Vec::<Word>::new(), Vec::new());
        loop {
            self.blanks();
            if let Some(redirection) = self.redirection()? {
                redirections.push(redirection);
                continue;
            }
            match self.peek() {
                None | Some('\n' | ';' | '&' | '|' | ')') => break,
                Some('(') => {
                    let [word] = &words[..] else { return Err(self.unexpected()) };
                    let [WordPart::Text(name)] = &word[..] else { return Err(self.unexpected()) };
                    let name = name.clone();
                    self.next();
                    self.blanks();
                    if !self.takes(")") {
                        return Err(self.unexpected());
                    }
                    self.lines();
                    let body = Arc::new(self.deeper(Parser::command)?);
                    return Ok(Command { kind: CommandKind::Function { name, body }, redirections });
                }
                Some(_) => {}
            }
            let word = self.word()?;
            match (words.is_empty(), assignment(&word)) {
                (true, Some(assignment)) => assignments.push(assignment),
                _ => words.push(word),
            }
        }
        if assignments.is_empty() && words.is_empty() && redirections.is_empty() {
            return Err(self.unexpected());
        }
        Ok(Command { kind: CommandKind::Simple { assignments, words }, redirections })
    }

    fn redirection(&mut self) -> Parsed<Option<Redirection>> {
        let digit = self.peek().and_then(|c| c.to_digit(10)).filter(|_| matches!(self.ahead(1), Some('<' | '>')));
        if digit.is_some() {
            self.at += 1;
        }
        let sign = match self.peek() {
            Some(sign @ ('<' | '>')) => sign,
            _ => return Ok(None),
        };
        self.next();
        let number = digit.and_then(|digit| u8::try_from(digit).ok()).unwrap_or(u8::from(sign == '>'));
        let what = match (sign, self.peek()) {
            ('<', Some('<')) => {
                self.next();
                let tabs = self.takes("-");
                RedirectionTarget::Text(self.here(tabs)?)
            }
            (_, Some('&')) => {
                self.next();
                RedirectionTarget::Same(self.target()?)
            }
            ('>', Some('>')) => {
                self.next();
                RedirectionTarget::Append(self.target()?)
            }
            ('>', other) => {
                if other == Some('|') {
                    self.next();
                }
                RedirectionTarget::Write(self.target()?)
            }
            _ => RedirectionTarget::Read(self.target()?),
        };
        Ok(Some(Redirection { number, what }))
    }

    fn target(&mut self) -> Parsed<Word> {
        self.blanks();
        match self.peek() {
            None | Some('\n' | ';' | '&' | '|' | ')' | '(' | '<' | '>') => Err(self.unexpected()),
            _ => self.word(),
        }
    }

    /// Parses the beginning of a here-document, whose text starts after this line, and the text.
    fn here(&mut self, tabs: bool) -> Parsed<Word> {
        let mark = self.target()?;
        let is_plain = mark.iter().any(|part| matches!(part, WordPart::Quoted(_)));
        let mark: String = mark
            .iter()
            .map(|part| match part {
                WordPart::Text(text) | WordPart::Quoted(text) => text.as_str(),
                _ => "",
            })
            .collect();
        let rest = self.text[self.at..].iter().position(|c| *c == '\n').ok_or(Fault::Incomplete)?;
        let line_end = self.at + rest;
        let mut at = self.jumps.get(&line_end).copied().unwrap_or(line_end + 1);
        let mut text = String::new();
        loop {
            if at >= self.text.len() {
                return Err(Fault::Incomplete);
            }
            let end = self.text[at..].iter().position(|c| *c == '\n').map_or(self.text.len(), |length| at + length);
            let line: String = self.text[at..end].iter().collect();
            let line = if tabs { line.trim_start_matches('\t') } else { &line };
            at = (end + 1).min(self.text.len());
            if line == mark {
                break;
            }
            text.push_str(line);
            text.push('\n');
        }
        self.jumps.insert(line_end, at);
        if is_plain { Ok(vec![WordPart::Quoted(text)]) } else { quoted_text(text, self.depth) }
    }

    fn word(&mut self) -> Parsed<Word> {
        let mut word = Word::new();
        if self.peek() == Some('~') && matches!(self.ahead(1), None | Some('/' | ' ' | '\n' | ';')) {
            self.next();
            word.push(WordPart::Tilde);
        }
        while let Some(next) = self.peek() {
            match next {
                ' ' | '\t' | '\r' | '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')' => break,
                '\'' => {
                    word.push(self.single_quoted()?);
                }
                '"' => {
                    self.next();
                    word.push(WordPart::Quoted(String::new()));
                    self.quoted(Some('"'), &mut word)?;
                }
                '\\' => {
                    self.next();
                    match self.next().ok_or(Fault::Incomplete)? {
                        '\n' => {}
                        other => word.push(WordPart::Quoted(other.into())),
                    }
                }
                '$' | '`' => self.dollar(false, &mut word)?,
                other => {
                    self.next();
                    match word.last_mut() {
                        Some(WordPart::Text(text)) => text.push(other),
                        _ => word.push(WordPart::Text(other.into())),
                    }
                }
            }
        }
        if word.is_empty() { Err(self.unexpected()) } else { Ok(word) }
    }

    /// Parses a text in single quotes, in which no character has a special meaning.
    fn single_quoted(&mut self) -> Parsed<WordPart> {
        self.next();
        let mut text = String::new();
        loop {
            match self.next().ok_or(Fault::Incomplete)? {
                '\'' => return Ok(WordPart::Quoted(text)),
                other => text.push(other),
            }
        }
    }

    /// Parses a text up to its end. Only `$`, `` ` `` and `\` have a special meaning in the text.
    fn quoted(&mut self, end: Option<char>, word: &mut Word) -> Parsed<()> {
        let push = |word: &mut Word, c: char| match word.last_mut() {
            Some(WordPart::Quoted(text)) => text.push(c),
            _ => word.push(WordPart::Quoted(c.into())),
        };
        loop {
            match (self.peek(), end) {
                (None, None) => return Ok(()),
                (None, Some(_)) => return Err(Fault::Incomplete),
                (Some(c), Some(end)) if c == end => {
                    self.next();
                    return Ok(());
                }
                (Some('\\'), _) => {
                    self.next();
                    match self.peek() {
                        Some('\n') => _ = self.next(),
                        Some(c @ ('$' | '`' | '"' | '\\')) => {
                            self.next();
                            push(word, c);
                        }
                        _ => push(word, '\\'),
                    }
                }
                (Some('$' | '`'), _) => self.dollar(true, word)?,
                (Some(c), _) => {
                    self.next();
                    push(word, c);
                }
            }
        }
    }

    fn dollar(&mut self, is_quoted: bool, word: &mut Word) -> Parsed<()> {
        if self.peek() == Some('`') {
            self.next();
            let mut inner = String::new();
            loop {
                match self.next().ok_or(Fault::Incomplete)? {
                    '`' => break,
                    '\\' if matches!(self.peek(), Some('`' | '\\' | '$')) => inner.extend(self.next()),
                    other => inner.push(other),
                }
            }
            let script = self.deeper(|parser| {
                let mut inner =
                    Parser { text: inner.chars().collect(), at: 0, jumps: BTreeMap::new(), depth: parser.depth };
                inner.list(&[])
            })?;
            word.push(WordPart::Output { script, is_quoted });
            return Ok(());
        }
        self.next();
        let part = match self.peek() {
            Some('(') if self.ahead(1) == Some('(') => {
                self.at += 2;
                let expression = self.deeper(Parser::arithmetic)?;
                WordPart::Number { expression, is_quoted }
            }
            Some('(') => {
                self.next();
                let script = self.deeper(|parser| parser.list(&[]))?;
                self.lines();
                if !self.takes(")") {
                    return Err(self.unexpected());
                }
                WordPart::Output { script, is_quoted }
            }
            Some('{') => {
                self.next();
                self.deeper(|parser| parser.braced(is_quoted))?
            }
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                let mut name = String::new();
                while let Some(c) = self.peek().filter(|c| c.is_ascii_alphanumeric() || *c == '_') {
                    name.push(c);
                    self.at += 1;
                }
                WordPart::Variable { name, change: Change::None, is_quoted }
            }
            Some(c) if c.is_ascii_digit() || "@*#?$!-".contains(c) => {
                self.next();
                WordPart::Variable { name: c.into(), change: Change::None, is_quoted }
            }
            _ => WordPart::Quoted("$".into()),
        };
        word.push(part);
        Ok(())
    }

    /// Parses an arithmetic expression up to `))`.
    fn arithmetic(&mut self) -> Parsed<Word> {
        let (mut word, mut open) = (Word::new(), 0usize);
        loop {
            match self.peek().ok_or(Fault::Incomplete)? {
                ')' if open == 0 && self.ahead(1) == Some(')') => {
                    self.at += 2;
                    return Ok(word);
                }
                ')' if open == 0 => return Err(self.unexpected()),
                '$' | '`' => self.dollar(true, &mut word)?,
                c => {
                    open = match c {
                        '(' => open + 1,
                        ')' => open - 1,
                        _ => open,
                    };
                    self.next();
                    match word.last_mut() {
                        Some(WordPart::Quoted(text)) => text.push(c),
                        _ => word.push(WordPart::Quoted(c.into())),
                    }
                }
            }
        }
    }

    fn braced(&mut self, is_quoted: bool) -> Parsed<WordPart> {
        let is_length = self.peek() == Some('#') && self.ahead(1) != Some('}');
        if is_length {
            self.next();
        }
        let mut name = String::new();
        match self.peek().ok_or(Fault::Incomplete)? {
            c if "@*#?$!-".contains(c) => {
                self.next();
                name.push(c);
            }
            _ => {
                while let Some(c) = self.peek().filter(|c| c.is_ascii_alphanumeric() || *c == '_') {
                    name.push(c);
                    self.at += 1;
                }
            }
        }
        if name.is_empty() {
            return Err(Fault::Syntax("syntax error: bad substitution".into()));
        }
        if self.takes("}") {
            let change = if is_length { Change::Length } else { Change::None };
            return Ok(WordPart::Variable { name, change, is_quoted });
        }
        let or_empty = self.takes(":");
        let sign = self.next().ok_or(Fault::Incomplete)?;
        let change = match sign {
            '-' | '=' | '?' | '+' => Change::Default { sign, or_empty, word: self.until_brace()? },
            '#' | '%' if !or_empty => {
                let is_long = self.peek() == Some(sign);
                if is_long {
                    self.next();
                }
                Change::Cut { sign, is_long, pattern: self.until_brace()? }
            }
            _ => return Err(Fault::Syntax("syntax error: bad substitution".into())),
        };
        Ok(WordPart::Variable { name, change, is_quoted })
    }

    fn until_brace(&mut self) -> Parsed<Word> {
        let mut word = Word::new();
        loop {
            match self.peek().ok_or(Fault::Incomplete)? {
                '}' => {
                    self.next();
                    return Ok(word);
                }
                '\'' => {
                    word.push(self.single_quoted()?);
                }
                '"' => {
                    self.next();
                    word.push(WordPart::Quoted(String::new()));
                    self.quoted(Some('"'), &mut word)?;
                }
                '\\' => {
                    self.next();
                    word.push(WordPart::Quoted(self.next().ok_or(Fault::Incomplete)?.into()));
                }
                '$' | '`' => self.dollar(false, &mut word)?,
                c => {
                    self.next();
                    match word.last_mut() {
                        Some(WordPart::Text(text)) => text.push(c),
                        _ => word.push(WordPart::Text(c.into())),
                    }
                }
            }
        }
    }
}

/// Splits an assignment `NAME=…` at the start of a command into the name and the word for the value; `None` if the word
/// is not an assignment.
fn assignment(word: &Word) -> Option<(String, Word)> {
    let Some(WordPart::Text(text)) = word.first() else { return None };
    let (name, value) = text.split_once('=')?;
    if !is_name(name) {
        return None;
    }
    let first = (!value.is_empty()).then(|| WordPart::Text(value.to_owned()));
    Some((name.to_owned(), first.into_iter().chain(word[1..].iter().cloned()).collect()))
}

pub fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
