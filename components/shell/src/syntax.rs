//! The syntax tree of a script.

use std::sync::Arc;

/// Commands in sequence.
pub type List = Arc<Vec<Chain>>;

/// Pipelines connected by `&&` and `||`.
#[derive(Debug, Clone, PartialEq)]
pub struct Chain {
    pub first: Pipeline,
    /// The further pipelines, each with its operator: `true` stands for `&&`, `false` for `||`.
    pub rest: Vec<(bool, Pipeline)>,
    /// Whether the chain runs in the background: `&` follows it.
    pub in_background: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Pipeline {
    pub is_negated: bool,
    pub commands: Vec<Arc<Command>>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    pub kind: CommandKind,
    pub redirections: Vec<Redirection>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum CommandKind {
    Simple {
        assignments: Vec<(String, Word)>,
        words: Vec<Word>,
    },
    Group(List),
    Subshell(List),
    /// Conditions with their bodies, and the `else` branch.
    If(Vec<(List, List)>, Option<List>),
    /// A loop. Without words it loops over the arguments.
    For {
        name: String,
        words: Option<Vec<Word>>,
        body: List,
    },
    While {
        until: bool,
        condition: List,
        body: List,
    },
    Case {
        word: Word,
        arms: Vec<(Vec<Word>, List)>,
    },
    Function {
        name: String,
        body: Arc<Command>,
    },
}

/// A word consists of adjacent parts.
pub type Word = Vec<WordPart>;

#[derive(Debug, Clone, PartialEq)]
pub enum WordPart {
    Text(String),
    Quoted(String),
    /// A home directory.
    Tilde,
    Variable {
        name: String,
        change: Change,
        is_quoted: bool,
    },
    Output {
        script: List,
        is_quoted: bool,
    },
    Number {
        expression: Word,
        is_quoted: bool,
    },
}

/// The change of a variable's value in an expansion.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    None,
    Length,
    /// `-`, `=`, `?`, `+`; `or_empty` is true if a colon precedes the sign.
    Default {
        sign: char,
        or_empty: bool,
        word: Word,
    },
    /// `#` or `%`, once or twice.
    Cut {
        sign: char,
        is_long: bool,
        pattern: Word,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct Redirection {
    pub number: u8,
    pub what: RedirectionTarget,
}

#[derive(Debug, Clone, PartialEq)]
pub enum RedirectionTarget {
    Read(Word),
    Write(Word),
    Append(Word),
    /// Duplicates the open file with the number in the word, or closes this number if the word is `-`.
    Same(Word),
    Text(Word),
}
