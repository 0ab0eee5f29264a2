//! The binary `holdfast`.

mod gates;
mod logging;
mod not_built;
mod values;

fn main() {}
