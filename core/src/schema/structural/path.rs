//! The path of the value that a walk through an object visits. It is a chain on the stack, and is printed only for a
//! message.

use crate::refusal::{Cut, PATH_BYTES_MAX};

#[derive(Clone, Copy)]
pub(super) struct Path<'a> {
    pub parent: Option<&'a Path<'a>>,
    pub step: Step<'a>,
}

#[derive(Clone, Copy)]
pub(super) enum Step<'a> {
    Root,
    Field(&'a str),
    /// A field outside `properties`. Its dot is printed even at the beginning of the path.
    Extra(&'a str),
    /// A field outside `properties`, as messages of rules print it: in brackets.
    Key(&'a str),
    Index(usize),
}

impl Path<'_> {
    pub const ROOT: Path<'static> = Path { parent: None, step: Step::Root };

    pub fn then<'b>(&'b self, step: Step<'b>) -> Path<'b> {
        Path { parent: Some(self), step }
    }

    /// The path as text: `spec.containers[0].image`.
    pub fn text(&self) -> String {
        let mut path = Cut::at(PATH_BYTES_MAX);
        self.write(&mut path);
        path.text
    }

    fn write(&self, path: &mut Cut) {
        if let Some(parent) = self.parent {
            parent.write(path);
        }
        let parts = match self.step {
            Step::Root => return,
            Step::Field(name) if path.text.is_empty() => ["", name, ""],
            Step::Field(name) | Step::Extra(name) => [".", name, ""],
            Step::Key(name) => ["[", name, "]"],
            Step::Index(index) => ["[", &index.to_string(), "]"],
        };
        parts.iter().for_each(|part| _ = path.add(part));
    }
}
