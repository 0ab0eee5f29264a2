//! Where a walk stands in an object: a chain on the stack, written out only for a complaint.

#[derive(Clone, Copy)]
pub(super) struct Path<'a> {
    pub parent: Option<&'a Path<'a>>,
    pub step: Step<'a>,
}

#[derive(Clone, Copy)]
pub(super) enum Step<'a> {
    Root,
    Field(&'a str),
    /// A field that the schema does not name, whose dot is written even where nothing stands before it.
    Extra(&'a str),
    /// The same, as rules are told of: in brackets.
    Key(&'a str),
    Index(usize),
}

impl Path<'_> {
    pub const ROOT: Path<'static> = Path { parent: None, step: Step::Root };

    pub fn then<'b>(&'b self, step: Step<'b>) -> Path<'b> {
        Path { parent: Some(self), step }
    }

    /// `spec.containers[0].image`.
    pub fn text(&self) -> String {
        let mut text = self.parent.map(Path::text).unwrap_or_default();
        match self.step {
            Step::Root => {}
            Step::Field(name) if text.is_empty() => text.push_str(name),
            Step::Field(name) | Step::Extra(name) => text.extend([".", name]),
            Step::Key(name) => text.extend(["[", name, "]"]),
            Step::Index(index) => text.push_str(&format!("[{index}]")),
        }
        text
    }
}
