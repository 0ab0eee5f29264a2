//! Parses the bootstrap tables: blocks of lines with one fact a line, structured by indentation.

/// A line without indentation, and the indented lines below it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub words: Vec<String>,
    pub lines: Vec<Vec<String>>,
}

/// `VERBS on RESOURCES of GROUPS [named NAMES] [cluster]` or `VERBS at PATHS`, with its lists split.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RuleLine {
    pub verbs: Vec<String>,
    pub groups: Vec<String>,
    pub resources: Vec<String>,
    pub names: Vec<String>,
    pub paths: Vec<String>,
    pub cluster: bool,
}

/// Splits a table into blocks. A line indented by four spaces continues the line before it: the two lines are joined
/// with a space, or without a space after a comma.
pub(super) fn blocks(table: &str) -> Vec<Block> {
    let mut logical: Vec<(bool, String)> = Vec::new();
    for line in table.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        let indent = line.len() - line.trim_start().len();
        match logical.last_mut() {
            Some((_, known)) if indent >= 4 => {
                if !known.ends_with(',') {
                    known.push(' ');
                }
                known.push_str(line.trim());
            }
            _ => logical.push((indent > 0, line.trim().to_owned())),
        }
    }
    let mut blocks: Vec<Block> = Vec::new();
    for (inner, line) in logical {
        let words = line.split_whitespace().map(str::to_owned).collect();
        match blocks.last_mut() {
            Some(block) if inner => block.lines.push(words),
            _ => blocks.push(Block { words, lines: Vec::new() }),
        }
    }
    blocks
}

impl RuleLine {
    /// Parses a rule. The tables are part of the program, so a malformed rule is a bug and panics.
    pub fn parse(words: &[String]) -> Self {
        let mut out = Self { verbs: list(&words[0]), ..Self::default() };
        let mut rest = words[1..].iter();
        while let Some(word) = rest.next() {
            let mut next = || list(rest.next().unwrap_or_else(|| panic!("nothing follows {word} in {words:?}")));
            match word.as_str() {
                "on" => out.resources = next(),
                "of" => {
                    out.groups =
                        next().into_iter().map(|group| if group == "core" { String::new() } else { group }).collect()
                }
                "named" => out.names = next(),
                "at" => out.paths = next(),
                "cluster" => out.cluster = true,
                _ => panic!("{word} means nothing in {words:?}"),
            }
        }
        assert_eq!(out.resources.is_empty(), out.groups.is_empty(), "resources have groups: {words:?}");
        assert_ne!(out.resources.is_empty(), out.paths.is_empty(), "either resources or paths: {words:?}");
        out
    }
}

/// Parses `group=system:masters` into `("group", "system:masters")`.
pub(super) fn subject(word: &str) -> (&str, &str) {
    match word.split_once('=') {
        Some(pair @ ("user" | "group" | "account", _)) => pair,
        _ => panic!("{word} is no subject"),
    }
}

fn list(word: &str) -> Vec<String> {
    word.split(',').map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_join_and_nest() {
        let table = "# remark\nrole a\n  get on x,\n    y of core named n\n\n  get at /z\nbind b\n    c\n";
        let blocks = blocks(table);
        assert_eq!(blocks.len(), 2);
        assert_eq!(blocks[0].words, ["role", "a"]);
        assert_eq!(blocks[1].words, ["bind", "b", "c"]);
        let rule = RuleLine::parse(&blocks[0].lines[0]);
        assert_eq!((rule.resources, rule.groups, rule.names), (list("x,y"), vec![String::new()], list("n")));
        assert_eq!(RuleLine::parse(&blocks[0].lines[1]).paths, ["/z"]);
    }

    #[test]
    #[should_panic(expected = "resources have groups")]
    fn a_rule_without_a_group_is_a_mistake() {
        RuleLine::parse(&["get", "on", "pods"].map(str::to_owned));
    }
}
