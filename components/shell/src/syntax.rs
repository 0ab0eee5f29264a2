//! The syntax tree of a script.

use std::sync::Arc;

/// Commands that run one after the other.
pub type List = Arc<Vec<Chain>>;

/// Pipelines that are connected by `&&` and `||`.
#[derive(Debug, Clone, PartialEq)]
pub struct Chain {
    pub first: Pipeline,
    /// The pipelines after the first one, each with the operator before it: `true` stands for `&&`, `false` for `||`.
    pub rest: Vec<(bool, Pipeline)>,
    /// Whether a `&` follows the chain, so that it runs in the background.
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
    /// The conditions, each with its body, and the `else` branch.
    If(Vec<(List, List)>, Option<List>),
    /// A loop over words. If `words` is `None`, the loop is over the arguments of the script.
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

/// A word, which consists of adjacent parts.
pub type Word = Vec<WordPart>;

#[derive(Debug, Clone, PartialEq)]
pub enum WordPart {
    Text(String),
    Quoted(String),
    /// A `~`, which stands for the home directory.
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

/// How the value of a variable is changed when the variable is expanded.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    None,
    Length,
    /// One of `-`, `=`, `?` and `+`. `or_empty` is true if a colon precedes the sign.
    Default {
        sign: char,
        or_empty: bool,
        word: Word,
    },
    /// The sign `#` or `%`, written once or twice.
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
    /// Makes the number stand for the open file whose number the word gives. If the word is `-`, the number is closed.
    Same(Word),
    Text(Word),
}
