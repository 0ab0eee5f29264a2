//! This crate has no code. Its manifest selects the features that dependencies have in every build.
