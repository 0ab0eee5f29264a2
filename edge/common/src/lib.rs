//! Tools for parts of a server that a file configures or that send requests to another server: [`Followed`] files with
//! their metrics, and a [`Cache`] of answers.

mod cache;
mod followed;
mod reloads;

pub use cache::Cache;
pub use followed::Followed;
pub use holdfast_files::trouble::Trouble;
pub use reloads::{Reloads, digest};
