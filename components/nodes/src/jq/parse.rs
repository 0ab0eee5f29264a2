//! Parses a query into its filter.

use super::{DEPTH_MAX, FUNCTIONS, Filter};
use holdfast_value::{Number, Value};

pub fn filter(text: &str) -> Parsed {
    let mut parser = Parser { tokens: tokens(text)?, next: 0, depth: 0 };
    let filter = parser.pipe()?;
    match parser.peek() {
        None => Ok(filter),
        Some(token) => Err(format!("unexpected {token} in query {text:?}")),
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Sign(&'static str),
    Word(String),
    Text(String),
    Number(Number),
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Token::Sign(sign) => f.write_str(sign),
            Token::Word(word) => f.write_str(word),
            Token::Text(text) => write!(f, "{text:?}"),
            Token::Number(number) => write!(f, "{number}"),
        }
    }
}

/// The operators and brackets. If one is a prefix of another, the longer one comes first, so that it is found first.
const SIGNS: &[&str] = &["//", "==", "!=", "<=", ">=", "<", ">", "|", ",", "(", ")", "[", "]", ".", "?", "+", "-", ";"];

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let used = if first == '"' {
            let mut stream = serde_json::Deserializer::from_str(rest).into_iter::<String>();
            match stream.next() {
                Some(Ok(found)) => tokens.push(Token::Text(found)),
                _ => return Err(format!("unfinished text in query {text:?}")),
            }
            stream.byte_offset()
        } else if first.is_ascii_digit() {
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '.')).unwrap_or(rest.len());
            let number =
                rest[..end].parse().map_err(|_| format!("{:?} in query {text:?} is not a number", &rest[..end]))?;
            tokens.push(Token::Number(number));
            end
        } else if first.is_ascii_alphabetic() || first == '_' {
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
            tokens.push(Token::Word(rest[..end].to_owned()));
            end
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            tokens.push(Token::Sign(sign));
            sign.len()
        } else {
            return Err(format!("{first:?} in query {text:?} is not supported"));
        };
        rest = rest[used..].trim_start();
    }
    Ok(tokens)
}

struct Parser {
    tokens: Vec<Token>,
    next: usize,
    depth: usize,
}

type Parsed = Result<Filter, String>;

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next)
    }

    fn sign(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Sign(found)) if *found == sign);
        self.next += usize::from(found);
        found
    }

    fn word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Word(found)) if found == word);
        self.next += usize::from(found);
        found
    }

    fn expect(&mut self, sign: &str) -> Result<(), String> {
        if self.sign(sign) { Ok(()) } else { Err(self.unexpected(&format!("{sign:?}"))) }
    }

    fn unexpected(&self, wanted: &str) -> String {
        match self.peek() {
            Some(token) => format!("the query has {token} where {wanted} should be"),
            None => format!("the query ends where {wanted} should be"),
        }
    }

    fn pipe(&mut self) -> Parsed {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!("the query nests deeper than {DEPTH_MAX}"));
        }
        let mut filter = self.comma()?;
        let mut stages = Vec::new();
        while self.sign("|") {
            stages.push(self.comma()?);
        }
        for stage in stages {
            filter = Filter::Pipe(filter.into(), stage.into());
        }
        self.depth -= 1;
        Ok(filter)
    }

    fn comma(&mut self) -> Parsed {
        let mut filter = self.alternative()?;
        while self.sign(",") {
            filter = Filter::Both(filter.into(), self.alternative()?.into());
        }
        Ok(filter)
    }

    fn alternative(&mut self) -> Parsed {
        let mut filter = self.any()?;
        while self.sign("//") {
            filter = Filter::Or(filter.into(), self.any()?.into());
        }
        Ok(filter)
    }

    fn any(&mut self) -> Parsed {
        let mut filter = self.all()?;
        while self.word("or") {
            filter = Filter::Any(filter.into(), self.all()?.into());
        }
        Ok(filter)
    }

    fn all(&mut self) -> Parsed {
        let mut filter = self.comparison()?;
        while self.word("and") {
            filter = Filter::All(filter.into(), self.comparison()?.into());
        }
        Ok(filter)
    }

    fn comparison(&mut self) -> Parsed {
        let filter = self.sum()?;
        let operator = ["==", "!=", "<=", ">=", "<", ">"].into_iter().find(|operator| self.sign(operator));
        Ok(match operator {
            Some(operator) => Filter::Compare(operator, filter.into(), self.sum()?.into()),
            None => filter,
        })
    }

    fn sum(&mut self) -> Parsed {
        let mut filter = self.postfix()?;
        loop {
            let plus = self.sign("+");
            if !plus && !self.sign("-") {
                return Ok(filter);
            }
            filter = Filter::Add(plus, filter.into(), self.postfix()?.into());
        }
    }

    fn postfix(&mut self) -> Parsed {
        let mut filter = self.term()?;
        let mut length = 0;
        loop {
            if self.sign("?") {
                filter = Filter::Try(filter.into());
            } else if self.sign("[") {
                filter = self.bracket(filter)?;
            } else if self.sign(".") {
                filter = self.after_dot(filter)?;
            } else {
                return Ok(filter);
            }
            length += 1;
            if length > DEPTH_MAX {
                return Err(format!("a path of the query is longer than {DEPTH_MAX}"));
            }
        }
    }

    /// Parses what follows a `.`: a name, a text, or a bracket.
    fn after_dot(&mut self, filter: Filter) -> Parsed {
        let name = match self.peek() {
            Some(Token::Word(name) | Token::Text(name)) => name.clone(),
            Some(Token::Sign("[")) => {
                self.next += 1;
                return self.bracket(filter);
            }
            _ => return Err(self.unexpected("a name")),
        };
        self.next += 1;
        Ok(Filter::At(filter.into(), Filter::Literal(name.into()).into()))
    }

    /// Parses what follows a `[`: a `]`, or an index.
    fn bracket(&mut self, filter: Filter) -> Parsed {
        if self.sign("]") {
            return Ok(Filter::Each(filter.into()));
        }
        let key = self.pipe()?;
        self.expect("]")?;
        Ok(Filter::At(filter.into(), key.into()))
    }

    fn term(&mut self) -> Parsed {
        let token = self.peek().cloned().ok_or_else(|| self.unexpected("a term"))?;
        self.next += 1;
        match token {
            Token::Text(text) => Ok(Filter::Literal(text.into())),
            Token::Number(number) => Ok(Filter::Literal(number.into())),
            Token::Sign("-") => match self.peek().cloned() {
                Some(Token::Number(number)) => {
                    self.next += 1;
                    let negative = format!("-{number}").parse::<Number>().map_err(|error| error.to_string())?;
                    Ok(Filter::Literal(negative.into()))
                }
                _ => Err(self.unexpected("a number")),
            },
            Token::Sign(".") => match self.peek() {
                Some(Token::Word(name)) if !matches!(name.as_str(), "and" | "or" | "then" | "else" | "end") => {
                    self.after_dot(Filter::Identity)
                }
                Some(Token::Text(_) | Token::Sign("[")) => self.after_dot(Filter::Identity),
                _ => Ok(Filter::Identity),
            },
            Token::Sign("(") => {
                let filter = self.pipe()?;
                self.expect(")")?;
                Ok(filter)
            }
            Token::Sign("[") => {
                if self.sign("]") {
                    return Ok(Filter::Array(None));
                }
                let filter = self.pipe()?;
                self.expect("]")?;
                Ok(Filter::Array(Some(filter.into())))
            }
            Token::Word(word) => self.named(&word),
            Token::Sign(_) => {
                self.next -= 1;
                Err(self.unexpected("a term"))
            }
        }
    }

    fn named(&mut self, word: &str) -> Parsed {
        match word {
            "true" | "false" => return Ok(Filter::Literal(Value::Bool(word == "true"))),
            "null" => return Ok(Filter::Literal(Value::Null)),
            "if" => return self.condition(),
            _ => {}
        }
        let mut arguments = Vec::new();
        if self.sign("(") {
            arguments.push(self.pipe()?);
            while self.sign(";") {
                arguments.push(self.pipe()?);
            }
            self.expect(")")?;
        }
        let known = FUNCTIONS.iter().find(|(name, arity, _)| *name == word && *arity == arguments.len());
        match known {
            Some((_, _, function)) => Ok(Filter::Call(*function, arguments)),
            None => Err(format!("the function {word}/{} of jq is not supported", arguments.len())),
        }
    }

    fn condition(&mut self) -> Parsed {
        let condition = self.pipe()?;
        if !self.word("then") {
            return Err(self.unexpected("then"));
        }
        let then = self.pipe()?;
        let otherwise = if self.word("else") {
            self.pipe()?
        } else if self.word("elif") {
            return Ok(Filter::If(condition.into(), then.into(), self.condition()?.into()));
        } else {
            Filter::Identity
        };
        if !self.word("end") {
            return Err(self.unexpected("end"));
        }
        Ok(Filter::If(condition.into(), then.into(), otherwise.into()))
    }
}
