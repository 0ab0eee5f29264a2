//! Writes the folder of `holdfast_tests::fixture` with the format of this release.
//!
//! usage: cargo run --release --package holdfast-tests --example write_log_fixture -- DIR

fn main() {
    let folder = std::env::args_os().nth(1).expect("usage: write_log_fixture DIR");
    holdfast_tests::fixture::write(std::path::Path::new(&folder));
}
