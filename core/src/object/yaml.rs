//! Reads and writes YAML files: configuration, kubeconfigs, templates. All code that handles such files uses this
//! module. Only this module and `decode::yaml` use the YAML library.
//!
//! Bodies in YAML are read by `decode::yaml`, which accepts the same texts as Kubernetes, and written by `wire::yaml`.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Why a text is not YAML of the expected form. The message of the error names the line and the column.
pub use serde_yaml_ng::Error;

/// The fields of an [`Ordered`] document that is an object.
pub use serde_yaml_ng::Mapping as OrderedFields;
/// A document that is written with its fields in the order in which they were read.
pub use serde_yaml_ng::Value as Ordered;

/// Reads a document in YAML or JSON.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_yaml_ng::from_str(text)
}

/// Writes a document as YAML that ends in a newline.
pub fn write(document: &impl Serialize) -> Result<String, Error> {
    serde_yaml_ng::to_string(document)
}
