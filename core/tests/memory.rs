//! Tests that decoding a document takes memory of at most about thirty times the document's length.
//!
//! Each document is decoded in a process of its own, whose peak memory the kernel records.
#![cfg(all(target_os = "linux", not(debug_assertions)))]

use holdfast_core::object::decode;
use std::process::Command;

/// The number of bytes of each document, which is the size of the largest request.
const BYTES: usize = 3 << 20;
const TIMES_MAX: usize = 32;

type Decode = fn(&[u8]) -> bool;

/// Each document has a name, a decoder, and the three texts of which it consists: start, repeated part, end.
const DOCUMENTS: [(&str, Decode, [&str; 3]); 26] = [
    ("numbers", json, ["[", "0,", "0]"]),
    ("lists", json, ["[", "[],", "[]]"]),
    ("mappings", json, ["[", "{},", "{}]"]),
    ("small_mappings", json, ["[", "{\"\":0},", "0]"]),
    ("small_mappings_of_texts", json, ["[", "{\"a\":\"b\"},", "0]"]),
    ("nested_mappings", json, ["[", "{\"a\":{\"b\":{\"c\":[{}]}}},", "0]"]),
    ("texts", json, ["[", "\"\",", "0]"]),
    ("short_texts", json, ["[", "\"a\",", "0]"]),
    ("escapes", json, ["[\"", "\\u0041", "\"]"]),
    ("surrogates", json, ["[", "\"\\ud800\",", "0]"]),
    ("bad_bytes", json, ["[\"", "\u{0}", "\"]"]),
    ("yaml_numbers", yaml, ["[", "0,", "0]"]),
    ("yaml_lists", yaml, ["[", "[],", "[]]"]),
    ("yaml_small_mappings", yaml, ["[", "{a: 0}, ", "0]"]),
    ("yaml_keys_without_values", yaml, ["{", "a,", "a}"]),
    ("yaml_empty_items", yaml, ["", "-\n", ""]),
    ("yaml_empty_values", yaml, ["", "a:\n", ""]),
    ("yaml_nested_items", yaml, ["", "- ", "a"]),
    ("yaml_nested_keys", yaml, ["", "? ", "a"]),
    ("yaml_nested_values", yaml, ["", ": ", "a"]),
    ("yaml_brackets", yaml, ["", "[", ""]),
    ("yaml_pairs_in_lists", yaml, ["[", "? ,", "a]"]),
    ("yaml_anchors", yaml, ["", "- &a x\n", ""]),
    ("yaml_tags", yaml, ["", "- !a x\n", ""]),
    ("yaml_aliases", yaml, ["- &a [x, x, x, x, x, x, x, x, x, x]\n", "- *a\n", ""]),
    ("yaml_ordinary", yaml, ["", "      - name: some-name\n        image: registry.example.com/a:1.2.3\n", ""]),
];

fn json(bytes: &[u8]) -> bool {
    decode::json(bytes).is_ok()
}

fn yaml(bytes: &[u8]) -> bool {
    decode::yaml(bytes).is_ok()
}

/// The environment variable by which the parent tells a child process which document to decode.
const ASKED: &str = "HOLDFAST_DECODES";

#[test]
#[expect(clippy::disallowed_methods, reason = "the measured process is told by its environment what to decode")]
fn decoding_takes_memory_in_proportion_to_what_was_sent() {
    if let Ok(asked) = std::env::var(ASKED) {
        return report(&asked);
    }
    let mut greedy = Vec::new();
    for (name, ..) in DOCUMENTS {
        let program = std::env::current_exe().expect("this program");
        let run = Command::new(program).args(["--nocapture", "--test-threads=1"]).env(ASKED, name).output();
        let output = run.expect("this program runs again");
        let text = String::from_utf8_lossy(&output.stdout);
        let told = text.split("took ").nth(1).and_then(|rest| rest.split_whitespace().next()?.parse::<usize>().ok());
        let took = told.unwrap_or_else(|| panic!("{name}: {text} {}", String::from_utf8_lossy(&output.stderr)));
        println!("{name}: {} times", took / BYTES);
        if took > TIMES_MAX * BYTES {
            greedy.push(format!("{name}: {took} bytes"));
        }
    }
    assert!(greedy.is_empty(), "{greedy:#?}");
}

fn report(asked: &str) {
    let (_, decode, [start, piece, end]) = DOCUMENTS.iter().find(|(name, ..)| *name == asked).expect("a document");
    let text = format!("{start}{}{end}", piece.repeat((BYTES - start.len() - end.len()) / piece.len()));
    let before = largest();
    let done = decode(text.as_bytes());
    println!("took {} bytes, {done}", largest() - before);
}

/// The largest amount of memory that this process has used, in bytes.
fn largest() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("the kernel knows this process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a largest size");
    let kibibytes: usize = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kibibytes << 10
}
