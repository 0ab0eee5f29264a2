//! Parses the values of options.

use holdfast_core::schema::quantity;

/// Parses a number of bytes, such as `32Mi`.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let bytes = quantity::whole(text).and_then(|bytes| u64::try_from(bytes).ok()).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| format!("{text:?} is not a number of bytes, such as 1000000 or 64Mi"))
}
