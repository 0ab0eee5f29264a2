//! Joins the metric families to which several parts of a process contribute, so that each family is shown once.

use std::collections::HashMap;

/// Returns `text` with all rows of each metric family directly one after another.
pub fn joined(text: &str) -> String {
    let mut blocks: Vec<String> = Vec::new();
    let mut places: HashMap<(&str, &str), usize> = HashMap::new();
    let mut lines = text.lines().filter(|line| *line != "# EOF").peekable();
    let mut place = None;
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("# HELP ").and_then(|rest| rest.split(' ').next()) else {
            if let Some(block) = place.and_then(|place: usize| blocks.get_mut(place)) {
                block.push_str(line);
                block.push('\n');
            }
            continue;
        };
        let kind = lines.next_if(|line| line.starts_with("# TYPE ")).unwrap_or_default();
        let known = places.entry((name, kind)).or_insert_with(|| {
            blocks.push(format!("{line}\n{kind}\n"));
            blocks.len() - 1
        });
        place = Some(*known);
    }
    blocks.concat() + "# EOF\n"
}

#[cfg(test)]
mod tests {
    use super::joined;

    #[test]
    fn a_family_stands_in_one_place() {
        let text = "# HELP a A.\n# TYPE a counter\na_total{x=\"1\"} 1\n# HELP b B.\n# TYPE b gauge\nb 2\n\
                    # HELP a A.\n# TYPE a counter\na_total{x=\"2\"} 3\n# HELP b B.\n# TYPE b counter\nb_total 4\n# EOF\n";
        let expected = "# HELP a A.\n# TYPE a counter\na_total{x=\"1\"} 1\na_total{x=\"2\"} 3\n# HELP b B.\n\
                        # TYPE b gauge\nb 2\n# HELP b B.\n# TYPE b counter\nb_total 4\n# EOF\n";
        assert_eq!(joined(text), expected);
    }
}
