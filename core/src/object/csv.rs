//! Comma-separated values as Go's encoding/csv reads them. Quoted fields may contain commas, quotes and line breaks.
//! Spaces at the ends of a field belong to the field. Empty lines are skipped.

/// The number of the line on which a record begins, and the record's fields.
pub type Record = (usize, Vec<String>);

/// All records of a text, or the first error.
pub fn records(text: &str) -> Result<Vec<Record>, String> {
    let mut lines = Lines { text, number: 0 };
    let mut records = Vec::new();
    while let Some(line) = lines.next() {
        if !line.is_empty() {
            records.push((lines.number, record(line, &mut lines)?));
        }
    }
    Ok(records)
}

struct Lines<'a> {
    text: &'a str,
    number: usize,
}

impl<'a> Iterator for Lines<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        if self.text.is_empty() {
            return None;
        }
        let (line, rest) = self.text.split_once('\n').unwrap_or((self.text, ""));
        (self.text, self.number) = (rest, self.number + 1);
        Some(line.strip_suffix('\r').unwrap_or(line))
    }
}

fn record<'a>(first: &'a str, lines: &mut Lines<'a>) -> Result<Vec<String>, String> {
    let begun = lines.number;
    let wrong = |line: usize, at: usize, why: &str| {
        let start = if line == begun { String::new() } else { format!("record on line {begun}; ") };
        Err(format!("{start}parse error on line {line}, column {}: {why}", at + 1))
    };
    const QUOTE: &str = "extraneous or missing \" in quoted-field";
    let (mut line, mut at, mut fields) = (first, 0, Vec::new());
    loop {
        let Some(quoted) = line[at..].strip_prefix('"') else {
            let end = line[at..].find(',').map_or(line.len(), |end| at + end);
            if let Some(quote) = line[at..end].find('"') {
                return wrong(lines.number, at + quote, "bare \" in non-quoted field");
            }
            fields.push(line[at..end].to_owned());
            if end == line.len() {
                return Ok(fields);
            }
            at = end + 1;
            continue;
        };
        let (mut field, mut rest) = (String::new(), quoted);
        loop {
            match rest.find('"') {
                Some(end) => {
                    field.push_str(&rest[..end]);
                    rest = &rest[end + 1..];
                    match rest.strip_prefix('"') {
                        Some(more) => {
                            field.push('"');
                            rest = more;
                        }
                        None => break,
                    }
                }
                None => {
                    field.push_str(rest);
                    let (number, end) = (lines.number, line.len());
                    let Some(next) = lines.next() else { return wrong(number, end, QUOTE) };
                    field.push('\n');
                    (line, rest) = (next, next);
                }
            }
        }
        fields.push(field);
        at = line.len() - rest.len();
        match rest.chars().next() {
            None => return Ok(fields),
            Some(',') => at += 1,
            Some(_) => return wrong(lines.number, at - 1, QUOTE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_those_of_go() {
        let read = |text: &str| {
            let shown = |(line, fields): &Record| format!("{line}:{}", fields.join("|"));
            records(text).map(|records| records.iter().map(shown).collect::<Vec<_>>().join(" "))
        };
        for (text, expected) in [
            ("", ""),
            ("a", "1:a"),
            ("a,b,\n\nc\r\n", "1:a|b| 3:c"),
            (" a, b", "1: a| b"),
            ("\"^https://a{1,2}$\",b", "1:^https://a{1,2}$|b"),
            ("a,\"b \"\"c\"\", d\"", "1:a|b \"c\", d"),
            ("\"a\nb\",c\nd", "1:a\nb|c 3:d"),
            ("#a,b", "1:#a|b"),
        ] {
            assert_eq!(read(text), Ok(expected.into()), "{text}");
        }
        for (text, expected) in [
            ("a\"b", "parse error on line 1, column 2: bare \" in non-quoted field"),
            ("a\nb,\"c\"d", "parse error on line 2, column 5: extraneous or missing \" in quoted-field"),
            ("\"a", "parse error on line 1, column 3: extraneous or missing \" in quoted-field"),
            (
                "x,\"a\nbc",
                "record on line 1; parse error on line 2, column 3: extraneous or missing \" in quoted-field",
            ),
        ] {
            assert_eq!(read(text), Err(expected.into()), "{text}");
        }
    }
}
