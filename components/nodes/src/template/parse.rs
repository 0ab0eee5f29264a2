//! Parses a template's text into nodes.

use super::Template;
use super::functions::{self, Function};
use super::lex::{Piece, Token, pieces, tokens};
use holdfast_value::Value;
use std::collections::BTreeMap;

/// The maximum depth of blocks and parentheses within each other.
const DEPTH_MAX: usize = 32;

#[derive(Debug, Clone)]
pub enum Node {
    Text(String),
    Print(Pipeline),
    If { arms: Vec<(Pipeline, Vec<Node>)>, otherwise: Vec<Node> },
    With { arms: Vec<(Pipeline, Vec<Node>)>, otherwise: Vec<Node> },
    Range { pipeline: Pipeline, body: Vec<Node>, otherwise: Vec<Node> },
    Template { name: String, argument: Option<Pipeline> },
    Break,
    Continue,
}

/// A pipeline with the variables that it sets: `$x := a b | c d`.
#[derive(Debug, Clone)]
pub struct Pipeline {
    pub variables: Vec<String>,
    /// Whether the pipeline changes existing variables (`=`) instead of declaring new variables (`:=`).
    pub assigns: bool,
    pub commands: Vec<PipelineCommand>,
}

#[derive(Debug, Clone)]
pub enum PipelineCommand {
    Value(Operand),
    Call(Function, Vec<Operand>),
}

#[derive(Debug, Clone)]
pub enum Operand {
    Literal(Value),
    Dot(Vec<String>),
    Variable(String, Vec<String>),
    /// A function that is called without arguments, as an argument of another function.
    Function(Function),
    Nested(Box<Pipeline>, Vec<String>),
}

pub fn template(source: &str) -> Result<Template, String> {
    let mut parser = Parser { pieces: pieces(source)?.into_iter(), defined: BTreeMap::new(), depth: 0 };
    let (body, end) = parser.block()?;
    if let Some(end) = end {
        return Err(format!("unexpected {{{{ {} }}}}", end.0));
    }
    let template = Template { body, defined: parser.defined };
    for nodes in std::iter::once(&template.body).chain(template.defined.values()) {
        check_names(nodes, &template)?;
    }
    Ok(template)
}

fn check_names(nodes: &[Node], template: &Template) -> Result<(), String> {
    for node in nodes {
        match node {
            Node::Template { name, .. } if !template.defined.contains_key(name) => {
                return Err(format!("the template {name:?} is not defined"));
            }
            Node::If { arms, otherwise } | Node::With { arms, otherwise } => {
                arms.iter().try_for_each(|(_, body)| check_names(body, template))?;
                check_names(otherwise, template)?;
            }
            Node::Range { body, otherwise, .. } => {
                check_names(body, template)?;
                check_names(otherwise, template)?;
            }
            _ => {}
        }
    }
    Ok(())
}

struct Parser<'a> {
    pieces: std::vec::IntoIter<Piece<'a>>,
    defined: BTreeMap<String, Vec<Node>>,
    depth: usize,
}

/// What ends a block: `end`, or `else` with the tokens that follow it.
type BlockEnd = (&'static str, Vec<Token>);

/// The condition of a block, and the nodes to render if the condition is true.
type Arm = (Pipeline, Vec<Node>);

impl Parser<'_> {
    /// Parses the nodes up to the end of the block.
    fn block(&mut self) -> Result<(Vec<Node>, Option<BlockEnd>), String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!("the template nests deeper than {DEPTH_MAX}"));
        }
        let mut nodes = Vec::new();
        while let Some(piece) = self.pieces.next() {
            let action = match piece {
                Piece::Text("") => continue,
                Piece::Text(text) => {
                    nodes.push(Node::Text(text.to_owned()));
                    continue;
                }
                Piece::Action(action) => action,
            };
            let mut tokens = tokens(action).map_err(|why| format!("{{{{ {action} }}}}: {why}"))?;
            let word = match tokens.first() {
                Some(Token::Word(word)) => word.clone(),
                _ => String::new(),
            };
            let mut rest = || tokens.split_off(1);
            let node = match word.as_str() {
                "end" | "else" => {
                    self.depth -= 1;
                    return Ok((nodes, Some((if word == "end" { "end" } else { "else" }, rest()))));
                }
                "if" => {
                    let (arms, otherwise) = self.arms("if", rest())?;
                    Node::If { arms, otherwise }
                }
                "with" => {
                    let (arms, otherwise) = self.arms("with", rest())?;
                    Node::With { arms, otherwise }
                }
                "range" => self.range(rest())?,
                "define" => {
                    self.define(&rest())?;
                    continue;
                }
                "block" => return Err("{{ block }} is not supported: use define and template".into()),
                "template" => invocation(rest())?,
                "break" => Node::Break,
                "continue" => Node::Continue,
                _ => Node::Print(pipeline(tokens).map_err(|why| format!("{{{{ {action} }}}}: {why}"))?),
            };
            nodes.push(node);
        }
        self.depth -= 1;
        Ok((nodes, None))
    }

    fn arms(&mut self, word: &str, first: Vec<Token>) -> Result<(Vec<Arm>, Vec<Node>), String> {
        let mut arms = Vec::new();
        let mut condition = pipeline(first)?;
        loop {
            let (body, end) = self.block()?;
            arms.push((condition, body));
            let (end, mut rest) = end.ok_or_else(|| format!("{{{{ {word} }}}} has no end"))?;
            if end == "end" {
                return Ok((arms, Vec::new()));
            }
            match rest.first() {
                Some(Token::Word(again)) if again == word => condition = pipeline(rest.split_off(1))?,
                None => {
                    let (otherwise, end) = self.block()?;
                    return match end {
                        Some(("end", _)) => Ok((arms, otherwise)),
                        _ => Err(format!("{{{{ {word} }}}} has no end")),
                    };
                }
                Some(_) => return Err(format!("{{{{ else }}}} of {word} says something that is not understood")),
            }
        }
    }

    fn range(&mut self, tokens: Vec<Token>) -> Result<Node, String> {
        let pipeline = pipeline(tokens)?;
        let (body, end) = self.block()?;
        match end {
            Some(("end", _)) => Ok(Node::Range { pipeline, body, otherwise: Vec::new() }),
            Some(("else", rest)) if rest.is_empty() => {
                let (otherwise, end) = self.block()?;
                match end {
                    Some(("end", _)) => Ok(Node::Range { pipeline, body, otherwise }),
                    _ => Err("{{ range }} has no end".into()),
                }
            }
            _ => Err("{{ range }} has no end".into()),
        }
    }

    fn define(&mut self, tokens: &[Token]) -> Result<(), String> {
        let [Token::Text(name)] = tokens else { return Err("{{ define }} wants a name in quotes".into()) };
        let name = name.clone();
        let (body, end) = self.block()?;
        match end {
            Some(("end", _)) => {
                self.defined.insert(name, body);
                Ok(())
            }
            _ => Err("{{ define }} has no end".into()),
        }
    }
}

fn invocation(mut tokens: Vec<Token>) -> Result<Node, String> {
    match tokens.first() {
        Some(Token::Text(name)) => {
            let name = name.clone();
            let rest = tokens.split_off(1);
            let argument = if rest.is_empty() { None } else { Some(pipeline(rest)?) };
            Ok(Node::Template { name, argument })
        }
        _ => Err("{{ template }} wants a name in quotes".into()),
    }
}

fn pipeline(tokens: Vec<Token>) -> Result<Pipeline, String> {
    let mut line = ActionTokens { tokens, next: 0, depth: 0 };
    let pipeline = line.pipeline()?;
    match line.peek() {
        None => Ok(pipeline),
        Some(_) => Err("a parenthesis is not opened".into()),
    }
}

struct ActionTokens {
    tokens: Vec<Token>,
    next: usize,
    depth: usize,
}

impl ActionTokens {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next)
    }

    fn take(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.next).cloned();
        self.next += 1;
        token
    }

    fn pipeline(&mut self) -> Result<Pipeline, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!("parentheses nest deeper than {DEPTH_MAX}"));
        }
        let (variables, assigns) = self.declaration();
        let mut commands = Vec::new();
        loop {
            commands.push(self.command()?);
            if self.peek() != Some(&Token::Bar) {
                break;
            }
            self.next += 1;
        }
        if commands.iter().skip(1).any(|command| matches!(command, PipelineCommand::Value(_))) {
            return Err("what stands after | must be a function".into());
        }
        self.depth -= 1;
        Ok(Pipeline { variables, assigns, commands })
    }

    /// Parses the start of a declaration: `$x :=`, `$i, $x :=`, `$x =`.
    fn declaration(&mut self) -> (Vec<String>, bool) {
        let (variables, length) = match &self.tokens[self.next.min(self.tokens.len())..] {
            [Token::Variable(one), Token::Declare | Token::Assign, ..] => (vec![one.clone()], 1),
            [Token::Variable(one), Token::Comma, Token::Variable(other), Token::Declare, ..] => {
                (vec![one.clone(), other.clone()], 3)
            }
            _ => return (Vec::new(), false),
        };
        self.next += length;
        let assigns = self.take() == Some(Token::Assign);
        (variables, assigns)
    }

    fn command(&mut self) -> Result<PipelineCommand, String> {
        if let Some(Token::Word(word)) = self.peek()
            && let Some(function) = functions::find(word)
        {
            self.next += 1;
            let mut operands = Vec::new();
            while !matches!(self.peek(), None | Some(Token::Bar | Token::Close)) {
                operands.push(self.operand()?);
            }
            return Ok(PipelineCommand::Call(function, operands));
        }
        let operand = self.operand()?;
        match self.peek() {
            None | Some(Token::Bar | Token::Close) => Ok(PipelineCommand::Value(operand)),
            Some(_) => Err("what is not a function has arguments".into()),
        }
    }

    fn operand(&mut self) -> Result<Operand, String> {
        Ok(match self.take() {
            Some(Token::Text(text)) => Operand::Literal(text.into()),
            Some(Token::Number(number)) => Operand::Literal(number.into()),
            Some(Token::Dot) => Operand::Dot(Vec::new()),
            Some(Token::Field(name, _)) => {
                let mut path = vec![name];
                path.extend(self.fields());
                Operand::Dot(path)
            }
            Some(Token::Variable(name)) => Operand::Variable(name, self.fields()),
            Some(Token::Open) => {
                let nested = self.pipeline()?;
                if self.take() != Some(Token::Close) {
                    return Err("a parenthesis is not closed".into());
                }
                Operand::Nested(nested.into(), self.fields())
            }
            Some(Token::Word(word)) => match word.as_str() {
                "true" | "false" => Operand::Literal(Value::Bool(word == "true")),
                "nil" => Operand::Literal(Value::Null),
                _ => Operand::Function(
                    functions::find(&word).ok_or_else(|| format!("the function {word:?} is not supported"))?,
                ),
            },
            _ => return Err("a value is missing".into()),
        })
    }

    /// Parses the fields that follow an operand without a space.
    fn fields(&mut self) -> Vec<String> {
        let mut path = Vec::new();
        while let Some(Token::Field(name, false)) = self.peek() {
            path.push(name.clone());
            self.next += 1;
        }
        path
    }
}
