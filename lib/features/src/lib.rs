//! Holds no code: its manifest says which features dependencies have in every build.
