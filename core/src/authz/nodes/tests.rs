//! Tables of the module.
