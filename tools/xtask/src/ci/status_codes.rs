//! Proves that the core, the engine and the service make no HTTP codes: they describe the outcome, and the transport
//! makes the code. `arrows` proves that they do not depend on the crate `http`.
//!
//! Three things are errors in their production code: names of the crate `http` and its `StatusCode`; a field, parameter
//! or function called `code` or `status` that is a `u16`; and the numbers of statuses. A number from 201 to 511 that
//! Kubernetes' API uses is an error anywhere. The round numbers 200, 400 and 500 are often sizes and times, and are
//! errors on lines that are about codes. Comments and string literals are not checked.

use super::sources::{production, sources};
use anyhow::{Context, bail};

const LOOKED_AT: [&str; 3] = ["core/src", "engine/src", "api/src"];

/// The statuses of Kubernetes' API that are not round numbers.
const STATUSES: [&str; 26] = [
    "201", "202", "204", "206", "301", "302", "304", "307", "308", "401", "403", "404", "405", "406", "408", "409",
    "410", "412", "413", "415", "422", "429", "501", "503", "504", "507",
];
const ROUND_STATUSES: [&str; 3] = ["200", "400", "500"];

/// A file that may contain a line with a status, and the reason. The list may only shrink: an unused entry is an error.
const ALLOWED: [(&str, &str); 2] = [
    ("core/src/admission/webhooks/review.rs", "which codes a webhook may choose is a rule about its answer"),
    ("core/src/wire/openapi/paths.rs", "a document that describes the answers of the API"),
];

pub fn check() -> anyhow::Result<()> {
    let root = crate::root();
    let (mut faults, mut used) = (Vec::new(), [false; ALLOWED.len()]);
    for folder in LOOKED_AT {
        let mut files = Vec::new();
        sources(&root.join(folder), &mut files)?;
        if files.is_empty() {
            bail!("{folder} has no sources");
        }
        for file in files {
            let path = file.strip_prefix(&root).unwrap_or(&file).display().to_string();
            let text = std::fs::read_to_string(&file).with_context(|| format!("read {path}"))?;
            let found = complaints(&text);
            match ALLOWED.iter().position(|(allowed, _)| *allowed == path) {
                Some(at) => used[at] |= !found.is_empty(),
                None => faults.extend(found.into_iter().map(|(line, why)| format!("{path}:{line} {why}"))),
            }
        }
    }
    for ((path, why), _) in ALLOWED.iter().zip(used).filter(|(_, used)| !used) {
        faults.push(format!("{path} has no status: drop it from the list ({why})"));
    }
    if !faults.is_empty() {
        bail!("HTTP codes outside the transport (tools/xtask/src/ci/status_codes.rs):\n{}", faults.join("\n"));
    }
    Ok(())
}

/// The lines with a status, and what is wrong with each.
fn complaints(text: &str) -> Vec<(usize, String)> {
    let lines = production(text).into_iter();
    lines.filter_map(|(line, code)| Some((line, complaint(&without_texts(code))?))).collect()
}

fn complaint(line: &str) -> Option<String> {
    let words = words(line);
    if words.contains(&"StatusCode") || line.contains("http::") {
        return Some("names the crate `http`".to_owned());
    }
    let is_about_codes = words.iter().any(|word| {
        let mut parts = word.split('_').map(str::to_ascii_lowercase);
        parts.any(|part| ["code", "codes", "status", "statuses"].contains(&part.as_str()))
    });
    let typed = ["code: u16", "status: u16", "code: &u16", "status: &u16", "code: Option<u16>", "status: Option<u16>"];
    let returns = ["fn code", "fn status"].iter().any(|start| line.contains(start)) && line.contains("-> u16");
    if returns || typed.iter().any(|typed| line.contains(typed)) {
        return Some("has a code as a number".to_owned());
    }
    let number = |word: &&&str| {
        let word = word.strip_suffix("_u16").or_else(|| word.strip_suffix("u16")).unwrap_or(word);
        STATUSES.contains(&word) || is_about_codes && ROUND_STATUSES.contains(&word)
    };
    words.iter().find(number).map(|word| format!("has the number {word}, which is a status"))
}

/// The names and numbers of a line. A number with a fraction is one word.
fn words(line: &str) -> Vec<&str> {
    let is_digit = |at: Option<usize>| at.and_then(|at| line.as_bytes().get(at)).is_some_and(u8::is_ascii_digit);
    let is_fraction = |at: usize| is_digit(at.checked_sub(1)) && is_digit(Some(at + 1));
    let mut words = Vec::new();
    let mut start = 0;
    for (at, letter) in line.char_indices() {
        if letter.is_alphanumeric() || letter == '_' || letter == '.' && is_fraction(at) {
            continue;
        }
        words.push(&line[start..at]);
        start = at + letter.len_utf8();
    }
    words.push(&line[start..]);
    words
}

/// The line without the contents of its string literals and without a comment at its end.
fn without_texts(line: &str) -> String {
    let (mut out, mut is_text, mut is_escaped) = (String::new(), false, false);
    for letter in line.chars() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' if is_text => is_escaped = true,
            '"' => is_text = !is_text,
            letter if !is_text => out.push(letter),
            _ => {}
        }
    }
    out.split("//").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_the_engine_and_the_service_have_no_codes() {
        check().expect("the sources of this checkout");
    }

    #[test]
    fn planted_codes_are_found() {
        for line in [
            "use http::StatusCode;",
            "fn answer(status: StatusCode) {}",
            "pub code: u16,",
            "fn count(&self, code: u16, took: Duration) {",
            "    pub fn code(&self) -> u16 {",
            "Refusal::NotFound(_) | Refusal::NoSuchPath => 404,",
            "_ => 422_u16,",
            "self.terminated(429);",
            "Ended { code: 200, ..Ended::default() }",
            "let rejection_code = 500;",
            "const CODES: [u16; 2] = [200, 400];",
            "End::Admitted => (StatusCode::OK, None),",
        ] {
            assert_eq!(complaints(line).len(), 1, "{line}");
        }
    }

    #[test]
    fn other_numbers_and_other_codes_are_let_pass() {
        for line in [
            "const LONG: usize = 200;",
            "const PATIENCE: Duration = Duration::from_micros(500);",
            "// 404 in a comment; `StatusCode`, too.",
            "let x = 1; // code: 404",
            "say(\"406: Not Acceptable\")",
            "pub port: u16,",
            "let exit_code = value.number().unwrap_or(0);",
            "pub struct AnswerCode(pub u16);",
            "pub code: fn(Result<&Reply, &Refusal>) -> AnswerCode,",
            "const BUCKETS: [f64; 3] = [0.204, 409.5, 1.401];",
        ] {
            assert_eq!(complaints(line), [], "{line}");
        }
        let tests = "fn a() {}\n#[cfg(test)]\nmod tests {\n    const A: u16 = 404;\n}\n";
        assert_eq!(complaints(tests), []);
    }
}
