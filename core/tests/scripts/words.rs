//! The text of a script, which consists of paragraphs. Each has a command, a body and the expected output.

/// The line of a command, such as `update configmaps default/a manager=kubectl brief`.
pub struct Line {
    pub text: String,
    pub words: Vec<String>,
    options: Vec<(String, String)>,
}

/// The words without `=` that say how a command runs or what it prints.
const FLAGS: [&str; 7] = ["answer", "as-json", "brief", "continue", "dry", "managed", "raw"];

pub struct Paragraph {
    /// The comments and empty lines before the command, as they are in the script.
    pub comment: String,
    pub line: Option<Line>,
    pub body: String,
    pub expected: String,
}

impl Line {
    pub fn parse(text: &str) -> Line {
        let mut line = Line { text: text.to_owned(), words: Vec::new(), options: Vec::new() };
        for word in text.split_whitespace() {
            match word.split_once('=') {
                Some((name, value)) => line.options.push((name.to_owned(), value.to_owned())),
                None => line.words.push(word.to_owned()),
            }
        }
        line
    }

    pub fn verb(&self) -> &str {
        &self.words[0]
    }

    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// What the command is about: its third word, unless that word is a flag.
    pub fn place(&self) -> Option<&str> {
        self.words.get(2).map(String::as_str).filter(|word| !FLAGS.contains(word))
    }

    /// Whether the command has this word after its name.
    pub fn has(&self, word: &str) -> bool {
        self.words.iter().skip(1).any(|found| found == word)
    }
}

pub fn paragraphs(text: &str) -> Vec<Paragraph> {
    let mut paragraphs = Vec::new();
    let mut lines = text.lines().peekable();
    while lines.peek().is_some() {
        let mut paragraph =
            Paragraph { comment: String::new(), line: None, body: String::new(), expected: String::new() };
        while let Some(line) = lines.next_if(|line| line.is_empty() || line.starts_with('#')) {
            if !line.is_empty() || !paragraph.comment.is_empty() || paragraphs.is_empty() {
                paragraph.comment += line;
                paragraph.comment.push('\n');
            }
        }
        paragraph.line = lines.next().map(Line::parse);
        for line in lines.by_ref().take_while(|line| *line != "----") {
            paragraph.body += line;
            paragraph.body.push('\n');
        }
        for line in lines.by_ref().take_while(|line| !line.is_empty()) {
            paragraph.expected += line;
            paragraph.expected.push('\n');
        }
        paragraphs.push(paragraph);
    }
    paragraphs
}
