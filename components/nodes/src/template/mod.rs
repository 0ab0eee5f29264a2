//! Templates in the subset of Go's language that Stages use: actions, variables, `if`, `with`, `range`, `define`,
//! pipelines, the functions of Go and of KWOK, and the common functions of sprig.
//!
//! A template that uses anything else is refused when it is parsed, and the error names the unsupported part. Rendering
//! always ends, because the only recursion is through `template`, whose depth is bounded. The number of steps, the
//! bytes of values and the size of the text are bounded, too.

mod functions;
mod lex;
mod parse;
mod run;

pub use functions::{Surroundings, hex};
pub use run::RenderFailure;

use holdfast_core::object::decode;
use holdfast_value::Value;
use parse::Node;
use std::collections::BTreeMap;

/// The longest template, in bytes.
const SOURCE_MAX: usize = 256 << 10;

/// A parsed template.
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

    /// Renders the template for a document, and returns the text.
    pub fn render(&self, document: &Value, surroundings: &dyn Surroundings) -> Result<String, RenderFailure> {
        run::render(self, document, surroundings)
    }

    /// Renders the template and parses the text as YAML. An empty text gives null.
    pub fn document(&self, document: &Value, surroundings: &dyn Surroundings) -> Result<Value, RenderFailure> {
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
