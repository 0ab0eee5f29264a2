//! Which metrics are shown, and with which label values: metrics that the operator turns off are removed from the text
//! of `/metrics`, whichever part counted them.

use holdfast_core::object::decode;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

/// The value that replaces every label value that the operator has not allowed.
const UNEXPECTED: &str = "unexpected";

/// The operator's settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShownMetrics {
    /// Names of metric families that are not shown.
    disabled: BTreeSet<String>,
    /// The label values that are shown unchanged, by metric and label. All other values are replaced.
    allowed: BTreeMap<(String, String), BTreeSet<String>>,
}

impl ShownMetrics {
    pub fn new(disabled: impl IntoIterator<Item = String>) -> ShownMetrics {
        ShownMetrics { disabled: disabled.into_iter().collect(), allowed: BTreeMap::new() }
    }

    /// Parses `METRIC,LABEL='VALUE,VALUE',…`.
    pub fn allow(&mut self, text: &str) -> Result<(), String> {
        let mut rest = text.trim();
        while !rest.is_empty() {
            let (key, after) = rest.split_once('=').ok_or_else(|| format!("{rest} must be formatted as key=value"))?;
            let (values, after) = match after.strip_prefix('\'') {
                Some(quoted) => quoted.split_once('\'').ok_or_else(|| format!("{rest}: a quote is not closed"))?,
                // A value without quotes ends at the next comma, so there is only one value.
                None => after.split_once(',').map_or((after, ""), |(value, after)| (value, after)),
            };
            self.allow_values(key, values)?;
            rest = after.trim().trim_start_matches(',').trim();
        }
        Ok(())
    }

    /// Reads a file that maps `METRIC,LABEL` to `VALUE,VALUE`.
    pub fn allow_file(&mut self, file: &Path) -> Result<(), String> {
        let text = std::fs::read_to_string(file).map_err(|error| format!("read {}: {error}", file.display()))?;
        let read = decode::yaml(text.as_bytes()).map_err(|error| format!("{}: {error}", file.display()))?;
        let rows = read.value.as_object().ok_or_else(|| format!("{} is not a map", file.display()))?;
        rows.iter().try_for_each(|(key, values)| {
            let values = values.as_str().ok_or_else(|| format!("{}: {key}: expected a text", file.display()))?;
            self.allow_values(key, values).map_err(|why| format!("{}: {why}", file.display()))
        })
    }

    fn allow_values(&mut self, key: &str, values: &str) -> Result<(), String> {
        let is_name = |name: &str| {
            let mut bytes = name.bytes();
            bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
                && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        let (metric, label) = key
            .split_once(',')
            .map(|(metric, label)| (metric.trim(), label.trim()))
            .filter(|(metric, label)| is_name(metric) && is_name(label))
            .ok_or_else(|| format!("{key:?} is not formatted as METRIC,LABEL"))?;
        let values = values.split(',').map(|value| value.trim().to_owned());
        self.allowed.entry((metric.to_owned(), label.to_owned())).or_default().extend(values);
        Ok(())
    }

    /// The text without the hidden metrics. Rows that become equal are merged, and their numbers are added.
    pub fn apply(&self, text: String) -> String {
        if self.disabled.is_empty() && self.allowed.is_empty() {
            return text;
        }
        let mut lines: Vec<PageLine> = Vec::new();
        let mut known: HashMap<String, usize> = HashMap::new();
        let (mut family, mut shown) = (String::new(), true);
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("# HELP ").and_then(|rest| rest.split(' ').next()) {
                shown = !self.disabled.contains(name) && !self.disabled.contains(&format!("{name}_total"));
                name.clone_into(&mut family);
            }
            if !shown && line != "# EOF" {
                continue;
            }
            let Some((series, value)) = self.limited(&family, line) else {
                lines.push(PageLine::Text(line.to_owned()));
                continue;
            };
            match known.get(&series).map(|at| &mut lines[*at]) {
                Some(PageLine::Row { value: sum, .. }) => *sum += value,
                _ => {
                    known.insert(series.clone(), lines.len());
                    lines.push(PageLine::Row { series, value });
                }
            }
        }
        let lines = lines.into_iter().map(|line| match line {
            PageLine::Text(text) => text + "\n",
            PageLine::Row { series, value } => format!("{series} {value}\n"),
        });
        lines.collect()
    }

    /// A row in which the operator limits the values of a label: the name and labels after the replacement, and the
    /// number; `None` for all other rows.
    fn limited(&self, family: &str, line: &str) -> Option<(String, f64)> {
        let (name, rest) = line.split_once('{').filter(|_| !line.starts_with('#'))?;
        let (labels, value) = rest.rsplit_once("} ")?;
        let of = |label: &str| {
            let names = [name, family].into_iter();
            names.map(|metric| self.allowed.get(&(metric.to_owned(), label.to_owned()))).find_map(|allowed| allowed)
        };
        let labels = pairs(labels)?;
        if !labels.iter().any(|(label, _)| of(label).is_some()) {
            return None;
        }
        let labels: Vec<String> = labels
            .into_iter()
            .map(|(label, value)| {
                let is_shown = of(label).is_none_or(|allowed| allowed.contains(value));
                format!("{label}=\"{}\"", if is_shown { value } else { UNEXPECTED })
            })
            .collect();
        Some((format!("{name}{{{}}}", labels.join(",")), value.parse().ok()?))
    }
}

enum PageLine {
    Text(String),
    Row { series: String, value: f64 },
}

/// The names of a row's labels, each with its escaped value; `None` if the row is malformed.
fn pairs(mut text: &str) -> Option<Vec<(&str, &str)>> {
    let mut pairs = Vec::new();
    while !text.is_empty() {
        let (label, rest) = text.split_once("=\"")?;
        let mut escaped = false;
        let end = rest.bytes().position(|byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        })?;
        pairs.push((label, &rest[..end]));
        text = rest[end + 1..].trim_start_matches(',');
    }
    Some(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP a A.\n# TYPE a counter\na_total{x=\"1\",y=\"p\"} 2\na_total{x=\"2\",y=\"p\"} 3\n\
                        a_total{x=\"3\",y=\"q\\\",\"} 4\n# HELP b B.\n# TYPE b gauge\nb 1\n# EOF\n";

    #[test]
    fn values_that_nobody_expects_are_one() {
        let mut shown = ShownMetrics::default();
        shown.allow("a_total,x='1,9',  a_total,z=5").unwrap();
        let text = shown.apply(TEXT.into());
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("a_total")).collect();
        let expected = [
            "a_total{x=\"1\",y=\"p\"} 2",
            "a_total{x=\"unexpected\",y=\"p\"} 3",
            "a_total{x=\"unexpected\",y=\"q\\\",\"} 4",
        ];
        assert_eq!(rows, expected);
        shown.allow("a,y='q'").unwrap();
        let text = shown.apply(TEXT.into());
        assert!(text.contains("a_total{x=\"unexpected\",y=\"unexpected\"} 7\n"), "rows that became the same: {text}");
        assert!(text.contains("b 1\n") && text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn families_are_left_out_by_name() {
        let text = ShownMetrics::new(["a_total".to_owned()]).apply(TEXT.into());
        assert_eq!(text, "# HELP b B.\n# TYPE b gauge\nb 1\n# EOF\n");
        assert_eq!(ShownMetrics::default().apply(TEXT.into()), TEXT);
    }

    #[test]
    fn what_is_no_list_of_labels_is_refused() {
        for (text, why) in [
            ("a", "key=value"),
            ("a='1'", "METRIC,LABEL"),
            ("a,b='1", "quote"),
            ("a,b c='1'", "METRIC,LABEL"),
            (",b='1'", "METRIC,LABEL"),
        ] {
            let refused = ShownMetrics::default().allow(text).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }
}
