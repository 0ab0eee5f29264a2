#![no_main]

#[path = "../src/shell.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::shell(bytes));
