//! Patches: a changed document from an old one and a patch.
