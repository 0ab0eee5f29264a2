//! Label and field selectors: parsing, matching, and a canonical text.
//!
//! A selector is parsed once per request and compared with every object. Equal texts mean equal selectors, so that
//! watchers with the same selector can share results. Errors have Kubernetes' messages.

mod by_key;
mod field;
mod label;
mod requirement;
mod scan;

pub use field::{FieldRequirement, FieldSelector};
pub use label::LabelSelector;
pub use requirement::{Operator, Requirement, find_label};
