//! The binary `holdfast`.

mod logging;
mod values;

fn main() {}
