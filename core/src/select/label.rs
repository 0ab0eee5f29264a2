//! Label selectors: `app=web,tier in (front,back),!canary`.

use super::by_key::ByKey;
use super::requirement::{Operator, Requirement, find_label};
use super::scan::{Token, tokens};
use crate::object::names;
use crate::refusal::Cause;
use holdfast_value::{CompactString, Map, Value};
use std::fmt;
use std::sync::Arc;

/// The maximum number of requirements that are compared with an object's labels one by one. If a selector has more, the
/// labels are looked up by key.
const REQUIREMENTS_WALKED: usize = 8;

/// A list of requirements on labels, all of which an object must fulfil. Clones share the list.
///
/// Invariant: requirements are sorted and distinct, so that equal selectors compare and print the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LabelSelector {
    requirements: Arc<[Requirement]>,
    /// Whether the selector matches no object, because the selector object is absent. (An empty selector object matches
    /// every object.)
    nothing: bool,
    /// The requirements combined by key, if the selector has many; otherwise `None`.
    by_key: Option<Arc<ByKey>>,
}

impl LabelSelector {
    /// The selector that matches every object.
    pub fn everything() -> Self {
        Self::default()
    }

    /// The selector that matches no object.
    pub fn nothing() -> Self {
        Self { nothing: true, ..Self::default() }
    }

    /// Parses the text of the parameter `labelSelector`. The error is Kubernetes' message.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { tokens: tokens(text), at: 0 };
        parser.selector().map(Self::from_requirements)
    }

    /// Reads a selector object, `{matchLabels, matchExpressions}`. Null matches no object.
    pub fn from_object(selector: &Value) -> Result<Self, String> {
        if selector.is_null() {
            return Ok(Self::nothing());
        }
        let mut requirements = Vec::new();
        for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            let value = value.as_str().unwrap_or_default().to_owned();
            requirements.push(Requirement::new(key, Operator::Equals, vec![value])?);
        }
        for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            let text = |field: &str| expression.get(field).and_then(Value::as_str).unwrap_or_default();
            let operator = match text("operator") {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(format!("{} is not a valid label selector operator", Value::from(other))),
            };
            let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
            let values = values.map(|value| value.as_str().unwrap_or_default().to_owned()).collect();
            requirements.push(Requirement::new(text("key"), operator, values)?);
        }
        Ok(Self::from_requirements(requirements))
    }

    /// The selector that requires each of these labels, as a Service's `spec.selector` does. The labels are not
    /// validated.
    pub fn from_labels(labels: &Map) -> Self {
        let requirement = |(key, value): (&CompactString, &Value)| Requirement {
            key: key.to_string(),
            operator: Operator::Equals,
            values: vec![value.as_str().unwrap_or_default().to_owned()],
        };
        Self::from_requirements(labels.iter().map(requirement).collect())
    }

    fn from_requirements(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort();
        requirements.dedup();
        let by_key = (requirements.len() > REQUIREMENTS_WALKED).then(|| Arc::new(ByKey::new(&requirements)));
        Self { requirements: requirements.into(), nothing: false, by_key }
    }

    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Whether the selector matches every object.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty() && !self.nothing
    }

    /// Whether an object with these `metadata.labels` matches.
    pub fn matches(&self, labels: &Map) -> bool {
        self.matches_by(|key| labels.get(key).and_then(Value::as_str))
    }

    /// Like [`Self::matches`]. `label` returns the value of the label with a key.
    pub fn matches_by<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        !self.nothing
            && match &self.by_key {
                Some(by_key) => by_key.match_by(&self.requirements, label),
                None => self.requirements.iter().all(|requirement| requirement.matches(label(&requirement.key))),
            }
    }

    /// Like [`Self::matches`], for labels sorted by key. The cost grows with the number of labels or of requirements,
    /// whichever is smaller.
    pub fn matches_sorted(&self, labels: &[(Box<str>, Box<str>)]) -> bool {
        match &self.by_key {
            Some(by_key) => !self.nothing && by_key.match_sorted(&self.requirements, labels),
            None => self.matches_by(|key| find_label(labels, key)),
        }
    }

    /// The maximum number of label look-ups for an object with this many labels.
    pub fn looks(&self, labels: usize) -> usize {
        self.requirements.len().min(labels + REQUIREMENTS_WALKED)
    }

    /// The key of a label that an object must have with one of a few values, and these values; `None` if the selector
    /// requires no such label.
    pub fn names(&self) -> Option<(&str, &[String])> {
        const VALUES_MAX: usize = 16;
        let naming = self.requirements.iter().filter(|one| matches!(one.operator, Operator::Equals | Operator::In));
        let fewest = naming.min_by_key(|one| one.values.len()).filter(|one| one.values.len() <= VALUES_MAX)?;
        Some((&fewest.key, &fewest.values))
    }

    /// The approximate number of bytes that the selector takes in memory.
    pub fn bytes(&self) -> usize {
        let text = |text: &String| size_of::<String>() + text.len().next_multiple_of(16);
        let of =
            |one: &Requirement| size_of::<Requirement>() + one.key.len() + one.values.iter().map(text).sum::<usize>();
        let by_key = self.by_key.as_ref().map_or(0, |by_key| by_key.bytes());
        self.requirements.iter().map(of).sum::<usize>() + by_key
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, requirement) in self.requirements.iter().enumerate() {
            write!(f, "{}{requirement}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens.get(self.at).copied().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn selector(&mut self) -> Result<Vec<Requirement>, String> {
        let begins = |token| matches!(token, Token::Word(_) | Token::Symbol("!"));
        let mut requirements = Vec::new();
        match self.peek() {
            Token::End => return Ok(requirements),
            token if begins(token) => {}
            token => return Err(format!("found '{}', expected: !, identifier, or 'end of string'", token.text())),
        }
        loop {
            requirements.push(self.requirement().map_err(|error| format!("unable to parse requirement: {error}"))?);
            match self.next() {
                Token::End => return Ok(requirements),
                Token::Symbol(",") if begins(self.peek()) => {}
                Token::Symbol(",") => {
                    return Err(format!("found '{}', expected: identifier after ','", self.peek().text()));
                }
                token => return Err(format!("found '{}', expected: ',' or 'end of string'", token.text())),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let absent = self.peek() == Token::Symbol("!");
        if absent {
            self.next();
        }
        let key = match self.next() {
            Token::Word(key) => key,
            token => return Err(format!("found '{}', expected: identifier", token.text())),
        };
        let messages = names::qualified_name(key);
        if !messages.is_empty() {
            // The selector is not in a document, so Go prints `<nil>` in place of a path.
            return Err(Cause::invalid("<nil>", &Value::from(key), &messages.join("; ")).to_string());
        }
        if absent {
            return Requirement::new(key, Operator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Requirement::new(key, Operator::Exists, Vec::new());
        }
        let operator = match self.next() {
            Token::Word("in") => Operator::In,
            Token::Word("notin") => Operator::NotIn,
            Token::Symbol("=" | "==") => Operator::Equals,
            Token::Symbol("!=") => Operator::NotEquals,
            Token::Symbol(">") => Operator::GreaterThan,
            Token::Symbol("<") => Operator::LessThan,
            token => return Err(format!("found '{}', expected: in, notin, =, ==, !=, gt, lt", token.text())),
        };
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => vec![self.exact_value()?],
        };
        Requirement::new(key, operator, values)
    }

    /// Parses a list of values, `(x,y)`. Values may be empty: `()` is a list of one empty value.
    fn values(&mut self) -> Result<Vec<String>, String> {
        match self.next() {
            Token::Symbol("(") => {}
            token => return Err(format!("found '{}' expected: '('", token.text())),
        }
        match self.peek() {
            Token::Word(_) | Token::Symbol("," | ")") => {}
            token => return Err(format!("found '{}', expected: ',', ')' or identifier", token.text())),
        }
        let mut values = Vec::new();
        loop {
            // A value is a word. If a comma or closing bracket follows immediately, the value is empty.
            match self.peek() {
                Token::Word(value) => {
                    self.next();
                    values.push(value.to_owned());
                }
                Token::Symbol("," | ")") => values.push(String::new()),
                token => return Err(format!("found '{}', expected: ',', or identifier", token.text())),
            }
            match self.next() {
                Token::Symbol(")") => break,
                Token::Symbol(",") => {}
                token => return Err(format!("found '{}', expected: ',' or ')'", token.text())),
            }
        }
        values.sort();
        values.dedup();
        Ok(values)
    }

    /// Parses the only value of a requirement with an operator such as `=` or `>`. The value is empty if the
    /// requirement ends here.
    fn exact_value(&mut self) -> Result<String, String> {
        match self.peek() {
            Token::End | Token::Symbol(",") => Ok(String::new()),
            Token::Word(value) => {
                self.next();
                Ok(value.to_owned())
            }
            token => Err(format!("found '{}', expected: identifier", token.text())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;
    use proptest::prelude::*;

    #[test]
    fn canonical_text() {
        let rows = [
            ("", ""),
            ("  ", ""),
            ("b==1, a = 2", "a=2,b=1"),
            ("a", "a"),
            ("!a", "!a"),
            ("! a", "!a"),
            ("a!=", "a!="),
            ("a=", "a="),
            ("a=,b", "a=,b"),
            ("x in (b,a,b)", "x in (a,b)"),
            ("x in ()", "x in ()"),
            ("x in (,a)", "x in (,a)"),
            ("x in (a,)", "x in (,a)"),
            ("x in (a,,b)", "x in (,a,b)"),
            ("x notin(a)", "x notin (a)"),
            ("in in (in,notin)", "in in (in,notin)"),
            ("notin=in", "notin=in"),
            ("k>1,k<5", "k>1,k<5"),
            ("a=1,a=1", "a=1"),
            ("example.com/a=b_c.d-e", "example.com/a=b_c.d-e"),
        ];
        for (text, expected) in rows {
            let selector = LabelSelector::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(selector.to_string(), expected, "{text}");
        }
    }

    #[test]
    fn refusals() {
        let rows = [
            ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
            ("a=b c", "found 'c', expected: ',' or 'end of string'"),
            ("a,", "found '', expected: identifier after ','"),
            (",a", "found ',', expected: !, identifier, or 'end of string'"),
            ("=a", "found '=', expected: !, identifier, or 'end of string'"),
            ("!", "unable to parse requirement: found '', expected: identifier"),
            ("a==!", "unable to parse requirement: found '!', expected: identifier"),
            ("a in b", "unable to parse requirement: found 'b' expected: '('"),
            ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
            ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("a in (b,", "unable to parse requirement: found '', expected: ',', or identifier"),
            (
                "k>x",
                "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must \
                 be an integer",
            ),
            ("-a", "unable to parse requirement: <nil>: Invalid value: \"-a\": name part must consist of"),
            (
                "a=-b",
                "unable to parse requirement: values[0][a]: Invalid value: \"-b\": a valid label must be an empty",
            ),
            ("a in (-b,-c)", "unable to parse requirement: [values[0][a]: Invalid value: \"-b\": a valid label"),
        ];
        for (text, expected) in rows {
            let error = LabelSelector::parse(text).expect_err(text);
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }

    #[test]
    fn the_object_form() {
        let rows = [
            (json!({}), Ok("")),
            (json!({"matchLabels": {"b": "1", "a": "2"}}), Ok("a=2,b=1")),
            (
                json!({"matchExpressions": [
                    {"key": "a", "operator": "In", "values": ["y", "x"]}, {"key": "b", "operator": "DoesNotExist"}
                ]}),
                Ok("a in (x,y),!b"),
            ),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}),
                Err("\"Gt\" is not a valid label selector operator"),
            ),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "In"}]}),
                Err("values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"),
            ),
        ];
        for (object, expected) in rows {
            let actual = LabelSelector::from_object(&object).map(|selector| selector.to_string());
            assert_eq!(actual, expected.map(str::to_owned).map_err(str::to_owned), "{object}");
        }
        assert!(!LabelSelector::from_object(&Value::Null).unwrap().matches(&Map::new()));
        assert!(LabelSelector::from_object(&json!({})).unwrap().matches(&Map::new()));
    }

    /// A simple evaluation of a requirement, with which [`LabelSelector`] is compared.
    fn naive(key: &str, operator: &str, values: &[String], labels: &Map) -> bool {
        let has = labels.contains_key(key);
        let value = labels.get(key).and_then(Value::as_str).unwrap_or("").to_owned();
        let number = |text: &String| text.parse::<i64>().unwrap_or(i64::MIN);
        match operator {
            "=" | "==" | "in" => has && values.contains(&value),
            "!=" | "notin" => !(has && values.contains(&value)),
            "!" => !has,
            "" => has,
            ">" => has && number(&value) != i64::MIN && number(&value) > number(&values[0]),
            "<" => has && number(&value) != i64::MIN && number(&value) < number(&values[0]),
            other => panic!("{other}"),
        }
    }

    fn requirement() -> impl Strategy<Value = (String, &'static str, Vec<String>)> {
        let operators = prop::sample::select(vec!["=", "==", "!=", "in", "notin", "", "!", ">", "<"]);
        ("[abc]", operators, prop::collection::vec("[0-3]", 1..3))
    }

    proptest! {
        #[test]
        fn matches_as_the_naive_twin(
            requirements in prop::collection::vec(requirement(), 0..16),
            labels in prop::collection::btree_map("[abc]", "[0-3x]", 0..4),
        ) {
            let sorted: Vec<(Box<str>, Box<str>)> =
                labels.iter().map(|(k, v)| (k.as_str().into(), v.as_str().into())).collect();
            let labels: Map = labels.into_iter().map(|(k, v)| (k, Value::from(v))).collect();
            let text = requirements.iter().map(|(key, operator, values)| match *operator {
                "in" | "notin" => format!("{key} {operator} ({})", values.join(", ")),
                "!" => format!("!{key}"),
                "" => key.clone(),
                _ => format!("{key}{operator}{}", values[0]),
            });
            let text = text.collect::<Vec<_>>().join(",");
            let expected = requirements.iter().all(|(key, operator, values)| {
                let listed = matches!(*operator, "in" | "notin");
                naive(key, operator, if listed { values } else { &values[..1] }, &labels)
            });
            let selector = LabelSelector::parse(&text).unwrap();
            prop_assert_eq!(selector.matches(&labels), expected);
            prop_assert_eq!(selector.matches_sorted(&sorted), expected);
            prop_assert_eq!(LabelSelector::parse(&selector.to_string()).unwrap(), selector);
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in "[a!=<>(), \tin\0é]{0,12}", other in ".*") {
            for text in [text, other] {
                if let Ok(selector) = LabelSelector::parse(&text) {
                    prop_assert_eq!(LabelSelector::parse(&selector.to_string()), Ok(selector));
                }
            }
        }
    }
}
