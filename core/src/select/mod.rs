//! Label and field selectors: parsing, matching, and one canonical text for each.
//!
//! A selector is parsed once a request and then asked of every object; equal texts mean equal selectors, so that
//! watchers which ask the same can share the answer. What is refused is told in Kubernetes' words.

mod by_key;
mod field;
mod label;
mod requirement;
mod scan;

pub use field::{FieldRequirement, FieldSelector};
pub use label::LabelSelector;
pub use requirement::{Operator, Requirement, find_label};
