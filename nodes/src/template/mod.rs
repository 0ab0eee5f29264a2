//! Templates in the part of Go's language that Stages are written in: actions, variables, `if`, `with`, `range`,
//! `define`, pipelines, Go's own functions, those that KWOK adds, and the common ones of sprig.
//!
//! A template that uses anything else is refused when it is read, by name. Rendering ends: there is no recursion but
//! through `template`, whose depth is bounded, as are the steps, the bytes of the values and the size of the text.

mod functions;
mod lex;
mod parse;
mod run;

pub use functions::hex;
pub use run::{Failure, Surroundings};

use holdfast_core::object::decode;
use holdfast_value::Value;
use parse::Node;
use std::collections::BTreeMap;

/// How long a template may be.
const SOURCE_MAX: usize = 256 << 10;

/// A template that was understood.
#[derive(Debug, Clone)]
pub struct Template {
    body: Vec<Node>,
    defined: BTreeMap<String, Vec<Node>>,
}

impl Template {
    pub fn parse(source: &str) -> Result<Template, String> {
        if source.len() > SOURCE_MAX {
            return Err(format!("the template is longer than {SOURCE_MAX} bytes"));
        }
        parse::template(source)
    }

    /// The text for a document.
    pub fn render(&self, document: &Value, surroundings: &dyn Surroundings) -> Result<String, Failure> {
        run::render(self, document, surroundings)
    }

    /// What the text says as YAML; nothing, where it is empty.
    pub fn document(&self, document: &Value, surroundings: &dyn Surroundings) -> Result<Value, Failure> {
        let text = self.render(document, surroundings)?;
        if text.trim().is_empty() {
            return Ok(Value::Null);
        }
        let read = decode::yaml(text.as_bytes());
        Ok(read.map_err(|error| format!("the template gives no YAML: {error}"))?.value)
    }
}

#[cfg(test)]
mod tests;
