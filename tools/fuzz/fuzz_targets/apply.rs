#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| holdfast_fuzz::server_side_apply(bytes));
