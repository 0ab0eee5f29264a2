//! Makes a log of many objects without a server: for measurements of `holdfast fork`, `log verify` and starts.
//!
//! usage: cargo run --release --package holdfast-tests --example write_large_log -- DIR [OBJECTS [CHANGES OF EACH]]

fn main() {
    const USAGE: &str = "usage: write_large_log DIR [OBJECTS [CHANGES OF EACH]]";
    let mut arguments = std::env::args_os().skip(1);
    let folder = arguments.next().expect(USAGE);
    let mut number = |default| {
        let text = arguments.next();
        text.map_or(default, |text| text.to_str().and_then(|text| text.parse().ok()).expect(USAGE))
    };
    let (objects, changes) = (number(1_000_000), number(0));
    let events = holdfast_tests::large::write(std::path::Path::new(&folder), objects, changes);
    println!("{events} events on {objects} objects");
}
